"""What the steps of a sensor cost at the same promise, and what helps; steps per second."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

EPSILON, DELTA, STEP = 1.0, 1e-4, 0.1


def _cost(mechanism: Any, **words: Any) -> float:
    from affinedp.control import Gateway, noise_by_time

    with (
        tempfile.TemporaryDirectory() as folder,
        Gateway(mechanism, state=f"{folder}/s", **words) as gateway,
    ):
        designed = noise_by_time(gateway.mechanism) ** 2
        return float(((1 + gateway.added_variance) * designed.mean(axis=0)).sum()) / float(
            designed.mean(axis=0).sum()
        )


def _rows() -> list[str]:
    import plants
    from affinedp.control import Dither, design_output_noise

    rows = []
    cases = (
        ("room, 96 steps", plants.room(), 96, 1.0),
        ("building, 672 steps", plants.building(), 672, 0.5),
    )
    for name, (A, _, C), steps, mu in cases:
        m = design_output_noise((A, C), steps, EPSILON, DELTA, mu=mu, adjacency="initial")
        costs = [
            _cost(m, resolution=STEP),
            _cost(m, resolution=Dither(4, STEP)),
            _cost(m, resolution=Dither(8, STEP)),
        ]
        rows.append(f"| {name} | " + " | ".join(f"{cost:.4g}" for cost in costs) + " |")
    return rows


def _year() -> list[str]:
    """Stationary noise over a year, relative to its variance with exact readings."""
    from affinedp.control import Dither, design_input_noise, noise_by_time

    def variance(**words: Any) -> float:
        office = ([[0.99]], [[0.9]], [[1.0]])
        noise = design_input_noise(office, EPSILON, DELTA, mu=0.1, **words)
        return float(noise_by_time(noise)[0, 0] ** 2)

    exact = variance()
    sent = (variance(horizon=35_040, resolution=one) / exact for one in (0.01, Dither(6, 0.01)))
    return [
        "Office, input noise for steps of 0.01 °C over a year, times its variance with exact "
        "readings: {:.4g};\nwith dither of six bits: {:.4g}.".format(*sent)
    ]


def _rates() -> list[str]:
    import plants
    from affinedp.control import Gateway, design_input_noise, design_output_noise

    A, E, C = plants.building()
    one = design_output_noise((A, C), 672, EPSILON, DELTA, mu=0.5, adjacency="initial")
    always = design_input_noise((A, E, C), EPSILON, DELTA)
    rows = []
    for name, mechanism in (("one draw", one), ("stationary, for all time", always)):
        with (
            tempfile.TemporaryDirectory() as folder,
            Gateway(mechanism, state=f"{folder}/s", resolution="exact") as gateway,
        ):
            y, start, count = np.full(3, 20.0), time.perf_counter(), 600
            for _ in range(count):
                gateway.send(y)
            rate = count / (time.perf_counter() - start)
            rows.append(f"| {name} | {rate:,.0f} | {gateway.added_variance.max():.1e} |")
    return rows


def run() -> str:
    """Return the tables."""
    return "\n".join(
        [
            "## Sensors with steps",
            "",
            "Total variance relative to the noise that hides x(0) alone, at the same promise",
            "(ε = 1, δ = 10⁻⁴), for thermometers with steps of 0.1 °C: readings as they are, and",
            "with dither of 4 and 8 bits.",
            "",
            "| plant | readings | dither 4 | dither 8 |",
            "|---|---:|---:|---:|",
            *_rows(),
            "",
            *_year(),
            "",
            "Steps of the building (three outputs) that a gateway sends in a second, and what",
            "sending adds to the variance.",
            "",
            "| noise | steps/s | added |",
            "|---|---:|---:|",
            *_rates(),
        ]
    )


if __name__ == "__main__":
    print(run())
