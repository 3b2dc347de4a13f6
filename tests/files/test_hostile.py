"""Hostile files: a refusal in words, bounded in memory and work, whatever they claim.

Work is bounded by limits that are checked before anything is allocated or computed; memory is
measured, time is not.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tracemalloc
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.files import data, documents
from affinedp.files.documents import read_document
from affinedp.files.problem import read_problem
from affinedp.files.values import visible
from affinedp.parts import StorageError, restored
from affinedp.privacy.design import LeastProof
from affinedp.strategies.dense import Dense

A_FEW = 20_000_000  # bytes that reading a small file may take

HUGE = (
    st.integers(0, 12).map(lambda digits: 10**digits) | st.integers(0, 2**70) | st.integers(-2, 9)
)
CONTROLS = ["\x1b[31m", "\x00", "\x07", "\x9b2J", "\x7f", "\u202e", "\u2066", "\u2028", "\x85"]


def record(shape, is_sparse, values):
    raw = np.asarray(values, dtype="<f8").tobytes()
    inside = {
        "data": base64.b64encode(raw).decode(),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    kind = {"sparse": True} if is_sparse else {"type": "<f8"}
    return {"array": inside, "shape": shape, **kind}


def changed(document, **fields):
    """A document with other arrays in its strategy."""
    new = json.loads(json.dumps(document))
    new["saved"]["strategy"].update(fields)
    return new


def peak_of(action):
    """Bytes that an action had allocated at once, most of the time none; it may be refused."""
    tracemalloc.start()
    try:
        action()
    except AffineDPError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


ARRAYS = st.builds(
    record,
    st.lists(HUGE, max_size=3),
    st.booleans(),
    st.lists(st.floats(-9, 9) | st.sampled_from([1e300, -1.0, 0.5, 2.0**63]), max_size=9),
)


@given(ARRAYS)
def test_an_array_is_never_much_larger_than_its_record(array):
    assert peak_of(lambda: restored({"kind": "least proof", "moves": array}, LeastProof)) < A_FEW


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.json"
    M = adp.AffineManifold.from_equations(["a + b = total"])
    adp.design_gaussian(M, epsilon=1, delta=1e-6).save(path)
    adp.Mechanism.load(path)  # what is loaded once is not counted
    return path


PLACES = [("strategy", "query"), ("strategy", "basis"), ("strategy", "root"), ("adjacency", "mu")]


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.sampled_from(PLACES), min_size=1, max_size=3), arrays=st.data())
def test_a_mechanism_is_never_much_larger_than_its_file(saved, tmp_path, places, arrays):
    document = json.loads(saved.read_text())
    for part, key in places:
        document["saved"][part][key] = arrays.draw(ARRAYS)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert peak_of(lambda: adp.Mechanism.load(path)) < A_FEW


def test_empty_arrays_that_claim_billions(saved, tmp_path):
    document = json.loads(saved.read_text())
    strategy = document["saved"]["strategy"]
    strategy["basis"] = strategy["root"] = record([200_000_000] * 2, True, [])
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    with pytest.raises(StorageError, match="too large for 0 numbers"):
        adp.Mechanism.load(path)
    assert peak_of(lambda: adp.Mechanism.load(path)) < A_FEW
    strategy["basis"], strategy["root"] = record([3, 0], False, []), record([0, 10**9], False, [])
    path.write_text(json.dumps(document))
    assert peak_of(lambda: adp.Mechanism.load(path)) < A_FEW


def test_thin_factors_of_a_huge_matrix():
    side = 20_000
    manifold = adp.AffineManifold(np.zeros((0, side)))
    column, row = np.ones((side, 1)), np.ones((1, side))
    query = sparse.eye_array(side, format="csr")
    with pytest.raises(AffineDPError, match="20,000 × 20,000"):
        Dense(manifold, query, column, manifold.names, row).noise  # noqa: B018
    thin = Dense(manifold, query, sparse.csr_array(column), manifold.names, sparse.csr_array(row))
    with pytest.raises(AffineDPError, match="20,000 × 20,000"):
        thin.noise  # noqa: B018
    assert Dense(manifold, query, query, manifold.names, query).noise.nnz == side


@pytest.mark.parametrize(
    "value", ["1e30000000", "1e-30000000", "9" * 5000, "1/0", None, 1, [1], "x"]
)
def test_coefficients_of_a_mechanism(saved, tmp_path, value):
    document = json.loads(saved.read_text())
    document["saved"]["adjacency"]["manifold"]["numerators"][0] = {"fraction": [value, "1"]}
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(StorageError, match="exact number"):
        adp.Mechanism.load(tmp_path / "m.json")


@pytest.mark.parametrize("form", [-3, 0, True, 1.0, "1", None, [1], "affinedp mechanism 99"])
def test_formats_that_never_were(saved, tmp_path, form):
    document = json.loads(saved.read_text())
    document["format"] = form
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(StorageError, match="not a file of the kind"):
        adp.Mechanism.load(tmp_path / "m.json")


def test_keys_that_appear_twice(saved, tmp_path):
    text = saved.read_text()
    for key in ('"format": "affinedp mechanism 2"', '"kind": "gaussian"', '"type": "<f8"'):
        assert key in text
        (tmp_path / "m.json").write_text(text.replace(key, f"{key}, {key}", 1))
        with pytest.raises(StorageError, match="twice"):
            adp.Mechanism.load(tmp_path / "m.json")


def test_too_many_values_are_not_read(saved, tmp_path, monkeypatch):
    def never(*arguments, **options):
        raise AssertionError("it was read")

    monkeypatch.setattr("json.loads", never)
    monkeypatch.setattr("tomllib.loads", never)
    many = "[" + "[]," * 6_000_000 + "[]]"
    (tmp_path / "m.json").write_text(many)
    with pytest.raises(StorageError, match="5,000,000 values"):
        adp.Mechanism.load(tmp_path / "m.json")
    with pytest.raises(AffineDPError, match="5,000,000 values"):
        read_problem(tmp_path / "m.json")
    (tmp_path / "p.toml").write_text("D = [" + "1," * 400_000 + "]")
    with pytest.raises(AffineDPError, match="300,000 values: put large matrices into a CSV"):
        read_problem(tmp_path / "p.toml")


@pytest.mark.parametrize("part", ["a", '"a"', "'='", '"\\""', "1", '"a.b"'])
@pytest.mark.parametrize(
    "around", ["{} = 1", "[{}]", "x = {{{} = 1}}", '""."" = """\\""""\n{} = 1']
)
def test_keys_of_many_parts_are_not_read(tmp_path, monkeypatch, part, around):
    """Time and memory of Python's reader grow with the square of the parts."""
    file = tmp_path / "p.toml"
    file.write_text(around.format(" . ".join([part] * 15)))
    assert read_document(file)
    file.write_text(around.format(".".join([part] * 30)))
    monkeypatch.setattr("tomllib.loads", None)
    with pytest.raises(AffineDPError, match="parts"):
        read_document(file)


def test_dots_that_are_no_keys(tmp_path):
    file = tmp_path / "p.toml"
    dots = "a." * 50
    file.write_text(
        f"x = [{'1.5, ' * 50}]\ny = \"{dots}\"\nz = '{dots}'  # {dots}\n"
        f'm = """{dots} \\" {dots}"""\nn = \'\'\'{dots}\'\'\'\n'
    )
    assert read_document(file)["y"] == dots


def test_equations_are_bounded(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps({"equations": ["a" + "+a" * 300_000 + "=b"] * 4}))
    with pytest.raises(AffineDPError, match="2,000,000 characters"):
        read_problem(tmp_path / "p.json")


def test_matrices_in_csv(tmp_path, monkeypatch):
    problem = tmp_path / "p.toml"
    problem.write_text('D = "D.csv"\n[privacy]\nmu = 1\n')
    table = tmp_path / "D.csv"
    monkeypatch.setattr(documents, "MOST_CELLS", 100)
    table.write_text("1,2,3\n" * 30)
    np.testing.assert_array_equal(read_problem(problem).manifold.D, [[1, 2, 3]])
    for odd in ("x,2,3", "1,2", "", "1,2,1e-400", "1,2,1e999", "1,2,nan", f"1,2,{'9' * 400}"):
        table.write_text("1,2,3\n" * 20 + f"{odd}\n" + "1,2,3\n" * 5)
        with pytest.raises(AffineDPError, match="row 21"):
            read_problem(problem)
    table.write_text("1,2,3\n" * 20 + '1, 2,"3"\n')
    np.testing.assert_array_equal(read_problem(problem).manifold.D, [[1, 2, 3]])
    table.write_text("1,2,3\n" * 50)
    with pytest.raises(AffineDPError, match="more than 100 cells"):
        read_problem(problem)


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["0", "-0.0", "1.", ".5", "+3", "1E5", "1e-5", "007", "1e-324", "0e-999", " 1 "]
    ),
)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cells_are_the_numbers_that_python_reads(tmp_path, rows):
    """Plain rows are read at once, others cell by cell: both as the decimals that stand there."""
    table = tmp_path / "D.csv"
    table.write_text("\n".join(",".join(row) for row in rows))
    wanted = np.array([[float(cell) for cell in row] for row in rows])
    exact = [[Decimal(cell.strip()) for cell in row] for row in rows]
    vanish = any(x != 0 and float(x) == 0 for row in exact for x in row)
    if vanish:
        with pytest.raises(AffineDPError, match="too small"):
            documents.matrix("D.csv", "D", tmp_path, None)
        return
    found = documents.matrix("D.csv", "D", tmp_path, None).numbers
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


# Characters that a terminal would act on.


@pytest.mark.parametrize("control", CONTROLS)
def test_control_characters_in_problems(tmp_path, control):
    name = json.dumps(f"`a{control}` + b = c")
    for file, text in [
        ("p.json", f'{{"equations": [{name}], "privacy": {{"mu": 1}}}}'),
        ("p.toml", f"equations = [{name}]\n[privacy]\nmu = 1\n"),
        ("n.json", json.dumps({"D": [[1]], "names": [f"a{control}"], "privacy": {"mu": 1}})),
        ("k.json", json.dumps({f"a{control}": 1})),
    ]:
        (tmp_path / file).write_text(text)
        with pytest.raises(AffineDPError, match="control character") as refusal:
            read_problem(tmp_path / file)
        assert visible(str(refusal.value)) == str(refusal.value)
        assert visible(control[0]) in str(refusal.value)


@pytest.mark.parametrize("control", [*CONTROLS, "\n", "\t"])
def test_control_characters_in_names(saved, tmp_path, control):
    document = json.loads(saved.read_text())
    saved_parts = document["saved"]
    for place in (saved_parts["strategy"], saved_parts["adjacency"]["manifold"]):
        key = "names"
        before, place[key] = place[key], [f"a{control}", "b", "total"]
        (tmp_path / "m.json").write_text(json.dumps(document))
        with pytest.raises(StorageError, match="control character"):
            adp.Mechanism.load(tmp_path / "m.json")
        place[key] = before
    (tmp_path / "d.csv").write_text(f'"a{control}",b\n1,2\n', encoding="utf-8", newline="")
    pytest.importorskip("pandas")
    with pytest.raises(AffineDPError, match="control character|zero byte"):
        data.read_table(tmp_path / "d.csv")
    M = adp.AffineManifold([[1, -1]], names=[f"a{control}", "b"])
    with pytest.raises(AffineDPError, match="control character"):
        adp.iid_noise(M, law="laplace", epsilon=1).save(tmp_path / "n.json")
    assert not (tmp_path / "n.json").exists()


def test_letters_of_all_kinds_are_names(tmp_path):
    names = ["Größe", "人口", "می\u200cخواهم", "a\u00a0b", "👩‍👩‍👧", "ε̂"]
    document = {"D": [[1] * len(names)], "names": names, "privacy": {"mu": 1}}
    (tmp_path / "p.json").write_text(json.dumps(document), encoding="utf-8")
    assert read_problem(tmp_path / "p.json").manifold.names == tuple(names)


@given(st.text())
def test_what_is_visible_has_nothing_that_acts(text):
    shown = visible(text)
    assert visible(shown) == shown
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)


# Data.


def test_data_files_are_measured_before_they_are_read(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(data, "MOST_CELLS", 1000)
    small = pandas.DataFrame({"a": np.zeros(100), "b": np.ones(100)})
    for kind in ("csv", "parquet"):
        data.write_table(small, tmp_path / f"small.{kind}")
        pandas.testing.assert_frame_equal(data.read_table(tmp_path / f"small.{kind}"), small)
    large, wide = pandas.DataFrame({"a": np.zeros(10_000)}), pandas.DataFrame(np.zeros((2, 60)))
    wide.columns = [f"c{place}" for place in range(60)]
    for kind in ("csv", "parquet"):
        data.write_table(large, tmp_path / f"large.{kind}")
        data.write_table(wide, tmp_path / f"wide.{kind}")

    def never(*arguments, **options):
        raise AssertionError("it was read")

    monkeypatch.setattr(pandas, "read_csv", never)
    monkeypatch.setattr(pandas, "read_parquet", never)
    for kind in ("csv", "parquet"):
        with pytest.raises(AffineDPError, match="more than 1,000 cells"):
            data.read_table(tmp_path / f"large.{kind}")
        with pytest.raises(AffineDPError, match="more than 50 columns"):
            data.read_table(tmp_path / f"wide.{kind}", most_columns=50)
    monkeypatch.setattr(data, "MOST_BYTES", 200)
    with pytest.raises(AffineDPError, match="too large"):
        data.read_table(tmp_path / "large.parquet")


def test_rows_longer_than_the_header(tmp_path):
    """What is too much must not become a label, and the others move by one column."""
    pytest.importorskip("pandas")
    (tmp_path / "d.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(AffineDPError, match="does not match"):
        data.read_table(tmp_path / "d.csv")


# All of it again where memory is really limited.

LIMITED = """
import resource, sys, pathlib
import numpy, scipy.sparse, pandas, pyarrow.parquet
import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.files.problem import read_problem
from affinedp.files.data import read_table
adp.Mechanism.load(sys.argv[1])
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
for path in map(pathlib.Path, sys.argv[3:]):
    for read in (adp.Mechanism.load, read_problem, read_table):
        try:
            read(path)
        except AffineDPError as error:
            assert "memory" not in str(error), error
print("fine")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory the way of Linux")
def test_hostile_files_in_little_memory(saved, tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    document = json.loads(saved.read_text())
    empty = record([200_000_000] * 2, True, [])
    files = {
        "sparse.json": json.dumps(changed(document, basis=empty, root=empty, query=empty)),
        "thin.json": json.dumps(
            changed(
                document, basis=record([3, 1], False, [1.0] * 3), root=record([1, 10**9], True, [])
            )
        ),
        "lists.json": "[" + "[]," * 6_000_000 + "[]]",
        "deep.json": "[" * 1_000_000,
        "dotted.toml": "a" + ".a" * 500_000 + " = 1",
        "deep.toml": "x = " + "[" * 200_000,
        "wide.csv": "a," * 5_000_000,
        "long.csv": "a\n" + "0\n" * 21_000_000,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    parquet.write_table(table({"a": np.zeros(50_000_000)}), tmp_path / "zeros.parquet")
    paths = sorted(map(str, tmp_path.iterdir()))
    words = [sys.executable, "-c", LIMITED, str(saved), str(300_000_000), *paths]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.strip() == "fine", done.stderr
