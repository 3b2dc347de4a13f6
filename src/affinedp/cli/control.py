"""``affinedp control …``: design the noise of a loop, study its sensors, run its processes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.exits import KEPT, LOOP_ENDED
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import (
    LABEL,
    LEDGER,
    LOOP,
    OWN_BROKER,
    OWN_PASSWORD,
    PERIOD,
    REDRAW,
    SAME_SECRET,
    attended,
    own_side_broker,
    recovery,
)  # fmt: skip
from affinedp.cli.output import dropped, outcome_as_json, promise_as_json
from affinedp.errors import AffineDPError
from affinedp.files.values import visible
from affinedp.mqtt.broker import Broker
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.control.gateway import Gateway
    from affinedp.control.loop_file import LoopFile
    from affinedp.mqtt.process import Outcome
    from affinedp.show.page import Report

logger = logging.getLogger(__name__)

# Over longer horizons the report leaves out what the loop pays.
MOST_TRACKED = 200_000


def design(
    loop: Path = LOOP,
    output: Path = Option(..., "--output", "-o", help="Mechanism file to write."),
    epsilon: float | None = Option(None, help="ε to keep (default: that of [privacy])."),
    delta: float | None = Option(None, help="δ to keep (default: that of [privacy])."),
    law: Literal["auto", "gaussian", "laplace", "knorm"] = Option(
        "auto", metavar="LAW", help="auto, the least cost; or gaussian, laplace, knorm."
    ),
    resolution: str | None = Option(
        None,
        help="Step of the sensors, as for the gateway (default: that of [sensors]): the noise then "
        "hides it, too.",
    ),
    objective: Literal["sum", "largest"] = Option(
        "sum",
        help="For private inputs, what is least: the sum of variances over outputs (what the loop "
        'pays with cost = "tracking"), or the largest one.',
    ),
) -> Answer:
    """Design the least noise that hides the trajectory of LOOP, or its private inputs, and save it.

    ε and δ come from its privacy table, or from the options.  The report says what the loop pays.
    Without a law the one that costs the loop least is taken; noise that is fresh at every step
    (adjacency "forward" and "input") is Gaussian.

    Examples
    --------
    affinedp control design loop.toml -o noise.json --epsilon 1 --delta 0.01
    affinedp control design loop.toml -o noise.json --resolution 0.1
    """
    read = read_loop_of(loop)
    mechanism = design_loop(read, epsilon, delta, law, resolution, objective)
    mechanism.save(output)
    report = loop_report(read, mechanism)
    costs = [{"what": label, "text": text} for label, text in report.totals]
    return Answer({**promise_as_json(mechanism.guarantee), "costs": costs}, report)


def loop_report(read: LoopFile, mechanism: Any) -> Report:
    """Return the report of noise with what the loop pays, or why that is not said."""
    found: Report = mechanism.report()
    if not read.steered:
        return found
    every = read.sensors.get("every", 1)
    if every > 1:
        why = f"one step of {every} is sent; try the loop out (affinedp control trial)"
    elif read.horizon > MOST_TRACKED:
        why = f"the horizon is longer than {MOST_TRACKED:,} steps"
    else:
        return read.loop.report(mechanism, read.horizon)
    row = ("tracking", f"what the loop pays is not computed: {why}")
    return replace(found, totals=(*found.totals, row))


def read_loop_of(path: Path) -> LoopFile:
    """Return what a loop file says, unless it is a file of another kind."""
    from affinedp.control.loop_file import read_loop

    expect(path, "loop")
    return read_loop(path)


def design_loop(
    read: LoopFile,
    epsilon: float | None = None,
    delta: float | None = None,
    law: str = "auto",
    resolution: str | None = None,
    objective: Literal["sum", "largest"] = "sum",
) -> Any:
    """Design the noise that a loop file asks for, or what options ask for instead."""
    from affinedp.cli.problems import kept
    from affinedp.control.input_noise import design_input_noise
    from affinedp.control.loop_file import UNSAID
    from affinedp.control.output_noise import design_output_noise

    if read.adjacency is None:
        raise AffineDPError(UNSAID)
    fresh = read.adjacency in ("input", "forward")
    epsilon, delta = kept(epsilon, delta, read, fresh or law == "gaussian")
    shared: dict[str, Any] = {
        name: read.sensors[name]
        for name in ("measurement_error", "fresh_noise", "every")
        if name in read.sensors
    }
    steps = _declared(read, resolution)
    if steps not in (None, "exact"):
        shared["resolution"] = steps
    elif shared:
        shared["resolution"] = "exact"
    shared |= {"mu": read.mu, "cost": read.loop if read.cost == "tracking" else None}
    if read.adjacency == "input":
        shared |= {"window": read.window, "horizon": read.horizon, "objective": objective}
        shared["law"] = law
        found = design_input_noise(read.private, epsilon, delta, **shared)
        read.check_sensors(found)
        return found

    if objective != "sum":
        raise AffineDPError("objective='largest' is for private inputs (adjacency = \"input\")")

    def designed(chosen: str) -> Any:
        words: dict[str, Any] = {"adjacency": read.adjacency, "law": chosen, **shared}
        return design_output_noise(read.dynamics, read.horizon, epsilon, delta, **words)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = designed(law)
    if law == "auto" and found.law == "laplace":
        # a gateway cannot send Laplace noise; K-norm noise is as pure, and costs nearly the same
        found = designed("knorm")
    else:
        for warning in said:
            warnings.warn(warning.message, stacklevel=2)
    read.check_sensors(found)
    return found


def _declared(read: LoopFile, resolution: str | None) -> Any:
    """What the option says of the steps of sensors, or else the file."""
    from affinedp.control.sensors import read_resolution

    return read.sensors.get("resolution") if resolution is None else read_resolution(resolution)


def gateway(
    public: Broker,
    loop: Path = LOOP,
    mechanism: Path = Option(..., help="Mechanism file."),
    state: Path = Option(..., help="State of this trajectory; secret, kept."),
    resolution: str | None = Option(
        None,
        help="Step of the sensors: a number, one per output with commas, dither:BITS:STEP, or "
        "exact (simulation only); by default that of [sensors], or what the noise is designed for.",
    ),
    in_broker: str | None = OWN_BROKER,
    ledger: str | None = LEDGER,
    label: str | None = LABEL,
    same_secret: bool = SAME_SECRET,
    new_run: Literal["stop", "draw"] = recovery(
        "stop", help="When the plant is started anew: stop it, or draw and charge again."
    ),
    redraw: bool = REDRAW,
    moved: bool = recovery(False, "--moved", help="The state was moved; no copy is in use."),
    take_over: bool = recovery(False, "--take-over", help="The gateway before this one is gone."),
    claim: bool = recovery(
        True, "--claim/--no-claim", help="Claim the topic, against a second gateway."
    ),
    in_password_file: Path | None = OWN_PASSWORD,
) -> Answer:
    """Publish the measurements of LOOP's plant with the noise of a saved mechanism.

    Sensors, topics and timing are in the tables [sensors] and [mqtt] of LOOP.
    The noise is drawn once, when the state is made.  After a restart the gateway goes on where it
    was, and repeats what it said when it is asked again.  After a crash it goes on behind the block
    of steps that it was in (a quarter of a second): of that block it repeats the first step alone.
    A plant that is started anew is a new run, which needs a new draw.

    Examples
    --------
    affinedp control gateway loop.toml --mechanism noise.json --state run.db --ledger budget.db
        --broker mqtts://gateway@broker.example --in-broker localhost:1883
    """
    from affinedp.mqtt.gateway_process import run_gateway
    from affinedp.mqtt.process import Place

    inside = own_side_broker(public, in_broker, in_password_file)
    read = read_loop_of(loop)
    loaded = load_noise(mechanism)
    read.check_noise(loaded)
    designed = loaded.design.sent
    steps = _declared(read, resolution)
    if steps is None and (designed is None or not designed.resolution):
        raise AffineDPError(
            "Missing option '--resolution': the noise was designed for no sensor, so say the step "
            "of its readings, or exact"
        )
    words = {
        **read.sensors,
        "resolution": steps,
        "horizon": read.horizon,
        "redraw": redraw,
        "moved": moved,
    }
    if new_run == "draw" and ledger is None:
        raise AffineDPError("--new-run draw needs a --ledger, which is charged for every run")
    said = read.mqtt
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        _warn_of_one_broker("gateway", "in", public, inside, said["measurements"])
        if not state.exists():
            _reach((public, inside), said["wait"], stop)  # nothing is drawn and charged in vain
            if ledger is None:
                logger.warning("gateway: no ledger was given: nothing keeps count of this draw")
        opener = stack.enter_context(_states(loaded, state, ledger, label, same_secret, words))
        opened = opener(None)
        outcome = run_gateway(
            opened,
            Place(inside, said["measurements"]),
            Place(public, said["noisy"]),
            stop,
            linger=said["linger"],
            on_step=stack.enter_context(_progress("gateway", opened.horizon)),
            renew=opener if new_run == "draw" else None,
            claim=claim,
            take_over=take_over,
            patience=said["wait"],
        )
    return _ended("gateway", outcome, opened.horizon)


def load_noise(path: Path) -> Any:
    """Read the noise of a loop: one draw, or stationary noise."""
    from affinedp.mechanism import Mechanism
    from affinedp.strategies.causal import Causal

    expect(path, "mechanism")
    loaded = Mechanism.load(path)
    if not isinstance(loaded.strategy, Causal):
        raise AffineDPError(
            f"{visible(path.name)} is a mechanism, not noise of a loop: affinedp control design "
            "makes that"
        )
    return loaded


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
    from affinedp.cli.pending import budget_of
    from affinedp.control.gateway import Gateway

    with ExitStack() as stack:

        def opener(run: str | None) -> Gateway:
            path = state if run is None else state.with_name(f"{state.name}.{run}")
            named = label if run is None or label is None else f"{label} {run}"
            # a ledger belongs to the thread that opened it
            with budget_of(ledger, same_secret) as budget:
                return stack.enter_context(
                    Gateway(mechanism, state=path, ledger=budget, label=named, **words)
                )

        yield opener


def _reach(places: tuple[Broker, ...], wait: float, stop: Any) -> None:
    from affinedp.mqtt.connection import Connection

    for place in places:
        with Connection(place, patience=wait, stop=stop):
            pass


def _warn_of_one_broker(who: str, way: str, public: Broker, inside: Broker, topic: str) -> None:
    if inside.address == public.address:
        logger.warning(
            "%s: measurements and noisy measurements share the broker at %s: who may "
            "read %s there sees the measurements themselves.  Use --%s-broker, or let the "
            "broker's access control keep everyone else away from it",
            who,
            public.address,
            topic,
            way,
        )


def cloud(
    public: Broker,
    loop: Path = LOOP,
    missing: Literal["predict", "hold", "stop"] = Option(
        "predict", help="A step without a measurement: predict it, hold the input, or stop."
    ),
    state: Path | None = Option(None, help="Keep the observer here, to go on after a restart."),
) -> Answer:
    """Answer noisy measurements with the inputs of the observer and feedback in LOOP.

    Where the plant starts (x0) is not used; give the cloud a copy of the file without it.
    Inputs are clipped to the public limits in [sensors] inputs, if there are any.

    Examples
    --------
    affinedp control cloud loop.toml --broker localhost:1883
    """
    from affinedp.mqtt.loop_process import run_cloud
    from affinedp.mqtt.process import Place

    read = read_loop_of(loop)
    if read.steered and "reach" in read.sensors and read.limits is None:
        logger.warning(
            "cloud: [sensors] B does not begin with [plant] B: nothing here keeps u within "
            "[sensors] inputs, on which the promise rests"
        )
    with attended() as stop, _progress("cloud", read.horizon) as on_step:
        outcome = run_cloud(
            read.loop,
            read.horizon,
            Place(public, read.mqtt["noisy"]),
            Place(public, read.mqtt["inputs"]),
            stop,
            missing=missing,
            state=state,
            limits=read.limits,
            linger=read.mqtt["linger"],
            on_step=on_step,
            patience=read.mqtt["wait"],
        )
    return _ended("cloud", outcome, read.horizon)


def plant(
    public: Broker,
    loop: Path = LOOP,
    out_broker: str | None = OWN_BROKER,
    log: Path | None = Option(
        None, help="Write x, y and u of each step here; secret (default: nowhere)."
    ),
    resolution: str | None = Option(
        None,
        help="Step to which readings are rounded, as for the gateway (default: that of [sensors], "
        "or exact).",
    ),
    silence: Literal["stop", "hold"] = Option(
        "stop", help="Without an answer: end, or hold the input before and go on."
    ),
    run: str | None = Option(None, help="Name of this run, which no other has; random otherwise."),
    period: float = PERIOD,
    out_password_file: Path | None = OWN_PASSWORD,
) -> Answer:
    """Simulate the plant of LOOP: send y(t), wait for u(t), and so on to the horizon.

    Its actuators end at the public limits in [sensors] inputs, if there are any.

    Examples
    --------
    affinedp control plant loop.toml --broker mqtts://plant@broker.example
        --out-broker localhost:1883 --log plant.jsonl
    """
    from affinedp.mqtt.loop_process import run_plant
    from affinedp.mqtt.process import Place

    inside = own_side_broker(public, out_broker, out_password_file)
    read = read_loop_of(loop)
    check_start(read, loop)
    steps = _declared(read, resolution)
    with attended() as stop, _progress("plant", read.horizon) as on_step:
        _warn_of_one_broker("plant", "out", public, inside, read.mqtt["measurements"])
        outcome = run_plant(
            read.loop,
            read.horizon,
            Place(public, read.mqtt["inputs"]),
            Place(inside, read.mqtt["measurements"]),
            stop,
            resolution="exact" if steps is None else steps,
            limits=read.limits,
            log=log,
            period=period,
            resend=read.mqtt["resend"],
            patience=read.mqtt["patience"],
            silence=silence,
            run=run,
            on_step=on_step,
            wait=read.mqtt["wait"],
        )
    return _ended("plant", outcome, read.horizon)


def check_start(read: LoopFile, path: Path) -> None:
    """Refuse a loop file without a start, which only a plant needs."""
    if not read.has_start:
        raise AffineDPError(f"{path}: [plant] x0 is missing: where does the plant start?")


@contextmanager
def _progress(who: str, horizon: int) -> Iterator[Any]:
    with Progress(who) as bar:
        yield lambda step: bar.update((step + 1) / horizon, f"step {step}")


def _ended(who: str, outcome: Outcome, horizon: int) -> Answer:
    """What came of it; a run that ended before its time has an exit code of its own."""
    from affinedp.domains.dynamics import step_of

    ending = "all steps" if outcome.finished else "ended" if outcome.reason else "stopped"
    steps = step_of(outcome.steps, horizon)
    if outcome.reason:
        typer.echo(f"{who}: {outcome.reason}", err=True)
    return Answer(
        outcome_as_json(outcome) | {"horizon": horizon},
        f"{who}: {ending}, {steps}; dropped: {dropped(outcome)}",
        LOOP_ENDED if outcome.reason else KEPT,
    )


def sensor(
    readings: Path = Argument(..., help="CSV file, one column per sensor.", show_default=False),
) -> Answer:
    """Estimate step, range and nonlinearity of sensors from a recording.

    Nothing is sent.  Record raw readings over the whole range that the plant will use; what is
    printed depends on them, so keep it to yourself.

    Examples
    --------
    affinedp control sensor recording.csv
    """
    from affinedp.control.recordings import read_recording, study

    expect(readings, "data")
    found = [study(name, column) for name, column in read_recording(readings)]
    return Answer({"sensors": [one.to_record() for one in found]}, "\n".join(map(str, found)))
