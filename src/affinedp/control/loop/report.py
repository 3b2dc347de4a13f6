"""What noise costs a loop, in words: tracking beside output noise, and what to beware of."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from affinedp.control.by_time import causal
from affinedp.control.loop.exact_errors import (
    lasting_error,
    mean_squares,
    stationary_squares,
)
from affinedp.control.loop.record import LoopRecord
from affinedp.mechanism import Mechanism
from affinedp.neighbours.trajectory import InitialState
from affinedp.show.page import Report
from affinedp.strategies.filter import Filter
from affinedp.strategies.trajectory import Trajectory

# Noise that changes by more than this over the horizon is worth a word.
MUCH = 100.0


class LoopWarning(UserWarning):
    """A loop that is not stable, or noise that explodes in it."""


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
            "neighbours='forward' or 'initial'",
        )
    return ()


def loop_report(
    loop: LoopRecord, noise: Mechanism, steps: int | None, warnings: tuple[str, ...]
) -> Report:
    """Return the noise's report with what the loop pays beside it."""
    made = causal(noise)
    if steps is None and isinstance(made, Filter) and made.domain.horizon is None:
        words, count = "after a long time", 1
        mean = lasting_error(loop)
        if mean is None:  # a reference that moves has no last mean
            words, mean = f"{words}, around its mean", np.zeros(loop.plant.states)
        errors = [mean**2 + stationary_squares(loop, one, None, None) for one in (noise, None)]
    else:
        count = made.horizon if steps is None else steps
        words = f"over {count:,} step{'s' if count > 1 else ''}"
        errors = [mean_squares(loop, one, count).mean(axis=0) for one in (noise, None)]
    rows = [
        (
            "tracking",
            f"{name}: root mean square error {math.sqrt(after):.4g} with this noise, "
            f"{math.sqrt(before):.4g} without, {words}",
        )
        for name, after, before in zip(loop.plant.state_names, *errors)
    ]
    cautions = (*warnings, *noise_warnings(noise, count))
    rows += [("warning", caution) for caution in cautions]
    found = noise.report()
    return replace(found, totals=(*found.totals, *rows))
