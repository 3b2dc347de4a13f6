"""Sweeps: the same numbers on one core, on several processes and on a Dask cluster."""

from functools import partial

import joblib
import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from affinedp.consensus import PrivateConsensus, sweep
from affinedp.errors import AffineDPError

GRAPHS = {"ring": partial(nx.cycle_graph, 6), "regular": partial(nx.random_regular_graph, 3, 8, 1)}
SETTINGS = {"epsilons": [0.5, 2.0], "delta": 0.01, "steps": 6, "runs": 40, "runs_per_task": 15}


@pytest.fixture(scope="module")
def rows():
    return sweep(GRAPHS, **SETTINGS)


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert (a.graph, a.law, a.epsilon, a.readout) == (b.graph, b.law, b.epsilon, b.readout)
        assert_array_equal(a.mean_square, b.mean_square)
        assert_array_equal(a.standard_error, b.standard_error)


def test_every_combination(rows):
    keys = {(row.graph, row.law, row.epsilon, row.readout) for row in rows}
    assert len(keys) == len(rows) == 2 * 2 * 2 * 3
    assert {row.runs for row in rows} == {40}
    assert {row.agents for row in rows} == {6, 8}
    for row in rows:
        delta = 0.01 if row.law == "gaussian" else 0.0
        graph = GRAPHS[row.graph]()
        consensus = PrivateConsensus(graph, law=row.law, epsilon=row.epsilon, delta=delta)
        assert row.sigma == consensus.sigma[0]
        assert row.limit == consensus.limit(row.readout)
        off = abs(row.mean_square[-1] - row.limit) / row.standard_error[-1]
        assert off < 6  # six steps are not the limit quite


def test_parts_are_put_together_right(rows):
    """Mean and standard error do not depend on how the runs are split, but for the draws."""
    from affinedp.consensus import sweeps

    squares = np.random.default_rng(0).normal(size=(9, 4)) ** 2
    parts = [(2, 1.0, [1.0] * 3, [some] * 3) for some in (squares[:2], squares[2:6], squares[6:])]
    row = next(sweeps._rows(("g", "laplace", 1.0), parts))
    assert_allclose(row.mean_square, squares.mean(axis=0))
    assert_allclose(row.standard_error, squares.std(axis=0, ddof=1) / 3)
    assert sweeps._shares(40, 15) == [14, 13, 13]
    assert sweeps._shares(3, 2) == [3]
    assert sweeps._shares(5, 2) == [3, 2]


@pytest.mark.slow
def test_the_same_on_processes(rows):
    with joblib.parallel_config(backend="loky", n_jobs=2):
        same(sweep(GRAPHS, **SETTINGS), rows)


@pytest.mark.slow
def test_the_same_on_dask(rows):
    distributed = pytest.importorskip("distributed")
    with (
        # threads: that everything can be sent to processes is asked above
        distributed.LocalCluster(2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        same(sweep(GRAPHS, **SETTINGS), rows)


def test_another_seed_gives_other_runs(rows):
    other = sweep(GRAPHS, **SETTINGS, seed=1)
    assert not np.allclose(other[0].mean_square, rows[0].mean_square)


@pytest.mark.parametrize(
    "changed",
    [
        {"graphs": {}},
        {"graphs": [nx.cycle_graph(3)]},
        {"graphs": {"ring": nx.cycle_graph(3)}},
        {"runs": 1},
        {"runs_per_task": 0},
        {"initial": (1.0, 0.0)},
        {"initial": (0.0, np.nan)},
        {"epsilons": [-1.0]},
        {"laws": ["uniform"]},
    ],
)
def test_refusals(changed):
    settings = {"graphs": GRAPHS} | SETTINGS | changed
    with pytest.raises(AffineDPError):
        sweep(settings.pop("graphs"), **settings)
