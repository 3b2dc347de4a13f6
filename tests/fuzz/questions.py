"""Two questions, asked of any release: does the noise do what it says, and can neighbours be told
apart better than the promise says?

Each question raises :class:`Broken` with what it found.  The exact ones know no chance; the
statistical ones raise a false alarm with probability ``alarm`` at most.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy import stats

from affinedp.audit.attacks import distinguish
from affinedp.errors import AffineDPError
from fuzz.noise import always, no_noise, only, steered

EPS = Fraction(2) ** -52
GRID = 2**56
# docs/explanation/floating-point.md: noise is larger by this share than neighbours need.
SHARE = Fraction(1, 2**30)
# A bias below this share of the noise is not seen by anyone.
BIAS = Fraction(1, 2**19)


class Broken(AssertionError):
    """A promise that does not hold."""


def demand(truth, words):
    if not truth:
        raise Broken(words)


# ---------------------------------------------------------------------- what can be seen


def visible(published):
    """Everything about a result that an adversary sees, without its numbers."""
    kind = f"{type(published).__module__}.{type(published).__qualname__}"
    if isinstance(published, tuple):
        return tuple(visible(part) for part in published)
    if isinstance(published, str):  # what it says may be about the noisy numbers
        return kind
    if isinstance(published, np.ndarray):
        return kind, str(published.dtype), published.shape
    if isinstance(published, list):
        return kind, len(published), tuple(type(v).__name__ for v in published)
    if hasattr(published, "columns"):
        return (
            kind, published.shape, _labels(published.index), _labels(published.columns),
            tuple(str(t) for t in published.dtypes), repr(sorted(published.attrs.items())),
        )  # fmt: skip
    if hasattr(published, "index") and hasattr(published, "dtype"):
        return (
            kind, str(published.dtype), published.shape, _labels(published.index),
            repr(published.name), repr(sorted(published.attrs.items())),
        )  # fmt: skip
    return kind, repr(published)


def _labels(index):
    return str(index.dtype), tuple(index.tolist()), repr(index.names), type(index).__name__


def numbers(published) -> np.ndarray:
    """The numbers of a result (of its first part, if it has several), as they are."""
    if isinstance(published, tuple):
        published = published[0]
    if hasattr(published, "to_numpy"):
        return np.asarray(published.to_numpy(), dtype=float)
    return np.asarray(published, dtype=float)


def bits(published) -> bytes:
    """All numbers of a result, to the last bit."""
    if isinstance(published, tuple):
        return b"|".join(bits(part) for part in published)
    if isinstance(published, str):
        return published.encode()
    if hasattr(published, "columns"):
        columns = [published[name] for name in published.columns]
        return b"|".join(
            numbers(column).tobytes() if column.dtype.kind in "iuf" else repr(list(column)).encode()
            for column in columns
        )
    return numbers(published).tobytes()


def attempted(release, *arguments):
    """The result, or the refusal as (type, text): both are seen."""
    try:
        return release(*arguments), None
    except AffineDPError as error:
        return None, (type(error), str(error))


# ---------------------------------------------------------------------- without chance


def ask_exactly(release, truth, guarantee, noise_matrix, sizes, shown=None, lattice=None):
    """Both questions with known integers in place of drawn ones."""
    with steered(no_noise) as first:
        still, refusal = attempted(release, 0)
    with steered(no_noise) as second:
        other, refusal_too = attempted(release, 1)
    if refusal or refusal_too:
        demand(
            refusal == refusal_too,
            f"one neighbour is refused and the other is not, or otherwise: {refusal}, "
            f"{refusal_too}",
        )
        return refusal
    _look_alike(still, other)
    demand(len(first.seen) == len(second.seen) == 1, "noise is drawn once for one release")
    if lattice is not None:
        for published, exact in ((still, truth[0]), (other, truth[1])):
            _no_bias(numbers(published).ravel(), exact, noise_matrix, Fraction(0), sizes)
        _apart_as_they_are(first.seen[0].steps, second.seen[0].steps, truth, lattice)
        _same_for_both(shown or release)
        return None
    scale = first.seen[0].scale
    demand(scale >= GRID, f"the noise has scale {scale} / 2^56, less than stated")
    demand(scale == second.seen[0].scale, "the scale of the noise depends on the data")
    demand(first.seen[0].law == guarantee.law, "the noise has another law than stated")
    for published, exact in ((still, truth[0]), (other, truth[1])):
        _no_bias(numbers(published).ravel(), exact, noise_matrix, Fraction(scale, GRID), sizes)
    _stated_response(release, still, noise_matrix, Fraction(scale, GRID), sizes)
    _close(first.seen[0].steps, second.seen[0].steps, scale, guarantee)
    _same_for_both(shown or release)
    return None


def _look_alike(one, other):
    demand(
        visible(one) == visible(other),
        f"neighbours look different: {visible(one)} and {visible(other)}",
    )


def _rounding(sizes):
    return [float(size * EPS * 64) for size in sizes]


def _no_bias(published, truth, noise, factor, sizes):
    demand(len(published) == len(truth), "another number of outputs than stated")
    deviations = np.sqrt((noise.astype(float) ** 2).sum(axis=1)) * float(factor)
    for i, (y, exact) in enumerate(zip(published, truth)):
        room = float(BIAS) * deviations[i] + _rounding(sizes)[i]
        demand(math.isfinite(y), f"output {i} is {y}")
        off = float(Fraction(float(y)) - exact)
        demand(
            abs(off) <= room,
            f"output {i} is {y!r} without noise, {off:.3g} off the truth; its noise has scale "
            f"{deviations[i]:.3g}, and rounding may take {room:.3g}",
        )


def _stated_response(release, still, noise, factor, sizes):
    """One unit of η_j moves the outputs by column j of Λ."""
    base = numbers(still).ravel()
    for j in range(noise.shape[1]):
        with steered(only(j)):
            moved = numbers(release(0)).ravel() - base
        expected = noise[:, j] * float(factor)
        deviations = np.sqrt((noise**2).sum(axis=1)) * float(factor)
        room = 2 * np.array(_rounding(sizes)) + float(BIAS) * deviations
        worst = int(np.argmax(np.abs(moved - expected) - room))
        demand(
            abs(moved[worst] - expected[worst]) <= room[worst],
            f"one unit of noise {j} moves output {worst} by {moved[worst]!r}, not by "
            f"{expected[worst]!r}",
        )


def _close(steps, steps_too, scale, guarantee):
    """Neighbours are as near as the promise needs: in integers."""
    apart = [int(d) for d in (steps_too - steps).ravel()]
    stated = Fraction(guarantee.sensitivity) * scale
    if guarantee.law == "laplace":
        found, most = Fraction(sum(abs(d) for d in apart)), stated
    else:
        found, most = Fraction(sum(d * d for d in apart)), (stated / (1 + SHARE)) ** 2
    demand(
        found <= most,
        f"neighbours are {float(found / most):.12g} times as far apart as the promise says",
    )


def _apart_as_they_are(steps, steps_too, truth, lattice):
    """Whole neighbours differ in steps of the noise by their difference, and by nothing else."""
    apart = [[int(d) for d in row] for row in (steps_too - steps).T]
    moved = [b - a for a, b in zip(*truth)]
    found = [
        sum(Fraction(float(v)) * d for v, d in zip(row, one)) for one in apart for row in lattice
    ]
    demand(found == moved, "neighbours differ otherwise in steps of the noise than in the data")


def _same_for_both(release):
    """The same noisy integers give the same result, to the last bit and label."""
    targets: list[np.ndarray] = []
    results = []
    for which in (0, 1):
        with steered(always(targets)):
            results.append(release(which))
    _look_alike(*results)
    demand(
        bits(results[0]) == bits(results[1]),
        "the same noisy integers give different numbers for neighbours",
    )


# ---------------------------------------------------------------------- by statistics


def ask_coverage(published, truth, noise, law, factor, alarm, resolution=0.0):
    """Mean, spread and extremes of many releases against the stated noise."""
    outputs = published.shape[1]
    nearest = np.array([float(exact) for exact in truth])
    rest = np.array([float(exact - Fraction(near)) for exact, near in zip(truth, nearest)])
    error = (published - nearest) - rest
    scale = np.sqrt((noise**2).sum(axis=1)) * factor
    covered = (scale > 0) & (np.broadcast_to(resolution, scale.shape) < 1e-4 * scale)
    checks = alarm / (8 * max(1, outputs))
    for i in np.flatnonzero(covered):
        row = noise[i][noise[i] != 0] * factor
        if law == "gaussian":
            _gaussian(error[:, i] / scale[i], checks, f"output {i}")
        elif len(row) == 1:
            _laplace(error[:, i] / abs(row[0]), checks, f"output {i}")
        else:
            _mixture(error[:, i], row, checks, f"output {i}")
        _no_atoms(error[:, i] / scale[i], f"output {i}")
    for i in np.flatnonzero(scale == 0):
        demand(
            np.ptp(published[:, i]) == 0, f"output {i} is stated to have no noise, but it changes"
        )
    _whitened(error[:, covered], noise[covered] * factor, law, alarm / 4)


def _whitened(error, noise, law, alarm):
    """The drawn numbers themselves, where the outputs determine them."""
    if not len(noise):
        return
    unit = np.sqrt((noise**2).sum(axis=1))
    left, sizes, right = np.linalg.svd(noise / unit[:, None], full_matrices=False)
    kept = sizes > 1e-5 * sizes[0]
    if (sizes[~kept] > 1e-12 * sizes[0]).any():
        return
    drawn = (error / unit) @ left[:, kept] / sizes[kept]  # right[kept] @ η
    if law == "gaussian":
        _gaussian(drawn.ravel(), alarm / 2, "the whitened outputs")
        _uncorrelated(drawn, alarm / 2)
    elif kept.sum() == noise.shape[1]:
        drawn = drawn @ right[kept]
        _laplace(drawn.ravel(), alarm / 2, "the drawn numbers")
        _uncorrelated(np.sign(drawn), alarm / 2)


def _between(value, law, alarm, words):
    tail = min(law.cdf(value), law.sf(value))
    demand(tail * 2 >= alarm, f"{words}: {value:.6g} where {law.mean():.6g} ± {law.std():.3g} "
           f"is expected (probability {2 * tail:.1e})")  # fmt: skip


def _gaussian(u, alarm, words):
    runs = len(u)
    _between(float(u.mean()), stats.norm(0, 1 / math.sqrt(runs)), alarm / 3, f"mean of {words}")
    _between(float((u**2).sum()), stats.chi2(runs), alarm / 3, f"sum of squares of {words}")
    _extreme(2 * stats.norm.sf(np.abs(u).max()), runs, alarm / 3, words)


def _laplace(u, alarm, words):
    runs = len(u)
    # signs and sizes are independent
    signs = int((u > 0).sum())
    tail = min(stats.binom.cdf(signs, runs, 0.5), stats.binom.sf(signs - 1, runs, 0.5))
    demand(2 * tail >= alarm / 3, f"{signs} of {runs} are positive: {words}")
    _between(float(np.abs(u).sum()), stats.gamma(runs), alarm / 3, f"sum of sizes of {words}")
    _extreme(math.exp(-float(np.abs(u).max())), runs, alarm / 3, words)


def _mixture(error, row, alarm, words):
    """A sum of Laplace noises: medians are exact, squares are nearly Gaussian on average."""
    runs = len(error)
    signs = int((error > 0).sum())
    tail = min(stats.binom.cdf(signs, runs, 0.5), stats.binom.sf(signs - 1, runs, 0.5))
    demand(2 * tail >= alarm / 2, f"{signs} of {runs} are positive: {words}")
    unit = float(np.abs(row).max())
    error, row = error / unit, row / unit
    variance = 2 * float((row**2).sum())
    fourth = 3 * variance**2 + 12 * float((row**4).sum())
    deviation = math.sqrt((fourth - variance**2) / runs)
    # squares have heavier tails than the Gaussian: twice the room that the Gaussian needs
    room = 2 * stats.norm.isf(alarm / 4) * deviation
    found = float((error**2).mean())
    demand(
        abs(found - variance) <= room,
        f"mean square of {words}: {found:.6g} where {variance:.6g} ± {deviation:.3g} is expected",
    )


def _extreme(beyond, runs, alarm, words):
    """The largest of many: a law that was cut off, or has heavier tails, shows here."""
    if not beyond > 0:
        raise Broken(f"the largest of {words} is impossible")
    none_larger = math.exp(runs * math.log1p(-min(beyond, 1 - 1e-16)))
    demand(none_larger >= alarm / 2, f"no value of {words} is as large as some should be")
    demand(
        -math.expm1(runs * math.log1p(-min(beyond, 1 - 1e-16))) >= alarm / 2,
        f"the largest of {words} is larger than it can be",
    )


def _uncorrelated(drawn, alarm):
    runs, count = drawn.shape
    if count < 2:
        return
    unit = drawn / np.sqrt((drawn**2).sum(axis=0))
    products = unit.T @ unit
    largest = float(np.abs(products[np.triu_indices(count, 1)]).max())
    # sub-Gaussian for signs, nearly so for Gaussians
    limit = math.sqrt(3 * math.log(2 * count * count / alarm) / runs)
    demand(largest <= limit, f"noises are correlated: {largest:.3g} (at most {limit:.3g})")


def _no_atoms(u, words):
    """Noise on a grid of 2^-56 does not repeat in some thousand draws."""
    repeated = len(u) - len(np.unique(u))
    demand(repeated <= 2, f"{repeated} of {len(u)} values of {words} are repeated")


PATTERNS = 64


def patterns(published, noise):
    """What rounding leaves, per output: trailing zeros against the noise, the last three bits."""
    unit = np.frexp(np.sqrt((noise**2).sum(axis=1)))[1]
    fraction, exponent = np.frexp(published)
    bits = np.abs(np.ldexp(fraction, 53)).astype(np.int64)
    zeros = np.frexp((bits & -bits).astype(float))[1] + exponent - unit + PATTERNS // 2
    sizes = exponent - unit + PATTERNS // 2
    return np.hstack([np.clip(zeros, 0, PATTERNS - 1), bits & 7, np.clip(sizes, 0, PATTERNS - 1)])


def left_patterns(published, weights, right):
    """By how many units of the last place known combinations are off."""
    wide = published.astype(np.longdouble)
    last = np.spacing(np.abs(published).max(axis=1, keepdims=True))
    off = np.rint(4 * (wide @ weights.T - right) / last)
    return np.clip(off + PATTERNS // 2, 0, PATTERNS - 1)


def ask_distinguishing(pair, truth, noise, guarantee, alarm, seed, left=None):
    """Whether releases of two neighbours are told apart better than the promise allows."""
    deltas = [0.0] if math.isfinite(guarantee.epsilon(0.0)) else [0.01, 0.1]
    origin = np.array([float(v) for v in truth[0]])
    shift = np.array([float(b - a) for a, b in zip(*truth)])
    inverse = np.linalg.pinv(noise, rcond=1e-12)
    a, z = inverse @ shift, [(part - origin) @ inverse.T for part in pair]
    if guarantee.law == "gaussian":
        ratio = [part @ a for part in z]
    else:
        ratio = [(np.abs(part) - np.abs(part - a)).sum(axis=1) for part in z]
    unit = max(float(np.abs(ratio[0]).max()), 1e-300)
    values = [
        np.column_stack([np.round(score / unit, 9), part - origin])
        for score, part in zip(ratio, pair)
    ]
    learnt = [patterns(part, noise) for part in pair]
    if left is not None:
        learnt = [np.hstack([low, left_patterns(part, *left)]) for low, part in zip(learnt, pair)]
    for delta in deltas:
        stated = guarantee.epsilon(delta)
        for scores, learns in ((values, False), (learnt, True)):
            if learns:
                scores = [part.astype(np.int64) for part in scores]
            found = distinguish(
                *scores,
                delta=delta,
                confidence=1 - alarm / (2 * len(deltas)),
                seed=seed,
                learns=learns,
            )
            demand(
                found.epsilon_lower <= stated * (1 + 1e-9),
                f"neighbours are told apart: ε is at least {found.epsilon_lower:.4g} at "
                f"δ = {delta:g}, and {stated:.4g} is promised ({'low bits' if learns else 'value'},"
                f" {found.hit_rate:.3g} against {found.miss_rate:.3g})",
            )
