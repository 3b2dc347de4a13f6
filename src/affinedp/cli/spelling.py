"""Signs that a console does not have, in words: ε is epsilon, ≤ is <=."""

from __future__ import annotations

import codecs
import unicodedata
from typing import Any

_SIGNS = {
    "−": "-", "–": "-", "…": "...", "·": "*", "×": "x", "±": "+-", "½": "1/2", "°": " degrees",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "∞": "infinity", "√": "sqrt", "‖": "|",
    "→": "->", "←": "<-", "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip


def spelled(text: str, stream: Any) -> str:
    """Return a text as a stream can show it.

    Parameters
    ----------
    text : str
        For people.
    stream : file
        Where it goes.

    Examples
    --------
    >>> import io
    >>> console = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    >>> spelled("ε ≤ 1 ± 2, δ = 10⁻⁶", console)
    'epsilon <= 1 ± 2, delta = 10^-6'
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, HANDLER).decode(encoding)


def escaped(text: str, stream: Any) -> str:
    """Return TOML as a stream can hold it: what it cannot is escaped, and read back as it was.

    Parameters
    ----------
    text : str
        For programs.
    stream : file
        Where it goes.

    Examples
    --------
    >>> import io
    >>> print(escaped('"ε"', io.TextIOWrapper(io.BytesIO(), encoding="cp1252")))
    "\\u03b5"
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, ESCAPING).decode(encoding)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = (ord(sign) for sign in error.object[error.start : error.end])
    return "".join(f"\\u{n:04x}" if n < 0x10000 else f"\\U{n:08x}" for n in signs), error.end


def _spell(error: UnicodeError) -> tuple[str, int]:
    """The signs that cannot be shown; letters of names keep their number, which is unmistakable."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    words, raised = "", False
    for sign in error.object[error.start : error.end]:
        plain = unicodedata.normalize("NFKC", sign)
        name = unicodedata.name(sign, "")
        if name.startswith("SUPERSCRIPT") and _SIGNS.get(plain, plain).isascii():
            words += ("" if raised else "^") + _SIGNS.get(plain, plain)
            raised = True
            continue
        raised = False
        if sign in _SIGNS:
            words += _SIGNS[sign]
        elif name.startswith("GREEK") and " LETTER " in name and "WITH" not in name:
            word = name.rpartition(" ")[2].lower()
            words += word.capitalize() if "CAPITAL" in name else word
        elif name.startswith("SUBSCRIPT") and plain.isascii():
            words += f"_{plain}"
        else:
            words += sign.encode("ascii", "backslashreplace").decode("ascii")
    return words, error.end


# Names of codecs' error handlers.
HANDLER, ESCAPING = "affinedp.spelled", "affinedp.escaped"
codecs.register_error(HANDLER, _spell)
codecs.register_error(ESCAPING, _escape)
