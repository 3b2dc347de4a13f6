"""What a problem file asks for, verified."""

from __future__ import annotations

import math
from pathlib import Path

import typer

from affinedp.cli.file_kinds import expect
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.files.problem import Problem
from affinedp.files.visible import visible
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.promise.guarantee import Guarantee
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
    expect(data, "data")
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
        from affinedp.neighbours.free_sets import FreeSetAdjacency

        return FreeSetAdjacency(manifold, problem.free_sets, problem.mu)
    if problem.directions is not None:
        from affinedp.neighbours.given_directions import DirectionAdjacency

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
        from affinedp.promise.coordinates import moves_of

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
    check_promise(*wanted)
    return wanted


def check_promise(epsilon: float, delta: float) -> None:
    """Refuse an ε or δ that no promise has.

    Parameters
    ----------
    epsilon, delta : float
        From the options, or from a file.
    """
    if not (math.isfinite(epsilon) and epsilon >= 0.0):
        raise AffineDPError(f"ε must be a number from 0 on, not {epsilon:g} (--epsilon)")
    if not 0.0 <= delta < 1.0:
        raise AffineDPError(f"δ must be at least 0 and less than 1, not {delta:g} (--delta)")
