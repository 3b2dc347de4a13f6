"""Stationary noise as a file: JSON with exact numbers, certified again when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.control.stationary.filters import Filter
from affinedp.control.stationary.inputs import PrivateInputs, checked_mu, checked_window
from affinedp.control.stationary.promise import stated, stationary_promise
from affinedp.control.stationary.record import StationaryNoise
from affinedp.domains.dynamics import checked_horizon
from affinedp.files.mechanisms import (
    STATIONARY_FORMAT,
    VERSION,
    asked_record,
    check_stated,
    read_document,
    refusals,
    with_asked,
    write_text,
)
from affinedp.files.packing import packed, unpacked
from affinedp.parts import StorageError


def save_stationary_noise(noise: StationaryNoise, path: Path) -> None:
    """Write stationary noise; an existing file is replaced at once or not at all.

    Parameters
    ----------
    noise : StationaryNoise
        What to write.
    path : Path
        Where to.
    """
    neighbours = noise.neighbours
    document = {
        "format": STATIONARY_FORMAT,
        "version": VERSION,
        "kind": neighbours.kind,
        "window": neighbours.window,
        "horizon": neighbours.horizon,
        "inputs": list(neighbours.input_names),
        "outputs": list(neighbours.output_names),
        "plant": _filter_record(neighbours.plant),
        "mu": packed(neighbours.mu[None, :]),
        "shaper": _filter_record(noise.shaper),
        "place": noise.place,
        "scale": noise.scale.hex(),
        "start": None if noise.start is None else _packed(noise.start),
        "cost": noise.cost,
        "least": noise.least,
        "alternatives": dict(noise.alternatives),
        "notes": list(noise.notes),
        "guarantee": {
            "sensitivity": noise.guarantee.sensitivity,
            "asked": asked_record(noise.guarantee),
        },
    }
    write_text(path, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))


def load_stationary_noise(path: Path, reverify: bool) -> StationaryNoise:
    """Read stationary noise; see ``StationaryMechanism.load``.

    Parameters
    ----------
    path : Path
        What :func:`save_stationary_noise` wrote.
    reverify : bool
        Certify the promise again.
    """
    document = read_document(path, STATIONARY_FORMAT)
    with refusals(path):
        return _restored(document, reverify)


def _restored(document: Mapping[str, Any], reverify: bool) -> StationaryNoise:
    inputs, outputs = (tuple(document[key]) for key in ("inputs", "outputs"))
    if not all(isinstance(name, str) for name in (*inputs, *outputs)):
        raise StorageError("names must be text")
    plant, shaper = _filter(document["plant"]), _filter(document["shaper"])
    place, kind, horizon = document["place"], document["kind"], document["horizon"]
    if place not in ("output", "input") or kind not in ("input", "forward"):
        raise StorageError(f"there is no noise at the {place!r:.40} for {kind!r:.40}")
    size = plant.outputs if place == "output" else plant.inputs
    if (len(inputs), len(outputs)) != (plant.inputs, plant.outputs):
        raise StorageError("the names do not fit the plant")
    if (shaper.inputs, shaper.outputs) != (size, size):
        raise StorageError("the noise filter does not fit the plant")
    window = document["window"]
    neighbours = PrivateInputs(
        plant, checked_mu(unpacked(document["mu"])[0], inputs),
        None if window is None else checked_window(window),
        None if horizon is None else checked_horizon(horizon), kind, inputs, outputs,
    )  # fmt: skip
    scale = float.fromhex(document["scale"])
    start = None if document["start"] is None else _unpacked(document["start"])
    sensitivity = float(document["guarantee"]["sensitivity"])
    if not 0 < sensitivity < np.inf:
        raise StorageError("the stated sensitivity is not possible")
    if reverify:
        guarantee = stationary_promise(neighbours, shaper, place, scale, start)
    else:
        from dataclasses import replace

        warning = "read from a file and NOT verified again: it is as good as the file"
        guarantee = replace(stated(neighbours, sensitivity, None, exact=False), warnings=(warning,))
    check_stated(sensitivity, guarantee)
    guarantee = with_asked(guarantee, document["guarantee"])
    costs = {str(name): float(cost) for name, cost in dict(document["alternatives"]).items()}
    notes = tuple(str(note) for note in list(document["notes"]))
    # optimality is not computed again, so that it is not claimed
    return StationaryNoise(
        neighbours, guarantee, shaper, place, scale, start, None, None, costs, notes
    )


def _filter_record(given: Filter) -> dict[str, Any]:
    return {name: _packed(getattr(given, name)) for name in "ABCD"}


def _filter(record: Mapping[str, Any]) -> Filter:
    found = Filter(*(_unpacked(record[name]) for name in "ABCD"))
    n, p, k = found.order, found.outputs, found.inputs
    if (found.A.shape, found.B.shape, found.C.shape) != ((n, n), (n, k), (p, n)) or not p * k:
        raise StorageError("the matrices of a filter do not fit together")
    return found


def _packed(matrix: Any) -> dict[str, Any]:
    """Matrices without rows or columns keep their shape."""
    shape = list(matrix.shape)
    return {"shape": shape, "values": packed(np.array(matrix)) if matrix.size else None}


def _unpacked(record: Mapping[str, Any]) -> Any:
    shape = tuple(int(length) for length in record["shape"])
    if record["values"] is None:
        if len(shape) != 2 or min(shape) != 0 or max(shape) > 1000:
            raise StorageError("a matrix is missing")
        return np.zeros(shape)
    values = unpacked(record["values"])
    if values.shape != shape:
        raise StorageError("a matrix has another shape than stated")
    return values
