"""What a gateway keeps of a step that it sent: the numbers, of which reading, in which run.

The reading itself is not kept, only a hash of it with the secret salt of the state as its key.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError

DIGEST_BYTES = 16
RUN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Sent:
    """A step that was sent.

    Attributes
    ----------
    outputs : array, shape (m,)
        What was published.
    digest : bytes
        Of the reading.
    run : str
        Which run it belongs to; empty if none was named.
    """

    outputs: FloatArray
    digest: bytes
    run: str

    def to_bytes(self) -> bytes:
        """Return it as bytes, for a state."""
        return self.outputs.tobytes() + self.digest + self.run.encode()

    @classmethod
    def from_bytes(cls, content: bytes, outputs: int) -> Sent:
        """Return what :meth:`to_bytes` wrote.

        Parameters
        ----------
        content : bytes
            From a state.
        outputs : int
            How many numbers there are.
        """
        end = 8 * outputs
        numbers = np.frombuffer(content[:end], dtype=np.float64).copy()
        rest = content[end + DIGEST_BYTES :]
        return cls(numbers, content[end : end + DIGEST_BYTES], rest.decode())


def digest_of(salt: bytes, step: int, readings: FloatArray) -> bytes:
    """Return a hash of readings that only the owner of the state can compute.

    Parameters
    ----------
    salt : bytes
        The secret of the state.
    step : int
        Of which step.
    readings : array
        What was read.
    """
    # minus zero is zero
    content = f"reading {step} ".encode() + (readings + 0.0).tobytes()
    return hmac.digest(salt, content, "sha256")[:DIGEST_BYTES]


def checked_run(run: object) -> str:
    """Return the name of a run, or refuse it.

    Parameters
    ----------
    run : object
        Up to 64 letters, digits, dots, dashes and underscores.

    Examples
    --------
    >>> checked_run("2026-05-01.a")
    '2026-05-01.a'
    """
    if not isinstance(run, str) or RUN.fullmatch(run) is None:
        raise AffineDPError(
            "a run is named by up to 64 letters, digits, dots, dashes and underscores"
        )
    return run
