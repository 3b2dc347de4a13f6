"""What a problem file asks for, designed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from affinedp.cli.problems import adjacency_of, check_promise, manifold_of
from affinedp.designs.choose import LAW_NAMES, LAWS, AnyLaw, design
from affinedp.designs.gaussian import design_gaussian
from affinedp.designs.laplace import design_laplace
from affinedp.errors import AffineDPError
from affinedp.files.matrices import matrix
from affinedp.files.problem import Problem
from affinedp.mechanism import Mechanism
from affinedp.promise.least_possible import Objective


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
    check_promise(epsilon, delta)
    law = law or "auto"
    if law not in ("auto", *LAWS):
        raise AffineDPError(f"law must be one of auto, {', '.join(LAWS)}, not {law!r}")
    if law == "gaussian" and not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    if law not in ("auto", "gaussian") and delta:
        name = LAW_NAMES[law]
        raise AffineDPError(
            f"{name} noise is designed for δ = 0: leave out --delta (delta in [privacy]), or give "
            "--law auto, which takes the law with the least error"
        )
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
    return designed.with_names(problem.output_names)
