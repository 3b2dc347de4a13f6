"""The page about the paper opens with what it is, and its figures have words."""

import re

import pytest

from affinedp.cli.app import main
from affinedp.paper.report import WORDS, Claim, Reproduced, counted, page

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def found(tmp_path):
    figures = []
    for name in WORDS["figures"]:
        for ending in (".png", ".svg"):
            path = tmp_path / f"{name}{ending}"
            path.write_bytes(PNG + ending.encode())
            figures.append(path)
    claims = (
        Claim("σ", 2.5244, 1.8779, "corrected", "exact"),
        Claim("λ", 1.0, 1.0, "agrees", "exact"),
        Claim("<α>", None, 3.0, "added", "exact"),
    )
    return [Reproduced("consensus", "Section VI", claims, tuple(figures))]


def test_counts(found):
    assert counted(found) == {"agrees": 1, "corrected": 1, "added": 1}


def test_page_opens_with_what_it_is(found):
    text = page(found)
    first = re.search(r"</h1><p>(.*?)</p>", text, re.DOTALL).group(1)
    assert first.startswith("This page checks a paper.")
    assert text.index("counts") < text.index("<section")
    assert "&lt;α&gt;" in text
    assert "<α>" not in text


def test_every_figure_has_words(found):
    text = page(found)
    figures = re.findall(r"<figure>.*?</figure>", text, re.DOTALL)
    assert len(figures) == len(WORDS["figures"])
    for figure in figures:
        assert "src='data:image/png" in figure
        assert len(re.search(r"alt='([^']*)'", figure).group(1)) > 40
        assert len(re.search(r"<figcaption>(.*?)<a", figure).group(1)) > 40


def test_page_needs_nothing_from_elsewhere(found):
    assert not re.search(r"(src|href)='https?:", page(found))


def test_command_ends_with_a_summary_or_with_rows(tmp_path, monkeypatch, capsys):
    def said(*words):
        monkeypatch.setattr("sys.argv", ["affinedp", "reproduce", "examples", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        return capsys.readouterr().out.splitlines()

    summary = said("--out", str(tmp_path))
    assert len([line for line in summary if line.strip()]) <= 6  # the last may be broken in two
    assert "10 agree" in summary[1]
    assert (tmp_path / "report.html").exists()
    assert any("Example 1, k = 2" in line for line in said("--out", str(tmp_path), "--rows"))
    assert any("Example 1, k = 2" in line for line in said())
