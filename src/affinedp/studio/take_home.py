"""Step 4: a script, a problem file, the mechanism and its report.

Each does exactly what the page shows: the script makes the calls that the page made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
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
        "publish.py": script(question, known),
        "problem.toml": problem_file(question, known),
        "mechanism.json": saved,
        # drawing takes longer than all the rest, and the page shows more
        "report.html": replace(mechanism.report(), picture=None).page(),
    }


def script(question: Question, known: Known) -> str:
    """Return a script that designs the noise again, tells its numbers, and publishes a file."""
    forgetful = forgetful_noise(known, question)
    scales = np.asarray(forgetful.dense.root).diagonal().tolist()
    public = ', public_entries="allow"' if known.manifold.public_entries else ""
    lines = [
        '"""Publish numbers that obey equations which everyone knows, with the least noise.',
        "",
        "Made by affinedp studio; it does what the page showed.",
        '"""',
        "",
        "import argparse",
        "import sys",
        "",
        "import numpy as np",
        "import pandas as pd",
        "",
        "import affinedp as adp",
        "",
        "asked = argparse.ArgumentParser(description=__doc__)",
        'asked.add_argument("data", nargs="?", help="CSV file to publish; without it, only the '
        'noise is designed")',
        "whom = asked.add_mutually_exclusive_group()",
        'whom.add_argument("--same-people", action="store_true", '
        'help="several rows are about the same people: each row is paid for")',
        'whom.add_argument("--different-people", action="store_true", '
        'help="nobody is in two rows: paid for once; which rows there are is public")',
        "asked = asked.parse_args()",
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
        "# Columns that are public: published as they are, beside the numbers.",
        f"labels = {list(question.labels)!r}",
        "",
        "# Publishing spends privacy that cannot be earned back, so a ledger keeps count.",
        "if asked.data is not None:",
        "    try:",
        '        table = pd.read_csv(asked.data, float_precision="round_trip")',
        "        missing = [name for name in [*labels, *names] if name not in table]",
        "        if missing:",
        '            sys.exit(f"{asked.data} has no column {missing[0]!r}")',
        "        if len(table) > 1 and not (asked.same_people or asked.different_people):",
        "            sys.exit(",
        '                f"{asked.data} has {len(table):,} rows: say --different-people if "',
        '                "nobody is in two of them, no row is one person, and it is public which "',
        f'                "rows there are (ε = {question.epsilon!r} in all), or "',
        '                "--same-people if the same people "',
        f'                f"may be in all (ε = {{len(table) * {question.epsilon!r}:g}} in all)"',
        "            )",
        "        for one in adp.discover(table).equations:",
        '            if one.scope == "row" or set(names).isdisjoint(one.columns):',
        "                continue",
        "            sys.exit(",
        f'                f"{{asked.data}}: {{one.text}}. {TIED}"',
        "            )",
        "        times = len(table) if asked.same_people else 1",
        '        rows = "same" if asked.same_people else "different"',
        f'        budget = {{"epsilon": times * {question.epsilon!r}, '
        f'"delta": min(times * {question.delta!r}, 0.5)}}',
        '        with adp.Ledger("budget.db", **budget, protects="one person") as ledger:',
        "            published = m.release(table[names], ledger=ledger, rows=rows)",
        "    except (adp.AffineDPError, OSError) as error:",
        "        sys.exit(str(error))",
        f"    interval = m.interval(published, level={LEVEL})",
        "    low, high = np.atleast_2d(interval.low), np.atleast_2d(interval.high)",
        "    columns = {}",
        "    for name in table:",
        "        if name in labels:",
        "            columns[name] = table[name]",
        "        elif name in names:",
        "            place = names.index(name)",
        "            columns[name] = published[name].to_numpy()",
        '            columns[f"{name}_lower"] = low[:, place]',
        '            columns[f"{name}_upper"] = high[:, place]',
        '    pd.DataFrame(columns).to_csv("published.csv", index=False)',
        '    print("published.csv holds the published numbers with 95 % intervals; budget.db what '
        'they cost")',
    ]
    return "\n".join(lines) + "\n"


def problem_file(question: Question, known: Known) -> str:
    """Return the problem as TOML, for the command line."""
    lines = [
        f"# For: affinedp design problem.toml --law {question.law} -o mechanism.json",
        "# (affinedp verify asks about noise that you have: add it under [noise].)",
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


def _neighbours_in_toml(adjacency: Adjacency) -> Iterator[str]:
    if isinstance(adjacency, CircuitAdjacency | FreeSetAdjacency):
        yield f"mu = {_mu(adjacency.mu)}"
    if isinstance(adjacency, FreeSetAdjacency):
        yield f"free_sets = {json.dumps(_sets(adjacency), ensure_ascii=False)}"
    elif not isinstance(adjacency, CircuitAdjacency):
        yield "directions = ["
        for move in adjacency.directions(MOST_DIRECTIONS).T:
            yield f"    {[float(value) for value in move]!r},"
        yield "]"


def _sets(adjacency: FreeSetAdjacency) -> list[list[str]]:
    names = adjacency.manifold.names
    return [[names[entry] for entry in chosen] for chosen in adjacency.free_sets]


def _mu(mu: Any) -> str:
    values = np.asarray(mu, dtype=float).ravel().tolist()
    return repr(values[0]) if len(set(values)) == 1 else repr(values)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.split())
