"""Attack a mechanism on real releases, and say with confidence which ε it does not keep.

The likelihood ratio between the worst pair of neighbours is run on many releases of both.
Exact binomial bounds on how often it is right and wrong give an ε that is certainly exceeded.
A broken promise shows up here also where the mistake is in the code that releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from affinedp.arrays import FloatArray, dense
from affinedp.audit.attacks import (
    Attack,
    Release,
    Score,
    Target,
    distinguish,
    leak_attack,
    likelihood_attack,
    low_bits,
)
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, real_number, whole_number
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.privacy.guarantee import Guarantee, labelled_lines, promised_about
from affinedp.progress import Progress
from affinedp.show.page import printed

# At this δ some 100 000 runs say most about Gaussian noise.
GAUSSIAN_DELTA = 0.01
FEWEST_RUNS = 100
BATCH_ROWS, BATCH_NUMBERS = 5_000, 200_000


@dataclass(frozen=True, eq=False)
class AuditResult:
    """What an attack on real releases found.

    Attributes
    ----------
    epsilon_lower : float
        With the stated confidence no smaller ε is true at ``delta``.
    epsilon_stated : float
        What is claimed at ``delta``.
    delta, confidence : float
        δ, and the probability with which ``epsilon_lower`` is right.
    runs : int
        Releases of each of the two data sets; one half chose the threshold, the other counted.
    seed : int or None
        Of that choice.  The releases themselves cannot be repeated.
    passed : bool
        Whether the claim survived: ``epsilon_lower`` does not exceed it and there is no leak.
    attack : str
        The pair of neighbours, what was looked at, and how often it was right.
    neighbours : str
        Whom the audited claim is about.
    advantage : tuple of float
        Bounds on how much more often the attacker names a data set when it is the right one
        than when it is the other; each holds with the stated confidence.
    leak : array, shape (m,), or None
        A combination of the outputs that came out without noise.
    """

    epsilon_lower: float
    epsilon_stated: float
    delta: float
    confidence: float
    runs: int
    seed: int | None
    passed: bool
    attack: str
    neighbours: str
    advantage: tuple[float, float]
    leak: FloatArray | None = field(default=None, repr=False)

    def summary(self) -> list[tuple[str, str]]:
        """Return what a person wants to know, as (label, text) rows."""
        kept = "passed: this attack does not refute the claim"
        floor = math.floor(self.epsilon_lower * 1e4) / 1e4
        return [
            ("audit", kept if self.passed else "FAILED: the claim is refuted"),
            ("claimed", f"ε = {self.epsilon_stated:.6g} at δ = {self.delta:g}"),
            ("measured", f"ε ≥ {floor:g} with confidence {self.confidence}"),
            ("attack", self.attack),
            ("neighbours", self.neighbours),
            ("runs", f"{self.runs:,} releases of each, half of them held out (seed {self.seed})"),
        ]

    def __str__(self) -> str:
        return labelled_lines(printed(self.summary()))


def audit(
    mechanism: Mechanism,
    *,
    attack: Literal["likelihood ratio", "low bits"] = "likelihood ratio",
    pair: Sequence[ArrayLike] | None = None,
    claim: Guarantee | tuple[float, float] | None = None,
    delta: float | None = None,
    release: Release | None = None,
    adjacency: Adjacency | None = None,
    runs: int = 100_000,
    confidence: float = 0.999,
    seed: int | None = 0,
    n_jobs: int = 1,
) -> AuditResult:
    """Attack real releases of a pair of neighbours, by the likelihood ratio or by the last bits.

    Theorems 1 and 2 of the paper say which pair is the worst, and along it no attack on additive
    noise is better than the likelihood ratio.  (Laplace noise on more coordinates than needed,
    then projected, has no such ratio in closed form; there the attack is only a good one.)
    Combinations that come out without noise are looked for first, among up to 500 outputs.

    The attack on low bits looks at what floating point does, and at nothing else: the last bit of
    every output, and by how many units of the last place the outputs miss the equations that they
    should obey.  Which patterns speak for which data is learnt on one half of the runs and counted
    on the other.  ``F @ x + L @ eta`` in double precision fails, however large the noise;
    ``Mechanism.release`` must pass.  An audit refutes promises; it proves none.

    Parameters
    ----------
    mechanism : Mechanism
        What the attacker knows: equations, query, noise matrix and law.
    attack : {"likelihood ratio", "low bits"}
        What the attacker looks at.
    pair : two array_like of shape (n,), optional
        Neighbours, for the attack on low bits; by default a public point of the manifold and its
        worst neighbour.
    claim : Guarantee or (ε, δ), optional
        What is tested; the mechanism's own guarantee by default.
    delta : float, optional
        Where on the curve of a guarantee; by default 0 if ε is finite there, else 0.01.
    release : callable, optional
        What is attacked, from rows of data (rows, n) to releases (rows, m), each row with noise
        of its own; ``mechanism.release`` by default.
    adjacency : Adjacency, optional
        Other neighbours than the mechanism's, to see whether the claim holds for them.
    runs : int
        Releases of each of the two data sets.
    confidence : float
        Probability that ``epsilon_lower`` is right.
    seed : int or None
        Decides which runs choose the threshold and which are counted.
    n_jobs : int
        Workers of joblib: processes, or threads for a ``release`` of your own, whose random
        state must not be copied.

    Returns
    -------
    AuditResult

    Examples
    --------
    Example 1 of the paper: i.i.d. noise for ε = 1 that ignores x1 = 4 x2 really has ε = 5.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, -4]])
    >>> careless = adp.iid_noise(M, law="laplace", epsilon=5.0)     # scale 1 on both entries
    >>> found = audit(careless, claim=(1.0, 0.0), runs=2_000)
    >>> found.passed, found.epsilon_lower > 2
    (False, True)
    >>> audit(careless, runs=2_000, confidence=1 - 1e-9).passed     # its own claim is honest
    True

    Noise that is added in double precision tells data apart by its last bits.

    >>> m = adp.design_laplace(adp.AffineManifold([[1, -3]]), epsilon=0.1)
    >>> L, noise = m.noise_matrix, np.random.default_rng(0)
    >>> naive = lambda x: x + noise.laplace(size=(len(x), 1)) @ L.T
    >>> audit(m, attack="low bits", release=naive, runs=10_000).passed
    False
    >>> audit(m, attack="low bits", runs=10_000, confidence=1 - 1e-9).passed
    True
    """
    trial = _trial(mechanism, claim, delta, runs, confidence, seed, n_jobs)
    neighbours = adjacency_of(
        mechanism.manifold, mechanism.adjacency if adjacency is None else adjacency
    )
    target = Target.of(mechanism, release, neighbours)
    if attack == "low bits":
        return _run(target, low_bits(target, *_pair(target, trial, pair)), trial)
    if attack != "likelihood ratio" or pair is not None:
        raise AffineDPError(
            f"attack must be 'likelihood ratio' or 'low bits' (which alone takes a pair), "
            f"not {attack!r}"
        )
    found = leak_attack(target)
    if found is None:
        found = likelihood_attack(target, trial.stated, trial.delta)
    return _run(target, found, trial)


def _pair(
    target: Target, trial: _Trial, pair: Sequence[ArrayLike] | None
) -> tuple[FloatArray, FloatArray]:
    """The neighbours that are told apart, checked."""
    mechanism = target.mechanism
    if pair is None:
        start = target.start
        return start, start + likelihood_attack(target, trial.stated, trial.delta).direction
    if not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
        raise AffineDPError("pair must be two data sets")
    start, end = (_on_manifold(mechanism, x, f"pair[{i}]") for i, x in enumerate(pair))
    apart = dense(target.inverse @ (target.query @ (end - start)))
    distance = float(mechanism.noise.gauges(apart[:, None]).lower[0])
    if distance > mechanism.guarantee.sensitivity * (1 + 1e-6):
        raise AffineDPError("the pair is further apart than neighbours are")
    return start, end


def _on_manifold(mechanism: Mechanism, x: ArrayLike, name: str) -> FloatArray:
    point = real_array(x, name)
    if not mechanism.manifold.contains(point):
        raise AffineDPError(f"{name} does not obey the equations")
    return point


# ---------------------------------------------------------------------- the claim, checked


@dataclass(frozen=True)
class _Trial:
    """What is claimed, and how it is tested."""

    stated: float
    delta: float
    runs: int
    confidence: float
    seed: int | None
    n_jobs: int


def _trial(
    mechanism: Mechanism,
    claim: Guarantee | tuple[float, float] | None,
    delta: float | None,
    runs: int,
    confidence: float,
    seed: int | None,
    n_jobs: int,
) -> _Trial:
    if not isinstance(mechanism, Mechanism):
        raise AffineDPError(f"the first argument must be a Mechanism, not {mechanism!r}")
    count = whole_number(runs, "runs", FEWEST_RUNS)
    if seed is not None:
        whole_number(seed, "seed", 0)
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise AffineDPError(f"n_jobs must be a number of workers (-1: all), not {n_jobs!r}")
    sure = real_number(confidence, "confidence", below=1.0, positive=True)
    stated, at = _claimed(mechanism.guarantee if claim is None else claim, delta)
    return _Trial(stated, at, count, sure, seed, int(n_jobs))


def _claimed(claim: Guarantee | tuple[float, float], delta: float | None) -> tuple[float, float]:
    """The ε that is claimed, and at which δ."""
    at = None if delta is None else real_number(delta, "delta", 0.0, 1.0)
    if isinstance(claim, Guarantee):
        if at is None:
            at = 0.0 if math.isfinite(claim.epsilon(0.0)) else GAUSSIAN_DELTA
        return claim.epsilon(at), at
    numbers = real_array(claim, "claim", 1)
    if len(numbers) != 2 or numbers[0] < 0 or not 0 <= numbers[1] < 1:
        raise AffineDPError(
            f"claim must be a Guarantee or (ε, δ) with ε ≥ 0 and 0 ≤ δ < 1, not {claim!r}"
        )
    if at is not None and at != numbers[1]:
        raise AffineDPError(f"delta is {at}, but the claim is about δ = {numbers[1]}")
    return float(numbers[0]), float(numbers[1])


# ---------------------------------------------------------------------- runs


def _run(target: Target, attack: Attack, trial: _Trial) -> AuditResult:
    """Attack releases of both neighbours and put the evidence into words."""
    found = distinguish(
        *_collect(target, attack, trial),
        delta=trial.delta,
        confidence=trial.confidence,
        seed=trial.seed,
        learns=attack.learns,
    )
    guarantee = replace(
        target.mechanism.guarantee,
        worst_direction=attack.direction,
        names=target.mechanism.manifold.names,
    )
    named, other = ("x'", "x") if found.named else ("x", "x'")
    words = (
        f"{dict(guarantee.summary())['worst pair']}: {attack.words} said {named} in "
        f"{found.hit_rate:.2%} of the releases of {named}, "
        f"{found.miss_rate:.2%} of those of {other}"
    )
    return AuditResult(
        epsilon_lower=found.epsilon_lower,
        epsilon_stated=trial.stated,
        delta=trial.delta,
        confidence=trial.confidence,
        runs=trial.runs,
        seed=trial.seed,
        passed=found.epsilon_lower <= trial.stated and attack.leak is None,
        attack=words,
        neighbours=promised_about(target.neighbours, target.mechanism.noise).words,
        advantage=found.advantage,
        leak=attack.leak,
    )


def _collect(target: Target, attack: Attack, trial: _Trial) -> tuple[NDArray[Any], NDArray[Any]]:
    """The scores of releases of both data sets, batch by batch."""
    from joblib import Parallel, delayed

    most = max(1, min(BATCH_ROWS, BATCH_NUMBERS // max(target.inverse.shape)))
    sizes = [len(part) for part in np.array_split(np.arange(trial.runs), -(-trial.runs // most))]
    batches = [
        delayed(_batch)(target, attack.score, x, rows)
        for x in (attack.start, attack.start + attack.direction)
        for rows in sizes
    ]
    # processes would copy the random state that a release function may carry
    own = target.release == target.mechanism.release
    workers = Parallel(
        n_jobs=trial.n_jobs, return_as="generator", require=None if own else "sharedmem"
    )
    found = []
    with Progress("attacking releases") as progress:
        for scores in workers(batches):
            found.append(scores)
            progress.update(len(found) / len(batches))
    return np.concatenate(found[: len(sizes)]), np.concatenate(found[len(sizes) :])


def _batch(target: Target, score: Score, x: FloatArray, rows: int) -> NDArray[Any]:
    return score(target.releases(np.tile(x, (rows, 1))))
