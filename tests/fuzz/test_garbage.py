"""Garbage in: a clear AffineDPError or exit code 2, never a traceback, a hang or a number.

Through the readers of problems, mechanisms and data files: hundreds of cases in ``make test``,
hundreds of thousands in ``make fuzz``.
"""

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import affinedp as adp
from affinedp.cli import app as cli
from affinedp.cli import exits
from affinedp.errors import AffineDPError
from affinedp.files.data import read_table
from fuzz.effort import examples

COMMANDS = typer.main.get_command(cli.app)

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
EXTREMES = [0.0, 1.0, -1.0, 1e-100, 1e-30, 1e-8, 3e7, 1e30, 1e100, -1e100]


pytestmark = pytest.mark.slow


def run(*arguments):
    """The command line in this process: (exit code, stdout, stderr)."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        exits.run(lambda: COMMANDS(list(arguments)))
    return stop.value.code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzz")
    M = adp.AffineManifold.from_equations(["a + b = c"])
    adp.design_gaussian(M, epsilon=1, delta=1e-6).save(place / "m.json")
    return place


PIECES = st.sampled_from(
    ["equations", "noise", "[privacy]", "mu", "D", "=", " = ", '"', "[", "]", "{", "}", ",", "\n",
     "a + b = c", '["a+b=c"]', "1.0", "1e999", "nan", "#", "'", '"""', "\\", "\\u001b", "law", "."]
)  # fmt: skip


@examples(1_500)
@given(st.text(max_size=80) | st.lists(PIECES, max_size=12).map("".join))
def test_problems_of_any_text(folder, text):
    path = folder / "p.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    code, out, _ = run("verify", str(path))
    assert code == exits.BAD_INPUT
    assert out == ""


@examples(1_500)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_problems_of_any_structure(folder, document):
    path = folder / "p.json"
    path.write_text(json.dumps(document))
    code, out, _ = run("verify", str(path))
    assert code in (exits.KEPT, exits.NOT_KEPT, exits.BAD_INPUT)
    assert code != exits.BAD_INPUT or out == ""


@st.composite
def extreme_problems(draw):
    """Problems that are well formed, with numbers from the ends of the range."""
    extreme = st.sampled_from(EXTREMES)
    n = draw(st.integers(1, 4))

    def matrix(rows):
        return draw(st.lists(st.lists(extreme, min_size=n, max_size=n), min_size=1, max_size=rows))

    privacy = draw(
        st.fixed_dictionaries({"mu": extreme.map(abs) | st.lists(extreme, min_size=n, max_size=n)})
    )
    if draw(st.booleans()):
        privacy = {"directions": matrix(2)}
    law = draw(st.sampled_from(["laplace", "gaussian"]))
    size = draw(st.sampled_from(["scale", "matrix", "covariance"]))
    noise = draw(extreme) if size == "scale" else matrix(n)
    problem = {"D": matrix(2), "privacy": privacy, "noise": {"law": law, size: noise}}
    if draw(st.booleans()):
        problem["query"] = {"matrix": matrix(2)}
    return problem


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that leave the range
@examples(600)
@given(extreme_problems(), st.sampled_from(EXTREMES), st.sampled_from([0.0, 1e-300, 1e-6, 0.999]))
def test_problems_of_extreme_numbers(folder, problem, epsilon, delta):
    """Every answer is a promise, a refusal or a clear no: nothing unexpected."""
    path = folder / "p.json"
    path.write_text(json.dumps(problem))
    asked = ("--epsilon", str(abs(epsilon)), "--delta", str(delta))
    for words in (("verify", str(path), *asked), ("verify", str(path), "--json", *asked)):
        code, _, err = run(*words)
        assert code in (exits.KEPT, exits.NOT_KEPT, exits.BAD_INPUT), err


@examples(1_000)
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


@examples(1_500)
@given(
    st.dictionaries(st.sampled_from(["format", "stated", "saved"]), VALUES),
    st.dictionaries(st.sampled_from(["adjacency", "strategy", "noise", "proof", "design"]), VALUES),
)
def test_mechanisms_of_any_structure(folder, document, parts):
    path = folder / "broken.json"
    whole = json.loads((folder / "m.json").read_text())
    whole["saved"].update(parts)
    whole.update(document)
    path.write_text(json.dumps(whole))
    try:
        adp.Mechanism.load(path)
    except AffineDPError:
        return
    assert not document
    assert parts in ({}, {"proof": None})
