"""Characters that a terminal would act on: refused in what is read, shown escaped in what is said.

A name with an escape sequence in it could recolour, hide or forge what a report says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from affinedp.errors import AffineDPError

# Control characters, marks that turn the direction of writing, and broken halves of letters.
_MARKS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ACTING = re.compile(f"[\x00-\x1f{_MARKS}]")
_ACTING_IN_TEXT = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_MARKS}]")  # tabs and new lines may be
_MOST_SHOWN = 60


def visible(text: str, *, lines: bool = False) -> str:
    """Return a text with everything that a terminal would act on spelled out.

    Examples
    --------
    >>> print(visible("income\\x1b[8m"))
    income\\x1b[8m
    """
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
            shown = visible(name[:_MOST_SHOWN])
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
                shown = visible(item[:_MOST_SHOWN])
                raise AffineDPError(f"the text '{shown}' has a control character in it: remove it")
        elif isinstance(item, dict):
            check_names(item, "a key")
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]
