"""Least squares over agents: integers of records, the promise about a record, and the fit."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.budget.ledger import LedgerError
from affinedp.consensus import PrivateRegression
from affinedp.consensus.regression import GRID_BITS, Moments

RANGES = {"a": (0.0, 10.0), "b": (-1.0, 1.0), "y": (0.0, 100.0)}


def made(rows: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0, 10, rows), rng.uniform(-1, 1, rows)
    return {"a": a, "b": b, "y": 20 + 5 * a - 8 * b + rng.normal(size=rows)}


values = st.floats(allow_nan=False, allow_infinity=False)
record = st.fixed_dictionaries({"a": values, "b": values, "y": values})


@settings(max_examples=200, deadline=None)
@given(
    records=st.lists(record, min_size=0, max_size=6),
    one=record,
    other=record,
    norm=st.floats(0.01, 2.0),
)
def test_neighbours_are_as_near_as_stated(
    records: list[dict], one: dict, other: dict, norm: float
) -> None:
    """Exact differences of integer sums, of any records whatever, in rational arithmetic."""
    moments = Moments(RANGES, norm)

    def sums(chosen: list[dict]) -> np.ndarray:
        return moments.sums({name: np.array([r[name] for r in chosen]) for name in RANGES})

    with np.errstate(over="ignore"):
        joined = sums([*records, one]) - sums(records)
        replaced = sums([*records, one]) - sums([other, *records])
    for difference, replace in ((joined, False), (replaced, True)):
        squared = sum(int(step) ** 2 for step in difference)
        assert squared <= moments.sensitivity(replace) ** 2


def test_sums_are_those_of_the_records() -> None:
    data = made(500, 0)
    moments = Moments(RANGES, 2.0)
    scaled = [np.ones(500)]
    for name, (low, high) in RANGES.items():
        scaled.append((2 * data[name] - low - high) / (high - low))
    rows = np.clip(np.column_stack(scaled), -1, 1)
    matrix = moments.matrix(np.ldexp(moments.sums(data).astype(float), -GRID_BITS))
    assert matrix == pytest.approx(rows.T @ rows, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("neighbours", ["join", "replace"])
def test_the_promise_holds_for_the_integers_that_are_drawn(neighbours: str) -> None:
    learning = PrivateRegression(nx.path_graph(3), RANGES, 0.5, 1e-7, adjacency=neighbours)
    guarantee = learning.guarantee
    assert guarantee.holds(0.5, 1e-7)
    farthest = learning.moments.sensitivity(neighbours == "replace")
    assert farthest / learning.mechanism.strategy.scale < Fraction(guarantee.sensitivity)
    assert guarantee.delta(0.5) == pytest.approx(1e-7, rel=1e-6)
    assert f"{'joins' if neighbours == 'join' else 'changes'}" in guarantee.neighbours


def test_released_sums_have_the_stated_noise(tmp_path) -> None:
    learning = PrivateRegression(nx.path_graph(2), RANGES, 1.0, 1e-6)
    data = made(50, 1)
    exact = np.ldexp(learning.moments.sums(data).astype(float), -GRID_BITS)
    drawn = np.array([learning.release(data) for _ in range(300)]) - exact
    assert drawn.std() == pytest.approx(learning.sigma, rel=5 / math.sqrt(2 * drawn.size))
    ledger = adp.Ledger(
        tmp_path / "l.db", epsilon=1.0, delta=1e-5, protects="one record of one agent"
    )
    learning.release(data, ledger=ledger, label="one")
    assert ledger.spent > 0.8
    with pytest.raises(adp.AffineDPError):
        learning.release(data, ledger=ledger)


@pytest.mark.parametrize("neighbours", ["join", "replace"])
def test_the_mechanism_is_saved_and_loaded_like_any_other(tmp_path, neighbours) -> None:
    made_of = PrivateRegression(nx.path_graph(2), RANGES, 1.0, 1e-6, adjacency=neighbours)
    made_of.mechanism.save(tmp_path / "m.json")
    loaded = adp.Mechanism.load(tmp_path / "m.json")
    assert loaded.fingerprint == made_of.mechanism.fingerprint
    assert str(loaded.guarantee) == str(made_of.guarantee)
    assert "one record" in str(loaded)
    released = loaded.release(made(5, 0))
    low, high = loaded.interval(released)
    assert len(released) == 10
    assert (high - low > made_of.sigma).all()


def test_much_data_gives_the_coefficients() -> None:
    learning = PrivateRegression(nx.cycle_graph(4), RANGES, 1.0, 1e-6)
    parts = [made(100_000, seed) for seed in range(4)]
    released = [learning.release(part) for part in parts]
    learned = learning.learn(released)
    assert learned.coefficients[0] == pytest.approx([20, 5, -8], abs=0.2)
    assert np.ptp(learned.coefficients, axis=0) == pytest.approx(0, abs=1e-6)
    assert learned.predict({"a": [1.0], "b": [0.0]})[0] == pytest.approx(25, abs=0.3)


def test_without_noise_it_is_least_squares() -> None:
    learning = PrivateRegression(nx.path_graph(2), RANGES, 500.0, 0.5, ridge=0.0)
    parts = [made(2000, 1), made(1000, 2)]
    both = {name: np.concatenate([part[name] for part in parts]) for name in RANGES}
    columns = np.column_stack([np.ones(3000), both["a"], both["b"]])
    plain = np.linalg.lstsq(columns, both["y"], rcond=None)[0]
    learned = learning.simulate(parts, seed=0)
    assert learned.coefficients[1] == pytest.approx(plain, abs=0.05)
    central = learning.simulate(parts, seed=0, curator="central")
    assert central.coefficients[0] == pytest.approx(plain, abs=0.05)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranges": {"y": (0, 1)}}, "at least one feature"),
        ({"ranges": {"a": (1, 1), "y": (0, 1)}}, "low, high"),
        ({"ranges": {"a": (-1e308, 1e308), "y": (0, 1)}}, "choose another unit"),
        ({"ranges": {"a": (0, 1e-300), "y": (0, 1)}}, "choose another unit"),
        ({"ranges": {1: (0, 1), "1": (0, 2), "y": (0, 1)}}, "same name"),
        ({"ranges": {"a": (0, 1, 2), "y": (0, 1)}}, "low, high"),
        ({"ranges": {"a": (0, "1"), "y": (0, 1)}}, "range of 'a'"),
        ({"ranges": {"a": None, "y": (0, 1)}}, "range of 'a'"),
        ({"ranges": [("a", 0, 1)]}, "ranges maps"),
        ({"norm": 0.0}, "norm"),
        ({"norm": "1"}, "norm"),
        ({"norm": True}, "norm"),
        ({"epsilon": [1.0]}, "epsilon"),
        ({"delta": Decimal("0.12345678901234567890123")}, "delta has more digits"),
        ({"ridge": 1j}, "ridge"),
        ({"norm": 1e-8}, "norm"),
        ({"ridge": -1.0}, "ridge"),
        ({"epsilon": 1e20, "delta": 0.5}, "hardly any noise"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"graph": nx.empty_graph(3)}, "no link"),
        ({"delta": 0.0}, "delta|sensitivity|δ"),
    ],
)
def test_bad_input_gets_an_error(change: dict, words: str) -> None:
    arguments = {
        "graph": nx.path_graph(3),
        "ranges": RANGES,
        "epsilon": 1.0,
        "delta": 1e-6,
    } | change
    with pytest.raises(adp.AffineDPError, match=words):
        PrivateRegression(
            arguments.pop("graph"),
            arguments.pop("ranges"),
            arguments.pop("epsilon"),
            arguments.pop("delta"),
            **arguments,
        )


def test_bad_data_gets_an_error() -> None:
    learning = PrivateRegression(nx.path_graph(2), RANGES, 1.0, 1e-6)
    data = made(5, 0)
    for change, words in (
        ({"a": [1.0]}, "different lengths"),
        ({"a": [float("nan")] * 5}, "a"),
        ({"a": ["x"] * 5}, "a"),
    ):
        with pytest.raises(adp.AffineDPError, match=words):
            learning.release(data | change)
    with pytest.raises(adp.AffineDPError, match="no column 'b'"):
        learning.release({"a": data["a"], "y": data["y"]})
    with pytest.raises(adp.AffineDPError, match="parts"):
        learning.simulate([data])
    with pytest.raises(adp.AffineDPError, match="sums for each"):
        learning.learn([np.zeros(3)])
    with pytest.raises(adp.AffineDPError, match="finite"):
        learning.learn([np.zeros(10), np.full(10, np.nan)])
    with pytest.raises(adp.AffineDPError, match="rounds"):
        learning.learn([np.zeros(10)] * 2, rounds=-1)


@pytest.mark.parametrize("ends", [(-1e150, 1e150), (1e150 * 0.999, 1e150), (0.0, 1e-150), (-5, 5)])
@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324, -0.0, 1e150, -1e150, 10**400, 2**63])
@pytest.mark.filterwarnings("error")
def test_no_value_moves_sums_farther_than_stated(ends: tuple[float, float], value: float) -> None:
    moments = Moments({"a": ends, "y": (0.0, 1.0)}, math.sqrt(3))
    steps = moments.sums({"a": [value], "y": [1.0]})
    assert sum(int(step) ** 2 for step in steps) <= moments.sensitivity(False) ** 2


def test_integers_are_cut_as_floats_are() -> None:
    """A refusal would tell neighbours apart: one of them has a record that is far out."""
    moments = Moments(RANGES, 2.0)
    far = [moments.sums({"a": a, "b": [0.5], "y": [1]}) for a in ([1e30], [10**30], [2**60 + 1])]
    assert (far[0] == far[1]).all()
    assert (far[0] == far[2]).all()


def test_masked_values_are_no_data() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    with pytest.raises(adp.AffineDPError, match="masked"):
        Moments(RANGES, 2.0).sums({"a": masked, "b": [0.0, 0.0], "y": [1.0, 1.0]})


def test_a_ledger_does_not_take_a_change_for_a_record_that_joins(tmp_path) -> None:
    join, replace = (
        PrivateRegression(nx.path_graph(2), RANGES, 0.1, 1e-7, adjacency=neighbours)
        for neighbours in ("join", "replace")
    )
    with adp.Ledger(tmp_path / "l.db", epsilon=1, delta=1e-5, protects="one record") as ledger:
        join.release(made(5, 0), ledger=ledger)
        with pytest.raises(LedgerError, match="same_secret=True"):
            replace.release(made(5, 0), ledger=ledger)
