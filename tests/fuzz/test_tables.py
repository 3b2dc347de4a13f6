"""Both questions about published tables, and whether their intervals cover."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from scipy import stats

from affinedp.arrays import dense
from affinedp.errors import AffineDPError
from affinedp.tables import TableRelease
from fuzz.effort import alarm, examples
from fuzz.exact import Equations
from fuzz.noise import seeded
from fuzz.questions import ask_exactly, attempted, demand
from fuzz.tables import TYPES, Table, neighbouring, stacked, tables

ONE = Fraction(1)
types = st.lists(st.sampled_from(TYPES), min_size=1, max_size=3)


def everything(out):
    """All that a released table shows; its numbers before rounding come first."""
    return out.unrounded, out.table, out.public, str(out.report()), str(out.guarantee)


def promised(design):
    """The law that is drawn, and how far neighbours may be apart."""
    mechanism = design.mechanism
    return SimpleNamespace(law=mechanism.law, sensitivity=design.guarantee.sensitivity)


@pytest.mark.slow
@examples(6)
@given(st.data(), tables(), types, types)
def test_neighbouring_tables(data, table, kinds, kinds_too):
    """Whatever the types of their columns: no bias, near enough, and the same to the last bit."""
    moved = data.draw(neighbouring(table))
    if moved is not None:
        event(exactly(table, (table.values, moved), (kinds, kinds_too), None))


@pytest.mark.slow
@examples(3)
@given(st.data(), tables(), st.sampled_from([1.0, 1.5, 1e3, 1e9]))
def test_decimal_tables_within_a_bound(data, table, room):
    """With ``bound=`` recorded decimals may be off by the rounding of double precision."""
    words = {
        "law": "gaussian" if dict(table.words).get("delta") else "laplace",
        **dict(table.words),
    }
    table = replace(table, words=(*words.items(), ("whole", False)))
    start = tuple(tuple(v / 10 for v in row) for row in table.values)
    composed = table.release.row_mode == "composed"
    moved = []
    for row in start:
        move = data.draw(st.sampled_from(table.moves))
        changed = composed or row is start[0]
        moved.append(tuple(v + changed * move.reach * d for v, d in zip(row, move.direction)))
    largest = max(abs(float(v)) for part in (start, moved) for row in part for v in row)
    kinds = ["float64"], ["float64"]
    event(exactly(table, (start, moved), kinds, (largest or 1.0) * (1 + 1e-9) * room))


def exactly(table, both, kinds, bound):
    """Ask the first question and the second without chance; returns what happened."""
    frames = [table.frame(values, kind) for values, kind in zip(both, kinds)]
    design, refusal = attempted(table.release.design, frames[0])
    if refusal:
        return f"design refused: {refusal[1][:60]}"
    sizes = [
        sum(abs(v) for row in (*both[0], *both[1]) for v in row) * 2
        for _ in range(sum(map(len, both[0])))
    ]
    refusal = ask_exactly(
        lambda which: design.release(frames[which], bound=bound).unrounded,
        [[v for row in values for v in row] for values in both],
        promised(design),
        stacked(dense(design.mechanism.noise_matrix), len(table.values)),
        sizes,
        shown=lambda which: everything(design.release(frames[which], bound=bound)),
        lattice=dense(design.mechanism.dense.basis) if design.mechanism.noise.whole else None,
    )
    whole = "whole " if design.mechanism.noise.whole else ""
    return f"{whole}refused: {refusal[1][:60]}" if refusal else f"{whole}released"


# Rows with noise of their own, or whole tables.
ROWS, TABLES = 400, 60
levels = st.sampled_from([0.5, 0.9, 0.99])


@pytest.mark.slow
@examples(3)
@given(tables(), st.integers(0, 2**32), levels)
def test_intervals_cover(table, seed, level):
    """Stated intervals and half widths hold the true numbers as often as they say."""
    event(covered(table, seed, level, None, alarm(3)))


@pytest.mark.slow
def test_intervals_cover_with_a_bound():
    """With a bound on the numbers the noise is larger, and so must be the intervals."""
    one_sum = Equations(((ONE, ONE, -ONE),), (Fraction(0),), ("p0", "p1", "all"))
    promise = (("epsilon", 1.0), ("delta", 1e-6), ("rows", "separate"))
    table = Table(
        (("totals", {"all": ["p0", "p1"]}), *promise),
        one_sum.names, (), ("r0",), one_sum, tuple((0, name) for name in one_sum.names),
        (), ((ONE, 2 * ONE, 3 * ONE),),
    )  # fmt: skip
    assert covered(table, 1, 0.9, 1e16, alarm(1)) == "covered"


@pytest.mark.slow
def test_whole_numbers_and_a_large_bound():
    """Noise that whole numbers of 64 bits do not hold is refused, before it is drawn."""
    frame = pd.DataFrame({"a": [1], "b": [2], "all": [3]})
    release = TableRelease(
        totals={"all": ["a", "b"]}, epsilon=1.0, delta=1e-6, rows="separate", round_to=1,
        whole=False,
    )  # fmt: skip
    with pytest.raises(AffineDPError):
        release.release(frame, bound=1e100)


def covered(table, seed, level, bound, each):
    """Count how often the intervals of a table hold the truth; returns what happened."""
    table, copies = _repeated(table, ROWS)
    runs = ROWS if copies else TABLES
    frame = table.frame(table.values, ["float64"])
    design, refusal = attempted(table.release.design, frame)
    if refusal:
        return f"design refused: {refusal[1][:60]}"
    truth = frame[list(table.columns)].to_numpy()
    held = []
    with seeded(seed):
        for _ in range(1 if copies else runs):
            out, refusal = attempted(lambda: design.release(frame, bound=bound))
            if refusal:
                return f"refused: {refusal[1][:60]}"
            low, high = (part.to_numpy() for part in out.interval(level))
            off = np.abs(out.table[list(table.columns)].to_numpy(dtype=float) - truth)
            held.append([(low <= truth) & (truth <= high), off <= _widths(out, level, truth)])
    # one count for each column, or for each cell: (interval or half width, runs, cells)
    counted = np.array(held).transpose(1, 2, 0, 3) if copies else np.array(held).swapaxes(0, 1)
    counted = counted.reshape(2, runs, -1)
    for count in counted.sum(axis=1).ravel().tolist():
        tail = stats.binom.cdf(count, runs, level)
        demand(
            tail >= each / (2 * counted.shape[2]),
            f"intervals for {level} covered {count} of {runs} (probability {tail:.1e})",
        )
    return "covered"


def _repeated(table, runs):
    """Many rows with the same numbers, where rows have noise of their own."""
    if table.release.row_mode != "separate":
        return table, False
    index = tuple(f"r{i}" for i in range(runs))
    return replace(table, index=index, values=(table.values[0],) * runs), True


def _widths(out, level, truth):
    """Half widths of what is published, by cell; public numbers have none."""
    values = np.nan_to_num(out.design.half_width(level).to_numpy(dtype=float))
    # a published multiple may be just at the end of its interval
    return np.broadcast_to(values, truth.shape) * (1 + 1e-9) + 1e-9
