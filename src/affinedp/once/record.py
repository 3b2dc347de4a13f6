"""What a state holds: the draw, how far its owner has come, and the seals on both."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

# Twice the length of the hash: then also unlimited computing learns next to nothing from it.
SALT_BYTES = 64


@dataclass(frozen=True)
class Draw:
    """The one draw, and what it was made for.

    Attributes
    ----------
    header : str
        Public: what it was drawn for, as JSON.
    salt : bytes
        Secret: hides the draw in its commitment, and is the key of the seals.
    numbers : tuple of int
        Secret: what was drawn.
    """

    header: str
    salt: bytes = field(repr=False)
    numbers: tuple[int, ...] = field(repr=False)

    @property
    def commitment(self) -> str:
        """A hash that can be shown: it fixes the draw without revealing it."""
        text = f"{len(self.header)} {self.header} {to_text(self.numbers)}"
        return hashlib.sha256(self.salt + text.encode()).hexdigest()

    @property
    def identity(self) -> str:
        """What the ledger calls the draw."""
        return identity_of(self.salt)


@dataclass(frozen=True)
class Head:
    """How far the owner of a draw has come.

    Attributes
    ----------
    next_step : int
        The first step that was neither sent nor skipped.
    numbers : tuple of int
        Secret: the path of what is sent at the last step that was, or at 0; may be empty.
    """

    next_step: int
    numbers: tuple[int, ...] = field(repr=False)

    @property
    def at(self) -> int:
        """The step at which the path is."""
        return max(self.next_step - 1, 0)


def identity_of(salt: bytes) -> str:
    """Return what the ledger calls a draw: a hash of its salt, which is known before the draw.

    Parameters
    ----------
    salt : bytes
        Secret.
    """
    return hashlib.sha256(b"identity" + salt).hexdigest()[:32]


def sealed(salt: bytes, what: str, step: int, content: bytes) -> bytes:
    """Return a seal that only who knows the salt can make.

    Parameters
    ----------
    salt : bytes
        Secret.
    what : str
        What is sealed.
    step : int
        At which step.
    content : bytes
        Its content.
    """
    return hmac.digest(salt, f"{what} {step} ".encode() + content, "sha256")


def to_text(numbers: Sequence[int]) -> str:
    """Return integers of any size as text."""
    return " ".join(format(number, "x") for number in numbers)


def from_text(text: str) -> tuple[int, ...]:
    """Return the integers that :func:`to_text` wrote."""
    return tuple(int(word, 16) for word in text.split())
