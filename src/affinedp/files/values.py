"""Values of TOML and JSON files: checked where they are read; every message names its place."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.files.visible import visible

Choice = TypeVar("Choice", bound=str)
Keys = Mapping[str, Iterable[str]]

MOST_SHOWN = 60
MOST_HINTED = 1000  # comparing words takes time


def number(value: Any, where: str) -> float:
    """Return a finite number, or refuse the value.

    Parameters
    ----------
    value : object
        As TOML or JSON gave it.
    where : str
        Begins the refusal.

    Examples
    --------
    >>> number(3, "mu")
    3.0
    >>> number(True, "mu")
    Traceback (most recent call last):
    affinedp.errors.AffineDPError: mu must be a number, not true
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AffineDPError(f"{where} must be a number, not {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise AffineDPError(f"{where} must be a finite number")
    if found != value:
        raise AffineDPError(f"{where} has more digits than a float can hold")
    return found


def numbers(value: Any, where: str) -> list[float]:
    """Return a list of finite numbers, or refuse the value.

    Parameters
    ----------
    value : object
        As TOML or JSON gave it.
    where : str
        Begins the refusal.
    """
    given = filled_list(value, where)
    if all(type(item) is float for item in given) and all(map(math.isfinite, given)):
        return given
    return [number(item, f"{where} {place}") for place, item in enumerate(given, 1)]


def filled_list(value: Any, where: str) -> list[Any]:
    """Return a list that is not empty, or refuse the value.

    Parameters
    ----------
    value : object
        As TOML or JSON gave it.
    where : str
        Begins the refusal.
    """
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else shown(value)
        raise AffineDPError(f"{where} must be a list, not {found}")
    return value


def texts(value: Any, where: str) -> list[str]:
    """Return a list of texts, or refuse the value.

    Parameters
    ----------
    value : object
        As TOML or JSON gave it.
    where : str
        Begins the refusal.
    """
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AffineDPError(f"{where} must be a list of texts")
    return value


def choice(value: Any, where: str, choices: Sequence[Choice]) -> Choice:
    """Return the one of some words that was written, or refuse the value.

    Parameters
    ----------
    value : object
        As TOML or JSON gave it.
    where : str
        Begins the refusal.
    choices : sequence of str
        The words.
    """
    for word in choices:
        if value == word:
            return word
    raise AffineDPError(
        f"{where} must be one of {', '.join(map(repr, choices))}, not {shown(value)}"
    )


def promise(privacy: Mapping[str, Any], key: str, limit: float) -> float | None:
    """Return ε or δ of a privacy section, None if it is not there.

    Parameters
    ----------
    privacy : mapping
        The section.
    key : str
        ``"epsilon"`` or ``"delta"``.
    limit : float
        What it must stay below.
    """
    if key not in privacy:
        return None
    value = number(privacy[key], f"[privacy] {key}")
    if not 0.0 <= value < limit:
        most = "" if math.isinf(limit) else f" and less than {limit:g}"
        raise AffineDPError(f"[privacy] {key} must be at least 0{most}, not {value}")
    return value


def sizes(
    value: Any, where: str, names: tuple[str, ...] | None, count: int, what: str
) -> float | FloatArray:
    """Return one number for all, or one for each: none negative, and not all zero.

    Parameters
    ----------
    value : object
        A number, a list, or a table by name.
    where : str
        Begins the refusal.
    names : tuple of str or None
        What a table goes by.
    count : int
        How many a list must have.
    what : str
        What there is one for.
    """
    if isinstance(value, dict):
        value = _in_order(value, where, names, what)
    found = numbers(value, where) if isinstance(value, list) else [number(value, where)]
    if min(found) < 0.0 or max(found) == 0.0:
        raise AffineDPError(f"{where} must not be negative anywhere, nor zero everywhere")
    if not isinstance(value, list):
        return found[0]
    check_count(where, len(found), what, count)
    return frozen(np.array(found))


def _in_order(
    table: dict[str, Any], where: str, labels: tuple[str, ...] | None, what: str
) -> list[Any]:
    if labels is None:
        raise AffineDPError(f"{where}: a table needs names; give 'names', or a list here")
    names = dict.fromkeys(labels)
    for name in table:
        if name not in names:
            raise AffineDPError(f"{where}: no {what} is named {shown(name)}{hint(name, names)}")
    for name in names:
        if name not in table:
            raise AffineDPError(f"{where}: {what} {shown(name)} is missing")
    return [table[name] for name in names]


def section(
    document: Mapping[str, Any], name: str, keys: Keys, *, needed: bool = False
) -> Mapping[str, Any]:
    """Return a section of a file, whose keys are all known.

    Parameters
    ----------
    document : mapping
        The whole file.
    name : str
        As in ``[name]``.
    keys : mapping of str to str
        The keys of every section; those at the top under ``""``.
    needed : bool
        Refuse a file without it; otherwise it is empty then.
    """
    if needed and name not in document:
        raise AffineDPError(f"the section [{name}] is missing")
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise AffineDPError(f"{name!r} must be a section [{name}], not {shown(found)}")
    check_keys(found, name, keys)
    return found


def check_keys(found: Mapping[str, Any], name: str, keys: Keys) -> None:
    """Refuse keys that are not known: a promise about half of a file is about something else.

    Parameters
    ----------
    found : mapping
        A section, or the whole file.
    name : str
        Of the section; ``""`` for the whole file.
    keys : mapping of str to str
        The keys of every section; those at the top under ``""``.
    """
    for key in found:
        if key in keys[name]:
            continue
        homes = [
            f"in [{home}]" if home else "before the first [section]"
            for home in keys
            if key in keys[home]
        ]
        place = f"in [{name}]" if name else "at the top of the file"
        belongs = f"; it belongs {' or '.join(homes)}" if homes else hint(key, keys[name])
        raise AffineDPError(f"unknown key {shown(key)} {place}{belongs}")


def check_count(where: str, found: int, what: str, wanted: int) -> None:
    """Refuse another number of things than there must be.

    Parameters
    ----------
    where : str
        Begins the refusal.
    found, wanted : int
        How many there are, and must be.
    what : str
        What there must be one for.
    """
    if found != wanted:
        raise AffineDPError(f"{where}: {found} given, but one per {what} makes {wanted}")


def hint(word: str, known: Iterable[str] | None) -> str:
    """Return the known word that was perhaps meant, as the end of a message.

    Parameters
    ----------
    word : str
        What was written.
    known : iterable of str or None
        What could have been meant.

    Examples
    --------
    >>> hint("lwa", ["law", "scale"])
    "; did you mean 'law'?"
    """
    words = list(known or ())[:MOST_HINTED]
    close = difflib.get_close_matches(word[:MOST_SHOWN], words, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: Any) -> str:
    """Return a value for a message: never long, never a failure of its own.

    Parameters
    ----------
    value : object
        Anything.

    Examples
    --------
    >>> shown(True), shown("a" * 70), shown([1])
    ('true', "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'", 'a list')
    """
    if isinstance(value, str):
        return visible(repr(value if len(value) <= MOST_SHOWN else value[:MOST_SHOWN] + "…"))
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**20):
        return str(value).lower()
    known = {dict: "a table", list: "a list", int: "a huge number"}
    return known.get(type(value), f"a {type(value).__name__}")


def frozen(array: FloatArray) -> FloatArray:
    """Return an array that cannot be written to any more.

    Parameters
    ----------
    array : array
        It is changed in place.
    """
    array.flags.writeable = False
    return array
