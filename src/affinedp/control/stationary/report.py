"""The report and the figure of stationary noise: what is hidden, from whom, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from affinedp.control.stationary.record import StationaryNoise
from affinedp.errors import MissingExtraError
from affinedp.show.baseline import Baseline
from affinedp.show.opening import headline, paragraph
from affinedp.show.page import OutputRow, Report, printable, printed, round_up
from affinedp.show.plot import INDEPENDENT, OURS, draw_promise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHITE = "white output noise"
DRAWN_POINTS = 2048
# What neighbours share; of a jump of the state, the first one among them, they share no state.
SHARED = {
    "forward": "all inputs and disturbances",
    "input": "all other inputs, disturbances, and what else the first state is made of",
}


def report(noise: StationaryNoise) -> Report:
    """Return what people want to read about stationary noise.

    Parameters
    ----------
    noise : StationaryNoise
        What is sent.

    Examples
    --------
    >>> from affinedp.control import design_input_noise
    >>> r = report(design_input_noise(([[0.99]], [[0.9]], [[1.0]]), 1.0, 1e-4))
    >>> r.title, round(r.outputs[0].ratio, 3)
    ('Gaussian noise on 1 output for all time, fresh at every step', 0.091)
    """
    white = white_deviation(noise)
    deviations = np.sqrt(noise.stationary_variance).tolist()
    rows = tuple(
        OutputRow(
            printable(name), deviation, white, None if white is None else (deviation / white) ** 2
        )
        for name, deviation in zip(noise.output_names, deviations)
    )
    count = f"{noise.outputs} output{'s' if noise.outputs > 1 else ''}"
    times = "for all time" if noise.endless else f"over {noise.horizon:,} steps"
    reason = "" if white is not None else "white noise does not keep this promise"
    return Report(
        title=f"Gaussian noise on {count} {times}, fresh at every step",
        promise=tuple((label, printable(text)) for label, text in _promise(noise)),
        outputs=rows,
        totals=tuple((label, printable(text)) for label, text in _totals(noise)),
        equations=(),
        baseline=Baseline(white, reason),
        picture=lambda: plot(noise),
        headline=headline(noise.guarantee),
        opening=printed(paragraph(noise.guarantee, deviations, [_hides_not(noise)])),
    )


def white_deviation(noise: StationaryNoise) -> float | None:
    """Return the standard deviation of white noise with the same promise, where it is known.

    Parameters
    ----------
    noise : StationaryNoise
        What is compared.
    """
    from affinedp.control.stationary.filters import Filter
    from affinedp.control.stationary.promise import squared_sensitivities
    from affinedp.errors import AffineDPError

    try:
        white = Filter.static(np.eye(noise.outputs))
        squares = squared_sensitivities(noise.neighbours, white, "output")
    except AffineDPError:
        return None
    return math.sqrt(float(squares.max())) / noise.guarantee.sensitivity


def _hides_not(noise: StationaryNoise) -> str:
    return f"{SHARED[noise.neighbours.kind].removeprefix('all ')}, which neighbours share"


def _promise(noise: StationaryNoise) -> Iterator[tuple[str, str]]:
    yield from noise.guarantee.summary()
    names = ", ".join(noise.neighbours.input_names)
    what = f"the private inputs ({names})"
    if noise.neighbours.kind == "forward":
        what = f"jumps of the state ({names}), of the first state too"
    yield "hidden", f"{what}, from everyone who sees all that is sent and knows the plant"
    yield (
        "shared",
        f"{SHARED[noise.neighbours.kind]} are the same for both neighbours: they are not hidden "
        "by this",
    )
    yield (
        "needs",
        "inputs that follow from what was sent, never from raw measurements (before the start, "
        "too); sensors that do not clip; a plant that is the model",
    )


def _totals(noise: StationaryNoise) -> Iterator[tuple[str, str]]:
    mean = f"variance {noise.mean_variance:.4g} in all outputs together"
    if noise.endless:
        yield "noise", f"{mean}, at every step"
    else:
        yield (
            "noise",
            f"{mean}, in the mean over the horizon; the table shows the last step, where it is "
            "largest",
        )
    for name, cost in noise.alternatives.items():
        yield name, f"costs {cost:.4g} for the same promise"
    if noise.least is not None and noise.cost is not None:
        gap = max(0.0, noise.cost / noise.least - 1)
        yield (
            "optimality",
            f"at most {round_up(gap)} (relative) above {noise.least:.4g}, below which no "
            "stationary noise with this promise costs",
        )
    yield from (("note", note) for note in noise.notes)


def plot(noise: StationaryNoise) -> Figure:
    """Return a figure of stationary noise: δ(ε), and the spectrum of the noise on every output.

    Parameters
    ----------
    noise : StationaryNoise
        What is sent.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None

    figure = Figure(figsize=(11, 4.4))
    figure.set_layout_engine("constrained", w_pad=0.15)
    promise, axes = figure.subplots(1, 2, width_ratios=(1, 1.5))
    draw_promise(promise, noise.guarantee)
    response = noise.filter.spectrum(DRAWN_POINTS)[1 : DRAWN_POINTS // 2]
    size = noise.scale * np.linalg.norm(response, axis=2)
    period = DRAWN_POINTS / np.arange(1, DRAWN_POINTS // 2)
    styles = ("-", "-.", ":", (0, (5, 1)))
    for i, name in enumerate(noise.output_names):
        style = styles[i % len(styles)]
        axes.loglog(period, size[:, i], color=OURS, linestyle=style, label=printable(name))
    white = white_deviation(noise)
    if white is not None:
        axes.axhline(white, color=INDEPENDENT, linestyle="--", label="white noise, same promise")
    axes.set_title("Noise by period")
    axes.set_xlabel("period (steps)")
    axes.set_ylabel("root of the spectral density (units of the output)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure
