"""The state's file: durable, locked, and refused when it was altered."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from affinedp.control.gateway.state import GATEWAY, DamagedStateError, GatewayStateError
from affinedp.files.sqlite import building, put_into_place
from affinedp.once.record import Draw, Head, from_text, to_text
from affinedp.once.state import DrawnState
from affinedp.once.writing import write_state

DRAW = Draw('{"fingerprint": "f"}', b"s" * 64, (2**60, -17, 0))
START = Head(0, (12345678901234567890, -1))


def create_state(path, draw=DRAW, owner=GATEWAY):
    """A new state in its place."""
    with building(owner.kind, path) as folder:
        put_into_place(owner.kind, write_state(owner, folder, path, draw, START), path)


@pytest.fixture
def path(tmp_path):
    path = Path(os.path.realpath(tmp_path)) / "state.db"
    create_state(path)
    return path


def alter(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement, *values in statements:
            connection.execute(statement, *values)
    connection.close()


def run(code, *arguments, **options):
    """Run a script in another process."""
    script = textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, **options,
    )  # fmt: skip


@given(st.lists(st.integers(-(2**600), 2**600)))
def test_text(numbers):
    assert from_text(to_text(numbers)) == tuple(numbers)


def test_what_is_written_is_read(path):
    state = DrawnState(GATEWAY, path)
    assert state.draw == DRAW
    assert state.head == START
    assert state.sent(0) is None
    state.record(0, b"first", Head(1, (5, 6)))
    state.record(3, b"\0\xff", Head(4, (-7, 2**300)))
    state.close()
    state = DrawnState(GATEWAY, path)
    assert state.head == Head(4, (-7, 2**300))
    assert [state.sent(step) for step in range(5)] == [b"first", None, None, b"\0\xff", None]
    state.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["state.db"]


def test_only_its_owner_reads_it(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    state = DrawnState(GATEWAY, path)
    state.record(0, b"x", START)
    for file in path.parent.iterdir():  # the journal too
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    state.close()
    path.chmod(0o640)
    with pytest.raises(GatewayStateError, match="chmod 600"):
        DrawnState(GATEWAY, path)


def test_nothing_secret_is_shown(path):
    state = DrawnState(GATEWAY, path)
    for thing in (state, state.draw, state.head, DRAW):
        assert "12345678901234567890" not in repr(thing)
        assert str(2**60) not in repr(thing)
        assert "sss" not in repr(thing)
    state.close()


def test_one_at_a_time_in_this_process(path):
    state = DrawnState(GATEWAY, path)
    with pytest.raises(GatewayStateError, match="another gateway is using it"):
        DrawnState(GATEWAY, path)
    state.record(0, b"x", Head(1, (0, 0)))  # the refusal did not take the lock away
    with pytest.raises(GatewayStateError, match="another gateway is using it"):
        DrawnState(GATEWAY, path)
    state.close()
    DrawnState(GATEWAY, path).close()


OPEN = """
    import sys
    from pathlib import Path
    from affinedp.control.gateway.state import GATEWAY, GatewayStateError
    from affinedp.once.state import *
    try:
        state = DrawnState(GATEWAY, Path(sys.argv[1]))
    except GatewayStateError as error:
        sys.exit(str(error))
"""


@pytest.mark.slow
def test_one_at_a_time_in_all_processes(path):
    state = DrawnState(GATEWAY, path)
    found = run(OPEN, path)
    assert found.returncode == 1
    assert "another gateway is using it" in found.stderr
    state.close()
    assert run(OPEN, path).returncode == 0
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OPEN) + "print('open', flush=True); input()", path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(GatewayStateError, match="another gateway is using it"):
        DrawnState(GATEWAY, path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    DrawnState(GATEWAY, path).close()


DIE = """
    import os, sys
    from pathlib import Path
    from affinedp.control.gateway.state import GATEWAY, GatewayStateError
    from affinedp.once.state import *

    class Dying:
        def __init__(self, connection): self.connection = connection
        def execute(self, statement, *values):
            if before and statement.startswith(last): os._exit(9)
            found = self.connection.execute(statement, *values)
            if not before and statement.startswith(last): os._exit(9)
            return found

    last, before = sys.argv[2], sys.argv[3] == "before"
    state = DrawnState(GATEWAY, Path(sys.argv[1]))
    state.record(0, b"first", Head(1, (5, 6)))
    state._connection = Dying(state._connection)
    state.record(1, b"second", Head(2, (7, 8)))
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "UPDATE", "COMMIT"])
def test_killed_while_a_step_is_recorded(path, statement, when):
    """All of a step or nothing of it, and never less than what was acknowledged."""
    assert run(DIE, path, statement, when).returncode == 9
    state = DrawnState(GATEWAY, path)
    assert state.sent(0) == b"first"
    if (statement, when) == ("COMMIT", "after"):
        assert state.head == Head(2, (7, 8))
        assert state.sent(1) == b"second"
    else:
        assert state.head == Head(1, (5, 6))
        assert state.sent(1) is None
    state.close()


FULL = """
    import resource, sys
    from pathlib import Path
    from affinedp.control.gateway.state import GATEWAY, GatewayStateError
    from affinedp.once.state import *
    path = Path(sys.argv[1])
    state = DrawnState(GATEWAY, path)
    room = path.stat().st_size + 8192
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    done = 0
    try:
        while True:
            state.record(done, b"x" * 500, Head(done + 1, (done,)))
            done += 1
    except GatewayStateError as error:
        print(error)
    for _ in range(2):
        try:
            state.sent(0)
        except GatewayStateError as error:
            print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    state = DrawnState(GATEWAY, path)
    assert state.head == Head(done, (done - 1,)), (state.head, done)
    assert state.sent(done - 1) == b"x" * 500 and state.sent(done) is None
    state.record(done, b"y", Head(done + 1, (done,)))
    print("mended")
"""


def test_full_disk(path):
    pytest.importorskip("resource")
    found = run(FULL, path)
    assert found.returncode == 0, found.stderr
    first, second, third, last = found.stdout.splitlines()
    assert "open the gateway again" in first
    assert "is closed" in second
    assert second == third
    assert last == "mended"


@pytest.mark.parametrize(
    "statement",
    [
        ("UPDATE draw SET numbers = '1 2 3'",),
        ("UPDATE draw SET salt = ?", (b"t" * 64,)),
        ("UPDATE draw SET header = '{}'",),
        ("UPDATE draw SET commitment = '00'",),
        ("UPDATE draw SET commitment = 7",),
        ("UPDATE draw SET numbers = 'no numbers'",),
        ("DELETE FROM draw",),
        ("INSERT INTO draw SELECT * FROM draw",),
        ("UPDATE path SET numbers = '5 7'",),
        ("UPDATE path SET numbers = ?", (b"\xff",)),
        ("UPDATE path SET next_step = 0",),
        ("UPDATE path SET seal = 'x'",),
        ("DELETE FROM path",),
        ("UPDATE reserved SET step = 0, system = ''",),
        ("UPDATE reserved SET lost = 3",),
        ("DELETE FROM reserved",),
        ("DELETE FROM log",),
        ("UPDATE log SET number = 7",),
        ("UPDATE log SET number = ?", (b"n" * 16,)),
        ("DELETE FROM needs",),
        ("UPDATE needs SET number = ?", (b"the log needed: " + b"n" * 16,)),
        ("DROP TABLE sent",),
        ("CREATE TRIGGER t AFTER INSERT ON sent BEGIN DELETE FROM sent; END",),
    ],
    ids=lambda statement: statement[0],
)
def test_altered_states_are_refused(path, statement):
    state = DrawnState(GATEWAY, path)
    state.record(0, b"first", Head(1, (5, 6)))
    state.close()
    alter(path, statement)
    with pytest.raises(DamagedStateError):
        DrawnState(GATEWAY, path)
    # the refusal leaves no lock behind
    alter(path, ("PRAGMA user_version = 1",))


def test_what_was_sent_is_checked_when_it_is_used(path):
    state = DrawnState(GATEWAY, path)
    for step in range(3):
        state.record(step, b"%d" % step, Head(step + 1, (5, 6)))
    state.close()
    alter(
        path,
        ("UPDATE sent SET outputs = ? WHERE step = 1", (b"9",)),
        ("DELETE FROM sent WHERE step = 2",),
    )
    state = DrawnState(GATEWAY, path)
    assert state.sent(0) == b"0"
    assert state.sent(2) is None  # as if it had been skipped: never sent anew
    assert state.head.next_step == 3
    with pytest.raises(DamagedStateError, match="step 1 was altered"):
        state.sent(1)
    with pytest.raises(GatewayStateError, match="closed"):
        state.sent(0)


@pytest.mark.slow
def test_flipped_bytes_never_pass_for_the_state(path):
    """Whatever byte is altered: a refusal, or the very same contents."""
    original = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in [*range(0, 100, 7), *rng.integers(100, len(original), size=150)]:
        altered = bytearray(original)
        altered[place] ^= 1 << rng.integers(8)
        path.write_bytes(altered)
        try:
            state = DrawnState(GATEWAY, path)
        except GatewayStateError:
            refused += 1
        else:
            assert (state.draw, state.head) == (DRAW, START)
            state.close()
        path.with_name("state.db-wal").unlink(missing_ok=True)
    assert refused > 10


@pytest.mark.parametrize(
    "content", [b"", b"no database at all" * 100, b"SQLite format 3\0" + b"\1" * 5000]
)
def test_files_that_are_no_state(path, content):
    path.write_bytes(content)
    with pytest.raises(DamagedStateError):
        DrawnState(GATEWAY, path)
    assert path.read_bytes() == content


def test_foreign_files_are_left_alone(path, tmp_path):
    with pytest.raises(GatewayStateError, match="cannot be opened"):
        DrawnState(GATEWAY, tmp_path / "nothing")
    with pytest.raises(GatewayStateError, match="not a file"):
        DrawnState(GATEWAY, tmp_path)
    alter(path, ("PRAGMA application_id = 7",))
    with pytest.raises(GatewayStateError, match="another program") as refusal:
        DrawnState(GATEWAY, path)
    assert not isinstance(refusal.value, DamagedStateError)
    alter(path, ("PRAGMA application_id = 0x61644754",), ("PRAGMA user_version = 4",))
    with pytest.raises(GatewayStateError, match="newer affinedp"):
        DrawnState(GATEWAY, path)
    alter(path, ("PRAGMA user_version = 3",), ("PRAGMA journal_mode = DELETE",))
    with pytest.raises(GatewayStateError, match="another kind of journal"):
        DrawnState(GATEWAY, path)


def test_versions_of_the_format(path, monkeypatch):
    """Older programs refuse what newer ones wrote; what older ones wrote is read, then marked."""
    before = replace(GATEWAY)
    with monkeypatch.context() as then:
        then.setattr("affinedp.once.owner.VERSION", 1)
        assert before.kind.version == 1  # it is worked out once

    def version():
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("PRAGMA user_version").fetchone()[0]

    with pytest.raises(GatewayStateError, match=r"version 3 of the format.*knows 1.*newer"):
        DrawnState(before, path)
    older = path.with_name("older.db")
    create_state(older, owner=before)
    path = older
    assert version() == 1
    state = DrawnState(before, path)
    state.record(0, b"first", Head(1, (5, 6)))
    state.close()
    state = DrawnState(GATEWAY, path)
    assert state.head == Head(1, (5, 6))
    state.close()
    assert version() == 1, "it was only looked at"
    state = DrawnState(GATEWAY, path)
    state.record(1, b"second", Head(2, (5, 6, 7)))
    copy = path.with_name("copy.db")
    for ending in ("", "-wal"):  # as a crash would leave it: the new version is in the log alone
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    state.close()
    with pytest.raises(GatewayStateError, match="install a newer affinedp"):
        DrawnState(before, copy)
    assert version() == 2
    with pytest.raises(GatewayStateError, match="install a newer affinedp"):
        DrawnState(before, path)


def test_moved_or_replaced_while_open(path):
    state = DrawnState(GATEWAY, path)
    other = path.with_name("other.db")
    create_state(other)
    os.replace(other, path)
    with pytest.raises(GatewayStateError, match="moved or replaced"):
        state.record(0, b"x", Head(1, (0,)))
    state = DrawnState(GATEWAY, path)
    path.unlink()
    with pytest.raises(GatewayStateError, match="moved or replaced"):
        state.record(0, b"x", Head(1, (0,)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("same_number", [False, True])
def test_fork(path, monkeypatch, same_number):
    if same_number:  # the first process of every container has number 1
        monkeypatch.setattr(os, "getpid", lambda: 1)
    state = DrawnState(GATEWAY, path)
    child = os.fork()
    if child == 0:
        try:
            state.sent(0)
        except GatewayStateError as error:
            os._exit(3 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    state.record(0, b"x", Head(1, (0,)))
    with pytest.raises(GatewayStateError, match="another gateway"):
        DrawnState(GATEWAY, path)
    state.close()


def test_commitment_fixes_everything():
    variants = [
        DRAW,
        Draw(DRAW.header + " ", DRAW.salt, DRAW.numbers),
        Draw(DRAW.header, b"t" + DRAW.salt[1:], DRAW.numbers),
        Draw(DRAW.header, DRAW.salt, (*DRAW.numbers[:2], 1)),
        Draw(DRAW.header, DRAW.salt, DRAW.numbers[:2]),
        Draw("{}", DRAW.salt, (1, 2)),
        Draw("{} 1", DRAW.salt, (2,)),
    ]
    assert len({draw.commitment for draw in variants}) == len(variants)
