"""What the reference lists and how its docstrings are read.

Packages list what they export, a bare name leads to its page wherever that is, and ``|x|`` is an
absolute value.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from docutils import nodes

Names = list[tuple[str, list[str]]]


def public_names(package: str) -> Names:
    """Return the exported names of a package by kind, for the template of its page."""
    module = importlib.import_module(package)
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in module.__all__:
        value = getattr(module, name)
        is_class = inspect.isclass(value)
        is_error = is_class and issubclass(value, BaseException)
        kinds["Errors" if is_error else "Classes" if is_class else "Functions"].append(name)
    return list(kinds.items())


def resolve(app: Any, env: Any, node: Any, contnode: nodes.Node) -> nodes.Node | None:
    """Find what a docstring calls ``Mechanism.release`` wherever its page is."""
    if node.get("refdomain") != "py":
        return None
    domain, target = env.get_domain("py"), node["reftarget"].split(".")
    for length in (2, 1):  # a method with its class, or a single name
        ending = "." + ".".join(target[-length:])
        found = [name for name in domain.objects if name.endswith(ending)]
        if found:
            name = min(found, key=len)
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, node["reftype"], name, node, contnode
            )
    return None


def keep_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape the bars of absolute values, which reStructuredText takes for substitutions."""
    in_example = False
    for i, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            pieces = re.split(r"(``.*?``)", line)
            lines[i] = "".join(p if p.startswith("``") else p.replace("|", r"\|") for p in pieces)


def without_ways_back(app: Any, page: str, template: str, context: Any, tree: Any) -> None:
    """Take the links back to the reference off pages of source code.

    They are wrong where names of one module are exported by another.
    """
    if page.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app: Any) -> dict[str, bool]:
    """Resolve bare names; keep bars, after numpydoc has written the sections."""
    app.connect("html-page-context", without_ways_back)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", keep_bars, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
