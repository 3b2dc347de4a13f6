"""Computations in processes of their own: they tell how far they are, and can be stopped.

Each is forked from a process that has everything loaded already, so that it starts at once; where
a system has no such processes, new ones are started.  The server itself never computes and never
reads a table, so that it always answers: what comes back is JSON already, and is handed on.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError
from affinedp.progress import listening

MOST_RUNNING = 12
MOST_KEPT = 64
MOST_FINISHED = 32
# Of the answers that are kept, each of the two ways.
MOST_KEPT_BYTES = 200_000_000
LONGEST = 900.0
# How long a computation may take to hand over the best that it has found so far.
LONGEST_END = 60.0
TOO_MUCH_MEMORY = "this needs more memory than a page gives to it: use the command line"
# How often a computation says how far it is, at most.
QUIET = 0.2


class Busy(Exception):
    """Too many computations are running."""


@dataclass(frozen=True)
class Outcome:
    """What became of a computation."""

    kind: str
    answer: bytes = b""
    message: str = ""


@dataclass(eq=False)
class Job:
    """A computation that runs, or has run."""

    number: str
    started: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    progress: tuple[str, float, str] = ("", 0.0, "")
    outcome: Outcome | None = None
    process: Any = None
    more: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def interrupt(self) -> None:
        """Ask for the best so far; end the computation if that takes too long, or when asked again.

        Compiled searches do not listen.
        """
        if (
            self.interrupted
            or self.process is None
            or not self.process.is_alive()
            or os.name != "posix"
        ):
            return self.stop()
        self.interrupted = True
        os.kill(self.process.pid, signal.SIGINT)
        timer = threading.Timer(LONGEST_END, self.stop)
        timer.daemon = True
        timer.start()
        return None

    def stop(self, message: str = "stopped") -> None:
        """End the computation at once."""
        self.finish(Outcome("stopped", message=message))
        if self.process is not None and self.process.is_alive():
            self.process.kill()

    def finish(self, outcome: Outcome) -> None:
        """Keep the first outcome."""
        if self.outcome is None:
            self.outcome = outcome
        self.done.set()


class Jobs:
    """Computations that run, and answers that are known already."""

    def __init__(self, preload: str = "affinedp.studio.warm") -> None:
        quick = "forkserver" in multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if quick else "spawn")
        if quick:
            self._context.set_forkserver_preload([preload])
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, number: str, task: str, question: Any, key: str | None = None) -> Job:
        """Begin a computation, or return at once what is known."""
        job = Job(number)
        with self._lock:
            old = self._jobs.pop(number, None)
            running = [one for one in self._jobs.values() if not one.done.is_set()]
            if key is not None and (task, key) in self._known:
                self._known.move_to_end((task, key))
                job.finish(Outcome("answer", self._known[task, key]))
            elif len(running) >= MOST_RUNNING:
                raise Busy
            self._jobs[number] = job
            self._forget()
        if old is not None:
            old.stop("another question took its place")
        if not job.done.is_set():
            try:
                self._run(job, task, question, key)
            except OSError:  # no more processes or files, or it was stopped while it began
                job.finish(Outcome("failed", message="the computation could not be started"))
        return job

    def find(self, number: str) -> Job | None:
        """Return a job by its name, if it is known."""
        with self._lock:
            return self._jobs.get(number)

    def known(self, task: str, key: str) -> bytes | None:
        """Return an answer that was computed before, as JSON, or None."""
        with self._lock:
            return self._known.get((task, key))

    def close(self) -> None:
        """Stop everything."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop("the studio was stopped")

    def _forget(self) -> None:
        sizes = {
            number: len(job.outcome.answer)
            for number, job in self._jobs.items()
            if job.outcome is not None
        }
        for number in too_many(sizes, MOST_FINISHED):
            del self._jobs[number]
        answers = {known: len(answer) for known, answer in self._known.items()}
        for known in too_many(answers, MOST_KEPT):
            del self._known[known]

    def _run(self, job: Job, task: str, question: Any, key: str | None) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work, args=(theirs, task, question), daemon=True)
        job.process = process
        process.start()
        theirs.close()
        if job.done.is_set():  # stopped in the meantime
            process.kill()

        def follow() -> None:
            end = job.started + LONGEST
            try:
                while not job.done.is_set():
                    if not ours.poll(min(1.0, max(0.0, end - time.monotonic()))):
                        if time.monotonic() >= end:
                            job.stop(f"stopped after {LONGEST:.0f} seconds")
                        continue
                    kind, content = ours.recv()
                    if kind == "progress":
                        job.progress = content
                        continue
                    if kind != "answer":
                        job.finish(Outcome(kind, message=content))
                        continue
                    with self._lock:
                        if key is not None and not job.interrupted:
                            self._known[task, key] = content
                        job.finish(Outcome(kind, content))
                        self._forget()
            except (EOFError, OSError):
                kind = "stopped" if job.interrupted else "failed"
                job.finish(Outcome(kind, message="the computation ended without an answer"))
            finally:
                ours.close()
                process.join()

        threading.Thread(target=follow, daemon=True).start()


def too_many(sizes: dict[Any, int], most: int) -> list[Any]:
    """Return what is to be forgotten; the newest one stays, however large.

    >>> too_many({"a": 1, "b": 300_000_000, "c": 1, "d": 1}, 2)
    ['b', 'a']
    """
    kept, held, dropped = 0, 0, []
    for one, size in reversed(sizes.items()):
        if kept and (kept >= most or held + size > MOST_KEPT_BYTES):
            dropped.append(one)
            continue
        kept, held = kept + 1, held + size
    return dropped


def work(connection: Any, task: str, question: Any) -> None:
    """Compute in a process of its own, and send what comes out."""
    from affinedp.studio.tasks import TASKS

    if multiprocessing.parent_process() is not None:
        _end_with_the_server()
        leave_no_dump()
        limit_memory()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell ignores it
    told = [0.0]

    def tell(label: str, share: float, note: str) -> None:
        if time.monotonic() - told[0] > QUIET:
            told[0] = time.monotonic()
            connection.send(("progress", (label, share if math.isfinite(share) else 0.0, note)))

    try:
        with listening(tell):
            answer = _finite(TASKS[task](question))
        connection.send(("answer", json.dumps(answer, ensure_ascii=False).encode()))
    except AffineDPError as error:
        connection.send(("refused", str(error)))
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except MemoryError:
        connection.send(("refused", TOO_MUCH_MEMORY))
    except Exception as error:  # no values: an unexpected message may quote private numbers
        connection.send(("failed", f"unexpected: {type(error).__name__}"))


def _end_with_the_server() -> None:
    """Leave no computation behind when the server is gone, however it ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _finite(value: Any) -> Any:
    """The same without infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


# A page is not the place for more; the command line has no such limit.
SHARE = 0.25
LEAST_BYTES = 2_000_000_000


def limit_memory() -> None:
    """Keep this process to a share of the memory, and offer it first where memory runs out.

    Beyond it comes a MemoryError.  Where a system has no such limits, nothing happens.
    """
    _limit("RLIMIT_DATA", _most_bytes())
    with suppress(OSError):  # of Linux: the server and the browser stay
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def leave_no_dump() -> None:
    """Write no memory to a disk when this process crashes: private numbers may be in it."""
    _limit("RLIMIT_CORE", 0)


def _most_bytes() -> int:
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return LEAST_BYTES
    return max(LEAST_BYTES, int(SHARE * there))


def _limit(kind: str, most: int) -> None:
    try:
        import resource
    except ImportError:  # of POSIX only
        return
    number = getattr(resource, kind, None)
    if number is None:
        return
    _, hard = resource.getrlimit(number)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(number, (allowed, hard))
