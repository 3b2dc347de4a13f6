"""``affinedp control sensor``: what a recording tells about sensors; and how they are declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer import Argument

from affinedp.cli.commands import Answer
from affinedp.cli.file_kinds import expect
from affinedp.errors import AffineDPError


def sensor(
    readings: Path = Argument(..., help="CSV file, one column per sensor.", show_default=False),
) -> Answer:
    """Estimate step, range and nonlinearity of sensors from a recording.

    Nothing is sent.  Record raw readings over the whole range that the plant will use; what is
    printed depends on them, so keep it to yourself.

    Examples
    --------
    affinedp control sensor recording.csv
    """
    from affinedp.control.sensors.recording import read_recording, study

    expect(readings, "data")
    found = [study(name, column) for name, column in read_recording(readings)]
    return Answer({"sensors": [one.to_record() for one in found]}, "\n".join(map(str, found)))


def read_resolution(text: str) -> Any:
    """Return what ``--resolution`` says: numbers, dithered converters, or "exact".

    Examples
    --------
    >>> read_resolution("0.1,dither:6:0.1")
    [0.1, Dither(bits=6, step=0.1, nonlinearity=0.0)]
    """
    if text == "exact":
        return text
    found = [_one_resolution(word.strip()) for word in text.split(",")]
    return found if len(found) > 1 else found[0]


def read_scales(text: str | None) -> list[float] | float | None:
    """Return what ``--fresh-noise`` says: a number, or one per output.

    Examples
    --------
    >>> read_scales("0.1, 0.05")
    [0.1, 0.05]
    """
    if text is None:
        return None
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        raise AffineDPError(
            f"--fresh-noise: {text!r} is not a number, nor numbers with commas"
        ) from None
    return found if len(found) > 1 else found[0]


def _one_resolution(word: str) -> Any:
    from affinedp.control.sensors.dither import Dither

    try:
        if word.startswith("dither:"):
            bits, step, *more = word.removeprefix("dither:").split(":")
            return Dither(int(bits), float(step), *[float(value) for value in more])
        return float(word)
    except (ValueError, TypeError):
        raise AffineDPError(
            f"--resolution: {word!r} is neither a number, nor dither:BITS:STEP, nor exact"
        ) from None


def read_limits(path: Path | None) -> dict[str, Any]:
    """Return the range of the sensors and the limits that keep it, from a TOML or JSON file."""
    from affinedp.files.declared import Document, Field, FileKind
    from affinedp.files.values import a, as_written

    def limits(told: Document) -> dict[str, Any]:
        from affinedp.control.sensors.reach import Reach

        found = told[""]
        limits = [found[key] for key in ("start", "inputs", "B")]
        if all(found[key] is None for key in found if key != "range"):
            return {"range": tuple(found["range"])}
        if any(one is None for one in limits):
            raise AffineDPError("limits are start, inputs and B together")
        if (found["A"] is None) != (found["C"] is None):
            raise AffineDPError("the whole plant is A and C together")
        reach = Reach(
            tuple(found["start"]),
            found["B"],
            tuple(found["inputs"]),
            found["D"],
            None if found["A"] is None else (found["A"], found["C"]),
        )
        return {"range": tuple(found["range"]), "reach": reach}

    if path is None:
        return {}
    pair, matrix = a("pair [low, high]"), Field(as_written)
    fields = {
        "range": Field(pair, needed="[low, high] of what the sensors can say"),
        "start": Field(pair),
        "inputs": Field(pair),
        **dict.fromkeys("ABCD", matrix),
    }
    return FileKind({"": fields}).read(path, limits)
