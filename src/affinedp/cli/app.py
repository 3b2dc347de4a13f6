"""The command line: thin, one command per question.

Exit codes: 0 fine, 1 the promise that was asked for does not hold, 2 bad input.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from affinedp import __version__
from affinedp.cli.consensus import consensus_app
from affinedp.cli.control import control_app
from affinedp.cli.discover import discover_command
from affinedp.designs.gaussian import design_gaussian
from affinedp.designs.laplace import design_laplace
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.files.problem import Problem, read_problem
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency, DirectionAdjacency, FreeSetAdjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.verification import verify as verify_noise

if TYPE_CHECKING:
    from affinedp.paper.parts import Reproduced

app = typer.Typer(
    help="Differential privacy for data that obeys known linear equations.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

ProblemFile = Annotated[Path, typer.Argument(help="Problem in TOML or JSON.", show_default=False)]
Epsilon = Annotated[float | None, typer.Option(help="Ask whether this ε is kept.")]
Delta = Annotated[float | None, typer.Option(help="δ that goes with it (default 0).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"affinedp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Differential privacy for data that obeys known linear equations."""


@app.command()
def verify(
    problem: ProblemFile,
    epsilon: Epsilon = None,
    delta: Delta = None,
    as_json: AsJson = False,
) -> None:
    """Say what the noise in PROBLEM really promises once the equations are known.

    With --epsilon (or an epsilon in the problem) the exit code says whether that promise
    holds: 0 yes, 1 no.
    """
    read = read_problem(problem)
    asked = _asked(read, epsilon, delta)
    guarantee = verify_problem(read)
    holds = guarantee.holds(*asked) if asked is not None else None
    if as_json:
        typer.echo(json.dumps(_as_json(guarantee, asked, holds), ensure_ascii=False, indent=2))
    else:
        _print_table(guarantee, asked, holds)
    if holds is False:
        raise typer.Exit(1)


@app.command()
def design(
    problem: ProblemFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Mechanism file to write.")],
    law: Annotated[str, typer.Option(help="gaussian or laplace (default: from the problem).")] = "",
    epsilon: Annotated[float | None, typer.Option(help="ε to keep.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ to keep (Gaussian).")] = None,
    as_json: AsJson = False,
) -> None:
    """Design the least noise that keeps the promise in PROBLEM, and save it.

    ε and δ come from the problem's privacy section, or from the options.  Without a law, Gaussian
    noise is designed when there is a δ, Laplace noise otherwise.
    """
    read = read_problem(problem)
    mechanism = design_problem(read, law or read.law, epsilon, delta)
    mechanism.save(output)
    if as_json:
        answer = _as_json(mechanism.guarantee, None, None)
        answer["expected_squared_error"] = mechanism.expected_squared_error
        answer["gap"] = mechanism.gap
        answer["notes"] = list(mechanism.notes)
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
    else:
        typer.echo(str(mechanism.report()))


@app.command()
def report(
    mechanism: Annotated[Path, typer.Argument(help="Mechanism file.", show_default=False)],
    html: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    trust: Annotated[bool, typer.Option(help="Do not verify the guarantee again.")] = False,
) -> None:
    """Say what a saved mechanism promises and costs; its guarantee is verified again."""
    from affinedp.control.trajectory.noise import TrajectoryMechanism
    from affinedp.files.mechanisms import TRAJECTORY_FORMAT, format_of

    kind = TrajectoryMechanism if format_of(mechanism) == TRAJECTORY_FORMAT else Mechanism
    written = kind.load(mechanism, reverify=not trust).report()
    if html is None:
        typer.echo(str(written))
        return
    try:
        html.write_text(written.page(), encoding="utf-8")
    except OSError as error:
        raise AffineDPError(f"{html} cannot be written: {error.strerror}") from None
    typer.echo(f"wrote {html}")


@app.command()
def release(
    mechanism: Annotated[
        Path,
        typer.Argument(help="Mechanism, or description of a table (.toml).", show_default=False),
    ],
    data: Annotated[Path, typer.Argument(help="Data, CSV or Parquet.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the results go.")],
    ledger: Annotated[Path | None, typer.Option(help="Budget to charge first.")] = None,
    label: Annotated[str | None, typer.Option(help="For the ledger.")] = None,
    bound: Annotated[float | None, typer.Option(help="Public bound on the data.")] = None,
) -> None:
    """Publish DATA, one release per row, with the noise of a saved mechanism.

    Columns are matched by name.  Rows are separate data sets: the promise holds for each, and
    the ledger is charged once.  Data that is malformed or does not obey the equations is
    refused, and nothing is charged then.  A description of a table says by names of columns what
    must add up; its noise is designed here.
    """
    if mechanism.suffix.lower() == ".toml":
        from affinedp.cli.tables import release_file

        release_file(
            mechanism, data, output, ledger=ledger, label=label, bound=bound, say=typer.echo
        )
        return
    from affinedp.budget.ledger import Ledger
    from affinedp.files.data import check_writable, read_table, write_table

    loaded = Mechanism.load(mechanism)
    check_writable(output)
    table = read_table(data)
    budget = None if ledger is None else Ledger(ledger, create=False)
    published = loaded.release(table, ledger=budget, label=label, bound=bound)
    write_table(published, output)
    typer.echo(f"released {len(published)} rows to {output}")
    if budget is None:
        typer.echo("no ledger was given: nothing keeps count of this release")
    else:
        typer.echo(f"budget left: ε = {budget.remaining:.6g} at δ = {budget.delta:g}")


@app.command()
def audit(
    mechanism: Annotated[Path, typer.Argument(help="Mechanism file.", show_default=False)],
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
            "epsilon_stated": _finite(found.epsilon_stated),
            "delta": found.delta,
            "confidence": found.confidence,
            "runs": found.runs,
            "seed": found.seed,
            "attack": found.attack,
            "neighbours": found.neighbours,
        }
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
    else:
        typer.echo(str(found))
    if not found.passed:
        raise typer.Exit(1)


LedgerFile = Annotated[Path, typer.Argument(help="Ledger file.", show_default=False)]
ledger_app = typer.Typer(help="Start a privacy budget, look at it, check it.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
app.command("discover")(discover_command)
app.add_typer(control_app, name="control")
app.add_typer(consensus_app, name="consensus")


@ledger_app.command("create")
def ledger_create(
    path: LedgerFile,
    epsilon: Annotated[float, typer.Option(help="Cap on ε.")],
    delta: Annotated[float, typer.Option(help="Cap on δ.")] = 0.0,
) -> None:
    """Start a budget; an existing file is never touched."""
    from affinedp.budget.ledger import Ledger

    if path.exists():
        raise AffineDPError(f"{path} exists already")
    with Ledger(path, epsilon=epsilon, delta=delta):
        typer.echo(f"made {path}: at most ε = {epsilon:g} at δ = {delta:g}")


@ledger_app.command("show")
def ledger_show(path: LedgerFile, as_json: AsJson = False) -> None:
    """Say the cap and what was spent of it, for each kind of neighbours."""
    from affinedp.budget.ledger import Ledger

    with Ledger(path, create=False) as ledger:
        spent = ledger.spent_by_neighbours
        entries = ledger.history()
        answer: dict[str, Any] = {
            "epsilon": ledger.epsilon,
            "delta": ledger.delta,
            "adaptive": ledger.adaptive,
            "spent": _finite(ledger.spent),
            "remaining": ledger.remaining,
            "spent_by_neighbours": {text: _finite(value) for text, value in spent.items()},
            "charges": len(entries),
            "not_confirmed": sum(entry.status == "charged" for entry in entries),
            "head": ledger.head,
        }
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return
    typer.echo(f"cap         ε = {answer['epsilon']:g}, δ = {answer['delta']:g}")
    typer.echo(f"charges     {answer['charges']}, {answer['not_confirmed']} not confirmed")
    typer.echo(f"remaining   about ε = {answer['remaining']:.6g}")
    for text, value in spent.items():
        typer.echo(f"spent       ε = {value:.6g}: {_one_line(text)}")
    typer.echo(f"head        {answer['head']}")


@ledger_app.command("history")
def ledger_history(path: LedgerFile, as_json: AsJson = False) -> None:
    """List all charges, the oldest first."""
    from dataclasses import asdict

    from affinedp.budget.ledger import Ledger

    with Ledger(path, create=False) as ledger:
        entries = ledger.history()
    if as_json:
        rows = [asdict(entry) for entry in entries]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for entry in entries:
        losses = ", ".join(f"{law} {s:.6g}" for law, s in entry.losses)
        times = f" × {entry.releases}" if entry.releases > 1 else ""
        confirmed = "released" if entry.status == "released" else "charged, release not confirmed"
        label = _one_line(entry.label or "")
        typer.echo(f"{entry.id:>6}  {entry.time[:19]}Z  {losses}{times}  {confirmed}  {label}")


@ledger_app.command("check")
def ledger_check(path: LedgerFile) -> None:
    """Verify the whole file; exit code 1 if something is wrong with it."""
    import warnings

    from affinedp.budget.ledger import Ledger, LedgerError, LedgerWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LedgerWarning)  # check() says the same
            with Ledger(path, create=False) as ledger:
                problems = ledger.check()
    except LedgerError as error:
        problems = (str(error),)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo("fine: nothing was altered")


def _one_line(text: str) -> str:
    """Show what a terminal would act on instead of sending it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@app.command()
def reproduce(
    part: Annotated[str, typer.Argument(help="examples, control, consensus or all.")] = "all",
    out: Annotated[Path | None, typer.Option(help="Folder for figures and results.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the paper's numbers again, print them beside the paper's, draw its figures.

    With --out the figures (PNG and SVG), results.json and report.html go into that folder.
    """
    from rich.console import Console

    from affinedp.paper.parts import parts_named
    from affinedp.paper.parts import reproduce as compute

    names = parts_named(part)
    with Console(stderr=True).status("starting") as status:
        found = compute(names, out, lambda text: status.update(text))
    if as_json:
        rows = [claim.row() for one in found for claim in one.claims]
        keys = ("what", "paper", "ours", "verdict", "how")
        answer = [dict(zip(keys, row)) for row in rows]
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return
    for one in found:
        _print_claims(one)
    if out is not None:
        typer.echo(f"open {out / 'report.html'}; the figures and results.json lie beside it")


@app.command()
def doctor(
    broker: Annotated[
        list[str] | None, typer.Option(help="A broker to try, host:port; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which extras, brokers and parallel backends are there (exit code 1: something amiss)."""
    from dataclasses import asdict

    from rich import box
    from rich.console import Console
    from rich.table import Table

    from affinedp.cli.doctor import diagnose, healthy

    findings = diagnose(broker or ())
    if as_json:
        rows = [asdict(finding) for finding in findings]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        table = Table("area", "what", "status", "detail", box=box.SIMPLE)
        for finding in findings:
            table.add_row(finding.area, finding.what, finding.status, finding.detail)
        Console().print(table)
    if not healthy(findings):
        raise typer.Exit(1)


def _print_claims(found: Reproduced) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("claim", title=found.title, box=box.SIMPLE)
    for heading in ("paper", "affinedp"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for claim in found.claims:
        what, paper, ours, verdict, _ = claim.row()
        table.add_row(what, paper, ours, verdict)
    Console().print(table)


def manifold_of(problem: Problem) -> AffineManifold:
    """Build the manifold that a problem describes."""
    if problem.equations is not None:
        return AffineManifold.from_equations(
            problem.equations, public_entries=problem.public_entries
        )
    assert problem.coefficients is not None
    return AffineManifold(
        problem.coefficients, problem.offsets, problem.names, problem.public_entries
    )


def adjacency_of(problem: Problem, manifold: AffineManifold) -> Adjacency:
    """Build the neighbours that a problem describes."""
    if problem.free_sets is not None:
        return FreeSetAdjacency(manifold, problem.free_sets, problem.mu)
    if problem.directions is not None:
        return DirectionAdjacency(manifold, problem.directions)
    return CircuitAdjacency(manifold, problem.mu)


def verify_problem(problem: Problem) -> Guarantee:
    """Verify the noise that a problem describes."""
    if problem.law is None:
        raise AffineDPError(
            "the problem has no [noise] section: say law = 'gaussian' or 'laplace' and scale, "
            "matrix or covariance"
        )
    manifold = manifold_of(problem)
    guarantee = verify_noise(
        manifold,
        problem.noise_matrix,
        covariance=problem.covariance,
        law=problem.law,
        query=problem.query,
        adjacency=adjacency_of(problem, manifold),
    )
    return guarantee.with_output_names(problem.output_names)


def design_problem(
    problem: Problem, law: str | None, epsilon: float | None, delta: float | None
) -> Mechanism:
    """Design the noise that a problem asks for."""
    epsilon = problem.epsilon if epsilon is None else epsilon
    delta = problem.delta if delta is None else delta
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    law = law or ("gaussian" if delta else "laplace")
    manifold = manifold_of(problem)
    shared: dict[str, Any] = {
        "epsilon": epsilon,
        "query": problem.query,
        "adjacency": adjacency_of(problem, manifold),
    }
    if law == "gaussian":
        if not delta:
            raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
        designed = design_gaussian(manifold, delta=delta, **shared)
    elif law == "laplace":
        if delta:
            raise AffineDPError("Laplace noise is designed for δ = 0; leave delta out")
        designed = design_laplace(manifold, **shared)
    else:
        raise AffineDPError(f"law must be gaussian or laplace, not {law!r}")
    named = designed.guarantee.with_output_names(problem.output_names)
    return replace(designed, guarantee=named, output_names=problem.output_names)


def _asked(
    problem: Problem, epsilon: float | None, delta: float | None
) -> tuple[float, float] | None:
    """The promise that is asked for, if any: options first, then the problem file."""
    if epsilon is None and problem.epsilon is None and (delta or problem.delta) is not None:
        raise AffineDPError("δ asks for a promise only together with ε: give epsilon too")
    if epsilon is not None:
        wanted = (epsilon, (problem.delta or 0.0) if delta is None else delta)
    elif problem.epsilon is not None:
        wanted = (problem.epsilon, (problem.delta or 0.0) if delta is None else delta)
    else:
        return None
    if not (wanted[0] >= 0.0 and math.isfinite(wanted[0]) and 0.0 <= wanted[1] < 1.0):
        raise AffineDPError(f"ε must be at least 0 and δ in [0, 1), not {wanted[0]}, {wanted[1]}")
    return wanted


def _as_json(
    guarantee: Guarantee, asked: tuple[float, float] | None, holds: bool | None
) -> dict[str, Any]:
    deltas = (0.0, 1e-12, 1e-9, 1e-6, 1e-3)
    answer: dict[str, Any] = {
        "law": guarantee.law,
        "promise": guarantee.leak is None,
        "exact": guarantee.exact,
        "sensitivity": _finite(guarantee.sensitivity),
        "epsilon_at_delta": {f"{d:g}": _finite(guarantee.epsilon(d)) for d in deltas},
        "rho": _finite(guarantee.rho),
        "neighbours": guarantee.neighbours,
        "rests_on": guarantee.basis,
        "method": guarantee.method,
        "worst_direction": _by_name(guarantee.worst_direction, guarantee.names),
        "leak": _by_name(guarantee.leak, guarantee.output_names),
        "warnings": list(guarantee.warnings),
    }
    if asked is not None:
        answer["asked"] = {"epsilon": asked[0], "delta": asked[1], "holds": holds}
    return answer


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _by_name(vector: Any, names: tuple[str, ...]) -> dict[str, float] | None:
    if vector is None:
        return None
    return {name: float(value) for name, value in zip(names, vector) if value != 0.0}


def _print_table(
    guarantee: Guarantee, asked: tuple[float, float] | None, holds: bool | None
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in guarantee.summary():
        alarming = label in ("leak", "warning") or (
            label == "promise" and guarantee.leak is not None
        )
        table.add_row(label, Text(text, style="red" if alarming else ""))
    if asked is not None:
        kept = guarantee.epsilon(asked[1])
        instead = f"ε = {kept!r} does" if math.isfinite(kept) else "no ε does"
        verdict = "holds" if holds else f"does NOT hold ({instead})"
        style = "green" if holds else "bold red"
        promise = f"ε = {asked[0]:g}, δ = {asked[1]:g}"
        table.add_row("asked", Text(f"{promise}: {verdict}", style=style))
    Console().print(table)


def main() -> None:
    """Run the command line; one clear line and exit code 2 for bad input."""
    try:
        app()
    except AffineDPError as error:
        typer.echo(f"affinedp: {error}", err=True)
        sys.exit(2)
