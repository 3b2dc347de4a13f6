"""Who is a neighbour: all circuits, chosen free sets, or given directions.

Different adjacencies are different promises.  Each names itself in ``neighbours``, and
guarantees about different neighbours never mix.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp._arrays import FloatArray, IntArray, Matrix, dense, real_array, real_matrix
from affinedp.circuits import (
    WAYS_OUT,
    Component,
    Leading,
    Norm,
    exact_circuit,
    list_circuits,
    parallel_columns,
    worst_circuits,
)
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.manifold import ON_MANIFOLD, AffineManifold
from affinedp.progress import Progress

if TYPE_CHECKING:
    import scipy.sparse as sparse

EPS = float(np.finfo(float).eps)
TINY_COEFFICIENT = 1e-6
DENSE_NUMBERS = 4e8
# Products up to which a norm is computed in rational arithmetic.
EXACT_PRODUCTS = 4_000


@dataclass(frozen=True)
class Sensitivity:
    """The largest ``‖matrix · v‖`` over neighbour directions v.

    Attributes
    ----------
    value : float
        The largest value found.
    upper : float
        What it is certainly at most; promises are computed from this.
    exact : bool
        Whether every direction was covered, so that ``upper`` is ``value`` up to rounding.
    method : str
        How the maximum was found.
    direction : array, shape (n,)
        A direction that attains ``value``, scaled as far as neighbours may differ.
    warnings : tuple of str
        What a careful reader should know.
    """

    value: float
    upper: float
    exact: bool
    method: str
    direction: FloatArray
    warnings: tuple[str, ...] = ()


class Adjacency(ABC):
    """Directions in which neighbours on a manifold may differ."""

    manifold: AffineManifold

    @property
    @abstractmethod
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""

    @abstractmethod
    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest 1-norm or 2-norm of ``matrix @ v`` over neighbour directions v."""

    @abstractmethod
    def blocks(self, limit: int) -> Iterator[FloatArray]:
        """Yield the directions, n×K at a time; raise beyond ``limit`` of them."""

    def directions(self, limit: int = 200_000) -> FloatArray:
        """Return all neighbour directions as columns, scaled by μ.

        Parameters
        ----------
        limit : int
            Raise rather than return more than this many.

        Returns
        -------
        array, shape (n, K)

        Examples
        --------
        >>> M = AffineManifold([[1, -2, 0]])          # Example 2 of the paper
        >>> CircuitAdjacency(M).directions()
        array([[0., 2.],
               [0., 1.],
               [1., 0.]])
        """
        found: list[FloatArray] = []
        count = 0
        for block in self.blocks(limit):
            count += block.shape[1]
            if count * float(self.manifold.n) > DENSE_NUMBERS:
                raise TooManyCircuitsError(
                    f"the directions do not fit in memory: {self.manifold.n:,} entries times more "
                    f"than {count:,}",
                    count,
                    DENSE_NUMBERS / self.manifold.n,
                )
            found.append(block)
        return np.hstack(found) if found else np.zeros((self.manifold.n, 0))

    def span(self) -> Matrix:
        """Return vectors that span the directions (the kernel, unless directions are given)."""
        return self.manifold.kernel

    def _matrix(self, matrix: ArrayLike | sparse.sparray) -> Matrix:
        checked = real_matrix(matrix, "matrix")
        if checked.shape[1] != self.manifold.n:
            raise AffineDPError(
                f"the matrix has {checked.shape[1]} columns, but the manifold has "
                f"{self.manifold.n} entries"
            )
        return checked


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
        self._mu = _checked_mu(mu, manifold.n)

    @property
    def mu(self) -> FloatArray:
        """How far each entry moves."""
        return self._mu.copy()

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        return f"Definition 4: one free entry of any basis moves by at most {_mu_words(self._mu)}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        return _hash("circuits", self.manifold.fingerprint, self._mu)

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

        _check_norm(norm)
        checked = sparse.csc_array(self._matrix(matrix))
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
                found = self._evaluate(part, image, norm, leading)
                if found.upper > best.upper:
                    best = found
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
        """Yield the scaled circuits, n×K at a time; raise beyond ``limit`` of them."""
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
            size = np.where(terms > 1, np.sqrt((columns * columns).sum(axis=0)), size)
        scores = size * mu
        # a single coefficient times a power of two is not rounded
        rounding = np.where(terms > 1, 4 * terms, 0) + np.where(np.frexp(mu)[0] == 0.5, 0, 1)
        upper = scores * (1 + EPS * rounding)
        place = int(np.argmax(upper))
        direction[self.loose_entries[place]] = mu[place]
        return Sensitivity(
            float(scores[place]), float(upper[place]), True, "single entries", direction
        )

    def _evaluate(
        self, component: Component, matrix: FloatArray, norm: Norm, leading: Leading
    ) -> Sensitivity:
        """Evaluate the leading circuits again, exactly where the equations are rational.

        The search's scores carry its rounding.  Circuits that are not evaluated again score
        at most as much as the last leading one, and the rounding seen on the leading ones is
        allowed for on them.
        """
        best = Sensitivity(0.0, 0.0, True, "", np.zeros(self.manifold.n))
        drift = 64 * EPS
        for circuit, score in zip(leading.circuits, leading.scores):
            step, value, upper = self._measure(component, matrix, norm, circuit)
            if upper > best.upper:
                direction = np.zeros(self.manifold.n)
                direction[component.entries] = step
                warnings = _tiny_coefficient(direction, self.manifold.names)
                best = Sensitivity(value, upper, True, "", direction, warnings)
            if value > 0:
                drift = max(drift, abs(score - value) / value)
        if leading.count > len(leading.scores):
            others = float(leading.scores[-1]) * (1 + 4 * drift)
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


class FreeSetAdjacency(Adjacency):
    """Neighbours for chosen bases only: the free entries move one at a time, the rest follows.

    Theorem 3 of the paper is of this kind: there the free entries are the whole state at
    one time ("time-local" neighbours).  This is a weaker promise than Definition 4.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    free_sets : sequence of sequences
        Each a set of ``manifold.dim`` entries (names or positions) that determine x.
    mu : float or array_like, shape (n,)
        How far an entry moves, one number or one per entry.

    Examples
    --------
    >>> M = AffineManifold([[1, -2, 0]])
    >>> FreeSetAdjacency(M, [["x1", "x3"]]).directions()
    array([[1. , 0. ],
           [0.5, 0. ],
           [0. , 1. ]])
    """

    def __init__(
        self,
        manifold: AffineManifold,
        free_sets: Sequence[Sequence[int | str]],
        mu: float | ArrayLike = 1.0,
    ) -> None:
        self.manifold = manifold
        self._mu = _checked_mu(mu, manifold.n)
        self._sets = tuple(_entry_positions(manifold, entries) for entries in free_sets)
        if not self._sets:
            raise AffineDPError("free_sets is empty: give at least one set of free entries")
        for entries in self._sets:
            self._coordinates(entries)

    @property
    def mu(self) -> FloatArray:
        """How far each entry moves."""
        return self._mu.copy()

    @property
    def free_sets(self) -> tuple[tuple[int, ...], ...]:
        """The chosen sets, as positions."""
        return tuple(tuple(int(i) for i in entries) for entries in self._sets)

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        sets = f"{len(self._sets)} chosen free sets" if len(self._sets) > 1 else "a chosen free set"
        return f"one entry of {sets} moves by at most {_mu_words(self._mu)}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        sets = sorted({tuple(sorted(s.tolist())) for s in self._sets})
        return _hash("free sets", self.manifold.fingerprint, self._mu, repr(sets))

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the scaled directions of one free set at a time."""
        count = len(self._sets) * self.manifold.dim
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        for entries in self._sets:
            coordinates, _ = self._coordinates(entries)
            yield np.asarray(self.manifold.kernel @ coordinates)

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over the directions of the chosen sets.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        _check_norm(norm)
        checked = self._matrix(matrix)
        image = dense(checked @ self.manifold.kernel)
        best = Sensitivity(0.0, 0.0, True, "", np.zeros(self.manifold.n))
        for entries in self._sets:
            coordinates, condition = self._coordinates(entries)
            lengths = np.linalg.norm(image @ coordinates, ord=norm, axis=0)
            spread = np.linalg.norm(np.abs(image) @ np.abs(coordinates), ord=norm, axis=0)
            upper = lengths + 8 * len(entries) * EPS * condition * spread
            place = int(np.argmax(upper))
            if upper[place] > best.upper:
                direction = np.asarray(self.manifold.kernel @ coordinates[:, place])
                warnings = _tiny_coefficient(direction, self.manifold.names)
                value, high = float(lengths[place]), float(upper[place])
                best = Sensitivity(value, high, True, "", direction, warnings)
        return replace(best, method=f"{len(self._sets)} free sets, closed form")

    def _coordinates(self, entries: IntArray) -> tuple[FloatArray, float]:
        """Kernel coordinates of the set's scaled directions, and the condition of the set."""
        square = dense(self.manifold.kernel[entries])
        size = np.abs(square).max(axis=1, initial=0.0)
        condition = np.inf if np.any(size == 0) else np.linalg.cond(square / size[:, None])
        if not condition < 1e10:
            names = ", ".join(self.manifold.names[i] for i in entries)
            raise AffineDPError(
                f"the entries {names} are not free together: the equations tie them to each other "
                "(or do so within rounding). Choose entries that determine x"
            )
        inverse = np.linalg.inv(square / size[:, None]) / size
        return inverse * self._mu[entries], float(condition)


class DirectionAdjacency(Adjacency):
    """Neighbours along directions that the caller gives, already scaled.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    directions : array_like, shape (n, K)
        Columns in ``ker D``: x and x' are neighbours if they differ by at most one of them.

    Examples
    --------
    >>> M = AffineManifold([[1, 1, -1]])
    >>> adj = DirectionAdjacency(M, [[1, 0], [0, 1], [1, 1]])
    >>> adj.sensitivity([[1, 1, 1]], norm=1).value
    2.0
    """

    def __init__(self, manifold: AffineManifold, directions: ArrayLike) -> None:
        self.manifold = manifold
        vectors = real_array(directions, "directions", 2)
        if vectors.shape[0] != manifold.n or vectors.shape[1] == 0:
            raise AffineDPError(
                f"directions has shape {vectors.shape}, but must hold at least one column of "
                f"{manifold.n} entries"
            )
        off = np.abs(manifold.D @ vectors)
        scale = abs(manifold.D) @ np.abs(vectors)
        bad = np.flatnonzero(np.any(off > ON_MANIFOLD * scale, axis=0))
        if len(bad):
            raise AffineDPError(
                f"direction {bad[0] + 1} (counting from 1) leaves the manifold: D v must be 0. "
                "Neighbours must both obey the equations"
            )
        self._directions = vectors

    @property
    def neighbours(self) -> str:
        """Who counts as a neighbour, in words."""
        count = self._directions.shape[1]
        return f"{count} given direction{'s' if count > 1 else ''}"

    @property
    def key(self) -> str:
        """A hash that is equal only for the same neighbours on the same manifold."""
        return _hash("directions", self.manifold.fingerprint, self._directions)

    def blocks(self, limit: int = 200_000) -> Iterator[FloatArray]:
        """Yield the directions."""
        count = self._directions.shape[1]
        if count > limit:
            raise TooManyCircuitsError(f"there are {count:,} directions", count, limit)
        yield self._directions.copy()

    def span(self) -> Matrix:
        """Return vectors that span the directions."""
        return self._directions.copy()

    def sensitivity(self, matrix: ArrayLike | sparse.sparray, norm: Norm) -> Sensitivity:
        """Return the largest norm of ``matrix @ v`` over the given directions.

        Parameters
        ----------
        matrix : array_like or sparse matrix, shape (r, n)
            What is applied to the difference of neighbours.
        norm : {1, 2}
            1 for Laplace noise, 2 for Gaussian noise.
        """
        _check_norm(norm)
        checked: Any = self._matrix(matrix)
        vectors = self._directions
        lengths = np.linalg.norm(checked @ vectors, ord=norm, axis=0)
        spread = np.linalg.norm(abs(checked) @ np.abs(vectors), ord=norm, axis=0)
        upper = lengths + 2 * self.manifold.n * EPS * spread
        place = int(np.argmax(upper))
        return Sensitivity(
            float(lengths[place]),
            float(upper[place]),
            True,
            f"{vectors.shape[1]} directions, closed form",
            vectors[:, place].copy(),
        )


# ---------------------------------------------------------------------- shared pieces


def _checked_mu(mu: float | ArrayLike, n: int) -> FloatArray:
    values = real_array(mu, "mu")
    if values.ndim == 0:
        values = np.full(n, float(values))
    if values.shape != (n,):
        raise AffineDPError(
            f"mu has shape {values.shape}; give one number, or one for each of {n} entries"
        )
    if np.any(values < 0) or not np.any(values > 0):
        raise AffineDPError("mu must be positive (zero for some entries at most)")
    return values


def _mu_words(mu: FloatArray) -> str:
    if np.all(mu == mu[0]):
        return f"μ = {mu[0]:g}"
    return f"its μ (from {mu.min():g} to {mu.max():g})"


def _hash(*parts: str | FloatArray) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = (
            part.encode() if isinstance(part, str) else np.ascontiguousarray(part + 0.0).tobytes()
        )
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _check_norm(norm: int) -> None:
    if norm not in (1, 2):
        raise AffineDPError(f"norm must be 1 (Laplace) or 2 (Gaussian), not {norm!r}")


def _entry_positions(manifold: AffineManifold, entries: Sequence[int | str]) -> IntArray:
    place = {name: i for i, name in enumerate(manifold.names)}
    found: list[int] = []
    for entry in entries:
        if isinstance(entry, str) and entry in place:
            found.append(place[entry])
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            if not 0 <= entry < manifold.n:
                raise AffineDPError(
                    f"there is no entry {entry}: they go from 0 to {manifold.n - 1}"
                )
            found.append(int(entry))
        else:
            raise AffineDPError(f"there is no entry {entry!r}")
    if len(set(found)) != manifold.dim or len(found) != manifold.dim:
        raise AffineDPError(
            f"a free set must have {manifold.dim} different entries (the dimension of the "
            f"manifold), not {len(set(found))}"
        )
    return np.array(sorted(found), dtype=np.intp)


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
    rows = component.equations[:, support].toarray()
    size = np.abs(rows).max(axis=1)
    rows = rows[size > 0] / size[size > 0, None]
    refined = circuit.copy()
    if len(support) > 1:
        # entries in units of the circuit, so that different units do not count as ill-conditioned
        unit = np.abs(circuit[support])
        _, values, right = np.linalg.svd(rows * unit)
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
        value = float(total) if norm == 1 else math.sqrt(total)
    except OverflowError:
        return math.inf, math.inf
    upper = value
    while Fraction(upper) ** norm < total:
        upper = math.nextafter(upper, math.inf)
    return value, upper


def _tiny_coefficient(direction: FloatArray, names: Sequence[str]) -> tuple[str, ...]:
    size = np.abs(direction)
    if not size.any():
        return ()
    smallest = int(np.argmin(np.where(size > 0, size, np.inf)))
    if size[smallest] >= TINY_COEFFICIENT * size.max():
        return ()
    return (
        f"the promise rests on a tiny coefficient: in the worst direction {names[smallest]} moves "
        f"only {size[smallest] / size.max():.1e} as far as {names[int(np.argmax(size))]}. If that "
        "coefficient should be zero, correct the equations",
    )


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
    touched = np.bincount(columns.indices, minlength=columns.shape[0])
    basis = set(component.pivots.tolist())
    seen: dict[Any, int] = {}
    keep = []
    for j, (start, stop) in enumerate(zip(columns.indptr[:-1], columns.indptr[1:])):
        rows, values = columns.indices[start:stop], columns.data[start:stop] / factor[j]
        alone = touched[rows] == 1  # rows that only this entry touches count by their norm
        own = np.linalg.norm(values[alone], ord=norm) if alone.any() else 0.0
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
