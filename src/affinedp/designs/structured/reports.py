"""What is said about a structured mechanism: its promise, its noise by level or margin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from affinedp.privacy.guarantee import Guarantee
from affinedp.show.baseline import Baseline
from affinedp.show.opening import headline, paragraph
from affinedp.show.page import OutputRow, Report, printable, printed, round_up

COVERS = "counts of people in a table of these totals; an equation that was left out is not covered"


def noise_report(
    title: str,
    guarantee: Guarantee,
    noise: Iterable[tuple[str, float]],
    gap: float | None,
    alternatives: Iterable[tuple[str, float]],
    notes: Iterable[str],
) -> Report:
    """Return what people want to read about a mechanism.

    Parameters
    ----------
    title : str
        One line.
    guarantee : Guarantee
        What is promised.
    noise : iterable of (str, float)
        Root mean square noise of levels or margins.
    gap : float or None
        Above what no Gaussian mechanism goes below.
    alternatives : iterable of (str, float)
        Other ways to keep the promise, as multiples of the squared error.
    notes : iterable of str
        What a reader should know.
    """
    rows = tuple(OutputRow(printable(name), size, None, None) for name, size in noise)
    return Report(
        title=title,
        promise=(*guarantee.summary(), ("covers", COVERS)),
        outputs=rows,
        totals=tuple(_totals(gap, alternatives, notes)),
        equations=(),
        baseline=Baseline(None, "other ways to keep the promise are listed"),
        headline=headline(guarantee),
        opening=printed(paragraph(guarantee, (row.deviation for row in rows))),
    )


def _totals(
    gap: float | None, alternatives: Iterable[tuple[str, float]], notes: Iterable[str]
) -> Iterator[tuple[str, str]]:
    if gap is None:
        yield "optimality", "not certified: less noise may do"
    else:
        most = f"{round_up(100 * gap)} %" if gap >= 1e-4 else f"{round_up(gap)} (relative)"
        yield (
            "optimality",
            f"computed: the (weighted) squared error is at most {most} above the least that any "
            "Gaussian noise with this promise has",
        )
    for name, ratio in alternatives:
        yield "against", f"{name}: {ratio:.4g} times the squared error"
    yield from (("note", note) for note in notes)
