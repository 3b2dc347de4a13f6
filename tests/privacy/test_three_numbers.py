"""The least error of three whole numbers with a public sum: the proof, in exact arithmetic.

A flow on the hexagonal lattice shows that no law goes below (docs/explanation/least-known.md).
"""

import itertools
from fractions import Fraction as F

import pytest

MOVES = [(1, -1, 0), (1, 0, -1), (0, 1, -1), (-1, 1, 0), (-1, 0, 1), (0, -1, 1)]
# the corners of the cell of 0, halved: outputs that are off the lattice by so much
HALF_HOLES = [
    tuple(F(c, 6) for c in corner)
    for corner in itertools.permutations((2, -1, -1))
] + [tuple(F(c, 6) for c in corner) for corner in itertools.permutations((-2, 1, 1))]  # fmt: skip


def distance(z):
    return sum(c for c in z if c > 0)


def plus(z, move, sign=1):
    return tuple(x + sign * y for x, y in zip(z, move))


def dot(x, y):
    return sum(a * b for a, b in zip(x, y))


def cone(z, a):
    """z = s·a + t·b with b next to a, s ≥ 0, t ≥ 0, as (s, t, b); None if there is none."""
    for b in MOVES:
        if dot(a, b) == 1:
            det = a[0] * b[1] - a[1] * b[0]
            s, t = F(z[0] * b[1] - z[1] * b[0], det), F(a[0] * z[1] - a[1] * z[0], det)
            if s >= 0 and t >= 0:
                return s, t, b
    return None


def least_error(Q):
    return 12 * Q * (Q * Q + 3 * Q + 1) / ((Q - 1) ** 2 * (Q * Q + 4 * Q + 1))


def flow(z, a, Q, u):
    """What flows from z to z + a, in units of Q^-d(z)."""
    if distance(plus(z, a)) != distance(z) + 1:
        return F(0)
    found = cone(z, a)
    assert found is not None
    s, t, b = found
    common, mu = (Q - 1) ** 2 * (Q * Q + 4 * Q + 1), least_error(Q)
    if t == 0:  # along the ray, or from the origin
        still = 2 / (Q - 1) * s * s + 4 * Q / (Q - 1) ** 2 * s + mu / 6
        return still + dot(u, a) * (2 / (Q - 1) * s + mu / 6)
    still = 2 / (Q - 1) * s * s + 5 * Q / (Q - 1) ** 2 * s + s * t / (Q - 1)
    still += Q * (3 * Q * Q + 11 * Q + 4) / common
    along = 2 / (Q - 1) * s + 2 * Q * (3 * Q * Q + 7 * Q + 2) / common
    aside = -2 * Q * (2 * Q * Q + 3 * Q + 1) / common
    return still + dot(u, a) * along + dot(u, b) * aside


@pytest.mark.parametrize("Q", [F(101, 100), F(11, 4), F(30)])
@pytest.mark.parametrize("u", [(F(0),) * 3, *HALF_HOLES[::4], (F(1, 9), F(1, 11), F(-20, 99))])
def test_flow_ends_where_the_error_is(Q, u):
    """Nowhere negative, outward, and what stays at z is (|z + u|² − |u|² − μ) Q^-d(z)."""
    reach = 7
    for x, y in itertools.product(range(-reach, reach + 1), repeat=2):
        z = (x, y, -x - y)
        if distance(z) > reach:
            continue
        out = [flow(z, a, Q, u) for a in MOVES]
        assert min(out) >= 0
        arrives = sum(flow(plus(z, a, -1), a, Q, u) * Q ** (distance(z) - distance(plus(z, a, -1)))
                      for a in MOVES)  # fmt: skip
        assert arrives - sum(out) == dot(z, z) + 2 * dot(u, z) - least_error(Q)


def test_all_other_offsets_follow():
    """Hexagons around lattice points, and what is between them, cover the plane: radius² 1/6.

    At the corners p of the hexagon around l the least error is at least μ + |p − l|² = μ + 1/6, and
    between corners it falls by the variance of the corners around u, at most the squared radius.
    """
    corners = set(HALF_HOLES)
    assert len(corners) == 6
    assert {dot(c, c) for c in corners} == {F(1, 6)}
    hole = (F(2, 3), F(-1, 3), F(-1, 3))
    to_hole = {place: plus(hole, place, -1) for place in [(0, 0, 0), *MOVES]}
    around = [place for place, step in to_hole.items() if dot(step, step) == F(2, 3)]
    assert len(around) == 3
    triangle = [plus(place, tuple(c / 2 for c in to_hole[place])) for place in around]
    assert all(dot(plus(p, hole, -1), plus(p, hole, -1)) == F(1, 6) for p in triangle)
    neighbour = (1, -1, 0)
    middle = tuple(F(c, 2) for c in neighbour)
    rectangle = [c for c in corners if dot(c, neighbour) == F(1, 2)]
    rectangle += [plus(neighbour, c) for c in corners if dot(c, neighbour) == -F(1, 2)]
    assert len(rectangle) == 4
    assert all(dot(plus(p, middle, -1), plus(p, middle, -1)) == F(1, 6) for p in rectangle)
