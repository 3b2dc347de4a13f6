"""Section VI of the paper: every number and figure of the ten agents, and one large network.

The paper's Gaussian noise comes from an upper bound on the least scale, and its read-out is the
state.  Both are reproduced as they are, beside the least scale and the better read-outs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.consensus.private import PrivateConsensus
from affinedp.consensus.runs import READOUTS, Run
from affinedp.exact.numbers import whole_number
from affinedp.laws.base import LawName
from affinedp.laws.calibration import gaussian_sigma_bound
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
from affinedp.paper.report import Claim, printed, verdict_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The figure with the graph has no list of links in the text; these are those of the example.
LINKS = (
    (1, 2), (1, 10), (2, 3), (2, 5), (2, 10), (3, 4), (4, 5), (5, 6), (5, 7), (6, 7), (7, 8),
    (7, 10), (8, 9), (9, 10),
)  # fmt: skip
VALUES = (10.0, 100.0, 20.0, -30.0, -20.0, -60.0, 70.0, 0.0, 80.0, -20.0)
WEIGHT = 0.25
EPSILONS = (1.0, 0.1, 0.01)
DELTA = 0.01
PAPER_AVERAGE = 10.0
PAPER_SIGMAS = {1.0: 2.5244, 0.1: 23.4765, 0.01: 232.8495}
STEPS, RUNS = 30, 500


@dataclass(frozen=True, eq=False)
class Setting:
    """One noise on the ten agents, simulated and exact."""

    law: LawName
    epsilon: float
    rule: str
    consensus: PrivateConsensus
    run: Run

    @property
    def sigma(self) -> float:
        """σ of every agent."""
        return float(self.consensus.sigma[0])

    def exact(self, readout: str = "state") -> FloatArray:
        """Return E‖read-out(t) − x*‖² at every step."""
        return np.asarray(self.consensus.mean_square_error(VALUES, STEPS, readout))


def ten_agents(
    law: LawName = "gaussian", epsilon: float = 1.0, rule: str = "least"
) -> PrivateConsensus:
    """Return the paper's example: ten agents, each link with weight 1/4.

    Examples
    --------
    >>> [round(ten_agents(rule=rule).limit(), 2) for rule in ("paper", "least")]
    [57.35, 31.74]
    """
    ends = np.array(LINKS) - 1
    made = PrivateConsensus.from_edges(
        10,
        ends[:, 0],
        ends[:, 1],
        weights=WEIGHT,
        names=range(1, 11),
        law=law,
        epsilon=epsilon,
        delta=DELTA if law == "gaussian" else 0.0,
    )
    if rule == "paper" and law == "gaussian":
        return made.with_noise(sigma=PAPER_SIGMAS[epsilon])
    return made


def experiments(runs: int = RUNS, seed: int = 0) -> list[Setting]:
    """Return both experiments of section VI: Gaussian noise by both rules, and Laplace noise."""
    found = []
    kinds: tuple[tuple[LawName, str], ...] = (
        ("gaussian", "paper"), ("gaussian", "least"), ("laplace", "least"),
    )  # fmt: skip
    cases = [(law, rule, epsilon) for law, rule in kinds for epsilon in EPSILONS]
    for (law, rule, epsilon), own in zip(cases, np.random.SeedSequence(seed).spawn(len(cases))):
        consensus = ten_agents(law, epsilon, rule)
        run = consensus.run(VALUES, STEPS, runs, own)
        found.append(Setting(law, epsilon, rule, consensus, run))
    return found


SNAPSHOTS = (0, 10, 100, 400, 5_000)
EPSILON = 0.5


@dataclass(frozen=True, eq=False)
class Convergence:
    """One run on a large network."""

    consensus: PrivateConsensus
    places: FloatArray
    average: float
    messages: FloatArray
    times: FloatArray
    errors: Mapping[str, FloatArray]


def geometric_links(agents: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return random places in the unit square, and links between those that are near.

    Opposite sides of the square meet, so that no agent at a side has fewer neighbours.
    """
    from scipy.spatial import cKDTree

    places = np.random.default_rng(seed).random((agents, 2))
    reach = math.sqrt(2 * math.log(agents) / (math.pi * agents))
    return places, cKDTree(places, boxsize=1.0).query_pairs(reach, output_type="ndarray")


def converging(agents: int = 100_000, seed: int = 0) -> Convergence:
    """Run consensus on a geometric network whose values form waves over the square.

    Examples
    --------
    >>> found = converging(agents=500)
    >>> found.messages.shape, bool(found.errors["message"][-1] < found.errors["state"][-1] / 50)
    ((5, 500), True)
    """
    whole_number(agents, "the number of agents of a large network", 100)
    places, links = geometric_links(agents, seed)
    consensus = PrivateConsensus.from_edges(
        agents, links[:, 0], links[:, 1], law="laplace", epsilon=EPSILON
    )
    waves = np.cos(4 * np.pi * places[:, 0]) * np.cos(4 * np.pi * places[:, 1])
    x0 = 20.0 + 4.0 * waves
    # one seed: the same draws at every snapshot
    snapshots = [consensus.run(x0, t, 1, seed, keep="last").messages[0, 0] for t in SNAPSHOTS]
    run = consensus.run(x0, SNAPSHOTS[-1], 1, seed, keep="errors")
    times = np.unique(np.geomspace(1, SNAPSHOTS[-1], 60).round().astype(int))
    errors = {str(name): run.squared_error(name)[0, times] / agents for name in READOUTS}
    return Convergence(consensus, places, float(x0.mean()), np.array(snapshots), times, errors)


def claims(runs: int = RUNS, seed: int = 0) -> list[Claim]:
    """Return every number of section VI beside ours, and what the section leaves out.

    Examples
    --------
    >>> found = claims(runs=50)
    >>> [claim.row()[1:4] for claim in found if claim.what == "x*, the average of x(0)"]
    [('10', '15', 'corrected')]
    """
    settings = experiments(runs, seed)
    found = [*_network(), *_scales()]
    found += _means(settings[0])
    for setting in settings:
        found += _mean_squares(setting)
    return [*found, *_tradeoff(), _variance_one()]


def _network() -> list[Claim]:
    consensus = ten_agents()
    average = float(np.mean(VALUES))
    heaviest = float(consensus.network.weight_sums.max())
    spectrum = consensus.spectrum
    return [
        Claim(
            "x*, the average of x(0)",
            PAPER_AVERAGE, average, verdict_of(average == PAPER_AVERAGE), "mean of the ten values",
        ),
        Claim(
            "largest weight sum of an agent",
            "below 1", heaviest, verdict_of(heaviest < 1), "agents 2, 5, 7 and 10 have four links",
        ),
        Claim(
            "λ_n of the Laplacian",
            "below 2", spectrum.lambda_n, verdict_of(spectrum.lambda_n < 2),
            "all that convergence needs",
        ),
        Claim("α = max(|1−λ₂|, |1−λ_n|)", None, spectrum.alpha, "added", "all eigenvalues"),
    ]  # fmt: skip


def _scales() -> list[Claim]:
    found = []
    for epsilon, stated in PAPER_SIGMAS.items():
        bound = float(gaussian_sigma_bound(epsilon, DELTA))
        least = ten_agents(epsilon=epsilon)
        sigma = float(least.sigma[0])
        kept = ten_agents(epsilon=epsilon, rule="paper").guarantee.epsilon(DELTA)
        case = f"ε = {epsilon:g}, δ = {DELTA:g}"
        found += [
            printed(
                f"σ by the paper, {case}", stated, bound, "1 / (Φ⁻¹(δ) + √(Φ⁻¹(δ)² + 2ε)), a bound"
            ),
            printed(
                f"σ, the least, {case}", stated, sigma, "κ(ε, 1/σ) = δ, the rule the paper states"
            ),
            Claim(
                f"ε that σ = {stated:g} keeps at δ = {DELTA:g}",
                None, kept, "added", f"exact, where {epsilon:g} was asked for",
            ),
        ]  # fmt: skip
    for epsilon in EPSILONS:
        sigma = float(ten_agents("laplace", epsilon).sigma[0])
        verdict = verdict_of(math.isclose(sigma, 1 / epsilon, rel_tol=1e-12))
        found.append(Claim(f"Laplace σ, ε = {epsilon:g}", 1 / epsilon, sigma, verdict, "μ/ε"))
    return found


def _means(setting: Setting) -> list[Claim]:
    """Figure 5: the mean error dies out."""
    consensus, run = setting.consensus, setting.run
    exact = consensus.mean_error(VALUES, 200)
    states = run.states
    error = states.std(axis=0, ddof=1) / math.sqrt(len(states))
    off = np.abs(states.mean(axis=0) - 15.0 - exact[: STEPS + 1])[1:] / error[1:]
    late = float(np.abs(exact[-1]).max())
    return [
        Claim(
            "Fig. 5: largest |E x_i(t) − x*| at t = 200",
            "vanishes", late, verdict_of(late < 1e-9), "exact; the same for all noise",
        ),
        Claim(
            f"Fig. 5: largest |E x_i(t) − x*| at t = {STEPS}",
            None, float(np.abs(exact[STEPS]).max()), "added",
            f"exact; means of {len(states)} runs are at most {off.max():.1f} standard errors off",
        ),
    ]  # fmt: skip


def _mean_squares(setting: Setting) -> list[Claim]:
    """Figures 6 and 7: the limit against the bound, and all read-outs."""
    consensus, case = setting.consensus, f"ε = {setting.epsilon:g}, σ = {setting.sigma:.6g}"
    figure = 6 if setting.law == "gaussian" else 7
    bound, limit = float(consensus.bound()), consensus.limit()
    mean, error = setting.run.mean_square_error()
    off = (mean[-1] - setting.exact()[-1]) / error[-1]
    how = (
        f"exact; {len(setting.run.messages)} runs at t = {STEPS} are {off:+.1f} standard errors off"
    )
    stated = f"below {bound:.6g}" if setting.rule == "paper" or figure == 7 else None
    verdict = verdict_of(limit < bound) if stated else "added"
    found = [
        Claim(f"Fig. {figure}: limit of E‖x − 1x*‖², {case}", stated, limit, verdict, how),
    ]
    for readout in READOUTS[1:]:
        what = f"the same for the {readout} read-out, {case}"
        found.append(Claim(what, None, consensus.limit(readout), "added", "exact, same promise"))
    return found


def _tradeoff() -> list[Claim]:
    """The least ε for the error that the paper's noise was meant to allow."""
    zeta = float(ten_agents(rule="paper").bound())
    found = []
    for law in ("gaussian", "laplace"):
        consensus = ten_agents("gaussian" if law == "gaussian" else "laplace")
        for readout in ("paper", *READOUTS):
            how = "the paper's formula" if readout == "paper" else f"the exact limit, {readout}"
            what = f"least ε for an error of {zeta:.4g}, {law}, {readout}"
            epsilon = consensus.optimal_epsilon(zeta, readout)
            found.append(Claim(what, None, epsilon, "added", how))
    return found


def _variance_one() -> Claim:
    """Laplace noise of variance 1 is noise of scale 1/√2."""
    kept = ten_agents("laplace").with_noise(sigma=1 / math.sqrt(2)).guarantee.epsilon()
    return Claim(
        "ε kept by Laplace draws of variance 1 (as in the public scripts) at σ = 1",
        1.0, kept, verdict_of(kept <= 1.0), "L(0, 1) has variance 2",
    )  # fmt: skip


# ---------------------------------------------------------------------- figures

BY_EPSILON = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"))
BY_READOUT = {"state": (VERMILLION, "s"), "message": (BLUE, "o"), "corrected": (GREEN, "^")}
AVERAGE = float(np.mean(VALUES))
EVERY = 2


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
        _draw_mean_squares(axes, [setting for setting in settings if setting.rule == rule])
        axes.set_title(named)
    shown[0].set(ylabel="E‖x(t) − 1x*‖²", ylim=(None, 4e7))
    return figure


def figure_7(settings: Sequence[Setting]) -> Figure:
    """Return Figure 7: mean-square errors with Laplace noise."""
    words = f"Figure 7. Laplace noise of variance 2σ²\n({_drawn(settings)})"
    figure, (axes,) = panels(1, 1, 6.6, 4.8, words)
    _draw_mean_squares(axes, settings)
    axes.set(ylabel="E‖x(t) − 1x*‖²", ylim=(None, 2e7))
    return figure


def _drawn(settings: Sequence[Setting]) -> str:
    runs = len(settings[0].run.messages)
    return f"lines: exact; dots: {runs} runs, ± 2 s.e.; dashed: Proposition 1"


def _draw_mean_squares(axes: Axes, settings: Sequence[Setting]) -> None:
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
    settings = experiments(runs, seed)
    gaussian = [setting for setting in settings if setting.law == "gaussian"]
    laplace = [setting for setting in settings if setting.law == "laplace"]
    drawn: dict[str, Callable[[], Figure]] = {
        "consensus_figure_4": figure_4,
        "consensus_figure_5": lambda: figure_5(settings[0]),
        "consensus_figure_6": lambda: figure_6(gaussian),
        "consensus_figure_7": lambda: figure_7(laplace),
        "consensus_readouts": lambda: readouts([gaussian[3], laplace[0]]),
        "consensus_large": lambda: large_network(converging(agents, seed)),
    }
    return write_figures(out, drawn)
