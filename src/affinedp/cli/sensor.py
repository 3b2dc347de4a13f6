"""``affinedp control sensor``: what a recording tells about sensors; and how they are declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from affinedp.cli.file_kinds import expect
from affinedp.cli.options import AsJson
from affinedp.cli.output import say, say_json
from affinedp.errors import AffineDPError


def sensor(
    readings: Annotated[
        Path, typer.Argument(help="CSV file, one column per sensor.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Estimate step, range and nonlinearity of sensors from a recording.

    Nothing is sent.  Record raw readings over the whole range that the plant will use; what is
    printed depends on them, so keep it to yourself.
    """
    from affinedp.control.sensors.recording import read_recording, study

    expect(readings, "data")
    found = [study(name, column) for name, column in read_recording(readings)]
    if as_json:
        say_json({"sensors": [one.to_record() for one in found]})
        return
    for one in found:
        say(one)


def read_resolution(text: str) -> Any:
    """Return what ``--resolution`` says: numbers, dithered converters, or "exact".

    Parameters
    ----------
    text : str
        Such as ``0.1``, ``0.1,0.05``, ``dither:6:0.1`` or ``exact``.

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

    Parameters
    ----------
    text : str or None
        Such as ``0.1`` or ``0.1,0.05``.

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
    """Return the range of the sensors and the limits that keep it, from a file.

    Parameters
    ----------
    path : Path or None
        TOML or JSON with ``range``, and ``start``, ``inputs`` and ``B`` for public limits: pairs
        of a lower and an upper row of numbers, and a matrix.  ``D`` if inputs enter the outputs at
        once, ``A`` and ``C`` for the whole plant.
    """
    from affinedp.control.sensors.reach import Reach
    from affinedp.files.documents import read_document

    if path is None:
        return {}
    try:
        found = read_document(path)
    except AffineDPError as error:
        raise AffineDPError(f"{path}: {error}") from None
    unknown = set(found) - {"range", "start", "inputs", "B", "A", "C", "D"}
    if unknown or "range" not in found:
        wrong = f"unknown key {sorted(unknown)[0]!r}" if unknown else "range is missing"
        raise AffineDPError(
            f"{path}: {wrong}; it holds range, start, inputs and B, and maybe A, C, D"
        )
    public = set(found) - {"range"}
    if not public:
        return {"range": _pair(found["range"], path)}
    if not public >= {"start", "inputs", "B"}:
        raise AffineDPError(f"{path}: limits are start, inputs and B together")
    if ("A" in found) != ("C" in found):
        raise AffineDPError(f"{path}: the whole plant is A and C together")
    system = (found["A"], found["C"]) if "A" in found else None
    start, inputs = _pair(found["start"], path), _pair(found["inputs"], path)
    reach = Reach(start, found["B"], inputs, found.get("D"), system)
    return {"range": _pair(found["range"], path), "reach": reach}


def _pair(value: Any, path: Path) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise AffineDPError(f"{path}: each limit is a pair, [low, high]")
    return value[0], value[1]
