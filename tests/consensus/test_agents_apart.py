"""Neighbours that do not fit, and neighbours that are many."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from affinedp.consensus.agents.agent import Agent
from affinedp.consensus.agents.message import AgentMessage, encode
from affinedp.consensus.agents.noise import AgentNoise
from affinedp.consensus.agents.process import Meeting, run_agent
from affinedp.consensus.agents.refusals import AgentError
from affinedp.wire.broker import Broker
from affinedp.wire.connection import Connection
from brokers import PATIENCE, private_broker

pytest.importorskip("paho.mqtt.client")

NOISE = AgentNoise(sigma=2.5)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with private_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield Broker.parse(broker.address)


@pytest.fixture
def start():
    """Run something beside the test: ``start(function, ...)``; all are stopped at its end."""
    stop = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        yield lambda function, *words, **more: pool.submit(function, *words, stop, **more)
        stop.set()


def test_a_message_stays_small_however_many_neighbours(tmp_path):
    weights = {f"{'neighbour-with-a-long-name-' * 2}{i}": 1 / 2501 for i in range(2500)}
    with Agent("hub", weights, state=tmp_path / "hub.db", value=1.0, noise=NOISE) as hub:
        assert all(len(encode(hub.message_to(name))) < 300 for name in list(weights)[::500])


def test_a_hub_with_many_leaves(shared, start, tmp_path):
    """One hub and a few leaves that are real; the test says what 300 others would say."""
    names = [str(i) for i in range(300)]
    weights = dict.fromkeys([*names, "leaf"], 1 / 400)
    settings = {"rounds": 1, "resend": 0.5, "linger": 0.2}
    with ExitStack() as stack:
        hub = stack.enter_context(
            Agent("hub", weights, state=tmp_path / "hub", value=1.0, noise=NOISE)
        )
        leaf = stack.enter_context(
            Agent("leaf", {"hub": 1 / 400}, state=tmp_path / "leaf", value=1.0, noise=NOISE)
        )
        me = stack.enter_context(Connection(shared, ["star/hub/0"]))
        running = [
            start(run_agent, who, Meeting(shared, "star"), **settings) for who in (hub, leaf)
        ]
        assert me.receive(PATIENCE) is not None
        for name in names:
            message = AgentMessage(name, "hub", 1, 0, 1, 2.0, None, 1 / 400)
            me.publish(f"star/{name}/hub", encode(message))
        assert all(future.result(PATIENCE).finished for future in running)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"rounds": 3}, {"rounds": 5}, "goes 3 rounds, this one 5 rounds"),
        ({"rounds": 3}, {"rounds": None}, "goes 3 rounds, this one without end"),
        ({"weight": 0.3}, {}, "uses the weight 0.25"),
        ({"links": {"c": 0.25}}, {}, "'b' has agent 'a' as a neighbour, but not the other way"),
        ({"run": 2}, {}, "'a' is in run 2, this one in run 1"),
    ],
    ids=["rounds", "no-end", "weight", "no-link", "run"],
)
def test_what_differs_ends_both_with_a_reason(
    shared, start, tmp_path, first, second, words, request
):
    """They would wait for ever.  The draw stays, and the same state goes on afterwards."""
    meeting = Meeting(shared, f"differ-{request.node.callspec.id}")
    links = first.pop("links", {"b": first.pop("weight", 0.25)})
    with (
        Agent(
            "a", links, state=tmp_path / "a", value=1.0, noise=NOISE, run=first.pop("run", None)
        ) as a,
        Agent("b", {"a": 0.25}, state=tmp_path / "b", value=1.0, noise=NOISE) as b,
    ):
        y = b.y
        more = {"resend": 0.1, "linger": 0.3}
        waits = start(run_agent, a, meeting, **{"rounds": 4, **more, **first})
        with pytest.raises(AgentError, match=words):
            start(run_agent, b, meeting, **{"rounds": 4, **more, **second}).result(PATIENCE)
        if "rounds" in first or links == {"b": 0.3}:
            with pytest.raises(AgentError):
                waits.result(PATIENCE)
    with Agent("b", {"a": 0.25}, state=tmp_path / "b", rerun=True) as again:
        assert (again.y, again.round) == (y, 0)
