"""The page that leads from the paper to the library is complete, and everything on it is real."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest
import typer

from affinedp.cli.app import app

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "paper.md"
REFERENCE = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
# The paper's statements, in its own numbering, and its remarks of weight.
STATEMENTS = [
    *(f"Definition {i}" for i in range(1, 7)),
    *(f"Example {i}" for i in (1, 2)),
    *(f"Theorem {i}" for i in range(1, 5)),
    "Lemma 1",
    *(f"Algorithm {i}" for i in (1, 2)),
    "Proposition 1",
    "Assumption 1",
    *(f"Figure {i}" for i in range(1, 8)),
    *(f"Experiment {i}" for i in (1, 2)),
    "The rank condition",
    "nonlinear queries",
    "Sequential composition",
    "Parallel composition",
    "κ(ε, s) and its inverse",
    "Δ_i, Δ_N and Δ_L",
    "The manifold C_d′",
    "The least Σ",
    "The system and its observability matrix",
    "The vehicle of V.C",
    "Independent noise",
    "The algorithm (VI.A)",
    "The Laplacian",
    "The optimal trade-off",
    "Rényi and zero-concentrated",
]


def rows() -> list[list[str]]:
    """The cells of every row of the tables, the first without its bracket, no headings."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip().removeprefix("[") for cell in line.strip("| ").split("|")]
        for line in lines
        if line.startswith("| ") and not line.startswith("| in the paper")
    ]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_has_a_row(statement):
    found = [row for row in rows() if re.match(re.escape(statement) + r"(?!\d)", row[0])]
    assert len(found) == 1, statement


def test_there_is_nothing_else():
    unknown = [r[0] for r in rows() if not any(r[0].startswith(name) for name in STATEMENTS)]
    assert unknown == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_a_row_is_complete_and_real(row):
    assert len(row) == 3, row
    statement, calls, tests = row
    named = [call for call in quoted(calls) if call.startswith("affinedp.")]
    assert named
    for call in named:
        resolve(call)
    for command in quoted(calls):
        if command.startswith("affinedp "):
            exists(command)
    # that links lead somewhere is checked for all pages
    assert re.search(r"\]\([^)]+\.md", statement)
    assert quoted(tests)
    for test in quoted(tests):
        path, _, name = test.partition("::")
        assert name in functions(ROOT / path), test


def resolve(dotted: str) -> object:
    """The public thing of this name: a module's name, and perhaps one of a class."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for i, name in enumerate(parts[cut:]):
            public = name in getattr(found, "__all__", ()) or f"   {dotted}\n" in REFERENCE
            assert i or public, f"{dotted}: not public"
            # a field of a dataclass without a default is not an attribute of its class
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[name] if name in fields else getattr(found, name)
        return found
    raise AssertionError(dotted)


def exists(command: str) -> None:
    """Refuse a command that the command line does not have, or an option that it lacks."""
    first, *words = command.split()
    assert first == "affinedp"
    group = typer.main.get_command(app)
    while words and hasattr(group, "commands"):
        assert words[0] in group.commands, command
        group = group.commands[words.pop(0)]
    known = {name for parameter in group.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, command


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
