"""One reader for every file that people write: a kind of file is a declaration of its fields.

Each field has a reader for its value and, where it must be there, what to say when it is not.
Whatever else stands in a file is refused with the nearest name: a promise about half of what was
written would be a promise about something else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, EquationError
from affinedp.files.documents import Table, matrix, read_document
from affinedp.files.values import Reader, hint, shown

Built = TypeVar("Built")


@dataclass(frozen=True)
class Field:
    """A field of a file: how its value is read, and what holds where it is not there."""

    # takes the value and its place, and returns it checked, or refuses it
    read: Reader
    default: Any = None
    # makes its absence a refusal, which ends in these words
    needed: str = ""


@dataclass(frozen=True)
class Document:
    """What a file says: the checked values of all declared fields, by section."""

    # those at the top of the file under ``""``
    sections: Mapping[str, dict[str, Any]]
    # sections that the file has
    there: frozenset[str]
    # where files are looked up that it names
    folder: Path

    def __getitem__(self, section: str) -> dict[str, Any]:
        return self.sections[section]

    def given(self, *apart: str) -> dict[str, Any]:
        """Return all fields with a value, of whatever section, without some."""
        return {
            key: value
            for values in self.sections.values()
            for key, value in values.items()
            if value is not None and key not in apart
        }

    def table(self, section: str, key: str, names: Sequence[str] | None = None) -> Table:
        """Return the matrix of a field, or of the CSV file that it names, with its header."""
        return matrix(self[section][key], place(section, key), self.folder, names)

    def rows(self, section: str, key: str) -> FloatArray:
        """Return the matrix of a field that has no use for a header."""
        found = self.table(section, key)
        if found.header is not None:
            raise AffineDPError(f"{place(section, key)}: a header means nothing here; remove it")
        return found.numbers


@dataclass(frozen=True)
class FileKind:
    """A kind of file that people write."""

    # the fields of every section; those at the top of the file under ``""``
    fields: Mapping[str, Mapping[str, Field]]
    # sections that must be there, and what to say further if one is not
    needed: Mapping[str, str] = field(default_factory=dict)
    # fields of other kinds of files, and what to say to who writes them here
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def read(
        self, path: str | Path, build: Callable[[Document], Built], text: str | None = None
    ) -> Built:
        """Return what is built from a file; every refusal begins with its name."""
        file = Path(path)
        try:
            return build(self.document(read_document(file, text), file.parent))
        except EquationError as error:  # still one, so that callers find the place
            raise EquationError(f"{file}: {error.reason}", error.text, error.position) from None
        except AffineDPError as error:
            raise AffineDPError(f"{file}: {error}") from None

    def document(self, found: Mapping[str, Any], folder: Path) -> Document:
        """Return the checked values of all fields."""
        for key, why in self.elsewhere.items():
            if key in found:
                raise AffineDPError(why)
        inner = [name for name in self.fields if name]
        self._refuse_unknown("", found, (*self.fields[""], *inner))
        for name, why in self.needed.items():
            if name not in found:
                raise AffineDPError(f"the section [{name}] is missing{why}")
        for name in inner:
            if not isinstance(found.get(name, {}), dict):
                given = shown(found[name])
                raise AffineDPError(f"{name!r} must be a section [{name}], not {given}")
            self._refuse_unknown(name, found.get(name, {}), self.fields[name])
        parts = {"": found, **{name: found.get(name, {}) for name in inner}}
        read = {name: self._read(name, part) for name, part in parts.items()}
        return Document(read, frozenset(inner).intersection(found), folder)

    def _read(self, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for key, one in self.fields[name].items():
            if key in found:
                values[key] = one.read(found[key], place(name, key))
            elif one.needed:
                raise AffineDPError(f"{place(name, key)} is missing: {one.needed}")
            else:
                values[key] = one.default
        return values

    def _refuse_unknown(self, name: str, found: Mapping[str, Any], known: Collection[str]) -> None:
        for key in found:
            if key in known:
                continue
            homes = [
                f"in [{home}]" if home else "before the first [section]"
                for home, fields in self.fields.items()
                if key in fields
            ]
            where = f"in [{name}]" if name else "at the top of the file"
            belongs = f"; it belongs {' or '.join(homes)}" if homes else hint(key, known)
            raise AffineDPError(f"unknown key {shown(key)} {where}{belongs}")


def place(section: str, key: str) -> str:
    """Return where a field stands, as messages begin."""
    return f"[{section}] {key}" if section else key
