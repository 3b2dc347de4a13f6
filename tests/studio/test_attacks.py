"""A client that is slow, lies about sizes or asks too much harms one computation at most."""

import asyncio
import io
import itertools
import json
import multiprocessing
import socket
import sys
import threading
import time

import pytest

pytest.importorskip("fastapi", reason="needs the extra studio")
import uvicorn
from fastapi.testclient import TestClient

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.studio import (
    guard,
    jobs,
    problem,
    publishing,
    server,
    uploads,
)
from affinedp.studio.question import Look, Publication, Question
from studios import HOST, TOKEN, work_with_little_memory

OWN = [(b"host", HOST.encode()), (b"x-studio-token", TOKEN.encode())]


def answered(app, path, receive, headers=()):
    """What the server sends to a client whose request comes from ``receive``."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"name=t.csv", "headers": [*OWN, *headers], "http_version": "1.1"}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])["message"]


@pytest.mark.parametrize("path", ["/api/check", "/api/files"])
def test_a_body_that_never_ends_is_refused(monkeypatch, path):
    monkeypatch.setattr(guard, "LONGEST_COMING", 0.05)
    app = server.create_app(TOKEN, (HOST,), jobs.Jobs(preload="affinedp.studio.tasks"))
    pieces = itertools.chain([b"["], itertools.repeat(b" "))

    async def receive():
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": next(pieces), "more_body": True}

    headers = [(b"content-type", b"application/json"), (b"x-studio-job", b"slow-slow")]
    status, words = answered(app, path, receive, headers)
    assert status == 408
    assert "too slowly" in words


def test_bytes_without_a_length_are_refused_as_too_many(client):
    """Not as a question that could not be read."""
    pieces = (b"x" * 100_000 for _ in range(30))
    headers = {"x-studio-job": "large-large", "content-type": "application/json"}
    answer = client.post("/api/check", content=pieces, headers=headers)
    assert answer.status_code == 413
    assert "too large" in answer.json()["message"]


def test_few_files_come_in_at_once():
    app = guard.Guard(None, TOKEN, (HOST,), 50_000_000)
    app._coming = guard.MOST_COMING

    async def receive():
        raise AssertionError("nothing of it is read")

    status, words = answered(app, "/api/files", receive)
    assert status == 429
    assert "too many files" in words


@pytest.fixture
def impatient(monkeypatch):
    """A server that takes three connections, and waits for a moment."""
    monkeypatch.setattr(guard, "LONGEST_SILENCE", 0.5)
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 3)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(
        app, http=guard.Impatient, log_config=None, lifespan="off", timeout_keep_alive=60
    )
    running = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()
        running.should_exit = True
        thread.join()


def test_a_connection_that_says_nothing_is_closed(impatient):
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    for said in (b"", b"GET / HT", whole + b"GET / HT"):
        with socket.create_connection(impatient, 30) as slow:
            slow.sendall(said)
            parts = iter(lambda: slow.recv(1000), b"")
            assert b"".join(parts).count(b"204") == said.count(whole)


def test_silent_connections_make_room(impatient):
    silent = [socket.create_connection(impatient, 30) for _ in range(8)]
    with socket.create_connection(impatient, 30) as other:
        other.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"204" in other.recv(1000)
    for one in silent:
        one.close()


@pytest.fixture(scope="module")
def bomb():
    """A thousand bytes that are 20 GB when they are read, and do not say so."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    places = pyarrow.array([0] * 2000, pyarrow.int32())
    text = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array(["x" * 10_000_000]))
    ones = pyarrow.array([1] * 2000)
    made = io.BytesIO()
    table = pyarrow.table({"text": text, "a": ones, "b": ones})
    parquet.write_table(table, made, compression="zstd", store_schema=False)
    return made.getvalue()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits of memory")
@pytest.mark.parametrize("task", ["discover", "preview"])
def test_a_file_that_unpacks_to_all_memory_ends_one_computation_only(task, bomb, tmp_path):
    assert len(bomb) < 2_000
    manifold = adp.AffineManifold.from_equations(["a = b"])
    adp.design_laplace(manifold, epsilon=1.0).save(tmp_path / "m.json")
    design = json.dumps({"files": {"mechanism.json": (tmp_path / "m.json").read_text("utf-8")}})
    held = uploads.Held("t.parquet", bomb)
    wanted = Publication(question={}, file="f", ledger=str(tmp_path / "budget.db"))
    questions = {
        "discover": (held, Look(file="x")),
        "preview": publishing.Offer(wanted, design.encode(), held, "ticket", 0.0),
    }
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work_with_little_memory, args=(theirs, task, questions[task]))
    process.start()
    theirs.close()
    told = ("progress", "")
    while told[0] == "progress":
        told = ours.recv()
    process.join()
    assert told == ("refused", "t.parquet needs more memory than there is to be read")


def test_a_computation_that_cannot_start_does_not_count_for_ever(monkeypatch):
    made = jobs.Jobs(preload="affinedp.studio.tasks")

    def no_more(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(made, "_run", no_more)
    for place in range(jobs.MOST_RUNNING + 1):
        job = made.start(f"number-{place}", "check", Question())
        assert (job.outcome.kind, job.done.is_set()) == ("failed", True)


def test_a_slow_outline_keeps_its_name():
    """Whoever comes back for an answer is told what who asked would have been told."""

    class Slow:
        def __init__(self):
            self.job = jobs.Job("outline-1")

        def start(self, number, task, question, key=None):
            return self.job

        def find(self, number):
            return self.job

    slow = Slow()
    app = server.create_app(TOKEN, (HOST,), slow)
    with TestClient(app, base_url=f"http://{HOST}", headers={"x-studio-token": TOKEN}) as page:
        file = page.post("/api/files?name=t.csv", content=b"a\n1\n").json()["file"]
        waiting = page.get(f"/api/files/{file}", headers={"x-studio-job": "outline-1"})
        assert waiting.status_code == 202
        slow.job.finish(jobs.Outcome("answer", b'{"rows": 1}'))
        told = page.get("/api/jobs/outline-1").json()
    assert told == {"answer": {"rows": 1}, "name": "t.csv"}


def test_all_lines_that_are_wrong_are_counted():
    told = problem.check(Question(equations="a + b = = c\nx + 1\na = b"))
    assert told["message"] == "2 lines are not equations yet."


def test_answers_are_kept_by_their_size(monkeypatch):
    monkeypatch.setattr(jobs, "MOST_KEPT_BYTES", 100)
    made = jobs.Jobs(preload="affinedp.studio.tasks")
    for place in range(3):
        made._known["design", str(place)] = b"x" * 60
        made._jobs[str(place)] = jobs.Job(str(place))
        made._jobs[str(place)].finish(jobs.Outcome("answer", b"x" * 60))
    made._forget()
    assert list(made._known) == [("design", "2")]
    assert list(made._jobs) == ["2"]


def test_a_ledger_at_home_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    with adp.Ledger(tmp_path / "budget.db", epsilon=1.0, protects="one person"):
        pass
    with publishing._ledger("~/budget.db") as ledger:
        assert ledger.epsilon == 1.0
    with pytest.raises(AffineDPError, match="no user ~nobody-of-that-name"):
        publishing._ledger("~nobody-of-that-name/budget.db")


def test_a_preview_that_finds_no_room_can_be_used_again():
    class Full:
        def start(self, number, task, question):
            raise jobs.Busy

    releases = server.Releases(Full(), uploads.Newest(1))
    wanted = Publication(question={}, file="f", ledger="b.db")
    offer = publishing.Offer(
        wanted, b"{}", uploads.Held("t.csv", b""), "ticket", time.monotonic() + 60
    )
    releases._offers.put("ticket", offer)
    for _ in range(2):
        with pytest.raises(jobs.Busy):
            releases.publish("ticket", "number-1")
