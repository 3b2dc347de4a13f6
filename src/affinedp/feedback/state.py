"""The state of a release in steps: one draw, what it was drawn for, what was read so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from affinedp.budget.ledger import Ledger
from affinedp.errors import AffineDPError
from affinedp.feedback.follow import followings
from affinedp.feedback.plan import StepPlan, restored, step_plan
from affinedp.laws.sampler import draw_integers
from affinedp.once.draw import Drawn, Request, header_of, obtain
from affinedp.once.owner import Owner
from affinedp.once.record import Head
from affinedp.once.state import DrawnState
from affinedp.record import MechanismRecord


class StepsStateError(AffineDPError):
    """A state that is lost, in use, or of another release: nothing is published."""


class DamagedStepsError(StepsStateError):
    """A state whose draw cannot be trusted any more."""


STEPS = Owner(
    name="release in steps",
    article="a",
    subject="data",
    occasion="release",
    form="affinedp release in steps",
    copies_leak=True,
    error=StepsStateError,
    damaged=DamagedStepsError,
)


@dataclass(frozen=True)
class Settings:
    """What a state is drawn for.

    Attributes
    ----------
    mechanism : MechanismRecord
        Query, noise, guarantee.
    steps : tuple of tuples of int
        The outputs of every step.
    bound : float or None
        The public bound on the data.
    """

    mechanism: MechanismRecord
    steps: tuple[tuple[int, ...], ...]
    bound: float | None

    @property
    def order(self) -> list[int]:
        """The outputs in the order in which they are due."""
        return [i for step in self.steps for i in step]

    @property
    def record(self) -> dict[str, Any]:
        """What must be the same whenever the state is opened."""
        return {
            "fingerprint": self.mechanism.fingerprint,
            "steps": [list(step) for step in self.steps],
            "bound": None if self.bound is None else float(self.bound).hex(),
        }


@dataclass(frozen=True)
class Progressed:
    """What was read, and which offsets were used, so far.

    Attributes
    ----------
    entries, offsets : mapping of int to Fraction
        By entry of x, and by equation.
    """

    entries: Mapping[int, Fraction]
    offsets: Mapping[int, Fraction]

    def numbers(self) -> tuple[int, ...]:
        """Return all of it as integers."""
        found = [len(self.entries)]
        for numbers in (self.entries, self.offsets):
            for i, value in sorted(numbers.items()):
                found += [i, value.numerator, value.denominator]
        return tuple(found)

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> Progressed:
        """Return what :meth:`numbers` wrote.

        Parameters
        ----------
        numbers : sequence of int
            As written.
        """
        if not numbers:
            return cls({}, {})
        count, rest = numbers[0], numbers[1:]
        triples = [
            (rest[i], Fraction(rest[i + 1], rest[i + 2])) for i in range(0, len(rest) - 2, 3)
        ]
        return cls(dict(triples[:count]), dict(triples[count:]))


def obtain_state(
    settings: Settings,
    path: Path,
    *,
    ledger: Ledger | None,
    label: str,
    redraw: bool,
    moved: bool,
) -> DrawnState:
    """Open the state of a release in steps, or draw it.

    Parameters
    ----------
    settings : Settings
        What it is drawn for.
    path : Path
        The real path of the state.
    ledger, label, redraw, moved
        As for :class:`~affinedp.once.draw.Request`.
    """

    def draw(label: str) -> Drawn:
        mechanism = settings.mechanism
        plan = step_plan(mechanism, settings.order, settings.bound)
        if ledger is not None:
            # settled when the state is in place
            ledger.charge(mechanism.guarantee, fingerprint=mechanism.fingerprint, label=label)
        drawn = draw_integers(plan.law, plan.scale, len(plan.read))
        header = {**settings.record, "charged": ledger is not None, "plan": plan.to_record()}
        return Drawn(header, tuple(int(n) for n in drawn), Head(0, Progressed({}, {}).numbers()))

    def check(state: DrawnState, header: dict[str, Any]) -> None:
        wanted = json.loads(json.dumps(settings.record))
        for name, value in wanted.items():
            if header.get(name) != value:
                what = "mechanism" if name == "fingerprint" else name
                raise StepsStateError(
                    f"{state.path} is the state of a release with another {what}: with one draw "
                    "for two, the noise would cancel. Give each its own state"
                )

    return obtain(Request(STEPS, path, ledger, label, redraw, moved, draw, check))


def plan_of(state: DrawnState, settings: Settings) -> StepPlan:
    """Return the plan with which a state was drawn.

    Parameters
    ----------
    state : DrawnState
        An open state.
    settings : Settings
        What it was drawn for.
    """
    read, follow = followings(
        settings.mechanism.manifold, settings.mechanism.dense.query, settings.order
    )
    try:
        record = header_of(state)["plan"]
        plan = restored(record, follow if len(record["read"]) == len(read) else {})
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedStepsError(f"{state.path}: its header cannot be read ({error})") from None
    if len(plan.read) != len(state.draw.numbers):
        raise DamagedStepsError(f"{state.path}: its draw does not fit its plan")
    return plan


def was_charged(state: DrawnState) -> bool:
    """Whether a ledger paid for the draw of a state.

    Parameters
    ----------
    state : DrawnState
        An open state.
    """
    return bool(header_of(state)["charged"])
