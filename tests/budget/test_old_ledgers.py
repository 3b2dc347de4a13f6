"""Ledgers that version 1 of the format wrote, with a cap for each kind of neighbours, add up."""

import json
import math
import sqlite3
import warnings
from pathlib import Path

import pytest

import affinedp as adp
from affinedp.budget import state
from affinedp.budget.ledger import (
    BudgetExceededError,
    Ledger,
    LedgerError,
    LedgerWarning,
    OtherUnitError,
)
from affinedp.neighbours.circuit_adjacency import DEFINITION_4
from affinedp.laws.curves import LaplaceCurve
from affinedp.promise.guarantee import Guarantee

CELLS = ["cells_in + cells_out = cells_total"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def laplace(sensitivity, key="k", neighbours="one entry moves", unit="one entry"):
    curve = LaplaceCurve(sensitivity)
    return Guarantee(
        "laplace", sensitivity, True, neighbours, "by hand", curve, neighbours_key=key, unit=unit
    )


OLD = json.loads(Path(__file__).with_name("ledgers_of_version_1.json").read_text())


@pytest.fixture(params=["one kind", "several kinds"])
def old(request, path):
    return restored(path, OLD[request.param])


def restored(path, stored):
    """A ledger that version 1 of the format wrote, event by event."""
    connection = sqlite3.connect(path, isolation_level=None)
    for text in stored["schema"]:
        connection.execute(text)
    connection.executemany("INSERT INTO event VALUES (?, ?, ?)", stored["events"])
    header = (stored["header"], len(stored["events"]), stored["head"])
    connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", header)
    connection.execute(f"PRAGMA application_id = {stored['application_id']}")
    connection.execute(f"PRAGMA user_version = {stored['user_version']}")
    connection.close()
    path.chmod(0o600)
    return path


def version(path):
    connection = sqlite3.connect(path)
    ((found,),) = connection.execute("PRAGMA user_version").fetchall()
    connection.close()
    return found


def opened(path, **given):
    """Open a ledger and return it with what it warned of, besides having been moved."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ledger = Ledger(path, **given)
    assert all(warning.category is LedgerWarning for warning in caught)
    said = [str(warning.message) for warning in caught]
    return ledger, [text for text in said if "moved or copied" not in text]


def test_old_files_open_and_are_left_as_they_are(old):
    before = old.read_bytes()
    ledger, _ = opened(old)
    with ledger:
        assert (ledger.protects, ledger.unit) == ("(not said)", None)
        assert {entry.unit for entry in ledger.history()} == {"(not said)"}
        assert not any(entry.same_secret for entry in ledger.history())
        assert ledger.history()[0].status == "released"
    assert old.read_bytes() == before
    assert version(old) == 1


def test_old_file_with_one_kind(path):
    ledger, said = opened(restored(path, OLD["one kind"]))
    assert said == []
    g = adp.iid_noise(
        adp.AffineManifold.from_equations(CELLS), law="laplace", epsilon=0.25
    ).guarantee
    farther = adp.iid_noise(
        adp.AffineManifold.from_equations(CELLS), law="laplace", epsilon=0.25, mu=2.0
    ).guarantee
    with ledger:
        assert ledger.spent == 0.5
        with pytest.raises(OtherUnitError, match="unknown unit"):  # perhaps, perhaps not
            ledger.charge(farther, fingerprint="f")
        ledger.charge(g, fingerprint="f")  # the same neighbours as before
        assert ledger.unit == DEFINITION_4
        ledger.charge(farther, fingerprint="f")
        with pytest.raises(BudgetExceededError):
            ledger.charge(g, fingerprint="f")
        assert not any(entry.same_secret for entry in ledger.history())
        ledger.acknowledge_move()
        assert ledger.check() == ()
    assert version(path) == 2, "an older affinedp would give other neighbours a new cap"


def test_old_file_with_several_kinds_adds_up(path):
    """0.75, 0.75 and 0.5 were within 1 each; together they are not."""
    ledger, said = opened(restored(path, OLD["several kinds"]))
    (text,) = said
    assert "all of its charges add up now" in text
    with ledger:
        assert ledger.spent == pytest.approx(2.0, abs=1e-9)
        assert ledger.remaining == 0.0
        assert any("add up now" in problem for problem in ledger.check())
        assert any("pass the cap: ε = 2" in problem for problem in ledger.check())
        tiny = laplace(1e-9)
        with pytest.raises(OtherUnitError):
            ledger.charge(tiny, fingerprint="f")
        with pytest.raises(BudgetExceededError):
            ledger.charge(tiny, fingerprint="f", same_secret=True)
        same = laplace(1e-9, key=ledger.history()[0].neighbours_key)
        with pytest.raises(BudgetExceededError):
            ledger.charge(same, fingerprint="f")


def test_old_file_with_several_kinds_and_room(path):
    stored = OLD["several kinds"]
    changed = json.loads(json.dumps(stored["header"]).replace("0x1.0000000000000p+0", "0x1.8p+1"))
    ledger, said = opened(restored(path, rechained({**stored, "header": changed})))
    assert len(said) == 1
    with ledger:
        ledger.charge(laplace(0.5), fingerprint="f", same_secret=True)
        assert ledger.history()[-1].same_secret
        ledger.charge(laplace(0.25, key="more"), fingerprint="f")
        assert (ledger.unit, ledger.spent) == ("one entry", pytest.approx(2.75, abs=1e-9))
        with pytest.raises(BudgetExceededError):
            ledger.charge(laplace(0.3), fingerprint="f")
    ledger, said = opened(path)
    ledger.close()
    assert said == []


def rechained(stored):
    head = state.State.from_header(stored["header"]).head
    events = []
    for number, body, _ in stored["events"]:
        head = state.chained(head, number, body)
        events.append((number, body, head))
    return {**stored, "events": events, "head": head}


def test_old_file_is_named_once(old):
    ledger, _ = opened(old, epsilon=1.0, delta=1e-6, protects="one person")
    with ledger:
        assert ledger.protects == "one person"
        spent = ledger.spent
    ledger, _ = opened(old)
    with ledger:
        assert (ledger.protects, ledger.spent) == ("one person", spent)
    with pytest.raises(LedgerError, match="not 'one household'"):
        opened(old, protects="one household")
    assert version(old) == 2


def test_huge_sum_of_old_kinds_is_no_number_that_fits(path):
    stored = OLD["several kinds"]
    body = json.loads(stored["events"][0][1])
    body["losses"] = [["gaussian", (1e308).hex()]] * 2
    events = [[1, json.dumps(body), ""], *stored["events"][1:]]
    ledger, _ = opened(restored(path, rechained({**stored, "events": events})))
    with ledger:
        assert math.isinf(ledger.spent)
        assert ledger.remaining == 0.0
        assert not ledger.fits(laplace(1e-9), same_secret=True)
