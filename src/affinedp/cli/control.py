"""``affinedp control …``: design the noise of a loop, and run the loop over MQTT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from affinedp.cli.control_loop import Loop, cloud, gateway, plant
from affinedp.cli.eavesdrop import eavesdrop
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


@control_app.command()
def design(
    loop: Loop,
    output: Annotated[Path, typer.Option("--output", "-o", help="Mechanism file to write.")],
    epsilon: Annotated[float | None, typer.Option(help="ε to keep.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ to keep.")] = None,
    law: Annotated[
        str, typer.Option(help="gaussian, laplace, knorm, or auto: the least cost (default).")
    ] = "auto",
) -> None:
    """Design the least noise that hides the trajectory of LOOP, or its private inputs, and save it.

    ε and δ come from its privacy table, or from the options.  The report says what the loop pays.
    Without a law the one that costs the loop least is taken; noise that is fresh at every step
    (neighbours "forward" and "input") is Gaussian.
    """
    from affinedp.control.loop.loop_file import read_loop

    read = read_loop(loop)
    mechanism = design_loop(read, epsilon, delta, law)
    mechanism.save(output)
    long = read.horizon > MOST_TRACKED
    typer.echo(str(mechanism.report() if long else read.loop.report(mechanism, read.horizon)))


for _command in (gateway, cloud, plant, sensor, eavesdrop):
    control_app.command()(_command)


def design_loop(
    read: LoopFile, epsilon: float | None, delta: float | None, law: str = "auto"
) -> Any:
    """Design the noise that a loop file asks for.

    Parameters
    ----------
    read : LoopFile
        What the file says.
    epsilon, delta : float or None
        Instead of the file's.
    law : str
        The law, or the one of least cost; noise for all time is Gaussian.

    Returns
    -------
    TrajectoryMechanism or StationaryMechanism
    """
    from affinedp.control.stationary.design import design_input_noise
    from affinedp.control.stationary.output_noise import design_output_noise
    from affinedp.designs.choose import LAWS, AnyLaw

    epsilon = read.epsilon if epsilon is None else epsilon
    delta = read.delta if delta is None else delta
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    cost = read.loop if read.cost == "tracking" else None
    fresh = read.neighbours in ("input", "forward")
    if law not in ("auto", *LAWS):
        raise AffineDPError(f"law must be one of auto, {', '.join(LAWS)}, not {law!r}")
    if fresh and law not in ("auto", "gaussian"):
        raise AffineDPError(f"noise for neighbours = {read.neighbours!r} is Gaussian, not {law}")
    if not delta and (fresh or law == "gaussian"):
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    if read.neighbours == "input":
        assert delta is not None
        return design_input_noise(
            read.private, epsilon, delta, mu=read.mu, window=read.window, cost=cost
        )
    return design_output_noise(
        read.dynamics,
        read.horizon,
        epsilon,
        delta if law in ("auto", "gaussian") and delta else 0.0,
        mu=read.mu,
        neighbours=read.neighbours,
        cost=cost,
        law="gaussian" if fresh else cast(AnyLaw, law),
    )
