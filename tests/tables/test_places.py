"""Margins in places: geography × attributes, from people to published tables."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from affinedp.budget.ledger import Ledger
from affinedp.cli.app import app
from affinedp.cli.release import release_file
from affinedp.domains.crossed import Crossed, Placed
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.strategies.places import Product
from affinedp.tables import (
    MarginRelease,
    TableRelease,
    count_people,
    from_crosstab,
    with_total_rows,
)
from affinedp.tables.places import places_of
from affinedp.tables.refusals import TableError
from affinedp.tables.whole_numbers import whole_margin

WARDS = pd.DataFrame(
    {"city": ["A", "A", "A", "B", "B"], "ward": ["1", "2", "3", "1", "2"]}
)  # two wards are called 1
LABELS = {"sex": ["f", "m"], "age": ["young", "mid", "old"]}


def people(n=400, seed=0):
    generator = np.random.default_rng(seed)
    where = generator.integers(0, len(WARDS), n)
    return (
        WARDS.iloc[where]
        .reset_index(drop=True)
        .assign(
            sex=np.array(LABELS["sex"], object)[generator.integers(0, 2, n)],
            age=np.array(LABELS["age"], object)[generator.integers(0, 3, n)],
        )
    )


def release(**others):
    asked = {"attributes": LABELS, "places": WARDS, "epsilon": 1.0, "delta": 1e-6, **others}
    return MarginRelease(**asked)


def truth(rows, *names, at):
    upto = ["city", "ward"][: {"everywhere": 0, "city": 1, "ward": 2}[at]]
    return rows.groupby([*upto, *names], observed=True).size()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_tables_are_near_the_truth_and_add_up(law):
    rows = people()
    out = release(law=law, epsilon=30.0).release(rows)
    for at in ("city", "ward"):
        found = out.margin("sex", "age", at=at)
        own = ["city", "ward"][: {"city": 1, "ward": 2}[at]]
        found = found.set_index([*own, "sex", "age"])["count"]
        expected = truth(rows, "sex", "age", at=at).reindex(found.index, fill_value=0)
        assert np.abs(found - expected).max() < 4
    wards = out.margin("sex", at="ward").groupby(["city", "sex"])["count"].sum()
    cities = out.margin("sex", at="city").set_index(["city", "sex"])["count"]
    pd.testing.assert_series_equal(wards, cities, rtol=1e-9)
    ages = out.margin("sex", "age", at="ward").groupby(["city", "ward", "sex"])["count"].sum()
    plain = out.margin("sex", at="ward").set_index(["city", "ward", "sex"])["count"]
    pd.testing.assert_series_equal(ages, plain, rtol=1e-9)
    assert abs(out.margin(at="everywhere")["count"].item() - len(rows)) < 4


def test_all_levels_in_one_table_have_empty_labels_in_totals():
    out = release().release(people())
    found = out.margin("sex")
    assert len(found) == 2 * (1 + 2 + 5)
    assert found["city"].isna().sum() == 2
    assert found["ward"].isna().sum() == 2 + 4
    every = out.tables()
    assert len(every) == 8 * (1 + 2 + 3 + 6)
    assert (every["lower"] <= every["upper"]).all()
    assert list(every) == ["city", "ward", "sex", "age", "count", "lower", "upper"]


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_whole_numbers_add_up_over_places_and_within_a_table(law):
    out = release(nonnegative=True, law=law).release(people(60))
    wide = out.margin("sex", "age")
    assert wide["count"].dtype == np.int64
    assert (wide["count"] >= 0).all()
    again = out.margin("sex", "age")
    pd.testing.assert_frame_equal(wide, again)  # rounded once
    by = wide.groupby(["city", "sex", "age"])["count"].sum()  # cities and their wards
    cities = out.margin("sex", "age", at="city").set_index(["city", "sex", "age"])["count"]
    assert (by == 2 * cities.sort_index()).all()
    low = out.interval("sex", "age")
    assert (low["lower"] >= 0).all()
    unrounded = out.unrounded("sex", "age")["count"]
    assert unrounded.dtype == float


def test_whole_tables_stay_near_their_targets_and_are_unbiased():
    tree = Totals.of([-1, 0, 0, 1, 1, 1])
    cells = np.array([[1.3, 0.4], [2.6, 0.1], [0.2, 7.7], [5.25, 3.5]])
    full = np.zeros((6, 2))
    full[[2, 3, 4, 5]] = cells
    full[1] = full[3:].sum(axis=0)
    full[0] = full[1] + full[2]
    noise = Product(Placed(tree, Crossed((2,))), ((0,),), np.ones(2), np.ones(6))
    drawn = np.array([whole_margin(noise, full, False) for _ in range(4000)])
    assert (drawn[:, 0] == drawn[:, 1] + drawn[:, 2]).all()
    assert (np.abs(drawn - full) < 3).all()
    error = (drawn - full).mean(axis=0)
    assert np.abs(error).max() < 5 * drawn.std(axis=0).max() / math.sqrt(4000)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_intervals_cover(law):
    rows = people(50)
    design = release(law=law).design()
    expected = truth(rows, "sex", at="city")
    single, every = [], []
    for _ in range(300):
        out = design.release(rows)
        for simultaneous, found in ((False, single), (True, every)):
            table = out.interval("sex", level=0.9, simultaneous=simultaneous, at="city")
            table = table.set_index(["city", "sex"])
            true = expected.reindex(table.index, fill_value=0)
            inside = (table["lower"] <= true) & (true <= table["upper"])
            found.append(inside.mean() if not simultaneous else inside.all())
    assert np.mean(single) > 0.9 - 0.03
    assert np.mean(every) > 0.9 - 0.06
    levels = design.levels(0.9)
    assert levels.loc["city: sex", "numbers"] == 4
    assert levels.loc["ward: sex × age", "numbers"] == 30
    assert (levels["all_at_once"] >= levels["half_width"]).all()


@pytest.mark.parametrize("adjacency", ["person", "replace"])
def test_reaches_of_noise_at_several_levels_are_those_of_least_squares(adjacency):
    """Coefficients from a dense least-squares problem, and sums of drawn whole noise."""
    places = pd.DataFrame([(f"c{c}", f"w{c}{w}") for c in range(3) for w in range(12)],
                          columns=["city", "ward"])  # fmt: skip
    labels = {"sex": ["f", "m"], "old": ["n", "y"]}
    design = release(attributes=labels, places=places, delta=0.0, adjacency=adjacency,
                     weights="levels").design()  # fmt: skip
    strategy, law = design.mechanism.strategy, design.mechanism.noise
    assert [(len(nodes), one) for nodes, one in zip(strategy.nodes, strategy.measured)] == [
        (36, (0, 1)), (3, (0, 1))
    ]  # fmt: skip
    wards = np.eye(36)
    cities = np.kron(np.eye(3), np.ones((1, 12)))
    seen = np.vstack([np.kron(wards, np.eye(4)), np.kron(cities, np.eye(4))])
    rates = np.repeat(strategy.known_rates(law), [36 * 4, 3 * 4])
    deviation = 1 / (math.sqrt(2) * np.sinh(rates / 2))
    if adjacency == "replace":  # the number of people is public: an exact equation
        seen = np.vstack([seen, np.ones(144)])
        deviation = np.append(deviation, 1e-5)
    estimate = np.linalg.pinv(seen / deviation[:, None]) / deviation
    stop, shape = -np.expm1(-rates), (20_000, len(rates))
    generator = np.random.default_rng(0)
    noise = generator.geometric(stop, shape) - generator.geometric(stop, shape)
    for chosen, cell in (((), [1, 1, 1, 1]), ((0,), [1, 1, 0, 0]), ((0, 1), [1, 0, 0, 0])):
        reach = design.half_widths(chosen, 0.95, 1)
        for node, place in ((1, cities[0]), (4, wards[0])):
            off = noise @ (np.kron(place, cell) @ estimate)[: len(rates)]
            missed = (np.abs(off) > reach.ravel()[node] * (1 + 1e-6)).mean()
            assert missed <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 20_000)
            assert missed >= 0.03, "nearly as narrow as the noise allows"


def test_polars_gives_polars():
    rows = pl.from_pandas(people())
    out = release().release(rows.lazy())
    found = out.margin("sex", at="city")
    assert isinstance(found, pl.DataFrame)
    assert found["city"].to_list() == ["A", "A", "B", "B"]
    assert isinstance(out.tables(), pl.DataFrame)
    places = pl.from_pandas(WARDS)
    assert release(places=places).design().mechanism.fingerprint == (
        release().design().mechanism.fingerprint
    )


def test_a_ledger_is_charged_once_and_counts_may_be_given(tmp_path):
    rows = people()
    cells = rows.groupby(["city", "ward", "sex", "age"]).size().rename("n").reset_index()
    design = release(epsilon=50.0).design()
    with Ledger(tmp_path / "l.db", epsilon=60.0, delta=1e-5, protects="one person") as ledger:
        out = design.release(cells, count="n", ledger=ledger, label="wards")
        assert ledger.spent == pytest.approx(50.0, rel=1e-3)
    assert abs(out.margin(at="everywhere")["count"].item() - len(rows)) < 4


def test_only_so_many_rows_of_a_person_are_counted():
    rows = pd.concat([people(30).assign(who=range(30))] * 4)
    asked = release(epsilon=50.0, at_most=2)
    out = asked.release(rows, person="who")
    assert abs(out.margin(at="everywhere")["count"].item() - 60) < 4
    assert "in at most 2 cells" in out.guarantee.neighbours
    assert out.guarantee.holds(50.0, 1e-6)


def test_people_may_be_known_by_their_lowest_place():
    places = WARDS.assign(ward=[f"{c}{w}" for c, w in WARDS.itertuples(index=False)])
    rows = people()
    rows["ward"] = rows["city"] + rows["ward"]
    out = release(places=places, epsilon=50.0).release(rows.drop(columns="city"))
    found = out.margin(at="city").set_index("city")["count"]
    assert np.abs(found - rows.groupby("city").size()).max() < 4
    with pytest.raises(TableError, match="does not tell places apart"):
        release().release(people().drop(columns="city"))


def test_weights_by_level_shift_the_noise():
    plain = release(law="gaussian").design().levels()["noise"]
    top = release(law="gaussian", weights={"everywhere": 1000.0}).design().levels()["noise"]
    assert top["everywhere: sex"] < plain["everywhere: sex"]
    assert top["ward: sex"] > plain["ward: sex"]
    levels = release(law="gaussian", weights="levels").design().levels()["noise"]
    assert levels["everywhere: sex"] < plain["everywhere: sex"]


def test_what_was_published_says_so_and_is_not_compared_with_itself():
    design = release(delta=0.0, weights="levels").design()
    out = design.release(people())
    report = out.report()
    assert report.title == "Published: 4 tables of sex × age in 8 places"
    notes = [text for label, text in report.totals if label == "note"]
    (best,) = [text for text in notes if text.startswith("the best of what was compared: ")]
    against = [text for label, text in report.totals if label == "against"]
    name = best.partition(": ")[2]
    assert against
    assert not any(text.startswith(f"{name}:") for text in against)


def test_reports_speak_of_attributes_and_places():
    design = release().design()
    text = str(design)
    assert repr(design).startswith("<MarginDesign: ")
    assert "MarginDesign(" not in str(design.release(people()))
    assert "ward: sex × age" in text
    assert "8 places" in text
    assert "cells and add up" in text


def test_refusals():
    rows = people()
    with pytest.raises(AffineDPError, match="cannot come from the data"):
        release(places=None, hierarchy=["city", "ward"])
    with pytest.raises(AffineDPError, match="attribute and a level"):
        release(attributes={"city": ["A", "B"]})
    with pytest.raises(AffineDPError, match="'towns', which is no level"):
        release(weights={"towns": 2.0})
    with pytest.raises(AffineDPError, match="swaps"):
        release(adjacency="swaps")
    with pytest.raises(TableError, match="twice"):
        places_of(pd.concat([WARDS, WARDS]))
    with pytest.raises(TableError, match="rows without 'ward'"):
        places_of(WARDS.assign(ward=[None, "2", "3", "1", "2"]))
    with pytest.raises(TableError, match="no place"):
        release().release(rows.assign(city="B", ward="3"))
    with pytest.raises(TableError, match="not among the public"):
        release().release(rows.assign(ward="9"))
    with pytest.raises(TableError, match="there is no level 'wards'"):
        release().release(rows).margin("sex", at="wards")
    with pytest.raises(TableError, match="no places"):
        MarginRelease(attributes=LABELS, epsilon=1.0).release(rows).margin("sex", at="city")
    with pytest.raises(AffineDPError, match="at least two labels"):
        release(attributes={"sex": ["f"]})


TOML = """
margins = "<=2"
places = "wards.csv"
person = "who"

[attributes]
sex = ["f", "m"]
age = ["young", "mid", "old"]

[privacy]
epsilon = 1.0
delta = 1e-6
weights = "levels"

[output]
nonnegative = true
report = "report.html"
"""


def test_from_file_to_file(tmp_path, capsys):
    (tmp_path / "margins.toml").write_text(TOML, encoding="utf-8")
    WARDS.assign(ward="w" + WARDS["ward"]).to_csv(tmp_path / "wards.csv", index=False)
    rows = people(80)
    rows.assign(ward="w" + rows["ward"], who=range(80)).to_csv(tmp_path / "p.csv", index=False)
    said = []
    args = [tmp_path / "margins.toml", tmp_path / "p.csv", tmp_path / "out.csv"]
    _, said = release_file(*args)
    out = pd.read_csv(tmp_path / "out.csv")
    assert list(out) == ["city", "ward", "sex", "age", "count", "lower", "upper"]
    assert len(out) == 8 * 12
    assert out["count"].dtype == np.int64
    assert (tmp_path / "out-report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert any("in one cell of the tables of all places" in line for line in said)
    found = CliRunner().invoke(app, ["tables", "preview", str(tmp_path / "margins.toml")])
    assert found.exit_code == 0, found.output
    assert "ward: sex × age" in found.output
    assert "nothing was spent" in found.output


def test_an_enum_of_polars_names_its_labels():
    kind = pl.Enum(["a", "b", "c"])
    rows = pl.DataFrame({"ward": ["a", "b", "b"]}, schema={"ward": kind})
    for given in (rows, rows.lazy()):
        assert list(count_people(given, ["ward"])["count"]) == [1, 2, 0]
    with pytest.raises(TableError, match="in polars an Enum"):
        count_people(pl.DataFrame({"ward": ["a"]}, schema={"ward": pl.Categorical}), ["ward"])


def test_a_grouped_sum_is_counted_by_its_index():
    counts = people().groupby(["city", "ward", "sex", "age"]).size()
    out = release(epsilon=50.0).release(counts.rename("n"), count="n")
    assert abs(out.margin(at="everywhere")["count"].item() - 400) < 4
    totals = with_total_rows(counts)
    assert totals["count"].iloc[0] == 400
    assert len(totals) == 1 + 2 + 5 + 10 + len(counts)
    with pytest.raises(TableError, match="no column 'town'"):
        with_total_rows(people(), ["town"])


def test_a_pivot_table_with_one_row_of_totals():
    rows = people()
    table = rows.pivot_table(
        index=["city", "sex"], columns="age", values="ward", aggfunc="count", margins=True
    )
    asked = from_crosstab(
        table, epsilon=1.0, labels="public", ask=None, say=lambda text: None, round_to=1
    )
    out = asked.release(table).table
    assert (out.loc[("All", "")] == out.drop(("All", "")).sum()).all()


def test_accuracy_targets_by_level_ask_for_the_least_budget():
    table = with_total_rows(people().groupby(["city", "ward"]).size())
    asked = TableRelease(hierarchy=["city", "ward"], epsilon=1.0, delta=1e-6, round_to=1)
    design = asked.design_for(table, {"grand total": 6.0, "ward": 10.0})
    bare = np.sqrt(design.mechanism.expected_squared_errors)
    assert bare[0] <= 6.0 * (1 + 1e-4)
    assert np.sqrt((bare[3:] ** 2).mean()) <= 10.0 * (1 + 1e-4)
    epsilon = design.description.epsilon
    assert design.guarantee.holds(epsilon, 1e-6)
    looser = asked.design_for(table, {"grand total": 60.0, "ward": 100.0})
    assert looser.description.epsilon < epsilon
    whole = design.release(table).table["count"]
    assert whole.iloc[0] == whole.iloc[1:3].sum()
    with pytest.raises(TableError, match="there is no level 'wards'"):
        asked.design_for(table, {"wards": 5.0})
    with pytest.raises(TableError, match="give a delta"):
        TableRelease(hierarchy=["city", "ward"], epsilon=1.0).design_for(table, {"ward": 5.0})


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_never_worse_than_geometric_noise_on_the_cells(epsilon):
    """What OpenDP draws for counts, added up: a large hierarchy, a non-negative one, places."""
    p = math.exp(-epsilon)
    each = 2 * p / (1 - p) ** 2
    cells = pd.DataFrame(
        [(f"s{i}", f"c{i}-{j}", 7) for i in range(10) for j in range(20)],
        columns=["state", "county", "n"],
    )
    table = with_total_rows(cells, ["state", "county"], ["n"])
    for more in ({}, {"nonnegative": True}):
        design = TableRelease(hierarchy=["state", "county"], epsilon=epsilon, **more).design(table)
        assert design.weighted_error <= each * 600 * (1 + 1e-9)
        out = design.release(table).unrounded["n"]
        if design.mechanism.law == "geometric":
            assert (out == np.rint(out)).all()
        else:  # a total measured beside the cells has real noise, and less of it
            assert design.weighted_error < each * 600
    tables = release(epsilon=epsilon, delta=0.0).design()
    assert tables.levels().loc["ward: sex × age", "noise"] <= math.sqrt(each) * (1 + 1e-9)


@pytest.mark.parametrize("neighbours", ["person", "replace"])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_more_people_than_32_bits_count(neighbours, law):
    """Cut off, the table would be wrong; and whoever moves would change the public number."""
    rows = WARDS.assign(sex="f", age="old", n=[3_000_000_000, 5, 0, 1, 10**15])
    delta = 1e-6 if law == "gaussian" else 0.0
    asked = release(adjacency=neighbours, law=law, delta=delta, epsilon=5.0, round_to=1)
    out = asked.release(rows, count="n")
    found = out.margin("sex", at="ward").query("sex == 'f'")["count"].to_numpy()
    assert np.abs(found - rows["n"].to_numpy()).max() < 60
    assert abs(int(out.margin(at="everywhere")["count"].iloc[0]) - int(rows["n"].sum())) < 200


@pytest.mark.parametrize("places", [{"city": ["A"]}, {"land": ["L"], "city": ["A"]}])
@pytest.mark.parametrize("adjacency", ["person", "replace"])
def test_one_place_is_a_table_like_any_other(places, adjacency):
    asked = {"margins": "<=1", "delta": 0.0, "adjacency": adjacency}
    out = release(places=pd.DataFrame(places), **asked).release(people().assign(city="A", land="L"))
    top, bottom = (out.margin("age", at=at)["count"] for at in ("everywhere", "city"))
    assert np.allclose(top, bottom)
    if adjacency == "person":
        alone = MarginRelease(attributes=LABELS, epsilon=1.0, **asked).design()
        assert out.design.variances((1,))[0] <= alone.variances((1,))[0] * 1.01
