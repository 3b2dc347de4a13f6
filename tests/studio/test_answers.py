"""What the page shows is what its files do, for every way to say who must stay hidden."""

import json
import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("pydantic", reason="needs the extra studio")

import affinedp as adp
from affinedp.cli.app import app
from affinedp.errors import AffineDPError
from affinedp.files.data import write_table
from affinedp.show.report import best_guess
from affinedp.studio import answers, applications, problem, tasks
from affinedp.studio.applications import HIDDEN, control
from affinedp.studio.question import Plant, Question, Wish

pd = pytest.importorskip("pandas")

TABLE = "women_n + men_n = n\nwomen_s + men_s = s\nn + s = all"
QUICK = {"law": "gaussian", "delta": 1e-6}
PEOPLE = Question(equations="all = women + men", hidden="person", labels=("town",))
QUESTIONS = {
    "any number": Question(equations=TABLE, **QUICK),
    "one μ each": Question(moves={"a": 2.0, "c": 0.5}, mu=1.5, **QUICK),
    "a person": Question(equations=TABLE, hidden="person", **QUICK),
    "a person with an income": Question(
        equations="people = women + men",
        also=("income",),
        hidden="person",
        moves={"women": 1, "men": 1, "people": 1, "income": 200_000},
        labels=("town",),
        **QUICK,
    ),
    "a person in two cells": Question(equations=TABLE, hidden="person", counted=2, **QUICK),
    "a record": Question(equations=TABLE, hidden="replace", **QUICK),
    "chosen moves": Question(hidden="directions", directions="a + c\n# remark\n2 b + 2 c", **QUICK),
    "two tables": Question(equations="a + b = c\nd + e = f", hidden="person", **QUICK),
    "a number for itself": Question(also=("x y", "`z`"), **QUICK),
    "a public number": Question(equations="a + b = c\nd = 3\ne + d = f", **QUICK),
    "odd names": Question(equations='`"x"` + `it\'s` = `{a}\\n`', hidden="replace", **QUICK),
    "pure": Question(hidden="replace", law="laplace"),
    "counts of people": PEOPLE,
    "stairs": Question(equations="all = women + men", hidden="person", law="staircase"),
}


def run_script(text, folder, monkeypatch, *words):
    """Run a script that was taken home, in a folder."""
    (folder / "publish.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["publish.py", *words])
    runpy.run_path(str(folder / "publish.py"))


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_files_do_what_the_page_shows(name, tmp_path, monkeypatch, capsys):
    question = QUESTIONS[name]
    found = tasks.design(question)
    shown, files = found["shown"], found["files"]
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    saved = adp.Mechanism.load(tmp_path / "mechanism.json")
    (tmp_path / "again").mkdir()
    run_script(files["publish.py"], tmp_path / "again", monkeypatch)
    said = dict(line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert float(said["kept epsilon"]) == shown["kept"]
    assert float(said["typical error"]) == pytest.approx(shown["error"], rel=1e-12)
    assert float(said["really epsilon"]) == answers.leak(question)["really"]
    for one in shown["entries"]:
        assert float(said[f"noise {one['name']}"]) == pytest.approx(one["noise"], rel=1e-12)
    assert adp.Mechanism.load(Path("mechanism.json")).fingerprint == saved.fingerprint
    monkeypatch.chdir(tmp_path)
    Path("mechanism.json").unlink()
    command = ["design", "problem.toml", "-o", "mechanism.json"]  # as the page says, and no more
    assert CliRunner().invoke(app, command).exit_code == 0
    assert adp.Mechanism.load(Path("mechanism.json")).fingerprint == saved.fingerprint
    assert shown["kept"] <= question.epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("a,b\n1,2\n", "has no column"),
        (
            "town;women;men;all\nx;1;2;3\n",
            "data.csv, line 1: its columns are separated by semicolons",
        ),
        ("town,women,men,all\nx,1,2,3\ny,3,3,6\n", "say --different-people"),
    ],
)
def test_the_script_checks_its_file_before_it_designs(content, said, tmp_path, monkeypatch, capsys):
    script = tasks.design(PEOPLE)["files"]["publish.py"]
    if content is not None:
        (tmp_path / "data.csv").write_text(content)
    with pytest.raises(SystemExit, match=said):
        run_script(script, tmp_path, monkeypatch, "data.csv")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
def test_counts_of_people_are_published_whole(kind, tmp_path, monkeypatch):
    """Of every kind of file that the page takes."""
    towns = pd.DataFrame({"town": list("abc"), "women": [3, 5, 8], "men": [4, 4, 9]})
    write_table(towns.assign(all=towns.women + towns.men), tmp_path / f"data.{kind}")
    script = tasks.design(PEOPLE)["files"]["publish.py"]
    run_script(script, tmp_path, monkeypatch, f"data.{kind}", "--different-people")
    published = pd.read_csv(tmp_path / "published.csv")
    assert list(published.columns[:4]) == ["town", "women", "women_lower", "women_upper"]
    assert {kind.kind for kind in published.dtypes[1:]} == {"i"}
    assert (published["all"] == published.women + published.men).all()
    assert (published.women_lower <= published.women).all()
    assert (published.women <= published.women_upper).all()


def test_the_report_says_whom_it_protects():
    files = tasks.design(QUESTIONS["a person"])["files"]
    assert "any one person: whether they are in the table" in files["report.html"].lower()
    assert (
        "one person joins or leaves" in json.loads(files["mechanism.json"])["stated"]["neighbours"]
    )


def test_whole_noise_is_drawn_at_its_values():
    """By hand: independent geometric noise of ratio 1/e on each of two counts."""
    _, mechanism = answers.designed(PEOPLE)
    curve = answers.pair_curve(mechanism)
    assert curve["whole"]
    steps = np.array(curve["x"]) / curve["shift"]
    np.testing.assert_allclose(
        steps, np.arange(-len(steps) // 2 + 1, len(steps) // 2 + 1), atol=1e-6
    )
    law = math.tanh(0.5) * np.exp(-np.abs(steps))
    np.testing.assert_allclose(curve["density"], law, atol=4e-3)


def test_the_leak_is_that_of_the_definition():
    """Laplace noise of scale 1 on a total and its parts, by hand: two numbers move by one."""
    answer = answers.leak(Question())
    assert answer["really"] == 2.0
    # 1 - exp(-ε/2) is the distance of one Laplace number at ε; two moved numbers are less apart
    # than one that moves by 2, and more than one that moves by 1
    guess = best_guess(answers.forgetful_noise(problem.known_of(Question()), Question()).guarantee)
    assert 1 - math.exp(-0.5) < 2 * guess - 1 < 1 - math.exp(-1.0)
    drawn = np.random.default_rng(3).laplace(size=(400_000, 2))
    loss = np.abs(drawn + 1).sum(axis=1) - np.abs(drawn).sum(axis=1)
    simulated = np.maximum(0.0, 1 - np.exp(-loss)).mean()
    assert 2 * guess - 1 == pytest.approx(simulated, abs=4e-3)


@pytest.mark.parametrize(
    ("question", "error"), [(Question(hidden="replace", **QUICK), 3.0), (PEOPLE, 0.05)]
)
def test_an_error_gives_its_epsilon_and_back(question, error):
    wished = answers.solve(Wish(question=question, error=error))
    assert error * (1 - 3e-6) <= wished["design"]["error"] <= error
    again = tasks.design(question.model_copy(update={"epsilon": wished["epsilon"]}))["shown"]
    assert again["error"] == wished["design"]["error"]


def test_an_error_that_nothing_gives_is_refused():
    question = Question(hidden="replace", law="laplace")
    with pytest.raises(AffineDPError, match="no ε"):
        answers.solve(Wish(question=question, error=1e-9))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (Question(equations="2 a + b = c", hidden="person"), "no plain totals"),
        (Question(equations="net = inn - out", hidden="person"), "no plain totals"),
        (Question(equations="net + out - inn = 0", hidden="replace"), "no plain totals"),
        (Question(hidden="directions"), "at least one move"),
        (Question(hidden="directions", directions="a + q"), "not among"),
        (Question(hidden="directions", directions="a"), "kernel|equations|leav"),
        (Question(equations="a = 1"), "nothing is left to hide"),
        (Question(mu=0.0), "μ|mu"),
        (Question(equations=""), "write an equation"),
        (Question(also=("a\x1b[8m",)), "control character"),
    ],
)
def test_what_cannot_be_is_refused_in_words(question, words):
    with pytest.raises(AffineDPError, match=words):
        answers.leak(question)


def test_a_picture_of_many_numbers_shows_what_matters():
    text = " + ".join(f"x{i}" for i in range(99)) + " = all"
    answer = answers.leak(Question(equations=text, hidden="person"))
    drawing = answer["drawing"]
    shown = {entry["name"] for entry in drawing["entries"]}
    assert {one["name"] for one in answer["worst"]} <= shown
    assert drawing["left_out"] == 100 - len(shown) > 0


def test_answers_are_json():
    for task in (problem.check, answers.leak, tasks.design):
        json.dumps(task(QUESTIONS["a person"]), allow_nan=False)


def test_forgetful_noise_is_what_each_number_alone_would_need():
    known = problem.known_of(Question(moves={"a": 2.0}))
    assert problem.reach_of(known, Question(moves={"a": 2.0})).tolist() == [2.0, 1.0, 1.0]


def test_a_heated_room_hides_jumps_of_its_state():
    room = {"A": "0.95", "C": "1", "horizon": 168, "mu": "1"}
    jumps = control(Plant(**room, neighbours="forward"))
    assert max(jumps["outputs"][0]) < 3.2 < 6 < jumps["fresh"]["sigma"] < 6.1
    assert jumps["kept"] <= 1.000001
    assert not jumps["cautions"]
    assert "adjacency='forward'" in jumps["script"]
    (caution,) = control(Plant(**room))["cautions"]
    assert "9.86e+03 at t = 0" in caution
    assert HIDDEN["forward"] in caution
    assert "adjacency" not in caution
    page = Path(applications.__file__).with_name("static") / "applications.js"
    for value, words in HIDDEN.items():
        assert f'["{value}", "{words}"]' in page.read_text(encoding="utf-8")


def test_neighbours_that_are_too_many_are_refused_in_words_of_the_page():
    rows = [" + ".join(f"x{i}_{j}" for j in range(8)) + f" = r{i}" for i in range(8)]
    columns = [" + ".join(f"x{i}_{j}" for i in range(8)) + f" = c{j}" for j in range(8)]
    question = Question(equations="\n".join([*rows, *columns]), law="laplace")
    with pytest.raises(AffineDPError, match="Choose in step 2 one person") as refusal:
        answers.leak(question)
    assert "Adjacency" not in str(refusal.value)
