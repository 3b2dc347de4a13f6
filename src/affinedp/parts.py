"""Parts of a mechanism: plain frozen values that are saved, hashed and compared by their fields.

A law, neighbours, a strategy or a domain is one frozen dataclass with a ``kind``, its name on disk.
Its record, its key and its way back from a file follow from its fields, so that a class in
somebody's own file is saved and loaded like those of the library.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
import importlib
import math
import types
import typing
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from affinedp.arrays import FloatArray, Matrix, is_sparse
from affinedp.errors import AffineDPError

# Of an exact number in a file: nothing that could fill the memory.
MOST_BITS = 4096
# A side of an array may be this much longer than what the file holds for it.
MOST_EMPTY = 10_000
# What a compressed sparse matrix is made of, in the order of its constructor.
NUMBERS = ("data", "indices", "indptr")
# How deep parts and lists may be nested.
MOST_NESTED = 40
# Stored types of arrays, by NumPy's letter for the kind of number.
STORED = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "|b1"}

# Where the parts are defined that most programs do not need: imported when a file names them.
HOMES = {
    "directions": "affinedp.neighbours.given_directions",
    "joint": "affinedp.neighbours.joint",
    "unlisted circuits": "affinedp.privacy.without_list",
    "filter": "affinedp.strategies.filter",
    "inputs": "affinedp.neighbours.inputs",
    "gaussian": "affinedp.laws.gaussian",
    "laplace": "affinedp.laws.laplace",
    "geometric": "affinedp.laws.laplace",
    "knorm": "affinedp.laws.knorm",
    "staircase": "affinedp.laws.staircase",
    "productnorm": "affinedp.laws.product_norm",
    "projected": "affinedp.strategies.projected",
    "whole entries": "affinedp.strategies.whole_entries",
    "linear system": "affinedp.exact.systems",
    "gateway plan": "affinedp.control.gateway_plan",
    "sensor": "affinedp.control.sensors",
    "people": "affinedp.neighbours.people",
    "plant": "affinedp.domains.dynamics",
    "of a function": "affinedp.functions.known",
    "order statistic": "affinedp.functions.known",
    "range of entries": "affinedp.functions.known",
    "clipped sum": "affinedp.functions.known",
    "sum of differences": "affinedp.functions.known",
    "totals": "affinedp.domains.totals",
    "tree": "affinedp.strategies.tree",
    "dynamics": "affinedp.domains.dynamics",
    "initial state": "affinedp.neighbours.trajectory",
    "time-local": "affinedp.neighbours.trajectory",
    "whole trajectories": "affinedp.neighbours.trajectory",
    "first state": "affinedp.neighbours.trajectory",
    "trajectory": "affinedp.strategies.trajectory",
    "fresh": "affinedp.strategies.trajectory",
    "injections": "affinedp.flows.injections",
    "moments": "affinedp.consensus.regression",
    "noisy sums": "affinedp.consensus.regression",
    "average of agents": "affinedp.consensus.one_draw",
    "one agent": "affinedp.consensus.one_draw",
    "one draw": "affinedp.consensus.one_draw",
    "one record": "affinedp.consensus.regression",
    "crossed": "affinedp.domains.crossed",
    "placed": "affinedp.domains.crossed",
    "geometrics": "affinedp.laws.laplace",
    "margins": "affinedp.strategies.margins",
    "counted margins": "affinedp.strategies.margins",
    "counted intervals": "affinedp.strategies.margin_intervals",
    "workload": "affinedp.strategies.margin_workloads",
    "basis": "affinedp.strategies.margin_workloads",
    "product": "affinedp.strategies.places",
    "counted places": "affinedp.strategies.places",
}

# What never changes.
PLAIN = frozenset({bool, bytes, complex, float, Fraction, int, str, type(None)})
PartType = TypeVar("PartType", bound="Part")
Kept = TypeVar("Kept")


class StorageError(AffineDPError):
    """A file that cannot be trusted, or a value that cannot be kept in one."""


def locked(value: Kept, own: bool = True) -> Kept:
    """Return a value whose arrays nobody can change: itself, or a copy where others may hold it.

    With ``own``, nobody else holds the value yet, and only what arrays are views of is copied.
    """
    found: Any = value
    if isinstance(value, np.ndarray):
        if not _is_read_only(value, own):
            found = value.copy(order="K")
        found.flags.writeable = False
    elif is_sparse(value) and hasattr(value, "indptr"):
        if not getattr(value, "_locked", False):
            found = value if own else found.copy()
            _lock_sparse(found)
    elif isinstance(value, tuple | list):
        if PLAIN.issuperset(map(type, value)):  # a million names take no time
            return value
        items = [locked(one, own) for one in value]
        if any(one is not was for one, was in zip(items, value)):
            found = value._make(items) if hasattr(value, "_make") else type(value)(items)
    elif isinstance(value, dict) and not isinstance(value, ReadOnlyDict):
        if PLAIN.issuperset(map(type, value.values())):
            return value
        kept = {name: locked(one, own) for name, one in value.items()}
        found = kept if any(kept[name] is not value[name] for name in kept) else value
    elif dataclasses.is_dataclass(value) and not isinstance(value, Locked | type):
        lock_fields(value, own)
    return typing.cast(Kept, found)


def _is_read_only(array: Any, own: bool) -> bool:
    """Whether an array need not be copied: neither it nor what it is a view of can be written."""
    if array.base is None:
        return own or not array.flags.writeable
    if isinstance(array.base, np.ndarray):
        return not array.flags.writeable and _is_read_only(array.base, False)
    return isinstance(array.base, bytes)


def lock_fields(value: Any, own: bool = False) -> None:
    """Make all arrays that an object holds read-only."""
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    for name in [*getattr(value, "__dict__", ()), *slots]:
        was = getattr(value, name, None)
        kept = locked(was, own)
        if kept is not was:
            object.__setattr__(value, name, kept)


def _lock_sparse(matrix: Any) -> None:
    """Make the numbers of a sparse matrix read-only, and their places in it too."""
    if not matrix.has_canonical_format:  # SciPy would sort it in place when it is used
        for name in NUMBERS:
            setattr(matrix, name, getattr(matrix, name).copy())
        matrix.sum_duplicates()
    for name in NUMBERS:
        setattr(matrix, name, locked(getattr(matrix, name)))
    kind: Any = type(matrix)
    matrix.__class__ = _read_only(kind)
    matrix.__dict__["_locked"] = True


@functools.cache
def _read_only(kind: Any) -> Any:
    """A class of sparse matrices of which locked ones keep their numbers."""
    if "_locked" in vars(kind):
        return kind

    def change(self: Any, name: str, value: Any) -> None:
        if name in NUMBERS and self._locked:
            raise AffineDPError(f"{name} of this matrix is read-only: a promise rests on it")
        object.__setattr__(self, name, value)

    def reduced(self: Any) -> Any:  # as what it was: this class has no name to be found by
        return kind, (tuple(getattr(self, name) for name in NUMBERS), self.shape)

    own = {"_locked": False, "__setattr__": change, "__reduce__": reduced}
    return type(kind.__name__, (kind,), {**own, "__module__": kind.__module__})


class ReadOnlyDict(dict[Any, Any]):
    """A dictionary of numbers that nobody can change."""

    def _refuse(self, *_: object, **__: object) -> typing.NoReturn:
        raise AffineDPError("this dictionary is read-only: a promise rests on it")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return ReadOnlyDict, (dict(self),)


class Locked:
    """What a promise rests on: nobody can change the arrays that it holds.

    Neither those that it is made with, of which it has copies, nor those that it keeps for later
    (``cached_property``), nor those of a copy or of an unpickled one.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in list(vars(cls).items()):
            if isinstance(value, cached_property):
                value.func = _kept(value.func)
            elif name in ("__init__", "__post_init__"):
                setattr(cls, name, _finished(value))

    def __post_init__(self) -> None:
        lock_fields(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        lock_fields(self, own=True)


def _kept(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function whose result is kept, and so must not be changed by anyone."""

    @functools.wraps(function)
    def found(part: Any) -> Any:
        return locked(function(part))

    return found


def _finished(function: Callable[..., None]) -> Callable[..., None]:
    """A function that makes an object, which then holds arrays that nobody can change."""

    @functools.wraps(function)
    def made(part: Any, *given: Any, **named: Any) -> None:
        function(part, *given, **named)
        lock_fields(part)

    return made


class Part(Locked):
    """A frozen dataclass that knows its name on disk.

    A subclass sets ``kind``, which registers it; kinds of other packages contain a dot.  Loading
    makes only classes that are registered, and they check their fields in ``__post_init__``; of
    modules it imports those of the library that define the kinds of a file, and no others.
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Part]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        kind = cls.__dict__.get("kind")
        if kind is None:
            return
        known = Part.kinds.get(kind)
        if known is not None and _place(known) != _place(cls):
            raise AffineDPError(
                f"two classes are called {kind!r} on disk: {known.__qualname__} and "
                f"{cls.__qualname__}. Choose another kind, such as 'yourpackage.{kind}'"
            )
        Part.kinds[kind] = cls

    def fields(self) -> dict[str, Any]:
        """Return what makes this part, by name; fields at their default are left out."""
        found = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.init and not _is_default(field, value):
                found[field.name] = value
        return found

    @classmethod
    def from_fields(cls: type[PartType], fields: Mapping[str, Any]) -> PartType:
        """Return the part that :meth:`fields` described, after a look at names and types.

        Parameters
        ----------
        fields : mapping
            From a file: nothing in it is trusted.
        """
        hints = typing.get_type_hints(cls)
        known = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
        for name, field in known.items():
            default = field.default is field.default_factory is dataclasses.MISSING
            if default and name not in fields:
                raise StorageError(f"{cls.kind} needs {name!r}, which is missing")
        for name, value in fields.items():
            if name not in known:
                raise StorageError(f"{cls.kind} has no field {name!r}")
            if not _is_of_type(value, hints[name]):
                raise StorageError(
                    f"{name} of {cls.kind} cannot be a {type(value).__name__}: "
                    f"{hints[name]} is wanted"
                )
        return cls(**fields)

    def record(self) -> dict[str, Any]:
        """Return kind and fields as JSON values; arrays carry a hash.

        A part that occurs again, such as the domain that neighbours and strategy share, is
        written once.
        """
        return _recorded(self, {})

    @cached_property
    def key(self) -> str:
        """A hash that is equal only for equal parts."""
        return self.key_of(self.fields())

    def key_of(self, fields: Mapping[str, Any]) -> str:
        """Return the hash of this class with some fields.

        Parameters
        ----------
        fields : mapping
            Those that tell parts apart.
        """
        return digest(type(self).__dict__.get("kind", _place(type(self))), fields)


def restored(record: Any, wanted: type[PartType]) -> PartType:
    """Return the part of a record, which must be of a class that is registered here."""
    found = _value(record, 0, [])
    if not isinstance(found, wanted):
        raise StorageError(f"a {wanted.__name__.lower()} is wanted, not {_kind_of(record)}")
    return found


def kind_named(name: str) -> type[Part] | None:
    """Return the class that is called so on disk, if it is known here."""
    if name not in Part.kinds and name in HOMES:
        importlib.import_module(HOMES[name])
    return Part.kinds.get(name)


def digest(*values: Any) -> str:
    """Return one hash of texts, numbers, arrays and parts, in which nothing can be confused."""
    found = hashlib.sha256()
    _hash(found, values)
    return found.hexdigest()


def frozen(array: Any) -> Matrix:
    """Return an array of one's own that nobody can change, dense or sparse."""
    own: Matrix = array.tocsr(copy=True) if is_sparse(array) else np.array(array)
    if is_sparse(array):
        own.sum_duplicates()
    return locked(own)


# ---------------------------------------------------------------------- to records


def _recorded(part: Part, seen: dict[int, tuple[int, Part]]) -> dict[str, Any]:
    """A part as JSON holds it; ``seen`` are the parts that were finished before, in order."""
    if id(part) in seen:
        return {"again": seen[id(part)][0]}
    if "kind" not in type(part).__dict__:
        raise AffineDPError(
            f"{type(part).__qualname__} has no kind of its own, and would be read back as "
            f"{part.kind!r}: give the class a kind"
        )
    fields = {name: _plain(value, seen) for name, value in part.fields().items()}
    seen[id(part)] = len(seen), part  # kept alive, so that no other part has its id
    return {"kind": part.kind, **fields}


def _plain(value: Any, seen: dict[int, tuple[int, Part]]) -> Any:
    """A value as JSON holds it, exactly."""
    if isinstance(value, Part):
        return _recorded(value, seen)
    if is_sparse(value):
        entries = value.tocoo()
        data = np.stack([entries.row, entries.col, entries.data]).astype("<f8")
        return {"array": _encoded(data), "shape": list(value.shape), "sparse": True}
    if isinstance(value, np.ndarray):
        stored = np.ascontiguousarray(value, dtype=STORED[value.dtype.kind])
        return {"array": _encoded(stored), "shape": list(value.shape), "type": stored.dtype.str}
    if isinstance(value, Fraction):
        return {"fraction": [str(value.numerator), str(value.denominator)]}
    if isinstance(value, tuple | list):
        return [_plain(one, seen) for one in value]
    if isinstance(value, Mapping):
        return {"map": [[_plain(name, seen), _plain(one, seen)] for name, one in value.items()]}
    if isinstance(value, np.generic):
        return _plain(value.item(), seen)
    if isinstance(value, float) and not math.isfinite(value):
        raise StorageError(f"{value} cannot be saved")
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 53:
        return {"fraction": [str(value), "1"], "whole": True}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise StorageError(
        f"a {type(value).__name__} cannot be saved: keep numbers, texts, arrays and parts"
    )


def _encoded(array: Any) -> dict[str, str]:
    raw = array.tobytes()
    return {"data": base64.b64encode(raw).decode(), "sha256": hashlib.sha256(raw).hexdigest()}


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    default = field.default
    if default is dataclasses.MISSING:
        return False
    if isinstance(value, np.ndarray) or is_sparse(value) or isinstance(value, Part):
        return value is default
    return bool(type(value) is type(default) and value == default)


# ---------------------------------------------------------------------- from records


def _value(record: Any, depth: int, made: list[Part]) -> Any:
    """What a record says; ``made`` are the parts that were finished before, in order."""
    if depth > MOST_NESTED:
        raise StorageError("parts are nested too deeply")
    if isinstance(record, list):
        return tuple(_value(one, depth + 1, made) for one in record)
    if not isinstance(record, Mapping):
        return record
    if "array" in record:
        return _array(record)
    if "fraction" in record:
        return _fraction(record)
    if "map" in record:
        return _map(record["map"], depth, made)
    if "again" in record:
        place = record["again"]
        if type(place) is not int or not 0 <= place < len(made):
            raise StorageError("a record refers to a part that it does not hold")
        return made[place]
    kind = kind_named(str(record.get("kind", "")))
    if kind is None:
        raise StorageError(
            f"{_kind_of(record)} is not known here: import the module that defines it first"
        )
    fields = {k: _value(v, depth + 1, made) for k, v in record.items() if k != "kind"}
    made.append(kind.from_fields(fields))
    return made[-1]


def _kind_of(record: Any) -> str:
    kind = record.get("kind") if isinstance(record, Mapping) else type(record).__name__
    return repr(str(kind)[:60])


def _map(pairs: Any, depth: int, made: list[Part]) -> dict[Any, Any]:
    if not isinstance(pairs, list) or any(not isinstance(p, list) or len(p) != 2 for p in pairs):
        raise StorageError("a map is a list of pairs")
    names = [_value(name, depth + 1, made) for name, _ in pairs]
    if any(not isinstance(name, str | int | tuple) for name in names) or len(set(names)) < len(
        names
    ):
        raise StorageError("a map has names that are not possible")
    return {name: _value(one, depth + 1, made) for name, (_, one) in zip(names, pairs)}


def _fraction(record: Mapping[str, Any]) -> Fraction | int:
    texts = record["fraction"]
    most = MOST_BITS // 3
    if (
        not isinstance(texts, list)
        or len(texts) != 2
        or any(not isinstance(text, str) or not 0 < len(text) <= most for text in texts)
        or not texts[0].removeprefix("-").isdecimal()
        or not texts[1].isdecimal()
        or not all(text.isascii() for text in texts)
        or not int(texts[1])
    ):
        raise StorageError("an exact number is not one that is read here")
    found = Fraction(int(texts[0]), int(texts[1]))
    return int(found) if record.get("whole") is True and found.denominator == 1 else found


def _array(record: Mapping[str, Any]) -> Any:
    shape, inside = _shape(record.get("shape")), record["array"]
    if not isinstance(inside, Mapping) or not isinstance(inside.get("data"), str):
        raise StorageError("an array has no data")
    sparse = record.get("sparse") is True
    stored = "<f8" if sparse else str(record.get("type"))
    if stored not in STORED.values():
        raise StorageError("an array has numbers of a type that is not read here")
    values = _decoded(inside["data"], inside.get("sha256"), stored)
    if sparse:
        return _sparse(shape, values)
    if math.prod(shape) != len(values):
        raise StorageError(f"an array of shape {shape} cannot have {len(values)} numbers")
    return frozen(values.reshape(shape))


def _shape(given: Any) -> tuple[int, ...]:
    whole = isinstance(given, list) and all(type(size) is int for size in given)
    if not whole or len(given) > 3 or any(size < 0 for size in given):
        raise StorageError("an array has a shape that is not possible")
    return tuple(given)


def _decoded(data: str, stated: Any, stored: str) -> Any:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise StorageError("an array is not valid base64") from None
    if hashlib.sha256(raw).hexdigest() != stated:
        raise StorageError("an array does not match its hash: the file is damaged")
    if len(raw) % np.dtype(stored).itemsize:
        raise StorageError("an array ends in the middle of a number")
    values = np.frombuffer(raw, dtype=stored)
    values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
        raise StorageError("an array holds numbers that are not finite")
    return values


def _sparse(shape: tuple[int, ...], values: FloatArray) -> Any:
    import scipy.sparse as sparse

    if len(shape) != 2 or len(values) % 3:
        raise StorageError(f"a sparse array of shape {shape} is not possible")
    row, column, data = values.reshape(3, -1)
    for places, size in ((row, shape[0]), (column, shape[1])):
        if size > MOST_EMPTY + 10_000 * max(len(places), 1):
            raise StorageError(f"an array of shape {shape} is too large for {len(data)} numbers")
        if np.any((places != np.floor(places)) | (places < 0) | (places >= size)):
            raise StorageError(f"a sparse array of shape {shape} has an entry outside of it")
    found = sparse.csr_array((data, (row.astype(np.int64), column.astype(np.int64))), shape=shape)
    if not np.all(np.isfinite(found.data)):  # entries of one place are added
        raise StorageError("an array holds numbers that are not finite")
    return frozen(found)


def _is_of_type(value: Any, hint: Any) -> bool:
    """Whether a value read from a file is what an annotation says, as far as plain types go."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    named = hint if origin is None else origin
    if hasattr(named, "__value__"):  # a type that has a name, as NDArray since NumPy 2.5
        meant = named.__value__
        return _is_of_type(value, meant if origin is None else meant[typing.get_args(hint)])
    if origin in (typing.Union, types.UnionType):
        return any(_is_of_type(value, one) for one in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is tuple:
        inner = typing.get_args(hint)
        if not isinstance(value, tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(_is_of_type(one, inner[0]) for one in value)
        return len(inner) == len(value) and all(map(_is_of_type, value, inner))
    if origin is not None:
        return isinstance(value, origin)
    if hint is float:  # larger whole numbers are no numbers to NumPy
        return isinstance(value, float) or (type(value) is int and value.bit_length() < 64)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True


# ---------------------------------------------------------------------- hashes


def _hash(found: Any, value: Any) -> None:
    """Add a value to a hash, with its type and length before it."""
    if isinstance(value, Part):
        _add(found, "part", value.key.encode())
    elif is_sparse(value):
        rows = value.tocsr(copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        rows.sort_indices()
        _hash(found, (tuple(rows.shape), rows.indptr, rows.indices, rows.data + 0.0))
    elif isinstance(value, np.ndarray):
        stored = np.ascontiguousarray(value, dtype=STORED[value.dtype.kind])
        if value.dtype.kind == "f":
            stored = stored + 0.0  # −0 is 0
        _add(found, f"array {value.dtype.kind in 'fiu'} {value.shape}", stored.tobytes())
    elif isinstance(value, tuple | list):
        _add(found, "list", str(len(value)).encode())
        for one in value:
            _hash(found, one)
    elif isinstance(value, Mapping):
        _hash(found, sorted(value.items(), key=lambda item: str(item[0])))
    elif isinstance(value, float | np.floating):
        _add(found, "float", (float(value) + 0.0).hex().encode())
    else:
        _add(found, type(value).__name__, str(value).encode())


def _add(found: Any, name: str, data: bytes) -> None:
    found.update(f"{name} {len(data)} ".encode() + data)


def _place(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__
