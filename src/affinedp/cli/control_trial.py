"""``affinedp control trial`` and ``broker``: a whole loop on one machine, and a broker for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from affinedp.cli.broker_options import attended
from affinedp.cli.control_design import design_loop
from affinedp.cli.control_loop import FreshNoise, Loop, load_noise
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json, warn
from affinedp.cli.trials import end_all, folder_for_owner, last_words, named_or_own, start
from affinedp.errors import AffineDPError

LOOK = 0.05  # seconds between two looks at the processes


def trial(
    loop: Loop,
    mechanism: Annotated[
        Path | None, typer.Option(help="Mechanism file (default: design what LOOP asks for).")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="State and logs, secret (default: beside the file, NAME-trial)."),
    ] = None,
    broker: Annotated[
        str | None, typer.Option(help="Public broker, host:port (default: start one).")
    ] = None,
    resolution: Annotated[
        str, typer.Option(help="Step of the sensors, as for the gateway.")
    ] = "exact",
    fresh_noise: FreshNoise = None,
    period: Annotated[float, typer.Option(help="Seconds per step, at least.", min=0.0)] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Run the plant, the gateway, the cloud and an eavesdropper of LOOP on this machine.

    For trials: here one person has everything.  Each is the same process as in earnest.  The plant
    has a broker of its own; what the eavesdropper heard at the public one is in seen.jsonl.
    """
    from affinedp.cli.answers import promise_as_json
    from affinedp.control.loop.loop_file import read_loop

    expect(loop, "loop")
    read = read_loop(loop)
    if not read.has_start:
        raise AffineDPError(f"{loop}: [plant] x0 is missing: where does the plant start?")
    home = folder_for_owner(loop.with_name(f"{loop.stem}-trial") if folder is None else folder)
    if (home / "secret.db").exists():
        raise AffineDPError(
            f"{home} holds a trial already; a second drive needs a second draw: give another "
            "--folder"
        )
    noise = mechanism
    if noise is None:
        noise = home / "noise.json"
        designed = design_loop(read, None, None)
        designed.save(noise)
    else:
        expect(noise, "noise of a loop")
        designed = load_noise(noise)
    guarantee = designed.guarantee
    running: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        own = stack.enter_context(named_or_own(None, folder_for_owner(home / "own"))).address
        public = stack.enter_context(named_or_own(broker, home)).address
        typer.echo(f"public broker at {public}, the plant's at {own}; see {home}", err=True)
        stack.callback(lambda: end_all(running.values()))
        commands: dict[str, list[Any]] = {
            "eavesdrop": ["--log", home / "seen.jsonl"],
            "cloud": [loop],
            "gateway": [
                "--mechanism", noise, "--state", home / "secret.db", "--resolution", resolution,
                "--in-broker", own,
                *([] if fresh_noise is None else ["--fresh-noise", fresh_noise]),
            ],
            "plant": [
                loop, "--out-broker", own, "--log", home / "plant.jsonl", "--period", period,
            ],
        }  # fmt: skip
        for name, words in commands.items():
            if name == "plant":
                for other in running:
                    _until_it_listens(other, running[other], home / f"{other}.log", stop)
            running[name] = start(
                home / f"{name}.log", ["control", name, *words, "--broker", public]
            )
        while running["plant"].poll() is None and not stop.wait(LOOK):
            pass
        code = running["plant"].poll()
        end_all(running.values())
    said = {name: last_words(home / f"{name}.log") for name in commands}
    alarms = _alarms(home / "secret.db")
    if as_json:
        ends = {"folder": str(home), "exit_code": code, "last_words": said, "alarms": alarms}
        say_json({**promise_as_json(guarantee), **ends})
    else:
        if guarantee.asked is not None:
            verdict = "keeps" if guarantee.keeps_asked() else "does NOT keep"
            say(f"the noise {verdict} {guarantee.asked}, as was asked")
        say(f"{designed.report().title}; affinedp report {noise} says what it hides and costs")
        for line in said.values():
            say(line)
    for line in alarms:  # whoever tries a loop out owns its readings
        warn(line)
    if code:
        raise typer.Exit(code if code > 0 else 4)


def _alarms(state: Path) -> list[str]:
    """What the gateway wrote down about its readings."""
    from affinedp.control.gateway.alarms import alarms_of

    log = alarms_of(state)
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def _until_it_listens(
    name: str, process: subprocess.Popen[bytes], log: Path, stop: threading.Event
) -> None:
    while "listening" not in log.read_text(encoding="utf-8", errors="replace"):
        if process.poll() is not None:
            raise AffineDPError(f"the {name} ended: {last_words(log)}")
        if stop.wait(LOOK):
            return


def broker(
    port: Annotated[
        int | None, typer.Option(help="Where to listen (default: a free port).", min=1, max=65535)
    ] = None,
    folder: Annotated[Path, typer.Option(help="For its log.")] = Path("."),
    as_json: AsJson = False,
) -> None:
    """Start a broker for trials that only this machine can reach, until Ctrl-C.

    It keeps nothing over a restart and knows no passwords and no TLS; mosquitto is the one for use.
    """
    from affinedp.mqtt.local_broker import local_broker

    with attended() as stop, local_broker(folder_for_owner(folder), port=port) as started:
        if as_json:  # first of all, for whoever waits for the port
            say_json({"address": started.address})
            sys.stdout.flush()
        typer.echo(f"broker: listening at {started.address}", err=True)
        stop.wait()
