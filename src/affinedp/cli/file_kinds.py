"""What a file is, whatever it is called: a file in the wrong place gets the command that it is for.

Only a guess for messages: whoever reads the file decides what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from affinedp.errors import AffineDPError
from affinedp.files.values import visible

Kind = Literal[
    "problem", "table description", "mechanism", "loop",
    "network", "ledger", "data", "",
]  # fmt: skip

FIRST_BYTES = 4096
MOST_BYTES = 8_000_000
DATA = (".csv", ".parquet", ".xlsx")
# What only one kind of file that people write has at its top.
OWN_KEYS: dict[Kind, str] = {
    "loop": "plant controller",
    "network": "links rounds",
    "problem": "noise query D public_entries",
    "table description": "totals hierarchy attributes places row_totals changes margins columns "
    "public public_rows index rounding output",
}
USES: dict[Kind, str] = {
    "problem": "affinedp design {file} -o mechanism.json makes a mechanism of it, and affinedp "
    "verify {file} says what its noise promises",
    "table description": "affinedp tables preview {file} DATA shows how accurate it is, "
    "and affinedp release {file} DATA -o OUTPUT publishes",
    "mechanism": "affinedp report {file} says what it promises, and affinedp release {file} DATA "
    "-o OUTPUT publishes with it, or affinedp control gateway --mechanism {file} sends with it",
    "loop": "affinedp control design {file} -o noise.json designs its noise",
    "network": "affinedp consensus launch {file} tries it out",
    "ledger": "affinedp ledger show {file} says what is in it",
    "data": "affinedp discover {file} looks for equations in it, and affinedp release MECHANISM "
    "{file} -o OUTPUT publishes it",
}


def kind_of(path: Path) -> Kind:
    """Return what a file seems to be; an empty text where that is not clear."""
    if path.suffix.lower() in DATA:
        return "data"
    try:
        with path.open("rb") as file:
            first = file.read(FIRST_BYTES)
        if first.startswith(b"SQLite format 3"):
            return "ledger"
        stated = re.match(rb'\s*\{\s*"format"\s*:\s*"([^"]*)"', first)
        if stated:
            return "mechanism" if stated[1] == b"affinedp mechanism 2" else ""
        if path.stat().st_size > MOST_BYTES:
            return ""
        return _by_keys(path)
    except (OSError, AffineDPError):
        return ""


def _by_keys(path: Path) -> Kind:
    from affinedp.files.documents import read_document

    keys = read_document(path)
    found = {kind for kind, own in OWN_KEYS.items() if not keys.keys().isdisjoint(own.split())}
    if "loop" in found or "network" in found:  # those have [noise] or other names, too
        found &= {"loop", "network"}
    if len(found) == 1:
        return found.pop()
    return "problem" if not found and "equations" in keys else ""


def _beside(path: Path) -> list[str]:
    """Names of the files in the same folder."""
    with suppress(OSError):
        return sorted(other.name for other in path.parent.iterdir() if other.is_file())
    return []


def expect(path: Path, *wanted: Kind) -> Kind:
    """Return what a file seems to be, and refuse one that is clearly something else."""
    file = visible(str(path))
    if not path.exists():
        from affinedp.files.values import hint  # loads NumPy, which no good file waits for

        raise AffineDPError(f"{file} does not exist{visible(hint(path.name, _beside(path)))}")
    if path.is_dir():
        raise AffineDPError(f"{file} is a folder, not {_article(wanted[0])}{_many_files(path)}")
    if path.is_file() and path.stat().st_size == 0 and path.suffix.lower() != ".toml":
        raise AffineDPError(f"{file} is empty")  # of TOML the reader says what is missing
    found = kind_of(path)
    if found and found not in wanted:
        use = USES[found].format(file=file)
        raise AffineDPError(f"{file} is {_article(found)}, not {_article(wanted[0])}: {use}")
    return found


def _many_files(folder: Path) -> str:
    """Where a table goes that lies in many files."""
    if not any(folder.glob("*.parquet")):
        return ""
    from affinedp.files.data import IN_MANY_FILES

    return f". {IN_MANY_FILES}"


def _article(kind: Kind) -> str:
    return kind if kind == "data" else f"a {kind}"


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Put the name of a file before whatever is wrong with its content."""
    from affinedp.budget.ledger import LedgerError

    try:
        yield
    except AffineDPError as error:
        if isinstance(error, LedgerError) or path.name in str(error):
            raise
        error.args = (f"{visible(path.name)}: {error}",)
        raise
