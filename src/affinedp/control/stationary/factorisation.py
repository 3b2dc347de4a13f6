"""From a spectrum to causal filters: Wilson's factorisation, and Ho and Kalman's realisation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.exact.systems import ComplexArray, LinearSystem

MOST_ITERATIONS = 60
MOST_ROWS = 900


def impulse_response(spectrum: ComplexArray) -> FloatArray:
    """Return the taps of a causal filter with a causal inverse, by Wilson's iteration.

    Examples
    --------
    >>> z = np.exp(2j * np.pi * np.arange(512) / 512)[:, None, None]
    >>> impulse_response(abs(2 + z) ** 2 + 0j)[:3].ravel().round(9).tolist()
    [2.0, 1.0, 0.0]
    """
    points, p, _ = spectrum.shape
    start = np.linalg.cholesky(spectrum.mean(axis=0).real).astype(complex)
    factor: ComplexArray = np.array(np.broadcast_to(start, spectrum.shape))
    for _ in range(MOST_ITERATIONS):
        inverse = np.linalg.inv(factor)
        ratio = inverse @ spectrum @ inverse.conj().transpose(0, 2, 1) + np.eye(p)
        lags = np.fft.ifft(ratio, axis=0)  # entry k belongs to z^-k
        causal = np.zeros_like(lags)
        # half of lag 0 on each side, lower triangular, so that the factor stays unique
        causal[0] = np.tril(lags[0], -1) + np.diag(np.diagonal(lags[0])) / 2
        causal[1 : points // 2] = lags[1 : points // 2]
        new = factor @ np.fft.fft(causal, axis=0)
        change = float(np.abs(new - factor).max() / np.abs(new).max())
        factor = np.asarray(new)
        if change < 1e-12:
            break
    return np.asarray(np.fft.ifft(factor, axis=0).real[: points // 2])


def realisations(taps: FloatArray, most: int) -> Iterator[LinearSystem]:
    """Yield filters of order 1, 2, … whose impulse response is near to the taps."""
    p = taps.shape[1]
    rows = min(MOST_ROWS // p, (len(taps) - 1) // 2)
    places = np.arange(rows)
    blocks = taps[1 + places[:, None] + places]  # (rows, rows, p, p)
    hankel = blocks.transpose(0, 2, 1, 3).reshape(rows * p, rows * p)
    left, sizes, right = _leading(hankel, most)
    for order in range(1, min(most, len(sizes)) + 1):
        root = np.sqrt(sizes[:order])
        observed, reached = left[:, :order] * root, root[:, None] * right[:order]
        A: FloatArray = np.asarray(
            np.linalg.lstsq(observed[:-p], observed[p:], rcond=None)[0], dtype=np.float64
        )
        yield LinearSystem(A, reached[:, :p], observed[:p], taps[0])


def _leading(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The largest singular values and their vectors."""
    if len(matrix) <= 4 * count:
        return np.linalg.svd(matrix, full_matrices=False)
    # a fixed random start finds them to far more digits than a fit needs
    generator = np.random.default_rng(0)
    basis = np.linalg.qr(matrix @ generator.standard_normal((len(matrix), 2 * count + 10)))[0]
    for _ in range(3):
        basis = np.linalg.qr(matrix @ (matrix.T @ basis))[0]
    left, sizes, right = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    return basis @ left, sizes, right
