"""What noise costs a loop, in words: tracking beside output noise, and what to beware of."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from affinedp.control.checks import causal
from affinedp.control.loop_errors import (
    added_squares,
    lasting_error,
    mean_errors,
    mean_squares,
    stationary_squares,
)
from affinedp.control.plant import LoopRecord
from affinedp.domains.dynamics import ENDLESS
from affinedp.errors import counted
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import InitialState
from affinedp.show.page import Report
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Noise that changes by more than this over the horizon is worth a word.
MUCH = 100.0


def noise_warnings(noise: Mechanism, steps: int) -> tuple[str, ...]:
    """Return what a careful reader should know about noise over some steps."""
    made = noise.strategy
    if not isinstance(made, Trajectory) or steps < 2:
        return ()
    first, last = np.linalg.norm(made.deviations_at(noise.noise, [0, steps - 1]), axis=1)
    if last > MUCH * first:
        return (
            f"the noise grows from {first:.3g} to {last:.3g} over {steps:,} steps, as the plant "
            "itself does: one draw follows the dynamics. Close a local loop that stabilises the "
            "plant before it is measured, and design for the closed loop",
        )
    if first > MUCH * last and not isinstance(noise.adjacency, InitialState):
        return (
            f"the noise starts at {first:.3g} and ends at {last:.3g}: dynamics that contract make "
            "late states cost much noise early. If the past need not follow, use "
            "adjacency='forward' or 'initial'",
        )
    return ()


def loop_report(
    loop: LoopRecord, noise: Mechanism, steps: int | None, warnings: tuple[str, ...]
) -> Report:
    """Return the noise's report with what the loop pays beside it."""
    made = causal(noise)
    if steps is None and isinstance(made, Filter) and made.horizon >= ENDLESS:
        words, count = "after a long time", 1
        mean = lasting_error(loop)
        if mean is None:  # a reference that moves has no last mean
            words, mean = f"{words}, around its mean", np.zeros(loop.plant.states)
        errors = [mean**2 + stationary_squares(loop, one, None, None) for one in (noise, None)]
    else:
        count = made.horizon if steps is None else steps
        words = f"over {counted(count, 'step')}"
        errors = [mean_squares(loop, one, count).mean(axis=0) for one in (noise, None)]
    rows = [
        (
            "tracking",
            f"{name}: root mean square error {math.sqrt(after):.4g} with this noise, "
            f"{math.sqrt(before):.4g} without, {words}",
        )
        for name, after, before in zip(loop.plant.state_names, *errors)
    ]
    if any(errors[1] > 0):
        own = "what is left without noise is the loop's own: its offset, and disturbances"
        rows.append(("tracking", own))
    cautions = (*warnings, *noise_warnings(noise, count))
    rows += [("warning", caution) for caution in cautions]
    found = noise.report()
    return replace(found, totals=(*found.totals, *rows))


def loop_plot(loop: LoopRecord, noise: Mechanism, steps: int) -> Figure:
    """Return a picture of every state: its mean, and how far noise moves it."""
    from affinedp.show.plot import new_figure

    plant = loop.plant
    mean = mean_errors(loop, steps) + loop.references(steps)
    spread = np.sqrt(added_squares(loop, noise, steps, None, None))
    figure = new_figure(figsize=(7.0, 1.0 + 2.3 * plant.states), layout="constrained")
    shown = figure.subplots(plant.states, 1, sharex=True, squeeze=False)[:, 0]
    times = plant.dt * np.arange(steps + 1)
    for i, axes in enumerate(shown):
        low, high = mean[:, i] - 2 * spread[:, i], mean[:, i] + 2 * spread[:, i]
        axes.fill_between(times, low, high, alpha=0.25, label="with noise, ± 2 standard deviations")
        axes.plot(times, mean[:, i], label="mean, with and without noise")
        axes.plot(times, loop.references(steps)[:, i], "k--", linewidth=1, label="reference")
        axes.set_ylabel(plant.state_names[i])
        axes.grid(alpha=0.3)
    figure.legend(*shown[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    shown[0].set_title(f"The loop under noise that keeps ε = {_epsilon(noise)}")
    shown[-1].set_xlabel("time" if plant.dt != 1.0 else "step")
    return figure


def _epsilon(noise: Mechanism) -> str:
    asked = noise.guarantee.asked
    if asked is None:
        return f"{noise.guarantee.epsilon(1e-6):.3g} at δ = 1e-06"
    return f"{asked.epsilon:g}" + (f" at δ = {asked.delta:g}" if asked.delta else "")
