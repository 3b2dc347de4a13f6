"""``affinedp report``: what a saved mechanism promises and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from affinedp.cli.options import MechanismFile
from affinedp.cli.output import say


def report(
    mechanism: MechanismFile,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    trust: Annotated[bool, typer.Option(help="Do not verify the guarantee again.")] = False,
) -> None:
    """Say what a saved mechanism promises and costs; its guarantee is verified again."""
    from affinedp.control.trajectory.noise import TrajectoryMechanism
    from affinedp.files.mechanisms import TRAJECTORY_FORMAT, format_of
    from affinedp.files.writing import write_text
    from affinedp.mechanism import Mechanism

    kind = TrajectoryMechanism if format_of(mechanism) == TRAJECTORY_FORMAT else Mechanism
    written = kind.load(mechanism, reverify=not trust).report()
    if html is None:
        say(written)
        return
    write_text(html, written.page())
    say(f"wrote {html}")
