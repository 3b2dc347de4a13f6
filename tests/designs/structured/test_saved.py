"""Structured mechanisms on disk and as ordinary ones."""

import json

import numpy as np
import pytest

import affinedp as adp
from affinedp.designs.structured.ordinary import ordinary_tree
from affinedp.designs.structured.saved import load_structured, save_structured
from affinedp.designs.structured.trees import design_tree
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.parts import StorageError

PARENT = [-1, 0, 0, 1, 1, 2, 2, 2]
PROMISE = {"epsilon": 1.0, "delta": 1e-6}


def some():
    for neighbours in ("person", "replace", "circuits"):
        for law in ("gaussian", "laplace"):
            yield design_tree(PARENT, neighbours=neighbours, law=law, household=2, **PROMISE)
    yield design_tree(PARENT, public=[1], **PROMISE)


def test_what_is_saved_is_read_again(tmp_path):
    for i, m in enumerate(some()):
        path = tmp_path / f"{i}.json"
        save_structured(m, path)
        again = load_structured(path)
        assert type(again) is type(m)
        assert again.fingerprint == m.fingerprint
        assert again.guarantee.sensitivity == m.guarantee.sensitivity
        assert again.guarantee.neighbours == m.guarantee.neighbours
        assert again.gap is None


def test_less_noise_than_stated_is_refused(tmp_path):
    for i, m in enumerate(some()):
        path = tmp_path / f"{i}.json"
        save_structured(m, path)
        document = json.loads(path.read_text(encoding="utf-8"))
        document["sensitivity"] *= 0.9
        path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(StorageError, match="altered"):
            load_structured(path)
        document["neighbours"] = "nobody"
        path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(AffineDPError):
            load_structured(path)
        key = "parent"
        document[key]["data"] = document[key]["data"][::-1]
        path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(StorageError):
            load_structured(path)


def test_a_small_tree_is_an_ordinary_mechanism():
    """The library's own sensitivities and errors, with matrices, are those of the passes."""
    for neighbours in ("person", "replace", "circuits"):
        for public in ((), (1,)):
            m = design_tree(PARENT, neighbours=neighbours, law="gaussian",
                            public=np.array(public, int), **PROMISE)  # fmt: skip
            ordinary = ordinary_tree(m)
            assert ordinary.guarantee.sensitivity == pytest.approx(
                m.guarantee.sensitivity, rel=1e-8
            )
            np.testing.assert_allclose(
                ordinary.expected_squared_errors, m.expected_squared_errors, rtol=1e-6, atol=1e-9
            )
    circuits = adp.CircuitAdjacency(ordinary.manifold, 1.0)
    m = design_tree(PARENT, neighbours="circuits", law="gaussian", **PROMISE)
    noise = ordinary_tree(m).noise_matrix
    found = adp.verify(ordinary.manifold, noise, adjacency=circuits)
    assert found.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-8)
    with pytest.raises(AffineDPError, match="too large"):
        ordinary_tree(design_tree([-1] + [0] * 2000, **PROMISE))


def test_reports_say_what_is_promised():
    for m in some():
        text = str(m)
        assert "What is promised" in text
        assert "one person" in text or "household" in text or "two people" in text


def test_other_readers_name_the_right_one(tmp_path):
    m = design_tree(PARENT, **PROMISE)
    save_structured(m, tmp_path / "tree.json")
    with pytest.raises(StorageError, match="load_structured"):
        Mechanism.load(tmp_path / "tree.json")
