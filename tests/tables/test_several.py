"""Several tables under one promise, margins of many attributes, and the commands for tables."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import affinedp as adp
from affinedp.cli.app import app
from affinedp.errors import AffineDPError
from affinedp.tables import MarginRelease, TableRelease
from affinedp.tables.publish import TableRows
from affinedp.tables.refusals import TableError

SEXES = pd.DataFrame({"women": [30], "men": [70], "all": [100]})
WARDS = pd.DataFrame({"a": [30], "b": [20], "c": [20], "d": [30], "all": [100]})
TOTALS = {"all": ["women", "men"]}, {"all": list("abcd")}


def both(**promise):
    first, second = (TableRelease(totals=t, epsilon=1.0, rows="separate") for t in TOTALS)
    return TableRelease.together([first, second], **promise)


@pytest.mark.parametrize(
    "promise",
    [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 0.01, "delta": 0.1}],
)
def test_the_promise_holds_for_all_tables_and_is_used_up(promise):
    designs = both(**promise).design([SEXES, WARDS])
    epsilon, delta = promise["epsilon"], promise.get("delta", 0.0)
    assert designs.guarantee.holds(epsilon, delta)
    assert not designs.guarantee.holds(epsilon * 0.999, delta * 0.999)
    assert "2 tables about the same people" in designs.guarantee.neighbours
    # the oracle: every pair of moves of one person, in both tables at once
    law = designs.designs[0].mechanism.law
    norms = []
    for design in designs.designs:
        noise = design.mechanism.noise_matrix
        noise = noise.toarray() if hasattr(noise, "toarray") else np.asarray(noise)
        moved = np.linalg.pinv(noise) @ design.mechanism.adjacency.directions()
        norms.append(np.linalg.norm(moved, ord=2 if law == "gaussian" else 1, axis=0))
    pairs = [np.hypot(x, y) if law == "gaussian" else x + y for x, y in itertools.product(*norms)]
    limit = adp.gaussian_sensitivity(epsilon, delta) if law == "gaussian" else epsilon
    assert max(pairs) <= limit * (1 + 1e-9)
    assert max(pairs) >= limit * (1 - 1e-6)


def asking(laws, **promise):
    each = [TableRelease(totals=t, epsilon=1.0, delta=1e-6 if law == "gaussian" else 0.0,
                         rows="separate", law=law) for t, law in zip(TOTALS, laws)]  # fmt: skip
    return TableRelease.together(each, **promise)


@pytest.mark.parametrize(
    ("laws", "delta", "drawn"),
    [
        (("gaussian", "gaussian"), 1e-6, "gaussian"),
        ((None, "gaussian"), 1e-6, "gaussian"),
        (("laplace", None), 1e-6, "laplace"),
        (("laplace", "laplace"), 0.0, "laplace"),
    ],
)
def test_the_law_that_tables_ask_for_is_drawn(laws, delta, drawn):
    designs = asking(laws, epsilon=1.0, delta=delta).design([SEXES, WARDS])
    assert [one.mechanism.law for one in designs.designs] == [drawn, drawn]
    assert designs.guarantee.holds(1.0, delta)


def test_a_promise_is_shared_out_with_one_law():
    with pytest.raises(AffineDPError, match="give all tables the same"):
        asking(("laplace", "gaussian"), epsilon=1.0, delta=1e-6)
    with pytest.raises(AffineDPError, match="Gaussian noise needs"):
        asking(("gaussian", "gaussian"), epsilon=1.0)


def test_shares_cost_the_least():
    """Any other split of ε between the two tables costs more."""
    designs = both(epsilon=1.0).design([SEXES, WARDS])
    alone = [
        TableRelease(totals=t, epsilon=1.0).design(table).weighted_error
        for t, table in zip(TOTALS, (SEXES, WARDS))
    ]
    share = np.linspace(0.01, 0.99, 981)
    # geometric noise on the cells: the variance is 1/(2 sinh²(ε/2))
    grows = [(np.sinh(0.5) / np.sinh(part / 2)) ** 2 for part in (share, 1 - share)]
    least = (alone[0] * grows[0] + alone[1] * grows[1]).min()
    assert designs.cost == pytest.approx(least, rel=1e-3)


def test_without_a_common_promise_they_add_up(tmp_path):
    plain = both()
    assert plain.design([SEXES, WARDS]).guarantee.epsilon() == pytest.approx(2.0, rel=1e-6)
    with adp.Ledger(tmp_path / "b.db", epsilon=3.0, protects="one person") as ledger:
        first, second = plain.release([SEXES, WARDS], ledger=ledger)
        assert ledger.spent == pytest.approx(2.0, rel=1e-6)
        assert [entry.status for entry in ledger.history()] == ["released"]
        assert first.table.shape == SEXES.shape
        assert second.table.shape == WARDS.shape
        with pytest.raises(TableError):  # the second is broken: nothing is charged
            plain.design([SEXES, WARDS]).release([SEXES, WARDS.assign(all=7)], ledger=ledger)
        assert len(ledger.history()) == 1


def test_all_tables_are_one_charge_before_anything_is_drawn(tmp_path, monkeypatch):
    """Whatever is wrong with the second, or the budget: the first is neither paid nor drawn."""
    drawn = []
    draw = TableRows.drawn
    monkeypatch.setattr(
        TableRows, "drawn", lambda self, ready: drawn.append(1) or draw(self, ready)
    )
    first, second = (TableRelease(totals=t, epsilon=1.0) for t in TOTALS)
    two = pd.concat([WARDS, WARDS], ignore_index=True)
    with adp.Ledger(tmp_path / "b.db", epsilon=1.5, protects="one person") as ledger:
        with pytest.raises(TableError, match="nothing was charged"):  # whose rows are they?
            TableRelease.together([first, second]).release([SEXES, two], ledger=ledger)
        with pytest.raises(adp.BudgetExceededError):  # one would fit, both do not
            TableRelease.together([first, second]).release([SEXES, WARDS], ledger=ledger)
        assert (ledger.history(), drawn) == ((), [])
        together = TableRelease.together([first, second], epsilon=1.5)
        together.release([SEXES, WARDS], ledger=ledger)
        (entry,) = ledger.history()
        assert (entry.status, len(drawn)) == ("released", 2)
        assert 1.4999 < ledger.spent <= 1.5
        assert "2 tables about the same people" in entry.neighbours


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        ([TableRelease(totals=TOTALS[0], epsilon=1.0)], "at least two"),
        (
            [
                TableRelease(totals=TOTALS[0], epsilon=1.0),
                TableRelease(totals=TOTALS[1], epsilon=1.0, household=2),
            ],
            "one kind of neighbours",
        ),
        (
            [TableRelease(totals=t, epsilon=1.0, adjacency="circuits") for t in TOTALS],
            "Definition 4",
        ),
    ],
)
def test_what_is_not_released_together(releases, words):
    with pytest.raises(AffineDPError, match=words):
        TableRelease.together(releases, epsilon=1.0)


# ---------------------------------------------------------------------- margins


LABELS = {"sex": ["f", "m"], "age": [20, 40, 60], "town": ["x", "y"]}


def people(count=200, seed=0):
    generator = np.random.default_rng(seed)
    return pd.DataFrame({name: generator.choice(labels, count) for name, labels in LABELS.items()})


@pytest.mark.parametrize("neighbours", ["person", "replace", "swaps"])
def test_margins_agree_and_are_near_the_truth(neighbours):
    given = people()
    release = MarginRelease(
        attributes=LABELS, margins="<=2", adjacency=neighbours, epsilon=8.0, delta=1e-6
    )
    out = release.release(given)
    for pair in itertools.combinations(LABELS, 2):
        table = out.margin(*pair)
        assert table.columns.tolist() == [*pair, "count"]
        for name in pair:
            summed = table.groupby(name, sort=False)["count"].sum()
            one = out.margin(name).set_index(name)["count"]
            assert np.allclose(summed, one.loc[summed.index], atol=1e-8)
        truth = given.groupby(list(pair)).size()
        errors = table.set_index(list(pair))["count"] - truth
        assert errors.abs().max() < 15
    if neighbours == "swaps":
        exact = given.groupby("age").size()
        assert np.allclose(out.margin("age").set_index("age")["count"], exact, atol=1e-8)
    assert out.guarantee.unit in (
        "one person joins or leaves",
        "one person is counted elsewhere",
        "two people of a table exchange places",
    )
    found = out.interval("sex", "age", level=0.9)
    # the ends are whole, as the truth is; an estimate may lie between two whole numbers
    assert (found["lower"] <= np.ceil(found["count"])).all()
    assert (np.floor(found["count"]) <= found["upper"]).all()
    assert (found["lower"] <= found["upper"]).all()


def test_counts_are_as_good_as_people():
    given = people()
    release = MarginRelease(attributes=LABELS, margins=[["sex", "age"]], epsilon=60.0)
    cells = given.groupby(list(LABELS)).size().reset_index(name="n")
    from_people = release.release(given).margin("sex", "age")["count"].round()
    from_counts = release.release(cells, count="n").margin("sex", "age")["count"].round()
    truth = given.groupby(["sex", "age"]).size().to_numpy()
    assert from_people.tolist() == from_counts.tolist() == truth.tolist()


def test_polars_margins():
    polars = pytest.importorskip("polars")
    given = people()
    table = polars.DataFrame({name: given[name].tolist() for name in given})
    out = MarginRelease(attributes=LABELS, margins="<=1", epsilon=1.0).release(table)
    assert isinstance(out.margin("age"), polars.DataFrame)
    assert out.margin("age")["age"].to_list() == [20, 40, 60]


def test_margins_before_anything_is_spent():
    shown = MarginRelease(attributes=LABELS, margins="<=2", epsilon=1.0).design().margins()
    assert shown["margin"].tolist()[0] == "everybody"
    assert set(shown["cells"]) == {1, 2, 3, 6, 4}
    assert (shown["noise"] > 0).all()


@pytest.mark.parametrize(
    ("arguments", "table", "words"),
    [
        ({"attributes": {"sex": ["f"]}}, None, "at least two labels"),
        ({"attributes": {"sex": ["f", "f", "m"]}}, None, "twice"),
        ({"attributes": {}}, None, "mapping"),
        ({"attributes": LABELS, "margins": [["sexx"]]}, people(3), "no attribute 'sexx'"),
        ({"attributes": LABELS, "at_most": 0}, None, "at_most"),
        ({"attributes": LABELS, "at_most": 2, "adjacency": "replace"}, None, "less often"),
        ({"attributes": {**LABELS, "count": [1, 2]}}, None, "rename"),
        ({"attributes": {**LABELS, "age": [20, 40]}}, people(), "not among the public ones"),
        ({"attributes": LABELS}, people()[["sex", "age"]], "no column 'town'"),
    ],
)
def test_margins_that_are_refused(arguments, table, words):
    with pytest.raises(AffineDPError, match=words):
        MarginRelease(epsilon=1.0, **arguments).release(table)


@pytest.mark.parametrize(
    "numbers",
    [[2**53 + 1, 0], [2**63, 0], [2**70, 0], [2**53, 2**53], [-1, 3], [True, False], ["3", "4"]],
)
def test_counts_that_no_table_holds_are_refused(numbers):
    cells = people().iloc[:2].assign(n=pd.Series(numbers, dtype=object).to_list())
    with pytest.raises(AffineDPError, match="'n'"):
        MarginRelease(attributes=LABELS, epsilon=1.0).release(cells, count="n")


def test_rows_of_one_person_are_not_called_a_household():
    release = MarginRelease(attributes=LABELS, epsilon=1.0, at_most=3)
    assert release.design().guarantee.neighbours.startswith(
        "one person more or less, in at most 3 c"
    )
    both = MarginRelease(attributes=LABELS, epsilon=1.0, at_most=3, household=2).design().guarantee
    assert both.neighbours.startswith(
        "a household of up to 2 people more or less, each in at most 3 cells"
    )


# ---------------------------------------------------------------------- commands


def test_preview_reads_no_private_number(tmp_path):
    file = tmp_path / "t.toml"
    file.write_text(
        'hierarchy = ["state", "county"]\n[privacy]\nmu = 1\nepsilon = 1.0\nhousehold = 2\n'
        "[output]\nround_to = 1\nnonnegative = true\n",
        encoding="utf-8",
    )
    texts = []
    for numbers in ([10, 6, 2, 4, 4, 4], [99, 6, 0, 4, 4, 1]):  # the second does not add up
        rows = zip(["", "A", "A", "A", "NA", "NA"], ["", "", "x", "y", "", "x"], numbers)
        data = tmp_path / "t.csv"
        data.write_text("state,county,n\n" + "".join(f"{a},{b},{n}\n" for a, b, n in rows))
        found = CliRunner().invoke(app, ["tables", "preview", str(file), str(data)])
        assert found.exit_code == 0, found.output
        texts.append(found.output)
    assert texts[0] == texts[1]
    assert "a household of up to 2 people more or less" in " ".join(texts[0].split())
    assert "nothing was spent" in texts[0]
    assert "county" in texts[0]
    machine = CliRunner().invoke(app, ["tables", "preview", str(file), str(data), "--json"])
    levels = json.loads(machine.output)["levels"]
    assert [one["level"] for one in levels] == ["grand total", "state", "county"]


def test_guess_prints_a_description(tmp_path):
    data = tmp_path / "c.csv"
    data.write_text("sex,a,b,All\nf,1,2,3\nm,3,4,7\nAll,4,6,10\n", encoding="utf-8")
    arguments = [
        "tables",
        "guess",
        str(data),
        "--index",
        "sex",
        "--epsilon",
        "1",
        "--public-margins",
    ]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    file = tmp_path / "t.toml"
    file.write_text(found.output, encoding="utf-8")
    again = CliRunner().invoke(app, ["tables", "preview", str(file), str(data)])
    assert again.exit_code == 0, again.output
    assert "exchange places" in " ".join(again.output.split())
