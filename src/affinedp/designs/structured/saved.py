"""Structured mechanisms on disk: versioned JSON with hashed arrays, promises computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray
from affinedp.designs.structured.tree_mechanism import TreeMechanism
from affinedp.designs.structured.tree_promise import tree_guarantee
from affinedp.domains.totals import NEIGHBOURS, Totals
from affinedp.files.mechanisms import (
    STRUCTURED_FORMAT,
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
from affinedp.neighbours.people import checked_people
from affinedp.parts import StorageError

Structured = TreeMechanism


def save_structured(mechanism: Structured, path: str | Path) -> None:
    """Write a mechanism; an existing file is replaced at once or not at all.

    Parameters
    ----------
    mechanism : TreeMechanism
        What to write.
    path : str or Path
        Where to.

    Examples
    --------
    >>> import tempfile
    >>> from affinedp.designs.structured.trees import design_tree
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_structured(design_tree([-1, 0, 0], epsilon=1.0), f"{folder.name}/tree.json")
    """
    document: dict[str, Any] = {
        "format": STRUCTURED_FORMAT,
        "version": VERSION,
        "neighbours": mechanism.neighbours,
        "household": mechanism.household,
        "gap": mechanism.gap,
        "notes": list(mechanism.notes),
        "sensitivity": mechanism.guarantee.sensitivity,
        "asked": asked_record(mechanism.guarantee),
    }
    tree = mechanism.tree
    above = np.where(tree.parent >= 0, tree.order[np.maximum(tree.parent, 0)], -1)
    document["parent"] = packed(np.asarray(tree.outside(above), dtype=float))
    document["public"] = packed(np.asarray(tree.outside(tree.known), dtype=float))
    document["kind"] = "tree"
    document["law"] = mechanism.law
    # whole numbers that came from doubles, so that doubles hold them
    document["scales"] = packed(mechanism.scales.astype(float))
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    write_text(Path(path), text)


def load_structured(path: str | Path) -> Structured:
    """Read a mechanism and compute its guarantee again from its noise.

    Optimality is not computed again: the gap is only told in a note.

    Parameters
    ----------
    path : str or Path
        What :func:`save_structured` wrote.

    Examples
    --------
    >>> import tempfile
    >>> from affinedp.designs.structured.trees import design_tree
    >>> m = design_tree([-1, 0, 0], epsilon=1.0, delta=1e-6)
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_structured(m, f"{folder.name}/tree.json")
    >>> load_structured(f"{folder.name}/tree.json").fingerprint == m.fingerprint
    True
    """
    document = read_document(Path(path), STRUCTURED_FORMAT)
    with refusals(Path(path)):
        found = _restored(document)
        check_stated(float(document["sensitivity"]), found.guarantee)
        return replace(found, guarantee=with_asked(found.guarantee, document))


def _restored(document: Mapping[str, Any]) -> Structured:
    neighbours = str(document["neighbours"])
    household = checked_people(document["household"])
    gap = checked_gap(document["gap"])
    notes = tuple(str(note) for note in list(document["notes"]))
    if gap is not None:
        notes += (f"when designed, at most {gap:.2g} (relative) above the least",)
    return _restored_tree(document, neighbours, household, notes)


def _restored_tree(
    document: Mapping[str, Any], neighbours: str, household: int, notes: tuple[str, ...]
) -> TreeMechanism:
    if neighbours not in NEIGHBOURS:
        raise StorageError(f"neighbours {neighbours!r:.40} are not known")
    law = document["law"]
    if law not in ("gaussian", "laplace"):
        raise StorageError(f"there is no law {law!r:.40}")
    tree = _tree(document, neighbours)
    scales = _whole(document["scales"])
    promise = tree_guarantee(tree, neighbours, household, law, scales)  # type: ignore[arg-type]
    return TreeMechanism(
        tree, neighbours, household, law, scales, promise, notes=notes  # type: ignore[arg-type]
    )  # fmt: skip


def _tree(document: Mapping[str, Any], neighbours: str) -> Totals:
    return Totals.of(
        _whole(document["parent"]), _whole(document["public"]).astype(bool), neighbours
    )


def _whole(record: Mapping[str, Any]) -> NDArray[np.int64]:
    values: FloatArray = unpacked(record)
    if values.ndim != 1 or not (np.abs(values) < 2.0**62).all() or (values % 1).any():
        raise StorageError("whole numbers are expected")
    return values.astype(np.int64)
