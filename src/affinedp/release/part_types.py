"""The types of what is published in parts: one for all parts, found before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from affinedp.arrays import LARGEST_WHOLE
from affinedp.errors import AffineDPError

# Beside the type of a column with whole numbers that doubles do not hold.
WIDE = {b"affinedp": b"wide"}


def types_of(table: Any) -> Any:
    """The types of the columns, and which whole numbers cannot be other numbers elsewhere."""
    import pyarrow
    from pyarrow import compute

    fields = []
    for one, column in zip(table.schema, table.columns):
        if pyarrow.types.is_integer(one.type):
            ends = compute.min_max(column).as_py()
            if any(abs(end) > LARGEST_WHOLE for end in ends.values() if end is not None):
                one = one.with_metadata(WIDE)
        fields.append(one)
    return pyarrow.schema(fields, table.schema.metadata)


def as_text(schema: Any) -> str:
    """Types as a text, which every engine brings back."""
    return bytes(schema.serialize()).hex()


def from_text(text: str) -> Any:
    """Types from such a text."""
    import pyarrow

    return pyarrow.ipc.read_schema(pyarrow.py_buffer(bytes.fromhex(text)))


def common_types(schemas: Sequence[str]) -> str:
    """Types that hold what all parts have: whole numbers may be other numbers elsewhere.

    The types of public labels follow from the labels of a part, but readers want one type.
    """
    import pyarrow

    given = [from_text(text) for text in dict.fromkeys(schemas)]
    if any(one.names != given[0].names for one in given):
        raise AffineDPError("columns or labels have other names, or another order, in other parts")
    try:
        found = pyarrow.unify_schemas(given, promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise AffineDPError(
            f"the labels of the rows are of other types in other parts: {error}"
        ) from None
    for one in (one for schema in given for one in schema if one.metadata == WIDE):
        if not pyarrow.types.is_integer(found.field(one.name).type):
            raise AffineDPError(
                f"the labels {one.name!r} are whole numbers in one part, too large for doubles, "
                "and other numbers or missing in another: write them as texts"
            )
    return as_text(pyarrow.schema([one.remove_metadata() for one in found], found.metadata))
