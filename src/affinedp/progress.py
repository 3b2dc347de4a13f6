"""A progress bar that appears only when something takes over a second at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PATIENCE = 1.0

Listener = Callable[[str, float, str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell what is being done to someone else than a terminal, such as a page."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Progress:
    """Show ``label`` with a bar on standard error after a second, if that is a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._start = time.monotonic()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, share: float, note: str = "") -> None:
        """Say that ``share`` (0 to 1) of the work is done."""
        if (listener := _listener.get()) is not None:
            listener(self._label, share, note)
        if self._bar is None:
            if time.monotonic() - self._start < PATIENCE or not sys.stderr.isatty():
                return
            self._bar = self._open()
            self._task = self._bar.add_task(self._label, total=1.0)
        assert self._task is not None
        self._bar.update(self._task, completed=share, description=f"{self._label} {note}".strip())

    @staticmethod
    def _open() -> RichProgress:
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        bar = RichProgress(console=Console(stderr=True), transient=True)
        bar.start()
        return bar
