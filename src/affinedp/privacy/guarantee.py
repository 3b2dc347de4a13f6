"""What is promised: the (ε, δ) curve, to which neighbours, by which theorem; its one builder.

What is published is a function of ``measure(x) + η``.  Neighbours move ``measure(x)`` by
``measure(v)``, so the promise is the law's curve at the largest gauge of that over all moves v:
Theorems 1 to 4 of the paper, in which the measure is Λ⁺F on the manifold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import EPS, FloatArray, within_range
from affinedp.errors import AffineDPError, MissingExtraError, most_words
from affinedp.exact.numbers import real_array, rounded_up, whole_number
from affinedp.laws.base import Law
from affinedp.laws.curves import ComposedCurve, Curve, GaussianCurve, NoPromise, pair_of
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.whole import Whole
from affinedp.parts import Locked, Part, kind_named
from affinedp.strategies.base import Proof, Strategy

MOST_RELEASES = 10**9


@dataclass(frozen=True)
class Asked(Part):
    """(ε, δ) as somebody asked for it, for some releases together.

    It is no promise: whether it is kept is always computed from the noise.
    """

    kind = "asked"
    # epsilon, delta: ε ≥ 0 and δ in [0, 1)
    epsilon: float
    delta: float = 0.0
    # how many releases about the same secret keep it together
    releases: int = 1

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise AffineDPError(f"{name} must be a number, not {value!r}")
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0 and 0 <= self.delta < 1):
            raise AffineDPError(
                f"ε must be at least 0 and δ in [0, 1), not ε = {self.epsilon}, δ = {self.delta}"
            )
        whole_number(self.releases, "releases", most=MOST_RELEASES)

    def __str__(self) -> str:
        together = f" for {self.releases:,} releases together" if self.releases > 1 else ""
        return f"ε = {as_given(self.epsilon)} at δ = {as_given(self.delta)}{together}"


def as_given(value: float) -> str:
    """Write a number in full, and short where that is the same.

    Examples
    --------
    >>> as_given(1.0), as_given(0.1234567891)
    ('1', '0.1234567891')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


# The warning of a promise that a file states.
ON_TRUST = "read from a file and NOT verified again: it is as good as the file"
SHOWN_TERMS = 8
# An ε that is exceeded by less than this share is kept, unless the caller is stricter.
HOLDS_TOLERANCE = 1e-12
SHOWN_DELTAS = (1e-9, 1e-6, 1e-3)


@dataclass(frozen=True, eq=False)
class Guarantee(Locked):
    """What a mechanism promises about its neighbours.

    ε and δ always come from an upper bound of the sensitivity, so they hold also where
    ``exact`` is False; then a stronger promise may be true.

    Attributes
    ----------
    law : str
        ``"gaussian"``, ``"laplace"``, ``"knorm"``, ``"staircase"`` or ``"composed"``.
    sensitivity : float
        How far neighbours are apart at most, in units of the noise: the 2-norm for
        Gaussian noise, the 1-norm (which is ε at δ = 0) for Laplace noise, the gauge of the
        body times the rate (which is ε too) for K-norm noise.
    sensitivity_lower : float
        What it is certainly at least: the truth lies between the two.  0 where nothing is known.
    exact : bool
        Whether nothing stronger is true (up to rounding).
    neighbours : str
        Whom the promise is about.
    basis : str
        The theorem it rests on.
    curve : Curve
        δ as a function of ε.
    worst_direction : array, shape (n,), or None
        A difference of neighbours that attains the sensitivity.
    names : tuple of str
        The entries of ``worst_direction``.
    leak : array or None
        A combination c of the outputs that comes out with no noise, if there is one.
    output_names : tuple of str
        The entries of ``leak``.
    method : str
        How the worst direction was found.
    warnings : tuple of str
        What a careful reader should know.
    neighbours_key : str
        A hash of the neighbours; guarantees compose only if it is the same.
    unit : str
        What moves between neighbours, in a few words: a
        :class:`~affinedp.budget.ledger.Ledger` adds up what has the same unit without asking.
    asked : Asked or None
        What somebody asked for, if it is known; :meth:`keeps_asked` says whether it is kept.
    """

    law: str
    sensitivity: float
    exact: bool
    neighbours: str
    basis: str
    curve: Curve = field(repr=False)
    worst_direction: FloatArray | None = field(default=None, repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    leak: FloatArray | None = field(default=None, repr=False)
    output_names: tuple[str, ...] = field(default=(), repr=False)
    method: str = ""
    warnings: tuple[str, ...] = ()
    neighbours_key: str = field(default="", repr=False)
    sensitivity_lower: float = field(default=0.0, repr=False)
    unit: str = field(default="", repr=False)
    asked: Asked | None = field(default=None, repr=False)

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the ε that is promised at this δ; inf if there is none.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -4]])
        >>> round(adp.verify(M, 2.0, law="laplace").epsilon(), 6)
        2.5
        """
        value = _number(delta, "delta")
        if not 0.0 <= value < 1.0:
            raise AffineDPError(f"delta must lie in [0, 1), not {delta!r}")
        return self.curve.epsilon(value)

    def delta(self, epsilon: float | Sequence[float] | FloatArray) -> float | FloatArray:
        """Return the δ that is promised at this ε, for one ε or an array of them.

        Parameters
        ----------
        epsilon : float or array_like
            ε, at least 0.
        """
        values: NDArray[np.float64] = real_array(epsilon, "epsilon")
        if values.size and not np.all(values >= 0.0):
            raise AffineDPError(f"epsilon must be at least 0, not {epsilon!r}")
        found = [self.curve.delta(float(value)) for value in values.ravel()]
        return found[0] if values.ndim == 0 else np.reshape(found, values.shape)

    @property
    def rho(self) -> float:
        """ρ of zero-concentrated differential privacy: s²/2 (for Laplace noise a bound)."""
        return self.curve.rho()

    def renyi(self, alpha: float) -> float:
        """Return the Rényi divergence of order α that is promised.

        Parameters
        ----------
        alpha : float
            The order, at least 1.
        """
        value = _number(alpha, "alpha")
        if not value >= 1.0:
            raise AffineDPError(f"alpha must be at least 1, not {alpha!r}")
        return self.curve.renyi(value)

    @property
    def curve_exact(self) -> bool:
        """Whether δ > 0 is exact too; False means that δ(ε) is an upper bound."""
        return self.exact and self.curve.exact

    def holds(self, epsilon: float, delta: float = 0.0, tolerance: float = HOLDS_TOLERANCE) -> bool:
        """Whether (ε, δ)-differential privacy is promised.

        Parameters
        ----------
        epsilon : float
            ε, at least 0.
        delta : float
            δ in [0, 1).
        tolerance : float
            By which share ε may be exceeded: numbers in floating point are known up to rounding.
            Zero asks for the promise to the last bit.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -4]])       # Example 1: noise along the manifold is tight
        >>> adp.verify(M, [[4], [1]], law="laplace").holds(1.0, tolerance=0.0)
        True
        """
        if not 0.0 <= _number(delta, "delta") < 1.0:
            raise AffineDPError(f"delta must lie in [0, 1), not {delta!r}")
        if not 0.0 <= _number(tolerance, "tolerance") < 1.0:
            raise AffineDPError(f"tolerance must lie in [0, 1), not {tolerance!r}")
        asked = _number(epsilon, "epsilon")
        if asked < 0.0:
            raise AffineDPError(f"epsilon must be at least 0, not {epsilon!r}")
        return bool(self.delta(asked * (1.0 + tolerance)) <= delta)

    def keeps_asked(self) -> bool:
        """Whether what was asked for is kept; False, too, where nothing was asked for."""
        if self.asked is None or self.leak is not None:
            return False
        asked, count = self.asked, self.asked.releases
        if count == 1:
            return self.holds(asked.epsilon, asked.delta)
        most = asked.epsilon * (1 + HOLDS_TOLERANCE)
        together = self.curve_of_asked()
        if together is not None:
            return together.delta(most) <= asked.delta
        return count * self.curve.epsilon(0.0) * (1 + EPS) <= most  # pure promises add up

    def curve_of_asked(self) -> GaussianCurve | None:
        """Return what all releases that were asked for promise, if their noise is Gaussian."""
        if self.asked is None or not isinstance(self.curve, GaussianCurve):
            return None
        return GaussianCurve(
            self.curve.sensitivity * math.sqrt(self.asked.releases) * (1 + 4 * EPS)
        )

    def asked_for(self, asked: Asked | None) -> Guarantee:
        """Return the same guarantee that remembers what was asked for; refused if not kept.

        Parameters
        ----------
        asked : Asked or None
            (ε, δ), and for how many releases like this one.

        Examples
        --------
        >>> import affinedp as adp
        >>> from affinedp.privacy.guarantee import Asked
        >>> g = adp.verify(adp.AffineManifold([[1, -4]]), 5.0, law="laplace")
        >>> print(g.asked_for(Asked(1.0)).summary()[0][1])
        ε = 1 at δ = 0: kept
        """
        found = replace(self, asked=asked)
        if asked is not None and not found.keeps_asked():
            raise AffineDPError(
                f"the noise does not keep {asked}: {dict(self.summary())['promise']}"
                + (" for one release" if asked.releases > 1 else "")
            )
        return found

    def dp_event(self) -> Any:
        """Return the promise as a ``DpEvent`` of dp_accounting, which is at least as large.

        Examples
        --------
        >>> import affinedp as adp
        >>> g = adp.verify(adp.AffineManifold([[1, -4]]), 10.0, law="gaussian")
        >>> round(g.dp_event().noise_multiplier * g.sensitivity, 12)
        1.0
        """
        try:
            from dp_accounting import dp_event as events
        except ImportError:
            raise MissingExtraError("dp-accounting", "accounting") from None
        if not self.sensitivity < math.inf:
            raise AffineDPError("nothing is promised: there is no event for it")

        def event(law: str, loss: float) -> Any:
            if pair_of(law, loss) is not None:
                # randomised response is discrete Laplace noise of scale 1/ε under a step of 1: the
                # loss is ε or −ε.  (dp_accounting counts its event of that name once, not n times)
                return events.DiscreteLaplaceDpEvent(float(np.nextafter(loss, np.inf)), 1)
            if law not in ("gaussian", "laplace"):
                raise AffineDPError(f"dp_accounting has no event for a loss of {law!r}")
            kind = events.GaussianDpEvent if law == "gaussian" else events.LaplaceDpEvent
            return kind(float(np.nextafter(1 / loss, 0.0)))

        losses = [(law, loss) for law, loss in self.curve.losses() if loss > 0.0]
        if len(losses) == 1:
            ((law, loss),) = losses
            return event(law, max(loss, self.sensitivity))
        return events.ComposedDpEvent([event(*one) for one in losses])

    def with_output_names(self, names: Sequence[str]) -> Guarantee:
        """Return the same guarantee with other names for the outputs.

        Parameters
        ----------
        names : sequence of str
            One per output.
        """
        several = isinstance(names, Iterable) and not isinstance(names, str)
        given = tuple(names) if several else ()
        if not several or not all(isinstance(name, str) for name in given):
            raise AffineDPError("names must be a sequence of strings, one per output")
        if len(given) != len(self.output_names):
            raise AffineDPError(f"{len(given)} names for {len(self.output_names)} outputs")
        return replace(self, output_names=given)

    def summary(self) -> list[tuple[str, str]]:
        """Return what a person wants to know, as (label, text) rows."""
        rows = [("law", _law_words(self.law)), ("neighbours", self.neighbours)]
        if self.asked is not None:
            verdict = "kept" if self.keeps_asked() else "NOT kept"
            rows.insert(0, ("asked for", f"{self.asked}: {verdict}"))
        if self.leak is not None:
            combination = _combination(self.leak, self.output_names)
            rows.append(("promise", "NONE: this combination comes out without noise"))
            rows.append(("leak", f"{combination} (whatever the noise, it reveals the data)"))
        else:
            how = "exact" if self.exact else "upper bound"
            method = f"{how}; {self.method}" if self.method else how
            rows.append(
                (
                    "sensitivity",
                    f"{most_words(self.sensitivity)} in units of the noise ({method})",
                )
            )
            several = self.asked is not None and self.asked.releases > 1
            rows.append(("promise", self._promise() + (" (one release)" if several else "")))
        if self.worst_direction is not None:
            moves = _combination(self.worst_direction, self.names, "moves")
            rows.append(("worst pair", f"x and x' that differ by {moves}"))
        rows.append(("rests on", self.basis))
        rows.extend(("warning", warning) for warning in self.warnings)
        return rows

    def _promise(self) -> str:
        pure = self.curve.epsilon(0.0)
        if math.isfinite(pure):
            return f"ε = {most_words(pure)} at δ = 0"
        try:
            points = [
                f"ε = {most_words(self.curve.epsilon(d), 4)} at δ = {d:.0e}" for d in SHOWN_DELTAS
            ]
        except AffineDPError:
            points = []
        return "; ".join([*points, f"{most_words(self.rho, 4)}-zCDP"])

    def __str__(self) -> str:
        return labelled_lines(self.summary())

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{escape(label)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for label, text in self.summary()
        )
        return f"<table>{rows}</table>"


def labelled_lines(rows: Iterable[tuple[str, str]]) -> str:
    """Return labelled texts as lines of at most 80 columns, the texts below each other."""
    import textwrap

    lines = []
    for label, text in rows:
        first, *rest = textwrap.wrap(text, 66, break_on_hyphens=False) or [""]
        lines.append(f"{label:<12} {first}")
        lines.extend(f"{'':<12} {line}" for line in rest)
    return "\n".join(lines)


def _law_words(law: str) -> str:
    """What a law is called in a table."""
    if law == "composed":
        return "several releases with independent noise"
    found = kind_named(law)
    return found.words if found is not None and issubclass(found, Law) else law


def compose(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Return what several releases with independent noise promise together.

    An upper bound: the worst direction may differ from release to release.  For Gaussian
    releases √(Σ s²); otherwise pessimistic privacy-loss accounting (the extra
    ``accounting``), which holds for releases that were fixed in advance: a
    :class:`~affinedp.budget.ledger.Ledger` also covers those chosen by earlier results.  Exact
    instead is ``verify`` on the stacked queries with the block-diagonal noise.

    Parameters
    ----------
    guarantees : sequence of Guarantee
        All about the same neighbours.

    Returns
    -------
    Guarantee

    Examples
    --------
    >>> import affinedp as adp
    >>> M = adp.AffineManifold([[1, -1]])
    >>> g = adp.verify(M, 1.0)
    >>> round(adp.compose([g, g]).sensitivity, 6)
    2.0
    """
    try:
        parts = list(iter(guarantees))
    except TypeError:
        name = type(guarantees).__name__
        raise AffineDPError(f"compose takes a list of guarantees, not {name}") from None
    if not parts:
        raise AffineDPError("there is nothing to compose: the list of guarantees is empty")
    for part in parts:
        if not isinstance(part, Guarantee):
            raise AffineDPError(f"compose takes guarantees, not {type(part).__name__}")
    if len({part.neighbours_key for part in parts}) > 1:
        described = tuple(dict.fromkeys(part.neighbours for part in parts))
        raise AffineDPError(
            "these guarantees are about different neighbours (or different equations) and do not "
            f"compose: {'; '.join(described)}"
        )
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    leaking = next((part for part in parts if part.leak is not None), None)
    losses = tuple(loss for part in parts for loss in part.curve.losses())
    curve: Curve
    if leaking is not None:
        curve, sensitivity, basis = NoPromise(), math.inf, leaking.basis
    elif all(law == "gaussian" for law, _ in losses):
        sensitivity = math.hypot(*(s for _, s in losses)) * (1 + 4 * EPS)
        curve = GaussianCurve(sensitivity)
        basis = "Theorem 1 and composition of Gaussian mechanisms: an upper bound"
    else:
        sensitivity = math.fsum(s for _, s in losses)
        curve = ComposedCurve(losses)
        basis = "Theorems 1 and 2 and privacy-loss composition: an upper bound"
    return Guarantee(
        law="gaussian" if isinstance(curve, GaussianCurve) else "composed",
        sensitivity=sensitivity,
        exact=False,
        neighbours=first.neighbours,
        basis=basis,
        curve=curve,
        leak=leaking.leak if leaking is not None else None,
        output_names=leaking.output_names if leaking is not None else (),
        method=f"{len(parts)} releases composed",
        warnings=tuple(dict.fromkeys(w for part in parts for w in part.warnings)),
        neighbours_key=first.neighbours_key,
        unit=first.unit,
    )


def _number(value: float, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise AffineDPError(f"{name} must be a number, not {value!r}") from None
    except OverflowError:
        raise AffineDPError(f"{name} leaves the range of floating point") from None
    if math.isnan(number):
        raise AffineDPError(f"{name} must be a number, not NaN")
    return number


def _combination(vector: FloatArray, names: Sequence[str], style: str = "sum") -> str:
    """Write the largest terms of a vector in words."""
    order = [int(i) for i in np.argsort(-np.abs(vector), kind="stable") if vector[i] != 0.0]
    shown = sorted(order[:SHOWN_TERMS])
    if style == "moves":
        text = ", ".join(f"{names[i]} {vector[i]:+.4g}" for i in shown)
    else:
        pieces: list[str] = []
        for i in shown:
            size = abs(vector[i])
            factor = "" if abs(size - 1) < 1e-12 else f"{size:.6g} "
            sign = "- " if vector[i] < 0 else "+ " if pieces else ""
            pieces.append(f"{sign}{factor}{names[i]}")
        text = " ".join(pieces)
    more = len(order) - len(shown)
    return f"{text} and {more} more" if more else text


# ---------------------------------------------------------------------- the builder


@within_range
def promise(
    adjacency: Adjacency, strategy: Strategy, law: Law, proof: Proof | None = None
) -> Guarantee:
    """Return what ``reconstruct(measure(x) + η)`` promises about these neighbours."""
    if strategy.domain is not adjacency.domain and strategy.domain.key != adjacency.domain.key:
        raise AffineDPError("the neighbours are about other data than the noise")
    if law.size is not None and law.size != strategy.coordinates:
        raise AffineDPError(
            f"{law.words} noise in {law.size} coordinates does not fit {strategy.coordinates}"
        )
    about = promised_about(adjacency, law)
    said: dict[str, Any] = {
        "law": law.kind,
        "neighbours": about.words,
        "neighbours_key": about.key,
        "unit": adjacency.unit,
        "names": adjacency.domain.names,
        "output_names": strategy.names,
    }
    found = (
        strategy.largest(adjacency, law)
        if proof is None
        else proof.largest(strategy, adjacency, law)
    )
    basis = law.theorem + found.because
    if found.leak is not None:
        return Guarantee(
            sensitivity=math.inf, exact=True, basis=basis, curve=NoPromise(), leak=found.leak,
            **said,
        )  # fmt: skip
    upper = rounded_up(found.upper)
    return Guarantee(
        sensitivity=upper,
        sensitivity_lower=max(0.0, min(float(found.lower), upper)),
        exact=found.exact,
        basis=basis,
        curve=law.curve(upper, found.moves),
        worst_direction=found.direction,
        method=found.method,
        warnings=found.warnings,
        **said,
    )


def promised_about(adjacency: Adjacency, law: Law) -> Adjacency:
    """Return whom a promise is about: whole neighbours only, if data is whole."""
    return Whole(adjacency) if law.whole and not adjacency.is_whole else adjacency
