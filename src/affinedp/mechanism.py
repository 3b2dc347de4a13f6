"""The record of a mechanism: query, noise, and what they promise together."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray, Matrix, dense, is_sparse
from affinedp.equations.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.verification import Law, promise_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from affinedp.budget.ledger import Ledger
    from affinedp.release.publish import Plan
    from affinedp.show.report import Report

# Numbers in a matrix that is still put together on demand.
MOST_NUMBERS = 2e8


@dataclass(frozen=True, eq=False)
class Mechanism:
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
        What makes noise of η; square, unless more noise is drawn and then projected.
    law : {"gaussian", "laplace"}
        Law of the p independent entries of η: N(0, 1) or L(0, 1), which has variance 2.
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
    """

    adjacency: Adjacency
    query: Matrix = field(repr=False)
    basis: Matrix = field(repr=False)
    root: Matrix = field(repr=False)
    law: Law
    guarantee: Guarantee
    output_names: tuple[str, ...] = field(repr=False)
    gap: float | None = None
    notes: tuple[str, ...] = ()
    certificate: FloatArray | None = field(default=None, repr=False)

    @property
    def manifold(self) -> AffineManifold:
        """The public equations."""
        return self.adjacency.manifold

    @property
    def noise_matrix(self) -> Matrix:
        """Λ, shape (m, p); refused where it would not fit in memory."""
        size = float(self.basis.shape[0]) * self.root.shape[1]
        if not is_sparse(self.basis) and size > MOST_NUMBERS:
            raise AffineDPError(
                f"the noise matrix would have {self.basis.shape[0]:,} × {self.root.shape[1]:,} "
                "numbers; use basis and root, or sample"
            )
        return self.basis @ self.root

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the noise, shape (m, m); refused where it would not fit in memory."""
        outputs = self.basis.shape[0]
        if float(outputs) ** 2 > MOST_NUMBERS:
            raise AffineDPError(
                f"the covariance would have {outputs:,} × {outputs:,} numbers; use basis and root, "
                "or expected_squared_errors for the variances alone"
            )
        noise = self.noise_matrix
        return self.variance * dense(noise @ noise.T)

    @property
    def variance(self) -> float:
        """Variance of one entry of η: 1 for Gaussian, 2 for Laplace noise."""
        return 1.0 if self.law == "gaussian" else 2.0

    @property
    def expected_squared_errors(self) -> FloatArray:
        """Expected squared error of every output."""
        noise = self.noise_matrix
        squares = noise.multiply(noise) if is_sparse(noise) else noise * noise
        return self.variance * np.asarray(squares.sum(axis=1)).ravel()

    @property
    def expected_squared_error(self) -> float:
        """Expected squared error of all outputs together."""
        return math.fsum(self.expected_squared_errors)

    @property
    def equations(self) -> tuple[str, ...]:
        """The equations that every release obeys, in the outputs' names.

        The noise lies in the range of F on the manifold, so releases obey what F x obeys.
        """
        from affinedp.equations.outputs import output_equations

        return output_equations(self.manifold, self.query, self.basis, self.output_names)

    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> FloatArray:
        """Draw noise for simulation, shape (size, m).  Never publish data with it.

        NumPy's generator and floating-point sums are not safe to publish with: ``release``
        is.

        Parameters
        ----------
        size : int
            How many draws.
        seed : int, Generator or None
            Seed or generator; the same seed gives the same noise.

        Examples
        --------
        >>> import affinedp as adp
        >>> m = adp.iid_noise(adp.AffineManifold([[1, -1]]), law="laplace", epsilon=1.0)
        >>> m.sample(3, seed=0).shape
        (3, 2)
        """
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise AffineDPError(f"size must be a number of draws, not {size!r}")
        generator = np.random.default_rng(seed)
        shape = (int(size), self.root.shape[1])
        if self.law == "gaussian":
            drawn = generator.standard_normal(shape)
        else:
            drawn = generator.laplace(0.0, 1.0, shape)
        return np.asarray((self.basis @ (self.root @ drawn.T)).T)

    def release(
        self,
        x: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
    ) -> Any:
        """Publish ``F x`` with this noise: cryptographic randomness, safe in floating point.

        Each row of data gets noise of its own, and the guarantee holds for each row: rows are
        separate data sets, neighbours differ in one of them, and a ledger is charged once.  Rows
        that are about the same people are several releases: call this for each of them.

        Data that is missing, malformed or off the manifold is refused; nothing is drawn or
        charged then.  That membership in the manifold is checked is public by assumption.

        Parameters
        ----------
        x : array_like, shape (n,) or (rows, n), or pandas Series or DataFrame
            The data; pandas objects are matched by name.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger.
        bound : float, optional
            A public bound on |x|.  If given, neighbours whose records are off by the rounding of
            double precision are covered too.

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
        from affinedp.release.publish import release

        return release(self, x, ledger=ledger, label=label, bound=bound)

    def release_plan(self, bound: float | None = None) -> Plan:
        """Return the public part of a release, prepared once for each bound.

        Parameters
        ----------
        bound : float, optional
            A public bound on the data, as for :meth:`release`.
        """
        from affinedp.release.publish import plan_of

        if bound not in self._plans:
            self._plans[bound] = plan_of(self, bound)
        return self._plans[bound]

    @cached_property
    def _plans(self) -> dict[float | None, Plan]:
        return {}

    def make_measurement(self) -> Any:
        """Return an OpenDP measurement that releases with this mechanism.

        Its input distance is the number of neighbour steps between two data sets (d_in = 1:
        neighbours); its privacy map gives ρ of zCDP for Gaussian and ε for Laplace noise.
        """
        from affinedp.release.interoperate import make_measurement

        return make_measurement(self)

    def dp_event(self) -> Any:
        """Return the ``DpEvent`` of one release, for dp_accounting."""
        from affinedp.release.interoperate import dp_event

        return dp_event(self)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is released: query, noise, law, neighbours."""
        digest = hashlib.sha256()
        for matrix in (self.query, self.noise_matrix):
            digest.update(dense(matrix).tobytes() + repr(matrix.shape).encode())
        digest.update(f"{self.law} {self.adjacency.key}".encode())
        digest.update(self.manifold.point.tobytes())
        return digest.hexdigest()

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
        names = tuple(
            f"{name} ({i})" for i, part in enumerate(parts, 1) for name in part.output_names
        )
        return build(
            self.adjacency,
            sparse.csr_array(sparse.vstack([sparse.csr_array(part.query) for part in parts])),
            sparse.csr_array(sparse.block_diag([part.basis for part in parts])),
            sparse.csr_array(sparse.block_diag([part.root for part in parts])),
            self.law,
            names,
        )

    def save(self, path: str | Path) -> None:
        """Write the mechanism as JSON (see :mod:`affinedp.files.mechanisms`).

        Parameters
        ----------
        path : str or Path
            Where to; an existing file is replaced at once or not at all.
        """
        from affinedp.files.mechanisms import save_mechanism

        save_mechanism(self, Path(path))

    @staticmethod
    def load(path: str | Path, *, reverify: bool = True) -> Mechanism:
        """Read a mechanism and verify its guarantee again.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` wrote.
        reverify : bool
            Compute the guarantee again from the noise.  If False the stored one is taken on
            trust and marked so.
        """
        from affinedp.files.mechanisms import load_mechanism

        return load_mechanism(Path(path), reverify)

    def report(self) -> Report:
        """Return what people want to read, as text and as HTML."""
        from affinedp.show.report import report

        return report(self)

    def plot(self) -> Figure:
        """Return a figure: the δ(ε) curve, the covariance, the noise per output."""
        from affinedp.show.plot import plot

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
    law: Law,
    output_names: Sequence[str],
    **others: Any,
) -> Mechanism:
    """Return the mechanism with the guarantee that its noise really has.

    Parameters
    ----------
    adjacency : Adjacency
        Whom the guarantee is about.
    query, basis, root : matrices
        F, and Λ as ``basis @ root``.
    law : {"gaussian", "laplace"}
        Law of η.
    output_names : sequence of str
        Names of the outputs.
    **others
        Further fields of :class:`Mechanism`.
    """
    names = tuple(output_names)
    guarantee = promise_of(adjacency, basis @ root, query, law, names)
    return Mechanism(adjacency, query, basis, root, law, guarantee, names, **others)
