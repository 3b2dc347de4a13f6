"""Keys of agents: one shared key for each link, in a file for each agent."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from affinedp.consensus.agent import checked_name
from affinedp.errors import AffineDPError
from affinedp.files.documents import read_text
from affinedp.files.writing import write_for_owner

KEY_BYTES = 32
LARGEST_FILE = 10**7


@dataclass(frozen=True)
class Keys:
    """The keys of an agent, one for each neighbour.

    Attributes
    ----------
    by_neighbour : mapping of str to bytes
        Secret, and shared with that neighbour alone.
    """

    by_neighbour: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Keys:
        """Read a key file: one line for each neighbour, its name and 64 hexadecimal digits.

        Parameters
        ----------
        file : str or Path
            For its owner only.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> write_keys(folder.name, [("1", "2")])
        ['1', '2']
        >>> one, two = (Keys.read(f"{folder.name}/{name}.keys") for name in "12")
        >>> one.by_neighbour["2"] == two.by_neighbour["1"]
        True
        """
        path = Path(file)
        lines = read_text(path, f"the key file {path}", LARGEST_FILE).splitlines()
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise AffineDPError(
                f"the key file {path} can be read by others than its owner: make new keys, since "
                "these may be known, and chmod 600 them"
            )
        found: dict[str, bytes] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words:
                continue
            try:
                name, key = checked_name(words[0]), bytes.fromhex(" ".join(words[1:]))
            except ValueError:
                key = b""
            if len(key) != KEY_BYTES or name in found:
                raise AffineDPError(
                    f"line {number} of the key file {path} must be the name of a neighbour and "
                    f"{2 * KEY_BYTES} hexadecimal digits, each neighbour once"
                )
            found[name] = key
        return cls(found)

    def check(self, neighbours: Iterable[str]) -> None:
        """Refuse keys that leave a neighbour out.

        Parameters
        ----------
        neighbours : iterable of str
            Who needs one.
        """
        missing = [name for name in neighbours if name not in self.by_neighbour]
        if missing:
            raise AffineDPError(f"there is no key for the link with agent {missing[0]!r}")


def write_keys(folder: str | os.PathLike[str], links: Iterable[tuple[str, str]]) -> list[str]:
    """Make a key for each link, write ``NAME.keys`` for each agent, and return their names."""
    files: dict[str, list[str]] = {}
    for one, other in links:
        key = secrets.token_hex(KEY_BYTES)
        for agent, neighbour in ((one, other), (other, one)):
            files.setdefault(checked_name(agent), []).append(f"{neighbour} {key}\n")
    where = Path(folder)
    present = [name for name in files if os.path.lexists(where / f"{name}.keys")]
    if present:
        raise AffineDPError(f"{where / present[0]}.keys exists: no key is overwritten")
    for name, lines in files.items():
        write_for_owner(where / f"{name}.keys", "".join(lines))
    return list(files)
