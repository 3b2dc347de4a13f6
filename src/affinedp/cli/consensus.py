"""``affinedp consensus …``: agents that find the average of their values over MQTT."""

from __future__ import annotations

import logging
import math
import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
    attended,
    public_broker,
)
from affinedp.cli.eavesdrop import eavesdrop
from affinedp.cli.file_kinds import expect
from affinedp.cli.help import add
from affinedp.cli.launch import keys as make_keys
from affinedp.cli.launch import launch
from affinedp.cli.options import AsJson, SameSecret
from affinedp.cli.output import say_json
from affinedp.errors import AffineDPError
from affinedp.progress import Progress

if TYPE_CHECKING:
    from affinedp.consensus.agents.agent import Agent
    from affinedp.consensus.agents.noise import AgentNoise
    from affinedp.mqtt.process import Outcome

logger = logging.getLogger(__name__)

consensus_app = typer.Typer(
    help="Private average consensus: agents as processes, over MQTT.",
    no_args_is_help=True,
)

State = Annotated[Path, typer.Option(help="State of this agent; secret, kept.")]


def agent(
    name: Annotated[str, typer.Option("--id", help="Name of this agent.")],
    state: State,
    network: Annotated[
        Path | None,
        typer.Option(help="Network file: neighbours, weights, noise and rounds of this agent."),
    ] = None,
    neighbours: Annotated[
        str | None, typer.Option(help="Names, as in 1,5 (with --weight), or 1:0.25,5:0.5.")
    ] = None,
    value_file: Annotated[
        Path | None, typer.Option(help="One number, secret; needed until the state exists.")
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of links without one.")] = None,
    law: Annotated[
        Literal["gaussian", "laplace"] | None, typer.Option(help="Gaussian by default.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε to keep.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ to keep, for Gaussian noise.")] = None,
    mu: Annotated[
        float | None, typer.Option(help="The promise is about values so far apart (default 1).")
    ] = None,
    sigma: Annotated[float | None, typer.Option(help="Scale of the noise, instead of ε.")] = None,
    bound: Annotated[float | None, typer.Option(help="Public bound on the size of values.")] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="Budget that pays for the draw: a file, or postgresql://…#name."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="For the ledger.")] = None,
    same_secret: SameSecret = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Draw again if the state is lost; needs a ledger.")
    ] = False,
    rerun: Annotated[
        bool,
        typer.Option("--rerun", help="Begin again from round 0 with the same draw; free."),
    ] = False,
    run: Annotated[
        int | None, typer.Option(help="Which run: go on with it, or begin it; free.", min=1)
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="Keys of the links: drop what they do not seal.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds to go (default: no end).", min=0)
    ] = None,
    broker: Address = "localhost:1883",
    topic: Annotated[
        str, typer.Option(help="Where the agents of this run meet, as a prefix of topics.")
    ] = "consensus",
    username: Username = None,
    password_file: PasswordFile = None,
    tls: Tls = False,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    resend: Annotated[float, typer.Option(help="Seconds to wait for others.", min=0.01)] = 1.0,
    linger: Annotated[
        float, typer.Option(help="Seconds to stay for others after the last round.", min=0.0)
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Run one agent: publish its value with noise, once, and average with its neighbours.

    The noise is drawn when the state is made; after a crash or a restart the agent goes on where
    it was.  What is published after the first message follows from published messages.
    """
    from affinedp.budget.ledger import Ledger
    from affinedp.consensus.agents.agent import Agent
    from affinedp.consensus.agents.keys import Keys
    from affinedp.consensus.agents.noise import AgentNoise
    from affinedp.consensus.network_file import read_network
    from affinedp.mqtt.agent_process import Meeting, run_agent
    from affinedp.mqtt.connection import Connection

    public = public_broker(broker, username, password_file, tls, ca_file, cert_file, key_file)
    meeting = Meeting(public, topic)
    noise = AgentNoise(law, epsilon, delta, mu, sigma, bound)
    if network is not None:
        if neighbours is not None or weight is not None or set(noise.given()) - {"bound"}:
            raise AffineDPError("neighbours, weights and noise stand in the network file")
        expect(network, "network")
        found = read_network(network)
        links = found.consensus.links_of(name)
        noise = found.consensus.noise_of(name, bound)
        rounds = found.rounds if rounds is None else rounds
    elif neighbours is None:
        raise AffineDPError("say who the neighbours are: --neighbours, or --network")
    else:
        links = read_neighbours(neighbours, weight)
    value = None if value_file is None else read_value(value_file)
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
        budget = None
        if ledger is not None:
            opened_ledger = Ledger(ledger, create=False, same_secret=same_secret)
            budget = stack.enter_context(opened_ledger)
        opened = stack.enter_context(
            Agent(
                name,
                links,
                state=state,
                value=value,
                noise=noise,
                ledger=budget,
                label=label,
                redraw=redraw,
                rerun=rerun,
                run=run,
            )
        )
        if is_new:
            logger.info("agent %s: drew its noise once; %s", name, _promise(opened, noise))
        bar = stack.enter_context(Progress(f"agent {name}"))
        outcome = run_agent(
            opened,
            meeting,
            stop,
            rounds=rounds,
            resend=resend,
            linger=linger,
            on_round=lambda t: bar.update(t / (rounds or math.inf), f"round {t}"),
            keys=sealing,
        )
        if as_json:
            say_json({"agent": opened.name, "message": opened.y, **outcome_as_json(outcome)})
        else:
            _say(opened, outcome, rounds)


def readout(
    state: State,
    agents: Annotated[
        int | None, typer.Option(help="How many agents there are, for the corrected estimate.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the owner of an agent its estimates of the average.

    Keep them: next to the messages, the state and the corrected estimate reveal the value.
    """
    from affinedp.consensus.agents.agent import read_state

    with read_state(state) as opened:
        typer.echo(
            "for the owner of this agent only: whoever sees the state or the corrected estimate "
            "can compute the value",
            err=True,
        )
        found = {"message": opened.readout("message"), "state": opened.readout("state")}
        if agents is not None:
            found["corrected"] = opened.readout("corrected", agents)
        if as_json:
            say_json({"agent": opened.name, "round": opened.round, **found})
            return
        typer.echo(f"agent      {opened.name}, round {opened.round}")
        for name, value in found.items():
            public = "  (public)" if name == "message" else ""
            typer.echo(f"{name:<10} {value!r}{public}")


def read_neighbours(text: str, weight: float | None = None) -> dict[str, float]:
    """Read the neighbours of an agent and the weights of its links.

    Parameters
    ----------
    text : str
        Names with or without weights, such as ``1:0.25,5``.
    weight : float, optional
        For names without one.

    Returns
    -------
    dict of str to float

    Examples
    --------
    >>> read_neighbours("1:0.25,5", weight=0.5)
    {'1': 0.25, '5': 0.5}
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, colon, number = (piece.strip() for piece in part.partition(":"))
        if name in found:
            raise AffineDPError(f"agent {name!r} is listed twice among the neighbours")
        if not colon and weight is None:
            raise AffineDPError(
                f"the link with agent {name!r} has no weight: write {name}:0.25, or give --weight"
            )
        try:
            found[name] = float(number) if colon else float(weight or 0.0)
        except ValueError:
            raise AffineDPError(f"the weight of agent {name!r} is no number: {number!r}") from None
    return found


def read_value(file: Path) -> float:
    """Read a secret number; it is not shown, whatever is wrong with it.

    Parameters
    ----------
    file : Path
        A text file with one number and nothing else.

    Returns
    -------
    float
    """
    try:
        content = file.read_text(encoding="utf-8").strip()
        shared = os.name == "posix" and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AffineDPError(f"the value file {file} cannot be read: {reason}") from None
    if shared:
        typer.echo(f"{file} can be read by others than its owner: chmod 600 it", err=True)
    try:
        value = float(content.replace("_", "?"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AffineDPError(f"the value file {file} must hold one number and nothing else")
    return value


def _promise(opened: Agent, noise: AgentNoise) -> str:
    """What is promised, in a few words."""
    guarantee = opened.guarantee
    delta = noise.delta or (0.01 if guarantee.law == "gaussian" else 0.0)
    kept = guarantee.asked or f"ε = {guarantee.epsilon(delta):.6g} at δ = {delta:g}"
    apart = f"{noise.record()['mu']:g}"
    return f"its messages keep {kept} for values up to {apart} apart, however long it runs"


def _say(opened: Agent, outcome: Outcome, rounds: int | None) -> None:
    ending = "all rounds" if outcome.finished else "stopped"
    goal = "" if rounds is None else f" of {rounds}"
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(outcome.dropped.items()))
    typer.echo(
        f"agent {opened.name}: {ending}, {outcome.steps}{goal}; message {opened.y!r}; "
        f"dropped: {dropped or 'nothing'}"
    )


_AGENT = "affinedp consensus agent --id 3 --state 3.db --value-file 3.txt"
add(
    consensus_app,
    agent,
    f"{_AGENT} --network ring.toml --broker localhost:1883 --ledger budget.db",
    f"{_AGENT} --neighbours 2:0.25,4:0.25 --epsilon 1 --delta 0.01 --rounds 100",
)
add(consensus_app, readout, "affinedp consensus readout --state 3.db --agents 6")
add(consensus_app, eavesdrop, "affinedp consensus eavesdrop --log seen.jsonl")
add(consensus_app, launch, "affinedp consensus launch ring.toml --rounds 50")
add(consensus_app, make_keys, "affinedp consensus keys ring.toml --folder keys", name="keys")
