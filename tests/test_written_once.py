"""What people do with noise is written once, in Mechanism."""

import ast
from pathlib import Path

import affinedp

ROOT = Path(affinedp.__file__).parent
VERBS = {"release", "interval", "save", "load", "report"}
# Descriptions and results, which hold a mechanism and hand things on to it.
NO_NOISE = {
    "TableRelease", "MarginRelease", "TableDesign", "MarginDesign", "SeveralTables",
    "SeveralDesigns", "ReleasedTable", "ReleasedMarginTables", "ClosedLoop",
    "Controller", "PrivateRegression", "Tangent",
}  # fmt: skip


def verbs_by_class():
    found = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                if names & VERBS:
                    found.setdefault(node.name, set()).update(names & VERBS)
    return found


def test_only_mechanisms_have_the_verbs():
    found = verbs_by_class()
    assert found.pop("Mechanism") == VERBS
    assert set(found) <= NO_NOISE
