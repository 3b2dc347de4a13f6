"""Steps 2 and 3 in numbers: what forgetful noise promises, and the least noise that keeps more.

Whatever is shown comes from here, and everything here from the public API.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray, dense
from affinedp.designs.choose import LAW_NAMES
from affinedp.designs.choose import design as least_noise
from affinedp.designs.laplace import iid_noise
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.laws.calibration import gaussian_sensitivity, gaussian_sigma
from affinedp.mechanism import Mechanism, build
from affinedp.progress import Progress
from affinedp.record import MechanismRecord
from affinedp.show.report import allowed_guess
from affinedp.studio.problem import Known, drawing_of, known_of, levels_of, reach_of
from affinedp.studio.question import Question, Wish
from affinedp.tables.least_noise import diagonal_noise

Plain = Literal["gaussian", "laplace"]
LEVEL = 0.95
# Steps of the search for the ε that an error takes, and how close it comes.
MOST_STEPS = 40
CLOSE = 1e-6
# The farthest step in ln ε, and the least slope of ln error against it.
FARTHEST, LEAST_SLOPE = 1.5, -0.1
MOST_EXPONENT = 700.0


def leak(question: Question) -> dict[str, Any]:
    """Return what independent noise promises that was meant for ε and forgot the equations.

    >>> answer = leak(Question())
    >>> answer["claimed"], answer["really"]
    (1.0, 2.0)
    """
    known = known_of(question)
    try:
        noise = forgetful_noise(known, question)
    except TooManyCircuitsError as error:
        raise AffineDPError(
            f"{str(error).partition('. Ways out')[0]}. Choose in step 2 one person, one record or "
            "moves that you write down, or leave out numbers that need no protection"
        ) from None
    guarantee = noise.guarantee
    worst = guarantee.worst_direction
    moved = [] if worst is None else [int(i) for i in np.flatnonzero(worst)]
    moved.sort(key=lambda i: -abs(float(worst[i])) if worst is not None else 0.0)
    names = known.manifold.names
    really = guarantee.epsilon(question.delta)
    return {
        **_promised(question, known, noise),
        "claimed": question.epsilon,
        "really": really if math.isfinite(really) else None,
        "kept": guarantee.holds(question.epsilon, question.delta),
        "worst": [{"name": names[i], "move": float(worst[i])} for i in moved[:12]]
        if worst is not None
        else [],
        "moved": moved[:200],
        "public": list(known.manifold.public_entries),
        "drawing": drawing_of(known.texts, known.manifold, moved),
        "noise": [float(size) for size in np.sqrt(noise.expected_squared_errors)],
    }


def _promised(question: Question, known: Known, mechanism: Mechanism) -> dict[str, Any]:
    """What is shown about any noise: its promise, how well it can be told, and its error."""
    guarantee = mechanism.guarantee
    return {
        "exact": guarantee.curve_exact if question.delta else guarantee.exact,
        "delta": question.delta,
        "law": mechanism.law,
        "neighbours": known.words,
        "basis": guarantee.basis,
        "warnings": [*known.warnings, *guarantee.warnings],
        "certainty": allowed_guess(guarantee.epsilon(question.delta), question.delta),
        "curve": pair_curve(mechanism),
        "error": error_of(mechanism),
    }


def designed(question: Question) -> tuple[Known, Mechanism]:
    """Return the least noise that keeps the promise: the call that the script makes."""
    known = known_of(question)
    # counts of people are whole: so is what is published, where a law can keep it so
    for whole in (True, False) if known.counts_people else (False,):
        mechanism = least_noise(
            known.manifold,
            epsilon=question.epsilon,
            delta=question.delta,
            law=question.law,
            integers=whole,
            adjacency=known.adjacency,
        )
        if mechanism.publishes_whole_numbers or was_interrupted(mechanism):
            break
    return known, mechanism


def was_interrupted(mechanism: Mechanism) -> bool:
    """Return whether somebody ended the search for this noise, which is the best so far."""
    return any(note.startswith("interrupted") for note in mechanism.notes)


def described(question: Question, known: Known, mechanism: Mechanism) -> dict[str, Any]:
    """Return everything that step 3 shows about a mechanism."""
    names = mechanism.output_names
    interval = mechanism.interval(known.manifold.point, level=LEVEL)
    half = (np.asarray(interval.high) - np.asarray(interval.low)) / 2
    deviations = np.sqrt(mechanism.expected_squared_errors)
    levels, cells = levels_of(known.texts, names)
    independent = _independent(known, question)
    added = _cells_added_up(known, question, np.array(cells))
    others = [one for one in (independent, added) if one is not None]
    kept = mechanism.guarantee.epsilon(question.delta)
    return {
        **_promised(question, known, mechanism),
        "kept": kept,
        "laws": dict(LAW_NAMES),
        "whole": mechanism.noise.whole,
        "lower_bound": mechanism.lower_bound,
        "least_share": None if mechanism.excess is None else mechanism.excess**-0.5,
        "gap": mechanism.gap,
        "notes": list(mechanism.notes),
        "interrupted": was_interrupted(mechanism),
        "alternatives": [
            {
                "law": other.law,
                "error": math.sqrt(other.error / len(names)),
                "designed": other.designed,
            }
            for other in mechanism.alternatives
        ],
        "equations": list(mechanism.equations),
        "unprotected": list(
            dict.fromkeys([*known.manifold.public_entries, *mechanism.published_without_noise])
        ),
        "factor": math.exp(min(kept, MOST_EXPONENT)),
        "independent": _summary(independent),
        "added": _summary(added),
        "saved": 1 - mechanism.expected_squared_error / independent.expected_squared_error,
        "entries": [
            {
                "name": name,
                "level": levels[place],
                "noise": float(deviations[place]),
                "half": float(half[place]),
                "others": [float(math.sqrt(one.expected_squared_errors[place])) for one in others],
            }
            for place, name in enumerate(names)
        ],
        "others": ["independent"] + ["added"] * (added is not None),
        "levels": _by_level(levels, deviations, others),
        "interval": interval.how,
    }


def solve(wish: Wish) -> dict[str, Any]:
    """Return the ε that an error takes, and the noise at that ε.

    Error falls as ε grows, for pure laws of real noise exactly as 1/ε; so that a few steps of the
    secant, in logarithms, find it.

    >>> wanted = Wish(question=Question(law="laplace"), error=1.0, now=2.160246901)
    >>> found = solve(wanted)
    >>> round(found["epsilon"], 3), found["design"]["error"] <= 1.0
    (2.16, True)
    """
    target = math.log(wish.error) - CLOSE / 2  # a little below, so that the error is not above
    at, slope = math.log(wish.question.epsilon), -1.0
    last = None if wish.now is None else (at, math.log(wish.now))
    with Progress("the ε that this error takes") as bar:
        for step in range(MOST_STEPS):
            if last:
                there = last[0] + min(max((target - last[1]) / slope, -FARTHEST), FARTHEST)
                at = min(max(there, math.log(1e-6)), math.log(1e3))
                if at == last[0]:
                    break  # at the end of what is allowed
            question = wish.question.model_copy(update={"epsilon": float(f"{math.exp(at):.9g}")})
            bar.update(step / MOST_STEPS, f"trying ε = {question.epsilon:.4g}")
            known, mechanism = designed(question)
            if not mechanism.expected_squared_error:
                raise AffineDPError("there is no noise, whatever ε: nothing published moves")
            error = error_of(mechanism)
            if wish.error * (1 - 2 * CLOSE) <= error <= wish.error:
                answer = described(question, known, mechanism)
                return {"epsilon": question.epsilon, "design": answer}
            here = (at, math.log(error))
            if last:
                slope = min((here[1] - last[1]) / (here[0] - last[0]), LEAST_SLOPE)
            last = here
    raise AffineDPError("no ε between 0.000001 and 1000 gives this error: choose another one")


def forgetful_noise(known: Known, question: Question) -> Mechanism:
    """Return independent noise that was meant for ε, as if there were no equations."""
    law: Plain = "gaussian" if question.delta else "laplace"
    unit = gaussian_sigma(question.epsilon, question.delta) if question.delta else (
        1.0 / question.epsilon
    )  # fmt: skip
    identity = np.eye(known.manifold.n)
    scales = np.diag(reach_of(known, question) * unit)
    return build(known.adjacency, identity, identity, scales, law, known.manifold.names)


def error_of(mechanism: Mechanism) -> float:
    """Return the root mean square error of a published number."""
    return math.sqrt(mechanism.expected_squared_error / len(mechanism.output_names))


def _laws(question: Question) -> tuple[Plain, ...]:
    """The chosen law; or both, since what keeps ε keeps (ε, δ) too."""
    if question.law != "auto":
        return ("gaussian",) if question.law == "gaussian" else ("laplace",)
    return ("gaussian", "laplace") if question.delta else ("laplace",)


def _independent(known: Known, question: Question) -> Mechanism:
    """Honest independent noise of the better law."""
    made = [
        iid_noise(
            known.manifold,
            law=law,
            epsilon=question.epsilon,
            delta=question.delta if law == "gaussian" else 0.0,
            adjacency=known.adjacency,
        )
        for law in _laws(question)
    ]
    return min(made, key=lambda one: one.expected_squared_error)


def _cells_added_up(known: Known, question: Question, cells: FloatArray) -> Mechanism | None:
    """Standard practice: noise on the numbers that are no totals, and totals of noisy numbers."""
    made = []
    for law in _laws(question):
        limit = question.epsilon
        if law == "gaussian":
            limit = float(gaussian_sensitivity(question.epsilon, question.delta))
        try:
            made.append(diagonal_noise(known.adjacency, law, limit, cells.astype(float)))
        except (AffineDPError, np.linalg.LinAlgError):
            continue  # noise on these numbers does not cover the rest
    return min(made, key=lambda one: one.expected_squared_error) if made else None


def _summary(mechanism: Mechanism | None) -> dict[str, Any] | None:
    if mechanism is None:
        return None
    return {"law": mechanism.law, "error": error_of(mechanism)}


def _by_level(
    levels: list[int], deviations: FloatArray, others: list[Mechanism]
) -> list[dict[str, Any]]:
    """Root mean square noise of the numbers of every level, totals first."""
    place = np.array(levels)
    squares = [deviations**2, *(dense(one.expected_squared_errors) for one in others)]
    return [
        {
            "level": int(level),
            "numbers": int((place == level).sum()),
            "noise": [float(np.sqrt(one[place == level].mean())) for one in squares],
        }
        for level in np.unique(place)
    ]


POINTS = 121
REACH = 4.5
DRAWS = 200_000
MOST_NUMBERS = 8e6
SMOOTH = np.array([1, 4, 6, 4, 1]) / 16


def pair_curve(mechanism: MechanismRecord) -> dict[str, Any] | None:
    """Return the density of the most telling combination of outputs, and how far it moves.

    Of all linear combinations of the outputs it is the one that moves most between the worst
    neighbours, in units of its noise.  For other laws than Gaussian its density is simulated; of
    whole noise the probabilities of its few values are, where it has few.

    >>> import affinedp as adp
    >>> M = adp.AffineManifold.from_equations(["a + b = c"])
    >>> m = adp.design_gaussian(M, epsilon=1.0, delta=0.01)
    >>> round(pair_curve(m)["shift"] / m.guarantee.sensitivity, 6)
    1.0
    """
    worst = mechanism.guarantee.worst_direction
    if worst is None or mechanism.guarantee.leak is not None or len(worst) > 1000:
        return None
    move = np.asarray(mechanism.dense.query @ worst).ravel()
    telling = np.linalg.pinv(dense(mechanism.covariance), hermitian=True) @ move
    shift = math.sqrt(max(float(telling @ move), 0.0))
    if not shift > 0.0:
        return None
    x = np.linspace(-REACH, REACH, POINTS)
    whole = False
    if mechanism.law == "gaussian":
        density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    else:
        draws = int(max(2_000, min(DRAWS, MOST_NUMBERS / len(telling))))
        seen = mechanism.sample(draws, seed=0) @ (telling / shift)
        places, counts = np.unique(np.round(np.concatenate([seen, -seen]), 9), return_counts=True)
        near = np.abs(places) <= REACH
        whole = mechanism.noise.whole and int(near.sum()) <= POINTS
        if whole:
            x, density = places[near], counts[near] / (2 * draws)
        else:
            density = _simulated(seen, x, shift if mechanism.noise.whole else 0.0)
    return {"x": x.tolist(), "density": density.tolist(), "shift": shift, "whole": whole}


def _simulated(seen: FloatArray, x: FloatArray, gap: float) -> FloatArray:
    """A histogram of draws, which are as often positive as negative; gaps joined by lines."""
    draws = len(seen)
    if gap:
        seen = seen + np.random.default_rng(1).triangular(-gap, 0.0, gap, draws)
    step = x[1] - x[0]
    edges = np.append(x - step / 2, x[-1] + step / 2)
    counts, _ = np.histogram(np.concatenate([seen, -seen]), edges)
    density = np.asarray(counts / (2 * draws * step))
    # chance of the draws, which would only unsettle the eye
    return np.asarray(np.convolve(np.pad(density, 2, mode="edge"), SMOOTH, mode="valid"))
