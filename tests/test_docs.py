"""The pages hang together: links lead somewhere, code runs, scripts of the gallery draw."""

import ast
import importlib
import json
import pkgutil
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import affinedp

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WRITTEN = ("_build", "generated")  # by a build, so perhaps not there
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *DOCS.rglob("*.md"))
    if not set(WRITTEN) & set(page.parts)
)
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = ROOT / "README.md"
# Blocks that need a cluster, which the tests have not; those of README run as pasted, below.
NOT_RUN = {DOCS / "howto" / "cluster.md", README}


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text of a page without its code."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """What a fragment can point at: the headings, as GitHub and MyST name them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page):
    problems = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if set(WRITTEN) & set(target.parts):
            continue
        if not target.exists():
            problems.append(f"{link}: no such file")
        elif fragment and fragment not in anchors(target):
            problems.append(f"{link}: no such heading")
    assert not problems


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_blocks_are_doctests(page):
    """A block that is not run is wrong sooner or later."""
    problems = []
    for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if ">>> " in code:
            if not code.endswith("\n\n"):
                problems.append(f"no blank line at the end: {code[-40:]!r}")
        elif language in ("python", "pycon") and page not in NOT_RUN:
            problems.append(f"is not run: {code[:40]!r}")
    assert not problems


@pytest.mark.parametrize(
    "code", [code for kind, code in FENCE.findall(README.read_text("utf-8")) if kind == "python"]
)
def test_blocks_of_the_readme_run_as_pasted(code, capsys):
    """Where a line prints a number that is always the same, its comment begins with it."""
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    for said in re.findall(r"^print\(.*?\)  # (.*)$", code, re.MULTILINE):
        assert any(said.startswith(line) for line in printed.splitlines()), said


@pytest.mark.parametrize("page", sorted(set(PAGES) & set(DOCS.rglob("*.md"))), ids=page_name)
def test_pages_of_the_site_link_to_no_page_outside_it(page):
    """Sphinx does not find such a page, and its warning fails the build."""
    for link in re.findall(r"\]\(([^)\s#]+\.md)(?:#[^)]*)?\)", prose(page)):
        if not link.startswith("http"):
            assert (page.parent / link).resolve().is_relative_to(DOCS.resolve()), link


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_pages_say_nothing_about_the_machine_they_were_written_on(page):
    assert not re.search(r"/(work|root|home|farm|tmp)/\w", page.read_text(encoding="utf-8"))


def test_every_page_is_in_a_table_of_contents():
    """A folder lists its pages by a pattern, or each by its name in the order to read them."""
    for folder in ("tutorials", "howto", "explanation"):
        index = (DOCS / folder / "index.md").read_text(encoding="utf-8")
        by_pattern = ":glob:" in index and "\n*\n" in index
        for page in (DOCS / folder).glob("*.md"):
            assert by_pattern or page.stem == "index" or f"\n{page.stem}\n" in index, page.name
    top = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.stem == "index" or f"\n{page.stem}\n" in top, page.name


def toctree_entries(page: Path) -> list[Path]:
    """The pages that the tables of contents of a page lead to."""
    found: list[Path] = []
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language != "{toctree}":
            continue
        for line in block.splitlines():
            if line.startswith(":") or not line.strip():
                continue
            named = page.parent.glob(f"{line.strip()}.md")
            found += [path.resolve() for path in named]
    return found


def test_every_page_can_be_reached_from_the_start():
    seen, ahead = set(), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page not in seen:
            seen.add(page)
            ahead += toctree_entries(page)
    assert {page for page in PAGES if page.is_relative_to(DOCS)} <= seen


def test_gallery_has_many_pictures_with_a_story_each():
    scripts = sorted(DOCS.glob("gallery/plot_*.py"))
    titles = set()
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        assert re.match(r'"""\n.+\n=+\n\n', text), script.name
        assert "plt.show()" in text, script.name
        titles.add(text.splitlines()[1])
    assert len(titles) == len(scripts) >= 20


def test_formulae_are_not_set_as_code():
    """Signs that no program contains: sums, integrals, norms, transposes, exponents."""
    sign = re.compile(r"[∫∑√‖ᵀ≻⪰∝∈⁻]|Σ[_(‖]|\^[({]")
    problems = []
    for page in PAGES:
        if page.is_relative_to(DOCS) and page.name not in ("errata.md", "paper.md"):
            text = FENCE.sub("", page.read_text(encoding="utf-8"))
            code = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
            problems += [f"{page.name}: {each}" for each in code if sign.search(each)]
    assert not problems


def test_the_site_loads_nothing_from_elsewhere():
    for path in (*DOCS.glob("_static/*.css"), *DOCS.glob("_static/*.js")):
        assert not re.search(r"https?://", path.read_text(encoding="utf-8")), path.name
    versions = json.loads((DOCS / "versions.json").read_text(encoding="utf-8"))
    assert all(set(one) == {"version", "name", "url"} for one in versions)
    assert any(affinedp.__version__.startswith(one["version"]) for one in versions)


def test_settings_can_be_read():
    """``conf.py`` imports, and the reference lists what the packages export."""
    pytest.importorskip("docutils")
    settings = runpy.run_path(str(DOCS / "conf.py"))
    exported = settings["autosummary_context"]["exported"]
    names = [name for _, group in exported["affinedp"] for name in group]
    assert sorted(names) == sorted(affinedp.__all__)
    assert settings["release"] == affinedp.__version__


def test_versions_agree():
    """On the release that comes next; the tag is what makes it a release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    coming = re.findall(r"^## \[(.*?)\]", changes, re.MULTILINE)[0]
    assert re.fullmatch(r"\d+\.\d+\.\d+", coming)
    assert f"\nversion: {coming}\n" in citation
    assert project["tool"]["hatch"]["version"]["fallback-version"] == f"{coming}.dev0"


@pytest.mark.parametrize(
    "script", sorted(DOCS.glob("gallery/plot_*.py")), ids=lambda path: path.stem
)
def test_gallery_script_draws(script, monkeypatch, capsys):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    plt.close("all")  # what other tests of this process drew is not this script's
    runpy.run_path(str(script))
    drawn = [plt.figure(number).axes for number in plt.get_fignums()]
    plt.close("all")
    assert drawn
    for axes in drawn:
        assert axes[0].has_data()
    assert capsys.readouterr().err == ""


def test_measurements_stand_in_a_section_of_their_own():
    """run.py writes sections anew, one by one: what stands in none, or in another's, is lost."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    marked = re.compile(r"<!-- begin (\w+)(?: \d+ s)? -->\n(.*?)\n<!-- end \1 -->\n", re.DOTALL)
    for name, section in marked.findall(text):
        assert len(re.findall(r"^## ", section, re.MULTILINE)) == 1, name
        assert section.startswith("## "), name
    rest = marked.sub("", text)
    assert not re.findall(r"^## |^\||<!--", rest, re.MULTILINE)


@pytest.mark.parametrize(
    "script",
    sorted(
        [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py"), *DOCS.glob("figures/*.py")]
    ),
    ids=page_name,
)
def test_scripts_import_names_that_exist(script):
    """Benchmarks and figures run for minutes, so only what they import is looked at."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "affinedp":
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


def test_the_reference_lists_names_that_exist():
    text = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    names = re.findall(r"^   (affinedp[\w.]*)$", text, re.MULTILINE)
    assert names
    for name in names:
        module, _, last = name.rpartition(".")
        if not hasattr(importlib.import_module(module or name), last):
            importlib.import_module(name)


def stands_for_something(name):
    """Whether a dotted name exists, as the changelog writes it: ``m.save``, ``tables.whole``."""
    first, _, rest = name.partition(".")
    if first == "m" and rest in affinedp.Mechanism.__dataclass_fields__:
        return True
    at = {"m": "affinedp.Mechanism", "adp": "affinedp", "affinedp": "affinedp"}
    try:
        pkgutil.resolve_name(f"{at.get(first, f'affinedp.{first}')}.{rest}")
    except (AttributeError, ImportError):
        return False
    return True


def test_names_that_changed_lead_to_names_that_exist():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \| (.*) \|$", changes.partition("### Names")[2], re.MULTILINE)
    assert len(rows) > 30
    dotted = r"`((?:adp|affinedp|m|audit|consensus|control|flows|tables)\.[\w.]+)"
    for was, now in rows:
        assert not [name for name in re.findall(dotted, was) if stands_for_something(name)]
        assert not [name for name in re.findall(dotted, now) if not stands_for_something(name)]
