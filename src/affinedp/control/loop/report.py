"""What noise costs a loop, in words: tracking beside output noise, and what to beware of."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from affinedp.control.loop.exact_errors import (
    AnyNoise,
    filter_of,
    lasting_error,
    mean_squares,
    outputs_and_horizon,
    stationary_squares,
)
from affinedp.control.loop.record import LoopRecord
from affinedp.control.trajectory.record import OneDrawNoise
from affinedp.control.trajectory.report import report as output_report
from affinedp.mechanism import Mechanism
from affinedp.show.page import Report

# Noise that changes by more than this over the horizon is worth a word.
MUCH = 100.0


class LoopWarning(UserWarning):
    """A loop that is not stable, or noise that explodes in it."""


def noise_warnings(noise: AnyNoise, steps: int) -> tuple[str, ...]:
    """Return what a careful reader should know about noise over some steps."""
    if not isinstance(noise, OneDrawNoise) or steps < 2:
        return ()
    first, last = np.linalg.norm(noise.noise_at([0, steps - 1]), axis=1)
    if last > MUCH * first:
        return (
            f"the noise grows from {first:.3g} to {last:.3g} over {steps:,} steps, as the plant "
            "itself does: one draw follows the dynamics. Close a local loop that stabilises the "
            "plant before it is measured, and design for the closed loop",
        )
    if first > MUCH * last and noise.neighbours.kind != "initial":
        return (
            f"the noise starts at {first:.3g} and ends at {last:.3g}: dynamics that contract make "
            "late states cost much noise early. If the past need not follow, use "
            "neighbours='forward' or 'initial'",
        )
    return ()


def loop_report(
    loop: LoopRecord, noise: AnyNoise, steps: int | None, warnings: tuple[str, ...]
) -> Report:
    """Return the noise's report with what the loop pays beside it."""
    filtered = filter_of(noise)
    if steps is None and filtered is not None and filtered.domain.horizon is None:
        words, count = "after a long time", 1
        mean = lasting_error(loop)
        if mean is None:  # a reference that moves has no last mean
            words, mean = f"{words}, around its mean", np.zeros(loop.plant.states)
        errors = [mean**2 + stationary_squares(loop, one, None, None) for one in (noise, None)]
    else:
        count = outputs_and_horizon(noise)[1] if steps is None else steps
        words = f"over {count:,} step{'s' if count > 1 else ''}"
        errors = [mean_squares(loop, one, count).mean(axis=0) for one in (noise, None)]
    made = noise.report() if isinstance(noise, Mechanism) else output_report(noise)
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
    return replace(made, totals=(*made.totals, *rows))
