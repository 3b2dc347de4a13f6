"""What can be refused, with the data that explains it.

Every refusal is an :class:`AffineDPError`, which is a ``ValueError``.  A subclass
exists where a caller can do something with the data it carries.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import Any, Self

EXCERPT = 60
# Of many things, those that a refusal names.
NAMED = 6
# A smaller ε that is left is nothing that anybody could spend.
LEAST_LEFT = 1e-9


class AffineDPError(ValueError):
    """Base of every refusal: says what is wrong, where, and what to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        # workers send refusals by pickling, and Python would call __init__ with the words alone
        return _restored, (type(self), self.args, dict(self.__dict__))

    def located(self, where: str) -> Self:
        """Return the same refusal, with its place said first.

        Parameters
        ----------
        where : str
            Such as ``"part 3"``.
        """
        found: Self = _restored(type(self), (f"{where}: {self}",), dict(self.__dict__))
        return found


class AffineDPWarning(UserWarning):
    """What holds is stated; this says what else a person should know, such as a forgotten equation.

    What is about private data is for whoever holds them.
    """


def outside() -> int:
    """Return the ``stacklevel`` of a warning that is shown at the caller's line, not at ours."""
    level, frame = 1, sys._getframe(1)
    ours = ("affinedp.", "contextlib")  # which calls what one_thread() decorates
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        level, frame = level + 1, frame.f_back
    return level


def _restored(kind: Any, args: tuple[Any, ...], data: dict[str, Any]) -> Any:
    """A refusal with the words and the data of another."""
    found = kind.__new__(kind, *args)
    found.args = args
    found.__dict__.update(data)
    return found


def listed(items: Sequence[object], most: int = NAMED) -> str:
    """Name a few things in words.

    Parameters
    ----------
    items : sequence
        What to name, at least one.
    most : int
        How many are named.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed("abcdefgh", most=3)
    ('a, b and c', 'a, b, c and 5 more')
    """
    shown = [str(item) for item in items[:most]]
    if len(items) > most:
        shown.append(f"{len(items) - most:,} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def counted(number: int, noun: str) -> str:
    """Write how many of something there are.

    Parameters
    ----------
    number : int
        How many.
    noun : str
        What they are, for one of them; the plural has an s.

    Examples
    --------
    >>> counted(1, "row"), counted(1200, "more row")
    ('1 row', '1,200 more rows')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def left_words(epsilon: float) -> str:
    """Write an ε that is left: never more than that, and nothing where only rounding left it.

    Parameters
    ----------
    epsilon : float
        What is left.

    Examples
    --------
    >>> left_words(0.25), left_words(0.39999999999), left_words(1e-10)
    ('0.25', '0.399999', '0')
    """
    if not LEAST_LEFT <= epsilon < math.inf:
        return "0" if epsilon < LEAST_LEFT else f"{epsilon:g}"
    rounded = Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(float(epsilon)))
    return f"{float(rounded):.6g}"


def most_words(value: float, digits: int = 6) -> str:
    """Write what is promised as "at most": never below it, unless only rounding is dropped.

    Parameters
    ----------
    value : float
        What is promised.
    digits : int
        How many.

    Examples
    --------
    >>> most_words(1 / 12), most_words(0.1 + 0.2), most_words(1.2301, 2)
    ('0.0833334', '0.3', '1.3')
    """
    text = f"{value:.{digits}g}"
    if not math.isfinite(value) or float(text) >= value * (1 - 1e-12):
        return text
    step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{value + step / 2:.{digits}g}"


class EquationError(AffineDPError):
    """A text equation that is not one linear equation.

    Attributes
    ----------
    reason : str
        What is wrong with it.
    text : str
        The equation as it was given.
    position : int
        The offset in ``text`` at which reading it failed.
    """

    def __init__(self, reason: str, text: str, position: int) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        # an excerpt on one line, so that the caret stands under its place
        start = max(0, position - EXCERPT)
        excerpt = "".join(c if c.isprintable() else " " for c in text[start : position + EXCERPT])
        before, after = "…" if start else "", "…" if position + EXCERPT < len(text) else ""
        caret = " " * (len(before) + position - start) + "^"
        super().__init__(f"{reason}\n    {before}{excerpt}{after}\n    {caret}")


class InconsistentEquationsError(AffineDPError):
    """Equations that contradict each other.

    Attributes
    ----------
    rows : tuple of int
        The equations involved, counted from 0.
    residual : float
        What is left on the right when their left sides cancel.
    """

    def __init__(self, message: str, rows: Sequence[int], residual: float) -> None:
        self.rows = tuple(rows)
        self.residual = residual
        super().__init__(message)


class IdentifiableEntriesError(AffineDPError):
    """Entries whose value follows from the equations alone.

    Attributes
    ----------
    entries : tuple of str
        Their names.
    """

    def __init__(self, message: str, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        super().__init__(message)


class TooManyCircuitsError(AffineDPError):
    """More elementary vectors than can be listed.

    Attributes
    ----------
    estimate : float
        About how many there are, or how many search steps they would take.
    limit : float
        How many were allowed.
    """

    def __init__(self, message: str, estimate: float, limit: float) -> None:
        self.estimate = estimate
        self.limit = limit
        super().__init__(message)


class MissingExtraError(AffineDPError, ImportError):
    """An optional dependency that is not installed.

    Attributes
    ----------
    extra : str
        The extra that brings it, as in ``pip install "affinedp[extra]"``.
    """

    def __init__(self, package: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"this needs the package {package!r}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return what installs an extra where this package came from: an index, a checkout, a file.

    Parameters
    ----------
    extra : str
        One or more, separated by commas.

    Examples
    --------
    >>> install_command("tables").startswith("pip install ")
    True
    """
    from urllib.parse import urlsplit  # slow to load, and only refusals need them
    from urllib.request import url2pathname

    source = _source()
    folder = source.get("dir_info")
    url = str(source.get("url", ""))
    if folder is not None:
        place = url2pathname(urlsplit(url).path)
        return f'pip install {"-e " if folder.get("editable") else ""}".[{extra}]" in {place}'
    if "vcs_info" in source:
        return f'pip install "affinedp[{extra}] @ {source["vcs_info"].get("vcs", "git")}+{url}"'
    if url:
        return f'pip install "affinedp[{extra}] @ {url}"'
    return f'pip install "affinedp[{extra}]"'


def _source() -> dict[str, Any]:
    """Where the installed package came from (PEP 610); nothing if that was a package index."""
    from importlib import metadata

    try:
        text = metadata.distribution("affinedp").read_text("direct_url.json")
        found = json.loads(text or "{}")
    except metadata.PackageNotFoundError:  # it is run from where it stands
        root = Path(__file__).resolve().parents[2]
        there = (root / "pyproject.toml").is_file()
        found = {"url": root.as_uri(), "dir_info": {"editable": True}} if there else {}
    except (OSError, ValueError):
        found = {}
    return found if isinstance(found, dict) else {}
