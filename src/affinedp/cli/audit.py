"""``affinedp audit``: attack real releases of a mechanism."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.exits import KEPT, NOT_KEPT
from affinedp.cli.file_kinds import expect
from affinedp.cli.output import finite


def audit(
    mechanism: Path = Argument(..., help="Mechanism file.", show_default=False),
    epsilon: float | None = Option(None, help="ε that is claimed (or its own)."),
    delta: float | None = Option(None, help="δ at which it is attacked."),
    runs: int = Option(100_000, help="Releases of each of two neighbours."),
    confidence: float = Option(0.999, help="How sure the bound on ε is."),
    seed: int = Option(0, help="Which runs choose the threshold."),
    jobs: int = Option(1, help="Workers (-1: all cores)."),
    low_bits: bool = Option(False, help="Attack the last bits instead."),
) -> Answer:
    """Attack real releases of a saved mechanism; exit code 1 if its claim is refuted.

    Examples
    --------
    affinedp audit mechanism.json --runs 20000
    """
    from affinedp.audit.trial import audit as likelihood_ratio_attack
    from affinedp.audit.trial import low_bits_attack
    from affinedp.mechanism import Mechanism

    expect(mechanism, "mechanism")
    claim = None if epsilon is None else (epsilon, delta or 0.0)
    attack = low_bits_attack if low_bits else likelihood_ratio_attack
    found = attack(
        Mechanism.load(mechanism),
        claim=claim,
        delta=None if claim else delta,
        runs=runs,
        confidence=confidence,
        seed=seed,
        n_jobs=jobs,
    )
    told = ("epsilon_lower", "delta", "confidence", "runs", "seed", "attack", "neighbours")
    answer = {
        "passed": found.passed,
        "epsilon_stated": finite(found.epsilon_stated),
        **{name: getattr(found, name) for name in told},
    }
    return Answer(answer, found, KEPT if found.passed else NOT_KEPT)
