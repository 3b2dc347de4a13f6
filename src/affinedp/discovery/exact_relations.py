"""Relations that hold exactly: conjectured from some rows, verified on all, in short form.

A space of equations has one basis that reads well and endless ones that do not.  Solving for a
random set of columns makes every equation as short as that set allows (a circuit), so many random
sets show the shortest circuits there are; this is Prange's information-set decoding.  Wide ones are
shortened further by subtracting multiples of others.  Taking the shortest independent ones first is
optimal, because independent sets form a matroid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from affinedp.discovery.relation import (
    MOST_MISSES,
    SHOWN,
    Found,
    Relation,
    Terms,
    check,
    residual,
)
from affinedp.exact.modular import (
    PRIME,
    Residues,
    Span,
    inverses,
    largest_primes,
    null_space,
    product,
    rational,
    reduced,
    residues,
)

# Rows beyond the number of terms, so that no relation holds by chance.
MARGIN = 20
# Samples of rows, by the number of terms: a relation that a few rows break is seen in those
# samples which are without them, and small samples cost little.
DRAWS = ((40, 24), (160, 8))
FEWEST_DRAWS = 3
MOST_PRIMES = 6
# Longer coefficients than one prime holds cannot be told from chance in few rows.
FEW_ROWS_PRIMES = 1
REFINEMENTS = 40
# Candidates of one length that are compared by their digits.
COMPARED = 400
# After so many that are too long to read, only short ones are tried.
LONG_ONES = 24
SHORT_PRIMES = 2
# Rows in which relations that cannot be read are looked at again.
LOOKED_AT = 2000
# Random sets of columns, in rounds, and rounds without progress.
TRIALS = 24
ROUNDS = 12
PATIENCE = 3
# Work (entries touched) after which the search ends, however it goes.
MOST_WORK = 2e9
THOROUGH_WORK = 5e7


class ExactRelations(NamedTuple):
    """Independent relations of every row and of all but a few, shortest first.

    Relations that more than the share ``seen`` of the rows break may have been missed; ``unread``
    more seem to hold, with coefficients too long to read.
    """

    every: list[Found]
    mostly: list[Found]
    seen: float
    unread: int


def residue_matrix(terms: Terms, rows: NDArray[np.intp], prime: int = PRIME) -> Residues:
    """Return the values of the terms in some rows modulo a prime, then 1 for the constant."""
    parts = [
        residues(column.whole_at(rows), prime) * _residue(column.unit, prime) % prime
        for column in terms.columns
    ]
    constant = np.full(len(rows), int(terms.constant), dtype=np.int64)
    return np.stack([*parts, constant], axis=1)


def _residue(value: Fraction, prime: int = PRIME) -> int:
    """A fraction modulo a prime; 0 where the prime divides its denominator."""
    if value.denominator % prime == 0:
        return 0
    return value.numerator * pow(value.denominator, -1, prime) % prime


def vector_of(relation: Relation, size: int) -> Residues:
    """Return a relation between so many terms as residues, the constant last."""
    vector = np.zeros(size + 1, dtype=np.int64)
    for j, value in relation.coefficients.items():
        vector[j] = _residue(value)
    vector[size] = _residue(relation.offset)
    return vector


def span_of(relations: Iterable[Relation], size: int, also: Span | None = None) -> Span:
    """Return everything that follows from relations between so many terms, and from a span."""
    span = Span(size + 1) if also is None else also.copy()
    for relation in relations:
        span.add(vector_of(relation, size))
    return span


def exact_relations(
    terms: Terms, rows: NDArray[np.intp], rng: np.random.Generator, known: Iterable[Relation] = ()
) -> ExactRelations:
    """Return the relations that hold in every row, and those that nearly all rows obey.

    No term may be missing in the rows; what follows from known relations is not found again.
    """
    size = len(terms)
    span = span_of([*([] if terms.constant else [Relation({}, Fraction(1))]), *known], size)
    wanted = size + 1 + MARGIN
    draws = next((count for most, count in DRAWS if size <= most), FEWEST_DRAWS)
    draws = 1 if len(rows) <= wanted else draws
    every: list[Found] = []
    broken: list[Found] = []
    space: Residues | None = None
    different = 0
    for _ in range(draws):
        sample = rows if draws == 1 else np.sort(rng.choice(rows, wanted, replace=False))
        matrix, first = np.unique(residue_matrix(terms, sample), axis=0, return_index=True)
        sample = sample[np.sort(first)]  # copies of rows say nothing new
        if not terms.constant:
            matrix = np.vstack([matrix, np.eye(1, size + 1, size, dtype=np.int64)])
        drawn = null_space(matrix)
        if space is None:
            different = len(sample)
            space, every, broken = _refined(terms, drawn, sample, rng, span)
        elif len(drawn) > len(space):
            told = [*every, *(one for one in broken if _few_misses(one))]
            known_here = span_of([one.relation for one in told], size)
            found = short_relations(terms, drawn, sample, rng, known_here)
            broken += [check(relation, terms) for relation in found]
    seen = 0.0 if draws == 1 else 1 - (1 - 0.01 ** (1 / draws)) ** (1 / wanted)
    mostly = _mostly(terms, broken, every, span)
    unread = 0
    if space is not None and different >= wanted - MARGIN // 2:
        unread = _unread(terms, rows, space, [*every, *mostly], span)
    return ExactRelations(every, mostly, seen, unread)


def _unread(
    terms: Terms, rows: NDArray[np.intp], space: Residues, found: list[Found], known: Span
) -> int:
    """How much of a space holds in many rows and is not among the relations that were read."""
    span = span_of([one.relation for one in found], len(terms), known)
    left = [vector for vector in space if span.rest(vector).any()]
    if not left:
        return 0
    some = rows[:: max(1, len(rows) // LOOKED_AT)]
    kept = null_space(product(residue_matrix(terms, some), np.array(left).T))
    return sum(span.add(vector) for vector in product(kept, np.array(left)))


def _refined(
    terms: Terms, space: Residues, sample: NDArray[np.intp], rng: np.random.Generator, known: Span
) -> tuple[Residues, list[Found], list[Found]]:
    """Narrow a space of conjectures until all of it holds in every row."""
    broken: list[Found] = []
    for _ in range(REFINEMENTS):
        checked = [check(r, terms) for r in short_relations(terms, space, sample, rng, known)]
        failed = [one for one in checked if not one.exact]
        broken += failed
        if not failed:
            break
        wrong = np.unique(np.concatenate([_wrong_rows(one, terms) for one in failed]))
        # combinations of the space that also hold in those rows
        kept = null_space(product(residue_matrix(terms, wrong), space.T))
        if len(kept) == len(space):
            break
        space = product(kept, space)
        sample = np.union1d(sample, wrong)
    return space, [one for one in checked if one.exact], broken


def _wrong_rows(one: Found, terms: Terms) -> NDArray[np.intp]:
    """Some rows that break a relation, also by less than rounding."""
    if one.worst:
        return np.array([row for row, _ in one.worst], dtype=np.intp)
    there = terms.complete(one.relation.coefficients)
    left, _ = residual(one.relation, terms, there)
    return there[np.flatnonzero(left)[:SHOWN]]


def _mostly(terms: Terms, broken: list[Found], every: list[Found], known: Span) -> list[Found]:
    """Independent relations that few rows break, those with the fewest such rows first."""
    size = len(terms)
    few = [one for one in broken if _few_misses(one)]
    if not few:
        return []
    # "a = c in 98 % of the rows" says no more than "b = 0" there when a + b = c
    span = span_of([*(one.relation for one in every), *_nearly_constant(terms)], size, known)
    few.sort(key=lambda one: (one.rows - one.zero, one.relation.complexity))
    return [one for one in few if span.add(vector_of(one.relation, size))]


def _few_misses(one: Found) -> bool:
    return one.rows - one.zero <= max(1, MOST_MISSES * one.rows)


def _nearly_constant(terms: Terms) -> Iterator[Relation]:
    for j, column in enumerate(terms.columns):
        whole = column.source[~column.missing]
        if whole.dtype == object or not len(whole):
            continue
        values, counts = np.unique(whole, return_counts=True)
        place = int(counts.argmax())
        if counts[place] >= (1 - 2 * MOST_MISSES) * len(whole):
            value = values[place]
            exact = Fraction(float(value)) if whole.dtype.kind == "f" else int(value) * column.unit
            yield Relation({j: Fraction(1)}, -exact)


def short_relations(
    terms: Terms, space: Residues, sample: NDArray[np.intp], rng: np.random.Generator, known: Span
) -> list[Relation]:
    """Return a basis of a space as relations, shortest and simplest first.

    The space is a basis modulo the prime, of what holds in the sample of rows.
    """
    span = known.copy()
    few = len(sample) <= len(terms) + MARGIN
    vectors = short_vectors(space, rng, thorough=few)
    most = FEW_ROWS_PRIMES if few else MOST_PRIMES
    relations: list[Relation] = []
    long_ones = 0
    lengths = np.array([np.count_nonzero(vector) for vector in vectors])
    for length in np.unique(lengths):
        group = [vectors[i] for i in np.flatnonzero(lengths == length)]
        lifted = []
        for vector in [vector for vector in group if span.rest(vector).any()][:COMPARED]:
            relation = lift(vector, terms, sample, most)
            if relation is not None:
                lifted.append((relation, vector))
                continue
            long_ones += 1
            most = min(most, SHORT_PRIMES) if long_ones > LONG_ONES else most
        # total and parts usually stand together
        lifted.sort(key=lambda pair: (pair[0].digits, pair[0].support[-1] - pair[0].support[0]))
        relations += [relation for relation, vector in lifted if span.add(vector)]
    return relations


def lift(
    vector: Residues, terms: Terms, sample: NDArray[np.intp], most: int = MOST_PRIMES
) -> Relation | None:
    """Return the rational relation behind residues, verified in a sample; None if it is too long.

    The residues are modulo the first prime, the constant last; ``most`` primes are tried.
    """
    support = np.flatnonzero(vector)
    size = len(terms)
    if not len(support) or support[0] == size:
        return None
    modulus, combined = 1, [0] * len(support)
    for prime in largest_primes(most):
        image = vector[support] if prime == PRIME else _image(terms, support, sample, prime)
        if image is None:
            continue
        unit = pow(int(image[0]), -1, prime)
        scaled = [int(x) * unit % prime for x in image]
        inverse = pow(modulus, -1, prime)
        combined = [
            old + modulus * ((new - old) * inverse % prime) for old, new in zip(combined, scaled)
        ]
        modulus *= prime
        values = [rational(x, modulus) for x in combined]
        if any(value is None for value in values):
            continue
        pairs = {int(j): value for j, value in zip(support, values) if value}
        offset = pairs.pop(size, Fraction(0))
        relation = Relation(pairs, offset)
        if pairs and not np.any(residual(relation, terms, sample)[0]):
            return relation.scaled()
    return None


def _image(
    terms: Terms, support: NDArray[np.intp], sample: NDArray[np.intp], prime: int
) -> Residues | None:
    """The same vector modulo another prime, from its support."""
    columns = [int(j) for j in support if j < len(terms)]
    matrix = residue_matrix(terms.subset(columns), sample, prime)
    if support[-1] < len(terms):
        matrix = matrix[:, :-1]
    found = null_space(matrix, prime)
    return found[0] if len(found) == 1 and found[0].all() else None


# ---------------------------------------------------------------------- short vectors


def short_vectors(
    basis: Residues, rng: np.random.Generator, thorough: bool = False
) -> list[Residues]:
    """Return many short vectors of a space, the shortest first, at least a basis among them."""
    d, n = basis.shape
    pool: dict[bytes, Residues] = {}
    if d == 0:
        return []
    _collect(pool, reduced(basis)[0])
    if d == 1:
        return list(pool.values())
    best, waited, work = float("inf"), 0, 0.0
    for _ in range(ROUNDS):
        for _ in range(TRIALS):
            _collect(pool, reduced(basis, rng.permutation(n))[0])
            work += d * d * n
        if thorough:
            if work > THOROUGH_WORK:
                break
            continue
        chosen = shortest_basis(pool.values(), n, d)
        chosen = _shortened(chosen)
        _collect(pool, np.array(chosen))
        total = sum(int(np.count_nonzero(vector)) for vector in chosen)
        waited = 0 if total < best else waited + 1
        best = min(best, total)
        if waited >= PATIENCE or work > MOST_WORK:
            break
    return sorted(pool.values(), key=np.count_nonzero)


def shortest_basis(vectors: Iterable[Residues], size: int, rank: int) -> list[Residues]:
    """Return independent vectors, the shortest first."""
    span = Span(size)
    chosen: list[Residues] = []
    for vector in sorted(vectors, key=np.count_nonzero):
        if span.add(vector):
            chosen.append(vector)
            if len(chosen) == rank:
                break
    return chosen


def _collect(pool: dict[bytes, Residues], vectors: Residues) -> None:
    """Keep each vector once, scaled so that its first entry is 1."""
    lead = vectors[np.arange(len(vectors)), (vectors != 0).argmax(axis=1)]
    unit = vectors * inverses(lead)[:, None] % PRIME
    for vector in unit:
        pool.setdefault(vector.tobytes(), vector)


def _shortened(vectors: list[Residues]) -> list[Residues]:
    """Subtract from each vector the multiple of another that removes most of its entries."""
    table = np.array(sorted(vectors, key=np.count_nonzero))
    inverted = inverses(table)
    for i in range(len(table) - 1, 0, -1):
        vector = table[i]
        size = int(np.count_nonzero(vector))
        both = (table != 0) & (vector != 0)
        # a shared part of one entry cannot shorten
        for j in np.flatnonzero(both.sum(axis=1) > 1):
            shared = (table[j] != 0) & (vector != 0)
            if j == i or not shared.any():
                continue
            ratios = vector[shared] * inverted[j][shared] % PRIME
            values, counts = np.unique(ratios, return_counts=True)
            shorter = (vector - int(values[counts.argmax()]) * table[j]) % PRIME
            left = int(np.count_nonzero(shorter))
            if left < size:
                vector, size = shorter, left
        table[i] = vector
        inverted[i] = inverses(vector)
    return list(table)
