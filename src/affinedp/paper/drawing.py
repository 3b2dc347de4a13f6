"""What all figures of the reproduction share: colours, an empty figure, how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from affinedp.errors import AffineDPError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, YELLOW = "#E69F00", "#56B4E9", "#F0E442"
RESOLUTION = 200


def write_figures(out: Path, drawn: Mapping[str, Figure]) -> list[Path]:
    """Write figures as PNG and SVG, and return the files.

    Parameters
    ----------
    out : Path
        Folder to write to; made if there is none.
    drawn : mapping
        The figures by the names of their files.
    """
    written = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, figure in drawn.items():
            for kind in ("png", "svg"):
                path = out / f"{name}.{kind}"
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(path, dpi=RESOLUTION, metadata=metadata)
                written.append(path)
    except OSError as error:
        raise AffineDPError(f"{out} cannot be written: {error.strerror}") from None
    return written


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure.

    Parameters
    ----------
    width, height : float
        In inches.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained")
    return figure
