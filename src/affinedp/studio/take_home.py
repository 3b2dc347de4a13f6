"""Step 4: a script, a problem file, the mechanism and its report.

Each does exactly what the page shows: the script makes the calls that the page made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.files.writing import toml_text
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency, adjacency_of
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.studio.answers import LEVEL, forgetful_noise
from affinedp.studio.looking import TIED
from affinedp.studio.problem import MOST_DIRECTIONS, Known
from affinedp.studio.question import Question

COVERED = "An equation that the public knows and that is missing below is not covered."


def files(question: Question, known: Known, mechanism: Mechanism) -> dict[str, str]:
    """Return the four files by name."""
    with TemporaryDirectory() as folder:  # all of it is public
        mechanism.save(Path(folder, "mechanism.json"))
        saved = Path(folder, "mechanism.json").read_text(encoding="utf-8")
    return {
        "publish.py": script(question, known, mechanism),
        "problem.toml": problem_file(question, known, mechanism),
        "mechanism.json": saved,
        # drawing takes longer than all the rest, and the page shows more
        "report.html": replace(mechanism.report(), picture=None).page(),
    }


def written(name: str, **values: Any) -> str:
    """Return a script from its template, with these values."""
    text = resources.files("affinedp.studio").joinpath("static", name).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def script(question: Question, known: Known, mechanism: Mechanism) -> str:
    """Return a script that designs the noise again, tells its numbers, and publishes a file."""
    forgetful = forgetful_noise(known, question)
    return written(
        "publish.txt",
        covered=COVERED,
        tied=TIED,
        level=LEVEL,
        epsilon=repr(question.epsilon),
        delta=repr(question.delta),
        law=question.law,
        labels=repr(list(question.labels)),
        equations="\n".join(f"    {text!r}," for text in known.texts),
        names="\n".join(f"    {name!r}," for name in known.manifold.names),
        public=', public_entries="allow"' if known.manifold.public_entries else "",
        words=_one_line(known.words),
        neighbours="\n".join(_neighbours_in_python(known.adjacency)),
        scales=repr(np.asarray(forgetful.dense.root).diagonal().tolist()),
        forgetful=forgetful.law,
        integers=", integers=True" if mechanism.publishes_whole_numbers else "",
    )


def problem_file(question: Question, known: Known, mechanism: Mechanism) -> str:
    """Return the problem as TOML, for the command line."""
    document: dict[str, Any] = {
        "equations": known.texts,
        "names": known.manifold.names,
        "privacy": {**_neighbours_in_toml(known.adjacency), "epsilon": question.epsilon},
    }
    if known.manifold.public_entries:
        document["public_entries"] = "allow"
    if question.delta:
        document["privacy"]["delta"] = question.delta
    noise: dict[str, Any] = {} if question.law == "auto" else {"law": question.law}
    if mechanism.publishes_whole_numbers:
        noise["integers"] = True
    if noise:
        document["noise"] = noise
    remarks = (
        "For: affinedp design problem.toml -o mechanism.json",
        "(affinedp verify asks about noise that you have: describe it under [noise].)",
        COVERED,
        f"Hidden: {_one_line(known.words)}",
    )
    return "".join(f"# {remark}\n" for remark in remarks) + toml_text(document)


def _neighbours_in_python(adjacency: Adjacency) -> Iterator[str]:
    if isinstance(adjacency, CircuitAdjacency):
        yield f"adjacency = adp.CircuitAdjacency(M, mu={_mu(adjacency.mu)})"
    elif isinstance(adjacency, FreeSetAdjacency):
        more = f"mu={_mu(adjacency.mu)}, unit={adjacency.unit!r}"
        yield f"adjacency = adp.FreeSetAdjacency(M, {_sets(adjacency)!r}, {more})"
    elif isinstance(adjacency, DirectionAdjacency):
        names = adjacency.manifold.names
        yield "moves = ["
        for move in adjacency.directions(MOST_DIRECTIONS).T:
            entries = {names[i]: float(move[i]) for i in np.flatnonzero(move)}
            yield f"    {entries!r},"
        yield "]"
        yield "directions = np.array([[move.get(name, 0.0) for name in names] for move in moves]).T"
        yield f"adjacency = adp.DirectionAdjacency(M, directions, unit={adjacency.unit!r})"
    else:
        raise AffineDPError("these neighbours cannot be written into a file")


def _neighbours_in_toml(adjacency: Adjacency) -> dict[str, Any]:
    if isinstance(adjacency, CircuitAdjacency):
        return {"mu": _mu(adjacency.mu)}
    if isinstance(adjacency, FreeSetAdjacency):
        person = {"adjacency": "person"} if _is_person(adjacency) else {}
        return {"mu": _mu(adjacency.mu), **(person or {"free_sets": _sets(adjacency)})}
    return {"directions": adjacency.directions(MOST_DIRECTIONS).T.tolist()}


def _is_person(adjacency: FreeSetAdjacency) -> bool:
    """Whether a problem file says these neighbours in a word."""
    try:
        return adjacency_of(adjacency.manifold, "person", adjacency.mu).key == adjacency.key
    except AffineDPError:
        return False


def _sets(adjacency: FreeSetAdjacency) -> list[list[str]]:
    names = adjacency.manifold.names
    return [[names[entry] for entry in chosen] for chosen in adjacency.free_sets]


def _mu(mu: Any) -> float | list[float]:
    values: list[float] = np.asarray(mu, dtype=float).ravel().tolist()
    return values[0] if len(set(values)) == 1 else values


def _one_line(text: str) -> str:
    return " ".join(text.split())
