"""Real data: 7 identities over 22 columns, 120 months, one identity off by rounding."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from employment import ROUNDED, TOTALS, employment, with_changes

from affinedp.errors import AffineDPError
from affinedp.tables import TableRelease, from_crosstab
from affinedp.tables.refusals import TableError

PROMISE = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def monthly():
    """The noise for one month."""
    release = TableRelease(totals=TOTALS, adjust=["utilities"], within=0.5, **PROMISE)
    return release.design(employment())


def exact_gaps(table, total, parts):
    """Total minus parts as decimals, which is what a person reads."""
    columns = [total, *parts]
    for label, row in table[columns].astype(str).iterrows():
        values = [Fraction(text) for text in row]
        yield label, float(values[0] - sum(values[1:]))


def test_only_the_rounded_identity_is_broken_and_every_row_of_it_is_found():
    found = TableRelease(totals=TOTALS, **PROMISE).check(employment())
    wanted = {
        f"month {label}": gap
        for label, gap in exact_gaps(employment(), ROUNDED, TOTALS[ROUNDED])
        if gap
    }
    assert dict(zip(found["row"], found["off"])) == pytest.approx(wanted)
    assert len(found) == 111
    assert all(text.startswith(f"{ROUNDED} = wholesale_trade + ") for text in found["equation"])


def test_refused_by_default_with_the_ways_out():
    with pytest.raises(TableError) as refusal:
        TableRelease(totals=TOTALS, **PROMISE).release(employment())
    text = str(refusal.value)
    assert "month 2006-01-01" in text
    assert "does not hold" in text
    assert "111 of 120 rows" in text
    assert "0.3" not in text  # by how much is private; check says it
    assert "0.5" not in text
    assert "adjust=['utilities']" in text
    assert len(refusal.value.broken) == 111


def test_adjusting_the_total_breaks_the_one_above():
    release = TableRelease(totals=TOTALS, adjust=[ROUNDED], within=0.5, **PROMISE)
    with pytest.raises(TableError, match="private_service_providing = .* also after adjust"):
        release.release(employment())


def test_rounding_has_a_limit():
    release = TableRelease(totals=TOTALS, adjust=["utilities"], within=0.2, **PROMISE)
    with pytest.raises(TableError, match=r"month 2006-01-01: 'utilities' .* within = 0\.2"):
        release.release(employment())


@pytest.mark.parametrize(
    "repair", [{"adjust": ["utilities"], "within": 0.5}, {"unknown": "totals"}]
)
def test_every_month_adds_up(repair, monthly):
    table = employment()
    out = TableRelease(totals=TOTALS, **repair, **PROMISE).release(table).table
    for total, parts in TOTALS.items():
        assert np.abs(out[total] - out[parts].sum(axis=1)).max() < 1e-8
    assert out.index.equals(table.index)
    assert list(out.columns) == list(table.columns)
    # 120 draws of Laplace noise: half or twice the stated deviation is seen once in millions
    ratio = (out - table).std() / monthly.noise
    assert ratio.between(0.5, 2).all()


def test_tenths_that_add_up_exactly(monthly):
    release = TableRelease(totals=TOTALS, unknown="totals", round_to=0.1, **PROMISE)
    out = release.release(employment()).table
    for total, parts in TOTALS.items():
        assert all(gap == 0 for _, gap in exact_gaps(out.round(1), total, parts))
    assert np.array_equal(out, out.round(1))
    assert np.all(release.design(employment()).deviations < 1.001 * monthly.deviations)


def test_noise_levels_are_those_of_the_noise(monthly):
    drawn = monthly.mechanism.sample(40_000, seed=1)
    assert monthly.noise.to_numpy() == pytest.approx(drawn.std(axis=0), rel=0.02)
    assert list(monthly.noise.index) == list(employment().columns)


def test_intervals_cover_as_often_as_they_say():
    """4 400 independent-ish errors against 90 % intervals, true numbers from the leaves."""
    release = TableRelease(totals=TOTALS, unknown="totals", **PROMISE)
    truth = employment().astype(float)
    for total in reversed(TOTALS):  # parts come before their totals
        truth[total] = truth[TOTALS[total]].sum(axis=1)
    design = release.design(truth)
    hits = []
    for _ in range(4):
        lower, upper = design.release(truth).interval(0.9)
        hits.append((lower <= truth) & (truth <= upper))
    assert np.mean(hits) == pytest.approx(0.9, abs=0.02)


def test_the_report_says_what_independent_noise_would_cost(monthly):
    out = monthly.release(employment())
    text = str(out.report())
    assert "the promise is for each row by itself" in " ".join(text.split())
    assert "all 840 equations hold in the published table" in text
    assert "utilities" in text
    assert "independent noise with the same promise would break" in text
    ratios = [row.ratio for row in out.report().outputs]
    assert max(ratios) < 1
    assert "public" not in dict(out.report().promise).get("neighbours")


def test_months_about_the_same_people_cost_the_root_of_their_number(monthly):
    release = TableRelease(
        totals=TOTALS, adjust=["utilities"], within=0.5, rows="composed", **PROMISE
    )
    design = release.design(employment())
    assert design.releases == 120
    # one month has Laplace noise; for 120 months Gaussian noise, whose squares add up, is better
    assert (monthly.mechanism.law, design.mechanism.law) == ("laplace", "gaussian")
    gaussian = replace(release, law="gaussian", rows="separate").design(employment())
    assert design.deviations == pytest.approx(gaussian.deviations * np.sqrt(120), rel=1e-9)
    assert design.guarantee.holds(1.0, 1e-6)
    assert not design.guarantee.holds(0.999, 1e-6)
    assert "all 120 rows" in design.guarantee.neighbours
    with pytest.raises(TableError, match="designed for 120 rows"):
        design.release(employment().iloc[:100])


def test_a_series_with_its_changes_is_one_data_set():
    """One person more or less in one month; totals and changes follow."""
    table = with_changes().iloc[:6]
    release = TableRelease(
        totals=TOTALS,
        changes={"nonfarm_change": "nonfarm"},
        unknown="totals",
        **PROMISE,
    )
    out = release.release(table)
    change = out.table["nonfarm"].diff().iloc[1:]
    assert np.abs(change - out.table["nonfarm_change"].iloc[1:]).max() < 1e-8
    assert "one person more or less, in one number that is no total" in out.guarantee.neighbours
    # a cell of the first month moves one change, one of the others two
    first = np.zeros(out.design.mechanism.manifold.n)
    names = out.design.layout.names
    for name in ("utilities", ROUNDED, "private_service_providing", "private",
                 "service_providing", "nonfarm"):  # fmt: skip
        first[names.index(f"{name}[2006-03-01]")] = 1
    first[names.index("nonfarm_change[2006-03-01]")] = 1
    first[names.index("nonfarm_change[2006-04-01]")] = -1
    directions = out.design.mechanism.adjacency.directions()
    assert any(np.allclose(first, column, atol=1e-9) for column in directions.T)


def test_a_broken_change_is_named():
    table = with_changes().iloc[:6].copy()
    table.loc["2006-03-01", "nonfarm_change"] += 1
    release = TableRelease(
        equations=["nonfarm = private + government"],
        changes={"nonfarm_change": "nonfarm"},
        columns=["nonfarm", "private", "government", "nonfarm_change"],
        **PROMISE,
    )
    kept = ["nonfarm", "private", "government", "nonfarm_change"]
    with pytest.raises(TableError, match="month 2006-03-01: nonfarm_change = nonfarm - "):
        release.release(table[kept])


def test_the_first_change_follows_its_level():
    """Whoever is in the first month moves the change since the month before, which is not there."""
    table = pd.DataFrame({"n": [5, 7, 9], "d": [1, 2, 2]})
    design = TableRelease(epsilon=1.0, changes={"d": "n"}).design(table)
    adjacency = design.mechanism.adjacency
    x = [5, 1, 7, 2, 9, 2]
    assert adjacency.are_neighbours(x, [6, 2, 7, 1, 9, 2])  # in the first month
    assert adjacency.are_neighbours(x, [5, 0, 7, 2, 9, 2])  # in the month before
    assert adjacency.are_neighbours(x, [5, 1, 8, 3, 9, 1])  # in the second
    assert "first row" in design.guarantee.neighbours


@pytest.mark.parametrize("wrong", [{"epsilon": 800.0}, {"epsilon": 1e-200}, {"mu": -1.0}])
def test_numbers_out_of_range_are_refused_in_words(wrong):
    table = pd.DataFrame({"a": [1], "b": [1], "t": [2]})
    with pytest.raises(AffineDPError):
        TableRelease(totals={"t": ["a", "b"]}, **{"epsilon": 1.0, **wrong}).design(table)


@pytest.mark.parametrize("label", ["", None])
def test_a_row_without_a_label_is_asked_about(label):
    table = pd.DataFrame({"n": [3, 5, 8]}, index=["x", "y", label])
    with pytest.raises(TableError, match="no label"):
        from_crosstab(table, epsilon=1.0, labels="public", say=lambda text: None)
