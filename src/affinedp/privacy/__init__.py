"""What noise promises: (ε, δ) curves, guarantees, and how they are verified.

``calibration`` is the Gaussian mechanism in numbers, ``curves`` has δ at each ε for each law,
``guarantee`` says to whom what is promised and composes it, ``verification`` is Theorems 1 and
2 on any noise, and ``rounding_bounds`` says what floating point may have done to a matrix.
"""
