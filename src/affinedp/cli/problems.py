"""What a problem file asks for, done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import typer

from affinedp.designs.choose import LAW_NAMES, LAWS, AnyLaw, design
from affinedp.designs.gaussian import design_gaussian
from affinedp.designs.laplace import design_laplace
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.files.matrices import matrix
from affinedp.files.problem import Problem
from affinedp.files.visible import visible
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency, DirectionAdjacency, FreeSetAdjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.promise.coordinates import moves_of
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.least_possible import Objective
from affinedp.promise.verification import resolve_query
from affinedp.promise.verification import verify as verify_noise


def manifold_of(problem: Problem) -> AffineManifold:
    """Build the manifold that a problem describes.

    Parameters
    ----------
    problem : Problem
        What the file says.
    """
    if problem.equations is not None:
        return AffineManifold.from_equations(
            problem.equations, public_entries=problem.public_entries
        )
    assert problem.coefficients is not None
    return AffineManifold(
        problem.coefficients, problem.offsets, problem.names, problem.public_entries
    )


def say_forgotten(problem: Problem, data: Path | None) -> None:
    """Tell the curator, on stderr, which equations data obeys that the problem does not give.

    Parameters
    ----------
    problem : Problem
        As it was read.
    data : Path or None
        Private data; None says nothing.
    """
    if data is None:
        return
    from affinedp.files.data import read_table
    from affinedp.relations.forgotten import forgotten_equations

    found = forgotten_equations(manifold_of(problem), read_table(data, long_numbers="text"))
    for equation in found:
        typer.echo(f"not given, but the data obeys: {visible(equation)}", err=True)


def adjacency_of(problem: Problem, manifold: AffineManifold) -> Adjacency:
    """Build the neighbours that a problem describes.

    Parameters
    ----------
    problem : Problem
        What the file says.
    manifold : AffineManifold
        Its equations.
    """
    if problem.free_sets is not None:
        return FreeSetAdjacency(manifold, problem.free_sets, problem.mu)
    if problem.directions is not None:
        return DirectionAdjacency(manifold, problem.directions)
    return CircuitAdjacency(manifold, problem.mu)


def verify_problem(problem: Problem) -> Guarantee:
    """Verify the noise that a problem describes.

    Parameters
    ----------
    problem : Problem
        What the file says.
    """
    if problem.law is None:
        raise AffineDPError(
            "the problem has no [noise] section: say law = 'gaussian' or 'laplace' and scale, "
            "matrix or covariance; or law = 'knorm' and hull or matrix"
        )
    manifold = manifold_of(problem)
    adjacency = adjacency_of(problem, manifold)
    points = problem.noise_matrix
    if problem.hull is not None:
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


@dataclass(frozen=True)
class Algorithm:
    """How noise is designed.

    Attributes
    ----------
    law : str or None
        The law that the method is for; None where it is for both.
    options : mapping
        What the design function takes.
    """

    law: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def algorithm_of(method: str, law: str, basis: Path | None, covariance: Path | None) -> Algorithm:
    """Return the method that was asked for, with its matrices read, or refuse it.

    Parameters
    ----------
    method : str
        ``optimal``, ``algorithm1`` or ``algorithm2``.
    law : str
        The law that was asked for; empty where none was.
    basis, covariance : Path or None
        CSV files.
    """
    laws = {"optimal": None, "algorithm1": "gaussian", "algorithm2": "laplace"}
    if method not in laws:
        raise AffineDPError(f"method must be optimal, algorithm1 or algorithm2, not {method!r}")
    if law and laws[method] not in (None, law):
        raise AffineDPError(f"{method} designs {laws[method]} noise, not {law}")
    if method == "optimal" and (basis or covariance):
        raise AffineDPError("a basis or a covariance goes with --method algorithm1 or algorithm2")
    if method == "algorithm2" and covariance:
        raise AffineDPError(
            "algorithm2 takes a basis and scales it; a covariance is for algorithm1"
        )
    options: dict[str, Any] = {} if method == "optimal" else {"method": method}
    for name, file in (("basis", basis), ("covariance", covariance)):
        if file is not None:
            options[name] = matrix(file.name, f"--{name}", file.parent, None).numbers
    return Algorithm(laws[method], options)


@dataclass(frozen=True)
class Plan:
    """What the noise is for.

    Attributes
    ----------
    releases : int
        How many releases are planned.
    objective : str
        ``sum`` or ``largest``.
    integers : bool
        Whether the data is whole, and published so.
    confined : bool
        Whether the data lies in a bounded region, so that no bound below all laws is certified.
    """

    releases: int = 1
    objective: str = "sum"
    integers: bool = False
    confined: bool = False


def design_problem(
    problem: Problem,
    law: str | None,
    epsilon: float | None,
    delta: float | None,
    algorithm: Algorithm | None = None,
    plan: Plan | None = None,
) -> Mechanism:
    """Design the noise that a problem asks for.

    Parameters
    ----------
    problem : Problem
        What the file says.
    law, epsilon, delta : optional
        Instead of the file's; without a law the one with the least error.
    algorithm : Algorithm, optional
        How; by default the optimum.
    plan : Plan, optional
        What for; by default one release with the least sum of squared errors.
    """
    algorithm, plan = algorithm or Algorithm(), plan or Plan()
    epsilon = problem.epsilon if epsilon is None else epsilon
    delta = (problem.delta if delta is None else delta) or 0.0
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    law = law or "auto"
    if law not in ("auto", *LAWS):
        raise AffineDPError(f"law must be one of auto, {', '.join(LAWS)}, not {law!r}")
    if law == "gaussian" and not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    if law not in ("auto", "gaussian") and delta:
        name = LAW_NAMES[law]
        raise AffineDPError(f"{name} noise is designed for δ = 0; leave delta out")
    manifold = manifold_of(problem)
    shared: dict[str, Any] = {
        "epsilon": epsilon,
        "query": problem.query,
        "adjacency": adjacency_of(problem, manifold),
    }
    if not algorithm.options:
        designed = design(
            manifold, delta=delta, law=cast(AnyLaw, law), releases=plan.releases,
            objective=cast(Objective, plan.objective), integers=plan.integers,
            confined=plan.confined, **shared,
        )  # fmt: skip
    elif plan != Plan():
        raise AffineDPError("planned releases, objectives and integers go with --method optimal")
    elif algorithm.law == "gaussian":
        designed = design_gaussian(manifold, delta=delta, **shared, **algorithm.options)
    else:
        designed = design_laplace(manifold, **shared, **algorithm.options)
    named = designed.guarantee.with_output_names(problem.output_names)
    return replace(designed, guarantee=named, output_names=problem.output_names)


def asked_promise(
    problem: Problem, epsilon: float | None, delta: float | None
) -> tuple[float, float] | None:
    """Return the promise that is asked for, if any: options first, then the problem file.

    Parameters
    ----------
    problem : Problem
        What the file says.
    epsilon, delta : float or None
        The options.
    """
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
