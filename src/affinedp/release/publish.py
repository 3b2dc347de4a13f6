"""Publish without leaking through floating point.

The coordinates ``z = Λ⁺F (x − x_p)`` are computed exactly, on a fixed grid; integer noise
is added exactly; and what is published, ``F x_p + Λ z̃``, is a function of public quantities and
the noisy integers alone.  docs/explanation/floating-point.md gives the argument step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.budget.charges import Rows, charged_releases
from affinedp.budget.confirming import confirm
from affinedp.budget.ledger import Ledger
from affinedp.domains.reading import held, read_rows
from affinedp.errors import AffineDPError
from affinedp.exact.rational import BigIntegers
from affinedp.laws.sampler import Sampler, checked_sampler, draw_integers
from affinedp.laws.sampler.opendp import check_opendp_scale, opendp_integers
from affinedp.record import MechanismRecord
from affinedp.release.knorm_plan import KNormPlan
from affinedp.release.plan import Plan


def publish(
    mechanism: MechanismRecord,
    plan: Plan | KNormPlan,
    x: Any,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    rows: Rows | None = None,
    sampler: Sampler = "bulk",
) -> Any:
    """Publish the query of ``x`` with the mechanism's noise; see :meth:`Mechanism.release`.

    Parameters
    ----------
    mechanism : MechanismRecord
        What is published, with which noise.
    plan : Plan or KNormPlan
        The public part of its releases.
    x : array_like or pandas object
        The data.
    ledger : Ledger, optional
        Charged before any noise is drawn.
    label : str, optional
        For the ledger.
    rows : {"same", "different"}, optional
        Whom the rows are about; needed for several rows and a ledger.
    sampler : {"bulk", "opendp"}
        Who draws.
    """
    check_sampler(plan, sampler)
    if ledger is not None and not hasattr(ledger, "charge"):
        raise AffineDPError(
            f"ledger must be a Ledger, not {type(ledger).__name__}: open it with "
            "affinedp.Ledger(path)"
        )
    x = held(x)
    early = None
    if isinstance(plan, KNormPlan):
        # how long it takes to draw tells about it: it is there before data is looked at
        early = plan.draw(_count(x))
    points, wrap = read_points(mechanism, x)
    steps, shared = sound_steps(mechanism, plan, points)
    if early is not None and early.shape != steps.shape:
        # one draw for several rows would tell how they differ
        raise AffineDPError("the data changed its shape while it was read: give an array")
    releases = 1
    if ledger is not None or rows is not None:
        releases = charged_releases(len(points), rows)
    entry = None
    if ledger is not None:
        entry = ledger.charge(
            mechanism.guarantee,
            fingerprint=mechanism.fingerprint,
            label=label,
            releases=releases,
        )
    if isinstance(plan, KNormPlan):
        noisy = steps + early
    elif sampler == "opendp":
        noisy = steps + opendp_integers(plan.law, plan.scale, steps.shape)
    else:
        noisy = steps + draw_integers(plan.law, plan.scale, steps.shape)
    published = shared + plan.publish(noisy)
    confirm(ledger, entry)
    return wrap(published)


def read_points(mechanism: MechanismRecord, x: Any) -> tuple[FloatArray, Any]:
    """Return data as rows, and how to hand outputs back in the same form."""
    rows, wrap = read_rows(mechanism.manifold.names, x)
    return rows, lambda y: wrap(y, mechanism.output_names)


@dataclass(frozen=True)
class MechanismRows:
    """Rows that a mechanism publishes, each with noise of its own: what a worker is sent.

    Attributes
    ----------
    mechanism : MechanismRecord
        What is published, with which noise.
    plan : Plan or KNormPlan
        The public part of its releases.
    sampler : {"bulk", "opendp"}
        Who draws.
    """

    mechanism: MechanismRecord
    plan: Plan | KNormPlan
    sampler: Sampler = "bulk"

    def check(self, frame: Any) -> Any:
        """Refuse rows that cannot be released, and return them with zeros in place of numbers.

        Parameters
        ----------
        frame : pandas DataFrame
            Some rows.
        """
        check_sampler(self.plan, self.sampler)
        points, wrap = read_points(self.mechanism, frame)
        sound_steps(self.mechanism, self.plan, points)
        return wrap(np.zeros((len(frame), len(self.mechanism.output_names))))

    def publish(self, frame: Any) -> Any:
        """Return rows with noise.

        Parameters
        ----------
        frame : pandas DataFrame
            Some rows.
        """
        return publish(self.mechanism, self.plan, frame, sampler=self.sampler)


def check_sampler(plan: Plan | KNormPlan, sampler: str) -> None:
    """Refuse a sampler that does not know the noise, before anything is charged.

    Parameters
    ----------
    plan : Plan or KNormPlan
        The public part of a release.
    sampler : str
        Its name.
    """
    if checked_sampler(sampler) == "bulk":
        return
    if isinstance(plan, KNormPlan):
        raise AffineDPError(
            "OpenDP has no sampler for K-norm noise: leave out sampler, or design noise with "
            "law='gaussian' or 'laplace'"
        )
    check_opendp_scale(plan.scale)


def _count(x: Any) -> int:
    """How many rows data has, from its shape alone."""
    try:
        shape = np.shape(x)
    except ValueError:  # no array: refused when it is read
        return 1
    return int(shape[0]) if len(shape) == 2 else 1


def sound_steps(
    mechanism: MechanismRecord, plan: Plan | KNormPlan, points: FloatArray
) -> tuple[BigIntegers, FloatArray]:
    """Return what noise is added to, and what gets none; refuse data that has no place there.

    Nothing that depends on the data is refused after this: it comes before the charge.

    Parameters
    ----------
    mechanism : MechanismRecord
        Its equations are asked.
    plan : Plan or KNormPlan
        The public part of its releases.
    points : array, shape (rows, n)
        The data.
    """
    check_points(mechanism, plan, points)
    return plan.grid_steps(points), plan.shared_outputs(points)


def check_points(mechanism: MechanismRecord, plan: Plan | KNormPlan, points: FloatArray) -> None:
    """Refuse data off the manifold, or beyond the declared bound.

    Parameters
    ----------
    mechanism : MechanismRecord
        Its equations are asked.
    plan : Plan or KNormPlan
        The public part of its releases.
    points : array, shape (rows, n)
        The data.
    """
    if points.shape[0] == 0:
        raise AffineDPError("there are no rows to release")
    if plan.bound is not None and np.abs(points).max() > plan.bound:
        raise AffineDPError("some entry of x is larger than the declared bound")
    if np.abs(points).max(initial=0.0) > plan.largest:
        raise AffineDPError(
            f"some entry of x is beyond {plan.largest:.1e}, up to which data is released exactly "
            "with this noise. Nothing was released; change the units, or release fewer "
            "combinations at once"
        )
    mechanism.manifold.check(points)
