"""Release a table in parts, on many workers, with one charge and one draw for each row.

Engines run a task again when a worker is lost, and they may run it twice for speed.  Each run would
draw noise of its own, and two draws for one row are two releases.  So a part is *written once*:
whoever finishes first links its file into place, and everybody else's draw is thrown away unseen.
A task that runs again must be given the same rows, and the ones that were checked and charged: a
keyed hash beside the part, whose key is forgotten with the job, tells whether it was.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.release.part_files import PartFiles
from affinedp.release.part_types import common_types

# Files that are not part of what is published.
HIDDEN = ".affinedp"
# In a folder that lacks parts; readers of Parquet pass over such names.
INCOMPLETE = "_incomplete"
# What the folder of a release has in it.
RELEASED = re.compile(rf"part-\d{{5,}}\.parquet|{INCOMPLETE}")


class PartError(AffineDPError):
    """A part that was given other rows than before, or cannot be written: nothing was published.

    Attributes
    ----------
    part : int
        Which one.
    """

    def __init__(self, message: str, part: int) -> None:
        self.part = part
        super().__init__(message)


class RowsToPublish(Protocol):
    """What is published of some rows, and how; it is sent to workers by pickling."""

    def check(self, frame: Any) -> Any:
        """Refuse rows that cannot be released; nothing is drawn.

        Parameters
        ----------
        frame : pandas DataFrame
            Some rows.

        Returns
        -------
        What will be published, with zeros in place of numbers.
        """

    def publish(self, frame: Any) -> Any:
        """Return rows with noise.

        Parameters
        ----------
        frame : pandas DataFrame
            Some rows, checked before.
        """


@dataclass(frozen=True)
class ReleaseInParts:
    """A release that was charged and may now be drawn, part by part, anywhere.

    It is sent to workers by pickling.  The folder must be one that all of them share.

    Attributes
    ----------
    rows : RowsToPublish
        What is published, with which noise.
    folder : Path
        Where parts are written, as Parquet files.
    labels : bool
        Whether the index of the rows is written, too.
    for_spark : bool
        Whether points in time are written as Spark has and reads them, in microseconds.
    parts : int or None
        How many there are, once all were checked.
    schema : str or None
        The types of the columns, once all parts were checked: the same in every file.
    made : tuple of Path
        Folders that were not there before, from the inside out.
    """

    rows: RowsToPublish = field(repr=False)
    folder: Path
    _key: bytes = field(repr=False)
    _run: str
    labels: bool = True
    for_spark: bool = False
    parts: int | None = None
    schema: str | None = field(default=None, repr=False)
    made: tuple[Path, ...] = field(default=(), repr=False)

    @classmethod
    def start(
        cls,
        rows: RowsToPublish,
        folder: str | os.PathLike[str],
        *,
        labels: bool = True,
        for_spark: bool = False,
    ) -> ReleaseInParts:
        """Make the folder; one that holds anything is refused.

        Parameters
        ----------
        rows : RowsToPublish
            What is published, with which noise.
        folder : str or Path
            A folder that all workers share.
        labels : bool
            Whether the index of the rows is written, too.
        for_spark : bool
            Whether points in time are written as Spark has and reads them, in microseconds.
        """
        if "://" in os.fspath(folder):
            raise AffineDPError(f"into must be a folder, and {os.fspath(folder)!r} is an address")
        place = Path(os.path.realpath(folder))
        _refuse_inside(place)
        made = tuple(path for path in (place, *place.parents) if not path.exists())
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(place.iterdir()):
                raise AffineDPError(f"{place} is not empty: every release has a folder of its own")
            (place / HIDDEN).mkdir(mode=0o700)  # of two at once, one gets here
            if len(os.listdir(place)) > 1:
                (place / HIDDEN).rmdir()
                raise AffineDPError(f"{place} is not empty: every release has a folder of its own")
            run = uuid.uuid4().hex
            (place / HIDDEN / run).mkdir(mode=0o700)
        except OSError as error:
            raise AffineDPError(f"{place} cannot be used: {error.strerror}") from None
        return cls(rows, place, secrets.token_bytes(32), run, labels, for_spark, made=made)

    def check(self, number: int, frame: Any) -> tuple[int, str]:
        """Refuse rows that cannot be released; nothing is drawn.

        From now on the part has these rows and no others.

        Parameters
        ----------
        number : int
            Which part.
        frame : pandas DataFrame
            Its rows.

        Returns
        -------
        pair
            How many rows there are, and the types of what will be published of them.
        """
        from pandas import DataFrame

        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise AffineDPError(f"parts are numbered 0, 1, …, and {number!r} is no such number")
        if not isinstance(frame, DataFrame):
            raise AffineDPError(
                f"part {number} is a {type(frame).__module__}.{type(frame).__name__}, and must be "
                "a pandas DataFrame"
            )
        schema = ""
        try:
            if len(frame):
                schema = self._files.types(self.rows.check(frame))
        except AffineDPError as error:
            raise error.located(f"part {number} (counting from 0)") from None
        self._recognise(number, frame)
        return len(frame), schema

    def checked(self, answers: Sequence[tuple[int, str]], declared: Any = None) -> ReleaseInParts:
        """Return the release with all parts checked: it has no others.

        Parameters
        ----------
        answers : sequence
            What :meth:`check` returned for each of them.
        declared : pyarrow Schema, optional
            What the engine calls the columns: the types of those without labels.
        """
        if not sum(count for count, _ in answers):
            raise AffineDPError("there are no rows to release")
        seen = {path.name for path in self._hidden.glob("rows-*")}
        if seen != {f"rows-{number:05d}" for number in range(len(answers))}:
            raise AffineDPError(
                f"{len(answers)} parts were checked, and {len(seen)} of them left a trace in "
                f"{self.folder}: all workers must share the folder, and parts are numbered "
                "0, 1, …, each once; nothing was charged or drawn"
            )
        schema = common_types([types for _, types in answers if types], declared)
        return replace(self, parts=len(answers), schema=schema)

    def begin(self) -> None:
        """Mark the folder as incomplete until :meth:`finish`: whoever draws may be killed."""
        (self.folder / INCOMPLETE).touch()

    def part(self, number: int, frame: Any) -> str:
        """Publish a part, unless it was published before, and return the name of its file.

        Parameters
        ----------
        number : int
            Which part; every row belongs to one part.
        frame : pandas DataFrame
            Its rows, the same ones each time.
        """
        name = f"part-{number:05d}.parquet"
        target = self.folder / name
        self._recognise(number, frame)
        if target.exists() or not len(frame):
            return name
        with self._temporary(number) as written:
            self._files.write(self.rows.publish(frame), self.schema, written)
            _link(written, target, number)
        return name

    def finish(self, parts: int) -> None:
        """Check that all parts are there, and remove what is not published.

        Parameters
        ----------
        parts : int
            How many there are.
        """
        empty = self._trace(b"")
        found = {path.name for path in self.folder.glob("part-*.parquet")}
        for path in self._hidden.glob("rows-*"):
            if path.read_text() == empty:  # it has no file, which would have no labels either
                found.add(f"{path.name.replace('rows', 'part')}.parquet")
        wanted = {f"part-{number:05d}.parquet" for number in range(parts)}
        if found != wanted:
            raise AffineDPError(
                f"{len(wanted - found)} of {parts} parts are missing in {self.folder}: the engine "
                "did not run the task on them, or lost what it wrote"
            )
        self.close()
        (self.folder / INCOMPLETE).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Give up: what is in the folder is published and charged, and nothing is added to it."""
        self.begin()
        self.close()

    def withdraw(self) -> None:
        """Leave no trace: nothing was drawn, and nothing will be."""
        self.close()
        for folder in self.made:
            try:
                folder.rmdir()
            except OSError:  # someone else put something there
                return

    def close(self) -> None:
        """Remove what is not published, draws of runs that were lost included; no part follows."""
        hidden = self.folder / HIDDEN
        try:
            # renamed first: what still runs finds no place to write to; and within the one folder
            # that people are told to remove, should all end here
            os.rename(self._hidden, hidden / f"gone-{uuid.uuid4().hex}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise _secret(hidden, error) from None
        try:
            shutil.rmtree(hidden)
        except OSError as error:
            raise _secret(hidden, error) from None

    def _recognise(self, number: int, frame: Any) -> None:
        """Refuse other rows than those that the part had before."""
        seen = self._trace(_bytes_of(frame))
        place = self._hidden / f"rows-{number:05d}"
        if self.parts is not None and not place.exists():
            raise PartError(f"part {number} was not there when {self.parts} were checked", number)
        with self._temporary(number) as written:
            written.write_text(seen)
            _link(written, place, number)
        if place.read_text() != seen:
            raise PartError(
                f"part {number} has other rows than when it was run before: its rows would be "
                "published twice, or not at all. Give the engine data whose parts do not change "
                "(write them to files first, or checkpoint)",
                number,
            )

    @property
    def _files(self) -> PartFiles:
        return PartFiles(self.labels, self.for_spark)

    @property
    def _hidden(self) -> Path:
        """A place of this release: one that was given up and still runs somewhere has none."""
        return self.folder / HIDDEN / self._run

    def _trace(self, rows: bytes) -> str:
        return hmac.new(self._key, rows, hashlib.sha256).hexdigest()

    @contextmanager
    def _temporary(self, number: int) -> Iterator[Path]:
        written = self._hidden / f"{number}-{uuid.uuid4().hex}"
        try:
            yield written
        except OSError as error:
            raise PartError(f"part {number} cannot be written: {error.strerror}", number) from None
        finally:
            written.unlink(missing_ok=True)


def _refuse_inside(place: Path) -> None:
    """Refuse a folder within a release: who reads that one would see both."""
    for folder in place.parents:
        with suppress(OSError):  # one that cannot be looked into has nothing to say
            if any(RELEASED.fullmatch(entry.name) for entry in os.scandir(folder)):
                raise AffineDPError(
                    f"{place} lies in {folder}, which is a release already, and who reads that "
                    "would read both: choose a folder outside of it"
                )


def _link(written: Path, target: Path, number: int) -> None:
    """Put a whole file into place, unless one is there: of two, the first stays."""
    with open(written, "rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(written, target)
    except FileExistsError:
        return
    except OSError as error:
        raise PartError(
            f"part {number} cannot be put into place ({error.strerror}): the folder must be on a "
            "file system with hard links, shared by all workers",
            number,
        ) from None


def _bytes_of(frame: Any) -> bytes:
    """Labels and values, in a form that is the same for the same rows in any order; b"" for none.

    After a shuffle engines do not keep the order, and labels that are positions follow it.
    """
    from pandas import RangeIndex
    from pandas.util import hash_pandas_object

    if not len(frame):
        return b""
    labels = not isinstance(frame.index, RangeIndex)
    names = "\n".join(map(str, frame.columns)).encode()
    try:
        hashes = np.asarray(hash_pandas_object(frame, index=labels))
    except (TypeError, ValueError) as error:  # long doubles, too
        raise AffineDPError(
            f"labels such as lists cannot be told from others ({error}): write them as texts"
        ) from None
    return names + np.sort(hashes).tobytes()


def _secret(place: Path, error: OSError) -> AffineDPError:
    return AffineDPError(
        f"{place} cannot be removed ({error.strerror}): remove it before you show the folder to "
        "anyone"
    )
