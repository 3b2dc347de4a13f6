"""``affinedp studio``: see the leak, fix it, take the script home, in a browser."""

from __future__ import annotations

import typer
from typer import Option

from affinedp.errors import MissingExtraError


def studio(
    port: int | None = Option(
        None, help="Where to listen (default: 8642, or any that is free).", min=0, max=65535
    ),
    open_page: bool = Option(True, "--open/--no-open", help="Open the page in a browser."),
) -> None:
    """Open a page on this machine: equations, who must stay hidden, how much noise, the script.

    The first line is the link, with the token of this run.  Nothing leaves this process.

    Examples
    --------
    affinedp studio
    affinedp studio --port 8642 --no-open
    """
    try:
        from affinedp.studio.serving import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("affinedp"):
            raise
        raise MissingExtraError(str(error.name), "studio") from None

    serve(port, open_page, typer.echo)
