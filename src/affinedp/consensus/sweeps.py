"""Many settings at once: graphs × laws × ε × runs, on all cores or on a cluster.

Tasks go through joblib, so ``joblib.parallel_config(backend=...)`` decides where they run: loky
(the cores of this machine), Dask or Ray.  A task carries a recipe and a seed, not arrays, and the
answer is the same wherever it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.private import PrivateConsensus
from affinedp.consensus.runs import READOUTS, mean_and_error
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array, whole_number
from affinedp.laws.base import LawName

MOST_RUNS = 10**9


@dataclass(frozen=True, eq=False)
class SweepRow:
    """The errors of one setting.

    Attributes
    ----------
    graph : str
        The name of the graph.
    law : {"gaussian", "laplace"}
        The law of the noise.
    epsilon : float
        What was asked for.
    readout : {"state", "message", "corrected"}
        Which estimate of the average.
    agents, runs : int
        How many.
    sigma : float
        The largest σ_i.
    mean_square : array, shape (steps + 1,)
        Mean over the runs of ‖read-out(t) − average‖².
    standard_error : array, shape (steps + 1,)
        Of ``mean_square``.
    limit : float
        Its exact limit.
    """

    graph: str
    law: LawName
    epsilon: float
    readout: str
    agents: int
    runs: int
    sigma: float
    mean_square: FloatArray = field(repr=False)
    standard_error: FloatArray = field(repr=False)
    limit: float


def sweep(
    graphs: Mapping[str, Callable[[], Any]],
    *,
    epsilons: Sequence[float],
    laws: Sequence[LawName] = ("gaussian", "laplace"),
    delta: float = 0.01,
    mu: float = 1.0,
    weights: str | None = None,
    initial: tuple[float, float] = (0.0, 1.0),
    steps: int = 30,
    runs: int = 500,
    runs_per_task: int = 500,
    seed: int = 0,
) -> list[SweepRow]:
    """Simulate every combination and return the errors of all three read-outs.

    Parameters
    ----------
    graphs : mapping of name to callable
        Each makes a graph or a weight matrix, in the worker: for example
        ``functools.partial(networkx.random_geometric_graph, 500, 0.1, seed=1)``.
    epsilons : sequence of float
        The values of ε.
    laws : sequence of {"gaussian", "laplace"}
        The laws of the noise.
    delta : float
        δ of Gaussian noise.
    mu : float
        How far the trajectory of an agent moves between neighbours.
    weights : {"metropolis", "uniform"}, optional
        In place of the weights of the graphs.
    initial : (low, high)
        x_i(0) is uniform between these; the same for all settings of one graph.
    steps, runs : int
        How many.
    runs_per_task : int
        How many runs one task takes; more tasks keep more workers busy.
    seed : int
        Of everything random.

    Returns
    -------
    list of SweepRow

    Examples
    --------
    >>> from functools import partial
    >>> import networkx as nx
    >>> ring = partial(nx.cycle_graph, 8)
    >>> rows = sweep({"ring": ring}, epsilons=[1.0], laws=["laplace"], runs=50)
    >>> [(row.readout, round(row.limit, 3)) for row in rows]
    [('state', 14.0), ('message', 2.0), ('corrected', 1.75)]
    """
    import joblib

    if not isinstance(graphs, Mapping) or not graphs or not all(map(callable, graphs.values())):
        raise AffineDPError(
            "graphs must map names to functions that make a graph, such as "
            "functools.partial(networkx.cycle_graph, 100): tasks carry recipes, not arrays"
        )
    runs, most = (
        whole_number(runs, "runs", 2, MOST_RUNS),
        whole_number(runs_per_task, "runs_per_task", 2),
    )
    ends = real_array(initial, "initial", 1)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise AffineDPError(f"initial must be a range of values, not {initial!r}")
    if not isinstance(laws, Sequence) or isinstance(laws, str):
        raise AffineDPError(f"laws must be a list of laws, not {laws!r}")
    chosen = real_array(epsilons, "epsilons", 1).tolist()
    tasks: list[tuple[tuple[str, LawName, float], Any]] = []
    root = np.random.SeedSequence(whole_number(seed, "seed", 0))
    for (name, make), graph_seed in zip(graphs.items(), root.spawn(len(graphs))):
        value_seed, noise_root = graph_seed.spawn(2)
        for law in laws:
            for epsilon in chosen:
                settings = {"law": law, "epsilon": epsilon, "mu": mu, "weights": weights}
                settings["delta"] = delta if law == "gaussian" else 0.0
                shares = _shares(runs, most)
                for share, noise_seed in zip(shares, noise_root.spawn(len(shares))):
                    work = joblib.delayed(_work)(
                        make, settings, ends, steps, share, value_seed, noise_seed
                    )
                    tasks.append(((name, law, epsilon), work))
    groups: dict[tuple[str, LawName, float], list[_Errors]] = {}
    for (setting, _), found in zip(tasks, joblib.Parallel()(work for _, work in tasks)):
        groups.setdefault(setting, []).append(found)
    return [row for setting, found in groups.items() for row in _rows(setting, found)]


def _shares(runs: int, most: int) -> list[int]:
    """Split the runs evenly into tasks of at least 2."""
    count = max(1, min(math.ceil(runs / most), runs // 2))
    return [runs // count + (i < runs % count) for i in range(count)]


# The agents, their largest σ, the limit by read-out, and squared errors by read-out, run and step.
_Errors = tuple[int, float, list[float], list[FloatArray]]


def _work(
    make: Callable[[], Any],
    settings: Mapping[str, Any],
    initial: FloatArray,
    steps: int,
    runs: int,
    value_seed: np.random.SeedSequence,
    noise_seed: np.random.SeedSequence,
) -> _Errors:
    """Run one task."""
    consensus = PrivateConsensus(make(), **settings)
    values = np.random.default_rng(value_seed).uniform(initial[0], initial[1], consensus.n)
    run = consensus.run(values, steps, runs, noise_seed, keep="errors")
    limits = [consensus.limit(readout) for readout in READOUTS]
    squares = [run.squared_error(readout) for readout in READOUTS]
    return consensus.n, float(consensus.sigma.max()), limits, squares


def _rows(setting: tuple[str, LawName, float], found: Sequence[_Errors]) -> Iterator[SweepRow]:
    """Yield the errors of one setting, by read-out."""
    agents, sigma, limits, _ = found[0]
    for place, readout in enumerate(READOUTS):
        squares = np.concatenate([one[3][place] for one in found])
        errors = mean_and_error(squares)
        yield SweepRow(*setting, readout, agents, len(squares), sigma, *errors, limits[place])
