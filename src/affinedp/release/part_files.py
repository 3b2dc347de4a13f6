"""Parts as Parquet files of one type, which is found before anything is drawn.

Parts are drawn after the charge, so a label must not fail then.  Types meet only where every label
of every part has a place in the common one; all others are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.exact.numbers import LARGEST_WHOLE

# Beside the type of a column with whole numbers that doubles do not hold.
WIDE = {b"affinedp": b"wide"}
# Beside the type of a column with times that are no whole microseconds.
FINE = {b"affinedp": b"fine"}
# Digits of decimals that all readers hold.
MOST_DIGITS = 38


@dataclass(frozen=True)
class PartFiles:
    """How parts are written.

    Attributes
    ----------
    labels : bool
        Whether the index of the rows is written, too.
    for_spark : bool
        Whether points in time are written as Spark has and reads them, in microseconds.
    """

    labels: bool
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

    The types of public labels follow from the labels of a part, but readers want one type.
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
