"""``affinedp audit``: attack real releases of a mechanism."""

from __future__ import annotations

from typing import Annotated

import typer

from affinedp.cli.exits import NOT_KEPT
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson, MechanismFile
from affinedp.cli.output import finite, say, say_json


def audit(
    mechanism: MechanismFile,
    epsilon: Annotated[float | None, typer.Option(help="ε that is claimed (or its own).")] = None,
    delta: Annotated[float | None, typer.Option(help="δ at which it is attacked.")] = None,
    runs: Annotated[int, typer.Option(help="Releases of each of two neighbours.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="How sure the bound on ε is.")] = 0.999,
    seed: Annotated[int, typer.Option(help="Which runs choose the threshold.")] = 0,
    jobs: Annotated[int, typer.Option(help="Workers (-1: all cores).")] = 1,
    low_bits: Annotated[bool, typer.Option(help="Attack the last bits instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Attack real releases of a saved mechanism; exit code 1 if its claim is refuted."""
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
    if as_json:
        answer = {
            "passed": found.passed,
            "epsilon_lower": found.epsilon_lower,
            "epsilon_stated": finite(found.epsilon_stated),
            "delta": found.delta,
            "confidence": found.confidence,
            "runs": found.runs,
            "seed": found.seed,
            "attack": found.attack,
            "neighbours": found.neighbours,
        }
        say_json(answer)
    else:
        say(found)
    if not found.passed:
        raise typer.Exit(NOT_KEPT)
