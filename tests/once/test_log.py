"""A file without its log is refused, and wherever a crash comes the two are whole together."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from affinedp.control.gateway.state import GATEWAY, DamagedStateError
from affinedp.files.sqlite import building, put_into_place
from affinedp.once import state as drawn_state
from affinedp.once.record import Draw, Head
from affinedp.once.state import DrawnState
from affinedp.once.writing import write_state

STEPS = 40


@pytest.fixture
def path(tmp_path):
    path = Path(os.path.realpath(tmp_path)) / "s"
    draw = Draw("{}", b"s" * 64, (1, 2))
    with building(GATEWAY.kind, path) as folder:
        file = write_state(GATEWAY, folder, path, draw, Head(0, (1,)))
        put_into_place(GATEWAY.kind, file, path)
    return path


def log(path):
    return path.with_name("s-wal")


def opened_at(path):
    state = DrawnState(GATEWAY, path)
    state.close()
    return state.next_step


def send(state, count=STEPS):
    for step in range(state.next_step, state.next_step + count):
        state.record(step, b"x", Head(step + 1, (step,)))


def crashed(path, copy):
    """What a kill would leave now."""
    copy.mkdir()
    for file in (path, log(path)):
        if file.exists():
            shutil.copy(file, copy)
    return copy / "s"


def refused(path):
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(DamagedStateError, match=r"needs its log s-wal.*Put back the log"):
        DrawnState(GATEWAY, path)
    after = {file: file.read_bytes() for file in path.parent.iterdir()}
    assert after == {file: content for file, content in before.items() if content}


LOSSES = {
    "removed": lambda log: log.unlink(),
    "emptied": lambda log: log.write_bytes(b""),
    "header alone": lambda log: os.truncate(log, 32),
    "zeros": lambda log: log.write_bytes(bytes(log.stat().st_size)),
    "first bit": lambda log: log.write_bytes(b"\0" + log.read_bytes()[1:]),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_and_a_lost_log(path, tmp_path, loss):
    state = DrawnState(GATEWAY, path)
    send(state)
    left = crashed(path, tmp_path / "crash")
    state.close()
    kept = log(left).read_bytes()
    LOSSES[loss](log(left))
    refused(left)
    log(left).write_bytes(kept)
    assert opened_at(left) == STEPS


def test_a_log_of_an_earlier_time(path, tmp_path):
    """Also one that was copied into the file is not the one that the file needs now."""
    state = DrawnState(GATEWAY, path)
    send(state)
    earlier = crashed(path, tmp_path / "earlier")
    state.close()
    state = DrawnState(GATEWAY, path)
    send(state)
    left = crashed(path, tmp_path / "crash")
    state.close()
    assert opened_at(earlier) == STEPS
    assert opened_at(path) == 2 * STEPS
    log(left).unlink()
    refused(left)


def test_a_long_log_is_copied_and_another_begun(path, tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_state, "LONGEST_LOG", 60_000)
    state = DrawnState(GATEWAY, path)
    for step in range(STEPS):
        state.record(step, b"x", Head(step + 1, (step,)))
        left = crashed(path, tmp_path / str(step))
        again = DrawnState(GATEWAY, left)
        assert again.next_step == step + 1
        again._end(as_it_is=True)
        log(left).unlink(missing_ok=True)
        refused(left)
    assert log(path).stat().st_size < 200_000
    state.close()
    assert opened_at(path) == STEPS


def test_nothing_sent_needs_no_log(path, tmp_path):
    state = DrawnState(GATEWAY, path)
    left = crashed(path, tmp_path / "crash")
    state.close()
    log(left).unlink()
    assert opened_at(left) == 0


def test_a_log_that_was_copied_in_part_and_lost(path, tmp_path):
    """A kill while SQLite copies it leaves the first pages new, and the others old."""
    state = DrawnState(GATEWAY, path)
    send(state)
    state.close()
    state = DrawnState(GATEWAY, path)
    send(state)
    old = path.read_bytes()
    state.close()
    new, size = path.read_bytes(), 4096
    refusals = 0
    for pages in range(len(new) // size):
        mixed = tmp_path / f"{pages}"
        mixed.write_bytes(new[: pages * size] + old[pages * size :])
        mixed.chmod(0o600)
        try:
            state = DrawnState(GATEWAY, mixed)
        except DamagedStateError:
            refusals += 1
        else:
            assert state.next_step == 2 * STEPS
            state.close()
    assert refusals > 3


DYING = """
    import os, sys
    from pathlib import Path
    from affinedp.control.gateway.state import GATEWAY
    from affinedp.once import state as drawn_state
    from affinedp.once.record import Head
    from affinedp.once.state import DrawnState
    drawn_state.LONGEST_LOG = 60_000
    left, wrote = int(sys.argv[2]), os.write

    def die(*given):
        global left
        left -= 1
        if not left:
            os._exit(9)

    state = DrawnState(GATEWAY, Path(sys.argv[1]))
    def before(place, name):
        real = getattr(place, name)
        def dies(*given, **named):
            die()
            found = real(*given, **named)
            die()
            return found
        setattr(place, name, dies)
    before(state._number, "begin"), before(state._number, "begun")
    before(state, "_shorten"), before(state, "_end")
    real = state._connection

    class Dying:
        def __getattr__(self, name):
            return getattr(real, name)
        def execute(self, *given):
            if given[0].split()[0] in ("COMMIT", "PRAGMA"):
                die()
                found = real.execute(*given)
                die()
                return found
            return real.execute(*given)

    state._connection = Dying()
    for step in range(state.next_step, state.next_step + 6):
        state.record(step, b"x", Head(step + 1, (step,)))
        wrote(1, b"%d " % step)
    state.close()
    die()
    os._exit(0)
"""


@pytest.mark.slow
def test_killed_between_any_two_steps_of_it(path):
    """One crash after the other: it always opens again, and knows of all that was sent."""
    sent, known, moment, ended = -1, 0, 0, False
    while not ended:
        moment += 1
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DYING), str(path), str(moment)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 9), done.stderr
        ended = done.returncode == 0
        sent = max([sent, *map(int, done.stdout.split())])
        copy = crashed(path, path.parent / str(moment))
        before, known = known, opened_at(copy)
        assert max(before, sent + 1) <= known <= max(before, sent + 1) + 1
        if done.stdout and not ended and log(path).exists():
            bare = crashed(path, path.parent / f"{moment} bare")
            log(bare).unlink()
            try:
                state = DrawnState(GATEWAY, bare)
            except DamagedStateError:
                continue
            assert state.next_step > sent, "it opens without its log, and has forgotten steps"
            state.close()
    assert moment > 30
