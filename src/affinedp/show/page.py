"""A report as people see it: plain text, a notebook fragment, a page to hand on."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from html import escape
from typing import TYPE_CHECKING

from affinedp.errors import MissingExtraError
from affinedp.show.baseline import Baseline
from affinedp.show.levels import LevelRow, groups_of
from affinedp.show.published import PublishedNumbers
from affinedp.show.styles import BREAK, LEFT, PAGE, RIGHT, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

WIDTH = 80
SHOWN_OUTPUTS = 30
FOLDED_OUTPUTS = 2000  # of a page, where they are folded away
SHOWN_EQUATIONS = 30
LONGEST_EQUATION = 400
SOURCE = (
    "Definitions and theorems: Ren, Wang, Yuan, Shi, “Differential Privacy on Affine Manifolds”."
)
LEVELS = "Noise in groups (root mean square, units of the output)"
OUTPUTS = "Noise on every output (standard deviation, units of the output)"
_ALARMING = ("leak", "warning", "not protected")


@dataclass(frozen=True, slots=True)
class OutputRow:
    """The noise on one output.

    Attributes
    ----------
    name : str
        The output.
    deviation : float
        Standard deviation of its noise, in units of the output.
    independent_deviation : float or None
        The same for independent noise that keeps the same promise; None where unknown.
    ratio : float or None
        Expected squared error relative to independent noise.
    """

    name: str
    deviation: float
    independent_deviation: float | None
    ratio: float | None


@dataclass(frozen=True)
class Report:
    """A mechanism in words and numbers.

    Attributes
    ----------
    title : str
        One line.
    promise : tuple of (label, text)
        What is promised, to whom, by which theorem, under which equations.
    outputs : tuple of OutputRow
        One per output, in their order.
    totals : tuple of (label, text)
        The noise of all outputs together, how near it is to the least, notes.
    equations : tuple of str
        Equations that every release obeys.
    baseline : Baseline
        The independent noise in ``outputs``.
    picture : callable or None
        Draws the figure of :meth:`page`.
    headline : str
        The promise that was asked for, in one line; empty where none was.
    opening : tuple of (lead, text)
        A paragraph for people who decide; stands first in HTML.
    levels : tuple of LevelRow
        The noise by level, where the outputs have levels.
    published : PublishedNumbers or None
        What was published, if anything was: first on a page; not in the plain text.
    """

    title: str
    promise: tuple[tuple[str, str], ...]
    outputs: tuple[OutputRow, ...]
    totals: tuple[tuple[str, str], ...]
    equations: tuple[str, ...]
    baseline: Baseline = field(repr=False)
    picture: Callable[[], Figure] | None = field(default=None, repr=False, compare=False)
    headline: str = ""
    opening: tuple[tuple[str, str], ...] = ()
    levels: tuple[LevelRow, ...] = ()
    published: PublishedNumbers | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return plain text of at most 80 columns."""
        from rich.console import Console
        from rich.text import Text

        # explicit settings: the text must not depend on the terminal or on a notebook
        console = Console(
            file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False,
            force_terminal=False, legacy_windows=False,
        )  # fmt: skip
        with console.capture() as captured:
            if self.headline:
                console.print(Text(self.headline))
            console.print(Text(self.title), Text("═" * len(self.title)), sep="\n")
            for heading, table in self._text_sections():
                console.print(Text(f"\n{heading}"), table, sep="\n")
            console.print(Text(f"\n{SOURCE}"))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def _text_sections(self) -> Iterator[tuple[str, Table]]:
        yield "What is promised", _text_rows(self.promise)
        if levels := self._shown_levels():
            yield LEVELS, _text_columns(*_level_cells(levels))
        yield OUTPUTS, self._text_outputs()
        yield "All outputs together", _text_rows(self.totals)
        if self.equations:
            yield (
                "Every release obeys",
                _text_rows([(e,) for e in _shown_equations(self.equations)]),
            )

    def _text_outputs(self) -> Table:
        rows, more = self._shown_outputs(SHOWN_OUTPUTS)
        cells = [_cells(row) for row in rows]
        return _text_columns(self._columns(), [*cells, [f"and {more:,} more"]] if more else cells)

    def html(self) -> str:
        """Return a fragment for notebooks: escaped, in the colours of its surroundings."""
        body = "".join(self._html_sections("h4", SHOWN_OUTPUTS))
        head = self._html_opening("h3") + self._html_published("h4", SHOWN_OUTPUTS)
        return f"<div class='affinedp-report'>{head}{body}</div>"

    def page(self) -> str:
        """Return a complete page that needs nothing from elsewhere, with a figure if possible."""
        sections = [self._html_opening("h1"), *self._html_sections("h2", FOLDED_OUTPUTS)]
        sections.insert(3, self._figure())
        sections.insert(1, self._html_published("h2", FOLDED_OUTPUTS))
        return PAGE.format(title=escape(self.title), style=STYLE, body="\n".join(sections))

    def _html_published(self, heading: str, most: int) -> str:
        return "" if self.published is None else self.published.html(heading, most)

    def _html_opening(self, heading: str) -> str:
        """The promise that was asked for, and the paragraph for people who decide."""
        first = self.headline or self.title
        head = f"<{heading}>{escape(first)}</{heading}>"
        if self.headline:
            head += f"<p>{escape(self.title)}</p>"
        if not self.opening:
            return head
        leads = " ".join(
            f"<strong>{escape(lead)}:</strong> {escape(text)}." for lead, text in self.opening
        )
        return f"{head}<p class='opening' style='{BREAK}'>{leads}</p>"

    def _html_sections(self, heading: str, most: int) -> Iterator[str]:
        def section(title: str, content: str) -> str:
            return f"<section><{heading}>{escape(title)}</{heading}>{content}</section>"

        yield section("What is promised", _html_rows(self.promise))
        if levels := self._shown_levels():
            folded = (
                f"<details><summary>{escape(OUTPUTS)}: {len(self.outputs):,} outputs</summary>"
                f"{self._html_outputs(most)}</details>"
            )
            yield section(LEVELS, _html_columns(*_level_cells(levels)) + folded)
        else:
            yield section(OUTPUTS, self._html_outputs(most))
        yield section("All outputs together", _html_rows(self.totals))
        if self.equations:
            items = "".join(
                f"<li style='{BREAK}'><code>{escape(line)}</code></li>"
                for line in _shown_equations(self.equations)
            )
            yield section(
                "Every release obeys",
                f"<ul style='list-style:none;padding:0;margin:0'>{items}</ul>",
            )
        yield f"<p><small>{escape(SOURCE)}</small></p>"

    def _html_outputs(self, most: int) -> str:
        rows, more = self._shown_outputs(most)
        table = _html_columns(self._columns(), [_cells(row) for row in rows])
        return table + (f"<p>and {more:,} more</p>" if more else "")

    def _figure(self) -> str:
        """The plot as inline SVG; nothing where matplotlib is not installed."""
        if self.picture is None:
            return ""
        try:
            drawing = inline_svg(self.picture())
        except MissingExtraError:
            return ""
        label = "The privacy curve and the noise"
        return f"<figure role='img' aria-label='{label}'>{drawing}</figure>"

    def _columns(self) -> tuple[str, ...]:
        if self.baseline.deviation is None:
            return ("output", "noise")
        return ("output", "noise", "i.i.d.", "squared error ratio")

    def _shown_outputs(self, most: int) -> tuple[Sequence[OutputRow], int]:
        """All rows in their order, or those with the most noise; and how many are left out."""
        if len(self.outputs) <= most:
            return self.outputs, 0
        # by what is shown of the numbers, so that rounding does not shuffle equal noise
        largest = sorted(self.outputs, key=lambda row: -float(f"{row.deviation:.4g}"))
        return largest[:most], len(self.outputs) - most

    def _shown_levels(self) -> tuple[LevelRow, ...]:
        """A few lines in place of many; nothing where all outputs fit on a screen."""
        if len(self.outputs) <= SHOWN_OUTPUTS:
            return tuple(row for row in self.levels if row.relative is not None)
        if self.levels:
            return self.levels
        return groups_of(
            [row.name for row in self.outputs], [row.deviation for row in self.outputs]
        )


def inline_svg(figure: Figure) -> str:
    """Return a figure as an SVG element for an HTML page.

    Parameters
    ----------
    figure : Figure
        What is written.
    """
    from matplotlib import rc_context

    written = io.StringIO()
    metadata = {"Creator": None, "Date": None, "Format": None, "Type": None}
    # names inside the picture are hashes: without a fixed salt they differ from page to page
    with rc_context({"svg.hashsalt": "affinedp"}):
        figure.savefig(written, format="svg", metadata=metadata)
    text = written.getvalue()
    element = text[text.index("<svg") :]
    # inside HTML the namespaces are implied
    for namespace in ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"):
        for prefix in ("xmlns", "xmlns:xlink"):
            element = element.replace(f' {prefix}="{namespace}"', "", 1)
    return element


def round_up(value: float, digits: int = 2) -> str:
    """Write a number that is promised as "at most" with a few digits, never below it.

    Parameters
    ----------
    value : float
        A finite number.
    digits : int
        Significant digits.

    Examples
    --------
    >>> round_up(1.2301), round_up(2.01e-14)
    ('1.3', '2.1e-14')
    """
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value)
    return f"{float(rounded):.{digits}g}"


def printable(text: str) -> str:
    """Return a text from elsewhere without what could steer a terminal or break a line.

    Parameters
    ----------
    text : str
        Names of outputs, for example.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printed(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return labelled texts without what could steer a terminal.

    Parameters
    ----------
    rows : iterable of (label, text)
        Parts of a report.
    """
    return tuple((label, printable(text)) for label, text in rows)


def shortened(text: str) -> str:
    """Return an equation cut to a length that can be read.

    Parameters
    ----------
    text : str
        An equation.
    """
    return text if len(text) <= LONGEST_EQUATION else text[: LONGEST_EQUATION - 1] + "…"


def _cells(row: OutputRow) -> list[str]:
    cells = [row.name, f"{row.deviation:.4g}"]
    if row.independent_deviation is not None and row.ratio is not None:
        cells += [f"{row.independent_deviation:.4g}", f"{row.ratio:.4g}"]
    return cells


def _level_cells(rows: Sequence[LevelRow]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Headings and cells; relative errors where numbers were published."""
    headings: tuple[str, ...] = ("outputs", "how many", "noise")
    cells = [[row.name, f"{row.numbers:,}", f"{row.deviation:.4g}"] for row in rows]
    if any(row.relative is not None for row in rows):
        headings += ("known to, 95 % (median)",)
        for row, line in zip(rows, cells):
            line.append("" if row.relative is None else _share(row.relative))
    return headings, cells


def _share(value: float) -> str:
    return f"± {100 * value:.2g} %" if value < 10 else "more than ± 1000 %"


def _text_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=True)
    table.add_column(headings[0], max_width=34, no_wrap=True, overflow="ellipsis")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _html_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(
        f"<th scope='col' style='{LEFT if i == 0 else RIGHT}'>{escape(text)}</th>"
        for i, text in enumerate(headings)
    )
    body = "".join(
        f"<tr><th scope='row' style='{LEFT};{BREAK};font-weight:normal'>{escape(name)}</th>"
        + "".join(f"<td style='{RIGHT}'>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown_equations(equations: Sequence[str]) -> list[str]:
    shown = [shortened(text) for text in equations[:SHOWN_EQUATIONS]]
    more = len(equations) - SHOWN_EQUATIONS
    return [*shown, f"and {more:,} more"] if more > 0 else shown


def _text_rows(rows: Sequence[tuple[str, ...]]) -> Table:
    """A table without lines, whose last column wraps."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2), pad_edge=True)
    for _ in rows[0][:-1]:
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _html_rows(rows: Sequence[tuple[str, str]]) -> str:
    body = ""
    for label, text in rows:
        alarming = label in _ALARMING or text.startswith("NONE")
        mark = "border-left:4px solid #d55e00;padding-left:8px;font-weight:bold" if alarming else ""
        body += (
            f"<tr><th scope='row' style='{LEFT};white-space:nowrap'>{escape(label)}</th>"
            f"<td style='{LEFT};{BREAK};{mark}'>{escape(text)}</td></tr>"
        )
    return f"<table>{body}</table>"
