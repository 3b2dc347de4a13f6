"""``affinedp control gateway|cloud|plant``: the processes of a loop over MQTT."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from affinedp.cli.answers import outcome_as_json
from affinedp.cli.broker_options import (
    Address,
    CaFile,
    CertFile,
    KeyFile,
    PasswordFile,
    Tls,
    Username,
    Wait,
    attended,
    own_side_broker,
    public_broker,
)
from affinedp.cli.exits import LOOP_ENDED
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson, SameSecret
from affinedp.cli.output import say_json
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.control.gateway.gateway import Gateway
    from affinedp.mqtt.process import Outcome

logger = logging.getLogger(__name__)

Loop = Annotated[Path, typer.Argument(help="Loop file, TOML or JSON.", show_default=False)]
FreshNoise = Annotated[
    str | None,
    typer.Option(
        help="Scale of the noise that is fresh at every step, one or one per output with commas "
        "(default: what the sensors need)."
    ),
]
Linger = Annotated[float, typer.Option(help="Seconds to stay after the last step.", min=0.0)]


def gateway(
    mechanism: Annotated[Path, typer.Option(help="Mechanism file.")],
    state: Annotated[Path, typer.Option(help="State of this trajectory; secret, kept.")],
    resolution: Annotated[
        str,
        typer.Option(
            help="Step of the sensors: a number, one per output with commas, "
            "dither:BITS:STEP, or exact (simulation only)."
        ),
    ],
    limits: Annotated[
        Path | None,
        typer.Option(help="File with the sensors' range and public limits that keep it (TOML)."),
    ] = None,
    measurement_error: Annotated[
        float | None, typer.Option(help="How far measurements may be off the equations otherwise.")
    ] = None,
    analog_noise: Annotated[
        float | None, typer.Option(help="Least noise before the converters; a promise of yours.")
    ] = None,
    fresh_noise: FreshNoise = None,
    horizon: Annotated[
        int | None, typer.Option(help="How many steps this run has at most, if fewer.", min=1)
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="Budget that pays for the draw: a file, or postgresql://…#name."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="For the ledger.")] = None,
    same_secret: SameSecret = False,
    new_run: Annotated[
        Literal["stop", "draw"],
        typer.Option(help="When the plant is started anew: stop it, or draw and charge again."),
    ] = "stop",
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Draw again for a lost state; needs a ledger.")
    ] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="The state was moved here; no copy is in use.")
    ] = False,
    claim: Annotated[
        bool, typer.Option("--claim/--no-claim", help="Claim the topic, against a second gateway.")
    ] = True,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="The gateway that claims the topic is gone.")
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
    wait: Wait = 60.0,
    as_json: AsJson = False,
) -> None:
    """Publish the plant's measurements with the noise of a saved mechanism.

    The noise is drawn once, when the state is made; after a crash or a restart the gateway goes
    on where it was, and repeats what it said.  A plant that is started anew is a new run, which
    needs a new draw.
    """
    from affinedp.cli.sensor import read_limits, read_resolution, read_scales
    from affinedp.mqtt.gateway_process import run_gateway
    from affinedp.mqtt.process import Place

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    inside = own_side_broker(public, in_broker, in_username, in_password_file, in_plain)
    expect(mechanism, "noise of a loop")
    loaded = load_noise(mechanism)
    sensors = {
        "resolution": read_resolution(resolution),
        "measurement_error": measurement_error,
        "analog_noise": analog_noise,
        "fresh_noise": read_scales(fresh_noise),
        "horizon": horizon,
        **read_limits(limits),
    }
    if new_run == "draw" and ledger is None:
        raise AffineDPError("--new-run draw needs a --ledger, which is charged for every run")
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        _warn_of_one_broker(public.address, inside.address, source)
        if not state.exists():
            _reach((public, inside), wait, stop)  # nothing is drawn and charged in vain
            if ledger is None:
                logger.warning("gateway: no ledger was given: nothing keeps count of this draw")
        words = {"redraw": redraw, "moved": moved, **sensors}
        opener = stack.enter_context(_states(loaded, state, ledger, label, same_secret, words))
        opened = opener(None)
        outcome = run_gateway(
            opened,
            Place(inside, source),
            Place(public, target),
            stop,
            linger=linger,
            on_step=stack.enter_context(_progress("gateway", opened.horizon)),
            renew=opener if new_run == "draw" else None,
            claim=claim,
            take_over=take_over,
            patience=wait,
        )
    _say("gateway", outcome, loaded.horizon if horizon is None else horizon, as_json)


def load_noise(path: Path) -> Any:
    """Read a mechanism with one draw, or stationary noise: the file says which.

    Parameters
    ----------
    path : Path
        What ``save`` of one of them wrote.
    """
    from affinedp.control.stationary.noise import StationaryMechanism
    from affinedp.control.trajectory.noise import TrajectoryMechanism
    from affinedp.files.mechanisms import STATIONARY_FORMAT

    try:
        form = json.loads(path.read_text(encoding="utf-8"))["format"]
    except (OSError, ValueError, LookupError, TypeError):
        form = ""  # said by who reads it below
    if form == STATIONARY_FORMAT:
        return StationaryMechanism.load(path)
    return TrajectoryMechanism.load(path)


@contextmanager
def _states(
    mechanism: Any,
    state: Path,
    ledger: str | None,
    label: str | None,
    same_secret: bool,
    words: dict[str, Any],
) -> Iterator[Callable[[str | None], Gateway]]:
    """Open the gateway of a run: the first in ``state``, each other beside it under its name."""
    from affinedp.budget.ledger import Ledger
    from affinedp.control.gateway.gateway import Gateway

    with ExitStack() as stack:

        def opener(run: str | None) -> Gateway:
            path = state if run is None else state.with_name(f"{state.name}.{run}")
            named = label if run is None or label is None else f"{label} {run}"
            with ExitStack() as now:  # a ledger belongs to the thread that opened it
                budget = None
                if ledger is not None:
                    found = Ledger(ledger, create=False, same_secret=same_secret)
                    budget = now.enter_context(found)
                return stack.enter_context(
                    Gateway(mechanism, state=path, ledger=budget, label=named, **words)
                )

        yield opener


def _reach(places: tuple[Any, ...], wait: float, stop: Any) -> None:
    from affinedp.mqtt.connection import Connection

    for place in places:
        with Connection(place, patience=wait, stop=stop):
            pass


def _warn_of_one_broker(public: str, inside: str, source: str) -> None:
    if inside == public:
        logger.warning(
            "gateway: measurements and noisy measurements share the broker at %s: who may "
            "read %s there sees the measurements themselves.  Use --in-broker, or let the "
            "broker's access control keep everyone else away from it",
            public,
            source,
        )


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
    missing: Annotated[
        Literal["predict", "hold", "stop"],
        typer.Option(help="A step without a measurement: predict it, hold the input, or stop."),
    ] = "predict",
    state: Annotated[
        Path | None, typer.Option(help="Keep the observer here, to go on after a restart.")
    ] = None,
    linger: Linger = 10.0,
    wait: Wait = 60.0,
    as_json: AsJson = False,
) -> None:
    """Answer noisy measurements with the inputs of the observer and feedback in LOOP.

    Where the plant starts (x0) is not used; give the cloud a copy of the file without it.
    """
    from affinedp.control.loop.loop_file import read_loop
    from affinedp.mqtt.cloud_process import run_cloud
    from affinedp.mqtt.process import Place

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    expect(loop, "loop")
    read = read_loop(loop)
    with attended() as stop, _progress("cloud", read.horizon) as on_step:
        outcome = run_cloud(
            read.loop,
            read.horizon,
            Place(public, source),
            Place(public, target),
            stop,
            missing=missing,
            state=state,
            linger=linger,
            on_step=on_step,
            patience=wait,
        )
    _say("cloud", outcome, read.horizon, as_json)


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
    resend: Annotated[
        float, typer.Option(help="Seconds without an answer before y is sent again.", min=0.01)
    ] = 1.0,
    patience: Annotated[
        float, typer.Option(help="Seconds without an answer before it gives up.", min=0.01)
    ] = 60.0,
    silence: Annotated[
        Literal["stop", "hold"],
        typer.Option(help="Without an answer: end, or hold the input before and go on."),
    ] = "stop",
    run: Annotated[
        str | None, typer.Option(help="Name of this run, which no other has; random otherwise.")
    ] = None,
    username: Username = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    wait: Wait = 60.0,
    as_json: AsJson = False,
) -> None:
    """Simulate the plant of LOOP: send y(t), wait for u(t), and so on to the horizon."""
    from affinedp.control.loop.loop_file import read_loop
    from affinedp.mqtt.plant_process import run_plant
    from affinedp.mqtt.process import Place

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    inside = own_side_broker(public, out_broker, out_username, out_password_file, out_plain)
    expect(loop, "loop")
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
            patience=patience,
            silence=silence,
            run=run,
            on_step=on_step,
            wait=wait,
        )
    _say("plant", outcome, read.horizon, as_json)


@contextmanager
def _progress(who: str, horizon: int) -> Iterator[Any]:
    with Progress(who) as bar:
        yield lambda step: bar.update((step + 1) / horizon, f"step {step}")


def _say(who: str, outcome: Outcome, horizon: int, as_json: bool) -> None:
    """Say what came of it; a run that ended before its time has an exit code of its own."""
    from affinedp.control.trajectory.dynamics import step_of

    ending = "all steps" if outcome.finished else "ended" if outcome.reason else "stopped"
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(outcome.dropped.items()))
    if as_json:
        say_json(outcome_as_json(outcome) | {"horizon": horizon})
    else:
        steps = step_of(outcome.steps, horizon)
        typer.echo(f"{who}: {ending}, {steps}; dropped: {dropped or 'nothing'}")
    if outcome.reason:
        typer.echo(f"{who}: {outcome.reason}", err=True)
        raise typer.Exit(LOOP_ENDED)
