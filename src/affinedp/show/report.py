"""What people read about a mechanism: plain text, a notebook fragment, a page to hand on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from html import escape
from typing import TYPE_CHECKING

from affinedp.equations.outputs import MOST_OUTPUTS
from affinedp.errors import AffineDPError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from affinedp.equations.manifold import AffineManifold
    from affinedp.mechanism import Mechanism

WIDTH = 80
SHOWN_OUTPUTS = 30
SHOWN_EQUATIONS = 30
SHOWN_GIVEN = 4
LONGEST_EQUATION = 400
SOURCE = (
    "Definitions and theorems: Ren, Wang, Yuan, Shi, “Differential Privacy on Affine Manifolds”."
)
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
class Baseline:
    """Independent noise of one scale on every output that keeps the same promise.

    Attributes
    ----------
    deviation : float or None
        Its standard deviation; None where it is not available.
    reason : str
        Why it is not available.
    """

    deviation: float | None
    reason: str = ""


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
    """

    title: str
    promise: tuple[tuple[str, str], ...]
    outputs: tuple[OutputRow, ...]
    totals: tuple[tuple[str, str], ...]
    equations: tuple[str, ...]
    baseline: Baseline = field(repr=False)
    picture: Callable[[], Figure] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        """Return plain text of at most 80 columns."""
        import io

        from rich.console import Console
        from rich.text import Text

        # explicit settings: the text must not depend on the terminal or on a notebook
        console = Console(
            file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False,
            force_terminal=False, legacy_windows=False,
        )  # fmt: skip
        with console.capture() as captured:
            console.print(Text(self.title), Text("═" * len(self.title)), sep="\n")
            for heading, table in self._text_sections():
                console.print(Text(f"\n{heading}"), table, sep="\n")
            console.print(Text(f"\n{SOURCE}"))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def _text_sections(self) -> Iterator[tuple[str, Table]]:
        yield "What is promised", _text_rows(self.promise)
        yield OUTPUTS, self._text_outputs()
        yield "All outputs together", _text_rows(self.totals)
        if self.equations:
            yield (
                "Every release obeys",
                _text_rows([(e,) for e in _shown_equations(self.equations)]),
            )

    def _text_outputs(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=True)
        headings = self._columns()
        table.add_column(headings[0], max_width=34, no_wrap=True, overflow="ellipsis")
        for heading in headings[1:]:
            table.add_column(heading, justify="right", no_wrap=True)
        rows, more = self._shown_outputs()
        for row in rows:
            table.add_row(*(Text(cell) for cell in _cells(row)))
        if more:
            table.add_row(Text(f"and {more:,} more"))
        return table

    def html(self) -> str:
        """Return a fragment for notebooks: escaped, in the colours of its surroundings."""
        body = "".join(self._html_sections("h4"))
        return f"<div class='affinedp-report'><h3>{escape(self.title)}</h3>{body}</div>"

    def page(self) -> str:
        """Return a complete page that needs nothing from elsewhere, with a figure if possible."""
        sections = list(self._html_sections("h2"))
        sections.insert(2, self._figure())
        return _PAGE.format(title=escape(self.title), style=_STYLE, body="\n".join(sections))

    def _html_sections(self, heading: str) -> Iterator[str]:
        def section(title: str, content: str) -> str:
            return f"<section><{heading}>{escape(title)}</{heading}>{content}</section>"

        yield section("What is promised", _html_rows(self.promise))
        yield section(OUTPUTS, self._html_outputs())
        yield section("All outputs together", _html_rows(self.totals))
        if self.equations:
            items = "".join(
                f"<li style='{_BREAK}'><code>{escape(line)}</code></li>"
                for line in _shown_equations(self.equations)
            )
            yield section(
                "Every release obeys",
                f"<ul style='list-style:none;padding:0;margin:0'>{items}</ul>",
            )
        yield f"<p><small>{escape(SOURCE)}</small></p>"

    def _html_outputs(self) -> str:
        headings = self._columns()
        head = "".join(
            f"<th scope='col' style='{_LEFT if i == 0 else _RIGHT}'>{escape(text)}</th>"
            for i, text in enumerate(headings)
        )
        rows, more = self._shown_outputs()
        body = "".join(
            f"<tr><th scope='row' style='{_LEFT};{_BREAK};font-weight:normal'>{escape(name)}</th>"
            + "".join(f"<td style='{_RIGHT}'>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for name, *cells in map(_cells, rows)
        )
        if more:
            body += f"<tr><td colspan='{len(headings)}' style='{_LEFT}'>and {more:,} more</td></tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _figure(self) -> str:
        """The plot as inline SVG; nothing where matplotlib is not installed."""
        if self.picture is None:
            return ""
        from affinedp.show.plot import inline_svg

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

    def _shown_outputs(self) -> tuple[Sequence[OutputRow], int]:
        """All rows in their order, or those with the most noise; and how many are left out."""
        if len(self.outputs) <= SHOWN_OUTPUTS:
            return self.outputs, 0
        # by what is shown of the numbers, so that rounding does not shuffle equal noise
        largest = sorted(self.outputs, key=lambda row: -float(f"{row.deviation:.4g}"))
        return largest[:SHOWN_OUTPUTS], len(self.outputs) - SHOWN_OUTPUTS


def report(mechanism: Mechanism) -> Report:
    """Return what people want to read about a mechanism.

    Its noise is compared with independent noise of one scale that keeps the same promise to
    the same neighbours (Theorems 1 and 2 of the paper, as for the mechanism itself).

    Parameters
    ----------
    mechanism : Mechanism
        Any mechanism, also one that leaks.

    Returns
    -------
    Report
        ``print`` it, look at it in a notebook, or write ``page()`` to a file.

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
    >>> r = report(adp.design_gaussian(M, epsilon=1.0, delta=1e-6))
    >>> r.title
    'Gaussian noise on 3 outputs under 1 public equation'
    >>> [round(row.ratio, 3) for row in r.outputs]
    [0.667, 0.667, 0.667]
    >>> r.equations
    ('cells_in + cells_out - cells_total = 0',)
    """
    baseline = independent_baseline(mechanism)
    errors = mechanism.expected_squared_errors
    independent = baseline.deviation
    rows = tuple(
        OutputRow(
            printable(name),
            math.sqrt(error),
            independent,
            None if independent is None else error / independent**2,
        )
        for name, error in zip(mechanism.output_names, errors.tolist())
    )
    equations = () if mechanism.guarantee.leak is not None else mechanism.equations
    promise = [*mechanism.guarantee.summary(), *_scope(mechanism.manifold)]
    law = "Gaussian" if mechanism.law == "gaussian" else "Laplace"
    given = mechanism.manifold.n - mechanism.manifold.dim
    return Report(
        title=f"{law} noise on {_count(len(rows), 'output')} under "
        f"{_count(given, 'public equation')}",
        promise=tuple((label, printable(text)) for label, text in promise),
        outputs=rows,
        totals=tuple(
            (label, printable(text)) for label, text in _totals(mechanism, baseline, equations)
        ),
        equations=tuple(map(printable, equations)),
        baseline=baseline,
        picture=lambda: _drawn(mechanism, baseline),
    )


def _drawn(mechanism: Mechanism, baseline: Baseline) -> Figure:
    from affinedp.show.plot import draw

    return draw(mechanism, baseline)


def independent_baseline(mechanism: Mechanism) -> Baseline:
    """Return independent noise of one scale with the same promise to the same neighbours.

    Noise of scale c has sensitivity ``max ‖F v‖ / c`` (Theorems 1 and 2); c makes that the
    mechanism's own, so that neither ε nor δ need be known.

    Parameters
    ----------
    mechanism : Mechanism
        What is compared.
    """
    sensitivity = mechanism.guarantee.sensitivity
    if mechanism.guarantee.leak is not None or not math.isfinite(sensitivity):
        return Baseline(None, "there is no promise that other noise could keep too")
    if sensitivity == 0.0:
        return Baseline(None, "neighbours do not differ in the outputs, so no noise is needed")
    try:
        found = mechanism.adjacency.sensitivity(
            mechanism.query, norm=2 if mechanism.law == "gaussian" else 1
        )
    except AffineDPError as error:
        return Baseline(None, str(error).partition(". ")[0])
    return Baseline(found.upper / sensitivity * math.sqrt(mechanism.variance))


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


def _scope(manifold: AffineManifold) -> Iterator[tuple[str, str]]:
    """What the promise is about, and what it is not about."""
    equations = manifold.equations()
    left_out = "an equation that the public knows and that was left out is not covered"
    if equations:
        shown = "; ".join(_shortened(text) for text in equations[:SHOWN_GIVEN])
        more = len(equations) - SHOWN_GIVEN
        tail = f"; and {more:,} more" if more > 0 else ""
        yield "covers", f"the equations that were given ({shown}{tail}); {left_out}"
    else:
        yield "covers", f"data without equations: none were given; {left_out}"
    if manifold.public_entries:
        names = ", ".join(manifold.public_entries[:8])
        more = len(manifold.public_entries) - 8
        tail = f" and {more:,} more" if more > 0 else ""
        yield "not protected", f"what the equations alone reveal: {names}{tail}"


def _totals(
    mechanism: Mechanism, baseline: Baseline, equations: Sequence[str]
) -> Iterator[tuple[str, str]]:
    outputs = len(mechanism.output_names)
    total = mechanism.expected_squared_error
    mean = math.sqrt(total / outputs)
    yield "squared error", f"{total:.6g} expected ({mean:.4g} root mean square per output)"
    yield "optimality", _optimality(mechanism)
    if baseline.deviation is None:
        yield "against i.i.d.", f"not available: {baseline.reason}"
    else:
        ratio = f"{outputs * baseline.deviation**2 / total:.4g}"
        times = "the same squared error" if ratio == "1" else f"{ratio} times the squared error"
        yield (
            "against i.i.d.",
            f"independent noise with the same promise has standard deviation "
            f"{baseline.deviation:.4g} on every output: {times}",
        )
    yield "equations", _equations_status(mechanism, equations)
    yield from (("note", note) for note in mechanism.notes)


def _optimality(mechanism: Mechanism) -> str:
    if mechanism.guarantee.leak is not None:
        return "none, because there is no promise"
    if mechanism.gap is not None:
        gap = mechanism.gap
        most = f"{round_up(100 * gap)} %" if gap >= 1e-4 else f"{round_up(gap)} (relative)"
        return (
            f"certified: the (weighted) squared error is at most {most} above the least that any "
            "Gaussian noise with this promise has"
        )
    if mechanism.law == "laplace":
        return "not certified (least Laplace noise is not a convex problem): less may do"
    return "not certified: less noise may do"


def _equations_status(mechanism: Mechanism, equations: Sequence[str]) -> str:
    if mechanism.guarantee.leak is not None:
        return "not listed, because there is no promise"
    if equations:
        return f"every release obeys {_count(len(equations), 'equation')}, listed below"
    if len(mechanism.output_names) > MOST_OUTPUTS:
        return f"not listed for more than {MOST_OUTPUTS:,} outputs"
    return "none: the noise does not keep any equation between the outputs"


def _cells(row: OutputRow) -> list[str]:
    cells = [row.name, f"{row.deviation:.4g}"]
    if row.independent_deviation is not None and row.ratio is not None:
        cells += [f"{row.independent_deviation:.4g}", f"{row.ratio:.4g}"]
    return cells


def _shown_equations(equations: Sequence[str]) -> list[str]:
    shown = [_shortened(text) for text in equations[:SHOWN_EQUATIONS]]
    more = len(equations) - SHOWN_EQUATIONS
    return [*shown, f"and {more:,} more"] if more > 0 else shown


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_EQUATION else text[: LONGEST_EQUATION - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def printable(text: str) -> str:
    """Return a text from elsewhere without what could steer a terminal or break a line.

    Parameters
    ----------
    text : str
        Names of outputs, for example.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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
            f"<tr><th scope='row' style='{_LEFT};white-space:nowrap'>{escape(label)}</th>"
            f"<td style='{_LEFT};{_BREAK};{mark}'>{escape(text)}</td></tr>"
        )
    return f"<table>{body}</table>"


_CELL = "vertical-align:top;padding:3px 16px 3px 0"
_LEFT = f"{_CELL};text-align:left"
_RIGHT = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums"
_BREAK = "overflow-wrap:anywhere"

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid #8886; }
figure { margin: 2rem 0; padding: .5rem; background: #fff; border-radius: 4px; }
figure svg { display: block; width: 100%; height: auto; }
@media print {
  main { max-width: none; padding: 0; }
  body { font-size: 10pt; }
  tr, figure { break-inside: avoid; }
}
"""

_PAGE = """<!doctype html>
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
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""
