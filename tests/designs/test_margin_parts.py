"""Margins and places as parts of a mechanism: listed moves, adjoints, files, refusals."""

import json
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from affinedp.designs.margins import design_margins
from affinedp.designs.places import design_tree_margins
from affinedp.domains.crossed import Crossed, Placed, counts_of_records
from affinedp.domains.totals import Totals
from affinedp.errors import AffineDPError
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.laplace import Geometrics
from affinedp.laws.sampler.words import Key, system_bytes
from affinedp.mechanism import Mechanism
from affinedp.neighbours.people import People
from affinedp.parts import StorageError
from affinedp.privacy.guarantee import promise
from affinedp.release.publish import drawn
from affinedp.strategies.base import GRID_BITS, largest_listed
from affinedp.strategies.margins import Margins
from affinedp.tables import whole

PARENT = np.array([3, 3, 4, 6, 6, 4, -1])  # leaves 0, 1, 2, 5; the root is node 6
SIZES = [3, 2, 2]
PROMISE = {"epsilon": 0.7, "delta": 1e-6}
MADE = [
    (kind, move, law)
    for kind in ("margins", "places")
    for move in ("person", "replace", "swaps")
    for law in ("gaussian", "laplace")
    if move != "swaps" or (kind, law) == ("margins", "gaussian")
]


def made(kind, move, law, **options):
    options = {"adjacency": move, "law": law, **PROMISE, **options}
    if kind == "margins":
        return design_margins(SIZES, [(0, 1), (1, 2)], **options)
    return design_tree_margins(PARENT, SIZES[:2], [(0,), (0, 1)], **options)


def data(kind, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "margins":
        return counts_of_records(rng.integers(0, SIZES, (60, 3)), SIZES)
    return rng.integers(0, 9, (4, *SIZES[:2])).astype(np.int32)


@pytest.fixture(scope="module", params=MADE, ids="-".join)
def mechanism(request):
    return request.param[0], made(*request.param, household=2)


def test_the_promise_is_that_of_all_moves(mechanism):
    _, m = mechanism
    if m.adjacency.move == "swaps":
        pytest.skip("swaps are compared with brute force elsewhere")
    listed = largest_listed(m.strategy, m.adjacency, m.noise)
    stated = m.guarantee.sensitivity
    assert float(listed.lower) <= stated <= float(listed.upper) * (1 + 1e-9)


def test_noise_goes_through_as_the_loadings_say(mechanism):
    _, m = mechanism
    rows = m.strategy.loadings()
    drawn = m.noise.sample(np.random.default_rng(0), 3, m.strategy.coordinates)
    np.testing.assert_allclose(m.strategy.spread(drawn), drawn @ rows.T, atol=1e-9)
    np.testing.assert_allclose(m.noise.variances(rows), m.expected_squared_errors, rtol=1e-9,
                               atol=1e-12)  # fmt: skip
    assert m.sample(2, seed=1).shape == (2, len(m.output_names))


def test_steps_are_what_is_measured(mechanism):
    """One person more in a cell moves the integers by measure(v), never by more."""
    kind, m = mechanism
    if m.domain.fixed_people:
        pytest.skip("nobody joins")
    plan, bits = m.prepared(), 0 if m.noise.whole else GRID_BITS
    if kind == "margins":
        records = np.zeros((1, 3), int)
        before, after = (counts_of_records(one, SIZES) for one in (records[:0], records))
    else:
        before, after = np.zeros((2, 4, *SIZES[:2]), np.int32)
        after[0, 0, 0] = 1
    (first, _), (second, _) = (m.domain.read(one) for one in (before, after))
    moved = np.asarray(plan.steps(second)) - np.asarray(plan.steps(first))
    move = np.zeros((m.domain.size, 1))
    move[0] = 1.0
    measured = m.strategy.measure(move)[:, 0]
    for found, wanted in zip(moved[:, 0].tolist(), measured.tolist()):
        assert abs(found) <= abs(Fraction(wanted)) * (1 << bits) * (1 + Fraction(1, 1 << 40))
        assert found == pytest.approx(wanted * 2.0**bits, rel=1e-12)


def test_the_same_words_give_the_same_release(mechanism):
    kind, m = mechanism
    plan = m.prepared()
    given, _ = m.domain.read(data(kind))
    steps, shared = plan.steps(given), plan.shared(given)
    outs = []
    for _ in range(2):
        noise = drawn(plan, plan.noise, 1, Key(b"k" * 32).source("margins"))
        outs.append(plan.reconstruct(steps + noise, shared))
    for chosen in outs[0]:
        np.testing.assert_array_equal(outs[0][chosen], outs[1][chosen])
    zero = drawn(plan, plan.noise, 1, system_bytes) * 0
    exact = plan.reconstruct(steps + zero, shared)
    truth = m.strategy.flat(exact)
    assert np.abs(truth - np.rint(truth)).max() < 1e-9
    low, high = m.interval(outs[0], level=0.999999)
    assert all((low[one] <= exact[one]).all() and (exact[one] <= high[one]).all() for one in low)


def test_what_is_saved_is_read_again(mechanism, tmp_path):
    _, m = mechanism
    m.save(tmp_path / "m.json")
    again = Mechanism.load(tmp_path / "m.json")
    assert again.fingerprint == m.fingerprint
    assert again.guarantee.sensitivity == m.guarantee.sensitivity
    assert again.guarantee.neighbours == m.guarantee.neighbours
    assert again.gap is None
    document = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    document["stated"]["sensitivity"] *= 0.9
    (tmp_path / "m.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StorageError, match="altered"):
        Mechanism.load(tmp_path / "m.json")


def test_reports_say_what_is_promised(mechanism):
    text = str(mechanism[1])
    assert "margin of 0" in text
    assert "household" in text or "pairs exchange" in text


def test_whole_numbers_add_up(mechanism):
    kind, m = mechanism
    out = m.release(data(kind))
    found = whole(m, out, nonnegative=True)
    for chosen in out:
        assert found[chosen].shape == out[chosen].shape
        assert found[chosen].dtype == np.int64
        assert found[chosen].min() >= 0
        if kind == "places":
            assert (found[chosen][3] == found[chosen][0] + found[chosen][1]).all()


@dataclass(frozen=True, eq=False)
class TwoPeople(People):
    """A subclass that moves twice as far must not be answered by its parent's fast way."""

    kind = "test.two"

    def _columns(self, ones):
        return super()._columns(2 * ones)


def test_a_subclass_of_people_is_listed():
    m = made("margins", "person", "gaussian")
    found = promise(TwoPeople(m.domain), m.strategy, m.noise)
    assert found.sensitivity == pytest.approx(2 * m.guarantee.sensitivity, rel=1e-9)
    fixed = made("margins", "replace", "gaussian")
    with pytest.raises(AffineDPError, match="as they are"):
        promise(TwoPeople(fixed.domain), fixed.strategy, fixed.noise)


def test_noise_for_other_data_or_with_public_margins_is_refused():
    m = made("margins", "person", "gaussian")
    with pytest.raises(AffineDPError, match="other data"):
        promise(People(Crossed((3, 2, 3))), m.strategy, m.noise)
    swaps = made("margins", "swaps", "gaussian")
    with pytest.raises(AffineDPError, match="as they are"):
        promise(People(swaps.domain, "replace"), swaps.strategy, swaps.noise)
    with pytest.raises(AffineDPError, match="positive precision"):
        Margins(m.domain, m.strategy.margins, np.zeros(len(m.strategy.t)))
    with pytest.raises(AffineDPError, match="cannot be public"):
        Placed(Totals.of([-1, 0, 0], neighbours="replace"), Crossed((2, 2)))
    assert Mechanism(m.adjacency, m.strategy, Gaussian()).guarantee.sensitivity > 0


def test_margins_are_read_from_a_mapping():
    m = made("margins", "person", "gaussian")
    counts = data("margins")
    pairs = {(0, 1): counts((0, 1)), (1, 2): counts((1, 2))}
    given, _ = m.domain.read(pairs)
    assert (given[0]((1,)) == counts((1,))).all()
    assert m.release(pairs)[0, 1].shape == (3, 2)
    with pytest.raises(AffineDPError, match="different people"):
        m.release({**pairs, (1, 2): counts((1, 2)) + 1})
    with pytest.raises(AffineDPError, match="no counts"):
        m.release({(0, 1): counts((0, 1))})
    with pytest.raises(AffineDPError, match="mapping"):
        m.release(np.zeros((3, 2, 2), int))


def test_sets_that_would_never_end_are_refused():
    with pytest.raises(AffineDPError, match="parts"):
        Margins(Crossed((2,) * 60), (tuple(range(60)),), np.ones(1))


def test_noise_of_several_rates_has_its_law():
    law = Geometrics((0.5, 2.0), (1, 2))
    drawn = law.sampler().draw((3, 20_000), system_bytes).astype(float)
    np.testing.assert_allclose((drawn**2).mean(axis=1), law.variances(np.eye(3)), rtol=0.1)
    reach, _ = law.reach(np.array([[1.0, 1.0, 0.0]]), 0.05)
    assert (np.abs(drawn[0] + drawn[1]) > reach[0]).mean() < 0.06
    assert law.gauges(np.eye(3)).upper == pytest.approx([0.5, 2.0, 2.0])
    with pytest.raises(AffineDPError, match="positive"):
        replace(law, rates=(0.0, 1.0))
