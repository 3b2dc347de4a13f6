"""``affinedp control …``: design the noise of a loop, and run the loop over MQTT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from affinedp.cli.control_design import design_loop
from affinedp.cli.control_loop import Loop, cloud, gateway, plant
from affinedp.cli.control_trial import broker, trial
from affinedp.cli.eavesdrop import eavesdrop
from affinedp.cli.sensor import sensor

# Over longer horizons the report leaves out what the loop pays.
MOST_TRACKED = 20_000

control_app = typer.Typer(
    help="Private cloud control: design output noise, and run the loop over MQTT.",
    no_args_is_help=True,
)


@control_app.command()
def design(
    loop: Loop,
    output: Annotated[Path, typer.Option("--output", "-o", help="Mechanism file to write.")],
    epsilon: Annotated[float | None, typer.Option(help="ε to keep.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ to keep.")] = None,
) -> None:
    """Design the least noise that hides the trajectory of LOOP, or its private inputs, and save it.

    ε and δ come from its privacy table, or from the options.  The report says what the loop pays.
    """
    from affinedp.control.loop.loop_file import read_loop

    read = read_loop(loop)
    mechanism = design_loop(read, epsilon, delta)
    mechanism.save(output)
    long = read.horizon > MOST_TRACKED
    typer.echo(str(mechanism.report() if long else read.loop.report(mechanism, read.horizon)))


for _command in (trial, gateway, cloud, plant, broker, sensor, eavesdrop):
    control_app.command()(_command)
