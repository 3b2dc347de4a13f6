"""Values of files that people write: each reader takes a value and its place, and checks it.

Characters that a terminal would act on are refused in what is read, and shown escaped in what is
said: a name with an escape sequence in it could recolour, hide or forge what a report says.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from affinedp.errors import AffineDPError

if TYPE_CHECKING:  # whoever only says something does not wait for NumPy
    from affinedp.arrays import FloatArray

Reader = Callable[[Any, str], Any]

MOST_SHOWN = 60
MOST_HINTED = 1000  # comparing words takes time
# Control characters, marks that turn the direction of writing, and broken halves of letters.
_MARKS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ACTING = re.compile(f"[\x00-\x1f{_MARKS}]")
_ACTING_IN_TEXT = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_MARKS}]")  # tabs and new lines may be


def as_written(value: Any, where: str) -> Any:
    """Return a value as it stands there, for fields that are checked together with others."""
    if value is None:  # which would be as if it were not there
        raise AffineDPError(f"{where} must have a value, not null")
    return value


def number(value: Any, where: str) -> float:
    """Return a finite number that a float holds."""
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


def at_least(least: float = 0.0, below: float = math.inf) -> Reader:
    """Return a reader of numbers from a least one on, such as ε, δ and seconds."""

    def read(value: Any, where: str) -> float:
        found = number(value, where)
        if not least <= found < below:
            most = "" if math.isinf(below) else f" and less than {below:g}"
            raise AffineDPError(f"{where} must be at least {least:g}{most}, not {found}")
        return found

    return read


def numbers(value: Any, where: str) -> list[float]:
    """Return a list of finite numbers."""
    given = filled_list(value, where)
    if all(type(item) is float for item in given) and all(map(math.isfinite, given)):
        return given
    return [number(item, f"{where} {place}") for place, item in enumerate(given, 1)]


def filled_list(value: Any, where: str) -> list[Any]:
    """Return a list that is not empty."""
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else shown(value)
        raise AffineDPError(f"{where} must be a list, not {found}")
    return value


def texts(value: Any, where: str) -> list[str]:
    """Return a list of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AffineDPError(f"{where} must be a list of texts")
    return value


def one_of(*words: str) -> Reader:
    """Return a reader of one of some words."""

    def read(value: Any, where: str) -> str:
        for word in words:
            if value == word:
                return word
        known = ", ".join(map(repr, words))
        raise AffineDPError(f"{where} must be one of {known}, not {shown(value)}")

    return read


def a(*kinds: str) -> Reader:
    """Return a reader of values of these kinds, which are left as they stand there."""

    def read(value: Any, where: str) -> Any:
        if any(_KINDS[kind](value) for kind in kinds):
            return value
        raise AffineDPError(f"{where} must be a {' or '.join(kinds)}, not {shown(value)}")

    return read


_KINDS: dict[str, Callable[[Any], bool]] = {
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "whole number": lambda value: type(value) is int,
    "truth": lambda value: isinstance(value, bool),
    "text": lambda value: isinstance(value, str),
    "table": lambda value: isinstance(value, dict),
    "list": lambda value: isinstance(value, list),
    "list of texts": lambda value: _all(value, str),
    "name of a CSV file": lambda value: isinstance(value, str),
    "list of rows": lambda value: _all(value, list),
    "list of lists": lambda value: _all(value, list),
    "pair [low, high]": lambda value: isinstance(value, list) and len(value) == 2,
}


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def sizes(
    value: Any, where: str, names: tuple[str, ...] | None, count: int, what: str
) -> float | FloatArray:
    """Return one number for all, or one for each: none negative, and not all zero."""
    if isinstance(value, dict):
        value = _in_order(value, where, names, what)
    found = numbers(value, where) if isinstance(value, list) else [number(value, where)]
    if min(found) < 0.0 or max(found) == 0.0:
        raise AffineDPError(f"{where} must not be negative anywhere, nor zero everywhere")
    if not isinstance(value, list):
        return found[0]
    check_count(where, len(found), what, count)
    from numpy import array

    from affinedp.parts import locked

    return locked(array(found))


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


def check_count(where: str, found: int, what: str, wanted: int) -> None:
    """Refuse another number of things than one per ``what``."""
    if found != wanted:
        raise AffineDPError(f"{where}: {found} given, but one per {what} makes {wanted}")


def hint(word: str, known: Iterable[str] | None) -> str:
    """Return the known word that was perhaps meant, as the end of a message."""
    words = list(known or ())[:MOST_HINTED]
    close = difflib.get_close_matches(word[:MOST_SHOWN], words, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: Any) -> str:
    """Return a value for a message: never long, never a failure of its own."""
    if isinstance(value, str):
        return visible(repr(value if len(value) <= MOST_SHOWN else value[:MOST_SHOWN] + "…"))
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**20):
        return str(value).lower()
    known = {dict: "a table", list: "a list", int: "a huge number"}
    return known.get(type(value), f"a {type(value).__name__}")


def visible(text: str, *, lines: bool = False) -> str:
    """Return a text with everything that a terminal would act on spelled out."""
    return (_ACTING_IN_TEXT if lines else _ACTING).sub(lambda found: _escaped(found[0]), text)


def check_names(names: Iterable[Any], where: str) -> None:
    """Refuse names with characters that a terminal would act on, tabs and new lines included.

    Examples
    --------
    >>> check_names(["income", "tax\\t"], "names")
    Traceback (most recent call last):
    affinedp.errors.AffineDPError: names: 'tax\\t' has a control character in it: rename it
    """
    for name in names:
        if isinstance(name, str) and _ACTING.search(name):
            shown = visible(name[:MOST_SHOWN])
            raise AffineDPError(f"{where}: '{shown}' has a control character in it: rename it")


def check_texts(document: Any, source: str) -> None:
    """Refuse control characters anywhere in what was read from JSON or TOML."""
    # beyond those that stand in the text, there are only those that are written with a backslash
    if "\\" not in source and not _ACTING_IN_TEXT.search(source):
        return
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if _ACTING_IN_TEXT.search(item):
                shown = visible(item[:MOST_SHOWN])
                raise AffineDPError(f"the text '{shown}' has a control character in it: remove it")
        elif isinstance(item, dict):
            check_names(item, "a key")
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]
