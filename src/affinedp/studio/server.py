"""The studio as a web application on this machine: small questions in, JSON out."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any

from fastapi import Body, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from affinedp import __version__
from affinedp.errors import AffineDPError
from affinedp.studio.guard import Guard
from affinedp.studio.jobs import Busy, Job, Jobs
from affinedp.studio.publishing import Offer
from affinedp.studio.question import (
    Look,
    Meeting,
    Plant,
    Publication,
    Question,
    Share,
    Sketch,
    Tied,
    Wish,
)
from affinedp.studio.uploads import MOST_BYTES, MOST_HELD, Held, Newest

# How long a question waits for its answer before it is told how far that is.
PATIENCE = 1.0
SERVED = {"html": "text/html", "css": "text/css", "svg": "image/svg+xml", "js": "text/javascript"}
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")
NUMBERS = {
    "float_parsing": "this is not a number",
    "int_parsing": "this is not a whole number",
    "int_from_float": "this is not a whole number",
}
# What is computed of a question alone, so that its answer may be kept.
ASKED: Mapping[str, type[BaseModel]] = {
    "check": Question,
    "leak": Question,
    "design": Question,
    "solve": Wish,
    "describe": Sketch,
    "control": Plant,
    "consensus": Meeting,
}
# How long a preview can be confirmed, and how many are kept: each holds a file.
LONGEST_OFFER = 900.0
MOST_OFFERS = 4
JobNumber = Annotated[str, Header(alias="x-studio-job", pattern=r"^[A-Za-z0-9_-]{8,64}$")]


def create_app(token: str, hosts: tuple[str, ...], jobs: Jobs | None = None) -> Guard:
    """Return the studio, which answers nobody without the token, nor under another host."""
    running = jobs or Jobs()
    shelf = Newest[Held](MOST_HELD)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _refusals(app)
    _pages(app)
    _files(app, running, shelf)
    _releases(app, Releases(running, shelf))
    _questions(app, running, shelf)
    return Guard(app, token, hosts, MOST_BYTES)


class Releases:
    """Previews that were begun and not used yet, and the newest releases."""

    def __init__(self, jobs: Jobs, shelf: Newest[Held]) -> None:
        self._jobs = jobs
        self._shelf = shelf
        self._offers = Newest[Offer](MOST_OFFERS)
        self._published = Newest[tuple[bytes, Job]](MOST_OFFERS)

    def preview(self, publication: Publication, number: str) -> Job:
        """Begin to tell what a release would spend; nothing is charged or drawn."""
        design = self._jobs.known("design", publication.question.model_dump_json())
        if design is None:
            raise AffineDPError("design the noise first (step 3)")
        held = self._shelf.get(publication.file)
        ticket = secrets.token_urlsafe(16)
        offer = Offer(publication, design, held, ticket, time.monotonic() + LONGEST_OFFER)
        job = self._jobs.start(number, "preview", offer)
        self._offers.put(ticket, offer)
        return job

    def publish(self, ticket: str, number: str) -> Job:
        """Begin to charge the ledger, draw the noise and tell the table; once per preview."""
        offer = self._offers.take(ticket)
        if offer is None or offer.until < time.monotonic():
            raise AffineDPError("this preview was used or is too old: look at a new one first")
        try:
            job = self._jobs.start(number, "publish", offer)
        except Busy:  # nothing was begun
            self._offers.put(ticket, offer)
            raise
        self._published.put(ticket, (offer.design, job))  # without the private file
        return job

    def function(self, share: Share, number: str) -> Job:
        """Begin to compute a function of what was published."""
        design, job = self._published.get(share.ticket)
        if job.outcome is None or job.outcome.kind != "answer":
            raise AffineDPError("nothing was published yet")
        return self._jobs.start(number, "function", (design, job.outcome.answer, share.formula))


def _refusals(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def invalid(_: Request, error: RequestValidationError | ValidationError) -> JSONResponse:
        first = error.errors()[0]
        words = [str(part) for part in first["loc"] if part not in ("body", "query")]
        said = NUMBERS.get(first["type"], first["msg"])
        if first["type"] in NUMBERS and DECIMAL_COMMA.fullmatch(str(first.get("input"))):
            said = f"write decimals with a point: {str(first['input']).strip().replace(',', '.')}"
        return _message(422, f"{' '.join(words) or 'the question'}: {said}")

    @app.exception_handler(HTTPException)
    async def not_understood(_: Request, error: HTTPException) -> JSONResponse:
        return _message(error.status_code, str(error.detail))

    @app.exception_handler(AffineDPError)
    async def refused(_: Request, error: AffineDPError) -> JSONResponse:
        return _message(422, str(error))

    @app.exception_handler(Busy)
    async def busy(_: Request, __: Busy) -> JSONResponse:
        return _message(429, "too much is being computed already: wait, or cancel something")


def _pages(app: FastAPI) -> None:
    @app.get("/")
    def page() -> Response:
        return _static("index.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        return _static(name)

    @app.get("/api/hello")
    def hello() -> dict[str, Any]:
        return {"version": __version__, "most_bytes": MOST_BYTES}


def _questions(app: FastAPI, jobs: Jobs, shelf: Newest[Held]) -> None:
    @app.post("/api/discover")
    def discover(look: Look, number: JobNumber) -> Response:
        return _told(jobs.start(number, "discover", (shelf.get(look.file), look)))

    @app.post("/api/table")
    def table(tied: Tied, number: JobNumber) -> Response:
        return _told(jobs.start(number, "table", (shelf.get(tied.file), tied)))

    @app.post("/api/{task}")
    def ask(task: str, number: JobNumber, asked: Annotated[Any, Body()]) -> Response:
        if task not in ASKED:
            raise HTTPException(404)
        question = ASKED[task].model_validate(asked)
        return _told(jobs.start(number, task, question, question.model_dump_json()))

    @app.get("/api/jobs/{number}")
    def follow(number: str) -> Response:
        job = jobs.find(number)
        if job is None:
            return _message(404, "this computation is not known any more")
        return _told(job)

    @app.delete("/api/jobs/{number}")
    def cancel(number: str) -> dict[str, bool]:
        job = jobs.find(number)
        if job is not None:
            job.interrupt()
        return {"stopped": job is not None}


def _files(app: FastAPI, jobs: Jobs, shelf: Newest[Held]) -> None:
    @app.post("/api/files")
    async def upload(request: Request, name: str) -> dict[str, str]:
        called, file = re.sub(r"[^\w.() -]", "_", name)[-120:], secrets.token_urlsafe(9)
        shelf.put(file, Held(called, await request.body()))
        return {"file": file}

    @app.get("/api/files/{file}")
    def outline(file: str, number: JobNumber) -> Response:
        held = shelf.get(file)
        job = jobs.start(number, "peek", held)
        job.more["name"] = held.name
        return _told(job)

    @app.delete("/api/files/{file}")
    def forget(file: str) -> dict[str, bool]:
        shelf.take(file)
        return {"forgotten": True}


def _releases(app: FastAPI, releases: Releases) -> None:
    @app.post("/api/release/preview")
    def preview(publication: Publication, number: JobNumber) -> Response:
        return _told(releases.preview(publication, number))

    @app.post("/api/release/publish")
    def publish(
        ticket: Annotated[str, Body(embed=True, max_length=64)], number: JobNumber
    ) -> Response:
        return _told(releases.publish(ticket, number))

    @app.post("/api/release/function")
    def function(share: Share, number: JobNumber) -> Response:
        return _told(releases.function(share, number))


def _told(job: Job) -> Response:
    """The answer, or how far it is."""
    job.done.wait(PATIENCE)
    outcome = job.outcome
    if outcome is None:
        label, share, note = job.progress
        seconds = time.monotonic() - job.started
        progress = {
            "label": label,
            "share": share,
            "note": note,
            "seconds": seconds,
            "ending": job.interrupted,
        }
        return JSONResponse({"running": job.number, "progress": progress}, status_code=202)
    if outcome.kind == "answer":
        other = "".join(f', "{name}": {json.dumps(text)}' for name, text in job.more.items())
        content = b'{"answer": ' + outcome.answer + other.encode() + b"}"
        return Response(content, media_type="application/json")
    status = {"refused": 422, "stopped": 409}.get(outcome.kind, 500)
    return _message(status, outcome.message)


def _message(status: int, message: str) -> JSONResponse:
    return JSONResponse({"message": message}, status_code=status)


def _static(name: str) -> Response:
    kind = SERVED.get(name.rpartition(".")[2])
    file = resources.files("affinedp.studio").joinpath("static", name)
    if kind is None or "/" in name or "\\" in name or not file.is_file():
        raise HTTPException(404)
    return Response(file.read_bytes(), media_type=kind)
