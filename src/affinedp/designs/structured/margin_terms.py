"""What an estimated cell is made of: coefficients of the noise on a measured margin.

The residual of block B takes ``share_B`` times the centred sum over the cells of the measured
margin that agree in B, so that a noisy cell has the coefficient
``Σ_B share_B Π_{j∈B} ([agrees in j] − 1/n_j)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from affinedp.arrays import FloatArray
from affinedp.designs.structured.contrasts import centred
from affinedp.designs.structured.integer_noise import Integers, whole_precisions
from affinedp.designs.structured.margin_blocks import Sets, cells_of, members, subsets
from affinedp.strategies.rounded_plan import GRID_BITS


def margin_terms(
    sizes: Sequence[int],
    precision: Mapping[int, float],
    measured: Sets,
    q: Integers,
    chosen: tuple[int, ...],
    combination: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return coefficients, rates y = q/2⁵⁶ and counts of the whole numbers in an estimate.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    precision : mapping
        From the blocks that carry noise to their precisions.
    measured, q : arrays of int
        The margins that get whole Laplace noise, and its scales.
    chosen : tuple of int
        The margin that is estimated.
    combination : array, optional
        One coefficient per cell of it; a single cell if it is left out.
    """
    A = sum(1 << j for j in chosen)
    factors, rates, times = [], [], []
    for C, scale, drawn in zip(measured.tolist(), q.tolist(), whole_precisions(q).tolist()):
        # what a block makes of the noise on margin C, spread over the cells of A
        share = {
            B: drawn / cells_of(sizes, C & ~B) / precision[B] / cells_of(sizes, A & ~B)
            for B in subsets(A & C)
            if B in precision
        }
        if combination is None:
            found, count = alike_terms(sizes, A & C, share)
        else:
            found = mixed_terms(sizes, chosen, np.asarray(combination, dtype=float), C, share)
            count = np.ones(len(found))
        factors.append(np.abs(found))
        rates.append(np.full(len(found), scale / 2.0**GRID_BITS))
        times.append(count * cells_of(sizes, C & ~A))
    return np.concatenate(factors), np.concatenate(rates), np.concatenate(times)


def alike_terms(
    sizes: Sequence[int], common: int, share: Mapping[int, float]
) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients for one cell, and how many cells of the common margin have each.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    common : int
        The attributes that both margins have, as bits.
    share : mapping
        From the blocks that carry noise to their shares.
    """
    scales, times = [], []
    for same in subsets(common):
        scale = 0.0
        for B, value in share.items():
            scale += value * math.prod(
                (1 if same >> j & 1 else 0) - 1 / sizes[j] for j in members(B)
            )
        scales.append(scale)
        times.append(float(math.prod(sizes[j] - 1 for j in members(common & ~same))))
    return np.array(scales), np.array(times)


def mixed_terms(
    sizes: Sequence[int],
    chosen: tuple[int, ...],
    combination: FloatArray,
    measured: int,
    share: Mapping[int, float],
) -> FloatArray:
    """Return the coefficients for a linear function of the cells of a margin.

    Parameters
    ----------
    sizes : sequence of int
        Values of every attribute.
    chosen : tuple of int
        The attributes of the margin.
    combination : array
        One coefficient per cell of it.
    measured : int
        The margin that has the noise, as bits.
    share : mapping
        From the blocks that carry noise to their shares.
    """
    axes = [j for j in chosen if measured >> j & 1]
    found = np.zeros([sizes[j] for j in axes])
    for B, value in share.items():
        out = tuple(i for i, j in enumerate(chosen) if not B >> j & 1)
        part = centred(combination.sum(axis=out))
        found += value * part.reshape([sizes[j] if B >> j & 1 else 1 for j in axes])
    return found.ravel()
