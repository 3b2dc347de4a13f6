"""What is said about margins: the promise, the noise table by table, other ways."""

from __future__ import annotations

from dataclasses import replace

from affinedp.show.page import Report
from affinedp.show.report import grouped_report
from affinedp.tables.margin_description import DesignedMargins


def margin_report(design: DesignedMargins, published: bool = False) -> Report:
    """Return what people want to read, with attributes and places by their names.

    Parameters
    ----------
    design : DesignedMargins
        The noise.
    published : bool
        Whether it was drawn already.
    """
    mechanism, asked = design.mechanism, design.description
    found = design.accuracy(0.95)
    words = mechanism.noise.words
    names = " × ".join(asked.names)
    where = "" if asked.tree is None else f" in {len(asked.tree.parent):,} places"
    title = (
        f"{words[0].upper()}{words[1:]} noise on {len(design.wanted):,} tables of {names}{where}"
    )
    report = grouped_report(mechanism, title, zip(map(str, found.index), found["noise"].tolist()))
    lines = list(report.totals)
    if asked.whole:
        words = "whole numbers" + (" of at least 0" if asked.nonnegative else "")
        lines.append(
            ("note", f"{words}: every table adds up by itself and over places; tables of different "
             "attributes agree before rounding only")
        )  # fmt: skip
    if published:
        lines.append(("note", "published: all of it may be shown to anyone"))
    return replace(report, totals=tuple(lines))
