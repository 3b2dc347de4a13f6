"""Noise of any strategy and law, scaled to a promise that is asked for."""

from __future__ import annotations

import math
from dataclasses import replace

from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.base import Strategy


def fit(
    adjacency: Adjacency, strategy: Strategy, law: Law, *, epsilon: float, delta: float = 0.0
) -> Mechanism:
    """Return the mechanism of a strategy and a law, with as much noise as a promise takes.

    Nothing is optimised but the scale: what a structure or a law of one's own is used with.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the promise is about.
    strategy : Strategy
        What is measured, and made of it; the scale of its noise does not matter.
    law : Law
        Of the noise; one of whole numbers gets another rate.
    epsilon, delta : float
        The promise.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> import numpy as np
    >>> import affinedp as adp
    >>> from affinedp.laws.laplace import Laplace
    >>> from affinedp.strategies.dense import Dense
    >>> M = adp.AffineManifold([[1, -4]])                  # Example 1 of the paper
    >>> strategy = Dense(M, np.eye(2), [[4.0], [1.0]], M.names)
    >>> m = adp.fit(adp.CircuitAdjacency(M), strategy, Laplace(), epsilon=0.5)
    >>> m.noise_matrix.round(9).tolist()
    [[8.0], [2.0]]
    """
    mechanism = Mechanism(adjacency, strategy, law)
    return at_the_limit(mechanism, law.limit(epsilon, delta)).keeping(epsilon, delta)


def at_the_limit(mechanism: Mechanism, limit: float) -> Mechanism:
    """Scale the noise so that its verified sensitivity is at most, and nearly, ``limit``."""
    for _ in range(4):
        found = mechanism.guarantee.sensitivity
        if mechanism.guarantee.leak is not None or not 0 < found < math.inf:
            raise AffineDPError(
                "the noise that was designed does not cover the query in floating point; the "
                "problem is too ill-conditioned. Rescale the outputs"
            )
        if limit * (1 - 1e-9) <= found <= limit:
            return mechanism
        mechanism = _scaled(mechanism, found / limit * (1 + 4e-15))
    if mechanism.guarantee.sensitivity <= limit:
        return mechanism
    raise AffineDPError(
        f"the noise could not be scaled to the promise (sensitivity {found!r} for {limit!r}): the "
        "problem is too ill-conditioned"
    )


def _scaled(mechanism: Mechanism, factor: float) -> Mechanism:
    """The same with noise that is larger by a factor."""
    law = mechanism.noise
    if law.whole or law.size is not None:
        return replace(mechanism, noise=law.at_rate(law.rate / factor))
    return replace(mechanism, strategy=mechanism.strategy.scaled(factor))
