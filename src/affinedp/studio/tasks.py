"""The computations of the page, by name.  Loading this loads all that they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from affinedp.progress import Progress
from affinedp.studio import (
    answers,
    applications,
    looking,
    problem,
    publishing,
    take_home,
    uploads,
)
from affinedp.studio.question import Question


def design(question: Question) -> dict[str, Any]:
    """Return what step 3 shows, and what can be taken home."""
    with Progress("the noise") as bar:
        bar.update(0.05, "designing the least noise")
        known, mechanism = answers.designed(question)
        bar.update(0.8, "comparing it with others")
        shown = answers.described(question, known, mechanism)
    files = take_home.files(question, known, mechanism)
    if shown["interrupted"]:  # they would make other noise, found in a whole search
        del files["publish.py"], files["problem.toml"]
    return {"shown": shown, "files": files}


TASKS: Mapping[str, Callable[[Any], Any]] = {
    "check": problem.check,
    "leak": answers.leak,
    "design": design,
    "solve": answers.solve,
    "control": applications.control,
    "consensus": applications.consensus,
    "peek": uploads.peek,
    "discover": looking.discover_in,
    "describe": looking.description,
    "table": looking.table,
    "preview": publishing.preview,
    "publish": publishing.publish,
    "function": publishing.function,
}
