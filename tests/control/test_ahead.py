"""What is on the disk at every moment is enough: steps are reserved, and drawn, ahead of time.

A power cut is played by copies of the files, made whenever the disk was waited for: what was
written after that may be lost.
"""

import itertools
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

import affinedp.once.state as drawn_state
from affinedp.control import Gateway, design_output_noise
from affinedp.control.gateway.state import GATEWAY, DamagedStateError, GatewayStateError
from affinedp.control.stationary.certificate import start_certificate
from affinedp.control.stationary.filters import Filter
from affinedp.control.stationary.inputs import private_inputs
from affinedp.control.stationary.promise import stationary_promise
from affinedp.control.stationary.record import StationaryNoise
from affinedp.errors import AffineDPError
from affinedp.once import syncing
from affinedp.once.state import DrawnState, Head, to_text
from affinedp.once.syncing import BackgroundSync

ROOM = [[0.99]], [[0.9]], [[1.0]], [[0.0]]
STEPS = 400


def remembering():
    made = Filter.of([[0.97, 0.0], [0.1, 0.7]], [[0.5], [0.1]], [[0.4, 0.3]], [[1.0]])
    room = private_inputs(ROOM, mu=1.0)
    start = start_certificate(made.exact()).root
    promise = stationary_promise(room, made, "output", 1.5, start)
    return StationaryNoise(room, promise, made, "output", 1.5, start)


def one_draw():
    return design_output_noise(([[1]], [[1]]), STEPS, epsilon=1, delta=1e-3)


class Disk:
    """Keeps a copy of a folder as it was when the disk was last waited for."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self.folder, self.copies = folder, copies
        self.names = itertools.count()
        self.lock = threading.Lock()
        self.latest = None

    def keep(self):
        with self.lock:
            copy = self.copies / str(next(self.names))
            shutil.copytree(self.folder, copy)
            self.latest = copy


def watch(monkeypatch, disk):
    """Make a copy after every commit that waits, and after every sync of the other thread."""
    record, sync = drawn_state.DrawnState.record, syncing.sync
    waited = [0]

    def recorded(self, step, outputs, head, *, wait=False, until=None):
        at_once = wait or (step >= self._reserved and not self._sync.busy)
        record(self, step, outputs, head, wait=wait, until=until)
        if at_once:
            waited[0] += 1
            disk.keep()

    def synced(handle):
        sync(handle)
        disk.keep()

    monkeypatch.setattr(drawn_state.DrawnState, "record", recorded)
    monkeypatch.setattr(syncing, "sync", synced)
    return waited


@pytest.mark.parametrize("make", [remembering, one_draw])
def test_power_may_be_cut_at_any_step(tmp_path, monkeypatch, make):
    """Every step that was sent counts as sent or skipped, and a memory goes on as it did."""
    noise = make()
    (tmp_path / "here").mkdir()
    (tmp_path / "copies").mkdir()
    disk = Disk(tmp_path / "here", tmp_path / "copies")
    waited = watch(monkeypatch, disk)
    sent = []
    with Gateway(noise, state=tmp_path / "here" / "s", resolution="exact") as gateway:
        for step in range(STEPS):
            gateway.send([0.0])
            sent.append((step, disk.latest, gateway._state.head))
        stream = gateway._noise
        monkeypatch.setattr(drawn_state, "running_system", lambda: "another")
        booted = {}
        for copy in {copy for _, copy, _ in sent}:
            with Gateway(noise, state=copy / "s", resolution="exact", moved=True) as again:
                booted[copy] = again.next_step, again._state.head
    assert waited[0] < STEPS / 8, "the disk is not waited for at every step"
    assert len(booted) > 4
    skipped = 0
    for step, copy, live in sent:
        next_step, head = booted[copy]
        assert next_step > step, "it may have been sent, and would be sent anew"
        skipped += head.next_step <= step
        if make is remembering:
            memory, ahead = head.numbers[:2], list(head.numbers[2:])
            for t in range(head.next_step, step + 1):
                assert ahead, "what was sent was drawn for nobody to know any more"
                memory = stream._path.advance(t, memory, stream._take(ahead), stream._bits)
            if head.next_step <= step + 1:
                assert memory == live.numbers[:2]
    assert skipped > 0, "nothing was ever lost: this tests nothing"


def as_before(path, *, lost=0):
    """Make the state one of older programs, which drew nothing ahead: memory alone, version 1.

    ``lost`` steps were reserved beyond the last one, by a system that is gone.
    """
    state = DrawnState(GATEWAY, path)
    head = Head(state.head.next_step, state.head.numbers[:2])
    numbers = to_text(head.numbers)
    row = head.next_step, numbers, state._seal("path", head.next_step, numbers.encode())
    reserved = head.next_step + lost
    kept = reserved, 0, "gone", state._seal("reserved", reserved, b"0 gone")
    with state._use() as connection:
        connection.execute("UPDATE path SET next_step = ?, numbers = ?, seal = ?", row)
        connection.execute("UPDATE reserved SET step = ?, lost = ?, system = ?, seal = ?", kept)
        for table in ("log", "needs"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 1")
    state.close()
    return head


def version(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_a_state_of_older_programs_goes_on(tmp_path):
    noise, path = remembering(), tmp_path / "s"
    with Gateway(noise, state=path, resolution="exact") as gateway:
        sent = [gateway.send([0.0]) for _ in range(5)]
    head = as_before(path)
    with Gateway(noise, state=path, resolution="exact") as gateway:
        assert (gateway.next_step, gateway._state.head) == (5, head)
        assert gateway.send([0.0], step=4) == sent[4]
        gateway.send([0.0])
        assert len(gateway._state.head.numbers) > 2
    assert version(path) == 2, "older programs would leave out what was drawn ahead"


def test_a_state_of_older_programs_that_lost_what_it_sent(tmp_path):
    """Its ζ would be drawn again in place of those that were sent."""
    noise, path = remembering(), tmp_path / "s"
    with Gateway(noise, state=path, resolution="exact") as gateway:
        for _ in range(5):
            gateway.send([0.0])
    as_before(path, lost=3)
    before = path.read_bytes()
    with pytest.raises(GatewayStateError, match=r"up to 7 may .* known up to 4 alone.*new state"):
        Gateway(noise, state=path, resolution="exact")
    assert (path.read_bytes(), version(path)) == (before, 1)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_path_of_other_noise(tmp_path, count):
    """Whatever wrote it: a memory of another size is never cut to fit."""
    noise, path = one_draw() if count == 3 else remembering(), tmp_path / "s"
    with Gateway(noise, state=path, resolution="exact") as gateway:
        gateway.send([0.0])
        numbers = gateway._state.head.numbers[: count or None]
        head = Head(2, numbers * 2 if count == 3 else numbers[:count])
        gateway._state.record(1, b"", head)
    with pytest.raises(DamagedStateError, match="not of this noise"):
        Gateway(noise, state=path, resolution="exact")


def test_nothing_goes_out_before_its_reservation_is_on_the_disk(tmp_path, monkeypatch):
    slow = threading.Event()
    sync = syncing.sync

    def stuck(handle):
        assert slow.wait(60.0)
        sync(handle)

    monkeypatch.setattr(syncing, "sync", stuck)
    with Gateway(remembering(), state=tmp_path / "s", resolution="exact") as gateway:
        count = 0

        def send():
            nonlocal count
            for count in range(STEPS):  # noqa: B007
                gateway.send([0.0])

        sender = threading.Thread(target=send)
        sender.start()
        sender.join(2.0)
        assert sender.is_alive(), "it went on without the disk"
        assert count == gateway._state._reserved, "all that was reserved, and no more"
        slow.set()
        sender.join()
        assert gateway.next_step == STEPS


def test_a_disk_that_fails(tmp_path, monkeypatch):
    def broken(handle):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(syncing, "sync", broken)
    gateway = Gateway(one_draw(), state=tmp_path / "s", resolution="exact")

    def send_all():
        for _ in range(STEPS):
            gateway.send([0.0])

    with pytest.raises(AffineDPError, match="onto the disk: Input/output error"):
        send_all()
    with pytest.raises(AffineDPError, match="is closed"):
        gateway.send([0.0])
    reserved, sent = gateway._state._written, gateway.next_step
    assert reserved > sent
    gateway.close()
    # nothing is known about what is on the disk: what was reserved stays so, and so does the log
    assert (tmp_path / "s-wal").stat().st_size > 0
    monkeypatch.setattr(drawn_state, "running_system", lambda: "another")
    with Gateway(one_draw(), state=tmp_path / "s", resolution="exact") as again:
        assert again.next_step == reserved


def test_background_sync(tmp_path):
    (tmp_path / "f").write_bytes(b"1")
    done = []
    sync = BackgroundSync(tmp_path / "f")
    assert sync.done()
    assert not sync.busy
    sync.begin(lambda: done.append(1))
    assert sync.busy
    assert sync.done(wait=True)
    assert (done, sync.busy) == ([1], False)
    sync.close()
    sync.close()
