"""Trees of rows that split one total column: designed as margins at places, at every size."""

import itertools

import numpy as np
import pandas as pd
import pytest

from affinedp.budget.ledger import Ledger
from affinedp.mechanism import Mechanism
from affinedp.strategies.places import OfPlaces
from affinedp.tables import TableRelease, with_total_rows
from affinedp.tables import design as designs
from affinedp.tables.layout import layout_of
from affinedp.tables.least_noise import table_noise
from affinedp.tables.people import manifold_of, neighbours_of
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
    table = counties(2, 2)
    ledger = Ledger(tmp_path / "budget.db", epsilon=2.0, protects="one person")
    out = release(epsilon=1.0).release(table, ledger=ledger)
    assert ledger.spent == pytest.approx(1.0)
    assert "one person more or less, in one cell of the table;" in out.guarantee.neighbours
    assert repr(out.design).startswith("<TableDesign: Noise for a table: ")
    assert "What is promised" in str(out.design)
    found = out.function("a - b", level=0.9)
    assert np.allclose(found.value, out.table["a"] - out.table["b"])
    out.design.mechanism.save(tmp_path / "noise.json")
    again = Mechanism.load(tmp_path / "noise.json")
    assert again.guarantee.sensitivity == out.guarantee.sensitivity
    assert again.fingerprint == out.design.mechanism.fingerprint


@pytest.mark.parametrize(
    ("options", "size"),
    [({}, 1), ({"household": 2, "at_most": 3}, 6), ({"adjacency": "replace"}, 1)],
)
@pytest.mark.parametrize("promise", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}])
def test_the_promise_is_about_the_people_of_the_table(promise, options, size, monkeypatch):
    """Every move of the table's own list is measured within what the guarantee says."""
    monkeypatch.setattr(designs, "MANY", 10)
    table = counties(3, 4)
    law = {"law": "gaussian"} if "delta" in promise else {}
    asked = release(**promise, **options, **law, whole=True)
    layout = layout_of(asked, table)
    split, found = split_of(layout), designs._split_design(asked, layout, None)
    who = neighbours_of(asked, layout, manifold_of(layout))
    moves = who.adjacency.directions()
    cells = np.array([split.counts(move).ravel() for move in moves.T]).T
    mechanism = found.mechanism
    seen = mechanism.noise.gauges(mechanism.strategy.measure(cells.astype(float)))
    assert seen.upper.max() == pytest.approx(mechanism.guarantee.sensitivity, rel=1e-6)
    assert mechanism.adjacency.size == size


@pytest.mark.parametrize("seed", range(6))
def test_never_worse_than_noise_on_listed_numbers(seed):
    """Random trees, weights and promises, against the design that lists what neighbours move."""
    draw = np.random.default_rng(seed)
    parts = int(draw.integers(2, 4))
    table = counties(int(draw.integers(2, 4)), int(draw.integers(2, 5)), parts, seed)
    weights = [None, "levels", {"all": 4.0}][seed % 3]
    asked = release(
        parts, epsilon=float(draw.choice([0.3, 0.7, 2.0])), weights=weights,
        delta=float(draw.choice([0, 1e-6, 1e-3])), adjacency=["person", "replace"][seed // 3],
    )  # fmt: skip
    layout = layout_of(asked, table)
    given = layout.weights(weights)
    found = designs.design_table(asked, layout, len(table))
    who = neighbours_of(asked, layout, manifold_of(layout))
    listed, _ = table_noise(asked, layout, who.adjacency, given, 1)
    errors = listed.expected_squared_errors
    other = float(errors.sum() if given is None else errors @ given)
    assert found.weighted_error <= other * 1.001
    # what was compared was really built, in the same units
    assert min(one.error for one in found.compared) == pytest.approx(found.weighted_error)


@pytest.mark.parametrize(("move", "error"), [("person", 82.3), ("replace", 107.14)])
def test_a_public_total_corrects_noisy_cells(move, error):
    """Where people move, all of them are known in number: cells are projected on that."""
    table = counties(2, 2)
    made = release(epsilon=0.7, adjacency=move, weights="levels").design(table)
    # geometric noise on 8 cells; each number takes k of them, less the share of all: k(1 − k/8)
    scale = 0.7 if move == "person" else 0.35
    variance = 2 * np.exp(-scale) / np.expm1(-scale) ** 2
    taken = {"person": lambda k: k, "replace": lambda k: k * (1 - k / 8)}[move]
    by_level = [[1, 2], [2, 4], [4, 8]]  # parts and all: of leaves, states and the top
    if move == "replace":  # real noise under one sum of 8 is less: 7 times this, for all of it
        variance = min(variance, 4 * 15 / (9 * 0.7**2))
    own = variance * sum(map(taken, itertools.chain.from_iterable(by_level)))
    assert made.weighted_error == pytest.approx(own, rel=1e-6)
    assert made.weighted_error == pytest.approx(error, rel=1e-3)


def test_weights_that_are_no_product_go_the_same_way_at_size():
    made = release(epsilon=1.0, weights={"a": 3.0}).design(counties(5, 12))
    assert made.split is not None
    errors = (made.noise**2).sum()
    assert made.weighted_error == pytest.approx(errors.sum() + 2 * errors["a"])


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
    layout = layout_of(asked, counties(2, 3))
    assert designs._split_design(asked, layout, layout.weights(asked.weights)) is None
