"""The privacy budget: which charges are allowed, and a file that never forgets one.

``filters`` decides, ``ledger_file`` keeps, ``charges`` says what one charge is, ``ledger`` is what
people use.
"""
