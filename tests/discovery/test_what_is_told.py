"""Costs are never smaller than the truth, and what is to be pasted says what was found."""

import tomllib

import numpy as np
import pytest
from typer.testing import CliRunner

import affinedp as adp
from affinedp.cli.app import app
from affinedp.errors import AffineDPError, AffineDPWarning
from affinedp.tables import TableRelease

pd = pytest.importorskip("pandas")


def independent_then_known(names, given, found):
    """ε of independent noise for the given equations, when those that were found are known too."""
    meant = adp.AffineManifold.from_equations(given, names=names)
    noise = adp.iid_noise(meant, law="laplace", epsilon=1.0).noise_matrix
    known = adp.AffineManifold.from_equations([*given, *found], names=names)
    return adp.verify(known, noise, law="laplace").epsilon()


@pytest.fixture(scope="module")
def panel():
    """Four years of nine districts, sorted by year; the row above is another district's."""
    rng = np.random.default_rng(3)
    people = np.cumsum(rng.integers(100, 999, (4, 9)), axis=0)
    change = np.vstack([np.full(9, np.nan), np.diff(people, axis=0)])
    return pd.DataFrame({
        "district": [f"d{i}" for i in range(9)] * 4,
        "people": people.ravel(), "change": change.ravel(),
    })  # fmt: skip


class TestCosts:
    @pytest.mark.parametrize("pairs", [5, 40])
    def test_of_all_with_given_equations_in_wide_tables(self, pairs):
        rng = np.random.default_rng(0)
        a, b = rng.integers(100, 9999, (2, 200)) * 100
        table = {"a": a, "b": b, "c": a + 101 * b // 100, "d": a + b}
        for i in range(pairs):
            table[f"p{i}"] = rng.integers(0, 9999, 200)
            table[f"q{i}"] = 2 * table[f"p{i}"]
        given = ["c = a + 1.01*b"]
        found = adp.discover(table, given=given, between_rows=False)
        truth = independent_then_known(list(table), given, [one.text for one in found.equations])
        assert found.cost_of_all == pytest.approx(truth) == pytest.approx(20200 / 201)

    def test_where_given_equations_tie_too_many_columns_there_is_none(self):
        rng = np.random.default_rng(0)
        names = [f"p{i}" for i in range(250)]
        table = dict(zip(names, rng.integers(0, 9999, (250, 300))))
        table |= {"all": sum(table.values()), "copy": table["p3"]}
        found = adp.discover(table, given=["all = " + " + ".join(names)], between_rows=False)
        (one,) = found.equations
        assert (one.text, one.cost) == ("copy = p3", None)
        assert "252 columns" in one.cost_note

    def test_changes_within_groups_tie_the_rows_of_one_group(self, panel):
        (one,) = adp.discover(panel).equations
        assert one.text == "change(t) = people(t) - people(t-1), within district"
        steps = [f"c{t} = p{t} - p{t - 1}" for t in (1, 2, 3)]
        manifold = adp.AffineManifold.from_equations(steps)
        assert one.cost == adp.verify(manifold, 1.0, law="laplace").epsilon() == 4.0

    def test_of_a_design_says_nothing_about_groups_of_rows(self):
        rng = np.random.default_rng(0)
        debit = rng.integers(1, 999, (30, 4))
        credit = rng.permuted(debit, axis=1)
        entry = [f"e{i}" for i in range(30) for _ in range(4)]
        book = {"entry": entry, "debit": debit.ravel(), "credit": credit.ravel()}
        free = adp.AffineManifold(np.zeros((0, 2)), names=["debit", "credit"])
        design = adp.iid_noise(free, law="laplace", epsilon=0.1)
        (one,) = adp.discover(book, design=design).equations
        assert one.pattern == "balance of groups"
        assert (one.cost, one.cost_note) == (
            None, "the design is for one row; this equation ties rows",
        )  # fmt: skip

    def test_a_column_with_an_at_sign_has_its_own_mu(self):
        a = np.random.default_rng(0).integers(100, 999, 40)
        table = {"a": a, "k@home": a / 1000}
        assert adp.discover(table, mu={"k@home": 0.001}).equations[0].cost == pytest.approx(2.0)

    def test_mu_of_no_column_is_refused(self):
        a = np.random.default_rng(0).integers(100, 999, 40)
        with pytest.raises(AffineDPError, match="mu names 'K'"):
            adp.discover({"a": a, "k": a / 1000}, mu={"K": 0.001})
        with pytest.raises(AffineDPError, match="lags must be a list"):
            adp.discover({"a": a}, lags=1)


class TestToPaste:
    def test_changes_within_groups_are_no_changes_since_the_row_above(self, panel):
        found = adp.discover(panel)
        assert found.changes == {}
        assert "changes" not in tomllib.loads(found.toml())
        assert (
            "# between rows: change(t) = people(t) - people(t-1), within district" in found.toml()
        )

    def test_nor_are_changes_in_another_order(self):
        many = np.cumsum(np.random.default_rng(1).integers(1, 99, 30))
        series = pd.DataFrame({
            "month": np.arange(30) ** 2, "level": many, "step": np.diff(many, prepend=0),
        })  # fmt: skip
        assert adp.discover(series, order="month").changes == {"step": "level"}
        mixed = series.sample(frac=1.0, random_state=0)
        found = adp.discover(mixed, order="month")
        assert "step(t) = level(t) - level(t-1)" in {one.text for one in found.equations}
        assert found.changes == {}

    def test_given_equations_are_not_told_again_as_sums_over_groups(self):
        rng = np.random.default_rng(0)
        a, b = rng.integers(0, 999, (2, 60))
        town = [f"t{i}" for i in np.repeat(np.arange(12), 5)]
        table = {"town": town, "a": a, "b": b, "all": a + b}
        assert adp.discover(table, given=["all = a + b"]).equations == ()

    def test_spaces_around_a_name_are_kept(self):
        a, b = np.random.default_rng(0).integers(0, 999, (2, 40))
        table = pd.DataFrame({"a": a, " b": b, " all": a + b})
        (one,) = adp.discover(table).equations
        known = adp.AffineManifold.from_equations([one.text])
        assert set(known.names) == set(table.columns)
        unknown = adp.AffineManifold(np.zeros((0, 3)), names=list(table.columns))
        with pytest.warns(AffineDPWarning, match="between a,  b and  all"):
            adp.verify(unknown, 1.0, check_against=table)

    def test_names_do_not_break_out_of_comments(self):
        a, b = np.random.default_rng(0).integers(0, 999, (2, 40))
        wrong = a + b
        wrong[7] += 5
        rows = [f"row {i}\nepsilon = {i}" for i in range(40)]
        table = {"row": rows, "a": a, "b": b, "all": wrong, "one\nmu = 9": np.full(40, 3)}
        found = adp.discover(table)
        assert {one.kind for one in found.equations} == {"exact", "mostly"}
        assert tomllib.loads(found.toml()) == {"equations": ["all = a + b"]}

    def test_a_narrow_screen_shows_whole_names(self, tmp_path):
        rng = np.random.default_rng(0)
        names = [f"a_rather_long_name_of_a_column_{letter}" for letter in "xyz"]
        a, b = rng.integers(0, 999, (2, 40))
        path = tmp_path / "data.csv"
        pd.DataFrame(dict(zip(names, (a, b, a + b)))).to_csv(path, index=False)
        told = CliRunner().invoke(app, ["discover", str(path)], env={"COLUMNS": "80"}).output
        assert "…" not in told
        assert all(name in told for name in names)


def test_integers_longer_than_doubles_are_looked_at_between_rows_too():
    a = [10**400 + i * i for i in range(40)]
    b = [10**300 * i for i in range(40)]
    found = adp.discover({"a": a, "b": b, "c": [x + y for x, y in zip(a, b)]})
    assert "c = a + b" in {one.text for one in found.equations}


class TestAsking:
    def test_numbers_of_numpy_are_numbers(self):
        a, b = np.random.default_rng(0).integers(0, 999, (2, 40))
        table = {"a": a, "b": b, "c": a + b}
        plain = adp.discover(table, seed=3, mu=2, lags=[1])
        same = adp.discover(table, seed=np.int64(3), mu=np.int64(2), lags=[np.int64(1)])
        assert same == plain
        assert adp.discover(table, mu={"a": np.float32(2)}).equations[0].cost is not None

    def test_changes_go_into_a_table_release(self):
        level = np.cumsum(np.random.default_rng(1).integers(1, 99, 30))
        table = pd.DataFrame({"level": level, "step": np.diff(level, prepend=0)})
        found = adp.discover(table)
        assert found.changes == {"step": "level"}
        assert TableRelease(changes=found.changes, epsilon=1.0).changes == {"step": "level"}


@pytest.mark.parametrize("seed", range(12))
def test_a_rounded_conversion_has_the_constant_that_was_written(seed):
    rng = np.random.default_rng(seed)
    celsius = np.round(rng.uniform(-10, 35, (40, 60, 100, 200)[seed % 4]), 1)
    table = {"c": celsius, "f": np.round(1.8 * celsius + 32, 1)}
    (one,) = adp.discover(table, between_rows=False).equations
    assert one.text == "f = 1.8*c + 32"


def test_the_command_line_asks_too(tmp_path):
    from typer.testing import CliRunner

    from affinedp.cli.app import app

    problem = tmp_path / "problem.toml"
    problem.write_text(
        'equations = ["a + b = total"]\nnames = ["a", "b", "total", "copy"]\n'
        '[privacy]\nmu = 1.0\n[noise]\nlaw = "laplace"\nscale = 8.0\n'
    )
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 100, (2, 40))
    rows = [f"{x},{y},{x + y},{y}" for x, y in zip(a, b, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,total,copy", *rows]) + "\n")
    words = ["verify", str(problem), "--check-against", str(tmp_path / "data.csv")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "not given, but the data obeys: copy = b" in done.stderr
    assert "obeys" not in done.stdout
