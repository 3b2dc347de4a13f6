"""What all figures of the reproduction share: colours, an empty figure, how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from affinedp.errors import AffineDPError
from affinedp.show.plot import unregistered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY = "#E69F00", "#56B4E9"
RESOLUTION = 200


def write_figures(out: Path, drawn: Mapping[str, Callable[[], Figure]]) -> list[Path]:
    """Write figures as PNG and SVG, and return the files."""
    written = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, draw in drawn.items():
            figure, path = draw(), out / f"{name}.png"
            figure.savefig(path, dpi=RESOLUTION)
            _with_fewer_colours(path)
            vector = path.with_suffix(".svg")
            figure.savefig(vector, metadata={"Date": None})
            written += [path, vector]
    except OSError as error:
        raise AffineDPError(f"{out} cannot be written: {error.strerror}") from None
    return written


def _with_fewer_colours(path: Path) -> None:
    """Write a picture again with a palette: a third of the size, and nobody sees it."""
    from PIL import Image  # Matplotlib needs it, too

    with Image.open(path) as picture:
        smaller = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    smaller.save(path, optimize=True)


def panels(
    rows: int, columns: int, width: float, height: float, title: str, **settings: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a title and panels in reading order."""
    figure = unregistered(figsize=(width, height), layout="constrained")
    figure.suptitle(title)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **settings).ravel())


def dots(
    axes: Axes,
    x: Any,
    mean: Any,
    error: Any,
    colour: str,
    marker: str = "o",
    *,
    size: float = 4,
    **style: Any,
) -> None:
    """Draw simulated means with two standard errors."""
    drawn: dict[str, Any] = {"markerfacecolor": "white", "zorder": 3, **style}
    axes.errorbar(x, mean, 2 * error, fmt=marker, color=colour, markersize=size, **drawn)
