"""One person in a table, against tables that are written out person by person.

The oracle is independent: it counts people one by one, makes every table of a few people, and
lists all pairs that differ by one person who joins, is counted elsewhere, or exchanges places.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import affinedp as adp
from affinedp.neighbours.joint import JointAdjacency
from affinedp.tables import TableRelease, read_release, with_total_rows
from affinedp.tables.layout import layout_of
from affinedp.tables.least_noise import GEOMETRIC
from affinedp.tables.people import manifold_of, neighbours_of
from affinedp.tables.refusals import TableError

PROMISE = {"epsilon": 1.0, "delta": 1e-6}


def signed(vectors):
    """Vectors up to sign, as a set."""
    found = set()
    for vector in vectors:
        whole = tuple(int(v) for v in np.rint(vector))
        if any(whole):
            first = next(v for v in whole if v)
            found.add(tuple(v * (1 if first > 0 else -1) for v in whole))
    return found


def moves_of(release, table):
    layout = layout_of(release, table)
    adjacency = neighbours_of(release, layout, manifold_of(layout)).adjacency
    return signed(adjacency.directions().T), layout


def crosstab(shape):
    """A cross-tabulation with totals, and what one person in cell (i, j) counts in."""
    rows, columns = shape
    names = [f"c{j}" for j in range(columns)]
    inner = pd.DataFrame(np.ones(shape, int), columns=names, index=[f"r{i}" for i in range(rows)])
    table = inner.assign(all=inner.sum(axis=1))
    table.loc["sum"] = table.sum()
    people = []
    for i, j in itertools.product(range(rows), range(columns)):
        one = np.zeros((rows + 1, columns + 1), int)
        one[i, j] = one[i, -1] = one[-1, j] = one[-1, -1] = 1
        people.append(one.ravel())
    arguments = {"totals": {"all": names}, "row_totals": {"sum": list(inner.index)}}
    return table, np.array(people), arguments


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 3)])
def test_a_cross_tabulation_person_by_person(shape):
    table, people, arguments = crosstab(shape)
    joins, _ = moves_of(TableRelease(**arguments, **PROMISE), table)
    assert joins == signed(people)
    replaced, _ = moves_of(TableRelease(**arguments, adjacency="replace", **PROMISE), table)
    assert replaced == signed(a - b for a, b in itertools.combinations(people, 2))


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (3, 3)])
def test_public_row_totals_leave_moves_within_rows(shape):
    table, people, arguments = crosstab(shape)
    release = TableRelease(**arguments, public=["all"], **PROMISE)
    found, layout = moves_of(release, table)
    kept = [a - b for a, b in itertools.combinations(people, 2)]
    shared = [v for v in kept if not v.reshape(shape[0] + 1, -1)[:, -1].any()]
    assert found == signed(v[layout.private] for v in shared)
    design = release.design(table)
    assert "counted in another cell" in design.guarantee.neighbours
    assert any("not covered" in text for text in design.guarantee.warnings)


def test_both_margins_public_leave_exchanges():
    table, people, arguments = crosstab((3, 3))
    release = TableRelease(**arguments, public=["all"], public_rows=["sum"], **PROMISE)
    found, layout = moves_of(release, table)
    wanted = []
    for a, b, c, d in itertools.product(range(9), repeat=4):
        v = people[a] + people[b] - people[c] - people[d]
        grid = v.reshape(4, 4)
        if not grid[-1].any() and not grid[:, -1].any():
            wanted.append(v[layout.private])
    assert found == signed(wanted)
    assert len(found) == 9


def test_two_splits_of_one_total():
    table = pd.DataFrame({"all": [9], "women": [5], "men": [4], "young": [3], "old": [6]})
    release = TableRelease(totals={"all": [["women", "men"], ["young", "old"]]}, **PROMISE)
    found, _ = moves_of(release, table)
    assert found == {(1, *sex, *age) for sex in ((1, 0), (0, 1)) for age in ((1, 0), (0, 1))}
    assert release.design(table).guarantee.neighbours.endswith(
        "by one person more or less, in one cell of the table; a person counts for at most 1 in a "
        "number; whole numbers"
    )


def test_a_person_is_counted_in_each_table():
    """Columns that no equation ties: one person may be in one cell of each."""
    table = pd.DataFrame({"a": [1], "b": [2], "t": [3], "visits": [7]})
    release = TableRelease(totals={"t": ["a", "b"]}, columns=["a", "b", "t", "visits"],
                           law="gaussian", **PROMISE)  # fmt: skip
    design = release.design(table)
    adjacency = design.mechanism.adjacency
    assert isinstance(adjacency, JointAdjacency)
    # the oracle: all tables of one person, who may be missing in each part
    moves = [
        np.array([x, y, x + y, v])
        for (x, y), v in itertools.product([(0, 0), (1, 0), (0, 1)], [-1, 0, 1])
    ]
    whitening = np.linalg.pinv(_dense(design.mechanism.noise_matrix))
    worst = max(float(np.linalg.norm(whitening @ move)) for move in moves)
    assert design.guarantee.sensitivity == pytest.approx(worst, rel=1e-9)
    assert worst <= float(adp.gaussian_sensitivity(1.0, 1e-6)) * (1 + 1e-12)
    assert signed(adjacency.directions().T) == signed(moves)
    assert "each of its 2 parts" in design.guarantee.neighbours
    # who says that a person is in one cell altogether needs less noise
    once = replace(release, at_most=1).design(table)
    assert (once.deviations < design.deviations).all()


def test_a_person_may_be_replaced_in_another_part():
    """One cell altogether: in the other part a person would change totals that are exact."""
    table = pd.DataFrame({"s": [3], "a": [1], "b": [2], "t": [7], "c": [3], "d": [4]})
    totals = {"s": ["a", "b"], "t": ["c", "d"]}
    release = TableRelease(totals=totals, epsilon=1.0, adjacency="replace", at_most=1)
    with pytest.raises(TableError, match="another of its parts"):
        release.design(table)
    # in every part once, a person keeps the totals
    each = TableRelease(totals=totals, epsilon=1.0, adjacency="replace").design(table)
    assert each.noise["s"] == 0
    assert each.noise["a"] > 0


def _dense(matrix):
    return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_promise_is_shared_out_to_the_least_cost(law):
    """No other split of the promise between two unrelated columns costs less."""
    table = pd.DataFrame({"a": [1], "b": [2], "t": [3], "visits": [7]})
    promise = PROMISE if law == "gaussian" else {"epsilon": 1.0}
    own = TableRelease(totals={"t": ["a", "b"]}, columns=["a", "b", "t", "visits"],
                       law=law, weights={"visits": 30.0}, **promise).design(table)  # fmt: skip
    cost = np.array([1, 1, 1, 30.0]) @ own.mechanism.expected_squared_errors
    split = TableRelease(totals={"t": ["a", "b"]}, law=law, **promise).design(
        table[["a", "b", "t"]]
    )
    first = float(split.mechanism.expected_squared_errors.sum())
    alone = TableRelease(equations=[], columns=["visits"], law=law, **promise)
    second = 30 * float(alone.design(table[["visits"]]).mechanism.expected_squared_error)
    shares = np.linspace(0.001, 0.999, 9981)
    power = 1 if law == "gaussian" else 2
    least = (first / shares**power + second / (1 - shares) ** power).min()
    assert cost == pytest.approx(least, rel=2e-3)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_households_and_several_cells_scale_the_noise(law):
    table, _, arguments = crosstab((2, 2))
    promise = PROMISE if law == "gaussian" else {"epsilon": 1.0}
    one, three, six = (
        TableRelease(**arguments, **extra, law=law, **promise).design(table)
        for extra in ({}, {"household": 3}, {"household": 3, "at_most": 2})
    )
    assert three.deviations == pytest.approx(3 * one.deviations, rel=1e-6)
    assert six.deviations == pytest.approx(6 * one.deviations, rel=1e-6)
    assert "a household of up to 3 people more or less" in three.guarantee.neighbours
    assert "at most 2 cells" in six.guarantee.neighbours


def test_what_no_person_can_change_is_refused():
    """An empty diagonal and public margins: only rings of three people move the cells."""
    cells = [(r, c) for r in "abc" for c in "xyz" if "abc".index(r) != "xyz".index(c)]
    table = pd.DataFrame(cells, columns=["r", "c"]).assign(n=10)
    with pytest.raises(TableError, match="adjacency='circuits'"):
        TableRelease(margins=[["r"], ["c"]], **PROMISE).design(table)
    TableRelease(margins=[["r"], ["c"]], adjacency="circuits", **PROMISE).design(table)


def test_definition_4_on_one_tree_is_join_and_replace():
    """Theorem: the circuits of one tree of totals are people who join and who are replaced."""
    generator = np.random.default_rng(4)
    for _ in range(6):
        parent = [-1, *(int(generator.integers(0, i)) for i in range(1, 9))]
        inner = sorted({p for p in parent if p >= 0})
        D = np.zeros((len(inner), 9))
        for i, v in enumerate(inner):
            D[i, v] = -1
            D[i, [w for w in range(9) if parent[w] == v]] = 1
        leaves = [v for v in range(9) if v not in inner]
        paths = []
        for leaf in leaves:
            path, v = np.zeros(9), leaf
            while v >= 0:
                path[v], v = 1, parent[v]
            paths.append(path)
        wanted = signed(paths) | signed(a - b for a, b in itertools.combinations(paths, 2))
        found = signed(adp.CircuitAdjacency(adp.AffineManifold(D)).directions().T)
        assert found == wanted
        assert len(found) == len(leaves) * (len(leaves) + 1) // 2


# ---------------------------------------------------------------------- never worse


CASES = [
    (crosstab((5, 6))[0], crosstab((5, 6))[2]),
    (pd.DataFrame({"a": [1], "b": [2], "c": [3], "t": [6]}), {"totals": {"t": ["a", "b", "c"]}}),
]


@pytest.mark.parametrize("case", CASES, ids=["crosstab", "one total"])
@pytest.mark.parametrize("neighbours", ["person", "replace"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_never_worse_than_noise_on_the_cells(case, neighbours, delta):
    """Closed forms: cells and add up costs 2 L/ε² (person), 8 L(1 − L/N)/ε² (replace)."""
    table, arguments = case
    release = TableRelease(**arguments, adjacency=neighbours, epsilon=1.0, delta=delta)
    design = release.design(table)
    layout = design.layout
    cells = _cells_below(layout)
    inner = np.array([entry not in layout.totals for entry in range(layout.cells)])
    n = int(inner.sum())
    add_up = 2 * cells.sum() if neighbours == "person" else 8 * (cells * (1 - cells / n)).sum()
    error = design.mechanism.expected_squared_error
    assert error <= add_up * (1 + 1e-6)
    text = " ".join(str(design.report()).split())
    assert "noise on the cells, added up" in text
    assert min(one.error for one in design.compared) >= error * (1 - 1e-6)


def _cells_below(layout):
    """How many cells every number is the sum of, by adding indicators up."""
    count = layout.cells
    inner = [entry for entry in range(count) if entry not in layout.totals]
    below = {entry: {entry} for entry in inner}
    while len(below) < count:
        for relation in layout.relations:
            parts = [e for e in relation.coefficients if e != relation.total]
            if relation.total not in below and all(part in below for part in parts):
                below[relation.total] = set().union(*(below[part] for part in parts))
    return np.array([len(below[entry]) for entry in range(count)])


def test_the_cross_tabulation_of_the_report_costs_240():
    table, _, arguments = crosstab((5, 6))
    design = TableRelease(**arguments, epsilon=1.0, law="laplace").design(table)
    assert design.mechanism.expected_squared_error == pytest.approx(240, rel=1e-6)
    real = TableRelease(**arguments, epsilon=1.0, whole=False).design(table)
    assert real.mechanism.law == "staircase"
    assert real.mechanism.expected_squared_error == pytest.approx(230.17, rel=1e-4)


@pytest.mark.parametrize(("shape", "epsilon"), [((5, 6), 1.0), ((2, 3), 0.5), ((3, 3), 3.0)])
def test_counts_are_never_worse_than_geometric_cells(shape, epsilon):
    """OpenDP's noise on the cells, added up: 8 % less than Laplace noise at ε = 1."""
    table, _, arguments = crosstab(shape)
    design = TableRelease(**arguments, epsilon=epsilon).design(table)
    q = math.exp(-epsilon)
    practice = 4 * shape[0] * shape[1] * 2 * q / (1 - q) ** 2
    assert design.mechanism.expected_squared_error <= practice * (1 + 1e-9)
    assert design.guarantee.epsilon() <= epsilon
    named = {one.reason: one.error for one in design.compared}
    assert named[GEOMETRIC] == pytest.approx(practice)
    assert min(named.values()) >= design.mechanism.expected_squared_error * (1 - 1e-9)
    out = design.release(table)
    assert (out.table.to_numpy() == np.rint(out.table.to_numpy())).all()
    assert "whole numbers" in out.guarantee.neighbours
    assert "noise on the cells, added up" in " ".join(str(out.report()).split())


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 10.0])
@pytest.mark.parametrize("case", ["star", "two kinds of totals", "public total"])
def test_counts_of_people_who_move_are_never_worse_than_geometric_cells(case, epsilon):
    """Two cells change, so that each has rate ε/2; less the share of all in every number."""
    arguments = {"epsilon": epsilon}
    if case == "two kinds of totals":
        table, _, more = crosstab((3, 4))
        arguments |= more | {"adjacency": "replace"}
    else:
        table = pd.DataFrame({name: [2] for name in "abcdef"} | {"t": [12]})
        arguments |= {"totals": {"t": list("abcdef")}}
        arguments |= {"adjacency": "replace"} if case == "star" else {"public": ["t"]}
    release = TableRelease(**arguments)
    design = release.design(table)
    cells = _cells_below(design.layout)
    n = sum(entry not in design.layout.totals for entry in range(design.layout.cells))
    each = 1 / (2 * math.sinh(epsilon / 4) ** 2)
    practice = each * (cells * (1 - cells / n)).sum()
    assert design.mechanism.expected_squared_error <= practice * (1 + 1e-9)
    assert design.guarantee.epsilon() <= epsilon
    geometric = [one.error for one in design.compared if one.reason == GEOMETRIC]
    assert geometric == [pytest.approx(practice)]
    if case != "two kinds of totals":
        out = design.release(table).table.iloc[0]
        assert out["t"] == 12  # the number of people is public
        assert out[list("abcdef")].sum() == pytest.approx(12)
        if design.mechanism.noise.whole:  # real noise may be less
            with pytest.raises(TableError, match="whole"):
                release.release(table.assign(a=1.5, b=2.5))


def test_counts_in_parts_are_shared_out():
    """One cell in each of two parts: geometric noise at shares of ε, in exact arithmetic."""
    table = pd.DataFrame({"a": [1], "b": [2], "t": [3], "visits": [7]})
    release = TableRelease(totals={"t": ["a", "b"]}, columns=["a", "b", "t", "visits"], epsilon=1.0)
    design = release.design(table)
    assert design.guarantee.epsilon() <= 1.0
    geometric = [one.error for one in design.compared if one.reason == GEOMETRIC]
    laplace = [one.error for one in design.compared if one.law == "laplace"]
    assert design.mechanism.expected_squared_error <= min(geometric) < min(laplace)


def test_a_household_in_several_cells_is_covered():
    """Two people in two cells: the stated curve is at least that of their joint loss."""
    table, _, arguments = crosstab((2, 2))
    release = TableRelease(**arguments, epsilon=1.0, household=2)
    guarantee = release.design(table).guarantee
    q = math.exp(-0.5)  # each cell has half of ε
    law = np.array([(1 - q) / (1 + q) * q ** abs(z) for z in range(-120, 121)])
    both = np.outer(law, law)
    for epsilon in (0.0, 0.4, 0.9):
        joint = np.maximum(both[1:, 1:] - math.exp(epsilon) * both[:-1, :-1], 0).sum()
        assert guarantee.delta(epsilon) >= joint
        one = np.maximum(law[2:] - math.exp(epsilon) * law[:-2], 0).sum()
        assert guarantee.delta(epsilon) >= one


def test_decimals_are_refused_before_anything_is_charged(tmp_path):
    table = pd.DataFrame({"a": [0.5], "b": [2.0], "t": [2.5]})
    ledger = adp.Ledger(tmp_path / "l.db", epsilon=2.0, delta=0.0, protects="one person")
    with pytest.raises(TableError, match="whole=False"):
        TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0).release(table, ledger=ledger)
    assert ledger.spent == 0.0
    out = TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0, whole=False).release(table)
    assert out.guarantee.holds(1.0)
    with pytest.raises(TableError, match="whole mu"):
        TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0, mu=0.5, whole=True).design(table)


def test_a_hierarchy_of_three_thousand_rows():
    """Designed as a tree: less than the cells added up, and than one weight per level."""
    rows = [(f"s{s}", f"c{c}", s + c) for s in range(50) for c in range(s % 7 + 57)]
    table = with_total_rows(pd.DataFrame(rows, columns=["s", "c", "n"]), ["s", "c"], ["n"])
    release = TableRelease(hierarchy=["s", "c"], law="gaussian", round_to=1, **PROMISE)
    out = release.release(table)
    assert out.design.mechanism.gap < 2e-3
    assert min(one.error for one in out.design.compared) >= (
        out.design.mechanism.expected_squared_error * (1 - 1e-9)
    )
    leaves = out.table[out.table["c"].notna()]
    assert leaves.groupby("s", sort=False)["n"].sum().tolist() == (
        out.table[out.table["c"].isna() & out.table["s"].notna()]["n"].tolist()
    )
    lower, upper = out.interval(0.9)
    inside = ((lower["n"] <= table["n"]) & (table["n"] <= upper["n"])).mean()
    assert 0.87 < inside < 0.93
    assert out.levels().index.tolist() == ["grand total", "s", "c"]
    assert math.isclose(out.guarantee.epsilon(1e-6), 1.0, rel_tol=1e-6)


# ---------------------------------------------------------------------- no negative numbers


@pytest.mark.parametrize("round_to", [None, 1])
@pytest.mark.parametrize("margins", [False, True], ids=["totals", "public margins"])
def test_no_negative_numbers(round_to, margins):
    generator = np.random.default_rng(1)
    rows = list("xyz" if margins else "wxyz")  # of four rows the design takes ten seconds
    inner = pd.DataFrame(generator.poisson(0.7, (len(rows), 3)), columns=list("abc"), index=rows)
    if margins:
        table, arguments = inner, {"margins": "public"}
    else:
        table = inner.assign(all=inner.sum(axis=1))
        arguments = {"totals": {"all": list("abc")}, "rows": "separate"}
    release = TableRelease(**arguments, epsilon=0.5, nonnegative=True, round_to=round_to)
    design = release.design(table)
    negative = 0
    for _ in range(5):
        out = design.release(table)
        assert (out.table.to_numpy() >= 0).all()
        if margins:
            assert np.allclose(out.table.sum(), inner.sum(), atol=1e-6)
            assert np.allclose(out.table.sum(axis=1), inner.sum(axis=1), atol=1e-6)
        else:
            assert np.allclose(out.table["all"], out.table[list("abc")].sum(axis=1), atol=1e-6)
        negative += (out.unrounded.to_numpy() < 0).any()
        lower, upper = out.interval()
        assert (lower.to_numpy() >= 0).all()
        assert (upper >= lower).all(axis=None)
    assert negative > 0  # none in five releases: once in millions of runs


@pytest.mark.parametrize("level", [0.9, 0.99])
def test_half_widths_of_laplace_trees_hold_for_every_number(level):
    """At least the stated coverage for each number, by draws that the widths have not seen."""
    cells = pd.DataFrame({"state": list("AABB"), "county": list("wxyz"), "n": [30, 0, 2, 100]})
    table = with_total_rows(cells, ["state", "county"], ["n"])
    release = TableRelease(hierarchy=["state", "county"], epsilon=0.5, nonnegative=True)
    for neighbours in ("person", "circuits"):
        one = replace(release, adjacency=neighbours).design(table)
        errors = np.abs(one.mechanism.sample(100_000, seed=3))
        width = np.asarray(one.half_width(level), float).ravel()
        covered = (errors <= width).mean(axis=0)
        assert (covered >= level - 4 * math.sqrt(level * (1 - level) / 100_000)).all()
        if one.mechanism.noise.whole:  # nor is it much wider than the next whole number below
            covered = (errors <= width - 1).mean(axis=0)
        assert (covered <= level + 0.03).all()


def test_decimals_without_negative_numbers_keep_public_margins():
    """No slack that a solver could use up: the sums are right up to rounding."""
    counts = pd.DataFrame({"a": [0, 1], "b": [0, 0]}, index=["u", "v"])
    design = TableRelease(margins="public", epsilon=0.3, nonnegative=True).design(counts)
    for _ in range(10):
        out = design.release(counts).table
        assert (out >= 0).all(axis=None)
        assert np.abs(out.sum() - counts.sum()).max() < 1e-14
        assert np.abs(out.sum(axis=1) - counts.sum(axis=1)).max() < 1e-14


@pytest.mark.parametrize("law", ["gaussian", "laplace", None])
def test_decimals_in_two_parts_are_released(law):
    """Noise in two parts has no draws that reach no number, and can be published."""
    table = pd.DataFrame({"s": [4.0], "a": [1.5], "b": [2.5], "u": [2.5], "c": [1.0], "d": [1.5]})
    delta = {} if law == "laplace" else {"delta": 1e-6}
    design = TableRelease(totals={"s": ["a", "b"], "u": ["c", "d"]}, rows="separate", law=law,
                          epsilon=1.0, whole=False, **delta).design(table)  # fmt: skip
    noise = _dense(design.mechanism.noise_matrix)
    assert noise.any(axis=0).all()
    out = design.release(table).table
    assert np.allclose(out["a"] + out["b"], out["s"])
    assert np.allclose(out["c"] + out["d"], out["u"])


@pytest.mark.parametrize("weight", [1.0, 0.05, 0.01])
def test_practice_adds_noise_in_the_unit_of_each_number(weight):
    """People beside incomes: the better law is found, whatever the units."""
    table = pd.DataFrame({"s": [4.0], "a": [1.5], "b": [2.5], "u": [2.5], "c": [1.0], "d": [1.5]})
    described = {"totals": {"s": ["a", "b"], "u": ["c", "d"]}, "rows": "separate", "whole": False,
                 "mu": dict.fromkeys("abs", 1.0) | dict.fromkeys("cdu", 10.0),
                 "weights": dict.fromkeys("cdu", weight)}  # fmt: skip
    chosen = TableRelease(**described, epsilon=1.0, delta=1e-6).design(table)
    pure = TableRelease(**described, epsilon=1.0, law="laplace").design(table)
    assert chosen.weighted_error <= pure.weighted_error * (1 + 1e-9)
    # Laplace noise on each cell: ε is shared out by thirds of powers of what the parts cost
    parts = [4 * 2.0, weight * 4 * 2.0 * 10**2]
    least = sum(part ** (1 / 3) for part in parts) ** 3
    assert pure.weighted_error == pytest.approx(least, rel=1e-3)
    cells = [one.error for one in chosen.compared if one.reason == "noise on the cells, added up"]
    assert min(cells) == pytest.approx(least, rel=1e-3)


def test_columns_of_several_units_count_in_their_own():
    """People are not drowned in noise because incomes stand beside them."""
    table = pd.DataFrame({"s": [4], "a": [1], "b": [3], "u": [25], "c": [10], "d": [15]})
    described = {"totals": {"s": ["a", "b"], "u": ["c", "d"]}, "rows": "separate", "epsilon": 1.0,
                 "law": "laplace"}  # fmt: skip
    alike = TableRelease(**described).design(table)
    uneven = TableRelease(
        **described, mu=dict.fromkeys("abs", 1.0) | dict.fromkeys("cdu", 1000.0)
    ).design(table)
    assert uneven.noise[list("abs")].to_numpy() == pytest.approx(alike.noise[list("abs")])
    assert uneven.noise[list("cdu")].to_numpy() == pytest.approx(1000 * alike.noise[list("cdu")])
    assert uneven.weighted_error == pytest.approx(alike.weighted_error)
    assert sorted(uneven.levels().index) == list("abcdsu")
    assert sorted(alike.levels().index) == ["columns", "total columns"]


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_one_more_leaver_is_what_the_report_says(law):
    """``net = inn - out``: who leaves is counted in out and missing in net."""
    table = pd.DataFrame({"net": [3, 4], "inn": [10, 12], "out": [7, 8]})
    promise = {"epsilon": 1.0, "delta": 0.0 if law == "laplace" else 1e-6, "law": law}
    for text in ("net = inn - out", "inn = net + out", "net - inn + out = 0"):
        with pytest.raises(TableError, match="does not say it"):
            TableRelease(equations=[text], **promise).design(table)
    for how in ({"cells": ["inn", "out"]}, {"adjacency": "circuits"}):
        design = TableRelease(equations=["net = inn - out"], **how, **promise).design(table)
        m = design.mechanism
        assert m.manifold.names == ("net", "inn", "out")
        alone = adp.DirectionAdjacency(m.manifold, [[-1.0], [0.0], [1.0]])
        own = adp.verify(m.manifold, m.noise_matrix, law=law, adjacency=alone)
        assert own.epsilon(promise["delta"]) <= 1.0 + 1e-9


def test_equations_under_public_sums_have_one_reading():
    """Where only sums with public numbers are tied, somebody can only be counted elsewhere."""
    table = pd.DataFrame({"a": [3, 4], "b": [10, 12], "t": [13, 16]})
    design = TableRelease(equations=["t = a + b"], public=["t"], epsilon=1.0).design(table)
    assert "counted in another cell" in design.guarantee.neighbours
    with pytest.raises(TableError, match="does not say it"):
        TableRelease(equations=["t = a + b"], public=["b"], epsilon=1.0).design(table)


def test_what_was_discovered_cannot_become_a_weaker_promise(tmp_path):
    """As text, as a table file: data does not say in which number a person is counted."""
    inn, out = np.random.default_rng(0).integers(0, 500, (2, 40))
    table = pd.DataFrame({"inn": inn, "out": out, "net": inn - out})
    found = adp.discover(table)
    texts = [one.text for one in found.equations]
    with pytest.raises(TableError, match="does not say it"):
        TableRelease(equations=texts, epsilon=1.0).design(table)
    file = tmp_path / "table.toml"
    file.write_text(found.toml() + "\n[privacy]\nmu = 1\nepsilon = 1.0\n", encoding="utf-8")
    with pytest.raises(TableError, match="does not say it"):
        read_release(file).release.design(table)
    # a running sum is a level only if people are counted in it, and a row a total if they say so
    running = pd.DataFrame({"new": inn, "all": np.cumsum(inn)})
    assert "# [changes]" in adp.discover(running).toml()
    rows = pd.DataFrame({"x": [417, 220, 197], "y": [313, 99, 214]}, index=["inn", "net", "out"])
    rows = pd.concat([rows, rows.rename(columns={"x": "z", "y": "w"}) * 7 + 1], axis=1)
    rows.loc["inn"] = rows.loc["net"] + rows.loc["out"]
    assert "\n[row_totals]" not in adp.discover(rows).toml()
    # nor does a row without a label say that it is a total in which people are counted
    flows = pd.DataFrame({"town": np.repeat(list("ABCDEFGH"), 3), "flow": [None, "net", "out"] * 8})
    parts = np.random.default_rng(1).integers(0, 5000, (8, 2))
    flows["n"] = np.column_stack([parts.sum(axis=1), parts]).ravel()
    found = adp.discover(flows)
    assert [one.pattern for one in found.equations] == ["hierarchy"]
    file.write_text(found.toml() + "\n[privacy]\nmu = 1\nepsilon = 1.0\n", encoding="utf-8")
    with pytest.raises(adp.AffineDPError, match="between_rows"):
        read_release(file)


def test_swaps_are_the_same_with_and_without_the_public_margins():
    cells = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}, index=["x", "y", "z"])
    whole = cells.assign(All=cells.sum(axis=1))
    whole.loc["All"] = whole.sum()
    release = TableRelease(margins="public", adjacency="swaps", epsilon=1.0)
    without, with_both = release.design(cells), release.design(whole)
    assert with_both.mechanism.adjacency.span().shape[1] == 3
    assert with_both.weighted_error == pytest.approx(without.weighted_error)
    assert with_both.guarantee.unit == without.guarantee.unit
    out = release.release(whole).table
    assert out["All"].tolist() == whole["All"].tolist()


def test_an_exchange_is_covered_in_every_part_of_a_table():
    """Two counts of the same people: who exchanges places does so in both of them."""
    long = pd.DataFrame({"sex": list("ffmm"), "age": list("yoyo"), "n": [1, 2, 3, 4]})
    release = TableRelease(
        margins=[["sex"], ["age"]], adjacency="swaps", epsilon=1.0, law="laplace"
    )
    one = release.design(long).guarantee.epsilon()
    two = release.design(long.assign(m=[5, 6, 7, 8]))
    assert one == pytest.approx(1.0)
    moved = two.mechanism.adjacency.sensitivity(np.eye(8), norm=1)
    assert moved.upper == pytest.approx(8.0)
