"""What gateway and cloud answer, without a network: runs, lost steps, ends; whose a topic is."""

import itertools
import json
import math
from decimal import Decimal

import numpy as np
import pytest

from affinedp.budget.ledger import Ledger
from affinedp.cli.exits import with_flags
from affinedp.control import ClosedLoop, Gateway, design_output_noise
from affinedp.errors import AffineDPError
from affinedp.mqtt.gateway_process import ClaimRules, GatewayResponder
from affinedp.mqtt.loop_process import CloudResponder, Controller, PlantModel

HORIZON = 12
A, B, C = [[1.0, 0.1], [0.0, 1.0]], [[0.005], [0.1]], [[1.0, 0.0]]
K, L = [[3.4240, 4.3095]], [[0.8266], [0.6973]]
LOOP = ClosedLoop((A, B, C), K, L, [1.0, 0.0], x0=[-20.0, 0.0])
NOISE = design_output_noise((A, C), HORIZON, epsilon=1.0, delta=0.01)


def message(step, *values, run="r", signal="y", **more):
    return json.dumps({"run": run, "step": step, signal: list(values), **more}).encode()


def said(answer):
    assert answer is not None
    return json.loads(answer[0])


@pytest.fixture
def opener(tmp_path):
    """Opens the gateway of a run, and closes all at the end."""
    opened = []

    def open_gateway(run=None, **words):
        path = tmp_path / f"s.{run or 'first'}"
        opened.append(Gateway(NOISE, state=path, resolution=0.01, **words))
        return opened[-1]

    yield open_gateway
    for gateway in opened:
        gateway.close()


# ---------------------------------------------------------------------- the gateway


def test_a_plant_that_was_started_anew_is_told_to_stop(opener):
    """Its measurements never go out with the old draw, nor are old ones repeated as its own."""
    responder = GatewayResponder(opener())
    old = [said(responder.answer(message(t, -20.0 + t))) for t in range(5)]
    for t in range(8):
        answer = said(responder.answer(message(t, 7.0, run="new")))
        assert answer == {"run": "new", "step": t, "stop": answer["stop"]}
        assert answer["stop"] == "the gateway's draw belongs to another run"
    assert responder.gateway.next_step == 5
    assert "run new was started" in responder.reason
    # the old run goes on, if it is still there
    assert said(responder.answer(message(3, -17.0))) == old[3]
    assert "y" in said(responder.answer(message(5, -15.0)))
    assert responder.reason == ""


def test_a_new_run_gets_a_new_draw_and_a_new_charge(opener, tmp_path):
    with Ledger(tmp_path / "b.db", epsilon=2.2, delta=0.05, protects="one vehicle") as ledger:
        responder = GatewayResponder(opener(ledger=ledger), lambda run: opener(run, ledger=ledger))
        first = [said(responder.answer(message(t, -20.0))) for t in range(3)]
        before = responder.gateway
        second = [said(responder.answer(message(t, -20.0, run="new"))) for t in range(3)]
        assert responder.gateway is not before
        assert len(ledger.history()) == 2
        # one draw for two runs would leave the same noise in both; what is sent lies on a grid of
        # 1/16, where one of three steps agrees by chance in 2.4 % of the runs, and all in 6e-6
        assert responder.gateway.commitment != before.commitment
        gaps = np.array([a["y"][0] - b["y"][0] for a, b in zip(first, second)])
        assert np.any(np.abs(gaps) > 1e-3)
        # a straggler of the run before gets nothing
        assert "stop" in said(responder.answer(message(3, -20.0)))
        # and the budget decides how many runs there are
        for k in range(5):
            answer = said(responder.answer(message(0, -20.0, run=f"run{k}")))
        assert answer["stop"] == "no budget is left for a new run"
        assert len(ledger.history()) < 7
        assert "budget" in responder.reason


def test_every_readable_message_is_answered(opener):
    """Lost, jumped over, malformed, past the end: the cloud is told, and nothing is sent twice."""
    responder = GatewayResponder(opener())
    assert "y" in said(responder.answer(message(0, -20.0)))
    assert "y" in said(responder.answer(message(5, -20.0)))  # N + 5
    for t in range(1, 5):
        answer = said(responder.answer(message(t, -20.0)))
        assert answer == {"run": "r", "step": t, "missing": "it was lost for good"}
    bad = [message(6), message(6, 1.0, 2.0), message(6, "a"), message(6, None)]
    for word in (b"NaN", b"Infinity", b"-Infinity"):  # no JSON, but Python and others write it
        bad.append(message(6, 0.0).replace(b"0.0", word))
    for payload in bad:
        assert said(responder.answer(payload))["missing"] == "it came malformed"
    assert "y" in said(responder.answer(message(6, 1e300)))  # whatever its value
    for t in (HORIZON, HORIZON + 5, 10**9):
        assert "promise ends after 12 steps" in said(responder.answer(message(t, -20.0)))["missing"]
    for rubbish in (b"", b"{}", b'{"step": 1, "y": [1]}', message(7, 1.0, run="a b")):
        assert responder.answer(rubbish) is None
    assert responder.answer(message(7, stop="please")) is None, "words are not for a gateway"
    assert responder.dropped.counts["late"] == 4


def test_who_lost_the_state_leaves_the_answer_to_who_has_it(opener):
    """A stop from the first of two gateways would end the plant that the second goes on with."""
    first = GatewayResponder(opener())
    second = GatewayResponder(opener())
    assert first.answer(message(0, -20.0)) is None
    assert "goes on there" in str(first.failure)
    assert "y" in said(second.answer(message(0, -20.0)))


def test_what_every_leaves_out_is_answered_and_not_called_lost(opener):
    responder = GatewayResponder(opener(every=4))
    answers = [said(responder.answer(message(t, -20.0))) for t in range(6)]
    assert [t for t, answer in enumerate(answers) if "y" in answer] == [0, 4]
    late = said(responder.answer(message(3, -20.0)))
    assert answers[5]["missing"] == late["missing"] == "not sent: one step of 4"
    assert responder.dropped.counts == {}


def test_the_cloud_says_once_that_steps_are_not_sent(caplog):
    caplog.set_level("INFO")
    responder = CloudResponder(LOOP, HORIZON)
    for t in range(6):
        unsent = json.dumps({"run": "r", "step": t, "missing": "not sent: one step of 4"}).encode()
        assert "u" in said(responder.answer(message(t, -20.0) if t % 4 == 0 else unsent))
    assert caplog.messages == [
        "cloud: steps are not sent: one step of 4; the observer predicts them"
    ]
    lost = json.dumps({"run": "r", "step": 6, "missing": "it was lost for good"}).encode()
    said(responder.answer(lost))
    assert "steps 6 to 6 were skipped" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e999", Decimal("1e999")), ("-1e999", Decimal("-1e999")), ("9" * 5000, int("9" * 4000))],
)
def test_numbers_that_no_double_holds_are_sent_as_in_python(opener, text, number):
    """To refuse them would tell of them: both doors read the nearest double."""
    gateway = opener()
    answer = said(GatewayResponder(gateway).answer(message(0, 0.0).replace(b"0.0", text.encode())))
    assert answer["y"] == gateway.send([number], 0, run="r").tolist()


def test_no_answer_depends_on_a_measurement_but_through_noise(opener):
    """The same messages with other values: the same kinds of answers."""

    def kinds(values):
        responder = GatewayResponder(opener(f"{values[0]:g}"))
        steps = (0, 0, 2, 1, 3, HORIZON)
        answers = [said(responder.answer(message(t, values[t % 3]))) for t in steps]
        return [(*sorted(set(answer) - {"y"}), len(answer.get("y", ()))) for answer in answers]

    assert kinds([0.0, 1.0, 2.0]) == kinds([1e300, -1e-300, 5e4])


# ---------------------------------------------------------------------- the cloud


def noisy(rng, plant):
    return plant.measure() + rng.normal(size=1)


@pytest.mark.parametrize("missing", ["predict", "hold"])
def test_the_loop_goes_on_over_lost_steps(missing):
    """The observer knows what the plant got: its prediction of a plant without noise is exact."""
    loop = ClosedLoop((A, B, C), K, L, [1.0, 0.0], x0=[-20.0, 0.0], xhat0=[-20.0, 0.0])
    responder, plant = CloudResponder(loop, HORIZON, missing), PlantModel(loop)
    before = np.zeros(1)
    for t in range(HORIZON):
        payload = (
            json.dumps({"run": "r", "step": t, "missing": "lost"}).encode()
            if t in (0, 4, 5)
            else message(t, float(plant.measure()[0]))
        )
        given = np.array(said(responder.answer(payload))["u"])
        if missing == "hold" and t in (0, 4, 5):
            assert given == before
        np.testing.assert_allclose(responder.controller._estimate - plant._plant.B @ given,
                                   plant._plant.A @ plant.state, atol=1e-9)  # fmt: skip
        plant.apply(given)
        before = given


def test_stop_is_a_choice_too():
    responder = CloudResponder(LOOP, HORIZON, "stop")
    assert "u" in said(responder.answer(message(0, -20.0)))
    assert "steps 1 to 2 have no measurement" in said(responder.answer(message(3, -20.0)))["stop"]
    assert "stopped at step 3" in responder.reason
    assert responder.done(1.0, linger=0.5)
    responder = CloudResponder(LOOP, HORIZON, "stop")
    lost = json.dumps({"run": "r", "step": 0, "missing": "lost"}).encode()
    assert "steps 0 to 0" in said(responder.answer(lost))["stop"]


def test_steps_that_were_jumped_over_are_answered_when_they_come():
    """A message with step N + 5 came first: the plant still gets an answer for each of its own."""
    responder = CloudResponder(LOOP, HORIZON)
    said(responder.answer(message(0, -20.0)))
    said(responder.answer(message(5, -20.0)))
    for t in range(1, 5):
        lost = json.dumps({"run": "r", "step": t, "missing": "lost"}).encode()
        assert len(said(responder.answer(lost))["u"]) == 1


def test_cloud_ends_what_cannot_go_on():
    responder = CloudResponder(LOOP, HORIZON)
    assert "horizon is 12 steps" in said(responder.answer(message(HORIZON, -20.0)))["stop"]
    passed = json.dumps({"run": "s", "step": 0, "stop": "no budget"}).encode()
    assert said(responder.answer(passed)) == {"run": "s", "step": 0, "stop": "no budget"}
    assert "no budget" in responder.reason
    assert responder.answer(message(1, -20.0)) is None, "run r is over"
    # a wrong dimension, or a number that is none, is a missing measurement
    assert len(said(responder.answer(message(0, 1.0, 2.0, run="t")))["u"]) == 1
    assert len(said(responder.answer(message(1, math.nan, run="t")))["u"]) == 1


def test_the_plant_is_told_that_the_gateway_is_gone():
    responder = CloudResponder(LOOP, HORIZON)
    assert said(responder.answer(b'{"gone": "the gateway is gone"}')) == {
        "gone": "the gateway is gone"
    }
    assert "u" in said(responder.answer(message(0, -20.0))), "it may come back"


def test_a_new_run_begins_with_a_new_observer():
    responder = CloudResponder(LOOP, HORIZON)
    first = said(responder.answer(message(0, -20.0)))
    said(responder.answer(message(1, -19.0)))
    again = said(responder.answer(message(0, -20.0, run="s")))
    assert again["u"] == first["u"]
    assert responder.controller.next_step == 1


@pytest.mark.parametrize("missing", ["predict", "hold"])
def test_a_cloud_that_is_started_again_goes_on_with_its_observer(tmp_path, missing):
    rng = np.random.default_rng(0)
    state = tmp_path / "cloud.json"
    whole = CloudResponder(LOOP, HORIZON, missing)
    readings = rng.normal(size=HORIZON) - 20
    for t in range(HORIZON):
        if t in (3, 6, 7):
            continue  # lost
        expected = said(whole.answer(message(t, readings[t])))
        killed_after_every_step = CloudResponder(LOOP, HORIZON, missing, state)
        assert said(killed_after_every_step.answer(message(t, readings[t]))) == expected
        again = CloudResponder(LOOP, HORIZON, missing, state)
        assert again.run == "r"
        assert said(again.answer(message(t, 0.0))) == expected, "the same answer again"


def test_saved_observers_that_do_not_fit_are_refused(tmp_path):
    state = tmp_path / "cloud.json"
    Controller(LOOP, HORIZON).save(state, "r")
    assert Controller(LOOP, HORIZON).resume(state) == "r"
    with pytest.raises(AffineDPError, match="another loop"):
        Controller(LOOP, HORIZON + 1).resume(state)
    with pytest.raises(AffineDPError, match="another loop"):
        Controller(LOOP, HORIZON, limits=(np.array([-1.0]), np.array([1.0]))).resume(state)
    for text in ("", "[]", "{}", '{"loop": 7}'):
        state.write_text(text)
        with pytest.raises(AffineDPError, match="cannot be read|another loop"):
            Controller(LOOP, HORIZON).resume(state)
    assert Controller(LOOP, HORIZON).resume(tmp_path / "absent") is None


def test_a_full_disk_does_not_stop_the_cloud(tmp_path):
    responder = CloudResponder(LOOP, HORIZON, state=tmp_path / "absent" / "cloud.json")
    assert "u" in said(responder.answer(message(0, -20.0)))
    assert responder.dropped.counts == {"not saved": 1}


# ---------------------------------------------------------------------- whose a topic is


class Room:
    """A broker with one retained claim, which delivers everything to all, in one order."""

    def __init__(self):
        self.retained, self.members, self.queue = "", {}, []

    def join(self, who, **words):
        rules = ClaimRules(who, lambda: self.queue.append(who), **words)
        self.members[who] = rules
        if self.retained:
            rules.hear(self.retained)
        rules.begin()
        return rules

    def deliver(self):
        while self.queue:
            self.retained = self.queue.pop(0)
            for rules in list(self.members.values()):
                rules.hear(self.retained)
                if rules.other:
                    self.members = {k: v for k, v in self.members.items() if v is not rules}


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("at_once", [True, False])
def test_one_of_several_gets_the_topic(order, at_once):
    room = Room()
    rules = {}
    for who in order:
        rules[who] = room.join(who)
        if not at_once:
            room.deliver()
    room.deliver()
    assert [who for who in order if rules[who].ours] == [order[0]]
    assert all(rules[who].other for who in order[1:])
    assert room.retained == order[0]


def test_a_claim_of_our_own_past_is_no_obstacle_and_its_last_will_no_loss():
    room = Room()
    room.retained = "me"
    me = room.join("me")
    room.deliver()
    assert me.ours
    room.queue.append("")  # the broker notices only now that we were gone
    room.deliver()
    assert me.ours
    assert room.retained == "me"


def test_a_claim_that_was_left_behind_can_be_taken_over():
    room = Room()
    room.retained = "gone"
    assert room.join("me").other == "gone"
    me = room.join("me", take_over=True)
    room.deliver()
    assert me.ours
    assert room.retained == "me"


# ---------------------------------------------------------------------- words


def test_refusals_speak_of_options_on_the_command_line():
    told = with_flags("ask for a redraw (redraw=True) with a ledger, or give moved=True")
    assert told == "ask for a redraw (--redraw) with a ledger, or give --moved"
    told = with_flags("give fresh_noise= (a scale), or a shorter horizon=; x=5 stays")
    assert told == "give [sensors] fresh_noise (a scale), or a shorter horizon; x=5 stays"
