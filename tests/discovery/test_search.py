"""Planted relations are found, verified exactly, in their shortest form."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from affinedp.discovery.chance import log10_by_size, log10_chance
from affinedp.discovery.exact_relations import short_vectors
from affinedp.discovery.exact_table import exact_table
from affinedp.discovery.relation import Relation, check, residual, simplest
from affinedp.discovery.within import search_within
from affinedp.exact.modular import PRIME

ONE = Fraction(1)


def terms_of(table):
    return exact_table(table).terms


def search(table, limit=-4.0, seed=0):
    terms = terms_of(table)
    return terms, search_within(terms, np.random.default_rng(seed), limit)


def rank(rows):
    """Rank of rational rows: plain Gaussian elimination, as an oracle."""
    rows = [[Fraction(x) for x in row] for row in rows]
    done = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(done, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        for i in range(len(rows)):
            if i != done and rows[i][column]:
                factor = rows[i][column] / rows[done][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[done])]
        done += 1
    return done


def as_row(relation, size):
    row = [Fraction(0)] * (size + 1)
    for j, value in relation.coefficients.items():
        row[j] = value
    row[size] = relation.offset
    return row


def same_span(found, planted, size):
    mine = [as_row(relation, size) for relation in found]
    theirs = [as_row(relation, size) for relation in planted]
    return rank(mine) == rank(theirs) == rank([*mine, *theirs])


@st.composite
def planted_tables(draw):
    """Columns that are combinations of earlier ones, and the relations between them."""
    base = draw(st.integers(2, 6))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    rows = 60
    columns = [list(map(int, rng.integers(-1000, 1000, rows))) for _ in range(base)]
    planted = []
    small = st.sampled_from([1, -1, 2, Fraction(1, 2), Fraction(-3, 10), Fraction(5, 4)])
    for _ in range(draw(st.integers(1, 4))):
        parts = draw(
            st.lists(st.integers(0, len(columns) - 1), min_size=1, max_size=4, unique=True)
        )
        values = [Fraction(draw(small)) for _ in parts]
        offset = Fraction(draw(st.sampled_from([0, 0, 7, Fraction(-1, 2)])))
        made = [
            sum((v * Fraction(columns[j][i]) for j, v in zip(parts, values)), offset)
            for i in range(rows)
        ]
        planted.append(Relation({**dict(zip(parts, values)), len(columns): -ONE}, offset))
        columns.append(made)
    order = rng.permutation(len(columns))
    place = {int(j): i for i, j in enumerate(order)}
    moved = [
        Relation({place[j]: v for j, v in one.coefficients.items()}, one.offset) for one in planted
    ]
    return {f"c{i}": columns[j] for i, j in enumerate(order)}, moved


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(planted_tables())
def test_planted_relations_are_found_and_nothing_else(case):
    table, planted = case
    terms, found = search(table)
    assert same_span(found.relations, planted, len(terms))
    for one in found.found:
        assert one.exact
        assert one.largest_miss == 0
        assert one.log10_chance < -4
        rows = zip(*table.values())
        for row in rows:
            value = sum(c * row[j] for j, c in one.relation.coefficients.items())
            assert value + one.relation.offset == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(planted_tables(), st.integers(0, 59), st.integers(1, 5))
def test_one_wrong_row_is_named(case, row, error):
    """The relations of the column that was changed hold in all rows but that one."""
    table, planted = case
    wrong = max(planted[-1].coefficients)
    name = f"c{wrong}"
    table = {**table, name: [x + error * (i == row) for i, x in enumerate(table[name])]}
    terms, found = search(table)
    assert same_span(found.relations, planted, len(terms))
    broken = [one for one in found.found if not one.exact]
    assert broken
    for one in broken:
        assert one.zero == one.rows - 1


def test_a_basis_that_a_person_would_write():
    """Totals of totals come out as written, not as sums of leaves."""
    rng = np.random.default_rng(3)
    leaves = rng.integers(0, 9999, (200, 24))
    groups = leaves.reshape(200, 6, 4).sum(axis=2)
    halves = groups.reshape(200, 2, 3).sum(axis=2)
    table = np.hstack([leaves, groups, halves, halves.sum(axis=1, keepdims=True)])
    _, found = search(table[:, rng.permutation(table.shape[1])])
    assert sorted(len(one.coefficients) for one in found.relations) == [3, 4, 4] + [5] * 6
    assert all(set(map(abs, one.coefficients.values())) == {ONE} for one in found.relations)


def test_cross_tabulation_is_found_in_shortest_form():
    rng = np.random.default_rng(4)
    cells = rng.integers(0, 999, (150, 5, 6))
    table = np.hstack(
        [cells.reshape(150, -1), cells.sum(1), cells.sum(2), cells.sum((1, 2))[:, None]]
    )
    _, found = search(table[:, rng.permutation(table.shape[1])])
    lengths = sorted(len(one.coefficients) for one in found.relations)
    assert len(lengths) == 5 + 6 + 1
    assert lengths == sorted([7] * 5 + [6] * 6 + [6])


def test_constants_copies_and_conversions():
    rng = np.random.default_rng(5)
    eur = np.round(rng.uniform(1, 5000, 80), 2)
    table = {
        "eur": eur,
        "dem": [Fraction(repr(x)) * Fraction(195583, 100000) for x in eur.tolist()],
        "again": eur,
        "celsius": rng.integers(-20, 40, 80),
        "nothing": np.zeros(80),
        "year": np.full(80, 2020),
    }
    table["fahrenheit"] = table["celsius"] * 9 / 5 + 32
    terms, found = search(table)
    texts = {
        tuple(terms.names[j] for j in one.support): (dict(one.coefficients), one.offset)
        for one in found.relations
    }
    assert set(texts) == {
        ("eur", "dem"), ("eur", "again"), ("celsius", "fahrenheit"), ("nothing",), ("year",),
    }  # fmt: skip
    conversion = texts["eur", "dem"][0]
    assert -conversion[0] / conversion[1] == Fraction(195583, 100000)
    assert texts["year",][1] == -2020


def test_gaps_are_left_out():
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, 1000, (2, 300)).astype(float)
    late = np.where(np.arange(300) < 150, np.nan, rng.integers(0, 1000, 300))
    total = a + b
    total[::7] = np.nan
    table = {"a": a, "b": b, "total": total, "late": late, "sum": late + a}
    terms, found = search(table)
    supports = {tuple(terms.names[j] for j in one.support) for one in found.relations}
    assert supports == {("a", "b", "total"), ("a", "late", "sum")}
    by_name = {tuple(terms.names[j] for j in one.relation.support): one for one in found.found}
    assert by_name["a", "b", "total"].rows == int((~np.isnan(total)).sum())
    assert by_name["a", "late", "sum"].rows == 150


def test_columns_far_apart_are_named_as_not_looked_at():
    rng = np.random.default_rng(7)
    table = rng.integers(0, 10**6, (320, 610))
    table[:, 10] = table[:, 11] + table[:, 12]
    table[:, 600] = 2 * table[:, 5]
    _, found = search(table)
    supports = {one.support for one in found.relations}
    assert supports == {(10, 11, 12), (5, 600)}
    assert any("blocks of 200 neighbours" in note for note in found.notes)


def test_fewer_rows_than_columns():
    """What is short and of large numbers is told; that the rest cannot be is said."""
    rng = np.random.default_rng(8)
    table = rng.integers(0, 10**6, (18, 30))
    table[:, 3] = table[:, 7] + table[:, 20]
    _, found = search(table)
    assert [one.support for one in found.relations] == [(3, 7, 20)]
    assert any("chance cannot be told from law" in note for note in found.notes)


def test_copies_of_rows_confirm_nothing():
    """Ten rows, each twenty times: any twelve columns obey equations, and none is told."""
    rng = np.random.default_rng(9)
    table = np.repeat(rng.integers(0, 1000, (10, 14)), 20, axis=0)
    _, found = search(table)
    assert found.found == []


def test_types_of_rows_confirm_nothing():
    """Eight kinds of products with fixed marks obey equations that are no law."""
    rng = np.random.default_rng(11)
    table = rng.integers(0, 2, (8, 14))[rng.integers(0, 8, 200)]
    assert search(table)[1].found == []


@pytest.mark.parametrize("seed", range(6))
def test_types_of_numbers_confirm_nothing(seed):
    """With six kinds of rows, any five columns obey an equation: none is told or counted."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(6, 12))
    _, found = search(rng.integers(0, 100, (6, columns))[rng.integers(0, 6, 150)])
    assert found.found == []
    assert not any("more equation" in text for text in found.notes)


def test_marks_of_which_each_row_has_one():
    rng = np.random.default_rng(12)
    marks = np.eye(5, dtype=bool)[rng.integers(0, 5, 200)]
    _, found = search(marks)
    assert [one.support for one in found.relations] == [(0, 1, 2, 3, 4)]


class TestNearly:
    @pytest.mark.parametrize("size", [1e-300, 1e-20, 1.0, 1e300])
    def test_any_size(self, size):
        a, b = np.random.default_rng(16).uniform(0, 1000, (2, 100))
        _, found = search({"a": a * size, "b": b * size, "s": a * size + b * size})
        assert [one.support for one in found.relations] == [(0, 1, 2)]

    @pytest.mark.parametrize("kind", ["float32", "float64"])
    def test_short_floats(self, kind):
        a, b = np.random.default_rng(17).uniform(0, 1000, (2, 100)).round(2)
        table = {"a": a.astype(kind), "b": b.astype(kind), "s": (a + b).astype(kind)}
        _, found = search(table)
        assert [one.exact for one in found.found] == [True]
        x, y = np.random.default_rng(18).normal(size=(2, 100)).astype(kind)
        _, found = search({"x": x, "y": y, "s": x + y})
        assert [one.support for one in found.relations] == [(0, 1, 2)]

    def test_rounded_parts(self):
        rng = np.random.default_rng(10)
        parts = rng.uniform(0, 1000, (120, 5))
        table = np.hstack([parts.round(1), parts.sum(axis=1, keepdims=True).round(1)])
        _, found = search(table)
        one = found.found[0]
        assert len(found.found) == 1
        assert set(map(abs, one.relation.coefficients.values())) == {ONE}
        assert one.within == one.rows == 120
        assert 0 < one.zero < 120
        assert one.largest_miss <= Fraction(3, 10) == one.rounding
        assert one.log10_chance < -50

    def test_shares_that_sum_to_a_hundred(self):
        rng = np.random.default_rng(11)
        shares = (rng.dirichlet([3, 2, 5, 1], 90) * 100).round(1)
        _, found = search(shares)
        one = found.found[0]
        assert one.relation.coefficients == dict.fromkeys(range(4), one.relation.coefficients[0])
        assert one.relation.offset / one.relation.coefficients[0] == -100

    def test_rounding_and_a_wrong_row(self):
        rng = np.random.default_rng(12)
        parts = rng.uniform(0, 1000, (410, 4))
        table = np.hstack([parts.round(1), parts.sum(axis=1, keepdims=True).round(1)])
        table[200, 4] += 777.7
        _, found = search(table)
        one = found.found[0]
        assert one.within == 409
        assert one.worst[0][0] == 200
        assert abs(float(one.worst[0][1])) == pytest.approx(777.7, abs=0.5)

    def test_rounded_conversion(self):
        rng = np.random.default_rng(13)
        miles = rng.uniform(1, 3000, 500).round(1)
        _, found = search({"miles": miles, "km": (miles * 1.609344).round(1)})
        one = found.found[0]
        ratio = -one.relation.coefficients[0] / one.relation.coefficients[1]
        assert float(ratio) == pytest.approx(1.609344, abs=2e-5)

    def test_computed_doubles(self):
        rng = np.random.default_rng(14)
        a, b = rng.normal(size=(2, 100)) * 1000
        _, found = search({"a": a, "b": b, "c": a - 3 * b, "d": a / 7})
        supports = {one.support for one in found.relations}
        assert supports == {(0, 1, 2), (0, 3)}

    def test_noise_is_no_rounding(self):
        rng = np.random.default_rng(15)
        a, b = rng.uniform(0, 1000, (2, 200)).round(1)
        noisy = (a + b + rng.normal(0, 1.0, 200)).round(1)
        assert search({"a": a, "b": b, "c": noisy})[1].found == []


class TestChance:
    @pytest.mark.parametrize("values", [[1, 2, 3, 4, 5], [1, 1, 2, 2, 2], [0, 0, 0, 0, 7]])
    def test_shuffles_are_counted(self, values):
        """Against all orders of a column, one by one."""
        other = np.array([3, 1, 4, 1, 5])
        table = {"a": values, "b": other, "c": np.array(values) + other}
        terms = terms_of(table)
        found = check(Relation({0: ONE, 1: ONE, 2: -ONE}), terms)
        orders = list(itertools.permutations(range(5)))
        worst = 0.0
        for j in range(3):
            column = list(table.values())[j]
            kept = sum(all(column[k] == column[i] for i, k in enumerate(o)) for o in orders)
            worst = max(worst, kept / len(orders))
        told = log10_chance(found, terms, choices=0.0)
        assert told >= math.log10(worst) - 1e-9 or told >= -2 * len(values)

    def test_bound_on_near_fits(self):
        """Brègman's bound is at least the number of orders that fit within rounding."""
        rng = np.random.default_rng(1)
        for _ in range(20):
            a = rng.integers(0, 30, 6)
            b = rng.integers(0, 30, 6)
            c = a + b + rng.integers(-1, 2, 6)
            terms = terms_of({"a": a, "b": b, "c": c})
            found = check(Relation({0: ONE, 1: ONE, 2: -ONE}), terms)
            if found.within < found.rows or found.exact:
                continue
            width = float(found.rounding)
            orders = list(itertools.permutations(range(6)))
            fits = sum(
                all(abs(a[i] + b[i] - c[k]) <= width for i, k in enumerate(o)) for o in orders
            )
            # the column that says least decides, so the bound is at least that of column c
            assert (
                log10_chance(found, terms, choices=0.0) >= math.log10(fits / len(orders)) - 1e-9
                or log10_by_size(c, width, 0.0) < 0
            )

    def test_more_choices_are_likelier(self):
        a, b = np.random.default_rng(2).integers(0, 99, (2, 30))
        terms = terms_of({"a": a, "b": b, "c": a + b})
        found = check(Relation({0: ONE, 1: ONE, 2: -ONE}), terms)
        assert log10_chance(found, terms, 0.0) < log10_chance(found, terms, 3.0)


class TestParts:
    def test_short_vectors_of_a_code(self):
        rng = np.random.default_rng(0)
        short = np.zeros((3, 12), dtype=np.int64)
        for i, places in enumerate([(0, 1, 2), (2, 3, 4, 5), (6, 7, 8)]):
            short[i, list(places)] = rng.integers(1, 9, len(places))
        mixed = rng.integers(1, 50, (3, 3)) @ short % PRIME
        found = short_vectors(mixed, rng)
        assert [len(np.flatnonzero(v)) for v in found[:3]] == [3, 3, 4]

    @given(st.fractions(-100, 100), st.fractions(0, 1))
    def test_simplest_lies_inside(self, low, width):
        found = simplest(low, low + width)
        assert low <= found <= low + width
        if low <= 0 <= low + width:
            assert found == 0

    def test_long_arithmetic(self):
        """Terms beyond 64 bits are added exactly."""
        a = [10**30 + i * i for i in range(40)]
        b = [10**31 + 7 * i**3 for i in range(40)]
        terms = terms_of({"a": a, "b": b, "c": [x + y for x, y in zip(a, b)]})
        left, _ = residual(Relation({0: ONE, 1: ONE, 2: -ONE}), terms)
        assert not np.any(left)
        left, _ = residual(Relation({0: ONE, 1: ONE}, -ONE), terms)
        assert int(left[3]) == a[3] + b[3] - 1


class TestExtremes:
    def test_scales_that_no_double_spans(self):
        a, b = np.random.default_rng(20).integers(1, 1000, (2, 60))
        table = {"a": a * 1e300, "b": a * 1e-300, "c": b * 1.0, "d": b * 1e-12}
        _, found = search(table)
        assert {one.support for one in found.relations} == {(0, 1), (2, 3)}

    def test_long_coefficients(self):
        a, b = np.random.default_rng(21).integers(1, 1000, (2, 60))
        _, found = search({"a": a, "b": b, "s": 123456789123 * a + 987654321987 * b + 5})
        (one,) = found.relations
        assert one.coefficients[0] / one.coefficients[2] == -123456789123

    def test_coefficients_too_long_to_read_are_counted(self):
        rng = np.random.default_rng(22)
        table = rng.integers(-99, 99, (80, 12)) @ rng.integers(-(10**6), 10**6, (12, 14))
        _, found = search(table)
        assert found.found == []
        assert any(text.startswith("2 more equations between") for text in found.notes)

    def test_masked_numbers_are_missing(self):
        a, b = np.random.default_rng(23).integers(1, 1000, (2, 60))
        hidden = np.ma.masked_array(a, mask=a > 900)
        _, found = search({"a": hidden, "b": b, "s": np.where(a > 900, 0, a + b)})
        (one,) = found.found
        assert (one.rows, one.exact) == (int((a <= 900).sum()), True)

    def test_one_unit_is_no_rounding_when_all_other_rows_hold(self):
        a, b = np.random.default_rng(24).integers(1, 1000, (2, 100))
        s = a + b
        s[7] += 1
        (one,) = search({"a": a, "b": b, "s": s})[1].found
        assert (one.zero, one.within, one.worst) == (99, 99, ((7, Fraction(-1)),))
