"""Garbage in: a clear AffineDPError or exit code 2, never a traceback, a hang or a number.

Ten thousand cases through the readers of problems, mechanisms, data files and ledgers.
"""

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.cli import app as cli
from affinedp.errors import AffineDPError
from affinedp.files.data import read_table

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["a + b = c", "laplace", "gaussian", "a", "D.csv", "=", "1e999*a = 2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
KEYS = ["equations", "names", "D", "b", "privacy", "query", "noise", "mu", "law", "scale", "matrix"]


def run(*arguments):
    """The command line in this process: (exit code, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.app(list(arguments), standalone_mode=False)
            code = 0
        except AffineDPError as error:
            err.write(f"affinedp: {error}")
            code = 2
        except SystemExit as stop:
            code = stop.code or 0
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzz")
    M = adp.AffineManifold.from_equations(["a + b = c"])
    adp.design_gaussian(M, epsilon=1, delta=1e-6).save(place / "m.json")
    return place


@settings(max_examples=2500)
@given(st.text(max_size=80) | st.from_regex(r"(equations|noise|\[privacy\]|mu) ?= ?.{0,20}"))
def test_problems_of_any_text(folder, text):
    path = folder / "p.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    code, out, _ = run("verify", str(path))
    assert code == 2
    assert out == ""


@settings(max_examples=2500)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_problems_of_any_structure(folder, document):
    path = folder / "p.json"
    path.write_text(json.dumps(document))
    code, out, _ = run("verify", str(path))
    assert code in (0, 1, 2)
    assert code != 2 or out == ""


@settings(max_examples=2500)
@given(st.binary(max_size=120) | st.text(max_size=60).map(lambda t: ("a,b,c\n" + t).encode()))
def test_data_files(folder, content):
    path = folder / "d.csv"
    path.write_bytes(content)
    try:
        table = read_table(path)
    except AffineDPError:
        return
    mechanism = adp.Mechanism.load(folder / "m.json", reverify=False)
    try:
        mechanism.release(table)
    except AffineDPError:
        return
    assert mechanism.manifold.contains(table[["a", "b", "c"]].to_numpy(dtype=float))


@settings(max_examples=2500)
@given(st.dictionaries(st.sampled_from(["format", "version", "manifold", "law", "query"]), VALUES))
def test_mechanisms_of_any_structure(folder, document):
    path = folder / "broken.json"
    whole = json.loads((folder / "m.json").read_text())
    whole.update(document)
    path.write_text(json.dumps(whole))
    try:
        adp.Mechanism.load(path)
    except AffineDPError:
        return
    assert not document or set(document) <= {"format", "version", "law", "query"}
