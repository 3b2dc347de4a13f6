"""A week in an office whose heating is controlled from the cloud, with occupancy kept private.

``python examples/private_building.py`` simulates the week, lets an eavesdropper estimate how many
people were there from all that was sent, with and without privacy, and draws what she learns.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from affinedp import Mechanism
from affinedp.control import aware_controller, design_input_noise
from affinedp.control.by_time import sample_noise

STEPS = 7 * 96  # a week of quarters of an hour
KEPT, GAIN = 0.99, 0.9  # of the temperature, and °C per kW, in a quarter of an hour
PERSON = 0.1  # kW
WANTED = 21.0  # °C
OFFICE = ([[KEPT]], [[GAIN]], [[1.0]])
EPSILON, DELTA = 1.0, 1e-4


@dataclass(frozen=True)
class Week:
    """What happened, and what was sent.

    Attributes
    ----------
    people, outside : arrays
        How many people were there, and the weather.
    temperature, sent, heating : arrays
        The room, what the cloud was told, and what it answered (kW).
    """

    people: np.ndarray
    outside: np.ndarray
    temperature: np.ndarray
    sent: np.ndarray
    heating: np.ndarray


def people(seed: int = 3) -> np.ndarray:
    """Return how many people are in the office at every step: up to five on workdays."""
    generator = np.random.default_rng(seed)
    found = np.zeros(STEPS)
    for day in range(5):
        for _ in range(5):
            if generator.random() < 0.85:
                begins = day * 96 + int(generator.normal(34, 3))
                ends = day * 96 + int(generator.normal(70, 4))
                found[begins:ends] += 1
                lunch = day * 96 + int(generator.normal(49, 1))
                found[lunch : lunch + 3] -= 1
    return np.maximum(found, 0)


def weather(seed: int = 4) -> np.ndarray:
    """Return a cold week: a daily cycle, and a front that comes and goes."""
    generator = np.random.default_rng(seed)
    hours = np.arange(STEPS) / 4
    front = np.zeros(STEPS)
    for t in range(1, STEPS):
        front[t] = 0.995 * front[t - 1] + 0.25 * generator.normal()
    return 3 + 4 * np.sin(2 * np.pi * (hours - 9) / 24) + front


def simulate(mechanism: Mechanism | None, seed: int = 5) -> Week:
    """Run the week: the cloud sees what is sent, the weather, and nothing else.

    Parameters
    ----------
    mechanism : Mechanism or None
        The noise; None sends the temperature as it is.
    seed : int
        Of the simulated noise.
    """
    controller = aware_controller(
        OFFICE, mechanism, state_cost=1.0, input_cost=0.5,
        process_covariance=(GAIN * 0.2) ** 2, measurement_covariance=1e-4,
    )  # fmt: skip
    present, outside = people(), weather()
    noise = (
        np.zeros(STEPS) if mechanism is None else sample_noise(mechanism, 1, STEPS, seed)[0, :, 0]
    )
    state = np.zeros(controller.nstates)
    state[0] = WANTED
    x, temperature, heating = WANTED, np.empty(STEPS), np.empty(STEPS)
    for t in range(STEPS):
        temperature[t] = x
        # what holds the wanted temperature in this weather is fed forward
        known = (1 - KEPT) * (WANTED - outside[t]) / GAIN
        given = np.array([x + noise[t], WANTED, known])
        heating[t] = (controller.C @ state + controller.D @ given)[0]
        state = controller.A @ state + controller.B @ given
        # the model of the controller knows the weather, too
        state[0] += (1 - KEPT) * outside[t]
        x = KEPT * x + (1 - KEPT) * outside[t] + GAIN * (heating[t] + PERSON * present[t])
    return Week(present, outside, temperature, temperature + noise, heating)


def eavesdrop(week: Week, mechanism: Mechanism | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the best linear estimate of how many people were there, and its standard deviation.

    The eavesdropper knows the plant, the weather, the noise's filter, all that was sent and all
    answers, and that people come and go about once in a few hours.

    Parameters
    ----------
    week : Week
        What was sent is used, and nothing else of it.
    mechanism : Mechanism or None
        The noise.
    """
    steps = np.arange(STEPS)
    # what people did to the temperature, and the noise, is left when the rest is taken away
    rest = np.empty(STEPS)
    x = WANTED
    for t in range(STEPS):
        rest[t] = week.sent[t] - x
        x = KEPT * x + (1 - KEPT) * week.outside[t] + GAIN * week.heating[t]
    lags = steps[:, None] - steps
    response = np.where(lags > 0, GAIN * PERSON * KEPT ** np.maximum(lags - 1, 0.0), 0.0)
    mean, prior = 1.2, 2.0**2 * 0.96 ** np.abs(lags)
    noise = 1e-10 * np.eye(STEPS)
    if mechanism is not None:
        made = mechanism.strategy.noise
        P = made.covariance()
        reach, kept = (
            made.A @ P @ made.C.T + made.B @ made.D.T,
            [float(made.output_covariance()[0, 0])],
        )
        for _ in range(STEPS - 1):
            kept.append(float((made.C @ reach)[0, 0]))
            reach = made.A @ reach
        noise = noise + mechanism.strategy.scale**2 * np.array(kept)[np.abs(lags)]
    gain = np.linalg.solve(response @ prior @ response.T + noise, response @ prior).T
    estimate = mean + gain @ (rest - response @ np.full(STEPS, mean))
    left = prior - gain @ response @ prior
    return estimate, np.sqrt(np.maximum(np.diagonal(left), 0.0))


def picture(path: Path, mechanism: Mechanism) -> None:
    """Draw the week, and what the eavesdropper learns.

    Parameters
    ----------
    path : Path
        Where to.
    mechanism : Mechanism
        The noise.
    """
    from matplotlib.figure import Figure

    open_week, private = simulate(None), simulate(mechanism)
    seen, (guess, spread) = eavesdrop(open_week, None)[0], eavesdrop(private, mechanism)
    days = np.arange(STEPS) / 96
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    top.plot(days, private.sent, color="#D55E00", linewidth=0.7, label="sent")
    top.plot(days, private.temperature, color="#0072B2", linewidth=1.8, label="in the room")
    top.plot(days, open_week.temperature, color="#009E73", linestyle="--", label="without privacy")
    top.set_ylabel("temperature (°C)")
    top.set_title("The office")
    middle.step(days, open_week.people, color="black", linewidth=2.5, label="people")
    middle.plot(days, seen, color="#D55E00", linestyle="--", label="the eavesdropper's estimate")
    middle.set_title("Without privacy she counts the people")
    bottom.step(days, private.people, color="black", linewidth=2.5, label="people")
    bottom.plot(days, guess, color="#0072B2", label="the eavesdropper's estimate")
    bottom.fill_between(
        days, guess - 2 * spread, guess + 2 * spread, color="#0072B2", alpha=0.2, linewidth=0,
        label="± 2 standard deviations",
    )  # fmt: skip
    bottom.set_title("With it she sees working days, and not who left for lunch")
    bottom.set_xlabel("day")
    for axes in (middle, bottom):
        axes.set_ylabel("people")
        axes.set_ylim(-3.5, 8.5)
    for axes in (top, middle, bottom):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper right", ncols=3)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Simulate, estimate, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("private_building.png"))
    options = parser.parse_args()
    mechanism = design_input_noise(OFFICE, EPSILON, DELTA, mu=PERSON)
    print(mechanism.report())
    for name, noise in (("without privacy", None), ("with", mechanism)):
        week = simulate(noise)
        guess, _ = eavesdrop(week, noise)
        miss = np.sqrt(np.mean((guess - week.people) ** 2))
        off = np.sqrt(np.mean((week.temperature - WANTED) ** 2))
        print(f"{name}: she misses by {miss:.2f} people, the room is off by {off:.2f} °C")
    picture(options.picture, mechanism)


if __name__ == "__main__":
    main()
