"""A part as a Parquet file: what of it can be written is known before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.release.part_types import as_text, from_text, refuse_mixed, types_of


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
        """Return the types of a part; what Parquet does not hold is refused.

        Parameters
        ----------
        frame : pandas DataFrame
            The labels that will be published, with zeros in place of numbers.
        """
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
        """Write a part.

        Parameters
        ----------
        frame : pandas DataFrame
            What is published.
        schema : str or None
            The types of all parts, if they were asked for.
        place : Path
            The file.
        """
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
