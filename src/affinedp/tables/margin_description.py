"""What was said about margins: attributes, places, the promise; and the noise designed for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.designs.problem import checked_releases
from affinedp.errors import AffineDPError
from affinedp.laws.named import LawName
from affinedp.mechanism import Mechanism
from affinedp.privacy.guarantee import Guarantee
from affinedp.strategies.margins import OfMargins
from affinedp.strategies.places import OfPlaces
from affinedp.tables.description import choice, counted_less_often, number
from affinedp.tables.places import EVERYWHERE, Places, places_of
from affinedp.tables.refusals import closest, declared

PUBLISHED = ("count", "lower", "upper")


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginDescription:
    """The record alone; :class:`~affinedp.tables.MarginRelease` says what every field means."""

    attributes: Mapping[str, Sequence[Any]]
    epsilon: float
    delta: float = 0.0
    margins: str | int | Sequence[Sequence[str]] = "<=2"
    hierarchy: Sequence[str] | None = None
    places: Any = None
    law: LawName | None = None
    neighbours: Literal["person", "replace", "swaps"] = "person"
    household: int = 1
    at_most: int | None = None
    releases: int = 1
    weights: Mapping[str, float] | Literal["levels"] | None = None
    goal: Literal["sum", "largest"] = "sum"
    round_to: int | None = None
    nonnegative: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.attributes, Mapping) or not self.attributes:
            raise AffineDPError("attributes must be given as a mapping from names to labels")
        for name, labels in self.attributes.items():
            declared(labels, name)
            if isinstance(labels, str) or len(list(labels)) < 2:
                raise AffineDPError(f"attribute {name!r} needs at least two labels: leave it out")
            if len(set(labels)) < len(list(labels)):
                raise AffineDPError(f"attribute {name!r} names a label twice")
        if not 0 < number(self.epsilon, "epsilon") < math.inf:
            raise AffineDPError(f"epsilon must be positive, not {self.epsilon!r}")
        if not 0 <= number(self.delta, "delta") < 1:
            raise AffineDPError(f"delta must lie in [0, 1), not {self.delta!r}")
        choice(self.law, "law", (None, "gaussian", "laplace"))
        checked_releases(self.releases)
        if self.at_most is not None and (type(self.at_most) is not int or self.at_most < 1):
            raise AffineDPError(f"at_most must be a whole number of at least 1: {self.at_most!r}")
        if self.neighbours == "replace" and (self.at_most or 1) > 1:
            raise AffineDPError(counted_less_often(self.at_most))
        if self.round_to not in (None, 1):
            raise AffineDPError(f"margins are rounded to whole numbers: round_to={self.round_to!r}")
        self._check_places()
        taken = [name for name in PUBLISHED if name in (*self.attributes, *self.levels)]
        if taken:
            raise AffineDPError(f"{taken[0]!r} names published numbers: rename that column")

    def _check_places(self) -> None:
        if isinstance(self.hierarchy, str):
            raise AffineDPError("hierarchy must be a list of levels: write [...] around it")
        if self.hierarchy is not None and self.places is None:
            raise AffineDPError(
                "which places there are is published, so it cannot come from the data: give them "
                "in places, one row for each at the bottom of the hierarchy"
            )
        if self.places is None:
            if self.weights is not None:
                raise AffineDPError("weights are those of levels of places: give places, too")
            return
        if self.neighbours == "swaps":
            raise AffineDPError("neighbours='swaps' goes without places: name the place as an "
                                "attribute")  # fmt: skip
        if self.goal != "sum":
            raise AffineDPError("goal='largest' goes without places: weigh levels instead")
        both = [name for name in self.levels if name in self.attributes]
        if both:
            raise AffineDPError(f"{both[0]!r} is an attribute and a level of places")
        self.node_weights()

    @cached_property
    def tree(self) -> Places | None:
        """All places there are, if tables are made for places."""
        return None if self.places is None else places_of(self.places, self.hierarchy)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of places, from the top to the bottom."""
        return () if self.tree is None else self.tree.levels

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes, in their order."""
        return tuple(self.attributes)

    @property
    def whole(self) -> bool:
        """Whether whole numbers are published."""
        return self.round_to is not None or self.nonnegative

    def node_weights(self) -> FloatArray | None:
        """Return what squared error costs at every place."""
        if self.tree is None or self.weights is None:
            return None
        depth = self.tree.depth
        if self.weights == "levels":
            return np.asarray(1 / np.bincount(depth)[depth], dtype=float)
        if not isinstance(self.weights, Mapping):
            raise AffineDPError("weights must be numbers by level of places, or 'levels'")
        known = [EVERYWHERE, *self.tree.levels]
        each = np.ones(len(known))
        for name, value in self.weights.items():
            if name not in known:
                raise AffineDPError(
                    f"weights names {name!r}, which is no level of places{closest(name, known)}"
                )
            each[known.index(name)] = float(value)
        return np.asarray(each[depth])

    def numbers_of(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return attributes by number, in rising order.

        Parameters
        ----------
        names : iterable of str
            The attributes.
        """
        known = list(self.attributes)
        found = []
        for name in [names] if isinstance(names, str) else names:
            if name not in known:
                raise AffineDPError(f"there is no attribute {name!r}{closest(name, known)}")
            found.append(known.index(name))
        if len(set(found)) < len(found):
            raise AffineDPError("a margin names an attribute twice")
        return tuple(sorted(found))

    def words(self, chosen: Iterable[int]) -> str:
        """Return a margin in words.

        Parameters
        ----------
        chosen : iterable of int
            Its attributes.
        """
        return " × ".join(self.names[j] for j in chosen) or "everybody"


@dataclass(frozen=True, eq=False)
class DesignedMargins:
    """Noise for margins, with what it promises; nothing in it depends on private numbers.

    Attributes
    ----------
    description : MarginDescription
        What was asked for.
    mechanism : Mechanism
        The noise.
    """

    description: MarginDescription
    mechanism: Mechanism = field(repr=False)

    @property
    def strategy(self) -> OfMargins | OfPlaces:
        """What is measured, at one place or at all nodes of a tree."""
        strategy = self.mechanism.strategy
        assert isinstance(strategy, OfMargins | OfPlaces)
        return strategy

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.mechanism.guarantee

    @cached_property
    def wanted(self) -> list[tuple[int, ...]]:
        """All margins that are released, by the numbers of their attributes."""
        return list(self.strategy.margins)

    def cells(self, chosen: Iterable[int]) -> int:
        """Return how many cells a margin has at one place.

        Parameters
        ----------
        chosen : iterable of int
            Its attributes.
        """
        return math.prod(self.sizes[j] for j in chosen)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many labels every attribute has."""
        return tuple(len(list(labels)) for labels in self.description.attributes.values())

    def variances(self, chosen: tuple[int, ...]) -> FloatArray:
        """Return the variance of a cell of a margin at every place, before rounding.

        Parameters
        ----------
        chosen : tuple of int
            Its attributes.
        """
        strategy, law = self.strategy, self.mechanism.noise
        if isinstance(strategy, OfPlaces):
            return strategy.node_variances(law, chosen)
        return np.array([strategy.cell_variance(law, chosen)])

    def half_widths(self, chosen: tuple[int, ...], level: float, together: int) -> FloatArray:
        """Return how far a cell of a margin is from the truth at every place, before rounding.

        Parameters
        ----------
        chosen : tuple of int
            Its attributes.
        level : float
            With which probability.
        together : int
            How many numbers are to hold at once.
        """
        strategy, law = self.strategy, self.mechanism.noise
        outside = law.each(1 - level, together)
        if isinstance(strategy, OfPlaces):
            reach = strategy.node_reaches(law, chosen, outside)
        else:
            reach = np.array([strategy.cell_reach(law, chosen, outside)])
        return reach * self.mechanism.prepared().factor

    def accuracy(self, level: float) -> Any:
        """Return a DataFrame with one row per margin and level of places.

        Parameters
        ----------
        level : float
            Of the intervals.
        """
        import pandas

        tree = self.description.tree
        depth = np.zeros(1, dtype=np.int64) if tree is None else tree.depth
        names = ("",) if tree is None else (EVERYWHERE, *tree.levels)
        rows = []
        for place, where in enumerate(names):
            own = depth == place
            for chosen in self.wanted:
                count = int(own.sum()) * self.cells(chosen)
                noise = float(np.sqrt(self.variances(chosen)[own].mean()))
                one = float(self.half_widths(chosen, level, 1)[own].max())
                every = float(self.half_widths(chosen, level, count)[own].max())
                words = self.description.words(chosen)
                label = words if tree is None else f"{where}: {words}"
                rows.append((label, count, noise, one, every))
        columns = ["level", "numbers", "noise", "half_width", "all_at_once"]
        return pandas.DataFrame(rows, columns=columns).set_index("level")
