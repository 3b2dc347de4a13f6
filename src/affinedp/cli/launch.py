"""``affinedp consensus launch`` and ``keys``: a network on one machine, for a trial."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from affinedp.cli.broker_options import attended
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson
from affinedp.cli.output import say_json
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.consensus.agents.monitor import Monitor
    from affinedp.consensus.network_file import NetworkFile
    from affinedp.wire.broker import Broker

LOOK = 0.1  # seconds between two looks at the processes
PATIENCE = 20.0  # seconds for an agent to end when it is asked to

NetworkPath = Annotated[Path, typer.Argument(help="Network file, .toml or .json.")]


def launch(
    network: NetworkPath,
    folder: Annotated[
        Path | None,
        typer.Option(help="States and logs, secret (default: beside the file, NAME-run)."),
    ] = None,
    broker: Annotated[
        str | None, typer.Option(help="Broker, host:port (default: start mosquitto).")
    ] = None,
    topic: Annotated[str, typer.Option(help="Where the agents meet.")] = "consensus",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds to go, instead of the file's.", min=0)
    ] = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Begin again with the same draws; free.")
    ] = False,
    sealed: Annotated[
        bool, typer.Option("--sealed", help="Make keys, and drop messages that they do not seal.")
    ] = False,
    linger: Annotated[
        float, typer.Option(help="Seconds that agents stay for others at the end.", min=0.0)
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Run all agents of a network as processes on this machine, and show what everyone sees.

    For trials: here one person has all values.  Each agent is the same process as in earnest, with
    a state of its own; one that was run before goes on with its draw.
    """
    from affinedp.consensus.agents.monitor import Monitor
    from affinedp.consensus.agents.process import Meeting
    from affinedp.consensus.network_file import read_network

    expect(network, "network")
    found = read_network(network)
    names = found.consensus.process_names
    goal = found.rounds if rounds is None else rounds
    if goal is None:
        raise AffineDPError("say how many rounds: rounds in the network file, or --rounds")
    home = _folder(network if folder is None else None, folder)
    values = _value_files(found, home)
    if sealed:
        _make_keys(found, home)
    words = ["--network", str(network), "--rounds", str(goal), "--topic", topic]
    words += ["--linger", str(linger), "--run", str(_run(home, names, rerun))]
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        place = stack.enter_context(_broker(broker, home))
        monitor = stack.enter_context(Monitor(Meeting(place, topic), names, home / "seen.jsonl"))
        typer.echo(
            f"{len(names)} agents meet under {topic} at {place.address}; see {home}", err=True
        )
        bar = stack.enter_context(Progress(f"{len(names)} agents"))
        agents: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(_remove, values, home)
        stack.callback(_end, agents)
        for name in names:
            own = ["--id", name, "--state", str(home / f"{name}.db"), "--broker", place.address]
            if name in values:
                own += ["--value-file", str(values[name])]
            if sealed:
                own += ["--keys", str(home / f"{name}.keys")]
            agents[name] = _start(home / f"{name}.log", own + words)
        failed = _watch(agents, monitor, bar, goal, stop)
        if failed is not None:
            _end(agents)
            code = agents[failed].returncode
            said = (home / f"{failed}.log").read_text(encoding="utf-8", errors="replace")
            last = said.strip().splitlines()[-1:] or ["it said nothing"]
            typer.echo(f"agent {failed} ended with exit code {code}: {last[0]}", err=True)
            typer.echo("its draw is kept: launch again, with --rerun to begin anew", err=True)
            raise typer.Exit(code if 0 < code < 126 else 4)
        if not stop.is_set():
            _show(home, names, as_json)


def keys(
    network: NetworkPath,
    folder: Annotated[Path, typer.Option(help="Where to write NAME.keys for each agent.")],
    as_json: AsJson = False,
) -> None:
    """Make a key for each link of a network; give each agent its file, and no other.

    With ``--keys`` agents drop every message that a neighbour did not seal.
    """
    from affinedp.consensus.agents.seals import write_keys
    from affinedp.consensus.network_file import read_network

    expect(network, "network")
    found = read_network(network)
    home = _folder(None, folder)
    files = [str(home / f"{name}.keys") for name in write_keys(home, _links(found))]
    if as_json:
        say_json(files)
        return
    for file in files:
        typer.echo(file)


def _folder(network: Path | None, folder: Path | None) -> Path:
    """The folder, for its owner only."""
    if folder is None:
        assert network is not None
        folder = network.with_name(f"{network.stem}-run")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AffineDPError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def _run(home: Path, names: tuple[str, ...], rerun: bool) -> int:
    """The number of the run: that of the states, or the next one if they differ."""
    from affinedp.consensus.agents.agent import read_state

    runs = set()
    for name in names:
        if (home / f"{name}.db").exists():
            with read_state(home / f"{name}.db") as agent:  # refused while it runs
                runs.add(agent.run)
    return max(runs, default=1) + int(bool(runs and rerun) or len(runs) > 1)


def _links(found: NetworkFile) -> list[tuple[str, str]]:
    names = found.consensus.process_names
    rows, columns, _ = found.consensus.network.links()
    return [(names[i], names[j]) for i, j in zip(rows, columns) if i < j]


def _value_files(found: NetworkFile, home: Path) -> dict[str, Path]:
    """Files with the values of agents, for their owner only.

    Also of those that have drawn: they refuse a value that is not theirs any more.
    """
    files = {}
    for name in found.consensus.process_names:
        if name not in found.values:
            if any((home / file).exists() for file in (f"{name}.db", f".{name}.db.part")):
                continue  # the state, or what a crash left of it, holds the value
            raise AffineDPError(
                f"there is no value for agent {name!r}: a trial needs all of them, in [values] of "
                "the network file"
            )
        files[name] = home / f"{name}.txt"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(files[name], flags, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{found.values[name]!r}\n")
    return files


def _remove(values: Mapping[str, Path], home: Path) -> None:
    """Remove value files that are not needed any more: the states hold the values."""
    for name, file in values.items():
        if (home / f"{name}.db").exists():
            file.unlink(missing_ok=True)


def _make_keys(found: NetworkFile, home: Path) -> None:
    from affinedp.consensus.agents.seals import write_keys

    if not all((home / f"{name}.keys").exists() for name in found.consensus.process_names):
        write_keys(home, _links(found))


@contextmanager
def _broker(address: str | None, home: Path) -> Iterator[Broker]:
    from affinedp.wire.broker import Broker
    from affinedp.wire.local_broker import local_broker

    if address is not None:
        yield Broker.parse(address)
        return
    with local_broker(home) as started:
        yield started


def _start(log: Path, words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "affinedp", "consensus", "agent", *words]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as said:
        # a group of its own: Ctrl-C comes to us, and we end them
        return subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)


def _watch(
    agents: Mapping[str, subprocess.Popen[bytes]],
    monitor: Monitor,
    bar: Progress,
    goal: int,
    stop: threading.Event,
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


def _end(agents: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Ask those that still run to end; what does not is killed, and its draw is on the disk."""
    for process in agents.values():
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + PATIENCE
    for process in agents.values():
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _show(home: Path, names: tuple[str, ...], as_json: bool) -> None:
    """The last messages, which are public: as the agents said them, whatever else was heard."""
    from affinedp.consensus.agents.agent import read_state

    found = []
    for name in names:
        with read_state(home / f"{name}.db") as agent:
            found.append({"agent": name, "round": agent.round, "message": agent.y})
    if as_json:
        say_json(found)
        return
    widest = max(map(len, names))
    for one in found:
        name = str(one["agent"])
        typer.echo(f"agent {name:<{widest}}  round {one['round']}  message {one['message']!r}")
