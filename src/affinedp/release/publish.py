"""Publish without leaking through floating point.

The coordinates ``z = measure(x)`` are computed exactly, on a fixed grid; integer noise is added
exactly; and what is published is a function of public quantities and the noisy integers alone.
docs/explanation/floating-point.md gives the argument step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.budget.ledger import Ledger, Rows, charged_releases, checked_ledger, paying
from affinedp.domains.reading import held
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.laplace import Geometric
from affinedp.laws.sampler import checked_sampler
from affinedp.laws.sampler.opendp import check_opendp_scale, opendp_integers
from affinedp.laws.sampler.words import Source, system_bytes
from affinedp.record import MechanismRecord
from affinedp.strategies.base import Drawer, Prepared, rounded_up


@dataclass(frozen=True)
class OwnDrawer:
    """affinedp's sampler; releases take the randomness of the operating system."""

    # gives random bytes
    source: Source = system_bytes

    def integers(self, law: Law, unit: int | Fraction, shape: tuple[int, int]) -> NDArray[Any]:
        """Return integers of a law with so many steps to its unit, exactly."""
        return law.draw(shape, unit, self.source)

    def narrow(self, law: Law, unit: int | Fraction, shape: tuple[int, int]) -> NDArray[Any]:
        """Return the same, in 64 bits where all of them fit."""
        sampler = law.sampler(unit)
        return getattr(sampler, "draw_narrow", sampler.draw)(shape, self.source)


class OpenDPDrawer:
    """OpenDP's sampler, the reference."""

    source = staticmethod(system_bytes)

    def integers(self, law: Law, unit: int | Fraction, shape: tuple[int, int]) -> NDArray[Any]:
        """Return integers of a law with so many steps to its unit, exactly."""
        if isinstance(law, Geometric):
            return opendp_integers("laplace", _float_above(unit / Fraction(law.rate)), shape)
        return opendp_integers(law.kind, unit, shape)

    narrow = integers


def _float_above(scale: Fraction) -> Fraction:
    """The least float that is not below: OpenDP takes floats, and more noise keeps the promise."""
    return Fraction(rounded_up(scale))


def publish(
    mechanism: MechanismRecord,
    prepared: Prepared,
    x: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    rows: Rows | None = None,
    drawer: Drawer | None = None,
) -> Any:
    """Publish the query of ``x`` with the mechanism's noise; see :meth:`Mechanism.release`."""
    drawer = drawer or OwnDrawer()
    checked_ledger(ledger)
    x = held(x)
    early = prepared.draw(_count(x), drawer) if prepared.draws_first else None
    data, wrap = read_data(mechanism, x)
    prepared.check(data)
    steps, shared = prepared.steps(data), prepared.shared(data)
    if early is not None and early.shape != steps.shape:
        # one draw for several rows would tell how they differ
        raise AffineDPError("the data changed its shape while it was read: give an array")
    releases = 1
    if ledger is not None or rows is not None:
        releases = charged_releases(len(data), rows)
    key = mechanism.fingerprint
    with paying(ledger, mechanism.guarantee, fingerprint=key, label=label, releases=releases):
        noise = prepared.draw(len(data), drawer) if early is None else early
        published = prepared.reconstruct(steps + noise, shared)
    return wrap(published)


@dataclass(frozen=True)
class MechanismRows:
    """Rows that a mechanism publishes, each with noise of its own: what a worker is sent."""

    # what is published, with which noise
    mechanism: MechanismRecord
    # the public part of its releases
    prepared: Prepared

    def check(self, frame: Any) -> Any:
        """Refuse rows that cannot be released, and return them with zeros in place of numbers."""
        data, wrap = read_data(self.mechanism, frame)
        self.prepared.check(data)
        self.prepared.steps(data)
        return wrap(np.zeros((len(frame), len(self.mechanism.output_names))))

    def publish(self, frame: Any, drawer: Drawer) -> Any:
        """Return rows with noise."""
        return publish(self.mechanism, self.prepared, frame, drawer=drawer)


def drawer_of(prepared: Prepared, sampler: str) -> Drawer:
    """Return who draws; a sampler that does not know the noise is refused before any charge."""
    if checked_sampler(sampler) == "bulk":
        return OwnDrawer()
    unit = getattr(prepared, "unit", None)
    if unit is None:
        raise AffineDPError(
            "OpenDP has no sampler for K-norm noise: leave out sampler, or design noise with "
            "law='gaussian' or 'laplace'"
        )
    check_opendp_scale(unit)
    return OpenDPDrawer()


def _count(x: Any) -> int:
    """How many rows data has, from its shape alone."""
    try:
        shape = np.shape(x)
    except ValueError:  # no array: refused when it is read
        return 1
    return int(shape[0]) if len(shape) == 2 else 1


def read_data(mechanism: MechanismRecord, x: Any) -> tuple[FloatArray, Any]:
    """Return data as rows, and how to hand outputs back in its form; refuse what is no data."""
    data, wrap = mechanism.domain.read(x)
    return data, lambda y: wrap(y, mechanism.output_names)
