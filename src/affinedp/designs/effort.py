"""How long searches that are not convex go on: steps are counted, so that results repeat."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from affinedp.errors import AffineDPError

Effort = Literal["quick", "default", "thorough"] | float
# Multiply-adds (about) of all searches, moves that are listed, and where noise is known in closed
# form, simplices of a hull, and from how many starts the same must be found for a search to end.
LIMITS: dict[str, tuple[float, int, int, int, int]] = {
    "quick": (5e7, 20_000, 5_000, 5_000, 2),
    "default": (1.2e9, 50_000, 50_000, 60_000, 4),
    "thorough": (3e10, 2_000_000, 2_000_000, 200_000, 1_000_000),
}
# From so many seconds on moves and hulls are those of a thorough search.
LONG = 20.0


class EffortSpentError(Exception):
    """The effort of a search is spent: what it has found so far is kept."""


@dataclass
class Budget:
    """What searches may still cost."""

    left: float  # Multiply-adds, about
    moves: int  # moves, few, simplices: how many are listed at most
    few: int
    simplices: int
    agreeing: int  # from how many starts the same must be found for a search to end
    deadline: float = math.inf  # when time is up, by the clock of ``time.monotonic``
    notes: list[str] = field(default_factory=list)  # what was not searched, for the report
    first: float = 0.0  # what the first answer may cost: the clock does not end that
    interrupted: bool = False  # whether somebody pressed Ctrl-C: nothing is searched from then on

    @classmethod
    def of(cls, effort: Any) -> Budget:
        """Return the budget of an effort, or refuse what is none."""
        if isinstance(effort, str) and effort in LIMITS:
            return cls(*LIMITS[effort])
        number = isinstance(effort, int | float) and not isinstance(effort, bool)
        if not number or not 0 < effort < math.inf:
            raise AffineDPError(
                "effort must be 'quick', 'default', 'thorough' or a number of seconds, not "
                f"{effort!r}"
            )
        made = cls(*LIMITS["thorough" if effort >= LONG else "default"])
        first, deadline = LIMITS["quick"][0], time.monotonic() + effort
        return replace(made, left=math.inf, first=first, deadline=deadline)

    def allows(self, work: float) -> bool:
        """Whether so much is left."""
        late = time.monotonic() > self.deadline
        return work <= (min(self.left, self.first) if late else self.left)

    def spend(self, work: float) -> None:
        """Take off what a step costs; raise where nothing is left for it."""
        self.left -= work
        self.first -= work
        if self.interrupted or not self.allows(0.0):
            raise EffortSpentError

    @contextmanager
    def sharing(self, share: float) -> Iterator[None]:
        """Search with a share of what is left; the rest is for what comes later."""
        held = self.left * (1 - share) if self.left < math.inf else 0.0
        first = max(self.first, 0.0) * (1 - share)
        self.left -= held
        self.first -= first
        try:
            yield
        finally:
            self.left = max(self.left, 0.0) + held
            self.first = max(self.first, 0.0) + first

    @contextmanager
    def keeping(self, what: str, share: float = 1.0) -> Iterator[None]:
        """Search with a share of what is left; what was found is kept when it ends early."""
        with self.sharing(share):
            try:
                yield
            except EffortSpentError:
                self.note(f"the search of {what} ended with its effort: more may find better")
            except KeyboardInterrupt:
                self.interrupted = True
                self.note(f"interrupted in the search of {what}: the best so far")

    def note(self, words: str) -> None:
        """Say what was not searched, once."""
        if words not in self.notes:
            self.notes.append(words)
