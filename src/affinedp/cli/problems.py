"""``affinedp discover``, ``verify`` and ``design``: equations, and noise that knows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.exits import KEPT, NOT_KEPT
from affinedp.cli.file_kinds import expect
from affinedp.cli.output import mechanism_as_json, promise_as_json, say_prose, say_table, warn
from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.files.problem import Problem
    from affinedp.privacy.guarantee import Guarantee

AnyLaw = Literal["auto", "gaussian", "laplace", "knorm", "staircase", "productnorm"]
# The law that each of the paper's algorithms is for.
PAPER: Mapping[str, Literal["gaussian", "laplace"]] = MappingProxyType(
    {"algorithm1": "gaussian", "algorithm2": "laplace"}
)
_PROBLEM = Argument(..., help="Problem in TOML or JSON.", show_default=False)
_OF_NOISE = partial(Option, rich_help_panel="Noise whose loss is told")
_SEARCH = partial(Option, rich_help_panel="Where to look")
_PAPER = partial(Option, rich_help_panel="The paper's algorithms")
_CHECK_AGAINST = Option(
    None, help="Private data: say on stderr which equations it obeys that were not given."
)


def discover(
    data: Path = Argument(..., help="Private data, CSV, Parquet or Excel.", show_default=False),
    given: list[str] | None = Option(
        None, metavar="EQUATION", help="An equation that is known already; repeatable."
    ),
    as_toml: bool = Option(False, "--toml", help="Print TOML to paste."),
    design: Path | None = _OF_NOISE(None, help="A saved mechanism (default: independent noise)."),
    law: Literal["gaussian", "laplace"] | None = _OF_NOISE(None, help="Its law (default: by δ)."),
    epsilon: float = _OF_NOISE(1.0, help="What it was meant for."),
    delta: float = _OF_NOISE(0.0, help="δ that goes with it."),
    mu: float = _OF_NOISE(1.0, help="How far one number may move."),
    rows: bool = _SEARCH(True, help="Look for equations between rows too."),
    lag: list[int] | None = _SEARCH(None, metavar="ROWS", help="Rows to look back; repeatable."),
    order: str | None = _SEARCH(None, help="Column that orders the rows in time."),
    by: list[str] | None = _SEARCH(
        None, metavar="COLUMN", help="Column that labels groups of rows; repeatable."
    ),
    chance: float = _SEARCH(1e-4, help="Equations by chance that are accepted."),
    seed: int = _SEARCH(0, help="Which rows and columns are looked at."),
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
        order=order,
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
            say_prose(line)

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
    law: AnyLaw | None = Option(
        None,
        metavar="LAW",
        help="gaussian, laplace, knorm, staircase, productnorm or auto, the least error "
        "(default: problem's, or auto).",
    ),
    epsilon: float | None = Option(None, help="ε to keep."),
    delta: float | None = Option(None, help="δ to keep (Gaussian)."),
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
    method: Literal["optimal", "algorithm1", "algorithm2"] = _PAPER(
        "optimal",
        metavar="METHOD",
        help="algorithm1 (Gaussian) or algorithm2 (Laplace), in place of the least noise.",
    ),
    basis: Path | None = _PAPER(None, help="CSV file with Λ̄, a row per output."),
    covariance: Path | None = _PAPER(
        None, help="CSV file with Σ of algorithm1, in coordinates of Λ̄."
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
    from affinedp.designs.choose import design as least_noise
    from affinedp.designs.gaussian import design_gaussian
    from affinedp.designs.laplace import design_laplace
    from affinedp.files.documents import matrix
    from affinedp.files.problem import read_problem

    expect(problem, "problem")
    if output is None and not preview:
        raise AffineDPError("say where the mechanism goes: -o FILE; or look first: --preview")
    if output is not None and preview:
        raise AffineDPError("--preview writes nothing: leave out -o")
    read = read_problem(problem)
    say_forgotten(read, check_against)
    own = PAPER.get(method)
    chosen = law or own or read.law
    if own not in (None, chosen):
        raise AffineDPError(f"{method} designs {own} noise, not {chosen}")
    epsilon, delta = kept(epsilon, delta, read, chosen == "gaussian")
    integers = integers or read.integers
    asked: dict[str, Any] = {
        "epsilon": epsilon,
        "query": read.query,
        "adjacency": read.adjacency,
    }
    if own is None:
        if basis or covariance:
            raise AffineDPError(
                "a basis or a covariance goes with --method algorithm1 or algorithm2"
            )
        asked |= {"law": chosen or "auto", "releases": releases, "objective": objective}
        mechanism = least_noise(read.manifold, delta=delta, integers=integers, **asked)
    else:
        if (releases, objective, integers) != (1, "sum", False):
            raise AffineDPError(
                "planned releases, objectives and integers go with --method optimal"
            )
        if own == "laplace" and covariance:
            raise AffineDPError(
                "algorithm2 takes a basis and scales it; a covariance is for algorithm1"
            )
        for name, file in (("basis", basis), ("covariance", covariance)):
            if file is not None:
                asked[name] = matrix(file.name, f"--{name}", file.parent, None).numbers
        asked["method"] = method
        if own == "gaussian":
            mechanism = design_gaussian(read.manifold, delta=delta, **asked)
        else:
            mechanism = design_laplace(read.manifold, **asked)
    mechanism = mechanism.with_names(read.output_names)
    if output is not None:
        mechanism.save(output)
    written = "\nnothing was written" if preview else ""
    return Answer(mechanism_as_json(mechanism), f"{mechanism.report()}{written}")


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
