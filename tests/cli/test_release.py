"""``affinedp release`` and ``ledger``: what is published and charged, what a full disk leaves."""

import errno
import json

import pytest

import affinedp as adp
from affinedp.budget.ledger import Ledger, LedgerError
from affinedp.cli import exits

pandas = pytest.importorskip("pandas")

PROBLEM = """
equations = ["cells_in + cells_out = cells_total"]
[privacy]
mu = 1.0
epsilon = 1.0
delta = 1e-6
"""
TABLE = '[totals]\nc = ["a", "b"]\n[privacy]\nmu = 1\nepsilon = 1.0\n'
ROWS = "cells_total,cells_in,cells_out\n10,4,6\n7,3,4\n"


@pytest.mark.slow
def test_from_a_problem_to_published_numbers_and_an_empty_budget(run, tmp_path):
    design = "design p.toml -o m.json --law gaussian"
    code, out, err = run(design, p_toml=PROBLEM, data_csv=ROWS)
    assert code == 0, err
    assert "9.70 times the least that any mechanism" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    answer = json.loads(run(f"{design} --json")[1])
    assert answer["gap"] <= 1e-8
    assert 9.69 < answer["excess"] < 9.70
    assert run("report m.json --html m.html")[0] == 0
    assert (tmp_path / "m.html").read_text().startswith("<!doctype html>")
    code, _, err = run("release m.json data.csv -o out.csv")
    assert code == 0, err
    assert "no ledger" in err
    published = pandas.read_csv(tmp_path / "out.csv")
    total = published.cells_in + published.cells_out
    assert (abs(total - published.cells_total) < 1e-6).all()
    assert run("release m.json data.csv -o out.parquet --sampler opendp")[0] == 0
    assert len(pandas.read_parquet(tmp_path / "out.parquet")) == 2
    # a budget that allows one of these
    create = "ledger create b.db --epsilon 1.2 --delta 1e-6"
    assert run(create)[0] == 2, "whom it protects must be said"
    assert "for one person" in run(f"{create} --protects 'one person'")[1]
    assert run(f"{create} --protects 'one person'")[0] == 2
    spend = "release m.json data.csv -o out.csv --ledger b.db --force"
    code, _, err = run(spend)
    assert code == 2
    assert "whom they are about" in err
    assert run(f"{spend} --rows same")[0] == 3, "two rows of ε = 1 pass ε = 1.2"
    code, _, err = run(f"{spend} --rows different --label first")
    assert code == 0, err
    history = run("ledger history b.db")[1]
    assert "first" in history
    assert history.count("any one number") == 1
    shown = json.loads(run("ledger show b.db --json")[1])
    assert 0.999 < shown["spent"] < 1.0 + 1e-9
    assert shown["protects"] == "one person"
    kinds = [(kind["unit"], kind["releases"]) for kind in shown["neighbours"]]
    assert kinds == [(shown["unit"], 1)]
    assert "1 × Definition 4" in run("ledger show b.db")[1]
    assert run("ledger check b.db")[0] == 0
    audited = run("audit m.json --runs 2000 --confidence 0.999999")
    assert audited[0] == 0, audited[2]
    before = (tmp_path / "out.csv").read_bytes()
    code, _, err = run(f"{spend} --rows different")
    assert code == exits.BUDGET_REFUSED
    assert "the budget does not allow this release: 0.199999 of ε = 1.2" in err
    assert (tmp_path / "out.csv").read_bytes() == before
    code, _, err = run(f"{spend} --rows different", data_csv=ROWS.replace("4,6", "4,5"))
    assert code == 2
    assert "row 0" in err


def test_a_ledger_asks_about_other_neighbours(run):
    problem = 'equations = ["a + b = t"]\n[privacy]\nmu = 1.0\nepsilon = 0.5\ndelta = 1e-6\n'
    files = {
        "circuits_toml": problem,
        "cells_toml": problem + 'free_sets = [["a", "b"]]\n',
        "data_csv": "a,b,t\n1,2,3\n",
    }
    create = "ledger create b.db --epsilon 1 --delta 1e-6 --protects 'one person'"
    assert run(create, **files)[0] == 0
    for name in ("circuits", "cells"):
        assert run(f"design {name}.toml -o {name}.json --law gaussian")[0] == 0

    def release(name, options=""):
        return run(f"release {name}.json data.csv -o o.csv --force --ledger b.db {options}")

    assert release("circuits")[0] == 0
    code, _, err = release("cells")
    assert code == 2
    assert "say so with --same-secret: it then adds up" in " ".join(err.split())
    assert "one person" in err
    assert release("cells", "--same-secret")[0] == 0
    for command in ("history", "show"):
        assert "same secret, as was said" in run(f"ledger {command} b.db")[1]
    entries = json.loads(run("ledger history b.db --json")[1])
    assert [entry["same_secret"] for entry in entries] == [False, True]
    shown = json.loads(run("ledger show b.db --json")[1])
    assert shown["unit"] == entries[0]["unit"] != entries[1]["unit"]
    assert 0.5 < shown["spent"] < 1.0


@pytest.mark.parametrize(
    ("options", "whole"),
    [("--law gaussian --delta 1e-6", False), ("--law knorm --delta 0 --integers", True)],
)
def test_whole_numbers_are_written_whole(run, tmp_path, options, whole):
    code, _, err = run(f"design p.toml -o m.json {options}", p_toml=PROBLEM, data_csv=ROWS)
    assert code == 0, err
    assert run("release m.json data.csv -o out.csv")[0] == 0
    header, *lines = (tmp_path / "out.csv").read_text().split()
    assert header.split(",")[1].endswith("_lower")
    assert all("." in line for line in lines) != whole
    if whole:
        assert all(t == a + b for a, b, t in (map(int, line.split(",")[::3]) for line in lines))


# A release that cannot be written.


@pytest.fixture
def release(run, tmp_path):
    """Words of a release with a ledger, of a mechanism or of a table."""
    M = adp.AffineManifold.from_equations(["a + b = c"])
    adp.iid_noise(M, law="laplace", epsilon=1).save(tmp_path / "m.json")
    Ledger(tmp_path / "b.db", epsilon=5, protects="one person").close()
    (tmp_path / "results").mkdir()
    (tmp_path / "data.csv").write_text("a,b,c\n1,2,3\n")
    (tmp_path / "t.toml").write_text(TABLE)
    return "release {} data.csv --ledger b.db -o results/out.csv"


def statuses(folder):
    with Ledger(folder / "b.db", create=False) as ledger:
        assert ledger.check() == ()
        return [entry.status for entry in ledger.history()]


def no_space(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("noise", "step"),
    [
        ("m.json", "os.fsync"),
        ("m.json", "pandas.DataFrame.to_csv"),
        ("m.json", "os.replace"),
        pytest.param("t.toml", "os.fsync", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_leaves_nothing_and_the_ledger_says_so(
    run, release, tmp_path, noise, step, monkeypatch
):
    words = release.format(noise)
    with monkeypatch.context() as patch:
        patch.setattr(step, no_space)
        code, out, err = run(words)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert "No space left" in err
    assert "entry" in err
    assert list((tmp_path / "results").iterdir()) == []
    assert statuses(tmp_path) == ["charged"]
    assert run(words)[0] == exits.KEPT
    assert statuses(tmp_path) == ["charged", "released"]
    before = (tmp_path / "results" / "out.csv").read_bytes()
    with monkeypatch.context() as patch:  # what was there is kept
        patch.setattr(step, no_space)
        assert run(f"{words} --force")[0] == exits.BAD_INPUT
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["out.csv"]
    assert (tmp_path / "results" / "out.csv").read_bytes() == before


# A release whose ledger is lost when it is on the disk: it happened, and is not repeated.


def lost(*arguments):
    raise LedgerError("ledger: it cannot be reached; do not release", unreachable=True)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["m.json", "t.toml"])
@pytest.mark.parametrize(
    ("step", "as_it_is", "words"),
    [
        ("settle", lost, "entry 1 stays charged, not confirmed"),
        ("spent", property(lost), "what is left cannot be asked"),
    ],
)
def test_what_is_published_is_called_published(
    run, release, tmp_path, noise, step, as_it_is, words, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, step, as_it_is)
        code, out, err = run(release.format(noise))
    assert code == exits.KEPT
    assert (tmp_path / "results" / "out.csv").exists()
    assert "released 1 row" in out
    assert f"the results are published, but {words}" in err
    assert "Nothing was published" not in err
    assert "no ledger was given" not in err
    assert len(statuses(tmp_path)) == 1


def test_a_ledger_that_forgot_the_charge_is_no_success(run, release, tmp_path, monkeypatch):
    def forgot(*arguments):
        raise LedgerError("b.db has no entry 1")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", forgot)
        code, _, err = run(release.format("m.json"))
    assert code == exits.BAD_INPUT
    assert (tmp_path / "results" / "out.csv").exists()
    assert "the results are published, but the ledger does not confirm what they cost" in err
    assert "stays charged" not in err


def test_a_refusal_of_a_server_does_not_look_like_an_option(run, release):
    pytest.importorskip("psycopg")
    words = release.format("m.json").replace("b.db", "postgresql://nobody@127.0.0.1:1/db#staff")
    code, _, err = run(words)
    assert code == exits.BAD_INPUT
    assert "affinedp: 127.0.0.1:1/db#staff cannot be reached" in err


def test_what_rounding_left_is_nothing_to_people(run, release, monkeypatch):
    words = release.format("m.json")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "remaining", property(lambda self: 2.9976e-15))
        assert "budget left: ε = 0 at" in run(words)[1]
        assert json.loads(run(f"{words} --force --json")[1])["budget_left"] == 2.9976e-15


def test_a_history_says_which_noise_it_was(run, release, tmp_path):
    assert "no charges yet" in run("ledger show b.db")[1]
    assert run("ledger history b.db")[1] == "no charges yet\n"
    assert run("ledger history b.db --json")[1] == "[]\n"
    M = adp.AffineManifold.from_equations(["a + b = c"])
    with Ledger(tmp_path / "b.db") as ledger:
        ledger.charge(adp.design_knorm(M, epsilon=0.25).guarantee, fingerprint="k")
        ledger.charge(adp.iid_noise(M, law="laplace", epsilon=0.5).guarantee, fingerprint="l")
        assert [entry.law for entry in ledger.history()] == ["knorm", "laplace"]
    said = run("ledger history b.db")[1]
    assert "knorm, counted as laplace ε = 0.25 " in said
    assert "Z  laplace ε = 0.5 " in said
    assert said.count("Definition 4") == 1, "said again only where it changes"


def test_functions_of_what_was_published(run, tmp_path):
    manifold = adp.AffineManifold.from_equations(["women + men = all"])
    adp.design_gaussian(manifold, epsilon=1.0, delta=1e-6).save(tmp_path / "m.json")
    table = "women,men,all\n300,700,1000\n30,-22,8\n"
    words = "report m.json p.csv --function 'women / all' --function 'women - men'"
    code, out, _ = run(words, p_csv=table)
    assert code == 0
    assert "0.300005 (95 %: 0.291483 to 0.30848)" in out
    assert "-inf to -16" in out
    assert "Fieller: exact for Gaussian noise" in out
    code, out, _ = run(f"{words} --json", p_csv=table)
    found = json.loads(out)["functions"]["women / all"]
    assert found["value"][0] == pytest.approx(0.300005, abs=1e-6)
    assert found["pieces"][1][0][0] is None
    assert run("report m.json --function 'women / all'")[0] == 2
    assert run("report m.json p.csv --function 'women / girls'", p_csv=table)[0] == 2
