"""The paper's claims beside what comes out here, and one page that reads like a short article."""

from __future__ import annotations

import base64
import importlib
import json
import math
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from affinedp.errors import AffineDPError
from affinedp.files.writing import write_text

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


def printed(what: str, paper: float, ours: float, how: str) -> Claim:
    """Return the claim about a number that the paper prints with four decimals."""
    return Claim(what, paper, ours, verdict_of(abs(paper - ours) <= 0.5001e-4), how)


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


# What the page says, and how it looks: the words of report.toml.
WORDS: dict[str, Any] = tomllib.loads(
    resources.files(__package__).joinpath("report.toml").read_text(encoding="utf-8")
)
PARTS: dict[str, str] = WORDS["titles"]


def page(found: Sequence[Reproduced]) -> str:
    """Return the article as one HTML page that needs nothing from elsewhere."""
    counts, title = counted(found), f"{escape(WORDS['source'])}, reproduced"
    items = "".join(
        f"<li><b>{counts[kind]}</b>{text}</li>" for kind, text in WORDS["counted"].items()
    )
    contents = ", ".join(f"<a href='#{one.part}'>{escape(one.title)}</a>" for one in found)
    body = [
        "<header>",
        f"<h1>{title}</h1>",
        *_paragraphs(WORDS["introduction"]),
        f"<ul class='counts'>{items}</ul>",
        f"<p>Below: {contents}. Every picture lies beside this page as PNG and SVG, and every "
        "number in results.json.</p>",
        "</header><main>",
    ]
    for one in found:
        body.extend(_part(one))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>{title}</title><style>{WORDS['style']}</style></head>"
        f"<body>{''.join(body)}</main></body></html>"
    )


def _part(one: Reproduced) -> Iterator[str]:
    yield f"<section id='{one.part}'><h2>{escape(one.title)}</h2>"
    yield from _paragraphs(WORDS["stories"][one.part])
    for figure in one.figures:
        if figure.suffix == ".png":
            yield _figure(figure)
    yield (
        f"<details open><summary>All {len(one.claims)} results of this part</summary>"
        "<table><thead><tr><th>result</th><th>paper</th><th>here</th><th>verdict</th><th>how</th>"
        "</tr></thead><tbody>"
    )
    for claim in one.claims:
        what, paper, ours, verdict, how = map(escape, claim.row())
        yield (
            f"<tr><td>{what}</td><td class='number' data-name='paper'>{paper}</td>"
            f"<td class='number' data-name='here'>{ours}</td><td class='{verdict}'>{verdict}</td>"
            f"<td class='how'>{how}</td></tr>"
        )
    yield "</tbody></table></details></section>"


def _paragraphs(text: str) -> Iterator[str]:
    """Blank lines separate paragraphs."""
    return (f"<p>{escape(paragraph)}</p>" for paragraph in text.strip().split("\n\n"))


def _figure(path: Path) -> str:
    """A picture inside the page."""
    words = WORDS["figures"][path.stem]
    caption, alternative = escape(words["caption"]), escape(words["alternative"])
    vector = escape(path.with_suffix(".svg").name)
    inside = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<figure><img alt='{alternative}' src='data:image/png;base64,{inside}'>"
        f"<figcaption>{caption} <a href='{vector}'>{vector}</a></figcaption></figure>"
    )


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
