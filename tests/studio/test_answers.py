"""What the page shows is what its files do, for every way to say who must stay hidden."""

import json
import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic", reason="needs the extra studio")

import affinedp as adp
from affinedp.cli.problems import design_problem
from affinedp.errors import AffineDPError
from affinedp.files.problem import read_problem
from affinedp.studio import answers, applications, problem, tasks
from affinedp.studio.applications import HIDDEN, control
from affinedp.studio.question import Plant, Question, Wish

TABLE = "women_n + men_n = n\nwomen_s + men_s = s\nn + s = all"
QUICK = {"law": "gaussian", "delta": 1e-6}
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
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_files_do_what_the_page_shows(name, tmp_path, monkeypatch, capsys):
    question = QUESTIONS[name]
    found = tasks.design(question)
    shown, files = found["shown"], found["files"]
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    saved = adp.Mechanism.load(tmp_path / "mechanism.json")
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    monkeypatch.setattr(sys, "argv", ["publish.py"])
    runpy.run_path(str(tmp_path / "publish.py"))
    said = dict(line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert float(said["kept epsilon"]) == shown["kept"]
    assert float(said["typical error"]) == pytest.approx(shown["error"], rel=1e-12)
    assert float(said["really epsilon"]) == answers.leak(question)["really"]
    for one in shown["entries"]:
        assert float(said[f"noise {one['name']}"]) == pytest.approx(one["noise"], rel=1e-12)
    assert adp.Mechanism.load(Path("mechanism.json")).fingerprint == saved.fingerprint
    read = read_problem(tmp_path / "problem.toml")
    delta = None if question.law == "laplace" else question.delta
    again = design_problem(read, question.law, None, delta)
    assert again.fingerprint == saved.fingerprint
    assert shown["kept"] <= question.epsilon * (1 + 1e-9)


def test_the_report_says_whom_it_protects():
    files = tasks.design(QUESTIONS["a person"])["files"]
    assert "any one person: whether they are in the data" in files["report.html"].lower()
    assert (
        "one person joins or leaves" in json.loads(files["mechanism.json"])["stated"]["neighbours"]
    )


def test_the_leak_is_that_of_the_definition():
    """Laplace noise of scale 1 on a total and its parts, by hand: two numbers move by one."""
    answer = answers.leak(Question())
    assert answer["really"] == 2.0
    # 1 - exp(-ε/2) is the distance of one Laplace number at ε; two moved numbers are less apart
    # than one that moves by 2, and more than one that moves by 1
    assert 1 - math.exp(-0.5) < 2 * answer["odds"] - 1 < 1 - math.exp(-1.0)
    drawn = np.random.default_rng(3).laplace(size=(400_000, 2))
    loss = np.abs(drawn + 1).sum(axis=1) - np.abs(drawn).sum(axis=1)
    simulated = np.maximum(0.0, 1 - np.exp(-loss)).mean()
    assert 2 * answer["odds"] - 1 == pytest.approx(simulated, abs=4e-3)


def test_an_error_gives_its_epsilon_and_back():
    question = Question(hidden="replace", **QUICK)
    wished = answers.solve(Wish(question=question, error=3.0))
    assert 3.0 * (1 - 3e-6) <= wished["design"]["error"] <= 3.0
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
    assert 'adjacency="forward"' in jumps["script"]
    (caution,) = control(Plant(**room))["cautions"]
    assert "9.86e+03 at t = 0" in caution
    assert HIDDEN["forward"] in caution
    assert "adjacency" not in caution
    page = Path(applications.__file__).with_name("static") / "applications.js"
    for value, words in HIDDEN.items():
        assert f'["{value}", "{words}"]' in page.read_text(encoding="utf-8")
