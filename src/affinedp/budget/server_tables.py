"""The tables of ledgers on a server: make and bring up to date, look for a ledger, add one."""

from __future__ import annotations

import difflib
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from affinedp.budget.address import parts_of, without_password
from affinedp.budget.state import LedgerError, Row, State, new_header
from affinedp.budget.transactions import check_durable, transaction

if TYPE_CHECKING:
    import psycopg

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
_FEW = 5  # names that a refusal lists


def create_on_server(url: str, epsilon: float, delta: float, adaptive: bool, protects: str) -> None:
    """Make the tables if need be, and a new ledger; one that exists stays as it is."""
    address, ledger, name = parts_of(url)
    with transaction(address, name) as connection:
        check_durable(connection, name)
        _migrate(connection, name)
        place = place_on_server(connection, ledger)
        _insert(connection, ledger, new_header(epsilon, delta, adaptive, protects, place))


def exists_on_server(url: str) -> bool:
    """Return whether the server has this ledger."""
    address, ledger, name = parts_of(url)
    with transaction(address, name, reading=True) as connection:
        if version_of_tables(connection, name) == 0:
            _check_schemas(connection, name)
            return False
        return _header(connection, ledger) is not None


def missing_on_server(url: str) -> str:
    """Say that the server does not have a ledger, and which of its names may be meant."""
    address, ledger, name = parts_of(url)
    missing = f"there is no ledger {without_password(url)}"
    with transaction(address, name, reading=True) as connection:
        if version_of_tables(connection, name) == 0:
            return f"{missing}, nor any other in this database"
        found = connection.execute("SELECT name FROM affinedp_ledger ORDER BY name LIMIT 1000")
        names = [str(row[0]) for row in found]
    close = difflib.get_close_matches(ledger, names, _FEW)
    if close:
        return f"{missing}; did you mean {' or '.join(map(repr, close))}?"
    if names:
        more = ", …" if len(names) > _FEW else ""
        return f"{missing}; those that are there: {', '.join(map(repr, names[:_FEW]))}{more}"
    return f"{missing}, nor any other in this database"


@dataclass(frozen=True)
class NewLedger:
    """A name on a server that nobody else can take before this transaction ends.

    Attributes
    ----------
    place : str
        Where it is, as :func:`place_on_server` says.
    target : str
        The same before there are tables: server, database, schema and name, as the server
        resolved them, whatever the address left to the surroundings.
    found : str or None
        The header of the ledger that has this name already.
    """

    connection: psycopg.Connection[Any]
    ledger: str
    place: str
    target: str
    found: str | None

    def fill(self, rows: list[Row]) -> None:
        """Write all events.

        Parameters
        ----------
        rows : list of Row
            As they are written down elsewhere, the last one included.
        """
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO affinedp_event VALUES (%s, %s, %s, %s)",
                [(self.ledger, *row) for row in rows],
            )
            kept = cursor.rowcount
        counted = self.connection.execute(
            "UPDATE affinedp_ledger SET events = %s, head = %s WHERE name = %s",
            (rows[-1][0], rows[-1][2], self.ledger),
        )
        if (kept, counted.rowcount) != (len(rows), 1):  # a trigger or a rule of the tables
            raise LedgerError(f"ledger {self.ledger!r}: the server did not keep all of its events")


@contextmanager
def new_on_server(url: str, header: str) -> Iterator[NewLedger]:
    """Hold a name for a ledger that moves there; everything that may be refused is tried first.

    Parameters
    ----------
    url : str
        ``postgresql://…#name``.
    header : str
        Of the ledger that moves.
    """
    address, ledger, name = parts_of(url)
    with transaction(address, name) as connection:
        check_durable(connection, name)
        _migrate(connection, name)  # kept at once: another name may be held in the same database
    with transaction(address, name) as connection:
        check_durable(connection, name)
        place, target = place_on_server(connection, ledger), _target(connection, ledger)
        found = None if _insert(connection, ledger, header) else _header(connection, ledger)
        new = NewLedger(connection, ledger, place, target, found)
        if found is None:
            connection.execute("SAVEPOINT tried")
            new.fill([(1, "", "")])
            connection.execute("ROLLBACK TO SAVEPOINT tried")
        yield new


def target_on_server(url: str, new: NewLedger) -> tuple[str, bool]:
    """Return where an address leads now, and whether to the same running server and database.

    A copy of a whole server calls itself the same; but a lock that is held on one is free on the
    other.

    Parameters
    ----------
    url : str
        ``postgresql://…#name``.
    new : NewLedger
        A name that is held.
    """
    address, ledger, name = parts_of(url)
    key = secrets.randbits(62)
    new.connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
    with transaction(address, name, reading=True) as connection:
        free = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (key,)).fetchone()
        return _target(connection, ledger), free == (False,)


def _insert(connection: psycopg.Connection[Any], ledger: str, header: str) -> bool:
    """Add a ledger without events; False if there is one, after waiting for who makes it now."""
    made = connection.execute(
        "INSERT INTO affinedp_ledger VALUES (%s, %s, 0, %s) ON CONFLICT DO NOTHING",
        (ledger, header, State.from_header(header).head),
    )
    return made.rowcount == 1


def _header(connection: psycopg.Connection[Any], ledger: str) -> str | None:
    query = "SELECT header FROM affinedp_ledger WHERE name = %s"
    row = connection.execute(query, (ledger,)).fetchone()
    return None if row is None else str(row[0])


def version_of_tables(connection: psycopg.Connection[Any], name: str) -> int:
    """Return the version of the tables, 0 if there are none; a newer affinedp's are refused."""
    found = connection.execute("SELECT to_regclass('affinedp_schema')").fetchone()
    if found is None or found[0] is None:
        return 0
    row = connection.execute("SELECT max(version) FROM affinedp_schema").fetchone()
    version = 0 if row is None or row[0] is None else int(row[0])
    if version > len(MIGRATIONS):
        raise LedgerError(f"{name}: its tables are of a newer affinedp: upgrade this one")
    return version


def _migrate(connection: psycopg.Connection[Any], name: str) -> None:
    """Bring the tables up to date, one program at a time; who may not change them need not."""
    if version_of_tables(connection, name) == len(MIGRATIONS):
        return
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
    _check_schemas(connection, name)  # under the lock: another user may just have made them
    connection.execute("CREATE TABLE IF NOT EXISTS affinedp_schema (version integer NOT NULL)")
    for number in range(version_of_tables(connection, name), len(MIGRATIONS)):
        connection.execute(MIGRATIONS[number])
        connection.execute("INSERT INTO affinedp_schema VALUES (%s)", (number + 1,))


def _check_schemas(connection: psycopg.Connection[Any], name: str) -> None:
    """Refuse new tables beside old ones that this user's search_path does not find."""
    row = connection.execute(
        "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE "
        "relname = 'affinedp_ledger' AND relpersistence <> 't' AND NOT pg_table_is_visible("
        "pg_class.oid) LIMIT 1"
    ).fetchone()
    if row is not None:
        raise LedgerError(
            f"{name}: the schema {row[0]!r} of this database has ledgers, and the search_path of "
            "this user does not find them (new ones in another schema would not know their "
            "charges): put it into the search_path"
        )


def place_on_server(connection: psycopg.Connection[Any], ledger: str) -> str:
    """The cluster, the database, the table and the ledger; a restored dump has another one."""
    row = connection.execute(
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid, "
        "to_regclass('affinedp_ledger')::oid FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    return hashlib.sha256(f"{row}\n{ledger}".encode()).hexdigest()


def _target(connection: psycopg.Connection[Any], ledger: str) -> str:
    """Where a ledger would be; unlike its place it stays the same if the tables are made anew."""
    row = connection.execute(
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid, coalesce((SELECT nspname "
        "FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = "
        "to_regclass('affinedp_ledger')), current_schema()) FROM pg_database "
        "WHERE datname = current_database()"
    ).fetchone()
    server, database, schema = row or ("", "", "")
    return f"server {server}, database {database}, schema {schema}, ledger {ledger}"
