"""Equations between rows: found, told apart from those within, and looked at as a whole."""

import pytest

pytest.importorskip("fastapi", reason="needs the extra studio")
from affinedp.discovery.found import UNDECIDED
from affinedp.errors import AffineDPError
from affinedp.studio import looking
from affinedp.studio.question import Look, Tied
from affinedp.studio.uploads import Held

ROWS = {"north": (310, 127), "south": (95, 441), "east": (273, 268), "all": (678, 836)}
LINES = [f"{place},{women},{men},{women + men}" for place, (women, men) in ROWS.items()]
TABLE = "region,women,men,total\n" + "\n".join(LINES) + "\n"
HELD = Held("places.csv", TABLE.encode())


def said(text):
    """The description, with the sum as a total in the words of whoever knows the table."""
    decided = text.replace('"total = women + men",', "").replace(UNDECIDED, "")
    return f'totals = {{ "total" = ["women", "men"] }}\n{decided}'


TIE = 'row_totals = { "all" = ["north", "south", "east"] }'


def test_equations_between_rows_are_told_apart_with_what_they_cost():
    found = looking.discover_in((HELD, Look(file="x")))
    assert [one["text"] for one in found["equations"]] == ["women + men - total = 0"]
    (between,) = found["between"]
    assert "region is 'all'" in between["text"]
    assert between["cost"] == 2.0


def test_the_description_can_be_completed_and_looked_at():
    text = looking.discover_in((HELD, Look(file="x")))["table"]
    with pytest.raises(AffineDPError, match="between_rows"):
        looking.table((HELD, Tied(file="x", text=text)))
    text = said(text)
    apart = looking.table((HELD, Tied(file="x", text=text)))
    assert not apart["tied"]
    whole = looking.table((HELD, Tied(file="x", text=f"{TIE}\n{text}")))
    assert whole["tied"]
    assert sum(one["numbers"] for one in whole["levels"]) == 12
    assert "person" in whole["promise"]


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
    assert page.find("equations").get_property("value") == ""
    page.press("#doubtful [aria-label^='Everyone knows']")
    page.settled()
    assert page.find("equations").get_property("value") != ""


def test_between_rows_in_the_page(studio, page, tmp_path):
    import affinedp as adp

    (tmp_path / "places.csv").write_text(TABLE, encoding="utf-8")
    with adp.Ledger(tmp_path / "budget.db", epsilon=90.0, protects="one person"):
        pass
    page.open(studio.link)
    page.find("file").send_keys(str(tmp_path / "places.csv"))
    page.until("document.getElementById('discover')")
    page.click("discover")
    page.until("document.getElementById('table-text')")
    assert "Equations between rows: 1 found" in page.text("rows-card")
    page.write("equations", "total = women + men")
    page.click("counts-all")
    page.settled()
    text = page.find("table-text").get_property("value")
    page.write("table-text", f"{TIE}\n{said(text)}")
    page.click("table-look")
    page.until("document.querySelector('#table-said table')")
    assert "no private number" in page.text("table-said")
    page.driver.execute_script("document.getElementById('publishing').open = true")
    page.write("ledger", str(tmp_path / "budget.db"))
    page.click("preview")
    page.until("document.getElementById('publish')")
    assert "Equations between rows were found" in page.text("preview-said")
    assert page.complaints() == []
