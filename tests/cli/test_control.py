"""``affinedp control …`` and the file that describes a loop."""

import json
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from affinedp.budget.ledger import Ledger
from affinedp.cli.app import app
from affinedp.control.loop_file import read_loop
from affinedp.errors import AffineDPError, install_command
from affinedp.mechanism import Mechanism
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import Connection
from brokers import PATIENCE, Command, Mosquitto, certificates, free_port, private_broker, until

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = """
horizon = 4
[plant]
A = [[1, 0.1], [0, 1]]
B = [[0.005], [0.1]]
C = [[1, 0]]
x0 = [-20, 0]
state_names = ["p", "v"]
[controller]
feedback = [[3.4, 4.3]]
observer = [[0.8], [0.7]]
[reference]
constant = [1, 0]
[privacy]
epsilon = 1.0
delta = 0.01
mu = {v = 0.5, p = 1}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "loop.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """The file of the noise that SMALL asks for."""
    home = tmp_path_factory.mktemp("noise")
    (home / "loop.toml").write_text(SMALL)
    assert "4 steps" in invoke("design", home / "loop.toml", "-o", home / "m.json")
    return home / "m.json"


def invoke(*words):
    """Run a command here; what it printed, or the refusal that ends it."""
    result = CliRunner().invoke(app, ["control", *(str(word) for word in words)])
    if isinstance(result.exception, AffineDPError):
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.output


# ---------------------------------------------------------------------- the loop file


def test_example_is_the_papers_vehicle():
    read = read_loop(EXAMPLES / "vehicle.toml")
    plant = read.loop.plant
    assert (read.horizon, plant.state_names) == (100, ("position", "velocity"))
    assert plant.A.tolist() == [[1, 0.1], [0, 1]]
    assert plant.B.ravel().tolist() == [0.1**2 / 2, 0.1] or plant.B.ravel().tolist() == [0.005, 0.1]
    assert read.loop.x0.tolist() == [-20, 0]
    t = np.arange(101)
    wanted = np.column_stack([np.tanh(t), 1 - np.abs(np.tanh(t - 9))])
    np.testing.assert_allclose(read.loop.references(100), wanted, rtol=0, atol=1e-15)
    control = pytest.importorskip("control")
    np.testing.assert_allclose(
        read.loop.feedback, control.dlqr(plant.A, plant.B, 20 * np.eye(2), 1)[0], atol=5e-5
    )
    np.testing.assert_allclose(
        read.loop.observer.T, control.dlqr(plant.A.T, plant.C.T, 2 * np.eye(2), 1)[0], atol=5e-5
    )


def test_read_small(file):
    read = read_loop(file)
    assert (read.epsilon, read.delta, read.adjacency, read.cost) == (
        1.0, 0.01, "time-local", "outputs",
    )  # fmt: skip
    assert np.asarray(read.mu).tolist() == [1.0, 0.5]
    assert read.dynamics.state_names == ("p", "v")
    assert read.dynamics.output_names == ("y1",)
    assert read.has_start


def test_tables_beside_the_file(file, tmp_path):
    (tmp_path / "r.csv").write_text("v,p\n" + "".join(f"0,{t}\n" for t in range(6)))
    (tmp_path / "A.csv").write_text("1,0.1\n0,1\n")
    (tmp_path / "mu.csv").write_text("1,0\n" * 4)
    text = SMALL.replace("constant = [1, 0]", 'file = "r.csv"')
    text = text.replace("A = [[1, 0.1], [0, 1]]", 'A = "A.csv"').replace("x0 = [-20, 0]", "")
    file.write_text(text.replace("mu = {v = 0.5, p = 1}", 'mu = "mu.csv"'))
    read = read_loop(file)
    assert read.loop.references(4).tolist() == [[t, 0] for t in range(5)]
    assert np.asarray(read.mu).tolist() == [[1, 0]] * 4
    assert not read.has_start
    assert "x0 is missing" in invoke("plant", file)


def test_privacy_may_be_left_out(file):
    file.write_text(SMALL[: SMALL.index("[privacy]")])
    assert read_loop(file).epsilon is None
    assert "say which ε" in invoke("design", file, "-o", file.with_name("m.json"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("horizon = 4", "", "horizon is missing"),
        ("horizon = 4", "horizon = 4.0", "horizon must be"),
        ("A = [[1, 0.1], [0, 1]]", "", "[plant] A is missing"),
        ("A = [[1, 0.1], [0, 1]]", "A = [[1, 0.1]]", "[plant] A must be square"),
        ("B = [[0.005], [0.1]]", "B = [[1, 2]]", "[plant] B has shape"),
        ("C = [[1, 0]]", "C = [[1, 0]]\nD = [[1, 2]]", "[plant] D has shape"),
        ("x0 = [-20, 0]", "x0 = [-20]", "[plant] x0 has shape"),
        ("x0 = [-20, 0]", 'x0 = ["a", 0]', "[plant] x0"),
        ('["p", "v"]', '["p"]', "[plant] state_names must hold 2 names"),
        ('["p", "v"]', '["p", "p"]', "[plant] state_names: a name is empty or appears twice"),
        ("feedback = [[3.4, 4.3]]", "feedback = [[3.4]]", "[controller] feedback has shape"),
        ("observer = [[0.8], [0.7]]", "", "[controller] observer is missing"),
        ("feedback = [[3.4, 4.3]]", 'feedback = "k.csv"', "[controller] feedback: k.csv"),
        ("constant = [1, 0]", "", "[reference] takes exactly one"),
        ("constant = [1, 0]", "constant = [1]", "[reference] constant has shape"),
        ("constant = [1, 0]", "samples = [[1, 0]]", "must hold 5 (t = 0, …, 4) of 2"),
        ("constant = [1, 0]", 'samples = "r.csv"', "[reference] samples must be a list"),
        ("constant = [1, 0]", "file = [[1, 0]]", "[reference] file must be a name"),
        ("constant = [1, 0]", 'file = "r.csv"', "[reference] file: r.csv does not exist"),
        ("{v = 0.5, p = 1}", "{v = 0.5}", "[privacy] mu: state 'p' is missing"),
        ("{v = 0.5, p = 1}", "[1, 2, 3]", "[privacy] mu: 3 given"),
        ("{v = 0.5, p = 1}", "[[1, 2]]", "[privacy] mu: 1×2 numbers"),
        ("{v = 0.5, p = 1}", "0", "[privacy] mu must not be negative anywhere, nor zero"),
        ("delta = 0.01", 'delta = 0.01\nadjacency = "all"', "[privacy] adjacency must be"),
    ],
)
def test_malformed_loop_files(file, old, new, said):
    assert old in SMALL
    file.write_text(SMALL.replace(old, new))
    with pytest.raises(AffineDPError) as refusal:
        read_loop(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert said in str(refusal.value)


SENDS = """
horizon = 6
[plant]
A = [[0.9, 0.1], [0, 0.8]]
C = [[1, 0]]
x0 = [5, 1]
[privacy]
epsilon = 1.0
delta = 0.01
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            SENDS + "[controller]\nfeedback = [[0, 0]]\nobserver = [[0], [0]]\n",
            "[plant] B is missing",
        ),
        (SENDS + "[reference]\nconstant = [0, 0]\n", "[plant] B is missing"),
        (SENDS + 'cost = "tracking"\n', "needs a loop"),
        (SENDS.replace("C =", "D = [[1]]\nC ="), "[plant] B is missing"),
        (SENDS.replace("C =", "B = [[0], [1]]\nC ="), "a plant that only sends leaves B out"),
    ],
)
def test_half_a_loop_is_refused(file, text, reason):
    file.write_text(text)
    with pytest.raises(AffineDPError, match=re.escape(reason)):
        read_loop(file)


# ---------------------------------------------------------------------- design


@pytest.mark.slow
def test_a_plant_that_only_sends(file, tmp_path):
    file.write_text(SENDS)
    said = invoke("design", file, "-o", tmp_path / "m.json", "--json")
    # pure noise was chosen, but δ = 0.01 was asked for
    assert json.loads(said)["asked"] == {"epsilon": 1.0, "delta": 0.01, "holds": True}
    assert "tracking" not in said


@pytest.mark.slow
def test_design(noise):
    loaded = Mechanism.load(noise)
    assert loaded.domain.horizon == 4
    assert loaded.guarantee.delta(1.0) <= 0.01
    assert loaded.domain.state_names == ("p", "v")


@pytest.mark.slow
def test_design_options_come_first(file, tmp_path):
    invoke("design", file, "-o", tmp_path / "m.json", "--epsilon", 0.5, "--delta", 1e-6)
    assert Mechanism.load(tmp_path / "m.json").guarantee.delta(0.5) <= 1e-6
    pure = invoke("design", file, "-o", tmp_path / "m.json", "--delta", 0)
    assert "ε = 1 at δ = 0" in pure  # the least noise of a pure law
    law = ("--law", "gaussian")
    assert "δ > 0" in invoke("design", file, "-o", tmp_path / "m.json", "--delta", 0, *law)


def test_design_for_tracking(file, tmp_path):
    """Noise designed for the loop disturbs it less than noise designed for the outputs."""
    long = SMALL.replace("horizon = 4", "horizon = 60").replace("v = 0.5", "v = 1")
    costs = {}
    for cost in ("outputs", "tracking"):
        file.write_text(long + f'cost = "{cost}"\n')
        invoke("design", file, "-o", tmp_path / f"{cost}.json", "--law", "gaussian")
        loaded = Mechanism.load(tmp_path / f"{cost}.json")
        costs[cost] = read_loop(file).loop.mean_square_error(loaded, 60).sum()
    assert costs["tracking"] < 0.999 * costs["outputs"]


# ---------------------------------------------------------------------- refusals


@pytest.mark.slow
def test_nobody_listens(file, tmp_path, noise):
    at = ("--broker", f"localhost:{free_port()}")
    draw = ("--mechanism", noise, "--state", tmp_path / "s.db")
    file.write_text(file.read_text() + "[mqtt]\nwait = 0\n")
    for words in (
        ("plant", file, *at),
        ("cloud", file, *at),
        ("eavesdrop", *at, "--log", tmp_path / "seen"),
        ("gateway", file, *draw, "--resolution", 0.1, *at),
    ):
        assert "no broker listens at localhost" in invoke(*words)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--broker", "http://x"), "no address of a broker"),
        (("--password-file", "x"), "goes with a username"),
        (("--ca-file", "x"), "go with TLS"),
        (
            ("--broker", "mqtts://localhost:9", "--ca-file", "absent"),
            "CA file absent cannot be used",
        ),
        (("--broker", "me@localhost:9", "--password-file", "absent"), "password file absent"),
        (("--out-broker", "me@localhost"), "username (USER@host:port) and a password"),
        (("--out-broker", "localhost", "--out-password-file", "x"), "and a password"),
        (("--out-password-file", "x"), "goes with its address"),
        (("--log", "absent/log"), "cannot be written"),
    ],
)
def test_options_that_do_not_fit(file, options, said, monkeypatch):
    monkeypatch.chdir(file.parent)
    file.write_text(file.read_text() + "[mqtt]\nwait = 0\n")
    assert said in invoke("plant", file, "--broker", "localhost:9", *options)


def test_topics_that_do_not_fit(file):
    text = file.read_text()
    for topic, said in (("plant/#", "wildcards"), ("cloud/u", "give two topics")):
        file.write_text(f"{text}[mqtt]\nwait = 0\nmeasurements = '{topic}'\n")
        assert said in invoke("plant", file, "--broker", "localhost:9")


@pytest.mark.slow
def test_paho_is_not_needed_to_design(file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    invoke("design", file, "-o", tmp_path / "m.json")
    assert install_command("network") in invoke("plant", file)


# ---------------------------------------------------------------------- processes


@pytest.mark.slow
def test_password_tls_ledger_and_signals(file, tmp_path, noise):
    """A gateway behind a password and TLS that is stopped, continued, and pays once."""
    pytest.importorskip("paho.mqtt.client")
    ca, certificate, key = certificates(tmp_path / "made")
    users = {"plant": "right", "spy": "listens"}
    with Ledger(tmp_path / "budget.db", epsilon=1.0, delta=0.01, protects="one vehicle"):
        pass
    (tmp_path / "password").write_text("right\n")
    with Mosquitto(tmp_path / "b", users=users, tls=(ca, certificate, key)) as broker:
        at = ("--broker", f"mqtts://{broker.address}", "--ca-file", ca)
        words = (
            "control", "gateway", file, "--mechanism", noise,
            "--state", tmp_path / "s.db", "--ledger", tmp_path / "budget.db", *at,
            "--resolution", "0.001",
        )  # fmt: skip
        user = ("--broker", f"mqtts://plant@{broker.address}")
        by_file = (*user, "--password-file", tmp_path / "password")
        spying = ("--broker", f"mqtts://spy@{broker.address}", *by_file[2:])
        assert "wrong username or password" in invoke(*words[1:], *spying)
        assert "wants a username" in invoke(*words[1:])
        assert not (tmp_path / "s.db").exists(), "drawn in vain"
        settings = {"tls": True, "ca_file": ca, "username": "spy", "password": "listens"}
        with (
            Connection(Broker.parse(broker.address, **settings), ["cloud/y"]) as spy,
            Command(tmp_path, *words, *by_file) as first,
        ):
            first.ready()
            spy.publish("plant/y", b'{"run": "r", "step": 0, "y": [-20]}')
            published = spy.receive(PATIENCE)
            assert published is not None
            assert first.end(signal.SIGINT) == 0, first.said
            assert b"the gateway is gone" in spy.receive(PATIENCE).payload
            assert "stopped, 1 of 4" in first.said
            environment = {"AFFINEDP_MQTT_PASSWORD": "right"}
            file.write_text(file.read_text() + "[mqtt]\nlinger = 0.2\n")
            with Command(tmp_path, *words, *user, environment=environment) as second:
                second.ready()
                spy.publish("plant/y", b'{"run": "r", "step": 0, "y": [-20]}')
                assert spy.receive(PATIENCE) == published
                spy.publish("plant/y", b'{"run": "r", "step": 4, "y": [3]}')
                assert second.wait() == 5, second.said
    assert "beyond the horizon" in second.said
    assert "Traceback" not in first.said + second.said
    assert "right" not in first.said + second.said
    with Ledger(tmp_path / "budget.db") as ledger:
        assert [entry.status for entry in ledger.history()] == ["released"]


def test_eavesdropper_writes_what_is_no_text_too(tmp_path):
    pytest.importorskip("paho.mqtt.client")
    with private_broker(tmp_path / "b") as broker:
        log, at = tmp_path / "seen", ("--broker", broker.address)
        with Command(tmp_path, "control", "eavesdrop", *at, "--log", log, "--topics", "a/+") as spy:
            spy.ready()
            with Connection(Broker.parse(broker.address), ["a/2"]) as me:
                for topic, payload in (("b", b"x"), ("a/1", b"\xff"), ("a/2", "é".encode())):
                    me.publish(topic, payload)
                assert me.receive(PATIENCE) is not None
            until(lambda: log.read_text().count("\n") == 2)
            assert spy.end(signal.SIGTERM) == 0
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["topic"], line.get("payload"), line.get("hex")) for line in seen] == [
        ("a/1", None, "ff"),
        ("a/2", "é", None),
    ]
    assert "2 messages" in spy.said


def test_a_plant_on_the_public_broker_says_who_reads_its_measurements(tmp_path):
    file = tmp_path / "v.toml"
    file.write_text(SMALL + "[mqtt]\nwait = 0\n")
    words = ["control", "plant", str(file), "--broker", "localhost:1"]
    alone = CliRunner().invoke(app, words)
    assert "plant: measurements and noisy measurements share the broker" in alone.stderr
    assert "--out-broker" in alone.stderr
    apart = CliRunner().invoke(app, [*words, "--out-broker", "localhost:2"])
    assert "share the broker" not in apart.stderr


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("[privacy]", "[sensors]\nresolution = 0.1\nevery = 2\n[privacy]"),
            "one step of 2 is sent",
        ),
        (("horizon = 4", "horizon = 200_001"), "longer than 200,000 steps"),
        (("horizon = 4", "horizon = 4"), "root mean square error"),
    ],
)
def test_what_the_loop_pays_is_said_or_why_not(tmp_path, change, why):
    path = tmp_path / "loop.toml"
    path.write_text(SMALL.replace(*change).replace("[privacy]", '[privacy]\nadjacency = "initial"'))
    report = invoke("design", path, "-o", tmp_path / "m.json")
    assert why in " ".join(report.split())
    assert "  tracking  " in report
