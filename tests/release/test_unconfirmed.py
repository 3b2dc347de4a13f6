"""A result that was paid for is handed over, also if its ledger is lost before it is confirmed."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import affinedp as adp
from affinedp.budget.ledger import Ledger, LedgerError, LedgerWarning
from affinedp.laws.sampler import IntegerNoise

CAP = {"epsilon": 5.0, "delta": 1e-6, "protects": "one person"}
M = adp.AffineManifold.from_equations(["a + b = c"])


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    def gone(self, entry):
        raise LedgerError("it cannot be reached; do not release", unreachable=True)

    monkeypatch.setattr(Ledger, "settle", gone)
    with Ledger(tmp_path / "l.db", **CAP) as opened:
        yield opened
        assert [entry.status for entry in opened.history()] == ["charged"]


def _table(ledger):
    pandas = pytest.importorskip("pandas")
    from affinedp.tables import TableRelease

    frame = pandas.DataFrame({"a": [1], "b": [2], "c": [3]})
    described = TableRelease(totals={"c": ["a", "b"]}, epsilon=1.0)
    return described.release(frame, ledger=ledger).table


def _tree(ledger):
    from affinedp.designs.tree import design_tree

    made = design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6)
    return made.release([0, 30, 41], ledger=ledger)


RELEASES = {
    "mechanism": lambda ledger: adp.design_laplace(M, epsilon=1.0).release(
        [1, 2, 3], ledger=ledger
    ),
    "table": _table,
    "tree": _tree,
}


@pytest.mark.parametrize("what", RELEASES)
def test_only_a_warning_says_that_it_was_not_confirmed(ledger, what):
    with pytest.warns(LedgerWarning, match="is complete, but entry 1.*not confirmed") as told:
        published = RELEASES[what](ledger)
    assert np.isfinite(np.asarray(published, dtype=float)).all()
    assert "do not release" not in str(told[0].message)


def test_a_page_gets_its_table(ledger, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    from affinedp.studio import publishing, uploads
    from affinedp.studio.question import Publication

    def gone(self):
        raise LedgerError("it cannot be reached; do not release", unreachable=True)

    adp.design_laplace(M, epsilon=1.0).save(tmp_path / "m.json")
    design = json.dumps({"files": {"mechanism.json": (tmp_path / "m.json").read_text("utf-8")}})
    wanted = Publication(question={}, file="f", ledger=str(tmp_path / "l.db"))
    held = uploads.Held("t.csv", b"a,b,c\n1,2,3\n")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "spent", property(gone))
        told = publishing.publish(publishing.Offer(wanted, design.encode(), held, "ticket", 0.0))
    assert told["csv"].startswith("a,a_lower,a_upper,b,")
    assert (told["spent"], told["remaining"]) == (None, None)
    assert "not confirmed" in told["warnings"][0]
    assert "could not be asked" in told["warnings"][1]


def test_nothing_is_handed_out_if_the_ledger_forgot_the_charge(tmp_path, monkeypatch):
    """A backup that is put back while noise is drawn: its answer is no silence."""
    file, backup = tmp_path / "l.db", tmp_path / "backup.db"
    with Ledger(file, **CAP) as ledger:
        shutil.copyfile(file, backup)
        draw = IntegerNoise.draw

        def draw_and_restore(*words):
            shutil.copyfile(backup, file)
            return draw(*words)

        monkeypatch.setattr(IntegerNoise, "draw", draw_and_restore)
        with pytest.raises(LedgerError, match="no entry 1|altered|replaced"):
            adp.design_laplace(M, epsilon=1.0).release([1, 2, 3], ledger=ledger)
