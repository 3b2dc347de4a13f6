"""Arithmetic that does not round: numbers as they were given, rationals, residues, lattices.

Where floating point is used all the same, a bound on its rounding comes with it.
"""
