"""Moves that a class of one's own lists obey the equations, or nothing is promised."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.laws.laplace import Laplace
from affinedp.neighbours.adjacency import Columns
from affinedp.strategies.dense import Dense

TOTAL = adp.AffineManifold.from_equations(["a + b = total"])


@dataclass(frozen=True, eq=False)
class Listed(adp.Adjacency):
    """Moves as they are handed over."""

    kind = "test.listed"
    words = "moves that somebody wrote down"
    domain: adp.AffineManifold
    made: Columns

    def moves(self, limit=200_000):
        yield self.made


def listed(manifold, *moves):
    return Listed(manifold, Columns.given(np.transpose(moves)))


FORGETFUL = listed(TOTAL, [1.0, 0.0, 1.0], [0.0, 1.0, 0.0])
STRATEGY = Dense(TOTAL, np.eye(3), np.eye(3) * 2.0, TOTAL.names)


@pytest.mark.parametrize(
    "ask",
    [
        lambda a: adp.verify(TOTAL, 2.0, law="laplace", adjacency=a),
        lambda a: adp.verify(TOTAL, 2.0, law="gaussian", adjacency=a),
        lambda a: adp.fit(a, STRATEGY, Laplace(), epsilon=1.0),
        lambda a: adp.Mechanism(a, STRATEGY, Laplace()).guarantee,
        lambda a: adp.design(TOTAL, epsilon=1.0, law="laplace", adjacency=a),
        lambda a: adp.design(TOTAL, epsilon=1.0, delta=1e-6, law="gaussian", adjacency=a),
        lambda a: adp.design(TOTAL, epsilon=1.0, law="knorm", adjacency=a),
        lambda a: a.sensitivity(np.eye(3), 1),
        lambda a: a.directions(),
        lambda a: a.span(),
        lambda a: a.exact_span(),
        lambda a: a.are_neighbours([1, 2, 3], [1, 3, 4]),
    ],
)
def test_moves_that_forget_the_total_are_refused_by_everyone(ask):
    with pytest.raises(AffineDPError, match=r"move 2 .*Listed leaves the manifold"):
        ask(FORGETFUL)
    with pytest.raises(AffineDPError, match="leaves the manifold"):
        adp.DirectionAdjacency(TOTAL, FORGETFUL.made.values)
    ask(listed(TOTAL, [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]))


def test_decimals_are_what_they_say():
    """0.1 + 0.2 is 0.3 in decimals, though not in doubles; 0.3000000001 is not."""
    assert listed(TOTAL, [0.1, 0.2, 0.3]).sensitivity(np.eye(3), 1).value == pytest.approx(0.6)
    for wrong in ([0.1, 0.2, 0.3000000001], [1e15, 0.1, 1e15], [2.0**60, 1.0, 2.0**60]):
        with pytest.raises(AffineDPError, match="leaves the manifold"):
            listed(TOTAL, wrong).sensitivity(np.eye(3), 1)


def test_computed_moves_say_how_far_off_they_are():
    manifold = adp.AffineManifold([[3.0, -1.0]])
    values, third = np.array([[1 / 3], [1.0]]), {0: Fraction(1, 3), 1: Fraction(1)}
    rounded = values + np.array([[1e-7], [0.0]])
    for made in (
        Columns(values, np.array([[1e-16], [0.0]]), lambda k: third),
        Columns(values, np.array([[1e-16], [0.0]]), lambda k: None),
        Columns(rounded, np.array([[1e-6], [0.0]]), lambda k: None),
    ):
        assert Listed(manifold, made).sensitivity(np.eye(2), 1).value == pytest.approx(4 / 3)
    near = Columns(rounded, np.array([[1e-9], [0.0]]), lambda k: None)
    other = Columns(values, np.array([[1e-16], [0.0]]), lambda k: {0: Fraction(333, 1000), 1: 1})
    for made in (near, other):
        with pytest.raises(AffineDPError, match="leaves the manifold"):
            Listed(manifold, made).sensitivity(np.eye(2), 1)


def test_moves_of_another_length_are_refused():
    with pytest.raises(AffineDPError, match="moves of 2 entries, but data has 3"):
        listed(TOTAL, [1.0, 1.0]).sensitivity(np.eye(3), 1)


def test_moves_are_looked_at_once(monkeypatch):
    from affinedp.neighbours import adjacency as module

    seen = []
    real = module._refuse_leaving
    monkeypatch.setattr(module, "_refuse_leaving", lambda *a: (seen.append(1), real(*a)))
    mine = listed(TOTAL, [1.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    for _ in range(3):
        mine.sensitivity(np.eye(3), 1)
    adp.CircuitAdjacency(TOTAL).directions()
    assert seen == [1]


@pytest.mark.parametrize("made", [None, np.ones((3, 1)), "moves"])
def test_what_are_no_moves_is_refused(made):
    with pytest.raises(AffineDPError, match=r"Listed\.moves must yield Columns, not"):
        adp.verify(TOTAL, 1.0, adjacency=Listed(TOTAL, made))


@pytest.mark.parametrize("moves", [np.zeros((3, 0)), np.zeros((3, 1))])
def test_a_promise_about_nobody_is_refused(moves):
    """An empty list would be ε = 0, and neighbours without words would be nobody's."""
    with pytest.raises(AffineDPError, match="Listed lists no move"):
        adp.verify(TOTAL, 1.0, adjacency=Listed(TOTAL, Columns.given(moves)))
    for words in (None, "", " "):
        wordless = type("Wordless", (Listed,), {"words": words, "kind": f"tests.{words!r}"})
        with pytest.raises(AffineDPError, match="Wordless must say in words"):
            adp.verify(TOTAL, 1.0, adjacency=wordless(TOTAL, Columns.given([[1.0], [0.0], [1.0]])))


@pytest.mark.parametrize("off", [None, 0.0, np.zeros(3), np.zeros((1, 1)), np.zeros((3, 2))])
def test_doubt_has_the_shape_of_the_moves(off):
    with pytest.raises(AffineDPError, match="off has the same shape"):
        Columns(np.array([[1.0], [0.0], [1.0]]), off, lambda k: None)
