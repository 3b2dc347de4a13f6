"""``affinedp discover``, ``verify`` and ``design``: equations, and noise that knows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.exits import KEPT, NOT_KEPT
from affinedp.cli.file_kinds import expect
from affinedp.cli.output import mechanism_as_json, promise_as_json, say, say_table, warn
from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.files.problem import Problem
    from affinedp.mechanism import Mechanism
    from affinedp.privacy.guarantee import Guarantee

# What noise is designed for unless something else is said.
PLAN: Mapping[str, Any] = MappingProxyType({"releases": 1, "objective": "sum", "integers": False})
_PROBLEM = Argument(..., help="Problem in TOML or JSON.", show_default=False)
_CHECK_AGAINST = Option(
    None, help="Private data: say on stderr which equations it obeys that were not given."
)


def discover(
    data: Path = Argument(..., help="Private data, CSV or Parquet.", show_default=False),
    given: list[str] | None = Option(None, help="An equation that is known already; repeatable."),
    design: Path | None = Option(None, help="Saved mechanism whose loss is told."),
    law: Literal["gaussian", "laplace"] | None = Option(None, help="Of the noise (default: by δ)."),
    epsilon: float = Option(1.0, help="What independent noise was meant for."),
    delta: float = Option(0.0, help="δ that goes with it."),
    mu: float = Option(1.0, help="How far one number may move."),
    rows: bool = Option(True, help="Look for equations between rows too."),
    lag: list[int] | None = Option(None, help="Rows to look back; repeatable."),
    order: str = Option("", help="Column that orders the rows in time."),
    by: list[str] | None = Option(None, help="Column that labels groups of rows; repeatable."),
    chance: float = Option(1e-4, help="Equations by chance that are accepted."),
    seed: int = Option(0, help="Which rows and columns are looked at."),
    as_toml: bool = Option(False, "--toml", help="Print TOML to paste."),
) -> Answer:
    """Find the linear equations that DATA obeys, and what each would cost if it were known.

    The promise covers the equations that were given; this looks for those that were forgotten.
    It reads private data: what it prints is for whoever holds them.

    Examples
    --------
    affinedp discover data.csv
    affinedp discover data.csv --given 'women + men = all' --toml
    """
    from affinedp.discovery.discover import discover as equations_of
    from affinedp.files.data import read_table
    from affinedp.mechanism import Mechanism

    expect(data, "data")
    if design is not None:
        expect(design, "mechanism")
    found = equations_of(
        read_table(data, long_numbers="text"),
        given=given or (),
        design=None if design is None else Mechanism.load(design),
        law=law,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        between_rows=rows,
        lags=lag or (1,),
        order=order or None,
        by=by or None,
        chance=chance,
        seed=seed,
    )
    if not found.columns:
        raise AffineDPError(
            f"no column of {data.name} holds numbers; columns are separated by commas, and "
            "decimals have a point"
        )

    def show() -> None:
        if found.equations:
            headings = found.headings()
            say_table(headings, found.table(), right=headings[2:])
        for line in found.summary():
            say(line)

    return Answer(None, found.toml()) if as_toml else Answer(found.to_dict(), show)


def verify(
    problem: Path = _PROBLEM,
    epsilon: float | None = Option(None, help="Ask whether this ε is kept."),
    delta: float | None = Option(None, help="δ that goes with it (default 0)."),
    tolerance: float = Option(
        1e-12, help="Share by which ε may be exceeded, for rounding; 0 for none."
    ),
    check_against: Path | None = _CHECK_AGAINST,
) -> Answer:
    """Say what the noise in PROBLEM really promises once the equations are known.

    With --epsilon (or an epsilon in the problem) the exit code says whether that promise
    holds: 0 yes, up to --tolerance, 1 no.

    Examples
    --------
    affinedp verify problem.toml
    affinedp verify problem.toml --epsilon 1 --delta 1e-6 && echo kept
    """
    from affinedp.files.problem import read_problem

    expect(problem, "problem")
    read = read_problem(problem)
    say_forgotten(read, check_against)
    asked = _asked(read, epsilon, delta)
    guarantee = read.guarantee()
    holds = guarantee.holds(*asked, tolerance) if asked is not None else None
    return Answer(
        promise_as_json(guarantee, asked, holds),
        f"{_verdict(guarantee, asked, holds)}{guarantee}",
        NOT_KEPT if holds is False else KEPT,
    )


def design(
    problem: Path = _PROBLEM,
    output: Path | None = Option(None, "--output", "-o", help="Mechanism file to write."),
    law: Literal["auto", "gaussian", "laplace", "knorm"] | None = Option(
        None, help="Law of the noise; auto: the least error (default: problem's, or auto)."
    ),
    epsilon: float | None = Option(None, help="ε to keep."),
    delta: float | None = Option(None, help="δ to keep (Gaussian)."),
    method: Literal["optimal", "algorithm1", "algorithm2"] = Option(
        "optimal", help="optimal, or the paper's algorithm1 (Gaussian) or algorithm2 (Laplace)."
    ),
    basis: Path | None = Option(
        None, help="CSV file with Λ̄ of algorithm1 or algorithm2, a row per output."
    ),
    covariance: Path | None = Option(
        None, help="CSV file with Σ of algorithm1, in coordinates of Λ̄."
    ),
    releases: int = Option(1, help="Planned releases that keep the promise together."),
    objective: Literal["sum", "largest"] = Option(
        "sum", help="What is least: sum of squared errors, or largest variance."
    ),
    integers: bool = Option(
        False, "--integers", help="Data is whole; K-norm noise keeps it whole."
    ),
    check_against: Path | None = _CHECK_AGAINST,
    preview: bool = Option(
        False, "--preview", help="Show promise and accuracy only; nothing is written."
    ),
) -> Answer:
    """Design the least noise that keeps the promise in PROBLEM, and save it.

    ε and δ come from the problem's privacy section, or from the options.  Without a law, the one
    with the least error for the promise and the planned releases is taken, and the report says why.

    The paper's algorithms take a basis Λ̄ of one's own, and algorithm1 a Σ; without them an
    orthonormal basis and a multiple of the identity are taken.

    Examples
    --------
    affinedp design problem.toml -o mechanism.json --epsilon 1 --delta 1e-6
    affinedp design problem.toml --preview
    """
    from affinedp.files.problem import read_problem

    expect(problem, "problem")
    if output is None and not preview:
        raise AffineDPError("say where the mechanism goes: -o FILE; or look first: --preview")
    if output is not None and preview:
        raise AffineDPError("--preview writes nothing: leave out -o")
    read = read_problem(problem)
    say_forgotten(read, check_against)
    own_law, algorithm = _algorithm(method, law, basis, covariance)
    plan = {"releases": releases, "objective": objective, "integers": integers}
    mechanism = design_problem(read, law or own_law or read.law, epsilon, delta, algorithm, plan)
    if output is not None:
        mechanism.save(output)

    written = "\nnothing was written" if preview else ""
    return Answer(mechanism_as_json(mechanism), f"{mechanism.report()}{written}")


def design_problem(
    problem: Problem,
    law: str | None,
    epsilon: float | None,
    delta: float | None,
    algorithm: Mapping[str, Any] = MappingProxyType({}),
    plan: Mapping[str, Any] = PLAN,
) -> Mechanism:
    """Design the noise that a problem asks for, or what options ask for instead."""
    from affinedp.designs.choose import design as design_least
    from affinedp.designs.gaussian import design_gaussian
    from affinedp.designs.laplace import design_laplace

    epsilon, delta = kept(epsilon, delta, problem, law == "gaussian")
    manifold = problem.manifold
    shared: dict[str, Any] = {
        "epsilon": epsilon,
        "query": problem.query,
        "adjacency": problem.adjacency,
        **algorithm,
    }
    designed: Mechanism
    if not algorithm:
        chosen: Any = law or "auto"
        designed = design_least(manifold, delta=delta, law=chosen, **plan, **shared)
    elif plan != PLAN:
        raise AffineDPError("planned releases, objectives and integers go with --method optimal")
    elif law == "gaussian":
        designed = design_gaussian(manifold, delta=delta, **shared)
    else:
        designed = design_laplace(manifold, **shared)
    return designed.with_names(problem.output_names)


def kept(
    epsilon: float | None, delta: float | None, told: Any, gaussian: bool = False
) -> tuple[float, float]:
    """Return the ε and δ to keep: those of the options, or those that a file says."""
    epsilon = told.epsilon if epsilon is None else epsilon
    delta = (told.delta if delta is None else delta) or 0.0
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    if gaussian and not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    return epsilon, delta


def say_forgotten(problem: Problem, data: Path | None) -> None:
    """Tell the curator, on stderr, which equations data obeys that the problem does not give."""
    if data is None:
        return
    expect(data, "data")
    from affinedp.discovery.forgotten import forgotten_equations
    from affinedp.files.data import read_table

    table, names = read_table(data, long_numbers="text"), problem.manifold.names
    missing = [name for name in names if name not in table.columns]
    if missing:
        others = ", ".join(str(name) for name in table.columns if name not in names)
        raise AffineDPError(
            f"{data.name} has no column {missing[0]!r}, which the problem names"
            + (f"; columns that the problem does not name: {others[:200]}" if others else "")
        )
    found = forgotten_equations(problem.manifold, table)
    for equation in found:
        warn(f"not given, but the data obeys: {equation}")


def _asked(
    problem: Problem, epsilon: float | None, delta: float | None
) -> tuple[float, float] | None:
    """The promise that is asked for, if any: options first, then the problem file."""
    if epsilon is None and problem.epsilon is None:
        if delta is not None or problem.delta is not None:
            raise AffineDPError("δ asks for a promise only together with ε: give epsilon too")
        return None
    return kept(epsilon, delta, problem)


def _algorithm(
    method: str, law: str | None, basis: Path | None, covariance: Path | None
) -> tuple[str | None, dict[str, Any]]:
    """The law that a method is for, and what its design takes, with matrices read."""
    own = {"optimal": None, "algorithm1": "gaussian", "algorithm2": "laplace"}[method]
    if law is not None and own not in (None, law):
        raise AffineDPError(f"{method} designs {own} noise, not {law}")
    if method == "optimal":
        if basis or covariance:
            raise AffineDPError(
                "a basis or a covariance goes with --method algorithm1 or algorithm2"
            )
        return None, {}
    if method == "algorithm2" and covariance:
        raise AffineDPError(
            "algorithm2 takes a basis and scales it; a covariance is for algorithm1"
        )
    from affinedp.files.documents import matrix

    options: dict[str, Any] = {"method": method}
    for name, file in (("basis", basis), ("covariance", covariance)):
        if file is not None:
            options[name] = matrix(file.name, f"--{name}", file.parent, None).numbers
    return own, options


def _verdict(guarantee: Guarantee, asked: tuple[float, float] | None, holds: bool | None) -> str:
    """Whether what was asked for holds, in a line of its own; nothing where nothing was."""
    if asked is None:
        return ""
    epsilon, delta = asked
    really = guarantee.epsilon(delta)
    over = really / epsilon - 1 if epsilon > 0 else 0.0
    if holds:
        verdict = f"holds up to rounding ({over:.1e})" if over > 0 else "holds"
    else:
        instead = f"ε = {really!r} does" if math.isfinite(really) else "no ε does"
        verdict = f"does NOT hold ({instead})"
    return f"asked        ε = {epsilon:g}, δ = {delta:g}: {verdict}\n"
