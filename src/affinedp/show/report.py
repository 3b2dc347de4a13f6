"""What is said about a mechanism: its promise in plain words, its noise, and other ways."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import within_range
from affinedp.domains.manifold import MOST_OUTPUTS, AffineManifold
from affinedp.errors import AffineDPError, counted, most_words
from affinedp.privacy.design import Alternative
from affinedp.privacy.guarantee import ON_TRUST, Guarantee
from affinedp.record import MechanismRecord
from affinedp.show.page import (
    Baseline,
    OutputRow,
    Report,
    as_written,
    printable,
    printed,
    shortened,
)
from affinedp.show.plot import (
    apart,
    independent_baseline,
    line_panels,
    matrix_panels,
    shown_noise,
)
from affinedp.strategies.base import Shown
from affinedp.strategies.matrices import Matrices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Picture = Callable[[], Sequence[Figure]]

SHOWN_GIVEN = 4
# An error so close to the bound below all mechanisms is it, up to rounding.
ROUNDING = 1e-9
NOT_CERTIFIED = "not certified: less noise may do"
FROM_WHOM = (
    "everyone who sees all that is published, even if they know the equations that were given, how "
    "the noise is made, and all other data"
)
NOT_COVERED = (
    "larger differences than those above; equations that the public knows and that were not "
    "given; and whatever else is published about the same secret, which adds up"
)


@within_range
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
        made = _report(mechanism, shown, lambda: apart(line_panels(mechanism.guarantee, shown)))
        count = counted(len(mechanism.strategy.given_names), "output")
        return replace(made, title=f"{_law(mechanism)} on {count} {shown.title}")
    if isinstance(mechanism.strategy, Matrices):
        return _dense_report(mechanism, mechanism.manifold)
    about = mechanism.domain.words
    if isinstance(mechanism.domain, AffineManifold):  # the outputs may be others than the data
        about = counted(len(mechanism.strategy.names), "output")
    title = f"{_law(mechanism)} on {about}"
    return grouped_report(mechanism, title, mechanism.strategy.noise_by_group(mechanism.noise))


def grouped_report(
    mechanism: MechanismRecord, title: str, noise: Iterable[tuple[str, int, float]]
) -> Report:
    """Return what is said where outputs are too many to be listed: their noise by group.

    Groups come with how many numbers they have, for the mean over all numbers.
    """
    groups = tuple(noise)
    count = sum(numbers for _, numbers, _ in groups)
    square = sum(numbers * deviation**2 for _, numbers, deviation in groups)
    told = Shown(
        title,
        tuple((name, deviation) for name, _, deviation in groups),
        lines=None,
        typical=math.sqrt(square / count) if count else None,
        reason="other ways to keep the promise are listed",
        promise=(("covers", mechanism.domain.covers),),
    )
    return _report(mechanism, told)


def _dense_report(mechanism: MechanismRecord, manifold: AffineManifold) -> Report:
    """The report of noise of matrices, with every equation that it keeps."""
    baseline = independent_baseline(mechanism)
    equations = () if mechanism.guarantee.leak is not None else mechanism.equations
    promise = tuple(_scope(manifold))
    given = counted(manifold.n - manifold.dim, "public equation")
    told = Shown(
        f"{_law(mechanism)} on {counted(len(mechanism.output_names), 'output')} under {given}",
        tuple(zip(mechanism.output_names, np.sqrt(mechanism.expected_squared_errors).tolist())),
        lines=None,
        independent=baseline.deviation,
        reason=baseline.reason,
        promise=promise,
        totals=tuple(_totals(mechanism, baseline, equations)),
        unprotected=tuple(text for label, text in promise if label == "not protected"),
    )
    made = _report(mechanism, told, lambda: apart(matrix_panels(mechanism, baseline)))
    return replace(made, equations=tuple(map(printable, equations)))


def _report(mechanism: MechanismRecord, told: Shown, picture: Picture | None = None) -> Report:
    """What is said about every mechanism, with what its own kind has told."""
    guarantee, independent = mechanism.guarantee, told.independent
    rows = tuple(
        OutputRow(printable(name), deviation, independent) for name, deviation in told.outputs
    )
    # what is sent of readings with steps is not compared
    compared = "" if mechanism.design.sent is None else ", for exact readings"
    optimality, least = _optimality(mechanism), ""
    if mechanism.least is not None and mechanism.lower_bound is not None:
        least = mechanism.least.sentence() + compared
    if least and optimality == NOT_CERTIFIED:
        totals = [*told.totals, ("optimality", f"not certified to be the least: {least}")]
    else:
        totals = [*told.totals, ("optimality", optimality + compared)]
        totals += [("least possible", least)] if least else []
    notes = mechanism.notes
    if not any("of the laws compared" in note for note in notes):  # not said twice
        best = _chosen(mechanism)
        totals += [
            ("against", _against(mechanism, other) + compared)
            for other in mechanism.alternatives
            if other is not best
        ]
        if best is not None and not any(note.startswith("the best of") for note in notes):
            notes = (f"the best of what was compared: {best.words}", *notes)
            notes = tuple(note for note in notes if note != best.reason)
    totals += [("note", note) for note in notes]
    deviations = (row.deviation for row in rows)
    return Report(
        title=told.title,
        promise=printed((*guarantee.summary(), *told.promise)),
        outputs=rows,
        totals=printed(totals),
        equations=(),
        baseline=Baseline(independent, told.reason),
        picture=picture,
        headline=headline(guarantee),
        opening=printed(paragraph(guarantee, deviations, told.unprotected, told.typical)),
    )


# ---------------------------------------------------------------------- in plain words


def headline(guarantee: Guarantee) -> str:
    """Return the promise that was asked for, in one line; empty where none was."""
    if guarantee.asked is None:
        return ""
    if ON_TRUST in guarantee.warnings:
        return f"NOT verified: only its file says that it keeps {guarantee.asked}, as was asked"
    if guarantee.keeps_asked():
        return f"Keeps {guarantee.asked}, as was asked"
    return f"Does NOT keep {guarantee.asked}, which was asked for"


def paragraph(
    guarantee: Guarantee,
    deviations: Iterable[float],
    unprotected: Sequence[str] = (),
    typical: float | None = None,
) -> tuple[tuple[str, str], ...]:
    """Return six plain lines for people who decide, each with a lead.

    Examples
    --------
    >>> import affinedp as adp
    >>> g = adp.verify(adp.AffineManifold([[1, -4]]), 5.0, law="laplace")
    >>> print(dict(paragraph(g, [7.07]))["What an attacker gains"])  # doctest: +ELLIPSIS
    at most 73.2 % certainty, whatever comes out, where 50 % is a coin toss; on average at ...
    """
    if guarantee.leak is not None:
        return (("There is no promise", "a combination of the numbers comes out without noise"),)
    return (
        ("Who is protected", who(guarantee.neighbours)),
        ("From whom", FROM_WHOM),
        ("What an attacker gains", _gain(guarantee)),
        ("How far off numbers are", _error(deviations, typical)),
        ("What is not covered", "; ".join([NOT_COVERED, *unprotected])),
        ("What it costs", _cost(guarantee)),
    )


def best_guess(guarantee: Guarantee) -> float | None:
    """Return the probability with which the best guess between two neighbours is right, at most.

    Both are equally likely beforehand: ``(1 + δ(0))/2``, where δ(0) bounds the total variation.
    """
    try:
        most = float(guarantee.delta(0.0))
    except AffineDPError:  # accounting that is not installed, or losses too large for it
        pure = guarantee.epsilon(0.0)
        return allowed_guess(pure) if math.isfinite(pure) else None
    return min(1.0, (1 + most) / 2)


def allowed_guess(epsilon: float, delta: float = 0.0) -> float:
    """Return what (ε, δ) allows the best guess: ``(e^ε + δ)/(e^ε + 1)``, for equal chances.

    Examples
    --------
    >>> round(allowed_guess(1.0, 0.01), 4), allowed_guess(0.0)
    (0.7337, 0.5)
    """
    return 1 - (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))


def percent(share: float) -> str:
    """Write a probability that is promised as "at most", never below it.

    Examples
    --------
    >>> percent(0.6051), percent(0.5), percent(0.9999999)
    ('60.6 %', '50 %', '100 %')
    """
    tenths = (1000 * Decimal(share)).to_integral_value(ROUND_CEILING)
    return f"{min(float(tenths), 1000.0) / 10:g} %"


# Of trajectories and plants: what moves, or jumps, and how.
_MOVES = re.compile(r"(?:initial|time-local|input|forward): one (.*?) (move|jump)s (.*)", re.DOTALL)
_PERSON = re.compile(
    r"\b(one person|a household of up to \d+) (?:more or less|joins or leaves)\b(?!, or)"
)

# How a computation knows the neighbours, which stands with the promise in numbers.
_HOW = re.compile(
    r"^, in one of [\d,]+ given directions?|; the rest follows|; with [^;]+|; whole numbers"
)


def who(neighbours: str) -> str:
    """Return who is protected, without the words of the paper.

    Examples
    --------
    >>> who("one person more or less, in at most 1 cell of the table")
    'any one person: whether they are in the table, in at most 1 cell of the table'
    >>> who("one person joins or leaves, in one of 2 given directions; whole numbers")
    'any one person: whether they are in the table'
    """
    _, definition, moves = neighbours.partition("Definition 4: any one number moves ")
    if definition:
        return f"any one number: it may change {moves}"
    one = _MOVES.fullmatch(neighbours)
    if one:
        return f"any one {one[1]}: it may {one[2]} {one[3]}"
    person = _PERSON.search(neighbours)
    if person:
        which = person[1].replace("one person", "any one person").replace("a house", "any house")
        return f"{which}: whether they are in the table{_HOW.sub('', neighbours[person.end() :])}"
    return f"whatever is hidden by this: {neighbours}"


def _gain(guarantee: Guarantee) -> str:
    """How sure an attacker becomes who must only tell a data set from a neighbour."""
    asked, guess = guarantee.asked, best_guess(guarantee)
    if guess is None:
        return "no bound on guesses is known"
    several = asked is not None and asked.releases > 1
    after = " after one release" if several else ""
    pure = guarantee.epsilon(0.0)
    if math.isfinite(pure):
        sure = percent(allowed_guess(pure))
        text = f"at most {sure} certainty{after}, whatever comes out, where 50 % is a coin toss"
        if percent(guess) != sure:
            text += f"; on average at most {percent(guess)} of guesses right"
    else:
        text = f"at most {percent(guess)} of guesses right{after}, where 50 % is a coin toss"
    if several and asked is not None:
        together, after = guarantee.curve_of_asked(), f"after all {asked.releases:,} releases"
        if together is not None:
            text += f"; at most {percent(min(1.0, (1 + together.delta(0.0)) / 2))} {after}"
        else:
            allowed = percent(allowed_guess(asked.epsilon, asked.delta))
            text += f"; at most {allowed} {after}, a bound from ε"
    return text


def _error(deviations: Iterable[float], typical: float | None) -> str:
    sizes = np.fromiter(deviations, dtype=float)
    if not len(sizes):
        return "no noise is listed"
    mean = float(np.sqrt(np.mean(sizes**2))) if typical is None else typical
    low, high = float(sizes.min()), float(sizes.max())
    text = f"typically by {size(mean)} (root mean square"
    if size(low) != size(high):
        text += f"; {size(low)} for the most exact number, {size(high)} for the noisiest"
    return f"{text}), each in the unit of the number"


def size(value: float) -> str:
    """Write a size of noise with three digits, as people do.

    Examples
    --------
    >>> size(2.0199), size(566_123.4), size(0.00012)
    ('2.02', '566,000', '0.00012')
    """
    near = float(f"{value:.3g}")
    return f"{near:,.0f}" if 1e3 <= near < 1e15 else f"{near:.3g}"


def _cost(guarantee: Guarantee) -> str:
    asked, pure = guarantee.asked, guarantee.epsilon(0.0)
    if asked is not None and asked.releases == 1 and guarantee.keeps_asked():
        # noise that keeps ε without δ takes no δ
        price = str(replace(asked, delta=0.0) if pure <= asked.epsilon else asked)
    else:
        delta = 0.0 if math.isfinite(pure) else (asked.delta if asked else 1e-6)
        at = f" at δ = {delta:g}" if delta else ""
        price = f"ε = {most_words(guarantee.epsilon(delta), 4)}{at}"
    if asked is not None and asked.releases > 1 and guarantee.keeps_asked():
        return (
            f"{asked.releases:,} releases together take {replace(asked, releases=1)} from the "
            f"budget of this secret, for good; one by itself takes {price}"
        )
    return f"every release takes {price} from the budget of this secret, for good"


# ---------------------------------------------------------------------- in numbers


def _law(mechanism: MechanismRecord) -> str:
    words = mechanism.noise.words
    on_integers = " on integers" if mechanism.noise.whole else ""
    return f"{words[:1].upper()}{words[1:]} noise{on_integers}"


def _scope(manifold: AffineManifold) -> Iterator[tuple[str, str]]:
    """What the promise is about, and what it is not about."""
    equations = manifold.equations()
    left_out = "an equation that the public knows and that was left out is not covered"
    if equations:
        shown = "; ".join(shortened(as_written(text)) for text in equations[:SHOWN_GIVEN])
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
    if mechanism.least is not None and mechanism.least.is_weighted:
        yield mechanism.least.what, f"{mechanism.least.error:.6g}: what the design made small"
    if baseline.deviation is None:
        yield "against i.i.d.", f"not available: {baseline.reason}"
    else:
        yield (
            "against i.i.d.",
            f"independent noise with the same promise has standard deviation "
            f"{baseline.deviation:.4g} on every output: "
            f"{_times(outputs * baseline.deviation**2 / total)}",
        )
    yield "equations", _equations_status(mechanism, equations)


def _times(ratio: float) -> str:
    shown = f"{ratio:.4g}"
    return "the same squared error" if shown == "1" else f"{shown} times the squared error"


def _optimality(mechanism: MechanismRecord) -> str:
    if mechanism.guarantee.leak is not None:
        return "none, because there is no promise"
    gap, least = mechanism.gap, mechanism.least
    if gap is not None:
        most = (
            f"{most_words(100 * gap, 2)} %" if gap >= 1e-4 else f"{most_words(gap, 2)} (relative)"
        )
        proved = "certified" if isinstance(mechanism.strategy, Matrices) else "computed"
        return (
            f"{proved}: the (weighted) squared error is at most {most} above the least that any "
            "Gaussian noise with this promise has"
        )
    if least is not None and least.excess <= 1 + ROUNDING:
        return (
            "certified: no mechanism does better for real-valued data without limits; whole or "
            "bounded numbers may allow less"
        )
    return NOT_CERTIFIED


def _chosen(mechanism: MechanismRecord) -> Alternative | None:
    """The noise that was taken, among all that was compared."""
    listed = (one for one in mechanism.alternatives if one.designed)
    return next((one for one in listed if one.error == mechanism.design.error), None)


def _against(mechanism: MechanismRecord, other: Alternative) -> str:
    """Another way to keep the promise, with its error."""
    if not other.designed:
        least = f"at least {other.error:.6g}, " if other.error > 0.0 else ""
        return f"{other.words}: {least}{other.reason}"
    own = mechanism.design.error
    return f"{other.words}: {_times(other.error / own) if own else f'{other.error:.6g}'}"


def _equations_status(mechanism: MechanismRecord, equations: Sequence[str]) -> str:
    if mechanism.guarantee.leak is not None:
        return "not listed, because there is no promise"
    if equations:
        return f"every release obeys {counted(len(equations), 'equation')}, listed below"
    if len(mechanism.output_names) > MOST_OUTPUTS:
        return f"not listed for more than {MOST_OUTPUTS:,} outputs"
    return "none: the noise does not keep any equation between the outputs"
