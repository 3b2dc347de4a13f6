"""Stated half widths hold: simulated noise of trees of totals, Laplace and Gaussian."""

import numpy as np
import pandas as pd
import pytest

from affinedp.errors import AffineDPError
from affinedp.tables import TableRelease, with_total_rows
from affinedp.tables.noise import level_names

RUNS = 20_000


def country(states, counties):
    cells = pd.DataFrame(
        [(f"s{i}", f"c{i}-{j}", 10) for i in range(states) for j in range(counties)],
        columns=["state", "county", "n"],
    )
    return with_total_rows(cells, ["state", "county"], ["n"])


@pytest.mark.parametrize(
    ("shape", "promise"),
    [((5, 6), {}), ((3, 40), {}), ((4, 60), {"delta": 1e-6, "law": "gaussian"})],
)
def test_half_widths_of_levels_cover(shape, promise):
    table = country(*shape)
    asked = {"hierarchy": ["state", "county"], "epsilon": 1.0, "nonnegative": True, **promise}
    design = TableRelease(**asked).design(table)
    levels = design.levels(0.9)
    errors = np.abs(design.mechanism.sample(RUNS, seed=7))[:, design.layout.private]
    names = np.array(level_names(design.layout, ["state", "county"]))
    doubt = 4 * np.sqrt(0.09 / RUNS)
    for name, row in levels.iterrows():
        own = errors[:, names == name]
        assert (own.max(axis=1) <= row["all_at_once"]).mean() >= 0.9 - doubt
        assert (own <= row["half_width"]).mean() >= 0.9 - doubt
    out = design.release(table)
    low, high = out.interval(0.9, simultaneous=True)
    one = out.interval(0.9)
    assert ((high - low) >= (one[1] - one[0]) - 1e-9).all(axis=None)
    width = np.asarray(design.half_width(1 - 0.1 / errors.shape[1], rounded=False)).ravel()
    assert (errors <= width).all(axis=1).mean() >= 0.9 - doubt


def test_cells_added_up_have_the_law_of_a_sum():
    design = TableRelease(hierarchy=["state", "county"], epsilon=1.0, nonnegative=True).design(
        country(5, 6)
    )
    levels = design.levels(0.9)
    # whole noise: beyond 2 with probability 2 e⁻³/(1 + e⁻¹) = 0.073, beyond 1 with 0.198
    assert levels.loc["county", "half_width"] == 2


@pytest.mark.parametrize("neighbours", ["person", "replace"])
def test_a_large_tree_of_people_who_count_for_more_than_one(neighbours):
    """μ = 3 and two people at once are six people who do the same."""
    table = country(20, 60)
    asked = {"hierarchy": ["state", "county"], "epsilon": 1.0, "adjacency": neighbours}
    many = TableRelease(mu=3, household=2, **asked).design(table)
    six = TableRelease(household=6, **asked).design(table)
    assert many.weighted_error == pytest.approx(six.weighted_error, rel=1e-9)
    assert many.guarantee.holds(1.0)
    assert "counts for at most 3" in many.guarantee.neighbours
    assert "a household of up to 2" in many.guarantee.neighbours
    assert many.guarantee.unit == TableRelease(household=2, **asked).design(table).guarantee.unit


def test_levels_of_a_cross_tabulation_have_the_names_that_people_use():
    table = pd.DataFrame({"a": [5, 6], "b": [7, 8]}, index=["x", "y"])
    table = table.assign(all=table.sum(axis=1))
    table.loc["sum"] = table.sum()
    design = TableRelease(
        totals={"all": ["a", "b"]}, row_totals={"sum": ["x", "y"]}, epsilon=1.0
    ).design(table)
    assert set(design.levels().index) == {"cells", "row totals", "column totals", "grand total"}


def test_the_refusal_of_swaps_says_how_to_ask_for_them():
    with pytest.raises(AffineDPError, match="margins='public'"):
        TableRelease(totals={"all": ["a", "b"]}, adjacency="swaps", epsilon=1.0)


def test_amounts_that_move_are_named():
    table = pd.DataFrame({"a": [5.5], "b": [7.0], "all": [12.5]})
    release = TableRelease(totals={"all": ["a", "b"]}, adjacency="replace", mu=2.5, epsilon=1.0)
    words = release.design(table).guarantee.neighbours
    assert "the same amount (at most 2.5) in both" in words
