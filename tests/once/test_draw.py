"""One draw, whoever makes it: killed at any moment, lost, damaged, never made twice in silence."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from affinedp.budget.ledger import Ledger
from affinedp.consensus.agents.agent import Agent
from affinedp.consensus.agents.noise import AgentNoise
from affinedp.consensus.agents.state import AgentStateError
from affinedp.control import Gateway, design_output_noise
from affinedp.control.gateway.state import GatewayStateError
from affinedp.errors import AffineDPError

HOLD = design_output_noise(([[1]], [[1]]), 12, epsilon=1, delta=1e-3)
SECRET = 123.4375
NOISE = AgentNoise(epsilon=1.0, delta=0.01)


class OfGateway:
    name, error = "gateway", GatewayStateError

    @staticmethod
    def open(path, **more):
        return Gateway(HOLD, state=path, resolution="exact", **more)


class OfAgent:
    name, error = "agent", AgentStateError

    @staticmethod
    def open(path, **more):
        return Agent("3", {"1": 0.25}, state=path, value=SECRET, noise=NOISE, **more)


@pytest.fixture(params=[OfGateway, OfAgent], ids=lambda user: user.name)
def user(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "states"
    folder.mkdir()
    return folder / "run.db"


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db", epsilon=10.0, delta=0.05, protects="one thing") as opened:
        yield opened


def refused(user, path, match, **more):
    """It is refused in the words of its user alone, and without secrets."""
    with pytest.raises(user.error, match=match) as refusal:
        user.open(path, **more)
    other = {"gateway": "agent", "agent": "gateway"}[user.name]
    words = str(refusal.value).replace(str(path.parent), "")
    assert other not in words
    assert str(SECRET) not in words
    assert other not in type(refusal.value).__name__.lower()
    return str(refusal.value)


def files(path):
    return sorted(os.listdir(path.parent))


# ---------------------------------------------------------------------- killed


DYING = """
    import os, sys
    sys.path.insert(0, sys.argv[5])
    from test_draw import OfAgent, OfGateway
    from affinedp.budget.ledger import Ledger
    from affinedp.once import draw

    def after(place, name):
        real = getattr(place, name)
        def dies(*given, **named):
            real(*given, **named)
            os._exit(9)
        setattr(place, name, dies)

    after(*{
        "written": (draw, "write_state"),
        "marked": (draw, "mark"),
        "linked": (os, "link"),
    }[sys.argv[4]])
    user = {"gateway": OfGateway, "agent": OfAgent}[sys.argv[1]]
    more = {} if sys.argv[3] == "none" else {"ledger": Ledger(sys.argv[3])}
    user.open(sys.argv[2], **more)
"""


def killed(user, path, moment, budget="none"):
    here = os.path.dirname(__file__)
    words = [user.name, path, budget, moment, here]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DYING), *map(str, words)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 9, done.stderr
    folder = path.parent / ".run.db.part"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return drawn(folder / "file")


def drawn(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT numbers FROM draw").fetchone()[0]


KEPT = [".affinedp-drawn", "run.db", "run.db.drawn"]


@pytest.mark.parametrize("moment", ["written", "marked", "linked"])
def test_killed_without_a_ledger(user, path, moment):
    """What was drawn when the crash came is what is used: it is never drawn anew."""
    left = killed(user, path, moment)
    user.open(path).close()
    assert files(path) == KEPT
    assert drawn(path) == left


@pytest.mark.parametrize("moment", ["written", "marked", "linked"])
def test_killed_with_a_ledger(user, path, ledger, tmp_path, moment):
    left = killed(user, path, moment, tmp_path / "budget.db")
    assert len(ledger.history()) == 1
    for redraw in (False, True):
        user.open(path, ledger=ledger, redraw=redraw).close()
        assert drawn(path) == left
    (entry,) = ledger.history()
    assert entry.status == "released"
    assert files(path) == KEPT


def test_half_a_state_is_not_taken(user, path):
    """A crash while the state is written: nothing was kept, nothing was sent."""
    left = killed(user, path, "written")
    file = path.parent / ".run.db.part" / "file"
    file.write_bytes(file.read_bytes()[:5000])
    user.open(path).close()
    assert files(path) == KEPT
    assert drawn(path) != left


def test_what_a_crash_left_does_not_replace_a_state(user, path, ledger):
    user.open(path, ledger=ledger).close()
    first = drawn(path)
    folder = path.parent / ".run.db.part"
    folder.mkdir(0o700)
    shutil.copy(path, folder / "file")
    user.open(path, ledger=ledger).close()
    assert drawn(path) == first
    assert files(path) == KEPT


# ---------------------------------------------------------------------- lost


def test_lost_with_its_marker(user, path, ledger):
    """The log, or a state that was put aside, still tells of it."""
    opened = user.open(path, ledger=ledger)
    shutil.copy(path.with_name("run.db-wal"), path.with_name("log"))
    opened.close()
    for name in (path, path.with_name("run.db.drawn")):
        name.unlink()
    path.with_name("log").rename(path.with_name("run.db-wal"))
    for more in ({}, {"redraw": True}):
        refused(user, path, "lost with its marker: run.db-wal tells of it", **more)
    opened = user.open(path, ledger=ledger, redraw=True)
    first = opened.commitment
    opened.close()
    # the log of the old one was not read into the new one
    opened = user.open(path, ledger=ledger)
    assert opened.commitment == first
    opened.close()
    (aside,) = path.parent.glob("run.db-wal.aside-*")
    for name in (path, path.with_name("run.db.drawn")):
        name.unlink()
    refused(user, path, aside.name)


def test_lost_with_everything_of_its_name(user, path, ledger):
    """The register of the folder knows; with the folder gone, the ledger does, by the label."""
    user.open(path, ledger=ledger, label="March").close()
    for name in path.parent.glob("run.db*"):
        name.unlink()
    for more in ({}, {"redraw": True}, {"ledger": ledger, "label": "April"}):
        refused(user, path, "lost with its marker: .*affinedp-drawn says it was drawn", **more)
    user.open(path.with_name("other.db")).close()
    path.with_name(".affinedp-drawn").unlink()
    refused(user, path, "charged for 'March'", ledger=ledger, label="March")
    user.open(path).close()


def test_without_a_version_a_state_is_damaged(user, path, ledger):
    user.open(path, ledger=ledger).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA user_version = 0")
    connection.close()
    refused(user, path, "no version of the format.*second release")
    user.open(path, ledger=ledger, redraw=True).close()
    assert len(ledger.history()) == 2


# ---------------------------------------------------------------------- words and modes


def test_in_use(user, path):
    with user.open(path):
        refused(user, path, f"another {user.name} is using it: one state serves one {user.name}")


def test_closed(user, path):
    opened = user.open(path)
    opened.close()
    with pytest.raises(user.error, match=f"the {user.name} on .* is closed"):
        opened._state.sent(0) if user is OfGateway else opened._state._file.sent(0)


def test_state_of_the_other(user, path):
    other = OfAgent if user is OfGateway else OfGateway
    other.open(path).close()
    with pytest.raises(user.error, match="is not the state of an? " + user.name):
        user.open(path)


def test_for_the_owner_only(user, path):
    umask = os.umask(0)
    try:
        opened = user.open(path)
        modes = {name: stat.S_IMODE(path.with_name(name).stat().st_mode) for name in files(path)}
        opened.close()
    finally:
        os.umask(umask)
    assert set(modes) == {*KEPT, "run.db-wal"}
    assert set(modes.values()) == {0o600}
    path.chmod(0o644)
    refused(user, path, "chmod 600")


def test_no_directory(user, path):
    with pytest.raises(user.error, match="no directory"):
        user.open(path / "run.db")
    with pytest.raises(AffineDPError, match="not a path"):
        user.open("a\0b")
