"""The privacy budget: one list of charges for one secret, in a file or on a server.

``filters`` decides, ``events`` says what is written down, ``sqlite`` and ``postgres`` keep it,
``moving`` brings a file to a server, ``ledger`` is what people use.
"""
