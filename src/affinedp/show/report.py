"""What is said about a mechanism: its promise, its noise, how near it is to the least."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from affinedp.domains.manifold import AffineManifold
from affinedp.domains.outputs import MOST_OUTPUTS
from affinedp.privacy.least_possible import Alternative
from affinedp.record import MechanismRecord
from affinedp.show.baseline import Baseline, independent_baseline
from affinedp.show.opening import headline, paragraph
from affinedp.show.page import OutputRow, Report, printable, printed, round_up, shortened
from affinedp.show.plot import draw, draw_lines, shown_noise
from affinedp.strategies.base import Shown
from affinedp.strategies.dense import Dense

SHOWN_GIVEN = 4
# An error so close to the bound below all mechanisms is it, up to rounding.
ROUNDING = 1e-9
LAWS = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "knorm": "K-norm",
    "staircase": "Staircase",
    "geometric": "Geometric",
}


def report(mechanism: MechanismRecord) -> Report:
    """Return what people want to read about a mechanism.

    Its noise is compared with independent noise of one scale that keeps the same promise to
    the same neighbours (Theorems 1 and 2 of the paper, as for the mechanism itself).

    Parameters
    ----------
    mechanism : MechanismRecord
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
    shown = shown_noise(mechanism)
    if shown is not None:
        return _report_as_shown(mechanism, shown)
    if not isinstance(mechanism.strategy, Dense):
        words = mechanism.noise.words
        title = f"{words[0].upper()}{words[1:]} noise on {mechanism.domain.words}"
        return grouped_report(mechanism, title, mechanism.strategy.noise_by_group(mechanism.noise))
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
    words = mechanism.noise.words
    law = words[:1].upper() + words[1:]
    law += " noise on integers" if mechanism.noise.whole else " noise"
    given = mechanism.manifold.n - mechanism.manifold.dim
    bare = [text for label, text in promise if label == "not protected"]
    return Report(
        title=f"{law} on {_count(len(rows), 'output')} under {_count(given, 'public equation')}",
        promise=tuple((label, printable(text)) for label, text in promise),
        outputs=rows,
        totals=tuple(
            (label, printable(text)) for label, text in _totals(mechanism, baseline, equations)
        ),
        equations=tuple(map(printable, equations)),
        baseline=baseline,
        picture=lambda: draw(mechanism, baseline),
        headline=headline(mechanism.guarantee),
        opening=printed(paragraph(mechanism.guarantee, (row.deviation for row in rows), bare)),
    )


def _report_as_shown(mechanism: MechanismRecord, shown: Shown) -> Report:
    """The report of noise that says itself what there is to say."""
    guarantee, independent = mechanism.guarantee, shown.independent
    rows = tuple(
        OutputRow(
            printable(name),
            deviation,
            independent,
            None if independent is None else (deviation / independent) ** 2,
        )
        for name, deviation in shown.outputs
    )
    totals = [*shown.totals, ("optimality", _optimality(mechanism))]
    if mechanism.least is not None and mechanism.lower_bound is not None:
        totals.append(("least possible", mechanism.least.sentence()))
    if mechanism.alternatives:
        others = "; ".join(map(_alternative, mechanism.alternatives))
        totals.append(("with the same promise", others))
    totals += [("note", note) for note in mechanism.notes]
    count = _count(len(mechanism.strategy.given_names), "output")
    opening = paragraph(
        guarantee, (row.deviation for row in rows), shown.unprotected, shown.typical
    )
    return Report(
        title=f"{LAWS[mechanism.law]} noise on {count} {shown.title}",
        promise=tuple(
            (label, printable(text)) for label, text in (*guarantee.summary(), *shown.promise)
        ),
        outputs=rows,
        totals=tuple((label, printable(text)) for label, text in totals),
        equations=(),
        baseline=Baseline(independent, shown.reason),
        picture=lambda: draw_lines(guarantee, shown),
        headline=headline(guarantee),
        opening=printed(opening),
    )


def grouped_report(
    mechanism: MechanismRecord, title: str, noise: Iterable[tuple[str, float]]
) -> Report:
    """Return what is said where outputs are too many to be listed: their noise by group.

    Parameters
    ----------
    mechanism : MechanismRecord
        Any mechanism.
    title : str
        One line.
    noise : iterable of (str, float)
        Root mean square noise of groups of outputs.
    """
    rows = [OutputRow(printable(name), size, None, None) for name, size in noise]
    guarantee = mechanism.guarantee
    return Report(
        title=title,
        promise=(*guarantee.summary(), ("covers", mechanism.domain.covers)),
        outputs=tuple(rows),
        totals=tuple(_compared(mechanism)),
        equations=(),
        baseline=Baseline(None, "other ways to keep the promise are listed"),
        headline=headline(guarantee),
        opening=printed(paragraph(guarantee, (row.deviation for row in rows))),
    )


def _compared(mechanism: MechanismRecord) -> Iterator[tuple[str, str]]:
    gap, own = mechanism.gap, mechanism.design.error
    if gap is None:
        yield "optimality", "not certified: less noise may do"
    else:
        most = f"{round_up(100 * gap)} %" if gap >= 1e-4 else f"{round_up(gap)} (relative)"
        yield (
            "optimality",
            f"computed: the (weighted) squared error is at most {most} above the least that any "
            "Gaussian noise with this promise has",
        )
    for other in mechanism.alternatives:
        if own:
            yield "against", f"{other.words}: {other.error / own:.4g} times the squared error"
    yield from (("note", note) for note in mechanism.notes)


def _scope(manifold: AffineManifold) -> Iterator[tuple[str, str]]:
    """What the promise is about, and what it is not about."""
    equations = manifold.equations()
    left_out = "an equation that the public knows and that was left out is not covered"
    if equations:
        shown = "; ".join(shortened(text) for text in equations[:SHOWN_GIVEN])
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
    mechanism: MechanismRecord, baseline: Baseline, equations: Sequence[str]
) -> Iterator[tuple[str, str]]:
    outputs = len(mechanism.output_names)
    total = mechanism.expected_squared_error
    mean = math.sqrt(total / outputs)
    yield "squared error", f"{total:.6g} expected ({mean:.4g} root mean square per output)"
    yield "optimality", _optimality(mechanism)
    if mechanism.least is not None and mechanism.lower_bound is not None:
        yield "least possible", mechanism.least.sentence()
    if mechanism.alternatives:
        yield "other laws", "; ".join(map(_alternative, mechanism.alternatives))
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


def _optimality(mechanism: MechanismRecord) -> str:
    if mechanism.guarantee.leak is not None:
        return "none, because there is no promise"
    if mechanism.gap is not None:
        gap = mechanism.gap
        most = f"{round_up(100 * gap)} %" if gap >= 1e-4 else f"{round_up(gap)} (relative)"
        return (
            f"certified: the (weighted) squared error is at most {most} above the least that any "
            "Gaussian noise with this promise has"
        )
    least = mechanism.least
    if least is not None and least.excess <= 1 + ROUNDING:
        return "certified: no mechanism does better for data anywhere on the manifold"
    if mechanism.law == "knorm":
        return "not certified (bodies of least noise are not a convex problem): less may do"
    if mechanism.law == "laplace":
        return "not certified (least Laplace noise is not a convex problem): less may do"
    return "not certified: less noise may do"


def _alternative(other: Alternative) -> str:
    if other.designed:
        return f"{other.words} {other.error:.6g}"
    least = f"at least {other.error:.6g}, " if other.error > 0.0 else ""
    return f"{other.law} {least}{other.reason}"


def _equations_status(mechanism: MechanismRecord, equations: Sequence[str]) -> str:
    if mechanism.guarantee.leak is not None:
        return "not listed, because there is no promise"
    if equations:
        return f"every release obeys {_count(len(equations), 'equation')}, listed below"
    if len(mechanism.output_names) > MOST_OUTPUTS:
        return f"not listed for more than {MOST_OUTPUTS:,} outputs"
    return "none: the noise does not keep any equation between the outputs"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
