"""``affinedp report``: what a saved mechanism promises and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson, MechanismFile
from affinedp.cli.output import say, say_json


def report(
    mechanism: MechanismFile,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    trust: Annotated[bool, typer.Option(help="Do not verify the guarantee again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a saved mechanism promises and costs; its guarantee is verified again.

    The page for --html opens with a paragraph for people who decide.
    """
    from affinedp.files.writing import write_text

    expect(mechanism, "mechanism", "noise of a loop", "structured noise")
    loaded = load_any(mechanism, reverify=not trust)
    if html is not None:
        write_text(html, loaded.report().page())
    if as_json:
        say_json(_as_json(loaded))
    elif html is None:
        say(loaded.report())
    else:
        say(f"wrote {html}")


def load_any(path: Path, reverify: bool) -> Any:
    """Return the mechanism in a file, of whatever kind it is.

    Parameters
    ----------
    path : Path
        What ``save`` of one of them wrote.
    reverify : bool
        Compute the guarantee again.
    """
    from affinedp.files.mechanisms import STATIONARY_FORMAT, STRUCTURED_FORMAT, TRAJECTORY_FORMAT
    from affinedp.files.saved import format_of

    form = format_of(path)
    if form == TRAJECTORY_FORMAT:
        from affinedp.control.trajectory.noise import TrajectoryMechanism

        return TrajectoryMechanism.load(path, reverify=reverify)
    if form == STATIONARY_FORMAT:
        from affinedp.control.stationary.noise import StationaryMechanism

        return StationaryMechanism.load(path, reverify=reverify)
    if form == STRUCTURED_FORMAT:
        from affinedp.designs.structured.saved import load_structured

        return load_structured(path)  # always verified
    from affinedp.mechanism import Mechanism

    return Mechanism.load(path, reverify=reverify)


def _as_json(mechanism: Any) -> dict[str, Any]:
    from affinedp.cli.answers import mechanism_as_json, promise_as_json

    if hasattr(mechanism, "alternatives") and hasattr(mechanism, "excess"):
        return mechanism_as_json(mechanism)
    return {**promise_as_json(mechanism.guarantee), "notes": list(mechanism.notes)}
