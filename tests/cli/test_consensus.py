"""``affinedp consensus …``: options, refusals, signals, passwords, the ledger."""

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from affinedp.budget.ledger import Ledger
from affinedp.cli.app import app
from affinedp.cli.consensus import read_value
from affinedp.consensus.agent import Agent, AgentMessage
from affinedp.consensus.network_file import read_network
from affinedp.consensus.one_draw import AgentNoise
from affinedp.errors import AffineDPError
from affinedp.mqtt.agent_process import encode
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import Connection
from brokers import PATIENCE, Command, Mosquitto, certificates, free_port, private_broker

NETWORK = """links = [["3", "1", 0.25], ["3", "5", 0.25]]
[noise]
epsilon = 1
delta = 0.01
"""


def invoke(*words):
    """Run a command here; what it printed, or the refusal that ends it."""
    result = CliRunner().invoke(app, ["consensus", *(str(word) for word in words)])
    if isinstance(result.exception, AffineDPError):
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def words(tmp_path):
    """The options of agent 3."""
    value = tmp_path / "value.txt"
    value.write_text("20\n")
    value.chmod(0o600)
    (tmp_path / "own.toml").write_text(NETWORK)
    return (
        "agent", "--id", "3", "--network", tmp_path / "own.toml", "--value-file", value,
        "--state", tmp_path / "3.db",
    )  # fmt: skip


def test_a_network_says_where_its_promise_goes(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text('links = [["a", "b"]]\n[privacy]\nepsilon = 1.0\n')
    with pytest.raises(AffineDPError, match=r"go into \[noise\]"):
        read_network(file)
    ring = read_network(Path(__file__).parents[2] / "examples" / "ring.toml")
    assert (len(ring.values), ring.rounds) == (10, 60)


@pytest.mark.parametrize("text", ["-3.5", " 1e-3\n", "7\n\n"])
def test_values(tmp_path, text):
    (tmp_path / "v").write_text(text)
    assert read_value(tmp_path / "v") == float(text)


@pytest.mark.parametrize("text", ["", "1 2", "1,5", "nan", "inf", "1e999", "1_000", "twelve"])
def test_values_that_are_none(tmp_path, text):
    (tmp_path / "v").write_text(text)
    with pytest.raises(AffineDPError, match="must hold one number") as refusal:
        read_value(tmp_path / "v")
    assert "twelve" not in str(refusal.value)


def test_value_files(tmp_path, capsys):
    with pytest.raises(AffineDPError, match="does not exist"):
        read_value(tmp_path / "absent")
    (tmp_path / "v").write_bytes(b"\xff\xfe")
    with pytest.raises(AffineDPError, match="not UTF-8"):
        read_value(tmp_path / "v")
    (tmp_path / "v").write_text("3")
    (tmp_path / "v").chmod(0o644)
    assert read_value(tmp_path / "v") == 3
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--id", "4"), "4"),
        (("--broker", "http://x"), "no address of a broker"),
        (("--password-file", "x"), "goes with a username"),
        (("--ca-file", "x"), "go with TLS"),
        (("--ledger", "absent.db"), "there is no ledger"),
        (("--rerun", "--run", 2), "without rerun"),
        (("--keys", "absent.keys"), "key file absent.keys does not exist"),
        (("--network", "absent.toml"), "absent.toml does not exist"),
    ],
)
def test_options_that_do_not_fit(words, options, said, tmp_path, monkeypatch):
    pytest.importorskip("paho.mqtt.client")
    monkeypatch.chdir(tmp_path)
    with private_broker(tmp_path / "broker") as broker:
        found = invoke(*words, "--broker", broker.address, *options)
    assert said in found
    assert not (tmp_path / "3.db").exists(), "drawn in vain"


def test_a_topic_that_is_none(words, tmp_path):
    (tmp_path / "own.toml").write_text(NETWORK + "[mqtt]\ntopic = 'a/#'\n")
    assert "wildcards" in invoke(*words)
    assert not (tmp_path / "3.db").exists(), "drawn in vain"


def test_nothing_is_drawn_when_nobody_listens(words, tmp_path):
    pytest.importorskip("paho.mqtt.client")
    said = invoke(*words, "--broker", f"localhost:{free_port()}")
    assert "no broker listens" in said
    assert not (tmp_path / "3.db").exists()


def test_readout(tmp_path):
    noise = AgentNoise(epsilon=1.0, delta=0.01)
    with Agent("3", {"1": 0.25}, state=tmp_path / "3.db", value=20.0, noise=noise) as agent:
        first = agent.y
        estimate = agent.readout("corrected", 10)
        assert "round 0" in invoke("readout", "--state", tmp_path / "3.db")  # a look takes nothing
    said = invoke("readout", "--state", tmp_path / "3.db", "--agents", 10)
    assert "agent      3, round 0" in said
    assert f"message    {first!r}  (public)" in said
    assert f"corrected  {estimate!r}" in said
    assert "for the owner of this agent only" in said
    assert "corrected  " not in invoke("readout", "--state", tmp_path / "3.db")
    assert "at least 2" in invoke("readout", "--state", tmp_path / "3.db", "--agents", 1)


@pytest.mark.slow
def test_password_tls_ledger_and_signals(words, tmp_path):
    """An agent behind a password and TLS that is stopped, continued, and pays once."""
    pytest.importorskip("paho.mqtt.client")
    ca, certificate, key = certificates(tmp_path / "made")
    users = {"agent": "right", "spy": "listens"}
    with Ledger(tmp_path / "budget.db", epsilon=1.0, delta=0.01, protects="one agent"):
        pass
    (tmp_path / "password").write_text("right\n")
    with Mosquitto(tmp_path / "b", users=users, tls=(ca, certificate, key)) as broker:
        at = ("--broker", f"mqtts://{broker.address}", "--ca-file", ca)
        more = (*words, *at, "--ledger", tmp_path / "budget.db")
        user = ("--broker", f"mqtts://agent@{broker.address}")
        by_file = (*user, "--password-file", tmp_path / "password")
        assert "wants a username" in invoke(*more)
        assert not (tmp_path / "3.db").exists(), "drawn in vain"
        settings = {"tls": True, "ca_file": ca, "username": "spy", "password": "listens"}
        with (
            Connection(Broker.parse(broker.address, **settings), ["consensus/3/1"]) as spy,
            Command(tmp_path, "consensus", *more, *by_file) as first,
        ):
            published = spy.receive(PATIENCE)
            assert published is not None
            assert first.end(signal.SIGINT) == 0, first.said
            assert "agent 3: stopped, 0; message " in first.said
            (tmp_path / "value.txt").unlink()  # the state holds it
            rest = [word for word in more if word not in ("--value-file", tmp_path / "value.txt")]
            environment = {"AFFINEDP_MQTT_PASSWORD": "right"}
            rest += user
            (tmp_path / "own.toml").write_text(NETWORK + "[mqtt]\nresend = 0.1\n")
            with Command(tmp_path, "consensus", *rest, environment=environment) as second:
                second.ready()
                assert spy.receive(PATIENCE) == published
                other = AgentMessage("1", "3", 1, 0, None, 4.0, None, 0.5)
                spy.publish("consensus/1/3", encode(other))
                assert second.wait() == 2, second.said
            while (message := spy.receive(0.0)) is not None:
                assert message == published
    assert "agent '3' uses the weight 0.25 for its link with agent '1'" in second.said
    assert "Traceback" not in first.said + second.said
    assert "right" not in first.said + second.said
    assert "ε = 1 at δ = 0.01 for values up to 1 apart" in first.said
    with Ledger(tmp_path / "budget.db") as ledger:
        assert [entry.status for entry in ledger.history()] == ["released"]
