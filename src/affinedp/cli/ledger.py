"""``affinedp ledger …``: start a privacy budget, look at it, check it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from affinedp.cli.exits import NOT_KEPT
from affinedp.cli.help import add
from affinedp.cli.options import AsJson, LedgerFile
from affinedp.cli.output import finite, for_people, say, say_json
from affinedp.errors import AffineDPError
from affinedp.files.visible import visible

if TYPE_CHECKING:
    from affinedp.budget.ledger import LedgerEntry

_HELP = "Start a privacy budget, look at it, check it, move it to a server."
ledger_app = typer.Typer(help=_HELP, no_args_is_help=True)


def ledger_create(
    path: LedgerFile,
    epsilon: Annotated[float, typer.Option(help="Cap on ε.")],
    protects: Annotated[str, typer.Option(help="Whose budget it is, such as 'one person'.")],
    delta: Annotated[float, typer.Option(help="Cap on δ.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Start the budget of one secret; an existing one is never touched."""
    from affinedp.budget.address import without_password
    from affinedp.budget.ledger import Ledger
    from affinedp.budget.opening import ledger_exists

    if ledger_exists(path):
        raise AffineDPError(f"{visible(without_password(path))} exists already")
    with Ledger(path, epsilon=epsilon, delta=delta, protects=protects) as ledger:
        if as_json:
            caps = {"epsilon": ledger.epsilon, "delta": ledger.delta}
            say_json({"ledger": ledger.name, "protects": ledger.protects, **caps})
            return
        whom = visible(protects)
        say(f"made {visible(ledger.name)}: at most ε = {epsilon:g} at δ = {delta:g} for {whom}")


def ledger_show(path: LedgerFile, as_json: AsJson = False) -> None:
    """Say whom the budget protects, the cap, what was spent, and the neighbours of the charges."""
    from affinedp.budget.ledger import Ledger

    with Ledger(path, create=False) as ledger:
        entries = ledger.history()
        releases: Counter[tuple[str, str, bool]] = Counter()
        for entry in entries:
            releases[entry.unit, entry.neighbours, entry.same_secret] += entry.releases
        answer: dict[str, Any] = {
            "protects": ledger.protects,
            "unit": ledger.unit,
            "epsilon": ledger.epsilon,
            "delta": ledger.delta,
            "adaptive": ledger.adaptive,
            "spent": finite(ledger.spent),
            "remaining": ledger.remaining,
            "neighbours": [
                {"unit": unit, "neighbours": text, "same_secret": declared, "releases": count}
                for (unit, text, declared), count in releases.items()
            ],
            "charges": len(entries),
            "not_confirmed": sum(entry.status == "charged" for entry in entries),
            "head": ledger.head,
            "moved_to": ledger.moved_to,
        }
    if as_json:
        say_json(answer)
        return
    if answer["moved_to"] is not None:
        say(f"moved       to {visible(answer['moved_to'])}: charges since then are there, not here")
    say(f"protects    {visible(answer['protects'])}")
    say(f"unit        {visible(answer['unit'] or 'that of the first charge')}")
    say(f"cap         ε = {answer['epsilon']:g}, δ = {answer['delta']:g}")
    say(f"charges     {answer['charges']}, {answer['not_confirmed']} not confirmed")
    say(f"remaining   about ε = {for_people(answer['remaining'])}")
    spent = math.inf if answer["spent"] is None else answer["spent"]
    about = "for changes that are neighbours of every release:" if entries else "no charges yet"
    say(f"spent       ε = {spent:.6g}, {about}")
    for kind in answer["neighbours"]:
        mark = f" ({kind['unit']}: same secret, as was said)" if kind["same_secret"] else ""
        say(f"            {kind['releases']} × {visible(kind['neighbours'] + mark)}")
    say(f"head        {answer['head']}")


def ledger_history(path: LedgerFile, as_json: AsJson = False) -> None:
    """List all charges and their neighbours, the oldest first."""
    from dataclasses import asdict

    from affinedp.budget.ledger import Ledger

    with Ledger(path, create=False) as ledger:
        entries = ledger.history()
    if as_json:
        say_json([asdict(entry) for entry in entries])
        return
    if not entries:
        say("no charges yet")
    for entry in entries:
        losses = _noise(entry)
        times = f" × {entry.releases}" if entry.releases > 1 else ""
        confirmed = "released" if entry.status == "released" else "charged, release not confirmed"
        label = visible(entry.label or "")
        say(f"{entry.id:>6}  {entry.time[:19]}Z  {losses}{times}  {confirmed}  {label}")
        mark = "; same secret, as was said" if entry.same_secret else ""
        say(f"        {visible(f'{entry.unit}{mark}: {entry.neighbours}')}")


def _noise(entry: LedgerEntry) -> str:
    """Which noise it was, and as what it is counted, if that has another name."""
    from affinedp.budget.state import NOT_SAID

    losses = ", ".join(_loss(law, s) for law, s in entry.losses)
    counted = {law for law, _ in entry.losses} | {NOT_SAID}
    return losses if entry.law in counted else f"{visible(entry.law)}, counted as {losses}"


def _loss(law: str, sensitivity: float) -> str:
    """One loss: its law, and its ε if it is pure, else the sensitivity in units of the noise."""
    from affinedp.laws.pure_curves import THREE_ATOMS, is_pure

    name = THREE_ATOMS.strip() if law.startswith(THREE_ATOMS) else law
    return f"{name} {'ε' if is_pure(law) else 's'} = {sensitivity:.6g}"


def ledger_check(path: LedgerFile, as_json: AsJson = False) -> None:
    """Verify the whole ledger; exit code 1 if something is wrong with it."""
    import warnings

    from affinedp.budget.ledger import Ledger, LedgerError, LedgerWarning
    from affinedp.budget.opening import ledger_exists, missing

    if not ledger_exists(path):
        raise AffineDPError(visible(missing(path)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LedgerWarning)  # check() says the same
            with Ledger(path, create=False) as ledger:
                problems = ledger.check()
    except LedgerError as error:
        problems = (str(error),)
    if as_json:
        say_json({"fine": not problems, "problems": list(problems)})
    for problem in () if as_json else problems:
        say(problem)
    if problems:
        raise typer.Exit(NOT_KEPT)
    if not as_json:
        say("fine: nothing was altered")


def ledger_export(
    path: Annotated[str, typer.Argument(help="The ledger's file.", show_default=False)],
    address: Annotated[
        str, typer.Argument(help="postgresql://…#name, a new ledger.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Move a ledger from its file to a server; afterwards the file is not charged any more."""
    from affinedp.budget.ledger import Ledger

    with Ledger(path, create=False) as ledger:
        ledger.export(address)
        name = ledger.name
    with Ledger(address, create=False) as moved:
        charges = len(moved.history())
        word = "charge" if charges == 1 else "charges"
        if as_json:
            say_json({"from": name, "to": moved.name, "charges": charges})
        else:
            say(f"moved {visible(name)} to {visible(moved.name)}: {charges} {word}")


_NEW = "affinedp ledger create budget.db --epsilon 2 --delta 1e-6 --protects 'one person'"
_MOVE = "affinedp ledger export budget.db 'postgresql://budgets.example/privacy#people'"
add(ledger_app, ledger_create, _NEW, name="create")
add(ledger_app, ledger_show, "affinedp ledger show budget.db", name="show")
add(ledger_app, ledger_history, "affinedp ledger history budget.db --json", name="history")
add(ledger_app, ledger_check, "affinedp ledger check budget.db", name="check")
add(ledger_app, ledger_export, _MOVE, name="export")
