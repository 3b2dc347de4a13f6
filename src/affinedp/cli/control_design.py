"""The noise that a loop file asks for, designed."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, cast

from affinedp.errors import AffineDPError

if TYPE_CHECKING:
    from affinedp.control.loop.loop_file import LoopFile


def design_loop(
    read: LoopFile, epsilon: float | None, delta: float | None, law: str = "auto"
) -> Any:
    """Design the noise that a loop file asks for.

    Parameters
    ----------
    read : LoopFile
        What the file says.
    epsilon, delta : float or None
        Instead of the file's.
    law : str
        The law, or the one of least cost; noise for all time is Gaussian.

    Returns
    -------
    TrajectoryMechanism or StationaryMechanism
    """
    from affinedp.cli.problems import check_promise
    from affinedp.control.loop.loop_file import UNSAID
    from affinedp.control.stationary.design import design_input_noise
    from affinedp.control.stationary.output_noise import design_output_noise
    from affinedp.promise.guarantee import keeping

    if read.neighbours is None:
        raise AffineDPError(UNSAID)
    epsilon = read.epsilon if epsilon is None else epsilon
    delta = read.delta if delta is None else delta
    if epsilon is None:
        raise AffineDPError("say which ε to keep: epsilon in [privacy], or --epsilon")
    check_promise(epsilon, delta or 0.0)
    cost = read.loop if read.cost == "tracking" else None
    fresh = read.neighbours in ("input", "forward")
    if law not in ("auto", "gaussian", "laplace", "knorm"):
        raise AffineDPError(f"law must be one of auto, gaussian, laplace, knorm, not {law!r}")
    if fresh and law not in ("auto", "gaussian"):
        raise AffineDPError(f"noise for neighbours = {read.neighbours!r} is Gaussian, not {law}")
    if not delta and (fresh or law == "gaussian"):
        raise AffineDPError("Gaussian noise needs δ > 0: delta in [privacy], or --delta")
    if read.neighbours == "input":
        assert delta is not None
        return design_input_noise(
            read.private,
            epsilon,
            delta,
            mu=read.mu,
            window=read.window,
            cost=cost,
            horizon=read.horizon,  # a stable plant does without
        )

    def designed(chosen: str) -> Any:
        return design_output_noise(
            read.dynamics,
            read.horizon,
            epsilon,
            delta if chosen in ("auto", "gaussian") and delta else 0.0,
            mu=read.mu,
            neighbours=cast(Any, read.neighbours),  # the file decides which overload it is
            cost=cost,
            law=cast(Literal["auto", "laplace", "knorm"], chosen),
        )

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = designed("gaussian" if fresh else law)
    if law == "auto" and found.law == "laplace":
        # a gateway cannot send Laplace noise; K-norm noise is as pure, and costs nearly the same
        found = designed("knorm")
    else:
        for warning in said:
            warnings.warn(warning.message, stacklevel=2)
    # pure noise keeps more; the report still begins with what was asked for
    return keeping(found, epsilon, delta or 0.0)
