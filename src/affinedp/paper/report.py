"""The paper's claims beside what comes out here, and one page that reads like a short article."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
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


# by the name of the file: the caption, and the text in place of the picture
CAPTIONS: dict[str, tuple[str, str]] = {
    "control_figure_2": (
        "Figure 2. Tracking errors of the vehicle, one draw of noise, ε = 1, δ = 0.01. Red: the "
        "paper's noise; blue: the least that keeps the same promise. Boxes show quartiles, "
        "whiskers 5 and 95 % of the runs; lines are exact, dots simulated (two standard errors).",
        "Four panels over a hundred steps: box plots of position and velocity errors around "
        "zero, and their mean squares. The blue curve of the least noise lies below the red one "
        "of the paper's; simulated dots lie on the exact lines.",
    ),
    "control_figure_3": (
        "Figure 3. Mean-square tracking errors at the end against ε. Blue: one draw; red: fresh "
        "draws; dashed: the paper's noise; solid: the least. Lines are exact, dots simulated with "
        "two standard errors.",
        "Two panels with falling curves, for position and velocity. One draw lies below fresh "
        "draws at every ε, and the least noise below the paper's, most of all at small ε.",
    ),
    "control_velocities": (
        "Not in the paper. Its noise hides positions and reveals velocities exactly; designs that "
        "hide both cost more. Lines are exact, dots simulated with two standard errors.",
        "Four panels: an eavesdropper's error in the velocity, zero under the paper's noise; the "
        "noise on the sent position by time; mean-square errors of position and velocity for four "
        "choices of what is protected.",
    ),
    "consensus_figure_4": (
        "Figure 4. The ten agents, their links and initial values. Orange: agents whose weights "
        "sum to exactly 1, where the paper asks for less.",
        "A ring of ten numbered agents with fourteen links; agents 2, 5, 7 and 10 are orange.",
    ),
    "consensus_figure_5": (
        "Figure 5. The mean error of every agent dies out. Lines are exact, dots are means of "
        "simulated runs with two standard errors.",
        "Ten curves that start between minus 75 and 85 and meet at zero after some twenty steps; "
        "a second panel enlarges the end.",
    ),
    "consensus_figure_6": (
        "Figure 6. Mean-square errors with Gaussian noise. Left: the paper's noise; "
        "right: the least for the same promise. Dashed: the bounds of Proposition 1; "
        "dots are simulated, with two standard errors.",
        "Two panels of three falling curves, for three values of ε, that level off below dashed "
        "lines; all curves level off lower with the least noise.",
    ),
    "consensus_figure_7": (
        "Figure 7. Mean-square errors with Laplace noise, where the paper's scale is the least. "
        "Dashed: the bounds of Proposition 1; dots are simulated, with two standard errors.",
        "Three falling curves, for three values of ε, that level off below dashed lines.",
    ),
    "consensus_readouts": (
        "Not in the paper. Three ways to read the average off, with the same promise: the state, "
        "as in the paper; the message; the corrected message. Dots are simulated, two standard "
        "errors.",
        "Two panels, Gaussian and Laplace noise. Messages and corrected messages level off at "
        "about a tenth of the error of states.",
    ),
    "consensus_large": (
        "Not in the paper. A hundred thousand agents in a square agree: messages at five times, "
        "and the squared error of one run with its exact limits (dotted); red: state, blue: "
        "message, green: corrected.",
        "Five coloured squares, from noise to one even colour as time passes, and falling curves "
        "of squared errors of three read-outs.",
    ),
}


SOURCE = "Ren, Wang, Yuan, Shi, “Differential Privacy on Affine Manifolds”"

INTRODUCTION = """
This page checks a paper. The paper asks what differential privacy means for data that obeys
linear equations which everyone knows, such as a total and its parts or the motion of a vehicle,
and how to choose noise for it. affinedp is a library that does what the paper describes; it
computed every number and figure of the paper again, exactly where that is possible, and by
simulation as a cross-check.

Most agree. Some are bounds where an exact value is known, and a few are not what the text
says; these are marked as corrected, with the reason. Where the paper leaves something out, it
was added. In figures the paper's noise stands beside the least; captions say which is which.
"""

COUNTED: dict[Verdict, str] = {
    "agrees": "agree with the paper",
    "corrected": "correct it",
    "added": "are added",
}

STORIES = {
    "examples": """
Two entries obey one equation. The paper shows that independent Laplace noise then protects less
than it seems to, and that noise that obeys the equation, too, protects as promised. Both hold,
exactly. The neighbours of Example 2 are what Definition 4 gives.
""",
    "control": """
A vehicle sends its position to a cloud that steers it. One draw of noise for the whole trajectory
hides it where fresh noise at every step would be averaged away.

Three things differ. The noise of the paper, 2.5244, comes from an upper bound; the exact
condition, which the paper also states, allows 1.8779, and every tracking error is smaller with
it, most of all for small ε. The position and the velocity are both called private, but the design
takes velocities as public, and then its noise reveals them exactly; a design that hides both is
shown beside it. And the theorem covers neighbours that move one entry of the state at one time
while the others at that time stay. The full Definition 4 lets any entries of the trajectory stay,
which for this vehicle takes ten times as much noise.
""",
    "consensus": """
Ten agents find the average of their values by talking to their neighbours, and each adds one draw
of noise to all that it says.

The initial values average 15, not 10 as printed. Four agents have weights that sum to exactly 1,
where the paper asks for less than 1; what convergence needs, and what holds, is that all but one
eigenvalue lie inside the unit circle. The bounds on the mean-square error are right, and the
exact value lies below them: (1 − 1/n) Σσ² in the limit. The messages themselves are a far better
estimate than the states that the paper reads out, at the same promise. And L(0, 1) noise has
variance 2: code that draws variance 1 promises √2 times less.
""",
}

STYLE = """
:root{color-scheme:light dark;--line:#8884;--new:#0067a3;--fixed:#b34e00}
@media (prefers-color-scheme:dark){:root{--new:#6fc0ee;--fixed:#ff9a52}}
body{max-width:52rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif}
h1{font-size:1.7rem;line-height:1.25}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
.counts{display:flex;flex-wrap:wrap;gap:.6rem;padding:0;list-style:none}
.counts li{flex:1 1 7rem;padding:.5rem .8rem;border:1px solid var(--line);border-radius:.4rem}
.counts b{display:block;font-size:1.6rem;line-height:1.2}
table{border-collapse:collapse;width:100%;font-size:.88rem;margin:1rem 0}
th,td{padding:.3rem .5rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.corrected{font-weight:600;color:var(--fixed)}.added{color:var(--new)}.how{opacity:.75}
figure{margin:1.5rem 0}figure img{width:100%;height:auto;background:white;border-radius:.3rem}
figcaption{font-size:.88rem;opacity:.8}summary{cursor:pointer;padding:.4rem 0}
@media (max-width:640px){body{margin:1rem auto}thead{position:absolute;left:-9999px}
table,tbody,tr,td{display:block}tr{padding:.5rem 0;border-bottom:1px solid var(--line)}
td,td.number{border:0;padding:.05rem 0;text-align:left;white-space:normal}
td:first-child{font-weight:600}td[data-name]::before{content:attr(data-name) ": ";opacity:.65}}
@media print{body{max-width:none}h2{break-after:avoid}figure,tr{break-inside:avoid}}
"""


def page(found: Sequence[Reproduced]) -> str:
    """Return the article as one HTML page that needs nothing from elsewhere."""
    counts = counted(found)
    items = "".join(f"<li><b>{counts[kind]}</b>{text}</li>" for kind, text in COUNTED.items())
    contents = ", ".join(f"<a href='#{one.part}'>{escape(one.title)}</a>" for one in found)
    body = [
        "<header>",
        f"<h1>{escape(SOURCE)}, reproduced</h1>",
        *_paragraphs(INTRODUCTION),
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
        f"<title>{escape(SOURCE)}, reproduced</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</main></body></html>"
    )


def _part(one: Reproduced) -> Iterator[str]:
    yield f"<section id='{one.part}'><h2>{escape(one.title)}</h2>"
    yield from _paragraphs(STORIES[one.part])
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
    caption, alternative = CAPTIONS[path.stem]
    vector = escape(path.with_suffix(".svg").name)
    inside = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<figure><img alt='{escape(alternative)}' src='data:image/png;base64,{inside}'>"
        f"<figcaption>{escape(caption)} <a href='{vector}'>{vector}</a></figcaption></figure>"
    )


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
        drawing = f"affinedp.paper.{part}_figures"
        if out is not None and importlib.util.find_spec(drawing) is not None:
            progress((place + 0.4) / len(parts), f"{part}, figures")
            figures = tuple(importlib.import_module(drawing).figures(out))
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
