"""Noise that nobody can draw is refused at every door before anything is charged."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import affinedp as adp
from affinedp import functions
from affinedp.errors import AffineDPError
from affinedp.laws.base import NOTHING_KNOWN, Law
from affinedp.laws.curves import ThreeAtoms
from affinedp.laws.laplace import Geometric
from affinedp.laws.sampler import IntegerNoise
from affinedp.strategies.dense import Dense

SUM = adp.AffineManifold.from_equations(["a + b = c"])


@dataclass(frozen=True, eq=False)
class Undrawn(Law):
    """Laplace noise, of which nobody says how it is drawn."""

    kind = "test.undrawn"
    words, theorem = "undrawn", "the triangle inequality"
    norm = 1
    variance = 2.0

    def curve(self, sensitivity, moves=NOTHING_KNOWN):
        return ThreeAtoms(sensitivity)

    def sample(self, generator, size, p):
        return generator.laplace(size=(size, p))


@dataclass(frozen=True, eq=False)
class Refusing(Undrawn):
    """The same, which refuses the scales of releases."""

    kind = "test.refusing"
    words = "refusing"

    def sampler(self, unit=1):
        raise AffineDPError("refusing noise is not drawn today")


@dataclass(frozen=True, eq=False)
class OneByOne(Undrawn):
    """The same, drawn by a sampler of one's own, which OpenDP does not know."""

    kind = "test.one_by_one"
    words = "one by one"

    def sampler(self, unit=1):
        return Handed(IntegerNoise("laplace", unit))


@dataclass(frozen=True)
class Handed:
    noise: IntegerNoise

    def draw(self, size, source):
        return self.noise.draw(size, source)


@dataclass(frozen=True, eq=False)
class Handing(Undrawn):
    """The same, drawn by whatever somebody hands over."""

    kind = "test.handing"
    words = "handing"
    by: object = None

    def sampler(self, unit=1):
        return self.by


class Drawing:
    """Draws what a function makes of a shape."""

    def __init__(self, made):
        self.made = made

    def draw(self, size, source):
        return self.made(size)


@dataclass(frozen=True, eq=False)
class AsLaplace(Undrawn):
    """The same, drawn by the sampler of the library."""

    kind = "test.as_laplace"
    words = "as Laplace"

    def sampler(self, unit=1):
        return IntegerNoise("laplace", unit)


UNKNOWN = [
    (Undrawn(), {}, "undrawn noise has no exact sampler"),
    (Refusing(), {}, "not drawn today"),
    (OneByOne(), {"sampler": "opendp"}, "OpenDP has no sampler for one by one noise"),
    (Handing(None), {}, "the sampler of handing noise is NoneType, which has no method `draw`"),
    (Handing("noise"), {}, "the sampler of handing noise is str, which has no method `draw`"),
]
# No integers, or not one for every number: each would be published if NumPy were asked.
NO_NOISE = [
    lambda size: np.zeros((), dtype=object),
    lambda size: np.zeros((*size, 1), dtype=np.int64),
    lambda size: np.zeros(size[:-1], dtype=np.int64),
    lambda size: np.full(size, 0.5),
    lambda size: np.full(size, 2.0),
    lambda size: np.full(size, np.nan),
    lambda size: np.full(size, 0.5, dtype=object),
    lambda size: np.full(size, None, dtype=object),
    lambda size: np.ones(size, dtype=bool),
    lambda size: np.full(size, True, dtype=object),
    lambda size: np.ma.masked_all(size, dtype=np.int64),
    lambda size: np.zeros(size, dtype=np.int64).tolist(),
    lambda size: 0,
    lambda size: None,
]


def with_law(mechanism, law):
    return adp.Mechanism(mechanism.adjacency, mechanism.strategy, law)


def dense(law):
    strategy = Dense(SUM, np.eye(3), [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], SUM.names)
    return adp.Mechanism(adp.CircuitAdjacency(SUM), strategy, law)


def peak(law):
    free = adp.AffineManifold(np.zeros((0, 2)), names=["a", "b"])
    return with_law(adp.design(free, query=functions.peak(), epsilon=1, law="laplace"), law)


def tree(law):
    return with_law(adp.design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6, law="gaussian"), law)


def margins(law):
    made = adp.design_margins((2, 3), "<=1", epsilon=1.0, delta=1e-6, law="gaussian")
    return with_law(made, law)


def counts(attributes):
    """Margins of a table of ones."""
    return np.full([(2, 3)[j] for j in attributes], 6 // math.prod((2, 3)[j] for j in attributes))


DOORS = [
    (dense, [1, 2, 3]),
    (dense, [[1, 2, 3], [4, 5, 9]]),
    (peak, [1, 2]),
    (tree, [71, 30, 41]),
    (margins, counts),
]


@pytest.fixture
def ledger(tmp_path):
    with adp.Ledger(tmp_path / "l.db", epsilon=1000, delta=1e-3, protects="one person") as opened:
        yield opened


@pytest.mark.parametrize(("law", "options", "words"), UNKNOWN)
@pytest.mark.parametrize(("made", "x"), DOORS)
def test_a_release_is_refused_before_the_charge(law, options, words, made, x, ledger):
    mechanism, rows = made(law), {"rows": "same"} if np.ndim(x) == 2 else {}
    with pytest.raises(AffineDPError, match=words):
        mechanism.release(x, ledger=ledger, **rows, **options)
    assert ledger.history() == ()


@pytest.mark.parametrize(("made", "x"), DOORS)
def test_what_is_drawn_must_be_integers_one_for_every_number(made, x):
    for drawn in NO_NOISE:
        with pytest.raises(AffineDPError, match="Drawing must draw an array of integers, shape"):
            made(Handing(Drawing(drawn))).release(x)


@pytest.mark.parametrize("kind", [object, np.int64, np.int8, np.uint64])
@pytest.mark.parametrize(("made", "x"), DOORS)
def test_integers_of_any_kind_are_added_exactly(made, x, kind):
    """Sums of 64 bits with and without a sign would be floats."""
    exact = made(Handing(Drawing(lambda size: np.full(size, 3, dtype=object)))).release(x)
    other = made(Handing(Drawing(lambda size: np.full(size, 3, dtype=kind)))).release(x)
    if made is margins:
        exact, other = exact[1,], other[1,]
    np.testing.assert_array_equal(other, exact)


def test_steps_add_integers_only(tmp_path, ledger):
    for place, drawn in enumerate(NO_NOISE):
        state = tmp_path / f"{place}.db"
        with pytest.raises(AffineDPError, match="Drawing must draw an array of integers, shape"):
            dense(Handing(Drawing(drawn))).in_steps(state=state)
    for by in (None, "noise"):
        with pytest.raises(AffineDPError, match="which has no method `draw`"):
            dense(Handing(by)).in_steps(state=tmp_path / "refused.db", ledger=ledger)
    assert ledger.history() == ()


@pytest.mark.parametrize(("made", "x"), DOORS)
@pytest.mark.parametrize("sampler", ["bulk", "opendp"])
def test_one_that_can_be_drawn_is_released_there(made, x, sampler, ledger):
    rows = {"rows": "same"} if np.ndim(x) == 2 else {}
    pytest.importorskip("opendp")
    made(AsLaplace()).release(x, ledger=ledger, sampler=sampler, **rows)
    assert [entry.status for entry in ledger.history()] == ["released"]


@pytest.mark.parametrize(("law", "options", "words"), UNKNOWN[:2])
def test_other_doors_refuse_before_the_charge(law, options, words, ledger, tmp_path):
    pandas = pytest.importorskip("pandas")
    mechanism = dense(law)
    parts = adp.Parts(lambda task: [task(0, pandas.DataFrame([[1.0, 2, 3]], columns=SUM.names))])
    with pytest.raises(AffineDPError, match=words):
        mechanism.release(parts, ledger=ledger, into=tmp_path / "out")
    with pytest.raises(AffineDPError, match=words):
        mechanism.in_steps(state=tmp_path / "run.db", ledger=ledger)
    tangent = adp.design_tangent(SUM, "a * b", epsilon=1)
    with pytest.raises(AffineDPError, match=words):
        replace(tangent, first=with_law(tangent.first, law)).release([1, 2, 3], ledger=ledger)
    assert ledger.history() == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.db"]


@pytest.mark.parametrize(("law", "options", "words"), UNKNOWN)
def test_a_table_is_refused_before_the_charge(law, options, words, ledger):
    pandas = pytest.importorskip("pandas")
    from affinedp.tables import TableRelease

    asked = TableRelease(totals={"c": ["a", "b"]}, epsilon=1.0, law="laplace", round_to=None)
    table = pandas.DataFrame({"a": [1.0], "b": [2.0], "c": [3.0]})
    design = asked.design(table)
    design = replace(design, mechanism=with_law(design.mechanism, law))
    with pytest.raises(AffineDPError, match=words):
        design.release(table, ledger=ledger, **options)
    assert ledger.history() == ()


@pytest.mark.parametrize("seed", ["x", -1, 1.5, True])
def test_what_is_no_seed_is_refused(seed):
    """Also where a closed form starts nothing at random."""
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    for door in (
        lambda: adp.design_laplace(manifold, epsilon=1.0).sample(3, seed=seed),
        lambda: adp.design_laplace(manifold, epsilon=1.0, seed=seed),
    ):
        with pytest.raises(adp.errors.AffineDPError, match="seed must be a whole number"):
            door()


def test_intervals_and_simulations_need_no_sampler():
    mechanism = dense(Undrawn())
    low, high = mechanism.interval([1.0, 2.0, 3.0], level=0.9)
    assert (low < high).all()
    assert mechanism.sample(3, seed=0).shape == (3, 3)


def test_noise_of_ones_own_is_released_in_steps(ledger, tmp_path):
    """A rate counts in the sensitivity of a release in steps as in any other."""
    chain = adp.AffineManifold([[1, -1]], names=["a", "b"])
    strategy = Dense(chain, np.eye(2), [[3.0], [3.0]], chain.names)
    mechanism = adp.Mechanism(adp.CircuitAdjacency(chain), strategy, AsLaplace())
    with mechanism.in_steps(state=tmp_path / "run.db", ledger=ledger) as run:
        (first,) = run.send([5.0])
        (second,) = run.send([])
    assert first == second
    whole = adp.Mechanism(adp.CircuitAdjacency(chain), strategy, Geometric(0.1))
    with pytest.raises(AffineDPError, match="for whole numbers"):
        whole.in_steps(state=tmp_path / "whole.db", ledger=ledger)
    assert len(ledger.history()) == 1


def test_opendp_refuses_grids_beyond_its_numbers_before_the_charge(ledger):
    """Blocks of margins whose grid is finer than 2⁵⁶ steps: not all of them fit into 64 bits."""
    pytest.importorskip("opendp")
    own = {0: [[0.125, 0], [0, 8]]}
    made = adp.design_margins(
        (2, 3), [(0, 1)], epsilon=1.0, delta=1e-6, law="gaussian", workloads=own
    )
    with pytest.raises(AffineDPError, match="64 bits"):
        made.release(counts, ledger=ledger, sampler="opendp")
    assert ledger.history() == ()


def test_opendp_draws_geometric_noise_of_any_rate():
    """A scale that is no float is rounded up: counts of the law itself, by a chi-squared test."""
    pytest.importorskip("opendp")
    from affinedp.laws.sampler.opendp import by_opendp

    rate = 0.7
    noise = by_opendp(Geometric(rate).sampler(), "geometric")
    assert noise.law.scale >= 1 / Fraction(rate)
    assert float(noise.law.scale) == noise.law.scale
    drawn = np.abs(noise.draw((20_000,)).astype(int))
    q = np.exp(-rate)
    sizes = np.arange(8)
    law = (1 - q) / (1 + q) * np.where(sizes == 0, 1, 2) * q**sizes
    counts = [(drawn == k).sum() for k in sizes]
    counts.append(len(drawn) - sum(counts))
    assert stats.chisquare(counts, np.append(law, 1 - law.sum()) * len(drawn)).pvalue > 1e-6
