"""Definition 4 of the paper: neighbours along all circuits, and the worst of them, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import EPS, FloatArray, IntArray, Matrix, Norm, dense, within_range
from affinedp.domains.component import Component, parallel_columns
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError, TooManyCircuitsError
from affinedp.exact.numbers import meaning, nonzeros
from affinedp.exact.rational import exact_circuit
from affinedp.neighbours.adjacency import (
    LISTED,
    Adjacency,
    Columns,
    Distances,
    ExactMatrix,
    Sensitivity,
    Vector,
    alone,
    as_float,
    checked_manifold,
    checked_mu,
    checked_unit,
    column_norms,
    first_largest,
    mu_words,
    norm_with_bound,
    overflow,
    still,
    tiny_coefficient,
)
from affinedp.neighbours.circuits.compiled import ACCURATE, Marks
from affinedp.neighbours.circuits.search import (
    WAYS_OUT,
    Leading,
    count_circuits,
    list_circuits,
    worst_circuits,
)
from affinedp.neighbours.definition import NeighbourAnswer, among_circuits
from affinedp.neighbours.free_sets import person_of
from affinedp.parts import locked
from affinedp.progress import Progress

if TYPE_CHECKING:
    import scipy.sparse as sparse

DENSE_NUMBERS = 4e8
# Values of listed circuits are that accurate, and so is the smallest, which sets their length.
LISTED_ERROR = 4 * ACCURATE
# Entries up to which a circuit of long doubles is computed in rational arithmetic.
LONG_CIRCUIT = 30
# Numbers of circuits that are kept once they were listed.
KEPT_NUMBERS = 2_000_000
# What moves between neighbours, in the words that a ledger knows it by.
DEFINITION_4 = "any one number, which others follow (Definition 4)"
# A circuit that scores less than this share of the worst one cannot be worse in truth.
CLEARLY_LESS = 1 - 1e-6
# Circuits that are listed, and evaluated, where more are equally bad than the search remembers.
MOST_LISTED = 20_000
MOST_TIED = 500


class CircuitAdjacency(Adjacency):
    """Definition 4 of the paper: any one number moves by at most its μ, and others follow.

    The other free entries stay and the basis follows, so ``x`` moves along a circuit of
    ``ker D``; all circuits count.

    Parameters
    ----------
    manifold : AffineManifold
        The public equations.
    mu : float, array_like of shape (n,), or mapping
        How far an entry moves: one number, one per entry, or by name.  An entry with μ = 0, or
        left out, does not move first but may follow; to make it public, add the equation.
    unit : str, optional
        What moves between neighbours, in a few words, for a ledger; unless given, all neighbours
        of Definition 4 have the same unit, whatever the equations.
    assumes : str
        What everyone is assumed to know, to be said with the promise.

    Examples
    --------
    >>> M = AffineManifold([[1, -4]])                 # Example 1 of the paper, k = 4
    >>> CircuitAdjacency(M).sensitivity([[1, 0], [0, 1]], norm=1).value
    5.0
    """

    kind = "circuits"

    def __init__(
        self,
        manifold: AffineManifold,
        mu: Distances = 1.0,
        *,
        unit: str | None = None,
        assumes: str = "",
    ) -> None:
        self.domain = checked_manifold(manifold)
        self._mu = checked_mu(mu, manifold.names)
        self._unit = checked_unit(unit)
        self.assumes = assumes

    def fields(self) -> dict[str, Any]:
        """Return what makes these neighbours, by argument of the constructor."""
        said = {"unit": self._unit, "assumes": self.assumes}
        given = {name: text for name, text in said.items() if text}
        return {"manifold": self.manifold, "mu": self._mu, **given}

    @property
    def mu(self) -> FloatArray:
        """How far each entry moves."""
        return self._mu

    @property
    def words(self) -> str:
        """Who counts as a neighbour, in words."""
        known = f"; {self.assumes}" if self.assumes else ""
        reach = mu_words(self._mu)
        moves = f"any one number moves by at most {reach}, and the others follow the equations"
        return f"Definition 4: {moves}{known}"

    @property
    def unit(self) -> str:
        """What moves between neighbours, in words that a ledger knows."""
        return self._unit or DEFINITION_4

    @within_range
    def measured(self, matrix: Matrix, norm: Norm, numbers: ExactMatrix | None) -> Sensitivity:
        import scipy.sparse as sparse

        checked = sparse.csc_array(matrix)
        checked.eliminate_zeros()
        checked.sort_indices()
        best = self._worst_loose_entry(checked, norm, numbers)
        methods = set()
        with Progress("searching the circuits") as progress:
            for component in self.bound_components:
                local = checked[:, component.entries]
                mu = self._mu[component.entries]
                # numbers that are equal as floats need not be equal
                everything = np.arange(len(component.entries))
                kept = everything if numbers else _interchangeable(component, local, mu)
                part = component.restricted(kept)
                image = _dense_rows(local[:, kept])
                leading = worst_circuits(part, image, norm, mu[kept], progress)
                folded = ", interchangeable entries folded" if len(kept) < len(mu) else ""
                methods.add(leading.method + folded)
                exact = ExactMatrix.of(image)
                if numbers is not None:
                    exact = numbers.part(part.entries.tolist())
                tied = numbers is not None
                best = best.worse(self._evaluate(part, image, exact, norm, leading, tied))
        return replace(best, method="; ".join(sorted(methods)) or best.method)

    def are_neighbours(self, x: Iterable[Any], y: Iterable[Any]) -> NeighbourAnswer:
        return among_circuits(self.manifold, self._mu, x, y)

    def sensitivity_by_entry(
        self, matrix: ArrayLike | sparse.sparray, norm: Norm
    ) -> tuple[Sensitivity, ...]:
        movable = {int(i) for component in self.manifold.components for i in component}
        found = []
        for mu in alone(self._mu, movable):
            other = copy(self)  # what was prepared from the equations alone is kept
            other._mu = self._mu if mu is None else mu
            found.append(still(self.manifold.n) if mu is None else other.sensitivity(matrix, norm))
        return tuple(found)

    @within_range
    def count(self) -> int:
        """Return the number of circuits, up to sign."""
        with Progress("counting the circuits") as progress:
            total = len(self.loose_entries)
            for component in self.bound_components:
                total += count_circuits(component, progress)
        return total

    def moves(self, limit: int = LISTED) -> Iterator[Columns]:
        loose = self.loose_entries
        left = limit - len(loose)
        if left < 0:
            raise TooManyCircuitsError(f"there are more than {limit:,} circuits", len(loose), limit)
        if len(loose):
            block = np.zeros((self.manifold.n, len(loose)))
            block[loose, np.arange(len(loose))] = self._mu[loose]
            yield self._columns(block)
        with Progress("listing the circuits") as progress:
            for place, component in enumerate(self.bound_components):
                mu = self._mu[component.entries]
                for circuits in self._circuits(place, left, progress):
                    left -= len(circuits)
                    block = np.zeros((self.manifold.n, len(circuits)))
                    block[component.entries] = (circuits * _farthest(circuits, mu)[:, None]).T
                    yield self._columns(block)

    def _circuits(self, place: int, limit: int, progress: Progress) -> Iterator[FloatArray]:
        """The circuits of a component as rows, of some length; short lists are kept."""
        if place in self._known:
            found = self._known[place]
            if len(found) > limit:
                words = f"there are more than {limit:,} circuits"
                raise TooManyCircuitsError(words, len(found), limit)
            yield found
            return
        component, kept = self.bound_components[place], []
        for listed, suspects in list_circuits(component, limit, progress):
            circuits = np.vstack([listed, self._suspect_rows(component, suspects)])
            kept.append(circuits)
            yield circuits
        if sum(circuits.size for circuits in kept) <= KEPT_NUMBERS:
            self._known[place] = locked(np.vstack(kept))

    @cached_property
    def _known(self) -> dict[int, FloatArray]:
        """Circuits by component, which follow from the equations alone."""
        return {}

    def _columns(self, block: FloatArray) -> Columns:
        """Listed circuits with how far off they may be.

        A circuit is known by its entries up to its length, so whole numbers near to computed ones
        are the circuit itself if they obey the equations and are as long as it is.
        """
        equations = self.manifold.D
        near, off = np.rint(block), LISTED_ERROR * np.abs(block)
        if self._is_whole:
            mu = np.where(self._mu > 0, self._mu, np.inf)[:, None]
            with np.errstate(over="ignore", invalid="ignore"):
                size = dense(abs(equations) @ np.abs(near)).max(axis=0, initial=0.0)
                zero = dense(equations @ near) == 0
            ratio = np.where(near != 0, np.abs(near) / mu, np.inf).min(axis=0)
            same = (np.abs(near - block) <= off) & ((near != 0) == (block != 0))
            known = same.all(axis=0) & zero.all(axis=0) & (ratio == 1.0) & (size < 2.0**53)
            block, off = np.where(known, near, block), np.where(known, 0.0, off)
        return Columns(block, off, lambda k: self.exact_direction(block[:, k]), solved=True)

    @cached_property
    def _is_whole(self) -> bool:
        """Whether the equations have whole coefficients."""
        _, _, numbers = nonzeros(self.manifold.D)
        return bool(np.all(numbers == np.rint(numbers)))

    @property
    def _is_solved(self) -> bool:
        """Whether the equations were solved exactly: then long circuits are no work."""
        return self.manifold.canonical.exact_rows is not None

    def exact_direction(self, direction: FloatArray) -> dict[int, Fraction] | None:
        """Return a computed direction in rational numbers, from its entries and the equations.

        None where it has too many entries for equations that were not solved exactly.

        Parameters
        ----------
        direction : array, shape (n,)
            A scaled circuit in doubles.
        """
        support = np.flatnonzero(direction).tolist()
        if len(support) > LONG_CIRCUIT and not self._is_solved:
            return None
        if not support:
            return {}
        values = exact_circuit([self.manifold.exact_column(i) for i in support])
        if values is None:
            return None
        mu = (meaning(float(self._mu[i])) for i in support)
        far = max(distance / abs(value) for value, distance in zip(values, mu))
        if values[0] * direction[support[0]] < 0:
            far = -far
        return {i: far * value for i, value in zip(support, values)}

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

    def exact_span(self) -> list[Vector]:
        """Return the kernel's columns in rational numbers, of the components that move."""
        moving = {
            int(i)
            for entries in self.manifold.components
            if self._mu[entries].any()
            for i in entries
        }
        return [v for v in self.manifold.exact_kernel if moving.issuperset(v)]

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
        # which pivot, which free entry of the reduced form, and which of its component an entry is
        pivot_of, free_of, position = np.full((3, self.manifold.n), -1)
        pivot_of[canonical.pivots] = np.arange(len(canonical.pivots))
        free_of[canonical.free] = np.arange(len(canonical.free))
        found = []
        for entries in self.manifold.components:
            if len(entries) == 1:
                continue
            position[entries] = np.arange(len(entries))
            pivots, free = entries[pivot_of[entries] >= 0], entries[free_of[entries] >= 0]
            columns = sparse.csc_array(equations[:, entries])
            rows = np.unique(columns.indices)
            columns = sparse.csc_array(columns[rows])
            columns.eliminate_zeros()
            columns.sort_indices()
            rows_of, columns_of = pivot_of[pivots], free_of[free]
            found.append(
                Component(
                    entries,
                    columns,
                    position[pivots],
                    position[free],
                    sparse.csr_array(reduced[rows_of][:, columns_of]),
                    self.manifold.modular.part(rows_of, columns_of),
                    max(canonical.error, EPS),
                )
            )
        return tuple(found)

    def _worst_loose_entry(
        self, matrix: sparse.csc_array, norm: Norm, numbers: ExactMatrix | None
    ) -> Sensitivity:
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
        if numbers is not None:
            measured = [
                numbers.norm({int(j): 1}, meaning(float(self._mu[j])), norm)
                for j in self.loose_entries
            ]
            scores[:], upper[:] = zip(*measured)
        return Sensitivity(
            float(scores[place]), float(upper.max()), True, "single entries", direction
        )

    def _evaluate(
        self,
        component: Component,
        matrix: FloatArray,
        exact: ExactMatrix | None,
        norm: Norm,
        leading: Leading,
        all_tied: bool,
    ) -> Sensitivity:
        """Evaluate the leading circuits again, exactly where the equations are rational.

        The search's scores carry its rounding.  Circuits that are not evaluated again, because
        they score clearly less or are not among the leading ones, are allowed the rounding seen
        on those that are, unless ``all_tied`` asks for all that are equally bad.
        """
        best = Sensitivity(0.0, 0.0, True, "", np.zeros(self.manifold.n))

        def measured(support: IntArray, circuit: FloatArray | None = None) -> Sensitivity:
            long = len(support) > LONG_CIRCUIT and not self._is_solved
            if circuit is not None and long:
                return self._refined(component, matrix, norm, circuit)
            values = self._integer_values(component, support)
            return self._measured(component, matrix, exact, norm, values)

        for marks in leading.suspects:
            best = best.worse(measured(np.flatnonzero(marks)))
        drift = 64 * EPS
        evaluated = 0
        for circuit, score in zip(leading.circuits, leading.scores):
            if score < CLEARLY_LESS * best.value:
                break
            evaluated += 1
            found = measured(np.flatnonzero(circuit), circuit)
            best = best.worse(found)
            if found.value > 0:
                drift = max(drift, abs(score - found.value) / found.value)
        if leading.count > evaluated + len(leading.suspects):
            others = max(leading.left_out, *leading.scores[evaluated:].tolist(), 0.0)
            others *= 1 + 4 * drift
            if all_tied and others > best.upper and leading.count <= MOST_LISTED:
                near = self._near(component, matrix, norm, CLEARLY_LESS * best.value)
                if len(near) <= MOST_TIED:
                    for circuit in near:
                        best = best.worse(measured(np.flatnonzero(circuit), circuit))
                    return best
            # where the search's scores are that far off, the worst may be another circuit
            certain = drift <= 1 - CLEARLY_LESS or others <= best.value
            best = replace(best, upper=max(best.upper, others), exact=best.exact and certain)
        return best

    def _near(
        self, component: Component, matrix: FloatArray, norm: Norm, least: float
    ) -> list[FloatArray]:
        """The circuits that may amount to more than ``least``, in floating point."""
        mu = self._mu[component.entries]
        found: list[FloatArray] = []
        for circuits, _ in list_circuits(component, MOST_LISTED, Progress("")):
            steps = circuits * _farthest(circuits, mu)[:, None]
            sizes = column_norms(matrix @ steps.T, norm)
            found.extend(circuits[sizes >= least])
        return found

    def _measured(
        self,
        component: Component,
        matrix: FloatArray,
        exact: ExactMatrix | None,
        norm: Norm,
        values: dict[int, int],
    ) -> Sensitivity:
        """What a circuit amounts to that is known in integers, up to its scale."""
        mu = self._mu[component.entries]
        far = max(meaning(float(mu[i])) / abs(value) for i, value in values.items())
        step = np.zeros(len(mu))
        for i, value in values.items():
            step[i] = as_float(far * value)
        if exact is None:
            return self._found(component, step, *norm_with_bound(matrix, step, norm))
        return self._found(component, step, *exact.norm(values, far, norm))

    def _integer_values(self, component: Component, support: IntArray) -> dict[int, int]:
        """The circuit with these entries in integers, up to its scale."""
        entries = component.entries[support].tolist()
        exact = exact_circuit([self.manifold.exact_column(i) for i in entries])
        if exact is None:
            raise AffineDPError(
                "a neighbour direction found in floating point is none in exact arithmetic; "
                "the coefficients differ too much in size. Rescale the entries, or use "
                "FreeSetAdjacency or DirectionAdjacency"
            )
        return dict(zip(support.tolist(), exact))

    def _suspect_rows(self, component: Component, suspects: Marks) -> FloatArray:
        """The circuits with these entries as rows of floats, their largest entries 1."""
        rows = np.zeros(suspects.shape)
        for row, marks in zip(rows, suspects):
            exact = self._integer_values(component, np.flatnonzero(marks))
            largest = max(map(abs, exact.values()))
            for i, value in exact.items():
                row[i] = as_float(Fraction(value, largest))
        return rows

    def _refined(
        self, component: Component, matrix: FloatArray, norm: Norm, circuit: FloatArray
    ) -> Sensitivity:
        """What a long circuit of long doubles amounts to, with a bound for its rounding."""
        refined, error = _refined_circuit(component, circuit)
        step = refined * _farthest(refined[None], self._mu[component.entries])[0]
        value, upper = norm_with_bound(matrix, step, norm)
        return self._found(component, step, value, upper * (1 + error))

    def _found(
        self, component: Component, step: FloatArray, value: float, upper: float
    ) -> Sensitivity:
        if not upper < math.inf:
            raise overflow()
        direction = np.zeros(self.manifold.n)
        direction[component.entries] = step
        warnings = tiny_coefficient(direction, self.manifold.names)
        return Sensitivity(value, upper, True, "", direction, warnings)


def _refined_circuit(component: Component, circuit: FloatArray) -> tuple[FloatArray, float]:
    """Return the circuit from the equations themselves, and its relative error (also of its scale).

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


def _farthest(circuits: FloatArray, mu: FloatArray) -> FloatArray:
    """How far along each circuit (a row) neighbours may differ: max of μ_i / |v_i|."""
    size = np.abs(circuits)
    ratio = np.divide(mu, size, out=np.zeros_like(size), where=size > 0)
    return np.asarray(ratio.max(axis=1))


def _diagonal(values: FloatArray) -> Any:
    import scipy.sparse as sparse

    return sparse.csr_array(sparse.diags_array(values))


def _interchangeable(component: Component, columns: sparse.csc_array, mu: FloatArray) -> IntArray:
    """Entries that remain when parallel, interchangeable ones are dropped.

    Entries whose columns in D are parallel replace each other in every circuit.  If the norm
    and μ cannot tell them apart either, two of them stand for all (two, because a pair of
    them is a circuit too).
    """
    group, factor = parallel_columns(component)
    if group.max() + 1 == len(group):
        return np.arange(len(group))
    # entries fold only if their factors differ by powers of two: then nothing below is rounded
    mantissa, exponent = np.frexp(factor)
    factor = np.ldexp(np.sign(mantissa), exponent - int(exponent.max()))
    touched = np.bincount(columns.indices, minlength=columns.shape[0])
    basis = set(component.pivots.tolist())
    seen: dict[Any, int] = {}
    keep = []
    for j, (start, stop) in enumerate(zip(columns.indptr[:-1], columns.indptr[1:])):
        rows, values = columns.indices[start:stop], columns.data[start:stop] / factor[j]
        alone = touched[rows] == 1  # rows that only this entry touches count by their size
        own = np.sort(np.abs(values[alone])).tobytes()
        shared = (rows[~alone].tobytes(), (values[~alone] + 0.0).tobytes())
        scale = float(abs(mantissa[j])), float(mu[j] * abs(factor[j]))
        key = (int(group[j]), shared, own, scale)
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


# ---------------------------------------------------------------------- what is asked for


def adjacency_of(
    manifold: AffineManifold,
    adjacency: Adjacency | str | None = None,
    mu: float | ArrayLike | None = None,
) -> Adjacency:
    """Return the neighbours that were asked for, by default Definition 4 with ``mu``."""
    checked_manifold(manifold)
    if adjacency is None or (isinstance(adjacency, str) and adjacency in ("entry", "circuits")):
        return CircuitAdjacency(manifold, 1.0 if mu is None else mu)
    if isinstance(adjacency, str):
        if adjacency == "person":
            return person_of(manifold, 1.0 if mu is None else mu)
        raise AffineDPError(
            f"adjacency={adjacency!r:.60} has no meaning for a manifold: leave it out ('circuits', "
            "or 'entry': any one entry moves, Definition 4), say 'person' (one cell moves, and its "
            "totals follow), give an Adjacency such as DirectionAdjacency, or describe the table"
        )
    if mu is not None:
        raise AffineDPError("give mu or adjacency, not both: the adjacency has its own scale")
    if not isinstance(adjacency, Adjacency):
        raise AffineDPError(f"adjacency must be an Adjacency, not {adjacency!r}")
    if adjacency.domain is not manifold and adjacency.domain.key != manifold.key:
        raise AffineDPError("the adjacency is about another manifold")
    return adjacency
