"""A mechanism as plain parts: neighbours, a strategy, a law; its promise follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from affinedp.arrays import FloatArray, IntArray, Matrix
from affinedp.domains.manifold import output_equations
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import generator_of, real_array, whole_array
from affinedp.laws.base import Law
from affinedp.neighbours.adjacency import Adjacency
from affinedp.parts import Part, digest
from affinedp.privacy.design import Alternative, Design, LeastPossible, Objective
from affinedp.privacy.guarantee import Asked, Guarantee, promise
from affinedp.strategies.base import Prepared, Promised, Proof, Strategy
from affinedp.strategies.matrices import (
    MOST_NUMBERS,
    Matrices,
    SharedPart,
    shared_combinations,
    shared_part,
)

Kind = TypeVar("Kind", bound="MechanismRecord")


@dataclass(frozen=True, eq=False)
class MechanismRecord(Part):
    """``reconstruct(measure(x) + η)``: what is published, and what that promises.

    The guarantee is computed from the parts and never stored: a copy with other noise has its own.
    """

    kind = "mechanism record"
    adjacency: Adjacency
    strategy: Strategy
    noise: Law
    proof: Proof | None = field(default=None, repr=False)
    design: Design = field(default=Design(), repr=False)

    # -------------------------------------------------------------- what it is

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised, computed from neighbours, strategy and law."""
        found = promise(self.adjacency, self.strategy, self.noise, self.proof)
        return found.asked_for(self.design.asked)

    @property
    def law(self) -> str:
        """The law of the noise by name, such as ``"gaussian"``."""
        return self.noise.kind

    @property
    def domain(self) -> Any:
        """What data is, and which equations it obeys."""
        return self.adjacency.domain

    @property
    def manifold(self) -> Any:
        """The public equations."""
        return self.adjacency.domain

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        names: tuple[str, ...] = self.strategy.names
        return names

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that decides what is released: neighbours, strategy, law, offsets."""
        parts = (self.adjacency.key, self.strategy.key, self.noise.key)
        return digest(*parts, self.adjacency.domain.offset)

    def with_design(self: Kind, **changes: Any) -> Kind:
        """Return the same mechanism with something else said about its design.

        Parameters
        ----------
        **changes
            Fields of ``design``.
        """
        made = replace(self, design=replace(self.design, **changes))
        if "asked" not in changes and "guarantee" in self.__dict__:
            made.__dict__["guarantee"] = self.guarantee  # the parts are the same
        return made

    def with_names(self: Kind, names: Sequence[str]) -> Kind:
        """Return the same mechanism with other names for the outputs.

        Parameters
        ----------
        names : sequence of str
            One per output.
        """
        guarantee = self.guarantee.with_output_names(names)
        made = replace(self, strategy=replace(self.dense, names=guarantee.output_names))
        made.__dict__["guarantee"] = guarantee
        return made

    def keeping(self: Kind, epsilon: float, delta: float = 0.0, releases: int = 1) -> Kind:
        """Return the same mechanism that remembers what was asked for; refused if not kept.

        Parameters
        ----------
        epsilon, delta : float
            What was asked for.
        releases : int
            For how many releases like this one.
        """
        asked = Asked(float(epsilon), float(delta), releases)
        guarantee = self.guarantee.asked_for(asked)
        made = replace(self, design=replace(self.design, asked=asked))
        made.__dict__["guarantee"] = guarantee
        return made

    # -------------------------------------------------------------- how it was designed

    @property
    def gap(self) -> float | None:
        """Certified relative distance of the error to the least of this law, if it is known."""
        return self.design.gap

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the design."""
        return self.design.notes

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """What else was compared, with its error."""
        return self.design.alternatives

    @property
    def least(self) -> LeastPossible | None:
        """What no mechanism of any law with this promise can go below, if it is known."""
        return self.design.least

    @property
    def lower_bound(self) -> float | None:
        """Squared error that no mechanism of any law can go below; None where it is not known.

        It is about the error that was designed for, ``least.error``: under the weights, or the
        largest variance.  ``least.scope`` says which data it is about.
        """
        return self.least.bound if self.least and self.least.bound > 0.0 else None

    @property
    def excess(self) -> float | None:
        """How many times ``lower_bound`` the error ``least.error`` is, rounded up; None without.

        Both are under the weights of the design, ``expected_squared_error`` is not.
        """
        return self.least.excess if self.least and self.least.bound > 0.0 else None

    # -------------------------------------------------------------- how large the noise is

    @property
    def noise_matrix(self) -> Matrix:
        """Λ, shape (m, p); refused where it would not fit in memory.

        For K-norm noise its columns are points of the body, in units in which the rate is 1.
        """
        return self.noise.spread(self.strategy.loadings())

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the noise, shape (m, m); refused where it would not fit in memory."""
        return self.covariance_of(range(len(self.strategy.names)))

    def covariance_of(self, shown: Sequence[int] | IntArray) -> FloatArray:
        """Return the covariance of the noise of some outputs.

        Parameters
        ----------
        shown : array of int
            Which.
        """
        asked = len(shown) if isinstance(shown, Sequence) else np.size(shown)
        if float(asked) ** 2 > MOST_NUMBERS:  # before a range of so many is read
            raise AffineDPError(
                f"the covariance would have {asked:,} × {asked:,} numbers; use "
                "expected_squared_errors for the variances alone"
            )
        places, outputs = whole_array(shown, "shown"), len(self.strategy.names)
        if places.ndim != 1 or np.any((places < 0) | (places >= outputs)):
            raise AffineDPError(
                f"shown must be a list of places of outputs, from 0 to {outputs - 1}"
            )
        return self.noise.covariance(self.strategy.loadings()[places])

    @cached_property
    def expected_squared_errors(self) -> FloatArray:
        """Expected squared error of every output."""
        return self.strategy.variances(self.noise)

    @cached_property
    def expected_squared_error(self) -> float:
        """Expected squared error of all outputs together, each counted once.

        Weights of a design are left out: ``least.error`` is the error under them.
        """
        return self.strategy.total_variance(self.noise)

    def variance_of(self, combination: Any) -> float:
        """Return the variance of a linear function of the outputs.

        Parameters
        ----------
        combination : array_like, shape (m,), or mapping
            One coefficient per output; or coefficients by output, 0 where none are given.
        """
        if isinstance(combination, Mapping):
            combination = self.strategy.row(combination)
        row = real_array(combination, "combination", 1)[None]
        if row.shape[1] != len(self.strategy.names):
            raise AffineDPError(
                f"combination has {row.shape[1]} numbers for {len(self.strategy.names)} outputs"
            )
        return float(self.noise.variances(self.strategy.loadings(row))[0])

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
        """
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise AffineDPError(f"size must be a number of draws, not {size!r}")
        generator = generator_of(seed)
        drawn = self.noise.sample(generator, int(size), self.strategy.coordinates)
        return self.strategy.spread(drawn)

    # -------------------------------------------------------------- releases

    def prepared(self, bound: float | None = None) -> Prepared:
        """Return the public part of releases, made once for each bound.

        Parameters
        ----------
        bound : float, optional
            A public bound on |x|.
        """
        limit = checked_bound(bound)
        if limit not in self._prepared:
            guarantee = self.guarantee
            if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
                raise AffineDPError("this mechanism promises nothing; nothing is released with it")
            promised = Promised(guarantee.sensitivity, guarantee.curve, self.proof)
            plan = self.strategy.prepare(self.adjacency, self.noise, promised, limit)
            self._prepared[limit] = plan
        return self._prepared[limit]

    @cached_property
    def _prepared(self) -> dict[float | None, Prepared]:
        return {}

    # -------------------------------------------------------------- of matrices alone

    @property
    def dense(self) -> Matrices:
        """The strategy, which is one of matrices."""
        if not isinstance(self.strategy, Matrices):
            raise AffineDPError(f"{type(self.strategy).__name__} noise is not kept as matrices")
        return self.strategy

    @cached_property
    def shared_part(self) -> SharedPart | None:
        """What neighbours share and noise does not hide; None if noise hides everything."""
        return shared_part(self.dense, self.adjacency, self.noise)

    @property
    def equations(self) -> tuple[str, ...]:
        """The equations that every release obeys, in the outputs' names.

        The noise lies in the range of F on the manifold, so releases obey what F x obeys.
        """
        own = self.dense
        basis = own.basis if self.noise.size is None else own.range(self.noise)
        return output_equations(self.manifold, own.query, basis, self.output_names)

    @cached_property
    def publishes_whole_numbers(self) -> bool:
        """Whether all that is published is whole, whatever the data: noise and query are."""
        return self.noise.whole and self.dense.keeps_whole

    @cached_property
    def published_without_noise(self) -> tuple[str, ...]:
        """Combinations of entries in which all neighbours agree, and that come out as they are.

        Empty where the noise hides everything that the query sees, which is the usual case.  It
        is not where neighbours move a part of the data only: given directions, or μ = 0 on
        entries that no equation ties to the others.
        """
        part = self.shared_part
        return () if part is None else shared_combinations(self.manifold, self.dense.query, part)


def checked_bound(bound: float | None) -> float | None:
    """Return a public bound on the data as a positive number, or None."""
    if bound is None:
        return None
    limit = float(real_array(bound, "bound", 0))
    if not limit > 0:
        raise AffineDPError(f"bound must be positive, not {limit}")
    return limit


def weighted_error(mechanism: MechanismRecord, weights: Matrix) -> float:
    """Return the expected squared error under weights."""
    import scipy.sparse as sparse

    rows, columns, costs = sparse.find(sparse.coo_array(weights))
    if np.array_equal(rows, columns):
        return float(costs @ mechanism.expected_squared_errors[rows])
    return float(costs @ mechanism.covariance[rows, columns])


def error_under(mechanism: MechanismRecord, weights: Matrix, objective: Objective) -> float:
    """Return what a bound is about: the weighted squared error, or the largest variance."""
    if objective == "sum":
        return weighted_error(mechanism, weights)
    return float(mechanism.expected_squared_errors.max())
