"""Pages of a PDF: as many as the text needs, the same every time."""

import re

import pytest

pytest.importorskip("matplotlib")

from affinedp.show.pdf import COLUMNS, LINES, pdf_pages
from affinedp.tables import TableRelease, with_total_rows


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
    import pandas as pd

    cells = pd.DataFrame({"city": ["A", "A", "B"], "ward": ["1", "2", "1"], "n": [3, 40, 5]})
    table = with_total_rows(cells, ["city", "ward"], ["n"])
    release = TableRelease(hierarchy=["city", "ward"], epsilon=1.0, nonnegative=True, round_to=1)
    data = release.release(table).pdf()
    assert data.startswith(b"%PDF")
    assert pages(data) >= 1
