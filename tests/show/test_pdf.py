"""Pages of a PDF: as many as the text needs, the same every time."""

import re

import pytest

pytest.importorskip("matplotlib")

import pandas as pd

from affinedp.show import pdf
from affinedp.show.pdf import COLUMNS, LINES, WIDEST, pdf_pages
from affinedp.show.published import PublishedNumbers
from affinedp.tables import MarginRelease, TableRelease, with_total_rows


def pages(data):
    return len(re.findall(rb"/Type /Page\b", data))


def test_long_text_goes_on_the_next_page_and_long_lines_are_folded():
    assert pages(pdf_pages("Title", ["a line"])) == 1
    assert pages(pdf_pages("Title", ["a line"] * (LINES - 3))) == 1
    assert pages(pdf_pages("Title", ["a line"] * (LINES - 2))) == 2
    assert pages(pdf_pages("Title", ["$x_1$ " * COLUMNS] * 20)) == 2


def test_the_same_text_gives_the_same_file():
    assert pdf_pages("Title", ["a"]) == pdf_pages("Title", ["a"])


def test_a_published_table_comes_as_a_page():
    cells = pd.DataFrame({"city": ["A", "A", "B"], "ward": ["1", "2", "1"], "n": [3, 40, 5]})
    table = with_total_rows(cells, ["city", "ward"], ["n"])
    release = TableRelease(hierarchy=["city", "ward"], epsilon=1.0, nonnegative=True, round_to=1)
    data = release.release(table).pdf()
    assert data.startswith(b"%PDF")
    assert pages(data) >= 1


def released():
    cells = pd.DataFrame({"city": ["<b>", "<b>", "B"], "ward": ["1", "2", "1"], "n": [3, 1448, 5]})
    table = with_total_rows(cells, ["city", "ward"], ["n"])
    release = TableRelease(hierarchy=["city", "ward"], epsilon=1.0, nonnegative=True, round_to=1)
    people = pd.DataFrame({"sex": ["f", "m"] * 50, "age": ["old"] * 100})
    labels = {"sex": ["f", "m"], "age": ["young", "old"]}
    return [
        release.release(table),
        MarginRelease(attributes=labels, epsilon=1.0).release(people),
        MarginRelease(attributes=labels, epsilon=1.0, delta=1e-6, law="gaussian").release(people),
    ]


@pytest.mark.parametrize("out", released(), ids=["table", "margins", "gaussian"])
def test_pages_hold_the_published_numbers_with_whole_ends(out, monkeypatch):
    shown = out.report(0.9).published
    assert "90 %" in shown.caption
    if isinstance(out.design.description, TableRelease):
        low, high = out.interval(0.9)
        pairs = zip(out.table["n"].tolist(), low["n"].tolist(), high["n"].tolist())
    else:
        found = out.tables(0.9)
        pairs = zip(found["count"].tolist(), found["lower"].tolist(), found["upper"].tolist())
    page = out.report(0.9).page()
    assert "<b>" not in page
    seen = []
    monkeypatch.setattr(
        "affinedp.show.page.pdf_pages",
        lambda title, lines, figures, wide: seen.extend(wide) or b"%PDF",
    )
    out.pdf(0.9)
    for (*_, cell), (value, low, high) in zip(shown.rows, pairs, strict=True):
        assert isinstance(low, int)
        assert isinstance(high, int)
        ends = f"({low:,} to {high:,})"
        assert cell.endswith(ends)
        if isinstance(value, int):
            assert cell == f"{value:,} {ends}"
        assert cell in page
        assert any(line.endswith(cell) for line in seen)


def test_columns_that_do_not_fit_follow_with_their_labels():
    names = tuple(f"column {k}" for k in range(20))
    table = PublishedNumbers("c", ("label", *names), 1, (("east", *["1,000 (1 to 2)"] * 20),))
    lines = table.lines(WIDEST)
    assert max(map(len, lines)) <= WIDEST
    assert (
        sum(line.startswith("east") for line in lines)
        == sum(line.startswith("label") for line in lines)
        > 1
    )
    assert sum(line.count("1,000 (1 to 2)") for line in lines) == 20


def test_characters_without_a_font_are_named_and_nothing_is_warned(monkeypatch, recwarn):
    seen = []
    plain = pdf._pages
    monkeypatch.setattr(pdf, "_pages", lambda lines, columns: plain(seen.append(lines) or lines,
                                                                     columns))  # fmt: skip
    monkeypatch.setattr(pdf, "BOXES", ("",))  # as on a machine with no other fonts
    pdf_pages("Title", ["東京 12"])
    assert any("U+4EAC, U+6771" in line for lines in seen for line in lines)
    assert not [one for one in recwarn if "Glyph" in str(one.message)]
    seen.clear()
    pdf_pages("Title", ["Zürich ε ≤ 12"])
    assert not any("No font" in line for lines in seen for line in lines)
