"""Noise of any strategy and law, scaled to a promise that is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from affinedp.arrays import Matrix, dense
from affinedp.designs.separate import NOTHING_TO_HIDE
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law, largest_kept
from affinedp.mechanism import Mechanism, build
from affinedp.neighbours.adjacency import Adjacency
from affinedp.strategies.base import Strategy
from affinedp.strategies.dense import Dense

# A factor that makes short numbers long.
LONGER = 1 + math.pi * 2.0**-30
# Moves up to which refused noise is made anew of them.
FEW_MOVES = 20_000
# Noise is scaled to what its own guarantee says up to this share.
CLOSE = 1e-7


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
    limit = law.limit(epsilon, delta)
    made = at_the_limit(Mechanism(adjacency, strategy, law), limit)
    if made.guarantee.epsilon(delta) < epsilon * (1 - CLOSE):
        # what is known of the moves makes the curve lower than that of the sensitivity alone

        def holds(sensitivity: float) -> bool:
            return scaled(made, limit / sensitivity).guarantee.epsilon(delta) <= epsilon

        made = scaled(made, limit / largest_kept(holds, limit, 2 * limit, CLOSE))
    return made.keeping(epsilon, delta)


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
        mechanism = scaled(mechanism, found / limit * (1 + 4e-15))
    if mechanism.guarantee.sensitivity <= limit:
        return mechanism
    raise AffineDPError(
        f"the noise could not be scaled to the promise (sensitivity {found!r} for {limit!r}): the "
        "problem is too ill-conditioned"
    )


def independent_noise(
    adjacency: Adjacency, query: Matrix, names: tuple[str, ...], law: str, limit: float
) -> Mechanism:
    """Return noise of one scale on every output, of that sensitivity: it obeys no equation."""
    import scipy.sparse as sparse

    found = adjacency.sensitivity(query, norm=2 if law == "gaussian" else 1)
    if found.upper == 0.0:
        raise AffineDPError(NOTHING_TO_HIDE)
    identity = sparse.csr_array(sparse.eye_array(query.shape[0]))
    made = build(
        adjacency, query, identity, identity * (found.upper / limit), law, names,
        notes=("independent noise of one scale on every output",),
    )  # fmt: skip
    return at_the_limit(made, limit)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to keep the promise."""

    mechanism: Mechanism  # the noise; its promise need not have been verified
    limit: float | None = None  # the sensitivity to scale it to; None where that was done
    name: str = ""  # what people call it, for standard practice
    # whether nothing better is known for such a problem, so that searches are left out
    settled: bool = False

    def made(self) -> Mechanism:
        """Return the mechanism with its promise verified, or refuse it."""
        if self.limit is None:
            return self.mechanism
        try:
            return at_the_limit(self.mechanism, self.limit)
        except AffineDPError as refusal:
            own = self.mechanism.strategy
            if not isinstance(own, Dense) or own.root is None or self.mechanism.proof is not None:
                raise
            try:
                return at_the_limit(_made_of_moves(self.mechanism, own), self.limit)
            except AffineDPError:
                raise refusal from None


def _made_of_moves(mechanism: Mechanism, own: Dense) -> Mechanism:
    """The same noise, made of moves themselves, as numbers of full length.

    A basis that was computed is off the moves by a rounding of its largest numbers, which is too
    much for moves in much smaller units.  And numbers that are short by chance, such as 0.6 and
    0.8, are read as they stand, which equations in full-length doubles are off by a rounding.
    """
    from scipy.linalg import lstsq, qr

    image = dense(own.query @ mechanism.adjacency.directions(FEW_MOVES))
    image = image[:, np.any(image, axis=0)]
    units = np.ldexp(1.0, np.frexp(np.abs(image).max(axis=1, initial=0.0))[1])
    rows = image / units[:, None]
    lengths = np.linalg.norm(rows, axis=0)
    chosen = qr(rows / lengths, mode="r", pivoting=True)[1][: own.basis.shape[1]]
    columns = rows[:, chosen] / lengths[chosen]
    turned = lstsq(columns, dense(own.basis) / units[:, None])[0] / lengths[chosen][:, None]
    root = turned @ dense(own.root)
    basis = image[:, chosen] * LONGER
    return replace(mechanism, strategy=replace(own, basis=basis, root=root / LONGER))


def scaled(mechanism: Mechanism, factor: float) -> Mechanism:
    """Return the same with noise that is larger by a factor."""
    law = mechanism.noise
    if law.whole or law.size is not None:
        return replace(mechanism, noise=law.at_rate(law.rate / factor))
    return replace(mechanism, strategy=mechanism.strategy.scaled(factor))
