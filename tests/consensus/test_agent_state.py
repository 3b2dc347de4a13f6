"""The state of an agent: one draw, kept, charged once, refused when it is doubtful."""

import sqlite3
import stat

import pytest

from affinedp.budget.ledger import Ledger
from affinedp.consensus.agent import Agent, AgentMessage, read_state
from affinedp.consensus.one_draw import AgentNoise
from affinedp.control import Gateway, design_output_noise
from affinedp.errors import AffineDPError
from affinedp.release.publish import publish as true_release
from affinedp.stream.run import Run, RunError

NOISE = AgentNoise(epsilon=1.0, delta=0.01)
SECRET = 123.4375


@pytest.fixture
def start(tmp_path):
    """Open the agent of a state; all are closed at the end."""

    def begin(**more):
        settings = {
            "name": "3",
            "weights": {"1": 0.25},
            "state": tmp_path / "3.db",
            "value": SECRET,
            "noise": NOISE,
            **more,
        }
        agent = Agent(settings.pop("name"), settings.pop("weights"), **settings)
        opened.append(agent)
        return agent

    opened = []
    yield begin
    for agent in opened:
        agent.close()


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db", epsilon=2.5, delta=0.02, protects="one agent") as opened:
        yield opened


def once(start, **more):
    """Draw, note the first message, close."""
    agent = start(**more)
    first = agent.y
    agent.close()
    return first


def alter(path, statement):
    """Change a state behind the back of its owner."""
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def test_for_the_owner_only_and_taken_over(start, tmp_path):
    first = start()
    assert stat.S_IMODE((tmp_path / "3.db").stat().st_mode) == 0o600
    second = start()
    for agent in (first, second):
        agent.hear(AgentMessage("1", "3", 1, 0, None, 4.0, None, 0.25))
    with pytest.raises(RunError, match="goes on there"):
        first.advance()
    assert second.advance()


def test_the_draw_survives(start):
    first = once(start)
    for more in ({}, {"value": None}, {"noise": None}, {"noise": AgentNoise(epsilon=1.0)}):
        assert once(start, **more) == first


def test_two_draws_differ(start, tmp_path):
    assert once(start) != once(start, state=tmp_path / "other.db")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": SECRET + 1e-9}, "the value is not the one"),
        ({"name": "4"}, "state of agent '3', not of '4'"),
        ({"weights": {"1": 0.5}}, "begun with the neighbours 1:0.25"),
        ({"weights": {"1": 0.25, "2": 0.25}}, "begun with the neighbours"),
        ({"noise": AgentNoise(epsilon=2.0, delta=0.01)}, "drawn with epsilon = 1.0, not 2.0"),
        ({"noise": AgentNoise(sigma=2.0)}, "drawn with sigma = None"),
        ({"noise": AgentNoise("laplace")}, "drawn with law = gaussian"),
        ({"noise": AgentNoise(mu=2.0)}, "drawn with mu = 1.0"),
    ],
)
def test_nothing_changes_after_the_draw(start, change, words):
    first = once(start)
    with pytest.raises(RunError, match=words) as refusal:
        start(**change)
    assert str(SECRET) not in str(refusal.value)
    assert once(start) == first


@pytest.mark.parametrize(
    ("missing", "words"), [({"value": None}, "give the value"), ({"noise": None}, "which noise")]
)
def test_needed_for_the_draw(start, missing, words, tmp_path):
    with pytest.raises(RunError, match=words):
        start(**missing)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "1", True, [1.0]])
def test_values_that_are_none(start, value, tmp_path):
    with pytest.raises(AffineDPError, match="the value (is|must be|has more)"):
        start(value=value)
    assert list(tmp_path.iterdir()) == []


def test_a_bound(start, tmp_path):
    with pytest.raises(AffineDPError, match="larger than the declared bound"):
        start(noise=AgentNoise(epsilon=1.0, delta=0.01, bound=100.0))
    assert list(tmp_path.iterdir()) == []
    once(start, noise=AgentNoise(epsilon=1.0, delta=0.01, bound=200.0))


# ---------------------------------------------------------------------- lost and altered


def test_lost_states_are_not_drawn_again(start, tmp_path, ledger):
    once(start)
    (tmp_path / "3.db").rename(tmp_path / "hidden")
    for more in ({}, {"redraw": True}, {"ledger": ledger}):
        with pytest.raises(RunError, match="second release"):
            start(**more)
    assert not (tmp_path / "3.db").exists()
    assert ledger.history() == ()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET memory = replace(memory, '0', '1')",
        "UPDATE run SET until = 5",
        "DELETE FROM run",
    ],
)
def test_altered_states_are_refused(start, tmp_path, ledger, statement):
    first = once(start, ledger=ledger)
    alter(tmp_path / "3.db", statement)
    with pytest.raises(RunError, match="second release"):
        start(ledger=ledger)
    assert once(start, ledger=ledger, redraw=True) != first
    assert len(ledger.history()) == 2
    assert list(tmp_path.glob("3.db.aside-*")), "the damaged one is kept"
    agent = start(ledger=ledger)
    assert any("2 draws" in warning for warning in agent.guarantee.warnings)


def test_an_altered_round_is_noticed(start, tmp_path):
    agent = start()
    agent.hear(AgentMessage("1", "3", 1, 0, None, 4.0, None, 0.25))
    assert agent.advance()
    agent.close()
    alter(tmp_path / "3.db", "UPDATE sent SET outputs = x'00'")
    with pytest.raises(AffineDPError, match="step 1 was altered"):
        start()


def test_swapped_states_are_refused(start, tmp_path, ledger):
    once(start, ledger=ledger)
    once(start, state=tmp_path / "other.db")
    (tmp_path / "other.db").replace(tmp_path / "3.db")
    with pytest.raises(RunError, match="it was swapped"):
        start()
    with pytest.raises(RunError, match="never charged"):
        start(ledger=ledger)


def test_state_of_a_gateway(start, tmp_path):
    mechanism = design_output_noise(([[1.0]], [[1.0]]), 3, epsilon=1.0, delta=0.01)
    with Gateway(mechanism, state=tmp_path / "3.db", resolution="exact"):
        pass
    with pytest.raises(RunError, match="state of another kind of run"):
        start()


def test_read_state(start, tmp_path):
    first = once(start)
    with read_state(tmp_path / "3.db") as agent:
        assert (agent.name, agent.weights, agent.y) == ("3", {"1": 0.25}, first)
    with pytest.raises(AffineDPError, match="cannot be opened"):
        read_state(tmp_path / "absent.db")


# ---------------------------------------------------------------------- the ledger


def test_charged_once(start, ledger):
    for _ in range(3):
        once(start, ledger=ledger)
    (entry,) = ledger.history()
    assert entry.status == "released"
    assert entry.label.startswith("agent 3, 3.db (run ")
    assert ledger.spent == pytest.approx(0.84, abs=0.01), "ε = 1 at δ = 0.01, at the cap's δ"


def test_no_budget_no_draw(start, tmp_path):
    with (
        Ledger(tmp_path / "small.db", epsilon=0.5, delta=0.01, protects="one agent") as small,
        pytest.raises(AffineDPError, match="budget .*Nothing was charged"),
    ):
        start(ledger=small)
    assert not (tmp_path / "3.db").exists()


def test_charged_before_the_draw(start, ledger, tmp_path, monkeypatch):
    """A crash right after the draw: it is paid for, and the next opening needs no other charge."""

    def crash(*words, **more):
        true_release(*words, **more)
        raise RuntimeError("power cut")

    monkeypatch.setattr("affinedp.mechanism.publish", crash)
    with pytest.raises(RuntimeError, match="power cut"):
        start(ledger=ledger)
    monkeypatch.undo()
    assert len(ledger.history()) == 1
    once(start, ledger=ledger)
    assert [entry.status for entry in ledger.history()] == ["released"]


def test_other_links_from_the_next_run_on(start, ledger, tmp_path):
    """A mistyped weight costs no second draw: the promise holds for any weights."""
    first = once(start, ledger=ledger)
    links = {"1": 0.5, "2": 0.25}
    with pytest.raises(RunError, match=r"within a run.*begin again.*costs nothing"):
        start(weights=links, ledger=ledger)
    for more in ({"rerun": True}, {}, {"run": 7}):
        with start(weights=links, ledger=ledger, **more) as agent:
            assert (agent.y, agent.weights) == (first, links)
            assert agent.hear(AgentMessage("2", "3", agent.run, 0, None, 1.0, None, 0.25)) == "new"
    with read_state(tmp_path / "3.db") as agent:
        assert (agent.run, agent.weights) == (7, links)
    with pytest.raises(RunError, match="begun with the neighbours 1:0.5,2:0.25"):
        start()
    assert len(ledger.history()) == 1


def test_runs_are_counted_as_far_as_messages_count(start):
    """A forged message may have made the owner begin a run with the largest number."""
    first = once(start, run=2**53 - 1)
    with pytest.raises(RunError, match="no number is left"):
        start(rerun=True)
    assert start(run=1).y == first


def test_a_hub_does_not_read_its_state_for_every_neighbour(start, monkeypatch):
    """With 2,500 neighbours it came to nothing else."""
    names = [f"n{i}" for i in range(50)]

    def said(name, t):
        return AgentMessage(name, "3", 1, t, None, t + 0.5, t - 0.5 if t else None, 0.01)

    agent = start(weights=dict.fromkeys(names, 0.01))
    for t in range(3):
        assert {agent.hear(said(name, t)) for name in names} == {"new"}
        assert agent.advance()
    reads = []
    sent = Run.sent
    monkeypatch.setattr(Run, "sent", lambda *words: reads.append(words) or sent(*words))
    for name in names:
        assert agent.hear(agent.message_to(name)) == "own"
        assert agent.hear(said(name, 2)) == "late"
    assert len(reads) <= 2
    agent.close()
    again = start(weights=dict.fromkeys(names, 0.01))
    assert again.message_to("n7") == agent.message_to("n7")
