"""What a ledger promises, whether it is a file or on a server."""

import json
import math
import os
import re
import signal
import threading
import warnings
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

import affinedp as adp
from affinedp.budget import events
from affinedp.budget.ledger import (
    BudgetExceededError,
    Ledger,
    LedgerError,
    LedgerWarning,
)
from affinedp.budget.sqlite import FileStore
from affinedp.errors import AffineDPError, left_words
from affinedp.laws.curves import NoPromise
from ledgers import CAP, QUARTER, altered, charge, guarantee, is_file, opened, run

M = adp.AffineManifold.from_equations(["a + b = c"])


# ---------------------------------------------------------------------- use


def test_charge_settle_history(address):
    with Ledger(address, **CAP) as ledger:
        first = charge(ledger, "gaussian", 0.125, label="März 📊")
        second = charge(ledger, "laplace", 0.1, releases=2)
        ledger.settle(first)
        entries = ledger.history()
    assert [entry.id for entry in entries] == [first, second]
    assert [entry.status for entry in entries] == ["released", "charged"]
    assert [entry.releases for entry in entries] == [1, 2]
    assert [entry.label for entry in entries] == ["März 📊", None]
    assert entries[1].losses == (("laplace", 0.1),)
    assert entries[0].time.endswith("+00:00")
    assert (entries[0].neighbours, entries[0].neighbours_key) == ("one entry moves", "k")
    with opened(address) as again:
        assert again.history() == entries
        assert (again.epsilon, again.delta, again.adaptive) == (1.0, 1e-6, True)
        assert again.check() == ()


def test_settle_once_and_only_what_was_charged(address):
    with Ledger(address, **CAP) as ledger:
        entry = charge(ledger, "laplace", 0.1)
        ledger.settle(entry)
        for wrong in (entry, entry + 1, 0, -1, "1", None, 1.0, True):
            with pytest.raises(LedgerError):
                ledger.settle(wrong)
        assert ledger.spent == 0.1


def test_closed(address):
    ledger = Ledger(address, **CAP)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        charge(ledger, "laplace", 0.1)


def test_two_instances_in_one_process(address):
    with Ledger(address, epsilon=1.0, protects="one person") as one, Ledger(address) as two:
        charge(one, "laplace", 0.5)
        charge(two, "laplace", 0.25)
        assert one.spent == two.spent == 0.75
        with pytest.raises(BudgetExceededError):
            charge(one, "laplace", 0.5)


def test_a_mechanism_releases_against_it(address):
    mechanism = adp.design_laplace(M, epsilon=0.6)
    with Ledger(address, **CAP) as ledger:
        mechanism.release([1, 2, 3], ledger=ledger, label="first")
        with pytest.raises(BudgetExceededError):
            mechanism.release([1, 2, 3], ledger=ledger)
        assert [entry.status for entry in ledger.history()] == ["released"]
        assert (ledger.unit, ledger.protects) == (mechanism.guarantee.unit, "one person")
        words = "epsilon=1.0, delta=1e-06, protects='one person'"
        assert repr(ledger) == f"Ledger({address!r}, {words})"


def test_refusal_carries_numbers_and_records_nothing(address):
    with Ledger(address, epsilon=1.0, protects="one person") as ledger:
        charge(ledger, "laplace", 0.75)
        before = ledger.head
        with pytest.raises(BudgetExceededError) as caught:
            charge(ledger, "laplace", 0.25, releases=2)
        assert (caught.value.requested, caught.value.remaining) == (0.5, 0.25)
        with pytest.raises(BudgetExceededError) as caught:
            charge(ledger, "gaussian", 1e-3)  # never at δ = 0
        assert caught.value.requested == math.inf
        assert ledger.head == before
        assert isinstance(caught.value, AffineDPError)


def test_leak_is_always_refused(path):
    leaking = adp.verify(adp.AffineManifold([[1, -1]]), [[1.0, 0.0], [0.0, 0.0]])
    assert leaking.leak is not None
    nothing = replace(guarantee("gaussian", math.inf), curve=NoPromise())
    infinite = guarantee("laplace", math.inf), guarantee("gaussian", math.nan)
    with Ledger(path, epsilon=1e300, delta=0.999, protects="one person") as ledger:
        for bad in (leaking, nothing, *infinite):
            with pytest.raises(BudgetExceededError, match="promises nothing") as caught:
                ledger.charge(bad, fingerprint="f")
            assert caught.value.requested == math.inf
            with pytest.raises(BudgetExceededError):
                ledger.fits(bad)
        assert ledger.history() == ()


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "caps",
    [
        {"epsilon": math.nan}, {"epsilon": -0.1}, {"epsilon": math.inf}, {"epsilon": "1"},
        {"epsilon": True}, {"epsilon": 10**400}, {"epsilon": 1j},
        {"epsilon": 1.0, "delta": 1.0}, {"epsilon": 1.0, "delta": 1.5},
        {"epsilon": 1.0, "delta": -1e-9}, {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0, "delta": 1e-310}, {"epsilon": 1.0, "adaptive": "no"},
        {"delta": 1e-6}, {}, {"epsilon": 1.0, "protects": None}, {"epsilon": 1.0, "protects": ""},
        {"epsilon": 1.0, "protects": " "}, {"epsilon": 1.0, "protects": 7},
        {"epsilon": 1.0, "protects": "x" * 1001}, {"epsilon": 1.0, "same_secret": "yes"},
        {"epsilon": 1.0, "create": "no"}, {"epsilon": Decimal("0.12345678901234567890123")},
    ],
)  # fmt: skip
def test_bad_caps(path, caps):
    with pytest.raises(AffineDPError):
        Ledger(path, **{"protects": "one person", **caps})
    assert os.listdir(path.parent) == []


def test_what_was_created_does_not_change(address):
    with Ledger(address, **(CAP | {"protects": " one person "})) as ledger:
        assert ledger.protects == "one person"
        before = ledger.head
    for other in (
        {"epsilon": 2.0},
        {"epsilon": 1.0, "delta": 0.0},
        {"delta": 1e-5},
        {"adaptive": False},
        {"protects": "one household"},
    ):
        with pytest.raises(LedgerError, match="was created with"):
            Ledger(address, **other)
    for same in (CAP, {"epsilon": 1}, {"delta": 1e-6}, {"create": False}, {"adaptive": True}):
        with Ledger(address, **same) as ledger:
            assert ledger.head == before


def test_what_does_not_exist_is_not_made_by_looking(address):
    with pytest.raises(LedgerError, match="there is no ledger"):
        opened(address)
    with pytest.raises(LedgerError, match="give epsilon"):
        Ledger(address)
    with pytest.raises(LedgerError, match="say whom"):
        Ledger(address, epsilon=1.0)
    with pytest.raises(LedgerError, match="there is no ledger"):
        opened(address)
    with Ledger(address, epsilon=1.0, protects="one person") as ledger:
        assert ledger.delta == 0.0


ODD = ["", "\x00", "a\nb\tc", "'; DROP TABLE event; --", '"\\', "\u202e\ufeff", "𝕏" * 1000]


@pytest.mark.parametrize("label", ODD, ids=ascii)
def test_odd_labels(path, label):
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
        charge(ledger, "laplace", 0.1, label=label)
    with Ledger(path) as ledger:
        assert ledger.history()[0].label == label
        assert ledger.check() == ()


@pytest.mark.parametrize(
    "others",
    [
        {"label": "x" * 1001}, {"label": "\ud800"}, {"label": 7},
        {"fingerprint": ""}, {"fingerprint": "x" * 1001}, {"fingerprint": None},
        {"releases": 0}, {"releases": -1}, {"releases": 1.0}, {"releases": True},
        {"releases": 10**10}, {"same_secret": 1}, {"guarantee": "g"},
        {"guarantee": guarantee("laplace", 0.1, key="")},
        {"guarantee": guarantee("laplace", 0.1, unit="")},
        {"guarantee": guarantee("laplace", 0.1, unit="x" * 1001)},
        {"guarantee": guarantee("laplace", 0.1, neighbours="x" * 10_001)},
        {"guarantee": guarantee("laplace", -0.1)},
    ],
    ids=lambda value: ascii(value)[:40],
)  # fmt: skip
def test_bad_arguments(path, others):
    given = {"guarantee": guarantee("laplace", 0.1), "fingerprint": "f", **others}
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
        with pytest.raises(AffineDPError):
            ledger.charge(given.pop("guarantee"), **given)
        assert ledger.history() == ()


# ---------------------------------------------------------------------- threads, forks, signals


def test_threads_share_a_ledger(address):
    with Ledger(address, epsilon=1.0, protects="one person") as ledger:
        refused = []

        def work():
            try:
                ledger.settle(charge(ledger, "laplace", 0.25))
            except BudgetExceededError as error:
                refused.append(error)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (ledger.spent, len(refused), ledger.check()) == (1.0, 2, ())
        assert {entry.status for entry in ledger.history()} == {"released"}


def test_both_sides_of_a_fork_may_charge(address):
    run(
        """
        with Ledger(address, epsilon=1.0, protects="one person") as ledger:
            child = os.fork()
            if child == 0:
                ledger.charge(guarantee(0.5), fingerprint="f")
                ledger.close()
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            ledger.charge(guarantee(0.5), fingerprint="f")
            assert (ledger.spent, ledger.check()) == (1.0, ())
        """,
        address,
    )


def test_a_fork_in_the_middle_of_a_charge_undoes_nothing(address):
    """In a signal handler; the child ends in order, and frees its copy of the connection."""
    run(
        """
        from affinedp.budget.events import Events
        with Ledger(address, epsilon=1.0, protects="one person") as ledger:
            append = Events.append
            children = []

            def forks(self, now, kind, **body):
                number = append(self, now, kind, **body)
                children.append(os.fork())
                if children[-1] == 0:
                    sys.exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(children[-1], 0)[1]) == 7
                return number

            Events.append = forks
            entry = ledger.charge(guarantee(0.5), fingerprint="f")
            Events.append = append
            ledger.settle(entry)
            assert (ledger.spent, ledger.check()) == (0.5, ())
        """,
        address,
    )


INNER = {
    "charge": lambda ledger: ledger.charge(QUARTER, fingerprint="inner"),
    "settle": lambda ledger: ledger.settle(1),
    "look": lambda ledger: ledger.spent,
    "move": lambda ledger: ledger.acknowledge_move(),
    "check": lambda ledger: ledger.check(),
}


@pytest.mark.parametrize("inner", INNER)
def test_a_call_from_a_signal_handler_is_refused(address, monkeypatch, inner):
    """Its commit would be that of the charge in the middle of which it is."""
    with Ledger(address, **CAP) as ledger:
        ledger.charge(QUARTER, fingerprint="first")
        refused: list[str] = []

        def handler(*_) -> None:
            try:
                refused.extend(INNER[inner](ledger))
            except LedgerError as error:
                refused.append(str(error))

        append = events.Events.append

        def interrupted(self, now, kind, **body):
            number = append(self, now, kind, **body)
            signal.raise_signal(signal.SIGUSR1)
            return number

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(events.Events, "append", interrupted)
                ledger.charge(QUARTER, fingerprint="outer")
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert len(refused) == 1
        assert "under way" in refused[0]
        assert [entry.fingerprint for entry in ledger.history()] == ["first", "outer"]


def test_what_was_interrupted_is_undone(address, monkeypatch):
    """A key pressed between two statements leaves no lock and no charge."""
    with Ledger(address, **CAP) as ledger:
        append = events.Events.append

        def interrupted(self, now, kind, **body):
            append(self, now, kind, **body)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(events.Events, "append", interrupted)
            with pytest.raises(KeyboardInterrupt):
                charge(ledger, "laplace", 0.25)
        assert ledger.spent == 0.0
        charge(ledger, "laplace", 0.5)
        assert (ledger.spent, ledger.check()) == (0.5, ())


def test_another_program_that_holds_it(address, monkeypatch):
    monkeypatch.setattr(events, "LOCK_SECONDS", 1)
    monkeypatch.setattr(FileStore, "patience", 1)
    with Ledger(address, **CAP) as ledger:
        if is_file(address):
            import sqlite3

            other = sqlite3.connect(address, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
        else:
            import psycopg

            other = psycopg.connect(address)
            other.execute("SELECT 1 FROM affinedp_ledger FOR UPDATE")
        for _ in range(2):
            with pytest.raises(LedgerError, match="another program"):
                charge(ledger, "laplace", 0.1)
            assert ledger.spent == 0.0  # looking needs no lock
            opened(address).close()  # and does not drop that of this process
        other.close()
        charge(ledger, "laplace", 0.1)


# ---------------------------------------------------------------------- races and kills


@pytest.mark.slow
def test_eight_processes_race_for_the_last_charge(address):
    """The first race creates it."""
    if not is_file(address):
        Ledger(address, epsilon=1.0, protects="one person").close()
    out = run(
        """
        print(race(address, [((0.09375,), {})] * 8))  # all fit
        print(race(address, [((0.25,), {})] * 8))  # one fits
        """,
        address,
    )
    assert out.splitlines() == [str([0] * 8), str([0] + [7] * 7)]
    with opened(address) as ledger:
        assert ledger.spent == 1.0
        assert [entry.status for entry in ledger.history()] == ["released"] * 9
        assert ledger.check() == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("units", "same", "codes", "marks"),
    [
        (["u"] * 8, {}, [0] * 4 + [7] * 4, 0),
        ([f"u{i}" for i in range(8)], {}, [0] + [8] * 7, 0),
        ([f"u{i}" for i in range(8)], {"same_secret": True}, [0] * 4 + [7] * 4, 3),
    ],
    ids=["one unit", "eight units", "one secret"],
)
def test_races_with_other_neighbours(path, units, same, codes, marks):
    """Eight processes with eight kinds of neighbours: of one unit they share the cap."""
    charges = [((0.25, f"k{i}", unit), same) for i, unit in enumerate(units)]
    assert run(f"print(race(address, {charges!r}))", path) == f"{codes}\n"
    with Ledger(path) as ledger:
        assert ledger.spent == 0.25 * codes.count(0)
        assert sum(entry.same_secret for entry in ledger.history()) == marks
        assert ledger.check() == ()


@pytest.mark.slow
def test_kills(address):
    """Every id that a process saw returned is in the ledger, whenever it was killed."""
    kills = 200 if is_file(address) else 30
    out = run(
        """
        Ledger(address, epsilon=1e6, protects="one person").close()
        random.seed(1)
        for turn in range(int(sys.argv[2])):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                with Ledger(address) as ledger:
                    os.write(write, b"open ")
                    while True:
                        entry = ledger.charge(guarantee(1.0), fingerprint="f")
                        os.write(write, b"%d " % entry)
                        ledger.settle(entry)
                        os.write(write, b"s%d " % entry)
            os.close(write)
            seen = os.read(read, 5)
            if turn % 2:  # after the first charge, however busy the machine is
                seen += os.read(read, 64)
            time.sleep(random.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with os.fdopen(read, "rb") as pipe:
                print((seen + pipe.read()).decode())
        """,
        address,
        kills,
    )
    charged = {int(word) for word in re.findall(r"\b\d+", out)}
    settled = {int(word) for word in re.findall(r"\bs(\d+)", out)}
    assert len(out.splitlines()) == kills
    with opened(address) as ledger:
        entries = {entry.id: entry for entry in ledger.history()}
        assert ledger.check() == ()
        assert ledger.spent == len(entries)
    assert charged <= entries.keys()
    assert settled <= {id for id, entry in entries.items() if entry.status == "released"}
    # a kill loses at most the one charge that was under way, and never invents one
    assert len(entries) - len(charged) <= kills
    assert charged


# ---------------------------------------------------------------------- what is noticed


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {event} SET body = replace(body, 'f', 'g') WHERE number = 3",
        "UPDATE {event} SET hash = upper(hash) WHERE number = 3",
        "UPDATE {event} SET number = 100 WHERE number = 1",
        "DELETE FROM {event} WHERE number = 1",
        "DELETE FROM {event} WHERE number = (SELECT max(number) FROM {event})",
        "DELETE FROM {event}",
        "UPDATE {ledger} SET events = events - 1",
        "UPDATE {ledger} SET header = replace(header, '0x1.0000000000000p+0', '0x1.0p+3')",
        "UPDATE {ledger} SET header = '{{}}'",
    ],
)
def test_edits_are_noticed(address, statement):
    with Ledger(address, **CAP) as ledger:
        for _ in range(3):
            ledger.settle(charge(ledger, "laplace", 0.1))
        altered(address, statement)
        (problem,) = ledger.check()
        assert "cannot be trusted" in problem
        if "UPDATE {ledger}" in statement:
            # an open ledger reads only what is new of the events
            with pytest.raises(LedgerError):
                charge(ledger, "laplace", 0.1)
    with pytest.raises(LedgerError, match="cannot be trusted"):
        opened(address)


def test_removed_tail_is_noticed_by_an_open_ledger(address):
    with Ledger(address, **CAP) as ledger:
        charge(ledger, "laplace", 0.5)
        altered(address, "DELETE FROM {event}", "UPDATE {ledger} SET events = 0")
        for _ in range(2):
            with pytest.raises(LedgerError, match="altered while it was open"):
                charge(ledger, "laplace", 0.6)


@pytest.mark.parametrize("number", ["1", "3"])
def test_other_formats_are_refused(address, number):
    with Ledger(address, **CAP) as ledger:
        altered(
            address,
            "UPDATE {ledger} SET header = "
            f"replace(header, 'affinedp ledger 2', 'affinedp ledger {number}')",
        )
        with pytest.raises(LedgerError, match="altered"):
            charge(ledger, "laplace", 0.1)
    with pytest.raises(LedgerError, match="upgrade affinedp if.*affinedp ledger create"):
        opened(address)


CHARGED = {
    "kind": "charge", "time": "", "label": None, "law": "laplace", "neighbours": "n",
    "neighbours_key": "k", "unit": "u", "fingerprint": "f", "same_secret": False,
    "losses": [["laplace", "0x1p-3"]], "releases": 1,
}  # fmt: skip


def forge(address, body):
    """A forger can link a new event."""
    with opened(address) as ledger:
        count, _, head = ledger.head.partition(":")
    text = json.dumps(body)
    link = events.chained(head, int(count) + 1, text)
    quoted = text.replace("{", "{{").replace("}", "}}")
    name = "" if is_file(address) else "'ledger', "
    altered(
        address,
        f"INSERT INTO {{event}} VALUES ({name}{int(count) + 1}, '{quoted}', '{link}')",
        f"UPDATE {{ledger}} SET events = {int(count) + 1}, head = '{link}'",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"losses": [["laplace", "-0x1p-3"]]},
        {"losses": [["laplace", "nan"]]},
        {"losses": [["uniform", "0x1p-3"]]},
        {"losses": []},
        {"releases": -1},
        {"releases": 10**400},
        {"kind": "refund"},
        {"kind": "release", "entry": 7},
    ],
    ids=str,
)
def test_forged_events_that_cannot_be(path, change):
    """What cannot be a charge is refused though it is linked."""
    Ledger(path, **CAP).close()
    forge(path, {**CHARGED, **change})
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger(path)


def test_charges_that_pass_the_cap_are_told(address):
    Ledger(address, **CAP).close()
    forge(address, {**CHARGED, "losses": [["laplace", "0x1p+3"]]})
    with opened(address) as ledger:
        assert (ledger.spent, ledger.remaining) == (8.0, 0.0)
        assert "pass the cap" in ledger.check()[0]
        with pytest.raises(BudgetExceededError):
            charge(ledger, "laplace", 0.1)


def test_a_copy_is_noticed_until_somebody_says_that_it_is_the_only_one(address, tmp_path):
    with Ledger(address, **CAP) as ledger:
        charge(ledger, "laplace", 0.1)
    if is_file(address):
        copy = tmp_path / "copy.db"
        with open(address, "rb") as content:
            copy.write_bytes(content.read())
    else:
        copy = f"{address}#copy"
        columns = "number, body, hash FROM affinedp_event"
        altered(
            address,
            "INSERT INTO {ledger} SELECT 'copy', header, events, head FROM {ledger}",
            f"INSERT INTO {{event}} SELECT 'copy', {columns}",
        )
    with pytest.warns(LedgerWarning, match="moved or copied"):
        ledger = opened(copy)
    assert "moved or copied" in ledger.check()[0]
    ledger.acknowledge_move()
    assert ledger.check() == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(copy).close()
        opened(address).close()


# ---------------------------------------------------------------------- other neighbours


def test_other_neighbours_are_refused_and_named(address):
    first = guarantee("laplace", 0.25, unit="the initial state", neighbours="x(0) moves")
    second = guarantee("laplace", 0.25, key="o", unit="one input", neighbours="u(3) moves")
    with Ledger(address, epsilon=1.0, protects="one plant") as ledger:
        ledger.charge(first, fingerprint="f")
        before = ledger.head
        assert not ledger.fits(second)
        with pytest.raises(LedgerError, match="same_secret=True") as refusal:
            ledger.charge(second, fingerprint="f")
        for words in (ledger.name, "'the initial state'", "u(3) moves", "one plant", "same_secret"):
            assert words in str(refusal.value)
        assert ledger.head == before
        assert ledger.fits(second, same_secret=True)
        ledger.charge(second, fingerprint="f", same_secret=True)
        ledger.charge(first, fingerprint="f", same_secret=True)  # not needed, and not marked
        assert [entry.same_secret for entry in ledger.history()] == [False, True, False]
        assert [entry.unit for entry in ledger.history()][1] == "one input"
        assert [entry.neighbours for entry in ledger.history()][1] == "u(3) moves"
        assert (ledger.spent, ledger.unit) == (0.75, "the initial state")
        with pytest.raises(LedgerError, match="same_secret=True"):
            # said of that release, not of all
            ledger.charge(second, fingerprint="f")
    with opened(address, same_secret=True) as ledger:
        assert ledger.fits(second)
        assert not ledger.fits(second, same_secret=False)
        ledger.charge(second, fingerprint="f")
        assert [entry.same_secret for entry in ledger.history()] == [False, True, False, True]
        for one in (first, second):  # it adds up like the others
            with pytest.raises(BudgetExceededError):
                ledger.charge(one, fingerprint="f")
        assert ledger.check() == ()


def test_the_very_same_neighbours_need_no_name(path):
    """A saved mechanism may have lost the unit's name, but not the neighbours."""
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
        for unit in ("one person joins", "the given directions"):
            ledger.charge(guarantee("laplace", 0.25, unit=unit), fingerprint="f")
        assert not any(entry.same_secret for entry in ledger.history())


# ---------------------------------------------------------------------- what it says about itself


def _command(*words: str) -> str:
    from typer.testing import CliRunner

    from affinedp.cli.app import app

    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands(address):
    cap = ("--epsilon", "5", "--delta", "1e-6", "--protects", "one person")
    assert "one person" in _command("ledger", "create", address, *cap)
    whole = adp.design(adp.AffineManifold([[1, -1]]), epsilon=0.125, integers=True, law="knorm")
    with opened(address, same_secret=True) as ledger:
        charge(ledger, "laplace", 0.25, label="March")
        ledger.charge(whole.guarantee, fingerprint="w")
        charge(ledger, "gaussian", 0.1)
    assert "charges     3, 3 not confirmed" in _command("ledger", "show", address)
    said = _command("ledger", "history", address)
    for words in (
        "March",
        "laplace ε = 0.25 ",
        "randomised response ε = 0.125 ",
        "gaussian s = 0.1 ",
    ):
        assert words in said
    assert len(json.loads(_command("ledger", "history", address, "--json"))) == 3
    assert "fine" in _command("ledger", "check", address)


@pytest.mark.parametrize("left", [0.1, 0.7, 0.3999999999999999, 1 / 3, 2e-9, 123456.789, 5e-324])
def test_no_more_is_shown_than_is_left(left):
    shown = Fraction(left_words(left))
    assert 0 <= shown <= Fraction(repr(left))
    assert Fraction(repr(left)) - shown <= max(Fraction(1, 10**9), Fraction(left) / 10**5)


def test_a_refusal_does_not_name_an_epsilon_that_does_not_fit(address):
    with Ledger(address, epsilon=1.0, protects="people") as ledger:
        for epsilon in (0.1, 0.2, 0.3):
            ledger.charge(guarantee("laplace", epsilon), fingerprint="f")
        assert ledger.remaining < 0.4
        words = "0.399999 of ε = 1 at δ = 0 is left, and this release needs 0.4"
        with pytest.raises(BudgetExceededError, match=words):
            ledger.charge(guarantee("laplace", 0.4), fingerprint="f")


def test_a_spent_budget_is_refused_in_one_plain_sentence(tmp_path):
    M = adp.AffineManifold.from_equations(["a + b = c"])
    m = adp.design(M, epsilon=1.0, law="laplace")
    ledger = adp.Ledger(tmp_path / "budget.db", epsilon=1.0, protects="one person")
    m.release([1.0, 2.0, 3.0], ledger=ledger)
    words = "^the budget is spent: 0 of ε = 1 .*is left, and this release needs 1. Nothing was"
    with pytest.raises(adp.AffineDPError, match=words):
        m.release([1.0, 2.0, 3.0], ledger=ledger)
