"""Random small tables: what is published obeys the equations, and the promise is brute force's."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.tables import TableRelease
from affinedp.tables import release as releases
from affinedp.tables.refusals import TableError
from oracles import brute_force_sensitivity


@st.composite
def random_tables(draw):
    """Columns x0 … and equations that give the later ones from the earlier ones."""
    parts = draw(st.integers(2, 3))
    sums = draw(st.integers(1, 2))
    rows = draw(st.integers(1, 3))
    weight = st.sampled_from([1, 1, 1, 2, -1])
    data = {
        f"x{i}": draw(st.lists(st.integers(-30, 30), min_size=rows, max_size=rows))
        for i in range(parts)
    }
    equations, matrix = [], []
    for s in range(sums):
        weights = [draw(weight) for _ in range(parts)]
        constant = draw(st.integers(-3, 3))
        data[f"t{s}"] = [
            sum(w * data[f"x{i}"][r] for i, w in enumerate(weights)) + constant for r in range(rows)
        ]
        terms = " + ".join(f"{w}*x{i}" for i, w in enumerate(weights))
        equations.append(f"t{s} = {terms} + {constant}".replace("+ -", "- "))
        matrix.append([*(-w for w in weights), *(int(s == j) for j in range(sums))])
    return pd.DataFrame(data), equations, np.array(matrix)


@given(random_tables(), st.sampled_from(["separate", "composed"]), st.booleans(), st.integers(1, 3))
@settings(max_examples=25)
def test_gaussian_tables(case, rows, whole, mu):
    frame, equations, D = case
    release = TableRelease(
        equations=equations,
        epsilon=1.0,
        delta=1e-3,
        rows=rows,
        mu=mu,
        law="gaussian",
        adjacency="circuits",
        round_to=1 if whole else None,
    )
    out = release.release(frame)
    table = out.table
    assert table.index.equals(frame.index)
    assert list(table.columns) == list(frame.columns)
    # constants are kept: the published table breaks an equation as little as the private one
    gap = (table.to_numpy() - frame.to_numpy()) @ D.T
    assert np.abs(gap).max() <= (0 if whole else 1e-8)
    # the promise, word by word: every basis and free entry, whitened by the pseudo-inverse
    noise = out.design.mechanism.noise_matrix
    whitening = np.linalg.pinv(noise.toarray() if hasattr(noise, "toarray") else noise)
    worst, _ = brute_force_sensitivity(D, whitening, 2, np.full(len(frame.columns), mu))
    copies = math.sqrt(len(frame)) if rows == "composed" else 1.0
    assert out.guarantee.sensitivity == pytest.approx(worst * copies, rel=1e-9)
    assert adp.gaussian_delta(1.0, worst * copies) <= 1e-3 * (1 + 1e-6)


@pytest.mark.slow
@given(random_tables())
@settings(max_examples=2)
def test_laplace_tables(case):
    frame, equations, D = case
    release = TableRelease(
        equations=equations, epsilon=0.7, rows="composed", round_to=1, adjacency="circuits",
        law="laplace",
    )  # fmt: skip
    out = release.release(frame)
    assert not ((out.table - frame).to_numpy() @ D.T).any()
    # Λ⁺ v is one way to shift the noise by v; the promise holds if some way is short enough
    noise = np.asarray(out.design.mechanism.noise_matrix)
    worst, _ = brute_force_sensitivity(D, np.linalg.pinv(noise), 1, np.ones(len(frame.columns)))
    assert worst * len(frame) <= 0.7 * (1 + 1e-9)
    assert out.guarantee.holds(0.7)


def test_noise_is_fresh_for_every_row_and_release():
    frame = pd.DataFrame({"a": [1.0] * 50, "b": [2.0] * 50, "t": [3.0] * 50})
    release = TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0, delta=1e-6, whole=False)
    design = release.design(frame)
    first, second = design.release(frame).table, design.release(frame).table
    assert first["a"].nunique() == 50
    assert not (first["a"] == second["a"]).any()


def test_the_private_table_is_not_changed():
    frame = pd.DataFrame({"a": [1, 2], "b": [2, 3], "t": [3, 5]})
    before = frame.copy()
    TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0, delta=1e-6).release(frame)
    pd.testing.assert_frame_equal(frame, before)


def test_constants_and_public_columns_only_move_the_table():
    """a + b = t − 7 with public t: the noise on a and b is opposite, and t is copied."""
    frame = pd.DataFrame({"a": [10.0, 1.0], "b": [3.0, 2.0], "t": [20.0, 10.0], "who": ["x", "y"]})
    release = TableRelease(
        equations=["a + b + 7 = t"], public=["t", "who"], epsilon=1.0, delta=1e-6, law="gaussian"
    )
    out = release.release(frame)
    assert np.allclose(out.table["a"] + out.table["b"] + 7, out.table["t"], atol=1e-9)
    pd.testing.assert_frame_equal(
        out.table[["t", "who"]], frame[["t", "who"]].astype({"t": "int64"})
    )  # the same numbers; that they are whole says the type
    assert "'t'" in out.guarantee.neighbours
    assert "not protected" in out.guarantee.neighbours
    noise = out.noise
    assert list(noise.index) == ["a", "b"]
    # one direction (1, −1): the sensitivity is √2/√2 of one common noise
    assert noise["a"] == pytest.approx(1 / float(adp.gaussian_sensitivity(1.0, 1e-6)))


def test_mu_and_weights_by_column():
    frame = pd.DataFrame({"a": [1.0], "b": [2.0], "t": [3.0]})
    totals = {"t": ["a", "b"]}
    one = TableRelease(totals=totals, epsilon=1.0, delta=1e-6, whole=False).design(frame)
    more = TableRelease(
        totals=totals, epsilon=1.0, delta=1e-6, mu={"a": 2.0, "b": 2.0, "t": 2.0}, whole=False
    ).design(frame)
    assert more.deviations == pytest.approx(2 * one.deviations)
    exact = TableRelease(
        totals=totals, epsilon=1.0, delta=1e-6, weights={"t": 50.0}, whole=False
    ).design(frame)
    assert exact.noise["t"] < one.noise["t"]
    assert exact.noise["a"] > one.noise["a"]


def test_names_of_any_kind():
    frame = pd.DataFrame({"GDP (total)": [3.0], "a`b": [1.0], "é": [2.0]})  # é in one character
    totals = {"GDP (total)": ["a`b", "e\N{COMBINING ACUTE ACCENT}"]}  # é in two
    out = TableRelease(totals=totals, epsilon=1.0, delta=1e-6).release(frame).table
    assert out["GDP (total)"][0] == pytest.approx(out["a`b"][0] + out["é"][0])


def test_the_ledger_is_charged_once_or_per_row(tmp_path):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [2, 3, 4], "t": [3, 5, 7]})
    totals = {"t": ["a", "b"]}
    with adp.Ledger(
        tmp_path / "separate.db", epsilon=2.0, delta=1e-6, protects="one person"
    ) as ledger:
        unsaid = TableRelease(totals=totals, epsilon=1.0, delta=1e-6)
        with pytest.raises(TableError, match="3 rows.*rows='separate'.*rows='composed'"):
            unsaid.release(frame, ledger=ledger)
        assert ledger.history() == ()
        release = TableRelease(totals=totals, epsilon=1.0, delta=1e-6, rows="separate")
        release.release(frame, ledger=ledger, label="March")
        (entry,) = ledger.history()
        assert (entry.releases, entry.status, entry.label) == (1, "released", "March")
        assert ledger.spent == pytest.approx(1.0)
    with adp.Ledger(
        tmp_path / "composed.db", epsilon=2.0, delta=1e-6, protects="one person"
    ) as ledger:
        release = TableRelease(totals=totals, epsilon=1.0, delta=1e-6, rows="composed")
        release.release(frame, ledger=ledger)
        (entry,) = ledger.history()
        assert entry.releases == 3
        assert ledger.spent == pytest.approx(1.0)
        assert ledger.spent <= 1.0
        # rows for which each alone would keep ε = 1 do not fit any more
        with pytest.raises(adp.BudgetExceededError):
            ledger.charge(
                TableRelease(totals=totals, epsilon=1.0, delta=1e-6).design(frame).charge,
                fingerprint="x",
                releases=3,
            )


def test_a_bound_covers_the_rounding_of_records():
    frame = pd.DataFrame({"a": [0.1], "b": [0.2], "c": [99.7], "t": [100.0]})
    release = TableRelease(
        totals={"t": ["a", "b", "c"]}, public=["t"], epsilon=1.0, delta=1e-6, whole=False
    )
    out = release.release(frame, bound=200.0).table
    assert out["a"][0] + out["b"][0] + out["c"][0] == pytest.approx(100.0)


def test_several_releases_of_certified_mechanisms():
    """A mechanism whose circuits were not listed is certified for several releases, too."""
    frame = pd.DataFrame(np.arange(100).reshape(10, 10), columns=[f"c{i}" for i in range(10)])
    design = TableRelease(
        margins="public", adjacency="circuits", epsilon=1.0, delta=1e-6, law="gaussian"
    ).design(frame)
    assert design.mechanism.proof is not None
    more = adp.design(
        design.mechanism.manifold, epsilon=1.0, delta=1e-6, law="gaussian", releases=4
    )
    assert more.guarantee.sensitivity == pytest.approx(design.guarantee.sensitivity / 2)
    assert more.proof is not None


@given(random_tables(), st.data())
@settings(max_examples=25)
def test_any_columns_may_be_public(case, data):
    """Public columns are copied, equations hold, and what they determine is refused."""
    frame, equations, D = case
    names = list(frame.columns)
    public = data.draw(st.lists(st.sampled_from(names), max_size=len(names) - 1, unique=True))
    release = TableRelease(
        equations=equations, public=public, epsilon=1.0, delta=1e-3, round_to=1,
        law="gaussian", adjacency="circuits",
    )  # fmt: skip
    secret = [i for i, name in enumerate(names) if name not in public]
    # a column is determined if no vector of the kernel moves it
    rank = np.linalg.matrix_rank
    free = [
        rank(np.vstack([D[:, secret], np.eye(len(secret))[j]])) > rank(D[:, secret])
        for j in range(len(secret))
    ]
    if not all(free):
        with pytest.raises(TableError, match="can be computed from the equations"):
            release.release(frame)
        return
    out = release.release(frame)
    assert out.table[public].equals(frame[public])
    assert not ((out.table - frame).to_numpy() @ D.T).any()
    noise = out.design.mechanism.noise_matrix
    whitening = np.linalg.pinv(noise.toarray() if hasattr(noise, "toarray") else noise)
    independent = D[:, secret][_independent_rows(D[:, secret])]
    worst, _ = brute_force_sensitivity(independent, whitening, 2, np.ones(len(secret)))
    assert out.guarantee.sensitivity == pytest.approx(worst, rel=1e-9)


def _independent_rows(matrix):
    chosen = []
    for i in range(len(matrix)):
        if np.linalg.matrix_rank(matrix[[*chosen, i]]) > len(chosen):
            chosen.append(i)
    return chosen


def test_intervals_of_rounded_tables_are_around_what_was_drawn():
    frame = pd.DataFrame({"a": [50] * 4000, "b": [70] * 4000, "t": [120] * 4000})
    release = TableRelease(
        totals={"t": ["a", "b"]}, epsilon=3.0, delta=1e-3, round_to=1, whole=False
    )
    out = release.release(frame)
    lower, upper = out.interval(0.8)
    inside = (lower <= frame) & (frame <= upper)
    assert inside.mean().to_numpy() == pytest.approx(np.full(3, 0.8), abs=0.03)
    # around the rounded numbers a little more is needed, and half_width knows how much
    near = (out.table - frame).abs() <= out.design.half_width(0.8)
    assert near.mean().min() >= 0.78
    assert (out.design.half_width(0.8) > out.design.half_width(0.8, rounded=False)).all()


def test_noise_is_designed_once_for_tables_of_one_shape(monkeypatch):
    made = []
    designed = releases.design_table
    monkeypatch.setattr(releases, "design_table", lambda *given: made.append(1) or designed(*given))
    table = pd.DataFrame({"w": [3, 5], "m": [4, 1], "all": [7, 6]})
    sizes = {"w": 1, "m": 1, "all": 1}
    release = TableRelease(totals={"all": ["w", "m"]}, epsilon=1.0, mu=sizes)
    first = release.release(table)
    again = release.release(table + 0)
    assert len(made) == 1
    assert again.design.mechanism is first.design.mechanism
    assert not first.table.equals(release.release(table).table)  # the noise is new
    release.release(table.rename(columns={"w": "men", "m": "w"}).rename(columns={"men": "m"}))
    assert len(made) == 2
    release.release(table)
    sizes |= {"w": 9, "m": 9, "all": 9}  # its own copy stays as it was
    assert release.mu == {"w": 1, "m": 1, "all": 1}
    release.mu.update({"w": 5, "m": 5, "all": 5})  # and what somebody changes is not passed over
    wider = release.release(table)
    assert len(made) == 4
    assert wider.noise["all"] > 4 * first.noise["all"]
    composed = TableRelease(totals={"all": ["w", "m"]}, epsilon=1.0, rows="composed")
    composed.release(table)
    assert composed.release(pd.concat([table, table])).guarantee.holds(1.0)
    assert len(made) == 6


def test_a_report_cuts_equations_of_many_columns():
    days = [f"day {day}" for day in range(300)]
    table = pd.DataFrame([[*range(300), sum(range(300))]], columns=[*days, "year"])
    report = TableRelease(totals={"year": days}, epsilon=1.0).design(table).report()
    said = dict(report.promise)["covers"] + dict(report.totals)["instead"]
    assert "day 3" in said
    assert "day 299" not in said
