"""Trajectory mechanisms on disk: versioned JSON with hashed arrays, verified again when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.trajectory.coordinates import output_gramian
from affinedp.control.trajectory.dynamics import Dynamics, dynamics_of
from affinedp.control.trajectory.neighbours import TrajectoryNeighbours, trajectory_neighbours
from affinedp.control.trajectory.noise import TrajectoryMechanism
from affinedp.control.trajectory.promise import (
    needed_coordinates,
    stated_promise,
    structured_promise,
)
from affinedp.files.mechanisms import (
    AGREEMENT,
    TRAJECTORY_FORMAT,
    VERSION,
    StorageError,
    packed,
    read_document,
    refusals,
    unpacked,
    write_text,
)
from affinedp.promise.guarantee import Guarantee


def save_trajectory_mechanism(mechanism: TrajectoryMechanism, path: Path) -> None:
    """Write a mechanism; an existing file is replaced at once or not at all.

    Parameters
    ----------
    mechanism : TrajectoryMechanism
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
        "gap": mechanism.gap,
        "notes": list(mechanism.notes),
        "guarantee": {"sensitivity": mechanism.guarantee.sensitivity},
    }
    write_text(path, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))


def load_trajectory_mechanism(path: Path, reverify: bool) -> TrajectoryMechanism:
    """Read a mechanism; see :meth:`TrajectoryMechanism.load`.

    Parameters
    ----------
    path : Path
        What :func:`save_trajectory_mechanism` wrote.
    reverify : bool
        Compute the guarantee again from the noise.
    """
    document = read_document(path, TRAJECTORY_FORMAT)
    with refusals(path):
        return _restored(document, reverify)


def _restored(document: Mapping[str, Any], reverify: bool) -> TrajectoryMechanism:
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
    stated = float(document["guarantee"]["sensitivity"])
    if not 0 < stated < np.inf:
        raise StorageError("the stated sensitivity is not possible")
    guarantee = (
        promise_of_root(neighbours, root) if reverify else stated_promise(neighbours, stated)
    )
    if not guarantee.sensitivity <= stated * (1 + AGREEMENT):
        raise StorageError(
            f"the file states a sensitivity of {stated!r}, but its noise gives "
            f"{guarantee.sensitivity!r}: the file was altered, or made by something else"
        )
    gap = document["gap"]
    if gap is not None and not 0 <= float(gap) < np.inf:
        raise StorageError(f"a gap of {gap} is not possible")
    notes = [str(note) for note in list(document["notes"])]
    if gap is not None:
        notes.append(f"when designed, at most {float(gap):.2g} (relative) above the least cost")
    # optimality is not computed again, so that it is not claimed
    return TrajectoryMechanism(neighbours, guarantee, root, None, tuple(notes))


def promise_of_root(neighbours: TrajectoryNeighbours, root: FloatArray) -> Guarantee:
    """Return what noise with this root on x(0) promises.

    Parameters
    ----------
    neighbours : TrajectoryNeighbours
        Whom the promise is about.
    root : array, shape (n, r)
        R; it must be zero outside the entries that need noise.
    """
    dynamics = neighbours.dynamics
    coordinates = needed_coordinates(neighbours, output_gramian(dynamics))
    rank = len(coordinates.places)
    if root.shape != (dynamics.states, rank):
        raise StorageError(f"the noise has shape {root.shape}, not {(dynamics.states, rank)}")
    others = np.delete(root, coordinates.places, axis=0)
    if np.any(others != 0):
        raise StorageError("the noise lies on entries of the state that need none")
    return structured_promise(neighbours, coordinates, root[coordinates.places])


def _stacked(matrix: FloatArray) -> dict[str, Any]:
    return {"steps": len(matrix) if matrix.ndim == 3 else 0,
            "values": packed(matrix.reshape(-1, matrix.shape[-1]))}  # fmt: skip


def _unstacked(record: Mapping[str, Any]) -> FloatArray:
    values: FloatArray = unpacked(record["values"])
    steps = int(record["steps"])
    return values.reshape(steps, -1, values.shape[1]) if steps else values
