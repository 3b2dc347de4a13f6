"""Every kind of mechanism is asked the same questions: written otherwise, it is the same.

One list holds the kinds; a strategy, a law or an adjacency that none of them uses fails a test.
"""

import functools
import importlib
import inspect
import pickle
import pkgutil
import re
import types
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import networkx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import affinedp as adp
from affinedp import consensus, control, flows, tables
from affinedp.errors import AffineDPError
from affinedp.laws.base import Law
from affinedp.laws.curves import LaplaceCurve
from affinedp.laws.knorm import KNorm
from affinedp.neighbours.adjacency import Adjacency
from affinedp.neighbours.joint import JointAdjacency
from affinedp.parts import Part
from affinedp.strategies.base import Strategy
from affinedp.strategies.whole_entries import WholeEntries
from fuzz.noise import seeded

SUM = adp.AffineManifold.from_equations(["a + b + c = total"])
TABLE = adp.AffineManifold.from_equations(
    ["a + b = r", "c + d = s", "k + l = t", "a + c = k", "b + d = l"]
)
CELLS = np.array([1, 2, 3, 3, 4, 7, 4, 6, 10])
ONE = adp.AffineManifold(np.zeros((0, 1)))
FREE = adp.AffineManifold(np.zeros((0, 3)), names=["a", "b", "c"])
PARENTS = [-1, 0, 0, 1, 1, 2, 2]
TREE = np.array([12, 9, 3, 2, 7, 1, 2])
PLANT = ([[0.9, 0.1], [0.0, 0.8]], [[1.0, 0.0]])
SIZES = (2, 3)
ROW = np.array([1, 2, 3, 6])
MOVE = np.array([1, 0, 0, 1])
UP = np.ones((4, 1))
# made inside of a promise, from the neighbours of a mechanism
INSIDE = {"whole", "first state", "sent outputs", "with fresh"}


def margins(*, delta, asked="<=1", **options):
    mechanism = adp.design_margins(SIZES, asked, epsilon=0.1, delta=delta, **options)
    return mechanism, {(0, 1): np.arange(6).reshape(SIZES)}


def places(*, delta, **options):
    mechanism = adp.design_tree_margins(PARENTS, SIZES, "<=1", epsilon=1, delta=delta, **options)
    return mechanism, np.arange(24).reshape(4, *SIZES)


def output_noise(adjacency, law="gaussian"):
    delta = 1e-6 if law == "gaussian" else 0.0
    made = control.design_output_noise(
        PLANT, 6, epsilon=1.0, delta=delta, adjacency=adjacency, law=law
    )
    return made, None


def network():
    return consensus.PrivateConsensus(networkx.path_graph(4), law="laplace", epsilon=1.0)


def flow_noise():
    ring = networkx.cycle_graph(3)
    networkx.set_edge_attributes(ring, 0.1, "x")
    flow = flows.from_graph(ring, reactance="x")
    neighbours = flows.injection_neighbours(flow, balance=0)
    return flows.design_flow_noise(flow, epsilon=1.0, delta=1e-6, adjacency=neighbours), None


def two_at_once():
    """One person moves an entry of each of two sums."""
    each = [adp.DirectionAdjacency(SUM, np.diag(row) @ UP) for row in ([1, 0, 0, 1], [0, 1, 0, 1])]
    return adp.design_laplace(SUM, epsilon=1, adjacency=JointAdjacency(each)), ROW


def whole_entries():
    """One person moves between three cells whose total is public."""
    moves = [[1, 0, 1], [-1, 1, 0], [0, -1, -1], [0, 0, 0]]
    projection = np.vstack([np.eye(3) - 1 / 3, np.zeros(3)])
    strategy = WholeEntries(SUM, np.eye(4), projection, SUM.names, entries=np.arange(3))
    law = KNorm(2 * np.eye(3), 1.0, whole=True)
    return adp.Mechanism(adp.DirectionAdjacency(SUM, moves), strategy, law), ROW


def regression():
    columns = {"x": (0, 1), "y": (0, 10)}
    return consensus.PrivateRegression(networkx.cycle_graph(3), columns, 1.0, 1e-6).mechanism, None


# name -> (mechanism, data)
RELEASED = {
    "gaussian": lambda: (adp.design_gaussian(SUM, epsilon=1, delta=1e-6), ROW),
    "laplace": lambda: (adp.design_laplace(SUM, epsilon=1), ROW),
    "knorm": lambda: (adp.design_knorm(SUM, epsilon=1), ROW),
    "whole": lambda: (adp.design_knorm(SUM, epsilon=1, integers=True), ROW),
    "axes": lambda: (adp.design_knorm(FREE, epsilon=1, integers=True), ROW[:3]),
    "product": lambda: (adp.design(TABLE, epsilon=1, law="productnorm"), CELLS),
    "stairs": lambda: (adp.design(ONE, epsilon=5, law="staircase"), ROW[:1]),
    "free sets": lambda: (
        adp.design_gaussian(
            SUM, epsilon=1, delta=1e-6, adjacency=adp.FreeSetAdjacency(SUM, [["a", "b", "c"]])
        ),
        ROW,
    ),
    "directions": lambda: (
        adp.design_laplace(
            SUM, epsilon=1, adjacency=adp.DirectionAdjacency(SUM, [[1], [0], [0], [1]])
        ),
        ROW,
    ),
    "function": lambda: (
        adp.design(FREE, query=adp.functions.peak(), epsilon=1, law="laplace"),
        ROW[:3],
    ),
    "joint": two_at_once,
    "whole entries": whole_entries,
    "tree": lambda: (adp.design_tree(PARENTS, epsilon=0.1, delta=1e-3), TREE),
    "tree of laplace": lambda: (adp.design_tree(PARENTS, epsilon=1, law="laplace"), TREE),
    "margins": lambda: margins(delta=1e-3, law="gaussian"),
    "counted margins": lambda: margins(delta=0.0),
    "prefixes": lambda: margins(delta=1e-3, asked="<=2", workloads={1: "prefix"}, law="gaussian"),
    "two workloads": lambda: margins(
        delta=1e-3,
        asked="<=2",
        workloads={0: "ranges", 1: [[1, 0, -1], [0.5, 1, 0]]},
        law="gaussian",
    ),
    "counted prefixes": lambda: margins(delta=0.0, asked="<=2", workloads={1: "prefix"}),
    "counted intervals": lambda: (
        adp.design_margins((2, 20), "<=2", workloads={1: "prefix"}, epsilon=1),
        {(0, 1): np.arange(40).reshape(2, 20)},
    ),
    "several rates": lambda: (
        adp.design_margins((10, 10), "<=1", epsilon=1),
        {(0, 1): np.arange(100).reshape(10, 10)},
    ),
    "places": lambda: places(delta=1e-3, law="gaussian"),
    "leaves": lambda: places(delta=0.0),
    "levels of places": lambda: (
        adp.design_tree_margins(
            [-1, *[0] * 12], (5, 5), [(0,), (1,)], epsilon=1, node_weights=[200, *[1] * 12]
        ),
        np.arange(300).reshape(12, 5, 5),
    ),
    "levels of people who move": lambda: (
        adp.design_tree_margins(
            [-1, *[0] * 12],
            (5, 5),
            [(), (0,), (1,)],
            epsilon=1,
            adjacency="replace",
            node_weights=[200, *[1] * 12],
        ),
        np.arange(300).reshape(12, 5, 5),
    ),
}
# no data where it is part of a protocol or of a stream
SENT = {
    "time-local": lambda: output_noise("time-local"),
    "time-local knorm": lambda: output_noise("time-local", "auto"),
    "manifold": lambda: output_noise("manifold"),
    "initial": lambda: output_noise("initial", "laplace"),
    "forward": lambda: output_noise("forward"),
    "fresh": lambda: (
        control.independent_output_noise(PLANT, 6, epsilon=1, delta=1e-6),
        None,
    ),
    "consensus": lambda: (network().mechanism, None),
    "average of agents": lambda: (network().result, None),
    "regression": regression,
    "flows": flow_noise,
}
KINDS = RELEASED | SENT


@functools.cache
def made(kind):
    return KINDS[kind]()


each = pytest.mark.parametrize("kind", KINDS)
each_release = pytest.mark.parametrize("kind", RELEASED)


def published(mechanism, x, seed=7):
    """What is published with words from a seed."""
    with seeded(seed):
        return mechanism.strategy.flat(mechanism.release(x))


def times(x, factor):
    if isinstance(x, dict):
        return {name: factor * counts for name, counts in x.items()}
    return factor * x


@pytest.mark.parametrize("base", [Strategy, Law, Adjacency])
def test_no_part_of_the_library_is_left_out(base):
    """Those of ``used`` below occur in the list; a new class is added to the list."""
    for module in pkgutil.walk_packages(adp.__path__, "affinedp."):
        if module.name.split(".")[1] not in ("cli", "studio", "mqtt", "__main__"):
            importlib.import_module(module.name)
    used = set()
    for kind in KINDS:
        mechanism, _ = made(kind)
        used |= {type(mechanism.adjacency), type(mechanism.strategy), type(mechanism.noise)}
    known = {
        one
        for one in Part.kinds.values()
        if issubclass(one, base)
        and one.__module__.startswith("affinedp.")
        and one.kind not in INSIDE
    }
    assert known <= used, sorted(one.kind for one in known - used)


@each
def test_saved_and_loaded(kind, tmp_path):
    mechanism, x = made(kind)
    mechanism.save(tmp_path / "m.json")
    again = adp.Mechanism.load(tmp_path / "m.json")
    assert again.fingerprint == mechanism.fingerprint
    assert again.guarantee.sensitivity == pytest.approx(mechanism.guarantee.sensitivity, rel=1e-12)
    assert again.guarantee.neighbours == mechanism.guarantee.neighbours
    assert again.guarantee.basis == mechanism.guarantee.basis
    if x is not None:
        assert np.array_equal(published(again, x), published(mechanism, x))
        squares = again.expected_squared_errors, mechanism.expected_squared_errors
        assert np.allclose(*squares, rtol=1e-12)


@each
def test_shown_with_names(kind):
    """What has parts does not print itself as if it had none."""
    mechanism, _ = made(kind)
    for part in (mechanism, mechanism.adjacency, mechanism.adjacency.domain, mechanism.strategy):
        assert re.fullmatch(r"\w+\(.+\)", repr(part), re.DOTALL)


def arrays_of(value, seen):
    """All arrays that can be reached from an object; of what is computed anew, none."""
    if id(value) in seen or isinstance(value, type):
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        yield value
    elif sparse.issparse(value):
        yield from (value.data, value.indices, value.indptr)
    elif isinstance(value, dict):
        for one in list(value.values()):
            yield from arrays_of(one, seen)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from arrays_of(one, seen)
    elif type(value).__module__.startswith("affinedp."):
        names = {*getattr(value, "__dict__", ()), *getattr(value, "__slots__", ())}
        for name, thing in inspect.getmembers_static(type(value)):
            if isinstance(thing, property | functools.cached_property) and name[0] != "_":
                with suppress(AffineDPError, NotImplementedError):
                    if getattr(value, name) is getattr(value, name):
                        names.add(name)
        for name in sorted(names):
            yield from arrays_of(getattr(value, name, None), seen)


def can_be_written(array):
    """Whether it can, or something that it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return not isinstance(array, bytes | types.NoneType)


@each
def test_nothing_that_a_promise_rests_on_can_be_written(kind):
    """In no part of a mechanism, of its promise, or of a copy."""
    mechanism, _ = made(kind)
    for one in (mechanism, pickle.loads(pickle.dumps(mechanism))):
        with suppress(AffineDPError):  # what is sent step by step has no plan
            one.prepared()
        found = list(arrays_of((one, one.guarantee), {}))
        assert found
        assert not [array for array in found if can_be_written(array)]


OTHERS = {
    "tangent": lambda: adp.design_tangent(FREE, "a / b", epsilon=1, delta=1e-6),
    "private inputs": lambda: control.design_input_noise(([[0.5]], [[1]], [[1]]), 1.0, 0.01),
    "loop": lambda: control.ClosedLoop(([[1]], [[1]], [[1]]), [[0.5]], [[0.5]], [0]),
    "network": network,
    "table": lambda: tables.TableRelease(totals={"t": ["a", "b"]}, epsilon=1.0).design(
        pd.DataFrame({"a": [1, 2], "b": [3, 4], "t": [4, 6]})
    ),
    "places": lambda: tables.MarginRelease(
        attributes={"age": [0, 1]}, places=pd.DataFrame({"ward": ["a", "b"]}), epsilon=1.0
    ).design(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_nor_what_a_mechanism_is_a_part_of(name):
    found = list(arrays_of(OTHERS[name](), {}))
    assert found
    assert not [array for array in found if can_be_written(array)]


def test_arrays_stay_their_owners():
    """What a part is made with can still be changed, and the part does not change with it."""
    given = np.array([1.0, 2.0])
    adjacency = adp.CircuitAdjacency(adp.AffineManifold(np.zeros((0, 2))), given)
    curve = LaplaceCurve(3.0, given[None])
    given[:] = 9.0
    assert adjacency.mu.tolist() == [1.0, 2.0]
    assert curve.shifts.tolist() == [[1.0, 2.0]]


@each_release
def test_noise_does_not_depend_on_data(kind):
    """With the same words, data that differs is published that much apart."""
    mechanism, x = made(kind)
    one, other, twice = (published(mechanism, times(x, factor)) for factor in (1, 2, 3))
    scale = float(np.abs(one).max())
    assert np.allclose(other - one, twice - other, atol=1e-9 * (1 + scale))


@each_release
def test_the_stated_errors_are_those_of_releases(kind):
    """The mean square of many releases, to within six deviations."""
    mechanism, x = made(kind)
    runs = 400
    with seeded(3):
        errors = [mechanism.strategy.flat(mechanism.release(x)).ravel() for _ in range(runs)]
    errors = np.array(errors) - np.mean(errors, axis=0)
    found = float((errors**2).sum(axis=1).sum() / (runs - 1))
    per_run = (errors**2).sum(axis=1)
    room = 6 * per_run.std() / np.sqrt(runs)
    assert abs(found - mechanism.expected_squared_error) <= room


@each
def test_the_same_words_for_every_kind(kind):
    """Guarantee, errors, report and intervals are there, and say whom they are about."""
    mechanism, _ = made(kind)
    guarantee = mechanism.guarantee
    assert guarantee.neighbours
    assert guarantee.basis
    delta = 0.0 if np.isfinite(guarantee.epsilon(0.0)) else 1e-3
    epsilon = guarantee.epsilon(delta)
    assert np.isfinite(epsilon)
    assert guarantee.delta(epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "knorm", "whole"])
def test_types_rows_and_order_of_data(kind):
    """A list, an array, a Series or a frame, in any order of names: the same numbers."""
    mechanism, x = made(kind)
    names = list(SUM.names)
    wanted = published(mechanism, x)
    turned = names[::-1]
    for given in (x.tolist(), x.astype(float), [Fraction(int(v)) for v in x]):
        assert np.array_equal(published(mechanism, given), wanted)
    series = pd.Series(x, index=names)[turned]
    with seeded(7):
        found = mechanism.release(series)
    assert np.array_equal(found[names].to_numpy(), wanted)
    frame = pd.DataFrame([x], columns=names)[turned]
    with seeded(7):
        found = mechanism.release(frame)
    assert np.array_equal(found[names].to_numpy()[0], wanted)


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "knorm", "whole"])
def test_rows_of_a_batch_are_released_as_each_by_itself(kind):
    """A batch refuses what a row by itself refuses, and its rows move with their data alone."""
    mechanism, x = made(kind)
    rows = np.array([x, x, x])
    with seeded(5):
        one = mechanism.release(rows)
    rows[1] += MOVE
    with seeded(5):
        other = mechanism.release(rows)
    assert np.allclose((other - one)[[0, 2]], 0, atol=0)
    assert np.allclose((other - one)[1], MOVE, atol=1e-9)
    rows[1, 0] += 1
    for given in (rows, rows[1]):
        with pytest.raises(AffineDPError):
            mechanism.release(given)


def test_sparse_numbers_are_kept_too():
    """Neither they, nor what they are views of, nor their places in the matrix can be changed."""
    mechanism, _ = made("knorm")
    for matrix in (mechanism.strategy.basis, mechanism.strategy.query):
        assert matrix.data.base is None
        with pytest.raises(AffineDPError, match="read-only"):
            matrix.data = 1e-3 * matrix.data
        twice = 2 * matrix  # of one's own
        twice.data = twice.data + 1
    again = pickle.loads(pickle.dumps(mechanism))
    assert again.fingerprint == mechanism.fingerprint


def test_an_edited_way_back_is_refused():
    """Outputs that are shrunk would have less error than is stated, and intervals that miss."""
    mechanism, _ = made(next(kind for kind in KINDS if made(kind)[0].law == "productnorm"))
    with pytest.raises(AffineDPError, match="bring the entries back"):
        replace(mechanism.strategy, basis=0.8 * mechanism.strategy.basis)


@pytest.mark.parametrize("rate", [0.0, -0.1, float("nan"), float("inf")])
def test_whole_noise_of_an_edited_rate_is_refused(rate):
    mechanism, _ = made("counted margins")
    with pytest.raises(AffineDPError, match="rate of geometric noise"):
        replace(mechanism.noise, rate=rate)
