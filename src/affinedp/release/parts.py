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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import affinedp
from affinedp.errors import AffineDPError
from affinedp.laws.sampler.words import Key
from affinedp.release.part_files import PartFiles, common_types
from affinedp.release.publish import OwnDrawer
from affinedp.strategies.base import Drawer

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
        """Refuse rows that cannot be released, and return them with zeros in place of numbers."""

    def publish(self, frame: Any, drawer: Drawer) -> Any:
        """Return rows with noise, in their order."""


@dataclass(frozen=True)
class ReleaseInParts:
    """A release that was charged and may now be drawn, part by part, anywhere.

    It is sent to workers by pickling, with its key: who has the key knows all of its noise.

    Attributes
    ----------
    rows : RowsToPublish
        What is published, with which noise.
    folder : Path
        Where parts are written, as Parquet files; all workers share it.
    files : PartFiles
        How they are written.
    key : Key
        From which noise is drawn.
    name : str
        Of this release, in its folder.
    version : str
        Of affinedp: another one may draw other noise from the same key.
    digests : tuple of str or None
        Of the rows of all parts, once they were checked.
    schema : str or None
        The types of the columns, once all parts were checked: the same in every file.
    made : tuple of Path
        Folders that were not there before, from the inside out.
    """

    rows: RowsToPublish = field(repr=False)
    folder: Path
    files: PartFiles
    key: Key = field(repr=False)
    name: str
    version: str
    digests: tuple[str, ...] | None = field(default=None, repr=False)
    schema: str | None = field(default=None, repr=False)
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
            drawer = OwnDrawer(self.key.source("part", number, digest))
            drawn = self.rows.publish(frame.iloc[order], drawer)
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
