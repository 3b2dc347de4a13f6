"""What the address of a ledger is: that of a server, the path of a file, or a mistake.

A mistake that is taken for a path makes a budget that no other machine knows, and shows a password
in its name.  So whatever may be meant as an address is refused unless it is one, and no refusal
quotes it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from urllib.parse import unquote

from affinedp.budget.events import LedgerError

PREFIXES = ("postgresql://", "postgres://")
DEFAULT_NAME = "ledger"
ENCODE = "In user, password and parameters special characters are written as %40 for @ and so on"
# What libpq also takes as parameters, and nobody may see.
SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")

_ELSEWHERE = re.compile(  # what other libraries and programs call the same server
    r"""://|^[\s"']*[a-z][a-z0-9+.-]+:/|postgres(ql)?(\+\w+)?\s*:|^\W*postgres(ql)?//""",
    re.IGNORECASE,
)
_SECRET = re.compile(rf"""(^|[\s&?;,"'])({"|".join(SECRETS)})\s*=""", re.IGNORECASE)
_PAIR = re.compile(r"(?:^|\s)(\w+)\s*=")
_WORDS = {"host", "hostaddr", "port", "dbname", "user", "service"}
_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:[0-9]*)?")


def is_server(address: object) -> bool:
    """Return whether an address of a ledger is that of a server."""
    return isinstance(address, str) and address.startswith(PREFIXES)


def checked_path(path: object) -> str:
    """Return the path of a file as text; what may be meant as an address is refused."""
    if not isinstance(path, str | os.PathLike):
        raise LedgerError(
            f"a ledger is at a path or an address, which are text, not {type(path).__name__}"
        )
    text = os.fsdecode(path)
    if not text.startswith(("./", "../", "/")) and _means_a_server(text):
        raise LedgerError(
            "the address of a ledger on a server is a text that begins with postgresql://, and "
            "this one is of another form; of a file with such a name give the absolute path"
        )
    return text


def _means_a_server(text: str) -> bool:
    """Whether a text looks like an address of any form, such as ``host=db password=secret``."""
    if _ELSEWHERE.search(text) or _SECRET.search(text):
        return True
    words = [word in _WORDS for word in map(str.lower, _PAIR.findall(text))]
    if not re.search(r"\s", text.strip()):  # eps=1.db and user=3/l.db are files
        return "/" not in text and any(words[:1])
    return sum(words) > (0 if _PAIR.match(text.strip()) else 1)


def without_password(url: str) -> str:
    """Return an address that may be shown."""
    address, mark, ledger = url.partition("#")
    scheme, authority, rest = _cut(address)
    who, at, host = authority.rpartition("@")
    path, question, query = rest.partition("?")
    shown = [pair for pair in query.split("&") if unquote(pair.partition("=")[0]) not in SECRETS]
    asked = f"{question}{'&'.join(shown)}" if shown != [""] and shown else ""
    return f"{scheme}{who.partition(':')[0]}{at}{host}{path}{asked}{mark}{ledger}"


def parts_of(url: str) -> tuple[str, str, str]:
    """The address for libpq, the name of the ledger, and words for both without a password."""
    address, _, fragment = url.partition("#")
    _, authority, rest = _cut(address)
    path = rest.partition("?")[0]
    hosts = authority.rpartition("@")[2]
    if (
        authority.count("@") > 1
        or "@" in path
        or ("@" not in authority and "@" in rest + fragment)
        or not all(_HOST.fullmatch(host) for host in hosts.split(","))
    ):
        raise LedgerError(f"the address of the ledger is not one. {ENCODE}")
    ledger = _name_of(fragment)
    return address, ledger, f"{hosts or 'local'}{path}#{ledger}"


def _cut(address: str) -> tuple[str, str, str]:
    """The prefix, who and where, and the rest of an address without #."""
    scheme, slashes, after = address.partition("://")
    end = min((after.find(mark) for mark in "/?" if mark in after), default=len(after))
    return scheme + slashes, after[:end], after[end:]


def _name_of(fragment: str) -> str:
    """The name of a ledger; two that look the same would be two budgets."""
    if "?" in fragment or _SECRET.search(unquote(fragment)):
        raise LedgerError(
            "the parameters of an address stand before the #, and here there are some after it: "
            "postgresql://host/database?parameters#name (a ? in a name is written as %3F)"
        )
    try:
        name = unquote(fragment, errors="strict") or DEFAULT_NAME
    except UnicodeDecodeError:
        raise LedgerError(
            "the name of a ledger, after #, is not UTF-8: write %C3%A9 for é and so on"
        ) from None
    if len(name) > 200 or not name.isprintable():
        raise LedgerError("the name of a ledger, after #, must be printable and short")
    if name != unicodedata.normalize("NFC", name.strip()):
        raise LedgerError("the name of a ledger, after #, has spaces around it or loose accents")
    return name
