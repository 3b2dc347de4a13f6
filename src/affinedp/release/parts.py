"""Release a table in parts, on many workers, with one charge and one draw for each row.

Engines run a task again when a worker is lost, and they may run it twice for speed.  Two draws for
one row would be two releases.  So the noise of a part follows from a key of the release, the number
of the part and a digest of its rows: a part that runs again gets the same noise.  It must be given
the rows that were checked and charged; their digest tells whether it was.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import affinedp
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import LARGEST_WHOLE
from affinedp.laws.sampler.words import Key, Source

# Beside the type of a column with whole numbers that doubles do not hold.
WIDE = {b"affinedp": b"wide"}
# Beside the type of a column with times that are no whole microseconds.
FINE = {b"affinedp": b"fine"}
# Digits of decimals that all readers hold.
MOST_DIGITS = 38


@dataclass(frozen=True)
class PartFiles:
    """How parts are written."""

    # whether the index of the rows is written, too
    labels: bool
    # whether points in time are written as Spark has and reads them, in microseconds
    for_spark: bool

    def types(self, frame: Any) -> str:
        """Return the types of a part; what Parquet does not hold is refused."""
        import pyarrow

        if self.labels:
            _refuse_names(frame)
            for place, name in enumerate(frame.index.names):
                refuse_mixed(name, frame.index.get_level_values(place))
        for name in frame.columns:
            refuse_mixed(name, frame[name])
        table = self._arrow(frame)
        if self.for_spark and any(pyarrow.types.is_duration(one.type) for one in table.schema):
            raise AffineDPError(
                "Spark reads no lengths of time from Parquet, only whole numbers: write them as "
                "numbers or texts"
            )
        self._to_parquet(table, pyarrow.BufferOutputStream())
        return as_text(types_of(table))

    def write(self, frame: Any, schema: str | None, place: Path) -> None:
        """Write a part."""
        table = self._arrow(frame)
        if schema is not None and table.schema != (wanted := from_text(schema)):
            # in a part without labels nothing but the schema says what they would be
            known = table.cast(wanted).to_pandas(integer_object_nulls=True)
            table = self._arrow(known, wanted)
        self._to_parquet(table, place)

    def _arrow(self, frame: Any, schema: Any = None) -> Any:
        import pyarrow

        with _parquet_words():
            return pyarrow.Table.from_pandas(frame, schema, preserve_index=self.labels)

    def _to_parquet(self, table: Any, place: Any) -> None:
        from pyarrow import parquet

        with _parquet_words():
            times = "us" if self.for_spark else None
            parquet.write_table(table, place, coerce_timestamps=times)


@contextmanager
def _parquet_words() -> Iterator[None]:
    """Say what Arrow refuses in words about labels: everything else has a place in Parquet."""
    from pyarrow import ArrowException

    try:
        yield
    except (TypeError, ValueError, OverflowError, ArrowException) as error:
        raise AffineDPError(
            f"the labels of the rows cannot be written as Parquet ({error}): write them as texts"
        ) from None


def _refuse_names(frame: Any) -> None:
    """Refuse names of labels by which nobody could tell them from columns, or from each other."""
    names = [name for name in frame.index.names if name is not None]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    taken = [name for name in names if name in frame.columns]
    if twice or taken:
        others = "others are" if twice else "a column is"
        raise AffineDPError(
            f"the labels of the rows are called {(twice or taken)[0]!r}, as {others}: use "
            "reset_index(drop=True), or other names"
        )


# ---------------------------------------------------------------------- types


def types_of(table: Any) -> Any:
    """The types of the columns, and which labels cannot be of another type elsewhere."""
    import pyarrow

    fields = []
    for one, column in zip(table.schema, table.columns):
        if pyarrow.types.is_integer(one.type) and _is_wide(column):
            one = one.with_metadata(WIDE)
        elif _is_time(one.type) and one.type.unit == "ns" and _is_fine(column):
            one = one.with_metadata(FINE)
        fields.append(one)
    return pyarrow.schema(fields, table.schema.metadata)


def _is_wide(column: Any) -> bool:
    from pyarrow import compute

    ends = compute.min_max(column).as_py()
    return any(abs(end) > LARGEST_WHOLE for end in ends.values() if end is not None)


def _is_fine(column: Any) -> bool:
    from pyarrow import compute

    whole = column.cast("int64")
    coarse = compute.multiply(compute.divide(whole, 1000), 1000)
    return bool(compute.any(compute.not_equal(whole, coarse)).as_py())


def _is_time(kind: Any) -> bool:
    """Whether it is a point in time or a length of time, which have units."""
    from pyarrow import types

    return bool(types.is_timestamp(kind) or types.is_duration(kind))


def refuse_mixed(name: Any, labels: Any) -> None:
    """Refuse labels of kinds that Arrow makes one of without a word."""
    if getattr(labels.dtype, "kind", "O") != "O":
        return
    kinds = {type(label) for label in labels}
    for one, others in ((bytes, {str}), (Decimal, {int, float, bool})):
        # a gap is a float
        found = {kind for kind in kinds & others if kind is not float or _has_numbers(labels)}
        if one in kinds and found:
            raise AffineDPError(
                f"the labels {name!r} are {one.__name__} and {min(k.__name__ for k in found)} at "
                "once, which would be made one type: write them as texts"
            )


def _has_numbers(labels: Any) -> bool:
    return any(type(label) is float and label == label for label in labels)


def as_text(schema: Any) -> str:
    """Types as a text, which every engine brings back."""
    return bytes(schema.serialize()).hex()


def from_text(text: str) -> Any:
    """Types from such a text."""
    import pyarrow

    return pyarrow.ipc.read_schema(pyarrow.py_buffer(bytes.fromhex(text)))


def common_types(schemas: Sequence[str], declared: Any = None) -> str:
    """Types that hold what all parts have: whole numbers may be other numbers elsewhere.

    Parts are drawn after the charge, so a label must not fail then.  Types meet only where every
    label of every part has a place in the common one; all others are refused.
    """
    import pyarrow

    given = [from_text(text) for text in dict.fromkeys(schemas)]
    if any(one.names != given[0].names for one in given):
        raise AffineDPError("columns or labels have other names, or another order, in other parts")
    found = []
    for place, first in enumerate(given[0]):
        kind = _common(first.name, [schema.field(place) for schema in given])
        if pyarrow.types.is_null(kind) and declared is not None and first.name in declared.names:
            kind = _declared(declared.field(first.name).type)
        found.append(pyarrow.field(first.name, kind))
    return as_text(pyarrow.schema(found, given[0].metadata))


def _common(name: str, fields: Sequence[Any]) -> Any:
    """The type of one column."""
    import pyarrow
    from pyarrow import types

    kinds = list(dict.fromkeys(one.type for one in fields if not types.is_null(one.type)))
    if len(kinds) < 2:
        return kinds[0] if kinds else pyarrow.null()
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in kinds):
        if not all(map(types.is_integer, kinds)) and any(one.metadata == WIDE for one in fields):
            raise AffineDPError(
                f"the labels {name!r} are whole numbers in one part, too large for doubles, "
                "and other numbers or missing in another: write them as texts"
            )
        return _promoted(name, kinds)
    if all(map(types.is_timestamp, kinds)) and len({kind.tz for kind in kinds}) == 1:
        return pyarrow.timestamp(_unit(name, fields), kinds[0].tz)
    if all(map(types.is_duration, kinds)):
        return pyarrow.duration(_unit(name, fields))
    if all(map(types.is_decimal, kinds)):
        digits = max(kind.scale for kind in kinds)
        whole = max(kind.precision - kind.scale for kind in kinds)
        if whole + digits <= MOST_DIGITS:
            return pyarrow.decimal128(whole + digits, digits)
    if all(types.is_string(kind) or types.is_large_string(kind) for kind in kinds):
        return pyarrow.large_string()
    raise _other_types(name, kinds)


def _promoted(name: str, kinds: Sequence[Any]) -> Any:
    import pyarrow

    schemas = [pyarrow.schema([(name, kind)]) for kind in kinds]
    try:
        return pyarrow.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pyarrow.ArrowException:
        raise _other_types(name, kinds) from None


def _unit(name: str, fields: Sequence[Any]) -> str:
    """Microseconds, which reach from year 1 to 9999, where no part needs finer ones."""
    if any(one.metadata == FINE for one in fields):
        raise AffineDPError(
            f"the labels {name!r} have nanoseconds in one part, and in another a time that no "
            "64-bit number of nanoseconds holds: write them as texts"
        )
    return "us"


def _other_types(name: str, kinds: Sequence[Any]) -> AffineDPError:
    listed = " and ".join(sorted(map(str, kinds)))
    return AffineDPError(
        f"the labels {name!r} are of other types in other parts ({listed}): write them in one way"
    )


def _declared(kind: Any) -> Any:
    """The type of a column without labels, as Parquet and all its readers have it."""
    import pyarrow
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view":
        return pyarrow.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or str(kind) == "binary_view":
        return pyarrow.binary()
    plain = (types.is_primitive(kind) and not types.is_duration(kind)) or types.is_decimal128(kind)
    return kind if plain else pyarrow.null()


# In a folder that lacks parts; readers of Parquet pass over such names.
INCOMPLETE = "_incomplete"
# What the folder of a release has in it.
RELEASED = re.compile(rf"part-\d{{5,}}\.parquet|{INCOMPLETE}")


class PartError(AffineDPError):
    """A part that was given other rows than before, or cannot be written: nothing was published."""

    def __init__(self, message: str, part: int) -> None:
        self.part = part
        super().__init__(message)


class RowsToPublish(Protocol):
    """What is published of some rows, and how; it is sent to workers by pickling."""

    def check(self, frame: Any) -> Any:
        """Refuse rows that cannot be released, and return them with zeros in place of numbers."""

    def publish(self, frame: Any, source: Source) -> Any:
        """Return rows with noise, in their order."""


@dataclass(frozen=True)
class ReleaseInParts:
    """A release that was charged and may now be drawn, part by part, anywhere.

    It is sent to workers by pickling, with its key: who has the key knows all of its noise.
    """

    # what is published, with which noise
    rows: RowsToPublish = field(repr=False)
    # where parts are written, as Parquet files; all workers share it
    folder: Path
    # how they are written
    files: PartFiles
    # from which noise is drawn
    key: Key = field(repr=False)
    # of this release, in its folder
    name: str
    # of affinedp: another one may draw other noise from the same key
    version: str
    # of the rows of all parts, once they were checked
    digests: tuple[str, ...] | None = field(default=None, repr=False)
    # the types of the columns, once all parts were checked: the same in every file
    schema: str | None = field(default=None, repr=False)
    # folders that were not there before, from the inside out
    made: tuple[Path, ...] = field(default=(), repr=False)

    @classmethod
    def start(
        cls, rows: RowsToPublish, folder: str | os.PathLike[str], files: PartFiles
    ) -> ReleaseInParts:
        """Make and mark the folder; one that holds anything is refused."""
        if "://" in os.fspath(folder):
            raise AffineDPError(f"into must be a folder, and {os.fspath(folder)!r} is an address")
        place = Path(os.path.realpath(folder))
        _refuse_inside(place)
        made = tuple(path for path in (place, *place.parents) if not path.exists())
        key, name = Key(secrets.token_bytes(32)), uuid.uuid4().hex
        job = cls(rows, place, files, key, name, affinedp.__version__, made=made)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            full = any(place.iterdir())
            if not full:
                with open(job._marker, "x") as marker:  # of two at once, one gets here
                    marker.write(job.name)
        except FileExistsError:
            full = True
        except OSError as error:
            raise AffineDPError(f"{place} cannot be used: {error.strerror}") from None
        if full:
            raise AffineDPError(f"{place} is not empty: every release has a folder of its own")
        return job

    def check(self, number: int, frame: Any) -> tuple[int, int, str, str]:
        """Return number, size, types and digest of a part, or refuse it; nothing is drawn."""
        from pandas import DataFrame

        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise AffineDPError(f"parts are numbered 0, 1, …, and {number!r} is no such number")
        if not isinstance(frame, DataFrame):
            raise AffineDPError(
                f"part {number} is a {type(frame).__module__}.{type(frame).__name__}, and must be "
                "a pandas DataFrame"
            )
        self._refuse_other_version(number)
        if not self._is_here():
            raise AffineDPError(
                f"part {number} does not find this release in {self.folder}: all workers must "
                "share the folder; nothing was charged or drawn"
            )
        schema = ""
        try:
            if len(frame):
                schema = self.files.types(self.rows.check(frame))
            digest, _ = self._recognised(frame)
        except AffineDPError as error:
            raise error.located(f"part {number} (counting from 0)") from None
        return int(number), len(frame), schema, digest

    def checked(
        self, answers: Sequence[tuple[int, int, str, str]], declared: Any = None
    ) -> ReleaseInParts:
        """Return the release with all parts checked: it has no others."""
        if [number for number, *_ in answers] != list(range(len(answers))):
            raise AffineDPError(
                "parts are numbered 0, 1, …, each once and in this order; nothing was charged or "
                "drawn"
            )
        if not sum(count for _, count, *_ in answers):
            raise AffineDPError("there are no rows to release")
        schema = common_types([types for _, _, types, _ in answers if types], declared)
        return replace(self, digests=tuple(digest for *_, digest in answers), schema=schema)

    def part(self, number: int, frame: Any) -> str:
        """Publish a part, with the same noise each time, and return the name of its file."""
        from pandas import RangeIndex

        known = self.digests or ()
        if not 0 <= number < len(known):
            raise PartError(f"part {number} was not there when {len(known)} were checked", number)
        self._refuse_other_version(number)
        if not self._is_here():
            raise PartError(f"part {number} is of a release that is no more in its folder", number)
        digest, order = self._recognised(frame)
        if digest != known[number]:
            raise PartError(
                f"part {number} has other rows than when it was run before: its rows would be "
                "published twice, or not at all. Give the engine data whose parts do not change "
                "(write them to files first, or checkpoint)",
                number,
            )
        name = f"part-{number:05d}.parquet"
        if len(frame):
            # noise belongs to rows, not to the places where they happen to lie this time
            source = self.key.source("part", number, digest)
            drawn = self.rows.publish(frame.iloc[order], source)
            published = drawn.iloc[np.argsort(order)]
            if isinstance(frame.index, RangeIndex):
                published.index = frame.index  # places, not labels
            self._write(published, self.folder / name, number)
        return name

    def finish(self) -> None:
        """Check that all parts are there, and remove the mark and what lost workers left."""
        empty = self._digest(b"")
        wanted = {i for i, digest in enumerate(self.digests or ()) if digest != empty}
        found = {path.name for path in self.folder.glob("part-*.parquet")}
        missing = [number for number in wanted if f"part-{number:05d}.parquet" not in found]
        if missing:
            raise AffineDPError(
                f"{len(missing)} of {len(self.digests or ())} parts are missing in {self.folder}: "
                "the engine did not run the task on them, or lost what it wrote"
            )
        self._marker.unlink(missing_ok=True)
        self._sweep()

    def abandon(self) -> None:
        """Give up: what is in the folder is published and charged, and nothing is added to it."""
        self._marker.write_text("given up")
        self._sweep()

    def withdraw(self) -> None:
        """Leave no trace: nothing was drawn, and nothing will be."""
        self._marker.unlink(missing_ok=True)
        for folder in self.made:
            try:
                folder.rmdir()
            except OSError:  # someone else put something there
                return

    @property
    def _marker(self) -> Path:
        return self.folder / INCOMPLETE

    def _refuse_other_version(self, number: int) -> None:
        if affinedp.__version__ != self.version:
            raise AffineDPError(
                f"part {number} runs with affinedp {affinedp.__version__}, and the release began "
                f"with {self.version}: a part that runs again must get the same noise, so install "
                "one version everywhere"
            )

    def _is_here(self) -> bool:
        """Whether this release is the one that the folder is made for."""
        try:
            return self._marker.read_text() == self.name
        except OSError:
            return False

    def _digest(self, rows: bytes) -> str:
        return hmac.new(self.key.secret, rows, hashlib.sha256).hexdigest()

    def _recognised(self, frame: Any) -> tuple[str, Any]:
        """The digest of rows in any order, and their places in an order of their own.

        After a shuffle engines do not keep the order, and labels that are positions follow it.
        """
        from pandas import RangeIndex
        from pandas.util import hash_pandas_object

        if not len(frame):
            return self._digest(b""), np.arange(0)
        labels = not isinstance(frame.index, RangeIndex)
        try:
            hashes = np.asarray(hash_pandas_object(frame, index=labels))
        except (TypeError, ValueError) as error:  # long doubles, too
            raise AffineDPError(
                f"labels such as lists cannot be told from others ({error}): write them as texts"
            ) from None
        order = np.argsort(hashes, kind="stable")
        names = "\n".join(map(str, frame.columns)).encode()
        return self._digest(names + hashes[order].astype("<u8").tobytes()), order

    def _write(self, published: Any, target: Path, number: int) -> None:
        """Put a whole file into place; a second run puts the same one there."""
        written = self.folder / f".{target.stem}-{uuid.uuid4().hex}"
        try:
            self.files.write(published, self.schema, written)
            with open(written, "rb") as file:
                os.fsync(file.fileno())
            os.replace(written, target)
        except OSError as error:
            raise PartError(f"part {number} cannot be written: {error.strerror}", number) from None
        finally:
            written.unlink(missing_ok=True)

    def _sweep(self) -> None:
        for path in self.folder.glob(".part-*"):
            path.unlink(missing_ok=True)


def _refuse_inside(place: Path) -> None:
    """Refuse a folder within a release: who reads that one would see both."""
    for folder in place.parents:
        with suppress(OSError):  # one that cannot be looked into has nothing to say
            if any(RELEASED.fullmatch(entry.name) for entry in os.scandir(folder)):
                raise AffineDPError(
                    f"{place} lies in {folder}, which is a release already, and who reads that "
                    "would read both: choose a folder outside of it"
                )
