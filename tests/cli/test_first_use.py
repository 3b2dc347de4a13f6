"""What newcomers type first: rates, plants that only send, networks and tables by hand."""

import json

import pytest
from typer.main import get_command

from affinedp.cli import app as cli
from affinedp.cli import exits
from affinedp.consensus.network_file import read_network
from affinedp.errors import AffineDPError

PLANT = """
horizon = 6
[plant]
A = [[0.9, 0.1], [0, 0.8]]
C = [[1, 0]]
x0 = [5, 1]
[privacy]
epsilon = 1.0
delta = 0.01
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(words, **files):
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit) as stop:
            exits.run(lambda: get_command(cli.app)(words.split(), standalone_mode=True))
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return call


def test_a_rate_of_a_private_base_is_refused_with_a_way_out(run):
    rate = 'equations = ["a + b = c", "rate = a / c"]\n[privacy]\nmu = 1.0\n'
    code, out, err = run("verify p.toml", p_toml=rate)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert err.startswith("affinedp: p.toml: division by an entry is not linear")
    assert "divide what is published" in err
    place, caret = err.splitlines()[1:3]
    assert place[caret.index("^")] == "c"


def test_a_plant_that_only_sends(run):
    code, out, err = run("control design p.toml -o n.json --json", p_toml=PLANT)
    assert code == 0, err
    answer = json.loads(out)
    assert next(iter(answer)) == "asked"
    # pure noise was chosen, but δ = 0.01 was asked for
    assert answer["asked"] == {"epsilon": 1.0, "delta": 0.01, "holds": True}
    assert "tracking" not in out


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("[controller]\nfeedback = [[0, 0]]\nobserver = [[0], [0]]\n", "[plant] B is missing"),
        ("[reference]\nconstant = [0, 0]\n", "[plant] B is missing"),
        ('cost = "tracking"\n', "needs a loop"),
    ],
)
def test_half_a_loop_is_refused(run, more, reason):
    code, out, err = run("control design p.toml -o n.json", p_toml=PLANT + more)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert reason in err


def test_inputs_without_a_controller_are_refused(run):
    steered = PLANT.replace("C =", "B = [[0], [1]]\nC =")
    code, _, err = run("control design p.toml -o n.json", p_toml=steered)
    assert code == exits.BAD_INPUT
    assert "[controller] is missing; a plant that only sends leaves B out" in err


def test_guess_names_labels_and_unnamed_totals(run):
    pytest.importorskip("pandas")
    places = "region,town,count\n,,3\nn,,3\nn,a,1\nn,b,2\n"
    code, out, err = run("tables guess d.csv --index region --epsilon 1", d_csv=places)
    assert (code, out) == (exits.BAD_INPUT, "")
    assert 'hierarchy = ["region", "town"]' in err
    people = "town,men,women,people\na,1,2,3\nb,2,2,4\ntotal,3,4,7\n"
    code, out, _ = run("tables guess d.csv --index town --epsilon 1", d_csv=people)
    assert code == 0
    assert '# "people" = ["men", "women"]' in out


def test_a_network_says_where_its_promise_goes(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text('links = [["a", "b"]]\n[privacy]\nepsilon = 1.0\n')
    with pytest.raises(AffineDPError, match=r"go into \[noise\]"):
        read_network(file)


def test_the_ring_of_the_readme():
    from pathlib import Path

    ring = read_network(Path(__file__).parents[2] / "examples" / "ring.toml")
    assert (len(ring.values), ring.rounds) == (10, 60)
