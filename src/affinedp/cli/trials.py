"""Loops and networks on one machine: ``control trial``, ``consensus launch``, a broker, a listener.

Each process is the same as in earnest; it ends when the trial does.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from affinedp.cli.commands import Answer
from affinedp.cli.consensus import links_of, read_network_of
from affinedp.cli.control import check_start, design_loop, load_noise, read_loop_of
from affinedp.cli.exits import KEPT, UNEXPECTED
from affinedp.cli.options import LOOP, NETWORK, PERIOD, attended
from affinedp.cli.output import promise_as_json, say_json, say_lines, warn
from affinedp.errors import AffineDPError
from affinedp.files.writing import folder_for_owner
from affinedp.mqtt.broker import Broker
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.consensus.network_file import NetworkFile
    from affinedp.control.loop_file import LoopFile
    from affinedp.mqtt.listening import Monitor

LOOK = 0.05  # seconds between two looks at the processes
PATIENCE = 20.0  # seconds for a process to end when it is asked to

# A command that ends with the one who started it: on a killed trial it closes its state as on
# SIGTERM, and does not look for its broker for ever.
_STARTED = "from affinedp.cli.trials import started; started()"

Processes = dict[str, "subprocess.Popen[bytes]"]


def trial(
    loop: Path = LOOP,
    mechanism: Path | None = Option(
        None, help="Mechanism file (default: design what LOOP asks for)."
    ),
    folder: Path | None = Option(
        None, help="State and logs, secret (default: beside the file, NAME-trial)."
    ),
    broker: str | None = Option(None, help="Public broker, host:port (default: start one)."),
    resolution: str | None = Option(
        None,
        help="Step of the sensors, to which the plant rounds (default: that of [sensors], else the "
        "noise's, or exact).",
    ),
    period: float = PERIOD,
) -> Answer:
    """Run the plant, the gateway, the cloud and an eavesdropper of LOOP on this machine.

    For trials: here one person has everything.  Each is the same process as in earnest.  The plant
    has a broker of its own; what the eavesdropper heard at the public one is in seen.jsonl.

    Examples
    --------
    affinedp control trial loop.toml
    affinedp control trial loop.toml --broker localhost:1883 --period 0.1
    """
    from affinedp.control.by_time import eavesdropper
    from affinedp.control.recordings import alarms_of
    from affinedp.mqtt.loop_process import CLIPPED

    read = read_loop_of(loop)
    check_start(read, loop)
    home = folder_for_owner(loop.with_name(f"{loop.stem}-trial") if folder is None else folder)
    if (home / "secret.db").exists():
        raise AffineDPError(
            f"{home} holds a trial already; a second drive needs a second draw: give another "
            "--folder"
        )
    noise = home / "noise.json" if mechanism is None else mechanism
    if mechanism is None:
        designed = design_loop(read, resolution=resolution)
        designed.save(noise)
    else:
        designed = load_noise(noise)
        read.check_noise(designed)
        read.check_sensors(designed)
    if resolution is None and "resolution" not in read.sensors:
        sent = designed.design.sent
        resolution = "exact" if sent is None else ",".join(map(repr, sent.resolution)) or "exact"
    steps = [] if resolution is None else ["--resolution", resolution]
    running: Processes = {}
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        own = stack.enter_context(_named_or_own(None, folder_for_owner(home / "own"))).address
        public = stack.enter_context(_named_or_own(broker, home)).address
        typer.echo(f"public broker at {public}, the plant's at {own}; see {home}", err=True)
        stack.callback(lambda: _end_all(running.values()))
        commands: dict[str, list[Any]] = {
            "eavesdrop": ["--log", home / "seen.jsonl"],
            "cloud": [loop],
            "gateway": [
                loop, "--mechanism", noise, "--state", home / "secret.db", "--in-broker", own,
                *steps,
            ],
            "plant": [
                loop, "--out-broker", own, "--log", home / "plant.jsonl", "--period", period,
                *steps,
            ],
        }  # fmt: skip
        for name, words in commands.items():
            if name == "plant":
                for other in running:
                    _until_it_listens(other, running[other], home / f"{other}.log", stop)
            words = ["control", name, *words, "--broker", public]
            running[name] = _start(home / f"{name}.log", words)
        while running["plant"].poll() is None and not stop.wait(LOOK):
            pass
        code = running["plant"].poll()
        _end_all(running.values())
    said = {name: _last_words(home / f"{name}.log") for name in commands}
    log = alarms_of(home / "secret.db")
    alarms = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    for line in alarms:  # whoever tries a loop out owns its readings
        warn(line)
    guarantee, lines = designed.guarantee, []
    if guarantee.asked is not None:
        verdict = "keeps" if guarantee.keeps_asked() else "does NOT keep"
        lines.append(f"the noise {verdict} {guarantee.asked}, as was asked")
    title = designed.report().title
    lines += [f"{title}; affinedp report {noise} says what it hides and costs", *said.values()]
    lines += [line for line in _said(home / "cloud.log") if CLIPPED in line]
    tracked = _tracked(read, home / "plant.jsonl")
    lines += [
        f"tracking: {name} was off by {error:.4g} (root mean square)"
        for name, error in tracked.items()
    ]
    learned = eavesdropper(designed)
    lines += [f"learned: {line}" for line in learned.sentences()]
    ends = {
        "tracking_error": tracked,
        "learned": dict(zip(learned.names, learned.covariance.diagonal() ** 0.5)),
        "folder": str(home),
        "exit_code": code,
        "last_words": said,
        "alarms": alarms,
    }
    show = partial(say_lines, lines)
    return Answer({**promise_as_json(guarantee), **ends}, show, _code(code or KEPT))


def _tracked(read: LoopFile, log: Path) -> dict[str, float]:
    """How far each state was off its reference over the run, as a root mean square."""
    import numpy as np

    states = [json.loads(line)["x"] for line in log.read_text(encoding="utf-8").splitlines()]
    if not states or not read.steered:
        return {}
    missed = np.array(states) - read.loop.references(len(states) - 1)
    return dict(zip(read.loop.plant.state_names, np.sqrt((missed**2).mean(axis=0)).tolist()))


def launch(
    network: Path = NETWORK,
    folder: Path | None = Option(
        None, help="States and logs, secret (default: beside the file, NAME-run)."
    ),
    broker: str | None = Option(None, help="Broker, host:port (default: start one)."),
    rerun: bool = Option(False, "--rerun", help="Begin again with the same draws; free."),
    sealed: bool = Option(
        False, "--sealed", help="Make keys, and drop messages that they do not seal."
    ),
) -> Answer:
    """Run all agents of a network as processes on this machine, and show what everyone sees.

    For trials: here one person has all values.  Each agent is the same process as in earnest, with
    a state of its own; one that was run before goes on with its draw.

    Examples
    --------
    affinedp consensus launch ring.toml
    """
    from affinedp.mqtt.agent_process import Meeting
    from affinedp.mqtt.listening import Monitor

    found = read_network_of(network)
    names = found.consensus.process_names
    goal, topic = found.rounds, found.mqtt["topic"]
    if goal is None:
        raise AffineDPError(f"{network}: say how many rounds the agents go: rounds = 30")
    home = folder_for_owner(network.with_name(f"{network.stem}-run") if folder is None else folder)
    reached = _reached(home, found)
    one_end = len(reached) == len(names) and len(set(reached)) == 1 and reached[0][1] == goal
    if one_end and not rerun:  # nobody would speak any more
        typer.echo("all agents have done their rounds: --rerun begins again", err=True)
        return _seen(home, names)
    for name in names:
        if name not in found.values and not (home / f"{name}.db").exists():
            raise AffineDPError(
                f"there is no value for agent {name!r}: a trial needs all of them, in [values] of "
                "the network file"
            )
    if sealed:
        _make_keys(found, home)
    words = ["--network", network, "--run", _run(reached, rerun)]
    agents: Processes = {}
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        place = stack.enter_context(_named_or_own(broker, home))
        monitor = stack.enter_context(Monitor(Meeting(place, topic), names, home / "seen.jsonl"))
        typer.echo(
            f"{len(names)} agents meet under {topic} at {place.address}; see {home}", err=True
        )
        bar = stack.enter_context(Progress(f"{len(names)} agents"))
        stack.callback(lambda: _end_all(agents.values()))
        for name in names:
            own = ["--id", name, "--state", home / f"{name}.db", "--broker", place.address]
            own += ["--keys", home / f"{name}.keys"] if sealed else []
            agents[name] = _start(home / f"{name}.log", ["consensus", "agent", *own, *words])
        failed = _watch(agents, monitor, bar, goal, stop)
        if failed is not None:
            _end_all(agents.values())
            code = agents[failed].returncode
            last = _last_words(home / f"{failed}.log")
            typer.echo(f"agent {failed} ended with exit code {code}: {last}", err=True)
            typer.echo("its draw is kept: launch again, with --rerun to begin anew", err=True)
            raise typer.Exit(_code(code))
        if stop.is_set():
            raise typer.Exit
        return _seen(home, names)


def broker(
    port: int | None = Option(
        None, metavar="PORT", help="Where to listen (default: a free port).", min=1, max=65535
    ),
    folder: Path = Option(Path("."), help="For its log."),
    as_json: bool = Option(False, "--json", help="Print JSON for programs."),
) -> None:
    """Start a broker for trials that only this machine can reach, until Ctrl-C.

    It keeps nothing over a restart and knows no passwords and no TLS; mosquitto is the one for use.

    Examples
    --------
    affinedp control broker --port 1883
    """
    from affinedp.mqtt.local_broker import local_broker

    with attended() as stop, local_broker(folder_for_owner(folder), port=port) as started:
        if as_json:  # first of all, for whoever waits for the port
            say_json({"address": started.address})
            sys.stdout.flush()
        typer.echo(f"broker: listening at {started.address}", err=True)
        while not stop.wait(LOOK):  # a wait without an end may miss a signal that comes just before
            pass


def eavesdrop(
    public: Broker,
    log: Path = Option(..., help="Where the messages are written, as JSON lines."),
    topics: list[str] | None = Option(
        None, metavar="TOPIC", help="What to listen to; repeatable (default: all)."
    ),
) -> Answer:
    """Write down every message that a broker delivers, until Ctrl-C.

    Examples
    --------
    affinedp control eavesdrop --log seen.jsonl --topics 'cloud/#'
    affinedp consensus eavesdrop --log seen.jsonl
    """
    from affinedp.mqtt.listening import eavesdrop as listen

    with attended() as stop:
        count = listen(public, topics or ["#"], log, stop)
    answer = {"messages": count, "log": str(log)}
    return Answer(answer, f"eavesdropper: {count} messages in {log}")


# What trials share: a folder, a broker, and processes that end with us.


@contextmanager
def _named_or_own(address: str | None, home: Path) -> Iterator[Broker]:
    """The broker that was named, or one that is started for the trial."""
    from affinedp.mqtt.local_broker import local_broker

    if address is not None:
        yield Broker.parse(address)
        return
    with local_broker(home) as started:
        yield started


def _start(log: Path, words: Iterable[object]) -> subprocess.Popen[bytes]:
    """A command as a process that ends when this one does, also if it is killed."""
    command = [sys.executable, "-c", _STARTED, *map(str, words)]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as said:
        # a group of its own: Ctrl-C comes to us, and we end them
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True
        )


def started() -> None:
    """Run the command line until whoever started this process is gone."""
    from affinedp.cli.app import main
    from affinedp.mqtt.local_broker import when_input_ends

    def end() -> None:
        if hasattr(signal, "pthread_kill"):  # also wakes it up
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        else:
            _thread.interrupt_main(signal.SIGTERM)
        time.sleep(PATIENCE)
        os._exit(UNEXPECTED)

    when_input_ends(end)
    main()


def _last_words(log: Path) -> str:
    said = _said(log)
    return said[-1] if said else "it said nothing"


def _said(log: Path) -> list[str]:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return [line.removeprefix("affinedp: ") for line in lines]


def _code(code: int) -> int:
    """The exit code of a trial: that of the process that failed, unless a signal ended it."""
    return code if 0 <= code < 126 else UNEXPECTED


def _end_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ask those that still run to end; what does not is killed, and its draw is on the disk."""
    left = list(processes)
    for process in left:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + PATIENCE
    for process in left:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _until_it_listens(
    name: str, process: subprocess.Popen[bytes], log: Path, stop: threading.Event
) -> None:
    while "listening" not in log.read_text(encoding="utf-8", errors="replace"):
        if process.poll() is not None:
            raise AffineDPError(f"the {name} ended: {_last_words(log)}")
        if stop.wait(LOOK):
            return


# Agents of a network.


def _reached(home: Path, found: NetworkFile) -> list[tuple[int, int]]:
    """Run and round of every agent that has a state; refused while it runs, or for other values."""
    from affinedp.consensus.agent import read_state

    reached = []
    for name in found.consensus.process_names:
        if (home / f"{name}.db").exists():
            agent = read_state(home / f"{name}.db", found.values.get(name))
            reached.append((agent.run, agent.round))
    return reached


def _run(reached: list[tuple[int, int]], rerun: bool) -> int:
    """The number of the run: that of the states, or the next one if they differ."""
    runs = {run for run, _ in reached}
    return max(runs, default=1) + int(bool(runs and rerun) or len(runs) > 1)


def _make_keys(found: NetworkFile, home: Path) -> None:
    from affinedp.consensus.keys import write_keys

    if not all((home / f"{name}.keys").exists() for name in found.consensus.process_names):
        write_keys(home, links_of(found))


def _watch(
    agents: Processes, monitor: Monitor, bar: Progress, goal: int, stop: threading.Event
) -> str | None:
    """Wait until all agents ended well (None), or one did not: its name."""
    while not stop.is_set():
        monitor.check()
        codes = {name: process.poll() for name, process in agents.items()}
        failed = next((name for name, code in codes.items() if code not in (None, 0)), None)
        if failed is not None or all(code == 0 for code in codes.values()):
            return failed
        reached = max(monitor.round(), 0)
        bar.update(reached / max(goal, 1), f"round {reached}")
        time.sleep(LOOK)
    return None


def _seen(home: Path, names: Sequence[str]) -> Answer:
    """What was drawn for, and the last messages, which are public: as the states say."""
    from affinedp.consensus.agent import read_state

    agents = [read_state(home / f"{name}.db") for name in names]
    drawn = [one.noise.record() for one in agents]
    asked, lines = None, []
    if all("epsilon" in noise for noise in drawn):
        pairs = [(noise["epsilon"], noise.get("delta", 0.0)) for noise in drawn]
        kept = all(one.guarantee.holds(*pair) for one, pair in zip(agents, pairs))
        epsilon, delta = (max(numbers) for numbers in zip(*pairs))
        asked = {"epsilon": epsilon, "delta": delta, "holds": kept}
        distances = {noise["mu"] for noise in drawn}
        # never more than every agent's own
        apart = f"{distances.pop():g}" if len(distances) == 1 else "their μ"
        lines.append(
            f"the messages of every agent {'keep' if kept else 'do NOT keep'} ε = {epsilon:g} at "
            f"δ = {delta:g}, for values up to {apart} apart, however long it runs"
        )
    widest = max(map(len, names))
    for one in agents:
        lines.append(f"agent {one.name:<{widest}}  round {one.round}  message {one.y!r}")
    found = [{"agent": one.name, "round": one.round, "message": one.y} for one in agents]
    return Answer({"asked": asked, "agents": found}, partial(say_lines, lines))
