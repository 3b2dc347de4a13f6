"""The tables of ledgers on a server: connect, make and bring up to date, create, copy."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

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


def is_server(address: object) -> bool:
    """Return whether an address of a ledger is that of a server."""
    return isinstance(address, str) and address.startswith(PREFIXES)


def without_password(url: str) -> str:
    """Return an address that may be shown."""
    parts = urlsplit(url)
    password = f":{parts.password}@"
    return url.replace(password, "@", 1) if parts.password is not None else url


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
        if _version(connection) == 0:
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


def _version(connection: psycopg.Connection[Any]) -> int:
    """The version of the tables; 0 if there are none."""
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
    if _version(connection) == len(MIGRATIONS):
        return
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
    connection.execute("CREATE TABLE IF NOT EXISTS affinedp_schema (version integer NOT NULL)")
    for number in range(_version(connection), len(MIGRATIONS)):
        connection.execute(MIGRATIONS[number])
        connection.execute("INSERT INTO affinedp_schema VALUES (%s)", (number + 1,))


def connected(address: str, name: str) -> psycopg.Connection[Any]:
    """Return an open connection; a server that is just starting is waited for."""
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    failure = ""
    for attempt in range(ATTEMPTS):
        try:
            # autocommit: transactions are begun and ended in words, as for the file
            return psycopg.connect(address, autocommit=True, connect_timeout=10)
        except psycopg.OperationalError as error:
            failure = str(error).strip().splitlines()[0]
            if "starting up" not in failure and "recovery" not in failure:
                break
            time.sleep(0.2 * 2**attempt)
        except psycopg.Error as error:
            failure = str(error).strip().splitlines()[0]
            break
    raise LedgerError(f"{name} cannot be reached: {failure}")


def place_on_server(connection: psycopg.Connection[Any], ledger: str) -> str:
    """The cluster, the database and the ledger; a restored dump is another cluster or database."""
    row = connection.execute(
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid FROM pg_database "
        "WHERE datname = current_database()"
    ).fetchone()
    return hashlib.sha256(f"{row}\n{ledger}".encode()).hexdigest()


def parts_of(url: str) -> tuple[str, str, str]:
    """The address for libpq, the name of the ledger, and words for both without a password."""
    try:
        parts = urlsplit(url)
        ledger = unquote(parts.fragment) or DEFAULT_NAME
        host = parts.hostname or "local"
        shown = f"{host}{f':{parts.port}' if parts.port else ''}{parts.path}#{ledger}"
    except ValueError as error:
        raise LedgerError(f"the address of the ledger is not one: {error}") from None
    if len(ledger) > 200 or not ledger.isprintable():
        raise LedgerError("the name of a ledger, after #, must be printable and short")
    return urlunsplit(parts._replace(fragment="")), ledger, f"ledger {shown}"
