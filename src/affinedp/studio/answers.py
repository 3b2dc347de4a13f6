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
from affinedp.errors import AffineDPError
from affinedp.laws.calibration import gaussian_sensitivity, gaussian_sigma
from affinedp.mechanism import Mechanism, build
from affinedp.progress import Progress
from affinedp.promise.guarantee import Guarantee
from affinedp.studio.checking import drawing_of
from affinedp.studio.curves import pair_curve
from affinedp.studio.problem import Known, known_of, levels_of, reach_of
from affinedp.studio.question import Question, Wish
from affinedp.tables.never_worse import diagonal_noise

Plain = Literal["gaussian", "laplace"]
LEVEL = 0.95
# Steps of the search for the ε that an error takes, and how close it comes.
MOST_STEPS = 40
CLOSE = 1e-6
MOST_EXPONENT = 700.0


def leak(question: Question) -> dict[str, Any]:
    """Return what independent noise promises that was meant for ε and forgot the equations.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.

    Examples
    --------
    >>> answer = leak(Question())
    >>> answer["claimed"], answer["really"]
    (1.0, 2.0)
    """
    known = known_of(question)
    noise = forgetful_noise(known, question)
    guarantee = noise.guarantee
    worst = guarantee.worst_direction
    moved = [] if worst is None else [int(i) for i in np.flatnonzero(worst)]
    moved.sort(key=lambda i: -abs(float(worst[i])) if worst is not None else 0.0)
    names = known.manifold.names
    really = guarantee.epsilon(question.delta)
    return {
        "claimed": question.epsilon,
        "really": really if math.isfinite(really) else None,
        "exact": guarantee.curve_exact if question.delta else guarantee.exact,
        "kept": guarantee.holds(question.epsilon, question.delta),
        "delta": question.delta,
        "law": noise.law,
        "neighbours": known.words,
        "basis": guarantee.basis,
        "warnings": [*known.warnings, *guarantee.warnings],
        "worst": [{"name": names[i], "move": float(worst[i])} for i in moved[:12]]
        if worst is not None
        else [],
        "moved": moved[:200],
        "public": list(known.manifold.public_entries),
        "drawing": drawing_of(known.texts, known.manifold, moved),
        "odds": odds(guarantee),
        "curve": pair_curve(noise),
        "noise": [float(size) for size in np.sqrt(noise.expected_squared_errors)],
        "error": error_of(noise),
    }


def designed(question: Question) -> tuple[Known, Mechanism]:
    """Return the least noise that keeps the promise: the call that the script makes.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.
    """
    known = known_of(question)
    mechanism = least_noise(
        known.manifold,
        epsilon=question.epsilon,
        delta=question.delta,
        law=question.law,
        adjacency=known.adjacency,
    )
    return known, mechanism


def design(question: Question) -> dict[str, Any]:
    """Return the least noise that keeps the promise, beside what others would add.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.

    Examples
    --------
    >>> answer = design(Question(law="laplace"))
    >>> round(answer["kept"], 9), answer["error"] < answer["independent"]["error"]
    (1.0, True)
    """
    with Progress("the noise") as bar:
        bar.update(0.05, "designing the least noise")
        known, mechanism = designed(question)
        bar.update(0.8, "comparing it with others")
        return described(question, known, mechanism)


def described(question: Question, known: Known, mechanism: Mechanism) -> dict[str, Any]:
    """Return everything that step 3 shows about a mechanism.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.
    known, mechanism : Known, Mechanism
        What was designed.
    """
    guarantee, names = mechanism.guarantee, mechanism.output_names
    interval = mechanism.interval(known.manifold.point, level=LEVEL)
    half = (np.asarray(interval.high) - np.asarray(interval.low)) / 2
    deviations = np.sqrt(mechanism.expected_squared_errors)
    levels, cells = levels_of(known.texts, names)
    independent = _independent(known, question)
    added = _cells_added_up(known, question, np.array(cells))
    others = [one for one in (independent, added) if one is not None]
    answer: dict[str, Any] = {
        "kept": guarantee.epsilon(question.delta),
        "delta": question.delta,
        "exact": guarantee.curve_exact if question.delta else guarantee.exact,
        "law": mechanism.law,
        "laws": dict(LAW_NAMES),
        "neighbours": known.words,
        "basis": guarantee.basis,
        "warnings": [*known.warnings, *guarantee.warnings],
        "error": error_of(mechanism),
        "squared": mechanism.expected_squared_error,
        "lower_bound": mechanism.lower_bound,
        "excess": mechanism.excess,
        "least_share": None if mechanism.excess is None else mechanism.excess**-0.5,
        "gap": mechanism.gap,
        "notes": list(mechanism.notes),
        "alternatives": [
            {
                "law": other.law,
                "error": math.sqrt(other.error / len(names)),
                "designed": other.designed,
                "reason": other.reason,
            }
            for other in mechanism.alternatives
        ],
        "equations": list(mechanism.equations),
        "unprotected": list(
            dict.fromkeys([*known.manifold.public_entries, *mechanism.published_without_noise])
        ),
        "odds": odds(guarantee),
        "factor": math.exp(min(guarantee.epsilon(question.delta), MOST_EXPONENT)),
        "curve": pair_curve(mechanism),
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
    return answer


def solve(wish: Wish) -> dict[str, Any]:
    """Return the ε that an error takes, and the noise at that ε.

    Error falls as ε grows, for pure laws exactly as 1/ε; so that a few steps find it.

    Parameters
    ----------
    wish : Wish
        The error that is wished for.

    Examples
    --------
    >>> wanted = Wish(question=Question(law="laplace"), error=1.0, now=2.160246901)
    >>> found = solve(wanted)
    >>> round(found["epsilon"], 3), found["design"]["error"] <= 1.0
    (2.16, True)
    """
    target = math.log(wish.error) - CLOSE / 2  # a little below, so that the error is not above
    at = math.log(wish.question.epsilon)
    last = None if wish.now is None else (at, math.log(wish.now))
    with Progress("the ε that this error takes") as bar:
        for step in range(MOST_STEPS):
            at = _next(last, target) if last else at
            if step and last and at == last[0]:
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
            last = (at, math.log(error))
    raise AffineDPError("no ε between 0.000001 and 1000 gives this error: choose another one")


def _next(last: tuple[float, float], target: float) -> float:
    """Where the error would be right if it fell as 1/ε, which it nearly does."""
    wanted = last[0] + (last[1] - target)
    return min(max(wanted, math.log(1e-6)), math.log(1e3))


def odds(guarantee: Guarantee) -> float:
    """Return how often at most an attacker is right who must tell two neighbours apart.

    Before, both are equally likely to them: half of the guesses are right.  The best test gains
    half the total variation, which is δ at ε = 0.

    Parameters
    ----------
    guarantee : Guarantee
        What they see.

    Examples
    --------
    >>> import affinedp as adp
    >>> round(odds(adp.verify(adp.AffineManifold([[1, -1]]), 2.0, law="laplace")), 4)
    0.6209
    """
    return 0.5 + 0.5 * min(1.0, float(guarantee.delta(0.0)))


def forgetful_noise(known: Known, question: Question) -> Mechanism:
    """Return independent noise on every number that was meant for ε as if there were no equations.

    Parameters
    ----------
    known, question : Known, Question
        The data, and the promise that was meant.
    """
    law: Plain = "gaussian" if question.delta else "laplace"
    unit = gaussian_sigma(question.epsilon, question.delta) if question.delta else (
        1.0 / question.epsilon
    )  # fmt: skip
    identity = np.eye(known.manifold.n)
    scales = np.diag(reach_of(known, question) * unit)
    return build(known.adjacency, identity, identity, scales, law, known.manifold.names)


def error_of(mechanism: Mechanism) -> float:
    """Return the root mean square error of a published number.

    Parameters
    ----------
    mechanism : Mechanism
        Its noise.
    """
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
