"""The equations of real and made tables are found and told; of others, none is."""

import json
import math
import tomllib
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import affinedp as adp
from affinedp.discovery.found import UNDECIDED

pd = pytest.importorskip("pandas")

import made_tables as tables  # noqa: E402
from employment import ROUNDED, TOTALS, with_changes  # noqa: E402


def texts(found):
    return {one.text for one in found.equations}


def rank(rows):
    return np.linalg.matrix_rank(np.array(rows, dtype=float))


def test_a_total_of_rows_and_of_columns_is_one_key():
    cells = np.random.default_rng(3).integers(0, 99, (40, 3, 3))
    names = [f"x{i}{j}" for i in range(3) for j in range(3)]
    table = pd.DataFrame(cells.reshape(40, 9), columns=names)
    for i in range(3):
        table[f"r{i}"], table[f"k{i}"] = cells[:, i].sum(axis=1), cells[:, :, i].sum(axis=1)
    table["n"] = cells.sum(axis=(1, 2))
    told = adp.discover(table).toml()
    decided = told[told.index("# [totals]") :].replace("# ", "", 1).replace("\n# ", "\n")
    ways = tomllib.loads(decided)["totals"]["n"]
    assert sorted(ways) == [["k0", "k1", "k2"], ["r0", "r1", "r2"]]


class TestEmployment:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        pytest.importorskip("vega_datasets")
        return adp.discover(with_changes())

    def test_all_seven_identities(self, found):
        within = [one for one in found.equations if one.scope == "row"]
        names = list(found.columns)
        mine = [[float(one.coefficients.get(name, 0)) for name in names] for one in within]
        theirs = [
            [1.0 if name == total else -1.0 if name in parts else 0.0 for name in names]
            for total, parts in TOTALS.items()
        ]
        assert len(within) == 7
        assert rank(mine) == rank(theirs) == rank([*mine, *theirs]) == 7

    def test_the_rounded_one(self, found):
        (one,) = [one for one in found.equations if one.kind == "rounded"]
        assert set(one.columns) == {ROUNDED, *TOTALS[ROUNDED]}
        assert (one.rows_that_hold, one.rows_exactly, one.largest_miss) == (120, 9, 0.5)

    def test_the_lagged_one(self, found):
        (one,) = [one for one in found.equations if one.scope == "earlier row"]
        assert one.text == "nonfarm_change(t) = nonfarm(t) - nonfarm(t-1)"
        assert one.rows_that_hold == one.rows == 119
        assert found.changes == {"nonfarm_change": "nonfarm"}

    def test_costs(self, found):
        """Two entries move for every total; with all changes, 120 do."""
        assert [one.cost for one in found.equations] == pytest.approx([120.0] + [2.0] * 7)
        assert found.cost_of_all == pytest.approx(8.0)

    def test_nothing_by_chance(self, found):
        assert all(one.log10_chance < -70 for one in found.equations)
        assert found.doubtful == ()

    def test_what_is_told_can_be_read(self, found, tmp_path):
        from affinedp.tables import read_release

        file = tmp_path / "table.toml"
        privacy = "\n[privacy]\nmu = 1\nepsilon = 1.0\ndelta = 1e-6\n"
        file.write_text(found.toml() + "\n" + privacy, encoding="utf-8")
        with pytest.raises(adp.AffineDPError, match="between_rows"):
            read_release(file)
        file.write_text(found.toml().replace(UNDECIDED, "") + privacy, encoding="utf-8")
        read = read_release(file)
        assert len(read.release.equations) == 7
        # in which column people are counted, and of which it is the change, no data tells
        assert read.release.changes is None
        assert '# "nonfarm_change" = "nonfarm"' in found.toml()
        within = [one.text for one in found.equations if one.scope == "row"]
        manifold = adp.AffineManifold.from_equations(within)
        assert manifold.n - manifold.dim == 7
        assert json.loads(json.dumps(found.to_dict()))["cost_of_all"] == pytest.approx(8.0)


def test_what_forgetting_costs_a_design():
    """Any one of the seven identities turns ε = 1 into 1.46, any two into at most 1.81."""
    pytest.importorskip("vega_datasets")
    table = with_changes().drop(columns="nonfarm_change")
    equations = [f"{total} = {' + '.join(parts)}" for total, parts in TOTALS.items()]
    names = list(table.columns)
    for left_out, cost in (((3,), 1.4547), ((0, 4), 1.8136)):
        kept = [text for i, text in enumerate(equations) if i not in left_out]
        manifold = adp.AffineManifold.from_equations(kept, names=names)
        design = adp.design_gaussian(manifold, epsilon=1.0, delta=1e-6)
        found = adp.discover(table, design=design, between_rows=False)
        assert len(found.equations) == len(left_out)
        assert found.cost_of_all == pytest.approx(cost, abs=2e-4)
        assert "the given design" in found.promise


STEP = "step(t) = level(t) - level(t-1)"


def running(rng):
    steps = rng.integers(-50, 80, 60)
    return pd.DataFrame({"day": range(60), "step": steps, "level": np.cumsum(steps)})


def still(rng):
    """What hardly changes, which is not the same as the row before by law."""
    quarters = [np.repeat(rng.integers(0, 1000, 12) / 4, 25) for _ in range(2)]
    slow = np.round(np.cumsum(rng.normal(0, 0.4, 300)))
    return {"steps": quarters[0], "others": quarters[1], "slow": slow}


def long_sum(rng):
    """Numbers so long that coefficients could be fitted to rows, which are no sums of others."""
    rows = rng.integers(1, 1000, (60, 2)).tolist()
    first, second = [2**60 * x + y for x, y in rows], [2**61 * y + 3 * x for x, y in rows]
    return {"p": first, "q": second, "s": [x + y for x, y in zip(first, second)]}


def from_tiny_to_huge(rng):
    tiny, huge = rng.integers(1, 999, 50) * 1e-300, rng.integers(1, 999, 50) * 1e300
    return {"tiny": tiny, "twice": [2 * x for x in tiny], "huge": huge, "again": huge}


def beyond_doubles(rng):
    """Exact equations are still found; rounded ones are not looked for."""
    long = [10**400 * int(x) + int(y) for x, y in rng.integers(1, 10**6, (60, 2))]
    wide = np.where(rng.random(60) < 0.5, 1e-300, 1e300) * rng.integers(1, 99, 60)
    return {"long": long, "wide": wide, "twice": [2 * x for x in long]}


def since_last_year(rng):
    level = rng.integers(1000, 9000, 80)
    change = np.concatenate([[0] * 12, level[12:] - level[:-12]])
    return {"level": level, "since_last_year": change}


def shuffled(table):
    return table.sample(frac=1.0, random_state=1).reset_index(drop=True)


def interleaved(table):
    return table.iloc[np.argsort(np.arange(180) % 60, kind="stable")].reset_index(drop=True)


def amounts():
    book = tables.journal()
    return book.assign(amount=book.pop("debit") - book.pop("credit"))


def changes_of(table):
    return {"level": table["steps"], "step": np.diff(table["steps"], prepend=0)}


BALANCE = "balance(t) = paid_in(t) + balance(t-1) - paid_out(t), within account"
INPUT_OUTPUT = (
    "final_demand = households + government + exports",
    "output = agri + mining + manuf + trade + transport + services + final_demand",
    "[total output] = [intermediate] + [value added], in every column of numbers",
    "[intermediate] = [agri] + [mining] + [manuf] + [trade] + [transport] + [services], "
    "in every column of numbers",
    "output of each sector = [total output] in the column of that name",
)
STATEMENT = [
    f"{text}, in every column of numbers"
    for text in (
        "[revenue] = [sales] + [other]",
        "[revenue] = [costs] + [profit]",
        "[costs] = [materials] + [wages] + [rent]",
    )
]


@pytest.mark.parametrize(
    ("make", "options", "equations", "rows"),
    [
        (lambda rng: tables.input_output(), {}, INPUT_OUTPUT, None),
        (lambda rng: tables.statement(), {}, STATEMENT, None),
        (lambda rng: tables.journal(), {}, ["sum of credit = sum of debit, for each entry"], 200),
        (lambda rng: amounts(), {}, ["sum of amount = 0, for each entry"], 200),
        (lambda rng: tables.accounts(), {}, [BALANCE], 177),
        (lambda rng: interleaved(tables.accounts()), {}, [BALANCE], 177),
        (running, {}, [STEP], 59),
        (lambda rng: shuffled(running(rng)), {}, [], None),
        (lambda rng: shuffled(running(rng)), {"order": "day"}, [STEP], 59),
        (since_last_year, {"lags": (1, 12)},
         ["since_last_year(t) = level(t) - level(t-12)"], 68),
        (lambda rng: {"year": range(1950, 2020), "n": rng.integers(0, 999, 70)}, {}, [], None),
        (still, {}, [], None),
        (lambda rng: changes_of(still(rng)), {}, [STEP], 299),
        (from_tiny_to_huge, {"between_rows": False}, ["twice = 2*tiny", "again = huge"], 50),
        (beyond_doubles, {}, ["twice = 2*long"], 60),
        (long_sum, {}, ["s = p + q"], 60),
    ],
)  # fmt: skip
def test_what_is_found(make, options, equations, rows):
    found = adp.discover(make(np.random.default_rng(6)), **options)
    assert texts(found) == set(equations)
    assert rows is None or {one.rows for one in found.equations} == {rows}


class TestBetweenRows:
    def test_hierarchy(self):
        from affinedp.tables import with_total_rows

        rng = np.random.default_rng(1)
        cells = pd.DataFrame(
            [(s, s + c, s + c + t) for s in "ABC" for c in "wxyz" for t in "123"],
            columns=["state", "county", "tract"],
        )
        cells["people"] = rng.integers(0, 5000, len(cells))
        cells["births"] = rng.integers(0, 90, len(cells))
        levels = ["state", "county", "tract"]
        whole = with_total_rows(cells, levels, ["people", "births"])
        whole["rate"] = (whole.births / whole.people.clip(1) * 1000).round(2)
        found = adp.discover(whole)
        assert found.hierarchy == ("state", "county", "tract")
        assert [one.rows for one in found.equations] == [1, 3, 12]
        assert all(one.columns == ("people", "births") for one in found.equations)
        # that people are counted in the tracts no data tells: decide, and take both lines in
        assert set(tomllib.loads(found.toml())) == {"between_rows"}
        assert '# hierarchy = ["state", "county", "tract"]' in found.toml()

    def test_totals_that_a_word_marks_among_several_labels(self):
        """Rows go by all their labels, as the rows of a table file with several do."""
        from affinedp.tables import with_total_rows

        rng = np.random.default_rng(4)
        cells = pd.DataFrame(
            [(s, c) for s in "ABCDEF" for c in "wxyz"], columns=["state", "county"]
        )
        cells["people"], cells["births"] = rng.integers(0, 5000, (2, len(cells)))
        whole = with_total_rows(cells, ["state", "county"], ["people", "births"])
        whole = whole.dropna(subset="state").fillna("total").reset_index(drop=True)
        found = adp.discover(whole)
        assert dict(found.row_totals) == {
            f"{state} / total": tuple(f"{state} / {county}" for county in "wxyz")
            for state in "ABCDEF"
        }
        found = adp.discover(whole.assign(rate=rng.random(len(whole)).round(3)))
        assert found.row_totals == ()  # rates do not add up

    def test_a_wrong_total_is_named(self):
        from affinedp.tables import with_total_rows

        rng = np.random.default_rng(2)
        cells = pd.DataFrame(
            [(f"s{s}", f"c{s}.{c}") for s in range(40) for c in range(4)],
            columns=["state", "county"],
        )
        cells["people"] = rng.integers(0, 5000, len(cells))
        whole = with_total_rows(cells, ["state", "county"], ["people"])
        whole.loc[7, "people"] += 3
        found = adp.discover(whole)
        one = next(one for one in found.equations if one.rows == 40)
        assert (one.kind, one.rows_that_hold, one.misses[0][1]) == ("mostly", 39, 3.0)

    def test_subtotals(self):
        parts = [[312, 95], [58, 11, 40], [7, 206, 33, 19]]
        rows, names = [], []
        for i, group in enumerate(parts):
            rows += [*group, sum(group)]
            names += [*(f"part {i}.{k}" for k in range(len(group))), f"subtotal {i}"]
        rows.append(sum(map(sum, parts)))
        found = adp.discover(pd.DataFrame({"n": rows}, index=[*names, "all"]))
        assert dict(found.row_totals)["all"] == ("subtotal 0", "subtotal 1", "subtotal 2")
        assert dict(found.row_totals)["subtotal 0"] == ("part 0.0", "part 0.1")

    def test_a_wrong_change_is_named(self):
        level = np.random.default_rng(7).integers(0, 10_000, 150)
        change = np.concatenate([[7], np.diff(level)])
        change[70] += 3
        (one,) = adp.discover({"level": level, "change": change}).equations
        assert (one.rows_that_hold, one.misses) == (148, (("row 70 (counting from 0)", -3.0),))


class TestPowerFlows:
    @pytest.fixture(scope="class")
    @classmethod
    def power(cls):
        """AC power flows of nine buses under random loads, as a solver leaves them."""
        networks = pytest.importorskip("pandapower.networks")
        pandapower = pytest.importorskip("pandapower")
        net = networks.case9()
        rng = np.random.default_rng(0)
        loads, made = net.load.p_mw.to_numpy(copy=True), net.gen.p_mw.to_numpy(copy=True)
        rows = []
        for _ in range(120):
            net.load["p_mw"] = loads * rng.uniform(0.6, 1.3, len(loads))
            net.gen["p_mw"] = made * rng.uniform(0.7, 1.1, len(made))
            pandapower.runpp(net)
            row = {}
            for i, line in net.res_line.iterrows():
                row |= {f"from{i}": line.p_from_mw, f"to{i}": line.p_to_mw, f"loss{i}": line.pl_mw}
            rows.append(row | {f"bus{i}": p for i, p in net.res_bus.p_mw.items()})
        return net, pd.DataFrame(rows)

    def test_power_flows(self, power):
        """Nine losses and nine node balances, without a word about the network."""
        net, table = power
        found = adp.discover(table, between_rows=False)
        mine = [
            [float(one.coefficients.get(name, 0)) for name in table.columns]
            for one in found.equations
        ]
        laws = []
        for i in net.line.index:
            laws.append({f"from{i}": 1, f"to{i}": 1, f"loss{i}": -1})
        for bus in net.bus.index:
            law = {f"bus{bus}": 1}
            law |= {f"from{i}": 1 for i in net.line.index if net.line.from_bus[i] == bus}
            law |= {f"to{i}": 1 for i in net.line.index if net.line.to_bus[i] == bus}
            laws.append(law)
        # lines without resistance lose nothing, and some buses inject nothing
        laws += [{name: 1} for name in table.columns if table[name].abs().max() < 1e-9]
        theirs = [[float(law.get(name, 0)) for name in table.columns] for law in laws]
        assert rank(theirs) == rank([*mine, *theirs]) == 9 + 9 + 3 + 3
        assert rank(mine) == len(found.equations) == 9 + 9 + 3
        assert max(one.largest_miss for one in found.equations) < 1e-6


class TestNoEquations:
    @pytest.mark.parametrize("kind", range(8))
    def test_no_false_alarm_in_200_random_tables(self, kind):
        for seed in range(kind, 200, 8):
            found = adp.discover(tables.random_table(seed))
            assert found.equations == (), (seed, texts(found))

    def test_it_says_so(self):
        found = adp.discover(np.random.default_rng(0).normal(size=(50, 4)))
        assert "No linear equation was found in 50 rows." in str(found)
        assert tomllib.loads(found.toml()) == {}


class TestHostile:
    @pytest.mark.parametrize(
        "table",
        [
            {"a": [None, None], "b": [None, None]},
            {"a": [1], "b": [2], "c": [3]},
            {"a": ["x", "y"], "b": ["1", "z"]},
            {"a": [math.inf, -math.inf, math.nan], "b": [1, 2, 3]},
            {"a": [0, 0, 0], "b": [0.0, 0.0, 0.0]},
            {"a": [1e300, 1e-300, -1e300], "b": [5e-324, 1.0, 1e308]},
            {"a": [2**80, 2**81, 3], "b": [2**63, -(2**63), 1]},
            {"a": [Decimal("1e-200"), Decimal(7)], "b": [Fraction(1, 3), None]},
            {"a": [True, False, True], "b": [None, "", "n/a"]},
            {"`": [1, 2, 3], "a = b": [1, 2, 4], "\n": [9, 8, 7], "=": [1, 1, 2]},
        ],
    )
    def test_any_table_gets_an_answer(self, table):
        found = adp.discover(table)
        str(found)
        tomllib.loads(found.toml())
        json.dumps(found.to_dict())
        found._repr_html_()

    def test_names_with_anything_in_them(self):
        a, b = np.random.default_rng(1).integers(0, 999, (2, 40))
        table = {"a `b`": a, "b = c": b, 'say "x"\n': a + b}
        (one,) = adp.discover(table).equations
        read = adp.AffineManifold.from_equations([one.text])
        assert set(read.names) == set(table)
        assert tomllib.loads(adp.discover(table).toml())["equations"] == [one.text]

    def test_integers_beyond_doubles(self):
        rng = np.random.default_rng(5)
        a = [2**70 + int(x) for x in rng.integers(0, 10**9, 40)]
        b = [3**50 - int(x) for x in rng.integers(0, 10**9, 40)]
        found = adp.discover({"a": a, "b": b, "c": [x + y for x, y in zip(a, b)]})
        assert texts(found) == {"c = a + b"}
        off = [x + y + i % 2 for i, (x, y) in enumerate(zip(a, b))]
        (one,) = adp.discover({"a": a, "b": b, "c": off}, between_rows=False).equations
        assert (one.kind, one.rows_exactly, one.largest_miss) == ("rounded", 20, 1.0)

    def test_nearly_the_same_doubles(self):
        """Two sensors that differ in the last digits are copies up to those digits."""
        x = np.random.default_rng(3).normal(size=200)
        found = adp.discover({"x": x, "y": x * (1 + 1e-14), "z": x + 1e-3 * x**2})
        assert texts(found) in ({"y = x"}, {"x = y"})
        assert 0 < found.equations[0].largest_miss < 1e-12

    def test_ten_thousand_columns(self):
        rng = np.random.default_rng(4)
        table = rng.integers(0, 10**6, (60, 10_000))
        table[:, 9_000] = table[:, 3]
        table[:, 500] = table[:, 501] + table[:, 502]
        found = adp.discover(table, between_rows=False)
        assert texts(found) == {"x9001 = x4", "x501 = x502 + x503"}
        assert any("looked at in blocks" in note for note in found.notes)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"chance": 0}, "chance must lie"),
            ({"chance": True}, "chance must lie"),
            ({"epsilon": 0}, "must be positive"),
            ({"epsilon": "1"}, "must be a number"),
            ({"delta": 2}, "in \\[0, 1\\)"),
            ({"mu": -1}, "must be positive"),
            ({"law": "normal"}, "law must be"),
            ({"law": "gaussian"}, "needs δ > 0"),
            ({"law": "laplace", "delta": 0.1}, "leave delta out"),
            ({"seed": -1}, "seed must be"),
            ({"lags": (0,)}, "a lag must be"),
            ({"by": "x"}, "must be a list"),
            ({"by": ["x"]}, "no label column"),
            ({"order": "x"}, "no such column"),
            ({"given": "a = b"}, "must be a list"),
            ({"given": ["a ="]}, "empty"),
            ({"design": 3}, "must be a Mechanism"),
            ({"table": "data.csv"}, "not its path"),
        ],
    )
    def test_bad_arguments(self, options, words):
        with pytest.raises(adp.AffineDPError, match=words):
            adp.discover(**({"table": {"a": [1, 2, 3], "b": [2, 3, 5]}} | options))


class TestWhatIsSaid:
    @pytest.fixture
    def table(self):
        a, b, c = np.random.default_rng(9).integers(0, 999, (3, 60))
        return {"a": a, "b": b, "c": c, "ab": a + b, "abc": a + b + c, "same": c}

    def test_what_is_given_is_not_told_again(self, table):
        found = adp.discover(table, given=["ab = a + b", "same = c"])
        assert texts(found) == {"abc = c + ab"} or texts(found) == {"abc = ab + same"}

    def test_given_equations_that_do_not_hold(self, table):
        found = adp.discover(table, given=["a = b", "x = y"])
        assert any("a given equation about a, b holds exactly in" in note for note in found.notes)
        assert any("'x', which is no column" in note for note in found.notes)

    def test_cost_depends_on_what_is_given(self, table):
        """Independent noise for the given equations loses less to one more of them."""
        alone = adp.discover(table, delta=1e-6, between_rows=False)
        more = adp.discover(table, delta=1e-6, given=["ab = a + b"], between_rows=False)
        cost = {one.text: one.cost for one in alone.equations}["abc = c + ab"]
        assert {one.text: one.cost for one in more.equations}["abc = c + ab"] < cost
        assert cost == pytest.approx(1.4547, abs=1e-4)

    def test_conversions_cost_more(self):
        eur = np.random.default_rng(1).integers(100, 99_999, 50)
        found = adp.discover({"eur": eur, "cent": 100 * eur})
        assert found.equations[0].cost == pytest.approx(101.0)
        apart = adp.discover({"eur": eur, "cent": 100 * eur}, mu={"eur": 1.0, "cent": 100.0})
        assert apart.equations[0].cost == pytest.approx(2.0)

    def test_sorted_by_cost(self, table):
        table["cents"] = 100 * table["a"]
        costs = [one.cost for one in adp.discover(table).equations]
        assert costs == sorted(costs, reverse=True)

    def test_the_same_seed_says_the_same(self, table):
        assert adp.discover(table, seed=3) == adp.discover(table, seed=3)
        assert texts(adp.discover(table, seed=1)) == texts(adp.discover(table, seed=2))

    def test_it_is_private(self, table):
        found = adp.discover(table)
        for told in (str(found), found.toml(), found._repr_html_(), found.to_dict()["private"]):
            assert "private data" in told

    def test_polars(self, table):
        polars = pytest.importorskip("polars")
        assert texts(adp.discover(polars.DataFrame(table))) == texts(adp.discover(table))


def test_a_design_about_other_columns_is_refused():
    design = adp.design_laplace(adp.AffineManifold.from_equations(["a + b = c"]), epsilon=1.0)
    with pytest.raises(
        adp.AffineDPError, match="does not fit this table: it is about 'a', 'b', 'c'"
    ):
        adp.discover({"x": [1, 2, 3], "y": [4, 5, 6]}, design=design)
