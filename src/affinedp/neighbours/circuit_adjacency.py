"""Definition 4 of the paper: neighbours along all circuits, and the worst of them, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray, IntArray, Matrix, Norm, dense
from affinedp.equations.component import Component, parallel_columns
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.neighbours.adjacency import (
    EPS,
    Adjacency,
    Sensitivity,
    check_norm,
    checked_mu,
    column_norms,
    first_largest,
    hashed,
    mu_words,
    tiny_coefficient,
)
from affinedp.neighbours.circuits.ask import (
    WAYS_OUT,
    Leading,
    exact_circuit,
    list_circuits,
    worst_circuits,
)
from affinedp.progress import Progress

if TYPE_CHECKING:
    import scipy.sparse as sparse

DENSE_NUMBERS = 4e8
# Products up to which a norm is computed in rational arithmetic.
EXACT_PRODUCTS = 4_000
# A circuit that scores less than this share of the worst one cannot be worse in truth.
CLEARLY_LESS = 1 - 1e-6


class CircuitAdjacency(Adjacency):
    """Definition 4 of the paper: one free entry of any basis moves by at most its μ.

    The other free entries stay and the basis follows, so ``x`` moves along a circuit of
    ``ker D``; all circuits count.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    mu : float or array_like, shape (n,)
        How far an entry moves, one number or one per entry.  An entry with μ = 0 does not
        move first but may follow; to make it public, add the equation.

    Examples
    --------
    >>> M = AffineManifold([[1, -4]])                 # Example 1 of the paper, k = 4
    >>> CircuitAdjacency(M).sensitivity([[1, 0], [0, 1]], norm=1).value
    5.0
    """

    def __init__(self, manifold: AffineManifold, mu: float | ArrayLike = 1.0) -> None:
        self.manifold = manifold
        self._mu = checked_mu(mu, manifold.n)

    @property
    def mu(self) -> FloatArray:
        """How far each entry moves."""
        return self._mu.copy()

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        return f"Definition 4: one free entry of any basis moves by at most {mu_words(self._mu)}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        return hashed("circuits", self.manifold.fingerprint, self._mu)

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over all scaled circuits v, exactly.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.

        Returns
        -------
        Sensitivity
        """
        import scipy.sparse as sparse

        check_norm(norm)
        checked = sparse.csc_array(self.checked_matrix(matrix))
        checked.eliminate_zeros()
        checked.sort_indices()
        best = self._worst_loose_entry(checked, norm)
        methods = set()
        with Progress("searching the circuits") as progress:
            for component in self.bound_components:
                local = checked[:, component.entries]
                mu = self._mu[component.entries]
                kept = _interchangeable(component, local, norm, mu)
                part = component.restricted(kept)
                image = _dense_rows(local[:, kept])
                leading = worst_circuits(part, image, norm, mu[kept], progress)
                folded = ", interchangeable entries folded" if len(kept) < len(mu) else ""
                methods.add(leading.method + folded)
                best = best.worse(self._evaluate(part, image, norm, leading))
        return replace(best, method="; ".join(sorted(methods)) or best.method)

    def count(self) -> int:
        """Return the number of circuits, up to sign."""
        with Progress("counting the circuits") as progress:
            total = len(self.loose_entries)
            for component in self.bound_components:
                n = len(component.entries)
                total += worst_circuits(component, np.zeros((0, n)), 2, np.ones(n), progress).count
        return total

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the scaled circuits, n×K at a time.

        Parameters
        ----------
        limit : int
            Raise beyond this many.
        """
        loose = self.loose_entries
        left = limit - len(loose)
        if left < 0:
            raise TooManyCircuitsError(f"there are more than {limit:,} circuits", len(loose), limit)
        if len(loose):
            block = np.zeros((self.manifold.n, len(loose)))
            block[loose, np.arange(len(loose))] = self._mu[loose]
            yield block
        with Progress("listing the circuits") as progress:
            for component in self.bound_components:
                mu = self._mu[component.entries]
                for circuits in list_circuits(component, left, progress):
                    left -= len(circuits)
                    block = np.zeros((self.manifold.n, len(circuits)))
                    block[component.entries] = (circuits * _farthest(circuits, mu)[:, None]).T
                    yield block

    def span(self) -> Matrix:
        """Return the kernel, each column as long as neighbours differ along it.

        The columns are circuits.  In a component in which some entry moves every direction can
        be reached; where no entry moves, none can.
        """
        kernel = self.manifold.kernel
        most = np.zeros(self.manifold.n)
        for entries in self.manifold.components:
            most[entries] = self._mu[entries].max()
        moved = most[self.manifold.canonical.free]
        largest = dense(abs(kernel).max(axis=0)).ravel()
        return kernel @ _diagonal(moved / largest)

    # ------------------------------------------------------------------ inside

    @cached_property
    def loose_entries(self) -> IntArray:
        """Entries in no equation: each is a circuit by itself."""
        return np.array([c[0] for c in self.manifold.components if len(c) == 1], dtype=np.intp)

    @cached_property
    def bound_components(self) -> tuple[Component, ...]:
        """The components that equations bind together."""
        import scipy.sparse as sparse

        canonical = self.manifold.canonical
        equations = sparse.csc_array(self.manifold.D)
        reduced = sparse.csr_array(canonical.reduced)
        position = np.full(self.manifold.n, -1)
        pivot_rank = {int(p): i for i, p in enumerate(canonical.pivots)}
        free_rank = {int(f): i for i, f in enumerate(canonical.free)}
        found = []
        for entries in self.manifold.components:
            if len(entries) == 1:
                continue
            position[entries] = np.arange(len(entries))
            pivots = [int(i) for i in entries if int(i) in pivot_rank]
            free = [int(i) for i in entries if int(i) in free_rank]
            columns = sparse.csc_array(equations[:, entries])
            rows = np.unique(columns.indices)
            part = reduced[[pivot_rank[i] for i in pivots]][:, [free_rank[i] for i in free]]
            columns = sparse.csc_array(columns[rows])
            columns.eliminate_zeros()
            columns.sort_indices()
            found.append(
                Component(
                    entries, columns, position[pivots], position[free], sparse.csr_array(part)
                )
            )
        return tuple(found)

    def _worst_loose_entry(self, matrix: sparse.csc_array, norm: Norm) -> Sensitivity:
        """The worst of the entries that no equation binds (zero if there is none)."""
        direction = np.zeros(self.manifold.n)
        if len(self.loose_entries) == 0:
            return Sensitivity(0.0, 0.0, True, "no directions", direction)
        columns = matrix[:, self.loose_entries]
        mu = self._mu[self.loose_entries]
        terms = np.diff(columns.indptr)
        size = abs(columns).sum(axis=0)
        if norm == 2:
            largest = dense(abs(columns).max(axis=0)).ravel()
            unit = np.where(largest > 0, largest, 1.0)
            scaled = columns @ _diagonal(1 / unit)
            size = np.where(terms > 1, np.sqrt((scaled * scaled).sum(axis=0)) * unit, size)
        scores = size * mu
        # a single coefficient times a power of two is not rounded
        rounding = np.where(terms > 1, 4 * terms, 0) + np.where(np.frexp(mu)[0] == 0.5, 0, 1)
        upper = scores * (1 + EPS * rounding)
        place = first_largest(scores)
        direction[self.loose_entries[place]] = mu[place]
        return Sensitivity(
            float(scores[place]), float(upper.max()), True, "single entries", direction
        )

    def _evaluate(
        self, component: Component, matrix: FloatArray, norm: Norm, leading: Leading
    ) -> Sensitivity:
        """Evaluate the leading circuits again, exactly where the equations are rational.

        The search's scores carry its rounding.  Circuits that are not evaluated again, because
        they score clearly less or are not among the leading ones, are allowed the rounding seen
        on those that are.
        """
        best = Sensitivity(0.0, 0.0, True, "", np.zeros(self.manifold.n))
        drift = 64 * EPS
        evaluated = 0
        for circuit, score in zip(leading.circuits, leading.scores):
            if score < CLEARLY_LESS * best.value:
                break
            evaluated += 1
            step, value, upper = self._measure(component, matrix, norm, circuit)
            direction = np.zeros(self.manifold.n)
            direction[component.entries] = step
            warnings = tiny_coefficient(direction, self.manifold.names)
            best = best.worse(Sensitivity(value, upper, True, "", direction, warnings))
            if value > 0:
                drift = max(drift, abs(score - value) / value)
        if leading.count > evaluated > 0:
            others = max(leading.left_out, *leading.scores[evaluated:], 0.0) * (1 + 4 * drift)
            best = replace(best, upper=max(best.upper, others))
        return best

    def _measure(
        self, component: Component, matrix: FloatArray, norm: Norm, circuit: FloatArray
    ) -> tuple[FloatArray, float, float]:
        """The scaled circuit, the norm of its image, and what that is at most."""
        support = np.flatnonzero(circuit)
        mu = self._mu[component.entries]
        if self.manifold.exact_rows is None:
            refined, error = _refined(component, circuit)
            step = refined * _farthest(refined[None], mu)[0]
            value, upper = _norm_with_bound(matrix, step, norm)
            return step, value, upper * (1 + error)
        exact = exact_circuit(self._local_exact_rows(component), support)
        if exact is None:
            raise AffineDPError(
                "a neighbour direction found in floating point is none in exact arithmetic; "
                "the coefficients differ too much in size. Rescale the entries, or use "
                "FreeSetAdjacency or DirectionAdjacency"
            )
        farthest = max(Fraction(float(mu[i])) / abs(value) for i, value in exact.items())
        moved = {i: farthest * value for i, value in exact.items()}
        step = np.zeros(len(circuit))
        for i, move in moved.items():
            step[i] = float(move)
        if matrix.shape[0] * len(support) > EXACT_PRODUCTS:
            return step, *_norm_with_bound(matrix, step, norm)
        return step, *_exact_norm(matrix, moved, norm)

    def _local_exact_rows(self, component: Component) -> list[dict[int, Any]]:
        rows = self.manifold.exact_rows
        assert rows is not None
        place = {int(i): p for p, i in enumerate(component.entries)}
        local = ({place[j]: row[j] for j in row if j in place} for row in rows)
        return [row for row in local if row]


def _farthest(circuits: FloatArray, mu: FloatArray) -> FloatArray:
    """How far along each circuit (a row) neighbours may differ: max of μ_i / |v_i|."""
    size = np.abs(circuits)
    ratio = np.divide(mu, size, out=np.zeros_like(size), where=size > 0)
    return np.asarray(ratio.max(axis=1))


def _norm_with_bound(matrix: FloatArray, vector: FloatArray, norm: Norm) -> tuple[float, float]:
    """The norm of ``matrix @ vector``, and what it is at most in view of rounding.

    Products and sums are carried in extended precision, so what remains is the rounding
    of the vector itself (a few eps per entry, also in its scale) and of the result.
    """
    wide = matrix.astype(np.longdouble) @ vector.astype(np.longdouble)
    value = float(np.abs(wide).sum() if norm == 1 else np.sqrt((wide * wide).sum()))
    spread = float(np.linalg.norm(np.abs(matrix) @ np.abs(vector), ord=norm))
    return value, value * (1 + 2 * EPS) + 4 * EPS * spread


def _refined(component: Component, circuit: FloatArray) -> tuple[FloatArray, float]:
    """The circuit from the equations themselves, and its relative error (also of its scale).

    The null vector of the equations on the circuit's entries is off by eps times their
    condition, and its smallest entry, which sets the scale, by as much of the largest.
    """
    support = np.flatnonzero(circuit)
    refined = circuit.copy()
    if len(support) > 1:
        # entries in units of the circuit, so that different units do not count as ill-conditioned
        unit = np.abs(circuit[support])
        rows = component.equations[:, support].toarray() * unit
        size = np.abs(rows).max(axis=1)
        rows = rows[size > 0] / size[size > 0, None]
        _, values, right = np.linalg.svd(rows)
        refined[support] = right[-1] * unit * np.sign(right[-1] @ np.sign(circuit[support]))
        weakest = float(values[len(support) - 2] * np.abs(right[-1]).min())
        amplified = float(values[0] * np.abs(right[-1]).max()) / weakest if weakest else np.inf
        if not amplified < 1e12:
            raise AffineDPError(
                "a neighbour direction is too ill-conditioned to be computed from these equations. "
                "Give exact (integer, decimal or text) coefficients, or rescale the entries"
            )
        return refined, 64 * EPS * amplified
    return refined, 4 * EPS


def _exact_norm(
    matrix: FloatArray, vector: Mapping[int, Fraction], norm: Norm
) -> tuple[float, float]:
    """The norm in rational arithmetic (floats are rational), and the next float not below it."""
    total = Fraction(0)
    for row in matrix[:, list(vector)].tolist():
        entry = sum((Fraction(a) * v for a, v in zip(row, vector.values()) if a), Fraction(0))
        total += abs(entry) if norm == 1 else entry * entry
    try:
        value = upper = float(total) if norm == 1 else _square_root(total)
    except OverflowError:
        return math.inf, math.inf
    while Fraction(upper) ** norm < total:
        upper = math.nextafter(upper, math.inf)
    return value, upper


def _diagonal(values: FloatArray) -> Any:
    import scipy.sparse as sparse

    return sparse.csr_array(sparse.diags_array(values))


def _square_root(square: Fraction) -> float:
    """The square root of a rational number of any size, to the last bit or next to it."""
    if square == 0:
        return 0.0
    # 120 bits or more in the integer root, whatever the size of the number
    shift = 120 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square * Fraction(2) ** (2 * shift)
    return math.ldexp(math.isqrt(scaled.numerator // scaled.denominator), -shift)


def _interchangeable(
    component: Component, columns: sparse.csc_array, norm: Norm, mu: FloatArray
) -> IntArray:
    """Entries that remain when parallel, interchangeable ones are dropped.

    Entries whose columns in D are parallel replace each other in every circuit.  If the norm
    and μ cannot tell them apart either, two of them stand for all (two, because a pair of
    them is a circuit too).
    """
    group, factor = parallel_columns(component.equations)
    if group.max() + 1 == len(group):
        return np.arange(len(group))
    factor = factor / np.exp2(np.rint(np.log2(np.abs(factor).max())))
    touched = np.bincount(columns.indices, minlength=columns.shape[0])
    basis = set(component.pivots.tolist())
    seen: dict[Any, int] = {}
    keep = []
    for j, (start, stop) in enumerate(zip(columns.indptr[:-1], columns.indptr[1:])):
        rows, values = columns.indices[start:stop], columns.data[start:stop] / factor[j]
        alone = touched[rows] == 1  # rows that only this entry touches count by their norm
        own = column_norms(values[alone][:, None], norm)[0] if alone.any() else 0.0
        shared = (rows[~alone].tobytes(), (values[~alone] + 0.0).tobytes())
        key = (int(group[j]), shared, float(own), float(mu[j] * abs(factor[j])))
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= 2 or j in basis:
            keep.append(j)
    return np.array(keep, dtype=np.intp)


def _dense_rows(columns: sparse.csc_array) -> FloatArray:
    """The columns as a dense matrix without its zero rows, which change no norm."""
    rows = columns.tocsr()
    used = np.flatnonzero(np.diff(rows.indptr))
    if len(used) * float(columns.shape[1]) > DENSE_NUMBERS:
        raise TooManyCircuitsError(
            f"a component of {columns.shape[1]:,} entries and {len(used):,} outputs does not fit "
            f"in memory. {WAYS_OUT}",
            math.inf,
            DENSE_NUMBERS,
        )
    return np.asarray(rows[used].toarray())
