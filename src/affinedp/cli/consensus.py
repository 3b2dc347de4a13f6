"""``affinedp consensus …``: agents that find the average of their values over MQTT."""

from __future__ import annotations

import logging
import math
import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Option

from affinedp.cli.commands import Answer
from affinedp.cli.file_kinds import expect
from affinedp.cli.options import (
    LABEL,
    LEDGER,
    NETWORK,
    REDRAW,
    SAME_SECRET,
    attended,
    passwords,
    recovery,
)  # fmt: skip
from affinedp.cli.output import dropped, outcome_as_json
from affinedp.errors import AffineDPError
from affinedp.files.writing import folder_for_owner
from affinedp.mqtt.broker import Broker
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.consensus.agent import Agent
    from affinedp.consensus.network_file import NetworkFile

logger = logging.getLogger(__name__)

MOST_OF_A_VALUE = 10_000  # bytes
_STATE = Option(..., help="State of this agent; secret, kept.")


def agent(
    public: Broker,
    name: str = Option(..., "--id", help="Name of this agent."),
    network: Path = Option(
        ..., help="Network file: neighbours, weights, noise, rounds, topic and timing."
    ),
    state: Path = _STATE,
    value_file: Path | None = Option(
        None,
        help="One number, secret; needed until the state exists (default: that in [values] of the "
        "network, for trials).",
    ),
    ledger: str | None = LEDGER,
    label: str | None = LABEL,
    same_secret: bool = SAME_SECRET,
    redraw: bool = REDRAW,
    rerun: bool = recovery(
        False, "--rerun", help="Begin again from round 0 with the same draw; free."
    ),
    run: int | None = recovery(
        None, metavar="RUN", help="Which run: go on with it, or begin it; free.", min=1
    ),
    keys: Path | None = passwords(None, help="Keys of the links: drop what they do not seal."),
) -> Answer:
    """Run one agent: publish its value with noise, once, and average with its neighbours.

    The noise is drawn when the state is made; after a crash or a restart the agent goes on where
    it was.  What is published after the first message follows from published messages.

    Examples
    --------
    affinedp consensus agent --id 3 --state 3.db --value-file 3.txt --network ring.toml
        --broker localhost:1883 --ledger budget.db
    """
    from affinedp.cli.pending import budget_of
    from affinedp.consensus.keys import Keys
    from affinedp.mqtt.agent_process import Meeting, run_agent
    from affinedp.mqtt.connection import Connection

    found = read_network_of(network)
    meeting = Meeting(public, found.mqtt["topic"])
    links, rounds = found.consensus.links_of(name), found.rounds
    value = found.values.get(name) if value_file is None else read_value(value_file)
    sealing = None if keys is None else Keys.read(keys)
    if sealing is not None:
        sealing.check(links)
    is_new = not state.exists()
    with ExitStack() as stack:
        stop = stack.enter_context(attended())
        if is_new:
            with Connection(public):  # nothing is drawn and charged in vain
                pass
            if ledger is None:
                logger.warning("agent %s: no ledger: nothing keeps count of this draw", name)
        budget = stack.enter_context(budget_of(ledger, same_secret))
        opened = stack.enter_context(
            found.consensus.agent(
                name,
                state=state,
                value=value,
                bound=found.bound,
                ledger=budget,
                label=label,
                redraw=redraw,
                rerun=rerun,
                run=run,
            )
        )
        if is_new:
            logger.info("agent %s: drew its noise once; %s", name, _promise(opened))
        bar = stack.enter_context(Progress(f"agent {name}"))
        outcome = run_agent(
            opened,
            meeting,
            stop,
            rounds=rounds,
            resend=found.mqtt["resend"],
            linger=found.mqtt["linger"],
            on_round=lambda t: bar.update(t / (rounds or math.inf), f"round {t}"),
            keys=sealing,
        )
        ending = "all rounds" if outcome.finished else "stopped"
        goal = "" if rounds is None else f" of {rounds}"
        return Answer(
            {"agent": opened.name, "message": opened.y, **outcome_as_json(outcome)},
            f"agent {opened.name}: {ending}, {outcome.steps}{goal}; message {opened.y!r}; "
            f"dropped: {dropped(outcome)}",
        )


def readout(
    state: Path = _STATE,
    agents: int | None = Option(
        None, help="How many agents there are, for the corrected estimate."
    ),
) -> Answer:
    """Show the owner of an agent its estimates of the average.

    Keep them: next to the messages, the state and the corrected estimate reveal the value.

    Examples
    --------
    affinedp consensus readout --state 3.db --agents 6
    """
    from affinedp.consensus.agent import read_state

    with read_state(state) as opened:
        typer.echo(
            "for the owner of this agent only: whoever sees the state or the corrected estimate "
            "can compute the value",
            err=True,
        )
        found = {"message": opened.readout("message"), "state": opened.readout("state")}
        if agents is not None:
            found["corrected"] = opened.readout("corrected", agents)
        lines = [f"agent      {opened.name}, round {opened.round}"]
        for name, value in found.items():
            lines.append(f"{name:<10} {value!r}{'  (public)' if name == 'message' else ''}")
        answer = {"agent": opened.name, "round": opened.round, **found}
        return Answer(answer, "\n".join(lines))


def keys(
    network: Path = NETWORK,
    folder: Path = Option(..., help="Where to write NAME.keys for each agent."),
) -> Answer:
    """Make a key for each link of a network; give each agent its file, and no other.

    With --keys agents drop every message that a neighbour did not seal.

    Examples
    --------
    affinedp consensus keys ring.toml --folder keys
    """
    from affinedp.consensus.keys import write_keys

    found = read_network_of(network)
    home = folder_for_owner(folder)
    files = [str(home / f"{name}.keys") for name in write_keys(home, links_of(found))]
    return Answer(files, "\n".join(files))


def read_network_of(path: Path) -> NetworkFile:
    """Return what a network file says, unless it is a file of another kind."""
    from affinedp.consensus.network_file import read_network

    expect(path, "network")
    return read_network(path)


def links_of(found: NetworkFile) -> list[tuple[str, str]]:
    """Return the links of a network, each once."""
    names = found.consensus.process_names
    rows, columns, _ = found.consensus.network.links()
    return [(names[i], names[j]) for i, j in zip(rows, columns) if i < j]


def read_value(file: Path) -> float:
    """Return the secret number in a file; it is not shown, whatever is wrong with it."""
    from affinedp.files.documents import read_text

    content = read_text(file, f"the value file {file}", MOST_OF_A_VALUE)
    if os.name == "posix" and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        typer.echo(f"{file} can be read by others than its owner: chmod 600 it", err=True)
    try:
        value = float(content.replace("_", "?"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AffineDPError(f"the value file {file} must hold one number and nothing else")
    return value


def _promise(opened: Agent) -> str:
    """What is promised, in a few words."""
    guarantee, noise = opened.guarantee, opened.noise
    delta = noise.delta or (0.01 if guarantee.law == "gaussian" else 0.0)
    kept = guarantee.asked or f"ε = {guarantee.epsilon(delta):.6g} at δ = {delta:g}"
    apart = f"{noise.record()['mu']:g}"
    return f"its messages keep {kept} for values up to {apart} apart, however long it runs"
