"""A whole loop on one machine: ``affinedp control trial``, and a broker for trials."""

import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from affinedp.cli.app import app
from affinedp.cli.control import design_loop
from affinedp.control.loop_file import read_loop
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import Connection
from brokers import PATIENCE, Command, free_port, private_broker, processes_about, until

pytest.importorskip("paho.mqtt.client")
pytest.importorskip("amqtt")

LOOP = """
horizon = 12
[plant]
A = [[1, 0.1], [0, 1]]
B = [[0.005], [0.1]]
C = [[1, 0]]
x0 = [-20, 0]
[controller]
feedback = [[3.4240, 4.3095]]
observer = [[0.8266], [0.6973]]
xhat0 = [0, 0]
[reference]
constant = [1, 0]
[privacy]
epsilon = 1.0
delta = 0.01
"""


LIMITS = """
[sensors]
resolution = 0.25
range = [-60, 60]
start = [[-30, -1], [30, 1]]
inputs = [-5, 5]
"""


@pytest.fixture
def loop(tmp_path):
    (tmp_path / "loop.toml").write_text(LOOP)
    return tmp_path / "loop.toml"


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """The file of the noise that LOOP asks for."""
    home = tmp_path_factory.mktemp("noise")
    (home / "loop.toml").write_text(LOOP)
    design_loop(read_loop(home / "loop.toml")).save(home / "noise.json")
    return home / "noise.json"


def steps(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_trial(loop, tmp_path, named):
    home = tmp_path / "loop-trial"
    if named:
        loop.write_text(LOOP + LIMITS)
    with private_broker(tmp_path / "public", "mosquitto" if named else "embedded") as public:
        words = ["--broker", public.address] if named else []
        with Command(tmp_path, "control", "trial", loop, *words) as run:
            assert run.wait() == 0, run.said
    assert "plant: all steps, 12 of 12" in run.said
    assert "noise on 1 output over 12 steps, one draw for all; affinedp report " in run.said
    assert home.stat().st_mode & 0o777 == 0o700
    driven = steps(home / "plant.jsonl")
    assert len(driven) == 12
    assert (max(abs(step["u"][0]) for step in driven) == 5.0) == named
    read = [step["y"][0] % 0.25 for step in driven]
    assert (set(read) == {0.0}) == named, "the plant, too, reads in steps"
    if named:
        assert Mechanism.load(home / "noise.json").design.sent.resolution == (0.25,)
    assert run.said.count("inputs are clipped to [sensors] inputs") == named
    seen = steps(home / "seen.jsonl")
    assert {"cloud/y", "cloud/u"} <= {message["topic"] for message in seen}
    assert "plant/y" not in {message["topic"] for message in seen}, "the truth stays at its broker"
    with pytest.raises(AffineDPError, match="a second drive needs a second draw"):
        CliRunner().invoke(app, ["control", "trial", str(loop)], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[[1, 0.1], [0, 1]]", "[[0.5, 0.1], [0, 1]]"), "another plant"),
        (("C = [[1, 0]]", "C = [[2, 0]]"), "another plant"),
        (("epsilon = 1.0", "epsilon = 0.5"), "asks for ε = 0.5"),
        (("delta = 0.01", 'delta = 0.01\nadjacency = "manifold"'), "about manifold neighbours"),
    ],
)
def test_noise_of_another_loop(loop, noise, change, words):
    loop.write_text(LOOP.replace(*change))
    command = ["control", "trial", str(loop), "--mechanism", str(noise)]
    with pytest.raises(AffineDPError, match=words):
        CliRunner().invoke(app, command, catch_exceptions=False)


@pytest.mark.slow
def test_noise_of_the_same_loop_is_taken(loop):
    text = LOOP.replace("[[1, 0.1], [0, 1]]", "[[0.9, 0.1], [0, 0.8]]").replace(
        "x0", "E = [[1], [0]]\nx0"
    )
    for kind in ("time-local", "initial", "forward", "input"):
        loop.write_text(text + f'adjacency = "{kind}"\n')
        read = read_loop(loop)
        read.check_noise(design_loop(read))
    loop.write_text(text.replace("E = [[1], [0]]", "E = [[1], [1]]") + 'adjacency = "input"\n')
    with pytest.raises(AffineDPError, match="another plant"):
        read_loop(loop).check_noise(design_loop(read))


@pytest.mark.slow
def test_nobody_outlives_a_killed_trial(loop, tmp_path):
    """Gateway, cloud, eavesdropper, plant and brokers end by themselves."""
    plant = tmp_path / "loop-trial" / "plant.jsonl"
    with Command(tmp_path, "control", "trial", loop, "--period", 600) as run:
        until(lambda: plant.exists() and plant.stat().st_size > 0)
        assert len(processes_about(tmp_path)) == 5
        run.kill()
    until(lambda: not processes_about(tmp_path))
    for name in ("gateway", "cloud", "plant"):
        assert "stopped" in (plant.parent / f"{name}.log").read_text()
    assert not (plant.parent / "secret.db-wal").exists(), "the state was closed in order"


def test_a_trial_needs_a_start(loop):
    loop.write_text(LOOP.replace("x0 = [-20, 0]\n", ""))
    with pytest.raises(AffineDPError, match="x0 is missing"):
        CliRunner().invoke(app, ["control", "trial", str(loop)], catch_exceptions=False)


@pytest.mark.parametrize("start", ["[[-19.5, -1], [30, 1]]", "[[-30, -1], [30, -0.5]]"])
def test_a_trial_starts_within_the_limits_of_its_start(loop, start):
    loop.write_text(LOOP + LIMITS.replace("[[-30, -1], [30, 1]]", start))
    with pytest.raises(AffineDPError, match=r"x0: x\d starts outside of \[sensors\] start"):
        CliRunner().invoke(app, ["control", "trial", str(loop)], catch_exceptions=False)
    assert list(loop.parent.iterdir()) == [loop]
    loop.write_text(LOOP + LIMITS.replace("[[-30, -1], [30, 1]]", "[[-20, 0], [-20, 0]]"))
    read_loop(loop)


def test_a_mechanism_that_is_none_is_refused_before_anything_starts(loop, tmp_path):
    (tmp_path / "noise.json").write_text("{}")
    words = ["trial", loop, "--mechanism", tmp_path / "noise.json"]
    with pytest.raises(AffineDPError, match="not a file of the kind"):
        CliRunner().invoke(app, ["control", *map(str, words)], catch_exceptions=False)
    assert not list((tmp_path / "loop-trial").glob("*.log"))


@pytest.mark.slow
def test_a_process_that_ends_early(loop, tmp_path, noise):
    def run(*words):
        CliRunner().invoke(app, ["control", *map(str, words)], catch_exceptions=False)

    loop.write_text(LOOP + "[sensors]\nfresh_noise = [0.1, 0.2]\n")
    with pytest.raises(AffineDPError, match="the gateway ended: .*fresh_noise"):
        run("trial", loop, "--mechanism", noise)
    with pytest.raises(AffineDPError, match="fresh_noise has shape"):  # by the design, at once
        run("trial", loop, "--folder", tmp_path / "other")


def test_broker(tmp_path):
    port = free_port()
    with Command(tmp_path, "control", "broker", "--port", port, "--folder", tmp_path) as broker:
        broker.ready()
        with Connection(Broker("127.0.0.1", port), ["t"]) as connection:
            connection.publish("t", b"1")
            assert connection.receive(PATIENCE).payload == b"1"
        assert broker.end(signal.SIGINT) == 0, broker.said


HEATING = """
horizon = 96
[plant]
A = [[0.84008, 0.13687], [0.00855, 0.98978]]
B = [[0.4588], [0.0022]]
C = [[1, 0]]
x0 = [4, 2]
[controller]
feedback = [[0.7655, 0.2649]]
observer = [[0.187], [0.1842]]
[reference]
constant = [20, 18.5]
[privacy]
epsilon = 1.0
delta = 1e-3
mu = [0.5, 0.1]
"""


@pytest.mark.slow
def test_a_plant_whose_state_fades_is_told_once_what_to_do(tmp_path):
    loop = tmp_path / "heating.toml"
    loop.write_text(HEATING)
    with Command(tmp_path, "control", "trial", loop) as run:
        assert run.wait() == 2, run.said
    assert run.said.count("the noise is uneven over time") == 1
    assert "use adjacency='forward'" in run.said
    assert "affinedp: the gateway ended: the noise of output" in run.said
    scale = run.said.split("give [sensors] fresh_noise (a scale, here at least ")[1].split(")")[0]
    loop.write_text(f"{HEATING}[sensors]\nfresh_noise = {scale}\n")
    with Command(tmp_path, "control", "trial", loop) as run:
        assert run.wait() == 0, run.said
    assert "gateway: all steps, 96 of 96" in run.said


@pytest.mark.slow
def test_fresh_noise_keeps_the_horizon_of_the_file(tmp_path):
    loop = tmp_path / "heating.toml"
    loop.write_text(HEATING.replace("horizon = 96", "horizon = 6") + 'adjacency = "forward"\n')
    with Command(tmp_path, "control", "trial", loop) as run:
        assert run.wait() == 0, run.said
    assert "gateway: all steps, 6 of 6; dropped: nothing" in run.said
    assert "at step 0 of 6" in (tmp_path / "heating-trial/gateway.log").read_text()
    assert "tracking: x1 was off by" in run.said
    assert "learned: a jump of x1 at best within ±" in run.said
