"""Publish without leaking through floating point.

The coordinates ``z = measure(x)`` are computed exactly, on a fixed grid; integer noise is added
exactly; and what is published is a function of public quantities and the noisy integers alone.
docs/explanation/floating-point.md gives the argument step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.budget.ledger import Ledger, Rows, charged_releases, checked_ledger, paying
from affinedp.domains.base import Counts
from affinedp.domains.reading import held
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.exact.numbers import rounded_up
from affinedp.laws.base import Sampler
from affinedp.laws.sampler.noise import checked_sampler, drawn_integers
from affinedp.laws.sampler.opendp import by_opendp
from affinedp.laws.sampler.words import Source, system_bytes
from affinedp.record import MechanismRecord
from affinedp.strategies.base import Prepared


def publish(
    mechanism: MechanismRecord,
    prepared: Prepared,
    x: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    rows: Rows | None = None,
    sampler: str = "bulk",
    source: Source = system_bytes,
) -> Any:
    """Publish the query of ``x`` with the mechanism's noise; see :meth:`Mechanism.release`."""
    checked_ledger(ledger)
    noise = sampler_of(mechanism, prepared, sampler)
    x = held(x)
    early = drawn(prepared, noise, _count(x), source) if prepared.draws_first else None
    data, wrap = mechanism.domain.read(x)
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
        added = drawn(prepared, noise, len(data), source) if early is None else early
        published = prepared.reconstruct(steps + added, shared)
    return wrap(published, mechanism.output_names)


@dataclass(frozen=True)
class MechanismRows:
    """Rows that a mechanism publishes, each with noise of its own: what a worker is sent."""

    # what is published, with which noise
    mechanism: MechanismRecord
    # the public part of its releases
    prepared: Prepared

    def check(self, frame: Any) -> Any:
        """Refuse rows that cannot be released, and return them with zeros in place of numbers."""
        names = self.mechanism.output_names
        data, wrap = self.mechanism.domain.read(frame)
        self.prepared.check(data)
        self.prepared.steps(data)
        return wrap(np.zeros((len(frame), len(names))), names)

    def publish(self, frame: Any, source: Source) -> Any:
        """Return rows with noise."""
        return publish(self.mechanism, self.prepared, frame, source=source)


def sampler_of(mechanism: MechanismRecord, prepared: Prepared, sampler: str = "bulk") -> Sampler:
    """Return what draws; noise that it does not know is refused, before any charge."""
    by = checked_sampler(sampler)
    noise = prepared.noise
    return noise if by == "bulk" else by_opendp(noise, mechanism.noise.words)


def drawn(prepared: Prepared, noise: Sampler, count: int, source: Source) -> NDArray[Any]:
    """Return noise for so many rows of data."""
    return drawn_integers(noise, (prepared.size, count), source, prepared.narrow)


def _count(x: Any) -> int:
    """How many rows data has, from its shape alone."""
    try:
        shape = np.shape(x)
    except ValueError:  # no array: refused when it is read
        return 1
    return int(shape[0]) if len(shape) == 2 else 1


def make_measurement(mechanism: MechanismRecord, prepared: Prepared) -> Any:
    """Return an OpenDP measurement; see :meth:`Mechanism.make_measurement`."""
    try:
        import opendp.prelude as opendp
    except ImportError:
        raise MissingExtraError("opendp", "opendp") from None
    size = getattr(mechanism.domain, "n", None)
    if size is None:
        raise AffineDPError(
            "an OpenDP measurement takes a list of numbers and gives one: release margins and "
            "trajectories here, and compose them with dp_event()"
        )
    # process-wide switches of OpenDP: the measurement is defined in Python
    opendp.enable_features("contrib", "honest-but-curious")
    counts = isinstance(mechanism.domain, Counts)
    atoms = opendp.atom_domain(T="i64") if counts else opendp.atom_domain(T=float, nan=False)
    sampler_of(mechanism, prepared)  # refused here, not when it is measured
    sensitivity = Fraction(mechanism.guarantee.sensitivity)
    gaussian = mechanism.law == "gaussian"

    def privacy_map(steps: float) -> float:
        if not 0 <= steps < math.inf:
            raise AffineDPError(f"a distance is a number of neighbour steps, not {steps!r}")
        # k neighbour steps are k times as far apart; where half a step costs as much as all of it
        # there are no parts of a step
        exact = Fraction(steps) if mechanism.noise.divisible else Fraction(math.ceil(steps))
        distance = exact * sensitivity
        return rounded_up(distance * distance / 2 if gaussian else distance)

    return opendp.m.make_user_measurement(
        input_domain=opendp.vector_domain(atoms, size=size),
        input_metric=opendp.user_distance(f"neighbour steps; {mechanism.guarantee.neighbours}"),
        output_measure=opendp.zero_concentrated_divergence()
        if gaussian
        else opendp.max_divergence(),
        function=lambda x: publish(mechanism, prepared, x).tolist(),
        privacy_map=privacy_map,
    )
