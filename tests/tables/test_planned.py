"""Several planned releases under one promise: what each may cost, and that a ledger agrees."""

import math

import pandas as pd
import pytest

import affinedp as adp
from affinedp.budget.ledger import Ledger
from affinedp.errors import AffineDPError
from affinedp.tables import MarginRelease, TableRelease, read_release, with_total_rows

SEXES = pd.DataFrame({"women": [30], "men": [70], "all": [100]})
TOTALS = {"all": ["women", "men"]}
WARDS = pd.DataFrame({"city": list("AABB"), "ward": list("1212"), "n": [5, 60, 7, 80]})
LABELS = {"sex": ["f", "m"], "age": ["0-17", "18-64", "65+"]}
PEOPLE = pd.DataFrame({"sex": ["f", "m"], "age": ["65+", "0-17"]})


def table(**options):
    return TableRelease(totals=TOTALS, rows="separate", **options).design(SEXES)


def tree(**options):
    cells = with_total_rows(WARDS, ["city", "ward"], ["n"])
    release = TableRelease(hierarchy=["city", "ward"], nonnegative=True, **options)
    return release.design(cells)


def margins(**options):
    return MarginRelease(attributes=LABELS, **options).design()


def places(**options):
    return MarginRelease(attributes=LABELS, places=WARDS[["city", "ward"]], **options).design()


KINDS = [table, tree, margins, places]


@pytest.mark.parametrize("kind", KINDS)
def test_pure_releases_get_a_share_of_epsilon(kind):
    one = kind(epsilon=2.0, releases=4)
    assert one.guarantee.epsilon() == pytest.approx(0.5, rel=1e-9)
    assert 4 * one.guarantee.epsilon() <= 2.0
    assert one.guarantee.keeps_asked()
    assert "for 4 releases together" in one.guarantee.summary()[0][1]
    alone = kind(epsilon=0.5).levels()["noise"]
    assert one.levels()["noise"].tolist() == pytest.approx(alone.tolist(), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_many_releases_get_gaussian_noise_whose_squares_add_up(kind):
    assert kind(epsilon=1.0, delta=1e-6).guarantee.law != "gaussian"
    one = kind(epsilon=1.0, delta=1e-6, releases=365)
    assert one.guarantee.law == "gaussian"
    whole = float(adp.gaussian_sensitivity(1.0, 1e-6))
    assert one.guarantee.sensitivity == pytest.approx(whole / math.sqrt(365), rel=1e-6)
    assert one.guarantee.sensitivity * math.sqrt(365) <= whole
    assert adp.compose([one.guarantee] * 365).holds(1.0, 1e-6)


def test_rows_about_the_same_people_share_with_the_releases():
    rows = pd.concat([SEXES] * 3, ignore_index=True)
    design = TableRelease(totals=TOTALS, rows="composed", epsilon=1.0, releases=2).design(rows)
    assert design.releases == 3
    assert design.mechanism.guarantee.epsilon() == pytest.approx(1 / 6, rel=1e-9)
    assert design.guarantee.epsilon() == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"delta": 1e-6, "law": "gaussian"}])
def test_a_ledger_lets_that_many_pass(tmp_path, options):
    delta = options.get("delta", 0.0)
    release = MarginRelease(attributes=LABELS, epsilon=1.0, releases=3, **options)
    with Ledger(tmp_path / "l.db", epsilon=1.0, delta=delta, protects="one person") as ledger:
        for month in ("May", "June", "July"):
            release.release(PEOPLE, ledger=ledger, label=month)
        assert ledger.spent <= 1.0
        with pytest.raises(AffineDPError, match="budget .*Nothing was charged"):
            release.release(PEOPLE, ledger=ledger)


def test_targets_are_met_in_every_release_and_cost_what_all_cost():
    cells = with_total_rows(WARDS, ["city", "ward"], ["n"])
    once, often = (
        TableRelease(hierarchy=["city", "ward"], epsilon=1.0, delta=1e-6, releases=n).design_for(
            cells, {"ward": 10.0}
        )
        for n in (1, 12)
    )
    assert often.levels()["noise"].tolist() == once.levels()["noise"].tolist()
    s = once.guarantee.sensitivity * math.sqrt(12)
    assert often.description.epsilon == pytest.approx(float(adp.gaussian_epsilon(1e-6, s)))
    assert often.guarantee.keeps_asked()


def test_files_say_it_too(tmp_path):
    release = TableRelease(totals=TOTALS, epsilon=1.0, releases=12)
    file = tmp_path / "table.toml"
    file.write_text(release.toml(), encoding="utf-8")
    assert "releases = 12" in file.read_text(encoding="utf-8")
    assert read_release(file).release.releases == 12
    file.write_text('[attributes]\nsex = ["f", "m"]\n[privacy]\nepsilon = 1\nreleases = 12\n')
    assert read_release(file).release.releases == 12


@pytest.mark.parametrize("wrong", [0, 1.5, True, "2", -3])
def test_refusals(wrong):
    with pytest.raises(AffineDPError, match="releases"):
        TableRelease(totals=TOTALS, epsilon=1.0, releases=wrong)
    with pytest.raises(AffineDPError, match="releases"):
        MarginRelease(attributes=LABELS, epsilon=1.0, releases=wrong)


def test_several_tables_have_one_time_only():
    release = TableRelease(totals=TOTALS, epsilon=1.0, releases=2)
    with pytest.raises(AffineDPError, match="leave it out"):
        TableRelease.together([release, release], epsilon=1.0)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_no_epsilon_is_refused_at_once(wrong):
    with pytest.raises(AffineDPError, match="ε|epsilon"):
        MarginRelease(attributes=LABELS, epsilon=wrong)
    with pytest.raises(AffineDPError, match="ε|epsilon"):
        TableRelease(totals=TOTALS, epsilon=wrong, delta=1e-6)
    with pytest.raises(AffineDPError, match="ε|epsilon"):
        TableRelease(totals=TOTALS, epsilon=wrong)
