"""What exact composition says of all charges together, also to an analyst who adapts."""

import math
import re
import sys
import tempfile
import warnings
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from scipy.optimize import brentq
from scipy.stats import norm

import affinedp as adp
from affinedp.budget import filters
from affinedp.budget.filters import STEPS, Filter
from affinedp.budget.ledger import (
    BudgetExceededError,
    Ledger,
    LedgerError,
    LedgerWarning,
)
from affinedp.laws.curves import EPS
from ledgers import CAP, charge, guarantee


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
    spent = mp.mpf(Filter(9.0, 1e-6, True).spent(losses, losses))
    assert gaussian_delta_exact(spent, s) <= 1e-6
    if spent > 1e-6:
        assert gaussian_delta_exact(spent * (1 - mp.mpf(10) ** -9), s) > 1e-6
    for epsilon in (0.1, 0.5, 1.0):
        exact = gaussian_delta_exact(epsilon, s)
        allowed = Filter(epsilon, 1e-6, True).allows(losses, losses)
        if abs(exact / mp.mpf(1e-6) - 1) > 1e-9:
            assert allowed == (exact <= 1e-6)


@given(st.lists(st.floats(1e-300, 0.5), min_size=1, max_size=8), st.integers(1, 1000))
def test_pure_charges_add_up_without_rounding(parts, releases):
    losses = filters.multiplied([("laplace", s) for s in parts], releases)
    exact = releases * sum(map(Fraction, parts))
    spent = Filter(9.0, 0.0, True).spent(losses, losses)
    assert Fraction(spent) >= exact
    assert Fraction(math.nextafter(spent, 0)) < exact
    assert Filter(spent, 0.0, True).allows(losses, losses)
    assert not Filter(math.nextafter(spent, 0), 0.0, True).allows(losses, losses)


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
    assert not Filter(0.0, 1e-300, True).allows(losses, losses)


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
    loss = np.linspace(first**2 / 2 - 12 * first, first**2 / 2 + 12 * first, 20_001)
    weight = norm.pdf(loss, first**2 / 2, first) * (loss[1] - loss[0])
    return float(weight @ np.max([hockey_stick(*c, epsilon - loss) for c in choices], axis=0))


def largest(allowed):
    """The largest second release of each law that a rule lets pass."""
    return {
        law: brentq(lambda s, law=law: 0.5 - allowed(law, s), 1e-9, 2.0, xtol=1e-9) - 1e-8
        for law in ("gaussian", "laplace")
    }.items()


@pytest.mark.slow
@pytest.mark.parametrize("first", [0.05, 0.1, 0.15])
@pytest.mark.parametrize("before", [[], [("laplace", 1e-7)]], ids=["gaussian", "pure"])
def test_analyst_who_chooses_the_law_by_what_was_shown(first, before):
    def each_course(law, s):
        return after_gaussian(first, (law, s), epsilon=1.0) <= 1e-6

    def ours(law, s):
        losses = filters.multiplied([*before, ("gaussian", first), (law, s)], 1)
        begun = filters.multiplied((before or [("gaussian", first)])[:1], 1)
        return Filter(1.0, 1e-6, True).allows(losses, begun)

    assert after_gaussian(first, *largest(ours), epsilon=1.0) <= 1e-6
    if not before:  # nearly twice the cap's δ
        assert after_gaussian(first, *largest(each_course), epsilon=1.0) > 1.8e-6


def test_no_rule_has_more_than_its_share():
    """What all rules may add is at most δ; the numbers A go up from the first charge."""
    delta = 1e-5
    cap = Filter(3.0, delta, True)
    first = filters.multiplied([("laplace", 1.0)], 1)
    apart = {}
    for pure in np.linspace(0.0, 1.87, 500):
        losses = first + filters.multiplied([("laplace", float(pure)), ("gaussian", 0.1)], 1)
        shares = {bound.rule: bound for bound in cap.bounds(losses, first)}
        assert len(shares) == 2
        assert shares["one Gaussian for all"].share <= delta / 2
        bound = shares["pure and Gaussian noise apart"]
        assert bound.pure >= 1 + Fraction(float(pure))
        apart[bound.pure] = bound.share
    assert len(apart) == STEPS
    assert sum(map(Fraction, apart.values())) <= Fraction(delta) / 2
    begun = filters.multiplied([("gaussian", 0.1)], 1)
    (only,) = cap.bounds(begun + first, begun)
    assert (only.rule, only.share) == ("one Gaussian for all", delta)


ONE = guarantee("laplace", 1.0)
GAUSSIAN = guarantee("gaussian", float(adp.gaussian_sensitivity(1.0, 1e-6)))


def test_pure_noise_and_then_gaussian_noise(path):
    """As basic composition allows: 1 of 3 is spent, and a Gaussian release of 1 fits."""
    with Ledger(path, epsilon=3.0, delta=1e-5, protects="one person") as ledger:
        ledger.charge(ONE, fingerprint="p")
        assert (ledger.spent, ledger.remaining) == (1.0, 2.0)
        ledger.charge(GAUSSIAN, fingerprint="g")
        assert 2.0 < ledger.spent < 2.1
        assert gaussian_delta_exact(ledger.spent - 1, GAUSSIAN.sensitivity) <= 1e-5 / 32
        with pytest.raises(BudgetExceededError) as refusal:
            charge(ledger, "gaussian", float(adp.gaussian_sensitivity(2.0, 1e-5)))
        for words in ("one Gaussian for all gives", "noise apart gives", "at most ε = "):
            assert words in str(refusal.value)


def test_what_would_fit_does_fit(path):
    """Gaussian noise first: all of δ is for one Gaussian, and the refusal says what has room."""
    with Ledger(path, epsilon=3.0, delta=1e-5, protects="one person") as ledger:
        ledger.charge(GAUSSIAN, fingerprint="g")
        with pytest.raises(BudgetExceededError, match="first charge had Gaussian noise") as refusal:
            ledger.charge(ONE, fingerprint="p")
        assert refusal.value.requested < refusal.value.remaining
        room = float(re.search("at most ε = ([0-9.]+)", str(refusal.value))[1])
        assert not ledger.fits(guarantee("laplace", room * 1.001))
        charge(ledger, "laplace", room * 0.999)


@pytest.mark.slow
def test_planned_ledger_has_more_room(tmp_path):
    pytest.importorskip("dp_accounting")
    counts = {}
    for adaptive in (True, False):
        with Ledger(tmp_path / f"{adaptive}.db", **CAP, adaptive=adaptive) as ledger:
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


def test_releases_are_copies(tmp_path):
    for law, s in (("gaussian", 0.05), ("laplace", 0.1)):
        with Ledger(tmp_path / f"{law}1", **CAP) as one, Ledger(tmp_path / f"{law}3", **CAP) as two:
            charge(one, law, s, releases=3)
            for _ in range(3):
                charge(two, law, s)
            assert one.spent == two.spent


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_huge_losses(path, law):
    with Ledger(path, epsilon=1e300, delta=0.5, protects="one person") as ledger:
        for s in (1e308, 1e200):
            assert ledger.fits(guarantee(law, s)) in (True, False)
        with pytest.raises(BudgetExceededError):
            charge(ledger, law, 1e308, releases=100)


# ---------------------------------------------------------------------- charges in any order

UNITS = ("one person", "one input", "one cell")


class Exact:
    """All losses with exact arithmetic, and the rules as docs/howto/budget.md has them."""

    def __init__(self):
        self.pure, self.squares, self.all_squares = Fraction(), mp.mpf(0), mp.mpf(0)
        self.first = None

    def plus(self, law, s, count):
        more = Exact()
        with mp.workdps(40):
            gaussian = mp.mpf(s)
            if law == "laplace":
                gaussian = 2 * mp.sqrt(2) * mp.erfinv(-mp.expm1(-gaussian / 2)) if s else mp.mpf(0)
            own = count * mp.mpf(s) ** 2 if law == "gaussian" else 0
            more.squares = self.squares + own
            more.all_squares = self.all_squares + count * gaussian**2
        more.pure = self.pure + (count * Fraction(s) if law == "laplace" else 0)
        more.first = (more.pure, own > 0) if self.first is None else self.first
        return more

    def rules(self, epsilon, delta):
        """Pure ε, squares of Gaussian sensitivities and the share of δ of each rule."""
        if self.squares == 0:
            yield self.pure, mp.mpf(0), mp.mpf(0)
        if not delta or self.first is None:
            return
        begun, gaussian = self.first
        yield Fraction(), self.all_squares, mp.mpf(delta) / (1 if gaussian else 2)
        steps = [begun + (Fraction(epsilon) - begun) * k / 16 for k in range(16)]
        for step in [step for step in steps if self.pure <= step < epsilon][: 0 if gaussian else 1]:
            yield step, self.squares, mp.mpf(delta) / 32

    def allowed(self, cap, delta, epsilon=None):
        """True, False, or None where it is too close to tell from rounding."""
        epsilon, close = cap if epsilon is None else epsilon, False
        with mp.workdps(40):
            for pure, squares, share in self.rules(cap, delta):
                left = Fraction(epsilon) - pure
                if left < 0 or (squares == 0) or not share:
                    if left >= 0 and squares == 0:
                        return True
                    continue
                found = exact_delta(mp.mpf(left.numerator) / left.denominator, squares) / share
                if abs(found - 1) < 1e-9:
                    close = True
                elif found < 1:
                    return True
        return None if close else False


def exact_delta(epsilon, squares):
    s = mp.sqrt(squares)
    return mp.ncdf(s / 2 - epsilon / s) - mp.exp(epsilon) * mp.ncdf(-s / 2 - epsilon / s)


class Interleavings(RuleBasedStateMachine):
    """Two handles on one ledger charge at will; a model in exact arithmetic looks over them."""

    epsilon, delta = 1.0, 1e-3

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "budget.db"
        self.exact, self.unit, self.first_key = Exact(), None, None
        self.entries, self.open = [], []
        self.ledgers = [self.opened(), self.opened()]

    def opened(self, **more):
        cap = {"epsilon": self.epsilon, "delta": self.delta, "protects": "one person"}
        return Ledger(self.path, **cap, **more)

    @rule(
        which=st.integers(0, 1),
        law=st.sampled_from(["gaussian", "laplace"]),
        s=st.one_of(st.floats(1e-3, 0.4), st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0])),
        unit=st.sampled_from(UNITS[:1] * 3 + UNITS),
        mu=st.integers(1, 3),
        releases=st.integers(1, 4),
        same_secret=st.sampled_from([None, False, True]),
    )
    def charge(self, which, law, s, unit, mu, releases, same_secret):
        """Accepted if and only if the neighbours are the ledger's and exact composition fits."""
        key = f"{unit} {mu}"
        given = guarantee(law, s, key, f"by {key}", unit)
        more = self.exact.plus(law, s, releases)
        expected = more.allowed(self.epsilon, self.delta)
        assume(expected is not None)
        own = self.unit in (None, unit) or key == self.first_key
        fits = self.ledgers[which].fits(given, releases=releases, same_secret=same_secret)
        assert fits == ((own or bool(same_secret)) and expected)
        before = self.ledgers[which].head
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if not fits:
                refusal = BudgetExceededError if own or same_secret else LedgerError
                with pytest.raises(refusal) as caught:
                    self.ledgers[which].charge(
                        given, fingerprint="f", releases=releases, same_secret=same_secret
                    )
                assert type(caught.value) is refusal
                assert self.ledgers[1 - which].head == before
                if refusal is BudgetExceededError:
                    assert caught.value.remaining == self.ledgers[1 - which].remaining
                return
            entry = self.ledgers[which].charge(
                given, fingerprint="f", releases=releases, same_secret=same_secret
            )
        self.exact = more
        self.unit, self.first_key = self.unit or unit, self.first_key or key
        self.entries.append([entry, (law, s), unit, key, releases, not own, "charged"])

    @precondition(lambda self: self.entries)
    @rule(which=st.integers(0, 1), data=st.data())
    def settle(self, which, data):
        """Once for each charge."""
        chosen = data.draw(st.sampled_from(self.entries))
        if chosen[-1] == "released":
            with pytest.raises(LedgerError):
                self.ledgers[which].settle(chosen[0])
        else:
            self.ledgers[which].settle(chosen[0])
            chosen[-1] = "released"

    @rule(which=st.integers(0, 1))
    def reopen(self, which):
        """Nothing is forgotten."""
        self.ledgers[which].close()
        self.ledgers[which] = self.opened()

    @invariant()
    def both_know_everything(self):
        """Unit, history, and what was spent."""
        for ledger in self.ledgers:
            assert ledger.unit == self.unit
            found = [
                [e.id, *e.losses, e.unit, e.neighbours_key, e.releases, e.same_secret, e.status]
                for e in ledger.history()
            ]
            assert found == self.entries
            spent = ledger.spent
            assert ledger.remaining == max(0.0, self.epsilon - spent)
            assert 0.0 <= spent <= self.epsilon
            # what exact arithmetic says at the stated ε, or a little above it
            assert self.exact.allowed(self.epsilon, self.delta, spent) is not False

    def teardown(self):
        for ledger in self.ledgers:
            assert ledger.check() == ()
            ledger.close()
        self.folder.cleanup()


class PureInterleavings(Interleavings):
    """At δ = 0 only pure ε fits, and it adds up without rounding."""

    delta = 0.0


for machine in (Interleavings, PureInterleavings):
    machine.TestCase.pytestmark = [pytest.mark.slow]
Interleavings.TestCase.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)
PureInterleavings.TestCase.settings = Interleavings.TestCase.settings
TestInterleavings = Interleavings.TestCase
TestPureInterleavings = PureInterleavings.TestCase
