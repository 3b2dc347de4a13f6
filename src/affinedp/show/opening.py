"""How a report opens: the promise that was asked for, and a paragraph for whoever decides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Decimal

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.privacy.guarantee import Guarantee

FROM_WHOM = (
    "everyone who sees all that is published, has any computer, and knows everything else: the "
    "equations that were given, how the noise is made, and all other data"
)
NOT_COVERED = (
    "larger differences than those above; equations that the public knows and that were not "
    "given; and whatever else is published about the same secret, which adds up"
)


def headline(guarantee: Guarantee) -> str:
    """Return the promise that was asked for, in one line; empty where none was."""
    if guarantee.asked is None:
        return ""
    if guarantee.keeps_asked():
        return f"Keeps {guarantee.asked}, as was asked"
    return f"Does NOT keep {guarantee.asked}, which was asked for"


def paragraph(
    guarantee: Guarantee,
    deviations: Iterable[float],
    unprotected: Sequence[str] = (),
    typical: float | None = None,
) -> tuple[tuple[str, str], ...]:
    """Return a paragraph for people who decide, as sentences with a lead each.

    Examples
    --------
    >>> import affinedp as adp
    >>> g = adp.verify(adp.AffineManifold([[1, -4]]), 5.0, law="laplace")
    >>> print(paragraph(g, [7.07])[2][1].split(":")[0])
    at most 66.7 % of guesses are right
    """
    if guarantee.leak is not None:
        return (("There is no promise", "a combination of the numbers comes out without noise"),)
    return (
        ("Who is protected", _who(guarantee.neighbours)),
        ("From whom", FROM_WHOM),
        ("What an attacker gets", _odds(guarantee)),
        ("How far off a number is", _error(deviations, typical)),
        ("What is not covered", "; ".join([NOT_COVERED, *unprotected])),
    )


def best_guess(guarantee: Guarantee) -> float | None:
    """Return the probability with which the best guess between two neighbours is right, at most.

    Both are equally likely beforehand: ``(1 + δ(0))/2``, where δ(0) bounds the total variation.
    """
    try:
        most = float(guarantee.delta(0.0))
    except AffineDPError:  # accounting that is not installed, or losses too large for it
        pure = guarantee.epsilon(0.0)
        return allowed_guess(pure) if math.isfinite(pure) else None
    return min(1.0, (1 + most) / 2)


def allowed_guess(epsilon: float, delta: float = 0.0) -> float:
    """Return what (ε, δ) allows the best guess: ``(e^ε + δ)/(e^ε + 1)``, for equal chances.

    Examples
    --------
    >>> round(allowed_guess(1.0, 0.01), 4), allowed_guess(0.0)
    (0.7337, 0.5)
    """
    return 1 - (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))


def percent(share: float) -> str:
    """Write a probability that is promised as "at most", never below it.

    Examples
    --------
    >>> percent(0.6051), percent(0.5), percent(0.9999999)
    ('60.6 %', '50 %', '100 %')
    """
    tenths = (1000 * Decimal(share)).to_integral_value(ROUND_CEILING)
    return f"{min(float(tenths), 1000.0) / 10:g} %"


def _who(neighbours: str) -> str:
    """Who is protected, without the words of the paper where that is possible."""
    _, definition, moves = neighbours.partition("Definition 4: one free entry of any basis ")
    if definition:
        return (
            f"whoever makes one number differ, which {moves}, with all others that the equations "
            "then move"
        )
    return f"whoever makes this difference: {neighbours}"


def _odds(guarantee: Guarantee) -> str:
    asked, guess = guarantee.asked, best_guess(guarantee)
    if guess is None:
        return "no bound on guesses is known"
    who = (
        "an attacker who must only tell one data set from such a neighbour, both equally likely "
        "beforehand, does no better; 50 % is a coin toss"
    )
    several = asked is not None and asked.releases > 1
    after = " after one release" if several else ""
    text = f"at most {percent(guess)} of guesses are right{after}: {who}"
    if asked is not None:
        allowed = percent(allowed_guess(asked.epsilon, asked.delta))
        text += f", and what was asked for allows {allowed}"
        text += f", after all {asked.releases:,} releases" if several else ""
    pure = guarantee.epsilon(0.0)
    if math.isfinite(pure):
        sure = percent(allowed_guess(pure))
        text += f". Whatever comes out, nobody is surer than {sure}{after}"
    return text


def _error(deviations: Iterable[float], typical: float | None) -> str:
    sizes = np.fromiter(deviations, dtype=float)
    if not len(sizes):
        return "no noise is listed"
    mean = float(np.sqrt(np.mean(sizes**2))) if typical is None else typical
    low, high = float(sizes.min()), float(sizes.max())
    text = f"typically {mean:.3g} (root mean square"
    if f"{low:.3g}" != f"{high:.3g}":
        text += f"; {low:.3g} for the most exact number, {high:.3g} for the noisiest"
    return f"{text}), each in the unit of the number"
