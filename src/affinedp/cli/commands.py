"""Commands that are loaded when they are asked for: to build all of them takes longer than most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from affinedp.cli.help import add


@dataclass(frozen=True)
class Place:
    """Where a command, or a group of them, is written.

    Attributes
    ----------
    module : str
        Of the room of the command line.
    name : str
        Of the function or of the Typer application in it.
    examples : tuple of str
        Lines to try, for a function.
    """

    module: str
    name: str
    examples: tuple[str, ...] = ()

    def load(self, command: str) -> Any:
        """Return it as the command line wants it.

        Parameters
        ----------
        command : str
            What it is called.
        """
        written = getattr(import_module(f"affinedp.cli.{self.module}"), self.name)
        if isinstance(written, typer.Typer):
            group = get_group(written)
            group.name = command
            return group
        alone = typer.Typer(add_completion=False)
        add(alone, written, *self.examples, name=command)
        return get_command(alone)


class Loaded(Mapping[str, Any]):
    """Commands by name; each is loaded once, at its first use.

    Parameters
    ----------
    places : mapping of str to Place
        Where they are.
    """

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, command: str) -> Any:
        if command not in self._loaded:
            self._loaded[command] = self._places[command].load(command)
        return self._loaded[command]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def group_of(places: Mapping[str, Place]) -> type[TyperGroup]:
    """Return the class of a group with these commands.

    Parameters
    ----------
    places : mapping of str to Place
        In the order in which ``--help`` lists them.
    """

    class LoadedGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands: Any = Loaded(places)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(places)

    return LoadedGroup
