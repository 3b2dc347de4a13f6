"""Exit codes: a crash never looks like a promise that is not kept."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import NoReturn

from affinedp.cli.output import complain
from affinedp.errors import AffineDPError

KEPT = 0
NOT_KEPT = 1
BAD_INPUT = 2
BUDGET_REFUSED = 3
UNEXPECTED = 4
LOOP_ENDED = 5  # a run ended before its time, and said why
INTERRUPTED = 130
CLOSED_PIPE = 141  # what the shell says of a program that SIGPIPE ended

SHOW_TRACEBACK = "AFFINEDP_TRACEBACK"


def run(commands: Callable[[], object]) -> NoReturn:
    """Run a command line to its exit code; whatever goes wrong is said in one line."""
    if sys.stdout is None:  # closed before we began: what is said there must fail, not vanish
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a console that has no ε shows \\u03b5
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    code = _answer(commands)
    sys.exit(_flushed(code))


def _show_warning(message: Warning | str, *details: object, **others: object) -> None:
    """A warning in one line on standard error, without the place in the source."""
    complain(f"warning: {with_flags(str(message))}")


def _answer(commands: Callable[[], object]) -> int:
    try:
        commands()
    except SystemExit as stop:
        return _code_of(stop)
    except AffineDPError as error:
        complain(with_flags(str(error)))
        return _code_of_refusal(error)
    except OSError as error:
        complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return UNEXPECTED
    except MemoryError:
        complain("the memory is not large enough for this")
        return UNEXPECTED
    except Exception as error:
        complain(
            f"something unexpected happened ({type(error).__name__}); nothing follows about the "
            f"promise.  Set {SHOW_TRACEBACK}=1 to see where (it may show data), and report it"
        )
        if os.environ.get(SHOW_TRACEBACK):
            traceback.print_exc()
        return UNEXPECTED
    return KEPT


def with_flags(text: str) -> str:
    """Return a message about arguments of Python as one about options: ``moved=True``: --moved.

    Examples
    --------
    >>> with_flags("it was moved: give moved=True, or reach=Reach(…)")
    'it was moved: give --moved, or [sensors] start and inputs'
    """
    for before, after in _FLAGS:
        text = re.sub(before, after, text)
    text = re.sub(
        r"\b([a-z_]+)=(True\b|)(?=[\s,.):;]|$)", lambda m: "--" + m[1].replace("_", "-"), text
    )
    first = text.partition(" ")[0]
    option = "--" + first.replace("_", "-")
    given = any(word.partition("=")[0] == option for word in sys.argv)
    return f"{option}{text.removeprefix(first)}" if first and given else text


# what a loop's file says, and no option
_FLAGS = (
    (r"\breach=Reach\([^)]*\)", "[sensors] start and inputs"),
    (r"\b(range|measurement_error|fresh_noise|every)=(?=[\s,.):;]|$)", r"[sensors] \1"),
    (r"\bhorizon=(?=[\s,.):;]|$)", "horizon"),
)


def _code_of(stop: SystemExit) -> int:
    """The code that was meant; Typer gives 1 to a closed pipe and to input that ended."""
    if isinstance(stop.__context__, OSError):
        return CLOSED_PIPE
    if type(stop.__context__).__name__ == "Abort":
        return INTERRUPTED
    if stop.code is None:
        return KEPT
    return stop.code if isinstance(stop.code, int) else UNEXPECTED


def _code_of_refusal(error: AffineDPError) -> int:
    from affinedp.budget.ledger import BudgetExceededError

    return BUDGET_REFUSED if isinstance(error, BudgetExceededError) else BAD_INPUT


def _flushed(code: int) -> int:
    """Send what is still waiting; what cannot be sent is dropped, or Python would try again."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return CLOSED_PIPE
        if code in (KEPT, NOT_KEPT):
            complain(f"the answer cannot be written: {error.strerror}")
            return UNEXPECTED
    return code
