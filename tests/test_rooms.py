"""The floor plan is true: imports go one way, nothing private is borrowed, the layout is the tree.

Imports inside functions and for type checkers count like any other.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "affinedp"


@cache
def modules() -> dict[str, ast.Module]:
    """All modules by name, parsed once; a package has the name of its folder."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports() -> Iterator[tuple[str, str, str]]:
    """Who takes which name from which module of ours."""
    known = modules()
    for name, tree in known.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("affinedp"):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield name, inner if inner in known else str(node.module), alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("affinedp."):
                        yield name, alias.name, ""


def test_no_module_needs_itself() -> None:
    graph = nx.DiGraph((a, b) for a, b, _ in imports() if a != b and b != "affinedp")
    assert [
        sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1
    ] == []


def test_no_import_goes_up() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (layers,) = re.findall(r'containers = \["affinedp"\]\nlayers = \[(.*?)\]', text, re.S)
    order = [re.findall(r"\w+", line) for line in layers.strip().splitlines()]
    height = {room: -place for place, rooms in enumerate(order) for room in rooms}

    def room(module: str) -> str:
        return module.split(".")[1]

    up = {
        (a, b)
        for a, b, _ in imports()
        if "." in a and "." in b and room(a) != room(b) and height[room(a)] <= height[room(b)]
    }
    assert up == set()
    assert {room(name) for name in modules() if "." in name} == set(height)


def test_nothing_is_excused() -> None:
    assert "ignore_imports" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_nothing_private_is_borrowed() -> None:
    borrowed = {
        (a, b, name) for a, b, name in imports() if name.startswith("_") and name != "__version__"
    }
    assert borrowed == set()


def test_contributing_shows_the_tree() -> None:
    """Every room and every module of the root stands in the layout, and nothing else does."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    layout = text.split("### The order of rooms")[1].split("\n## ")[0]
    shown = set(re.findall(r"^    (\w+(?:/|\.py))", layout, re.M))
    there = {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")}
    there |= {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    assert shown == there


def test_every_module_says_what_is_inside() -> None:
    assert [name for name, tree in modules().items() if not ast.get_docstring(tree)] == []
