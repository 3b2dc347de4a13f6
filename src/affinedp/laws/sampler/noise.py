"""Integer noise for releases, from the operating system's randomness."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from importlib.util import find_spec
from typing import Any, Literal

from numpy.typing import NDArray

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.laws.sampler.bulk import Thresholds, draws
from affinedp.laws.sampler.law import IntegerLaw
from affinedp.laws.sampler.words import Random, Source, system_bytes

# Who draws: this room's sampler, or OpenDP's, which is the reference.
Sampler = Literal["bulk", "opendp"]


def checked_sampler(sampler: str) -> Sampler:
    """Return who draws, or refuse what is no sampler or not installed, before any charge."""
    if sampler == "bulk":
        return "bulk"
    if sampler == "opendp":
        if find_spec("opendp") is None:
            raise MissingExtraError("opendp", "opendp")
        return "opendp"
    raise AffineDPError(f"sampler must be 'bulk' or 'opendp', not {sampler!r}")


class IntegerNoise:
    """Independent integers with P(i) ∝ exp(−i² / (2 scale²)), or ∝ exp(−|i| / scale).

    The law is exact, over all integers, for every scale: no value is clamped, rounded or left
    out, and no branch is taken on doubt.  Randomness is the operating system's (``os.urandom``)
    unless another source is given; nothing is kept from one draw to the next.

    Numbers are drawn by rejection, in blocks whose size depends on how many are still missing
    and on nothing else.  How many proposals are rejected is independent of the numbers drawn, and
    all proposals take the same steps, except about one in eight million that is decided in
    exact arithmetic.  Building the Python integers takes longer for longer ones.  So time says
    how many proposals were made, which tells nothing, and very little more; it is not constant.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Which law.
    scale : int or Fraction
        σ of the Gaussian, b of the Laplace: positive, of any size, in steps of the grid.
        ``Fraction(x)`` is exactly the value of a float x.

    Examples
    --------
    >>> noise = IntegerNoise("gaussian", 2**100)
    >>> drawn = noise.draw((2, 3))
    >>> drawn.shape, drawn.dtype, type(drawn[0, 0]).__name__
    ((2, 3), dtype('O'), 'int')
    """

    __slots__ = ("_law", "_thresholds")

    def __init__(self, law: str, scale: int | Fraction) -> None:
        self._law = IntegerLaw.of(law, scale)
        self._thresholds = Thresholds.of(self._law)

    def __repr__(self) -> str:
        return f"IntegerNoise({self._law.name!r}, {self._law.scale!r})"

    def draw(self, size: int | tuple[int, ...], source: Source = system_bytes) -> NDArray[Any]:
        """Draw fresh numbers.

        Parameters
        ----------
        size : int or tuple of int
            How many, or the shape.
        source : callable
            Gives random bytes.

        Returns
        -------
        array of Python integers, dtype object
            They have any size, and sums of them cannot overflow.
        """
        return self.draw_narrow(size, source).astype(object)

    def draw_narrow(
        self, size: int | tuple[int, ...], source: Source = system_bytes
    ) -> NDArray[Any]:
        """Draw fresh numbers, of 64 bits where all of them fit: for whom sums cannot overflow.

        Parameters
        ----------
        size : int or tuple of int
            How many, or the shape.
        source : callable
            Gives random bytes.

        Returns
        -------
        array of int64, or of Python integers if one of them is longer

        Examples
        --------
        >>> IntegerNoise("gaussian", 2**40).draw_narrow(3).dtype
        dtype('int64')
        """
        shape = _shape(size)
        drawn = draws(self._law, self._thresholds, math.prod(shape), Random(source))
        return drawn.reshape(shape)


def draw_integers(
    law: str, scale: int | Fraction, size: int | tuple[int, ...], source: Source = system_bytes
) -> NDArray[Any]:
    """Draw integers once; who draws often keeps an :class:`IntegerNoise`, which is quicker.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Which law.
    scale : int or Fraction
        σ of the Gaussian, b of the Laplace, in steps of the grid.
    size : int or tuple of int
        How many, or the shape.
    source : callable
        Gives random bytes.

    Returns
    -------
    array of Python integers, dtype object
        They have any size, and sums of them cannot overflow.

    Examples
    --------
    >>> draw_integers("laplace", 7, 1000).shape
    (1000,)
    """
    return IntegerNoise(law, scale).draw(size, source)


def _shape(size: Any) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(n) for n in (size if isinstance(size, tuple) else (size,)))
    except TypeError:
        raise AffineDPError(f"size must be an int or a tuple of ints, not {size!r}") from None
    if min(shape, default=0) < 0:
        raise AffineDPError(f"size must not be negative: {size!r}")
    return shape
