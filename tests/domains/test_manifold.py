import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

import affinedp as adp
from affinedp.arrays import dense
from affinedp.errors import (
    AffineDPError,
    AffineDPWarning,
    IdentifiableEntriesError,
    InconsistentEquationsError,
)
from affinedp.parts import restored

INTEGERS = st.integers(-4, 4)


@st.composite
def integer_systems(draw):
    q, n = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    D = np.array(draw(st.lists(st.lists(INTEGERS, min_size=n, max_size=n), min_size=q, max_size=q)))
    x = np.array(draw(st.lists(INTEGERS, min_size=n, max_size=n)))
    return D, -D @ x


def variants(D, b):
    """The same equations through the exact, the dense and the sparse elimination."""
    yield adp.AffineManifold(D, b, public_entries="allow")
    yield adp.AffineManifold(D * np.pi, b * np.pi, public_entries="allow")
    yield adp.AffineManifold(sparse.csr_array(D * np.pi), b * np.pi, public_entries="allow")


@pytest.mark.slow
@given(integer_systems())
def test_canonical_form(system):
    D, b = system
    rank = np.linalg.matrix_rank(D)
    for M in variants(D, b):
        kernel = M.kernel.toarray() if sparse.issparse(M.kernel) else M.kernel
        assert M.dim == D.shape[1] - rank
        assert kernel.shape == (M.n, M.dim)
        # NumPy 1 has no rank of nothing
        assert M.dim == 0 or np.linalg.matrix_rank(kernel) == M.dim
        np.testing.assert_allclose(D @ kernel, 0, atol=1e-9)
        np.testing.assert_allclose(D @ M.point + b, 0, atol=1e-9)
        assert M.D.shape == (rank, M.n)
        assert M.contains(M.point)
        hidden = np.flatnonzero(np.abs(kernel).sum(axis=1) < 1e-9)
        assert M.public_entries == tuple(M.names[i] for i in hidden)


@given(integer_systems())
def test_components_are_those_of_the_circuits(system):
    D, b = system
    M = adp.AffineManifold(D, b, public_entries="allow")
    supports = [set(np.flatnonzero(v)) for v in adp.CircuitAdjacency(M).directions().T]
    merged: list[set] = []
    for support in supports:
        touching = [group for group in merged if group & support]
        merged = [group for group in merged if not group & support]
        merged.append(set().union(support, *touching))
    assert sorted(map(sorted, merged)) == sorted(c.tolist() for c in map(np.sort, M.components))


@pytest.mark.slow
@given(integer_systems(), st.integers(0, 10**6))
def test_project_is_the_nearest_point(system, seed):
    D, b = system
    x = np.random.default_rng(seed).normal(size=(3, D.shape[1]))
    for M in variants(D, b):
        projected = M.project(x)
        assert projected.shape == x.shape
        np.testing.assert_allclose(projected @ D.T + b, 0, atol=1e-9)
        kernel = M.kernel.toarray() if sparse.issparse(M.kernel) else M.kernel
        np.testing.assert_allclose((x - projected) @ kernel, 0, atol=1e-9)


def test_contradiction_is_named():
    D = [[1, 1, 0], [0, 1, 1], [1, 2, 1]]
    for matrix in (D, np.array(D) * np.pi, sparse.csr_array(np.array(D) * np.pi)):
        with pytest.raises(InconsistentEquationsError, match="1, 2 and 3 .counting from 1") as e:
            adp.AffineManifold(matrix, [0, 0, 2])
        assert e.value.rows == (0, 1, 2)
        assert abs(e.value.residual) == pytest.approx(2)
    with pytest.raises(InconsistentEquationsError, match="equation 1 .*contradicts itself"):
        adp.AffineManifold([[0, 0]], [5])


def test_identifiable_entries_are_named():
    equations = ["p = 3", "q + r = p"]
    with pytest.raises(IdentifiableEntriesError, match="p is fixed by the equations alone") as e:
        adp.AffineManifold.from_equations(equations)
    assert e.value.entries == ("p",)
    M = adp.AffineManifold.from_equations(equations, public_entries="allow")
    assert M.public_entries == ("p",)
    assert M.point[0] == 3


def test_no_equations_is_ordinary_privacy():
    M = adp.AffineManifold(np.zeros((0, 3)))
    assert (M.dim, M.equations()) == (3, ())
    assert adp.verify(M, 1.0, law="laplace").epsilon() == 1.0
    np.testing.assert_array_equal(M.project([1.0, 2.0, 3.0]), [1, 2, 3])


def test_rational_equations_need_no_tolerance():
    """Coefficients 10^12 apart are equations, not noise, when they are exact."""
    D = [[1, 1, 0], [1, 1, 1e-12]]
    assert adp.AffineManifold(D, public_entries="allow").dim == 1
    assert adp.AffineManifold(D, public_entries="allow").rank_tolerance == 0


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_rank_by_gap(convert):
    rng = np.random.default_rng(0)
    D = rng.normal(size=(30, 60)) * 10.0 ** rng.uniform(-8, 8, size=(30, 1))
    dependent = np.vstack([D, rng.normal(size=(5, 30)) @ (D / np.abs(D).max(axis=1)[:, None])])
    with pytest.warns(AffineDPWarning, match="5 of 35 equations count as dependent"):
        assert adp.AffineManifold(convert(dependent)).dim == 30
    nearly = dependent.copy()
    nearly[-1] += 1e-8 * rng.normal(size=60)
    # an equation that is nearly dependent counts, or is refused; it is never dropped
    try:
        assert adp.AffineManifold(convert(nearly)).dim == 29
    except AffineDPError as refusal:
        if "rank_tolerance" not in str(refusal):
            raise
    assert adp.AffineManifold(convert(nearly), rank_tolerance=1e-6).dim == 30
    assert adp.AffineManifold(convert(nearly), rank_tolerance=1e-11).dim == 29


def test_equations_given_exactly_are_never_dropped_for_their_last_digits():
    """x1 + x2 = x3 twice, but for one unit in the last place of one coefficient."""
    last = Fraction(2) ** -52
    D = [[1, 1, -1 - 2 * last], [1, 1 - last, -1 - last]]
    with pytest.warns(AffineDPWarning, match="1 of 2 equations count as dependent"):
        assert adp.AffineManifold(np.array(D, float)).dim == 2
    M = adp.AffineManifold(D)
    # with x2 = 1, by Cramer's rule
    x3 = (D[0][0] * D[1][1] - D[0][1] * D[1][0]) / (D[0][2] * D[1][0] - D[0][0] * D[1][2])
    x1 = -D[0][1] - D[0][2] * x3
    assert M.dim == 1
    truth = (abs(x1) + 1 + abs(x3)) / min(abs(x1), 1, abs(x3))
    stated = adp.verify(M, 1.0, law="laplace").sensitivity
    assert truth <= Fraction(stated) <= truth * Fraction(1 + 1e-9)


@pytest.mark.parametrize("coefficient", ["1.0000000000000002", "1.000000000001"])
def test_many_exact_equations_are_not_dropped_for_their_last_digits(coefficient):
    """Too many to eliminate exactly: they are refused where doubles cannot tell."""
    equations = [f"p{i} + q{i} = r{i}" for i in range(700)]
    nearly = [*equations, "x1 + x2 = x3", f"x1 + {coefficient} x2 = x3"]
    with pytest.raises(AffineDPError, match="1 of 702 equations count as dependent"):
        adp.AffineManifold.from_equations(nearly)
    twice = [*equations, "x1 + 3 x2 = x3", "2 x1 + 6 x2 = 2 x3"]
    assert adp.AffineManifold.from_equations(twice).dim == 1402


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_scaling_equations_changes_nothing(scale):
    D = np.array([[1, 1, -1, 0], [0, 2, 1, 1]]) * np.pi
    rows, columns = np.array([1, scale])[:, None], np.array([1, scale, 1 / scale, 1])
    M = adp.AffineManifold(D * rows * columns)
    np.testing.assert_allclose(D @ (M.kernel * columns[:, None]), 0, atol=1e-9)
    assert M.dim == 2


def test_large_network_stays_sparse():
    """Node balances with injections, 2·10⁴ entries: the kernel is sparse too."""
    rng = np.random.default_rng(1)
    nodes, edges = 5_000, 15_000
    tail = np.arange(edges) % nodes
    head = (tail + rng.integers(1, nodes, edges)) % nodes
    incidence = sparse.coo_array(
        (
            np.repeat([1.0, -1.0], edges),
            (np.concatenate([tail, head]), np.tile(np.arange(edges), 2)),
        ),
        shape=(nodes, edges),
    )
    M = adp.AffineManifold(sparse.hstack([incidence, -sparse.eye_array(nodes)], format="csr"))
    assert (M.n, M.dim) == (20_000, 15_000)
    assert sparse.issparse(M.kernel)
    assert M.kernel.nnz < 10 * M.n
    assert abs(M.D @ M.kernel).max() == 0


@pytest.mark.slow
def test_pegase_network():
    networks = pytest.importorskip("pandapower.networks", reason="needs the extra [flows]")
    net = networks.case2869pegase()
    place = {bus: i for i, bus in enumerate(net.bus.index)}
    tail = [place[b] for b in [*net.line.from_bus, *net.trafo.hv_bus]]
    head = [place[b] for b in [*net.line.to_bus, *net.trafo.lv_bus]]
    edges, nodes = len(tail), len(place)
    incidence = sparse.csr_array(
        (np.repeat([1.0, -1.0], edges), (tail + head, list(range(edges)) * 2)),
        shape=(nodes, edges),
    )
    D = sparse.hstack([incidence, -sparse.eye_array(nodes)], format="csr")
    assert D.shape == (2869, 7451)
    M = adp.AffineManifold(D)
    assert M.dim == 4582
    # without injections one balance follows from the others
    assert adp.AffineManifold(incidence, public_entries="allow").dim == edges - (nodes - 1)
    # with line laws of very different sizes, and some equations said twice in other words
    reactance = np.concatenate([net.line.x_ohm_per_km * net.line.length_km, net.trafo.vk_percent])
    laws = sparse.diags_array(1 / (1e-6 + np.abs(reactance))) @ incidence.T
    full = sparse.block_array(
        [
            [sparse.eye_array(edges), -laws, None],
            [incidence, None, -sparse.eye_array(nodes)],
        ],
        format="csr",
    )
    again = sparse.vstack([full, full[:100] * 3.7 + full[300:400] * 0.013], format="csr")
    with pytest.warns(AffineDPWarning, match="100 of 7551 equations count as dependent"):
        assert adp.AffineManifold(again).dim == nodes


def test_equations_in_words():
    M = adp.AffineManifold.from_equations(["a + 0.5*b = c", "2 a + b = 2*c"])
    assert len(M.equations()) == 1
    again = adp.AffineManifold.from_equations(M.equations(), names=M.names)
    np.testing.assert_array_equal(again.D, M.D)
    assert again.key == M.key


def test_key_ignores_scale_order_and_offsets():
    M = adp.AffineManifold([[1, -2, 0], [0, 3, 1]])
    same = adp.AffineManifold([[0, 6, 2], [-1, 2, 0]], b=[1, 2])
    other = adp.AffineManifold([[0, 6, 2], [-1, 2.5, 0]])
    assert M.key == same.key != other.key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"D": [[1, np.nan]]}, r"D\[0, 1\] is nan"),
        ({"D": [[1, np.inf]]}, "finite"),
        ({"D": [1, 2]}, "must be a matrix"),
        ({"D": [[1, 2], [3]]}, "rectangular"),
        ({"D": [["a", "b"]]}, "real number"),
        ({"D": [[True, False]]}, "real number"),
        ({"D": [[1j, 2]]}, "real number"),
        ({"D": np.zeros((2, 0))}, "no entries"),
        ({"D": [[1, 2]], "b": [1, 2]}, "b has 2 entries"),
        ({"D": [[1, 2]], "names": ["a"]}, "1 names for 2 entries"),
        ({"D": [[1, 2]], "names": ["a", "a"]}, "used twice: a"),
        ({"D": [[1, 2]], "names": "ab"}, "sequence of strings"),
        ({"D": [[1, 2]], "public_entries": "maybe"}, "'refuse' or 'allow'"),
        ({"D": [[1, 2]], "rank_tolerance": 2}, r"\(0, 1\)"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(AffineDPError, match=message):
        adp.AffineManifold(**arguments)


def test_bad_points_are_refused():
    M = adp.AffineManifold([[1, -1]])
    assert not M.contains([1, 1.001])
    for x in ([1, 2, 3], [1, np.nan], [[[1, 2]]]):
        with pytest.raises(AffineDPError):
            M.contains(x)


def test_given_arrays_are_not_shared():
    D = np.array([[1.0, -1.0]])
    M = adp.AffineManifold(D)
    D[0, 0] = 5
    assert M.D[0, 0] == 1


@pytest.mark.parametrize("D", [np.array([[1.0, -1.0, 0.5]]), sparse.csr_array([[1.0, -1.0, 0.5]])])
def test_nothing_that_a_promise_rests_on_can_be_changed(D):
    M = adp.AffineManifold(D, b=[2.0])
    canonical = M.canonical
    for array in (M.D, M.b, M.kernel, M.point, canonical.reduced, canonical.pivots, canonical.free):
        numbers = array.data if sparse.issparse(array) else array
        with pytest.raises(ValueError, match="read-only"):
            numbers[0] = 7


@pytest.mark.parametrize(
    "M",
    [
        adp.AffineManifold([[1, 1, -1]], b=[0.1], names=["a", "b", "t"]),
        adp.AffineManifold.from_equations(["a/3 + b = 1/7", "0.1*b + c = t + 1e-30"]),
        adp.AffineManifold(sparse.csr_array([[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]])),
        adp.AffineManifold([[np.pi, 1.0, -np.e]], b=[np.sqrt(2)]),
        adp.AffineManifold([[1.0, 1.1, 1.0], [1.0, 1.1 + 1e-13, 1.0]], rank_tolerance=1e-6),
        adp.AffineManifold(np.zeros((0, 2))),
    ],
    ids=lambda M: str(M.dim),
)
def test_a_saved_manifold_comes_back_identical(M):
    again = restored(json.loads(json.dumps(M.record())), adp.AffineManifold)
    assert (again.names, again.key, again.equations()) == (M.names, M.key, M.equations())
    assert again.exact_rows == M.exact_rows
    assert (again.rank_tolerance, again.kernel_error) == (M.rank_tolerance, M.kernel_error)
    for old, new in ((M.D, again.D), (M.b, again.b), (M.kernel, again.kernel)):
        assert sparse.issparse(old) == sparse.issparse(new)
        np.testing.assert_array_equal(dense(old), dense(new))
    np.testing.assert_array_equal(M.point, again.point)
    np.testing.assert_array_equal(M.canonical.free, again.canonical.free)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("names", "ab"),
        ("names", ["a", "a", "t"]),
        ("places", {"map": []}),
        ("numerators", [1]),
        ("denominators", [1, 0, 1]),
        ("offsets", ["1"]),
        ("sparse", None),
        ("surprise", 1),
    ],
)
def test_an_altered_manifold_is_refused(field, value):
    record = adp.AffineManifold([[1, 1, -1]], names=["a", "b", "t"]).record()
    record[field] = value
    with pytest.raises(AffineDPError):
        restored(record, adp.AffineManifold)


def test_data_is_read_as_rows_that_obey_the_equations():
    M = adp.AffineManifold.from_equations(["a + b = t"])
    rows, wrap = M.read([1.0, 2.0, 3.0])
    assert rows.tolist() == [[1.0, 2.0, 3.0]]
    assert wrap(np.array([[5.0]]), ("sum",)).tolist() == [5.0]
    for x, message in (
        ([1, 2, 4], "a \\+ b"),
        (np.zeros((0, 3)), "no rows"),
        ([1, 2], "3 entries"),
    ):
        with pytest.raises(AffineDPError, match=message):
            M.read(x)


def test_exact_contradictions():
    with pytest.raises(InconsistentEquationsError, match="1 and 2"):
        adp.AffineManifold.from_equations(["a + b = 10000000000", "a + b = 10000000001"])
    again = adp.AffineManifold.from_equations(["0.1*a + 0.2*b = 0.3", "a + 2*b = 3"])
    assert again.dim == 1


def test_exact_elimination_keeps_tiny_differences():
    """1 and 1 + 10⁻²⁰ differ when they are exact."""
    tiny = "1.00000000000000000001"
    M = adp.AffineManifold.from_equations(["a + b + c = 0", f"a + {tiny}*b = 0"])
    assert M.dim == 1
    found = adp.CircuitAdjacency(M).sensitivity(np.eye(3), 1)
    assert found.value == pytest.approx(2e20, rel=1e-9)
    same = adp.AffineManifold.from_equations(
        ["a + b = 0", f"a + {tiny}*b = 0"], names=None, public_entries="allow"
    )
    assert same.public_entries == ("a", "b")


def test_tiny_terms_among_large_ones_carry_their_rounding():
    """A flux vector of an LP solver: 500 in, and a side path with nothing but rounding in it."""
    D = [[1, -1, -1, 0, 0], [0, 0, 1, -1, -1]]
    M = adp.AffineManifold(D)
    assert M.contains([500, 500, 1e-13, -2e-13, 5e-13])
    assert not M.contains([500, 500, 1e-9, -2e-9, 5e-9])
    assert not M.contains([1e-12, 1e-12, 1e-13, -2e-13, 5e-13])
    # in other units, too
    units = np.array([1e-6, 1e3, 1e9, 1.0, 1e-3])
    scaled = adp.AffineManifold(np.array(D) / units)
    assert scaled.contains(np.array([500, 500, 1e-13, -2e-13, 5e-13]) * units)
    assert not scaled.contains(np.array([500, 500, 1e-9, -2e-9, 5e-9]) * units)
    # what is not coupled does not count
    apart = adp.AffineManifold([[1, -1, 0, 0], [0, 0, 1, -1]])
    assert not apart.contains([500, 500, 1e-13, 3e-13])


def test_the_point_has_no_dust():
    M = adp.AffineManifold([[3, 1, 1, 0], [0.1, 1, 0, 1]], b=[-0.3, -0.3])
    assert np.all((M.point == 0) | (np.abs(M.point) > 1e-3))
    M = adp.AffineManifold(np.array([[np.pi, 1, 1, 0], [0.1, np.e, 0, 1]]), b=[-np.pi, -0.1])
    assert np.all((M.point == 0) | (np.abs(M.point) > 1e-3))


@pytest.mark.parametrize(
    "number", [Fraction(10**18 - 1, 10**18), Fraction(1, 4001), Decimal(1) / 3]
)
def test_numbers_that_a_double_would_change_are_refused(number):
    """As text they are read exactly; rounded they would be another equation."""
    with pytest.raises(AffineDPError, match="from_equations"):
        adp.AffineManifold([[1, 0, -1, number], [number, 1, 0, 1]])
    with pytest.raises(AffineDPError, match="from_equations"):
        adp.AffineManifold([[1, -1]], b=[number])
    assert adp.AffineManifold([[Fraction(1, 2), Decimal("0.1")]]).n == 2


def test_equations_that_repeat_others_are_saved_with_the_same_point():
    """Files hold independent equations: whoever reads them starts releases from the same point."""
    generator = np.random.default_rng(5)
    for _ in range(100):
        n = int(generator.integers(2, 8))
        some = generator.integers(-2, 3, size=(int(generator.integers(1, n)), n))
        more = generator.integers(-2, 3, size=(2, len(some))) @ some
        rows = generator.permutation(np.vstack([some, more]))
        offsets = -(rows @ generator.integers(-50, 50, size=n))
        M = adp.AffineManifold(rows, offsets, public_entries="allow")
        loaded = restored(M.record(), adp.AffineManifold)
        assert loaded.key == M.key
        np.testing.assert_array_equal(loaded.point, M.point)
