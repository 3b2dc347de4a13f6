"""Trees of rows that split one total column: designed as margins at places, at every size."""

import itertools

import numpy as np
import pandas as pd
import pytest

from affinedp.budget.ledger import Ledger
from affinedp.strategies.places import OfPlaces
from affinedp.tables import TableRelease, with_total_rows
from affinedp.tables import design as designs
from affinedp.tables.layout import layout_of
from affinedp.tables.least_noise import table_noise
from affinedp.tables.neighbours import manifold_of, neighbours_of
from affinedp.tables.split import split_of

LEVELS = ["state", "county"]
PARTS = ["a", "b", "c"]


def counties(states, each, parts=2, seed=0):
    """Counts of counties with all totals, in an order of their own."""
    generator = np.random.default_rng(seed)
    rows = [(f"s{s}", f"c{s}-{c}") for s, c in itertools.product(range(states), range(each))]
    cells = pd.DataFrame(rows, columns=LEVELS)
    for name in PARTS[:parts]:
        cells[name] = generator.integers(0, 40, len(cells))
    table = with_total_rows(cells, LEVELS, PARTS[:parts])
    table.insert(3, "all", table[PARTS[:parts]].sum(axis=1))
    return table.sample(frac=1, random_state=seed, ignore_index=True)


def release(parts=2, **options):
    return TableRelease(hierarchy=LEVELS, totals={"all": PARTS[:parts]}, **options)


def adds_up(table, parts=2):
    names = ["all", *PARTS[:parts]]
    cells = table[table["county"].notna()]
    states = table[table["county"].isna() & table["state"].notna()].set_index("state")
    top = table[table["state"].isna()]
    by_state = cells.groupby("state")[names].sum().loc[states.index]
    assert np.allclose(by_state, states[names], atol=1e-7)
    assert np.allclose(cells[names].sum(), top[names].iloc[0], atol=1e-7)
    assert np.allclose(table[PARTS[:parts]].sum(axis=1), table["all"], atol=1e-7)


@pytest.mark.parametrize("weights", [None, "levels"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_973_rows_are_designed_and_released(delta, weights):
    table = counties(12, 80)
    out = release(epsilon=1.0, delta=delta, weights=weights, round_to=1).release(table)
    assert isinstance(out.design.mechanism.strategy, OfPlaces)
    assert out.guarantee.holds(1.0, delta)
    adds_up(out.table)
    assert (out.table.dtypes[["all", "a", "b"]] == np.int64).all()
    # noise on the cells, added up, costs 21,212 and 5,750
    assert out.design.weighted_error < (151 if weights else 15_213)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("round_to", [None, 1])
@pytest.mark.parametrize("move", ["person", "replace"])
@pytest.mark.parametrize("law", [None, "gaussian"])
def test_every_number_is_near_its_own(law, move, round_to, nonnegative, monkeypatch):
    """With next to no noise the published table is the true one, whatever the order of rows."""
    monkeypatch.setattr(designs, "MANY", 60)
    table = counties(5, 10, parts=3)
    options = {"adjacency": move, "round_to": round_to, "nonnegative": nonnegative}
    if law:
        options |= {"law": law, "delta": 0.1}
    asked = release(3, epsilon=30.0, **options)
    out = asked.release(table)
    assert out.design.tree
    assert out.design.split is not None
    names = ["all", *PARTS]
    off = (out.table[names] - table[names]).abs().to_numpy()
    assert off.max() <= 8 * out.design.deviations.max() + out.design.rounding[1].max()
    assert off.max() < 12
    adds_up(out.table, 3)
    if nonnegative:
        assert (out.table[names] >= 0).all(axis=None)
    if move == "replace":
        assert out.table.loc[table["state"].isna(), "all"].item() == pytest.approx(
            table.loc[table["state"].isna(), "all"].item()
        )
    lower, upper = out.interval(1 - 1e-9, simultaneous=True)
    assert (lower[names] <= table[names]).all(axis=None)
    assert (table[names] <= upper[names]).all(axis=None)


def test_what_a_result_offers(tmp_path):
    table = counties(4, 14)
    ledger = Ledger(tmp_path / "budget.db", epsilon=2.0, protects="one person")
    out = release(epsilon=1.0).release(table, ledger=ledger)
    assert ledger.spent == pytest.approx(1.0)
    assert "one person more or less" in str(out.report())
    found = out.function("a - b", level=0.9)
    assert np.allclose(found.value, out.table["a"] - out.table["b"])


@pytest.mark.parametrize(
    ("options", "size"),
    [({}, 1), ({"household": 2, "at_most": 3}, 6), ({"adjacency": "replace"}, 1)],
)
@pytest.mark.parametrize("promise", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}])
def test_the_promise_is_about_the_people_of_the_table(promise, options, size):
    """Every move of the table's own list is measured within what the guarantee says."""
    table = counties(4, 14)
    law = {"law": "gaussian"} if "delta" in promise else {}
    asked = release(**promise, **options, **law, whole=True)
    layout = layout_of(asked, table)
    split = split_of(layout)
    found = designs._split_design(asked, layout, split, split.weights(None))
    who = neighbours_of(asked, layout, manifold_of(layout))
    moves = who.adjacency.directions()
    cells = np.array([split.counts(move).ravel() for move in moves.T]).T
    mechanism = found.mechanism
    seen = mechanism.noise.gauges(mechanism.strategy.measure(cells.astype(float)))
    assert seen.upper.max() == pytest.approx(mechanism.guarantee.sensitivity, rel=1e-6)
    assert mechanism.adjacency.size == size


@pytest.mark.parametrize(
    ("states", "each", "weights", "delta"),
    [(3, 12, None, 0.0), (3, 12, "levels", 0.0), (12, 3, "levels", 1e-6), (2, 20, None, 3e-2),
     (5, 5, {"all": 4.0}, 0.0)],
)  # fmt: skip
def test_never_worse_than_noise_on_all_numbers(states, each, weights, delta):
    table = counties(states, each)
    asked = release(epsilon=0.7, delta=delta, weights=weights)
    layout = layout_of(asked, table)
    split, given = split_of(layout), layout.weights(weights)
    found = designs._split_design(asked, layout, split, split.weights(given))
    who = neighbours_of(asked, layout, manifold_of(layout))
    listed, _ = table_noise(asked, layout, who.adjacency, given, 1)
    errors = listed.expected_squared_errors
    other = float(errors.sum() if given is None else errors @ given)
    assert found.weighted_error <= other * 1.001
    assert found.compared[0].error >= found.weighted_error * (1 - 1e-9)


@pytest.mark.parametrize(
    "other",
    [
        {"public": ["all"]},
        {"weights": {"a": 3.0}},
        {"whole": False},
        {"adjacency": "circuits", "delta": 1e-6, "law": "gaussian"},
        {"impossible": [{"county": "c0-1"}]},
    ],
)
def test_other_tables_go_another_way(other):
    asked = release(**{"epsilon": 1.0} | other)
    layout = layout_of(asked, counties(5, 10))
    split = split_of(layout) if designs._goes_as_split(asked, layout) else None
    assert split is None or split.weights(layout.weights(asked.weights)) is None
