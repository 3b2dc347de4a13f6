"""``affinedp audit``, ``reproduce`` and ``studio``: attack, recompute the paper, open the page."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.exits import KEPT, NOT_KEPT
from affinedp.cli.file_kinds import expect
from affinedp.cli.output import finite, say, say_table
from affinedp.errors import MissingExtraError
from affinedp.progress import Progress


def audit(
    mechanism: Path = Argument(..., help="Mechanism file.", show_default=False),
    epsilon: float | None = Option(None, help="ε that is claimed (or its own)."),
    delta: float | None = Option(None, help="δ at which it is attacked."),
    runs: int = Option(100_000, help="Releases of each of two neighbours."),
    confidence: float = Option(0.999, help="How sure the bound on ε is."),
    seed: int = Option(0, help="Which runs choose the threshold."),
    jobs: int = Option(1, help="Workers (-1: all cores)."),
    low_bits: bool = Option(False, "--low-bits", help="Attack the last bits instead."),
) -> Answer:
    """Attack real releases of a saved mechanism; exit code 1 if its claim is refuted.

    Examples
    --------
    affinedp audit mechanism.json --runs 20000
    """
    from affinedp.audit.trial import audit as attacked
    from affinedp.mechanism import Mechanism

    expect(mechanism, "mechanism")
    claim = None if epsilon is None else (epsilon, delta or 0.0)
    found = attacked(
        Mechanism.load(mechanism),
        attack="low bits" if low_bits else "likelihood ratio",
        claim=claim,
        delta=None if claim else delta,
        runs=runs,
        confidence=confidence,
        seed=seed,
        n_jobs=jobs,
    )
    told = ("epsilon_lower", "delta", "confidence", "runs", "seed", "attack", "neighbours")
    answer = {
        "passed": found.passed,
        "epsilon_stated": finite(found.epsilon_stated),
        **{name: getattr(found, name) for name in told},
    }
    return Answer(answer, found, KEPT if found.passed else NOT_KEPT)


def reproduce(
    part: str = Argument("all", help="examples, control, consensus or all."),
    out: Path | None = Option(None, help="Folder for figures and results."),
    rows: bool = Option(False, "--rows", help="Print every number, even with --out."),
) -> Answer:
    """Compute the paper's numbers again, print them beside the paper's, draw its figures.

    With --out the figures (PNG and SVG), results.json and report.html go into that folder, and
    a summary is printed.

    Examples
    --------
    affinedp reproduce examples
    affinedp reproduce all --out paper
    """
    from affinedp.paper.report import counted, parts_named
    from affinedp.paper.report import reproduce as compute

    with Progress("reproducing the paper:") as bar:
        found = compute(parts_named(part), out, bar.update)

    def show() -> None:
        if rows or out is None:
            for one in found:
                say_table(
                    ("claim", "paper", "affinedp", "verdict"),
                    (claim.row()[:4] for claim in one.claims),
                    title=one.title,
                    right=("paper", "affinedp"),
                )
        if out is not None:
            counts = counted(found)
            say(f"{sum(counts.values())} numbers and claims of the paper, computed again:")
            say(f"  {counts['agrees']:3} agree")
            say(f"  {counts['corrected']:3} are corrected, each with the reason")
            say(f"  {counts['added']:3} are added, where the paper is silent or gives a bound")
            say(f"open {out / 'report.html'}: every number and figure, the paper's beside ours")

    keys = ("what", "paper", "ours", "verdict", "how")
    return Answer([dict(zip(keys, claim.row())) for one in found for claim in one.claims], show)


def studio(
    port: int | None = Option(
        None,
        metavar="PORT",
        help="Where to listen (default: 8642, or any that is free).",
        min=0,
        max=65535,
    ),
    open_page: bool = Option(True, "--open/--no-open", help="Open the page in a browser."),
) -> None:
    """Open a page on this machine: equations, who must stay hidden, how much noise, the script.

    The first line is the link, with the token of this run.  Nothing leaves this process.

    Examples
    --------
    affinedp studio
    affinedp studio --port 8642 --no-open
    """
    try:
        from affinedp.studio.serving import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("affinedp"):
            raise
        raise MissingExtraError(str(error.name), "studio") from None

    serve(port, open_page, typer.echo)
