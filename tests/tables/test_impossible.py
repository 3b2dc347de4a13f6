"""Cells in which nobody can be: exactly 0, no more noise elsewhere, neighbours by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from affinedp.cli.release import release_file
from affinedp.errors import AffineDPError
from affinedp.tables import (
    TableRelease,
    count_people,
    dependency,
    from_crosstab,
    read_release,
    with_total_rows,
)
from affinedp.tables.refusals import TableError

AGES, STATES = ["0-9", "10-19", "20+"], ["yes", "no", "was"]
CHILDREN = [{"age": "0-9", "married": ["yes", "was"]}]
TOTALS = {"row_totals": {"All": AGES}, "totals": {"All": STATES}}


def crosstab(cells) -> pd.DataFrame:
    table = pd.DataFrame(cells, index=AGES, columns=STATES)
    table.loc["All"] = table.sum()
    table["All"] = table.sum(axis=1)
    return table.rename_axis(index="age", columns="married")


BASE = np.array([[0, 3, 0], [1, 7, 0], [9, 4, 2]])
POSSIBLE = [(0, 1), *itertools.product((1, 2), range(3))]


def moved(*places: tuple[int, int], by: int = 1) -> np.ndarray:
    cells = BASE.copy()
    for place in places:
        cells[place] += by
    return crosstab(cells).to_numpy(float).ravel()


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("adjacency", ["person", "replace"])
def test_a_crosstab_with_impossible_cells(adjacency, delta):
    asked = {**TOTALS, "epsilon": 1.0, "delta": delta, "adjacency": adjacency}
    table = crosstab(BASE)
    design = TableRelease(impossible=CHILDREN, **asked).design(table)
    private = design.layout.private
    assert len(private) == 16 - 2
    if adjacency == "person":
        moves = [moved(one) - moved() for one in POSSIBLE]
    else:
        moves = [moved(a) - moved(b) for a, b in itertools.combinations(POSSIBLE, 2)]
    moves = np.array(moves)[:, private]
    found = design.mechanism.adjacency
    for seed, norm in itertools.product(range(3), (1, 2)):
        matrix = np.random.default_rng(seed).normal(size=(6, len(private)))
        largest = np.linalg.norm(matrix @ moves.T, ord=norm, axis=0).max()
        sensitivity = found.sensitivity(matrix, norm=norm)
        assert largest <= sensitivity.upper * (1 + 1e-12)
        assert largest == pytest.approx(sensitivity.value, rel=1e-9)
    assert design.guarantee.holds(1.0, delta)
    assert "2 impossible numbers are 0 in both" in design.guarantee.neighbours
    # on the same numbers there is no more noise than without, and less in all
    plain = TableRelease(**asked).design(table)
    kept = np.isin(plain.layout.private, private)
    assert design.squares.sum() <= plain.squares[kept].sum() * (1 + 1e-9)
    out = design.release(table)
    assert (out.table.loc["0-9", ["yes", "was"]] == 0).all()
    for axis, name in ((0, "age"), (1, "married")):
        sums = out.table.drop("All", axis=axis).sum(axis=axis)
        assert np.allclose(sums, out.table.xs("All", axis=axis), atol=1e-6), name
    low, high = out.interval()
    assert low.loc["0-9", "yes"] == high.loc["0-9", "yes"] == 0
    assert out.unrounded.loc["0-9", "was"] == 0


def places(cities: int, wards: int) -> pd.DataFrame:
    cells = [(f"c{i}", f"w{j}", sex) for i in range(cities) for j in range(wards) for sex in "fm"]
    return pd.DataFrame(cells, columns=["city", "ward", "sex"])


@pytest.mark.parametrize(("cities", "tree"), [(3, False), (20, True)])
def test_hierarchies_publish_zeros_and_add_up(cities, tree):
    people = places(cities, 4)
    people = people[~((people.city == "c1") & (people.sex == "m")) & (people.ward != "w0")]
    levels = ["city", "ward", "sex"]
    cells = {"city": [f"c{i}" for i in range(cities)], "ward": [f"w{j}" for j in range(4)],
             "sex": ["f", "m"]}  # fmt: skip
    table = with_total_rows(count_people(people, levels, cells=cells), levels)
    impossible = [{"city": "c1", "sex": "m"}, {"ward": "w0"}]
    asked = {"hierarchy": levels, "epsilon": 1.0, "delta": 1e-6, "round_to": 1}
    design = TableRelease(impossible=impossible, **asked).design(table)
    assert design.tree is tree
    # every ward w0 with both sexes, and men of the other wards of c1
    assert len(design.layout.impossible) == cities * 3 + 3
    plain = TableRelease(**asked).design(table)
    kept = np.isin(plain.layout.private, design.layout.private)
    assert design.squares.sum() <= plain.squares[kept].sum() * (1 + 1e-6)
    out = design.release(table).table
    zero = (out.ward == "w0") | ((out.city == "c1") & (out.sex == "m"))
    assert (out.loc[zero, "count"] == 0).all()
    assert zero.sum() == cities * 3 + 3
    cells, wards = out[out.sex.notna()], out[out.sex.isna() & out.ward.notna()]
    again = cells.groupby(["city", "ward"], sort=False)["count"].sum()
    assert (again == wards.set_index(["city", "ward"])["count"]).all()
    assert out["count"].iloc[0] == cells["count"].sum()
    assert "impossible numbers are 0 in both" in design.guarantee.neighbours


def test_a_label_that_follows_from_another():
    of = {"Reno": "NV", "Oakland": "CA", "Fresno": "CA"}
    table = pd.DataFrame(
        [[2, 0, 2], [0, 5, 5], [0, 1, 1], [2, 6, 8]],
        index=pd.Index([*of, "All"], name="city"), columns=pd.Index(["NV", "CA", "All"],
                                                                    name="state"),
    )  # fmt: skip
    asked = {"row_totals": {"All": list(of)}, "totals": {"All": ["NV", "CA"]}, "epsilon": 1.0}
    out = TableRelease(impossible=dependency("city", "state", of), **asked).release(table)
    assert out.design.mechanism.manifold.dim == 3
    assert (out.table.loc["Reno", "NV"] == out.table.loc["Reno", "All"]).all()
    assert out.table.loc["Reno", "CA"] == out.table.loc["Oakland", "NV"] == 0


def test_values_of_impossible_rows():
    table = with_total_rows(pd.DataFrame({"ward": list("abc"), "n": [1, 0, 2], "pay": [5, 0, 9]}),
                            ["ward"])  # fmt: skip
    mu = {"n": (1, 1), "pay": (0, 9)}
    release = TableRelease(
        hierarchy=["ward"], mu=mu, epsilon=1.0, impossible=[{"ward": "b"}], law="laplace"
    )
    out = release.release(table)
    assert out.table.loc[2, ["n", "pay"]].tolist() == [0, 0]
    assert out.design.mechanism.adjacency.directions().shape == (6, 4)


@pytest.mark.parametrize(
    ("impossible", "words"),
    [
        ([{"sex": "f"}], "labels nothing"),
        ([{"age": "30-39"}], "no cell of the table"),
        ([{"age": "20+", "married": "yes"}], "was said to be impossible"),
        ({"age": "0-9"}, "must be a list"),
        ([{}], "must be a list"),
    ],
)
def test_refusals(impossible, words):
    with pytest.raises(AffineDPError, match=words):
        TableRelease(impossible=impossible, epsilon=1.0, **TOTALS).release(crosstab(BASE))


def test_refusals_elsewhere():
    with pytest.raises(AffineDPError, match="equations between rows"):
        TableRelease(totals={"All": STATES}, impossible=CHILDREN, epsilon=1.0)
    other = TableRelease(impossible=CHILDREN, epsilon=1.0, **TOTALS).design(crosstab(BASE))
    with pytest.raises(AffineDPError, match="labels nothing"):
        other.release(crosstab(BASE).rename_axis(columns="state"))


def test_they_are_said_in_a_file(tmp_path):
    release = TableRelease(impossible=CHILDREN, epsilon=1.0, **TOTALS)
    file = tmp_path / "table.toml"
    file.write_text(release.toml(), encoding="utf-8")
    assert read_release(file).release.impossible == CHILDREN


def test_a_description_of_a_crosstab_runs_as_a_file(tmp_path):
    table, data, file = crosstab(BASE), tmp_path / "table.csv", tmp_path / "table.toml"
    table.to_csv(data)
    asked = {"epsilon": 1.0, "labels": "public", "say": lambda text: None}
    release = from_crosstab(table, impossible=CHILDREN, **asked)
    file.write_text(release.toml(), encoding="utf-8")
    read = read_release(file)
    assert read.index == ("age",)
    assert read.release.toml() == release.toml()
    published = tmp_path / "published.csv"
    release_file(file, data, published)
    out = pd.read_csv(published, index_col="age")
    assert (out.loc["0-9", ["yes", "was"]] == 0).all()
    layouts = [release.design(table), read.release.design(table.rename_axis(columns=None))]
    assert layouts[0].layout.impossible == layouts[1].layout.impossible == {0, 2}
    # a crosstab in which nothing adds up
    cells = table.iloc[:-1, :-1]
    cells.to_csv(data)
    file.write_text(from_crosstab(cells, **asked).toml(), encoding="utf-8")
    release_file(file, data, published, force=True)
    assert pd.read_csv(published, index_col="age").shape[0] == len(AGES)


@pytest.mark.parametrize(
    "impossible",
    [
        [{"age": "0-9", "wed": ["yes", "wsa"]}],  # no such column
        [{"age": "0-9", "wed": "yes"}, {"age": "0-9", "married": "was"}],  # which of the two?
        [{"age": "0-9", "yes": "was"}],  # a column, no name of columns
    ],
)
def test_only_one_name_is_that_of_the_columns(impossible):
    table = crosstab(BASE).rename_axis(columns=None)
    with pytest.raises(TableError, match="labels nothing"):
        TableRelease(impossible=impossible, epsilon=1.0, **TOTALS).release(table)


@pytest.mark.parametrize("said", [{}, {"public_rows": ["All"]}])
def test_rows_without_labels_are_said_to_have_none(said):
    told = {**TOTALS, **said}
    if said:
        told["row_totals"] = {3: [0, 1, 2]}
    with pytest.raises(TableError, match='rows have no labels.*index = "age"'):
        TableRelease(epsilon=1.0, **told).release(crosstab(BASE).reset_index(drop=True))


def test_labels_that_read_alike_are_refused():
    t = pd.DataFrame([[0, 1, 1], [0, 2, 2], [0, 3, 3]], [1, "1", "All"], ["yes", "no", "All"])
    t = t.rename_axis(index="age", columns="married")
    asked = {"totals": {"All": ["yes", "no"]}, "row_totals": {"All": [1, "1"]}, "epsilon": 1.0}
    with pytest.raises(TableError, match="read alike"):
        TableRelease(impossible=[{"age": 1, "married": "yes"}], **asked).release(t)


@pytest.mark.parametrize("state", [["x", "y"], math.nan, None])
def test_a_dependency_names_one_label(state):
    with pytest.raises(TableError, match="one label"):
        dependency("a", "b", {1: state, 2: "x"})


def test_not_everything_is_impossible():
    with pytest.raises(TableError, match="no cell in which people can be"):
        TableRelease(impossible=[{"age": AGES}], epsilon=1.0, **TOTALS).design(crosstab(0 * BASE))
