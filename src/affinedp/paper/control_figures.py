"""Figures 2 and 3 of the paper, and the designs that hide velocities too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.control.by_time import noise_by_time
from affinedp.paper.control import (
    DELTA,
    EPSILON,
    EPSILONS,
    HORIZON,
    PERIOD,
    TrackingErrors,
    Tradeoff,
    guessed_velocities,
    protections,
    tracking_errors,
    tradeoff,
)
from affinedp.paper.drawing import (
    BLUE,
    GREEN,
    PURPLE,
    VERMILLION,
    dots,
    panels,
    write_figures,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STATES = (("position", "p", "m"), ("velocity", "v", "m/s"))
TIME = f"step t ({PERIOD:g} s each)"
RULES = (VERMILLION, BLUE)  # the paper's σ, the least
LINES_AND_DOTS = "lines: exact; dots: simulated, ± 2 s.e."
EVERY = 5
OVERHEARD = 10
# Below this, mean squares of the first steps would hide the rest of a logarithmic axis.
LEAST_SHOWN = 1e-5


def draw_all(
    out: Path,
    errors: Sequence[TrackingErrors],
    curves: Sequence[Tradeoff],
    designs: Sequence[TrackingErrors],
) -> list[Path]:
    """Write every figure as PNG and SVG, and return the files."""
    drawn = {
        "control_figure_2": partial(figure_2, errors),
        "control_figure_3": partial(figure_3, curves),
        "control_velocities": partial(velocities, designs),
    }
    return write_figures(out, drawn)


def figure_2(errors: Sequence[TrackingErrors]) -> Figure:
    """Return Figure 2: the spread of both tracking errors over time, and their mean squares."""
    words = f"Figure 2. Vehicle under cloud control, one noise draw, ε = {EPSILON:g}, δ = {DELTA:g}"
    figure, (*boxes, position, velocity) = panels(2, 2, 10.5, 7.2, words, sharex=True)
    squares = [position, velocity]
    runs = errors[0].simulation.runs
    for state, (name, letter, unit) in enumerate(STATES):
        axes = boxes[state]
        axes.set_title(f"{name.capitalize()} error, {runs:,} runs")
        axes.set_ylabel(f"{letter}(t) − {letter}ᵣ(t)  [{unit}]")
        axes.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
        for place, case in enumerate(errors):
            _boxes(axes, case, state, place)
        axes = squares[state]
        axes.set_title(f"Mean-square {name} error")
        axes.set_ylabel(f"E|{letter}(t) − {letter}ᵣ(t)|²  [{_squared(unit)}]")
        axes.set_xlabel(TIME)
        for place, case in enumerate(errors):
            _mean_square(axes, case, state, place)
    boxes[0].legend(loc="lower right", title="boxes: quartiles; whiskers: 5 and 95 %")
    boxes[1].set_yscale("symlog", linthresh=0.1)
    squares[0].legend(loc="upper right", title=LINES_AND_DOTS)
    squares[1].set_ylim(bottom=LEAST_SHOWN)
    boxes[0].set_xlim(-4, HORIZON + 4)
    boxes[0].set_xticks(range(0, HORIZON + 1, 20))
    return figure


def figure_3(curves: Sequence[Tradeoff]) -> Figure:
    """Return Figure 3: mean-square errors at the end against ε."""
    words = f"Figure 3. Mean-square tracking errors at T = {HORIZON} ({LINES_AND_DOTS})"
    figure, shown = panels(1, 2, 10.5, 4.6, words)
    for state, (name, letter, unit) in enumerate(STATES):
        axes = shown[state]
        axes.set_title(f"{name.capitalize()}")
        for curve in curves:
            colour = BLUE if curve.structured else VERMILLION
            style = "--" if curve.rule == "paper" else "-"
            axes.loglog(EPSILONS, curve.errors[:, state], style, color=colour, label=curve.name)
            if curve.simulated is not None and curve.standard_errors is not None:
                dots(
                    axes, EPSILONS, curve.simulated[:, state], curve.standard_errors[:, state],
                    colour, "o" if curve.structured else "s", capsize=2,
                    markerfacecolor="white" if curve.rule == "paper" else None,
                )  # fmt: skip
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.minorticks_off()
        axes.set_xlabel(f"ε  (δ = {DELTA:g})")
        axes.set_ylabel(f"E|{letter}(T) − {letter}ᵣ(T)|²  [{_squared(unit)}]")
        axes.grid(alpha=0.3)
    handles, labels = shown[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def velocities(designs: Sequence[TrackingErrors]) -> Figure:
    """Return what hiding velocities costs, and what happens to them otherwise."""
    words = f"Hiding velocities too, ε = {EPSILON:g}, δ = {DELTA:g} ({LINES_AND_DOTS})"
    figure, (overheard, noise, *squares) = panels(2, 2, 10.5, 7.6, words)
    _overheard(overheard, designs)
    colours = (VERMILLION, GREEN, BLUE, PURPLE)
    styles = ("-", "--", "-", "-.")
    noise.set_title("Noise on the sent position")
    noise.set_ylabel("standard deviation of γ(t)  [m]")
    for state, (name, letter, unit) in enumerate(STATES):
        squares[state].set_title(f"Mean-square {name} error")
        squares[state].set_ylabel(f"E|{letter}(t) − {letter}ᵣ(t)|²  [{_squared(unit)}]")
    for design, colour, style in zip(designs, colours, styles):
        line: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": 1.8}
        noise.plot(noise_by_time(design.noise)[:, 0], label=design.name, **line)
        for state in (0, 1):
            squares[state].plot(design.exact[:, state], **line)
            _simulated(squares[state], design, state, 2 * EVERY, colour)
    for axes in (noise, *squares):
        axes.set_yscale("log")
        axes.set_xlabel(TIME)
        axes.grid(alpha=0.3)
    squares[1].set_ylim(bottom=LEAST_SHOWN)
    handles, labels = noise.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, title="What is protected")
    return figure


def _overheard(axes: Axes, designs: Sequence[TrackingErrors]) -> None:
    """Velocities as an eavesdropper computes them, under two designs."""
    axes.set_title(f"Velocity overheard, {OVERHEARD} runs")
    shown = (
        (designs[2], BLUE, "velocities protected (1 m/s)"),
        (designs[0], VERMILLION, "positions only: revealed exactly"),
    )
    for design, colour, label in shown:
        simulation = design.simulation
        missed = guessed_velocities(simulation) - simulation.states[:, : HORIZON - 1, 1]
        lines = axes.plot(missed[:OVERHEARD].T, color=colour, linewidth=1.2)
        lines[0].set_label(label)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.3 * (high - low), high)  # room for the legend
    axes.legend(loc="lower right")
    axes.set_xlabel(TIME)
    axes.set_ylabel("computed minus true velocity  [m/s]")
    axes.grid(alpha=0.3)


def _boxes(axes: Axes, case: TrackingErrors, state: int, place: int) -> None:
    times = np.arange(0, HORIZON + 1, EVERY)
    colour = RULES[place]
    drawn = axes.boxplot(
        case.simulation.tracking_errors[:, times, state],
        positions=list(times + 0.19 * EVERY * (2 * place - 1)),
        widths=0.34 * EVERY,
        whis=(5, 95),
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "edgecolor": colour},
        medianprops={"color": "black"},
        label=case.name,
    )
    for line in (*drawn["whiskers"], *drawn["caps"]):
        line.set_color(colour)


def _mean_square(axes: Axes, case: TrackingErrors, state: int, place: int) -> None:
    """An exact curve and simulated dots; the first curve is wider, to show below the second."""
    axes.semilogy(
        case.exact[:, state], color=RULES[place], linewidth=(4.0, 1.5)[place], label=case.name
    )
    _simulated(axes, case, state, EVERY, RULES[place])
    axes.grid(alpha=0.3)


def _simulated(axes: Axes, case: TrackingErrors, state: int, every: int, colour: str) -> None:
    times = np.arange(0, HORIZON + 1, every)
    found = case.simulation
    mean, error = found.mean_square_error[times, state], found.standard_error[times, state]
    dots(axes, times, mean, error, colour, size=3.5)


def _squared(unit: str) -> str:
    return "m²" if unit == "m" else "m²/s²"


def figures(out: Path, runs: int = 1000, seed: int = 0) -> list[Path]:
    """Draw Figures 2 and 3, and one of the designs that hide velocities too."""
    return draw_all(
        Path(out),
        tracking_errors(runs, seed),
        tradeoff(runs=runs, seed=seed),
        protections(runs, seed),
    )
