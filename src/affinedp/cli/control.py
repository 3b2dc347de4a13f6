"""``affinedp control …``: design the noise of a loop, and run the loop over MQTT."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from affinedp.cli.broker_options import (
    Address,
    CaFile,
    CertFile,
    KeyFile,
    PasswordFile,
    Tls,
    Username,
    attended,
    own_side_broker,
    public_broker,
)
from affinedp.cli.eavesdrop import eavesdrop
from affinedp.cli.options import SameSecret
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.control.loop.loop_file import LoopFile
    from affinedp.wire.line import Outcome

logger = logging.getLogger(__name__)

control_app = typer.Typer(
    help="Private cloud control: design output noise, and run the loop over MQTT.",
    no_args_is_help=True,
)

Loop = Annotated[Path, typer.Argument(help="Loop file, TOML or JSON.", show_default=False)]
Linger = Annotated[float, typer.Option(help="Seconds to stay after the last step.", min=0.0)]


@control_app.command()
def design(
    loop: Loop,
    output: Annotated[Path, typer.Option("--output", "-o", help="Mechanism file to write.")],
    epsilon: Annotated[float | None, typer.Option(help="ε to keep.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ to keep.")] = None,
) -> None:
    """Design the least noise that hides the trajectory of LOOP, and save it.

    ε and δ come from its privacy table, or from the options.
    """
    from affinedp.control.loop.loop_file import read_loop

    mechanism = design_loop(read_loop(loop), epsilon, delta)
    mechanism.save(output)
    typer.echo(str(mechanism.report()))


@control_app.command()
def gateway(
    mechanism: Annotated[Path, typer.Option(help="Mechanism file.")],
    state: Annotated[Path, typer.Option(help="State of this trajectory; secret, kept.")],
    ledger: Annotated[str | None, typer.Option(help="Budget that pays for the draw.")] = None,
    label: Annotated[str | None, typer.Option(help="For the ledger.")] = None,
    same_secret: SameSecret = False,
    measurement_error: Annotated[
        float | None, typer.Option(help="How far measurements may be off the equations.")
    ] = None,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Draw again for a lost state; needs a ledger.")
    ] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="The state was moved here; no copy is in use.")
    ] = False,
    broker: Address = "localhost:1883",
    source: Annotated[str, typer.Option("--in", help="Topic of the measurements.")] = "plant/y",
    target: Annotated[str, typer.Option("--out", help="Topic to publish on.")] = "cloud/y",
    in_broker: Annotated[
        str | None, typer.Option(help="Broker on the plant's side, for the measurements.")
    ] = None,
    in_username: Annotated[str | None, typer.Option(help="For that broker.")] = None,
    in_password_file: Annotated[Path | None, typer.Option(help="For that broker.")] = None,
    in_plain: Annotated[bool, typer.Option("--in-plain", help="No TLS to that broker.")] = False,
    username: Username = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    linger: Linger = 10.0,
) -> None:
    """Publish the plant's measurements with the noise of a saved mechanism.

    The noise is drawn once, when the state is made; after a crash or a restart the gateway goes
    on where it was, and repeats what it said.  A new trajectory needs a new state.
    """
    from affinedp.budget.ledger import Ledger
    from affinedp.control.gateway.gateway import Gateway
    from affinedp.control.processes.gateway import run_gateway
    from affinedp.control.trajectory.noise import TrajectoryMechanism
    from affinedp.wire.connection import Connection
    from affinedp.wire.line import Place

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    inside = own_side_broker(public, in_broker, in_username, in_password_file, in_plain)
    loaded = TrajectoryMechanism.load(mechanism)
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        if inside.address == public.address:
            logger.warning(
                "gateway: measurements and noisy measurements share the broker at %s: who may "
                "read %s there sees the measurements themselves.  Use --in-broker, or let the "
                "broker's access control keep everyone else away from it",
                public.address,
                source,
            )
        if not state.exists():
            for place in (public, inside):  # nothing is drawn and charged in vain
                with Connection(place):
                    pass
            if ledger is None:
                logger.warning("gateway: no ledger was given: nothing keeps count of this draw")
        budget = None
        if ledger is not None:
            opened_ledger = Ledger(ledger, create=False, same_secret=same_secret)
            budget = stack.enter_context(opened_ledger)
        opened = stack.enter_context(
            Gateway(
                loaded,
                state=state,
                ledger=budget,
                label=label,
                measurement_error=measurement_error,
                redraw=redraw,
                moved=moved,
            )
        )
        outcome = run_gateway(
            opened,
            Place(inside, source),
            Place(public, target),
            stop,
            linger=linger,
            on_step=stack.enter_context(_progress("gateway", opened.horizon)),
        )
    _say("gateway", outcome, loaded.horizon)


@control_app.command()
def cloud(
    loop: Loop,
    broker: Address = "localhost:1883",
    source: Annotated[
        str, typer.Option("--in", help="Topic of the noisy measurements.")
    ] = "cloud/y",
    target: Annotated[str, typer.Option("--out", help="Topic of the inputs.")] = "cloud/u",
    username: Username = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    linger: Linger = 10.0,
) -> None:
    """Answer noisy measurements with the inputs of the observer and feedback in LOOP.

    Where the plant starts (x0) is not used; give the cloud a copy of the file without it.
    """
    from affinedp.control.loop.loop_file import read_loop
    from affinedp.control.processes.cloud import run_cloud
    from affinedp.wire.line import Place

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    read = read_loop(loop)
    with attended() as stop, _progress("cloud", read.horizon) as on_step:
        outcome = run_cloud(
            read.loop,
            read.horizon,
            Place(public, source),
            Place(public, target),
            stop,
            linger=linger,
            on_step=on_step,
        )
    _say("cloud", outcome, read.horizon)


@control_app.command()
def plant(
    loop: Loop,
    broker: Address = "localhost:1883",
    source: Annotated[str, typer.Option("--in", help="Topic of the inputs.")] = "cloud/u",
    target: Annotated[str, typer.Option("--out", help="Topic of the measurements.")] = "plant/y",
    out_broker: Annotated[
        str | None, typer.Option(help="Broker on the plant's side, for the measurements.")
    ] = None,
    out_username: Annotated[str | None, typer.Option(help="For that broker.")] = None,
    out_password_file: Annotated[Path | None, typer.Option(help="For that broker.")] = None,
    out_plain: Annotated[bool, typer.Option("--out-plain", help="No TLS to that broker.")] = False,
    log: Annotated[Path | None, typer.Option(help="Write x, y and u of each step here.")] = None,
    period: Annotated[float, typer.Option(help="Seconds per step, at least.", min=0.0)] = 0.0,
    resend: Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=0.01)] = 1.0,
    username: Username = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
) -> None:
    """Simulate the plant of LOOP: send y(t), wait for u(t), and so on to the horizon."""
    from affinedp.control.loop.loop_file import read_loop
    from affinedp.control.processes.plant import run_plant
    from affinedp.wire.line import Place

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    inside = own_side_broker(public, out_broker, out_username, out_password_file, out_plain)
    read = read_loop(loop)
    if not read.has_start:
        raise AffineDPError(f"{loop}: [plant] x0 is missing: where does the plant start?")
    with attended() as stop, _progress("plant", read.horizon) as on_step:
        outcome = run_plant(
            read.loop,
            read.horizon,
            Place(public, source),
            Place(inside, target),
            stop,
            log=log,
            period=period,
            resend=resend,
            on_step=on_step,
        )
    _say("plant", outcome, read.horizon)


control_app.command()(eavesdrop)


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
    TrajectoryMechanism
    """
    from affinedp.control.stationary.output_noise import design_output_noise

    epsilon = read.epsilon if epsilon is None else epsilon
    delta = read.delta if delta is None else delta
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    if not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    return design_output_noise(
        read.dynamics,
        read.horizon,
        epsilon,
        delta,
        mu=read.mu,
        neighbours=read.neighbours,
        cost=read.loop if read.cost == "tracking" else None,
    )


@contextmanager
def _progress(who: str, horizon: int) -> Iterator[Any]:
    with Progress(who) as bar:
        yield lambda step: bar.update((step + 1) / horizon, f"step {step}")


def _say(who: str, outcome: Outcome, horizon: int) -> None:
    ending = "all steps" if outcome.finished else "stopped"
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(outcome.dropped.items()))
    typer.echo(f"{who}: {ending}, {outcome.steps} of {horizon}; dropped: {dropped or 'nothing'}")
