"""Equations between rows: found, told apart from those within, and looked at as a whole."""

import runpy
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra studio")
import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from affinedp.studio import looking, tasks
from affinedp.studio.question import Look, Question, Sketch, Tied
from affinedp.studio.uploads import Held
from affinedp.tables.files import labelled, read_release

ROWS = {"north": (310, 127), "south": (95, 441), "east": (273, 268), "all": (678, 836)}
LINES = [f"{place},{women},{men},{women + men}" for place, (women, men) in ROWS.items()]
TABLE = "region,women,men,total\n" + "\n".join(LINES) + "\n"
HELD = Held("places.csv", TABLE.encode())


def test_equations_between_rows_are_told_apart_with_what_they_cost():
    found = looking.discover_in((HELD, Look(file="x")))
    assert [one["text"] for one in found["equations"]] == ["women + men - total = 0"]
    (between,) = found["between"]
    assert "region is 'all'" in between["text"]
    assert between["cost"] == 2.0


NESTED = """ward,age,women,men,people
,,109,91,200
Elm,,48,43,91
Oak,,61,48,109
Elm,0-15,7,13,20
Elm,16-64,27,26,53
Elm,65+,14,4,18
Oak,0-15,17,15,32
Oak,16-64,25,16,41
Oak,65+,19,17,36
"""


MARKED = """ward,age,women,men,people
Elm,0-15,7,13,20
Elm,16-64,27,26,53
Elm,65+,14,4,18
Elm,total,48,43,91
Oak,0-15,17,15,32
Oak,16-64,25,16,41
Oak,65+,19,17,36
Oak,total,61,48,109
Ash,0-15,11,9,20
Ash,16-64,31,22,53
Ash,65+,5,8,13
Ash,total,47,39,86
"""


@pytest.mark.parametrize(
    ("table", "total", "tie"),
    [
        (MARKED, "people", '"Elm / total" = ["Elm / 0-15", "Elm / 16-64", "Elm / 65+"]'),
        (TABLE, "total", 'all = ["north", "south", "east"]'),
        (NESTED, "people", 'hierarchy = ["ward", "age"]'),
    ],
    ids=["marked levels", "labels", "levels"],
)
def test_the_description_is_published_as_it_is_saved(table, total, tie, tmp_path, monkeypatch):
    """Everyone is in several rows: the script refuses, and the description pays for them once."""
    held = Held("t.csv", table.encode())
    found = looking.discover_in((held, Look(file="x")))
    question = Question(equations=f"{total} = women + men", hidden="person", delta=1e-6)
    sketch = Sketch(question=question, rows=found["rows"])
    text = looking.description(sketch)["text"]
    assert tie in text
    data, description = tmp_path / "t.csv", tmp_path / "table.toml"
    data.write_text(table, encoding="utf-8")
    description.write_text(text, encoding="utf-8")
    assert "person" in looking.table((held, Tied(file="x", text=text)))["promise"]
    read = read_release(description)
    assert read.release.totals == {total: ["women", "men"]}
    with adp.Ledger(tmp_path / "own.db", epsilon=1.0, delta=1e-6, protects="one person") as ledger:
        rows = labelled(read_table(data), read.index, "t.csv")
        published = read.release.release(rows, ledger=ledger)
    women, men, people = (published.table[name] for name in ("women", "men", total))
    assert ((women + men - people).abs() < 1e-6).all()
    publish = tmp_path / "publish.py"
    publish.write_text(tasks.design(question)["files"]["publish.py"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["publish.py", "t.csv", "--different-people"])
    with pytest.raises(SystemExit, match="several rows.*table.toml"):
        runpy.run_path(str(publish))
    assert not (tmp_path / "budget.db").exists()
    with pytest.raises(AffineDPError, match="several rows"):
        looking.check_untied(read_table(data), ["women"], "t.csv")


def test_only_what_can_hardly_be_anything_but_counts_is_filled_in_together():
    """Numbers of persons and incomes, of which many are 0, are asked for one by one."""
    lines = [f"{i},{i % 3 and 20_000 + 7 * i * i},{i % 5},{i % 4 / 2}" for i in range(60)]
    people = "\n".join(["id,income,visits,hours", *lines])
    found = looking.discover_in((Held("people.csv", people.encode()), Look(file="x")))
    assert found["numbers"] == ["id", "income", "visits", "hours"]
    assert found["counts"] == ["visits"]


def test_a_wrong_description_is_refused_in_words():
    for text, words in (
        ("[privacy", "not valid TOML"),
        ("equations = []\n[privacy]\nmu = 1", "epsilon is missing"),
        ('index = "no"\nequations = []\n[privacy]\nmu = 1\nepsilon = 1.0', "no such column"),
    ):
        with pytest.raises(AffineDPError, match=words):
            looking.table((HELD, Tied(file="x", text=text)))


def test_what_may_be_chance_is_shown_and_not_taken(studio, page, tmp_path):
    lines = ["u,v,w", *(f"{a},{b},{a + b}" for a, b in ((1, 2), (2, 2), (1, 1)))]
    (tmp_path / "few.csv").write_text("\n".join(lines), encoding="utf-8")
    page.open(studio.link)
    page.find("file").send_keys(str(tmp_path / "few.csv"))
    page.until("document.getElementById('discover')")
    page.click("discover")
    page.until("document.getElementById('doubtful')")
    assert "may be chance" in page.text("doubtful")
    assert page.text("found").startswith("1 equation holds, but on too few rows")
    assert page.find("equations").get_property("value") == ""
    page.press("#doubtful [aria-label^='Everyone knows']")
    page.settled()
    assert page.find("equations").get_property("value") != ""
    assert page.text("found").startswith("1 equation holds")


def test_rows_that_are_people_or_totals_are_not_handed_out(studio, page, tmp_path):
    (tmp_path / "places.csv").write_text(TABLE, encoding="utf-8")
    page.open(studio.link)
    page.find("file").send_keys(str(tmp_path / "places.csv"))
    page.until("document.getElementById('discover')")
    page.settled()
    assert "one person" in page.text("claim")
    page.press("[name=row-is][value=person]")
    page.settled()
    assert "count_people" in page.find("row-is-said").text
    page.write("equations", "total = women + men")
    page.write("also", "")
    page.counts_people()
    handed_out = page.driver.find_element("css selector", "[data-file='publish.py']").is_enabled
    assert handed_out()
    page.press("[name=row-is][value=person]")
    page.settled()
    assert not handed_out()
    page.counts_people()
    page.click("discover")
    page.until("document.getElementById('table-text')")
    page.settled()
    assert "Equations between rows: 1 found" in page.text("rows-card")
    assert "several rows" in page.text("claim")
    assert not handed_out()
    page.driver.execute_script("document.getElementById('publishing').open = true")
    page.click("preview")
    assert "Finish the steps" in page.text("preview-said")
    assert 'total = ["women", "men"]' in page.find("table-text").get_property("value")
    page.click("table-look")
    page.until("document.querySelector('#table-said table')")
    assert "no private number" in page.text("table-said")
    assert page.complaints() == []
