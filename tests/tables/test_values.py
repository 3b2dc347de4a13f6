"""Sums and means of values from rows: neighbours by brute force, exact sums, coverage."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import polars
import pytest
from scipy import stats

from affinedp.cli.release import release_file
from affinedp.errors import AffineDPError
from affinedp.tables import TableRelease, count_people, read_release, with_total_rows
from affinedp.tables.refusals import TableError

WARDS = {"city": ["A", "B"], "ward": ["n", "s"]}
LEVELS = ["city", "ward"]
MU = {"count": (1, 1), "wage": (-2, 5), "rent": (0, 3)}
CLIPPED = {"wage": (-2, 5), "rent": (0, 3)}


def table_of(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    people = pd.DataFrame(rows, columns=["who", "city", "ward", "wage", "rent"])
    cells = count_people(people, LEVELS, cells=WARDS, person="who", at_most=2, values=CLIPPED)
    cells["income"] = cells["wage"] + cells["rent"]
    return with_total_rows(cells, LEVELS)


def release(**more: object) -> TableRelease:
    asked = {"hierarchy": LEVELS, "totals": {"income": ["wage", "rent"]}, "mu": MU, "at_most": 2}
    return TableRelease(**{**asked, "epsilon": 1.0, **more})


BASE = [(0, "A", "n", 1, 1), (1, "B", "s", 9, 2), (2, "A", "s", -7, 0.5)]
PLACES = list(itertools.product("AB", "ns"))


def brought(rows: int) -> list[list[tuple[object, ...]]]:
    """All that one person can bring with so many rows, of few values inside and outside bounds."""
    kinds = [(*place, wage, rent) for place in PLACES for wage in (-50, 0, 90) for rent in (0, 7)]
    return [[(9, *one) for one in some]
            for some in itertools.combinations_with_replacement(kinds, rows)]  # fmt: skip


@pytest.mark.parametrize("adjacency", ["person", "replace"])
def test_moves_of_neighbouring_rows_are_within_the_sensitivity(adjacency):
    most = 2 if adjacency == "person" else 1
    asked = release(adjacency=adjacency, at_most=most)
    before = table_of(BASE)
    design = asked.design(before)
    names, numbers = list(design.layout.names), ["count", "wage", "rent", "income"]
    people = [[], *brought(1), *(brought(2) if most == 2 else [])]
    vectors = {
        i: table_of([*BASE, *one])[numbers].to_numpy(float).ravel() for i, one in enumerate(people)
    }
    if adjacency == "person":
        moves = np.array([vectors[i] - vectors[0] for i in vectors])
    else:  # one person with another row
        pairs = itertools.combinations(range(1, len(people)), 2)
        moves = np.array([vectors[i] - vectors[j] for i, j in pairs])
    assert len(names) == moves.shape[1] == 28
    generator = np.random.default_rng(0)
    for norm in (1, 2):
        for _ in range(4):
            matrix = generator.normal(size=(5, moves.shape[1]))
            largest = np.linalg.norm(matrix @ moves.T, ord=norm, axis=0).max()
            found = design.mechanism.adjacency.sensitivity(matrix, norm=norm).upper
            assert largest <= found * (1 + 1e-12)
            assert largest >= found * (1 - 1e-9)  # it is attained: no more noise than needed
    assert design.guarantee.holds(1.0)


def test_sums_are_those_of_decimals():
    costs = [0.1] * 10 + [0.2, 3.3, 1e3, -4.4]
    people = pd.DataFrame({"ward": ["n"] * 10 + ["s"] * 4, "cost": costs})
    cells = count_people(people, ["ward"], cells={"ward": ["n", "s"]}, values={"cost": (0, 100.7)})
    assert cells["cost"].tolist() == [1.0, 104.2]  # sums of doubles are 0.9999999999999999, …
    total = with_total_rows(cells, ["ward"])["cost"].tolist()
    assert Fraction(str(total[0])) == Fraction("105.2")


def test_rows_beyond_at_most_are_not_added_up():
    people = pd.DataFrame({"who": [1, 1, 1, 2], "ward": list("nnns"), "cost": [5, 5, 5, 7]})
    cells = count_people(people, ["ward"], cells={"ward": ["n", "s"]}, person="who", at_most=2,
                         values={"cost": (0, 6)})  # fmt: skip
    assert cells[["count", "cost"]].to_numpy().tolist() == [[2, 10.0], [1, 6.0]]


def test_values_move_from_the_middle_of_their_bounds():
    table = with_total_rows(
        pd.DataFrame({"ward": list("abcd"), "count": 5, "pay": 100.0}), ["ward"]
    )
    asked = {"hierarchy": ["ward"], "epsilon": 1.0, "whole": False}
    together = TableRelease(mu={"count": (1, 1), "pay": (0, 100)}, **asked).design(table)
    apart = TableRelease(mu={"count": 1, "pay": 100}, **asked).design(table)
    # (1.25^⅓ + 0.25^⅓)³ against (1 + 1)³: half the width, and noise of counts times the middle
    ratio = (1.25 ** (1 / 3) + 0.25 ** (1 / 3)) ** 3 / 8
    assert together.weighted_error <= ratio * apart.weighted_error * (1 + 1e-9)
    gauss = {**asked, "delta": 1e-6, "law": "gaussian"}
    both = TableRelease(mu={"count": (1, 1), "pay": (0, 100)}, **gauss).design(table)
    one = TableRelease(mu={"count": 1, "pay": 100}, **gauss).design(table)
    assert both.weighted_error < 0.7 * one.weighted_error


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_totals_add_up_and_means_are_covered(delta):
    generator = np.random.default_rng(3)
    wards = list("abc")
    people = pd.DataFrame({"ward": generator.choice(wards, 900)})
    people["pay"] = np.rint(generator.gamma(4.0, 5.0, 900))
    bounds = {"pay": (0, 60)}
    table = with_total_rows(
        count_people(people, ["ward"], cells={"ward": wards}, values=bounds), ["ward"]
    )
    law = "gaussian" if delta else "laplace"
    mu = {"count": (1, 1), **bounds}
    asked = TableRelease(hierarchy=["ward"], mu=mu, epsilon=1.0, delta=delta, law=law)
    design = asked.design(table)
    truth = (table["pay"] / table["count"]).to_numpy()
    runs, hits = (120 if delta else 40), np.zeros(len(table))
    for _ in range(runs):
        out = design.release(table)
        mean = out.function("pay / count", level=0.9)
        hits += (mean.low <= truth) & (truth <= mean.high)
    labels = [line.split(":")[0].strip() for line in str(mean).splitlines()[1:]]
    assert labels == ["grand total", *wards]
    sums = out.table[["count", "pay"]]
    assert np.allclose(sums.iloc[0], sums.iloc[1:].sum(), rtol=1e-9)
    assert hits.min() >= stats.binom.ppf(1e-8, runs, 0.9)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"adjacency": "circuits"}, "whose value"),
        ({"adjacency": "swaps", "public": ["x"]}, "whose value"),
        ({"cells": ["wage"]}, "leave out cells"),
        ({"mu": {**MU, "wage": (5, -2)}}, "lower bound comes first"),
        ({"mu": {**MU, "wage": (1, 2, 3)}}, "two numbers"),
        ({"mu": {**MU, "wage": (0, float("inf"))}}, "finite"),
        ({"mu": {**MU, "wage": (0, Fraction(10**30 + 1, 10**30))}}, "15 digits"),
        ({"mu": {**MU, "income": (0, 8)}}, "bounds follow"),
        ({"mu": {"count": (1, 1), "wage": (0, 1)}}, "says nothing about 'rent'"),
        ({"public": ["count"], "mu": CLIPPED, "totals": {"income": ["wage", "rent", "count"]}},
         "every number gets noise"),
    ],
)  # fmt: skip
def test_refusals(more, words):
    with pytest.raises(AffineDPError, match=words):
        release(**{"at_most": None, **more}).design(table_of(BASE))


def test_refused_rows():
    rows = pd.DataFrame({"ward": ["a", "b"], "pay": [1.0, None]})
    cells = {"cells": {"ward": ["a", "b"]}, "values": {"pay": (0, 9)}}
    with pytest.raises(TableError, match="missing"):
        count_people(rows, ["ward"], **cells)
    with pytest.raises(TableError, match="names a label or the count"):
        count_people(rows.fillna(0), ["ward"], **cells, name="pay")


def test_bounds_are_said_in_a_file(tmp_path):
    file = tmp_path / "table.toml"
    file.write_text(release().toml(), encoding="utf-8")
    again = read_release(file).release
    first, second = (one.design(table_of(BASE)).guarantee for one in (release(), again))
    assert first.neighbours == second.neighbours
    assert "at most 2 rows" in first.neighbours
    assert "'wage' between -2 and 5" in first.neighbours


def test_a_file_with_labels_counts_and_adds_up_people(tmp_path):
    rows = [(0, "A", "n", 1, 1), (0, "B", "s", 9, 2), (0, "A", "n", 3, 3), (1, "A", "s", -7, 0.5)]
    people = pd.DataFrame(rows, columns=["who", "city", "ward", "wage", "rent"])
    told = TableRelease(hierarchy=LEVELS, mu=MU, at_most=2, epsilon=1.0)
    labels = '[labels]\ncity = ["A", "B"]\nward = ["n", "s"]\n'
    file, data = tmp_path / "table.toml", tmp_path / "people.csv"
    file.write_text(f'person = "who"\n{told.toml()}\n{labels}', encoding="utf-8")
    found = read_release(file)
    by_hand = table_of(rows).drop(columns="income")
    pd.testing.assert_frame_equal(found.table(people, "people.csv"), by_hand)
    people.to_csv(data, index=False)
    answer, _ = release_file(file, data, tmp_path / "out.csv")
    assert (answer["rows"], answer["promise"]["neighbours"]) == (
        len(by_hand), told.design(by_hand).guarantee.neighbours
    )  # fmt: skip
    file.write_text(f'person = "who"\n{told.toml()}', encoding="utf-8")
    with pytest.raises(AffineDPError, match="goes with labels"):
        release_file(file, data, tmp_path / "none.csv")
    file.write_text(f"{TableRelease(totals={'b': ['a']}, epsilon=1.0).toml()}\n{labels}", "utf-8")
    with pytest.raises(AffineDPError, match="goes with a hierarchy"):
        release_file(file, data, tmp_path / "none.csv")


def test_parts_of_a_total_that_every_row_counts_in_are_refused():
    """Their difference would be the same for all neighbours, and so without noise."""
    t = pd.DataFrame({"ward": [None, "a", "b"], "w": [3, 1, 2], "m": [1, 1, 0], "all": [4, 2, 2]})
    asked = {"hierarchy": ["ward"], "totals": {"all": ["w", "m"]}, "epsilon": 1.0}
    with pytest.raises(TableError, match="without noise"):
        TableRelease(mu={"w": (1, 1), "m": (1, 1)}, **asked).release(t)
    out = TableRelease(mu={"w": (0, 1), "m": (0, 1)}, **asked).release(t)
    assert (out.table["w"] + out.table["m"]).tolist() == out.table["all"].tolist()


def test_means_stay_within_bounds_and_cover_as_without_them():
    """Whatever a row of the table counts, its mean lies between the bounds: cutting loses none."""
    asked = release(round_to=1)
    table = table_of(BASE)
    out = asked.release(table)
    for text, low, high in (
        ("wage / count", -2.0, 5.0),
        ("income / count", -2.0, 8.0),
        ("1 - 2 * rent / count", -5.0, 1.0),
    ):
        found = out.function(text)
        assert (found.low >= low).all()
        assert (found.high <= high).all()
        assert ((found.low <= found.value) & (found.value <= found.high)).all()
        assert not found.warnings
    assert "bounds" not in out.function("count / wage").how  # no mean


def test_ends_are_whole_where_the_published_sums_are_and_units_have_panels():
    out = release(round_to=1).release(table_of(BASE))
    whole, width = out.with_intervals(), out.design.half_width(0.95, rounded=False)["wage"]
    assert all(kind == np.int64 for kind in whole.drop(columns=LEVELS).dtypes)
    # wages need not be whole: ends are rounded outwards
    assert (whole["wage_lower"] <= out.unrounded["wage"] - width.to_numpy()).all()
    assert (whole["wage_upper"] >= out.unrounded["wage"] + width.to_numpy()).all()
    first, second = (figure.axes[0] for figure in out.report().picture())
    assert (first.get_xlabel(), second.get_xlabel()) == ("count", "wage, rent, income")
    assert "in 'count', by" in dict(out.report().opening)["How far off numbers are"]


@pytest.mark.slow
def test_shares_lie_between_0_and_1_or_are_not_known():
    """A part of a total of counts is a share of it, whatever the data are: cutting loses none."""
    cells = pd.DataFrame({"ward": ["A", "A", "B"], "age": ["0", "1", "0"]})
    cells = cells.assign(women=[900, 1, 0], men=[1100, 0, 2])
    table = with_total_rows(cells.assign(people=cells.women + cells.men), ["ward", "age"])
    asked = {"hierarchy": ["ward", "age"], "totals": {"people": ["women", "men"]}, "epsilon": 0.1}
    out = TableRelease(**asked, nonnegative=True, round_to=1).release(table)
    drawn = table[["women", "men", "people"]].astype(float)
    drawn.iloc[-1] = [5.0, -4.0, 1.0]  # of 2 people, under noise of dozens
    out = replace(out, published=replace(out.published, unrounded=drawn))
    for text, most in (
        ("women / people", 1.0),
        ("100 * women / people", 100.0),
        ("1 - women / people", 1.0),
        ("(women + men) / (2 * people)", 0.5),
        ("`women[A / 0]` / `people[grand total]`", 1.0),
    ):
        found = out.function(text)
        assert np.all((found.low >= 0) & (found.high <= most))
        assert np.all((found.low <= found.value) & (found.value <= found.high))
        assert "cut to what a part can be" in found.how
        assert not found.warnings
    for text in ("women / men", "people / women", "`women[A / 0]` / `people[B]`"):
        assert "cut" not in out.function(text).how
    shares = out.function("women / people")
    assert shares.known[0]
    assert str(shares[len(table) - 1]) == "not known (95 %: 0 to 1)"
    told = out.report(functions=["women / people"]).published
    assert told.rows[-1][-1] == "not known: noise is as large as the total"
    assert not any("inf" in row[-1] for row in told.rows)
    # nobody said that numbers are not negative: nothing is cut
    assert "cut" not in TableRelease(**asked).release(table).function("women / people").how


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_what_is_compared_may_fail_to_cover_in_bounds_far_apart(delta):
    """One weight per level does not cover these moves up to rounding; other noise does."""
    bounds = {"income": (1, 200_001), "degrees": (-5, -4)}
    rows = pd.DataFrame({"ward": ["n"], "income": [1], "degrees": [-5]})
    cells = count_people(rows, ["ward"], cells={"ward": ["n", "s"]}, values=bounds)
    table = with_total_rows(cells.drop(columns="count"), ["ward"])
    asked = TableRelease(hierarchy=["ward"], mu=bounds, epsilon=1.0, delta=delta)
    assert asked.release(table).guarantee.holds(1.0, delta)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_sums_of_cents_are_published_where_only_the_number_of_people_is_exact(delta):
    """Who replaces somebody has other labels and cents: what is published as it is stays so."""
    rows = [(0, "A", "n", 0.1, 0.2), (1, "B", "s", 0.3, 2.55), (2, "A", "s", -1.7, 0.5)]
    before, after = table_of(rows), table_of([*rows[1:], (0, "B", "n", 4.9, 1.15)])
    design = release(adjacency="replace", at_most=1, delta=delta).design(before)
    assert design.mechanism.published_without_noise
    plan, layout = design.mechanism.prepared(), design.layout
    numbers = ["count", "wage", "rent", "income"]
    one, other = (plan.shared(table[numbers].to_numpy(float).reshape(1, -1)[:, layout.private])
                  for table in (before, after))  # fmt: skip
    assert np.array_equal(one, other)
    out = design.release(before).table
    assert out["count"][0] == 3
    assert np.allclose(out["income"], out["wage"] + out["rent"])


def test_bounds_far_apart_leave_nothing_that_neighbours_share():
    """Noise covers all moves, and they are all there is, whatever rounding says of the rest."""
    bounds = {"rate": (0, 0.25), "level": (-100, -99.75)}
    places = {"town": ["r", "r", "s", "s", "t"], "ward": list("abcde")}
    rows = pd.DataFrame({**places, "rate": 0.23, "level": -99.8})
    cells = count_people(rows, [*places], cells=pd.DataFrame(places), values=bounds)
    cells["both"] = (cells["rate"] + cells["level"]).round(2)
    asked = TableRelease(hierarchy=[*places], totals={"both": [*bounds]}, law="gaussian",
                         mu={"count": (1, 1), **bounds}, epsilon=0.5, delta=1e-5)  # fmt: skip
    made = asked.design(with_total_rows(cells, [*places]))
    assert made.mechanism.shared_part is None
    assert made.release(with_total_rows(cells, [*places])).guarantee.holds(0.5, 1e-5)


def test_other_people_do_not_decide_which_rows_of_a_lazy_table_are_added_up():
    """What comes without an order is added up as a table sorted by labels and values."""
    rows = pd.DataFrame({"who": 1, "ward": ["s", "n", "n", "s"], "rent": [3.0, 2.0, 1.5, 0.5]})
    asked = {"cells": {"ward": ["n", "s"]}, "values": {"rent": (0, 3)}, "person": "who"}
    for most, sums in ((1, [1.5, 0]), (2, [3.5, 0]), (3, [3.5, 0.5])):
        for order in itertools.permutations(range(4)):
            lazy = polars.from_pandas(rows.iloc[list(order)]).lazy()
            for given in (lazy, lazy.with_columns(polars.col("ward").cast(polars.Categorical))):
                found = count_people(given, ["ward"], at_most=most, **asked)
                assert found["rent"].tolist() == sums
