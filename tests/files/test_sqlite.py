"""One way to make, open and refuse SQLite files, whoever they belong to."""

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import pytest

from affinedp.consensus.agents.state import AGENT
from affinedp.control.gateway.state import GATEWAY
from affinedp.files.sqlite import (
    building,
    check_content,
    connect,
    open_existing,
    put_into_place,
    write_whole,
)

KINDS = {"gateway": GATEWAY.kind, "agent": AGENT.kind}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def make(kind, path):
    with building(kind, path) as folder:
        put_into_place(kind, write_whole(kind, folder, path, lambda connection: None), path)


@pytest.fixture
def path(kind, tmp_path):
    path = tmp_path / "file.db"
    make(kind, path)
    return path


def alter(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def refused(kind, path, match, error=None):
    before = path.read_bytes()
    with pytest.raises(error or kind.error, match=match) as refusal:
        open_and_check(kind, path)
    assert path.read_bytes() == before
    others = {"ledger", "gateway", "agent"} - {kind.noun.split()[-1]}
    assert not any(name in str(refusal.value).replace(str(path), "") for name in others)
    return refusal.value


def open_and_check(kind, path):
    connection = open_existing(kind, path)
    try:
        check_content(kind, path, connection)
    finally:
        connection.close()


def test_made_for_its_owner_and_nothing_else_is_left(kind, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["file.db"]
    open_and_check(kind, path)
    assert os.listdir(path.parent) == ["file.db"]


@pytest.mark.parametrize("version", [0, -1])
def test_without_a_version_it_is_damaged(kind, path, version):
    alter(path, f"PRAGMA user_version = {version}")
    refused(kind, path, "no version of the format", kind.damaged)


def test_foreign_and_newer_files(kind, path):
    alter(path, f"PRAGMA user_version = {kind.version + 1}")
    refused(kind, path, "install a newer affinedp")
    alter(path, f"PRAGMA user_version = {kind.version}", "PRAGMA application_id = 7")
    error = refused(kind, path, "another program")
    assert kind.damaged is kind.error or not isinstance(error, kind.damaged)


def test_another_journal(kind, path):
    alter(path, f"PRAGMA journal_mode = {'delete' if kind.journal == 'wal' else 'wal'}")
    refused(kind, path, "by another program")


def test_other_tables(kind, path):
    alter(path, "CREATE TABLE more (a)")
    refused(kind, path, f"not those of {kind.noun}", kind.damaged)


@pytest.mark.parametrize("content", [b"", b"my thesis" * 100, b"SQLite format 3\0" + b"\1" * 5000])
def test_what_is_no_such_file(kind, path, content):
    path.write_bytes(content)
    refused(kind, path, kind.noun, kind.damaged)


def test_read_only_and_readable_by_others(kind, path):
    path.chmod(0o400)
    refused(kind, path, "read-only")
    path.chmod(0o640)
    if kind.secret:
        refused(kind, path, "chmod 600")
    else:
        open_and_check(kind, path)


def test_in_use(kind, path):
    hasty = replace(kind, busy_seconds=0.05)
    with_lock = connect(hasty, path)
    with_lock.execute("BEGIN EXCLUSIVE")
    with pytest.raises(kind.error, match="another (process|gateway|agent)"):
        open_existing(hasty, path).execute("BEGIN IMMEDIATE")
    with_lock.close()


# ---------------------------------------------------------------------- what a crash leaves


def test_nothing_has_its_name_before_it_is_whole(kind, tmp_path):
    path = tmp_path / "file.db"

    def fails(connection):
        folder = tmp_path / ".file.db.part"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"), building(kind, path) as folder:
        write_whole(kind, folder, path, fails)
    assert os.listdir(tmp_path) == []


def test_what_is_there_stays(kind, path):
    content = path.read_bytes()
    with pytest.raises(kind.error, match="cannot be created"):
        make(kind, path)
    assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file.db"]


def test_leftovers_are_removed_before_anything_is_built(kind, tmp_path):
    path, folder = tmp_path / "file.db", tmp_path / ".file.db.part"
    folder.mkdir(0o755)
    (folder / "file").write_bytes(b"secret")
    (folder / "file-wal").write_bytes(b"secret")
    for name in (".file.db.abcd_123.part", ".file.db.abcd_123.part-wal"):
        (tmp_path / name).write_bytes(b"of an older affinedp")
    others = (".file.db.mine.part", ".other.db.abcd_123.part")
    for name in others:
        (tmp_path / name).write_bytes(b"not ours")
    with building(kind, path) as found:
        assert found == folder
        assert list(folder.iterdir()) == []
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sorted(os.listdir(tmp_path)) == sorted((*others, folder.name))
    assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_one_builder_at_a_time(kind, tmp_path):
    path, hasty = tmp_path / "file.db", replace(kind, busy_seconds=0.05)
    with building(kind, path) as folder:
        (folder / "mine").touch()
        with pytest.raises(kind.error, match="another"), building(hasty, path):
            raise AssertionError("two at a time")
        assert (folder / "mine").exists()
    patient, entered = replace(kind, busy_seconds=30.0), []

    def build():
        with building(patient, path) as own:
            entered.append(list(own.iterdir()))
            (own / "mine").touch()

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entered == [[]] * 8
    assert os.listdir(tmp_path) == []


def test_a_builder_that_was_killed_holds_nothing(kind, tmp_path):
    path = tmp_path / "file.db"
    code = """
        import os, sys
        from pathlib import Path
        from affinedp.control.gateway.state import GATEWAY
        from affinedp.files.sqlite import building
        with building(GATEWAY.kind, Path(sys.argv[1])) as folder:
            (folder / "file").write_text("secret")
            os._exit(9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), path], check=False)
    assert done.returncode == 9
    assert (tmp_path / ".file.db.part" / "file").exists()
    make(kind, path)
    assert os.listdir(tmp_path) == ["file.db"]


def test_a_folder_that_is_none(kind, tmp_path):
    (tmp_path / ".file.db.part").write_bytes(b"mine")
    with pytest.raises(kind.error, match="cannot be created"):
        make(kind, tmp_path / "file.db")
    assert (tmp_path / ".file.db.part").read_bytes() == b"mine"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".link.db.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(kind.error, match="cannot be created"):
        make(kind, tmp_path / "link.db")
