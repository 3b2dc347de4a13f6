"""e⁻ʸ between two integers, to any number of bits: nothing here is a floating-point number."""

from __future__ import annotations

from fractions import Fraction


def exp_minus(y: Fraction, bits: int) -> tuple[int, int]:
    """Return integers ``low ≤ 2**bits · e⁻ʸ ≤ high``, at most 3 units apart.

    The series of e^z for z = y / 2ˢ < ½, one division, and s squarings, each rounded outwards.
    """
    if y == 0:
        return 1 << bits, 1 << bits
    if y >= bits:
        return 0, 1
    squarings = (y.numerator // y.denominator).bit_length() + 1
    # the first error is below 4 · precision + 10 units, and a squaring doubles it at most
    precision = bits + bits.bit_length() + squarings + 8
    one = 1 << precision
    z = (y.numerator << precision) // (y.denominator << squarings)
    total = term = one
    count = 0
    while term:
        count += 1
        term = (term * z >> precision) // count
        total += term
    # Each term is too small by less than 4 units (half of the error before it, and 2 of its own),
    # and so are the terms left out together.  z is too small by less than one unit: e^z by 2.
    low = one * one // (total + 4 * count + 6)
    high = -(-one * one // total)
    for _ in range(squarings):
        low = low * low >> precision
        high = -(-high * high >> precision)
    spare = precision - bits
    return low >> spare, -(-high >> spare)
