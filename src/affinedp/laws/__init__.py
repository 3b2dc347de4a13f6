"""Laws of noise: one class each for what it promises, how it is drawn, how far it goes.

:mod:`affinedp.laws.base` describes the interface, and ``CONTRIBUTING.md`` adds a law as an example.
"""
