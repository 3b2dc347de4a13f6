"""Checks of numbers, shapes, weights and noise that the files of this room share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import real_array
from affinedp.mechanism import Mechanism
from affinedp.parts import locked
from affinedp.strategies.causal import Causal
from affinedp.strategies.filter import Filter


def shaped(value: ArrayLike, shape: tuple[int | None, ...], name: str) -> FloatArray:
    """Return ``value`` as a read-only array of this shape (None: any length), or refuse it."""
    array = real_array(value, name)
    if array.ndim != len(shape) or any(w not in (None, g) for w, g in zip(shape, array.shape)):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise AffineDPError(f"{name} has shape {array.shape}, but must have shape ({wanted})")
    return locked(array)


def covariance(value: ArrayLike | None, name: str, size: int) -> FloatArray:
    """Return standard deviations (one, or a vector) or a covariance as a covariance matrix."""
    array = real_array(0.0 if value is None else value, name)
    if array.ndim < 2:
        if np.any(array < 0):
            raise AffineDPError(f"{name} must not be negative: it holds standard deviations")
        array = array**2
    return semidefinite(array, name, size)


def semidefinite(value: ArrayLike, name: str, size: int, tol: float = 1e-12) -> FloatArray:
    """Return a number, a diagonal or a matrix as a positive semidefinite matrix."""
    array = real_array(value, name)
    if array.ndim < 2:
        if array.ndim == 1 and array.shape != (size,):
            raise AffineDPError(f"{name} has {len(array)} entries, but must have {size}")
        if np.any(array < 0):
            raise AffineDPError(f"{name} must not be negative")
        return locked(np.diag(np.broadcast_to(array, (size,))))
    matrix = shaped(array, (size, size), name)
    if np.abs(matrix - matrix.T).max() > tol * np.abs(matrix).max():
        raise AffineDPError(f"{name} is not symmetric: pass (W + W.T) / 2")
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -tol * abs(values[-1]):
        raise AffineDPError(f"{name} is not positive semidefinite: it has eigenvalue {values[0]:g}")
    return locked((matrix + matrix.T) / 2)


def semidefinite_root(matrix: FloatArray) -> FloatArray:
    """Return R with ``RᵀR`` the given positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def causal(mechanism: Any) -> Causal:
    """Return the strategy of a mechanism that makes noise step by step, or refuse it."""
    if isinstance(mechanism, Mechanism) and isinstance(mechanism.strategy, Causal):
        return mechanism.strategy
    raise AffineDPError(
        "this needs noise on the outputs of a system, from design_output_noise, "
        "design_input_noise, independent_output_noise or verify_output_noise, not "
        f"{mechanism!r:.60}"
    )


def filter_of(mechanism: Mechanism) -> Filter:
    """Return the filter of stationary noise, or refuse other noise."""
    strategy = getattr(mechanism, "strategy", None)
    if not isinstance(strategy, Filter):
        raise AffineDPError(
            "the noise must be stationary (design_input_noise, or design_output_noise with "
            "adjacency='forward')"
        )
    return strategy
