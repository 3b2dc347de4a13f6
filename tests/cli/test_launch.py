"""A whole network on one machine: ``affinedp consensus launch`` and ``keys``."""

import json
import signal

import networkx as nx
import pytest
from typer.testing import CliRunner

from affinedp.cli.app import app
from affinedp.consensus import PrivateConsensus
from affinedp.consensus.agent import AgentMessage, read_state
from affinedp.errors import AffineDPError
from affinedp.mqtt.agent_process import encode
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import Connection
from agents import overheard
from brokers import Command, private_broker, processes_about, until

VALUES = {"a": 1.0, "b": 20.0, "c": -3.0}


@pytest.fixture
def network(tmp_path):
    pytest.importorskip("paho.mqtt.client")
    made = PrivateConsensus(nx.path_graph(["a", "b", "c"]), law="laplace", epsilon=1.0)
    made.write(tmp_path / "net.toml", rounds=4, values=VALUES)
    with (tmp_path / "net.toml").open("a") as file:
        file.write("[mqtt]\nlinger = 5\n")
    return tmp_path / "net.toml"


def going(network, rounds):
    """The network with other rounds."""
    network.write_text(network.read_text().replace("rounds = 4\n", f"rounds = {rounds}\n"))
    return network


def launched(network, *words):
    return Command(network.parent, "consensus", "launch", network, *words)


@pytest.mark.slow
def test_launch_poison_and_rerun(network, tmp_path):
    """A run; again with another ε; poisoned by a forged message; begun again, for nothing."""
    home = tmp_path / "net-run"
    with launched(network) as first:
        assert first.wait() == 0, first.said
    assert "agent a  round 4  message " in first.said
    said = overheard(home / "seen.jsonl")
    y = {name: next(iter(said[name, 0])) for name in VALUES}
    assert all(len(values) == 1 for values in said.values())
    assert not list(home.glob("*.txt")), "the states hold the values"
    assert home.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.glob("*.db*"))
    text = network.read_text()
    network.write_text(text.replace("epsilon = 1.0", "epsilon = 0.25"))
    with launched(network) as second:  # nobody has anything to say any more
        assert second.wait() == 0, second.said
    assert "--rerun begins again" in second.said
    assert "agent a  round 4  message " in second.said
    assert "keep ε = 1 at" in second.said, "what is said of messages is what was drawn"
    network.write_text(text.replace("b = 20.0", "b = 21.0"))
    with launched(network) as changed:
        assert changed.wait() == 2, changed.said
    assert "the value is not the one for which" in changed.said
    network.write_text(text)
    with private_broker(tmp_path / "broker") as broker:
        with (
            Connection(Broker.parse(broker.address), ["consensus/a/b"]) as attacker,
            launched(going(network, 10**6), "--broker", broker.address) as poisoned,
        ):
            assert attacker.receive(60.0) is not None
            forged = AgentMessage("a", "b", 1, 7, 10**6, 1e9, 1e9, 1 / 3)
            until(lambda: attacker.publish("consensus/a/b", encode(forged)) and poisoned.ended)
            assert poisoned.wait() == 2, poisoned.said
        assert "its draw is kept" in poisoned.said
        network.write_text(text)
        with (
            Connection(Broker.parse(broker.address)) as attacker,
            launched(network, "--broker", broker.address, "--rerun", "--sealed") as again,
        ):
            forged = AgentMessage("a", "b", 9, 7, 4, 1e9, 1e9, 1 / 3)
            until(lambda: attacker.publish("consensus/a/b", encode(forged)) and again.ended)
            assert again.wait() == 0, again.said
        assert "round 4" in again.said
        assert "000000.0" not in again.said, "what is shown is what the agents said"
    for name in VALUES:
        with read_state(home / f"{name}.db") as agent:
            assert (agent.run, agent.round) == (2, 4)
            assert agent._own(0) == y[name], "the same first message"
    heard = [json.loads(line)["payload"] for line in (home / "seen.jsonl").open(encoding="utf-8")]
    assert any(set(json.loads(text)) == {"message", "session", "for", "tag"} for text in heard)


@pytest.mark.slow
def test_ctrl_c_ends_all(network, tmp_path):
    with launched(going(network, 10**6)) as running:
        until(lambda: (tmp_path / "net-run" / "c.log").exists())
        until(lambda: "listening" in (tmp_path / "net-run" / "c.log").read_text())
        assert running.end(signal.SIGINT) == 0, running.said
    assert not processes_about(tmp_path)


@pytest.mark.slow
def test_nobody_outlives_a_killed_launch(network, tmp_path):
    """Nor goes on looking for its broker: also a state is closed in order."""
    home = tmp_path / "net-run"
    with launched(going(network, 10**6)) as running:
        for log in [home / f"{name}.log" for name in VALUES]:
            until(lambda log=log: log.exists() and "listening" in log.read_text())
        assert len(processes_about(tmp_path)) == 1 + len(VALUES)
        running.kill()
    until(lambda: not processes_about(tmp_path))
    for name in VALUES:
        assert "stopped" in (home / f"{name}.log").read_text()
        assert not (home / f"{name}.db-wal").exists()


def invoke(*words):
    """The answer of a command in this process; a refusal raises."""
    found = CliRunner().invoke(app, ["consensus", *map(str, words)])
    if found.exception is not None:
        raise found.exception
    return found.output


def test_what_launch_needs(network, tmp_path):
    text = network.read_text()
    network.write_text(text.replace("b = 20.0\n", ""))
    with pytest.raises(AffineDPError, match="no value for agent 'b'"):
        invoke("launch", network)
    network.write_text(text.replace("rounds = 4\n", ""))
    with pytest.raises(AffineDPError, match="say how many rounds"):
        invoke("launch", network)
    assert not list((tmp_path).rglob("*.db"))


def test_keys(network, tmp_path):
    said = invoke("keys", network, "--folder", tmp_path / "keys")
    files = ["a.keys", "b.keys", "c.keys"]
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == files
    assert all(file in said for file in files)
    assert len((tmp_path / "keys" / "b.keys").read_text().splitlines()) == 2
    with pytest.raises(AffineDPError, match="no key is overwritten"):
        invoke("keys", network, "--folder", tmp_path / "keys")
