"""A vehicle that is driven from the cloud, and what an eavesdropper learns about it.

    python examples/private_vehicle.py            # writes private_vehicle.png

Starts two brokers (the plant's own and a public one), the plant, the gateway, the
cloud and an eavesdropper as separate processes, waits for the end of the run, and then attacks:
least squares on everything that crossed the public broker.  docs/tutorials/private-vehicle.md walks
through it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from affinedp.control import ClosedLoop
from affinedp.control.loop_file import LoopFile, read_loop
from affinedp.mechanism import Mechanism
from affinedp.mqtt.local_broker import local_broker

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
AFFINEDP = [sys.executable, "-c", "from affinedp.cli import main; main()"]
PATIENCE = 120.0
BLUE, RED, GREY = "#0072B2", "#D55E00", "#777777"  # Okabe and Ito's palette


# ---------------------------------------------------------------------- the run


@contextmanager
def broker(folder: Path, name: str) -> Iterator[str]:
    """Start a broker for this machine only; yields host:port."""
    home = folder / name
    home.mkdir()
    with local_broker(home) as started:
        yield started.address


@contextmanager
def affinedp(folder: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``affinedp control …`` and wait until it listens."""
    log = folder / f"{words[0]}.log"
    with log.open("wb") as file:
        command = [*AFFINEDP, "control", *map(str, words)]
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + PATIENCE
        while "listening" not in log.read_text() and process.poll() is None:
            if time.monotonic() > deadline:
                sys.exit(f"{words[0]} does not start: {log.read_text()}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()
        print(log.read_text(), end="")


def run(folder: Path) -> None:
    """Drive the vehicle once; leaves plant.jsonl, seen.jsonl and m.json in the folder."""
    vehicle = folder / "vehicle.toml"
    shutil.copy(HERE / "vehicle.toml", vehicle)
    shutil.copy(HERE / "vehicle_reference.csv", folder)
    # the cloud must not know where the vehicle starts
    public = folder / "public.toml"
    lines = vehicle.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("x0")]
    public.write_text("\n".join(kept) + "\n", encoding="utf-8")

    # the noise of the paper: what is said of unbiased estimates below is about this law
    design = [*AFFINEDP, "control", "design", str(public), "--law", "gaussian"]
    subprocess.run([*design, "-o", str(folder / "m.json")], check=True)
    with ExitStack() as stack:
        own = stack.enter_context(broker(folder, "own"))
        everyone = stack.enter_context(broker(folder, "everyone"))
        at = ("--broker", everyone)
        noise = ("--mechanism", folder / "m.json", "--state", folder / "secret.db")
        for words in (
            ("eavesdrop", *at, "--log", folder / "seen.jsonl"),
            ("cloud", public, *at),
            ("gateway", public, *noise, "--resolution", "exact", *at, "--in-broker", own),
        ):
            stack.enter_context(affinedp(folder, *words))
        secret = ("--out-broker", own, "--log", folder / "plant.jsonl")
        plant = stack.enter_context(affinedp(folder, "plant", vehicle, *at, *secret))
        if plant.wait(PATIENCE) != 0:
            sys.exit("the plant did not come to the end")


# ---------------------------------------------------------------------- the attack


@dataclass(frozen=True)
class Attack:
    """An estimate of the whole trajectory from all messages, and how far off it may be.

    ``states`` has one row per step; ``spread`` is the standard deviation of its positions.
    """

    states: np.ndarray
    spread: np.ndarray


def attack(loop: ClosedLoop, received: np.ndarray, inputs: np.ndarray, noise: np.ndarray) -> Attack:
    """Estimate x(0) by least squares, knowing the dynamics and all inputs, and follow it.

    ŷ(t) = C A^t x(0) + γ(t) + what the inputs did, which is known.  If the noise is one draw,
    γ(t) = C A^t R η, then this finds x(0) + R η, and there is nothing else in the messages.  If it
    is fresh at every step, this is the maximum-likelihood estimate.

    ``noise`` is the covariance of γ(0), γ(1), … as the eavesdropper knows it.
    """
    A, B, C = loop.plant.A, loop.plant.B, loop.plant.C
    moved = np.zeros((len(received), len(A)))  # what the inputs did to the state
    for t in range(1, len(received)):
        moved[t] = A @ moved[t - 1] + B @ inputs[t - 1]
    powers = state_powers(A, len(received))
    rows = (C @ powers)[:, 0, :]
    solve = np.linalg.pinv(rows)
    start = solve @ (received - moved @ C.T)[:, 0]
    covariance = solve @ noise @ solve.T
    spread = np.sqrt(np.einsum("ti,ij,tj->t", rows, covariance, rows))
    return Attack(powers @ start + moved, spread)


def state_powers(A: np.ndarray, steps: int) -> np.ndarray:
    """Return I, A, A², …"""
    powers = [np.eye(len(A))]
    for _ in range(steps - 1):
        powers.append(A @ powers[-1])
    return np.array(powers)


def spread_by_messages(loop: ClosedLoop, noise: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the last position after 2, 3, … messages."""
    found = []
    for k in range(2, len(noise) + 1):
        silent = np.zeros((k, 1))
        found.append(attack(loop, silent, silent, noise[:k, :k]).spread[-1])
    return np.array(found)


def what_was_seen(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return ŷ and u as the eavesdropper wrote them down."""
    found: dict[str, dict[int, list[float]]] = {"cloud/y": {}, "cloud/u": {}}
    for line in (folder / "seen.jsonl").read_text(encoding="utf-8").splitlines():
        message = json.loads(line)
        if message["topic"] not in found:
            continue  # the gateway's claim on its topic
        content = json.loads(message["payload"])
        signal = message["topic"][-1]
        before = found[message["topic"]].setdefault(content["step"], content[signal])
        assert before == content[signal], "a step was published with two values"
    received, inputs = (np.array([values[t] for t in sorted(values)]) for values in found.values())
    return received, inputs


# ---------------------------------------------------------------------- the figure


def draw(folder: Path, output: Path) -> None:
    """Attack the run in the folder, and i.i.d. noise of the same size; write the figure."""
    from matplotlib.figure import Figure

    read: LoopFile = read_loop(folder / "vehicle.toml")
    mechanism = Mechanism.load(folder / "m.json")
    loop, steps = read.loop, read.horizon
    records = [json.loads(line) for line in (folder / "plant.jsonl").read_text().splitlines()]
    truth = np.array([record["x"][0] for record in records])
    received, inputs = what_was_seen(folder)
    loadings = mechanism.strategy.over()[:, 0, :]
    one_draw = loadings @ loadings.T
    ours = attack(loop, received, inputs, one_draw)

    # the same size on average, but fresh at every step
    fresh = np.eye(steps) * np.trace(one_draw) / steps
    drawn = np.random.default_rng(1).normal(size=(1, steps, 1)) * np.sqrt(fresh[0, 0])
    other = loop.simulate(drawn, steps, runs=1, seed=0)
    theirs = attack(loop, other.outputs[0], other.inputs[0], fresh)

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    show_run(left, "one draw for all steps (affinedp)", truth, received, ours, BLUE)
    other_truth = other.states[0, :steps, 0]
    show_run(middle, "fresh noise of the same size", other_truth, other.outputs[0], theirs, RED)
    middle.sharey(left)
    floor = np.asarray(read.mu)[0] / mechanism.guarantee.sensitivity
    lasting, shrinking = (spread_by_messages(loop, noise) for noise in (one_draw, fresh))
    messages = np.arange(2, steps + 1)
    right.plot(messages, lasting, color=BLUE, label="one draw")
    right.plot(messages, shrinking, color=RED, label="fresh noise")
    right.axhline(floor, color=GREY, ls="--", label="the least that the promise allows")
    right.set(xlabel="messages overheard", ylabel="standard deviation (m)", ylim=(0, 1.5 * floor))
    right.set_title("how well it knows the position now")
    right.legend(fontsize=7)
    figure.savefig(output, dpi=150)
    print(f"the promise: no unbiased estimate of a position is better than ± {floor:.2f} m")
    print(f"one draw:    {steps} messages give ± {lasting[-1]:.2f} m")
    print(f"fresh noise: {steps} messages give ± {shrinking[-1]:.2f} m")
    print(f"wrote {output}")


def show_run(
    axes: Axes, title: str, truth: np.ndarray, received: np.ndarray, found: Attack, colour: str
) -> None:
    """Draw where the vehicle was, what was published, and what the eavesdropper makes of it."""
    t = np.arange(len(truth))
    estimate = found.states[:, 0]
    low, high = estimate - 1.96 * found.spread, estimate + 1.96 * found.spread
    axes.fill_between(t, low, high, color=colour, alpha=0.25, lw=0, label="its 95 % interval")
    axes.plot(t, estimate, color=colour, ls="--", label="eavesdropper's estimate")
    axes.plot(t, received[:, 0], ".", ms=3, color=GREY, label="published")
    axes.plot(t, truth, color="black", label="true position")
    axes.set(xlabel="step", ylabel="position (m)", title=title)
    axes.legend(fontsize=7, loc="lower right")


def main() -> None:
    """Run and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("private_vehicle.png"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run(Path(name))
        draw(Path(name), arguments.output)


if __name__ == "__main__":
    main()
