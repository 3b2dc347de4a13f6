"""``affinedp consensus launch`` and ``keys``: a network on one machine, for a trial."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from affinedp.cli.broker_options import attended
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json
from affinedp.cli.trials import end_all, folder_for_owner, last_words, named_or_own, start
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.consensus.network_file import NetworkFile
    from affinedp.consensus.private import PrivateConsensus
    from affinedp.mqtt.listening import Monitor

LOOK = 0.1  # seconds between two looks at the processes

NetworkPath = Annotated[Path, typer.Argument(help="Network file, .toml or .json.")]


def launch(
    network: NetworkPath,
    folder: Annotated[
        Path | None,
        typer.Option(help="States and logs, secret (default: beside the file, NAME-run)."),
    ] = None,
    broker: Annotated[
        str | None, typer.Option(help="Broker, host:port (default: start one).")
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
    from affinedp.consensus.network_file import read_network
    from affinedp.mqtt.agent_process import Meeting
    from affinedp.mqtt.listening import Monitor

    expect(network, "network")
    found = read_network(network)
    names = found.consensus.process_names
    goal = found.rounds if rounds is None else rounds
    if goal is None:
        raise AffineDPError("say how many rounds: rounds in the network file, or --rounds")
    home = folder_for_owner(network.with_name(f"{network.stem}-run") if folder is None else folder)
    reached = _reached(home, found)
    one_end = len(reached) == len(names) and len(set(reached)) == 1 and reached[0][1] == goal
    if one_end and not rerun:  # nobody would speak any more
        typer.echo("all agents have done their rounds: --rerun begins again", err=True)
        _show(home, found.consensus, as_json)
        return
    values = _value_files(found, home)
    if sealed:
        _make_keys(found, home)
    words = ["--network", str(network), "--rounds", str(goal), "--topic", topic]
    words += ["--linger", str(linger), "--run", str(_run(reached, rerun))]
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        place = stack.enter_context(named_or_own(broker, home))
        monitor = stack.enter_context(Monitor(Meeting(place, topic), names, home / "seen.jsonl"))
        typer.echo(
            f"{len(names)} agents meet under {topic} at {place.address}; see {home}", err=True
        )
        bar = stack.enter_context(Progress(f"{len(names)} agents"))
        agents: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(_remove, values, home)
        stack.callback(lambda: end_all(agents.values()))
        for name in names:
            own = ["--id", name, "--state", str(home / f"{name}.db"), "--broker", place.address]
            if name in values:
                own += ["--value-file", str(values[name])]
            if sealed:
                own += ["--keys", str(home / f"{name}.keys")]
            agents[name] = start(home / f"{name}.log", ["consensus", "agent", *own, *words])
        failed = _watch(agents, monitor, bar, goal, stop)
        if failed is not None:
            end_all(agents.values())
            code = agents[failed].returncode
            last = last_words(home / f"{failed}.log")
            typer.echo(f"agent {failed} ended with exit code {code}: {last}", err=True)
            typer.echo("its draw is kept: launch again, with --rerun to begin anew", err=True)
            raise typer.Exit(code if 0 < code < 126 else 4)
        if not stop.is_set():
            _show(home, found.consensus, as_json)


def keys(
    network: NetworkPath,
    folder: Annotated[Path, typer.Option(help="Where to write NAME.keys for each agent.")],
    as_json: AsJson = False,
) -> None:
    """Make a key for each link of a network; give each agent its file, and no other.

    With ``--keys`` agents drop every message that a neighbour did not seal.
    """
    from affinedp.consensus.agents.keys import write_keys
    from affinedp.consensus.network_file import read_network

    expect(network, "network")
    found = read_network(network)
    home = folder_for_owner(folder)
    files = [str(home / f"{name}.keys") for name in write_keys(home, _links(found))]
    if as_json:
        say_json(files)
        return
    for file in files:
        typer.echo(file)


def _reached(home: Path, found: NetworkFile) -> list[tuple[int, int]]:
    """Run and round of every agent that has a state; refused while it runs, or for other values."""
    from affinedp.consensus.agents.agent import read_state

    reached = []
    for name in found.consensus.process_names:
        if (home / f"{name}.db").exists():
            with read_state(home / f"{name}.db", found.values.get(name)) as agent:
                reached.append((agent.run, agent.round))
    return reached


def _run(reached: list[tuple[int, int]], rerun: bool) -> int:
    """The number of the run: that of the states, or the next one if they differ."""
    runs = {run for run, _ in reached}
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
    from affinedp.consensus.agents.keys import write_keys

    if not all((home / f"{name}.keys").exists() for name in found.consensus.process_names):
        write_keys(home, _links(found))


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


def _show(home: Path, consensus: PrivateConsensus, as_json: bool) -> None:
    """What was asked for, and the last messages, which are public: as the agents said them."""
    from affinedp.consensus.agents.agent import read_state

    names, noise = consensus.process_names, consensus.noise
    asked = None
    if noise.epsilon is not None:  # refused where an agent's noise does not keep it
        agents = consensus.network.names
        kept = all(consensus.agent_guarantee(name).keeps_asked() for name in agents)
        asked = {"epsilon": float(noise.epsilon.max()), "delta": noise.delta, "holds": kept}
    found = []
    for name in names:
        with read_state(home / f"{name}.db") as agent:
            found.append({"agent": name, "round": agent.round, "message": agent.y})
    if as_json:
        say_json({"asked": asked, "agents": found})
        return
    if asked is not None:
        verdict = "keep" if asked["holds"] else "do NOT keep"
        same = noise.mu.min() == noise.mu.max()
        apart = f"{noise.mu[0]:g}" if same else "their μ"  # never more than every agent's own
        say(
            f"the messages of every agent {verdict} ε = {asked['epsilon']:g} at δ = "
            f"{asked['delta']:g}, for values up to {apart} apart, however long it runs"
        )
    widest = max(map(len, names))
    for one in found:
        name = str(one["agent"])
        typer.echo(f"agent {name:<{widest}}  round {one['round']}  message {one['message']!r}")
