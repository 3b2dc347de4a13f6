"""The privacy budget: one list of charges for one secret, in a file or on a server.

``filters`` decides, ``events`` says what is written down, ``sqlite`` and ``postgres`` keep it, and
``ledger`` is what people use.
"""
