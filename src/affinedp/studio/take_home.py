"""Step 4: a script, a problem file, the mechanism and a page for a manager.

Each does exactly what the page shows: the script makes the calls that the page made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from affinedp.designs.choose import LAW_NAMES
from affinedp.errors import AffineDPError
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.free_sets import FreeSetAdjacency
from affinedp.neighbours.given_directions import DirectionAdjacency
from affinedp.show.page import round_up
from affinedp.studio.answers import forgetful_noise
from affinedp.studio.problem import MOST_DIRECTIONS, Known
from affinedp.studio.question import Question

COVERED = "An equation that the public knows and that is missing above is not covered."


def files(question: Question, known: Known, shown: dict[str, Any], mechanism: str) -> Any:
    """Return the four files by name.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.
    known : Known
        Equations and neighbours.
    shown : dict
        What step 3 shows.
    mechanism : str
        The saved mechanism.
    """
    return {
        "publish.py": script(question, known, shown),
        "problem.toml": problem_file(question, known),
        "mechanism.json": mechanism,
        "report.html": report(question, known, shown),
    }


def script(question: Question, known: Known, shown: dict[str, Any]) -> str:
    """Return a Python script that designs the noise again, tells its numbers and saves it.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.
    known : Known
        Equations and neighbours.
    shown : dict
        What step 3 shows.
    """
    forgetful = forgetful_noise(known, question)
    scales = np.asarray(forgetful.dense.root).diagonal().tolist()
    public = ', public_entries="allow"' if known.manifold.public_entries else ""
    lines = [
        '"""Publish numbers that obey equations which everyone knows, with the least noise.',
        "",
        "Made by affinedp studio; it does what the page showed.",
        '"""',
        "",
        "import numpy as np",
        "",
        "import affinedp as adp",
        "",
        f"# What everyone knows. {COVERED}",
        "equations = [",
        *(f"    {text!r}," for text in known.texts),
        "]",
        "names = [",
        *(f"    {name!r}," for name in known.manifold.names),
        "]",
        f"M = adp.AffineManifold.from_equations(equations, names{public})",
        "",
        f"# Who must stay hidden: {_one_line(known.words)}.",
        *_neighbours_in_python(known.adjacency),
        "",
        f"# Independent noise, meant for ε = {question.epsilon!r}, that forgot the equations.",
        f"scales = {scales!r}",
        f'forgetful = adp.verify(M, np.diag(scales), law="{forgetful.law}", adjacency=adjacency)',
        f'print("meant for epsilon", {question.epsilon!r})',
        f'print("really epsilon", forgetful.epsilon({question.delta!r}))',
        "",
        "# The least noise that keeps the promise.",
        "m = adp.design(",
        "    M,",
        f"    epsilon={question.epsilon!r},",
        f"    delta={question.delta!r},",
        f'    law="{question.law}",',
        "    adjacency=adjacency,",
        ")",
        'print("law", m.law)',
        f'print("kept epsilon", m.guarantee.epsilon({question.delta!r}))',
        'print("typical error", (m.expected_squared_error / len(m.output_names)) ** 0.5)',
        "for name, square in zip(m.output_names, m.expected_squared_errors):",
        '    print("noise", name, square**0.5)',
        "",
        'm.save("mechanism.json")',
        "",
        "# Publishing spends privacy that cannot be earned back, so a ledger keeps count:",
        f'# with adp.Ledger("budget.db", epsilon={question.epsilon!r}, delta={question.delta!r},'
        ' protects="one person") as ledger:',
        f"#     y = m.release(x, ledger=ledger)    # x: {known.manifold.n} numbers, by name",
    ]
    return "\n".join(lines) + "\n"


def problem_file(question: Question, known: Known) -> str:
    """Return the problem as TOML, for the command line.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.
    known : Known
        Equations and neighbours.
    """
    lines = [
        f"# affinedp design problem.toml --law {question.law} -o mechanism.json",
        f"# {COVERED}",
        "equations = [",
        *(f"    {_text(text)}," for text in known.texts),
        "]",
        f"names = [{', '.join(map(_text, known.manifold.names))}]",
    ]
    if known.manifold.public_entries:
        lines.append('public_entries = "allow"')
    lines += ["", "[privacy]", f"# {_one_line(known.words)}"]
    lines += _neighbours_in_toml(known.adjacency)
    lines.append(f"epsilon = {question.epsilon!r}")
    if question.delta:
        lines.append(f"delta = {question.delta!r}")
    return "\n".join(lines) + "\n"


def report(question: Question, known: Known, shown: dict[str, Any]) -> str:
    """Return one page in plain words, for whoever decides and does not read formulas.

    Parameters
    ----------
    question : Question
        Steps 1 to 3.
    known : Known
        Equations and neighbours.
    shown : dict
        What step 3 shows.
    """
    delta = f", plus a chance of {question.delta:g}," if question.delta else ""
    odds = 100 * shown["odds"]
    rows = "".join(
        f"<tr><td>{escape(one['name'])}</td><td>± {one['half']:.4g}</td>"
        f"<td>{one['noise']:.4g}</td><td>{one['others'][0]:.4g}</td></tr>"
        for one in shown["entries"][:60]
    )
    more = len(shown["entries"]) - 60
    rows += f"<tr><td colspan=4>and {more:,} more</td></tr>" if more > 0 else ""
    equations = "".join(f"<li><code>{escape(text)}</code></li>" for text in known.texts)
    bare = "".join(f"<li>{escape(text)}</li>" for text in shown["unprotected"])
    bare = f"<p>Published without noise, because it is known anyway:</p><ul>{bare}</ul>" * bool(
        bare
    )
    law = LAW_NAMES[shown["law"]]
    return _PAGE.format(
        epsilon=f"{question.epsilon:g}",
        delta=delta,
        factor=round_up(shown["factor"], 3),
        odds=f"{math.ceil(odds)}",
        words=escape(known.words),
        equations=equations,
        bare=bare,
        rows=rows,
        law=law,
        error=f"{shown['error']:.4g}",
        saved=_against(shown),
        theorem=escape(shown["basis"]),
        covered=escape(COVERED),
    )


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>What is published, and what it gives away</title>
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem;
  color: #1c2430; }}
h1 {{ font-size: 1.6rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; width: 100%; }}
td, th {{ text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #dde3ea; }}
footer {{ margin-top: 2.5rem; color: #5b6675; font-size: .85rem; }}
</style>
<h1>What is published, and what it gives away</h1>
<p><strong>The promise.</strong> Whatever can be seen in the published numbers becomes at most
{factor} times as likely{delta} because of one secret change (ε = {epsilon}).
Somebody who must guess whether the change happened, and begins with a coin, is right at most {odds}
times in 100.</p>
<p><strong>The change that stays hidden:</strong> {words}.</p>
<h2>What everyone knows</h2>
<p>The numbers obey these equations, before and after the noise, so they still add up:</p>
<ul>{equations}</ul>
<p>{covered}</p>{bare}
<h2>How accurate the numbers are</h2>
<p>A published number is typically {error} off ({law} noise). {saved}</p>
<table><tr><th>number</th><th>95 of 100 times within</th><th>noise</th>
<th>independent noise, same promise</th></tr>{rows}</table>
<h2>What to keep in mind</h2>
<p>Publishing again, about the same people, adds up: each release spends a part of a budget that
cannot be earned back. Keep it in a ledger. The noise itself is no secret; only its draw is.</p>
<footer>Made by affinedp studio. The promise rests on {theorem}.</footer>
</html>
"""


def _against(shown: dict[str, Any]) -> str:
    share = shown["saved"]
    if share > 0.005:
        return (
            "Independent noise with the same promise is typically "
            f"{shown['independent']['error']:.4g} off: "
            f"here the squared error is {100 * share:.0f} % smaller."
        )
    return "Independent noise with the same promise would do as well here, but would not add up."


def _neighbours_in_python(adjacency: Adjacency) -> Iterator[str]:
    if isinstance(adjacency, CircuitAdjacency):
        yield f"adjacency = adp.CircuitAdjacency(M, mu={_mu(adjacency.mu)})"
    elif isinstance(adjacency, FreeSetAdjacency):
        names = adjacency.manifold.names
        sets = [[names[entry] for entry in chosen] for chosen in adjacency.free_sets]
        unit = f", unit={adjacency.unit!r}"
        yield f"adjacency = adp.FreeSetAdjacency(M, {sets!r}, mu={_mu(adjacency.mu)}{unit})"
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


def _neighbours_in_toml(adjacency: Adjacency) -> Iterator[str]:
    if isinstance(adjacency, CircuitAdjacency):
        yield f"mu = {_mu(adjacency.mu)}"
    elif isinstance(adjacency, FreeSetAdjacency):
        names = adjacency.manifold.names
        sets = [[names[entry] for entry in chosen] for chosen in adjacency.free_sets]
        yield f"mu = {_mu(adjacency.mu)}"
        yield f"free_sets = {json.dumps(sets, ensure_ascii=False)}"
    else:
        yield "directions = ["
        for move in adjacency.directions(MOST_DIRECTIONS).T:
            yield f"    {[float(value) for value in move]!r},"
        yield "]"


def _mu(mu: Any) -> str:
    values = np.asarray(mu, dtype=float).ravel().tolist()
    return repr(values[0]) if len(set(values)) == 1 else repr(values)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())
