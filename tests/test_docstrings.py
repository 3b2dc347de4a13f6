"""Docstrings keep their word: what the reference lists is explained, argument by argument.

Public is what ``docs/reference/index.md`` lists: packages (with all they export), modules (with all
they define) and single names.  After python-control's ``docstrings_test``.
"""

import dataclasses
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import affinedp

REFERENCE = Path(__file__).parent.parent / "docs" / "reference" / "index.md"
PACKAGES = (
    "affinedp.functions", "affinedp.control", "affinedp.consensus", "affinedp.tables",
    "affinedp.flows",
)  # fmt: skip

# What implements a statement of the paper says which one.
IMPLEMENTS = (
    "affinedp.AffineManifold",
    "affinedp.CircuitAdjacency",
    "affinedp.FreeSetAdjacency",
    "affinedp.design_gaussian",
    "affinedp.design_laplace",
    "affinedp.gaussian_delta",
    "affinedp.gaussian_sensitivity",
    "affinedp.gaussian_sigma",
    "affinedp.iid_noise",
    "affinedp.verify",
    "affinedp.control.ClosedLoop",
    "affinedp.control.design_output_noise",
    "affinedp.control.independent_output_noise",
    "affinedp.consensus.PrivateConsensus",
)
STATEMENT = re.compile(
    r"(Theorems?|Algorithms?|Definitions?|Examples?|Propositions?|Lemma|[Ss]ections?)\s+[\dIVX]"
    r"|the paper"
)


def sections(docstring: str) -> dict[str, list[str]]:
    """The lines of each section of a numpydoc docstring."""
    found: dict[str, list[str]] = {"": []}
    lines = docstring.splitlines()
    title = ""
    for line, following in zip(lines, [*lines[1:], ""]):
        if line and not line.startswith(" ") and re.fullmatch(r"-{3,}", following):
            title = line
            found[title] = []
        elif not re.fullmatch(r"-{3,}", line):
            found[title].append(line)
    return found


def documented(docstring: str, *titles: str) -> set[str]:
    """The names that stand before the colons: ``epsilon, delta : float`` has two."""
    found = sections(docstring)
    return {
        name.strip().lstrip("*")
        for title in titles
        for line in found.get(title, ())
        if line and not line.startswith(" ")
        for name in line.split(" :")[0].split(",")
    }


def arguments(function: object) -> set[str]:
    """Names of all arguments but the object itself and those that callers do not use."""
    names = set(inspect.signature(function).parameters) - {"self", "cls"}
    return {name for name in names if not name.startswith("_")}


def listed() -> Iterator[str]:
    """The entries of all ``autosummary`` blocks of the reference."""
    text = REFERENCE.read_text(encoding="utf-8")
    for block in re.findall(r"\.\. autosummary::\n(.*?)```", text, re.DOTALL):
        yield from re.findall(r"^ {3}(affinedp\S*)$", block, re.MULTILINE)


def public() -> Iterator[tuple[str, object]]:
    """Every public function and class, by the name that the reference gives it."""
    for entry in listed():
        try:
            module = importlib.import_module(entry)
        except ModuleNotFoundError:
            home, _, name = entry.rpartition(".")
            yield entry, getattr(importlib.import_module(home), name)
            continue
        for name in getattr(module, "__all__", None) or own_names(module):
            yield f"{entry}.{name}", getattr(module, name)


def own_names(module: object) -> list[str]:
    """Public functions and classes that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties that come from this package."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("affinedp"):
            found |= {name: value for name, value in vars(base).items() if is_method(value)}
    yield from ((name, value) for name, value in found.items() if not name.startswith("_"))


def is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod | property)


def is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def undocumented(name: str, value: object) -> Iterator[str]:
    """What a public name leaves unexplained."""
    docstring = inspect.getdoc(value) or ""
    if not sections(docstring)[""]:
        yield f"{name}: no docstring"
    if inspect.isclass(value):
        if not is_error(value):
            explained = set().union(
                *(
                    documented(inspect.getdoc(base) or "", "Parameters", "Attributes")
                    for base in value.__mro__
                )
            )  # fields of a base are explained there
            for argument in sorted(constructor_arguments(value) - explained):
                yield f"{name}: {argument}"
        for method_name, method in methods(value):
            if not isinstance(method, property):
                yield from undocumented(f"{name}.{method_name}", getattr(value, method_name))
            elif not inspect.getdoc(method):
                yield f"{name}.{method_name}: no docstring"
    else:
        for argument in sorted(arguments(value) - documented(docstring, "Parameters")):
            yield f"{name}: {argument}"


def constructor_arguments(cls: type) -> set[str]:
    return set() if inspect.isabstract(cls) else arguments(cls)


def in_lines(problems: list[str]) -> str:
    return f"{len(problems)} problems\n" + "\n".join(problems)


def test_reference_lists_the_packages():
    """A package that exists is in the reference."""
    there = {package for package in PACKAGES if importlib.util.find_spec(package)}
    assert there | {"affinedp"} <= set(listed())


@pytest.mark.parametrize("package", ["affinedp", *PACKAGES])
def test_no_module_hides_an_exported_name(package):
    """``import package.sweep`` would replace a lazily loaded function ``package.sweep``."""
    module = importlib.import_module(package)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert not modules & set(module.__all__)


def test_every_public_argument_is_documented():
    problems = [text for name, value in public() for text in undocumented(name, value)]
    assert not problems, in_lines(problems)


def test_every_exported_name_has_an_example():
    """In its docstring, or for a class in that of a method.

    Records are shown in the examples of the functions that return them.
    """

    def docstrings(value: object) -> Iterator[str]:
        yield inspect.getdoc(value) or ""
        if inspect.isclass(value):
            yield from (inspect.getdoc(getattr(value, name)) or "" for name, _ in methods(value))

    packages = tuple(package + "." for package in ("affinedp", *PACKAGES))
    problems = [
        name
        for name, value in public()
        if name.rpartition(".")[0] + "." in packages
        and not is_error(value)
        and not dataclasses.is_dataclass(value)
        and not any(">>> " in text for text in docstrings(value))
    ]
    assert not problems, in_lines(problems)


def test_core_names_say_what_they_implement():
    found = dict(public())
    problems = [
        name for name in IMPLEMENTS if not STATEMENT.search(inspect.getdoc(found[name]) or "")
    ]
    assert not problems, in_lines(problems)


def test_no_docstring_is_out_of_date():
    """In all modules: a Parameters section names all arguments, and none that is gone."""
    problems = []
    for found in pkgutil.walk_packages(affinedp.__path__, "affinedp."):
        module = importlib.import_module(found.name)
        for name in own_names(module):
            problems += out_of_date(f"{found.name}.{name}", getattr(module, name))
    assert not problems, in_lines(problems)


def out_of_date(name: str, value: object) -> Iterator[str]:
    explained = documented(inspect.getdoc(value) or "", "Parameters")
    if explained and not (inspect.isclass(value) and inspect.isabstract(value)):
        for argument in sorted(explained ^ arguments(value)):
            known = argument in explained
            yield f"{name}: {argument} is {'no argument' if known else 'not documented'}"
    if inspect.isclass(value):
        for method_name, method in vars(value).items():
            if not method_name.startswith("_") and is_method(method):
                bound = getattr(value, method_name)
                if not isinstance(method, property):
                    yield from out_of_date(f"{name}.{method_name}", bound)
