"""What noise costs a loop, in words: tracking beside output noise, and what to beware of."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.stationary.record import StationaryNoise
from affinedp.control.stationary.report import report as stationary_report
from affinedp.control.trajectory.record import OneDrawNoise, OutputNoise
from affinedp.control.trajectory.report import report as output_report
from affinedp.show.page import Report

# Noise that changes by more than this over the horizon is worth a word.
MUCH = 100.0


class LoopWarning(UserWarning):
    """A loop that is not stable, or noise that explodes in it."""


def noise_warnings(noise: OutputNoise | StationaryNoise, steps: int) -> tuple[str, ...]:
    """Return what a careful reader should know about noise over some steps.

    Parameters
    ----------
    noise : OutputNoise or StationaryNoise
        On the outputs.
    steps : int
        How many outputs are sent.
    """
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
    noise: OutputNoise | StationaryNoise,
    with_noise: FloatArray,
    without: FloatArray,
    names: tuple[str, ...],
    words: str,
    warnings: tuple[str, ...],
) -> Report:
    """Return the noise's report with what the loop pays beside it.

    Parameters
    ----------
    noise : OutputNoise or StationaryNoise
        On the outputs.
    with_noise, without : arrays, shape (n,)
        Mean-square tracking errors of each state.
    names : tuple of str
        The states.
    words : str
        Over which time.
    warnings : tuple of str
        What to beware of.
    """
    made = stationary_report(noise) if isinstance(noise, StationaryNoise) else output_report(noise)
    rows = [
        (
            "tracking",
            f"{name}: root mean square error {math.sqrt(after):.4g} with this noise, "
            f"{math.sqrt(before):.4g} without, {words}",
        )
        for name, after, before in zip(names, with_noise.tolist(), without.tolist())
    ]
    rows += [("warning", warning) for warning in warnings]
    return replace(made, totals=(*made.totals, *rows))
