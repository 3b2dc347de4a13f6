"""Whatever is charged in whatever order, the ledger does what exact composition says."""

import os
import tempfile
import warnings
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from affinedp.budget.ledger import BudgetExceededError, Ledger, LedgerError, OtherUnitError
from affinedp.laws.curves import GaussianCurve, LaplaceCurve
from affinedp.promise.guarantee import Guarantee

pytestmark = pytest.mark.slow

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
UNITS = ("one person", "one input", "one cell")


def guarantee(law, s, unit, key):
    curve = (GaussianCurve if law == "gaussian" else LaplaceCurve)(s)
    return Guarantee(law, s, True, f"by {key}", "by hand", curve, neighbours_key=key, unit=unit)


def kappa(epsilon, s):
    return mp.ncdf(s / 2 - epsilon / s) - mp.exp(epsilon) * mp.ncdf(-s / 2 - epsilon / s)


class Exact:
    """All losses with exact arithmetic: the sum of pure ε, or √Σs² with Laplace's s = 2Φ⁻¹(…)."""

    def __init__(self):
        self.pure, self.squares, self.gaussian = Fraction(), mp.mpf(0), False

    def plus(self, law, s, count):
        more = Exact()
        more.pure, more.gaussian = self.pure, self.gaussian or (law == "gaussian" and s > 0)
        with mp.workdps(40):
            if law == "laplace":
                more.pure += count * Fraction(s)
                half = mp.mpf(s) / 2
                s = 2 * mp.sqrt(2) * mp.erfinv(-mp.expm1(-half)) if s else mp.mpf(0)
            more.squares = self.squares + count * mp.mpf(s) ** 2
        return more

    def delta(self, epsilon):
        with mp.workdps(40):
            s = mp.sqrt(self.squares)
            return kappa(mp.mpf(epsilon), s) if s else mp.mpf(0)

    def allowed(self, epsilon, delta):
        """True, False, or None where it is too close to tell from rounding."""
        if not self.gaussian and self.pure <= Fraction(epsilon):
            return True
        if delta == 0:
            return False
        found = self.delta(epsilon) / mp.mpf(delta)
        return None if abs(found - 1) < 1e-9 else bool(found <= 1)


class Interleavings(RuleBasedStateMachine):
    """Two handles on one ledger charge at will; a model in exact arithmetic looks over them."""

    epsilon, delta = 1.0, 1e-3

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
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
        given = guarantee(law, s, unit, key)
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
                refusal = BudgetExceededError if own or same_secret else OtherUnitError
                with pytest.raises(refusal) as caught:
                    self.ledgers[which].charge(
                        given, fingerprint="f", releases=releases, same_secret=same_secret
                    )
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
            covered = not self.exact.gaussian and Fraction(spent) >= self.exact.pure
            # what exact arithmetic says at the cap and at the stated ε
            assert covered or self.exact.delta(spent) <= self.delta * (1 + mp.mpf(10) ** -9)

    def teardown(self):
        for ledger in self.ledgers:
            assert ledger.check() == ()
            ledger.close()
        self.folder.cleanup()


class PureInterleavings(Interleavings):
    """At δ = 0 only pure ε fits, and it adds up without rounding."""

    delta = 0.0


Interleavings.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
PureInterleavings.TestCase.settings = Interleavings.TestCase.settings
TestInterleavings = Interleavings.TestCase
TestPureInterleavings = PureInterleavings.TestCase
