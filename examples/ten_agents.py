"""Ten agents that find the average of their values, and what an eavesdropper learns about them.

    python examples/ten_agents.py            # writes ten_agents.png

Starts a broker, an eavesdropper, and the ten agents of section VI of the paper as
separate processes; when they are done, it draws what was overheard, and what that says about the
values.  docs/tutorials/private-consensus.md walks through it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from private_vehicle import AFFINEDP, BLUE, GREY, PATIENCE, RED, broker

from affinedp.consensus.agent import read_state
from affinedp.consensus.one_draw import AgentNoise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EDGES = [
    (1, 2), (1, 10), (2, 3), (2, 5), (2, 10), (3, 4), (4, 5), (5, 6), (5, 7), (6, 7), (7, 8),
    (7, 10), (8, 9), (9, 10),
]  # fmt: skip
VALUES = np.array([10.0, 100.0, 20.0, -30.0, -20.0, -60.0, 70.0, 0.0, 80.0, -20.0])
WEIGHT, ROUNDS = 0.25, 30
NOISE = AgentNoise(epsilon=1.0, delta=0.01, mu=10.0)  # values up to 10 apart


# ---------------------------------------------------------------------- the run


def start(folder: Path, *words: object) -> tuple[subprocess.Popen[bytes], Path]:
    """Start ``affinedp consensus …``; returns the process and what it prints."""
    said = folder / f"{time.monotonic_ns()}.log"
    with said.open("wb") as file:
        command = [*AFFINEDP, "consensus", *map(str, words)]
        return subprocess.Popen(command, stdout=file, stderr=file), said


def run(folder: Path) -> None:
    """Let the agents meet; leaves seen.jsonl and the states 1.db … 10.db in the folder."""
    with ExitStack() as stack:
        at = ("--broker", stack.enter_context(broker(folder, "public")))
        spy, said = start(folder, "eavesdrop", *at, "--log", folder / "seen.jsonl")
        stack.callback(spy.terminate)
        while "listening" not in said.read_text() and spy.poll() is None:
            time.sleep(0.05)
        links = [[str(a), str(b), WEIGHT] for a, b in EDGES]
        noise = f"epsilon = {NOISE.epsilon}\ndelta = {NOISE.delta}\nmu = {NOISE.mu}\n"
        network = folder / "network.toml"
        network.write_text(f"rounds = {ROUNDS}\nlinks = {json.dumps(links)}\n[noise]\n{noise}")
        agents = []
        for i, value in enumerate(VALUES, 1):
            secret = folder / f"{i}.txt"
            secret.touch(mode=0o600)
            secret.write_text(f"{value}\n")
            agents.append(
                start(
                    folder, "agent", "--id", i, "--network", network, "--value-file", secret,
                    "--state", folder / f"{i}.db", *at,
                )
            )  # fmt: skip
            stack.callback(agents[-1][0].kill)
        for process, said in agents:
            if process.wait(PATIENCE) != 0:
                sys.exit(said.read_text())
            print(said.read_text().splitlines()[-1])


def what_was_seen(folder: Path) -> np.ndarray:
    """Return the messages as the eavesdropper wrote them down, one row per round."""
    found = np.full((ROUNDS + 1, len(VALUES)), np.nan)
    for line in (folder / "seen.jsonl").read_text(encoding="utf-8").splitlines():
        message = json.loads(json.loads(line)["payload"])
        place = message["round"], int(message["agent"]) - 1
        assert np.isnan(found[place]) or found[place] == message["y"], "two values for one round"
        found[place] = message["y"]
    return found


# ---------------------------------------------------------------------- the figure


def draw(folder: Path, output: Path) -> None:
    """Show the messages, and what they say about the values."""
    from matplotlib.figure import Figure

    messages = what_was_seen(folder)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    show_messages(left, messages)
    show_values(middle, messages[0])
    show_knowledge(right)
    figure.savefig(output, dpi=150)
    report(folder)
    print(f"wrote {output}")


def show_messages(axes: Axes, messages: np.ndarray) -> None:
    """All that crossed the broker: plain consensus from the ten first messages."""
    axes.plot(messages, color=BLUE, lw=1, alpha=0.7)
    axes.axhline(VALUES.mean(), color="black", ls="--", label="average of the values")
    axes.axhline(messages[0].mean(), color=RED, ls=":", label="average of the first messages")
    axes.set(xlabel="round", ylabel="message", title="the messages of ten agents")
    axes.legend(fontsize=7)


def show_values(axes: Axes, first: np.ndarray) -> None:
    """What all messages say about each value: the first message, give or take the noise."""
    agents = np.arange(1, len(first) + 1)
    axes.errorbar(
        agents, first, 1.96 * NOISE.scale, fmt="none", ecolor=BLUE, capsize=3,
        label="eavesdropper's 95 % interval",
    )  # fmt: skip
    axes.plot(agents, VALUES, "o", ms=4, color="black", label="value")
    axes.set(xlabel="agent", xticks=agents, title=f"what {ROUNDS} rounds say of the values")
    axes.legend(fontsize=7, loc="upper right")
    axes.set_ylim(top=axes.get_ylim()[1] + 45)


def show_knowledge(axes: Axes) -> None:
    """How well a value is known after so many rounds.

    An eavesdropper takes from every message what the published ones did to the state.  What is
    left is x(0) plus noise, again and again: the same noise, or fresh noise that it averages away.
    """
    rounds, sigma = np.arange(ROUNDS + 1), NOISE.scale
    assert NOISE.mu is not None
    floor = NOISE.mu / NOISE.mechanism().guarantee.sensitivity
    axes.plot(rounds, np.full(len(rounds), sigma), color=BLUE, lw=2, label="one draw (affinedp)")
    axes.plot(rounds, sigma / np.sqrt(rounds + 1), color=RED, label="fresh noise in every message")
    axes.axhline(floor, color=GREY, ls="--", label="the least that the promise allows")
    axes.set(xlabel="rounds overheard", ylabel="standard deviation", ylim=(0, 1.5 * sigma))
    axes.set_title("how well it knows a value")
    axes.legend(fontsize=7)


def report(folder: Path) -> None:
    """Print what each owner may read off for itself, next to the truth."""
    found: dict[str, list[float]] = {"message": [], "state": [], "corrected": []}
    for i in range(1, len(VALUES) + 1):
        with read_state(folder / f"{i}.db") as agent:
            for name in ("message", "state", "corrected"):
                found[name].append(agent.readout(name, len(VALUES)))
    print(f"average of the values: {VALUES.mean():g}; noise on each: {NOISE.scale:.2f}")
    for name, values in found.items():
        error = np.sqrt(np.mean((np.array(values) - VALUES.mean()) ** 2))
        print(f"{name:>9}: off by {error:.2f} (root mean square over the agents)")


def main() -> None:
    """Run and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("ten_agents.png"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run(Path(name))
        draw(Path(name), arguments.output)


if __name__ == "__main__":
    main()
