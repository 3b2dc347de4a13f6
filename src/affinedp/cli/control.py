"""``affinedp control …``: design the noise of a loop, and run the loop over MQTT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from affinedp.cli.control_loop import Loop, cloud, gateway, plant
from affinedp.cli.eavesdrop import eavesdrop
from affinedp.cli.file_kinds import expect
from affinedp.cli.help import add
from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json
from affinedp.cli.sensor import sensor
from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.control.loop.loop_file import LoopFile

# Over longer horizons the report leaves out what the loop pays.
MOST_TRACKED = 20_000

control_app = typer.Typer(
    help="Private cloud control: design output noise, and run the loop over MQTT.",
    no_args_is_help=True,
)


def design(
    loop: Loop,
    output: Annotated[Path, typer.Option("--output", "-o", help="Mechanism file to write.")],
    epsilon: Annotated[float | None, typer.Option(help="ε to keep.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ to keep.")] = None,
    as_json: AsJson = False,
) -> None:
    """Design the least noise that hides the trajectory of LOOP, or its private inputs, and save it.

    ε and δ come from its privacy table, or from the options.  The report says what the loop pays.
    """
    from affinedp.cli.answers import promise_as_json
    from affinedp.control.loop.loop_file import read_loop

    expect(loop, "loop")
    read = read_loop(loop)
    mechanism = design_loop(read, epsilon, delta)
    mechanism.save(output)
    long = read.horizon > MOST_TRACKED
    report = mechanism.report() if long else read.loop.report(mechanism, read.horizon)
    if as_json:
        costs = [{"what": label, "text": text} for label, text in report.totals]
        say_json({**promise_as_json(mechanism.guarantee), "costs": costs})
    else:
        say(report)


def design_loop(read: LoopFile, epsilon: float | None, delta: float | None) -> Any:
    """Design the noise that a loop file asks for.

    Parameters
    ----------
    read : LoopFile
        What the file says.
    epsilon, delta : float or None
        Instead of the file's.

    Returns
    -------
    TrajectoryMechanism or StationaryMechanism
    """
    from affinedp.cli.problems import check_promise
    from affinedp.control.stationary.design import design_input_noise
    from affinedp.control.stationary.output_noise import design_output_noise

    epsilon = read.epsilon if epsilon is None else epsilon
    delta = read.delta if delta is None else delta
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    check_promise(epsilon, delta or 0.0)
    if not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    cost = read.loop if read.cost == "tracking" else None
    if read.neighbours == "input":
        return design_input_noise(
            read.private, epsilon, delta, mu=read.mu, window=read.window, cost=cost
        )
    return design_output_noise(
        read.dynamics,
        read.horizon,
        epsilon,
        delta,
        mu=read.mu,
        neighbours=read.neighbours,
        cost=cost,
    )


_GATEWAY = "affinedp control gateway --mechanism noise.json --state run.db --resolution 0.1"
add(control_app, design, "affinedp control design loop.toml -o noise.json --epsilon 1 --delta 0.01")
add(
    control_app,
    gateway,
    f"{_GATEWAY} --ledger budget.db --broker broker.example:8883 --tls --in-broker localhost:1883",
    f"{_GATEWAY} --limits limits.toml",
)
add(control_app, cloud, "affinedp control cloud loop.toml --broker localhost:1883")
add(
    control_app, plant, "affinedp control plant loop.toml --broker localhost:1883 --log plant.jsonl"
)
add(control_app, sensor, "affinedp control sensor recording.csv")
add(control_app, eavesdrop, "affinedp control eavesdrop --log seen.jsonl --topics 'cloud/#'")
