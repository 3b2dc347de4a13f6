"""``affinedp ledger …``: start a privacy budget, look at it, check it."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.exits import KEPT, NOT_KEPT
from affinedp.cli.output import finite, say_lines
from affinedp.errors import AffineDPError, left_words, most_words
from affinedp.files.values import visible

if TYPE_CHECKING:
    from affinedp.budget.ledger import LedgerEntry

_LEDGER = Argument(..., help="Ledger: a file, or postgresql://…#name.", show_default=False)


def create(
    path: str = _LEDGER,
    epsilon: float = Option(..., help="Cap on ε."),
    protects: str = Option(..., help="Whose budget it is, such as 'one person'."),
    delta: float = Option(0.0, help="Cap on δ."),
) -> Answer:
    """Start the budget of one secret; an existing one is never touched.

    Examples
    --------
    affinedp ledger create budget.db --epsilon 2 --delta 1e-6 --protects 'one person'
    """
    from affinedp.budget.address import without_password
    from affinedp.budget.ledger import Ledger, ledger_exists

    if ledger_exists(path):
        raise AffineDPError(f"{visible(without_password(path))} exists already")
    with Ledger(path, epsilon=epsilon, delta=delta, protects=protects) as ledger:
        caps = {"epsilon": ledger.epsilon, "delta": ledger.delta}
        return Answer(
            {"ledger": ledger.name, "protects": ledger.protects, **caps},
            f"made {visible(ledger.name)}: at most ε = {epsilon:g} at δ = {delta:g} for "
            f"{visible(protects)}",
        )


def show(path: str = _LEDGER) -> Answer:
    """Say whom the budget protects, the cap, what was spent, and the neighbours of the charges.

    Examples
    --------
    affinedp ledger show budget.db
    """
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
    spent = math.inf if answer["spent"] is None else answer["spent"]
    about = "for changes that are neighbours of every release:" if entries else "no charges yet"
    lines = [
        f"protects    {visible(answer['protects'])}",
        f"unit        {visible(answer['unit'] or 'that of the first charge')}",
        f"cap         ε = {answer['epsilon']:g}, δ = {answer['delta']:g}",
        f"charges     {answer['charges']}, {answer['not_confirmed']} not confirmed",
        f"remaining   about ε = {left_words(answer['remaining'])}",
        f"spent       ε = {spent:.6g}, {about}",
    ]
    if answer["moved_to"] is not None:
        place = visible(answer["moved_to"])
        lines.insert(0, f"moved       to {place}: charges since then are there, not here")
    for (unit, text, declared), count in releases.items():
        lines.append(f"            {count} × {_whom(unit, text, declared)}")
    lines.append(f"head        {answer['head']}")
    return Answer(answer, partial(say_lines, lines))


def history(path: str = _LEDGER) -> Answer:
    """List all charges, the oldest first, and their neighbours where those change.

    Examples
    --------
    affinedp ledger history budget.db --json
    """
    from dataclasses import asdict

    from affinedp.budget.ledger import Ledger

    with Ledger(path, create=False) as ledger:
        entries = ledger.history()
    lines, last = [] if entries else ["no charges yet"], ""
    for entry in entries:
        losses = _noise(entry)
        times = f" × {entry.releases}" if entry.releases > 1 else ""
        confirmed = "released" if entry.status == "released" else "charged, release not confirmed"
        label = visible(entry.label or "")
        lines.append(f"{entry.id:>6}  {entry.time[:19]}Z  {losses}{times}  {confirmed}  {label}")
        whom = _whom(entry.unit, entry.neighbours, entry.same_secret)
        if whom != last:
            lines.append(f"        {whom}")
        last = whom
    return Answer([asdict(entry) for entry in entries], partial(say_lines, lines))


def _whom(unit: str, neighbours: str, declared: bool) -> str:
    """Whom a charge protects, and that its secret was said to be the ledger's, if it was."""
    return visible(neighbours + (f" ({unit}: same secret, as was said)" if declared else ""))


def _noise(entry: LedgerEntry) -> str:
    """Which noise it was, and as what it is counted, if that has another name."""
    losses = ", ".join(_loss(law, s) for law, s in entry.losses)
    counted = {law for law, _ in entry.losses}
    return losses if entry.law in counted else f"{visible(entry.law)}, counted as {losses}"


def _loss(law: str, sensitivity: float) -> str:
    """One loss: its law, and its ε if it is pure, else the sensitivity in units of the noise."""
    from affinedp.laws.curves import THREE_ATOMS, is_pure

    name = THREE_ATOMS.strip() if law.startswith(THREE_ATOMS) else law
    return f"{name} {'ε' if is_pure(law) else 's'} = {most_words(sensitivity)}"


def check(path: str = _LEDGER) -> Answer:
    """Verify the whole ledger; exit code 1 if something is wrong with it.

    Examples
    --------
    affinedp ledger check budget.db
    """
    import warnings

    from affinedp.budget.ledger import (
        Ledger,
        LedgerError,
        LedgerWarning,
        ledger_exists,
        missing,
    )

    if not ledger_exists(path):
        raise AffineDPError(visible(missing(path)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LedgerWarning)  # check() says the same
            with Ledger(path, create=False) as ledger:
                problems = ledger.check()
    except LedgerError as error:
        problems = (str(error),)
    return Answer(
        {"fine": not problems, "problems": list(problems)},
        "\n".join(problems) or "fine: nothing was altered",
        NOT_KEPT if problems else KEPT,
    )


def export(
    path: str = Argument(..., help="The ledger's file.", show_default=False),
    address: str = Argument(..., help="postgresql://…#name, a new ledger.", show_default=False),
) -> Answer:
    """Move a ledger from its file to a server; afterwards the file is not charged any more.

    Examples
    --------
    affinedp ledger export budget.db 'postgresql://budgets.example/privacy#people'
    """
    from affinedp.budget.ledger import Ledger

    with Ledger(path, create=False) as ledger:
        ledger.export(address)
        name = ledger.name
    with Ledger(address, create=False) as moved:
        charges = len(moved.history())
        word = "charge" if charges == 1 else "charges"
        return Answer(
            {"from": name, "to": moved.name, "charges": charges},
            f"moved {visible(name)} to {visible(moved.name)}: {charges} {word}",
        )
