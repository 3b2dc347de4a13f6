import base64
import hashlib
import json
import os

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.parts import StorageError


def mechanisms():
    M = adp.AffineManifold.from_equations(["a + 0.1*b = total", "total + c = 100"])
    irrational = adp.AffineManifold([[1.0, np.pi, -1.0]])
    big = adp.AffineManifold(sparse.kron(sparse.eye_array(5), [[1, 1, -1]], format="csr"))
    free = adp.FreeSetAdjacency(M, [["a", "b"], ["b", "c"]], mu=[1, 2, 3, 4])
    given = adp.DirectionAdjacency(irrational, [[1.0], [0.0], [1.0]])
    yield "gaussian", adp.design_gaussian(M, epsilon=1, delta=1e-6)
    yield "laplace", adp.design_laplace(irrational, epsilon=1, effort="quick")
    yield "iid", adp.iid_noise(M, law="laplace", epsilon=1, mu=[1, 2, 3, 4])
    yield "blocks", adp.design_gaussian(big, epsilon=1, delta=1e-6)
    yield "free sets", adp.design_gaussian(M, epsilon=1, delta=1e-6, adjacency=free)
    yield "directions", adp.design_gaussian(irrational, epsilon=1, delta=1e-6, adjacency=given)
    yield "query", adp.design_gaussian(M, epsilon=1, delta=1e-6, query=["total", "c"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.json"
    M = adp.AffineManifold.from_equations(["a + b = total"])
    adp.design_gaussian(M, epsilon=1, delta=1e-6).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "mechanism"), list(mechanisms()), ids=lambda value: str(value)[:12]
)
def test_round_trip(tmp_path, name, mechanism):
    path = tmp_path / "m.json"
    mechanism.save(path)
    again = adp.Mechanism.load(path)
    for part in ("query", "basis", "root"):
        left, right = getattr(mechanism.dense, part), getattr(again.dense, part)
        assert sparse.issparse(left) == sparse.issparse(right)
        assert abs(left - right).max() == 0
    assert again.adjacency.key == mechanism.adjacency.key
    assert again.guarantee.sensitivity == pytest.approx(mechanism.guarantee.sensitivity, rel=1e-12)
    assert again.law == mechanism.law
    assert again.fingerprint == mechanism.fingerprint
    if mechanism.gap is not None:  # proved again from the moves in the file
        assert mechanism.gap <= again.gap <= mechanism.gap + 1e-8
    assert again.output_names == mechanism.output_names
    assert again.manifold.equations() == mechanism.manifold.equations()
    np.testing.assert_array_equal(again.manifold.point, mechanism.manifold.point)


@pytest.mark.slow
def test_certified_mechanism_round_trip(tmp_path):
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(9, 9))
    D = nx.incidence_matrix(graph, oriented=True)
    m = adp.design_gaussian(adp.AffineManifold(D), epsilon=1, delta=1e-6)
    m.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert again.guarantee.sensitivity == pytest.approx(m.guarantee.sensitivity, rel=1e-9)
    assert not again.guarantee.exact


def test_on_trust(saved):
    trusted = adp.Mechanism.load(saved, reverify=False)
    assert "NOT verified" in str(trusted.guarantee)
    assert not trusted.guarantee.exact


def test_a_promise_on_trust_is_not_the_headline(tmp_path):
    file = tmp_path / "m.json"
    adp.design(adp.AffineManifold([[1, -4]]), epsilon=1, law="laplace").save(file)
    document = json.loads(file.read_text())
    document["stated"]["sensitivity"] /= 100
    file.write_text(json.dumps(document))
    report = adp.Mechanism.load(file, reverify=False).report()
    for text in (report.headline, str(report), report.html()):
        assert "NOT verified: only its file says that it keeps ε = 1" in text
        assert "Keeps ε = 1" not in text


def test_another_version_is_refused(saved, tmp_path):
    document = json.loads(saved.read_text())
    document["format"] = "affinedp mechanism 1"
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(StorageError, match="design it again"):
        adp.Mechanism.load(tmp_path / "m.json")


def test_truncated_file_is_refused(saved, tmp_path):
    text = saved.read_text()
    for length in (0, 1, 100, len(text) // 2, len(text) - 2):
        (tmp_path / "m.json").write_text(text[:length])
        with pytest.raises(StorageError):
            adp.Mechanism.load(tmp_path / "m.json")


def test_tampered_guarantee_is_refused(saved, tmp_path):
    document = json.loads(saved.read_text())
    document["stated"]["sensitivity"] *= 0.999
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(StorageError, match="altered"):
        adp.Mechanism.load(tmp_path / "m.json")


def test_weakened_noise_is_refused(saved, tmp_path):
    """Less noise with a valid hash: the promise is computed again and found broken."""
    document = json.loads(saved.read_text())
    root = document["saved"]["strategy"]["root"]["array"]
    raw = np.frombuffer(base64.b64decode(root["data"]), dtype="<f8") * 0.5
    root["data"] = base64.b64encode(raw.tobytes()).decode()
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(StorageError, match="damaged"):
        adp.Mechanism.load(tmp_path / "m.json")
    root["sha256"] = hashlib.sha256(raw.tobytes()).hexdigest()
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(StorageError, match="altered|does not keep"):
        adp.Mechanism.load(tmp_path / "m.json")


def test_unwritable_place(saved, tmp_path):
    m = adp.Mechanism.load(saved)
    with pytest.raises(StorageError, match="cannot be written"):
        m.save(tmp_path / "nowhere" / "m.json")
    with pytest.raises(StorageError, match="cannot be read"):
        adp.Mechanism.load(tmp_path / "nothing.json")
    assert os.listdir(tmp_path) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**6) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_damaged_documents_are_refused_or_harmless(saved, tmp_path_factory, data):
    """Replace any part of a valid file by anything: an AffineDPError, or a promise that holds."""
    document = json.loads(saved.read_text())
    place, key = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(place[key], dict) and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place)))
    place[key] = data.draw(VALUES)
    path = tmp_path_factory.mktemp("fuzz") / "m.json"
    path.write_text(json.dumps(document))
    try:
        m = adp.Mechanism.load(path)
    except AffineDPError:
        return
    again = adp.verify(
        m.manifold, m.noise_matrix, law=m.law, query=m.dense.query, adjacency=m.adjacency
    )
    assert m.guarantee.sensitivity >= again.sensitivity * (1 - 1e-12)


@given(st.binary(max_size=200))
def test_garbage_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("garbage") / "m.json"
    path.write_bytes(content)
    with pytest.raises(AffineDPError):
        adp.Mechanism.load(path)


@pytest.mark.parametrize("words", [{}, {"delta": 1e-6}])
def test_comparisons_are_not_read_from_a_file(tmp_path, words):
    M = adp.AffineManifold.from_equations(["a + b = total"])
    m = adp.design(M, epsilon=1, **words)
    assert any("compared" in note for note in m.notes)
    m.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    said = [note for note in again.notes if "compared" in note]
    assert said == [
        "as designed it was compared with others; a file does not prove that, so it is left out"
    ]
    again.save(tmp_path / "n.json")
    assert adp.Mechanism.load(tmp_path / "n.json").notes == again.notes
