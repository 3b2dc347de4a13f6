"""What noise promises, and what no noise of the same promise goes below.

``guarantee`` says to whom what is promised, builds every guarantee and composes them,
``verification`` is Theorems 1 and 2 on any noise, ``without_list`` bounds circuits that cannot be
listed, ``least_error`` and ``design`` prove lower bounds, and ``design`` keeps them.
"""
