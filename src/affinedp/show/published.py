"""Published numbers as people read them: the first thing on a page about a released table."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from affinedp.show.styles import LEFT, RIGHT

BETWEEN = "  "
# The promise must not hide below thousands of rows.
BOX = "overflow:auto;max-height:32em"
# Labels wrap between words, and within a word only where it is longer than that.
WRAP = "overflow-wrap:break-word;max-width:24em"


@dataclass(frozen=True)
class PublishedNumbers:
    """A published table in words: labels, then numbers with intervals.

    Attributes
    ----------
    caption : str
        What the numbers are.
    headings : tuple of str
        Of the columns.
    labels : int
        How many of the columns are labels; they stand to the left.
    rows : tuple of tuples of str
        What is shown.
    more : int
        How many rows there are beyond these.

    Examples
    --------
    >>> shown = PublishedNumbers("Counts", ("sex", "n"), 1, (("women", "41"), ("men", "4")))
    >>> print("\\n".join(shown.lines(40)))
    Counts
    <BLANKLINE>
    sex     n
    women  41
    men     4
    """

    caption: str
    headings: tuple[str, ...]
    labels: int
    rows: tuple[tuple[str, ...], ...] = field(repr=False)
    more: int = 0

    @property
    def widths(self) -> list[int]:
        """How wide every column is in fixed-width type."""
        return [
            max(columns_of(line[place]) for line in (self.headings, *self.rows))
            for place in range(len(self.headings))
        ]

    @property
    def width(self) -> int:
        """How wide all columns are beside each other."""
        return sum(self.widths) + len(BETWEEN) * (len(self.headings) - 1)

    def lines(self, most: int) -> list[str]:
        """Return fixed-width text; columns that do not fit follow below, with the labels again.

        Parameters
        ----------
        most : int
            How wide a line may be.
        """
        found = [self.caption]
        for block in self._blocks(most):
            found.append("")
            for line in (self.headings, *self.rows):
                cells = [
                    _padded(line[place], self.widths[place], place < self.labels) for place in block
                ]
                found.append(BETWEEN.join(cells).rstrip())
        return [*found, *self._left_out()]

    def _blocks(self, most: int) -> list[list[int]]:
        """Columns that stand beside each other: all labels, and numbers as far as they fit."""
        labels = list(range(self.labels))
        widths = [width + len(BETWEEN) for width in self.widths]
        start = sum(widths[: self.labels])
        blocks: list[list[int]] = []
        used = most + 1
        for place in range(self.labels, len(self.headings)):
            used += widths[place]
            if used > most + len(BETWEEN):
                blocks.append([*labels])
                used = start + widths[place]
            blocks[-1].append(place)
        return blocks or [labels]

    def _left_out(self) -> list[str]:
        return [f"and {self.more:,} more rows"] if self.more else []

    def html(self, heading: str, most: int) -> str:
        """Return a section of an HTML page, escaped.

        Parameters
        ----------
        heading : str
            Such as ``h2``.
        most : int
            Rows that are shown.
        """
        styles = [LEFT if place < self.labels else RIGHT for place in range(len(self.headings))]
        head = _html_line("th scope='col'", "th", self.headings, styles)
        body = "".join(_html_line("td", "td", row, styles) for row in self.rows[:most])
        more = self.more + max(len(self.rows) - most, 0)
        rest = f"<p>and {more:,} more rows</p>" if more else ""
        return (
            f"<section><{heading}>{escape(self.caption)}</{heading}>"
            f"<div style='{BOX}'><table><thead>{head}</thead><tbody>{body}</tbody>"
            f"</table></div>{rest}</section>"
        )


def columns_of(text: str) -> int:
    """Return how wide a text is in fixed-width type: some characters are two columns wide.

    Parameters
    ----------
    text : str
        A cell.

    Examples
    --------
    >>> columns_of("north"), columns_of("東京")
    (5, 4)
    """
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _padded(text: str, width: int, left: bool) -> str:
    space = " " * (width - columns_of(text))
    return text + space if left else space + text


def _html_line(opening: str, closing: str, cells: Sequence[str], styles: Sequence[str]) -> str:
    inner = "".join(
        f"<{opening} style='{style};{WRAP if style == LEFT else 'white-space:nowrap'}'>"
        f"{escape(cell)}</{closing}>"
        for cell, style in zip(cells, styles)
    )
    return f"<tr>{inner}</tr>"
