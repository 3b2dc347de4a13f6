"""``affinedp studio``: see the leak, fix it, take the script home, in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from affinedp.errors import MissingExtraError


def studio(
    port: Annotated[
        int | None,
        typer.Option(
            help="Where to listen (default: 8642, or any that is free).", min=0, max=65535
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Open a page on this machine: equations, who must stay hidden, how much noise, the script.

    The first line is the link, with the token of this run.  Nothing leaves this process.
    """
    try:
        from affinedp.studio.serving import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("affinedp"):
            raise
        raise MissingExtraError(str(error.name), "studio") from None

    serve(port, open_page, typer.echo)
