"""``affinedp design``: the least noise that keeps a promise."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from affinedp.cli.options import (
    AsJson,
    CheckAgainst,
    KeptDelta,
    KeptEpsilon,
    NewMechanism,
    ProblemFile,
)
from affinedp.cli.output import say, say_json


def design(
    problem: ProblemFile,
    output: NewMechanism,
    law: Annotated[
        str,
        typer.Option(
            help="gaussian, laplace, knorm or auto: the least error (default: problem's, or auto)."
        ),
    ] = "",
    epsilon: KeptEpsilon = None,
    delta: KeptDelta = None,
    method: Annotated[
        str,
        typer.Option(help="optimal, or the paper's algorithm1 (Gaussian) or algorithm2 (Laplace)."),
    ] = "optimal",
    basis: Annotated[
        Path | None,
        typer.Option(help="CSV file with Λ̄ of algorithm1 or algorithm2, a row per output."),
    ] = None,
    covariance: Annotated[
        Path | None, typer.Option(help="CSV file with Σ of algorithm1, in coordinates of Λ̄.")
    ] = None,
    releases: Annotated[
        int, typer.Option(help="Planned releases that keep the promise together.")
    ] = 1,
    objective: Annotated[
        str, typer.Option(help="What is least: sum of squared errors, or largest variance.")
    ] = "sum",
    integers: Annotated[
        bool, typer.Option("--integers", help="Data is whole; K-norm noise keeps it whole.")
    ] = False,
    confined: Annotated[
        bool,
        typer.Option("--confined", help="Data is bounded, as counts ≥ 0 with a public total are."),
    ] = False,
    check_against: CheckAgainst = None,
    as_json: AsJson = False,
) -> None:
    """Design the least noise that keeps the promise in PROBLEM, and save it.

    ε and δ come from the problem's privacy section, or from the options.  Without a law, the one
    with the least error for the promise and the planned releases is taken, and the report says why.

    The paper's algorithms take a basis Λ̄ of one's own, and algorithm1 a Σ; without them an
    orthonormal basis and a multiple of the identity are taken.
    """
    from affinedp.cli.designed import Plan, algorithm_of, design_problem
    from affinedp.cli.problems import say_forgotten
    from affinedp.cli.verify import promise_as_json
    from affinedp.files.problem import read_problem

    read = read_problem(problem)
    say_forgotten(read, check_against)
    chosen = algorithm_of(method, law, basis, covariance)
    plan = Plan(releases, objective, integers, confined)
    mechanism = design_problem(read, law or chosen.law or read.law, epsilon, delta, chosen, plan)
    mechanism.save(output)
    if as_json:
        answer = promise_as_json(mechanism.guarantee)
        answer["expected_squared_error"] = mechanism.expected_squared_error
        answer["gap"] = mechanism.gap
        answer["lower_bound"] = mechanism.lower_bound
        answer["excess"] = mechanism.excess
        answer["bound_certified"] = mechanism.least is not None and not confined
        answer["alternatives"] = [asdict(other) for other in mechanism.alternatives]
        answer["notes"] = list(mechanism.notes)
        say_json(answer)
    else:
        say(mechanism.report())
