"""Whose draw it is: the words and the errors of a gateway or an agent, and the kind of its file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from affinedp.errors import AffineDPError
from affinedp.files.sqlite import SqliteKind

# All owners' states share it.  It grows when what older programs wrote is still read, and they
# would misread what is written now: they refuse it by this number.  Since 2 a gateway keeps numbers
# that were drawn ahead behind the memory of stationary noise.  Since 3 a file knows which log it
# needs; older states are read and written as they are.
VERSION = 3
KNOWS_ITS_LOG = 3
APPLICATION_ID = 0x61644754  # "adGT"
# One that is just being closed gets this long.
BUSY_SECONDS = 0.5

_TABLES = (
    "CREATE TABLE draw (header TEXT NOT NULL, salt BLOB NOT NULL, numbers TEXT NOT NULL, "
    "commitment TEXT NOT NULL)",
    "CREATE TABLE path (next_step INTEGER NOT NULL, numbers TEXT NOT NULL, seal BLOB NOT NULL)",
    "CREATE TABLE reserved (step INTEGER NOT NULL, lost INTEGER NOT NULL, system TEXT NOT NULL, "
    "seal BLOB NOT NULL)",
    "CREATE TABLE sent (step INTEGER PRIMARY KEY, outputs BLOB NOT NULL, seal BLOB NOT NULL)",
)
_LOG = (
    "CREATE TABLE log (number BLOB NOT NULL, before BLOB NOT NULL)",
    "CREATE TABLE needs (number BLOB NOT NULL)",
)
SCHEMAS = {1: _TABLES, 2: _TABLES, 3: (_TABLES[0], *_LOG, *_TABLES[1:])}


@dataclass(frozen=True)
class Owner:
    """Who draws once, and how it speaks.

    Attributes
    ----------
    name : str
        What it is called, such as "gateway"; also in the labels of charges.
    article : str
        "a" or "an".
    subject : str
        What one draw is for, such as "trajectory".
    occasion : str
        What has a label in the ledger, such as "run".
    form : str
        What the header of its states says they are.
    copies_leak : bool
        Whether two that go on from one draw would give it away.  Then a state is only used where
        it was drawn, or where someone vouches that it was moved to.
    error, damaged : type
        What is raised, and what is raised where a state cannot be trusted; the second must be a
        subclass of the first.
    """

    name: str
    article: str
    subject: str
    occasion: str
    form: str
    copies_leak: bool
    error: type[AffineDPError]
    damaged: type[AffineDPError]

    @property
    def noun(self) -> str:
        """The owner with its article."""
        return f"{self.article} {self.name}"

    @cached_property
    def kind(self) -> SqliteKind:
        """What its states are as files."""
        return SqliteKind(
            noun=f"the state of {self.noun}",
            application_id=APPLICATION_ID,
            schemas={number: SCHEMAS[number] for number in range(1, VERSION + 1)},
            journal="wal",  # one sync per step; a rollback journal takes four
            exclusive=True,
            secret=True,
            # when the log is copied into the file is for the state to say: see once/log.py
            settings=("locking_mode=EXCLUSIVE", "synchronous=FULL", "wal_autocheckpoint=0"),
            busy_seconds=BUSY_SECONDS,
            error=self.error,
            damaged=self.damaged,
            busy=f"another {self.name} is using it: one state serves one {self.name}",
            full=f"the disk is full; make room and open the {self.name} again",
            otherwise=f"open the {self.name} again when this is mended",
        )
