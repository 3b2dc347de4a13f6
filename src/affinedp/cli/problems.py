"""``affinedp verify`` and ``design``: what noise really promises, and the least that keeps it."""

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
from affinedp.cli.output import mechanism_as_json, promise_as_json, say, say_rich, warn
from affinedp.errors import AffineDPError
from affinedp.files.visible import visible

if TYPE_CHECKING:
    from affinedp.domains.manifold import AffineManifold
    from affinedp.files.problem import Problem
    from affinedp.mechanism import Mechanism
    from affinedp.neighbours.adjacency import Adjacency
    from affinedp.privacy.guarantee import Guarantee

# What noise is designed for unless something else is said.
PLAN: Mapping[str, Any] = MappingProxyType({"releases": 1, "objective": "sum", "integers": False})
_PROBLEM = Argument(..., help="Problem in TOML or JSON.", show_default=False)
_CHECK_AGAINST = Option(
    None, help="Private data: say on stderr which equations it obeys that were not given."
)


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
    guarantee = verify_problem(read)
    holds = guarantee.holds(*asked, tolerance) if asked is not None else None
    return Answer(
        promise_as_json(guarantee, asked, holds),
        lambda: _say_promise(guarantee, asked, holds),
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
    data: Path | None = Option(
        None, help="For the preview of a table: its labels are used, no private number."
    ),
) -> Answer:
    """Design the least noise that keeps the promise in PROBLEM, and save it.

    ε and δ come from the problem's privacy section, or from the options.  Without a law, the one
    with the least error for the promise and the planned releases is taken, and the report says why.

    The paper's algorithms take a basis Λ̄ of one's own, and algorithm1 a Σ; without them an
    orthonormal basis and a multiple of the identity are taken.

    With --preview, PROBLEM may also be the description of a table: that is affinedp tables preview.

    Examples
    --------
    affinedp design problem.toml -o mechanism.json --epsilon 1 --delta 1e-6
    affinedp design problem.toml --preview
    """
    from affinedp.files.problem import read_problem

    kind = expect(problem, "problem", *(("table description",) if preview else ()))
    if kind == "table description":
        from affinedp.cli.tables import preview as preview_table

        return preview_table(problem, data, 0.95)
    if data is not None:
        raise AffineDPError("--data goes with --preview and the description of a table")
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

    def show() -> None:
        say(mechanism.report())
        if preview:
            say("nothing was written")

    return Answer(mechanism_as_json(mechanism), show)


def manifold_of(problem: Problem) -> AffineManifold:
    """Build the manifold that a problem describes."""
    from affinedp.domains.manifold import AffineManifold

    public = problem.public_entries
    if problem.equations is not None:
        return AffineManifold.from_equations(problem.equations, public_entries=public)
    assert problem.coefficients is not None
    return AffineManifold(problem.coefficients, problem.offsets, problem.names, public)


def adjacency_of(problem: Problem, manifold: AffineManifold) -> Adjacency:
    """Build the neighbours that a problem describes."""
    if problem.free_sets is not None:
        from affinedp.neighbours.free_sets import FreeSetAdjacency

        return FreeSetAdjacency(manifold, problem.free_sets, problem.mu)
    if problem.directions is not None:
        from affinedp.neighbours.given_directions import DirectionAdjacency

        return DirectionAdjacency(manifold, problem.directions)
    from affinedp.neighbours.circuit_adjacency import CircuitAdjacency

    return CircuitAdjacency(manifold, problem.mu)


def verify_problem(problem: Problem) -> Guarantee:
    """Verify the noise that a problem describes."""
    from affinedp.privacy.verification import resolve_query
    from affinedp.privacy.verification import verify as verify_noise

    if problem.law is None:
        raise AffineDPError(
            "the problem has no [noise] section: say law = 'gaussian' or 'laplace' and scale, "
            "matrix or covariance; or law = 'knorm' and hull or matrix"
        )
    manifold = manifold_of(problem)
    adjacency = adjacency_of(problem, manifold)
    points = problem.noise_matrix
    if problem.hull is not None:
        from affinedp.strategies.coordinates import moves_of

        points = problem.hull * moves_of(adjacency, resolve_query(manifold, problem.query)[0])
    guarantee = verify_noise(
        manifold,
        points,
        covariance=problem.covariance,
        law=problem.law,
        query=problem.query,
        adjacency=adjacency,
    )
    return guarantee.with_output_names(problem.output_names)


def design_problem(
    problem: Problem,
    law: str | None,
    epsilon: float | None,
    delta: float | None,
    algorithm: Mapping[str, Any] = MappingProxyType({}),
    plan: Mapping[str, Any] = PLAN,
) -> Mechanism:
    """Design the noise that a problem asks for, or what options ask for instead."""
    from affinedp.designs.choose import LAW_NAMES, LAWS
    from affinedp.designs.choose import design as design_least
    from affinedp.designs.gaussian import design_gaussian
    from affinedp.designs.laplace import design_laplace

    law = law or "auto"
    epsilon, delta = kept(epsilon, delta, problem, gaussian=law == "gaussian")
    if law not in ("auto", *LAWS):
        raise AffineDPError(f"law must be one of auto, {', '.join(LAWS)}, not {law!r}")
    if law not in ("auto", "gaussian") and delta:
        raise AffineDPError(
            f"{LAW_NAMES[law]} noise is designed for δ = 0: leave out --delta (delta in "
            "[privacy]), or give --law auto, which takes the law with the least error"
        )
    manifold = manifold_of(problem)
    shared: dict[str, Any] = {
        "epsilon": epsilon,
        "query": problem.query,
        "adjacency": adjacency_of(problem, manifold),
        **algorithm,
    }
    designed: Mechanism
    if not algorithm:
        chosen: Any = law
        designed = design_least(manifold, delta=delta, law=chosen, **plan, **shared)
    elif plan != PLAN:
        raise AffineDPError("planned releases, objectives and integers go with --method optimal")
    elif law == "gaussian":
        designed = design_gaussian(manifold, delta=delta, **shared)
    else:
        designed = design_laplace(manifold, **shared)
    return designed.with_names(problem.output_names)


def kept(
    epsilon: float | None, delta: float | None, told: Any, *, gaussian: bool
) -> tuple[float, float]:
    """Return the ε and δ to keep: those of the options, or those that a file says."""
    epsilon = told.epsilon if epsilon is None else epsilon
    delta = (told.delta if delta is None else delta) or 0.0
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    check_promise(epsilon, delta)
    if gaussian and not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    return epsilon, delta


def check_promise(epsilon: float, delta: float) -> None:
    """Refuse an ε or δ that no promise has."""
    if not (math.isfinite(epsilon) and epsilon >= 0.0):
        raise AffineDPError(f"ε must be a number from 0 on, not {epsilon:g} (--epsilon)")
    if not 0.0 <= delta < 1.0:
        raise AffineDPError(f"δ must be at least 0 and less than 1, not {delta:g} (--delta)")


def say_forgotten(problem: Problem, data: Path | None) -> None:
    """Tell the curator, on stderr, which equations data obeys that the problem does not give."""
    if data is None:
        return
    expect(data, "data")
    from affinedp.discovery.forgotten import forgotten_equations
    from affinedp.files.data import read_table

    found = forgotten_equations(manifold_of(problem), read_table(data, long_numbers="text"))
    for equation in found:
        warn(f"not given, but the data obeys: {equation}")


def _asked(
    problem: Problem, epsilon: float | None, delta: float | None
) -> tuple[float, float] | None:
    """The promise that is asked for, if any: options first, then the problem file."""
    epsilon = problem.epsilon if epsilon is None else epsilon
    delta = problem.delta if delta is None else delta
    if epsilon is None:
        if delta is not None:
            raise AffineDPError("δ asks for a promise only together with ε: give epsilon too")
        return None
    check_promise(epsilon, delta or 0.0)
    return epsilon, delta or 0.0


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
    from affinedp.files.matrices import matrix

    options: dict[str, Any] = {"method": method}
    for name, file in (("basis", basis), ("covariance", covariance)):
        if file is not None:
            options[name] = matrix(file.name, f"--{name}", file.parent, None).numbers
    return own, options


def _say_promise(
    guarantee: Guarantee, asked: tuple[float, float] | None, holds: bool | None
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    if asked is not None:
        kept = guarantee.epsilon(asked[1])
        instead = f"ε = {kept!r} does" if math.isfinite(kept) else "no ε does"
        over = kept / asked[0] - 1 if asked[0] > 0 else 0.0
        verdict = f"holds up to rounding ({over:.1e})" if over > 0 else "holds"
        verdict = verdict if holds else f"does NOT hold ({instead})"
        style = "green" if holds else "bold red"
        table.add_row("asked", Text(f"ε = {asked[0]:g}, δ = {asked[1]:g}: {verdict}", style=style))
    for label, text in guarantee.summary():
        alarming = label in ("leak", "warning") or (
            label == "promise" and guarantee.leak is not None
        )
        table.add_row(label, Text(visible(text), style="red" if alarming else ""))
    say_rich(table)
