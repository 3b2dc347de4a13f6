"""Noise of the pure laws for one problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from affinedp.arrays import FloatArray, Matrix
from affinedp.designs.knorm import MOST_COMPARED, STARTS, least_knorm
from affinedp.designs.laplace import along_the_moves, design_laplace
from affinedp.designs.problem import Problem
from affinedp.designs.separate import checked_weights
from affinedp.designs.staircase import NoStairsError, least_staircase
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.privacy.least_possible import Alternative

FEW_STARTS = 4
FEW_BODIES = 2
FEW = "searched from few starts; effort='thorough' searches longer"
# How long searches that are not convex go on.
Effort = Literal["quick", "default", "thorough"]


@dataclass(frozen=True, eq=False)
class PureDesigns:
    """Designs of pure laws; Laplace strategies are searched once, if at all.

    Attributes
    ----------
    problem : Problem
        What is to be designed.
    weights : array or matrix
        What squared error costs.
    seed : int or Generator
        For searches that start at random.
    searches_all : bool
        Whether Laplace strategies are searched in any number of dimensions.
    effort : {"quick", "default", "thorough"}
        From how many starts: one, few, or as many as agree.
    alone : bool
        Whether one law was asked for, which is searched from as many starts as agree.
    """

    problem: Problem
    weights: FloatArray | Matrix
    seed: int | np.random.Generator
    searches_all: bool = True
    effort: Effort = "default"
    alone: bool = True

    @cached_property
    def laplace(self) -> Mechanism:
        """Laplace noise."""
        problem, rank = self.problem, self.problem.adjacency.manifold.dim
        if not self.searches_all and rank > MOST_COMPARED:
            weights = checked_weights(self.weights, problem.query.shape[0])
            simple = along_the_moves(
                problem.adjacency, problem.query, problem.names, problem.pure_epsilon, weights
            )
            if simple is not None:
                return simple
            raise AffineDPError(
                f"Laplace strategies in {rank} dimensions are searched with law='laplace' only"
            )
        many = self.effort == "default" and rank <= MOST_COMPARED
        starts = None if self._full else FEW_STARTS if many else 1
        made = design_laplace(
            self.problem.adjacency.manifold, epsilon=self.problem.pure_epsilon,
            query=self.problem.query, adjacency=self.problem.adjacency, weights=self.weights,
            seed=self.seed, starts=starts,
        )  # fmt: skip
        names = self.problem.names  # which a query that is a matrix does not carry
        notes = made.notes if self._full else (*made.notes, FEW)
        return made.with_names(names).with_design(notes=notes)

    @property
    def _full(self) -> bool:
        """Whether searches start as often as they have to to agree."""
        return self.effort == "thorough" or (self.alone and self.effort == "default")

    def knorm(self) -> Mechanism:
        """Return K-norm noise."""
        problem = self.problem
        weights = checked_weights(self.weights, problem.query.shape[0])
        return least_knorm(
            problem.adjacency, problem.query, problem.names, problem.pure_epsilon, weights,
            lambda: self.laplace, integers=problem.integers, seed=self.seed,
            starts=STARTS if self._full else FEW_BODIES if self.effort == "default" else 0,
        ).mechanism  # fmt: skip

    def staircase(self) -> Mechanism:
        """Return staircase noise."""
        problem = self.problem
        return least_staircase(
            problem.adjacency, problem.query, problem.names, problem.pure_epsilon,
            checked_weights(self.weights, problem.query.shape[0]), integers=problem.integers,
        )  # fmt: skip

    def add(
        self,
        laws: Sequence[str],
        designed: list[tuple[str, Mechanism]],
        below: float,
        alone: bool,
    ) -> list[Alternative]:
        """Add the designs of these laws, and say which could not be made.

        Parameters
        ----------
        laws : sequence of str
            Pure laws.
        designed : list of (str, Mechanism)
            What there is already; designs are added to it, without a name.
        below : float
            What no pure law can go below.
        alone : bool
            Whether one law was asked for, which then must be made.
        """
        skipped = []
        makers: dict[str, Callable[[], Mechanism]] = {
            "knorm": self.knorm,
            "staircase": self.staircase,
            "laplace": lambda: self.laplace,
        }
        for name in laws:
            if any(one.law == name and not own for own, one in designed):
                continue
            try:
                made = makers[name]()
            except NoStairsError:
                if alone:
                    raise
                continue
            except KeyboardInterrupt:
                if alone or not designed:
                    raise
                skipped.append(Alternative(name, below, False, "(not designed: interrupted)"))
                break
            except AffineDPError as error:
                if alone or (name == laws[-1] and not designed):
                    raise
                skipped.append(Alternative(name, below, False, f"(not designed: {error})"))
                continue
            designed.append(("", made))
            if made.law != name:
                skipped.append(Alternative(name, below, False, f"({made.notes[-1]})"))
        return skipped
