"""Laws of noise: one class in one file says what noise promises, how it is drawn, how far it reaches.

:mod:`affinedp.laws.base` describes the interface, and ``CONTRIBUTING.md`` adds a law as an example.
"""
