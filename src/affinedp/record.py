"""The plain record of a mechanism: query, noise, and what they promise together."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix, dense, is_sparse
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.outputs import output_equations
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.knorm import KNorm
from affinedp.laws.named import LawName, law_named
from affinedp.neighbours.adjacency import Adjacency
from affinedp.promise.guarantee import Guarantee
from affinedp.promise.least_possible import Alternative, LeastPossible, Objective
from affinedp.promise.one_sum import exchange_gauge
from affinedp.promise.shared import SharedPart, shared_combinations, shared_part

# Numbers in a matrix that is still put together on demand.
MOST_NUMBERS = 2e8


@dataclass(frozen=True, eq=False)
class MechanismRecord:
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

    adjacency: Adjacency
    query: Matrix = field(repr=False)
    basis: Matrix = field(repr=False)
    root: Matrix = field(repr=False)
    law: LawName
    guarantee: Guarantee
    output_names: tuple[str, ...] = field(repr=False)
    gap: float | None = None
    notes: tuple[str, ...] = ()
    certificate: FloatArray | None = field(default=None, repr=False)
    rate: float = 1.0
    integers: bool = False
    least: LeastPossible | None = field(default=None, repr=False)
    alternatives: tuple[Alternative, ...] = field(default=(), repr=False)
    _made_of: tuple[Any, ...] | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("query", "basis", "root"):
            # the promise is about these numbers; arrays of others stay theirs
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "rate", float(self.rate))  # its bits are in the fingerprint
        parts = (self.adjacency, self.query, self.basis, self.root, self.certificate)
        noise = (*parts, self.law, self.rate, self.integers)
        refuse_stale_promise(self._made_of, noise, self.guarantee, self.least)
        object.__setattr__(self, "_made_of", (noise, self.guarantee, self.least))

    @property
    def manifold(self) -> AffineManifold:
        """The public equations."""
        return self.adjacency.manifold

    @property
    def noise_matrix(self) -> Matrix:
        """Λ, shape (m, p); refused where it would not fit in memory.

        For K-norm noise its columns are points of the body, in units in which the rate is 1.
        """
        noise = self.noise
        root = noise.hull_points() / self.rate if isinstance(noise, KNorm) else self.root
        size = float(self.basis.shape[0]) * root.shape[1]
        if not is_sparse(self.basis) and size > MOST_NUMBERS:
            raise AffineDPError(
                f"the noise matrix would have {self.basis.shape[0]:,} × {root.shape[1]:,} "
                "numbers; use basis and root, or sample"
            )
        return self.basis @ root

    @property
    def noise_range(self) -> Matrix:
        """Vectors that span the noise, as columns: Λ, or fewer."""
        span = self.noise.span()
        return self.loadings if span is None else self.loadings @ span

    @cached_property
    def noise(self) -> Law:
        """The law of the noise in coordinates."""
        return law_named(self.law).of_root(self.root, self.rate, self.integers)

    @property
    def loadings(self) -> Matrix:
        """What makes outputs of the coordinates of the noise, shape (m, p)."""
        return self.noise_matrix if self.noise.size is None else self.basis

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the noise, shape (m, m); refused where it would not fit in memory."""
        return self.covariance_of(np.arange(self.basis.shape[0]))

    def covariance_of(self, shown: IntArray) -> FloatArray:
        """Return the covariance of the noise of some outputs.

        Parameters
        ----------
        shown : array of int
            Which.
        """
        outputs = len(shown)
        if float(outputs) ** 2 > MOST_NUMBERS:
            raise AffineDPError(
                f"the covariance would have {outputs:,} × {outputs:,} numbers; use basis and root, "
                "or expected_squared_errors for the variances alone"
            )
        return self.noise.covariance(self.loadings[shown])

    @property
    def expected_squared_errors(self) -> FloatArray:
        """Expected squared error of every output."""
        return self.noise.variances(self.loadings)

    @property
    def expected_squared_error(self) -> float:
        """Expected squared error of all outputs together."""
        return math.fsum(self.expected_squared_errors)

    @property
    def lower_bound(self) -> float | None:
        """Squared error (weighted as designed) that no mechanism of any law can go below.

        None where it is not known.  ``least.scope`` says which data it is about.
        """
        return self.least.bound if self.least and self.least.bound > 0.0 else None

    @property
    def excess(self) -> float | None:
        """How many times ``lower_bound`` this mechanism costs, rounded up; None without one."""
        return self.least.excess if self.least and self.least.bound > 0.0 else None

    @property
    def equations(self) -> tuple[str, ...]:
        """The equations that every release obeys, in the outputs' names.

        The noise lies in the range of F on the manifold, so releases obey what F x obeys.
        """
        basis = self.basis if self.noise.size is None else self.noise_range
        return output_equations(self.manifold, self.query, basis, self.output_names)

    @cached_property
    def publishes_whole_numbers(self) -> bool:
        """Whether all that is published is whole, whatever the data: noise and query are."""
        numbers = self.query.data if is_sparse(self.query) else self.query
        return self.integers and bool(np.all(numbers == np.rint(numbers)))

    @cached_property
    def shared_part(self) -> SharedPart | None:
        """What neighbours share and noise does not hide; None if noise hides everything."""
        if isinstance(self.noise, KNorm) and self._is_one_sum:
            return None
        return shared_part(self.adjacency, self.query, self.noise_range)

    @property
    def _is_one_sum(self) -> bool:
        """Whether this is noise under the one equation there is, on everything else."""
        return exchange_gauge(self.adjacency, self.query, self.basis, self.root) is not None

    @cached_property
    def published_without_noise(self) -> tuple[str, ...]:
        """Combinations of entries in which all neighbours agree, and that come out as they are.

        Empty where the noise hides everything that the query sees, which is the usual case.  It
        is not where neighbours move a part of the data only: given directions, or μ = 0 on
        entries that no equation ties to the others.
        """
        part = self.shared_part
        return () if part is None else shared_combinations(self.manifold, self.query, part)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides what is released: query, noise, law, neighbours."""
        digest = hashlib.sha256()
        bound = self.noise.size is not None
        parts = (self.basis, self.root) if bound else (self.noise_matrix,)
        for matrix in (self.query, *parts):
            if is_sparse(matrix) and math.prod(matrix.shape) > MOST_NUMBERS:
                whole = matrix.tocsr().sorted_indices()
                for numbers in (whole.indptr, whole.indices):
                    digest.update(np.asarray(numbers, dtype="<i8").tobytes())
                digest.update(whole.data.tobytes() + repr(matrix.shape).encode())
            else:
                digest.update(dense(matrix).tobytes() + repr(matrix.shape).encode())
        digest.update(f"{self.law} {self.adjacency.key}".encode())
        if bound:
            digest.update(f"{self.rate.hex()} {self.integers}".encode())
        digest.update(self.manifold.point.tobytes())
        return digest.hexdigest()

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
        law = self.noise
        if law.size is not None:
            return np.asarray((self.basis @ law.sample(generator, int(size), law.size).T).T)
        drawn = law.sample(generator, int(size), self.root.shape[1])
        return np.asarray((self.basis @ (self.root @ drawn.T)).T)


def _read_only(matrix: Matrix) -> Matrix:
    """The same numbers, which nobody can change through what is returned."""
    if isinstance(matrix, np.ndarray) and matrix.flags.writeable:
        matrix = matrix.view()
        matrix.flags.writeable = False
    return matrix


def refuse_stale_promise(
    before: tuple[Any, ...] | None,
    noise: tuple[Any, ...],
    guarantee: Guarantee,
    least: LeastPossible | None,
) -> None:
    """Refuse a copy with other noise that keeps what was said about the old one.

    Parameters
    ----------
    before : tuple or None
        What the original was made of: noise, guarantee and bound.
    noise : tuple
        What this one is made of.
    guarantee : Guarantee
        What it promises.
    least : LeastPossible or None
        What it is compared with.
    """
    if before is None or (guarantee is not before[1] and (least is None or least is not before[2])):
        return
    plain = (str, float, bool)
    same = (a == b if isinstance(a, plain) else a is b for a, b in zip(noise, before[0]))
    if not all(same):
        raise AffineDPError(
            "this guarantee (or bound) is about other noise or other neighbours: it cannot be kept "
            "when they are replaced. Design again, or ask verify what the new noise promises"
        )


def weighted_error(mechanism: MechanismRecord, weights: Matrix) -> float:
    """Return the expected squared error under weights.

    Parameters
    ----------
    mechanism : MechanismRecord
        The noise.
    weights : matrix, shape (m, m)
        What squared error costs.
    """
    import scipy.sparse as sparse

    rows, columns, costs = sparse.find(sparse.coo_array(weights))
    if np.array_equal(rows, columns):
        return float(costs @ mechanism.expected_squared_errors[rows])
    return float(costs @ mechanism.covariance[rows, columns])


def error_under(mechanism: MechanismRecord, weights: Matrix, objective: Objective) -> float:
    """Return what a bound is about: the weighted squared error, or the largest variance.

    Parameters
    ----------
    mechanism : MechanismRecord
        The noise.
    weights : matrix, shape (m, m)
        What squared error costs.
    objective : {"sum", "largest"}
        Which.
    """
    if objective == "sum":
        return weighted_error(mechanism, weights)
    return float(mechanism.expected_squared_errors.max())
