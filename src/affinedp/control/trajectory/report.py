"""The report and the figure of output noise: its promise, and its size by time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from affinedp.control.trajectory.promise import independent_laplace_promise, independent_promise
from affinedp.control.trajectory.record import MOST_LISTED, OneDrawNoise, OutputNoise
from affinedp.domains.dynamics import ENDLESS
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.laws.calibration import gaussian_sensitivity
from affinedp.show.baseline import Baseline
from affinedp.show.opening import headline, paragraph
from affinedp.show.page import OutputRow, Report, printable, printed, round_up
from affinedp.show.plot import INDEPENDENT, OURS, draw_promise, is_wide
from affinedp.show.report import LAWS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_TIMES = 5
HIDES_NOT = "disturbances and inputs, which neighbours share; and later steps than these"
DRAWN_TIMES = 2000


def report(noise: OutputNoise) -> Report:
    """Return what people want to read about output noise.

    Parameters
    ----------
    noise : OutputNoise
        Structured or independent.

    Examples
    --------
    >>> from affinedp.control import design_output_noise
    >>> m = design_output_noise(([[1, 0.1], [0, 1]], [[1, 0]]), 100, epsilon=1.0, delta=0.01)
    >>> r = report(m)
    >>> r.title
    'Gaussian noise on 1 output over 100 steps, one draw for all'
    >>> r.outputs[0].name, round(r.outputs[0].ratio, 3)
    ('y1(0)', 0.032)
    """
    dynamics = noise.dynamics
    baseline = independent_baseline(noise)
    independent = baseline.deviation
    times = shown_times(noise.horizon)
    rows = tuple(
        OutputRow(
            printable(f"{dynamics.output_names[i]}({t})"),
            deviation,
            independent,
            None if independent is None else (deviation / independent) ** 2,
        )
        for t, row in zip(times, noise.noise_at(times).tolist())
        for i, deviation in enumerate(row)
    )
    structured = isinstance(noise, OneDrawNoise)
    count = f"{noise.outputs} output{'s' if noise.outputs > 1 else ''}"
    draws = "one draw for all" if structured else "fresh at every step"
    return Report(
        title=f"{LAWS[noise.law]} noise on {count} {_over(noise.horizon)}, {draws}",
        promise=tuple((label, printable(text)) for label, text in _promise(noise)),
        outputs=rows,
        totals=tuple((label, printable(text)) for label, text in _totals(noise, baseline)),
        equations=(),
        baseline=baseline,
        picture=lambda: plot(noise),
        headline=headline(noise.guarantee),
        opening=printed(
            paragraph(
                noise.guarantee,
                noise.noise_at(_drawn_times(noise.horizon)).ravel(),
                [HIDES_NOT],
                math.sqrt(_mean_square(noise)),
            )
        ),
    )


def _mean_square(noise: OutputNoise) -> float:
    """Of all steps and outputs."""
    return noise.expected_squared_error / (noise.horizon * noise.outputs)


def _drawn_times(horizon: int) -> list[int]:
    """All times, or as many as a figure can show."""
    return sorted(set(np.linspace(0, horizon - 1, min(horizon, DRAWN_TIMES)).astype(int).tolist()))


def _over(steps: int) -> str:
    return "for all time" if steps >= ENDLESS else f"over {steps:,} steps"


def shown_times(horizon: int) -> list[int]:
    """Return a few times, the first and the last among them."""
    return sorted(
        {round(share * (horizon - 1) / (SHOWN_TIMES - 1)) for share in range(SHOWN_TIMES)}
    )


def independent_baseline(noise: OutputNoise) -> Baseline:
    """Return fresh noise of one scale with the same promise to the same neighbours.

    Parameters
    ----------
    noise : OutputNoise
        What is compared.
    """
    if noise.horizon > MOST_LISTED and noise.neighbours.kind == "initial":
        return Baseline(None, "over so many steps it is not computed")
    try:
        return Baseline(min(_fresh_deviations(noise)))
    except AffineDPError as error:
        return Baseline(None, str(error).partition(". ")[0])


def _fresh_deviations(noise: OutputNoise) -> Iterator[float]:
    """Of fresh noise, for what this noise keeps and, where δ was allowed, for what was asked."""
    guarantee = noise.guarantee
    asked = guarantee.asked
    if noise.law == "gaussian":
        yield independent_promise(noise.neighbours, 1.0).sensitivity / guarantee.sensitivity
        return
    unit = independent_laplace_promise(noise.neighbours, 1.0)
    yield math.sqrt(2.0) * unit.sensitivity / guarantee.sensitivity
    if asked is not None and asked.delta > 0 and asked.releases == 1:
        allowed = float(gaussian_sensitivity(asked.epsilon, asked.delta))
        yield independent_promise(noise.neighbours, 1.0).sensitivity / allowed


def _promise(noise: OutputNoise) -> Iterator[tuple[str, str]]:
    yield from noise.guarantee.summary()
    yield (
        "covers",
        f"states and outputs {_over(noise.horizon)}, for inputs that are public; "
        "neighbours share all disturbances, so those are NOT hidden; dynamics that the public "
        "knows better are not covered",
    )


def _totals(noise: OutputNoise, baseline: Baseline) -> Iterator[tuple[str, str]]:
    mean = _mean_square(noise)
    yield "noise", f"root mean square {math.sqrt(mean):.4g} over all steps and outputs"
    if baseline.deviation is not None:
        ratio = mean / baseline.deviation**2
        yield (
            "independent",
            f"the same promise by fresh noise at every step takes {baseline.deviation:.4g} on "
            f"every output: this has {ratio:.3g} times its squared error",
        )
    if isinstance(noise, OneDrawNoise):
        if noise.gap is not None:
            yield (
                "optimality",
                f"certified: cost at most {round_up(noise.gap)} (relative) above the least",
            )
        if noise.least is not None and noise.lower_bound is not None:
            yield "least possible", noise.least.sentence()
        yield from (("note", note) for note in noise.notes)


def plot(noise: OutputNoise) -> Figure:
    """Return a figure of output noise: δ(ε), and the noise on every output by time.

    Parameters
    ----------
    noise : OutputNoise
        Structured or independent.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None

    figure = Figure(figsize=(11, 4.4))
    figure.set_layout_engine("constrained", w_pad=0.15)
    promise, axes = figure.subplots(1, 2, width_ratios=(1, 1.5))
    draw_promise(promise, noise.guarantee)
    axes.set_title("Noise by time")
    times = _drawn_times(noise.horizon)
    deviations = noise.noise_at(times)
    styles = ("-", "-.", ":", (0, (5, 1)))
    for i, name in enumerate(noise.dynamics.output_names):
        label, style = printable(name), styles[i % len(styles)]
        axes.plot(times, deviations[:, i], color=OURS, linestyle=style, linewidth=2, label=label)
    baseline = independent_baseline(noise).deviation
    if baseline is not None and isinstance(noise, OneDrawNoise):
        label = "fresh noise at every step, same promise"
        axes.axhline(baseline, color=INDEPENDENT, linestyle="--", label=label)
    shown = np.append(deviations.ravel(), [] if baseline is None else baseline)
    axes.set_yscale("log") if is_wide(shown) else axes.set_ylim(0, 1.08 * float(shown.max()))
    axes.set_xlabel("time step")
    axes.set_ylabel("standard deviation (units of the output)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure
