"""Causal noise filters of low order that come close to the least noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.spectrum import LeastSpectrum, least_spectrum, square_root_response
from affinedp.exact.systems import ComplexArray, LinearSystem
from affinedp.neighbours.inputs import Inputs
from affinedp.strategies.filter import Place

MOST_ITERATIONS = 60
MOST_ROWS = 900


def impulse_response(spectrum: ComplexArray) -> FloatArray:
    """Return the taps of a causal filter with a causal inverse, by Wilson's iteration.

    Examples
    --------
    >>> z = np.exp(2j * np.pi * np.arange(512) / 512)[:, None, None]
    >>> impulse_response(abs(2 + z) ** 2 + 0j)[:3].ravel().round(9).tolist()
    [2.0, 1.0, 0.0]
    """
    points, p, _ = spectrum.shape
    start = np.linalg.cholesky(spectrum.mean(axis=0).real).astype(complex)
    factor: ComplexArray = np.array(np.broadcast_to(start, spectrum.shape))
    for _ in range(MOST_ITERATIONS):
        inverse = np.linalg.inv(factor)
        ratio = inverse @ spectrum @ inverse.conj().transpose(0, 2, 1) + np.eye(p)
        lags = np.fft.ifft(ratio, axis=0)  # entry k belongs to z^-k
        causal = np.zeros_like(lags)
        # half of lag 0 on each side, lower triangular, so that the factor stays unique
        causal[0] = np.tril(lags[0], -1) + np.diag(np.diagonal(lags[0])) / 2
        causal[1 : points // 2] = lags[1 : points // 2]
        new = factor @ np.fft.fft(causal, axis=0)
        change = float(np.abs(new - factor).max() / np.abs(new).max())
        factor = np.asarray(new)
        if change < 1e-12:
            break
    return np.asarray(np.fft.ifft(factor, axis=0).real[: points // 2])


def realisations(taps: FloatArray, most: int) -> Iterator[LinearSystem]:
    """Yield filters of order 1, 2, … whose impulse response is near to the taps."""
    p = taps.shape[1]
    rows = min(MOST_ROWS // p, (len(taps) - 1) // 2)
    places = np.arange(rows)
    blocks = taps[1 + places[:, None] + places]  # (rows, rows, p, p)
    hankel = blocks.transpose(0, 2, 1, 3).reshape(rows * p, rows * p)
    left, sizes, right = _leading(hankel, most)
    for order in range(1, min(most, len(sizes)) + 1):
        root = np.sqrt(sizes[:order])
        observed, reached = left[:, :order] * root, root[:, None] * right[:order]
        A: FloatArray = np.asarray(
            np.linalg.lstsq(observed[:-p], observed[p:], rcond=None)[0], dtype=np.float64
        )
        yield LinearSystem(A, reached[:, :p], observed[:p], taps[0])


def _leading(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The largest singular values and their vectors."""
    if len(matrix) <= 4 * count:
        return np.linalg.svd(matrix, full_matrices=False)
    # a fixed random start finds them to far more digits than a fit needs
    generator = np.random.default_rng(0)
    basis = np.linalg.qr(matrix @ generator.standard_normal((len(matrix), 2 * count + 10)))[0]
    for _ in range(3):
        basis = np.linalg.qr(matrix @ (matrix.T @ basis))[0]
    left, sizes, right = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    return basis @ left, sizes, right


GRID = 2.0**48
# What a filter costs that is not stable, or whose inverse is not.
REFUSED = 1e6


@dataclass(frozen=True, eq=False)
class Modal:
    """A scalar filter by poles and gains."""

    reals: FloatArray
    pairs: FloatArray
    gains: FloatArray

    @classmethod
    def of(cls, given: LinearSystem) -> Modal:
        """Return a scalar filter, scaled to D = 1, by its poles."""
        poles, vectors = np.linalg.eig(given.A)
        residues = (given.C @ vectors).ravel() * np.linalg.solve(vectors, given.B).ravel()
        residues = residues / given.D[0, 0]
        real = np.abs(poles.imag) < 1e-13
        upper = poles.imag >= 1e-13
        gains = [residues[real].real]
        gains.append(np.column_stack([2 * residues[upper].real, -2 * residues[upper].imag]).ravel())
        pairs = np.column_stack([poles[upper].real, poles[upper].imag])
        return cls(poles[real].real, pairs, np.concatenate(gains))

    def filter(self) -> LinearSystem:
        """Return the filter, with numbers on the grid."""
        n = len(self.gains)
        A, B = np.zeros((n, n)), np.zeros((n, 1))
        for i, pole in enumerate(self.reals):
            A[i, i], B[i, 0] = pole, 1.0
        for k, (re, im) in enumerate(self.pairs):
            i = len(self.reals) + 2 * k
            A[i : i + 2, i : i + 2] = [[re, -im], [im, re]]
            B[i, 0] = 1.0
        return LinearSystem(_on_grid(A), B, _on_grid(self.gains[None, :]), np.eye(1))

    def numbers(self) -> FloatArray:
        """Return numbers without bounds from which :meth:`at` makes the filter."""
        radius = np.hypot(self.pairs[:, 0], self.pairs[:, 1])
        angle = np.arctan2(self.pairs[:, 1], self.pairs[:, 0])
        room = (*_distance(self.reals), *_distance(radius))
        return np.array([*room, *angle, *self.gains])

    def at(self, numbers: FloatArray) -> Modal:
        """Return the filter of the same form with other numbers."""
        r, k = len(self.reals), len(self.pairs)
        reals = np.tanh(numbers[:r])
        radius, angle = np.tanh(numbers[r : r + k]), numbers[r + k : r + 2 * k]
        pairs = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        return Modal(reals, pairs, numbers[r + 2 * k :])


def improved(start: LinearSystem, cost: Callable[[LinearSystem], float]) -> LinearSystem:
    """Return a scalar filter of the same order with less cost, by local descent."""
    from scipy.optimize import minimize

    form = Modal.of(start)

    def value(numbers: FloatArray) -> float:
        made = form.at(numbers).filter()
        if not acceptable(made):
            return REFUSED
        return cost(made)

    best = form.numbers()
    for method, options in (
        ("BFGS", {"maxiter": 60}),
        ("Nelder-Mead", {"maxfev": 30 * len(best), "xatol": 1e-6, "fatol": 1e-7}),
        ("BFGS", {"maxiter": 40}),
    ):
        with np.errstate(all="ignore"):
            found = minimize(value, best, method=method, options=options)
        if found.fun < value(best):
            best = found.x
    return form.at(best).filter()


def acceptable(made: LinearSystem) -> bool:
    """Whether a filter and its inverse are stable, by a margin."""
    if not all(np.all(np.isfinite(part)) for part in (made.A, made.B, made.C, made.D)):
        return False
    return made.radius < 1 - 1e-9 and made.inverse().radius < 1 - 1e-9


def _distance(radius: FloatArray) -> FloatArray:
    return np.arctanh(np.clip(radius, -1 + 1e-12, 1 - 1e-12))


def _on_grid(values: FloatArray) -> FloatArray:
    return np.round(values * GRID) / GRID


MOST_ORDER = 12
# A fit this close to the bound is good enough; a scalar one that is farther off is improved.
CLOSE = 1.004
FAR = 1.02
# Larger filters, and those for windows, are not improved: that takes long.
MOST_IMPROVED = 5


# What noise costs, of unit white noise that passed a filter.
Spread: TypeAlias = Callable[[LinearSystem], float]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A noise filter, and what it costs for sensitivity 1 (in floating point)."""

    name: str
    shaper: LinearSystem
    place: Place
    cost: float


def evaluated(
    name: str, neighbours: Inputs, spread: Spread, shaper: LinearSystem, place: Place
) -> Candidate:
    """Return a candidate with its cost; inf where it has none."""
    made = shaper if place == "output" else neighbours.domain.system.after(shaper)
    undone = shaper.inverse()
    seen = undone.after(neighbours.domain.system) if place == "output" else undone
    cost = spread(made) * float(_squares(neighbours, seen).max())
    return Candidate(name, shaper, place, cost if math.isfinite(cost) and cost > 0 else math.inf)


def _squares(neighbours: Inputs, seen: LinearSystem) -> FloatArray:
    """Squared sensitivities in floating point."""
    mu = neighbours.mu
    if neighbours.domain.horizon is not None:
        return np.asarray(seen.energies(neighbours.steps_to_remember + 1) * mu**2)
    if neighbours.window == 1:
        return np.asarray(seen.energies() * mu**2)
    if neighbours.window is None:
        return np.asarray(mu**2 / np.diagonal(seen.inverse().D) ** 2)
    # lags of the response's autocorrelation: D'C.. and the observability Gramian
    gramian = LinearSystem(seen.A.T, seen.C.T, seen.B.T, seen.D.T).covariance()
    found = []
    for i, distance in enumerate(mu):
        state, lags = seen.B[:, i], [float(seen.energies()[i])]
        reach = seen.A.T @ gramian @ seen.B[:, i] + seen.C.T @ seen.D[:, i]
        for _ in range(neighbours.window - 1):
            lags.append(float(reach @ state))
            state = seen.A @ state
        places = np.arange(len(lags))
        matrix = np.array(lags)[np.abs(places[:, None] - places)]
        found.append(distance**2 * float(np.linalg.eigvalsh(matrix)[-1]))
    return np.array(found)


def plain_candidates(neighbours: Inputs, spread: Spread) -> list[Candidate]:
    """Return the two designs that everyone knows: white noise on the outputs, or on the inputs."""
    found = []
    if neighbours.window is not None:
        white = LinearSystem.static(np.eye(neighbours.domain.system.outputs))
        found.append(evaluated("white output noise", neighbours, spread, white, "output"))
    # every input gets noise in proportion to how far it moves
    shares = LinearSystem.static(np.diag(neighbours.mu / neighbours.mu.max()))
    found.append(evaluated("input perturbation", neighbours, spread, shares, "input"))
    return found


def fitted_candidates(neighbours: Inputs, spread: Spread, least: LeastSpectrum) -> list[Candidate]:
    """Return the best causal filters of low order, for each place."""
    m, p = neighbours.domain.system.inputs, neighbours.domain.system.outputs
    found: list[Candidate] = []
    if m >= p:
        found.extend(_near(neighbours, spread, least.output, "output", least.bound))
    close = any(one.cost <= CLOSE * least.bound for one in found)
    if least.input is not None and not close:
        found.extend(_near(neighbours, spread, least.input, "input", least.bound))
    return found


def _near(
    neighbours: Inputs,
    spread: Spread,
    spectrum: ComplexArray,
    place: Place,
    bound: float,
) -> Iterator[Candidate]:
    """The best realisations of one spectrum, and an improved one where it is scalar."""
    taps = impulse_response(spectrum)
    scalar = taps.shape[1] == 1
    found = []
    for made in realisations(taps, MOST_ORDER):
        if not acceptable(made):
            continue
        shaper = Modal.of(made).filter() if scalar else made
        if not acceptable(shaper):
            continue
        name = f"coloured noise of order {made.order}"
        one = evaluated(name, neighbours, spread, shaper, place)
        found.append(one)
        if one.cost <= CLOSE * bound:
            break
    found.sort(key=lambda one: one.cost)
    small = [one for one in found if one.shaper.order <= MOST_IMPROVED]
    if scalar and small and neighbours.window == 1 and found[0].cost > FAR * bound:
        best = small[0]
        shaper = improved(
            best.shaper,
            lambda tried: math.log(evaluated("", neighbours, spread, tried, place).cost),
        )
        if acceptable(shaper):
            found.append(evaluated(best.name, neighbours, spread, shaper, place))
            found.sort(key=lambda one: one.cost)
    yield from found[:4]


ORDER_OVER_A_HORIZON = 4
# Of noise whose largest variance counts, fitted to a response that is known to be the best.
ORDER_OF_THE_ROOT = 6
# The plant that is fitted forgets within this share of the horizon.
FORGETS = 2.0
# Fewer steps than this do not show what a filter should be.
FEWEST_FITTED = 8
# As close to the least largest variance as any fit need be.
VERY_CLOSE = 1 + 1e-5


def mean_variance(shaper: LinearSystem, steps: int) -> float:
    """Return the mean over some steps of the variance of filtered unit white noise, at rest.

    Examples
    --------
    >>> half = LinearSystem([[0.5]], [[1.0]], [[1.0]], [[1.0]])
    >>> round(mean_variance(half, 3), 6), (1 + 2 + 2.25) / 3
    (1.75, 1.75)
    """
    covariance = total = np.zeros_like(shaper.A)  # of the memory after t steps, and summed over t
    power, count, added = np.eye(shaper.order), 0, shaper.B @ shaper.B.T
    for bit in f"{steps:b}":
        total = total + count * covariance + power @ total @ power.T
        covariance = covariance + power @ covariance @ power.T
        power, count = power @ power, 2 * count
        if bit == "1":
            total = total + covariance
            covariance = shaper.A @ covariance @ shaper.A.T + added
            power, count = shaper.A @ power, count + 1
    return float((shaper.D**2).sum() + np.trace(shaper.C @ total @ shaper.C.T) / steps)


def largest_variance(made: LinearSystem, steps: int | None = None) -> float:
    """Return the largest variance of an output of filtered unit white noise: the last is."""
    return float(np.diagonal(made.output_covariance(steps)).max())


def horizon_candidates(neighbours: Inputs, largest: bool) -> tuple[list[Candidate], float | None]:
    """Return noise over a horizon: white, or of one colour on every output or private input.

    And what the largest variance of no noise of one output goes below, if that counts and is known.
    """
    plant, steps = neighbours.domain.system, int(neighbours.domain.horizon or 1)
    variance = largest_variance if largest else mean_variance
    sizes = {"output": _sizes(neighbours, largest), "input": _rounded(neighbours.mu)}

    def found_as(name: str, colour: LinearSystem, place: Place = "output") -> Candidate:
        # gains are powers of two, so that the inverse is one of doubles, too
        alike, gains = np.eye(len(sizes[place])), np.diag(sizes[place])
        pairs = ((alike, colour.A), (alike, colour.B), (gains, colour.C))
        A, B, C = (np.asarray(np.kron(*pair), dtype=np.float64) for pair in pairs)
        shaper = LinearSystem(A, B, C, gains)
        return evaluated(name, neighbours, lambda made: variance(made, steps), shaper, place)

    def cost(place: Place, colour: LinearSystem) -> float:
        return math.log(found_as("", colour, place).cost)

    found = [found_as("white output noise", LinearSystem.static(np.eye(1)))]
    # few steps say too little of a filter: the search for one starts from that for more of them
    more = max(steps, FEWEST_FITTED)
    longer = replace(neighbours, domain=replace(neighbours.domain, horizon=more))
    best = square_root_response(longer) if largest else None
    bound = None if best is None or more > steps else best.bound
    starts: dict[Place, list[LinearSystem]] = {}
    if best is not None:
        for made in realisations(best.taps, ORDER_OF_THE_ROOT):
            if acceptable(made) and acceptable(colour := Modal.of(made).filter()):
                found.append(found_as(f"coloured noise of order {made.order}", colour))
                if bound is not None and found[-1].cost <= bound * VERY_CLOSE:
                    return found, bound
                starts["output"] = [colour]
    else:
        # a plant that forgets within the horizon has a spectrum
        pulled = LinearSystem(plant.A * (1 - FORGETS / more), plant.B, plant.C, plant.D)
        near = replace(
            neighbours, window=1, domain=replace(neighbours.domain, system=pulled, horizon=None)
        )
        spectrum = least_spectrum(near, LinearSystem.static(np.eye(plant.outputs)))
        starts["output"] = _colours(spectrum.output, sizes["output"])
        if plant.outputs > 1 and spectrum.input is not None and not neighbours.forward:
            # noise that moves the outputs together, as the private inputs do
            starts["input"] = _colours(spectrum.input, sizes["input"])
    for place, colours in starts.items():
        for start in colours:
            name = f"coloured noise of order {start.order}"
            found.append(found_as(name, improved(start, partial(cost, place)), place))
    return found, bound


def _colours(spectrum: ComplexArray, sizes: FloatArray) -> list[LinearSystem]:
    """Scalar filters of low order for the mean of what the channels want, each in its own size."""
    common = (np.diagonal(spectrum, axis1=1, axis2=2) / sizes**2).mean(axis=1)
    fitted = realisations(impulse_response(common[:, None, None]), ORDER_OVER_A_HORIZON)
    return [one for one in fitted if acceptable(one) and acceptable(Modal.of(one).filter())]


def _rounded(sizes: FloatArray) -> FloatArray:
    """The nearest powers of two, of which the largest is one."""
    return np.asarray(np.exp2(np.rint(np.log2(np.maximum(sizes / sizes.max(), 2.0**-10)))))


def _sizes(neighbours: Inputs, largest: bool) -> FloatArray:
    """How large white noise on each output is at best, as powers of two."""
    plant = neighbours.domain.system
    if largest or plant.outputs == 1:
        return np.ones(plant.outputs)
    each = [
        LinearSystem(plant.A, plant.B, plant.C[i : i + 1], plant.D[i : i + 1])
        for i in range(plant.outputs)
    ]
    steps = neighbours.steps_to_remember + 1
    shown = np.array([(one.energies(steps) * neighbours.mu**2).max() for one in each])
    # the sum of σ² is least for Σ energy/σ² if σ⁴ is in proportion to the energy
    return _rounded(shown**0.25)
