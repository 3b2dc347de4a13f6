"""A block of python-control that adds given noise to its input."""

from __future__ import annotations

from typing import Any

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, MissingExtraError


def noise_block(noise: FloatArray, names: tuple[str, ...], dt: float | bool = True) -> Any:
    """Return a discrete-time block that adds noise fixed up front to its input.

    Parameters
    ----------
    noise : array, shape (horizon, outputs)
        What is added, by time step.
    names : tuple of str
        What the inputs are called; the outputs get ``hat`` after it.
    dt : float or True
        Sampling time; True leaves it open.
    """
    try:
        import control
    except ImportError:
        raise MissingExtraError("control", "control") from None
    step = 1.0 if dt is True else float(dt)

    def add(t: float, x: Any, u: Any, params: Any) -> Any:
        index = round(t / step)
        if not 0 <= index < len(noise):
            raise AffineDPError(
                f"the noise ends after {len(noise)} steps; time {t:g} is past the horizon"
            )
        return u + noise[index]

    return control.NonlinearIOSystem(
        None, add, inputs=list(names), outputs=[f"{name}hat" for name in names], dt=dt,
        name="private_outputs",
    )  # fmt: skip
