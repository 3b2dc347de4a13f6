"""Problem files: what they mean, and that everything else is refused in words."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError, EquationError
from affinedp.files import documents
from affinedp.files.problem import Problem, read_problem

CELLS = 'equations = ["cells_in + cells_out = cells_total"]\n'
MU = "[privacy]\nmu = 1.0\n"
MATRIX = "D = [[1, -2, 0]]\n"

Read = Callable[..., Problem]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write a problem (and other files next to it) and read it."""

    def read_text(text: str | bytes, name: str = "problem.toml", **files: str | bytes) -> Problem:
        for other, content in {name: text, **files}.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / other.replace("_csv", ".csv")).write_bytes(data)
        return read_problem(tmp_path / name)

    return read_text


def refused(read: Read, text: str | bytes, *words: str, **files: str | bytes) -> str:
    """The problem is refused with one sentence that holds all these words."""
    with pytest.raises(AffineDPError) as caught:
        read(text, **files)
    message = str(caught.value)
    assert "\n" not in message
    for word in ("problem.", *words):
        assert word in message, message
    return message


# What is read.


def test_the_example_of_the_manual(read: Read) -> None:
    found = read("""
equations = ["cells_in + cells_out = cells_total"]
# names = ["cells_in", "cells_out", "cells_total"]
[privacy]
mu = 1.0
# epsilon = 1.0
[query]
# outputs = ["cells_total"]
[noise]
law = "laplace"
scale = 2.0
""")
    assert found.manifold.equations() == ("cells_in + cells_out - cells_total = 0",)
    assert found.manifold.names == found.output_names == ("cells_in", "cells_out", "cells_total")
    assert found.adjacency.key == adp.CircuitAdjacency(found.manifold, 1.0).key
    assert (found.query, found.covariance, found.epsilon, found.delta) == (None,) * 4
    assert found.law == "laplace"
    np.testing.assert_array_equal(found.noise_matrix, 2 * np.eye(3))
    assert found.guarantee().epsilon() == 1.0


def test_everything_at_once(read: Read) -> None:
    found = read("""
D = [[1, -2, 0.0], [0, 0, 0]]
b = [0, 0]
names = ["a", "b", "c d"]
[privacy]
mu = {a = 1, "c d" = 0, b = 0.5}
free_sets = [["c d", 0], ["b", 2]]
epsilon = 1
delta = 1e-6
[query]
outputs = ["c d", 0]
[noise]
law = "gaussian"
scale = {"c d" = 3, a = 4}
""")
    M = adp.AffineManifold([[1, -2, 0], [0, 0, 0]], names=["a", "b", "c d"])
    assert found.manifold.key == M.key
    assert found.adjacency.key == adp.FreeSetAdjacency(M, [(2, 0), (1, 2)], [1, 0.5, 0]).key
    assert (found.epsilon, found.delta) == (1.0, 1e-6)
    np.testing.assert_array_equal(found.query, [[0, 0, 1], [1, 0, 0]])
    assert found.output_names == ("c d", "a")
    np.testing.assert_array_equal(found.noise_matrix, [[3, 0], [0, 4]])


def test_public_entries(read: Read) -> None:
    text = "D = [[1, -1, 0], [0, 0, 1]]\nb = [0, -5]\n"
    refused(read, text + MU, "fixed by the equations")
    found = read('public_entries = "allow"\n' + text + MU)
    assert found.manifold.public_entries == ("x3",)


def test_json_means_the_same(read: Read) -> None:
    problem = {
        "equations": ["0.1*a = b"],
        "names": ["b", "a"],
        "privacy": {"mu": [1, 2], "adjacency": "circuits"},
        "noise": {"law": "gaussian", "covariance": [[2, 1], [1, 2]]},
    }
    found = read(json.dumps(problem), name="problem.json")
    assert found.manifold.key == adp.AffineManifold.from_equations(["0.1*a = b"], ["b", "a"]).key
    assert found.adjacency.key == adp.CircuitAdjacency(found.manifold, [1, 2]).key
    np.testing.assert_array_equal(found.covariance, [[2, 1], [1, 2]])
    assert found.noise_matrix is None


def test_without_names(read: Read) -> None:
    found = read(MATRIX + "[privacy]\nmu = [1, 2, 3]\n[query]\noutputs = [2, 0]\n")
    assert found.output_names == ("x3", "x1")
    assert read(MATRIX + MU).output_names == ("x1", "x2", "x3")


def test_directions_are_columns_and_need_no_mu(read: Read) -> None:
    found = read(MATRIX + "[privacy]\ndirections = [[2, 1, 0], [0, 0, 1]]\n")
    moves = [[2, 0], [1, 0], [0, 1]]
    assert found.adjacency.key == adp.DirectionAdjacency(found.manifold, moves).key
    refused(read, MATRIX + MU + "directions = [[2, 1, 0]]\n", "already scaled", "mu")
    refused(read, MATRIX + "[privacy]\ndirections = [[2, 2, 0]]\n", "equations")


def test_matrix_query_and_noise(read: Read) -> None:
    noise = '[noise]\nlaw = "laplace"\nmatrix = [[1], [2]]\n'
    found = read(MATRIX + MU + "[query]\nmatrix = [[1, 0, 0], [0, 1, 1]]\n" + noise)
    assert found.output_names == ("y1", "y2")
    np.testing.assert_array_equal(found.query, [[1, 0, 0], [0, 1, 1]])
    np.testing.assert_array_equal(found.noise_matrix, [[1], [2]])


def test_equations_may_be_none_when_names_are_given(read: Read) -> None:
    assert read('equations = []\nnames = ["a", "b"]\n' + MU).manifold.dim == 2
    refused(read, "equations = []\n" + MU, "no entry")


def test_arrays_cannot_be_changed(read: Read) -> None:
    text = MATRIX + MU + "[query]\noutputs = [0]\n[noise]\nlaw = 'laplace'\nscale = 1\n"
    found = read(text)
    for array in (found.manifold.D, found.manifold.b, found.query, found.noise_matrix):
        assert isinstance(array, np.ndarray)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_letters_in_two_encodings_match(read: Read) -> None:
    found = read('equations = ["caf\u00e9 = b"]\n[privacy]\nmu = {b = 1, "cafe\u0301" = 2}\n')
    assert found.adjacency.key == adp.CircuitAdjacency(found.manifold, [2, 1]).key


def test_byte_order_mark(read: Read) -> None:
    assert read(b"\xef\xbb\xbf" + (CELLS + MU).encode()).manifold.n == 3


# CSV files.


def test_csv_next_to_the_problem(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    found = read('D = "D.csv"\n' + MU, D_csv="1, -2 ,0\r\n0,1e0,+.5\r\n\r\n")
    np.testing.assert_array_equal(found.manifold.D, [[1, -2, 0], [0, 1, 0.5]])
    assert found.manifold.names == ("x1", "x2", "x3")


def test_csv_header_gives_names(read: Read) -> None:
    found = read('D = "D.csv"\n' + MU, D_csv='a,"b, old",c\n1,-2,0\n')
    assert found.manifold.names == ("a", "b, old", "c")


def test_csv_header_orders_columns(read: Read) -> None:
    names = 'names = ["2020", "2021", "2019"]\n'  # a header that looks like numbers
    text = 'D = "D.csv"\n' + names + MU + '[query]\nmatrix = "F.csv"\n'
    found = read(text, D_csv="2019,2020,2021\n19,20,21\n", F_csv="2021,2020,2019\n21,20,19\n")
    np.testing.assert_array_equal(found.manifold.D, [[20, 21, 19]])
    np.testing.assert_array_equal(found.query, [[20, 21, 19]])


def test_csv_header_orders_rows_and_columns_of_a_covariance(read: Read) -> None:
    text = 'equations = ["a = b"]\n' + MU + '[noise]\nlaw = "gaussian"\ncovariance = "C.csv"\n'
    found = read(text, C_csv="b,a\n4,1\n1,9\n")
    np.testing.assert_array_equal(found.covariance, [[9, 1], [1, 4]])


def test_csv_directions(read: Read) -> None:
    text = 'equations = ["a = 2 b"]\n[privacy]\ndirections = "V.csv"\n'
    found = read(text, V_csv="b,a\n1,2\n")
    assert found.adjacency.key == adp.DirectionAdjacency(found.manifold, [[2], [1]]).key


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["holds no numbers"]),
        ("a,b,c\n", ["holds no numbers"]),
        ("1,2,3\n4,5\n", ["row 2 has 2 cells", "3"]),
        ("a,b,c\n1,2\n", ["row 2 has 2 cells", "3"]),
        ("1,2,3\n4,,6\n", ["row 2, column 2", "blank"]),
        (",,\n", ["row 1, column 1", "blank"]),
        ("1,2,3\n\n4,5,6\n", ["row 2 is blank"]),
        ("1,nan,3\n", ["row 1, column 2", "'nan'"]),
        ("1,2,3\n1,2,inf\n", ["row 2, column 3", "'inf'"]),
        ("1,2,1e999\n", ["row 1, column 3", "finite"]),
        ("1,2,1e-999\n", ["row 1, column 3", "too small"]),
        ("1,x,3\n", ["row 1, column 2", "'x'"]),
        ("1,1_0,3\n", ["row 1, column 2", "'1_0'"]),
        ("1;2;3\n4;5;6\n", ["row 2, column 1", "'4;5;6'"]),
        ('1,"2,3\n', ["row"]),
        ("a,a,b\n1,2,3\n", ["row 1", "header", "twice"]),
        (",a,b\n1,2,3\n", ["row 1", "header", "blank"]),
        (b"\xff\xfe1,2", ["UTF-8", "byte 0"]),
        ("1," + "9" * 200_000, ["row 1", "field"]),
    ],
)
def test_bad_csv(read: Read, content: str | bytes, words: list[str]) -> None:
    refused(read, 'D = "D.csv"\n' + MU, "D", *words, D_csv=content)


def test_csv_headers_that_do_not_fit(read: Read) -> None:
    head = 'D = [[1, -1]]\nnames = ["a", "b"]\n' + MU
    refused(read, head + '[query]\nmatrix = "F.csv"\n', "header", "'c'", F_csv="a,c\n1,2\n")
    refused(read, head + '[query]\nmatrix = "F.csv"\n', "header", "twice", F_csv="a,a\n1,2\n")
    fewer = 'D = "D.csv"\nnames = ["a", "b"]\n' + MU
    refused(read, fewer, "D: the header does not hold every name", D_csv="a\n1\n")
    noise = '[noise]\nlaw = "laplace"\nmatrix = "N.csv"\n'
    refused(read, head + noise, "header", N_csv="a,b\n1,2\n1,2\n")
    unnamed = "D = [[1, -1]]\n" + MU + '[query]\nmatrix = "F.csv"\n'
    refused(read, unnamed, "header", "names", F_csv="a,b\n1,2\n")


def test_csv_that_is_not_there(read: Read, tmp_path: Path) -> None:
    refused(read, 'D = "none.csv"\n' + MU, "none.csv", "does not exist")
    refused(read, 'D = "D.txt"\n' + MU, ".csv", "'D.txt'")
    refused(read, 'D = ""\n' + MU, ".csv")
    refused(read, 'D = "a\\u0000.csv"\n' + MU, "control character", r"a\x00.csv")
    refused(read, f'D = "{"a" * 5000}.csv"\n' + MU, "cannot be read")
    (tmp_path / "folder.csv").mkdir()
    refused(read, 'D = "folder.csv"\n' + MU, "folder.csv", "not a file")


# What is refused.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["'equations' or 'D'"]),
        (MU, ["'equations' or 'D'"]),
        (CELLS, ["mu is missing"]),
        (CELLS + "[privacy]\n", ["mu is missing"]),
        (CELLS + MATRIX + MU, ["'equations' or 'D'"]),
        (CELLS + "b = [0]\n" + MU, ["'b' goes with 'D'"]),
        ('equations = "a = b"\n' + MU, ["equations", "list of texts"]),
        ("equations = [1]\n" + MU, ["equations", "list of texts"]),
        ("D = 3\n" + MU, ["D must be a list", "3"]),
        ("D = []\n" + MU, ["D must be a list", "empty"]),
        ("D = [[]]\n" + MU, ["D: row 1", "empty"]),
        ("D = [1, 2]\n" + MU, ["D: row 1", "must be a list"]),
        ("D = [[1, 2], [3]]\n" + MU, ["row 2 has 1", "row 1 has 2"]),
        ('D = [[1, "2"]]\n' + MU, ["D: row 1, column 2", "'2'"]),
        ("D = [[1, true]]\n" + MU, ["D: row 1, column 2", "true"]),
        ("D = [[1, nan]]\n" + MU, ["D: row 1, column 2", "finite"]),
        ("D = [[1, 1e999]]\n" + MU, ["D: row 1, column 2", "finite"]),
        ("D = [[1, 1e-999]]\n" + MU, ["too small"]),
        ("D = [[1, 9007199254740993]]\n" + MU, ["more digits"]),
        ("D = [[1, 0x" + "f" * 5000 + "]]\n" + MU, ["column 2", "finite"]),
        ("D = [[1, 2020-01-01]]\n" + MU, ["column 2", "date"]),
        (MATRIX + "b = [0, 1]\n" + MU, ["b: 2 given", "row of D", "1"]),
        (MATRIX + "b = 0\n" + MU, ["b must be a list"]),
        (MATRIX + 'names = ["a"]\n' + MU, ["names: 1 given", "column of D", "3"]),
        (MATRIX + 'names = ["a", "a", "b"]\n' + MU, ["'a'", "twice"]),
        (MATRIX + 'names = ["a", "", "b"]\n' + MU, ["name"]),
        (MATRIX + 'names = "abc"\n' + MU, ["names must be a list"]),
        (MATRIX + "names = []\n" + MU, ["names must be a list"]),
        (MATRIX + "names = [1, 2, 3]\n" + MU, ["names must be a list of texts"]),
        (MATRIX + 'public_entries = "yes"\n' + MU, ["public_entries", "'refuse'", "'yes'"]),
        ("equation = []\n", ["'equation'", "'equations'"]),
        (MATRIX + "mu = 1\n", ["'mu'", "top of the file", "in [privacy]"]),
        ("[privacy]\nmu = 1\n" + CELLS, ["'equations' in [privacy]", "before the first"]),
    ],
)
def test_refusals(read: Read, text: str, words: list[str]) -> None:
    refused(read, text, *words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mu = -1", ["[privacy] mu", "negative"]),
        ("mu = 0", ["[privacy] mu", "zero"]),
        ("mu = inf", ["[privacy] mu", "finite"]),
        ("mu = true", ["[privacy] mu", "true"]),
        ('mu = "1"', ["[privacy] mu", "'1'"]),
        ("mu = [1, 2]", ["mu: 2 given", "entry", "3"]),
        ("mu = [1, 2, -3]", ["negative"]),
        ("mu = [1, 2, false]", ["mu 3", "false"]),
        ("mu = []", ["empty list"]),
        ("mu = {}", ["'cells_in' is missing"]),
        ("mu = {cells_in = 1, cells_out = 1}", ["'cells_total' is missing"]),
        ("mu = {cels_in = 1}", ["'cels_in'", "'cells_in'"]),
        ("mu = 1\nepsilon = -1", ["epsilon", "at least 0"]),
        ("mu = 1\ndelta = 1", ["delta", "less than 1"]),
        ("mu = 1\ndelta = -1e-9", ["delta", "at least 0"]),
        ("mu = 1\nadjacency = 'all'", ["adjacency", "'circuits'", "'all'"]),
        ("mu = 1\nadjacency = 'free_sets'", ["free_sets"]),
        ("mu = 1\nadjacency = 'circuits'\nfree_sets = [[0]]", ["neither"]),
        ("free_sets = [[0]]\ndirections = [[1, 0, 1]]", ["free_sets only"]),
        ("mu = 1\nfree_sets = []", ["free_sets", "empty"]),
        ("mu = 1\nfree_sets = [[0], []]", ["set 2", "empty"]),
        ("mu = 1\nfree_sets = [0]", ["set 1", "list"]),
        ("mu = 1\nfree_sets = [[3]]", ["set 1", "3", "from 0 to 2"]),
        ("mu = 1\nfree_sets = [[-1]]", ["set 1", "-1"]),
        ("mu = 1\nfree_sets = [[true]]", ["set 1", "true"]),
        ("mu = 1\nfree_sets = [[1.0]]", ["set 1", "1.0"]),
        ("mu = 1\nfree_sets = [[0x" + "f" * 5000 + "]]", ["set 1", "huge"]),
        ("mu = 1\nfree_sets = [['cells_in', 0]]", ["set 1", "twice"]),
        ("mu = 1\nfree_sets = [['cells_on']]", ["'cells_on'", "did you mean"]),
        ("directions = [[1, 2]]", ["directions: columns: 2 given", "3"]),
        ("directions = []", ["directions", "empty"]),
    ],
)
def test_refusals_of_privacy(read: Read, line: str, words: list[str]) -> None:
    refused(read, CELLS + "[privacy]\n" + line + "\n", *words)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[query]\noutputs = []", ["outputs", "empty"]),
        ("[query]\noutputs = ['total']", ["outputs", "'total'", "'cells_total'"]),
        ("[query]\noutputs = [0, 0]", ["outputs", "twice"]),
        ("[query]\noutputs = [0]\nmatrix = [[1, 0, 0]]", ["either outputs or matrix"]),
        ("[query]\nmatrix = [[1, 0]]", ["matrix: columns: 2 given", "3"]),
        (
            "[noise]\nlaw = 'laplace'\nscale = 1\nintegers = true",
            ["integers", "leave it out, or scale"],
        ),
        ("[noise]\nintegers = 1", ["integers", "truth"]),
        ("[noise]\nlaw = 'staircase'\nscale = 1", ["'staircase'", "leave it out, or scale"]),
        ("[noise]\nscale = 1", ["law is missing"]),
        ("[noise]\nlaw = 'normal'\nscale = 1", ["law", "'gaussian'", "'normal'"]),
        ("[noise]\nlaw = 'laplace'\nscale = 1\nmatrix = [[1]]", ["exactly one"]),
        ("[noise]\nlaw = 'laplace'\nscale = 0", ["scale", "zero"]),
        ("[noise]\nlaw = 'laplace'\nscale = -1", ["scale", "negative"]),
        ("[noise]\nlaw = 'laplace'\nscale = [1, 2]", ["scale: 2 given", "output", "3"]),
        ("[noise]\nlaw = 'laplace'\nscale = {y1 = 1}", ["scale", "no output is named 'y1'"]),
        ("[noise]\nlaw = 'laplace'\nmatrix = [[1], [2]]", ["matrix: rows: 2 given", "3"]),
        ("[noise]\nlaw = 'laplace'\ncovariance = [[1]]", ["covariance", "gaussian"]),
        ("[noise]\nlaw = 'gaussian'\ncovariance = [[1]]", ["rows: 1 given"]),
        ("[noise]\nlaw = 'gaussian'\ncovariance = [[1],[1],[1]]", ["columns: 1 given"]),
    ],
)
def test_refusals_of_query_and_noise(read: Read, section: str, words: list[str]) -> None:
    refused(read, CELLS + MU + section + "\n", *words)


def test_a_law_without_a_size_is_for_a_design(read: Read) -> None:
    found = read(CELLS + MU + "[noise]\nlaw = 'knorm'\nintegers = true\n")
    assert (found.law, found.integers) == ("knorm", True)
    with pytest.raises(AffineDPError, match="which noise"):
        found.guarantee()


def test_names_without_names(read: Read) -> None:
    refused(read, MATRIX + "[privacy]\nmu = {a = 1}\n", "mu", "needs names")
    refused(read, MATRIX + MU + "[query]\noutputs = ['a']\n", "no entry is named 'a'")


def test_a_bad_equation_keeps_its_caret(read: Read) -> None:
    with pytest.raises(EquationError) as caught:
        read('equations = ["a = b", "a = b = c"]\n' + MU)
    assert (caught.value.text, caught.value.position) == ("a = b = c", 6)
    with pytest.raises(EquationError, match="not among"):
        read('equations = ["a = b"]\nnames = ["a"]\n' + MU)


def test_syntax_errors_name_the_line(read: Read) -> None:
    refused(read, CELLS + "[privacy\n", "TOML", "line 2")
    refused(read, CELLS + CELLS, "TOML", "line 2")
    message = refused(read, "x = " + "[" * 20_000, "nested")
    assert len(message) < 300
    for text, words in [
        ('{"equations": [}', ["JSON", "line 1"]),
        ('{"mu": 1, "mu": 2}', ["JSON", "'mu'", "twice"]),
        ("[1]", ["object"]),
        ("[" * 100_000, ["nested"]),
        ('{"D": [[' + "9" * 5000 + "]]}", ["JSON"]),
        ('{"D": [[1, NaN]], "privacy": {"mu": 1}}', ["column 2", "finite"]),
        ('{"D": [[1, null]], "privacy": {"mu": 1}}', ["column 2", "NoneType"]),
    ]:
        with pytest.raises(AffineDPError) as caught:
            read(text, name="problem.json")
        assert all(word in str(caught.value) for word in words), caught.value


def test_files_that_are_no_problem(tmp_path: Path) -> None:
    def why(path: Path | str) -> str:
        with pytest.raises(AffineDPError) as caught:
            read_problem(path)
        return str(caught.value)

    assert "does not exist" in why(tmp_path / "none.toml")
    assert "does not exist" in why("a\0.toml")
    assert "cannot be read" in why("a" * 5000 + ".toml")
    assert ".toml or .json" in why(tmp_path / "problem.yaml")
    assert ".toml or .json" in why("")
    (tmp_path / "folder.toml").mkdir()
    assert "not a file" in why(tmp_path / "folder.toml")
    (tmp_path / "bytes.toml").write_bytes(b"x = '\xff'")
    assert "UTF-8 text (byte 5)" in why(tmp_path / "bytes.toml")
    os.mkfifo(tmp_path / "pipe.toml")  # reading it would wait for ever
    assert "not a file" in why(tmp_path / "pipe.toml")


def test_sizes_are_limited(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_NUMBERS", 8)
    noise = '[noise]\nlaw = "laplace"\nscale = 1\n'
    refused(read, CELLS + MU + noise, "3×3", "too large")
    refused(read, CELLS + MU + "[query]\noutputs = [0, 1, 2]\n", "3×3", "too large")
    monkeypatch.setitem(documents.MOST_BYTES, ".toml", 10)
    refused(read, CELLS + MU, "larger")


# Anything at all is read or refused.

quick = settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def read_or_refuse(path: Path) -> bool:
    """Whether it is read; then everything in it must fit together."""
    try:
        found = read_problem(path)
    except AffineDPError:
        return False
    outputs = found.manifold.n if found.query is None else len(found.query)
    assert len(found.output_names) == outputs
    assert found.adjacency.manifold is found.manifold
    for array in (found.manifold.D, found.manifold.b, found.query, found.noise_matrix):
        assert array is None or np.isfinite(array).all()
    assert found.noise_matrix is None or len(found.noise_matrix) == outputs
    assert found.covariance is None or found.covariance.shape == (outputs, outputs)
    assert found.law or (found.noise_matrix is None and found.covariance is None)
    return True


@pytest.mark.slow
@quick
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "ignore")))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    for name in ("any.toml", "any.json"):
        (tmp_path / name).write_bytes(data)
        read_or_refuse(tmp_path / name)


@pytest.mark.slow
@quick
@given(st.text(alphabet='01.,-+eEnai"\r\n ;x', max_size=60) | st.text(max_size=40))
def test_any_csv(tmp_path: Path, content: str) -> None:
    (tmp_path / "D.csv").write_bytes(content.encode("utf-8", "ignore"))
    (tmp_path / "any.toml").write_text('D = "D.csv"\n' + MU)
    read_or_refuse(tmp_path / "any.toml")


small = st.one_of(
    st.integers(-1, 3),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from(["a", "b", "D.csv", "laplace", "gaussian", "circuits", "allow", "free_sets"]),
    st.integers(0, 10**400),
    st.text(max_size=3),
)
wild = st.recursive(
    small,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=8,
)
good_numbers = st.floats(0.1, 10)
pairs = st.lists(good_numbers, min_size=2, max_size=2)
sizes = good_numbers | pairs | st.fixed_dictionaries({"a": good_numbers, "b": good_numbers})
sets = st.lists(st.sampled_from(["a", "b", 0, 1]), min_size=1, max_size=1)


def tables(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(values)


entries = (
    tables(equations=st.just(["a = 2 b"]))
    | tables(equations=st.just(["a = 2 b", "0 = 0"]), names=st.just(["b", "a"]))
    | tables(D=st.just([[1.0, -2.0]]), names=st.just(["a", "b"]))
    | tables(D=st.just("D.csv"), b=pairs.map(lambda pair: pair[:1]))
)
sections = {
    "privacy": tables(mu=sizes, epsilon=good_numbers, delta=st.floats(0, 0.9))
    | tables(mu=sizes, free_sets=st.lists(sets, min_size=1, max_size=2))
    | tables(directions=st.just("V.csv")),
    "query": st.just({})
    | tables(outputs=st.permutations(["a", "b"]))
    | tables(matrix=st.lists(pairs, min_size=2, max_size=2)),
    "noise": st.just({})
    | tables(law=st.just("laplace"), scale=good_numbers | pairs)
    | tables(law=st.sampled_from(["gaussian", "laplace"]), matrix=st.tuples(pairs, pairs).map(list))
    | tables(law=st.just("gaussian"), covariance=st.tuples(pairs, pairs).map(list)),
}
good_documents = st.builds(dict.__or__, entries, tables(**sections))


@pytest.mark.slow
@quick
@given(good_documents, st.data())
def test_good_structures_and_damaged_ones(
    tmp_path: Path, document: dict[str, Any], data: st.DataObject
) -> None:
    (tmp_path / "D.csv").write_text("b,a\n-2,1\n")
    (tmp_path / "V.csv").write_text("a,b\n2,1\n")
    paths = [tmp_path / "any.json", tmp_path / "any.toml"]
    paths[0].write_text(json.dumps(document))
    paths[1].write_text(toml(document))
    for path in paths:
        assert read_or_refuse(path)
    document = copy.deepcopy(document)
    where = data.draw(st.sampled_from([document, *(document[name] for name in sections)]))
    key = data.draw(st.sampled_from([*where, "mu"]))
    where[key] = data.draw(wild)
    paths[0].write_text(json.dumps(document))
    paths[1].write_text(toml(document), encoding="utf-8", errors="replace")
    for path in paths:
        read_or_refuse(path)


def toml(document: dict[str, Any]) -> str:
    """The document on one line per key; sections as inline tables."""
    return "".join(f"{json.dumps(str(key))} = {inline(value)}\n" for key, value in document.items())


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if value is None:
        return date(2020, 1, 1).isoformat()
    return json.dumps(value)


@pytest.mark.slow
@quick
@given(st.data())
def test_a_damaged_problem(tmp_path: Path, data: st.DataObject) -> None:
    text = CELLS + MU + 'epsilon = 1.0\n[query]\noutputs = ["cells_in"]\n'
    text += '[noise]\nlaw = "laplace"\nscale = 2.0\n'
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    damage = data.draw(st.text(alphabet='[]{}=",.\n 01-truenaif', max_size=4))
    (tmp_path / "any.toml").write_text(text[:start] + damage + text[end:])
    read_or_refuse(tmp_path / "any.toml")
