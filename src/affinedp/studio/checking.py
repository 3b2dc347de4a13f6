"""Step 1: are these equations, and what do they say together?"""

from __future__ import annotations

from typing import Any

from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import parse_equations
from affinedp.errors import AffineDPError, EquationError, InconsistentEquationsError
from affinedp.studio.problem import Line, levels_of, lines_of, names_of
from affinedp.studio.question import Question

# Beyond this many numbers only those that matter are drawn.
MOST_DRAWN = 40


def check(question: Question) -> dict[str, Any]:
    """Return what is wrong with each line, or what the equations say together.

    Parameters
    ----------
    question : Question
        Step 1.

    Examples
    --------
    >>> check(Question(equations="a + b = c\\na + b ="))["lines"][1]["status"]
    'wrong'
    >>> [line["status"] for line in check(Question(equations="a = b\\n2 a = 2 b"))["lines"]]
    ['fine', 'redundant']
    """
    lines = lines_of(question.equations)
    told = [_told(line) for line in lines]
    answer: dict[str, Any] = {"ok": False, "lines": told, "message": ""}
    if wrong := sum(one["status"] == "wrong" for one in told):
        which = "One line is not an equation" if wrong == 1 else f"{wrong} lines are not equations"
        answer["message"] = f"{which} yet."
        return answer
    texts = [line.text for line in lines]
    try:
        names = names_of(question, texts)
        manifold = AffineManifold.from_equations(texts, names, public_entries="allow")
    except InconsistentEquationsError as error:
        for row in error.rows:
            told[row] |= {"status": "contradiction", "message": "contradicts another line"}
        answer["message"] = str(error)
        return answer
    except AffineDPError as error:
        answer["message"] = str(error)
        return answer
    kept = {int(row) for row in manifold.canonical.rows}
    for row, one in enumerate(told):
        if row not in kept:
            one |= {"status": "redundant", "message": "follows from the other lines: no harm"}
    answer |= {
        "ok": True,
        "names": list(manifold.names),
        "numbers": manifold.n,
        "independent": manifold.n - manifold.dim,
        "free": manifold.dim,
        "public": list(manifold.public_entries),
        "message": _sentence(manifold),
    }
    return answer


def drawing_of(texts: tuple[str, ...], manifold: AffineManifold, wanted: Any) -> dict[str, Any]:
    """Return the numbers and equations to draw: all, or those that matter most.

    Parameters
    ----------
    texts : tuple of str
        The equations.
    manifold : AffineManifold
        Their entries.
    wanted : iterable of int
        The entries that must be there where not all fit.
    """
    parsed = parse_equations(texts, manifold.names)
    levels, _ = levels_of(texts, manifold.names)
    everything = manifold.n <= MOST_DRAWN
    shown = set(range(manifold.n)) if everything else set(list(wanted)[:MOST_DRAWN])
    equations = []
    for text, row in zip(texts, parsed.coefficients):
        members = [entry for entry in row if entry in shown]
        if members and (everything or len(members) > 1):
            equations.append({"text": text, "members": members})
    return {
        "entries": [
            {"place": entry, "name": manifold.names[entry], "level": levels[entry]}
            for entry in sorted(shown)
        ],
        "equations": equations[:MOST_DRAWN],
        "left_out": manifold.n - len(shown),
    }


def _told(line: Line) -> dict[str, Any]:
    answer = {"line": line.number, "text": line.text, "status": "fine", "message": ""}
    try:
        parse_equations([line.text])
    except EquationError as error:
        reason = str(error).partition("\n")[0]
        place = line.start + min(error.position, len(line.text))
        answer |= {"status": "wrong", "message": reason, "position": place}
    except AffineDPError as error:
        answer |= {"status": "wrong", "message": str(error), "position": line.start}
    return answer


def _sentence(manifold: AffineManifold) -> str:
    count = manifold.n - manifold.dim
    equations = f"{count:,} equation{'s' * (count != 1)}"
    text = f"{manifold.n:,} numbers, {equations}: {manifold.dim:,} of them can still be secret."
    if manifold.public_entries:
        fixed = ", ".join(manifold.public_entries[:6])
        more = "…" if len(manifold.public_entries) > 6 else ""
        text += f" Everyone can compute {fixed}{more}: no noise can hide that."
    return text
