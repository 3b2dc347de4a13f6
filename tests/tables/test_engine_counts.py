"""People counted on an engine: the same counts, and one release at the end."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from affinedp.tables import MarginRelease, TableRelease, count_people
from affinedp.tables.counting import counted_on_engine
from affinedp.tables.refusals import TableError

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
dataframe = pytest.importorskip("dask.dataframe")

CELLS = {"ward": ["a", "b", "c", "d"], "age": [0, 1, 2]}
ENGINES = {
    "dask": lambda frame: dataframe.from_pandas(frame, npartitions=5, sort=False),
    "polars": lambda frame: polars.from_pandas(frame).lazy(),
}


def visits(rows: int = 1500, seed: int = 0):
    rng = np.random.default_rng(seed)
    return pandas.DataFrame(
        {
            "who": rng.integers(0, 200, rows),
            "ward": rng.choice(list("abc"), rows),
            "age": rng.integers(0, 3, rows),
        }
    )


def limited(frame, at_most: int) -> Counter:
    """The oracle: person by person, in plain Python."""
    found: Counter = Counter()
    people: dict = {}
    for who, ward, age in frame.itertuples(index=False):
        people.setdefault(who, []).append((ward, age))
    for rows in people.values():
        found.update(sorted(rows)[:at_most])
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_counts_as_in_one_place(engine):
    given = visits()
    there = count_people(ENGINES[engine](given), ["ward", "age"], cells=CELLS)
    here = count_people(given, ["ward", "age"], cells=CELLS)
    assert there.equals(here)
    assert there["count"].sum() == len(given)
    assert len(there) == 12  # cells that nobody is in are there


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("at_most", [1, 3, 50])
def test_one_person_is_counted_so_often(engine, at_most):
    given = visits()
    table = ENGINES[engine](given)
    found = counted_on_engine(table, ["ward", "age"], person="who", at_most=at_most)
    assert found == limited(given, at_most)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_person_moves_only_what_is_said(engine):
    """Leaving out one person changes no other person's rows, in whatever order they come."""
    given = visits(400)
    for who in (3, 77):
        others = given[given["who"] != who].sample(frac=1.0, random_state=who)
        pair = [
            count_people(ENGINES[engine](f), ["ward", "age"], cells=CELLS, person="who", at_most=2)[
                "count"
            ]
            for f in (given, others)
        ]
        moved = (pair[0] - pair[1]).to_numpy()
        assert (moved >= 0).all()
        assert moved.sum() <= 2


@pytest.mark.parametrize("engine", ENGINES)
def test_what_has_no_place_is_refused(engine):
    make, given = ENGINES[engine], visits(60)
    with pytest.raises(TableError, match="no cell"):
        count_people(make(given), ["ward"], cells={"ward": ["a", "b"]})
    gap = given.assign(ward=given["ward"].where(given.index > 3))
    with pytest.raises(TableError, match="no cell"):
        count_people(make(gap), ["ward"], cells=CELLS)
    gap = given.assign(who=given["who"].astype(float).where(given.index > 3))
    with pytest.raises(TableError, match="nobody"):
        count_people(make(gap), ["ward"], cells=CELLS, person="who", at_most=1)
    with pytest.raises(TableError, match="no column 'town'"):
        count_people(make(given), ["town"], cells={"town": ["a"]})
    with pytest.raises(TableError, match="cannot come from the data"):
        count_people(make(given), ["ward"])
    with pytest.raises(TableError, match="go together"):
        count_people(make(given), ["ward"], cells=CELLS, person="who")


@pytest.mark.parametrize("engine", ENGINES)
def test_margins_are_counted_where_people_are(engine):
    given = visits()
    release = MarginRelease(attributes=CELLS, margins="<=2", epsilon=50.0)
    here, there = release.release(given), release.release(ENGINES[engine](given))
    for names in (("ward", "age"), ("ward",), ()):
        one, two = here.margin(*names), there.margin(*names)
        assert np.allclose(one["count"], np.asarray(two["count"]), atol=5)
    assert isinstance(there.margin("ward"), polars.DataFrame) == (engine == "polars")


def test_a_lazy_table_of_counts_is_read_once():
    counts = count_people(visits(), ["ward", "age"], cells=CELLS)
    lazy = polars.from_pandas(counts).lazy()
    release = MarginRelease(attributes=CELLS, margins="<=2", epsilon=50.0)
    found = release.release(lazy, count="count").margin("ward", "age")
    assert np.allclose(found["count"], counts["count"], atol=5)


def test_a_lazy_table_that_changes_is_counted_once():
    looks = []

    def look(frame):
        looks.append(len(frame))
        return frame

    lazy = ENGINES["polars"](visits()).map_batches(look)
    table = count_people(lazy, ["ward", "age"], cells=CELLS)
    release = TableRelease(columns=["count"], equations=[], public=["ward", "age"], at_most=1,
                           rows="separate", epsilon=1.0)  # fmt: skip
    assert len(release.release(table).table) == 12
    assert len(looks) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_one_more_person_does_not_turn_the_order_of_categories(engine):
    """Categories are numbered as they are met: one person's row decided for all others."""

    def counted(pairs):
        frame = pandas.DataFrame(pairs, columns=["who", "ward"])
        met = list(dict.fromkeys(frame["ward"]))
        frame["ward"] = pandas.Categorical(frame["ward"], categories=met)
        cells = {"ward": ["a", "b"]}
        table = ENGINES[engine](frame)
        return count_people(table, ["ward"], cells=cells, person="who", at_most=1)["count"].tolist()

    few = [(who, ward) for who in range(5) for ward in "ab"]
    assert counted(few) == [5, 0]
    assert counted([(9, "b"), *few]) == [5, 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_names_of_columns_that_meet(engine):
    table = ENGINES[engine](visits())
    people = sorted(visits()["who"].unique().tolist())
    found = count_people(table, ["who"], cells={"who": people}, person="who", at_most=1)
    assert found["count"].tolist() == [1] * len(people)
    renamed = ENGINES[engine](visits().rename(columns={"ward": "affinedp_counted"}))
    with pytest.raises(TableError, match="cannot be called"):
        counted_on_engine(renamed, ["affinedp_counted"], person="who", at_most=1)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_sorted_by_labels_is_counted_as_on_an_engine(engine):
    frame = visits()
    options = {"cells": CELLS, "person": "who", "at_most": 3}
    there = count_people(ENGINES[engine](frame), ["ward", "age"], **options)
    here = count_people(frame.sort_values(["who", "ward", "age"]), ["ward", "age"], **options)
    assert here["count"].tolist() == there["count"].tolist()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("at_most", [1, 3])
def test_margins_count_so_many_rows_of_a_person_by_their_labels(engine, at_most):
    given = visits()
    release = MarginRelease(attributes=CELLS, margins=[CELLS], epsilon=60.0, at_most=at_most)
    found = release.release(ENGINES[engine](given), person="who").margin("ward", "age")
    wanted = limited(given, at_most)
    assert np.rint(np.asarray(found["count"], dtype=float)).tolist() == [
        wanted[cell] for cell in zip(found["ward"], found["age"])
    ]


def test_one_person_moves_no_row_of_another_in_a_lazy_table_without_an_order():
    """The rows of one person changed the order of all others, and so which of them counted."""
    release = MarginRelease(
        attributes={"ward": ["a", "b"]}, margins=[["ward"]], epsilon=60.0, at_most=1
    )
    few = polars.DataFrame({"who": np.repeat(np.arange(100), 2), "ward": ["a", "b"] * 100})
    few = few.with_columns(hour=polars.lit(0, dtype=polars.Int64))
    one = polars.DataFrame({"who": [-1] * 20_000, "ward": "a", "hour": np.arange(20_000)})
    for frame, wanted in ((few, [100, 0]), (polars.concat([few, one]), [101, 0])):
        found = release.release(frame.lazy().unique(), person="who").margin("ward")
        assert found["count"].round().to_list() == wanted


def test_margins_with_a_person_are_counted_at_every_place():
    wards = pandas.DataFrame({"city": ["A", "A", "B"], "ward": ["a", "b", "c"]})
    given = visits()
    there = given.assign(city=given["ward"].map({"a": "A", "b": "A", "c": "B"}))
    release = MarginRelease(
        attributes={"age": [0, 1, 2]}, places=wards, epsilon=60.0, at_most=2, nonnegative=True
    )
    found = release.release(ENGINES["polars"](there), person="who").margin("age", at="ward")
    wanted = limited(given, 2)
    assert found["count"].to_list() == [wanted[cell] for cell in zip(found["ward"], found["age"])]


@pytest.mark.parametrize("engine", ENGINES)
def test_margins_say_what_they_cannot_count(engine):
    release = MarginRelease(attributes=CELLS, margins="<=1", epsilon=1.0)
    table = ENGINES[engine](visits().assign(who=float("nan")))
    with pytest.raises(TableError, match="nobody"):
        release.release(table, person="who")
    if engine == "dask":
        with pytest.raises(TableError, match="in one place"):
            release.release(table, count="who")


def _looked_at(frame):
    """A lazy table, and how often it was computed; after the first time, nobody is in it."""
    looks = []

    def look(found):
        looks.append(len(found))
        gone = polars.lit(None, dtype=found["who"].dtype).alias("who")
        return found if len(looks) == 1 else found.with_columns(gone)

    return frame.lazy().map_batches(look), looks


def test_people_are_counted_and_checked_in_one_pass():
    frame = polars.DataFrame({"who": [1, 1, 2], "ward": ["a", "b", "a"]})
    table, looks = _looked_at(frame)
    cells = {"ward": ["a", "b"]}
    found = count_people(table, ["ward"], cells=cells, person="who", at_most=1)
    assert found["count"].tolist() == [2, 0]
    assert len(looks) == 1
    with pytest.raises(TableError, match="nobody"):
        count_people(table, ["ward"], cells=cells, person="who", at_most=1)
    table, looks = _looked_at(frame)
    release = MarginRelease(attributes=cells, margins="<=1", epsilon=1.0)
    release.release(table, person="who")
    assert len(looks) == 1


def test_a_lazy_table_is_computed_once_for_a_release():
    frame = polars.DataFrame({"who": [1, 2], "a": [1, 2], "b": [1, 2], "c": [2, 4]})
    release = TableRelease(
        totals={"c": ["a", "b"]}, rows="separate", epsilon=1.0, delta=1e-6, public=["who"]
    )
    table, looks = _looked_at(frame)
    assert release.release(table, check_against=table).table["who"].to_list() == [1, 2]
    assert len(looks) == 1
    first, looks = _looked_at(frame)
    second, more = _looked_at(frame)
    TableRelease.together([release, release], epsilon=1.0).release([first, second])
    assert (len(looks), len(more)) == (1, 1)
