"""First views of control and consensus: the promise, noise over time, error over rounds."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.private import PrivateConsensus
from affinedp.control.by_time import noise_by_time
from affinedp.control.output_noise import design_output_noise, independent_output_noise
from affinedp.errors import AffineDPError
from affinedp.laws.calibration import gaussian_epsilon
from affinedp.mechanism import Mechanism
from affinedp.progress import Progress
from affinedp.show.report import allowed_guess
from affinedp.studio.question import Meeting, Plant
from affinedp.studio.take_home import written

MOST_POINTS = 400
MOST_AGENTS = 500
MOST_STATES = 40
# What must stay hidden, as the page's menu says it.
HIDDEN = {
    "time-local": "the state at any one time",
    "forward": "a jump of the state, at any time",
    "initial": "the first state only",
    "manifold": "any number (Definition 4)",
}
READOUTS = ("state", "message", "corrected")


def control(plant: Plant) -> dict[str, Any]:
    """Return what hides a trajectory, or jumps of the state, beside white noise at every step.

    >>> answer = control(Plant(A="1", C="1", mu="1"))
    >>> round(answer["fresh"]["error"] / answer["error"])
    10
    """
    A, C = matrix(plant.A, "A"), matrix(plant.C, "C")
    mu = matrix(plant.mu, "μ").ravel().tolist()
    if len(A) > MOST_STATES:
        raise AffineDPError(f"the page shows at most {MOST_STATES} states: use affinedp.control")
    if not plant.delta:
        raise AffineDPError("this first view takes Gaussian noise, which needs δ > 0")
    reach: Any = mu[0] if len(mu) == 1 else mu
    asked = {"epsilon": plant.epsilon, "delta": plant.delta, "mu": reach}
    with Progress("the noise of a trajectory") as bar, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        bar.update(0.1, "designing one draw for all steps")
        noise = design_output_noise((A, C), plant.horizon, adjacency=plant.neighbours, **asked)
        bar.update(0.7, "comparing it with fresh noise")
        fresh_scale = _fresh(noise, (A, C), plant, asked)
        # of one measurement a jump is the first state
        first: Any = "initial" if plant.neighbours == "forward" else plant.neighbours
        once = independent_output_noise((A, C), 1, adjacency=first, **asked)
    once_scale = float(noise_by_time(once, 1)[0, 0])
    # fresh noise that is right for one measurement, sent at every step
    larger = fresh_scale / once_scale
    really = gaussian_epsilon(plant.delta, once.guarantee.sensitivity * larger)
    times = np.unique(np.linspace(0, plant.horizon - 1, MOST_POINTS).astype(int))
    by_time = noise_by_time(noise)[times]
    numbers = plant.horizon * len(C)
    return {
        "claimed": plant.epsilon,
        "really": float(really),
        "delta": plant.delta,
        "kept": noise.guarantee.epsilon(plant.delta),
        "neighbours": noise.guarantee.neighbours,
        "basis": noise.guarantee.basis,
        "warnings": list(noise.guarantee.warnings),
        "cautions": list(dict.fromkeys(_as_in_menu(str(one.message)) for one in told)),
        "notes": [_as_in_menu(note) for note in noise.notes],
        "way": "coloured noise" if plant.neighbours == "forward" else "one draw for all steps",
        "certainty": allowed_guess(noise.guarantee.epsilon(plant.delta), plant.delta),
        "certainty_before": allowed_guess(float(really), plant.delta),
        "times": times.tolist(),
        "outputs": by_time.T.tolist(),
        "error": math.sqrt(noise.expected_squared_error / numbers),
        "fresh": {"sigma": fresh_scale, "error": fresh_scale},
        "single": once_scale,
        "script": written(
            "control.txt",
            **asked,
            A=A.tolist(),
            C=C.tolist(),
            horizon=plant.horizon,
            neighbours=repr(plant.neighbours),
        ),
    }


def _fresh(noise: Mechanism, system: Any, plant: Plant, asked: dict[str, Any]) -> float:
    """The standard deviation of white noise that keeps the same promise."""
    if plant.neighbours != "forward":
        fresh = independent_output_noise(system, plant.horizon, adjacency=plant.neighbours, **asked)
        return float(noise_by_time(fresh, 1)[0, 0])
    white = [one.error for one in noise.alternatives if one.reason == "white output noise"]
    return math.sqrt(white[0] / len(system[1]))


def _as_in_menu(text: str) -> str:
    """Name what must stay hidden as the page does, where a message names it as Python does.

    >>> _as_in_menu("use adjacency='forward' or 'initial'; else let mu decrease")
    'use “a jump of the state, at any time” or “the first state only”; else let mu decrease'
    """
    named = "|".join(HIDDEN)
    text = re.sub(rf"adjacency='({named})'", r"'\1'", text)
    return re.sub(rf"'({named})'", lambda found: f"“{HIDDEN[found[1]]}”", text)


def consensus(meeting: Meeting) -> dict[str, Any]:
    """Return how well agents find their average, round by round, by every read-out.

    The agents' own values are secret and not asked for: the picture begins with values that lie
    evenly in a range.

    >>> answer = consensus(Meeting(links="1 2\\n2 3\\n3 1"))
    >>> answer["agents"], sorted(answer["errors"])
    (['1', '2', '3'], ['corrected', 'message', 'state'])
    """
    names, sources, targets, weights = links(meeting.links)
    if len(names) > MOST_AGENTS:
        raise AffineDPError(f"the page shows at most {MOST_AGENTS} agents: use affinedp.consensus")
    asked: dict[str, Any] = {
        "law": meeting.law,
        "epsilon": meeting.epsilon,
        "delta": 0.0 if meeting.law == "laplace" else meeting.delta,
        "mu": meeting.mu,
        "weights": weights,
        "names": names,
    }
    with Progress("agents") as bar:
        bar.update(0.2, "looking at the network")
        network = PrivateConsensus.from_edges(len(names), sources, targets, **asked)
        bar.update(0.5, "errors, round by round")
        start = np.linspace(0.0, meeting.spread, len(names))
        errors = {
            readout: [
                math.sqrt(float(one) / len(names))
                for one in network.mean_square_error(start, meeting.rounds, readout)
            ]
            for readout in READOUTS
        }
    delta = 0.0 if network.law == "laplace" else meeting.delta
    limits = {one: math.sqrt(float(network.limit(one)) / len(names)) for one in READOUTS}
    return {
        "agents": names,
        "links": [[int(a), int(b)] for a, b in zip(sources, targets)],
        "places": _places(len(names)),
        "law": network.law,
        "noise": float(network.sigma.max()) * (math.sqrt(2) if network.law == "laplace" else 1.0),
        "kept": network.guarantee.epsilon(delta),
        "delta": delta,
        "neighbours": network.guarantee.neighbours,
        "basis": network.guarantee.basis,
        "warnings": list(network.guarantee.warnings),
        "certainty": allowed_guess(network.guarantee.epsilon(delta), delta),
        "errors": errors,
        "limits": limits,
        "script": written(
            "consensus.txt",
            **{key: repr(value) for key, value in asked.items()},
            sources=sources,
            targets=targets,
            spread=meeting.spread,
            rounds=meeting.rounds,
        ),
    }


def matrix(text: str, name: str) -> FloatArray:
    """Read a matrix as people write it: numbers side by side, rows by lines or semicolons.

    >>> matrix("1 0.1; 0 1", "A").tolist()
    [[1.0, 0.1], [0.0, 1.0]]
    """
    rows = [row for row in text.strip("[] \n\t").replace("\n", ";").split(";") if row.strip(" []")]
    found = []
    for row in rows:
        words = row.replace(",", " ").strip(" []").split()
        try:
            found.append([float(word) for word in words])
        except ValueError:
            raise AffineDPError(f"{name}: {row.strip()[:40]!r} is not a row of numbers") from None
    if not found or len({len(row) for row in found}) != 1:
        raise AffineDPError(f"{name} must be rows of equally many numbers, such as 1 0.1; 0 1")
    if not np.isfinite(found).all():
        raise AffineDPError(f"{name} must be finite")
    return np.array(found)


def links(text: str) -> tuple[list[str], list[int], list[int], Any]:
    """Read links: two names per line, and a weight where there is one.

    >>> links("ann bob\\nbob,carl")
    (['ann', 'bob', 'carl'], [0, 1], [1, 2], 'metropolis')
    """
    place: dict[str, int] = {}
    ends: list[tuple[int, int]] = []
    weights: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").replace(";", " ").split()
        if not words:
            continue
        if len(words) not in (2, 3):
            raise AffineDPError(f"line {number}: write two names, as in: ann bob")
        one, other = (place.setdefault(word, len(place)) for word in words[:2])
        ends.append((one, other))
        if len(words) == 3:
            try:
                weights.append(float(words[2]))
            except ValueError:
                raise AffineDPError(f"line {number}: {words[2]!r} is no weight") from None
    if not ends:
        raise AffineDPError("write the links of the network, two names per line")
    if weights and len(weights) < len(ends):
        raise AffineDPError("give every link a weight, or none")
    sources, targets = zip(*ends)
    return list(place), list(sources), list(targets), weights or "metropolis"


def _places(count: int) -> list[list[float]]:
    """Where to draw the agents: on a circle."""
    angles = 2 * np.pi * np.arange(count) / count
    return [[math.sin(angle), -math.cos(angle)] for angle in angles]
