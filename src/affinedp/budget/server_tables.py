"""The tables of ledgers on a server: connect, make and bring up to date, create, copy."""

from __future__ import annotations

import hashlib
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from affinedp.budget.state import LedgerError, Row, State, new_header
from affinedp.errors import MissingExtraError

if TYPE_CHECKING:
    import psycopg

PREFIXES = ("postgresql://", "postgres://")
DEFAULT_NAME = "ledger"
# The tables as each version changes them; a server is brought up to date under a lock.
MIGRATIONS = (
    """
    CREATE TABLE affinedp_ledger (
        name text PRIMARY KEY, header text NOT NULL, events bigint NOT NULL, head text NOT NULL);
    CREATE TABLE affinedp_event (
        ledger text NOT NULL REFERENCES affinedp_ledger (name),
        number bigint NOT NULL, body text NOT NULL, hash text NOT NULL,
        PRIMARY KEY (ledger, number));
    """,
)
_MIGRATION_LOCK = 0x61644450  # "adDP"
ATTEMPTS = 5
_STARTING = ("starting up", "recovery", "not yet accepting connections")
ENCODE = "In user, password and parameters special characters are written as %40 for @ and so on"
# What libpq also takes as parameters, and nobody may see.
SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


def is_server(address: object) -> bool:
    """Return whether an address of a ledger is that of a server."""
    return isinstance(address, str) and address.startswith(PREFIXES)


def without_password(url: str) -> str:
    """Return an address that may be shown."""
    address, mark, ledger = url.partition("#")
    scheme, authority, rest = _cut(address)
    who, at, host = authority.rpartition("@")
    path, question, query = rest.partition("?")
    shown = [pair for pair in query.split("&") if unquote(pair.partition("=")[0]) not in SECRETS]
    asked = f"{question}{'&'.join(shown)}" if shown != [""] and shown else ""
    return f"{scheme}{who.partition(':')[0]}{at}{host}{path}{asked}{mark}{ledger}"


def _cut(address: str) -> tuple[str, str, str]:
    """The prefix, who and where, and the rest of an address without #."""
    scheme, slashes, after = address.partition("://")
    end = min((after.find(mark) for mark in "/?" if mark in after), default=len(after))
    return scheme + slashes, after[:end], after[end:]


def create_on_server(url: str, epsilon: float, delta: float, adaptive: bool, protects: str) -> None:
    """Make the tables if need be, and a new ledger; one that exists stays as it is."""
    address, ledger, name = parts_of(url)
    with _transaction(address, name) as connection:
        _migrate(connection)
        place = place_on_server(connection, ledger)
        header = new_header(epsilon, delta, adaptive, protects, place)
        connection.execute(
            "INSERT INTO affinedp_ledger VALUES (%s, %s, 0, %s) ON CONFLICT DO NOTHING",
            (ledger, header, State.from_header(header).head),
        )


def exists_on_server(url: str) -> bool:
    """Return whether the server has this ledger."""
    address, ledger, name = parts_of(url)
    with _transaction(address, name) as connection:
        if version_of_tables(connection) == 0:
            return False
        query = "SELECT 1 FROM affinedp_ledger WHERE name = %s"
        return connection.execute(query, (ledger,)).fetchone() is not None


def copy_to_server(url: str, header: str, rows: list[Row], last_of: Callable[[str], Row]) -> None:
    """Write a whole ledger, and the event that says so, in one transaction.

    ``last_of(place)`` is that event.
    """
    address, ledger, name = parts_of(url)
    with _transaction(address, name) as connection:
        _migrate(connection)
        last = last_of(place_on_server(connection, ledger))
        made = connection.execute(
            "INSERT INTO affinedp_ledger VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (ledger, header, last[0], last[2]),
        )
        if made.rowcount != 1:
            raise LedgerError(f"{name} exists already; name another one after # in the address")
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO affinedp_event VALUES (%s, %s, %s, %s)",
                [(ledger, *row) for row in [*rows, last]],
            )


@contextmanager
def _transaction(address: str, name: str) -> Iterator[psycopg.Connection[Any]]:
    """A durable transaction over a connection of its own."""
    import psycopg

    connection = connected(address, name)
    try:
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        connection.execute("SET LOCAL synchronous_commit = on")
        yield connection
        connection.execute("COMMIT")
    except psycopg.Error as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise LedgerError(f"{name}: {words[0]}") from None
    finally:
        connection.close()


def version_of_tables(connection: psycopg.Connection[Any]) -> int:
    """Return the version of the tables, 0 if there are none; a newer affinedp's are refused."""
    found = connection.execute("SELECT to_regclass('affinedp_schema')").fetchone()
    if found is None or found[0] is None:
        return 0
    row = connection.execute("SELECT max(version) FROM affinedp_schema").fetchone()
    version = 0 if row is None or row[0] is None else int(row[0])
    if version > len(MIGRATIONS):
        raise LedgerError("the server's tables are of a newer affinedp: upgrade this one")
    return version


def _migrate(connection: psycopg.Connection[Any]) -> None:
    """Bring the tables up to date, one program at a time; who may not change them need not."""
    if version_of_tables(connection) == len(MIGRATIONS):
        return
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
    _check_schemas(connection)  # under the lock: another user may just have made them elsewhere
    connection.execute("CREATE TABLE IF NOT EXISTS affinedp_schema (version integer NOT NULL)")
    for number in range(version_of_tables(connection), len(MIGRATIONS)):
        connection.execute(MIGRATIONS[number])
        connection.execute("INSERT INTO affinedp_schema VALUES (%s)", (number + 1,))


def _check_schemas(connection: psycopg.Connection[Any]) -> None:
    """Refuse new tables beside old ones that this user's search_path does not find."""
    row = connection.execute(
        "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE "
        "relname = 'affinedp_ledger' AND relpersistence <> 't' AND NOT pg_table_is_visible("
        "pg_class.oid) LIMIT 1"
    ).fetchone()
    if row is not None:
        raise LedgerError(
            f"the schema {row[0]!r} of this database has ledgers already, and new ones in another "
            "schema would not know their charges: put it into the search_path"
        )


def connected(address: str, name: str) -> psycopg.Connection[Any]:
    """Return an open connection; a server that is just starting is waited for."""
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    failure = ""
    for attempt in range(ATTEMPTS):
        try:
            # autocommit: transactions are begun and ended in words, as for the file; nothing is
            # prepared, since behind a pool the next transaction may be on another connection;
            # and one encoding for all, or a name would be two names where the server has none
            return psycopg.connect(
                address,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=10,
                client_encoding="UTF8",
            )
        except psycopg.OperationalError as error:
            failure = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if not any(words in failure for words in _STARTING):
                break
            time.sleep(0.2 * 2**attempt)
        except psycopg.Error:  # its words may be those of the password
            failure = f"its address is not one. {ENCODE}"
            break
    raise LedgerError(f"{name} cannot be reached: {failure}")


def place_on_server(connection: psycopg.Connection[Any], ledger: str) -> str:
    """The cluster, the database, the table and the ledger; a restored dump has another one."""
    row = connection.execute(
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid, "
        "to_regclass('affinedp_ledger')::oid FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    return hashlib.sha256(f"{row}\n{ledger}".encode()).hexdigest()


def parts_of(url: str) -> tuple[str, str, str]:
    """The address for libpq, the name of the ledger, and words for both without a password."""
    address, _, fragment = url.partition("#")
    _, authority, rest = _cut(address)
    if authority.count("@") > 1 or ("@" not in authority and "@" in rest + fragment):
        raise LedgerError(f"the address of the ledger is not one. {ENCODE}")
    ledger = unquote(fragment) or DEFAULT_NAME
    host, database = authority.rpartition("@")[2] or "local", rest.partition("?")[0]
    if len(ledger) > 200 or not ledger.isprintable():
        raise LedgerError("the name of a ledger, after #, must be printable and short")
    if ledger != unicodedata.normalize("NFC", ledger.strip()):
        # what looks the same would be two budgets
        raise LedgerError("the name of a ledger, after #, has spaces around it or loose accents")
    return address, ledger, f"ledger {host}{database}#{ledger}"
