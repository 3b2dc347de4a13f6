"""Figures of a mechanism: its privacy curve, its covariance, the noise on every output."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.privacy.guarantee import SHOWN_DELTAS, Guarantee
from affinedp.record import MechanismRecord
from affinedp.show.page import Baseline, printable
from affinedp.strategies.base import Shown, Told

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
OURS, INDEPENDENT = "#0072B2", "#D55E00"
LEAST_DELTA = 1e-12
CURVE_POINTS = 61
LABELLED_COVARIANCE = 20
LABELLED_NOISE = 30
MOST_COVARIANCE = 2000
INSTEAD_COVARIANCE = 400
MOST_CELLS = 40  # of a picture of a matrix: smaller ones cannot be seen
LONGEST_NAME = 16
# Beyond this ratio of the largest to the smallest noise the axis is logarithmic.
LINEAR_SPREAD = 300.0
# Of a part of a figure that stands by itself on a page: a phone shows most of them as they are.
ALONE = 0.76


@dataclass(frozen=True)
class Panel:
    """One part of a figure: its size in inches, and what draws it."""

    width: float
    height: float
    draw: Callable[[Axes], None]


def plot(mechanism: MechanismRecord) -> Figure:
    """Return a figure of a mechanism: δ(ε), the covariance, the noise on every output.

    The curve is that of Theorem 1 or 2 of the paper.  The figure is pyplot's current one, so that
    ``plt.savefig`` and ``plt.show`` take it.

    Examples
    --------
    >>> import affinedp as adp
    >>> m = adp.design_laplace(adp.AffineManifold([[1, -4]]), epsilon=1.0)
    >>> [axes.get_title() for axes in plot(m).axes]
    ['Promise', 'Covariance of the noise', 'Noise on every output']
    """
    shown = shown_noise(mechanism)
    panels = matrix_panels(mechanism) if shown is None else line_panels(mechanism.guarantee, shown)
    widths = [panel.width for panel in panels]
    figure = new_figure(figsize=(sum(widths), max(panel.height for panel in panels)))
    figure.set_layout_engine("constrained", w_pad=0.15)
    for panel, axes in zip(panels, figure.subplots(1, len(panels), width_ratios=widths)):
        panel.draw(axes)
    return figure


def apart(panels: Sequence[Panel]) -> tuple[Figure, ...]:
    """Return every part of a figure by itself: a page puts as many side by side as it has room."""
    figures = []
    for panel in panels:
        figure = unregistered(figsize=(ALONE * panel.width, ALONE * panel.height))
        figure.set_layout_engine("constrained")
        panel.draw(figure.subplots())
        figures.append(figure)
    return tuple(figures)


def new_figure(**size: Any) -> Figure:
    """Return pyplot's new current figure."""
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    return pyplot.figure(**size)


def independent_baseline(mechanism: MechanismRecord) -> Baseline:
    """Return independent noise of one scale with the same promise to the same neighbours.

    Noise of scale c has sensitivity ``max ‖F v‖ / c`` (Theorems 1 and 2); c makes that the
    mechanism's own, so that neither ε nor δ need be known.
    """
    sensitivity = mechanism.guarantee.sensitivity
    if mechanism.guarantee.leak is not None or not math.isfinite(sensitivity):
        return Baseline(None, "there is no promise that other noise could keep too")
    if sensitivity == 0.0:
        return Baseline(None, "neighbours do not differ in the outputs, so no noise is needed")
    try:
        found = mechanism.adjacency.sensitivity(
            mechanism.dense.query, norm=mechanism.noise.norm or 1
        )
    except AffineDPError as error:
        return Baseline(None, str(error).partition(". ")[0])
    return Baseline(found.upper / sensitivity * math.sqrt(mechanism.noise.variance))


def shown_noise(mechanism: MechanismRecord) -> Shown | None:
    """Return what a strategy says about its noise; None for noise of matrices."""
    guarantee = mechanism.guarantee
    asked = guarantee.asked
    pair = None if asked is None or asked.releases > 1 else (asked.epsilon, asked.delta)
    parts = mechanism.adjacency, mechanism.noise, guarantee.sensitivity
    return mechanism.strategy.shown(Told(*parts, pair, mechanism.design.sent))


def unregistered(**size: Any) -> Figure:
    """Return a new figure that pyplot does not know, for pages."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    return Figure(**size)


def line_panels(guarantee: Guarantee, shown: Shown) -> tuple[Panel, ...]:
    """Return the figure of noise that is not kept as matrices: δ(ε), and its curves."""
    return (
        Panel(4.4, 4.4, lambda axes: draw_promise(axes, guarantee)),
        Panel(6.6, 4.4, lambda axes: _draw_lines(axes, shown)),
    )


def matrix_panels(
    mechanism: MechanismRecord, baseline: Baseline | None = None
) -> tuple[Panel, ...]:
    """Return the figure of noise of matrices, with independent noise that may be known already."""
    known = independent_baseline(mechanism) if baseline is None else baseline
    deviations = np.sqrt(mechanism.expected_squared_errors)
    height = 5.6 if 12 < len(deviations) <= LABELLED_NOISE else 4.8
    return (
        Panel(4.2, height, lambda axes: draw_promise(axes, mechanism.guarantee)),
        Panel(5.1, height, lambda axes: _draw_covariance(axes, mechanism, deviations)),
        Panel(4.2, height, lambda axes: _draw_noise(axes, mechanism.output_names, deviations,
                                                    known)),
    )  # fmt: skip


def _draw_lines(axes: Axes, shown: Shown) -> None:
    assert shown.lines is not None
    lines = shown.lines()
    styles = ("-", "-.", ":", (0, (5, 1)))
    for i, (name, values) in enumerate(lines.values.items()):
        style = styles[i % len(styles)]
        axes.plot(lines.places, values, color=OURS, linestyle=style, label=printable(name))
    compared = [] if shown.independent is None else [shown.independent]
    for level in compared:
        label = "fresh noise at every step, same promise"
        axes.axhline(level, color=INDEPENDENT, linestyle="--", label=label)
    every = np.concatenate([*lines.values.values(), compared])
    if lines.logarithmic:
        axes.set_xscale("log")
    if is_wide(every):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.08 * float(every.max()))
    axes.set(title=lines.title, xlabel=lines.across, ylabel=lines.up)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def draw_promise(axes: Axes, guarantee: Guarantee) -> None:
    """Draw δ(ε), or say why there is none."""
    axes.set_title("Promise")
    if guarantee.leak is not None:
        leak = dict(guarantee.summary())["leak"]
        _say(axes, f"No promise: this combination comes out without noise: {leak}")
        return
    if guarantee.sensitivity == 0.0:
        _say(axes, "ε = 0 at δ = 0: neighbours do not differ in the outputs")
        return
    curve = _curve(guarantee)
    if curve is None:
        _say(axes, f"A sensitivity of {guarantee.sensitivity:.3g} is too extreme to draw")
        return
    axes.semilogy(*curve, color=OURS, linewidth=2)
    axes.set_xlabel("ε")
    axes.set_ylabel("δ" if guarantee.curve_exact else "δ (upper bound)")
    axes.set_xlim(0, 1.2 * curve[0][-1])
    axes.grid(alpha=0.3)
    _mark_asked(axes, guarantee)
    pure = guarantee.epsilon(0.0)
    if math.isfinite(pure):
        axes.axvline(pure, color=OURS, linestyle="--", label=f"δ = 0 from ε ≈ {pure:.4g} on")
        axes.legend(loc="center left")
        return
    asked = guarantee.asked
    for delta in SHOWN_DELTAS:
        if delta < curve[1][0]:
            epsilon = guarantee.epsilon(delta)
            axes.plot(epsilon, delta, "o", color=OURS)
            at_asked = asked is not None and 0.1 < asked.delta / delta < 10.0
            axes.annotate(
                f"ε ≈ {epsilon:.3g}", (epsilon, delta), (6, 18 if at_asked else 6),
                textcoords="offset points",
            )  # fmt: skip


def _mark_asked(axes: Axes, guarantee: Guarantee) -> None:
    """The promise that was asked for, where it is one point of this picture."""
    asked = guarantee.asked
    if asked is None or asked.releases > 1 or asked.delta <= 0.0:
        return
    axes.scatter([asked.epsilon], [asked.delta], marker="D", color=INDEPENDENT, zorder=3)
    left = asked.epsilon > 0.75 * axes.get_xlim()[1]  # to the right there is no room for it
    # the curve falls, and goes through the point or below: to the right of it there is room above
    axes.annotate(
        "asked for", (asked.epsilon, asked.delta), (-8, -4) if left else (8, 2),
        textcoords="offset points", color=INDEPENDENT,
        ha="right" if left else "left", va="top" if left else "bottom",
    )  # fmt: skip


def _curve(guarantee: Guarantee) -> tuple[FloatArray, FloatArray] | None:
    """Points (ε, δ) with δ > 0 down to where it is small; None where there are none."""
    most = float(guarantee.delta(0.0))
    end = guarantee.epsilon(0.0)
    if math.isinf(end):
        try:
            end = guarantee.epsilon(min(LEAST_DELTA, most * 1e-6))
        except AffineDPError:
            return None
    if not 0.0 < end < math.inf:
        return None
    # denser towards the end, where the curve of Laplace noise falls to 0
    epsilons = end * (1 - np.linspace(1.0, 0.0, CURVE_POINTS) ** 2)
    deltas = np.asarray(guarantee.delta(epsilons))
    return epsilons[deltas > 0], deltas[deltas > 0]


def _draw_covariance(axes: Axes, mechanism: MechanismRecord, deviations: FloatArray) -> None:
    """The covariance of a few outputs; of many, or of unequal ones, their correlation."""
    shown = np.arange(len(deviations))
    if len(shown) > MOST_COVARIANCE:
        # in single precision, so that rounding does not shuffle equal noise
        order = np.argsort(-deviations.astype(np.float32), kind="stable")
        shown = np.sort(order[:INSTEAD_COVARIANCE])
    covariance = mechanism.covariance_of(shown)
    cells = min(len(shown), MOST_CELLS)
    if len(shown) > MOST_CELLS or is_wide(deviations):
        axes.set_title("Correlation of the noise")
        drawn, most, label = strongest(correlation(covariance), cells), 1.0, "correlation"
    else:
        axes.set_title("Covariance of the noise")
        drawn, most = covariance, float(np.abs(covariance).max()) or 1.0
        label = "(units of the output)²"
    image = axes.imshow(drawn, cmap="RdBu_r", vmin=-most, vmax=most)
    axes.set_anchor("N")
    beside = axes.inset_axes((1.03, 0.0, 0.05, 1.0))  # as high as the image, whatever its size
    axes.figure.colorbar(image, cax=beside, label=label)
    axes.set_xticks([])
    if len(shown) <= LABELLED_COVARIANCE:
        names = short_names([mechanism.output_names[i] for i in shown])
        style: dict[str, Any] = {"parse_math": False, "fontsize": min(10.0, 180 / len(names))}
        axes.set_yticks(range(len(names)), names, **style)
        axes.set_xlabel("the outputs in the same order")
        return
    axes.set_yticks([])
    few = len(shown) < len(deviations)
    which = f"the {len(shown)} outputs with the most noise" if few else f"{len(shown)} outputs"
    if len(shown) > cells:
        which += f",\nin {cells} groups: the strongest correlation of each two"
    axes.set_xlabel(which)


def correlation(covariance: FloatArray) -> FloatArray:
    """Return correlations; 0 with what has no noise."""
    size = np.sqrt(np.diagonal(covariance))
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    return np.asarray(np.clip(covariance * scale[:, None] * scale, -1.0, 1.0))


def strongest(matrix: FloatArray, cells: int) -> FloatArray:
    """Return a smaller picture of a matrix: of each block the entry of largest size.

    A mean would hide a thin pattern; outputs with themselves say nothing and are left out.

    Examples
    --------
    >>> strongest(np.array([[1, -0.5, 0], [-0.5, 1, 0], [0, 0, 1]]), 2).tolist()
    [[-0.5, 0.0], [0.0, 1.0]]
    """
    n = len(matrix)
    if cells >= n:
        return matrix
    others = np.where(np.eye(n, dtype=bool), 0.0, matrix)
    places = np.arange(n) * cells // n
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    high, low = (
        take.reduceat(take.reduceat(others, starts, axis=0), starts, axis=1)
        for take in (np.maximum, np.minimum)
    )
    found = np.where(high >= -low, high, low)
    alone = np.diff(np.r_[starts, n]) == 1
    found[alone, alone] = 1.0
    return found


def _draw_noise(
    axes: Axes, names: tuple[str, ...], deviations: FloatArray, baseline: Baseline
) -> None:
    axes.set_title("Noise on every output")
    axes.grid(alpha=0.3)
    label = "noise (units of the output)"
    independent = baseline.deviation
    dashed: dict[str, Any] = {
        "color": INDEPENDENT,
        "linestyle": "--",
        "label": "independent noise, same promise",
    }
    ours: dict[str, Any] = {"color": OURS, "linewidth": 2, "label": "this mechanism"}
    most = 1.08 * max(float(deviations.max()), independent or 0.0) or 1.0
    if len(deviations) <= LABELLED_NOISE:
        places = range(len(deviations))
        axes.plot(deviations, places, "o", **ours)
        if independent is not None:
            axes.axvline(independent, **dashed)
        axes.set_yticks(
            places, short_names(names), parse_math=False, fontsize=min(10.0, 240 / len(names))
        )
        axes.set_ylim(len(deviations) - 0.5, -0.5)
        axes.set_xlabel(label)
        axes.set_xscale("log") if is_wide(deviations) else axes.set_xlim(0, most)
    else:
        axes.plot(range(1, len(deviations) + 1), np.sort(deviations)[::-1], **ours)
        if independent is not None:
            axes.axhline(independent, **dashed)
        axes.set_xlabel(f"{len(deviations):,} outputs, sorted by their noise")
        axes.set_ylabel(label)
        axes.set_yscale("log") if is_wide(deviations) else axes.set_ylim(0, most)
    title = "" if independent is not None else "i.i.d. noise: not available"
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right",
                       frameon=False, title=title)  # fmt: skip


def is_wide(deviations: FloatArray) -> bool:
    """Whether noise levels are better drawn on a logarithmic axis."""
    positive = deviations[deviations > 0]
    return bool(len(positive) and positive.max() > LINEAR_SPREAD * positive.min())


def _say(axes: Axes, text: str) -> None:
    """Put a sentence where a panel would be."""
    axes.set_xticks([])
    axes.set_yticks([])
    lines = textwrap.fill(printable(text), 32)
    center: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
    axes.text(0.5, 0.5, lines, parse_math=False, **center)


def short_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """Return names cut to a length: at the end, or else where different ones stay different.

    Examples
    --------
    >>> short_names(["North / North-A / 1", "North / North-A / 2"], 9)
    ['Nort… / 1', 'Nort… / 2']
    """
    given = [printable(name) for name in names]

    def cut(head: int) -> list[str]:
        tail = longest - 1 - head
        return [x if len(x) <= longest else f"{x[:head]}…{x[len(x) - tail :]}" for x in given]

    ways = [cut(head) for head in (longest - 1, (longest - 1) // 2, 0)]
    # most of them tell most names apart; the first where several do
    return max(ways, key=lambda found: len(set(found)))
