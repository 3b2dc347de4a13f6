"""What is special about a ledger in a file: SQLite, its bytes, and the disk."""

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from affinedp.budget.ledger import Ledger, LedgerError, LedgerWarning
from affinedp.budget.sqlite import FileStore
from affinedp.errors import AffineDPError
from ledgers import CAP, altered, charge, run


def test_file_is_private_and_alone(tmp_path):
    path = tmp_path / "budget.db"
    Ledger(path, **CAP).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [path.name]
    with Ledger(str(path)) as ledger:
        charge(ledger, "laplace", 0.1)
        assert os.listdir(tmp_path) == [path.name]


def test_commits_are_durable(path):
    Ledger(path, **CAP).close()
    with contextlib.closing(FileStore(path).connected()) as connection:
        pragma = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "fullfsync")
        }
    assert pragma == {"journal_mode": "delete", "synchronous": 3, "fullfsync": 1}


@pytest.mark.parametrize("name", ["a b.db", "50%?#.db", "ü'\".db", ":memory:"])
def test_odd_file_names(tmp_path, name):
    with Ledger(tmp_path / name, epsilon=1.0, protects="one person") as ledger:
        charge(ledger, "laplace", 0.5)
    with Ledger(tmp_path / name) as ledger:
        assert ledger.spent == 0.5
    assert os.listdir(tmp_path) == [name]


def test_relative_path_and_symlink(tmp_path, path, monkeypatch):
    Ledger(path, **CAP).close()
    (tmp_path / "link").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger("budget.db").close()
        Ledger("link").close()


# ---------------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def good():
    """The bytes of a ledger, and what it says."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "budget.db"
        with Ledger(path, **CAP) as ledger:
            for i in range(12):
                law = "laplace" if i % 2 else "gaussian"
                entry = charge(ledger, law, 0.01 + i / 1e3, label=f"{i}")
                if i % 3:
                    ledger.settle(entry)
        yield path.read_bytes(), told(path)


def told(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LedgerWarning)
        with Ledger(path) as ledger:
            problems = [text for text in ledger.check() if "moved or copied" not in text]
            assert problems == []
            return ledger.epsilon, ledger.delta, ledger.adaptive, ledger.spent, ledger.history()


def refused(path, match=None):
    """It is refused, and left as it is."""
    before = contents(path.parent)
    for arguments in ({}, CAP, {"create": False}):
        with pytest.raises(LedgerError, match=match):
            Ledger(path, **arguments)
    assert contents(path.parent) == before


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_missing_and_misplaced(tmp_path):
    with pytest.raises(LedgerError, match="no directory"):
        Ledger(tmp_path / "no" / "budget.db", **CAP)
    inside = tmp_path / "a folder"  # beside which nobody else writes
    inside.mkdir()
    refused(inside, "not a file")
    for bad in (None, 7, "a\0b"):
        with pytest.raises(AffineDPError):
            Ledger(bad, **CAP)
    assert [*os.listdir(tmp_path), *os.listdir(inside)] == ["a folder"]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150)
def test_damaged_bytes_are_noticed(good, data):
    content, _ = good
    damaged = bytearray(content)
    # half of the damage to the header and the schema, where it can do most
    places = st.one_of(st.integers(0, 700), st.integers(0, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(places)] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as name:
        unchanged_or_refused(Path(name) / "budget.db", damaged, good)


def unchanged_or_refused(path, damaged, good):
    _, says = good
    path.write_bytes(damaged)
    try:
        assert told(path) == says
    except LedgerError:
        assert path.read_bytes() == damaged
        return
    # the damage was to bytes that mean nothing, and stays without meaning
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LedgerWarning)
        with Ledger(path) as ledger, contextlib.suppress(LedgerError):
            charge(ledger, "laplace", 1e-3, label="x" * 900)
    assert told(path)[-1][: len(says[-1])] == says[-1]


@pytest.mark.slow
def test_every_header_byte(tmp_path, good):
    content, _ = good
    for place in range(100):
        for flip in (0x01, 0x03, 0x80):
            damaged = bytearray(content)
            damaged[place] ^= flip
            path = tmp_path / f"{place}-{flip}.db"
            unchanged_or_refused(path, damaged, good)
            path.unlink()


def test_damage_that_sqlite_does_not_see_at_once(tmp_path, good):
    """The name of a table, which SQLite quotes in a message that is no text; free pages."""
    content, _ = good
    path = tmp_path / "budget.db"
    path.write_bytes(content.replace(b"CREATE TABLE event", b"CREATE TABLE \xff\xfeent"))
    refused(path)
    for place in range(32, 40):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        refused(path)


def test_truncated_empty_and_other_files(path, good):
    content, _ = good
    sizes = (1, 15, 16, 99, 100, 511, 512, 4095, 4096, 8192, len(content) - 4096, len(content) - 1)
    others = (b"not a database", b"SQLite format 3\0", os.urandom(5000), b"\0" * 8192)
    for broken in (*(content[:size] for size in sizes), *others):
        path.write_bytes(broken)
        refused(path)
    path.write_bytes(b"")
    refused(path, "empty file")


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_foreign_database_is_left_alone(path, journal):
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute(f"PRAGMA journal_mode={journal}")
        other.execute("CREATE TABLE event (number INTEGER PRIMARY KEY, body TEXT, hash TEXT)")
    other.close()
    refused(path, "another program")


def test_foreign_write_ahead_log_is_left_alone(path):
    run(
        """
        import sqlite3
        other = sqlite3.connect(address, isolation_level=None)
        other.execute("CREATE TABLE t (a)")
        other.execute("PRAGMA journal_mode=wal")
        other.execute("INSERT INTO t VALUES (1)")
        os._exit(0)  # with the row in the log only
        """,
        path,
    )
    assert path.with_name("budget.db-wal").stat().st_size > 0
    refused(path, "another program")


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("PRAGMA journal_mode=wal", "write-ahead"),
        ("PRAGMA user_version = 0", "make an older ledger anew"),
        ("PRAGMA user_version = 1", "make an older ledger anew"),
        ("PRAGMA user_version = 3", "newer"),
        ("UPDATE event SET body = CAST(body AS BLOB) WHERE number = 1", "cannot be trusted"),
        ("INSERT INTO event SELECT 2, body, hash FROM event", "cannot be trusted"),
        ("INSERT INTO ledger SELECT * FROM ledger", "cannot be trusted"),
        ("DELETE FROM ledger", "cannot be trusted"),
        ("CREATE TABLE more (a)", "cannot be trusted"),
        (
            "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM event; END",
            "cannot be trusted",
        ),
        ("DROP TABLE event", "cannot be trusted"),
    ],
)
def test_what_another_program_made_of_it(path, statement, match):
    with Ledger(path, **CAP) as ledger:
        charge(ledger, "laplace", 0.1)
        altered(path, statement)
        assert ledger.check()
        if "TABLE" in statement or "TRIGGER" in statement or "ledger" in statement:
            with pytest.raises(LedgerError):
                charge(ledger, "laplace", 0.1)
    refused(path, match)


def test_read_only(path):
    Ledger(path, **CAP).close()
    path.chmod(0o400)
    refused(path, "read-only")


def test_moves_and_backups_are_noticed(path, tmp_path):
    with Ledger(path, **CAP) as ledger:
        charge(ledger, "laplace", 0.1)
    content = path.read_bytes()
    path.rename(tmp_path / "moved.db")
    with pytest.warns(LedgerWarning, match="moved or copied"):
        ledger = Ledger(tmp_path / "moved.db")
    with ledger:
        ledger.acknowledge_move()
    path.write_bytes(content)  # a backup, put back in place
    with pytest.warns(LedgerWarning):
        Ledger(path).close()


def test_file_replaced_while_open(path, tmp_path):
    other = tmp_path / "other.db"
    Ledger(other, **CAP).close()
    with Ledger(path, **CAP) as ledger:
        charge(ledger, "laplace", 0.1)
        other.replace(path)
        with pytest.raises(LedgerError, match="replaced"):
            charge(ledger, "laplace", 0.1)
        path.unlink()
        with pytest.raises(LedgerError, match="gone"):
            charge(ledger, "laplace", 0.1)


# ---------------------------------------------------------------------- full disks, kills


def test_full_disk(path, monkeypatch):
    with Ledger(path, **CAP) as ledger:
        full = (*FileStore.settings, f"max_page_count = {os.path.getsize(path) // 4096}")
        monkeypatch.setattr(FileStore, "settings", full)
        charged = []
        with pytest.raises(LedgerError, match="disk is full"):  # noqa: PT012
            for _ in range(100):
                charged.append(charge(ledger, "laplace", 1e-3, label="x" * 500))
        assert [entry.id for entry in ledger.history()] == charged
        monkeypatch.undo()
        charge(ledger, "laplace", 1e-3)
        assert ledger.check() == ()


def test_file_that_must_not_grow(tmp_path):
    path = tmp_path / "budget.db"
    out = run(
        """
        import resource
        with Ledger(address, epsilon=1.0, protects="one person") as ledger:
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(address) + 8192,) * 2)
            count = 0
            try:
                while True:
                    ledger.charge(guarantee(1e-4), fingerprint="f", label="x" * 500)
                    count += 1
            except LedgerError as error:
                print(count, len(ledger.history()), ledger.check())
        """,
        path,
    )
    count, recorded, problems = out.split(maxsplit=2)
    assert count == recorded != "0"
    assert problems.strip() == "()"
    with Ledger(path) as ledger:
        assert len(ledger.history()) == int(count)


def test_opening_keeps_the_locks_of_this_process(path):
    """POSIX drops all locks of a process on a file when it closes it once."""
    with Ledger(path, epsilon=1.0, protects="one person"):
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        Ledger(path).close()
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0.05).execute('BEGIN IMMEDIATE')"
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
        assert "locked" in done.stderr
        holder.close()


@pytest.mark.slow
def test_kills_while_it_is_created(tmp_path):
    out = run(
        """
        random.seed(2)
        whole = 0
        for i in range(40):
            name = f"{address}/{i}.db"
            child = os.fork()
            if child == 0:
                Ledger(name, epsilon=1.0, protects="one person")
                os._exit(0)
            time.sleep(random.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if os.path.exists(name):
                with Ledger(name, create=False) as ledger:
                    assert ledger.check() == ()
                whole += 1
            Ledger(name, epsilon=1.0, protects="one person").close()
        print(whole)
        """,
        tmp_path,
    )
    assert 0 <= int(out) <= 40


def test_import_does_not_need_the_accounting_extra():
    code = "import sys, affinedp.budget.ledger; print('dp_accounting' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
