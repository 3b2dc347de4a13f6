"""The one builder of guarantees: what noise promises, for all neighbours, strategies and laws.

What is published is a function of ``measure(x) + η``.  Neighbours move ``measure(x)`` by
``measure(v)``, so the promise is the law's curve at the largest gauge of that over all moves v:
Theorems 1 to 4 of the paper, in which the measure is Λ⁺F on the manifold.
"""

from __future__ import annotations

import math
from typing import Any

from affinedp.arrays import within_range
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.curves import NoPromise
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.whole import Whole
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.base import Proof, Strategy, rounded_up


@within_range
def promise(
    adjacency: Adjacency, strategy: Strategy, law: Law, proof: Proof | None = None
) -> Guarantee:
    """Return what ``reconstruct(measure(x) + η)`` promises about these neighbours."""
    if strategy.domain is not adjacency.domain and strategy.domain.key != adjacency.domain.key:
        raise AffineDPError("the neighbours are about other data than the noise")
    if law.size is not None and law.size != strategy.coordinates:
        raise AffineDPError(
            f"{law.words} noise in {law.size} coordinates does not fit {strategy.coordinates}"
        )
    about = promised_about(adjacency, law)
    said: dict[str, Any] = {
        "law": law.kind,
        "neighbours": about.words,
        "neighbours_key": about.key,
        "unit": adjacency.unit,
        "names": adjacency.domain.names,
        "output_names": strategy.names,
    }
    found = (
        strategy.largest(adjacency, law)
        if proof is None
        else proof.largest(strategy, adjacency, law)
    )
    basis = law.theorem + found.because
    if found.leak is not None:
        return Guarantee(
            sensitivity=math.inf, exact=True, basis=basis, curve=NoPromise(), leak=found.leak,
            **said,
        )  # fmt: skip
    upper = rounded_up(found.upper)
    return Guarantee(
        sensitivity=upper,
        sensitivity_lower=max(0.0, min(float(found.lower), upper)),
        exact=found.exact,
        basis=basis,
        curve=law.curve(upper, found.moves),
        worst_direction=found.direction,
        method=found.method,
        warnings=found.warnings,
        **said,
    )


def promised_about(adjacency: Adjacency, law: Law) -> Adjacency:
    """Return whom a promise is about: whole neighbours only, if data is whole."""
    return Whole(adjacency) if law.whole and not adjacency.is_whole else adjacency
