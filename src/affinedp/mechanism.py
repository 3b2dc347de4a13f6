"""A mechanism: the record of query, noise and promise, and what people do with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from affinedp.arrays import Matrix
from affinedp.budget.charges import Rows
from affinedp.budget.ledger import Ledger
from affinedp.errors import AffineDPError
from affinedp.feedback.steps import ReleaseInSteps
from affinedp.files.mechanisms import load_mechanism, save_mechanism
from affinedp.intervals import Interval, interval_of
from affinedp.laws.named import LawName, law_named
from affinedp.laws.sampler import Sampler
from affinedp.laws.staircase import Staircase
from affinedp.neighbours.adjacency import Adjacency
from affinedp.promise.knorm import knorm_promise
from affinedp.promise.verification import promise_of
from affinedp.record import MechanismRecord
from affinedp.release.engines import in_parts, publish_rows_in_parts
from affinedp.release.interoperate import dp_event, make_measurement
from affinedp.release.knorm_plan import KNormPlan, knorm_plan
from affinedp.release.plan import Plan, checked_bound, plan_of
from affinedp.release.publish import publish
from affinedp.show.page import Report
from affinedp.show.plot import plot
from affinedp.show.report import report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Mechanism(MechanismRecord):
    """``F x + Λ η`` with ``Λ = basis @ root``, and its guarantee.

    Attributes
    ----------
    adjacency : Adjacency
        Whom the guarantee is about; it knows the manifold.
    query : matrix, shape (m, n)
        F.
    basis : matrix, shape (m, r)
        Independent vectors that span the noise; dense or sparse.
    root : matrix, shape (r, p)
        What makes noise of η; square, unless more noise is drawn and then projected.  For
        K-norm noise its columns are points of K, up to sign (see :mod:`affinedp.laws.knorm`).
    law : {"gaussian", "laplace", "knorm", "staircase"}
        Law of the p independent entries of η: N(0, 1) or L(0, 1), which has variance 2; or
        noise ``basis z`` with z of density ∝ exp(−rate ‖z‖_K), or of independent stairs.
    guarantee : Guarantee
        What is promised.
    output_names : tuple of str
        Names of the m outputs.
    gap : float or None
        Certified relative distance of the (weighted) error to the least possible; None where
        there is no certificate.
    notes : tuple of str
        What a reader should know about the design.
    certificate : array or None
        Weights that prove the guarantee where the circuits could not be listed.
    rate : float
        The rate of K-norm noise; 1 for the other laws.
    integers : bool
        K-norm noise for whole numbers: the columns of ``basis`` are a basis of the lattice of
        what F takes on the manifold's whole points, and z is whole.
    least : LeastPossible or None
        What no mechanism of any law with this promise can go below; None where it is not known.
    alternatives : tuple of Alternative
        The other laws that were compared, with their errors.
    """

    def release(
        self,
        x: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        rows: Rows | None = None,
        into: str | os.PathLike[str] | None = None,
        sampler: Sampler = "bulk",
    ) -> Any:
        """Publish ``F x`` with this noise: cryptographic randomness, safe in floating point.

        Each row of data gets noise of its own, and the guarantee holds for each row.  What all rows
        promise together depends on whom they are about: a secret that only one row is about keeps
        the guarantee of one row; for a secret that several rows are about they are several
        releases, whose costs add up.  Nothing here can know which, so a ledger asks for ``rows``.

        Data that is missing, malformed or off the manifold is refused; nothing is drawn or
        charged then.  That membership in the manifold is checked is public by assumption.

        Parameters
        ----------
        x : array_like, shape (n,) or (rows, n), or a Series or DataFrame
            The data; frames, of pandas or polars, are matched by name.  DataFrames of Dask and
            Spark, and :class:`~affinedp.Parts` of any other engine, are released where they are,
            part by part.  A lazy table of polars is read once, or part by part with ``into``.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger.
        bound : float, optional
            A public bound on |x|.  If given, neighbours whose records are off by the rounding of
            double precision are covered too.
        rows : {"same", "different"}, optional
            For several rows and a ledger, which is charged for each row if a change of the secret
            may move all of them (``"same"``), and once if it moves one row at most
            (``"different"``).
        into : str or Path, optional
            For tables in parts: a new folder that all workers share.  Each part is written there
            once, as a Parquet file, however often the engine runs it.
        sampler : {"bulk", "opendp"}
            Who draws: affinedp's own sampler, or OpenDP's, which is the reference and slower.
            Both have the same law; OpenDP's knows no K-norm noise.

        Returns
        -------
        The outputs, in the form of ``x``.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
        >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
        >>> y = m.release([30, 70, 100])
        >>> bool(abs(y[0] + y[1] - y[2]) < 1e-9)
        True
        """
        plan = self.release_plan(bound)
        if in_parts(x, into):
            return publish_rows_in_parts(
                self, plan, x, into=into, ledger=ledger, label=label, rows=rows, sampler=sampler
            )
        return publish(self, plan, x, ledger=ledger, label=label, rows=rows, sampler=sampler)

    def in_steps(
        self,
        steps: Sequence[Sequence[str]] | None = None,
        *,
        state: str | os.PathLike[str],
        ledger: Ledger | None = None,
        label: str | None = None,
        redraw: bool = False,
        moved: bool = False,
        bound: float | None = None,
    ) -> ReleaseInSteps:
        """Publish one data set step by step; what is published may decide later offsets.

        The paper's manifold with feedback, ``D x + b(Y) = 0``, for causal b: see
        docs/explanation/feedback.md.  One draw serves all steps, the ledger is charged once, and a
        crash loses nothing that was published.

        Parameters
        ----------
        steps : sequence of sequences of str, optional
            The names of the outputs of every step, each output once; one step for each output
            by default.
        state : str or Path
            The file of this release: created, for its owner only, if it does not exist, and locked
            while it is open.  It is secret.
        ledger : Ledger, optional
            Charged once, before the draw.  Without one nothing keeps count.
        label : str, optional
            What the ledger calls this release; by default the name of the file.
        redraw : bool
            Draw again if the state is lost or damaged: a second release, which a ledger must pay.
        moved : bool
            Take a state that was drawn under another path.  Say so only if no copy is in use.
        bound : float, optional
            A public bound on |x|, as for :meth:`release`.

        Returns
        -------
        ReleaseInSteps

        Examples
        --------
        A level that is moved by what was published about it: ``level1 = level0 + b0``.

        >>> import tempfile
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -1]], names=["level0", "level1"])
        >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
        >>> folder = tempfile.TemporaryDirectory()
        >>> with m.in_steps(state=f"{folder.name}/levels.db") as run:
        ...     (seen,) = run.send({"level0": 40.0})
        ...     move = -0.5 * seen                               # decided from what was published
        ...     (then,) = run.send(b={0: move})                  # level1 follows: it is not read
        >>> bool(abs(then - (seen + move)) < 1e-9)
        True
        """
        return ReleaseInSteps(
            self, steps, state=state, ledger=ledger, label=label, redraw=redraw, moved=moved,
            bound=bound,
        )  # fmt: skip

    def interval(
        self,
        y: Any,
        *,
        combination: Any = None,
        level: float = 0.95,
        simultaneous: bool = False,
        bound: float | None = None,
    ) -> Interval:
        """Return where the true outputs lie, or any linear function of them, given a release.

        The noise is public, so this costs no budget.  Each interval by itself is exact for
        Gaussian noise, and comes from the law and is never too short for Laplace, geometric and
        staircase noise, and for K-norm noise whose cones can be listed.  All at once: Šidák's for
        Gaussian noise, exact for numbers that share no noise.  Otherwise up to half a million
        releases are simulated, which takes some tenths of a second, and a rank of their errors is
        taken that is too small with a probability of 1e-6 at most (``how`` says which).

        Parameters
        ----------
        y : array_like, shape (m,) or (rows, m), or pandas Series or DataFrame
            What :meth:`release` returned.
        combination : mapping or array_like, shape (m,) or (k, m), optional
            Coefficients by output (or rows of them); every output by itself if left out.
        level : float
            With which probability, at least.
        simultaneous : bool
            Whether all numbers, of all rows, are to hold at once.
        bound : float, optional
            What was given to :meth:`release`: it makes the noise larger.

        Returns
        -------
        Interval
            ``low, high = m.interval(y)``.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold.from_equations(["women + men = all"])
        >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
        >>> y = m.release([30, 70, 100])
        >>> low, high = m.interval(y)
        >>> bool(((high - low) > 0).all())
        True
        >>> found = m.interval(y, combination={"women": 1, "men": -1})
        >>> print(round(float(found.high - found.low), 1))
        33.1
        """
        factor = getattr(self.release_plan(bound), "noise_factor", 1.0)
        return interval_of(self, y, combination, level, simultaneous, factor)

    def release_plan(self, bound: float | None = None) -> Plan | KNormPlan:
        """Return the public part of a release, prepared once for each bound.

        Parameters
        ----------
        bound : float, optional
            A public bound on the data, as for :meth:`release`.
        """
        limit = checked_bound(bound)
        if limit not in self._plans:
            make = plan_of if self.noise.size is None else knorm_plan
            self._plans[limit] = make(self, limit)
        return self._plans[limit]

    @cached_property
    def _plans(self) -> dict[float | None, Plan | KNormPlan]:
        return {}

    def make_measurement(self) -> Any:
        """Return an OpenDP measurement that releases with this mechanism.

        Its input distance is the number of neighbour steps between two data sets (d_in = 1:
        neighbours); its privacy map gives ρ of zCDP for Gaussian and ε for other noise.
        """
        return make_measurement(self, self.release_plan())

    def dp_event(self) -> Any:
        """Return the ``DpEvent`` of one release, for dp_accounting."""
        return dp_event(self)

    def stack(self, *others: Mechanism) -> Mechanism:
        """Return the mechanism that releases this and the others with independent noise.

        Its guarantee is exact, unlike ``compose`` of theirs: the same direction must be the
        worst for all of them at once.

        Parameters
        ----------
        *others : Mechanism
            With the same law and the same neighbours.
        """
        import scipy.sparse as sparse

        parts = (self, *others)
        for part in others:
            if part.law != self.law or part.adjacency.key != self.adjacency.key:
                raise AffineDPError(
                    "only mechanisms with the same law and the same neighbours are stacked; use "
                    "compose for their guarantees"
                )
            if isinstance(self.noise, Staircase) and part.rate != self.rate:
                raise AffineDPError("staircase noise is stacked with noise of the same ε only")
            if part.integers != self.integers:
                raise AffineDPError("noise for whole numbers is stacked with its like only")
        names = tuple(
            f"{name} ({i})" for i, part in enumerate(parts, 1) for name in part.output_names
        )
        return build(
            self.adjacency,
            sparse.csr_array(sparse.vstack([sparse.csr_array(part.query) for part in parts])),
            sparse.csr_array(sparse.block_diag([part.basis for part in parts])),
            # points of a body in units of the first rate, which are equal numbers for equal rates
            sparse.csr_array(
                sparse.block_diag([part.root * (self.rate / part.rate) for part in parts])
            ),
            self.law,
            names,
            rate=self.rate,
            integers=self.integers,
        )

    def save(self, path: str | Path) -> None:
        """Write the mechanism as JSON (see :mod:`affinedp.files.mechanisms`).

        Parameters
        ----------
        path : str or Path
            Where to; an existing file is replaced at once or not at all.
        """
        save_mechanism(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, reverify: bool = True) -> Mechanism:
        """Read a mechanism and verify its guarantee again.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` wrote.
        reverify : bool
            Compute the guarantee again from the noise.  If False the stored one is taken on
            trust and marked so.
        """
        return load_mechanism(cls, Path(path), reverify)

    def report(self) -> Report:
        """Return what people want to read, as text and as HTML."""
        return report(self)

    def plot(self) -> Figure:
        """Return a figure: the δ(ε) curve, the covariance, the noise per output."""
        return plot(self)

    def __str__(self) -> str:
        return str(self.report())

    def _repr_html_(self) -> str:
        return self.report().html()


def build(
    adjacency: Adjacency,
    query: Matrix,
    basis: Matrix,
    root: Matrix,
    law: LawName,
    output_names: Sequence[str],
    **others: Any,
) -> Mechanism:
    """Return the mechanism with the guarantee that its noise really has.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the guarantee is about.
    query, basis, root : matrices
        F, and Λ as ``basis @ root``; for K-norm noise points of its body in place of a root.
    law : {"gaussian", "laplace", "knorm", "staircase"}
        Law of the noise.
    output_names : sequence of str
        Names of the outputs.
    **others
        Further fields of :class:`Mechanism`.
    """
    names = tuple(output_names)
    noise = law_named(law).of_root(root, others.get("rate", 1.0), others.get("integers", False))
    if noise.size is not None:
        guarantee = knorm_promise(adjacency, query, basis, noise, names)
    else:
        guarantee = promise_of(adjacency, basis @ root, query, law, names)
    return Mechanism(adjacency, query, basis, root, law, guarantee, names, **others)
