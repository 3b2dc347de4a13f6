"""Relations that hold exactly: conjectured from some rows, verified on all, in short form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from affinedp.exact.modular import (
    PRIME,
    Residues,
    Span,
    largest_primes,
    null_space,
    product,
    rational,
    residues,
)
from affinedp.relations.relation import Checked, Relation, Terms, check, residual
from affinedp.relations.sparse import short_vectors

# Rows beyond the number of terms, so that no relation holds by chance.
MARGIN = 20
# Samples of rows, by the number of terms: a relation that a few rows break is seen in those
# samples which are without them, and small samples cost little.
DRAWS = ((40, 24), (160, 8))
FEWEST_DRAWS = 3
# Rows that may break a relation which is still told.
MOST_MISSES = 0.05
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


@dataclass(frozen=True, eq=False)
class Found:
    """What a search found.

    Attributes
    ----------
    exact : list of Checked
        Independent relations that hold in every row, shortest first.
    mostly : list of Checked
        Further ones that hold exactly in all but a few rows.
    seen : float
        The largest share of broken rows at which a relation is found with 99 %.
    unread : int
        How many more independent relations there seem to be, with coefficients too long to read.
    """

    exact: list[Checked]
    mostly: list[Checked]
    seen: float
    unread: int = 0


def residue_matrix(terms: Terms, rows: NDArray[np.intp], prime: int = PRIME) -> Residues:
    """Return the values of the terms in some rows modulo a prime, with a column for the constant.

    Parameters
    ----------
    terms : Terms
        The terms.
    rows : array of int
        The rows.
    prime : int
        The modulus.
    """
    parts = [
        residues(column.whole_at(rows), prime) * fraction_residue(column.unit, prime) % prime
        for column in terms.columns
    ]
    constant = np.full(len(rows), int(terms.constant), dtype=np.int64)
    return np.stack([*parts, constant], axis=1)


def fraction_residue(value: Fraction, prime: int = PRIME) -> int:
    """Return a fraction modulo a prime; 0 where the prime divides its denominator.

    Parameters
    ----------
    value : Fraction
        The fraction.
    prime : int
        The modulus.
    """
    if value.denominator % prime == 0:
        return 0
    return value.numerator * pow(value.denominator, -1, prime) % prime


def vector_of(relation: Relation, size: int) -> Residues:
    """Return a relation as residues, the constant last.

    Parameters
    ----------
    relation : Relation
        The relation.
    size : int
        Number of terms.
    """
    vector = np.zeros(size + 1, dtype=np.int64)
    for j, value in relation.coefficients.items():
        vector[j] = fraction_residue(value)
    vector[size] = fraction_residue(relation.offset)
    return vector


def exact_relations(
    terms: Terms, rows: NDArray[np.intp], rng: np.random.Generator, known: Iterable[Relation] = ()
) -> Found:
    """Return the relations between terms that hold in every row, and those that nearly all obey.

    Parameters
    ----------
    terms : Terms
        What a relation may be about.
    rows : array of int
        Rows in which no term is missing.
    rng : Generator
        Chooses rows and columns.
    known : iterable of Relation
        What need not be found again.
    """
    size = len(terms)
    span = Span(size + 1)
    if not terms.constant:
        span.add(vector_of(Relation({}, Fraction(1)), size))
    for relation in known:
        span.add(vector_of(relation, size))
    wanted = size + 1 + MARGIN
    draws = next((count for most, count in DRAWS if size <= most), FEWEST_DRAWS)
    draws = 1 if len(rows) <= wanted else draws
    found: list[Checked] = []
    broken: list[Checked] = []
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
            space, found, broken = _refined(terms, drawn, sample, rng, span)
        elif len(drawn) > len(space):
            told = [*found, *(one for one in broken if _few_misses(one))]
            broken += _broken(terms, drawn, sample, rng, told)
    seen = 0.0 if draws == 1 else 1 - (1 - 0.01 ** (1 / draws)) ** (1 / wanted)
    mostly = _mostly(terms, broken, found, span)
    unread = 0
    if space is not None and different >= wanted - MARGIN // 2:
        unread = _unread(terms, rows, space, [*found, *mostly], span)
    return Found(found, mostly, seen, unread)


def _unread(
    terms: Terms, rows: NDArray[np.intp], space: Residues, found: list[Checked], known: Span
) -> int:
    """How much of a space holds in many rows and is not among the relations that were read."""
    span = known.copy()
    for one in found:
        span.add(vector_of(one.relation, len(terms)))
    left = [vector for vector in space if span.rest(vector).any()]
    if not left:
        return 0
    some = rows[:: max(1, len(rows) // LOOKED_AT)]
    kept = null_space(product(residue_matrix(terms, some), np.array(left).T))
    return sum(span.add(vector) for vector in product(kept, np.array(left)))


def _refined(
    terms: Terms, space: Residues, sample: NDArray[np.intp], rng: np.random.Generator, known: Span
) -> tuple[Residues, list[Checked], list[Checked]]:
    """Narrow a space of conjectures until all of it holds in every row."""
    broken: list[Checked] = []
    for _ in range(REFINEMENTS):
        checked = [check(r, terms) for r in short_relations(terms, space, sample, rng, known)]
        failed = [one for one in checked if not one.exact]
        broken += failed
        if not failed:
            return space, checked, broken
        wrong = np.unique([row for one in failed for row, _ in _wrong_rows(one, terms)])
        rows = residue_matrix(terms, wrong.astype(np.intp))
        # combinations of the space that also hold in those rows
        kept = null_space(product(rows, space.T))
        if len(kept) == len(space):
            return space, [one for one in checked if one.exact], broken
        space = product(kept, space)
        sample = np.union1d(sample, wrong)
    return space, [one for one in checked if one.exact], broken


def _wrong_rows(one: Checked, terms: Terms) -> list[tuple[int, Fraction]]:
    """Some rows that break a relation, also by less than rounding."""
    if one.worst:
        return list(one.worst)
    missing = np.any([terms.columns[j].missing for j in one.relation.coefficients], axis=0)
    there = np.flatnonzero(~missing)
    left, common = residual(one.relation, terms, there)
    return [(int(there[i]), Fraction(int(left[i]), common)) for i in np.flatnonzero(left)[:5]]


def _broken(
    terms: Terms,
    space: Residues,
    sample: NDArray[np.intp],
    rng: np.random.Generator,
    found: list[Checked],
) -> list[Checked]:
    span = Span(len(terms) + 1)
    for one in found:
        span.add(vector_of(one.relation, len(terms)))
    return [check(r, terms) for r in short_relations(terms, space, sample, rng, span)]


def _mostly(
    terms: Terms, broken: list[Checked], found: list[Checked], known: Span
) -> list[Checked]:
    """Independent relations that few rows break, those with the fewest such rows first."""
    size = len(terms)
    few = [one for one in broken if _few_misses(one)]
    if not few:
        return []
    span = known.copy()
    for one in found:
        span.add(vector_of(one.relation, size))
    for relation in _nearly_constant(terms):
        # "a = c in 98 % of the rows" says no more than "b = 0" there when a + b = c
        span.add(vector_of(relation, size))
    few.sort(key=lambda one: (one.rows - one.zero, one.relation.complexity))
    return [one for one in few if span.add(vector_of(one.relation, size))]


def _few_misses(one: Checked) -> bool:
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

    Parameters
    ----------
    terms : Terms
        What they are about.
    space : array, shape (d, n + 1)
        A basis modulo the prime.
    sample : array of int
        The rows that it was found in.
    rng : Generator
        For the search.
    known : Span
        What need not be told again.
    """
    size = len(terms)
    span = known.copy()
    few = len(sample) <= size + MARGIN
    vectors = short_vectors(space, rng, thorough=few)
    most = FEW_ROWS_PRIMES if few else MOST_PRIMES
    relations: list[Relation] = []
    long_ones = 0
    lengths = np.array([np.count_nonzero(vector) for vector in vectors])
    for length in np.unique(lengths):
        group = [vectors[i] for i in np.flatnonzero(lengths == length)]
        fresh = [vector for vector in group if span.rest(vector).any()][:COMPARED]
        known_ones = []
        for vector in fresh:
            relation = lift(vector, terms, sample, most)
            if relation is not None:
                known_ones.append((relation, vector))
                continue
            long_ones += 1
            most = min(most, SHORT_PRIMES) if long_ones > LONG_ONES else most
        known_ones.sort(key=lambda pair: (pair[0].digits, _spread(pair[0])))
        relations += [relation for relation, vector in known_ones if span.add(vector)]
    return relations


def _spread(relation: Relation) -> int:
    """Total and parts usually stand together."""
    support = relation.support
    return support[-1] - support[0] if support else 0


def lift(
    vector: Residues, terms: Terms, sample: NDArray[np.intp], most: int = MOST_PRIMES
) -> Relation | None:
    """Return the rational relation behind residues, or None if it is too long.

    Parameters
    ----------
    vector : array, shape (n + 1,)
        Residues modulo the first prime; the constant comes last.
    terms : Terms
        What it is about.
    sample : array of int
        Rows in which it holds; it is verified there.
    most : int
        Primes after which it is too long.
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
