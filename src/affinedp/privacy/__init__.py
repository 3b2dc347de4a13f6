"""What noise promises, and what no noise of the same promise goes below.

``promise`` builds every guarantee, ``guarantee`` says to whom what is promised and composes it,
``verification`` is Theorems 1 and 2 on any noise, ``without_list`` bounds circuits that cannot be
listed, ``least_error`` and ``least_proof`` prove lower bounds, and ``design`` keeps them.
"""
