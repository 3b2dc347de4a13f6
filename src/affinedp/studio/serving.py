"""Start the studio on this machine, warm, and open it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path

import uvicorn

from affinedp.errors import AffineDPError
from affinedp.studio.guard import Impatient
from affinedp.studio.jobs import Jobs, leave_no_dump
from affinedp.studio.question import Question
from affinedp.studio.server import create_app

ADDRESS = "127.0.0.1"
USUAL_PORT = 8642
# Seconds to wait for the first design before the page is opened.
PATIENCE = 3.0
REDIRECT = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>affinedp studio</title>
<meta http-equiv="refresh" content="0; url={link}"><a href="{link}">Open the studio</a>
"""


def serve(port: int | None, open_page: bool, say: Callable[[str], None]) -> None:
    """Serve the page until it is interrupted; the first line that is said is its link."""
    # computations are small and run side by side: one thread each is the fastest
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    leave_no_dump()
    listener = _listener(port)
    number = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    jobs = Jobs()
    app = create_app(token, (f"{ADDRESS}:{number}", f"localhost:{number}"), jobs)
    warm(jobs)
    link = f"http://{ADDRESS}:{number}/#token={token}"
    say(link)
    say("The page is on this machine only, and its data stays in this process. Ctrl+C stops it.")
    # no log_config: logging belongs to the process, and setting it up closes the handlers of others
    settings = uvicorn.Config(
        app,
        http=Impatient,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
    )
    try:
        if open_page:
            file = private_redirect(link)
            app.when_known = lambda: shutil.rmtree(file.parent, ignore_errors=True)
            webbrowser.open(file.as_uri())
        uvicorn.Server(settings).run(sockets=[listener])
    finally:
        app.when_known()
        jobs.close()
        listener.close()


def private_redirect(link: str) -> Path:
    """Write a page that only this user can read and that leads to the link.

    The browser is started with the name of this file: every user of a machine can read the command
    lines of all processes, and whoever knows the link may spend the owner's ledger.
    """
    file = Path(tempfile.mkdtemp(prefix="affinedp-studio-")) / "open.html"  # mkdtemp: for us only
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as page:
        page.write(REDIRECT.format(link=escape(link)))
    return file


def warm(jobs: Jobs) -> None:
    """Load what computations need, and answer what the page asks first."""
    first = Question()
    started = [
        jobs.start(f"warm-{task}", task, first, first.model_dump_json())
        for task in ("check", "leak", "design")
    ]
    for job, patience in zip(started, (None, None, PATIENCE)):
        job.done.wait(patience)  # a design goes on while the page opens


def _listener(port: int | None) -> socket.socket:
    """A socket on this machine only: at a port, or at the usual one, or any that is free."""
    for number in (port,) if port is not None else (USUAL_PORT, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, number))
            listener.listen(128)
        except (OSError, OverflowError) as error:
            listener.close()
            if port is not None:
                reason = getattr(error, "strerror", None) or error
                raise AffineDPError(f"port {port} cannot be used: {reason}") from None
            continue
        return listener
    raise AffineDPError("no port is free on this machine")
