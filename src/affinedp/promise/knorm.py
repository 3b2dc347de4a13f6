"""What K-norm noise promises: the largest gauge of a move, in exact arithmetic where it can be.

Noise of density e^(−rate ‖z‖_K) is purely private by the triangle inequality, with ε = rate times
the largest ‖n‖_K over the moves n; on the cones over the facets that contain n / ‖n‖_K the loss is
exactly that, so nothing less is true.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense
from affinedp.bodies.axes import AxesPart
from affinedp.bodies.exact import common_denominator, inverse, primitive, readable
from affinedp.bodies.noise import KNormNoise, StairsNoise, SumPart, connected_parts, noise_span
from affinedp.bodies.one_sum import largest_loss_probability
from affinedp.errors import AffineDPError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.promise.curves import EPS, Curve, NoPromise
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.knorm_curves import KNormCurve, LatticeCurve
from affinedp.promise.pure_pairs import ThreeAtoms
from affinedp.promise.whitening import combination_without_noise

LISTED = 2_000_000
# Moves that floats cannot tell from the largest, and whose gauge is computed exactly.
MOST_EXACT = 5_000
MOST_WHOLE_MOVES = 200_000
# Whole moves under sums of so many entries are listed.
FEW_ENTRIES = 100
# The law on a grid has this much more of the largest loss, at most; releases check it.
ROUNDING = 1e-9
STEPS = "every move crosses so many steps of the staircase at most, and some points cross them"
BASIS = "the triangle inequality of the gauge, with equality on the cones over its facets"


def knorm_promise(
    adjacency: Adjacency,
    query: Matrix,
    basis: Matrix,
    root: Matrix,
    rate: float,
    integers: bool,
    output_names: tuple[str, ...],
    noise: KNormNoise | None = None,
) -> Guarantee:
    """Return the guarantee of ``F x + basis z`` with z of density e^(−rate ‖z‖_K).

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about; its directions can be listed, unless all noise is under
        public sums.
    query, basis, root : matrices, shapes (m, n), (m, r) and (r, p)
        F, independent vectors that span the noise, and points of K as columns, up to sign.
    rate : float
        The rate.
    integers : bool
        Whether data is whole, and z is drawn from whole coordinates.
    output_names : tuple of str
        Names of the m outputs.
    noise : KNormNoise, optional
        The body of ``root``, if it is known already.
    """
    shared: dict[str, Any] = {
        "law": "staircase" if isinstance(noise, StairsNoise) else "knorm",
        "neighbours": neighbours_of(adjacency, integers),
        "neighbours_key": neighbours_key_of(adjacency, integers),
        "unit": adjacency.unit,
        "names": adjacency.manifold.names,
        "output_names": output_names,
    }
    span = None if isinstance(noise, StairsNoise) else noise_span(root)
    leak = combination_without_noise(adjacency, basis if span is None else basis @ span, query)
    if leak is not None:
        return Guarantee(
            sensitivity=math.inf, exact=True, curve=NoPromise(), leak=leak,
            basis="the noise does not cover the range of the query", **shared,
        )  # fmt: skip
    body = KNormNoise(root, rate, integers) if noise is None else noise
    found = _largest(adjacency, Coordinates.of(query, basis, body), body)
    upper = _rounded_up(found.upper, rate)
    lower = math.nextafter(float(found.lower) * rate, 0.0)
    return Guarantee(
        sensitivity=upper,
        sensitivity_lower=max(0.0, min(lower, upper)),
        exact=True,
        basis=STEPS if isinstance(body, StairsNoise) else BASIS,
        curve=_curve(body, upper, found, integers),
        worst_direction=found.direction,
        method=found.method,
        **shared,
    )


def neighbours_of(adjacency: Adjacency, integers: bool) -> str:
    """Return whom a promise is about, in words: whole neighbours only, if data is whole."""
    return adjacency.neighbours + ("; whole numbers" if integers else "")


def neighbours_key_of(adjacency: Adjacency, integers: bool) -> str:
    """Return a hash of whom a promise is about."""
    return adjacency.key + (" integers" if integers else "")


def _curve(body: KNormNoise, upper: float, found: _Found, integers: bool) -> Curve:
    """The curve below ε."""
    if isinstance(body, StairsNoise):
        # within one step the loss is ε, 0 or −ε; a move by all of a width is the worst
        one = found.upper <= 1
        return ThreeAtoms(upper, float(body.stairs.tops.max()) * (1 + ROUNDING) if one else None)
    if not integers:
        return KNormCurve(upper)
    sums = [part for part in body.parts if isinstance(part, SumPart)]
    if len(sums) == len(body.parts) and found.upper <= 1 and all(p.width == 1 for p in sums):
        # a whole move of gauge 1 takes 1 from one entry and gives it to another
        top = max(largest_loss_probability(len(part.rows), upper) for part in sums)
        equal = len({len(part.rows) for part in sums}) == 1
        return ThreeAtoms(upper, top, exact=equal)
    if found.one_step:  # nothing purely ε-private is above it
        return ThreeAtoms(upper, exact=True)
    return LatticeCurve(upper, tuple(sorted(found.steps.items())), exact=found.on_axes)


# ---------------------------------------------------------------------- coordinates


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates z of a difference of data v: z = matrix @ v.

    Attributes
    ----------
    matrix : matrix, shape (r, n)
        In doubles.
    pieces : list of (rows, left, right)
        The same exactly: rows of z are ``left @ (right @ v)`` with rational left and right.
    """

    matrix: Matrix
    pieces: list[tuple[IntArray, list[list[Fraction]] | None, list[dict[int, Fraction]]]]

    @classmethod
    def of(cls, query: Matrix, basis: Matrix, body: KNormNoise) -> Coordinates:
        """Solve ``F v = basis z`` for z, from as many outputs as there are coordinates.

        Parameters
        ----------
        query, basis : matrices
            F, and what makes outputs of z.
        body : KNormNoise
            Says which coordinates are bound by a sum.
        """
        import scipy.sparse as sparse

        bound = [part for part in body.parts if isinstance(part, SumPart)]
        extra = sparse.csr_array((len(bound), body.size))
        if bound:
            place = np.concatenate([np.full(len(p.rows), i) for i, p in enumerate(bound)])
            values = np.concatenate([part.signs for part in bound])
            rows = np.concatenate([part.rows for part in bound])
            extra = sparse.csr_array((values, (place, rows)), shape=(len(bound), body.size))
        left = sparse.csr_array(sparse.vstack([sparse.csr_array(basis), extra]))
        left.eliminate_zeros()
        empty = sparse.csr_array((len(bound), query.shape[1]))
        right = sparse.csr_array(sparse.vstack([sparse.csr_array(query), empty]))
        pieces, blocks, order = [], [], []
        for rows, outputs in _pieces(left):
            square = dense(left[outputs][:, rows])
            seen = sparse.csr_array(right[outputs])
            unit = np.array_equal(square, np.eye(len(rows)))
            blocks.append(seen if unit else sparse.csr_array(np.linalg.inv(square) @ dense(seen)))
            exact = None
            if not unit:
                exact = inverse([[readable(c) for c in row] for row in square.tolist()])
            pieces.append((rows, exact, _exact_rows(seen)))
            order.append(rows)
        stacked = sparse.csr_array(sparse.vstack(blocks))
        return cls(stacked[np.argsort(np.concatenate(order))], pieces)

    def rows(self) -> list[dict[int, Fraction]]:
        """Return the exact matrix by rows; empty for a coordinate that a sum makes follow."""
        found: list[dict[int, Fraction]] = [{} for _ in range(self.matrix.shape[0])]
        for rows, left, right in self.pieces:
            for i, row in enumerate(rows.tolist()):
                weights = {i: Fraction(1)} if left is None else dict(enumerate(left[i]))
                total: dict[int, Fraction] = {}
                for output, weight in weights.items():
                    for j, c in right[output].items():
                        total[j] = total.get(j, Fraction(0)) + weight * c
                found[row] = {j: c for j, c in total.items() if c}
        return found

    def exact(self, moved: Mapping[int, Fraction]) -> list[Fraction]:
        """Return z of one difference in rational numbers.

        Parameters
        ----------
        moved : mapping of int to Fraction
            The entries of v that are not zero.
        """
        found = [Fraction(0)] * self.matrix.shape[0]
        for rows, left, right in self.pieces:
            outputs = [
                sum((c * moved[j] for j, c in row.items() if j in moved), Fraction(0))
                for row in right
            ]
            if not any(outputs):
                continue
            for i, row in enumerate(rows.tolist()):
                found[row] = (
                    outputs[i]
                    if left is None
                    else sum((a * b for a, b in zip(left[i], outputs)), Fraction(0))
                )
        return found


def _exact_rows(matrix: Any) -> list[dict[int, Fraction]]:
    rows: list[dict[int, Fraction]] = []
    for i in range(matrix.shape[0]):
        part = slice(matrix.indptr[i], matrix.indptr[i + 1])
        columns, values = matrix.indices[part].tolist(), matrix.data[part].tolist()
        rows.append({j: readable(v) for j, v in zip(columns, values) if v})
    return rows


def _pieces(left: Any) -> Iterator[tuple[IntArray, IntArray]]:
    """Coordinates that are read together, and as many independent outputs that show them."""
    from scipy.linalg import qr

    ones = np.diff(left.indptr) == 1
    ones[ones] = left.data[left.indptr[:-1][ones]] == 1.0
    places = np.flatnonzero(ones)[::-1]
    alone = dict(zip(left.indices[left.indptr[places]].tolist(), places.tolist()))
    for outputs, columns in connected_parts(left):
        if all(j in alone for j in columns.tolist()):  # outputs that are the coordinates
            for j in columns.tolist():
                yield np.array([j]), np.array([alone[j]])
            continue
        if len(outputs) < len(columns):
            raise AffineDPError("the vectors that span the noise are dependent")
        block = dense(left[outputs][:, columns])
        _, triangle, order = qr(block.T, mode="economic", pivoting=True)
        diagonal = np.abs(np.diagonal(triangle))
        if diagonal[-1] <= 1e-10 * diagonal[0]:
            raise AffineDPError("the vectors that span the noise are dependent")
        yield columns, outputs[np.sort(order[: len(columns)])]


# ---------------------------------------------------------------------- the largest gauge


@dataclass(frozen=True, eq=False)
class _Found:
    lower: float | Fraction
    upper: float | Fraction
    direction: FloatArray | None
    method: str
    steps: dict[int, float]
    # Whole moves: whether all are along one axis of independent noise, where discrete Laplace
    # noise is the law itself; and whether one of the longest is a single step there, where its
    # loss is that of randomised response.
    on_axes: bool = False
    one_step: bool = False


def _largest(adjacency: Adjacency, coordinates: Coordinates, body: KNormNoise) -> _Found:
    sums = [part for part in body.parts if isinstance(part, SumPart)]
    if len(sums) == len(body.parts) and isinstance(adjacency, CircuitAdjacency):
        long = body.integers and any(part.width != 1 for part in sums)
        if not (long and body.size <= FEW_ENTRIES):  # a list gives a better curve
            return _largest_sum(adjacency, coordinates, sums)
    return _listed_moves(adjacency, coordinates, body)


def _largest_sum(adjacency: Adjacency, coordinates: Coordinates, sums: list[SumPart]) -> _Found:
    """Under public sums the gauge is a 1-norm, and nothing need be listed."""
    import scipy.sparse as sparse

    scale = np.ones(coordinates.matrix.shape[0])
    for part in sums:
        scale[part.rows] = 1 / (2 * part.width)
    matrix = sparse.csr_array(sparse.diags_array(scale) @ coordinates.matrix)
    found = adjacency.sensitivity(matrix, 1)
    direction = found.direction
    move, known = exact_move(adjacency, direction)
    z = coordinates.exact(move)
    exact = _gauge_of_sums(z, sums)
    low: float | Fraction = found.value
    high: float | Fraction = found.upper
    if found.exact and known and abs(float(exact) / found.upper - 1) < 1e-12:
        low = high = exact
    if sums[0].integers:
        # half the 1-norm of a whole move is whole
        step, times = whole_steps(z)
        low = _gauge_of_sums([Fraction(times * c) for c in step], sums)
        widths = {readable(part.width) for part in sums}
        if len(widths) == 1:
            (width,) = widths
            high = Fraction(math.floor(Fraction(high) * width)) / width
        if known:
            direction = _whole_part(move, found.direction)
    return _Found(min(low, high), high, direction, found.method, {})


def _gauge_of_sums(move: list[Fraction], sums: list[SumPart]) -> Fraction:
    return sum((part.gauge([move[i] for i in part.rows.tolist()]) for part in sums), Fraction(0))


def _listed_moves(adjacency: Adjacency, coordinates: Coordinates, body: KNormNoise) -> _Found:
    """The largest gauge over listed moves: bounds for all, and exactly for those on top."""
    share = 64 * EPS * (adjacency.manifold.n + 8) + adjacency.manifold.kernel_error
    best, near, count = 0.0, [], 0
    for block in adjacency.blocks(LISTED):
        count += block.shape[1]
        moves = dense(coordinates.matrix @ block)
        doubt = share * dense(abs(coordinates.matrix) @ np.abs(block))
        lower, upper = np.zeros(block.shape[1]), np.zeros(block.shape[1])
        for part in body.parts:
            gauges = part.gauges(moves[part.rows], doubt[part.rows])
            lower, upper = lower + gauges.lower, upper + gauges.upper
        best = max(best, float(lower.max(initial=0.0)))
        chosen = np.flatnonzero(upper >= best) if not body.integers else np.arange(len(upper))
        near.append((block[:, chosen], upper[chosen]))
    columns = np.hstack([part for part, _ in near])
    upper = np.concatenate([part for _, part in near])
    if body.integers:
        return _whole_moves(adjacency, columns, coordinates, body, count)
    columns, upper = columns[:, upper >= best], upper[upper >= best]
    method = f"listed {count:,} moves"
    if columns.shape[1] == 0:
        return _Found(0.0, 0.0, None, method, {})
    worst = columns[:, int(np.argmax(upper))]
    if columns.shape[1] > MOST_EXACT:
        return _Found(best, float(upper.max()), worst, method, {})
    read = [exact_move(adjacency, column) for column in columns.T]
    exact = [_gauge(coordinates.exact(move), body) for move, _ in read]
    top = max(exact)
    worst = columns[:, exact.index(top)]
    if not all(known for _, known in read):
        # doubles that are not the move itself are off by their rounding, and what they cancel to
        # by far more: only the bounds hold
        return _Found(best, max(top, Fraction(float(upper.max()))), worst, method, {})
    return _Found(top, top, worst, method, {})


def _whole_moves(
    adjacency: Adjacency,
    columns: FloatArray,
    coordinates: Coordinates,
    body: KNormNoise,
    count: int,
) -> _Found:
    """Whole multiples of lattice steps that are no longer than a move."""
    if columns.shape[1] > MOST_WHOLE_MOVES:
        raise AffineDPError(
            f"more than {MOST_WHOLE_MOVES:,} moves on whole numbers: treat the data as real"
        )
    axes = [part.rows.tolist() for part in body.parts if isinstance(part, AxesPart)]
    single = {row for rows in axes for row in rows}
    top, worst, on_axes, one_step = Fraction(0), None, True, False
    steps: dict[int, float] = {}
    for column in columns.T:
        move, known = exact_move(adjacency, column)
        if not known:
            raise AffineDPError(
                "the moves are no short fractions, so that whole neighbours cannot be told "
                "exactly: treat the data as real"
            )
        step, times = whole_steps(coordinates.exact(move))
        if times == 0:
            continue
        gauge = _gauge([Fraction(times * c) for c in step], body)
        steps[times] = max(steps.get(times, 0.0), _rounded_up(gauge, body.rate))
        moved = [i for i, c in enumerate(step) if c]
        along = len(moved) == 1 and moved[0] in single
        on_axes = on_axes and along
        one_step = (one_step and gauge <= top) or (gauge >= top and along and times == 1)
        if gauge > top:
            top, worst = gauge, _whole_part(move, column)
    method = f"listed {count:,} moves on whole numbers"
    return _Found(top, top, worst, method, steps, on_axes, one_step)


def _whole_part(move: Mapping[int, Fraction], column: FloatArray) -> FloatArray:
    """The longest part of a move between whole data, or all of it where there is none."""
    step, times = whole_steps(list(move.values()))
    if times == 0:
        return column
    part = np.zeros_like(column)
    part[list(move)] = [float(times * c) for c in step]
    return part


def whole_steps(move: list[Fraction]) -> tuple[tuple[int, ...], int]:
    """Return the primitive lattice vector along a move, and how often it fits.

    Parameters
    ----------
    move : list of Fraction
        In coordinates of the lattice.

    Examples
    --------
    >>> whole_steps([Fraction(5, 2), Fraction(5)])
    ((1, 2), 2)
    """
    scale = common_denominator(move)
    step, content = primitive([int(c * scale) for c in move])
    return step, content // scale


def _gauge(move: list[Fraction], body: KNormNoise) -> Fraction:
    total = Fraction(0)
    for part in body.parts:
        own = [move[i] for i in part.rows.tolist()]
        if any(own):
            total += part.gauge(own)
    return total


def exact_move(adjacency: Adjacency, column: FloatArray) -> tuple[dict[int, Fraction], bool]:
    """Return a move as fractions, and whether it is certainly the move itself.

    A circuit is determined by its support up to its length, and some entry of it moves by μ
    exactly while the others move by at least theirs; both are checked.

    Parameters
    ----------
    adjacency : Adjacency
        Whose move it is.
    column : array, shape (n,)
        The move in doubles.
    """
    places = np.flatnonzero(column).tolist()
    values = [float(column[j]) for j in places]
    if not isinstance(adjacency, CircuitAdjacency):
        read = {j: readable(v) for j, v in zip(places, values)}
        return read, all(c.denominator <= 10**12 for c in read.values())
    size = max(map(abs, values), default=0.0)
    move = {j: _near(v, size) for j, v in zip(places, values)}
    rows = adjacency.manifold.exact_rows
    if rows is None:
        return move, False
    inside = all(
        sum((c * move[j] for j, c in row.items() if j in move), Fraction(0)) == 0 for row in rows
    )
    lengths = [
        abs(c) / readable(float(adjacency.mu[j])) for j, c in move.items() if adjacency.mu[j]
    ]
    return move, inside and min(lengths, default=Fraction(0)) == 1


def _near(value: float, size: float) -> Fraction:
    """The short fraction that a computed number is, up to its rounding."""
    for most in (100, 10_000):
        near = Fraction(value).limit_denominator(most)
        if abs(float(near) - value) <= 1e-13 * size:
            return near
    return readable(value)


def _rounded_up(gauge: float | Fraction, rate: float) -> float:
    product = Fraction(gauge) * Fraction(rate)
    near = float(product)
    return near if Fraction(near) >= product else math.nextafter(near, math.inf)


def points_on_outputs(points: Matrix) -> tuple[Matrix, Matrix]:
    """Return a basis that is the identity on some outputs, and the points on those outputs.

    Parameters
    ----------
    points : matrix, shape (m, p)
        Points of a body, in outputs, as columns.
    """
    from scipy.linalg import qr

    whole = dense(points)
    size = np.abs(whole).max(axis=1)
    unit = np.where(size > 0, size, 1.0)[:, None]
    _, triangle, order = qr((whole / unit).T, mode="economic", pivoting=True)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > 1e-10 * diagonal[0]).sum())
    places = np.sort(order[:rank])
    chosen = whole[places]
    basis = np.linalg.lstsq((chosen / unit[places]).T, (whole / unit).T, rcond=None)[0].T
    basis = basis * unit / unit[places].T
    basis[np.abs(basis) < 1e-13 * np.abs(basis).max()] = 0.0
    basis[places] = np.eye(rank)
    return basis, chosen
