"""Neighbours as parts: saved and loaded, of a class of one's own, and never on a parent's word."""

import itertools
import json
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import affinedp as adp
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.adjacency import Columns, ExactMatrix
from affinedp.neighbours.circuit_adjacency import adjacency_of
from affinedp.neighbours.joint import JointAdjacency
from affinedp.neighbours.whole import Whole
from affinedp.parts import restored

M = adp.AffineManifold.from_equations(["a + b = t", "c + d = s"])
MATRIX = np.array([[1.0, 0.5, 0, 2, 0, 1], [0, 1, 1, 0, 3, 0]])


@dataclass(frozen=True, eq=False)
class Swap(adp.Adjacency):
    """One person goes from one of the entries to another."""

    kind = "test.swap"
    domain: adp.AffineManifold
    entries: tuple[int, ...]
    size: float = 1.0

    @property
    def words(self):
        return f"one person goes between {len(self.entries)} entries"

    def moves(self, limit=200_000):
        unit = self.size * np.eye(self.domain.n)
        pairs = [(i, j) for i in self.entries for j in self.entries if i < j]
        if len(pairs) > limit:
            raise TooManyCircuitsError("too many", len(pairs), limit)
        yield Columns.given(np.column_stack([unit[i] - unit[j] for i, j in pairs]))


ALL = [
    adp.CircuitAdjacency(M, [1, 2, 0.1, 0, 0, 0]),
    adp.CircuitAdjacency(M, unit="one person", assumes="everyone knows the sums"),
    adp.FreeSetAdjacency(M, [["a", "b", "c", "d"], ["a", "t", "c", "s"]], 0.3),
    adp.DirectionAdjacency(M, [[1 / 3], [2 / 3], [1], [1 / 3], [0], [1 / 3]], unit="one person"),
    JointAdjacency([Swap(M, (0, 1)), Swap(M, (3, 4), 0.5)], unit="one person"),
    Swap(M, (0, 1), 0.25),
    Whole(adp.CircuitAdjacency(M, 2.5)),
]


@pytest.mark.parametrize("adjacency", ALL, ids=lambda one: type(one).__name__)
def test_neighbours_come_back_from_a_file(adjacency):
    again = restored(json.loads(json.dumps(adjacency.record())), adp.Adjacency)
    assert type(again) is type(adjacency)
    assert (again.words, again.key, again.unit) == (adjacency.words, adjacency.key, adjacency.unit)
    np.testing.assert_array_equal(again.directions(), adjacency.directions())
    for norm in (1, 2):
        old, new = (one.sensitivity(MATRIX, norm) for one in (adjacency, again))
        assert (old.value, old.upper, old.exact) == (new.value, new.upper, new.exact)


def test_keys_are_about_neighbours_and_not_about_what_is_said():
    assert len({one.key for one in ALL}) == len(ALL)
    plain = adp.CircuitAdjacency(M)
    assert plain.key == adp.CircuitAdjacency(M, unit="one person", assumes="everything").key
    sets = [["a", "b", "c", "d"], ["a", "t", "c", "s"]]
    assert adp.FreeSetAdjacency(M, sets).key == adp.FreeSetAdjacency(M, sets[::-1]).key
    assert Whole(plain).key != plain.key


@pytest.mark.parametrize(
    ("adjacency", "change"),
    [
        (ALL[0], {"mu": None}),
        (ALL[0], {"mu": "1"}),
        (ALL[0], {"manifold": 3}),
        (ALL[0], {"surprise": 1}),
        (ALL[0], {"manifold": None}),
        (ALL[2], {"free_sets": [["a"]]}),
        (ALL[2], {"free_sets": 3}),
        (ALL[3], {"directions": "x"}),
        (ALL[3], {"unit": 3}),
        (ALL[4], {"parts": []}),
        (ALL[4], {"parts": [1]}),
        (ALL[4], {"parts": 1}),
        (ALL[5], {"entries": "ab"}),
        (ALL[6], {"adjacency": 1}),
    ],
)
def test_altered_neighbours_are_refused(adjacency, change):
    with pytest.raises(AffineDPError):
        restored({**adjacency.record(), **change}, adp.Adjacency)


def test_neighbours_of_ones_own_need_words_and_moves_alone():
    swap, given = Swap(M, (0, 1)), adp.DirectionAdjacency(M, [[1], [-1], [0], [0], [0], [0]])
    for norm in (1, 2):
        old, new = given.sensitivity(MATRIX, norm), swap.sensitivity(MATRIX, norm)
        assert (old.value, old.upper) == (new.value, new.upper)
        exact = swap.exact_sensitivity(ExactMatrix.of(MATRIX), norm)
        assert (exact.value, exact.upper) == (new.value, new.upper)
    assert swap.are_neighbours([1, 2, 3, 4, 5, 9], [2, 1, 3, 4, 5, 9])
    assert not swap.are_neighbours([1, 2, 3, 4, 5, 9], [3, 0, 3, 4, 5, 9])
    assert swap.exact_span() == [{0: 1, 1: -1}]
    guarantee = adp.verify(M, 2.0, law="laplace", adjacency=swap)
    assert (guarantee.epsilon(), guarantee.neighbours) == (pytest.approx(1.0), swap.words)
    leak = adp.verify(M, np.eye(6)[:, 2:], law="laplace", adjacency=swap)
    assert leak.epsilon() == np.inf


def farther(parent):
    """A subclass that also lists a move which its parent does not know."""

    class Farther(parent):
        kind = f"test.farther.{parent.kind}"

        @property
        def words(self):
            return "moves of the parent, or ten at once"

        def moves(self, limit=200_000):
            yield from super().moves(limit)
            yield Columns.given([[10.0], [-10.0], [0], [10], [-10], [0]])

    return Farther


@pytest.mark.parametrize(
    ("parent", "arguments"),
    [
        (adp.CircuitAdjacency, ()),
        (adp.FreeSetAdjacency, ([["a", "t", "c", "s"]],)),
        (adp.DirectionAdjacency, ([[1], [-1], [0], [0], [0], [0]],)),
        (Whole, None),
        (JointAdjacency, None),
        (Swap, ((0, 1),)),
    ],
)
def test_a_subclass_that_moves_more_is_never_answered_by_its_parent(parent, arguments):
    first = Swap(M, (0, 1)) if parent is Whole else [Swap(M, (0, 1))]
    given = (first,) if arguments is None else (M, *arguments)
    child = farther(parent)(*given)
    move = np.array([10.0, -10, 0, 10, -10, 0])
    assert child.sensitivity(np.eye(6), 1).upper >= 40
    exact = child.exact_sensitivity(ExactMatrix.of(np.eye(6)), 2)
    assert exact is None or exact.upper >= 20
    x = np.zeros(6)
    assert child.are_neighbours(x, move)
    span = child.span()
    assert np.linalg.lstsq(span, move, rcond=None)[1].sum() < 1e-20
    assert {i: Fraction(int(v)) for i, v in enumerate(move) if v} in child.exact_span()
    with pytest.raises(AffineDPError, match="by entry"):
        child.sensitivity_by_entry(np.eye(6), 1)
    assert child.key != parent(*given).key


def test_a_subclass_that_moves_more_has_words_and_fields_of_its_own():
    class Silent(adp.CircuitAdjacency):
        def moves(self, limit=200_000):
            yield Columns.given(np.ones((6, 1)))

    class Hidden(adp.CircuitAdjacency):
        def __init__(self, manifold, secret):
            super().__init__(manifold)
            self.secret = secret

    with pytest.raises(AffineDPError, match="words"):
        _ = Silent(M).words
    assert Silent(M).unit != adp.CircuitAdjacency(M).unit
    assert ALL[2].unit == "one of 'a', 'b', 'c', 'd' or of 'a', 'c', 's', 't', and the rest follows"
    with pytest.raises(AffineDPError, match="kind"):
        Silent(M).record()
    with pytest.raises(AffineDPError, match="what it is made of"):
        _ = Hidden(M, 1).key


def test_a_subclass_with_other_words_keeps_the_quick_way():
    class Renamed(adp.CircuitAdjacency):
        kind = "test.renamed"
        words = "as Definition 4 has it"

    found = Renamed(M).sensitivity(MATRIX, 1)
    assert found.method == adp.CircuitAdjacency(M).sensitivity(MATRIX, 1).method


def in_span(vectors, wanted):
    rows = [[float(v.get(j, 0)) for j in range(6)] for v in vectors]
    return np.linalg.matrix_rank(rows) == np.linalg.matrix_rank([*rows, *wanted])


@pytest.mark.parametrize("adjacency", ALL, ids=lambda one: type(one).__name__)
def test_the_exact_span_is_that_of_the_moves(adjacency):
    vectors, moves = adjacency.exact_span(), adjacency.directions().T
    assert all(isinstance(value, Fraction | int) for v in vectors for value in v.values())
    assert in_span(vectors, moves)
    rank = np.linalg.matrix_rank([[float(v.get(j, 0)) for j in range(6)] for v in vectors])
    assert rank == np.linalg.matrix_rank(moves)
    for row in M.exact_rows:
        for v in vectors:
            assert sum(c * v.get(j, 0) for j, c in row.items()) == 0


def test_entries_that_never_move_are_outside_the_exact_span():
    free = adp.AffineManifold(np.zeros((0, 2)))
    assert adp.CircuitAdjacency(free, [1, 0]).exact_span() == [{0: 1}]
    assert adp.FreeSetAdjacency(free, [[0, 1]], [1, 0]).exact_span() == [{0: 1}]
    doubles = adp.AffineManifold([[np.pi, -1.0, 0.0]])
    span = adp.CircuitAdjacency(doubles).exact_span()
    assert sorted(v[1] / v[0] for v in span if 0 in v) == [Fraction(np.pi)]


def test_free_sets_in_which_some_entry_never_moves_span_what_the_others_do():
    two = adp.AffineManifold([[1, 1, -1]])
    adjacency = adp.FreeSetAdjacency(two, [[0, 1], [1, 2]], [0, 1, 1])
    assert np.linalg.matrix_rank(adjacency.span()) == 2
    assert {frozenset(v) for v in adjacency.exact_span()} == {
        frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2))
    }
    noise = np.array([[0.0, 0], [1, 0], [0, 1]])
    assert adp.verify(two, noise, law="laplace", adjacency=adjacency).epsilon() == np.inf


def test_whole_neighbours_differ_by_whole_numbers():
    third = adp.AffineManifold.from_equations(["x = 3*y"])
    whole = Whole(adp.CircuitAdjacency(third, [2.0, 1.5]))
    np.testing.assert_array_equal(whole.directions(), [[3.0], [1.0]])
    assert whole.words.endswith("; whole numbers")
    assert whole.are_neighbours([0, 0], [3, 1])
    assert not whole.are_neighbours([0, 0], ["1.5", "0.5"])
    assert whole.sensitivity(np.eye(2), 1).value == 4


def test_one_parameter_names_the_neighbours():
    assert adjacency_of(M).words == adp.CircuitAdjacency(M).words
    assert adjacency_of(M, "entry", 2.0).key == adp.CircuitAdjacency(M, 2.0).key
    swap = Swap(M, (0, 1))
    assert adjacency_of(M, swap) is swap
    other = adp.AffineManifold([[1, 1]])
    for arguments in ((M, swap, 1.0), (M, "swaps"), (M, 3), (other, swap), (3, None)):
        with pytest.raises(AffineDPError):
            adjacency_of(*arguments)


@pytest.mark.parametrize(
    ("equations", "cells"),
    [
        (["a + b = total"], "a b"),
        (["total = a + b - 3", "grand = total + c"], "a b c"),
        (["2 r = 2 a + 2 b", "s = c + d", "u = a + c", "v = b + d", "t = r + s", "t = u + v"],
         "a b c d"),
        (["state = county", "country = state + other", "other = x + y", "same = country"],
         "county x y"),
        (["a = b", "b = c"], "a"),
    ],
)  # fmt: skip
def test_a_person_moves_one_cell_and_all_its_totals(equations, cells):
    """By hand: whoever joins adds 1 to one cell and to each sum that it is in."""
    manifold = adp.AffineManifold.from_equations(equations)
    found = adjacency_of(manifold, "person", 2.0)
    place = {name: i for i, name in enumerate(manifold.names)}
    (moves,) = [columns.values for columns in found.moves()]
    assert set(np.unique(moves)) <= {0.0, 2.0}
    assert np.abs(manifold.D @ moves).max() == 0
    for name in cells.split():
        assert np.count_nonzero(moves[place[name]]) == 1
    assert moves.shape[1] == len(cells.split()) == manifold.dim
    assert found.unit == "one person joins or leaves"  # as of a table: a ledger adds them up
    assert found.words.startswith("one person joins or leaves, in ")


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (3, 2), (3, 4), (5, 7), (2, 3, 2)])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_person_in_a_table_with_more_equations_than_it_needs(sizes, order):
    """Any of them may be left out as redundant; by hand: a cell, and every margin over it."""
    equations, axes = [], range(len(sizes))
    margins = [kept for k in axes for kept in itertools.combinations(axes, k)]
    cells = list(itertools.product(*map(range, sizes)))

    def name(kept, cell):
        return f"m{''.join(map(str, kept))}_" + "_".join(str(cell[i]) for i in kept)

    for kept in margins:
        for more in set(axes) - set(kept):  # a margin adds up finer ones, along each axis
            finer = tuple(sorted({*kept, more}))
            for at in sorted({tuple(cell[i] for i in kept) for cell in cells}):
                over = {name(finer, c) for c in cells if tuple(c[i] for i in kept) == at}
                total = next(name(kept, c) for c in cells if tuple(c[i] for i in kept) == at)
                equations.append(f"{' + '.join(sorted(over))} = {total}")
    shuffled = np.random.default_rng(order).permutation(equations).tolist()
    manifold = adp.AffineManifold.from_equations(shuffled)
    assert len(manifold.D) < len(equations)
    (columns,) = adjacency_of(manifold, "person").moves()
    found = {frozenset(np.array(manifold.names)[v > 0].tolist()) for v in columns.values.T}
    assert set(np.unique(columns.values)) == {0.0, 1.0}
    assert found == {frozenset(name(kept, c) for kept in [*margins, tuple(axes)]) for c in cells}


@pytest.mark.parametrize(
    "equations",
    [["a = 2 b"], ["a + b + c = 10"], ["a + b = c + d"], ["a = b + c", "b = a + d"],
     ["a + b = t", "a + c = t"], ["2 a + b = t"]],
)  # fmt: skip
def test_where_equations_do_not_say_who_is_counted_a_person_is_refused(equations):
    manifold = adp.AffineManifold.from_equations(equations)
    with pytest.raises(AffineDPError, match="Name the cells"):
        adjacency_of(manifold, "person")


@pytest.mark.parametrize("law", ["gaussian", "laplace", "knorm"])
def test_a_promise_is_about_the_moves_that_a_subclass_lists(law):
    class Longer(adp.CircuitAdjacency):
        words = "ten times as far as Definition 4"

        def moves(self, limit=200_000):
            for columns in super().moves(limit):
                yield Columns.given(10 * columns.values)

    one, ten = (
        adp.verify(M, np.eye(6), law=law, adjacency=kind(M)).sensitivity
        for kind in (adp.CircuitAdjacency, Longer)
    )
    assert ten == pytest.approx(10 * one)


def test_distances_by_name():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    named = adp.CircuitAdjacency(M, {"a": 2.0, "c": 0.5})
    assert named.key == adp.CircuitAdjacency(M, [2.0, 0.0, 0.5]).key
    with pytest.raises(AffineDPError, match="mu names 'd'"):
        adp.CircuitAdjacency(M, {"d": 1.0})


def test_words_of_free_sets_name_their_entries():
    M = adp.AffineManifold.from_equations(["a + b + c = total"])
    one, two = ["a", "b", "c"], ["a", "b", "total"]
    how = "moves alone, by at most μ = 1, and the rest follows"
    assert adp.FreeSetAdjacency(M, [one]).words == f"one of a, b and c {how}"
    several = adp.FreeSetAdjacency(M, [one, two]).words
    assert several == f"one of a free set (a, b and c; a, b and total) {how}"
    many = adp.AffineManifold([[1] * 40])
    assert "x6 and 33 more" in adp.FreeSetAdjacency(many, [range(39)]).words
