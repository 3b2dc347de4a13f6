"""``affinedp control …``: design the noise of a loop, and run the loop over MQTT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from affinedp.cli.control_design import design_loop
from affinedp.cli.control_loop import Loop, cloud, gateway, plant
from affinedp.cli.control_trial import broker, trial
from affinedp.cli.eavesdrop import eavesdrop
from affinedp.cli.file_kinds import expect
from affinedp.cli.help import add
from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json
from affinedp.cli.sensor import sensor

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
    law: Annotated[
        str, typer.Option(help="gaussian, laplace, knorm, or auto: the least cost (default).")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Design the least noise that hides the trajectory of LOOP, or its private inputs, and save it.

    ε and δ come from its privacy table, or from the options.  The report says what the loop pays.
    Without a law the one that costs the loop least is taken; noise that is fresh at every step
    (neighbours "forward" and "input") is Gaussian.
    """
    from affinedp.cli.answers import promise_as_json
    from affinedp.control.loop.loop_file import read_loop

    expect(loop, "loop")
    read = read_loop(loop)
    mechanism = design_loop(read, epsilon, delta, law)
    mechanism.save(output)
    tracked = read.steered and read.horizon <= MOST_TRACKED
    report = read.loop.report(mechanism, read.horizon) if tracked else mechanism.report()
    if as_json:
        costs = [{"what": label, "text": text} for label, text in report.totals]
        say_json({**promise_as_json(mechanism.guarantee), "costs": costs})
    else:
        say(report)


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
add(
    control_app,
    trial,
    "affinedp control trial loop.toml",
    "affinedp control trial loop.toml --broker localhost:1883 --period 0.1",
)
add(control_app, broker, "affinedp control broker --port 1883")
add(control_app, sensor, "affinedp control sensor recording.csv")
add(control_app, eavesdrop, "affinedp control eavesdrop --log seen.jsonl --topics 'cloud/#'")
