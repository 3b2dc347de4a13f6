"""One page that reads like a short article: what the paper says, what comes out, and why."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from affinedp.paper.claims import Reproduced

SOURCE = "Ren, Wang, Yuan, Shi, “Differential Privacy on Affine Manifolds”"

INTRODUCTION = """
The paper asks what differential privacy means for data that obeys linear equations which everyone
knows, and how to choose correlated noise for it. Every number and figure of it was computed
again, exactly where that is possible and by simulation as a cross-check. Most agree. Some are
bounds where an exact value is known, and a few are not what the text says; these are marked as
corrected, with the reason.
"""

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
:root{color-scheme:light dark}
body{max-width:52rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif}
h1{font-size:1.7rem;line-height:1.25}h2{margin-top:2.5rem;border-bottom:1px solid #8886}
table{border-collapse:collapse;width:100%;font-size:.88rem;margin:1rem 0}
th,td{padding:.3rem .5rem;text-align:left;vertical-align:top;border-bottom:1px solid #8883}
td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.corrected{font-weight:600;color:#D55E00}.added{color:#0072B2}.how{color:GrayText}
figure{margin:1.5rem 0}figure img{width:100%;height:auto;background:white}
figcaption{font-size:.88rem;color:GrayText}
@media print{body{max-width:none}h2{break-after:avoid}figure,tr{break-inside:avoid}}
"""


def page(found: Sequence[Reproduced]) -> str:
    """Return the article as one HTML page that needs nothing from elsewhere.

    Parameters
    ----------
    found : sequence of Reproduced
        The parts, with their figures on the disk.
    """
    corrected = sum(claim.verdict == "corrected" for one in found for claim in one.claims)
    total = sum(len(one.claims) for one in found)
    agreeing = sum(claim.verdict == "agrees" for one in found for claim in one.claims)
    body = [
        f"<h1>{escape(SOURCE)}, reproduced</h1>",
        *_paragraphs(INTRODUCTION),
        f"<p>{total} results below: {agreeing} agree with the paper, {corrected} correct it, the "
        "others add what it leaves out.</p>",
    ]
    for one in found:
        body.extend(_part(one))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>{escape(SOURCE)}, reproduced</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


def _part(one: Reproduced) -> Iterator[str]:
    yield f"<h2>{escape(one.title)}</h2>"
    yield from _paragraphs(STORIES[one.part])
    for figure in one.figures:
        if figure.suffix == ".png":
            yield _figure(figure)
    yield (
        "<table><thead><tr><th>result</th><th>paper</th><th>here</th><th>verdict</th><th>how</th>"
        "</tr></thead><tbody>"
    )
    for claim in one.claims:
        what, paper, ours, verdict, how = map(escape, claim.row())
        yield (
            f"<tr><td>{what}</td><td class='number'>{paper}</td><td class='number'>{ours}</td>"
            f"<td class='{verdict}'>{verdict}</td><td class='how'>{how}</td></tr>"
        )
    yield "</tbody></table>"


def _paragraphs(text: str) -> Iterator[str]:
    """Blank lines separate paragraphs."""
    return (f"<p>{escape(paragraph)}</p>" for paragraph in text.strip().split("\n\n"))


def _figure(path: Path) -> str:
    """A picture inside the page."""
    data = base64.b64encode(path.read_bytes()).decode()
    title = escape(path.stem.replace("_", " "))
    vector = escape(path.with_suffix(".svg").name)
    return (
        f"<figure><img alt='{title}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{title} (also as {vector})</figcaption></figure>"
    )
