"""One page that reads like a short article: what the paper says, what comes out, and why."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from affinedp.paper.captions import CAPTIONS
from affinedp.paper.claims import Reproduced, Verdict, counted

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
        if figure.suffix == ".png" and not figure.stem.endswith("_narrow"):
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
    """A picture inside the page, and the narrow one where there is no room for it."""
    caption, alternative = CAPTIONS[path.stem]
    narrow = path.with_name(f"{path.stem}_narrow.png")
    vector = escape(path.with_suffix(".svg").name)
    return (
        f"<figure><picture><source media='(max-width:640px)' srcset='{_inside(narrow)}'>"
        f"<img alt='{escape(alternative)}' src='{_inside(path)}'></picture>"
        f"<figcaption>{escape(caption)} <a href='{vector}'>{vector}</a></figcaption></figure>"
    )


def _inside(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"
