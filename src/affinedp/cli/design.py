"""``affinedp design``: the least noise that keeps a promise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from affinedp.cli.answers import mechanism_as_json
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson, CheckAgainst, KeptDelta, KeptEpsilon, ProblemFile
from affinedp.cli.output import say, say_json
from affinedp.errors import AffineDPError


def design(
    problem: ProblemFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Mechanism file to write.")
    ] = None,
    law: Annotated[
        Literal["auto", "gaussian", "laplace", "knorm"] | None,
        typer.Option(help="Law of the noise; auto: the least error (default: problem's, or auto)."),
    ] = None,
    epsilon: KeptEpsilon = None,
    delta: KeptDelta = None,
    method: Annotated[
        Literal["optimal", "algorithm1", "algorithm2"],
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
        Literal["sum", "largest"],
        typer.Option(help="What is least: sum of squared errors, or largest variance."),
    ] = "sum",
    integers: Annotated[
        bool, typer.Option("--integers", help="Data is whole; K-norm noise keeps it whole.")
    ] = False,
    confined: Annotated[
        bool,
        typer.Option("--confined", help="Data is bounded, as counts ≥ 0 with a public total are."),
    ] = False,
    check_against: CheckAgainst = None,
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Show promise and accuracy only; nothing is written."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="For the preview of a table: its labels are used, no private number."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Design the least noise that keeps the promise in PROBLEM, and save it.

    ε and δ come from the problem's privacy section, or from the options.  Without a law, the one
    with the least error for the promise and the planned releases is taken, and the report says why.

    The paper's algorithms take a basis Λ̄ of one's own, and algorithm1 a Σ; without them an
    orthonormal basis and a multiple of the identity are taken.

    With --preview, PROBLEM may also be the description of a table: that is affinedp tables preview.
    """
    from affinedp.cli.designed import Plan, algorithm_of, design_problem
    from affinedp.cli.problems import say_forgotten
    from affinedp.files.problem import read_problem

    kind = expect(problem, "problem", *(("table description",) if preview else ()))
    if kind == "table description":
        from affinedp.cli.table_commands import preview_table

        preview_table(problem, data, as_json=as_json)
        return
    if data is not None:
        raise AffineDPError("--data goes with --preview and the description of a table")
    if output is None and not preview:
        raise AffineDPError("say where the mechanism goes: -o FILE; or look first: --preview")
    if output is not None and preview:
        raise AffineDPError("--preview writes nothing: leave out -o")
    read = read_problem(problem)
    say_forgotten(read, check_against)
    chosen = algorithm_of(method, law or "", basis, covariance)
    plan = Plan(releases, objective, integers, confined)
    mechanism = design_problem(read, law or chosen.law or read.law, epsilon, delta, chosen, plan)
    if output is not None:
        mechanism.save(output)
    if as_json:
        say_json(mechanism_as_json(mechanism))
    else:
        say(mechanism.report())
        if preview:
            say("nothing was written")
