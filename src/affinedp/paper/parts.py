"""The parts of the paper, each with its claims and figures."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.files.writing import write_text
from affinedp.paper.claims import Reproduced
from affinedp.paper.page import page

PARTS = {
    "examples": "Examples 1 and 2",
    "control": "Section V: private cloud control",
    "consensus": "Section VI: private average consensus",
}


def parts_named(name: str) -> list[str]:
    """Return the parts that a name stands for: one of them, or ``"all"``.

    Examples
    --------
    >>> parts_named("all")
    ['examples', 'control', 'consensus']
    """
    if name == "all":
        return list(PARTS)
    if name in PARTS:
        return [name]
    raise AffineDPError(
        f"there is no part {name!r} of the paper to reproduce: {', '.join(PARTS)} or all"
    )


def reproduce(
    parts: list[str],
    out: Path | None,
    progress: Callable[[float, str], None] = lambda share, note: None,
) -> list[Reproduced]:
    """Compute the claims of some parts again, and draw their figures if there is a folder."""
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AffineDPError(f"{out} cannot be made: {error.strerror}") from None
    found = []
    for place, part in enumerate(parts):
        module: Any = importlib.import_module(f"affinedp.paper.{part}")
        progress(place / len(parts), f"{part}, numbers")
        claims = tuple(module.claims())
        figures: tuple[Path, ...] = ()
        if out is not None and hasattr(module, "figures"):
            progress((place + 0.4) / len(parts), f"{part}, figures")
            figures = tuple(module.figures(out))
        found.append(Reproduced(part, PARTS[part], claims, figures))
    if out is not None:
        write_text(out / "results.json", _results(found))
        write_text(out / "report.html", page(found))
    return found


def _results(found: list[Reproduced]) -> str:
    document = {
        one.part: {
            "title": one.title,
            "claims": [_plain(asdict(claim)) for claim in one.claims],
            "figures": [figure.name for figure in one.figures],
        }
        for one in found
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }
