"""Answers for programs: promises, mechanisms and ends of processes as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from affinedp.cli.output import by_name, finite

if TYPE_CHECKING:
    from affinedp.promise.guarantee import Guarantee


def promise_as_json(
    guarantee: Guarantee,
    asked: tuple[float, float] | None = None,
    holds: bool | None = None,
) -> dict[str, Any]:
    """Return a promise for programs.

    Parameters
    ----------
    guarantee : Guarantee
        What is promised.
    asked : tuple of float, optional
        (ε, δ) that were asked for.
    holds : bool, optional
        Whether they are kept.
    """
    kept = guarantee.asked
    if asked is None and kept is not None:
        asked, holds = (kept.epsilon, kept.delta), guarantee.keeps_asked()
    first: dict[str, Any] = {}
    if asked is not None:
        first["asked"] = {"epsilon": asked[0], "delta": asked[1], "holds": holds}
        if kept is not None and kept.releases > 1:
            first["asked"]["releases"] = kept.releases
    deltas = (0.0, 1e-12, 1e-9, 1e-6, 1e-3)
    answer: dict[str, Any] = {
        "law": guarantee.law,
        "promise": guarantee.leak is None,
        "exact": guarantee.exact,
        "sensitivity": finite(guarantee.sensitivity),
        "epsilon_at_delta": {f"{d:g}": finite(guarantee.epsilon(d)) for d in deltas},
        "rho": finite(guarantee.rho),
        "neighbours": guarantee.neighbours,
        "rests_on": guarantee.basis,
        "method": guarantee.method,
        "worst_direction": by_name(guarantee.worst_direction, guarantee.names),
        "leak": by_name(guarantee.leak, guarantee.output_names),
        "warnings": list(guarantee.warnings),
    }
    return {**first, **answer}


def mechanism_as_json(mechanism: Any) -> dict[str, Any]:
    """Return a mechanism's promise and cost for programs, what was asked for first.

    Parameters
    ----------
    mechanism : Mechanism
        As designed, or as read from a file.
    """
    least = mechanism.least
    return {
        **promise_as_json(mechanism.guarantee),
        "expected_squared_error": mechanism.expected_squared_error,
        "gap": mechanism.gap,
        "lower_bound": mechanism.lower_bound,
        "excess": mechanism.excess,
        "bound_certified": least is not None and not least.confined,
        "alternatives": [asdict(other) for other in mechanism.alternatives],
        "notes": list(mechanism.notes),
    }


def outcome_as_json(outcome: Any) -> dict[str, Any]:
    """Return how a process of a loop or a network ended, for programs.

    Parameters
    ----------
    outcome : Outcome
        Of :mod:`affinedp.mqtt.process`.
    """
    return {
        "finished": outcome.finished,
        "steps": outcome.steps,
        "reason": outcome.reason or None,
        "dropped": dict(sorted(outcome.dropped.items())),
    }
