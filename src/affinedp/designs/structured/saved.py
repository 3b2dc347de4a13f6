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
from affinedp.designs.structured.margin_blocks import (
    Sets,
    blocks_of,
    checked_sizes,
    margin_sets,
    members,
)
from affinedp.designs.structured.margin_mechanism import MarginMechanism
from affinedp.designs.structured.margin_promise import margin_guarantee
from affinedp.designs.structured.place_promise import cell_guarantee, cross_guarantee
from affinedp.designs.structured.tree_margin_mechanism import TreeMarginMechanism
from affinedp.designs.structured.tree_mechanism import TreeMechanism
from affinedp.designs.structured.tree_promise import tree_guarantee
from affinedp.designs.structured.whole_margins import block_precisions, whole_guarantee
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

Structured = TreeMechanism | MarginMechanism | TreeMarginMechanism


def save_structured(mechanism: Structured, path: str | Path) -> None:
    """Write a mechanism; an existing file is replaced at once or not at all.

    Parameters
    ----------
    mechanism : TreeMechanism, MarginMechanism or TreeMarginMechanism
        What to write.
    path : str or Path
        Where to.

    Examples
    --------
    >>> import tempfile
    >>> from affinedp.designs.structured.margins import design_margins
    >>> m = design_margins([3, 2], "<=1", epsilon=1.0)
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_structured(m, f"{folder.name}/margins.json")
    >>> load_structured(f"{folder.name}/margins.json").law
    'laplace'
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
    if not isinstance(mechanism, MarginMechanism):
        tree = mechanism.tree
        above = np.where(tree.parent >= 0, tree.order[np.maximum(tree.parent, 0)], -1)
        document["parent"] = packed(np.asarray(tree.outside(above), dtype=float))
        document["public"] = packed(np.asarray(tree.outside(tree.known), dtype=float))
    if isinstance(mechanism, TreeMechanism):
        document["kind"] = "tree"
        document["law"] = mechanism.law
        # whole numbers that came from doubles, so that doubles hold them
        document["scales"] = packed(mechanism.scales.astype(float))
    else:
        document["kind"] = "margins" if isinstance(mechanism, MarginMechanism) else "tree margins"
        document["sizes"] = list(mechanism.sizes)
        document["margins"] = [list(members(A)) for A in mechanism.margins.tolist()]
        document["t"] = packed(mechanism.t)
    if isinstance(mechanism, MarginMechanism) and mechanism.measured is not None:
        document["measured"] = [list(members(A)) for A in mechanism.measured.tolist()]
        document["scales"] = packed(np.asarray(mechanism.margin_scales, dtype=float))
    if isinstance(mechanism, TreeMarginMechanism):
        document["y"] = packed(mechanism.y)
        document["cells"] = mechanism.cell_scale
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
    kind = document["kind"]
    if kind == "tree":
        return _restored_tree(document, neighbours, household, notes)
    sizes = checked_sizes(document["sizes"], neighbours)
    margins = margin_sets(len(sizes), [tuple(one) for one in document["margins"]])
    blocks = blocks_of(margins, "person" if kind == "tree margins" else neighbours)
    t = _positive(document["t"], len(blocks))
    if kind == "margins":
        if neighbours not in ("person", "replace", "swaps"):
            raise StorageError(f"neighbours {neighbours!r:.40} are not known")
        if "measured" in document:
            return _restored_whole(document, sizes, margins, neighbours, household, notes)
        promise = margin_guarantee(sizes, blocks, t, neighbours, household)  # type: ignore[arg-type]
        return MarginMechanism(
            sizes, margins, blocks, t, neighbours, household, promise, notes=notes,  # type: ignore[arg-type]
        )  # fmt: skip
    if kind != "tree margins" or neighbours not in ("person", "replace"):
        raise StorageError(f"a mechanism of the kind {kind!r:.40} is not known")
    tree = _tree(document, "person")
    if tree.known.any():
        raise StorageError("a tree of margins has no public nodes")
    y = _positive(document["y"], tree.n)
    q = document.get("cells")
    if q is None:
        promise = cross_guarantee(tree, sizes, blocks, t, y, neighbours, household)  # type: ignore[arg-type]
    elif type(q) is not int or not 0 < q < 1 << 62:
        raise StorageError("the scale of cells must be a positive whole number")
    else:
        promise = cell_guarantee(tree, sizes, neighbours, household, q)  # type: ignore[arg-type]
    return TreeMarginMechanism(
        tree, sizes, margins, blocks, t, y, neighbours, household, promise, notes=notes,
        cell_scale=q,
    )  # fmt: skip


def _restored_whole(
    document: Mapping[str, Any],
    sizes: tuple[int, ...],
    margins: Sets,
    neighbours: str,
    household: int,
    notes: tuple[str, ...],
) -> MarginMechanism:
    """Laplace noise on whole margins; precisions of blocks are computed again."""
    if neighbours not in ("person", "replace"):
        raise StorageError("swaps have Gaussian noise")
    given = [tuple(one) for one in document["measured"]]
    measured = np.array([sum(1 << j for j in one) for one in given], np.int64)
    if sorted(measured.tolist()) != sorted(margin_sets(len(sizes), given).tolist()):
        raise StorageError("margins are measured once each")
    q = _whole(document["scales"])
    if q.shape != measured.shape or not (q > 0).all():
        raise StorageError("every measured margin needs a positive scale")
    if neighbours == "replace" and 0 in measured:
        raise StorageError("the number of people is public, and not measured")
    blocks = blocks_of(margins, neighbours)
    t = block_precisions(sizes, measured, blocks, q)
    if not (t > 0).all():
        raise StorageError("some block has no noise")
    promise = whole_guarantee(sizes, neighbours, household, q)  # type: ignore[arg-type]
    return MarginMechanism(
        sizes, margins, blocks, t, neighbours, household, promise, measured, q, notes=notes  # type: ignore[arg-type]
    )  # fmt: skip


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


def _positive(record: Mapping[str, Any], count: int) -> FloatArray:
    values: FloatArray = unpacked(record)
    if values.shape != (count,) or not (np.isfinite(values) & (values > 0)).all():
        raise StorageError(f"{count:,} positive numbers are expected")
    return values
