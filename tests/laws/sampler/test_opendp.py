"""OpenDP's sampler can be chosen: the same law, drawn on beyond the ends of 64 bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import affinedp as adp
from affinedp.laws.sampler import draw_integers
from affinedp.laws.sampler import opendp as module
from affinedp.laws.sampler.opendp import beyond, opendp_integers
from affinedp.laws.sampler.reference import IntegerLaw

# both are random: this may fail once in a million runs
UNLIKELY = 1e-6


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [Fraction(3, 4), 7, 2**56], ids=str)
def test_the_same_law(name, scale):
    ours, theirs = draw_integers(name, scale, 20_000), opendp_integers(name, scale, (200, 100))
    assert theirs.shape == (200, 100)
    assert type(theirs[0, 0]) is int
    if scale < 1:
        inner = [np.clip(z.ravel().astype(int), -2, 2) + 2 for z in (ours, theirs)]  # none is rare
        pair = [np.bincount(z, minlength=5) for z in inner]
        assert stats.chi2_contingency(np.array(pair)).pvalue > UNLIKELY
    else:
        assert stats.ks_2samp(ours.astype(float), theirs.ravel().astype(float)).pvalue > UNLIKELY


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("end", [1, 20])
def test_the_tail_has_the_law_beyond_the_end(name, end):
    law = IntegerLaw.of(name, 5)
    drawn = np.array([beyond(law, end) for _ in range(1000)])
    start = float(law.exponent(end))
    weights = np.array([np.exp(start - float(law.exponent(end + t))) for t in range(400)])
    law_of_t = weights / weights.sum()
    last = int((law_of_t > 0.01).sum())  # it falls: what comes later is one cell
    expected = np.append(law_of_t[:last], law_of_t[last:].sum())
    counts = np.bincount(np.minimum(drawn, last), minlength=last + 1)
    assert stats.chisquare(counts, expected * 1000).pvalue > UNLIKELY


@pytest.mark.slow
def test_what_stopped_at_an_end_is_drawn_on(monkeypatch):
    """With ends at ±8 the law over all integers is still that of the sampler of this room."""

    def stopped(law, count):
        drawn = draw_integers(law.name, law.scale, count)
        return lambda zeros: np.clip(drawn, -8, 8).tolist()

    monkeypatch.setattr(module, "LOWEST", -8)
    monkeypatch.setattr(module, "HIGHEST", 8)
    monkeypatch.setattr(module, "_measurement", stopped)
    for name in ("gaussian", "laplace"):
        found = opendp_integers(name, 5, 4000).astype(int)
        assert np.abs(found).max() > 10
        wanted = draw_integers(name, 5, 40_000).astype(int)
        edges = [-40, -14, -11, -9, -8, -7, -4, -1, 2, 5, 8, 9, 11, 14, 40]
        pair = [np.histogram(np.clip(z, -30, 30), edges)[0] for z in (found, wanted)]
        assert stats.chi2_contingency(np.array(pair)).pvalue > UNLIKELY


def test_opendp_stops_at_the_ends_of_64_bits():
    """What :func:`opendp_integers` relies on, asked of OpenDP itself."""
    drawn = module._measurement(IntegerLaw.of("gaussian", 2**80), 200)([0] * 200)
    assert set(drawn) == {-(2**63), 2**63 - 1}


def test_what_it_cannot_draw_is_refused():
    for scale, words in ((2**61, "64 bits"), (2**55 + 1, "float")):
        with pytest.raises(adp.AffineDPError, match=words):
            opendp_integers("gaussian", scale, 3)
    assert opendp_integers("laplace", 3, 0).shape == (0,)


@pytest.fixture(scope="module")
def manifold():
    return adp.AffineManifold.from_equations(["a + b = c"])


@pytest.mark.parametrize("design", [adp.design_gaussian, adp.design_laplace])
def test_a_release_may_be_drawn_by_opendp(manifold, design, tmp_path):
    mechanism = design(manifold, epsilon=1.0, **({"delta": 1e-6} if "gaus" in str(design) else {}))
    data = np.tile([30.0, 70.0, 100.0], (4000, 1))
    noise = [mechanism.release(data, sampler=who) - data for who in ("bulk", "opendp")]
    for one in noise:
        assert np.abs(one[:, 0] + one[:, 1] - one[:, 2]).max() < 1e-9
    for column in range(3):
        assert stats.ks_2samp(noise[0][:, column], noise[1][:, column]).pvalue > UNLIKELY


def test_who_draws_is_checked_before_the_charge(manifold, tmp_path):
    knorm = adp.design_knorm(manifold, epsilon=1.0)
    gaussian = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    with adp.Ledger(tmp_path / "l.db", epsilon=5.0, delta=1e-5, protects="x") as ledger:
        with pytest.raises(adp.AffineDPError, match="K-norm"):
            knorm.release([1, 2, 3], ledger=ledger, sampler="opendp")
        with pytest.raises(adp.AffineDPError, match="'bulk' or 'opendp'"):
            gaussian.release([1, 2, 3], ledger=ledger, sampler="numpy")
        with pytest.raises(adp.AffineDPError, match="64 bits"):
            gaussian.release([1, 2, 3], ledger=ledger, sampler="opendp", bound=1e25)
        assert ledger.history() == ()


@pytest.mark.slow
def test_tables_and_hierarchies_may_be_drawn_by_opendp():
    pandas = pytest.importorskip("pandas")
    from affinedp.tables import TableRelease

    words = {"totals": {"all": ["a", "b"]}, "epsilon": 1.0, "delta": 1e-6, "round_to": 1}
    table = pandas.DataFrame({"a": [1, 2], "b": [3, 4], "all": [4, 6]})
    with pytest.raises(adp.AffineDPError, match="law='gaussian'"):  # whole noise is of another law
        TableRelease(**words).release(table, sampler="opendp")
    rows = TableRelease(law="gaussian", **words)
    out = rows.release(table, sampler="opendp").table
    assert (out["all"] == out["a"] + out["b"]).all()
    tree = adp.design_tree([-1, 0, 0, 0], epsilon=1.0, delta=1e-6)
    found = tree.release([0, 30, 41, 29], sampler="opendp")
    assert found[0] == found[1:].sum()
    with pytest.raises(adp.AffineDPError, match="sampler"):
        tree.release([0, 30, 41, 29], sampler="numpy")
