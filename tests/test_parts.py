"""Parts come back from their records, and nothing in a record is trusted."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse as sparse

import affinedp
from affinedp.errors import AffineDPError
from affinedp.parts import Part, StorageError, digest, frozen, locked, restored


@dataclass(frozen=True, eq=False)
class Leaf(Part):
    kind = "tests.leaf"
    scale: float
    table: np.ndarray
    links: Any
    share: Fraction
    count: int = 1
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Branch(Part):
    kind = "tests.branch"
    leaf: Leaf


def leaf(**others: Any) -> Leaf:
    given: dict[str, Any] = {
        "scale": 0.1,
        "table": frozen([[1.0, -0.0], [2.5, 3.0]]),
        "links": frozen(sparse.csr_array(np.eye(3))),
        "share": Fraction(1, 3),
        "names": ("a", "b"),
    }
    return Leaf(**given | others)


def through_json(part: Part) -> Any:
    return restored(json.loads(json.dumps(part.record(), allow_nan=False)), type(part))


def test_a_part_comes_back() -> None:
    part = Branch(leaf(count=2**80))
    back = through_json(part)
    assert back.key == part.key
    assert back.leaf.share == Fraction(1, 3)
    assert back.leaf.count == 2**80
    assert np.array_equal(back.leaf.table, part.leaf.table)
    assert (back.leaf.links != part.leaf.links).nnz == 0


def test_a_type_with_a_name_is_what_it_means() -> None:
    typing_extensions = pytest.importorskip("typing_extensions")
    number = TypeVar("number")
    array = np.ndarray[Any, np.dtype[number]]
    named = typing_extensions.TypeAliasType("named", array, type_params=(number,))  # as NumPy 2.5's

    @dataclass(frozen=True, eq=False)
    class Row(Part):
        kind = "tests.row"
        table: Any

    Row.__annotations__["table"] = named[np.float64]
    part = Row(frozen([1.0, 2.0]))
    assert np.array_equal(through_json(part).table, part.table)
    with pytest.raises(StorageError, match="cannot be a str"):
        restored({**part.record(), "table": "1"}, Row)


@pytest.mark.parametrize(
    "others",
    [
        {"scale": 0.1 + 1e-17 * 2},
        {"table": frozen([[1.0, 0.0, 2.5, 3.0]])},
        {"share": Fraction(1, 4)},
        {"names": ("ab",)},
        {"count": 2},
    ],
)
def test_other_fields_have_another_key(others: dict[str, Any]) -> None:
    same = others == {"scale": 0.1}
    assert (leaf(**others).key == leaf().key) == same


def test_a_field_at_its_default_is_left_out() -> None:
    assert "count" not in leaf().record()
    assert leaf().key == leaf(count=1).key


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tests.nothing"},
        {"kind": 3},
        {"scale": "0.1"},
        {"scale": True},
        {"scale": 10**30},
        {"count": 1.5},
        {"names": ["a", 3]},
        {"unheard": 1},
        {"share": {"fraction": ["1e30000000", "1"]}},
        {"share": {"fraction": ["1", "0"]}},
        {"share": {"fraction": ["9" * 5000, "1"]}},
        {"share": "1/3"},
        {"table": [[1, 2]]},
        {"leaf": 1},
    ],
)
def test_a_record_is_not_trusted(change: dict[str, Any]) -> None:
    with pytest.raises(StorageError):
        restored({**leaf().record(), **change}, Leaf)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3, 3]},
        {"shape": [-2, -2]},
        {"shape": "22"},
        {"type": "|O"},
        {"type": "<f4"},
        {"array": {"data": "AAAA", "sha256": "0"}},
        {"array": {"data": "*", "sha256": "0"}},
        {"array": 3},
    ],
)
def test_an_array_is_not_trusted(change: dict[str, Any]) -> None:
    record = leaf().record()
    record["table"] = {**record["table"], **change}
    with pytest.raises(StorageError):
        restored(record, Leaf)


def test_a_huge_sparse_shape_is_refused() -> None:
    record = leaf().record()
    record["links"]["shape"] = [10**12, 10**12]
    with pytest.raises(StorageError, match="too large"):
        restored(record, Leaf)


def test_numbers_that_are_not_finite_are_not_saved_or_read() -> None:
    with pytest.raises(StorageError):
        leaf(scale=float("nan")).record()
    record = leaf(table=np.array([[np.inf]])).record()
    with pytest.raises(StorageError, match="finite"):
        restored(record, Leaf)


def test_deep_nesting_is_refused() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(StorageError, match="nested"):
        restored({**leaf().record(), "names": deep}, Leaf)


def test_two_classes_cannot_share_a_kind() -> None:
    with pytest.raises(AffineDPError, match="two classes"):

        class Other(Part):
            kind = "tests.leaf"


def test_a_subclass_needs_a_kind_of_its_own() -> None:
    class Louder(Leaf):
        pass

    with pytest.raises(AffineDPError, match="kind of its own"):
        Louder(1.0, np.eye(1), None, Fraction(1)).record()
    assert Louder(1.0, np.eye(1), None, Fraction(1)).key != leaf().key


def test_an_array_of_the_caller_stays_the_callers() -> None:
    given = np.eye(2)
    kept = frozen(given)
    given[0, 0] = 7
    assert kept[0, 0] == 1
    for own in (kept, frozen(sparse.csr_array(np.eye(2))).data):
        with pytest.raises(ValueError, match="read-only"):
            own[0] = 5


def test_hashes_keep_neighbouring_values_apart() -> None:
    assert digest("a", "bc") != digest("ab", "c")
    assert digest(1) != digest("1")
    assert digest(1) != digest(True)
    assert digest(0.0) == digest(-0.0)
    assert digest(np.zeros((2, 3))) != digest(np.zeros((3, 2)))


@dataclass(frozen=True, eq=False)
class Twins(Part):
    kind = "tests.twins"
    first: Leaf
    second: Leaf
    third: Branch


def test_a_part_that_occurs_again_is_written_once() -> None:
    shared = leaf()
    record = Twins(shared, shared, Branch(shared)).record()
    assert record["second"] == record["third"]["leaf"] == {"again": 0}
    back = restored(json.loads(json.dumps(record)), Twins)
    assert back.first is back.second is back.third.leaf
    for place in (1, -1, True, "0"):
        with pytest.raises(StorageError):
            restored({**record, "second": {"again": place}}, Twins)


def test_a_new_process_knows_every_kind() -> None:
    """Whoever only loads a file has imported nothing else."""
    source = Path(affinedp.__file__).parent
    written = [re.findall(r'^    kind = "([^"]+)"$', one.read_text("utf-8"), re.M)
               for one in source.rglob("*.py")]  # fmt: skip
    kinds = sorted(set().union(*written))
    assert len(kinds) > 40
    asked = (
        "import affinedp.mechanism; from affinedp.parts import kind_named; "
        f"print([one for one in {kinds!r} if kind_named(one) is None])"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_locked_sparse_matrix_is_sorted_first():
    """SciPy sorts indices in place where it needs them sorted, which a locked matrix refuses."""
    numbers, columns, starts = np.array([1.0, 2.0, 3.0]), np.array([2, 0, 1]), np.array([0, 2, 3])
    given = sparse.csr_array((numbers, columns, starts), shape=(2, 3))
    found = locked(given, own=False)
    assert abs(found).toarray().tolist() == [[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]]
    assert found.has_canonical_format
    assert columns.tolist() == [2, 0, 1]
