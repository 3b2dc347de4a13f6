"""Trajectory mechanisms on disk: versioned JSON with hashed arrays, verified again when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.trajectory.choose import trajectory_neighbours
from affinedp.control.trajectory.promise import promise_of_root, stated_promise
from affinedp.control.trajectory.record import OneDrawNoise, root_of_body
from affinedp.domains.dynamics import Dynamics, dynamics_of
from affinedp.files.mechanisms import (
    TRAJECTORY_FORMAT,
    VERSION,
    asked_record,
    check_stated,
    checked_gap,
    read_document,
    refusals,
    with_asked,
    write_text,
)
from affinedp.files.packing import packed, unpacked
from affinedp.parts import StorageError


def save_trajectory_noise(mechanism: OneDrawNoise, path: Path) -> None:
    """Write a mechanism; an existing file is replaced at once or not at all.

    Parameters
    ----------
    mechanism : OneDrawNoise
        What to write.
    path : Path
        Where to.
    """
    dynamics, mu = mechanism.dynamics, mechanism.neighbours.mu
    document = {
        "format": TRAJECTORY_FORMAT,
        "version": VERSION,
        "horizon": dynamics.horizon,
        "states": list(dynamics.state_names),
        "outputs": list(dynamics.output_names),
        "A": _stacked(dynamics.A),
        "C": _stacked(dynamics.C),
        "neighbours": mechanism.neighbours.kind,
        "mu": packed(mu[0] if np.all(mu == mu[0]) else mu),
        "root": packed(mechanism.root),
        "law": mechanism.law,
        **(
            {}
            if mechanism.points is None
            else {"points": packed(mechanism.points), "rate": mechanism.rate}
        ),
        "gap": mechanism.gap,
        "notes": [*mechanism.notes, *_sentence(mechanism)],
        "guarantee": {
            "sensitivity": mechanism.guarantee.sensitivity,
            "asked": asked_record(mechanism.guarantee),
        },
    }
    write_text(path, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))


def _sentence(mechanism: OneDrawNoise) -> list[str]:
    """How near to the least possible it was when it was designed: in words, for a file."""
    if mechanism.least is None or mechanism.lower_bound is None:
        return []
    return [f"when designed: {mechanism.least.sentence()}"]


def load_trajectory_noise(path: Path, reverify: bool) -> OneDrawNoise:
    """Read a mechanism; see ``TrajectoryMechanism.load``.

    Parameters
    ----------
    path : Path
        What :func:`save_trajectory_noise` wrote.
    reverify : bool
        Compute the guarantee again from the noise.
    """
    document = read_document(path, TRAJECTORY_FORMAT)
    with refusals(path):
        return _restored(document, reverify)


def _restored(document: Mapping[str, Any], reverify: bool) -> OneDrawNoise:
    names = [tuple(document[key]) for key in ("states", "outputs")]
    if not all(isinstance(name, str) for name in (*names[0], *names[1])):
        raise StorageError("names must be text")
    A, C = (_unstacked(document[key]) for key in ("A", "C"))
    plain = dynamics_of((A, C), document["horizon"])
    if (len(names[0]), len(names[1])) != (plain.states, plain.outputs):
        raise StorageError("the names do not fit the matrices")
    dynamics = Dynamics(plain.A, plain.C, plain.horizon, *names)
    neighbours = trajectory_neighbours(dynamics, unpacked(document["mu"]), document["neighbours"])
    root = unpacked(document["root"])
    law = document.get("law", "gaussian")  # older files do not say it
    if law not in ("gaussian", "laplace", "knorm"):
        raise StorageError(f"there is no law {law!r:.40}")
    stated = float(document["guarantee"]["sensitivity"])
    if not 0 < stated < np.inf:
        raise StorageError("the stated sensitivity is not possible")
    points, rate = (
        (unpacked(document["points"]), _rate(document)) if law == "knorm" else (None, 1.0)
    )
    guarantee = (
        promise_of_root(neighbours, root if points is None else points, law, rate)
        if reverify
        else stated_promise(neighbours, stated, law)
    )
    check_stated(stated, guarantee)
    guarantee = with_asked(guarantee, document["guarantee"])
    gap = checked_gap(document["gap"])
    notes = [str(note) for note in list(document["notes"])]
    if gap is not None:
        notes.append(f"when designed, at most {gap:.2g} (relative) above the least cost")
    # optimality is not computed again, so that it is not claimed
    if points is not None:  # the root says what errors are expected: it is computed, not trusted
        root = root_of_body(points, rate)
    return OneDrawNoise(neighbours, guarantee, root, None, tuple(notes), points, rate)


def _rate(document: Mapping[str, Any]) -> float:
    rate = float(document["rate"])
    if not 0 < rate < np.inf:
        raise StorageError(f"a rate of {rate} is not possible")
    return rate


def _stacked(matrix: FloatArray) -> dict[str, Any]:
    return {"steps": len(matrix) if matrix.ndim == 3 else 0,
            "values": packed(matrix.reshape(-1, matrix.shape[-1]))}  # fmt: skip


def _unstacked(record: Mapping[str, Any]) -> FloatArray:
    values: FloatArray = unpacked(record["values"])
    steps = int(record["steps"])
    return values.reshape(steps, -1, values.shape[1]) if steps else values
