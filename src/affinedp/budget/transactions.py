"""Connections to a server and transactions on it: every one has the same limits and settings.

Nobody waits for ever.  Locks are waited for up to ``LOCK_SECONDS``; a program that falls silent in
the middle of a transaction is cut off before that, so that it does not hold a ledger for all
others; and a network that falls silent is noticed by both sides.  What is committed waits for the
disk and the replicas, and a server that gives up waiting for a replica says so in a warning, which
no setting of the user may suppress.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from affinedp.budget.address import ENCODE
from affinedp.budget.state import LedgerError, LedgerUnreachableError
from affinedp.errors import MissingExtraError

if TYPE_CHECKING:
    import psycopg

LOCK_SECONDS = 30
# Who falls silent while others wait is ended before they give up.
IDLE_SECONDS = 20
ATTEMPTS = 5
_STARTING = ("starting up", "recovery", "not yet accepting connections")
# libpq waits for a silent network for hours; what the address says comes first
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}


def connected(address: str, name: str) -> psycopg.Connection[Any]:
    """Return an open connection; a server that is just starting is waited for.

    Parameters
    ----------
    address : str
        As libpq knows it.
    name : str
        What refusals call the ledger.
    """
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    failure = ""
    for attempt in range(ATTEMPTS):
        try:
            # autocommit: transactions are begun and ended in words, as for the file; nothing is
            # prepared, since behind a pool the next transaction may be on another connection;
            # and one encoding for all, or a name would be two names where the server has none
            settings: dict[str, Any] = {**_PATIENCE, **conninfo_to_dict(address)}
            settings["client_encoding"] = "UTF8"
            return psycopg.connect(autocommit=True, prepare_threshold=None, **settings)
        except psycopg.OperationalError as error:
            failure = words_of(error)
            if not any(words in failure for words in _STARTING):
                break
            time.sleep(0.2 * 2**attempt)
        except psycopg.Error:  # its words may be those of the password
            failure = f"its address is not one. {ENCODE}"
            break
    raise LedgerUnreachableError(f"{name} cannot be reached: {failure}")


def begin(connection: psycopg.Connection[Any], *, reading: bool = False) -> None:
    """Begin a transaction with all its settings.

    Parameters
    ----------
    connection : psycopg.Connection
        Without a transaction.
    reading : bool
        Whether it only looks, at one moment.
    """
    kind = "REPEATABLE READ READ ONLY" if reading else "READ COMMITTED"
    connection.execute(
        f"BEGIN ISOLATION LEVEL {kind}; SET LOCAL synchronous_commit = on; "
        f"SET LOCAL client_min_messages = warning; SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; "
        f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
    )


def commit(connection: psycopg.Connection[Any]) -> tuple[bool, str]:
    """Commit; return whether there was anything to commit, and what the server warns of.

    A server that gives up waiting for its replicas warns, and confirms: what it confirmed would be
    forgotten if one of them took over.

    Parameters
    ----------
    connection : psycopg.Connection
        In a transaction.
    """
    warned: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warned.append(str(notice.message_primary))

    connection.add_notice_handler(listen)
    try:
        done = connection.execute("COMMIT").statusmessage == "COMMIT"
    finally:
        connection.remove_notice_handler(listen)
    return done, warned[0] if warned else ""


def roll_back(connection: psycopg.Connection[Any]) -> None:
    """End a transaction, if there is one; a connection that cannot is closed.

    Parameters
    ----------
    connection : psycopg.Connection
        In a transaction, or not.
    """
    import psycopg

    try:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()


@contextmanager
def transaction(
    address: str, name: str, *, reading: bool = False
) -> Iterator[psycopg.Connection[Any]]:
    """A transaction over a connection of its own: all of it is kept for good, or it is refused.

    Parameters
    ----------
    address : str
        As libpq knows it.
    name : str
        What refusals call the ledger.
    reading : bool
        Whether it only looks.
    """
    connection = connected(address, name)
    try:
        with refusals(name):
            begin(connection, reading=reading)
            yield connection
            done, warning = commit(connection)
        if warning or not done:
            raise LedgerError(
                f"{name}: {warning or 'its transaction was ended by another hand'}. It may have "
                "been kept all the same, and be lost again if another server takes over: try again"
            )
    finally:
        connection.close()


@contextmanager
def refusals(name: str, otherwise: str = "") -> Iterator[None]:
    """Turn the server's errors into refusals.

    Parameters
    ----------
    name : str
        What they call the ledger.
    otherwise : str
        What is to be done.
    """
    import psycopg

    try:
        yield
    except psycopg.errors.LockNotAvailable:
        raise LedgerUnreachableError(
            f"{name}: another program has held it for {LOCK_SECONDS} s; try again"
        ) from None
    except psycopg.OperationalError as error:
        raise LedgerUnreachableError(f"{name}: {words_of(error)}{otherwise}") from None
    except psycopg.Error as error:
        raise LedgerError(f"{name}: {words_of(error)}{otherwise}") from None


def words_of(error: psycopg.Error) -> str:
    """Return what an error says, on one line.

    Parameters
    ----------
    error : psycopg.Error
        libpq writes several lines.
    """
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__


def check_durable(connection: psycopg.Connection[Any], name: str) -> None:
    """Refuse a server, or tables, that may forget what was confirmed.

    Parameters
    ----------
    connection : psycopg.Connection
        To the server as it is now: both may change while it is open.
    name : str
        What refusals call the ledger.
    """
    synced, lost = connection.execute(
        "SELECT current_setting('fsync'), (SELECT min(relname::text) FROM pg_class WHERE oid IN "
        "(to_regclass('affinedp_ledger'), to_regclass('affinedp_event')) AND relpersistence <> 'p')"
    ).fetchone() or ("", None)
    if synced != "on":
        raise LedgerError(
            f"{name}: the server runs with fsync = off and may forget charges when it "
            "crashes; turn it on"
        )
    if lost is not None:
        raise LedgerError(
            f"{name}: the table {lost} is emptied when the server crashes, and charges "
            "with it: ALTER TABLE … SET LOGGED"
        )
