"""Files in the wrong place, odd spellings of numbers, missing columns: what a person is told."""

import json
import shlex

import pytest
from typer.main import get_command

import affinedp as adp
from affinedp.cli import app as cli
from affinedp.cli import exits
from affinedp.cli.file_kinds import expect, kind_of

pytest.importorskip("pandas")

PROBLEM = """
equations = ["women + men = all"]
[privacy]
mu = 1.0
epsilon = 1.0
delta = 0.01
[noise]
law = "gaussian"
scale = 2.0
"""
TABLE = """
[totals]
all = ["women", "men"]
[privacy]
mu = 1
epsilon = 1.0
"""
LOOP = """
horizon = 5
[plant]
A = [[0.9]]
B = [[1.0]]
C = [[1.0]]
x0 = [1.0]
[controller]
feedback = [[0.1]]
observer = [[0.1]]
[reference]
constant = [0.0]
[privacy]
epsilon = 1.0
delta = 0.01
"""
NETWORK = 'rounds = 3\nlinks = [["a", "b"]]\n[noise]\nlaw = "laplace"\nepsilon = 1.0\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One file of each kind."""
    home = tmp_path_factory.mktemp("files")
    texts = {"problem.toml": PROBLEM, "table.toml": TABLE, "loop.toml": LOOP, "net.toml": NETWORK}
    for name, text in texts.items():
        (home / name).write_text(text, encoding="utf-8")
    (home / "data.csv").write_text("women,men,all\n10,20,30\n11,22,33\n")
    M = adp.AffineManifold.from_equations(["women + men = all"])
    adp.design_gaussian(M, epsilon=1, delta=0.01).save(home / "mechanism.json")
    adp.Ledger(home / "budget.db", epsilon=1, protects="one person").close()
    (home / "empty.toml").write_text("")
    (home / "bytes.toml").write_bytes(bytes(range(128, 256)))
    (home / "bytes.json").write_bytes(bytes(range(128, 256)))
    (home / "bytes.csv").write_bytes(bytes(range(128, 256)))
    (home / "list.json").write_text("[1, 2]")
    return home


@pytest.fixture(autouse=True)
def in_that_folder(run, folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_kinds_of_files(folder):
    found = {path.name: kind_of(path) for path in folder.iterdir() if path.is_file()}
    assert found == {
        "problem.toml": "problem", "table.toml": "table description", "loop.toml": "loop",
        "net.toml": "network", "data.csv": "data", "mechanism.json": "mechanism",
        "budget.db": "ledger", "empty.toml": "", "bytes.toml": "", "bytes.json": "",
        "bytes.csv": "data", "list.json": "",
    }  # fmt: skip
    for name, kind in found.items():
        if kind:
            assert expect(folder / name, kind) == kind


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("release problem.toml data.csv -o o.csv", "problem.toml is a problem, not a mechanism"),
        ("release mechanism.json problem.toml -o o.csv", "problem.toml is a problem, not data"),
        ("release data.csv data.csv -o o.csv", "data.csv is data, not a mechanism"),
        ("design table.toml -o m.json", "affinedp tables preview table.toml DATA"),
        ("design mechanism.json -o m.json", "affinedp report mechanism.json"),
        ("verify table.toml", "table.toml is a table description, not a problem"),
        ("verify loop.toml", "affinedp control design loop.toml"),
        ("report problem.toml", "problem.toml is a problem, not a mechanism"),
        ("report budget.db", "affinedp ledger show budget.db"),
        ("audit problem.toml", "not a mechanism"),
        ("discover problem.toml", "problem.toml is a problem, not data"),
        ("control design problem.toml -o n.json", "problem.toml is a problem, not a loop"),
        ("control cloud net.toml", "net.toml is a network, not a loop"),
        ("control plant problem.toml", "not a loop"),
        ("control sensor loop.toml", "loop.toml is a loop, not data"),
        (
            "control gateway loop.toml --mechanism mechanism.json --state s.db --resolution 1",
            "mechanism.json is a mechanism, not noise of a loop",
        ),
        ("consensus launch loop.toml", "loop.toml is a loop, not a network"),
        ("consensus keys problem.toml --folder k", "not a network"),
        ("tables preview problem.toml data.csv", "not a table description"),
        ("tables guess problem.toml --index a --epsilon 1", "problem.toml is a problem, not data"),
    ],
)
def test_a_file_in_the_wrong_place_gets_the_right_command(run, words, said):
    code, out, err = run(words)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert said in err


@pytest.mark.parametrize(
    "command",
    [
        "verify {}.toml", "design {}.toml --preview", "report {}.json", "audit {}.json",
        "release {}.json data.csv -o o.csv", "release mechanism.json {}.csv -o o.csv",
        "discover {}.csv", "control design {}.toml -o n.json", "control sensor {}.csv",
        "consensus launch {}.toml", "tables preview {}.toml data.csv", "ledger show {}.toml",
        "ledger check {}.toml", "ledger history nowhere.db",
    ],
)  # fmt: skip
def test_missing_binary_and_empty_files_are_named(run, command, folder):
    for name in ("nowhere", "bytes"):
        code, out, err = run(command.format(name))
        if command.startswith("ledger check") and name == "bytes":
            assert code == exits.NOT_KEPT  # what it says about a ledger is its answer
            continue
        assert (code, out) == (exits.BAD_INPUT, ""), err
        assert name in err or "{}" not in command
        assert len(err.splitlines()) == 1
    code, _, err = run(command.format(folder / "empty").replace(".json", ".toml"))
    assert code in (exits.BAD_INPUT, exits.NOT_KEPT)
    assert "Traceback" not in err


def test_a_folder_is_no_file(run, folder):
    (folder / "sub").mkdir(exist_ok=True)
    for words in ("verify sub", "report sub", "release sub data.csv -o o.csv", "discover sub"):
        code, _, err = run(words)
        assert code == exits.BAD_INPUT
        assert "sub is a folder" in err
    (folder / "many").mkdir(exist_ok=True)
    (folder / "many" / "part-0.parquet").write_bytes(b"")
    for words in ("release mechanism.json many -o o.csv", "release many data.csv -o o.csv"):
        code, _, err = run(words)
        assert code == exits.BAD_INPUT
        assert "dask.dataframe.read_parquet" in err


DATA = {
    "semicolons": ("women;men;all\n1;2;3\n", "line 1: its columns are separated by semicolons"),
    "decimal commas": ("women;men;all\n1,5;2,5;4\n", "separated by semicolons"),
    "tabs": ("women\tmen\tall\n1\t2\t3\n", "separated by tabs"),
    "thousands": (
        'women,men,all\n1,2,3\n"1,234",20,"1,254"\n',
        "column 'women', row 1 (counting from 0) has a separator of thousands",
    ),
    "spaces": ("women,men,all\n1 234,20,1254\n", "column 'women', row 0"),
    "comma decimals": ('women,men,all\n"1,5",2,3\n', "write 1234.5"),
    "text": ("women,men,all\n1,two,3\n", "column 'men'"),
    "a column missing": ("women,all\n1,3\n", "'men'"),
    "empty": ("", "empty"),
    "only names": ("women,men,all\n", ""),
    "huge": ("women,men,all\n1e300,0,1e300\n", ""),
    "missing value": ("women,men,all\n1,,3\n", "'men'"),
    "infinite": ("women,men,all\n1,inf,3\n", "'men'"),
}


@pytest.mark.parametrize("name", list(DATA))
@pytest.mark.parametrize("mechanism", ["mechanism.json", "table.toml"])
def test_odd_data_is_refused_by_name_and_place(run, folder, name, mechanism):
    text, said = DATA[name]
    (folder / "odd.csv").write_text(text)
    code, out, err = run(f"release {mechanism} odd.csv -o odd-out.csv --force")
    if name == "only names" and code == 0:
        return  # a table without rows is published as it is
    assert (code, out) == (exits.BAD_INPUT, ""), err
    assert "odd.csv" in err
    assert said in err
    assert "did you mean" not in err
    assert "1,234" not in err or "write 1234.5" in err
    assert not (folder / "odd-out.csv").exists()


def test_labels_with_commas_are_labels(run, folder):
    (folder / "towns.csv").write_text('town,women,men,all\n"Bonn, 1",1,2,3\n"2,000 Oaks",1,2,3\n')
    (folder / "towns.toml").write_text(f'index = "town"\n{TABLE}')
    assert run("release towns.toml towns.csv -o towns-out.csv --force")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "design problem.toml -o m.json --delta 2",
            "delta must be at least 0 and below 1, not 2.0",
        ),
        ("design problem.toml -o m.json --epsilon -1", "epsilon must be at least 0"),
        ("design problem.toml -o m.json --epsilon inf", "--epsilon is inf"),
        ("verify problem.toml --delta 2", "--delta must lie"),
        ("control design loop.toml -o n.json --delta 2", "less than 1"),
        ("design problem.toml", "-o FILE"),
        ("design problem.toml --preview -o m.json", "leave out -o"),
        ("design problem.toml -o m.json --method best", "algorithm1"),
        ("design problem.toml -o m.json --law cauchy", "knorm"),
        ("discover data.csv --law cauchy", "laplace"),
        ("consensus agent --id a --state s.db", "network"),
        ("release mechanism.json data.csv -o no/o.csv", "no such folder"),
        ("release mechanism.json data.csv -o o.csv --sampler numpy", "'bulk' or 'opendp'"),
        ("release mechanism.json data.csv -o o.csv --rows each", "different"),
        ("release table.toml data.csv -o o.csv --rows same", "[privacy] rows in table.toml"),
        ("verify problm.toml", "did you mean 'problem.toml'?"),
    ],
)
def test_options_out_of_range_are_named(run, words, said):
    code, out, err = run(words)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert said in " ".join(err.split())


# Looking first, and not overwriting.


@pytest.mark.slow
def test_preview_of_a_problem_and_of_a_table(run, folder):
    before = {path.name for path in folder.iterdir()}
    code, out, _ = run("design problem.toml --preview")
    assert code == 0
    assert out.startswith("Keeps ε = 1 at δ = 0.01, as was asked")
    assert out.rstrip().endswith("nothing was written")
    for words in ("tables preview table.toml", "tables preview table.toml data.csv"):
        code, out, err = run(words)
        assert code == 0, err
        assert out.startswith("asked for    ε = 1 at δ = 0: kept")
        assert "total columns" in out
        answer = json.loads(run(f"{words} --json")[1])
        assert next(iter(answer)) == "asked"
        assert answer["levels"]
    assert {path.name for path in folder.iterdir()} == before


def test_guess_names_labels_and_unnamed_totals(run, folder):
    (folder / "places.csv").write_text("region,town,count\n,,3\nn,,3\nn,a,1\nn,b,2\n")
    code, out, err = run("tables guess places.csv --index region --epsilon 1")
    assert (code, out) == (exits.BAD_INPUT, "")
    assert "--index region --index town" in err
    words = "tables guess places.csv --index region --index town --epsilon 1"
    assert 'hierarchy = ["region", "town"]' in run(words)[1]
    people = "town,men,women,people\na,1,2,3\nb,2,2,4\ntotal,3,4,7\n"
    (folder / "people.csv").write_text(people)
    words = "tables guess people.csv --index town --epsilon 1"
    code, out, _ = run(words)
    assert code == 0
    assert '# "people" = ["men", "women"]' in out
    assert run(f"{words} -o guess.toml")[0] == 0
    assert (folder / "guess.toml").read_text() == out
    assert run(f"{words} -o guess.toml")[0] == exits.BAD_INPUT


def test_guess_takes_rows_with_several_labels(run, folder):
    text = "region,age,f,m,All\nN,0-17,1,2,3\nN,18+,2,2,4\nS,0-17,1,1,2\nAll,,4,5,9\n"
    (folder / "levels.csv").write_text(text)
    words = "tables guess levels.csv --index region --index age --epsilon 1 -o levels.toml"
    assert run(words)[0] == 0
    code, _, err = run("release levels.toml levels.csv -o oulevels.csv")
    assert code == 0, err
    header, *rows = (folder / "oulevels.csv").read_text().splitlines()
    assert header.startswith("region,age,f,f_lower,f_upper,m,")
    assert [row.split(",")[:2] for row in rows] == [r.split(",")[:2] for r in text.split()[1:]]


def test_guess_says_what_is_wrong_with_a_header_or_a_cell(run, folder):
    (folder / "t.csv").write_text("age,f,m\n0-17,1,-\n18+,2,2\n")
    err = run("tables guess t.csv --index age --epsilon 1")[2]
    assert "the column 'm' holds texts" in err
    assert "write a number everywhere" in err
    (folder / "bare.csv").write_text(",f,m\n0-17,1,1\n18+,2,2\n")
    assert "column 1 has no name" in run("tables guess bare.csv --index age --epsilon 1")[2]
    (folder / "two.csv").write_text("year,2025,2025\nsex,f,m\nN,1,2\n")
    assert "a header of several rows" in run("tables guess two.csv --index year --epsilon 1")[2]


def test_a_total_of_unknown_name_is_commented_on_and_not_released(run, folder):
    text = "place,f,m,ZS\nNord,123,91,214\nSüd,304,287,591\nZs,427,378,805\n"
    (folder / "t.csv").write_text(text, encoding="utf-8")
    assert run("tables guess t.csv --index place --epsilon 1 -o zs.toml")[0] == 0
    guessed = (folder / "zs.toml").read_text(encoding="utf-8")
    assert '# "ZS" = ["f", "m"]' in guessed
    assert "If a row is one person" in guessed
    assert '# "Zs" = ["Nord", "Süd"]' in guessed
    code, _, err = run("release zs.toml t.csv -o out.csv")
    assert code == exits.BAD_INPUT
    assert "the column 'ZS' is the sum of the columns 'f' and 'm'" in err
    assert not (folder / "out.csv").exists()


def test_a_preview_that_needs_rows_says_so(run, folder):
    (folder / "years.toml").write_text(
        'index = "year"\n[row_totals]\nboth = ["1", "2"]\n[privacy]\nmu = 1\nepsilon = 1.0\n'
    )
    code, _, err = run("tables preview years.toml")
    assert code == exits.BAD_INPUT
    assert "affinedp tables preview years.toml DATA" in err


def test_what_was_published_is_not_overwritten(run, folder):
    words = "release mechanism.json data.csv -o once.csv"
    code, out, err = run(words)
    assert code == 0, err
    assert "no ledger was given" in err
    assert "ledger" not in out
    before = (folder / "once.csv").read_bytes()
    code, _, err = run(words)
    assert code == exits.BAD_INPUT
    assert "--force" in err
    assert (folder / "once.csv").read_bytes() == before
    answer = json.loads(run(f"{words} --force --json")[1])
    assert answer["rows"] == 2
    assert answer["promise_of_each_row"]["asked"]["holds"] is True
    assert (folder / "once.csv").read_bytes() != before


# Every command.


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(get_command(cli.app)))


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_every_command_has_json_and_examples_that_parse(path):
    command = COMMANDS[path]
    options = {name for parameter in command.params for name in parameter.opts}
    assert "--json" in options or path == ("studio",)
    lines = command.epilog.split("\n\n")
    assert lines[0] in ("Example:", "Examples:")
    for line in lines[1:]:
        words = shlex.split(line.partition(" && ")[0].partition(" > ")[0])
        assert words[0] == "affinedp"
        assert tuple(words[1 : 1 + len(path)]) == path or path[-1] == "eavesdrop"  # in two groups
        command.make_context(path[-1], words[1 + len(path) :])


def test_reports_of_all_kinds_of_noise(run, folder):
    assert run("control design loop.toml -o noise.json")[0] == 0
    answer = json.loads(run("control design loop.toml -o noise.json --json")[1])
    assert answer["asked"] == {"epsilon": 1.0, "delta": 0.01, "holds": True}
    from affinedp.designs.tree import design_tree

    design_tree([-1, 0, 0], epsilon=1, delta=0.01).save(folder / "tree.json")
    for name in ("mechanism.json", "noise.json", "tree.json"):
        code, out, err = run(f"report {name}")
        assert code == 0, err
        assert out.startswith("Keeps ε = 1 at δ = 0.01, as was asked")
        answer = json.loads(run(f"report {name} --json")[1])
        assert next(iter(answer)) == "asked"
