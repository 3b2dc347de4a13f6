import contextlib
import json
import math
import os
import re
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

import affinedp as adp
from affinedp.budget import filters, ledger_file, state
from affinedp.budget.ledger import BudgetExceededError, Ledger, LedgerError, LedgerWarning
from affinedp.errors import AffineDPError
from affinedp.laws.curves import EPS, GaussianCurve, LaplaceCurve, NoPromise
from affinedp.promise.guarantee import Guarantee

CAP = {"epsilon": 1.0, "delta": 1e-6, "protects": "one person"}


def guarantee(law, sensitivity, key="k", neighbours="one entry moves", unit="one entry"):
    curve = (GaussianCurve if law == "gaussian" else LaplaceCurve)(sensitivity)
    return Guarantee(
        law, sensitivity, True, neighbours, "by hand", curve, neighbours_key=key, unit=unit
    )


def charge(ledger, law, sensitivity, **others):
    key = others.pop("key", "k")
    return ledger.charge(guarantee(law, sensitivity, key), fingerprint="f", **others)


# In memory where there is such a place: most tests need not wait for the disk.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def path(folder):
    return folder / "budget.db"


@pytest.fixture
def disk_path(tmp_path):
    return tmp_path / "budget.db"


def run(code, *arguments, timeout=60):
    """Run a script in a process of its own; it may fork."""
    script = PREAMBLE + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PREAMBLE = """
import os, random, signal, sys, time
from affinedp.laws.curves import GaussianCurve, LaplaceCurve
from affinedp.promise.guarantee import Guarantee
from affinedp.budget.ledger import BudgetExceededError, Ledger, LedgerError

def guarantee(sensitivity):
    return Guarantee("laplace", sensitivity, True, "n", "b", LaplaceCurve(sensitivity),
                     neighbours_key="k", unit="one entry")
path = sys.argv[1]
"""


# ---------------------------------------------------------------------- use


def test_charge_settle_history(path):
    with Ledger(path, **CAP) as ledger:
        first = charge(ledger, "gaussian", 0.125, label="März 📊")
        second = charge(ledger, "laplace", 0.1, releases=2)
        ledger.settle(first)
        entries = ledger.history()
    assert [entry.id for entry in entries] == [first, second]
    assert [entry.status for entry in entries] == ["released", "charged"]
    assert [entry.releases for entry in entries] == [1, 2]
    assert entries[0].label == "März 📊"
    assert entries[1].label is None
    assert entries[1].losses == (("laplace", 0.1),)
    assert entries[0].time.endswith("+00:00")
    assert (entries[0].neighbours, entries[0].neighbours_key) == ("one entry moves", "k")
    with Ledger(path) as again:
        assert again.history() == entries
        assert (again.epsilon, again.delta, again.adaptive) == (1.0, 1e-6, True)
        assert again.check() == ()


def test_real_mechanisms(path):
    M = adp.AffineManifold.from_equations(["a + b = total"])
    m = adp.design_gaussian(M, epsilon=0.5, delta=1e-6)
    with Ledger(path, **CAP) as ledger:
        ledger.charge(m.guarantee, fingerprint="m")
        assert ledger.spent == pytest.approx(0.5, rel=1e-9)
        count = 1
        while ledger.fits(m.guarantee):
            ledger.charge(m.guarantee, fingerprint="m")
            count += 1
        s = m.guarantee.sensitivity
        assert gaussian_delta_exact(1, s * math.sqrt(count)) <= 1e-6
        assert gaussian_delta_exact(1, s * math.sqrt(count + 1)) > 1e-6


def test_file_is_private_and_alone(disk_path):
    Ledger(disk_path, **CAP).close()
    assert stat.S_IMODE(disk_path.stat().st_mode) == 0o600
    assert os.listdir(disk_path.parent) == [disk_path.name]
    with Ledger(disk_path) as ledger:
        charge(ledger, "laplace", 0.1)
        assert os.listdir(disk_path.parent) == [disk_path.name]


def test_commits_are_durable(path):
    Ledger(path, **CAP).close()
    with contextlib.closing(ledger_file.connected(path)) as connection:
        pragma = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "fullfsync")
        }
    assert pragma == {"journal_mode": "delete", "synchronous": 3, "fullfsync": 1}


def test_settle_once_and_only_what_was_charged(path):
    with Ledger(path, **CAP) as ledger:
        entry = charge(ledger, "laplace", 0.1)
        ledger.settle(entry)
        for wrong in (entry, entry + 1, 0, -1, "1", None, 1.0):
            with pytest.raises(LedgerError):
                ledger.settle(wrong)
        assert ledger.spent == 0.1


def test_closed(path):
    ledger = Ledger(path, **CAP)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        charge(ledger, "laplace", 0.1)


def test_another_thread_is_refused(path):
    found = []

    def work(ledger):
        try:
            charge(ledger, "laplace", 0.1)
        except LedgerError as error:
            found.append(error)

    with Ledger(path, **CAP) as ledger:
        thread = threading.Thread(target=work, args=(ledger,))
        thread.start()
        thread.join()
        assert len(found) == 1
        assert ledger.history() == ()


def test_two_instances_in_one_process(path):
    with Ledger(path, epsilon=1.0, protects="one person") as one, Ledger(path) as two:
        charge(one, "laplace", 0.5)
        charge(two, "laplace", 0.25)
        assert one.spent == two.spent == 0.75
        with pytest.raises(BudgetExceededError):
            charge(one, "laplace", 0.5)


@pytest.mark.parametrize("name", ["a b.db", "50%?#.db", "ü'\".db", ":memory:"])
def test_odd_file_names(folder, name):
    with Ledger(folder / name, epsilon=1.0, protects="one person") as ledger:
        charge(ledger, "laplace", 0.5)
    with Ledger(folder / name) as ledger:
        assert ledger.spent == 0.5
    assert os.listdir(folder) == [name]


def test_relative_path_and_symlink(folder, path, monkeypatch):
    Ledger(path, **CAP).close()
    (folder / "link").symlink_to(path)
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger("budget.db").close()
        Ledger("link").close()


# ---------------------------------------------------------------------- composition


def gaussian_delta_exact(epsilon, s):
    with mp.workdps(50):
        s, epsilon = mp.mpf(s), mp.mpf(epsilon)
        return mp.ncdf(s / 2 - epsilon / s) - mp.exp(epsilon) * mp.ncdf(-s / 2 - epsilon / s)


@given(st.lists(st.floats(1e-3, 0.2), min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=60)
def test_gaussian_charges_compose_to_the_root_of_squares(parts, releases):
    losses = filters.multiplied([("gaussian", s) for s in parts], releases)
    with mp.workdps(50):
        s = mp.sqrt(releases * mp.fsum(mp.mpf(part) ** 2 for part in parts))
    spent = mp.mpf(filters.spent_epsilon(losses, 1e-6, True))
    assert gaussian_delta_exact(spent, s) <= 1e-6
    if spent > 1e-6:
        assert gaussian_delta_exact(spent * (1 - mp.mpf(10) ** -9), s) > 1e-6
    for epsilon in (0.1, 0.5, 1.0):
        exact = gaussian_delta_exact(epsilon, s)
        allowed = filters.allows(losses, epsilon, 1e-6, True)
        if abs(exact / mp.mpf(1e-6) - 1) > 1e-9:
            assert allowed == (exact <= 1e-6)


@given(st.lists(st.floats(1e-300, 0.5), min_size=1, max_size=8), st.integers(1, 1000))
def test_pure_charges_add_up_without_rounding(parts, releases):
    losses = filters.multiplied([("laplace", s) for s in parts], releases)
    exact = releases * sum(map(Fraction, parts))
    spent = filters.spent_epsilon(losses, 0.0, True)
    assert Fraction(spent) >= exact
    assert Fraction(math.nextafter(spent, 0)) < exact
    assert filters.allows(losses, spent, 0.0, True)
    assert not filters.allows(losses, math.nextafter(spent, 0), 0.0, True)


def test_last_bit_of_the_cap(path):
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
        charge(ledger, "laplace", 0.25, releases=3)
        with pytest.raises(BudgetExceededError):
            charge(ledger, "laplace", math.nextafter(0.25, 1))
        charge(ledger, "laplace", 0.25)
        assert (ledger.spent, ledger.remaining) == (1.0, 0.0)
        with pytest.raises(BudgetExceededError):
            charge(ledger, "laplace", 5e-324)
        charge(ledger, "laplace", 0.0)  # what costs nothing fits


def test_tiny_gaussian_parts_are_not_lost():
    # 1e-200 squared is 0 in floating point
    losses = filters.multiplied([("gaussian", 1e-200)], 4)
    assert filters._as_gaussian(losses) >= 2e-200
    assert not filters.allows(losses, 0.0, 1e-300, True)


@given(st.lists(st.tuples(st.floats(1e-9, 10), st.integers(1, 10**9)), min_size=1, max_size=9))
def test_root_of_squares_is_never_too_small(parts):
    counts = dict(parts)
    square = sum(count * Fraction(s) ** 2 for s, count in counts.items())
    assert square <= Fraction(filters._root_of_squares(counts)) ** 2 <= square * (1 + 100 * EPS)


@given(st.floats(1e-8, 30))
@settings(max_examples=300)
def test_dominating_gaussian_is_rounded_up(a):
    with mp.workdps(40):
        s = mp.mpf(filters._dominating_gaussian(a))
        assert mp.erfc(s / mp.sqrt(8)) <= mp.exp(-mp.mpf(a) / 2)
        assert mp.erfc(s * (1 - mp.mpf(10) ** -12) / mp.sqrt(8)) >= mp.exp(-mp.mpf(a) / 2)


@pytest.mark.parametrize("a", [5e-324, 1e-300, 1e-9, 1e-8, 1e-4, 0.3, 0.999, 1, 1.5, 7, 60, 900])
def test_dominating_gaussian(a):
    s = filters._dominating_gaussian(a)
    with mp.workdps(400):
        a = mp.mpf(a)
        exact = (
            2 * mp.sqrt(2) * mp.erfinv(1 - mp.exp(-a / 2)) if a > 1e-100 else mp.sqrt(mp.pi / 2) * a
        )
        assert s >= exact
        assert s <= exact * (1 + mp.mpf(10) ** -8) or a < 1e-300
    with mp.workdps(50):  # Laplace's δ(ε) = 1 - exp((ε - a)/2) stays below κ(ε, s)
        for part in np.linspace(0, 1, 21) if 1e-9 < a < 100 else ():
            laplace = -mp.expm1((part - 1) * a / 2)
            kappa = gaussian_delta_exact(part * a, s) if part else mp.erf(s / mp.sqrt(8))
            assert kappa >= laplace


def hockey_stick(law, s, epsilon):
    """δ at any real ε: the exact curve of one scalar mechanism."""
    if law == "gaussian":
        return norm.cdf(s / 2 - epsilon / s) - np.exp(epsilon) * norm.cdf(-s / 2 - epsilon / s)
    inside = -np.expm1((np.clip(epsilon, -s, s) - s) / 2)
    return np.where(epsilon >= s, 0.0, np.where(epsilon <= -s, -np.expm1(epsilon), inside))


def after_gaussian(first, *choices, epsilon):
    """δ of a Gaussian release and then the worst of ``choices``, picked by what it showed."""
    loss = np.linspace(first**2 / 2 - 12 * first, first**2 / 2 + 12 * first, 100_001)
    weight = norm.pdf(loss, first**2 / 2, first) * (loss[1] - loss[0])
    return float(weight @ np.max([hockey_stick(*c, epsilon - loss) for c in choices], axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("first", [0.05, 0.1, 0.15])
def test_analyst_who_chooses_the_law_by_what_was_shown(first):
    def largest(allowed):  # the largest second release that a rule lets pass
        return {
            law: brentq(lambda s, law=law: 0.5 - allowed(law, s), 1e-6, 2.0, xtol=1e-9) - 1e-8
            for law in ("gaussian", "laplace")
        }

    def each_course(law, s):
        return after_gaussian(first, (law, s), epsilon=1.0) <= 1e-6

    def ours(law, s):
        losses = filters.multiplied([("gaussian", first), (law, s)], 1)
        return filters.allows(losses, 1.0, 1e-6, True)

    naive, safe = largest(each_course).items(), largest(ours).items()
    assert after_gaussian(first, *naive, epsilon=1.0) > 1.8e-6  # nearly twice the cap's δ
    assert after_gaussian(first, *safe, epsilon=1.0) <= 1e-6


@pytest.mark.slow
def test_planned_ledger_has_more_room(folder):
    pytest.importorskip("dp_accounting")
    counts = {}
    for adaptive in (True, False):
        with Ledger(folder / f"{adaptive}.db", **CAP, adaptive=adaptive) as ledger:
            charge(ledger, "gaussian", 0.1)
            counts[adaptive] = 0
            while counts[adaptive] < 100 and ledger.fits(guarantee("laplace", 0.04)):
                charge(ledger, "laplace", 0.04)
                counts[adaptive] += 1
            assert ledger.spent <= 1.0
    assert counts[True] < counts[False]
    # the exact curve of all of them, by convolving the losses on a fine grid, optimistically
    assert convolved_delta(0.1, 0.04, counts[False], 1.0) <= 1e-6 * 1.001
    assert convolved_delta(0.1, 0.04, counts[False] + 2, 1.0) > 1e-6


def convolved_delta(gaussian, laplace, count, epsilon):
    """δ by the characteristic function of the privacy loss, at high resolution."""
    step, size = 2e-4, 2**16
    grid = (np.arange(size) - size // 2) * step
    density = np.zeros(size)
    inner = np.abs(grid) < laplace - step / 2
    # loss of Laplace noise: atoms at ±a of 1/2 and e^{-a}/2, density e^{(l-a)/2}/4 between
    density[inner] = np.exp((grid[inner] - laplace) / 2) / 4 * step
    at = round(laplace / step)
    half = step / 8
    density[size // 2 + at] = 0.5 + half
    density[size // 2 - at] = math.exp(-laplace) * (0.5 + half)
    density /= density.sum()
    normal = norm.pdf(grid, gaussian**2 / 2, gaussian) * step
    transform = np.fft.fft(np.fft.ifftshift(density)) ** count
    total = np.fft.fftshift(np.fft.ifft(transform * np.fft.fft(np.fft.ifftshift(normal))).real)
    above = grid > epsilon
    return float((total[above] * -np.expm1(epsilon - grid[above])).sum())


def test_planned_ledger_without_the_extra(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with Ledger(path, **CAP, adaptive=False) as ledger:
        charge(ledger, "gaussian", 0.1)
        charge(ledger, "laplace", 0.5)
        with pytest.warns(LedgerWarning, match="accounting"):
            spent = ledger.spent
        # κ(ε - 0.5, 0.1) = δ
        assert gaussian_delta_exact(spent - 0.5, 0.1) <= 1e-6
        assert spent == pytest.approx(0.5 + adp.gaussian_epsilon(1e-6, 0.1), rel=1e-12)
        with pytest.warns(LedgerWarning), pytest.raises(BudgetExceededError):
            charge(ledger, "laplace", 0.5)


def test_composed_guarantee_is_charged_part_by_part(path):
    both = adp.compose([guarantee("gaussian", 0.05), guarantee("laplace", 0.1)])
    with Ledger(path, **CAP) as ledger:
        ledger.charge(both, fingerprint="f")
        assert ledger.history()[0].losses == (("gaussian", 0.05), ("laplace", 0.1))
        together = ledger.spent
    with Ledger(path.with_name("apart.db"), **CAP) as ledger:
        charge(ledger, "gaussian", 0.05)
        charge(ledger, "laplace", 0.1)
        assert ledger.spent == together


def test_releases_are_copies(folder):
    for law, s in (("gaussian", 0.05), ("laplace", 0.1)):
        with Ledger(folder / f"{law}1", **CAP) as one, Ledger(folder / f"{law}3", **CAP) as two:
            charge(one, law, s, releases=3)
            for _ in range(3):
                charge(two, law, s)
            assert one.spent == two.spent


def test_refusal_carries_numbers_and_records_nothing(path):
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
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
    M = adp.AffineManifold([[1, -1]])
    leaking = adp.verify(M, [[1.0, 0.0], [0.0, 0.0]])
    assert leaking.leak is not None
    with Ledger(path, epsilon=1e300, delta=0.999, protects="one person") as ledger:
        nothing = replace(guarantee("gaussian", math.inf), curve=NoPromise())
        for bad in (
            leaking,
            nothing,
            guarantee("laplace", math.inf),
            guarantee("gaussian", math.nan),
        ):
            with pytest.raises(BudgetExceededError, match="promises nothing") as caught:
                ledger.charge(bad, fingerprint="f")
            assert caught.value.requested == math.inf
            with pytest.raises(BudgetExceededError):
                ledger.fits(bad)
        assert ledger.history() == ()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_huge_losses(path, law):
    with Ledger(path, epsilon=1e300, delta=0.5, protects="one person") as ledger:
        for s in (1e308, 1e200):
            assert ledger.fits(guarantee(law, s)) in (True, False)
        with pytest.raises(BudgetExceededError):
            charge(ledger, law, 1e308, releases=100)


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "caps",
    [
        {"epsilon": math.nan},
        {"epsilon": -0.1},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"epsilon": True},
        {"epsilon": 10**400},
        {"epsilon": 1j},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": 1.5},
        {"epsilon": 1.0, "delta": -1e-9},
        {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0, "delta": 1e-310},
        {"epsilon": 1.0, "adaptive": "no"},
        {"delta": 1e-6},
        {"epsilon": 1.0, "protects": None},
        {"epsilon": 1.0, "protects": ""},
        {"epsilon": 1.0, "protects": " "},
        {"epsilon": 1.0, "protects": "(not said)"},
        {"epsilon": 1.0, "protects": 7},
        {"epsilon": 1.0, "protects": "x" * 1001},
        {"epsilon": 1.0, "same_secret": "yes"},
        {},
    ],
)
def test_bad_caps(path, caps):
    with pytest.raises(AffineDPError):
        Ledger(path, **{"protects": "one person", **caps})
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize(
    "caps",
    [{"epsilon": 2.0}, {"epsilon": 1.0, "delta": 0.0}, {"delta": 1e-5}, {"adaptive": False}],
)
def test_other_caps_are_refused(path, caps):
    Ledger(path, **CAP).close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="was created with"):
        Ledger(path, **caps)
    assert path.read_bytes() == before
    for same in (CAP, {"epsilon": 1}, {"delta": 1e-6}, {"create": False}, {"adaptive": True}):
        Ledger(path, **same).close()


def test_delta_is_zero_unless_given(path):
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
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
        {"label": "x" * 1001},
        {"label": "\ud800"},
        {"label": 7},
        {"fingerprint": ""},
        {"fingerprint": "x" * 1001},
        {"fingerprint": None},
        {"releases": 0},
        {"releases": -1},
        {"releases": 1.0},
        {"releases": True},
        {"releases": 10**10},
        {"guarantee": "g"},
        {"guarantee": guarantee("laplace", 0.1, key="")},
        {"guarantee": guarantee("laplace", 0.1, unit="")},
        {"guarantee": guarantee("laplace", 0.1, unit="x" * 1001)},
        {"same_secret": 1},
        {"guarantee": guarantee("laplace", 0.1, neighbours="x" * 10_001)},
        {"guarantee": guarantee("laplace", -0.1)},
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_bad_arguments(path, others):
    given = {"guarantee": guarantee("laplace", 0.1), "fingerprint": "f", **others}
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
        with pytest.raises(AffineDPError):
            ledger.charge(given.pop("guarantee"), **given)
        assert ledger.history() == ()


# ---------------------------------------------------------------------- the file


@pytest.fixture(scope="module")
def good():
    """The bytes of a ledger, and what it says."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield example(Path(name) / "budget.db")


def example(path):
    with Ledger(path, **CAP) as ledger:
        for i in range(12):
            entry = charge(ledger, "laplace" if i % 2 else "gaussian", 0.01 + i / 1e3, label=f"{i}")
            if i % 3:
                ledger.settle(entry)
    return path.read_bytes(), told(path)


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


def test_missing_and_misplaced(folder):
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(folder / "none.db", create=False)
    with pytest.raises(LedgerError, match="no directory"):
        Ledger(folder / "no" / "budget.db", **CAP)
    refused(folder, "not a file")
    for bad in (None, 7, "a\0b"):
        with pytest.raises(AffineDPError):
            Ledger(bad, **CAP)
    assert os.listdir(folder) == []


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
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
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


def test_damaged_name_of_a_table(folder, good):
    """SQLite quotes it in its message, which then is no text."""
    content, _ = good
    path = folder / "budget.db"
    path.write_bytes(content.replace(b"CREATE TABLE event", b"CREATE TABLE \xff\xfeent"))
    refused(path)


@pytest.mark.slow
def test_every_header_byte(folder, good):
    content, _ = good
    for place in range(100):
        for flip in (0x01, 0x03, 0x80):
            damaged = bytearray(content)
            damaged[place] ^= flip
            path = folder / f"{place}-{flip}.db"
            unchanged_or_refused(path, damaged, good)
            path.unlink()


def test_damaged_list_of_free_pages(folder, good):
    """No event is touched, but a later charge might go astray."""
    content, _ = good
    for place in range(32, 40):
        damaged = bytearray(content)
        damaged[place] ^= 1
        (folder / "budget.db").write_bytes(damaged)
        refused(folder / "budget.db")


def test_truncated(folder, good):
    content, _ = good
    path = folder / "budget.db"
    for size in (
        0,
        1,
        15,
        16,
        99,
        100,
        511,
        512,
        4095,
        4096,
        8192,
        len(content) - 4096,
        len(content) - 1,
    ):
        path.write_bytes(content[:size])
        refused(path)


def test_empty_file_is_not_taken_over(path):
    path.touch()
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
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("CREATE TABLE t (a)")
        other.execute("PRAGMA journal_mode=wal")
        other.execute("INSERT INTO t VALUES (1)")
        os._exit(0)  # with the row in the log only
        """,
        path,
    )
    assert path.with_name("budget.db-wal").stat().st_size > 0
    refused(path, "another program")


def test_ledger_turned_into_a_write_ahead_log(path):
    Ledger(path, **CAP).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode=wal")
    other.close()
    refused(path, "write-ahead")


def test_other_files(path):
    for content in (b"not a database", b"SQLite format 3\0", os.urandom(5000), b"\0" * 8192):
        path.write_bytes(content)
        refused(path)


@pytest.mark.parametrize(("version", "match"), [(3, "newer"), (99, "newer"), (0, "damaged")])
def test_other_versions(path, version, match):
    Ledger(path, **CAP).close()
    altered(path, f"PRAGMA user_version = {version}")
    refused(path, match)


def altered(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = replace(body, 'f', 'g') WHERE number = 3",
        "UPDATE event SET body = CAST(body AS BLOB) WHERE number = 3",
        "UPDATE event SET hash = upper(hash) WHERE number = 3",
        "UPDATE event SET number = 100 WHERE number = 1",
        "DELETE FROM event WHERE number = 1",
        "DELETE FROM event WHERE number = 3",
        "DELETE FROM event WHERE number = (SELECT max(number) FROM event)",
        "DELETE FROM event",
        "INSERT INTO event SELECT max(number) + 1, body, hash FROM event",
        "UPDATE ledger SET events = events - 1",
        "UPDATE ledger SET header = replace(header, '0x1.0000000000000p+0', '0x1.0p+3')",
        "UPDATE ledger SET header = '{}'",
        "DELETE FROM ledger",
        "INSERT INTO ledger SELECT * FROM ledger",
        "CREATE TABLE more (a)",
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM event; END",
        "DROP TABLE event",
    ],
)
def test_edits_are_noticed(path, statement):
    with Ledger(path, **CAP) as ledger:
        for _ in range(3):
            ledger.settle(charge(ledger, "laplace", 0.1))
        altered(path, statement)
        (problem,) = ledger.check()
        assert "cannot be trusted" in problem
        if "event SET" not in statement and "FROM event" not in statement:
            # an open ledger reads only what is new of the events
            with pytest.raises(LedgerError):
                charge(ledger, "laplace", 0.1)
    refused(path, "cannot be trusted")


def test_removed_tail_is_noticed_by_an_open_ledger(path):
    with Ledger(path, **CAP) as ledger:
        charge(ledger, "laplace", 0.5)
        altered(path, "DELETE FROM event", "UPDATE ledger SET events = 0")
        for _ in range(2):
            with pytest.raises(LedgerError, match="altered while it was open"):
                charge(ledger, "laplace", 0.6)


def test_forged_events_that_cannot_be(path):
    """A forger can link a new event; what cannot be a charge is refused all the same."""
    charged = {"kind": "charge", "time": "", "label": None, "neighbours": "n", "fingerprint": "f"}
    charged |= {"neighbours_key": "k", "losses": [["laplace", "0x1p-3"]], "releases": 1}
    for change in (
        {"losses": [["laplace", "-0x1p-3"]]},
        {"losses": [["laplace", "nan"]]},
        {"losses": [["uniform", "0x1p-3"]]},
        {"losses": []},
        {"releases": -1},
        {"releases": 10**400},
        {"kind": "refund"},
        {"kind": "release", "entry": 7},
    ):
        Ledger(path, **CAP).close()
        forge(path, {**charged, **change})
        refused(path, "cannot be read")
        path.unlink()
    Ledger(path, **CAP).close()
    forge(path, {**charged, "losses": [["laplace", "0x1p+3"]]})
    with Ledger(path) as ledger:
        assert ledger.spent == 8.0
        assert "pass the cap" in ledger.check()[0]
        with pytest.raises(BudgetExceededError):
            charge(ledger, "laplace", 0.1)


def forge(path, body):
    connection = sqlite3.connect(path, isolation_level=None)
    ((count, head),) = connection.execute("SELECT events, head FROM ledger").fetchall()
    text = json.dumps(body)
    link = state.chained(head, count + 1, text)
    connection.execute("INSERT INTO event VALUES (?, ?, ?)", (count + 1, text, link))
    connection.execute("UPDATE ledger SET events = ?, head = ?", (count + 1, link))
    connection.close()


def test_read_only(path):
    Ledger(path, **CAP).close()
    path.chmod(0o400)
    refused(path, "read-only")


def test_copies_and_moves_are_noticed(path, folder):
    with Ledger(path, **CAP) as ledger:
        charge(ledger, "laplace", 0.1)
    content = path.read_bytes()
    copy = folder / "copy.db"
    copy.write_bytes(content)
    with pytest.warns(LedgerWarning, match="moved or copied"):
        Ledger(copy).close()
    path.rename(folder / "moved.db")
    with pytest.warns(LedgerWarning):
        ledger = Ledger(folder / "moved.db")
    with ledger:
        assert "moved or copied" in ledger.check()[0]
        ledger.acknowledge_move()
        assert ledger.check() == ()
    path.write_bytes(content)  # a backup, put back in place
    with pytest.warns(LedgerWarning):
        Ledger(path).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger(folder / "moved.db").close()


def test_file_replaced_while_open(path, folder):
    other = folder / "other.db"
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
        pages = os.path.getsize(path) // 4096
        enough = ledger_file._SETTINGS
        monkeypatch.setattr(ledger_file, "_SETTINGS", (*enough, f"max_page_count = {pages}"))
        charged = []
        with pytest.raises(LedgerError, match="disk is full"):  # noqa: PT012
            for _ in range(100):
                charged.append(charge(ledger, "laplace", 1e-3, label="x" * 500))
        assert [entry.id for entry in ledger.history()] == charged
        monkeypatch.undo()
        charge(ledger, "laplace", 1e-3)
        assert ledger.check() == ()


def test_file_that_must_not_grow(disk_path):
    out = run(
        """
        import resource
        with Ledger(path, epsilon=1.0, protects="one person") as ledger:
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 8192,) * 2)
            count = 0
            try:
                while True:
                    ledger.charge(guarantee(1e-4), fingerprint="f", label="x" * 500)
                    count += 1
            except LedgerError as error:
                print(count, len(ledger.history()), ledger.check())
        """,
        disk_path,
    )
    count, recorded, problems = out.split(maxsplit=2)
    assert count == recorded != "0"
    assert problems.strip() == "()"
    with Ledger(disk_path) as ledger:
        assert len(ledger.history()) == int(count)


def test_eight_processes_race_for_the_last_charge(disk_path):
    out = run(
        """
        def race(epsilon):
            ready, go = os.pipe()
            children = []
            for _ in range(8):
                child = os.fork()
                if child == 0:
                    os.close(go)
                    os.read(ready, 1)  # until the parent closes its end
                    # the first race creates it
                    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
                        try:
                            ledger.settle(ledger.charge(guarantee(epsilon), fingerprint="f"))
                            os._exit(0)
                        except BudgetExceededError:
                            os._exit(7)
                children.append(child)
            os.close(go)
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            print(sorted(codes))
            os.close(ready)

        race(0.09375)  # all fit
        race(0.25)  # one fits
        """,
        disk_path,
    )
    assert out.splitlines() == [str([0] * 8), str([0] + [7] * 7)]
    with Ledger(disk_path) as ledger:
        assert ledger.spent == 1.0
        assert [entry.status for entry in ledger.history()] == ["released"] * 9
        assert ledger.check() == ()
    assert os.listdir(disk_path.parent) == [disk_path.name]


def test_both_sides_of_a_fork_may_charge(path):
    run(
        """
        with Ledger(path, epsilon=1.0, protects="one person") as ledger:
            child = os.fork()
            if child == 0:
                ledger.charge(guarantee(0.5), fingerprint="f")
                ledger.close()
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            ledger.charge(guarantee(0.5), fingerprint="f")
            assert (ledger.spent, ledger.check()) == (1.0, ())
        """,
        path,
    )


def test_busy_ledger_is_refused(path, monkeypatch):
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    with Ledger(path, epsilon=1.0, protects="one person") as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process"):
            charge(ledger, "laplace", 0.1)
        # opening looks at the file; that must not drop the lock of this process
        Ledger(path).close()
        with pytest.raises(LedgerError, match="another process"):
            charge(ledger, "laplace", 0.1)
        other.execute("ROLLBACK")
        other.close()
        charge(ledger, "laplace", 0.1)


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
def test_two_hundred_kills(disk_path):
    """Every id that a process saw returned is in the ledger, whenever it was killed."""
    out = run(
        """
        Ledger(path, epsilon=1e6, protects="one person").close()
        random.seed(1)
        for _ in range(200):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                with Ledger(path) as ledger:
                    os.write(write, b"open ")
                    while True:
                        entry = ledger.charge(guarantee(1.0), fingerprint="f")
                        os.write(write, b"%d " % entry)
                        ledger.settle(entry)
                        os.write(write, b"s%d " % entry)
            os.close(write)
            os.read(read, 5)
            time.sleep(random.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with os.fdopen(read, "rb") as pipe:
                print(pipe.read().decode())
        """,
        disk_path,
    )
    lines = out.splitlines()
    charged = {int(word) for word in re.findall(r"\b\d+", out)}
    settled = {int(word) for word in re.findall(r"\bs(\d+)", out)}
    assert len(lines) == 200
    with Ledger(disk_path) as ledger:
        entries = {entry.id: entry for entry in ledger.history()}
        assert ledger.check() == ()
        assert ledger.spent == len(entries)
    assert charged <= entries.keys()
    assert settled <= {id for id, entry in entries.items() if entry.status == "released"}
    # a kill loses at most the one charge that was under way, and never invents one
    assert len(entries) - len(charged) <= 200
    assert charged


@pytest.mark.slow
def test_kills_while_it_is_created(folder):
    out = run(
        """
        random.seed(2)
        whole = 0
        for i in range(40):
            name = f"{path}/{i}.db"
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
        folder,
    )
    assert 0 <= int(out) <= 40


def test_import_does_not_need_the_accounting_extra():
    code = "import sys, affinedp.budget.ledger; print('dp_accounting' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_path_objects(path):
    with Ledger(Path(path), **CAP) as ledger, Ledger(str(path), **CAP) as other:
        assert repr(ledger) == repr(other)
        words = "epsilon=1.0, delta=1e-06, protects='one person'"
        assert repr(ledger) == f"Ledger({str(path)!r}, {words})"


def test_a_refusal_of_mixed_laws_says_why_it_is_more_than_the_sum(tmp_path):
    M = adp.AffineManifold.from_equations(["a + b = c"])
    gaussian = adp.iid_noise(M, law="gaussian", epsilon=0.1, delta=1e-6).guarantee
    laplace = adp.iid_noise(M, law="laplace", epsilon=0.25).guarantee
    with adp.Ledger(tmp_path / "b.db", epsilon=1.0, delta=1e-6, protects="one person") as ledger:
        ledger.charge(laplace, fingerprint="l")
        with pytest.raises(adp.BudgetExceededError, match="stay with one law") as refusal:
            ledger.charge(gaussian, fingerprint="g")
        assert refusal.value.requested < refusal.value.remaining
        with pytest.raises(adp.BudgetExceededError) as refusal:
            ledger.charge(laplace, fingerprint="l", releases=4)
        assert "one law" not in str(refusal.value)
