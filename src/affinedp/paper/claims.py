"""A claim of the paper beside what comes out here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Verdict = Literal["agrees", "corrected", "added"]


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, and what we find."""

    what: str
    paper: float | str | None
    ours: float | str
    verdict: Verdict
    how: str

    def row(self) -> tuple[str, str, str, str, str]:
        """Return the claim as text, for a table: what, paper, ours, verdict, how."""
        return self.what, _text(self.paper), _text(self.ours), self.verdict, self.how


def verdict_of(agrees: bool) -> Verdict:
    """Return the verdict on something that the paper says."""
    return "agrees" if agrees else "corrected"


def _text(value: float | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, float | int) else value or "–"


@dataclass(frozen=True)
class Reproduced:
    """What a part of the paper gave."""

    part: str
    title: str
    claims: tuple[Claim, ...]
    figures: tuple[Path, ...]


def counted(found: Iterable[Reproduced]) -> dict[Verdict, int]:
    """Return how many claims agree, are corrected and are added.

    Examples
    --------
    >>> claims = (Claim("k", 1.0, 1.0, "agrees", "exact"), Claim("σ", None, 2.0, "added", "exact"))
    >>> counted([Reproduced("a", "A", claims, ())])
    {'agrees': 1, 'corrected': 0, 'added': 1}
    """
    counts = Counter(claim.verdict for one in found for claim in one.claims)
    return {verdict: counts[verdict] for verdict in get_args(Verdict)}
