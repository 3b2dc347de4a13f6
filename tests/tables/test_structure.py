"""Hierarchies, totals of rows and cross-tabulations: which equations, which neighbours."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import affinedp as adp
from affinedp.designs.gaussian import largest_sensitivity
from affinedp.errors import AffineDPError
from affinedp.tables import TableRelease, with_total_rows
from affinedp.tables.layout import layout_of
from affinedp.tables.least_noise import _levels, symmetric_noise
from affinedp.tables.people import manifold_of, neighbours_of
from affinedp.tables.refusals import TableError
from oracles import brute_force_sensitivity

PROMISE = {"epsilon": 1.0, "delta": 1e-6}
GAUSSIAN = {**PROMISE, "law": "gaussian"}
LEVELS = ["state", "county", "tract"]


def places(branches=(2, 2, 3), seed=0):
    generator = np.random.default_rng(seed)
    rows = [
        ("S" + str(s), f"C{s}{c}", f"T{s}{c}{t}", int(generator.integers(1, 100)))
        for s, c, t in itertools.product(*map(range, branches))
    ]
    cells = pd.DataFrame(rows, columns=[*LEVELS, "people"])
    return with_total_rows(cells, LEVELS, ["people"])


def holds(table):
    """Whether a long table adds up, by grouping its leaves anew."""
    leaves = table[table["tract"].notna()]
    for depth in range(3):
        rows = table[table[LEVELS].notna().sum(axis=1) == depth]
        if depth == 0:
            sums = [leaves["people"].sum()]
        else:
            sums = leaves.groupby(LEVELS[:depth], sort=False)["people"].sum().to_list()
        if not np.allclose(rows["people"].to_list(), sums, atol=1e-8):
            return False
    return True


@pytest.mark.parametrize("neighbours", ["person", "replace", "circuits"])
def test_levels(neighbours):
    table = places()
    out = TableRelease(hierarchy=LEVELS, adjacency=neighbours, round_to=1, **PROMISE).release(table)
    assert holds(table)
    assert holds(out.table)
    assert out.table[LEVELS].equals(table[LEVELS])
    assert out.table["people"].dtype == np.int64
    assert not (out.table["people"] == table["people"]).all()


def test_levels_and_parents_say_the_same():
    table = places()
    words = table[LEVELS].apply(lambda row: "/".join(row.dropna()) or "all", axis=1)
    parent = [None if name == "all" else (name.rpartition("/")[0] or "all") for name in words]
    by_parent = pd.DataFrame({"parent": parent, "people": table["people"].to_numpy()}, index=words)
    first = TableRelease(hierarchy=LEVELS, **PROMISE)
    second = TableRelease(hierarchy="parent", **PROMISE)
    one, other = layout_of(first, table), layout_of(second, by_parent)
    assert {frozenset(r.coefficients.items()) for r in one.relations} == {
        frozenset(r.coefficients.items()) for r in other.relations
    }
    released = second.release(by_parent).table
    assert released.loc["all", "people"] == pytest.approx(
        released.loc[[w for w in words if w.count("/") == 2], "people"].sum()
    )


def test_levels_without_rows_in_between():
    """No county rows: a state is the sum of its tracts."""
    table = places()
    table = table[~(table["county"].notna() & table["tract"].isna())]
    layout = layout_of(TableRelease(hierarchy=LEVELS, **PROMISE), table)
    assert sorted(len(r.coefficients) for r in layout.relations) == [3, 7, 7]


def test_a_wrong_total_is_named_by_its_place():
    table = places()
    table.loc[table["county"].eq("C01") & table["tract"].isna(), "people"] += 2
    with pytest.raises(TableError) as refusal:
        TableRelease(hierarchy=LEVELS, **PROMISE).release(table)
    wrong = "`S0 / C01` = T010 + T011 + T012"
    assert wrong in {equation for _, equation in refusal.value.broken}
    found = TableRelease(hierarchy=LEVELS, **PROMISE).check(table)
    assert dict(zip(found["equation"], found["off"]))[wrong] == 2
    assert "unknown='totals'" in str(refusal.value)
    repaired = TableRelease(hierarchy=LEVELS, unknown="totals", **PROMISE).release(table)
    assert holds(repaired.table)
    within = TableRelease(hierarchy=LEVELS, adjust="totals", within=2, **PROMISE).release(table)
    assert holds(within.table)
    with pytest.raises(TableError, match="S0 / C01.* change by more than within = 1"):
        TableRelease(hierarchy=LEVELS, adjust="totals", within=1, **PROMISE).release(table)


def test_totals_that_are_missing_can_be_computed():
    table = places().astype({"people": float})
    table.loc[table["tract"].isna(), "people"] = np.nan
    with pytest.raises(TableError, match="'people' is missing"):
        TableRelease(hierarchy=LEVELS, **PROMISE).release(table)
    out = TableRelease(hierarchy=LEVELS, unknown="totals", round_to=1, **PROMISE).release(table)
    assert holds(out.table)


BAD_PLACES = [
    (lambda t: t.assign(county=t["county"].where(t["tract"].isna())), "has a tract but no county"),
    (lambda t: pd.concat([t, t.iloc[[3]]], ignore_index=True), "are both about S0 / C00"),
    (lambda t: t[t["tract"].notna()], "no row is the total of others"),
    (lambda t: t.set_axis([0] * len(t)), "occurs twice"),
    (lambda t: t.assign(note="x"), "'note' does not hold numbers"),
]


@pytest.mark.parametrize(("spoil", "words"), BAD_PLACES)
def test_hierarchies_that_are_none(spoil, words):
    with pytest.raises(TableError, match=words):
        TableRelease(hierarchy=LEVELS, **PROMISE).release(spoil(places()))


@pytest.mark.parametrize(
    ("parents", "words"),
    [(["b", "a", "a"], "its own ancestor"), ([None, "a", "z"], "'z', which is no row")],
)
def test_parents_that_are_none(parents, words):
    table = pd.DataFrame({"parent": parents, "n": [1, 1, 1]}, index=list("abc"))
    with pytest.raises(TableError, match=words):
        TableRelease(hierarchy="parent", **PROMISE).release(table)


def test_neighbours_of_a_hierarchy_by_hand():
    """One total of three cells, one of which is a total of two: paths between cells or upwards."""
    table = pd.DataFrame(
        {"parent": [None, "t", "t", "a", "a"], "n": [6, 3, 3, 1, 2]},
        index=["t", "a", "b", "x", "y"],
    )
    release = TableRelease(hierarchy="parent", **PROMISE)
    design = release.design(table)
    moves = {tuple(np.rint(v).astype(int)) for v in design.mechanism.adjacency.directions().T}
    assert moves == {(1, 1, 0, 1, 0), (1, 1, 0, 0, 1), (1, 0, 1, 0, 0)}
    circuits = TableRelease(hierarchy="parent", adjacency="circuits", **GAUSSIAN).design(table)
    D = np.array([[1, -1, -1, 0, 0], [0, 1, 0, -1, -1]])
    noise = circuits.mechanism.noise_matrix
    worst, count = brute_force_sensitivity(D, np.linalg.pinv(noise), 2, np.ones(5))
    assert count == 6
    assert circuits.guarantee.sensitivity == pytest.approx(worst)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_one_weight_per_level_is_as_good_as_the_optimum_on_a_regular_tree(law):
    promise = PROMISE if law == "gaussian" else {"epsilon": 1.0}
    release = TableRelease(hierarchy=LEVELS, adjacency="circuits", **promise)
    layout = layout_of(release, places((2, 2, 2)))
    manifold = manifold_of(layout)
    adjacency = neighbours_of(release, layout, manifold).adjacency
    limit = largest_sensitivity(1.0, 1e-6) if law == "gaussian" else 1.0
    found = symmetric_noise(adjacency, law, limit, _levels(layout, adjacency, None), None)
    if law == "gaussian":
        best = adp.design_gaussian(manifold, adjacency=adjacency, **promise)
    else:
        best = adp.design_laplace(manifold, adjacency=adjacency, effort="quick", **promise)
    assert found.expected_squared_error <= best.expected_squared_error * (1 + 1e-4)
    # the promise word by word
    D = np.asarray(manifold.D)
    whitening = np.linalg.pinv(np.asarray(found.noise_matrix))
    norm = 2 if law == "gaussian" else 1
    directions = adjacency.directions()
    assert np.linalg.norm(whitening @ directions, ord=norm, axis=0).max() <= limit * (1 + 1e-9)
    assert not (D @ directions).any()


def test_a_large_hierarchy_is_released():
    """120 tracts: more than 7000 circuits, designed level by level and verified exactly."""
    table = places((3, 5, 8))
    release = TableRelease(hierarchy=LEVELS, adjacency="circuits", round_to=1, **GAUSSIAN)
    out = release.release(table)
    assert holds(out.table)
    assert out.guarantee.exact
    assert out.guarantee.holds(1.0, 1e-6)
    assert "levels of the table" in str(out.report())


def crosstab(seed=0, shape=(4, 3)):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        generator.integers(0, 60, shape),
        columns=list("abcdefgh"[: shape[1]]),
        index=[f"r{i}" for i in range(shape[0])],
    )


@pytest.mark.parametrize("neighbours", ["person", "circuits", "swaps"])
def test_public_margins_stay_as_they_are(neighbours):
    table = crosstab()
    release = TableRelease(margins="public", adjacency=neighbours, round_to=1, **PROMISE)
    out = release.release(table)
    assert out.table.sum().equals(table.sum())
    assert out.table.sum(axis=1).equals(table.sum(axis=1))
    assert not out.table.equals(table)
    assert "7 public sums are the same in both and not protected" in out.guarantee.neighbours


def test_moves_that_keep_margins_by_brute_force():
    """Circuits of a 3×3 table with fixed margins: 9 squares and 6 hexagons, entries ±1."""
    table = crosstab(shape=(3, 3))

    def moves_of(neighbours):
        release = TableRelease(margins="public", adjacency=neighbours, **GAUSSIAN)
        return release.design(table).mechanism.adjacency.directions()

    moves, squares, people = (moves_of(kind) for kind in ("circuits", "swaps", "person"))
    found = {tuple(sorted((tuple(v), tuple(-v)))) for v in np.rint(moves.T).astype(int).tolist()
             for v in [np.array(v)]}  # fmt: skip
    wanted = set()
    for cells in itertools.product((-1, 0, 1), repeat=9):
        grid = np.array(cells).reshape(3, 3)
        if grid.any() and not grid.sum(axis=0).any() and not grid.sum(axis=1).any():
            wanted.add(tuple(sorted((tuple(cells), tuple(-c for c in cells)))))
    minimal = {
        pair for pair in wanted
        if not any(set(np.flatnonzero(o[0])) < set(np.flatnonzero(pair[0])) for o in wanted)
    }  # fmt: skip
    assert len(minimal) == 15
    assert {tuple(tuple(map(int, v)) for v in pair) for pair in found} == minimal
    assert squares.shape[1] == 9
    assert {tuple(v) for v in np.abs(people.T)} == {tuple(v) for v in np.abs(squares.T)}


def test_margins_inside_the_table():
    """Total row and total column in the table, public: the same noise as public margins."""
    inner = crosstab()
    whole = inner.assign(all=inner.sum(axis=1))
    whole.loc["sum"] = whole.sum()
    release = TableRelease(
        totals={"all": list("abc")},
        row_totals={"sum": [f"r{i}" for i in range(4)]},
        public=["all"],
        public_rows=["sum"],
        round_to=1,
        **PROMISE,
    )
    out = release.release(whole)
    assert out.table.loc["sum"].equals(whole.loc["sum"])
    assert out.table["all"].equals(whole["all"])
    assert (out.table[list("abc")].sum(axis=1) == whole["all"]).all()
    direct = TableRelease(margins="public", **PROMISE).design(inner)
    plain = replace(release, round_to=None).design(whole)
    assert plain.deviations == pytest.approx(direct.deviations, rel=1e-6)
    lower, upper = out.interval()
    assert lower.loc["sum"].equals(upper.loc["sum"])


def test_long_cross_tabulation():
    table = crosstab().rename_axis("row").reset_index().melt("row", var_name="col", value_name="n")
    release = TableRelease(margins=[["row"], ["col"]], round_to=1, **PROMISE)
    out = release.release(table).table
    for name in ("row", "col"):
        assert out.groupby(name)["n"].sum().equals(table.groupby(name)["n"].sum())
    total = (
        TableRelease(margins=[[]], public=["row", "col"], round_to=1, **PROMISE)
        .release(table)
        .table
    )
    assert total["n"].sum() == table["n"].sum()


def test_private_margins_add_up_too():
    inner = crosstab()
    whole = inner.assign(all=inner.sum(axis=1))
    whole.loc["sum"] = whole.sum()
    release = TableRelease(
        totals={"all": list("abc")}, row_totals={"sum": [f"r{i}" for i in range(4)]},
        round_to=1, **PROMISE,
    )  # fmt: skip
    out = release.release(whole).table
    assert (out["all"] == out[list("abc")].sum(axis=1)).all()
    assert out.loc["sum"].equals(out.iloc[:4].sum().rename("sum"))


def test_too_many_ways_to_move_have_noise_all_the_same():
    """Twelve lines of twelve, with the formula of noise under all sums at once."""
    frame = pd.DataFrame(np.ones((12, 12)), columns=[f"c{i}" for i in range(12)])
    made = TableRelease(margins="public", adjacency="circuits", epsilon=1.0).design(frame)
    assert made.mechanism.law == "productnorm"
    assert made.mechanism.guarantee.epsilon() <= 1.0
    k = n = 12
    d = n - 1
    formula = k * d * (k * d + 1) * (1 + (k - 1) * d / (d + 2)) * 4 * (2 * n - 1) / (n * (n + 1))
    assert made.mechanism.expected_squared_error == pytest.approx(formula * (k - 1) / k)


def test_too_many_cells_for_one_data_set():
    frame = pd.DataFrame({"parent": [None] + [0] * 30_000, "n": [30_000] + [1] * 30_000})
    frame["m"] = frame["n"]
    with pytest.raises(TableError, match="too many for one data set"):
        TableRelease(hierarchy="parent", **PROMISE).release(frame)


def test_a_design_is_for_its_rows():
    design = TableRelease(hierarchy=LEVELS, **PROMISE).design(places())
    with pytest.raises(TableError, match="other rows"):
        design.release(places((2, 2, 2)))
    assert math.isfinite(design.half_width().to_numpy().max())


# ---------------------------------------------------------------------- what no neighbour moves


def published_or_refused(release, table):
    """The published table, or None if the release was refused: both are honest."""
    try:
        return release.release(table).table
    except AffineDPError:
        return None


def test_cells_that_no_swap_reaches_are_kept():
    """A 3 × 3 block with an empty diagonal can move (around a hexagon), but not by a swap."""
    cells = [(r, c) for r in "abc" for c in "xyz" if "abc".index(r) != "xyz".index(c)]
    cells += [(r, c) for r in "de" for c in "uv"]
    table = pd.DataFrame(cells, columns=["r", "c"]).assign(n=np.arange(10.0) * 100 + 10)
    release = TableRelease(margins=[["r"], ["c"]], adjacency="swaps", epsilon=50.0, delta=1e-6)
    found = published_or_refused(release, table)
    assert found is None or (found["n"] - table["n"]).abs().max() < 20


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_columns_that_may_not_move_are_kept(law):
    """μ = 0 on c, d and s: neighbours agree there, so nothing is to be lost there."""
    table = pd.DataFrame({"a": [1e3], "b": [2e3], "t": [3e3], "c": [4e2], "d": [5e2], "s": [9e2]})
    release = TableRelease(
        totals={"t": ["a", "b"], "s": ["c", "d"]},
        mu={"a": 1, "b": 1, "t": 1, "c": 0, "d": 0, "s": 0},
        epsilon=50.0,
        delta=1e-6 if law == "gaussian" else 0.0,
    )
    found = published_or_refused(release, table)
    assert found is None or (found - table).abs().to_numpy().max() < 20


def test_what_is_shared_by_neighbours_is_exact_or_refused():
    """Tenths that swap places keep their sums as decimals, not as doubles."""
    cells = [(r, c) for r in "abc" for c in "xyz" if "abc".index(r) != "xyz".index(c)]
    cells += [(r, c) for r in "de" for c in "uv"]
    table = pd.DataFrame(cells, columns=["r", "c"]).assign(n=np.arange(10) / 4)
    release = TableRelease(margins=[["r"], ["c"]], adjacency="swaps", whole=False, **PROMISE)
    assert len(release.release(table).table) == 10  # quarters are doubles
    with pytest.raises(TableError, match="'a / z' holds decimals that double precision rounds"):
        release.release(table.assign(n=np.arange(10) / 10))
