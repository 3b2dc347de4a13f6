"""Searches give the same bits in Python and compiled, also when they change over midway."""

import importlib.util
import itertools
import subprocess
import sys

import numpy as np
import pytest

from affinedp import compiling
from affinedp.arrays import linked
from affinedp.compiling import Compiled
from affinedp.domains.manifold import AffineManifold
from affinedp.neighbours.circuit_adjacency import CircuitAdjacency
from affinedp.neighbours.circuits import search
from affinedp.progress import Progress


def few_free(rng):
    return AffineManifold(rng.integers(-3, 4, (5, 8)))


def few_equations(rng):
    return AffineManifold(rng.integers(-3, 4, (2, 9)))


def network(rng):
    """Balances at five stations, all connected by lines that carry one entry each."""
    lines = list(itertools.combinations(range(5), 2))
    rows = np.zeros((5, len(lines)))
    for j, (a, b) in enumerate(lines):
        rows[a, j], rows[b, j] = 1.0, -1.0
    return AffineManifold(rows)


def answers(manifold, norm):
    """Everything that is found in every component."""
    found = []
    for component in CircuitAdjacency(manifold).bound_components:
        n = len(component.entries)
        matrix = np.linspace(1.0, 2.0, 3 * n).reshape(3, n) ** 2
        reach = np.linspace(1.0, 3.0, n)
        found.append(search.worst_circuits(component, matrix, norm, reach, Progress("")))
        blocks = list(search.list_circuits(component, 1000, Progress("")))
        found.append(
            (np.vstack([b for b, _ in blocks]), search.count_circuits(component, Progress("")))
        )
    return found


def in_python(search, numbers):
    return 1000


def compiled(search, numbers):
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("make", [few_free, few_equations, network])
@pytest.mark.parametrize("norm", [1, 2])
def test_one_source_one_answer(make, norm, monkeypatch):
    rng = np.random.default_rng(7)
    manifold = make(rng)
    turns = itertools.count()

    def in_turns(search, numbers):
        return 7 if next(turns) % 2 else 0

    seen = []
    monkeypatch.setattr("affinedp.neighbours.circuits.search.STEPS_PER_CALL", 13)
    for steps in (compiled, in_python, in_turns):
        monkeypatch.setattr(Compiled, "steps_in_python", steps)
        seen.append(answers(manifold, norm))
    assert len(seen[0]) >= 2
    for other in seen[1:]:
        for a, b in zip(seen[0][::2], other[::2]):
            assert (a.left_out, a.count, a.method) == (b.left_out, b.count, b.method)
            for key in ("circuits", "scores", "suspects"):
                np.testing.assert_array_equal(getattr(a, key), getattr(b, key))
        for (a, count), (b, other_count) in zip(seen[0][1::2], other[1::2]):
            np.testing.assert_array_equal(a, b)
            assert count == other_count


def test_long_work_is_compiled():
    @Compiled
    def search(steps):
        return steps

    assert search.steps_in_python(100) == compiling.PLAIN_NUMBERS // 100
    assert search.steps_in_python(compiling.PLAIN_NUMBERS + 1) == 0
    search.worked(compiling.PLAIN_NUMBERS - 150)
    assert search.steps_in_python(100) == 1
    search.worked(100)
    assert search.steps_in_python(100) == 0
    assert search(3) == 3  # still Python


@pytest.mark.parametrize(("nodes", "links"), [(1, 0), (40, 10), (40, 30), (200, 190), (300, 900)])
def test_linked(nodes, links):
    """Against SciPy, labels included."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    rng = np.random.default_rng(nodes + links)
    first, second = rng.integers(nodes, size=(2, links))
    graph = sparse.coo_array((np.ones(links), (first, second)), shape=(nodes, nodes))
    expected = connected_components(graph, directed=False)[1]
    np.testing.assert_array_equal(linked(first, second, nodes), expected)


def test_a_long_path_is_one():
    order = np.random.default_rng(3).permutation(2000)
    assert not linked(order[:-1], order[1:], 2000).any()


SOURCE = """
def double(x):
    return 2 * x
"""


def fresh(folder):
    """A function of a file in a folder, which numba's cache lies in, as a new process has it."""
    spec = importlib.util.spec_from_file_location("made", folder / "made.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Compiled(module.double).fast


def hits(function):
    return sum(function.stats.cache_hits.values())


@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("left", [0, 20])
def test_what_a_power_cut_left_of_a_cache_is_compiled_anew(tmp_path, pattern, left):
    (tmp_path / "made.py").write_text(SOURCE)
    assert fresh(tmp_path)(3) == 6
    again = fresh(tmp_path)
    assert (again(3), hits(again)) == (6, 1)
    (file,) = tmp_path.rglob(pattern)
    file.write_bytes(file.read_bytes()[:left])
    mended = fresh(tmp_path)
    assert (mended(3), hits(mended)) == (6, 0)
    again = fresh(tmp_path)
    assert (again(3), hits(again)) == (6, 1)


def test_a_full_disk_is_no_trouble(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "made.py").write_text(SOURCE)
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    assert fresh(tmp_path)(3) == 6


def test_no_place_for_a_cache_is_no_trouble(tmp_path, monkeypatch):
    (tmp_path / "made.py").write_text(SOURCE)
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert fresh(tmp_path)(3) == 6


INTERRUPTED = """
import signal, sys
from affinedp.compiling import compiled

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "numba.core.types":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

@compiled
def double(x):
    return 2 * x

sys.meta_path.insert(0, Interrupting())
try:
    double(1.0)
except KeyboardInterrupt:
    print("interrupted,", double(2.0))
"""


def test_numba_is_whole_after_it_was_interrupted(tmp_path):
    """Ctrl-C waits until it is loaded: searches that keep the best so far go on with it."""
    (tmp_path / "script.py").write_text(INTERRUPTED)
    ran = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=300
    )
    assert ran.stdout == "interrupted, 4.0\n", ran.stderr
