"""A fork, a signal, the end of the program: none of them touches the state of another, or hangs."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from affinedp.control import Gateway, design_output_noise
from affinedp.control.gateway.state import GatewayStateError

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
HOLD = design_output_noise(([[1]], [[1]]), 4000, epsilon=1, delta=1e-3)
BEGIN = """
    import atexit, multiprocessing, os, shutil, signal, sys, threading, time
    from affinedp.control import Gateway, design_output_noise
    from affinedp.errors import AffineDPError
    HOLD = design_output_noise(([[1]], [[1]]), 4000, epsilon=1, delta=1e-3)
    path = sys.argv[1]

    def opened():
        return Gateway(HOLD, state=path, resolution=0.001)

    def send(gateway, count):
        for _ in range(count):
            gateway.send([1.0])

    def wait(child):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def refused(act):
        try:
            act()
        except AffineDPError as error:
            return str(error)
        raise AssertionError("it was not refused")
"""


def run(path, code):
    """Run a script; its exit code, what it printed, and what it complained about."""
    script = textwrap.dedent(BEGIN) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def next_step(path):
    with Gateway(HOLD, state=path, resolution=0.001) as gateway:
        return gateway.next_step


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s"


ENDINGS = {
    "exits": "sys.exit(0)",
    "closes": "gateway.close(); sys.exit(0)",
    "frees": "del gateway; sys.exit(0)",
    "forks again": """
    grandchild = os.fork()
    if grandchild == 0:
        sys.exit(0)
    wait(grandchild)
    sys.exit(0)""",
}


@needs_fork
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_child_does_not_touch_the_state(path, ending):
    """Its copy of the connection took the parent's log away, and with it all that came after."""
    code, _, said = run(
        path,
        f"""
gateway = opened()
send(gateway, 60)
for _ in range(2):
    child = os.fork()
    if child == 0:
        {textwrap.indent(textwrap.dedent(ENDINGS[ending]), " " * 8).strip()}
    assert wait(child) == 0
    send(gateway, 60)
assert os.path.exists(path + "-wal")
os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert code == -signal.SIGKILL, said
    assert next_step(path) == 180


@needs_fork
def test_a_child_that_leaves_the_block(path):
    code, _, said = run(
        path,
        """
with opened() as gateway:
    send(gateway, 60)
    child = os.fork()
    if child:
        assert wait(child) == 0
        send(gateway, 60)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert code == -signal.SIGKILL, said
    assert next_step(path) == 120


@needs_fork
def test_children_of_multiprocessing(path):
    code, _, said = run(
        path,
        """
def work():
    global gateway
    assert "before a fork" in refused(lambda: gateway.send([1.0]))
    gateway = None

gateway = opened()
send(gateway, 60)
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
send(gateway, 60)
os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert code == -signal.SIGKILL, said
    assert next_step(path) == 120


@needs_fork
def test_a_ledger_in_the_middle_of_a_charge(tmp_path):
    """A child that ends rolled back what another thread of the parent was writing."""
    code, _, said = run(
        tmp_path / "budget.db",
        """
from affinedp.budget.ledger import Ledger

ledger = Ledger(path, epsilon=1.0, delta=0.0, protects="one thing")
store = ledger._store
with store.writing():
    # on the disk before the commit, as if the transaction were too large for the memory
    store.connection.execute("PRAGMA cache_size = 1")
    store.connection.execute("CREATE TABLE more (a)")
    store.connection.executemany("INSERT INTO more VALUES (?)", [(b"x" * 4000,)] * 50)
    assert os.path.exists(path + "-journal")
    child = os.fork()
    if child == 0:
        ledger.close()
        del ledger, store
        os._exit(0)
    assert wait(child) == 0
    assert os.path.exists(path + "-journal"), "the child rolled it back"
    store.connection.execute("DROP TABLE more")
assert not Ledger(path).history()
        """,
    )
    assert code == 0, said


@needs_fork
def test_a_child_keeps_no_lock_of_a_parent_that_is_gone(path):
    code, said, complained = run(
        path,
        """
gateway = opened()
send(gateway, 3)
child = os.fork()
if child == 0:
    os.close(1), os.close(2)
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert code == -signal.SIGKILL, complained
    try:
        assert next_step(path) == 3
    finally:
        os.kill(int(said), signal.SIGKILL)


def test_a_log_that_is_removed_while_it_is_open(path):
    """Nothing more is sent into a file that nobody finds; what was sent is known."""
    gateway = Gateway(HOLD, state=path, resolution=0.001)
    for _ in range(60):
        gateway.send([1.0])
    os.unlink(f"{path}-wal")
    with pytest.raises(GatewayStateError, match=r"s-wal was moved or replaced.*nothing more"):
        gateway.send([1.0])
    with pytest.raises(GatewayStateError, match="is closed"):
        gateway.send([1.0])
    assert next_step(path) == 60


OTHER_HANDLES = {
    "read": "open(path, 'rb').read()",
    "copied": "shutil.copy(path, path + '.copy')",
    "written": "open(path, 'ab').close()",
}


@needs_fork
@pytest.mark.parametrize("handle", OTHER_HANDLES)
def test_another_handle_does_not_drop_the_lock(path, handle):
    """SQLite's own lock is dropped when any handle of the file is closed in this process."""
    code, said, complained = run(
        path,
        f"""
gateway = opened()
send(gateway, 3)
{OTHER_HANDLES[handle]}
sys.stdout.flush()
code = "import sys; from pathlib import Path\\n"
code += "from affinedp.control.gateway.state import GATEWAY\\n"
code += "from affinedp.once.state import DrawnState\\n"
code += "DrawnState(GATEWAY, Path(sys.argv[1]))"
import subprocess
other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
assert other.returncode == 1
print(other.stderr)
send(gateway, 3)
gateway.close()
        """,
    )
    assert code == 0, complained
    assert "another gateway is using it" in said
    assert next_step(path) == 6


# ---------------------------------------------------------------------- threads and the end


def test_a_thread_that_outlives_the_main_one(path):
    code, _, said = run(
        path,
        """
def work():
    with opened() as gateway:
        ready.set()
        threading.main_thread().join()
        send(gateway, 600)

ready = threading.Event()
threading.Thread(target=work).start()
ready.wait()
        """,
    )
    assert (code, said) == (0, "")
    assert next_step(path) == 600


@pytest.mark.parametrize("before", [0, 300])
def test_at_exit(path, before):
    code, _, said = run(
        path,
        f"""
gateway = opened()
send(gateway, {before})
atexit.register(lambda: send(gateway, 300))
        """,
    )
    assert (code, said) == (0, "")
    assert next_step(path) == before + 300


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that interrupt")
def test_a_close_that_interrupts_a_step(path):
    """It waits for the end of the step, which is sent whole; then nothing is sent any more."""
    code, said, complained = run(
        path,
        """
def close(*_):
    interrupted.append(gateway._state._inside)
    refused(lambda: gateway.send([1.0])) if gateway._state._inside else None
    gateway.close()

signal.signal(signal.SIGALRM, close)
interrupted, sent = [], 0
while sum(map(bool, interrupted)) < 3:
    gateway = opened()
    assert gateway.next_step == sent, (gateway.next_step, sent)
    signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0007 * len(interrupted) % 0.004)
    try:
        while True:
            gateway.send([1.0])
            sent += 1
    except AffineDPError as error:
        assert "is closed" in str(error), error
print(sent)
        """,
    )
    assert code == 0, complained
    assert next_step(path) == int(said)


@needs_fork
def test_a_child_of_a_thread_in_the_middle_of_a_step(path):
    """It is refused, and does not wait for a thread that the child does not have."""
    code, _, said = run(
        path,
        """
gateway = opened()
inside, go_on = threading.Event(), threading.Event()

def work():
    with gateway._state.turn():
        inside.set()
        go_on.wait()

thread = threading.Thread(target=work)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    assert "before a fork" in refused(lambda: gateway.send([1.0]))
    gateway.close()
    os._exit(7)
assert wait(child) == 7
go_on.set()
thread.join()
send(gateway, 3)
gateway.close()
        """,
    )
    assert code == 0, said
    assert next_step(path) == 3
