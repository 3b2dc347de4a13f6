"""From the state of the page to equations (step 1) and neighbours (step 2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.domains.manifold import AffineManifold
from affinedp.domains.text import parse_equations
from affinedp.errors import (
    AffineDPError,
    EquationError,
    InconsistentEquationsError,
    MissingExtraError,
    TooManyCircuitsError,
    counted,
)
from affinedp.files.values import check_names
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency, adjacency_of
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.studio.question import LONGEST_NAME, MOST_ENTRIES, Question
from affinedp.tables.describe import TableDescription
from affinedp.tables.layout import layout_of
from affinedp.tables.people import neighbours_of
from affinedp.tables.refusals import TableError
from affinedp.tables.relations import column_relations, depths

# Neighbours that the page lists to say how far one number moves.
MOST_DIRECTIONS = 200_000
SHOWN_MOVES = 4


@dataclass(frozen=True)
class Line:
    """One equation and the line of the text on which it stands."""

    number: int
    text: str
    start: int


@dataclass(frozen=True, eq=False)
class Known:
    """What everyone knows, and who must stay hidden."""

    texts: tuple[str, ...]
    manifold: AffineManifold
    adjacency: Adjacency
    words: str
    warnings: tuple[str, ...] = ()
    counts_people: bool = False  # every number is one of people: whole


def lines_of(text: str) -> list[Line]:
    """Return the equations of a text, one per line, without remarks.

    >>> lines_of("# totals\\n  a + b = c\\n")
    [Line(number=1, text='a + b = c', start=2)]
    """
    found = []
    for number, line in enumerate(text.split("\n")):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            found.append(Line(number, stripped, len(line) - len(line.lstrip())))
    return found


def names_of(question: Question, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the entries in the order in which they appear, or refuse too many of them."""
    names = dict.fromkeys((*parse_equations(texts).names, *question.also))
    if not names:
        raise AffineDPError("write an equation that everyone knows, such as a + b = c")
    if len(names) > MOST_ENTRIES:
        raise AffineDPError(
            f"{len(names):,} numbers are more than the page can show (at most {MOST_ENTRIES:,}): "
            "use the command line or the library, which have no such limit"
        )
    check_names(names, "names")
    long = [name for name in names if len(name) > LONGEST_NAME]
    if long:
        raise AffineDPError(f"the name {long[0][:40]!r}… is longer than {LONGEST_NAME} characters")
    return tuple(names)


def manifold_of(question: Question) -> tuple[tuple[str, ...], AffineManifold]:
    """Return the equations and what they leave open."""
    texts = tuple(line.text for line in lines_of(question.equations))
    names = names_of(question, texts)
    return texts, AffineManifold.from_equations(texts, names, public_entries="allow")


def known_of(question: Question) -> Known:
    """Return equations and neighbours.

    >>> known_of(Question(hidden="person")).words
    'one person more or less, in one cell of the table; a person counts for at most 1 in a number'
    """
    texts, manifold = manifold_of(question)
    if not manifold.dim:
        raise AffineDPError("the equations alone reveal every number: nothing is left to hide")
    if question.hidden == "directions":
        moves = _directions(question.directions, manifold)
        adjacency: Adjacency = DirectionAdjacency(manifold, moves)
        written = [line.text for line in lines_of(question.directions)]
        more = f" and {len(written) - SHOWN_MOVES} more" if len(written) > SHOWN_MOVES else ""
        words = f"a move that was written down ({'; '.join(written[:SHOWN_MOVES])}{more})"
        return Known(texts, manifold, adjacency, words)
    if question.hidden == "definition4":
        adjacency = CircuitAdjacency(manifold, _mu(question, manifold))
        return Known(texts, manifold, adjacency, adjacency.words)
    description = TableDescription(
        **totals_said(texts),
        columns=manifold.names,
        epsilon=1.0,
        adjacency=question.hidden,
        at_most=question.counted if question.hidden == "person" else None,
        mu=mu_by_name(question, manifold),
    )
    layout = layout_of(description, _empty_row(manifold.names))
    try:
        found = neighbours_of(description, layout, manifold)
    except TableError as error:
        if "adjacency=" not in str(error):
            raise
        raise AffineDPError(
            "these equations are no plain totals of counts, so they do not say in which numbers "
            "one person is counted: write sums as total = a + b, choose Definition 4, or list the "
            "moves yourself"
        ) from None
    adjacency = found.adjacency
    if isinstance(adjacency, JointAdjacency):  # files hold a list of moves
        try:
            moves = adjacency.directions(MOST_DIRECTIONS)
        except TooManyCircuitsError as error:
            raise AffineDPError(
                f"one person can be counted in {int(error.estimate):,} ways, {found.words}: say in "
                "how many cells at most, or write the equations that tie the parts"
            ) from None
        adjacency = DirectionAdjacency(manifold, moves, unit=adjacency.unit)
    if question.hidden == "person":
        adjacency = _person(adjacency, manifold, question)
    sizes = set(np.atleast_1d(_mu(question, manifold)))
    counts = question.hidden == "person" and sizes <= {0.0, 1.0}
    return Known(texts, manifold, adjacency, found.words, found.warnings, counts)


def _person(found: Adjacency, manifold: AffineManifold, question: Question) -> Adjacency:
    """Say adjacency = "person" where that means the same moves, which a file says in a word."""
    try:
        person = adjacency_of(manifold, "person", _mu(question, manifold))
        ours, other = (
            np.unique(one.directions(MOST_DIRECTIONS), axis=1) for one in (found, person)
        )
    except AffineDPError:
        return found
    same = person.unit == found.unit and np.array_equal(ours, other)
    return person if same else found


_NAME = r"(?:`(?:[^`]|``)*`|[^\W\d]\w*)"
_SUM = rf"{_NAME}(?:\s*\+\s*{_NAME})+"
_TOTAL = re.compile(rf"\s*(?:{_NAME}\s*=\s*{_SUM}|{_SUM}\s*=\s*{_NAME})\s*")


def totals_said(texts: Sequence[str]) -> dict[str, Any]:
    """Sums that are written as such, by the column that they make, and all other equations."""
    totals: dict[str, list[list[str]]] = {}
    others = []
    for text in texts:
        parsed = parse_equations([text])
        signs = {name: parsed.coefficients[0].get(j, 0) for j, name in enumerate(parsed.names)}
        plus = [name for name, value in signs.items() if value > 0]
        minus = [name for name, value in signs.items() if value < 0]
        if _TOTAL.fullmatch(text) and min(len(plus), len(minus)) == 1:
            alone, parts = (plus, minus) if len(plus) == 1 else (minus, plus)
            totals.setdefault(alone[0], []).append(parts)
        else:
            others.append(text)
    return {"totals": totals, "equations": others}


def levels_of(texts: Sequence[str], names: Sequence[str]) -> tuple[list[int], list[bool]]:
    """Return how many totals each number is nested in, and whether it is no total.

    >>> levels_of(["a + b = c"], ["a", "b", "c"])
    ([1, 1, 0], [True, True, False])
    """
    description = TableDescription(equations=tuple(texts), epsilon=1.0)
    relations = list(column_relations(description, names))
    totals = {relation.total for relation in relations}
    return depths(relations, len(names)), [place not in totals for place in range(len(names))]


def reach_of(known: Known, question: Question) -> FloatArray:
    """Return how far each number by itself moves between neighbours, the largest where none does.

    Whoever forgets the equations gives each number noise for its own move.
    """
    if isinstance(known.adjacency, CircuitAdjacency):
        reach = np.asarray(_mu(question, known.manifold), dtype=float)
        reach = np.broadcast_to(reach, (known.manifold.n,)).copy()
    else:
        reach = np.abs(known.adjacency.directions(MOST_DIRECTIONS)).max(axis=1)
    most = float(reach.max())
    if most <= 0.0:
        raise AffineDPError("nothing moves between neighbours: μ is 0 everywhere")
    reach[reach == 0.0] = most
    return reach


def _mu(question: Question, manifold: AffineManifold) -> Any:
    mu = mu_by_name(question, manifold)
    return [mu[name] for name in manifold.names] if isinstance(mu, dict) else mu


def mu_by_name(question: Question, manifold: AffineManifold) -> Any:
    """One number, or one per name where some differ; names of other equations are left out."""
    own = {name: size for name, size in question.moves.items() if name in manifold.names}
    if not own:
        return question.mu
    return {name: own.get(name, question.mu) for name in manifold.names}


def _directions(text: str, manifold: AffineManifold) -> FloatArray:
    """Differences of neighbours, written like one side of an equation."""
    rows: list[FloatArray] = []
    for line in lines_of(text):
        try:
            (row,) = parse_equations([f"{line.text} = 0"], manifold.names).coefficients
        except EquationError as error:
            reason = str(error).partition("\n")[0]
            raise AffineDPError(f"move {len(rows) + 1} ({line.text[:60]}): {reason}") from None
        move = np.zeros(manifold.n)
        move[list(row)] = [float(value) for value in row.values()]
        rows.append(move)
    if not rows:
        raise AffineDPError("write at least one move, such as a + c: which numbers change together")
    return np.array(rows).T


def _empty_row(names: Sequence[str]) -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "tables") from None
    return pandas.DataFrame([[0] * len(names)], columns=list(names))


# Beyond this many numbers only those that matter are drawn.
MOST_DRAWN = 40


def check(question: Question) -> dict[str, Any]:
    """Return what is wrong with each line, or what the equations say together.

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
    """Return the numbers and equations to draw: all, or those that matter most."""
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
    numbers, equations = counted(manifold.n, "number"), counted(count, "equation")
    text = f"{numbers}, {equations}: {manifold.dim:,} of them can still be secret."
    if manifold.public_entries:
        fixed = ", ".join(manifold.public_entries[:6])
        more = "…" if len(manifold.public_entries) > 6 else ""
        text += f" Everyone can compute {fixed}{more}: no noise can hide that."
    return text
