"""Totals within totals, a hundred deep: another design takes over, or the table is refused."""

import numpy as np
import pandas as pd
import pytest

from affinedp.mechanism import Mechanism
from affinedp.tables import TableRelease, design
from affinedp.tables.refusals import TableError


def chain(depth):
    """What was counted up to every day: that of the day before, and the day itself."""
    names, parents, values = [], [], []
    for day in range(depth, 0, -1):
        names += [f"up to {day}", f"day {day}"]
        parents += [f"up to {day + 1}" if day < depth else None, f"up to {day}"]
        values += [(day + 1) * (day + 2) // 2, day + 1]
    return pd.DataFrame(
        {"part_of": [*parents, "up to 1"], "n": [*values, 1]}, index=[*names, "day 0"]
    )


def test_a_deep_chain_is_handed_to_a_design_of_the_whole():
    table = chain(90)
    release = TableRelease(
        hierarchy="part_of", epsilon=1.0, delta=1e-6, law="gaussian", round_to=1, nonnegative=True
    )
    found = release.design(table)
    assert isinstance(found.mechanism, Mechanism)
    assert found.mechanism.gap < 1e-3
    others = {one.reason: one.error / found.weighted_error for one in found.compared}
    assert others["noise on the cells, added up"] > 5
    out = found.release(table)
    assert (out.table["n"] >= 0).all()
    for day in (2, 40, 90):
        whole = out.table["n"][f"up to {day}"]
        assert whole == out.table["n"][f"up to {day - 1}"] + out.table["n"][f"day {day}"]


def test_a_chain_too_large_for_that_is_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(design, "MOST_DENSE", 100)
    release = TableRelease(hierarchy="part_of", epsilon=1.0, delta=1e-6, law="gaussian")
    with pytest.raises(TableError, match="Leave out some of the totals"):
        release.design(chain(90))


def test_laplace_noise_serves_where_it_is_near_the_bound():
    found = TableRelease(hierarchy="part_of", epsilon=1.0, delta=1e-6).design(chain(90))
    assert found.mechanism.law == "laplace"
    errors = {(one.reason, one.law): one.error for one in found.compared}
    assert found.weighted_error <= min(errors.values()) * (1 + 1e-6)
    assert np.isfinite(list(errors.values())).all()
