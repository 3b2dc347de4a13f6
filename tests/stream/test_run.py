"""A run: whatever happens to it, no step leaves twice, and nothing is drawn in silence."""

import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import pytest

from affinedp.budget.ledger import BudgetExceededError, Ledger
from affinedp.consensus.one_draw import AgentNoise
from affinedp.errors import AffineDPError
from affinedp.stream import run as run_module
from affinedp.stream.run import REGISTER, Asked, Beginning, Owner, Run, RunError
from disks import MortalDisk, SmallDisk

MECHANISM = AgentNoise(epsilon=1.0, delta=0.01).mechanism()
OWNER = Owner("thing", "subject")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def drawn(settings, draw):
    def charged(ledger, label):
        if ledger is not None:
            fingerprint = MECHANISM.fingerprint
            ledger.charge(MECHANISM.guarantee, fingerprint=fingerprint, label=label)
        return draw() if draw else {"number": f"{random.getrandbits(300):x}", "at": 0}

    return Beginning(settings or {"a": 1}, charged)


def opened(path, owner=OWNER, settings=None, draw=None, **asked):
    def check(found, memory):
        assert found == (settings or {"a": 1})

    return Run(path, owner, lambda: drawn(settings, draw), check, Asked(**asked))


def advanced(run, until):
    run.commit(until, {**run.memory, "at": until})


@pytest.fixture
def path(tmp_path):
    (tmp_path / "states").mkdir()
    return tmp_path / "states" / "run.db"


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db", epsilon=10.0, delta=0.05, protects="one thing") as ledger:
        yield ledger


def names(path):
    return sorted(p.name for p in path.parent.iterdir())


# ---------------------------------------------------------------------- going on


def test_what_is_committed_is_found_again(path):
    run = opened(path)
    commitment, number = run.commitment, run.memory["number"]
    run.keep(0, b"first")
    advanced(run, 3)
    run.keep(2, b"third")
    assert run.sent(0) == b"first"
    assert run.sent(2) == b"third"
    run.rest = lambda: (3, {**run.memory, "at": 3})
    run.close()
    run.close()
    run = opened(path)
    assert (run.until, run.memory) == (3, {"number": number, "at": 3})
    assert [run.sent(step) for step in range(4)] == [b"first", None, b"third", None]
    assert (run.commitment, run.settings) == (commitment, {"a": 1})
    run.commit(4, run.memory, forget=1)
    assert [run.sent(step) for step in range(3)] == [None, None, b"third"]
    run.close()
    seen = Run.look(path, OWNER)
    assert (seen.settings, seen.memory, seen.sent(2)) == ({"a": 1}, run.memory, b"third")
    with pytest.raises(RunError, match="was only looked at"):
        advanced(seen, 9)
    advanced(opened(path), 9)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path) == [REGISTER, "run.db"]


def test_what_a_close_gives_back(path):
    run = opened(path)
    advanced(run, 200)
    run.rest = lambda: (20, {**run.memory, "at": 20})
    run.close()
    assert opened(path).until == 20
    assert opened(path).memory["at"] == 20


def test_blocks_hold_a_quarter_of_a_second(path, monkeypatch):
    moment = [100.0]
    monkeypatch.setattr(run_module.time, "monotonic", lambda: moment[0])
    run = opened(path)
    assert run.block(0) == 1
    moment[0] += 1.0
    assert run.block(1) == 2
    moment[0] += 0.1
    assert run.block(41) == 41 + 100
    assert run.block(5000) == 5000 + 256
    assert run.block(5001, 5100) == 5100


def test_the_row_is_on_the_disk_before_anything_leaves(path, monkeypatch):
    """Durable in SQLite's own words, and no secret is left where it was."""
    run, asked = opened(path), []
    connect = sqlite3.connect

    def watched(*given, **named):
        db = connect(*given, **named)
        db.set_trace_callback(asked.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", watched)
    advanced(run, 1)
    for setting in ("synchronous=EXTRA", "journal_mode", "fullfsync=ON", "secure_delete=ON"):
        assert f"PRAGMA {setting}" in asked
    assert asked[-1] == "COMMIT"


def test_a_write_ahead_log_is_refused(path):
    """A copy of the file without the log beside it would have forgotten commits."""
    run = opened(path)
    advanced(run, 1)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal"
    with pytest.raises(RunError, match="write-ahead"):
        advanced(run, 2)
    with pytest.raises(RunError, match="write-ahead"):
        opened(path)


def test_a_foreign_file_is_left_as_it_is(path):
    """Also one with a write-ahead log, which opening it to write would turn back."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE t (a)")
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(RunError, match="another program"):
        opened(path)
    assert path.read_bytes() == before


def test_a_second_opening_takes_over(path):
    first = opened(path)
    advanced(first, 10)
    second = opened(path)
    assert second.until == 10
    with pytest.raises(RunError, match="goes on there"):
        advanced(first, 20)
    with pytest.raises(RunError, match="met an error"):
        advanced(first, 20)
    first.close()
    advanced(second, 20)
    assert opened(path).until == 20


# ---------------------------------------------------------------------- crashes

KILLED = """
    import os, sys
    from contextlib import suppress
    from affinedp.budget.ledger import Ledger
    sys.path.insert(0, sys.argv[4])
    from test_run import advanced, opened

    devnull = os.open(os.devnull, os.O_WRONLY)
    idle = {
        "pwrite64": lambda: os.pwrite(devnull, b"", 0),
        "fdatasync": lambda: os.fdatasync(devnull),
        "unlink": lambda: os.unlink("/nowhere/at/all"),
    }[sys.argv[5]]
    for i in range(int(sys.argv[2])):
        folder = f"{sys.argv[1]}/{i}"
        child = os.fork()
        if child == 0:
            for _ in range(int(sys.argv[3]) - i * int(sys.argv[6])):
                with suppress(OSError):
                    idle()
            out = os.open(f"{folder}/out", os.O_WRONLY | os.O_CREAT)
            ledger = Ledger(f"{folder}/budget")
            run = opened(f"{folder}/run", ledger=ledger)
            os.write(out, f"{run.memory['number']}\\n".encode())
            for step in range(4):
                run.keep(step, str(step).encode())
                if step % 2 == 0:
                    advanced(run, step + 2)
                os.write(out, f"{step}\\n".encode())
            run.close()
            os._exit(0)
        os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace, to kill at a system call")
@pytest.mark.parametrize(("call", "every"), [("pwrite64", 9), ("fdatasync", 3), ("unlink", 1)])
def test_killed_at_every_write(tmp_path, call, every):
    """Each child is killed some calls later than the one before, from another place every time.

    Calls are writes, syncs and removals, those of the ledger included.
    """
    count, code = 14, textwrap.dedent(KILLED)
    for i in range(count):
        (tmp_path / str(i)).mkdir()
        with Ledger(tmp_path / str(i) / "budget", epsilon=9, delta=0.1, protects="a thing"):
            pass
    last = str(every * count - random.randrange(every))
    inject = f"inject={call}:signal=KILL:when={every * count}"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", inject,
         sys.executable, "-c", code, tmp_path, str(count), last, Path(__file__).parent,
         call, str(every)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])},
    )  # fmt: skip
    if "PTRACE" in done.stderr:
        pytest.skip("no process may be traced here")
    ends = set()
    for i in range(count):
        folder = tmp_path / str(i)
        out = folder / "out"
        said = out.read_text().splitlines() if out.exists() else []
        with Ledger(folder / "budget") as ledger:
            run = opened(folder / "run", ledger=ledger)
            assert [entry.status for entry in ledger.history()] == ["released"]
        sent = [int(step) for step in said[1:]]
        assert run.until > max(sent, default=-1), "a step would leave twice"
        assert run.memory["at"] in (run.until, 0)
        if said:
            assert run.memory["number"] == said[0]
        for step in sent[: len(sent) // 2 * 2]:
            assert run.sent(step) in (str(step).encode(), None)
        ends.add(len(said))
        advanced(run, run.until + 1)
        run.close()
    assert len(ends) >= 3, "kills must come at every stage"


SENDING = """
    import os, sys
    sys.path.insert(0, sys.argv[2])
    from test_run import advanced, opened
    run = opened(sys.argv[1])
    step = run.until
    print(run.memory["number"], flush=True)
    while True:
        if step >= run.until:
            advanced(run, step + 7)
        print(step, flush=True)
        step += 1
"""


@pytest.mark.slow
def test_power_cuts(tmp_path):
    with MortalDisk(tmp_path) as disk:
        place, seen, numbers = disk.place / "run", set(), set()
        for lines in (1, 2, 40, 90):
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(SENDING), place, Path(__file__).parent],
                stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])},
            )  # fmt: skip
            printed = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGSTOP)
            left = disk.snapshot()
            process.kill()
            printed += process.communicate()[0].splitlines(keepends=True)
            numbers.add(printed[0])
            for line in printed[1:]:
                if line.endswith("\n"):
                    assert int(line) not in seen, "a step went out twice"
                    seen.add(int(line))
            disk.boot(left)
        assert len(numbers) == 1
        run = opened(place)
        assert run.until > max(seen)
        assert run.memory["at"] == run.until


class Failing:
    """A connection that fails at one statement."""

    def __init__(self, db, statement):
        self.db, self.statement = db, statement

    def execute(self, text, *values):
        if text.startswith(self.statement):
            raise sqlite3.OperationalError("disk I/O error")
        return self.db.execute(text, *values)

    def __getattr__(self, name):
        return getattr(self.db, name)


@pytest.mark.parametrize("statement", ["BEGIN", "UPDATE", "COMMIT"])
def test_a_commit_that_fails(path, monkeypatch, statement):
    run = opened(path)
    advanced(run, 5)
    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *a, **k: Failing(connect(*a, **k), statement))
        with pytest.raises(RunError, match="disk I/O error"):
            advanced(run, 10)
    with pytest.raises(RunError, match="met an error"):
        advanced(run, 10)
    run.close()
    again = opened(path)
    assert (again.until, again.memory["at"]) == (5, 5)


def test_a_full_disk(tmp_path):
    with SmallDisk(tmp_path, 400) as disk:
        run = opened(disk.place / "run")
        advanced(run, 1)
        disk.fill()

        def write():
            while True:
                run.keep(run.until, bytes(2000))
                advanced(run, run.until + 1)

        with pytest.raises(RunError, match=r"disk is full|disk I/O error"):
            write()
        disk.make_room()
        again = opened(disk.place / "run")
        assert again.until == again.memory["at"] == run.until
        advanced(again, run.until + 1)


# ---------------------------------------------------------------------- forks, threads, signals


def in_child(act):
    """What a forked child says, and how it ends."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(act()).encode())
            os._exit(0)
        except RunError as error:
            os.write(write, str(error).encode())
            os._exit(7)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


@needs_fork
@pytest.mark.parametrize("same_number", [False, True])
def test_a_child_does_not_go_on(path, monkeypatch, same_number):
    """Nor where both are number 1, as in containers; and its close closes nothing."""
    if same_number:
        monkeypatch.setattr(os, "getpid", lambda: 1)
    run = opened(path)
    advanced(run, 5)

    def act():
        run.close()
        with run.turn():
            advanced(run, 9)

    code, said = in_child(act)
    assert code == 7
    assert "before a fork" in said
    advanced(run, 9)
    run.close()
    assert opened(path).until == 9


@needs_fork
def test_a_child_of_a_thread_in_the_middle_of_a_step(path):
    """It is refused, and does not wait for a thread that the child does not have."""
    run, inside, go_on = opened(path), threading.Event(), threading.Event()

    def work():
        with run.turn():
            inside.set()
            go_on.wait()
            advanced(run, 3)

    def act():
        with run.turn():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    code, said = in_child(act)
    go_on.set()
    thread.join()
    assert code == 7
    assert "before a fork" in said
    assert run.until == 3


@pytest.mark.slow
@needs_fork
def test_a_fork_in_the_middle_of_a_commit(path):
    """A child that ends while a thread of its parent commits does not roll that back."""
    run = opened(path)
    for step in range(40):
        thread = threading.Thread(target=advanced, args=(run, step + 1))
        thread.start()
        child = os.fork()
        if child == 0:
            os._exit(0)
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
    assert opened(path).until == 40


def test_threads_take_turns(path):
    run, taken = opened(path), []

    def work():
        for _ in range(20):
            with run.turn():
                step = len(taken)
                advanced(run, step + 1)
                taken.append(step)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == list(range(60))
    assert run.until == 60


def test_a_close_that_interrupts_a_step(path):
    """It waits for the end of the step; nothing else may be done in between."""
    run = opened(path)
    with run.turn():
        run.close()
        with pytest.raises(RunError, match="in the middle of a step"), run.turn():
            pass
        advanced(run, 1)
    with pytest.raises(RunError, match="is closed: open it again"), run.turn():
        pass
    assert opened(path).until == 1


# ---------------------------------------------------------------------- copies


def test_a_copy_is_not_used_beside_its_original(path):
    opened(path).close()
    shutil.copy(path, path.with_name("copy"))
    os.link(path, path.with_name("link"))
    os.symlink(path, path.with_name("name"))
    for other in ("copy", "link"):
        with pytest.raises(RunError, match=r"was not drawn here.*moved=True"):
            opened(path.with_name(other))
    opened(path.with_name("name")).close()
    opened(path.with_name("copy"), moved=True).close()
    opened(path.with_name("copy")).close()
    os.rename(path.parent, path.parent.with_name("renamed"))
    with pytest.raises(RunError, match="was not drawn here"):
        opened(path.parent.with_name("renamed") / "run.db")
    opened(path.parent.with_name("renamed") / "run.db", moved=True)


def test_an_older_copy(path):
    run = opened(path)
    advanced(run, 5)
    copy = shutil.copy(path, path.parent.parent / "copy")
    advanced(run, 10)
    run.close()
    shutil.copy(copy, path)
    with pytest.raises(RunError, match=r"older copy.*Put back"):
        opened(path)
    with pytest.raises(RunError, match="older copy"):
        opened(path, moved=True)


def test_an_older_copy_of_a_run_that_crashed(path):
    first = opened(path)
    advanced(first, 5)
    copy = shutil.copy(path, path.parent.parent / "copy")
    opened(path)  # and no close: it crashed
    shutil.copy(copy, path)
    with pytest.raises(RunError, match="older copy"):
        opened(path)


def test_an_older_copy_while_it_is_open(path):
    run = opened(path)
    advanced(run, 5)
    copy = shutil.copy(path, path.parent.parent / "copy")
    advanced(run, 10)
    path.write_bytes(Path(copy).read_bytes())
    with pytest.raises(RunError, match="goes on there"):
        advanced(run, 20)


def test_moved_or_replaced_while_open(path):
    run = opened(path)
    os.rename(path, path.with_name("other"))
    with pytest.raises(RunError, match=r"run.db"):
        advanced(run, 1)
    os.rename(path.with_name("other"), path)
    run = opened(path)
    os.rename(path, path.with_name("other"))
    shutil.copy(path.with_name("other"), path)
    path.chmod(0o600)
    advanced(run, 3)  # the same row: whoever comes next finds it here
    assert opened(path).until == 3


def test_copies_of_agents_are_free(path):
    owner = Owner("agent", "value", copies_leak=False)
    opened(path, owner).close()
    shutil.copy(path, path.with_name("copy"))
    opened(path.with_name("copy"), owner).close()


def test_a_copy_without_a_draw_pays_for_itself(path, ledger):
    """Who crashed after the charge draws without another; a copy of its file does not."""

    def crash():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(path, draw=crash, ledger=ledger)
    (path.parent / "elsewhere").mkdir()
    shutil.copy(path, path.parent / "elsewhere" / "run.db")
    opened(path, ledger=ledger).close()
    assert [entry.status for entry in ledger.history()] == ["released"]
    opened(path.parent / "elsewhere" / "run.db", ledger=ledger).close()
    assert [entry.status for entry in ledger.history()] == ["released"] * 2


# ---------------------------------------------------------------------- lost and damaged


@pytest.mark.parametrize("trace", ["register", "journal", "ledger"])
def test_lost(path, ledger, trace):
    opened(path, ledger=ledger, label="a").close()
    path.unlink()
    if trace != "register":
        path.with_name(REGISTER).unlink()
    if trace == "journal":
        path.with_name("run.db-journal").write_bytes(b"x")
    for asked in ({"redraw": True}, {"ledger": ledger}, {}):
        if trace == "ledger" and "ledger" not in asked:
            continue  # nothing on the machine tells of it
        with pytest.raises(RunError, match=r"lost|was charged for 'a'.*second release"):
            opened(path, label="a", **asked)
    run = opened(path, ledger=ledger, redraw=True, label="a")
    assert len(ledger.history()) == 2
    assert (len(run.warnings) == 1) == (trace == "register")
    run.close()


def test_damaged_and_drawn_again(path, ledger):
    opened(path, ledger=ledger).close()
    path.write_bytes(b"")
    with pytest.raises(RunError, match=r"empty.*second release"):
        opened(path, ledger=ledger)
    opened(path, ledger=ledger, redraw=True).close()
    assert [name.startswith("run.db.aside-") for name in names(path)] == [False, False, True]
    assert len(ledger.history()) == 2


@pytest.mark.parametrize("content", [b"", b"my thesis" * 100, b"SQLite format 3\0" + b"\1" * 5000])
def test_what_is_no_run_is_left_alone(path, content, ledger):
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(RunError, match="left as it is"):
        opened(path, ledger=ledger, redraw=True)
    assert path.read_bytes() == content


def test_files_of_others(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    path.chmod(0o600)
    with pytest.raises(RunError, match="another program"):
        opened(path)
    path.unlink()
    opened(path).close()
    with pytest.raises(RunError, match=r"another kind of run \(thing\)"):
        opened(path, Owner("other", "subject"))
    with pytest.raises(RunError, match="not the state"):
        Run.look(path, Owner("other", "subject"))
    path.chmod(0o640)
    with pytest.raises(RunError, match="chmod 600"):
        opened(path)
    path.chmod(0o400)
    with pytest.raises(RunError, match="read-only"):
        opened(path)
    with pytest.raises(RunError, match="no directory"):
        opened(path / "more" / "run")
    with pytest.raises(RunError, match="not a file"):
        opened(path.parent)


ALTERED = [
    "UPDATE run SET until = until - 1",
    "UPDATE run SET opened = opened + 1",
    "UPDATE run SET memory = '{}'",
    "UPDATE run SET memory = NULL",
    "UPDATE run SET head = '{}'",
    "UPDATE run SET head = 7, seal = 7",
    "UPDATE run SET salt = x'00'",
    "UPDATE run SET salt = NULL",
    "DELETE FROM run",
    "INSERT INTO run SELECT * FROM run",
    "CREATE TABLE more (x)",
    "CREATE TRIGGER t AFTER UPDATE ON run BEGIN UPDATE run SET until = 0; END",
    "DROP TABLE sent",
]


@pytest.mark.parametrize("statement", ALTERED)
def test_altered_rows_are_refused(path, statement):
    run = opened(path)
    advanced(run, 3)
    run.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()
    with pytest.raises(RunError):
        opened(path)


def test_an_altered_step_is_noticed_when_it_is_used(path):
    run = opened(path)
    run.keep(0, b"first")
    advanced(run, 3)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE sent SET outputs = x'00'")
        db.commit()
    with pytest.raises(RunError, match="step 0 was altered"):
        run.sent(0)
    with pytest.raises(RunError, match="is damaged"), run.turn():
        pass


def test_flipped_bytes_never_pass_for_the_run(path):
    run = opened(path)
    run.keep(0, b"first")
    advanced(run, 3)
    run.close()
    whole, memory = path.read_bytes(), run.memory
    random.seed(1)
    places = [i for i, byte in enumerate(whole) if byte] + random.sample(range(len(whole)), 100)
    for place in places[:: max(1, len(places) // 250)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        try:
            found = Run.look(path, OWNER).memory
        except RunError:
            continue
        assert found == memory


# ---------------------------------------------------------------------- charges


def test_charged_once_before_the_draw(path, ledger):
    order = []

    def draw():
        order.append([entry.status for entry in ledger.history()])
        return {"at": 0, "number": "1"}

    run = opened(path, draw=draw, ledger=ledger)
    assert order == [["charged"]]
    assert [entry.status for entry in ledger.history()] == ["released"]
    assert run.warnings == []
    run.close()
    opened(path, ledger=ledger).close()
    assert len(ledger.history()) == 1


def test_a_redraw_that_nobody_pays_leaves_everything(path, tmp_path):
    opened(path).close()
    path.write_bytes(b"damaged")
    with Ledger(tmp_path / "small.db", epsilon=0.1, delta=0.01, protects="one thing") as small:
        with pytest.raises(BudgetExceededError):
            opened(path, ledger=small, redraw=True)
        assert small.history() == ()
    assert path.read_bytes() == b"damaged"
    assert names(path) == [REGISTER, "run.db"]


def test_what_is_refused_leaves_nothing(path, tmp_path):
    with Ledger(tmp_path / "small.db", epsilon=0.1, delta=0.01, protects="one thing") as small:
        with pytest.raises(BudgetExceededError):
            opened(path, ledger=small)
        assert names(path) == []
        for asked in ({"ledger": "b.db"}, {"label": 7}, {"redraw": 1}, {"moved": None}):
            with pytest.raises(AffineDPError, match="must be"):
                opened(path, **asked)
        assert names(path) == []
        assert small.history() == ()


def test_swapped(path, ledger):
    opened(path, ledger=ledger).close()
    other = path.with_name("other.db")
    opened(other).close()
    os.replace(other, path)
    with pytest.raises(RunError, match="never charged"):
        opened(path, ledger=ledger)
    with pytest.raises(RunError, match="swapped"):
        opened(path)


def test_two_processes_at_once(path, ledger, monkeypatch):
    """Who comes while another draws waits, and then takes over the same draw."""
    monkeypatch.setattr(run_module.RunFile, "patience", 0.05)

    def draw():
        with pytest.raises(RunError, match="another program is using it"):
            opened(path)
        return {"at": 0, "number": "1"}

    opened(path, draw=draw, ledger=ledger).close()
    assert opened(path, ledger=ledger).memory["number"] == "1"


def test_nothing_secret_is_shown_or_copied(path):
    import copy
    import pickle

    run = opened(path)
    for shown in (repr(run), run.commitment, json.dumps(run.settings)):
        assert run.memory["number"] not in shown
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(AffineDPError, match="not copied"):
            copied(run)
    register = path.with_name(REGISTER).read_bytes()
    assert run.memory["number"].encode() not in register
    assert stat.S_IMODE(path.with_name(REGISTER).stat().st_mode) == 0o600
