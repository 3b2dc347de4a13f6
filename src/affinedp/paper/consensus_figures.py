"""Figures 4 to 7 of the paper, the read-outs side by side, and a large network converging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from affinedp.consensus.readouts import READOUTS
from affinedp.paper.consensus import (
    DELTA,
    EPSILON,
    LINKS,
    RUNS,
    SNAPSHOTS,
    STEPS,
    VALUES,
    Convergence,
    Setting,
    converging,
    experiments,
)
from affinedp.paper.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    dots,
    panels,
    write_figures,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_EPSILON = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"))
BY_READOUT = {"state": (VERMILLION, "s"), "message": (BLUE, "o"), "corrected": (GREEN, "^")}
AVERAGE = float(np.mean(VALUES))
EVERY = 2


def draw_all(out: Path, settings: Sequence[Setting], large: Convergence) -> list[Path]:
    """Write every figure as PNG and SVG, and return the files."""
    gaussian = [setting for setting in settings if setting.law == "gaussian"]
    laplace = [setting for setting in settings if setting.law == "laplace"]
    drawn: dict[str, Callable[[], Figure]] = {
        "consensus_figure_4": figure_4,
        "consensus_figure_5": partial(figure_5, settings[0]),
        "consensus_figure_6": partial(figure_6, gaussian),
        "consensus_figure_7": partial(figure_7, laplace),
        "consensus_readouts": partial(readouts, [gaussian[3], laplace[0]]),
        "consensus_large": partial(large_network, large),
    }
    return write_figures(out, drawn)


def figure_4() -> Figure:
    """Return Figure 4: the ten agents and their links."""
    words = "Figure 4. Ten agents, each link with weight ¼; outside: x(0)"
    figure, (axes,) = panels(1, 1, 5.4, 4.8, words)
    angles = np.pi / 2 - 2 * np.pi * np.arange(10) / 10
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    degree = np.bincount(np.array(LINKS).ravel() - 1, minlength=10)
    for a, b in LINKS:
        axes.plot(*places[[a - 1, b - 1]].T, color="0.35", linewidth=1.6, zorder=1)
    for shown, colour, label in (
        (degree < 4, SKY, "weights sum to less than 1"),
        (degree == 4, ORANGE, "weights sum to exactly 1"),
    ):
        x, y = places[shown].T
        axes.scatter(x, y, s=620, color=colour, edgecolor="black", zorder=2, label=label)
    for place, (x, y) in enumerate(places):
        axes.text(x, y, f"{place + 1}", ha="center", va="center", fontsize=13, zorder=3)
        axes.text(1.27 * x, 1.2 * y, _signed(VALUES[place]), ha="center", va="center", fontsize=11)
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.4, 1.4), aspect="equal")
    axes.axis("off")
    figure.legend(loc="outside lower center", ncols=2, markerscale=0.5)
    return figure


def figure_5(setting: Setting) -> Figure:
    """Return Figure 5: the mean error of every agent."""
    words = (
        f"Figure 5. Mean errors, Gaussian noise, σ = {setting.sigma:g}, x* = {AVERAGE:g} "
        f"(lines: exact; dots: {len(setting.run.messages)} runs, ± 2 s.e.)"
    )
    figure, (whole, late) = panels(1, 2, 10.5, 4.6, words)
    exact = setting.consensus.mean_error(VALUES, STEPS)
    states = setting.run.states
    means = states.mean(axis=0) - AVERAGE
    spread = states.std(axis=0, ddof=1) / np.sqrt(len(states))
    times = np.arange(STEPS + 1)
    styles = [(c, line) for line in ("-", "--") for c in (BLUE, VERMILLION, GREEN, PURPLE, ORANGE)]
    for axes in (whole, late):
        for agent, (colour, line) in enumerate(styles):
            axes.plot(exact[:, agent], line, color=colour, label=f"{agent + 1}")
            marker = "o" if line == "-" else "s"
            dots(axes, times, means[:, agent], spread[:, agent], colour, marker, size=3)
        axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        axes.set_xlabel("step t")
        axes.grid(alpha=0.3)
    whole.set_ylabel("E[xᵢ(t) − x*]")
    whole.set_title("all steps")
    late.set(title="from t = 10 on", xlim=(9.5, STEPS + 0.5), ylim=(-3.2, 3.2))
    late.set_xticks(range(10, STEPS + 1, 5))
    figure.legend(*whole.get_legend_handles_labels(), loc="outside right center", title="agent")
    return figure


def figure_6(settings: Sequence[Setting]) -> Figure:
    """Return Figure 6: mean-square errors with Gaussian noise, by both rules."""
    words = f"Figure 6. Gaussian noise, δ = {DELTA:g} ({_drawn(settings)})"
    figure, shown = panels(1, 2, 10.5, 4.8, words, sharey=True)
    titles = ("σ of the paper, a bound", "least σ for the same promise")
    for axes, rule, named in zip(shown, ("paper", "least"), titles):
        _mean_squares(axes, [setting for setting in settings if setting.rule == rule])
        axes.set_title(named)
    shown[0].set(ylabel="E‖x(t) − 1x*‖²", ylim=(None, 4e7))
    return figure


def figure_7(settings: Sequence[Setting]) -> Figure:
    """Return Figure 7: mean-square errors with Laplace noise."""
    words = f"Figure 7. Laplace noise of variance 2σ²\n({_drawn(settings)})"
    figure, (axes,) = panels(1, 1, 6.6, 4.8, words)
    _mean_squares(axes, settings)
    axes.set(ylabel="E‖x(t) − 1x*‖²", ylim=(None, 2e7))
    return figure


def _drawn(settings: Sequence[Setting]) -> str:
    runs = len(settings[0].run.messages)
    return f"lines: exact; dots: {runs} runs, ± 2 s.e.; dashed: Proposition 1"


def _mean_squares(axes: Axes, settings: Sequence[Setting]) -> None:
    for setting, style in zip(settings, BY_EPSILON):
        _curve(axes, setting, f"ε = {setting.epsilon:g}, σ = {setting.sigma:.5g}", style)
        bound = float(setting.consensus.bound())
        axes.axhline(bound, color=style[0], linestyle="--", linewidth=1.2)
    axes.legend(fontsize=9, loc="upper right")


def _curve(
    axes: Axes, setting: Setting, label: str, style: tuple[str, str], readout: str = "state"
) -> None:
    """The exact mean-square error of a read-out, and simulated ones."""
    times = np.arange(0, STEPS + 1, EVERY)
    axes.semilogy(setting.exact(readout), color=style[0], label=label)
    mean, error = setting.run.mean_square_error(readout)
    dots(axes, times, mean[times], error[times], *style)
    axes.set_xlabel("step t")
    axes.grid(alpha=0.3)


def readouts(settings: Sequence[Setting]) -> Figure:
    """Return the three read-outs at ε = 1, with the same promise."""
    words = "lines: exact; dots: simulated, ± 2 s.e.; dotted: exact limits"
    figure, shown = panels(1, 2, 10.5, 4.6, f"Three read-outs, ε = 1 ({words})", sharey=True)
    for axes, setting in zip(shown, settings):
        for readout in READOUTS:
            style = BY_READOUT[readout]
            _curve(axes, setting, readout, style, readout)
            axes.axhline(setting.consensus.limit(readout), color=style[0], linestyle=":")
        axes.set_title(f"{setting.law.capitalize()} noise, σ = {setting.sigma:.5g}")
    shown[0].set_ylabel("E‖read-out(t) − 1x*‖²")
    shown[0].legend(title="read-out")
    return figure


def large_network(found: Convergence) -> Figure:
    """Return messages of a large network at some steps, and its errors."""
    words = (
        f"{found.consensus.n:,} agents in a square (opposite sides meet), linked to those "
        f"nearby; Laplace noise, ε = {EPSILON:g}; dotted: exact limits"
    )
    figure, shown = panels(2, 3, 12, 8.6, words)
    places = found.places
    area = float(np.clip(350_000 / len(places), 0.4, 40))  # lets dots just cover a panel
    for axes, t, messages in zip(shown, SNAPSHOTS, found.messages):
        drawn = axes.scatter(
            places[:, 0], places[:, 1], c=messages, s=area, cmap="cividis",
            linewidths=0, vmin=found.average - 6, vmax=found.average + 6, rasterized=True,
        )  # fmt: skip
        axes.set(title=f"messages at t = {t:,}", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.set_xticks([])
        axes.set_yticks([])
    figure.colorbar(drawn, ax=shown, label="message y", location="bottom", aspect=40, shrink=0.6)
    axes = shown[5]
    for readout in READOUTS:
        colour, marker = BY_READOUT[readout]
        axes.loglog(
            found.times, found.errors[readout], color=colour, label=readout, marker=marker,
            markevery=10, linestyle="--" if readout == "corrected" else "-",
        )  # fmt: skip
        limit = found.consensus.limit(readout) / found.consensus.n
        axes.axhline(limit, color=colour, linestyle=":")
    axes.set(title="squared error per agent (one run)", xlabel="step t")
    axes.grid(alpha=0.3)
    axes.legend(title="read-out", loc="center left")
    return figure


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def figures(out: Path, runs: int = RUNS, seed: int = 0, agents: int = 100_000) -> list[Path]:
    """Draw Figures 4 to 7, the read-outs side by side, and a large network converging."""
    return draw_all(Path(out), experiments(runs, seed), converging(agents, seed))
