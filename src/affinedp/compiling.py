"""Functions that run as they are written, and compiled once they turn out to be worth it.

To load numba and what it compiled takes half a second, and to compile for the first time many
seconds; most problems are answered by less work than that.  So a search starts in Python.  When
the process has spent :data:`PLAIN_NUMBERS` on it, it goes on compiled, from the same state.  There
is one source for both, and both do the same operations on the same doubles in the same order.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

STEPS_PER_CALL = 500_000
# Numbers that a search works on in Python, about a quarter of a second, before it is compiled.
PLAIN_NUMBERS = 100_000


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended.

    numba that was interrupted while it was loaded, or looked up a type for the first time, fails
    for the rest of the process: searches that keep the best so far go on in it.
    """
    told: list[Any] = []
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    signal.signal(signal.SIGINT, lambda *what: told.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if told:
            handler(*told[0])


class Compiled:
    """A function in the part of Python that numba compiles.

    Called, it runs in Python, and so do the functions like it that it calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._spent = 0

    def __call__(self, *arguments: Any) -> Any:
        """Run in Python."""
        return self._function(*arguments)

    @functools.cached_property
    def fast(self) -> Callable[..., Any]:
        """Compiled, with an on-disk cache, or without one where no cache can be written."""
        with uninterrupted():
            import numba

            fast: Any = numba.njit(self._function)
            with contextlib.suppress(RuntimeError):  # there is no place for one
                fast._cache = _forgiving_cache(self._function)
            fast.compile = uninterrupted()(fast.compile)
        found: Callable[..., Any] = fast
        return found

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of the functions that a function calls."""
        return self.fast._numba_type_  # type: ignore[attr-defined]

    def steps_in_python(self, numbers: int) -> int:
        """Return how many steps are not worth compiling; 0 when it is time to."""
        return 0 if "fast" in self.__dict__ else (PLAIN_NUMBERS - self._spent) // max(1, numbers)

    def worked(self, numbers: int) -> None:
        """Count what was done in Python."""
        self._spent += numbers


def _forgiving_cache(function: Callable[..., Any]) -> Any:
    """numba's cache for a function, where damage and a full disk cost time and nothing else.

    numba's own stops at a file that a power cut left empty, each time anew.
    """
    from numba.core import caching

    known: Any = caching.FunctionCache

    class Forgiving(known):  # type: ignore[misc]
        def load_overload(self, *which: Any) -> Any:
            try:
                return super().load_overload(*which)
            except Exception:
                with contextlib.suppress(Exception):
                    self.flush()  # what is compiled now finds a place
                return None

        def save_overload(self, *what: Any) -> None:
            with contextlib.suppress(Exception):
                super().save_overload(*what)

    return Forgiving(function)


class _AlwaysCompiled(Compiled):
    def __call__(self, *arguments: Any) -> Any:
        return self.fast(*arguments)


class _CompiledLater(Compiled):
    together: ClassVar[int] = 0  # numbers that all functions like it worked on in Python

    def __call__(self, *arguments: Any) -> Any:
        numbers = max((one.size for one in arguments if isinstance(one, np.ndarray)), default=0)
        if _CompiledLater.together + numbers > PLAIN_NUMBERS:
            return self.fast(*arguments)
        _CompiledLater.together += numbers
        return self._function(*arguments)


def compiled_later(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a pass over arrays when passes like it have worked on many numbers, not before."""
    return _CompiledLater(function)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function when it is first called, however little there is to do."""
    return _AlwaysCompiled(function)
