"""How commands are written: a function that returns an answer, loaded when it is asked for.

Every command that returns an :class:`Answer` has ``--json``; one that takes a ``public`` broker has
the options of a broker.
"""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from affinedp.cli.output import say, say_json
from affinedp.errors import AffineDPError

Command = Callable[..., Any]


@dataclass(frozen=True)
class Answer:
    """What a command found."""

    # for programs, of plain values; None where ``--json`` makes no sense
    json: Any
    # for people: anything with a text, or a function that returns it or prints
    show: object = None
    # the exit code
    code: int = 0


def load(module: str, name: str) -> Any:
    """Return a command as Typer wants it: its docstring is the help, with lines to try."""
    function = getattr(import_module(f"affinedp.cli.{module}"), name)
    text, _, lines = (inspect.getdoc(function) or "").partition("\n\nExamples\n--------\n")
    examples = lines.replace("\n    ", " ").splitlines()
    head = "Examples:" if len(examples) > 1 else "Example:"
    alone = typer.Typer(add_completion=False)
    alone.command(
        name,
        help=flowing(text),
        epilog="\n\n".join([head, *examples]).replace("[", "\\["),
    )(answering(with_broker(function)))
    command: Any = get_command(alone)
    for option in command.params:
        if getattr(option, "help", None):  # [sensors] is a table of a file, and no markup
            option.help = option.help.replace("[", "\\[")
    name_no_flags(command)
    return command


def name_no_flags(command: Any) -> None:
    """Leave out the type of what takes no value in the help of a command."""
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        if getattr(option, "is_flag", False):
            option.metavar = ""


def flowing(text: str) -> str:
    """Return paragraphs without the line breaks of the source, safe from markup.

    Examples
    --------
    >>> flowing("One.\\n\\nTwo [privacy]\\nlines.")
    'One.\\n\\nTwo \\\\[privacy] lines.'
    """
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(paragraphs).replace("[", "\\[")


def answering(function: Command) -> Command:
    """Return a command that prints the answer of a function, as JSON if that is asked for."""
    signature = inspect.signature(function, eval_str=True)
    if signature.return_annotation is not Answer:
        return function
    json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
    option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)

    def command(as_json: bool, **given: Any) -> None:
        answer = function(**given)
        if as_json and answer.json is None:
            raise AffineDPError("this answer is no JSON: leave out --json")
        if as_json:
            say_json(answer.json)
        else:
            text = answer.show() if callable(answer.show) else answer.show
            if text is not None:
                say(text)
        if answer.code:
            raise typer.Exit(answer.code)

    return _signed(command, function, [*_options(signature), option.replace(annotation=json)])


def with_broker(function: Command) -> Command:
    """Return a command with the options of a broker in place of a parameter ``public``."""
    signature = inspect.signature(function, eval_str=True)
    if "public" not in signature.parameters:
        return function
    from affinedp.cli.options import public_broker

    options = _options(inspect.signature(public_broker, eval_str=True))

    def command(**given: Any) -> Any:
        public = public_broker(**{option.name: given.pop(option.name) for option in options})
        return function(public=public, **given)

    own = [option for option in _options(signature) if option.name != "public"]
    return _signed(command, function, [*own, *options])


def _options(signature: inspect.Signature) -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [option.replace(kind=keyword) for option in signature.parameters.values()]


def _signed(command: Command, function: Command, options: list[inspect.Parameter]) -> Command:
    """A command that looks to Typer as if it were written with these options."""
    returns = inspect.signature(function, eval_str=True).return_annotation
    wrapped = wraps(function)(command)
    del wrapped.__wrapped__
    wrapped.__annotations__ = {option.name: option.annotation for option in options}
    wrapped.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        options, return_annotation=returns
    )
    return wrapped


class Loaded(UserDict[str, Any]):
    """Commands by name; each is loaded at its first use."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(self.data[name], partial):
            self.data[name] = self.data[name]()
        return self.data[name]


Groups = Mapping[str, tuple[str, Mapping[str, str]]]


def group_of(modules: Mapping[str, str], groups: Groups | None = None) -> type[TyperGroup]:
    """Return the class of a group with the commands of some modules, and with further groups."""
    loaders = {name: partial(load, module, name) for name, module in modules.items()}
    for name, (about, inner) in (groups or {}).items():
        loaders[name] = partial(_group, name, about, inner)

    class LoadedGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands: Any = Loaded(loaders)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            name_no_flags(self)  # here, since Typer adds options for completion late
            super().format_help(ctx, formatter)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(loaders)

    return LoadedGroup


def _group(name: str, about: str, modules: Mapping[str, str]) -> Any:
    apart = typer.Typer(cls=group_of(modules), help=about, no_args_is_help=True)

    @apart.callback(help=about)
    def _root() -> None:
        pass

    group = get_group(apart)
    group.name = name
    return group
