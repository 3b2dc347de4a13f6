"""Section V of the paper: every number and figure of the vehicle that the cloud drives.

The paper designs for positions only (velocities public), with a noise scale that is an upper
bound.  Both are reproduced as they are, beside the least noise and the noise that hides
velocities too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.by_time import noise_by_time
from affinedp.control.closed_loop import ClosedLoop, sweep
from affinedp.control.given_noise import verify_trajectory_noise
from affinedp.control.loop_errors import Simulation
from affinedp.control.output_noise import design_output_noise, independent_output_noise
from affinedp.laws.calibration import gaussian_sigma, gaussian_sigma_bound
from affinedp.mechanism import Mechanism
from affinedp.paper.drawing import BLUE, GREEN, PURPLE, VERMILLION, dots, panels, write_figures
from affinedp.paper.report import Claim, printed, verdict_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERIOD = 0.1
VEHICLE = (
    np.array([[1.0, PERIOD], [0.0, 1.0]]),
    np.array([[PERIOD**2 / 2], [PERIOD]]),
    np.array([[1.0, 0.0]]),
)
START = (-20.0, 0.0)
HORIZON = 100
EPSILON, DELTA = 1.0, 0.01
EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
PAPER_FEEDBACK, PAPER_OBSERVER = (3.4240, 4.3095), (0.8266, 0.6973)
PAPER_SIGMA = 2.5244
POSITIONS = (1.0, 0.0)

Rule = Literal["paper", "least"]


@dataclass(frozen=True, eq=False)
class TrackingErrors:
    """Tracking errors under one noise: a curve and a cloud of Figure 2."""

    name: str
    noise: Mechanism
    simulation: Simulation = field(repr=False)

    @cached_property
    def exact(self) -> FloatArray:
        """Mean-square errors of p and v, shape (T + 1, 2), exact."""
        return vehicle_loop().mean_square_error(self.noise, HORIZON)


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """Mean-square errors at the end against ε: a curve of Figure 3."""

    name: str
    structured: bool
    rule: Rule
    errors: FloatArray = field(repr=False)
    simulated: FloatArray | None = field(default=None, repr=False)
    standard_errors: FloatArray | None = field(default=None, repr=False)


def reference(t: int) -> tuple[float, float]:
    """Return the paper's (p_r, v_r), which are functions of steps, not seconds."""
    return float(np.tanh(t)), float(1 - abs(np.tanh(t - 9)))


def vehicle_loop() -> ClosedLoop:
    """Return the paper's loop; the gains it prints are those of a linear-quadratic design.

    Examples
    --------
    >>> loop = vehicle_loop()
    >>> loop.feedback.round(4).tolist(), loop.observer.round(4).tolist()
    ([[3.424, 4.3095]], [[0.8266], [0.6973]])
    """
    return ClosedLoop.lqg(
        VEHICLE,
        reference,
        state_cost=20.0,
        input_cost=1.0,
        process_covariance=2.0,
        measurement_covariance=1.0,
        x0=START,
    )


def vehicle_noise(
    epsilon: float = EPSILON, *, structured: bool = True, sigma: float | None = None
) -> Mechanism:
    """Return the paper's noise on the sent positions, or as much fresh noise as it compares with.

    Examples
    --------
    >>> from affinedp.control import noise_by_time
    >>> noise_by_time(vehicle_noise())[:2].round(4).tolist()
    [[1.8779], [1.8779]]
    >>> noise_by_time(vehicle_noise(structured=False, sigma=2.5244))[:2].round(3).tolist()
    [[25.244], [25.244]]
    """
    distance = 1.0 if sigma is None else sigma / float(gaussian_sigma(epsilon, DELTA))
    design = design_output_noise if structured else independent_output_noise
    return design(VEHICLE, HORIZON, epsilon, DELTA, mu=(distance, 0.0))


def tracking_errors(runs: int = 1000, seed: int = 0) -> list[TrackingErrors]:
    """Return what Figure 2 shows: tracking errors with the paper's σ and with the least."""
    noises = {
        f"paper's σ = {PAPER_SIGMA} (a bound)": vehicle_noise(sigma=PAPER_SIGMA),
        f"least σ = {gaussian_sigma(EPSILON, DELTA):.4f}": vehicle_noise(),
    }
    return _tracked(noises, runs, seed)


def _tracked(noises: Mapping[str, Mechanism], runs: int, seed: int) -> list[TrackingErrors]:
    loop = vehicle_loop()
    return [
        TrackingErrors(name, noise, loop.simulate(noise, HORIZON, runs, seed))
        for name, noise in noises.items()
    ]


def tradeoff(n_jobs: int = 1, runs: int = 0, seed: int = 0) -> list[Tradeoff]:
    """Return what Figure 3 shows: mean-square errors at t = T against ε."""
    loop = vehicle_loop()
    found = []
    for structured in (True, False):
        kind = "one draw (r = 1)" if structured else "i.i.d. (r = T)"
        for rule in ("paper", "least"):
            noise = partial(_noise_by_rule, rule, structured)
            errors = sweep(loop, noise, EPSILONS, HORIZON, n_jobs=n_jobs).mean_square_errors
            words = "paper's σ (a bound)" if rule == "paper" else "least σ"
            curve = Tradeoff(f"{kind}, {words}", structured, rule, errors[:, -1])
            if runs:
                seen = [loop.simulate(noise(e), HORIZON, runs, seed) for e in EPSILONS]
                curve = replace(
                    curve,
                    simulated=np.array([one.mean_square_error[-1] for one in seen]),
                    standard_errors=np.array([one.standard_error[-1] for one in seen]),
                )
            found.append(curve)
    return found


def _noise_by_rule(rule: Rule, structured: bool, epsilon: float) -> Mechanism:
    sigma = float(gaussian_sigma_bound(epsilon, DELTA)) if rule == "paper" else None
    return vehicle_noise(epsilon, structured=structured, sigma=sigma)


def protections(runs: int = 1000, seed: int = 0) -> list[TrackingErrors]:
    """Return designs that protect more than the paper's: positions and velocities.

    All keep ε = 1, δ = 0.01; they differ in who is a neighbour.
    """
    design = partial(design_output_noise, VEHICLE, HORIZON, EPSILON, DELTA)
    noises = {
        "positions (1 m) only, as in the paper": design(POSITIONS, "time-local"),
        "and velocities (0.1 m/s), time-local": design((1.0, 0.1), "time-local"),
        "and velocities (1 m/s), time-local": design((1.0, 1.0), "time-local"),
        "and velocities (1 m/s), Definition 4": design((1.0, 1.0), "manifold"),
    }
    return _tracked(noises, runs, seed)


def guessed_velocities(simulation: Simulation) -> FloatArray:
    """Return the velocities that an eavesdropper computes from ŷ and u, shape (runs, T − 1).

    p(t+1) = p(t) + T_s v(t) + T_s²/2 u(t), so noise that is the same in ŷ(t) and ŷ(t+1) cancels.
    """
    sent, inputs = simulation.outputs[:, :, 0], simulation.inputs[:, :-1, 0]
    return np.asarray(np.diff(sent, axis=1) / PERIOD - PERIOD / 2 * inputs)


def claims(runs: int = 10_000, seed: int = 0) -> list[Claim]:
    """Return every number of section V beside ours, and what the section leaves out.

    Examples
    --------
    >>> found = claims(runs=100)
    >>> [claim.row()[1:4] for claim in found if "√Σ" in claim.what]
    [('2.5244', '2.52441', 'agrees'), ('2.5244', '1.87788', 'corrected')]
    """
    return [*_gains(), *_scales(), *_errors(runs, seed), *_figure_3(), *_velocities(runs, seed)]


def _gains() -> list[Claim]:
    loop = vehicle_loop()
    both = (
        ("K_P", PAPER_FEEDBACK, loop.feedback.ravel(), "dlqr(A, B, 20 I, 1)"),
        ("L", PAPER_OBSERVER, loop.observer.ravel(), "dlqe(A, I, C, 2 I, 1)"),
    )
    return [
        printed(f"{name}, entry {i + 1}", stated, float(gain), f"python-control's {how}")
        for name, paper, ours, how in both
        for i, (stated, gain) in enumerate(zip(paper, ours))
    ]


def _scales() -> list[Claim]:
    bound = float(gaussian_sigma_bound(EPSILON, DELTA))
    scalar = design_output_noise(([[1.0]], [[1.0]]), HORIZON, EPSILON, DELTA)
    vehicle = design_output_noise(VEHICLE, HORIZON, EPSILON, DELTA, mu=POSITIONS)
    least = float(noise_by_time(scalar)[0, 0])
    apart = float(np.abs(noise_by_time(vehicle) - noise_by_time(scalar)).max())
    return [
        printed("√Σ by the paper", PAPER_SIGMA, bound, "1 / (Φ⁻¹(δ) + √(Φ⁻¹(δ)² + 2ε)), a bound"),
        printed("√Σ, the least", PAPER_SIGMA, least, "κ(ε, 1/√Σ) = δ, the rule the paper states"),
        Claim(
            "scalar design against the vehicle with public velocities",
            None, apart, "added", "largest difference of their noise: the same design",
        ),
    ]  # fmt: skip


def _errors(runs: int, seed: int) -> list[Claim]:
    """Mean squares at t = T, exactly and by chance, and what becomes of the velocity."""
    loop = vehicle_loop()
    found = []
    for structured, kind in ((True, "one draw"), (False, "i.i.d.")):
        for sigma, rule in ((PAPER_SIGMA, "paper's σ"), (None, "least σ")):
            noise = vehicle_noise(structured=structured, sigma=sigma)
            exact = loop.mean_square_error(noise, HORIZON)[-1]
            simulated = loop.simulate(noise, HORIZON, runs, seed)
            apart = (simulated.mean_square_error - exact)[-1] / simulated.standard_error[-1]
            how = f"exact; {runs:,} runs are {apart[0]:+.1f} standard errors off"
            what = f"E|p − p_r|² at t = {HORIZON}, {kind}, {rule}"
            found.append(Claim(what, None, float(exact[0]), "added", how))
            if structured and sigma:
                what = f"E|v − v_r|² at t = {HORIZON}, {kind}, {rule}"
                verdict = verdict_of(exact[1] < 1e-3)
                found.append(Claim(what, "vanishes", float(exact[1]), verdict, "exact"))
    return found


def _figure_3() -> list[Claim]:
    """What the paper concludes from Figure 3, as the worst case over its ε and both states."""
    curves = {(curve.structured, curve.rule): curve.errors for curve in tradeoff()}
    ratio = max(
        float((curves[True, rule] / curves[False, rule]).max()) for rule in ("paper", "least")
    )
    rising = max(float((errors[1:] / errors[:-1]).max()) for errors in curves.values())
    gain = curves[True, "paper"][:, 0] / curves[True, "least"][:, 0]
    return [
        Claim(
            "Fig. 3: mean squares of one draw over i.i.d., at most",
            "below 1", ratio, verdict_of(ratio < 1), "exact, over its ε, both states, both rules",
        ),
        Claim(
            "Fig. 3: mean squares at one ε over those at the next smaller, at most",
            "below 1", rising, verdict_of(rising < 1), "exact, over all its curves",
        ),
        Claim(
            "Fig. 3: E|p − p_r|² at ε = 0.01, paper's σ over least σ",
            None, float(gain[0]), "added", "exact, for the same promise",
        ),
    ]  # fmt: skip


def _velocities(runs: int, seed: int) -> list[Claim]:
    few = min(runs, 100)
    designs = protections(few, seed)
    listened = designs[0].simulation
    miss = np.abs(guessed_velocities(listened) - listened.states[:, : HORIZON - 1, 1]).max()
    epsilon = _epsilon_of_both()
    found = [
        Claim(
            "ε that the paper's noise keeps for positions and velocities",
            "1", epsilon, verdict_of(epsilon <= EPSILON),
            "Theorem 1: no promise; velocities are called private, but not designed for",
        ),
        Claim(
            "error of velocities computed from ŷ and u under the paper's noise (m/s)",
            None, float(miss), "added", f"largest of {few} runs: only rounding is left",
        ),
    ]  # fmt: skip
    for design in designs[1:]:
        what = f"E|p − p_r|² at t = {HORIZON}: {design.name.removeprefix('and ')}"
        found.append(Claim(what, None, float(design.exact[-1, 0]), "added", "exact, least noise"))
    return found


def _epsilon_of_both() -> float:
    """The ε of the paper's noise if velocities are private too: infinite."""
    noise = design_output_noise(VEHICLE, HORIZON, EPSILON, DELTA, mu=POSITIONS)
    return verify_trajectory_noise(VEHICLE, HORIZON, noise.noise_matrix).epsilon(DELTA)


# ---------------------------------------------------------------------- figures

STATES = (("position", "p", "m"), ("velocity", "v", "m/s"))
TIME = f"step t ({PERIOD:g} s each)"
RULES = (VERMILLION, BLUE)  # the paper's σ, the least
LINES_AND_DOTS = "lines: exact; dots: simulated, ± 2 s.e."
EVERY = 5
OVERHEARD = 10
# Below this, mean squares of the first steps would hide the rest of a logarithmic axis.
LEAST_SHOWN = 1e-5


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
    drawn = {
        "control_figure_2": lambda: figure_2(tracking_errors(runs, seed)),
        "control_figure_3": lambda: figure_3(tradeoff(runs=runs, seed=seed)),
        "control_velocities": lambda: velocities(protections(runs, seed)),
    }
    return write_figures(out, drawn)
