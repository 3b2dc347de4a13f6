"""Margins without impossible combinations, against least squares over the whole table."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from affinedp.errors import AffineDPError
from affinedp.tables import MarginRelease, dependency, prefix, ranges, read_release
from affinedp.tables.refusals import TableError

OF = {"Reno": "NV", "Oakland": "CA", "Fresno": "CA", "Boise": "ID"}
CITIES, STATES, SEXES = list(OF), ["NV", "CA", "ID"], ["f", "m"]
CITY = {"city": CITIES, "state": STATES, "sex": SEXES}
INSIDE = dependency("city", "state", OF)
AGES = ["0-9", "10-19", "20+"]
AGE = {"age": AGES, "married": ["yes", "no", "was"], "sex": SEXES}
CHILDREN = [{"age": "0-9", "married": ["yes", "was"]}]
PLACES = pd.DataFrame({"land": ["A", "A", "B"], "ward": ["A1", "A2", "B1"]})


def combinations(release: MarginRelease) -> np.ndarray:
    """All possible combinations of labels, word by word."""
    labels = [list(one.labels) for one in release.asked.values()]
    found = []
    for cell in itertools.product(*labels):
        person = dict(zip(release.names, cell))
        if not any(
            all(person[k] in (v if isinstance(v, list) else [v]) for k, v in rule.items())
            for rule in release.impossible
        ):
            found.append(person)
    return pd.DataFrame(found)


def outputs(release: MarginRelease, margins, cells: pd.DataFrame) -> np.ndarray:
    """What one person in each of these cells adds to every published number of one place."""
    columns = []
    for person in cells.to_dict("records"):
        parts = []
        for chosen in margins:
            table = np.ones(1)
            for j in chosen:
                name = release.names[j]
                asked = release.asked[name]
                one = np.array([label == person[name] for label in asked.labels], float)
                if asked.workload == "prefix":
                    one = np.cumsum(one)
                elif asked.workload == "ranges":
                    one = np.array([one[a:b].sum() for a in range(len(one))
                                    for b in range(a + 1, len(one) + 1)])  # fmt: skip
                elif asked.workload is not None:
                    one = np.array(asked.workload) @ one
                table = np.outer(table, one).ravel()
            parts.append(table)
        columns.append(np.concatenate(parts))
    return np.array(columns).T


def projection(span: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Least squares on a span, from noise of this covariance, which may be singular."""
    left, values, _ = np.linalg.svd(span)
    normal = left[:, (values > 1e-9).sum() :] if len(values) else left
    inner = normal.T @ covariance @ normal
    return np.eye(len(span)) - covariance @ normal @ np.linalg.pinv(inner, 1e-9) @ normal.T


CASES = {
    "dependency": {"attributes": CITY, "impossible": INSIDE},
    "one way": {"attributes": CITY, "impossible": INSIDE, "margins": "<=1"},
    "all": {"attributes": AGE, "impossible": CHILDREN, "margins": "<=3"},
    "two rules": {
        "attributes": {"a": "xyz", "b": "pq", "c": "xyz", "d": "pq"},
        "impossible": [{"a": "x", "b": "p"}, {"c": ["x", "y"], "d": "q"}, {"c": "z", "d": "p"}],
    },
    "hidden": {
        "attributes": {"a": "xyz", "b": "pq", "c": "rs"}, "margins": [["a"], ["b", "c"]],
        "impossible": [{"a": "x", "b": "p"}, {"a": "x", "b": "q", "c": ["r", "s"]}],
    },
    "public number": {"attributes": AGE, "impossible": CHILDREN, "adjacency": "replace"},
    "swaps": {"attributes": AGE, "impossible": CHILDREN, "adjacency": "swaps"},
    "prefix": {"attributes": {**AGE, "age": prefix(AGES)}, "impossible": CHILDREN},
    "beside": {"attributes": {**CITY, "sex": ranges(["a", "b", "c"])}, "impossible": INSIDE},
    "few sums": {
        "attributes": {**AGE, "married": (["yes", "no", "was"], [[1, 0, 1]])},
        "impossible": CHILDREN,
    },
    "own": {
        "attributes": {**AGE, "age": (AGES, [[1, 2, 3], [0, 1, 5], [0, 0, 1]])},
        "impossible": CHILDREN,
    },
}  # fmt: skip
for one in CASES.values():
    one["attributes"] = {
        name: list(given) if isinstance(given, str) else given
        for name, given in one["attributes"].items()
    }


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("case", CASES)
def test_least_squares_over_the_whole_table(case, delta):
    if case == "swaps" and not delta:
        pytest.skip("there is no Laplace noise for swaps")
    law = "gaussian" if delta else "laplace"
    release = MarginRelease(epsilon=1.0, delta=delta, law=law, **CASES[case])
    design = release.design()
    strategy, mechanism = design.strategy, design.mechanism
    possible = combinations(release)
    span = outputs(release, strategy.margins, possible)
    noise = np.asarray(strategy.loadings()) * 1.0
    each = mechanism.noise.variances(np.eye(noise.shape[1]))
    covariance = (noise * each) @ noise.T
    fitted = projection(span, covariance)
    found = np.concatenate([design.variances(one).ravel() * np.ones(design.cells(one))
                            for one in strategy.margins])  # fmt: skip
    wanted = np.diag(fitted @ covariance @ fitted.T)
    assert np.allclose(found, wanted, rtol=1e-6, atol=1e-9 * covariance.max())
    before = strategy.variances(mechanism.noise)
    assert (found <= before * (1 + 1e-9)).all()
    assert found.sum() < before.sum() * 0.999
    # the same release, with and without
    people = possible.sample(200, replace=True, random_state=1)
    counts = release._counts(people, None)
    raw = mechanism.release(counts, bound=1e9)
    out = strategy.flat(design.fitted.tables(raw))
    assert np.allclose(out, fitted @ strategy.flat(raw), atol=1e-6)
    # published numbers are those of some possible table, zeros are zeros
    published = release.release(people)
    rows = np.concatenate([published._plain(one).ravel() for one in strategy.margins])
    assert np.allclose(span @ np.linalg.lstsq(span, rows, rcond=None)[0], rows, atol=1e-6)
    nobody = np.abs(span).sum(axis=1) == 0
    assert (rows[nobody] == 0).all()
    assert design.guarantee.holds(1.0, delta)
    assert "labels that is impossible, in both" in dict(design.report().promise)["neighbours"]
    assert "for all combinations of labels" in dict(design.report().totals)["optimality"]


@pytest.mark.parametrize(("delta", "margins"), [(1e-6, "<=2"), (0.0, "<=2"), (0.0, "<=1")])
def test_at_places(delta, margins):
    law = "gaussian" if delta else "laplace"
    asked = {"attributes": CITY, "margins": margins, "places": PLACES, "epsilon": 1.0,
             "delta": delta, "law": law, "impossible": INSIDE}  # fmt: skip
    release = MarginRelease(**asked)
    design = release.design()
    strategy, mechanism = design.strategy, design.mechanism
    possible, nodes = combinations(release), strategy.tree.n
    span = outputs(release, strategy.margins, possible)
    noise = np.asarray(strategy.loadings())
    each = mechanism.noise.variances(np.eye(noise.shape[1]))
    # from margin by margin with nodes inside to node by node
    ends = np.cumsum([0, *(design.cells(one) for one in strategy.margins)])
    rows = np.concatenate([
        nodes * a + node * (b - a) + np.arange(b - a)
        for node in range(nodes) for a, b in itertools.pairwise(ends)
    ])  # fmt: skip
    covariance = ((noise * each) @ noise.T)[np.ix_(rows, rows)]
    size = len(span)
    by_node = [covariance[i : i + size, i : i + size] for i in range(0, nodes * size, size)]
    fitted = projection(span, np.sum(by_node, axis=0))
    wanted = np.array([np.diag(fitted @ one @ fitted.T) for one in by_node])
    found = np.hstack([design.variances(one) for one in strategy.margins])
    assert np.allclose(found, wanted, rtol=1e-6, atol=1e-9 * covariance.max())
    before = np.array([np.diag(one) for one in by_node])
    assert (found.sum(axis=0) <= before.sum(axis=0) * (1 + 1e-9)).all()
    people = possible.sample(300, replace=True, random_state=2).reset_index(drop=True)
    people = people.assign(land=["A", "A", "B"] * 100, ward=["A1", "A2", "B1"] * 100)
    out = MarginRelease(**asked, nonnegative=True).release(people)
    for shown in (out.margin, out.unrounded):
        table = shown("city") if margins == "<=1" else shown("city", "state")
        table = table.assign(state=table.get("state", table["city"].map(OF)))
        assert (table[table["city"].map(OF) != table["state"]]["count"] == 0).all()
        bottom, top = table[table["ward"].notna()], table[table["land"].isna()]
        again = bottom.groupby(["city", "state"], sort=False)["count"].sum().to_numpy()
        assert np.allclose(again, top["count"], atol=1e-6)
    # every state is the sum of its cities, before rounding
    cities, states = out.unrounded("city", at="ward"), out.unrounded("state", at="ward")
    cities = cities.assign(state=cities["city"].map(OF)).groupby(["ward", "state"])["count"].sum()
    assert np.allclose(
        cities.sort_index(), states.set_index(["ward", "state"])["count"].sort_index()
    )


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_intervals_hold_and_zeros_have_none(delta):
    release = MarginRelease(attributes=AGE, impossible=CHILDREN, epsilon=1.0, delta=delta)
    people = combinations(release).sample(100, replace=True, random_state=3)
    design, truth = release.design(), people.groupby(["age", "married"]).size()
    outside = np.zeros(9)
    for _ in range(200):
        table = design.release(people).interval("age", "married", level=0.9)
        true = [truth.get(key, 0) for key in zip(table["age"], table["married"])]
        outside += (table["lower"] > true) | (table["upper"] < true)
    assert (outside[[0, 2]] == 0).all()
    assert (outside < 50).all()  # 20 expected; 50 is 7 deviations
    plain = MarginRelease(attributes=AGE, epsilon=1.0, delta=delta).design()
    new, old = (one.half_widths((0, 1), 0.9, 1) for one in (design, plain))
    assert (new <= old + 1e-9).all()


@pytest.mark.parametrize("impossible", [[], CHILDREN])
@pytest.mark.parametrize(
    "asked", [{}, {"age": prefix(AGES)}, {"sex": prefix(SEXES)}, {"age": ranges(AGES)}]
)
def test_sums_of_cells_are_whole_and_reach_as_far_as_their_law(asked, impossible):
    """Against the law of a sum of as many noisy cells as are possible, by convolution."""
    release = MarginRelease(attributes={**AGE, **asked}, impossible=impossible, epsilon=1.0)
    design = release.design()
    assert "the cells, which are added up" in str(design.report())
    k = np.arange(-60, 61)
    one = np.tanh(0.5) * np.exp(-1.0 * np.abs(k))  # whole Laplace noise of rate ε
    reach = {0: 0}
    law = np.ones(1)
    for terms in range(1, 19):
        law = np.convolve(law, one)
        middle = len(law) // 2
        inside = np.cumsum(law[middle:]) * 2 - law[middle]
        reach[terms] = int(np.argmax(inside >= 0.95))
    out = design.release(combinations(release))
    for chosen in design.wanted:
        terms = outputs(release, [chosen], combinations(release)).sum(axis=1)
        found = design.half_widths(chosen, 0.95, 1)
        least = np.array([reach[int(each)] for each in terms])
        assert (least <= found).all()
        assert (found <= (least + 1) * (terms > 0)).all()
        table = out.interval(*(release.names[j] for j in chosen))
        assert all(table[name].dtype == np.int64 for name in ("count", "lower", "upper"))


OWN = (AGES, [[0.5, 0.25, 0.0], [2.0, 0.0, 0.0], [1.0, -1.0, 0.0]])


@pytest.mark.parametrize(
    ("asked", "impossible", "margins"),
    [
        ({}, CHILDREN, 1),
        ({"age": prefix(AGES)}, CHILDREN, 1),
        ({"age": prefix(AGES)}, [], 1),
        ({"age": ranges(AGES)}, [], 1),
        ({"age": OWN}, [], [("age", "married", "sex")]),
        ({"age": OWN}, CHILDREN, [("age", "sex"), ("married", "sex")]),
    ],
)
def test_intervals_of_laplace_noise_are_as_wide_as_the_noise_needs(asked, impossible, margins):
    """Against simulated noise that is sent through least squares."""
    release = MarginRelease(
        attributes={**AGE, **asked}, impossible=impossible, margins=margins, epsilon=0.1,
        law="laplace",
    )  # fmt: skip
    design, draws = release.design(), 20_000
    strategy, law = design.strategy, design.mechanism.noise
    size = law.size or strategy.coordinates
    units = []
    for unit in np.eye(size):  # everything is linear
        table = strategy.tables(strategy.parts_from(unit))
        table = design.fitted.tables(table) if design.fitted else table
        units.append(np.concatenate([np.ravel(table[m]) for m in design.wanted]))
    noise = law.sample(np.random.default_rng(5), draws, size) @ np.array(units)
    for level, less, more in ((0.95, 0.007, 0.02), (0.9999, 0.0004, 0.0001)):
        widths = [
            np.broadcast_to(design.half_widths(m, level, 1), (1, design.cells(m))).ravel()
            for m in design.wanted
        ]
        width = np.concatenate(widths)
        covered = (np.abs(noise) <= width + 1e-9).mean(axis=0)
        assert (covered >= level - less).all()
        assert (covered[width > 0] <= level + more).all()


def test_a_table_that_cannot_be_listed():
    many = {f"q{i}": ["a", "b", "c"] for i in range(30)}
    release = MarginRelease(
        attributes={**many, "city": CITIES, "state": STATES}, impossible=[
            *INSIDE, {"q0": "a", "q1": "b"}, {"q1": "b", "q2": "c"}
        ], epsilon=1.0, delta=1e-6,
    )  # fmt: skip
    people = pd.DataFrame({**{key: ["a", "c"] for key in many}, "city": ["Reno", "Fresno"]})
    out = release.release(people.assign(state=people["city"].map(OF)))
    cities, both = out.margin("city"), out.margin("city", "q0")
    states = cities.groupby(cities["city"].map(OF))["count"].sum()
    assert np.allclose(states, out.margin("state").set_index("state")["count"].sort_index())
    assert np.allclose(both.groupby("city", sort=False)["count"].sum(), cities["count"])
    pair = out.interval("q0", "q1")
    assert (pair[(pair.q0 == "a") & (pair.q1 == "b")][["count", "lower", "upper"]] == 0).all(None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"impossible": [{"agee": "0-9"}]}, "no attribute 'agee'; did you mean 'age'"),
        ({"impossible": [{"age": "old"}]}, "no cell of the table"),
        ({"impossible": [{"age": AGES}]}, "nobody to count"),
        ({"places": PLACES, "adjacency": "replace"}, "household=2"),
        ({"attributes": {**AGE, "age": [1, "1"]}, "impossible": [{"age": 1}]}, "read alike"),
        ({"attributes": {**AGE, "age": prefix([*AGES, *range(20)])}}, "are fitted together"),
    ],
)
def test_refusals(changes, words, monkeypatch):
    monkeypatch.setattr("affinedp.tables.possible.MOST_CONTRASTS", 20)
    asked = {"attributes": AGE, "impossible": CHILDREN, "epsilon": 1.0, "delta": 1e-6, **changes}
    with pytest.raises(AffineDPError, match=words):
        MarginRelease(**asked).design()


def test_people_who_cannot_be_are_refused():
    people = pd.DataFrame({"age": ["0-9"], "married": ["yes"], "sex": ["f"], "n": [0]})
    release = MarginRelease(attributes=AGE, impossible=CHILDREN, epsilon=1.0)
    with pytest.raises(TableError, match="said to be impossible"):
        release.release(people)
    assert release.release(people, count="n").margin("age")["count"].size == 3


def test_functions_are_refused_with_a_way_that_keeps_the_level():
    people = pd.DataFrame({"age": ["20+"] * 40, "married": ["yes"] * 40, "sex": ["f", "m"] * 20})
    out = MarginRelease(attributes=AGE, impossible=CHILDREN, epsilon=1.0).release(people)
    with pytest.raises(TableError, match="two at 97.5 % bound a ratio at 95 %"):
        out.function("`sex=f` / everybody")
    assert len(out.interval("sex", level=0.975)) == 2


def test_rules_and_sums_are_said_in_a_file(tmp_path):
    file = tmp_path / "margins.toml"
    text = """impossible = [{age = "0-9", married = ["yes", "was"]}]
    [attributes]
    age = {prefix = ["0-9", "10-19", "20+"]}
    married = ["yes", "no", "was"]
    sex = {labels = ["f", "m"], sums = [[1, -1]]}
    [privacy]
    epsilon = 1.0
    """
    file.write_text(text, encoding="utf-8")
    release = read_release(file).release
    assert release.impossible == CHILDREN
    assert [one.workload for one in release.asked.values()] == ["prefix", None, [[1, -1]]]
    with pytest.raises(AffineDPError, match="list of labels"):
        read_release(file, text.replace("prefix", "prefixes"))


def test_a_range_names_each_of_its_labels():
    asked = {"attributes": {"age": prefix(range(30)), "married": ["yes", "no"]}, "epsilon": 1.0}
    by_range, by_list = (
        MarginRelease(impossible=[{"age": ages, "married": "yes"}], **asked)
        for ages in (range(18), list(range(18)))
    )
    assert np.array_equal(by_range.possible.groups[0][1], by_list.possible.groups[0][1])
    assert by_range.toml() == by_list.toml()
