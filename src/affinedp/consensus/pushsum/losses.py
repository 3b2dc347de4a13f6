"""Which messages are lost: decided by public things or by chance, never by private values."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.consensus.pushsum.network import DirectedNetwork
from affinedp.errors import AffineDPError

Lost = NDArray[np.bool_]


def losses_of(
    given: Any, network: DirectedNetwork, seed: int | np.random.Generator | None = None
) -> Callable[[], Iterator[Lost]]:
    """Return a maker of the losses of round 0, 1, …: the same ones each time it is called.

    Parameters
    ----------
    given : None, float, bool array or callable
        Nothing is lost; every message is lost with this probability; rows of a (rounds, links)
        array, after which nothing is lost; or a function of the round.
    network : DirectedNetwork
        Its links are the columns.
    seed : int or Generator, optional
        For losses by chance.

    Examples
    --------
    >>> from affinedp.consensus.pushsum.network import directed_network_of
    >>> pair = directed_network_of([[0, 1], [1, 0]])
    >>> rounds = losses_of([[True, False]], pair)()
    >>> next(rounds).tolist(), next(rounds).tolist()
    ([True, False], [False, False])
    """
    links = network.links_count
    if given is None:
        return lambda: _repeat(np.zeros(links, dtype=np.bool_))
    if callable(given):
        return lambda: (_row(given(t), links, t) for t in _count())
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        chance = float(given)
        if not 0 <= chance < 1:
            raise AffineDPError(f"a message is lost with a probability in [0, 1), not {given!r}")
        entropy = np.random.default_rng(seed).integers(2**63)  # fixed here: every pass is the same
        return lambda: _by_chance(np.random.default_rng(entropy), chance, links)
    rows = np.asarray(given)
    if rows.dtype != np.bool_ or rows.ndim != 2 or rows.shape[1] != links:
        raise AffineDPError(
            f"lost must be a probability, a function of the round, or a bool array with one row "
            f"per round and one column for each of {links} links, not {rows.dtype} {rows.shape}"
        )
    return lambda: _rows_then_none(rows.copy())


def _count() -> Iterator[int]:
    t = 0
    while True:
        yield t
        t += 1


def _repeat(row: Lost) -> Iterator[Lost]:
    while True:
        yield row


def _by_chance(generator: np.random.Generator, chance: float, links: int) -> Iterator[Lost]:
    while True:
        yield generator.random(links) < chance


def _rows_then_none(rows: Lost) -> Iterator[Lost]:
    yield from rows
    yield from _repeat(np.zeros(rows.shape[1], dtype=np.bool_))


def _row(given: Any, links: int, t: int) -> Lost:
    row = np.asarray(given)
    if row.dtype != np.bool_ or row.shape != (links,):
        raise AffineDPError(f"the losses of round {t} must be {links} booleans, one for each link")
    return row
