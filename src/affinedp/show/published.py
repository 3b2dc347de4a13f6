"""Published numbers as people read them: the first thing on a page about a released table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from affinedp.show.styles import LEFT, RIGHT

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
    """

    caption: str
    headings: tuple[str, ...]
    labels: int
    rows: tuple[tuple[str, ...], ...] = field(repr=False)
    more: int = 0

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


def _html_line(opening: str, closing: str, cells: Sequence[str], styles: Sequence[str]) -> str:
    inner = "".join(
        f"<{opening} style='{style};{WRAP if style == LEFT else 'white-space:nowrap'}'>"
        f"{escape(cell)}</{closing}>"
        for cell, style in zip(cells, styles)
    )
    return f"<tr>{inner}</tr>"
