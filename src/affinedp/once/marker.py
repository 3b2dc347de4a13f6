"""The marker beside a state: it tells, without any secret, which draws were made, and where.

The same lines stand in a register of the folder, ``.affinedp-drawn``: who removes a state with all
that has its name does not remove that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from affinedp.budget.events import now
from affinedp.errors import AffineDPError
from affinedp.files.sqlite import sync_directory
from affinedp.once.record import Draw


def marker_of(path: Path) -> Path:
    """Return the file that says that a draw was made for a state.

    Parameters
    ----------
    path : Path
        The state.
    """
    return path.with_name(path.name + ".drawn")


def register_of(path: Path) -> Path:
    """Return the file that tells of all draws in the folder of a state.

    Parameters
    ----------
    path : Path
        The state.
    """
    return path.with_name(".affinedp-drawn")


def is_registered(path: Path) -> bool:
    """Whether the register of its folder tells of a draw for a state of this name.

    Parameters
    ----------
    path : Path
        The state.
    """
    name = f'"name": {json.dumps(path.name)}'
    return any(name in line for line in _lines(register_of(path)))


def mark(path: Path, draw: Draw, refusal: type[AffineDPError]) -> None:
    """Say beside a state that it was drawn; on the disk before anything is sent.

    Parameters
    ----------
    path : Path
        The state.
    draw : Draw
        What was drawn for it; only its commitment and identity are written.
    refusal : type
        What to raise if that fails.
    """
    line = {
        "commitment": draw.commitment,
        "name": path.name,
        "place": place_of(path),
        "state": draw.identity,
        "time": now(),
    }
    for file in (register_of(path), marker_of(path)):
        _append(file, line, refusal)
    sync_directory(path.parent, refusal)


def _append(file: Path, line: dict[str, str], refusal: type[AffineDPError]) -> None:
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.name == "posix":
                os.fchmod(handle, 0o600)
            # the line before may have been cut short by a crash
            os.write(handle, f"\n{json.dumps(line)}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise refusal(f"{file} cannot be written: {error.strerror}") from None


def marked_draws(path: Path) -> set[str]:
    """Return the commitments of all draws that the marker of a state tells of.

    Parameters
    ----------
    path : Path
        The state.
    """
    found = (re.search(r'"commitment": "([0-9a-f]{64})"', line) for line in _lines(marker_of(path)))
    return {match[1] for match in found if match}


def marked_places(path: Path, commitment: str) -> set[str]:
    """Return where a draw was made, or moved to, by what the marker of a state tells.

    Parameters
    ----------
    path : Path
        The state.
    commitment : str
        Of the draw.
    """
    lines = (line for line in _lines(marker_of(path)) if commitment in line)
    found = (re.search(r'"place": "([0-9a-f]{64})"', line) for line in lines)
    return {match[1] for match in found if match}


def place_of(path: Path) -> str:
    """Return a hash of where a state is.

    Parameters
    ----------
    path : Path
        The state.
    """
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
