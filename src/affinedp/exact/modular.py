"""Linear algebra modulo primes: fast, without growth, and without rounding.

Coefficients are rational numbers (what a double stands for is one, too), so whether a combination
of them vanishes is a question about integers.  Modulo a prime it has a cheap answer: a true zero is
always zero, and anything else is zero only if the prime divides it.  Two primes of 31 bits are
drawn for every set of equations from a hash of them, so a number of a thousand bits passes for zero
with probability below 10⁻¹².

Which entries move together, which are public and what a circuit is made of all follow from the
zeros of X in the canonical form ``[I | X]`` and of its minors: :class:`ModularForm` holds them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice, pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray, Matrix, is_sparse
from affinedp.errors import AffineDPError
from affinedp.exact.canonical import Canonical
from affinedp.exact.numbers import Rows, meaning, nonzeros
from affinedp.exact.rational import Tableau

if TYPE_CHECKING:
    import scipy.sparse as sparse

Residues = NDArray[np.int64]

# Products of two residues fit into 64 bits.
PRIME = 2**31 - 1
# Primes that decide together, and how many are tried.
PRIMES = 2
MOST_DRAWS = 64
# Equations with a smaller share of nonzeros than this are eliminated as sparse ones.
SPARSE_SHARE = 0.1
# Then another prime has to be drawn.
VANISHES = "modulo this prime a number vanishes that does not"


# ---------------------------------------------------------------------- primes and residues


@cache
def largest_primes(count: int) -> tuple[int, ...]:
    """Return the largest primes below 2^31, the largest first."""
    found: list[int] = []
    candidate = PRIME
    while len(found) < count:
        if _is_prime(candidate):
            found.append(candidate)
        candidate -= 2
    return tuple(found)


def draw_primes(seed: bytes) -> Iterator[int]:
    """Yield primes of 31 bits, the same for the same seed."""
    generator = random.Random(hashlib.sha256(seed).digest())
    for _ in range(MOST_DRAWS):
        candidate = generator.randrange(2**30, 2**31) | 1
        while not _is_prime(candidate):
            candidate = generator.randrange(2**30, 2**31) | 1
        yield candidate


def _is_prime(candidate: int) -> bool:
    # these bases decide for all numbers below 3·10⁹ (Jaeschke 1993)
    return all(_probably_prime(candidate, base) for base in (2, 3, 5, 7))


def _probably_prime(candidate: int, base: int) -> bool:
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    power = pow(base, odd, candidate)
    if power in (1, candidate - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % candidate
        if power == candidate - 1:
            return True
    return False


def residues(whole: NDArray[Any], prime: int = PRIME) -> Residues:
    """Return whole numbers of any length modulo a prime."""
    return np.asarray(whole % prime, dtype=np.int64)


def residues_of_rationals(values: Sequence[Fraction], prime: int) -> Residues:
    """Return rational numbers modulo a prime."""
    known: dict[Fraction, int] = {}
    found = np.empty(len(values), dtype=np.int64)
    for place, value in enumerate(values):
        residue = known.get(value)
        if residue is None:
            if value.denominator % prime == 0:
                raise ArithmeticError(VANISHES)
            inverse = 1 if value.denominator == 1 else pow(value.denominator, -1, prime)
            residue = known[value] = value.numerator * inverse % prime
        found[place] = residue
    return found


def residues_of_floats(values: FloatArray, prime: int) -> Residues:
    """Return the numbers that doubles stand for modulo a prime."""
    met, place = np.unique(values, return_inverse=True)
    found = residues_of_rationals([meaning(value) for value in met.tolist()], prime)
    return np.asarray(found[place].reshape(values.shape))


def rank_of_floats(matrix: FloatArray) -> int:
    """Return the rank of the numbers that doubles stand for."""
    primes = islice(draw_primes(matrix.tobytes()), PRIMES)
    return max(len(reduced(residues_of_floats(matrix, p), None, p)[1]) for p in primes)


def inverses(values: Residues, prime: int = PRIME) -> Residues:
    """Return the inverses of residues, by Fermat's theorem; 0 stays 0."""
    result, power, exponent = np.ones_like(values), values.copy(), prime - 2
    while exponent:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return np.asarray(result * (values != 0))


def rational(residue: int, modulus: int) -> Fraction | None:
    """Return the fraction of least size with this residue, or None if there is no clear one."""
    bound = isqrt(modulus // 2)
    a, b, u, v = modulus, residue % modulus, 0, 1
    while b > bound:
        quotient = a // b
        a, b, u, v = b, a - quotient * b, v, u - quotient * v
    if v == 0 or abs(v) > bound:
        return None
    return Fraction(b, v)


# ---------------------------------------------------------------------- matrices


def reduced(
    matrix: Residues, order: Sequence[int] | IntArray | None = None, prime: int = PRIME
) -> tuple[Residues, list[int]]:
    """Return the reduced echelon form with unit pivots, and the pivot columns.

    The columns of ``order`` (all if not given) are tried as pivots, the first first.
    """
    work = np.array(matrix, dtype=np.int64)
    rows = work.shape[0]
    pivots: list[int] = []
    for column in range(work.shape[1]) if order is None else order:
        place = len(pivots)
        if place == rows:
            break
        candidates = np.flatnonzero(work[place:, column])
        if not len(candidates):
            continue
        chosen = place + int(candidates[0])
        if chosen != place:
            work[[place, chosen]] = work[[chosen, place]]
        # in natural order everything left of a pivot is zero already
        live = slice(column if order is None else 0, None)
        lead = work[place, live] * pow(int(work[place, column]), -1, prime) % prime
        work[place, live] = lead
        factors = prime - work[:, column]
        factors[place] = 0
        block = work[:, live]
        block += factors[:, None] * lead
        if prime == PRIME:
            _fold(block)
        else:
            block %= prime
        pivots.append(int(column))
    return work[: len(pivots)], pivots


def _fold(values: Residues) -> None:
    """Reduce numbers below 2^63 modulo 2^31 - 1 in place, without a division: 2^31 is 1."""
    for _ in range(2):
        high = values >> 31
        values &= PRIME
        values += high
    values -= (values >= PRIME) * np.int64(PRIME)


def product(left: Any, right: Residues, prime: int = PRIME) -> Residues:
    """Return a matrix product of at most 2^15 terms modulo a prime, in halves without overflow.

    The left matrix may be sparse.
    """
    if is_sparse(left):
        high, low = left.copy(), left.copy()
        high.data, low.data = left.data >> 16, left.data & 0xFFFF
    else:
        high, low = left >> 16, left & 0xFFFF
    return np.asarray(((high @ right % prime) * 65536 + low @ right) % prime)


def null_space(matrix: Residues, prime: int = PRIME) -> Residues:
    """Return a basis of the vectors that the rows of a matrix annihilate, one per row."""
    form, pivots = reduced(matrix, None, prime)
    n = matrix.shape[1]
    free = np.setdiff1d(np.arange(n), pivots)
    basis = np.zeros((len(free), n), dtype=np.int64)
    basis[np.arange(len(free)), free] = 1
    if pivots:
        basis[:, pivots] = (-form[:, free].T) % prime
    return basis


class Span:
    """A growing set of independent vectors modulo PRIME, in reduced echelon form."""

    def __init__(self, size: int) -> None:
        self.rows: Residues = np.zeros((0, size), dtype=np.int64)
        self.pivots: list[int] = []

    def __len__(self) -> int:
        return len(self.pivots)

    def copy(self) -> Span:
        """Return a span that grows by itself."""
        again = Span(self.rows.shape[1])
        again.rows, again.pivots = self.rows, list(self.pivots)
        return again

    def rest(self, vector: Residues) -> Residues:
        """Return what is left of a vector after subtracting the span's part."""
        left = vector % PRIME
        if not self.pivots:
            return left
        return np.asarray((left - product(left[self.pivots], self.rows)) % PRIME)

    def add(self, vector: Residues) -> bool:
        """Add a vector; say whether it was independent."""
        left = self.rest(vector)
        there = np.flatnonzero(left)
        if not len(there):
            return False
        pivot = int(there[0])
        left = left * pow(int(left[pivot]), -1, PRIME) % PRIME
        change = self.rows[:, pivot, None] * left % PRIME
        self.rows = np.vstack([(self.rows - change) % PRIME, left])
        self.pivots.append(pivot)
        return True


class _ResidueTableau(Tableau[int]):
    """Sparse rows modulo a prime."""

    def __init__(self, rows: Iterable[dict[int, int]], prime: int) -> None:
        super().__init__(rows)
        self._prime = prime

    def lead(self, i: int, pivot: int) -> dict[int, int]:
        """Scale row ``i`` to a unit pivot."""
        unit = pow(self.rows[i][pivot], -1, self._prime)
        self.rows[i] = {j: value * unit % self._prime for j, value in self.rows[i].items()}
        return self.rows[i]

    def combined(self, target: dict[int, int], row: dict[int, int], pivot: int) -> dict[int, int]:
        """Return the target without the pivot column."""
        factor = target[pivot]
        for j, value in row.items():
            after = (target.get(j, 0) - factor * value) % self._prime
            if after:
                target[j] = after
            else:
                target.pop(j, None)
        return target


def _reduce_sparse(
    rows: Iterable[dict[int, int]], pivots: Sequence[int], prime: int
) -> dict[int, dict[int, int]]:
    """For every given pivot the nonzero rest of its row in ``[I | X]``."""
    tableau = _ResidueTableau(rows, prime)
    columns, owner = tableau.columns, dict[int, int]()
    left = set(range(len(tableau.rows)))
    for pivot in sorted(pivots, key=lambda j: len(columns.get(j, ()))):
        candidates = columns.get(pivot, set()) & left
        if not candidates:
            raise ArithmeticError(VANISHES)
        i = min(candidates, key=lambda r: (len(tableau.rows[r]), r))
        left.discard(i)
        owner[pivot] = i
        tableau.clear(i, pivot)
    return {
        pivot: {j: value for j, value in tableau.rows[i].items() if j != pivot}
        for pivot, i in owner.items()
    }


# ---------------------------------------------------------------------- the canonical form


@dataclass(frozen=True)
class ModularForm:
    """X of the canonical form ``[I | X]`` modulo primes."""

    primes: tuple[int, ...]
    residues: tuple[sparse.csr_array, ...]  # X modulo each of them; all have the same nonzeros

    def part(self, rows: IntArray, columns: IntArray) -> ModularForm:
        """Return the form on some rows and columns, in this order."""
        parts = tuple(each[rows][:, columns] for each in self.residues)
        for part in parts:
            part.sort_indices()
        return ModularForm(self.primes, parts)

    def pairs(self) -> list[tuple[int, sparse.csr_array]]:
        """Return every prime with X modulo it."""
        return list(zip(self.primes, self.residues))

    def dense(self) -> list[tuple[int, Residues]]:
        """Return every prime with X modulo it as an array."""
        return [(p, np.asarray(each.toarray())) for p, each in self.pairs()]

    def agrees(self, reduced: Matrix) -> bool:
        """Whether X in floating point is zero exactly where X is."""
        import scipy.sparse as sparse

        floats, residues = sparse.csr_array(reduced, copy=True), self.residues[0]
        floats.eliminate_zeros()
        floats.sort_indices()
        return bool(
            np.array_equal(floats.indptr, residues.indptr)
            and np.array_equal(floats.indices, residues.indices)
        )


def modular_form(matrix: Matrix, exact: Rows | None, canonical: Canonical) -> ModularForm:
    """Return X modulo primes for independent equations, in rational numbers where they are known.

    Otherwise every coefficient is what its double stands for.
    """
    primes: list[int] = []
    found: list[sparse.csr_array] = []
    for prime in draw_primes(_seed(matrix, exact)):
        if prime in primes:
            continue
        try:
            form = _form_modulo(matrix, exact, canonical, prime)
        except ArithmeticError:
            continue
        form.sort_indices()
        if found and form.nnz != found[0].nnz:
            # a number vanishes modulo one of them: keep the prime that sees more
            if form.nnz > found[0].nnz:
                primes, found = [prime], [form]
            continue
        primes.append(prime)
        found.append(form)
        if len(found) == PRIMES:
            return ModularForm(tuple(primes), tuple(found))
    raise AffineDPError(
        "the independent equations cannot be told from dependent ones in exact arithmetic. Give "
        "exact (integer, decimal or text) coefficients, or drop the nearly dependent equation"
    )


def not_implied(matrix: Matrix, exact: Rows | None, canonical: Canonical, form: ModularForm) -> int:
    """Return how many more equations the canonical ones do not imply, as their numbers stand.

    Modulo a prime an implied one vanishes on every vector of the kernel, and any other on a random
    one with the probability of a divisor.
    """
    q, n = matrix.shape
    if q == 0:
        return 0
    wrong = np.zeros(q, dtype=bool)
    generator = random.Random(_seed(matrix, exact))
    for prime, reduced_form in form.pairs():
        rows, columns, values = _coefficients(matrix, exact, prime)
        vector = np.zeros(n, dtype=np.int64)
        vector[canonical.free] = [generator.randrange(prime) for _ in canonical.free]
        entries = reduced_form.tocoo()
        terms = entries.data * vector[canonical.free][entries.col]
        moved = _summed(entries.row, terms, prime, len(canonical.pivots))
        vector[canonical.pivots] = -moved % prime
        wrong |= _summed(rows, values * vector[columns], prime, q) != 0
    return int(wrong.sum())


def _summed(rows: IntArray, terms: Residues, prime: int, count: int) -> Residues:
    """Sums of the terms of each row modulo a prime."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, rows, terms % prime)
    return sums % prime


def _seed(matrix: Matrix, exact: Rows | None) -> bytes:
    if exact is not None:
        return repr([sorted(row.items()) for row in exact]).encode()
    if is_sparse(matrix):
        return bytes(matrix.data.tobytes() + matrix.indices.tobytes())
    return bytes(np.asarray(matrix).tobytes())


def _form_modulo(
    matrix: Matrix, exact: Rows | None, canonical: Canonical, prime: int
) -> sparse.csr_array:
    import scipy.sparse as sparse

    q, n = matrix.shape
    if canonical.exact_rows is not None:
        _, columns, values = _coefficients(None, canonical.exact_rows, prime)
        ordered: Sequence[Mapping[int, Any]] = canonical.exact_rows
    else:
        row_of, column_of, coefficients = _coefficients(matrix, exact, prime)
        if len(coefficients) > SPARSE_SHARE * q * n:
            table = np.zeros((q, n), dtype=np.int64)
            table[row_of, column_of] = coefficients
            form, pivots = reduced(table, canonical.pivots, prime)
            if len(pivots) < q:
                raise ArithmeticError(VANISHES)
            return sparse.csr_array(form[:, canonical.free])
        starts = np.searchsorted(row_of, np.arange(q + 1)).tolist()
        pairs = list(zip(column_of.tolist(), coefficients.tolist()))
        given = (dict(pairs[start:stop]) for start, stop in pairwise(starts))
        rows = _reduce_sparse(given, canonical.pivots.tolist(), prime)
        ordered = [rows[int(pivot)] for pivot in canonical.pivots]
        columns = np.array([j for row in ordered for j in row], dtype=np.intp)
        values = np.array([value for row in ordered for value in row.values()], dtype=np.int64)
    place = np.full(n, -1)
    place[canonical.free] = np.arange(len(canonical.free))
    at = np.repeat(np.arange(len(ordered)), [len(row) for row in ordered])
    shape = (len(canonical.pivots), len(canonical.free))
    return sparse.csr_array((values, (at, place[columns])), shape=shape)


def _coefficients(
    matrix: Matrix, exact: Rows | None, prime: int
) -> tuple[IntArray, IntArray, Residues]:
    """Rows, columns and residues of the nonzero coefficients, row by row."""
    rows: Any
    columns: Any
    if exact is not None:
        terms = [(i, j, value) for i, row in enumerate(exact) for j, value in row.items() if value]
        rows, columns = np.array([term[:2] for term in terms], dtype=np.intp).reshape(-1, 2).T
        found = residues_of_rationals([value for _, _, value in terms], prime)
    else:
        rows, columns, values = nonzeros(matrix.tocsr() if is_sparse(matrix) else matrix)
        found = residues_of_floats(values, prime)
    if not np.all(found):
        raise ArithmeticError(VANISHES)
    return rows, columns, found
