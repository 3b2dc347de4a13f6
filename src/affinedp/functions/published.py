"""Functions of published numbers, with intervals: the law of the noise is public, so they are free.

Ratios of linear forms have Fieller's interval, which is exact for Gaussian noise.  Other smooth
functions are corrected for their curvature; derivatives come from simulated noise.  A certified
interval is the range over a region that holds the true numbers.  docs/explanation/functions.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, dense
from affinedp.errors import AffineDPError
from affinedp.functions.formula import (
    Formula,
    as_formula,
    as_ratio,
    entry,
    evaluate,
    range_over,
    read_formula,
)
from affinedp.intervals import Interval, checked_level, interval_of
from affinedp.laws.base import Law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.reach import normal_reach
from affinedp.record import MechanismRecord

# Simulated releases for derivatives, and numbers of noise held at a time.
DRAWS = 1_000
BATCH = 4_000_000
# Outputs that a function of all of them is still traced for, to see whether it is a ratio.
MOST_TRACED = 1_000
# Coefficients of outputs that are held at once.
MOST_COEFFICIENTS = 1e8
# Boxes that a region is cut into.
MOST_BOXES = 1 << 16
# Where so many simulated points are undefined, nothing is said.
MOST_UNDEFINED = 0.01
# First and second order are alike where the second is more than this part of the first.
ALIKE = 0.5
# How far derivatives look, in standard deviations of the noise.
STEP = 0.05
# Steps between doubles that a standard deviation of the noise must have, so that noise is seen.
LEAST_STEPS = 64
# How close an end comes to the last number that is left out, relatively.
CLOSE = 1e-4
# How far out an end is looked for, in multiples of where a norm has it.
FARTHEST = 1024
# Where else numbers are looked for, in multiples of the distance of an end.
SCANNED = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0)
LOGARITHMICALLY_CONCAVE = ("laplace", "knorm")
EPS = float(np.finfo(float).eps)
# Of several values, those that are printed.
SHOWN = 6
UNBOUNDED = (
    "the denominator may be 0: the interval is unbounded, and its level is not that of the bounded "
    "ones alone"
)
CORRECTED = "the value is less the bias of noise"


@dataclass(frozen=True, eq=False)
class FunctionInterval(Interval):
    """A function of published numbers: its value, and where the true one lies.

    Attributes
    ----------
    low, high : float or array
        The ends; infinite where noise leaves them open.
    level : float
        With at least this probability, or about; ``how`` says which.
    simultaneous : bool
        Whether it holds at once for all functions of the same numbers.
    how : str
        How it was computed, and what that says about the probability.
    value : float or array
        The function at what was published, less the bias that noise gives it.
    pieces : tuple of pairs of floats, or an array of them
        Where the true value lies, piece by piece: two half lines where a denominator may be 0.
    warnings : tuple of str
        What a careful reader should know.
    known : bool or array
        Whether the ends say more than what holds for all data.
    rows : tuple of str
        What several values are about: the rows of a table; empty where they have no names.
    """

    value: Any = np.nan
    pieces: Any = ()
    warnings: tuple[str, ...] = ()
    known: Any = True
    rows: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def bounded(self) -> Any:
        """Whether both ends are finite."""
        return np.isfinite(self.low) & np.isfinite(self.high)

    def __str__(self) -> str:
        if np.ndim(self.value):
            count = np.size(self.value)
            told = f"{count:,} values with {100 * self.level:g} % intervals: {self.how}"
            some = [
                f"  {self.rows[place[0]] + ': ' if self.rows else ''}{self[place]}"
                for place in islice(np.ndindex(np.shape(self.value)), SHOWN)
            ]
            more = [f"  and {count - SHOWN:,} more"] if count > SHOWN else []
            return "\n".join([told, *some, *more])
        where = " or ".join(f"{low:.6g} to {high:.6g}" for low, high in self.pieces)
        shown = f"{float(self.value):.6g}" if self.known else "not known"
        return f"{shown} ({100 * self.level:g} %: {where})"

    def __getitem__(self, place: Any) -> FunctionInterval:
        """Return some of several values."""
        numbers = (self.low[place], self.high[place], self.value[place], self.known[place])
        low, high, value, known = (one if np.ndim(one) else one.item() for one in numbers)
        return replace(
            self, low=low, high=high, value=value, known=known, pieces=self.pieces[place], rows=()
        )


@dataclass(frozen=True, eq=False)
class Asked:
    """A function as it was given: which outputs it reads, how it is evaluated, its formulas."""

    places: IntArray
    # takes rows of these outputs to rows of values
    values: Callable[[FloatArray], FloatArray]
    shape: tuple[int, ...]
    formulas: tuple[Formula, ...] | None

    @property
    def ratios(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None:
        """Numerators and denominators, coefficients and constants, if all values are ratios."""
        if self.formulas is None:
            return None
        found = [as_ratio(formula) for formula in self.formulas]
        if any(one is None for one in found):
            return None
        above, below = ([pair[i] for pair in found if pair is not None] for i in (0, 1))
        return *self._rows(above), *self._rows(below)

    def _rows(self, forms: Sequence[Formula]) -> tuple[FloatArray, FloatArray]:
        rows = np.zeros((len(forms), len(self.places)))
        for row, form in zip(rows, forms):
            for place, value in form.coefficients.items():
                row[place] = value
        return rows, np.array([form.number for form in forms])


def function_of(
    mechanism: MechanismRecord,
    y: Any,
    f: Any,
    level: float = 0.95,
    certified: bool = False,
    factor: float = 1.0,
    named: Named | None = None,
) -> FunctionInterval:
    """Return a function of what was released, with an interval; see :meth:`Mechanism.function`."""
    level = checked_level(level)
    given = mechanism.strategy.flat(y)
    if given.ndim == 2:
        return stacked([function_of(mechanism, row, f, level, certified, factor) for row in given])
    asked = read_function(mechanism, f, given, named or Named(mechanism.strategy.names))
    noise = Noise(mechanism, given, asked.places, factor)
    return interval_for(noise, asked, level, certified)


def interval_for(noise: Noise, asked: Asked, level: float, certified: bool) -> FunctionInterval:
    """Return the interval by the first way that applies."""
    asked = as_it_is(noise, asked)
    if certified:
        return _certified(noise, asked, level)
    ratios = asked.ratios
    if ratios is not None:
        return _ratios(noise, asked, ratios, level)
    return _second_order(noise, asked, level)


def as_it_is(noise: Noise, asked: Asked) -> Asked:
    """Return the same without its formulas, if the function has other values than they say."""
    if asked.formulas is None:
        return asked
    points = np.vstack([noise.y, *(noise.y + e for e in noise.draws(8))])
    said = np.stack([evaluate(formula, points) for formula in asked.formulas], axis=1)
    alike = np.allclose(said, asked.values(points), rtol=1e-6, atol=0.0, equal_nan=True)
    return asked if alike else replace(asked, formulas=None)


def within(found: FunctionInterval, low: float, high: float, why: str) -> FunctionInterval:
    """Return one interval cut to where the true value is known to lie, which costs no coverage."""
    inside = [(a, b) for a, b in found.pieces if a <= high and b >= low] or found.pieces
    cut = [(min(max(a, low), high), min(max(b, low), high)) for a, b in inside]
    return replace(
        found,
        low=cut[0][0], high=cut[-1][1], pieces=tuple(cut),
        value=min(max(float(found.value), low), high),
        how=f"{found.how}; {why}",
        warnings=tuple(one for one in found.warnings if one != UNBOUNDED),
        known=cut[0][0] > low or cut[-1][1] < high or low == high,
    )  # fmt: skip


def stacked(each: Sequence[FunctionInterval]) -> FunctionInterval:
    """Return the intervals of several data sets, each by itself."""
    if not each:
        raise AffineDPError("there is no row to compute a function of")
    pieces = np.empty((len(each), *np.shape(each[0].value)), dtype=object)
    for place, one in enumerate(each):
        pieces[place] = one.pieces
    return FunctionInterval(
        np.array([one.low for one in each]), np.array([one.high for one in each]),
        each[0].level, False, each[0].how, np.array([one.value for one in each]), pieces,
        tuple(dict.fromkeys(text for one in each for text in one.warnings)),
        np.array([one.known for one in each]),
    )  # fmt: skip


# ------------------------------------------------------------------ what was asked


@dataclass(frozen=True, eq=False)
class Named:
    """Which outputs names mean, and public numbers that have names too."""

    names: Sequence[str]
    places: Sequence[int] | None = None
    known: Mapping[str, float] = field(default_factory=dict)

    def place(self, name: str) -> int:
        """Return which output a name means."""
        try:
            place = self.names.index(name)
        except ValueError:
            shown = ", ".join(repr(self.names[i]) for i in range(min(len(self.names), 8)))
            more = f" and {len(self.names) - 8:,} more" if len(self.names) > 8 else ""
            raise AffineDPError(f"{name!r} is no output: outputs are {shown}{more}") from None
        return place if self.places is None else self.places[place]


def read_function(mechanism: MechanismRecord, f: Any, given: FloatArray, named: Named) -> Asked:
    """Return a text, a function of named outputs, or a function of all of them, as one thing."""
    known = named.known
    if isinstance(f, str):
        read: dict[str, int] = {}

        def meant(name: str) -> Formula:
            if name in known:
                return Formula(number=float(known[name]))
            named.place(name)
            return entry(read.setdefault(name, len(read)))

        formula = read_formula(f, meant, {*named.names, *known})
        places = np.array([named.place(name) for name in read], dtype=np.intp)
        return Asked(places, lambda rows: evaluate(formula, rows)[:, None], (), (formula,))
    if not callable(f):
        raise AffineDPError("give a function of the outputs, or a text such as 'a / c'")
    arguments = _arguments(f, named)
    if arguments is None:
        places = np.arange(len(given))
        present = mechanism.strategy.present

        def called(row: Any) -> Any:
            return f(present(row))
    else:
        own = [name for name in arguments if name not in known]
        places = np.array([named.place(name) for name in own], dtype=np.intp)

        def called(row: Any) -> Any:
            read = dict(zip(own, row))
            return f(*(read[name] if name in read else known[name] for name in arguments))

    shape = np.shape(_attempt(called, given[places]))
    size = int(np.prod(shape, dtype=int))
    if not size:
        raise AffineDPError("the function returns no number")

    def values(rows: FloatArray) -> FloatArray:
        found = np.full((len(rows), size), np.nan)
        for place, row in enumerate(rows):
            one = _attempt(called, row)
            if one.shape == shape:
                found[place] = one.ravel()
        return found

    return Asked(places, values, shape, _traced(called, len(places), shape))


def _attempt(called: Callable[[Any], Any], row: FloatArray) -> FloatArray:
    """The value at one point; NaN where a function stops because it is undefined there."""
    with np.errstate(all="ignore"):
        try:
            found = called(row)
            if found is None or isinstance(found, str):
                raise AffineDPError(f"the function returns {found!r}, which is no number")
            return np.asarray(found, dtype=float)
        except (ArithmeticError, ValueError) as error:
            if isinstance(error, AffineDPError):
                raise
            return np.asarray(np.nan)
        except (TypeError, LookupError) as error:
            raise AffineDPError(f"the function does not take these outputs: {error}") from error


def _arguments(f: Any, named: Named) -> tuple[str, ...] | None:
    """The outputs that a function names; None if it takes all of them in one argument."""
    try:
        every = [
            one
            for one in inspect.signature(f).parameters.values()
            if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):  # functions of C say nothing
        return None
    given = [one.name for one in every if one.default is one.empty]
    # of one argument all must be names of outputs: the "a" of np.sum(a, axis=None) is none
    asked = [one.name for one in every] if len(given) == 1 else given
    unknown = [name for name in asked if name not in named.known and name not in named.names]
    if len(given) == 1 and unknown:
        return None
    if unknown or not given:
        raise AffineDPError(
            f"the function asks for {', '.join(unknown) or 'nothing'}, which is no output: name "
            "its arguments after outputs, or give it one argument for all of them"
        )
    return tuple(given)


def _traced(
    called: Callable[[Any], Any], count: int, shape: tuple[int, ...]
) -> tuple[Formula, ...] | None:
    """The formulas of a function that only adds, multiplies, divides and the like."""
    if count > MOST_TRACED:
        return None
    row = np.empty(count, dtype=object)
    row[:] = [entry(place) for place in range(count)]
    try:
        found = np.asarray(called(row), dtype=object)
        return tuple(as_formula(one) for one in found.ravel()) if found.shape == shape else None
    except Exception:  # whatever a function does with what is no number, it is not traced then
        return None


# ------------------------------------------------------------------ noise of the numbers it reads


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise of the numbers that a function reads: how far combinations reach, and simulations."""

    mechanism: MechanismRecord
    given: FloatArray
    places: IntArray
    factor: float

    @property
    def y(self) -> FloatArray:
        """The numbers."""
        return self.given[self.places]

    def wide(self, rows: FloatArray) -> FloatArray:
        """Combinations of these numbers as combinations of all outputs."""
        if float(len(rows)) * len(self.given) > MOST_COEFFICIENTS:
            raise AffineDPError(
                f"{len(rows):,} values of {len(self.given):,} outputs are too many at once: ask "
                "for some of them"
            )
        found = np.zeros((len(rows), len(self.given)))
        found[:, self.places] = rows
        return found

    def reach(self, rows: FloatArray, level: float, together: bool = False) -> FloatArray:
        """How far combinations of these numbers may be off."""
        nothing = np.zeros(len(self.given))
        found = interval_of(self.mechanism, nothing, self.wide(rows), level, together, self.factor)
        return np.asarray(found.high + 8 * EPS * (np.abs(rows) @ np.abs(self.y)))  # y is rounded

    def loadings(self, rows: FloatArray) -> FloatArray:
        """Of which noise combinations are made."""
        return dense(self.mechanism.strategy.loadings(self.wide(rows))) * self.factor

    def variances(self, rows: FloatArray) -> FloatArray:
        """Variances of combinations."""
        return self.mechanism.noise.variances(self.loadings(rows))

    def deviations(self) -> FloatArray:
        """Standard deviations of these numbers."""
        if len(self.places) == len(self.given):
            variances = self.mechanism.expected_squared_errors[self.places]
            return np.asarray(np.sqrt(variances) * self.factor)
        return np.asarray(np.sqrt(self.variances(np.eye(len(self.places)))))

    def check_digits(self) -> None:
        """Refuse numbers so large that doubles hardly hold their noise: derivatives would be 0."""
        noise = self.deviations()
        coarse = (noise > 0) & (np.spacing(np.abs(self.y)) * LEAST_STEPS > noise)
        if coarse.any():
            name = self.mechanism.strategy.names[int(self.places[np.flatnonzero(coarse)[0]])]
            raise AffineDPError(
                f"{name!r} has too few digits for this function: doubles of its size are farther "
                f"apart than 1/{LEAST_STEPS} of its noise. Take off a public constant before the "
                "release, name only the outputs that the function reads, or ask for certified=True"
            )

    def draws(self, count: int, seed: int = 0) -> Iterator[FloatArray]:
        """Yield simulated noise, some rows at a time; the same every time."""
        generator = np.random.default_rng(seed)
        law, strategy, few = self.mechanism.noise, self.mechanism.strategy, len(self.places)
        rows = self.loadings(np.eye(few)) if few < len(self.given) else None
        root = None
        if rows is not None and isinstance(law, Gaussian):
            # a few sums of Gaussian noise are Gaussian: nothing else is drawn
            values, vectors = np.linalg.eigh(law.covariance(rows))
            root = vectors * np.sqrt(np.maximum(values, 0.0))
        width = few if root is not None else max(strategy.coordinates, few)
        batch = max(1, min(count, BATCH // max(width, 1)))
        for start in range(0, count, batch):
            size = min(batch, count - start)
            if root is not None:
                yield generator.standard_normal((size, few)) @ root.T
                continue
            drawn = law.sample(generator, size, strategy.coordinates)
            if rows is None:
                yield self.factor * strategy.spread(drawn).reshape(size, -1)
            else:
                yield drawn @ rows.T


def gradients(asked: Asked, y: FloatArray, step: FloatArray) -> FloatArray:
    """Return derivatives by central differences, one row per value; 0 where there is no noise."""
    found = np.zeros((int(np.prod(asked.shape, dtype=int)), len(y)))
    moved = np.flatnonzero(step > 0)
    batch = max(1, BATCH // max(len(y), 1))
    for start in range(0, len(moved), batch):
        chosen = moved[start : start + batch]
        shift = np.zeros((len(chosen), len(y)))
        shift[np.arange(len(chosen)), chosen] = step[chosen]
        above, below = y + shift, y - shift
        width = (above - below)[np.arange(len(chosen)), chosen]  # as it is after rounding
        with np.errstate(all="ignore"):
            found[:, chosen] = ((asked.values(above) - asked.values(below)) / width[:, None]).T
    return found


# ------------------------------------------------------------------ ratios

Ratios = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
Pieces = list[tuple[tuple[float, float], ...]]


def _ratios(noise: Noise, asked: Asked, ratios: Ratios, level: float) -> FunctionInterval:
    """Fieller's intervals: all θ for which (p − θq)·y may be noise around 0."""
    p, p0, q, q0 = ratios
    law, y = noise.mechanism.noise, noise.y
    above, below = p @ y + p0, q @ y + q0
    with np.errstate(all="ignore"):
        theta = np.where(below != 0, above / np.where(below != 0, below, 1.0), np.nan)
    finite = np.isfinite(theta)
    rest = p - np.where(finite, theta, 0.0)[:, None] * q
    reach = noise.reach(rest, level)
    with_rest, with_below = noise.loadings(rest), noise.loadings(q)
    covariance = (
        law.variances(with_rest + with_below) - law.variances(with_rest - with_below)
    ) / 4  # of the rest with the denominator
    if isinstance(law, Gaussian):
        z = normal_reach(1 - level)
        pieces = _fieller(theta, below, reach, covariance, law.variances(with_below), z)
        how = "Fieller: exact for Gaussian noise"
    else:
        pieces = _fieller_by_reach(noise, (rest, q), theta, below, reach, level)
        how = f"Fieller with the reach of the noise ({law.words}): never too short"
        if not _concave(law):
            how = f"Fieller with the reach of the noise ({law.words}), ends found by a scan"
    how += f"; {CORRECTED}, where that stays in a bounded interval"
    for place in np.flatnonzero(~finite):
        pieces[place] = ((-np.inf, np.inf),)
    found = _shaped(asked, theta, pieces, level, how)
    with np.errstate(all="ignore"):
        value = np.reshape(theta + covariance / below**2, np.shape(found.value))
    inside = found.bounded & (found.low <= value) & (value <= found.high)
    value = np.where(inside, value, found.value)
    return replace(
        found,
        value=value if asked.shape else value.item(),
        warnings=() if np.all(found.bounded) else (UNBOUNDED,),
    )


def _fieller(
    theta: FloatArray,
    c: FloatArray,
    reach: FloatArray,
    vrc: FloatArray,
    vcc: FloatArray,
    z: float,
) -> Pieces:
    """All θ̂ + τ with (τc)² ≤ z² Var(r − τq): an interval, two half lines, one, or everything.

    ``reach`` is z √Var r.
    """
    found: Pieces = []
    size = np.maximum(np.abs(c), z * np.sqrt(vcc))  # squares of numbers such as 1e200 are none
    size = np.where(size > 0, size, 1.0)
    squares = (reach / size) ** 2
    # aτ² + 2bτ − z² Var r ≤ 0
    a, b = (c / size) ** 2 - z**2 * (vcc / size / size), z**2 * (vrc / size / size)
    root = np.sqrt(np.maximum(b**2 + a * squares, 0.0))
    for at, one, two, half, square in zip(theta, a, b, root, squares):
        if one == 0:
            end = at + square / (2 * two) if two else np.inf
            found.append(((-np.inf, end),) if two > 0 else ((end, np.inf),) if two < 0
                         else ((-np.inf, np.inf),))  # fmt: skip
            continue
        ends = sorted((at + (-two - half) / one, at + (-two + half) / one))
        slack = 4 * EPS * (abs(ends[0]) + abs(ends[1]))
        if one > 0:
            found.append(((ends[0] - slack, ends[1] + slack),))
        elif half > 0:
            found.append(((-np.inf, ends[0] + slack), (ends[1] - slack, np.inf)))
        else:
            found.append(((-np.inf, np.inf),))
    return found


def _fieller_by_reach(
    noise: Noise,
    forms: tuple[FloatArray, FloatArray],
    theta: FloatArray,
    c: FloatArray,
    reach: FloatArray,
    level: float,
) -> Pieces:
    """The same where the reach Q is not a root of a variance.

    For symmetric noise with a logarithmically concave density Q is a norm (Meyer and Reisner,
    convex floating bodies), so |τc| − Q(r − τq) is concave on either side of 0: chords through a
    point inside and one outside meet 0 outside, and nothing lies beyond what is outside.  For
    other noise, such as whole noise, some numbers beyond are looked at.
    """
    rest, q = (np.repeat(form, 2, axis=0) for form in forms)
    size, inside = np.repeat(np.abs(c), 2), -np.repeat(reach, 2)
    sign = np.tile([-1.0, 1.0], len(theta))
    linear = ~q.any(axis=1)
    below = np.zeros(len(size)) if linear.all() else np.repeat(noise.reach(forms[1], level), 2)
    slope = size - below
    apart = slope > 1e-9 * size
    # without noise on the rest, Q(r − τq) is τ Q(q)
    ends = np.where(apart & (inside == 0), 0.0, np.inf)
    with np.errstate(all="ignore"):  # a number below the line has no noise: Q(r) by it
        ends = np.where(apart & linear, -inside / size * (1 + 4 * EPS), ends)
    kept = np.flatnonzero(apart & ~linear & (inside < 0))
    at = 1.01 * -inside[kept] / slope[kept]
    farthest = FARTHEST * at

    def past(these: IntArray, shifts: FloatArray) -> FloatArray:
        """How far beyond the reach the numbers are that these shifts ask for."""
        rows = rest[these] - (sign[these] * shifts)[:, None] * q[these]
        return np.asarray(shifts * size[these] - noise.reach(rows, level))

    while len(kept):
        beyond = past(kept, at)
        # bounds of Q need not be a norm: what is not seen to be outside is no end
        out = beyond > 0
        ends[kept[out]] = at[out]
        with np.errstate(all="ignore"):
            next_ = at * inside[kept] / (inside[kept] - beyond) * (1 + CLOSE / 100)
        # whole noise need not be outside where a norm would be: farther out it is
        unseen = ~out & np.isinf(ends[kept]) & (2 * at <= farthest)
        next_ = np.where(unseen, 2 * at, next_)
        going = unseen | (out & (next_ < (1 - CLOSE) * at))
        kept, at, farthest = kept[going], next_[going], farthest[going]
    if not _concave(noise.mechanism.noise):
        (found,) = np.nonzero(np.isfinite(ends) & (ends > 0) & ~linear)
        first = ends[found]
        for times, farther in pairwise((*SCANNED, np.inf)) if len(found) else ():
            shifts = times * first
            rows = rest[found] - (sign[found] * shifts)[:, None] * q[found]
            # Chebyshev's inequality says of most that they are outside, for every law
            most = np.sqrt(noise.variances(rows) / (1 - level)) * (1 + 1e-6)
            most += 8 * EPS * (np.abs(rows) @ np.abs(noise.y))
            near = np.flatnonzero(shifts * size[found] <= most)
            inside_again = near[past(found[near], shifts[near]) <= 0] if len(near) else near
            ends[found[inside_again]] = farther * first[inside_again]
    return _whole_pieces(theta - ends[::2], theta + ends[1::2])


def _concave(law: Law) -> bool:
    """Whether the noise has a symmetric density whose logarithm is concave."""
    return law.kind in LOGARITHMICALLY_CONCAVE and not law.whole


# ------------------------------------------------------------------ second order


def _second_order(noise: Noise, asked: Asked, level: float) -> FunctionInterval:
    """f(y) less its bias, with the variance that curvature leaves.

    With H the second derivatives and Σ the covariance, f(y) is off by ½ tr(HΣ) on average, and
    J(y)ΣJ(y)' is too large by T = tr((HΣ)²), on average; ½ e'He has a variance of its own, T/2 for
    quadratic functions of Gaussian noise.
    """
    noise.check_digits()
    y, z = noise.y, normal_reach(1 - level)
    slope = gradients(asked, y, STEP * noise.deviations())
    here = asked.values(y[None])[0]
    bias, spread, twice, undefined = curvature(noise, asked, y, here)
    with np.errstate(all="ignore"):
        first = noise.variances(np.where(np.isfinite(slope), slope, 0.0))
        reach = noise.reach(np.where(np.isfinite(slope), slope, 0.0), level)
        normal = np.where(first > 0, reach / np.sqrt(np.where(first > 0, first, 1.0)), z)
        # for quadratic functions of Gaussian noise the two are equal
        spread = np.maximum(spread, twice / 2)
        variance = np.maximum(first - twice, 0.0) + spread
        half = np.maximum(normal, z) * np.sqrt(variance)
        value = here - bias
        second = np.sqrt(bias**2 + spread) / np.sqrt(first)
    open_ = ~np.isfinite(value) | ~np.isfinite(half) | (undefined > MOST_UNDEFINED)
    open_ |= ~np.isfinite(slope).all(axis=1)
    low, high = np.where(open_, -np.inf, value - half), np.where(open_, np.inf, value + half)
    warnings = []
    if open_.any():
        warnings.append("the function is not defined on part of what noise reaches: unbounded")
    elif (undefined > 0).any():
        share = float(undefined.max())
        warnings.append(f"not defined at {share:.1%} of simulated releases, which are left out")
    if (second[~open_] > ALIKE).any():
        warnings.append(
            f"noise is so large that the second order is {float(second[~open_].max()):.2g} times "
            "the first: for functions that are far from quadratic the level is not kept"
        )
    how = f"second order: by simulation; about this level, measured; {CORRECTED}"
    shown = np.where(np.isfinite(value), value, here)
    found = _shaped(asked, shown, _whole_pieces(low, high), level, how)
    return replace(found, warnings=tuple(warnings))


def curvature(
    noise: Noise,
    asked: Asked,
    y: FloatArray,
    here: FloatArray,
    count: int = DRAWS,
    scale: float = 1.0,
    moved: Any = 1.0,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return ½ tr(HΣ), Var(½ e'He), T = tr((HΣ)²), and how often f is undefined, by simulation.

    Noise is taken ``scale`` times, and of the entries that are ``moved``.
    """
    even, mixed, lost = [], [], np.zeros(len(here))
    for drawn in noise.draws(count):
        e = scale * moved * drawn
        other = np.roll(e, 1, axis=0)
        plus, minus, both = (asked.values(y + shift) for shift in (e, -e, e + other))
        with np.errstate(all="ignore"):
            even.append((plus + minus) / 2 - here)
            mixed.append(both - plus - np.roll(plus, 1, axis=0) + here)
        lost += (~np.isfinite(even[-1])).sum(axis=0)
    rest, cross = np.concatenate(even) / scale**2, np.concatenate(mixed) / scale**2
    rest, cross = (np.where(np.isfinite(one), one, np.nan) for one in (rest, cross))
    with np.errstate(all="ignore"):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no draw is defined: said by `lost`
            return (
                np.nanmean(rest, axis=0), np.nanvar(rest, axis=0),
                np.nanmean(cross**2, axis=0), lost / count,
            )  # fmt: skip


# ------------------------------------------------------------------ certified


def _certified(noise: Noise, asked: Asked, level: float) -> FunctionInterval:
    """The range over the box of simultaneous intervals of all numbers that are read."""
    if asked.formulas is None:
        raise AffineDPError(
            "a certified interval needs a formula of + - * / **, log, exp, sqrt and abs: give a "
            "text such as 'a / c', or leave out certified"
        )
    count = len(asked.places)
    reach = noise.reach(np.eye(count), level, together=True)
    low, high = noise.y - reach, noise.y + reach
    noisy = np.flatnonzero(reach > 0)
    cuts = int(MOST_BOXES ** (1 / max(len(noisy), 1)) + 1e-9)
    lows, highs = low[None], high[None]
    if cuts > 1 and len(noisy):
        grids = np.meshgrid(*(np.arange(cuts) for _ in noisy), indexing="ij")
        cell = np.stack([grid.ravel() for grid in grids], axis=1)
        lows, highs = (np.repeat(end[None], len(cell), axis=0) for end in (low, high))
        edges = low[noisy, None] + (high - low)[noisy, None] * np.arange(cuts + 1) / cuts
        edges[:, -1] = high[noisy]  # edges are shared, so nothing falls between two boxes
        lows[:, noisy], highs[:, noisy] = (
            np.take_along_axis(edges.T, cell + more, axis=0) for more in (0, 1)
        )
    ranges = [range_over(formula, lows, highs) for formula in asked.formulas]
    bottom = np.array([one[0].min() for one in ranges])
    top = np.array([one[1].max() for one in ranges])
    value = asked.values(noise.y[None])[0]
    how = (
        f"certified: range over simultaneous intervals of the {count:,} numbers it reads; holds "
        "at once for all functions of these numbers"
    )
    found = _shaped(asked, value, _whole_pieces(bottom, top), level, how)
    return replace(found, simultaneous=True)


def _whole_pieces(low: FloatArray, high: FloatArray) -> Pieces:
    """Intervals in one piece."""
    return [((a, b),) for a, b in zip(low.tolist(), high.tolist())]


def _shaped(
    asked: Asked, value: FloatArray, pieces: Pieces, level: float, how: str
) -> FunctionInterval:
    """The interval in the shape of what the function returns."""
    shape, held = asked.shape or (1,), np.empty(len(pieces), dtype=object)
    held[:] = pieces
    low = np.reshape([min(a for a, _ in one) for one in pieces], shape)
    high = np.reshape([max(b for _, b in one) for one in pieces], shape)
    found = FunctionInterval(
        low, high, level, False, how, value.reshape(shape), held.reshape(shape),
        known=np.isfinite(low) | np.isfinite(high),
    )  # fmt: skip
    return found if asked.shape else found[0]
