"""The noise that a loop file asks for, designed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.control.loop.loop_file import LoopFile


def design_loop(read: LoopFile, epsilon: float | None, delta: float | None) -> Any:
    """Design the noise that a loop file asks for.

    Parameters
    ----------
    read : LoopFile
        What the file says.
    epsilon, delta : float or None
        Instead of the file's.

    Returns
    -------
    TrajectoryMechanism or StationaryMechanism
    """
    from affinedp.cli.problems import check_promise
    from affinedp.control.stationary.design import design_input_noise
    from affinedp.control.stationary.output_noise import design_output_noise

    epsilon = read.epsilon if epsilon is None else epsilon
    delta = read.delta if delta is None else delta
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    check_promise(epsilon, delta or 0.0)
    if not delta:
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    cost = read.loop if read.cost == "tracking" else None
    if read.neighbours == "input":
        return design_input_noise(
            read.private, epsilon, delta, mu=read.mu, window=read.window, cost=cost
        )
    return design_output_noise(
        read.dynamics,
        read.horizon,
        epsilon,
        delta,
        mu=read.mu,
        neighbours=read.neighbours,
        cost=cost,
    )
