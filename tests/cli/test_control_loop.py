"""``affinedp control gateway|cloud|plant`` as processes: stationary noise, new runs, words."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from affinedp.budget.ledger import Ledger
from affinedp.cli.app import app
from affinedp.cli.control import design_loop, load_noise
from affinedp.control.loop_file import read_loop
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from brokers import Command, private_broker

ROOM = """
horizon = 40
[plant]
A = [[0.99]]
B = [[0.9]]
C = [[1]]
E = [[0.9]]
x0 = [5]
[controller]
feedback = [[0.3]]
observer = [[0.3]]
[reference]
constant = [0]
[privacy]
epsilon = 1.0
delta = 1e-4
adjacency = "input"
mu = 0.1
[mqtt]
wait = 0
linger = 20
"""


@pytest.fixture(scope="module")
def designed(tmp_path_factory):
    """A folder with the loop and its noise."""
    home = tmp_path_factory.mktemp("designed")
    path = home / "loop.toml"
    path.write_text(ROOM)
    result = CliRunner().invoke(app, ["control", "design", str(path), "-o", str(home / "m.json")])
    assert result.exit_code == 0, result.output
    return home


@pytest.fixture
def file(designed, tmp_path):
    shutil.copytree(designed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "loop.toml"


def seen(path, topic):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [json.loads(line["payload"]) for line in lines if line["topic"] == topic]


def test_the_file_says_which_noise_it_is(file, tmp_path):
    assert isinstance(load_noise(tmp_path / "m.json"), Mechanism)
    (tmp_path / "bad.json").write_text("[]")
    for name in ("bad.json", "absent.json"):
        with pytest.raises(AffineDPError):
            load_noise(tmp_path / name)


@pytest.mark.slow
def test_a_loop_with_stationary_noise_and_a_plant_that_is_started_anew(file, tmp_path):
    """The first run takes the draw, the second gets one of its own, the third no budget."""
    pytest.importorskip("paho.mqtt.client")
    with Ledger(tmp_path / "b.db", epsilon=1.5, delta=1e-4, protects="occupancy"):
        pass
    log = tmp_path / "seen.jsonl"
    with private_broker(tmp_path / "broker") as broker:
        at = ("--broker", broker.address)
        noise = ("--mechanism", tmp_path / "m.json", "--state", tmp_path / "s.db",
                 "--ledger", tmp_path / "b.db", "--resolution", 0.01,
                 "--new-run", "draw")  # fmt: skip
        with (
            Command(tmp_path, "control", "eavesdrop", *at, "--log", log) as spy,
            Command(tmp_path, "control", "cloud", file, *at) as cloud,
            Command(tmp_path, "control", "gateway", file, *noise, *at) as gateway,
        ):
            for process in (spy, cloud, gateway):
                process.ready()
            for run, code in (("monday", 0), ("tuesday", 0), ("wednesday", 5)):
                with Command(tmp_path, "control", "plant", file, *at, "--run", run) as plant:
                    assert plant.wait() == code, plant.said + gateway.said
            assert "no budget is left for a new run" in plant.said
            assert gateway.end() == 5, gateway.said
            assert "no budget is left for run wednesday" in gateway.said
            assert cloud.end() == 5, cloud.said
            spy.end()
    assert "Traceback" not in gateway.said + cloud.said + plant.said
    published = {}
    for message in seen(log, "cloud/y"):
        if "y" in message:
            key = message["run"], message["step"]
            assert published.setdefault(key, message["y"]) == message["y"]
    assert len(published) == 80
    with Ledger(tmp_path / "b.db") as ledger:
        assert len(ledger.history()) == 2
    assert (tmp_path / "s.db.tuesday").exists()
    assert not (tmp_path / "s.db.wednesday").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "Missing option '--resolution'"),
        (("--resolution", "fine"), "neither a number"),
        (("--resolution", "0.1", "--new-run", "draw"), "needs a --ledger"),
    ],
)
def test_options_of_a_gateway_that_do_not_fit(file, tmp_path, options, said):
    words = ["gateway", file, "--mechanism", tmp_path / "m.json", "--state", tmp_path / "s.db",
             "--broker", "localhost:9", *options]  # fmt: skip
    result = CliRunner().invoke(app, ["control", *(str(word) for word in words)])
    assert result.exit_code != 0
    assert said in " ".join((result.output + str(result.exception)).split())
    assert not (tmp_path / "s.db").exists()


LIMITS = "[sensors]\nrange = [-50, 50]\nstart = [[-5], [5]]\ninputs = [[0, 0], [0.3, 0.1]]\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("A = [[0.99]]", "A = [[0.98]]", "made for another plant"),
        ("epsilon = 1.0", "epsilon = 0.5", "asks for ε = 0.5"),
        ("horizon = 40", "horizon = 41", "horizon"),
        ("[mqtt]", "[sensors]\nevery = 0\n[mqtt]", "every"),
        ("[mqtt]", "[sensors]\nfresh_noise = [1, 2]\n[mqtt]", "fresh_noise"),
        ("wait = 0", "wait = -1", "[mqtt] wait must be at least 0"),
        ("[mqtt]", LIMITS.replace("50]", "10]") + "[mqtt]", "outside of the sensor's range"),
    ],
)
def test_files_that_do_not_fit_a_gateway(file, old, new, said):
    pytest.importorskip("paho.mqtt.client")
    file.write_text(ROOM.replace(old, new))
    state = file.with_name("s.db")
    words = ["gateway", file, "--mechanism", file.with_name("m.json"), "--state", state]
    with private_broker(file.parent / "broker") as broker:
        words += ["--resolution", 0.1, "--broker", broker.address]
        result = CliRunner().invoke(app, ["control", *map(str, words)])
    assert said in str(result.exception)
    assert not state.exists()


def test_a_range_without_limits_is_refused_when_noise_is_designed(file):
    file.write_text(ROOM + "[sensors]\nrange = [-50, 50]\n")
    with pytest.raises(AffineDPError, match=r"\[sensors\] range: .* Give reach="):
        design_loop(read_loop(file))
    file.write_text(ROOM + LIMITS)
    design_loop(read_loop(file))
    file.write_text(ROOM + LIMITS + "resolution = 20.0\n")
    with pytest.raises(AffineDPError, match=r"carries nothing useful.* Dither\("):
        design_loop(read_loop(file))
    file.write_text(ROOM + LIMITS.replace("[[-5], [5]]", "[[5], [-5]]"))
    with pytest.raises(AffineDPError, match=r"start: .* Write \[\[lows\], \[highs\]\]"):
        design_loop(read_loop(file))


@pytest.mark.parametrize("written", ["0.1", "[0.1]", '"0.1"', '"dither:6:0.1"'])
def test_steps_of_sensors_in_the_file(file, written):
    """As by the option, which comes first."""
    word = written.strip('[]"')
    wanted = design_loop(read_loop(file), resolution=word).design.sent
    file.write_text(f"{ROOM}[sensors]\nresolution = {written}\n")
    read = read_loop(file)
    assert design_loop(read).design.sent == wanted
    assert wanted is not None
    assert design_loop(read, resolution="exact").design.sent is None


def test_public_limits_keep_the_range(file):
    """|y| ≤ 5 + Σ 0.99^k · 0.9 · (0.3 + 0.1): inputs and private inputs, in this order."""
    file.write_text(ROOM + LIMITS)
    sensors = read_loop(file).sensors
    assert sensors["range"] == (-50, 50)
    low, high = sensors["reach"].outputs(read_loop(file).dynamics)
    top = [5 * 0.99**t + 0.36 * sum(0.99**k for k in range(t)) for t in range(40)]
    assert low[0] == pytest.approx(-5)
    assert high[0] == pytest.approx(max(top))
    assert read_loop(file).limits == (0.0, 0.3), "of the controller alone"
    more = LIMITS.replace("[0, 0], [0.3, 0.1]", "[0, 0, 0], [0.3, 0.1, 1]")
    file.write_text(ROOM + more + "B = [[0.9, 0.9, 0.5]]\n")  # a disturbance, too
    high = read_loop(file).sensors["reach"].outputs(read_loop(file).dynamics)[1]
    top = [5 * 0.99**t + 0.86 * sum(0.99**k for k in range(t)) for t in range(40)]
    assert high[0] == pytest.approx(max(top))
    assert read_loop(file).limits == (0.0, 0.3)
    file.write_text(ROOM + more + "B = [[0.5, 0.9, 0.9]]\n")
    assert read_loop(file).limits is None, "whose limits these are is not known"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("range = 7", "pair"),
        ("start = [[1], [2]]", "go together"),
        ("range = [0, 1]\nstart = [[1], [2]]", "go together"),
        (LIMITS[10:] + "D = [[1, 1]]", "D goes with B"),
        ("x = 1", "unknown key"),
    ],
)
def test_limits_that_are_none(file, text, said):
    file.write_text(f"{ROOM}[sensors]\n{text}\n")
    with pytest.raises(AffineDPError, match=said):
        read_loop(file)
