"""A report as people see it: the same sections as plain text, notebook fragment and HTML page."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from affinedp.domains.text import format_equation, parse_equations
from affinedp.errors import MissingExtraError, counted

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
MOST_GROUPS = 8
NAMED = 3  # of the outputs in a group
SHARES = (("quietest tenth", 0.0, 0.1), ("middle", 0.1, 0.9), ("noisiest tenth", 0.9, 1.0))
_ALARMING = ("leak", "warning", "not protected")


@dataclass(frozen=True)
class Baseline:
    """Independent noise of one scale on every output that keeps the same promise."""

    # its standard deviation; None where it is not available
    deviation: float | None
    # why it is not available
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OutputRow:
    """The noise on one output."""

    name: str
    # standard deviation of its noise, in units of the output
    deviation: float
    # the same for independent noise that keeps the same promise; None where unknown
    independent_deviation: float | None = None

    @property
    def ratio(self) -> float | None:
        """Expected squared error relative to independent noise."""
        alone = self.independent_deviation
        return alone and (self.deviation / alone) ** 2


@dataclass(frozen=True, slots=True)
class LevelRow:
    """The noise on a group of outputs."""

    # the level, or which outputs they are
    name: str
    numbers: int
    # root mean square of their noise
    deviation: float
    # median half width of 95 % intervals, as a share of the published numbers
    relative: float | None = None


@dataclass(frozen=True)
class PublishedNumbers:
    """A published table in words: labels, then numbers with intervals."""

    # what the numbers are
    caption: str
    headings: tuple[str, ...]
    # how many of the columns are labels; they stand to the left
    labels: int
    rows: tuple[tuple[str, ...], ...] = field(repr=False)
    # how many rows there are beyond these
    more: int = 0
    # what is said below it
    note: str = ""


@dataclass(frozen=True)
class _Section:
    """A heading with rows: the first ``labels`` columns are words, the others numbers."""

    title: str
    rows: Sequence[Sequence[str]]
    headings: Sequence[str] = ()
    labels: int = 1
    more: str = ""


@dataclass(frozen=True)
class Report:
    """A mechanism in words and numbers."""

    # one line
    title: str
    # what is promised, to whom, by which theorem, under which equations: labels and texts
    promise: tuple[tuple[str, str], ...]
    # one per output, in their order
    outputs: tuple[OutputRow, ...]
    # the noise of all outputs together, how near it is to the least, notes: labels and texts
    totals: tuple[tuple[str, str], ...]
    # equations that every release obeys
    equations: tuple[str, ...]
    # the independent noise in ``outputs``
    baseline: Baseline = field(repr=False)
    # draws the figures of :meth:`page`
    picture: Callable[[], Sequence[Figure]] | None = field(default=None, repr=False, compare=False)
    # the promise that was asked for, in one line; empty where none was
    headline: str = ""
    # plain lines for people who decide, each with its lead; they stand first in HTML
    opening: tuple[tuple[str, str], ...] = ()
    # the noise by level, where the outputs have levels
    levels: tuple[LevelRow, ...] = ()
    # what was published, if anything was: first on a page; not in the plain text
    published: PublishedNumbers | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return plain text of at most 80 columns."""
        from rich.cells import cell_len
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
            title = Text(self.title).wrap(console, WIDTH)
            longest = max(cell_len(line.plain.rstrip()) for line in title)
            console.print(*title, Text("═" * longest), sep="\n")
            for section in self._sections(SHOWN_OUTPUTS):
                console.print(Text(f"\n{section.title}"), _text(section), sep="\n")
            console.print(Text(f"\n{SOURCE}"))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def html(self) -> str:
        """Return a fragment for notebooks: escaped, in the colours of its surroundings."""
        body = "".join(self._html("h3", SHOWN_OUTPUTS))
        return f"<div class='affinedp-report'>{body}</div>"

    def page(self) -> str:
        """Return a complete page that needs nothing from elsewhere, with a figure if possible."""
        today = datetime.now(UTC).date().isoformat()
        body = "\n".join(self._html("h1", FOLDED_OUTPUTS, f"<p>{today}</p>", self._figure()))
        return PAGE.format(title=escape(self.title), style=STYLE, body=body)

    def _sections(self, most: int) -> Iterator[_Section]:
        """What is said in every form, in this order."""
        levels = self._shown_levels()
        yield _Section("What is promised", self.promise)
        if levels:
            yield _Section(LEVELS, *_level_cells(levels))
        yield self._output_section(most)
        yield _Section("All outputs together", self.totals)
        if self.equations:
            lines = [(shortened(as_written(text)),) for text in self.equations[:SHOWN_EQUATIONS]]
            more = len(self.equations) - SHOWN_EQUATIONS
            yield _Section("Every release obeys", lines, more=_more(more))

    def _output_section(self, most: int) -> _Section:
        """All outputs in their order, or those with the most noise."""
        rows: Sequence[OutputRow] = self.outputs
        if len(rows) > most:
            # by what is shown of the numbers, so that rounding does not shuffle equal noise
            rows = sorted(rows, key=lambda row: -float(f"{row.deviation:.4g}"))[:most]
        headings: tuple[str, ...] = ("output", "noise")
        if self.baseline.deviation is not None:
            headings += ("i.i.d.", "squared error ratio")
        more = _more(len(self.outputs) - len(rows))
        return _Section(OUTPUTS, [_cells(row) for row in rows], headings, more=more)

    def _shown_levels(self) -> tuple[LevelRow, ...]:
        """A few lines in place of many; nothing where all outputs fit on a screen."""
        if len(self.outputs) <= SHOWN_OUTPUTS:
            return tuple(row for row in self.levels if row.relative is not None)
        if self.levels:
            return self.levels
        return groups_of(
            [row.name for row in self.outputs], [row.deviation for row in self.outputs]
        )

    def _html(self, heading: str, most: int, date: str = "", figure: str = "") -> Iterator[str]:
        """The title, the date and plain lines, what was published; details are folded below."""
        yield f"<{heading}>{escape(self.headline or self.title)}</{heading}>"
        if self.headline:
            yield f"<p>{escape(self.title)}</p>"
        yield date
        if self.opening:
            lines = (
                f"<dt>{escape(lead)}</dt><dd>{escape(text[:1].upper() + text[1:])}.</dd>"
                for lead, text in self.opening
            )
            yield f"<dl class='opening' style='{BREAK}'>{''.join(lines)}</dl>"
        if self.published is not None:
            told = self.published
            more = told.more + max(len(told.rows) - most, 0)
            rest = f"and {counted(more, 'more row')}" if more else ""
            shown = _Section(told.caption, told.rows[:most], told.headings, told.labels, rest)
            yield f"<h2>{escape(shown.title)}</h2>"
            yield f"<div class='published' style='{BOX}'>{_html(shown)}</div>"
            yield f"<p><small>{escape(told.note)}</small></p>" if told.note else ""
        yield figure
        for section in self._sections(most):
            open_ = "" if self.opening else " open"
            title = f"<summary>{escape(section.title)}</summary>"
            # on paper the groups say it
            long = section.title == OUTPUTS and len(section.rows) > SHOWN_OUTPUTS
            kind = " class='long'" if long else ""
            yield f"<details{kind}{open_}>{title}{_html(section)}</details>"
        yield f"<p><small>{escape(SOURCE)}</small></p>"

    def _figure(self) -> str:
        """The figures as inline SVG; nothing where matplotlib is not installed."""
        if self.picture is None:
            return ""
        try:
            drawings = map(inline_svg, self.picture())
        except MissingExtraError:
            return ""
        what = "The published numbers" if self.published else "The privacy curve and the noise"
        return f"<figure role='img' aria-label='{what}'>{''.join(drawings)}</figure>"


def groups_of(names: Sequence[str], deviations: Sequence[float]) -> tuple[LevelRow, ...]:
    """Return outputs grouped by their noise: those with the same, or tenths.

    Examples
    --------
    >>> for row in groups_of(["a", "b", "c"], [1.0, 2.0, 1.0]):
    ...     print(row.name, row.numbers, row.deviation)
    a, c 2 1.0
    b 1 2.0
    """
    # by what is shown of the numbers, so that rounding does not split equal noise
    shown = np.array([float(f"{size:.4g}") for size in deviations])
    sizes = np.asarray(deviations, dtype=float)

    def row(places: np.ndarray, name: str = "") -> LevelRow:
        some = ", ".join(names[int(i)] for i in places[:NAMED])
        some += ", …" if len(places) > NAMED else ""
        mean = float(np.sqrt(np.mean(sizes[places] ** 2)))
        return LevelRow(f"{name}: {some}" if name else some, len(places), mean)

    different = np.unique(shown)
    if len(different) <= MOST_GROUPS:
        return tuple(row(np.flatnonzero(shown == size)) for size in different)
    order = np.argsort(shown, kind="stable")
    ends = [(name, round(a * len(order)), round(b * len(order))) for name, a, b in SHARES]
    return tuple(row(order[start:end], name) for name, start, end in ends if end > start)


def inline_svg(figure: Figure) -> str:
    """Return a figure as an SVG element for an HTML page."""
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


def printable(text: str) -> str:
    """Return a text from elsewhere without what could steer a terminal or break a line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printed(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return labelled texts without what could steer a terminal."""
    return tuple((label, printable(text)) for label, text in rows)


def as_written(equation: str) -> str:
    """Return an equation as people write it, with what is subtracted on the other side.

    Examples
    --------
    >>> as_written("a + b - total = 0"), as_written("a - 2*b = 5")
    ('a + b = total', 'a - 2*b = 5')
    """
    if len(equation) > LONGEST_EQUATION or not equation.endswith(" = 0"):
        return equation
    told = parse_equations([equation])
    (row,) = told.coefficients
    sides = [
        format_equation({j: s * c for j, c in row.items() if s * c > 0}, 0, told.names)
        for s in (1, -1)
    ]
    return " = ".join(side.removesuffix(" = 0") for side in sides)


def shortened(text: str) -> str:
    """Return an equation cut to a length that can be read."""
    return text if len(text) <= LONGEST_EQUATION else text[: LONGEST_EQUATION - 1] + "…"


def _more(count: int) -> str:
    return f"and {count:,} more" if count > 0 else ""


def _cells(row: OutputRow) -> list[str]:
    cells = [row.name, f"{row.deviation:.4g}"]
    if row.independent_deviation is not None and row.ratio is not None:
        cells += [f"{row.independent_deviation:.4g}", f"{row.ratio:.4g}"]
    return cells


def _level_cells(rows: Sequence[LevelRow]) -> tuple[list[list[str]], tuple[str, ...]]:
    """Cells and headings; relative errors where numbers were published."""
    headings: tuple[str, ...] = ("outputs", "how many", "noise")
    cells = [[row.name, f"{row.numbers:,}", f"{row.deviation:.4g}"] for row in rows]
    if any(row.relative is not None for row in rows):
        headings += ("known to, 95 % (median)",)
        for row, line in zip(rows, cells):
            line.append("" if row.relative is None else _share(row.relative))
    return cells, headings


def _share(value: float) -> str:
    return f"± {100 * value:.2g} %" if value < 10 else "more than ± 1000 %"


def _text(section: _Section) -> Table:
    """Rows for a terminal: labelled texts wrap, columns of numbers stand to the right."""
    from rich.table import Table
    from rich.text import Text

    headed = bool(section.headings)
    table = Table(box=None, show_header=headed, padding=(0, 0, 0, 2), pad_edge=True)
    if headed:
        table.add_column(section.headings[0], max_width=34, no_wrap=True, overflow="ellipsis")
        for heading in section.headings[1:]:
            table.add_column(heading, justify="right", no_wrap=True)
    else:
        for _ in section.rows[0][:-1]:
            table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
    for row in section.rows:
        table.add_row(*map(Text, row))
    if section.more:
        table.add_row(Text(section.more))
    return table


def _html(section: _Section) -> str:
    """The rows of a section, escaped."""
    head = ""
    if section.headings:
        styles = [LEFT] * section.labels + [RIGHT] * (len(section.headings) - section.labels)
        cells = "".join(
            f"<th scope='col' style='{style};white-space:normal'>{escape(text)}</th>"
            for text, style in zip(section.headings, styles)
        )
        head = f"<thead><tr>{cells}</tr></thead>"
    body = "".join(f"<tr>{_html_row(row, section)}</tr>" for row in section.rows)
    more = f"<p>{section.more}</p>" if section.more else ""
    return f"<table>{head}<tbody>{body}</tbody></table>{more}"


def _html_row(row: Sequence[str], section: _Section) -> str:
    if section.headings:
        labels, numbers = row[: section.labels], row[section.labels :]
        words = (
            f"<th scope='row' style='{LEFT};{WRAP};font-weight:normal'>{_label(cell)}</th>"
            for cell in labels
        )
        return "".join([*words, *(f"<td style='{RIGHT}'>{_number(cell)}</td>" for cell in numbers)])
    *label, text = row
    alarming = text.startswith("NONE") or bool(set(label) & set(_ALARMING))
    mark = "border-left:4px solid #d55e00;padding-left:8px;font-weight:bold" if alarming else ""
    first = (f"<th scope='row' style='{LEFT};white-space:nowrap'>{escape(x)}</th>" for x in label)
    return "".join([*first, f"<td style='{LEFT};{BREAK};{mark}'>{escape(text)}</td>"])


def _label(text: str) -> str:
    """A label in which lines end between words, not at the hyphen of 18-39; a short one in none."""
    words = [text] if len(text) <= SHORT_LABEL else text.split(" ")
    return " ".join(
        f"<span style='white-space:nowrap'>{escape(word)}</span>"
        if set(" -") & set(word) and len(word) <= LONGEST_WORD
        else escape(word)
        for word in words
    )


def _number(text: str) -> str:
    """A number and its interval, between which alone a line may end."""
    parts = escape(text).split(" (", 1)
    if len(parts) == 1:
        return parts[0]
    return f"{parts[0]} <span style='white-space:nowrap'>({parts[1]}</span>"


SHORT_LABEL = 12
LONGEST_WORD = 20  # beyond it a line may end at a hyphen, too
CELL = "vertical-align:top;padding:3px 16px 3px 0"
LEFT = f"{CELL};text-align:left"
RIGHT = f"{CELL};text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"
BREAK = "overflow-wrap:anywhere"
# Labels wrap between words, and within a word only where it is longer than that.
WRAP = "overflow-wrap:break-word;max-width:24em"
# The promise must not hide below thousands of rows.
BOX = "overflow:auto;max-height:max(32em,80vh)"

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; }
/* as wide as a published table needs; lines of text are shorter */
main { width: fit-content; min-width: min(100%, 71rem); max-width: 100%; margin: 0 auto;
  padding: 1.5rem; box-sizing: border-box; }
:where(main > :not(.published)) { max-width: 68rem; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.opening { border-left: 4px solid #0072b2; padding: .25rem 0 .25rem 1rem; max-width: 46rem; }
dt { font-weight: 600; }
dd { margin: 0 0 .6rem; }
details { margin: .8rem 0; }
summary { cursor: pointer; font-weight: 600; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid #8886; }
/* drawn for a phone; wider pages put figures side by side */
figure { margin: 2rem 0; padding: .5rem; background: #fff; border-radius: 4px;
  display: flex; flex-wrap: wrap; gap: .8rem; align-items: start; }
figure svg { max-width: 100%; height: auto; }
/* a frame, and shadows where the box can be scrolled: nothing looks as if it were cut off */
.published { width: fit-content; max-width: 100%; box-sizing: border-box; padding: 0 .6rem;
  border: 1px solid #8886; border-radius: 4px; background:
  linear-gradient(to left, Canvas 40%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to top, Canvas 40%, transparent) bottom / 100% 3rem no-repeat local,
  linear-gradient(to left, #8888, transparent) right / .8rem 100% no-repeat,
  linear-gradient(to top, #8888, transparent) bottom / 100% .8rem no-repeat; }
.published thead th { position: sticky; top: 0; background: Canvas; padding-top: .5rem; }
@media (max-width: 40rem) {
  main { padding: 1rem; }
  .published { font-size: .85rem; }
  .published th, .published td { white-space: normal !important; padding-right: .5rem !important; }
  figure { margin-left: -1rem; margin-right: -1rem; border-radius: 0; padding: .5rem 0; }
}
@media print {
  main { width: auto; min-width: 0; padding: 0; }
  body { font-size: 10pt; }
  tr, figure { break-inside: avoid; }
  h2, summary { break-after: avoid; }
  figure { margin: 1rem 0; }
  figure svg { flex: 1 1 30%; min-width: 0; max-width: 10cm; max-height: 22cm; }
  /* paper does not scroll; the box has its style in itself, for notebooks */
  .published { overflow: visible !important; max-height: none !important; }
  .published th, .published td { white-space: normal !important; }
  .long { display: none; }
  details::details-content { content-visibility: visible; display: block; }
}
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
