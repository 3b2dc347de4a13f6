"""The command line, and warnings where data obeys what was not given."""

import json
import tomllib
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import affinedp as adp
from affinedp.cli.app import app
from affinedp.discovery.forgotten import forgotten_equations
from affinedp.errors import AffineDPWarning

pd = pytest.importorskip("pandas")


@pytest.fixture
def table():
    a, b = np.random.default_rng(1).integers(0, 999, (2, 50))
    return pd.DataFrame({"town": [f"t{i}" for i in range(50)], "a": a, "b": b, "all": a + b})


@pytest.fixture
def file(table, tmp_path):
    path = tmp_path / "data.csv"
    table.to_csv(path, index=False)
    return path


def run(*words):
    return CliRunner().invoke(app, ["discover", *map(str, words)])


class TestCommand:
    def test_for_people(self, file):
        told = run(file)
        assert told.exit_code == 0
        assert "all = a + b" in told.output
        assert "private data" in told.output

    def test_for_programs(self, file):
        answer = json.loads(run(file, "--json").output)
        (one,) = answer["equations"]
        assert (one["text"], one["rows"], one["rows_that_hold"], one["cost"]) == (
            "all = a + b", 50, 50, 2.0,
        )  # fmt: skip
        assert one["coefficients"] == {"a": "1", "b": "1", "all": "-1"}
        assert answer["labels"] == ["town"]

    def test_to_paste(self, file, tmp_path):
        told = run(file, "--toml")
        assert tomllib.loads(told.output)["equations"] == ["all = a + b"]
        problem = tmp_path / "problem.toml"
        noise = "\n[privacy]\nmu = 1.0\n[noise]\nlaw = 'laplace'\nscale = 2.0\n"
        problem.write_text(told.output + noise, encoding="utf-8")
        verified = CliRunner().invoke(app, ["verify", str(problem), "--json"])
        assert json.loads(verified.output)["epsilon_at_delta"]["0"] == 1.0

    def test_a_design(self, file, tmp_path):
        manifold = adp.AffineManifold([[0, 0, 0]], names=["a", "b", "all"])
        saved = tmp_path / "design.json"
        adp.iid_noise(manifold, law="gaussian", epsilon=1.0, delta=1e-6).save(saved)
        (one,) = json.loads(run(file, "--design", saved, "--json").output)["equations"]
        assert one["cost"] == pytest.approx(1.4547, abs=1e-4)

    def test_parquet(self, table, tmp_path):
        pytest.importorskip("pyarrow")
        path = tmp_path / "data.parquet"
        table.to_parquet(path)
        assert "all = a + b" in run(path).output

    def test_digits_beyond_doubles(self, tmp_path):
        """A gap makes a column of doubles, in which long numbers would lose digits."""
        path = tmp_path / "long.csv"
        base = 10**18
        steps = np.random.default_rng(3).integers(1, 10**6, 40).tolist()
        rows = [f"{base + s},{2 * base + 2 * s + (i == 7)},x" for i, s in enumerate(steps)]
        path.write_text("\n".join(["n,twice,k", ",,x", *rows]), encoding="utf-8")
        (one,) = json.loads(run(path, "--json").output)["equations"]
        assert (one["text"], one["rows_exactly"]) == ("twice = 2*n", 39)

    @pytest.mark.parametrize(
        "words",
        [["--json", "--toml"], ["--law", "x"], ["--chance", "2"], ["--by", "x"], ["--lag", "0"]],
    )
    def test_bad_options(self, file, words):
        told = run(file, *words)
        assert told.exit_code != 0
        unknown = words[0] == "--law"  # refused by the command line, with the choices
        assert isinstance(told.exception, SystemExit if unknown else adp.AffineDPError)

    def test_no_file(self, tmp_path):
        assert isinstance(run(tmp_path / "none.csv").exception, adp.AffineDPError)

    def test_names_cannot_steer_the_terminal(self):
        found = adp.discover({"a\x1b[8m": [1, 5, 3] * 9, "b": [1, 5, 3] * 9})
        assert "\x1b" not in json.dumps(found.to_dict())


class TestCheckAgainst:
    @pytest.fixture
    def manifold(self):
        return adp.AffineManifold([[0, 0, 0]], names=["a", "b", "all"])

    def test_every_entry_warns(self, manifold, table):
        calls = [
            lambda m: adp.verify(m, 1.0, law="laplace", check_against=table),
            lambda m: adp.iid_noise(m, law="laplace", epsilon=1.0, check_against=table),
            lambda m: adp.design_gaussian(m, epsilon=1.0, delta=1e-6, check_against=table),
            lambda m: adp.design_laplace(m, epsilon=1.0, effort="quick", check_against=table),
        ]
        for call in calls:
            with pytest.warns(AffineDPWarning, match="between a, b and all") as caught:
                call(manifold)
            assert caught[0].filename == __file__
        assert issubclass(AffineDPWarning, UserWarning)

    def test_no_private_number_is_quoted(self):
        """Constants of the data stay out of logs."""
        a = np.random.default_rng(4).integers(0, 999, 60)
        manifold = adp.AffineManifold([[0, 0, 0]], names=["a", "b", "c"])
        data = {"a": a, "b": 31337 - a, "c": np.full(60, 31337)}
        with pytest.warns(AffineDPWarning, match="c has one value") as caught:
            adp.verify(manifold, 1.0, check_against=data)
        assert "31337" not in str(caught[0].message)
        assert any("31337" in text for text in forgotten_equations(manifold, data))

    def test_nothing_found_reaches_the_mechanism(self, manifold, table):
        plain = adp.design_gaussian(manifold, epsilon=1.0, delta=1e-6)
        with pytest.warns(AffineDPWarning):
            checked = adp.design_gaussian(manifold, epsilon=1.0, delta=1e-6, check_against=table)
        assert plain.manifold.key == checked.manifold.key
        assert np.array_equal(plain.covariance, checked.covariance)
        assert plain.notes == checked.notes
        assert plain.equations == checked.equations

    def test_no_warning_where_all_is_given(self, table):
        manifold = adp.AffineManifold.from_equations(["a + b = all"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            adp.verify(manifold, 1.0, check_against=table)
            adp.verify(manifold, 1.0, check_against=table[["a", "b", "all"]].to_numpy())

    def test_consequences_are_known(self):
        """Twice an equation, or the sum of two, is no news."""
        a, b, c = np.random.default_rng(2).integers(0, 999, (3, 60))
        data = {"a": a, "b": b, "c": c, "s": a + b, "t": a + b + c}
        known = adp.AffineManifold.from_equations(["s = a + b", "2*t = 2*s + 2*c"])
        assert forgotten_equations(known, data) == ()
        half = adp.AffineManifold.from_equations(["t = a + b + c"], names=list(data))
        assert forgotten_equations(half, data) in {("s = a + b",), ("t = c + s",)}

    def test_offsets_are_decimals(self):
        a = np.random.default_rng(3).integers(0, 999, 60) / 10
        manifold = adp.AffineManifold.from_equations(["b = a + 0.3"])
        assert forgotten_equations(manifold, {"a": a, "b": (a * 10 + 3).round() / 10}) == ()

    def test_other_columns_are_not_looked_at(self, manifold, table):
        found = forgotten_equations(manifold, table.assign(more=table["a"]))
        assert found == ("all = a + b",)
        with pytest.raises(adp.AffineDPError, match="no column of numbers"):
            adp.verify(manifold, 1.0, check_against={"x": [1, 2]})

    def test_tables(self, table):
        from affinedp.tables import TableRelease

        wide = table.set_index("town").assign(copy=table["a"].to_numpy())
        release = TableRelease(
            totals={"all": ["a", "b"]}, columns=list(wide.columns), epsilon=1.0, delta=1e-6
        )
        with pytest.warns(AffineDPWarning, match="between a and copy"):
            release.design(wide, check_against=wide)
        with pytest.warns(AffineDPWarning, match="between a and copy"):
            release.release(wide, check_against=wide)
