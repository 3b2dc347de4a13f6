"""The report and the figure: what they say is true, complete, and safe to show anywhere."""

import math
import sys
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from html.parser import HTMLParser

import mpmath
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from rich.cells import cell_len

import affinedp as adp
from affinedp.errors import MissingExtraError, most_words
from affinedp.laws.curves import GaussianCurve
from affinedp.laws.gaussian import Gaussian
from affinedp.mechanism import build
from affinedp.show.page import Baseline, Report, groups_of
from affinedp.show.plot import plot, strongest
from affinedp.show.report import allowed_guess, best_guess, percent, report, who
from affinedp.strategies.dense import Dense
from affinedp.tables import MarginRelease, TableRelease, with_total_rows
from affinedp.tables.relations import has_no_label
from oracles import brute_force_sensitivity

TOTALS = [[1, 1, -1, 0], [0, 1, 1, -1]]
EVIL = (
    "<script>alert(1)</script>", "a & 'b' \"c\"", "$x^{$ \\frac", "\x1b[31mred\nline", "{title}",
    "名前" * 30,
)  # fmt: skip
VOID = {"meta", "br", "hr", "img", "link", "input"}


def kappa(epsilon, s):
    """κ(ε, s) in 40 digits."""
    with mpmath.workdps(40):
        e, s = mpmath.mpf(epsilon), mpmath.mpf(s)
        return mpmath.ncdf(s / 2 - e / s) - mpmath.exp(e) * mpmath.ncdf(-s / 2 - e / s)


@pytest.fixture(scope="module")
def gaussian():
    M = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
    return adp.design_gaussian(M, epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def laplace():
    return adp.design_laplace(adp.AffineManifold([[1, -4]]), epsilon=1.0)


@pytest.fixture(scope="module")
def leak():
    M = adp.AffineManifold([[1, -4]])
    return build(
        adp.CircuitAdjacency(M), np.eye(2), np.ones((2, 1)), np.eye(1), "gaussian", ("p", "q")
    )


@pytest.fixture(scope="module")
def evil():
    M = adp.AffineManifold([[1] * len(EVIL)], names=EVIL)
    return adp.iid_noise(M, law="gaussian", epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def many():
    """2100 outputs, noise in 700 independent blocks, of which the last 40 are louder."""
    block = np.array([[1, 0], [0, 1], [1, 1.0]])
    scales = np.repeat(np.r_[np.ones(660), np.full(40, 2.0)], 2)
    M = adp.AffineManifold(sparse.block_diag([[[1, 1, -1.0]]] * 700, format="csr"))
    basis = sparse.csr_array(sparse.block_diag([block] * 700))
    root = sparse.csr_array(sparse.diags_array(scales))
    identity = sparse.csr_array(sparse.eye_array(M.n))
    return build(adp.CircuitAdjacency(M), identity, basis, root, "gaussian", M.names)


@pytest.fixture(autouse=True)
def _no_figure_stays():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def every_mechanism(request):
    return [request.getfixturevalue(name) for name in ("gaussian", "laplace", "leak", "evil")]


# ---------------------------------------------------------------------- numbers


def test_example_1_by_hand(laplace):
    """k = 4, μ = ε = 1: noise (4, 1)·η, while i.i.d. noise needs the scale 5."""
    r = report(laplace)
    root = math.sqrt(2)
    assert [row.name for row in r.outputs] == ["x1", "x2"]
    assert [row.deviation for row in r.outputs] == pytest.approx([4 * root, root])
    assert [row.independent_deviation for row in r.outputs] == pytest.approx([5 * root] * 2)
    assert [row.ratio for row in r.outputs] == pytest.approx([16 / 25, 1 / 25])
    totals = dict(r.totals)
    assert totals["squared error"].startswith("34 expected")
    assert "standard deviation 7.071" in totals["against i.i.d."]
    assert "2.941 times the squared error" in totals["against i.i.d."]  # 100/34


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_baseline_keeps_the_same_promise(law):
    """Against brute force over Definition 4, with a query and μ per entry."""
    mu = np.array([1.0, 0.5, 2.0, 1.0])
    F = np.array([[1.0, 2, 0, 0], [0, 1, -1, 3], [1, 0, 0, 1]])
    M = adp.AffineManifold(TOTALS)
    noise = np.array([[3.0, 1, 0], [0, 2, 0], [1, 0, 4]])
    m = build(adp.CircuitAdjacency(M, mu), F, np.eye(3), noise, law, ("a", "b", "c"))
    norm, variance = (2, 1) if law == "gaussian" else (1, 2)
    own, _ = brute_force_sensitivity(TOTALS, np.linalg.inv(noise) @ F, norm, mu)
    plain, _ = brute_force_sensitivity(TOTALS, F, norm, mu)
    expected = plain / own * math.sqrt(variance)
    r = report(m)
    assert r.baseline.deviation == pytest.approx(expected, rel=1e-12)
    errors = variance * (noise**2).sum(axis=1)
    assert [row.deviation for row in r.outputs] == pytest.approx(np.sqrt(errors))
    assert [row.ratio for row in r.outputs] == pytest.approx(errors / expected**2)
    scale = r.baseline.deviation / math.sqrt(variance)
    same = adp.verify(M, scale, law=law, mu=mu, query=F).sensitivity
    assert same == pytest.approx(m.guarantee.sensitivity, rel=1e-12)


def test_iid_noise_is_its_own_baseline():
    m = adp.iid_noise(adp.AffineManifold(TOTALS), law="gaussian", epsilon=1.0, delta=1e-6)
    r = report(m)
    assert [row.ratio for row in r.outputs] == pytest.approx([1.0] * 4, rel=1e-8)
    assert "the same squared error" in dict(r.totals)["against i.i.d."]
    assert r.equations == ()
    assert dict(r.totals)["equations"].startswith("none")


def test_certified_gap_is_rounded_up(gaussian):
    stated = dict(report(gaussian).totals)["optimality"]
    assert stated.startswith("certified")
    assert float(stated.split("at most ")[1].split()[0]) >= gaussian.gap
    assert float(most_words(0.12300001, 2)) == 0.13


@pytest.mark.parametrize("value", [1.0, 0.1, 1.2e-13, 123456.0, 0.99999, 5e-324])
@pytest.mark.parametrize("digits", [1, 2, 5])
def test_round_up_never_falls_below(value, digits):
    written = float(most_words(value, digits))
    assert value <= written <= value * (1 + 10.0 ** (1 - digits)) + 5e-324


# ---------------------------------------------------------------------- what is said


def test_text_says_what_is_promised(gaussian):
    text = " ".join(str(report(gaussian)).split())
    for said in (
        "Definition 4", "μ = 1", "Theorem 1", "ε = 1 at δ = 1e-06", "exact", "certified",
        "cells_in + cells_out = cells_total", "left out is not covered",
        "1.5 times the squared error", "units of the output", "Differential Privacy on Affine",
    ):  # fmt: skip
        assert said in text
    assert str(gaussian) == str(report(gaussian))
    assert dict(report(gaussian).promise).items() >= dict(gaussian.guarantee.summary()).items()


def test_a_leak_is_shown_and_nothing_is_compared(leak):
    r = report(leak)
    promise, totals = dict(r.promise), dict(r.totals)
    assert promise["promise"].startswith("NONE")
    assert "- p + q" in promise["leak"]
    assert totals["against i.i.d."].startswith("not available")
    assert r.equations == ()  # p - 4q = 0 is broken by this noise
    assert all(row.ratio is None and row.independent_deviation is None for row in r.outputs)
    assert "NONE" in str(r)
    assert "NONE" in r.html()


def test_too_many_circuits_leave_the_baseline_out():
    """An 8×8 grid network; the promise is stated, as one is where circuits are not listed."""
    side = range(8)
    edges = [((i, j), (i, j + 1)) for i in side for j in side[:-1]]
    edges += [((i, j), (i + 1, j)) for i in side[:-1] for j in side]
    D = np.zeros((64, len(edges)))
    for e, (a, b) in enumerate(edges):
        D[a[0] * 8 + a[1], e], D[b[0] * 8 + b[1], e] = 1, -1
    M = adp.AffineManifold(D)
    adjacency = adp.CircuitAdjacency(M)
    guarantee = adp.Guarantee(
        "gaussian", 1.0, False, adjacency.words, "Theorem 1: a bound", GaussianCurve(1.0)
    )
    identity = np.eye(M.n)
    m = adp.Mechanism(adjacency, Dense(M, identity, identity, M.names), Gaussian())
    m.__dict__["guarantee"] = guarantee
    r = report(m)
    stated = dict(r.totals)["against i.i.d."]
    assert stated.startswith("not available: the circuits of these equations are too many")
    assert "Ways out" not in stated
    assert "upper bound" in str(r)
    assert "squared error ratio" not in str(r)


# ---------------------------------------------------------------------- text and HTML


@pytest.mark.slow
def test_text_fits_80_columns(request, many):
    for m in [*every_mechanism(request), many]:
        for line in str(report(m)).splitlines():
            assert cell_len(line) <= 80
            assert line.isprintable()
            assert line == line.rstrip()


def test_text_does_not_depend_on_the_terminal(gaussian, monkeypatch):
    text = str(report(gaussian))
    for name, value in (("COLUMNS", "20"), ("FORCE_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        assert str(report(gaussian)) == text


@pytest.mark.slow
def test_many_outputs_are_cut_to_the_loudest(many):
    r = report(many)
    assert len(r.outputs) == 2100
    text = str(r)
    assert "and 2,070 more" in text
    assert "and 2,070 more" in r.html()
    assert "x1983 " in text  # 2√2 on the totals of the louder blocks, from 3 · 661 on
    assert "x1 " not in text.split("Noise on every output")[1].split("All outputs")[0]
    assert "not listed for more than 2,000 outputs" in " ".join(text.split())
    assert len(text.splitlines()) < 80
    assert len(r.html()) < 50_000


class Tags(HTMLParser):
    """Checks that tags are closed in order; collects tags, addresses and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.addresses, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href", "action")]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.slow
def test_html_escapes_names(evil):
    for text in (report(evil).html(), evil._repr_html_(), report(evil).page()):
        tags = Tags(text)
        assert "script" not in tags.tags
        assert "<script>" not in text
        assert "\x1b" not in text
        assert "<script>alert(1)</script>" in "".join(tags.words)
        assert "a & 'b' \"c\"" in "".join(tags.words)


@pytest.mark.slow
def test_page_is_whole_and_needs_nothing_else(request, many):
    for m in [*every_mechanism(request), many]:
        page = report(m).page()
        tags = Tags(page)
        assert page.startswith("<!doctype html>")
        assert tags.tags.count("svg") == 3
        assert not {"script", "link", "iframe", "object"} & set(tags.tags)
        assert all(address.startswith(("#", "data:image/png")) for address in tags.addresses)
        assert "http:" not in page
        assert "https:" not in page
        assert "@import" not in page


def test_page_without_matplotlib(gaussian, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    page = report(gaussian).page()
    assert "<svg" not in page
    assert "Theorem 1" in page
    with pytest.raises(MissingExtraError, match=r"pip install .*\[plot\]"):
        gaussian.plot()


def test_what_is_printed_has_names(gaussian, laplace):
    for made in (gaussian, laplace, gaussian.guarantee, report(laplace)):
        assert "object at 0x" not in repr(made)
        assert "Laplace" in repr(made) or "gaussian" in repr(made).lower()


def test_a_report_is_a_value(gaussian):
    r = report(gaussian)
    assert r == report(gaussian)
    alone = Report(r.title, r.promise, r.outputs, r.totals, r.equations, Baseline(None, "unknown"))
    assert "<svg" not in alone.page()


# ---------------------------------------------------------------------- figure


def test_curve_is_the_theorem(gaussian):
    axes = plot(gaussian).axes[0]
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Promise", "ε", "δ")
    assert axes.get_yscale() == "log"
    epsilons, deltas = axes.get_lines()[0].get_data()
    s = gaussian.guarantee.sensitivity
    for epsilon, delta in list(zip(epsilons, deltas))[::10]:
        assert delta == pytest.approx(float(kappa(epsilon, s)), rel=1e-7)
    assert deltas[-1] == pytest.approx(1e-12, rel=1e-3)
    marked = [line.get_xydata()[0] for line in axes.get_lines()[1:]]
    assert [point[1] for point in marked] == [1e-9, 1e-6, 1e-3]
    assert marked[1][0] == pytest.approx(1.0)


def test_laplace_marks_pure_epsilon(laplace):
    axes = plot(laplace).axes[0]
    curve, pure = axes.get_lines()
    assert pure.get_xdata()[0] == pytest.approx(1.0)
    epsilons, deltas = curve.get_data()
    # one noise: δ(ε) = 1 − e^{(ε−1)/2}
    np.testing.assert_allclose(deltas, -np.expm1((epsilons - 1) / 2), rtol=1e-6, atol=1e-12)
    assert "ε ≈ 1" in axes.get_legend().get_texts()[0].get_text()


def test_covariance_and_noise_panels(laplace):
    _, covariance, noise = plot(laplace).axes
    (bar,) = covariance.child_axes
    image = covariance.get_images()[0]
    np.testing.assert_allclose(image.get_array(), 2 * np.outer([4, 1], [4, 1]), rtol=1e-7)
    low, high = image.get_clim()
    assert low == -high == pytest.approx(-32)
    assert [t.get_text() for t in covariance.get_yticklabels()] == ["x1", "x2"]
    assert "units of the output" in bar.get_ylabel()
    dots, independent = noise.get_lines()
    np.testing.assert_allclose(dots.get_xdata(), np.sqrt([32, 2]), rtol=1e-7)
    assert independent.get_xdata()[0] == pytest.approx(5 * math.sqrt(2))
    assert [t.get_text() for t in noise.get_yticklabels()] == ["x1", "x2"]
    assert "units of the output" in noise.get_xlabel()


@pytest.mark.slow
def test_figure_of_many_outputs(many):
    _, covariance, noise = plot(many).axes
    picture = covariance.get_images()[0].get_array()
    assert covariance.get_title() == "Correlation of the noise"
    assert picture.shape == (40, 40)  # 400 outputs in tens: a part and its total are in one
    assert "400 outputs with the most noise" in covariance.get_xlabel()
    # 280 totals of quiet blocks, which nothing ties, and 40 loud blocks
    np.testing.assert_allclose(np.diagonal(picture)[:28], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(picture)[28:], math.sqrt(0.5), rtol=1e-7)
    ours, independent = noise.get_lines()
    assert len(ours.get_xdata()) == 2100
    assert np.all(np.diff(ours.get_ydata()) <= 0)
    np.testing.assert_allclose(ours.get_ydata()[[0, -1]], [2 * math.sqrt(2), 1])
    # the parts move by 1 and -1: √2 in units of this noise, and √2 without noise
    assert independent.get_ydata()[0] == pytest.approx(1.0)


def test_figure_of_a_leak(leak):
    figure = plot(leak)
    assert "- p + q" in " ".join(t.get_text() for t in figure.axes[0].texts)
    assert not figure.axes[0].get_lines()
    assert "not available" in figure.legends[0].get_title().get_text()


def test_no_difference_between_neighbours():
    M = adp.AffineManifold([[1, 1, -1]])
    adjacency = adp.DirectionAdjacency(M, [[1], [-1], [0]])
    m = build(adjacency, np.array([[0, 0, 1.0]]), np.eye(1), np.eye(1), "gaussian", ("total",))
    assert m.guarantee.sensitivity == 0.0
    assert "no noise is needed" in " ".join(str(report(m)).split())
    assert "do not differ" in plot(m).axes[0].texts[0].get_text().replace("\n", " ")


def test_figure_draws_any_name(evil, tmp_path):
    """Names are no mathematics: unbalanced dollars must not stop the drawing."""
    with pytest.warns(UserWarning, match="Glyph"):  # the default font has no CJK
        plot(evil).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_plot_then_savefig(laplace, tmp_path):
    """pyplot's current figure is the picture; a page leaves pyplot alone."""
    from matplotlib import pyplot as plt

    figure = laplace.plot()
    assert plt.gcf() is figure
    plt.savefig(tmp_path / "noise.png")
    assert (tmp_path / "noise.png").stat().st_size > 10_000
    laplace.report().page()
    assert plt.get_fignums() == [figure.number]


def test_unequal_noise_is_drawn_as_a_correlation_on_a_logarithmic_axis():
    m = adp.design_laplace(adp.AffineManifold([[1, -4000]]), epsilon=1.0)
    _, covariance, noise = plot(m).axes
    assert noise.get_xscale() == "log"
    assert covariance.get_title() == "Correlation of the noise"
    np.testing.assert_allclose(covariance.get_images()[0].get_array(), np.ones((2, 2)), rtol=1e-7)


def test_small_pictures_keep_the_strongest_entries():
    generator = np.random.default_rng(0)
    values = generator.uniform(-1, 1, (53, 53))
    matrix = (values + values.T) / 2
    np.fill_diagonal(matrix, 1.0)
    found = strongest(matrix, 10)
    groups = [np.flatnonzero(np.arange(53) * 10 // 53 == g) for g in range(10)]
    for i, rows in enumerate(groups):
        for j, columns in enumerate(groups):
            block = matrix[np.ix_(rows, columns)]
            if i == j:
                block = block[~np.eye(len(rows), dtype=bool)]
            assert found[i, j] == block.flat[np.abs(block).argmax()]


# ---------------------------------------------------------------------- for people who decide


def test_odds_of_the_best_guess_by_hand(gaussian, laplace):
    """Gaussian noise: Φ(s/2).  Laplace noise along one direction: 1 − e^{−ε/2}/2."""
    s = gaussian.guarantee.sensitivity
    assert best_guess(gaussian.guarantee) == pytest.approx(float(mpmath.ncdf(s / 2)), rel=1e-9)
    assert best_guess(laplace.guarantee) == pytest.approx(1 - math.exp(-0.5) / 2, rel=1e-9)
    # the line of tests that (ε, δ) allows: α + e^ε β = 1 − δ, met by its mirror image
    for epsilon, delta in ((1.0, 0.01), (0.2, 1e-6), (3.0, 0.0)):
        errors = 2 * (1 - delta) / (1 + math.exp(epsilon))
        assert allowed_guess(epsilon, delta) == pytest.approx(1 - errors / 2, rel=1e-12)
    assert best_guess(gaussian.guarantee) <= allowed_guess(1.0, 1e-6)
    assert allowed_guess(5000.0) == 1.0


@pytest.mark.parametrize("share", [0.5, 0.60501, 0.7310585, 0.99999, 1.0])
def test_percent_is_never_below(share):
    written = Fraction(percent(share).split()[0]) / 100
    assert Fraction(share) <= written < Fraction(share) + Fraction(1, 1000)


@pytest.mark.slow
def test_the_page_opens_with_the_promise_the_date_and_six_plain_lines(gaussian, laplace, leak):
    page = report(gaussian).page()
    body = page[page.index("<main>") :]
    assert body.startswith("<main>\n<h1>Keeps ε = 1 at δ = 1e-06, as was asked</h1>")
    opening = body[: body.index("<details>")]
    assert f"<p>{datetime.now(UTC).date()}</p>" in opening
    leads = ("Who is", "From whom", "attacker gains", "far off", "not covered", "What it costs")
    places = [opening.index(lead) for lead in leads]
    assert places == sorted(places)
    assert opening.count("<dt>") == len(leads)
    assert "Definition 4" not in opening
    assert "Any one number: it may change by at most μ = 1, and the others follow" in opening
    assert "ε = 1 at δ = 1e-06 from the budget" in opening
    assert "At most 73.2 % certainty, whatever comes out" in report(laplace).page()
    assert "There is no promise" in report(leak).page()
    assert str(report(gaussian)).startswith("Keeps ε = 1 at δ = 1e-06, as was asked\nGaussian")


def test_who_is_protected_in_plain_words():
    household = "a household of up to 3 more or less, in 2 cells"
    assert who(household) == "any household of up to 3: whether they are in the table, in 2 cells"
    inputs = "input: one private input (people) moves by at most μ = 1 at one step, at any time"
    moved = "it may move by at most μ = 1 at one step, at any time"
    assert who(inputs) == f"any one private input (people): {moved}"
    jumps = "forward: one entry of the state (x1) jumps by at most μ = 1 at one step"
    assert who(jumps).startswith("any one entry of the state (x1): it may jump by at most")
    first = "initial: one entry of x(0) moves by at most μ = 1, the other entries stay"
    assert who(first).startswith("any one entry of x(0): it may move by at most")
    assert who("2 given directions") == "whatever is hidden by this: 2 given directions"


def test_gains_of_one_of_several_releases_are_called_that():
    M = adp.AffineManifold.from_equations(["a + b = c"])
    for law in ("gaussian", "laplace"):
        m = adp.design(M, epsilon=1.0, delta=1e-6, law=law, releases=12)
        all_ = "73.2 % after all 12 releases, a bound from ε"
        if law == "gaussian":  # two normal laws whose means differ by √12 s
            right = mpmath.ncdf(math.sqrt(12) * m.guarantee.sensitivity / 2)
            all_ = f"{math.ceil(1000 * right) / 10:g} % after all 12 releases"
        gains = dict(m.report().opening)["What an attacker gains"]
        assert " after one release, " in gains
        assert gains.endswith(f"at most {all_}")
        assert dict(m.report().promise)["promise"].endswith("(one release)")


@pytest.mark.slow
def test_hundreds_of_names_are_folded_under_groups(many):
    r = report(many)
    text, fragment = str(r), r.html()
    assert "Noise in groups" in text
    summary = text.split("Noise in groups")[1].split("Noise on every output")[0]
    assert [line.split()[-2:] for line in summary.splitlines()[2:6]] == [
        ["1,320", "1"], ["660", "1.414"], ["80", "2"], ["40", "2.828"]
    ]  # fmt: skip
    assert fragment.index("<details>") < fragment.index("and 2,070 more")
    page = r.page()  # prints the groups alone
    assert page.count("<details class='long'>") == 1
    assert "<details class='long'><summary>Noise on every output" in page


def test_noise_of_many_sizes_is_told_in_tenths():
    sizes = np.linspace(1, 2, 100)
    found = groups_of([f"x{i}" for i in range(100)], sizes)
    assert [row.numbers for row in found] == [10, 80, 10]
    assert found[0].name == "quietest tenth: x0, x1, x2, …"
    assert found[2].deviation == pytest.approx(math.sqrt(np.mean(sizes[90:] ** 2)))


def test_report_says_that_nothing_does_better_where_that_is_proved():
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    whole = adp.design_knorm(manifold, epsilon=1.0, integers=True, effort="quick")
    assert "certified: no mechanism does better" in str(whole.report())
    assert "less may do" not in str(whole.report())
    real = adp.design_knorm(manifold, epsilon=1.0, effort="quick")
    assert "not certified" in str(real.report())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "delta"), [("gaussian", 1e-3), ("gaussian", 2e-4), ("knorm", 1e-6)]
)
def test_labels_of_the_curve_stand_apart_and_inside(law, delta):
    pytest.importorskip("matplotlib")
    M = adp.AffineManifold.from_equations(["a + b = c"])
    made = adp.design(M, epsilon=1.0, delta=delta, law=law)
    figure = plot(made)
    figure.canvas.draw()
    axes = figure.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert "asked for" in {text.get_text() for text in axes.texts}
    assert all(axes.bbox.x0 < box.x0 and box.x1 < axes.bbox.x1 for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


# ---------------------------------------------------------------------- published numbers


def released():
    cells = pd.DataFrame({"city": ["<b>", "<b>", "B"], "ward": ["1", "2", "1"], "n": [3, 1448, 5]})
    table = with_total_rows(cells, ["city", "ward"], ["n"])
    release = TableRelease(hierarchy=["city", "ward"], epsilon=1.0, nonnegative=True, round_to=1)
    people = pd.DataFrame({"sex": ["f", "m"] * 50, "age": ["old"] * 100})
    labels = {"sex": ["f", "m"], "age": ["young", "old"]}
    return [
        release.release(table),
        MarginRelease(attributes=labels, epsilon=1.0).release(people),
        MarginRelease(attributes=labels, epsilon=1.0, delta=1e-6, law="gaussian").release(people),
    ]


@pytest.mark.parametrize("out", released(), ids=["table", "margins", "gaussian"])
def test_pages_hold_the_published_numbers_with_whole_ends(out):
    shown = out.report(0.9).published
    assert "90 %" in shown.caption
    if isinstance(out.design.description, TableRelease):
        low, high = out.interval(0.9)
        pairs = zip(out.table["n"].tolist(), low["n"].tolist(), high["n"].tolist())
    else:
        found = out.tables(0.9)
        pairs = zip(found["count"].tolist(), found["lower"].tolist(), found["upper"].tolist())
    page = Tags(out.report(0.9).page())
    assert "b" not in page.tags
    words = "".join(page.words)
    for (*_, cell), (value, low, high) in zip(shown.rows, pairs, strict=True):
        assert isinstance(low, int)
        assert isinstance(high, int)
        ends = f"({low:,} to {high:,})"
        assert cell.endswith(ends)
        if isinstance(value, int):
            assert cell == f"{value:,} {ends}"
        assert cell in words


def test_the_typical_noise_of_margins_is_the_mean_over_all_numbers():
    _, out, _ = released()
    found = out.levels()
    mean = np.sqrt(np.average(found["noise"] ** 2, weights=found["numbers"]))
    for made in (out.report(), out.design.mechanism.report()):
        told = dict(made.opening)["How far off numbers are"]
        assert told.startswith(f"typically by {mean:.3g} (")


def test_columns_keep_their_order_functions_follow_and_the_grand_total_has_a_name():
    cells = pd.DataFrame({"city": ["A", "B"], "women": [30, 40], "men": [35, 45]})
    cells["people"] = cells["women"] + cells["men"]
    table = with_total_rows(cells, ["city"], ["women", "men", "people"])
    release = TableRelease(hierarchy=["city"], totals={"people": ["women", "men"]}, epsilon=9.0)
    out = release.release(table)
    share = "100 * women / people"
    shown = out.report(functions=[share]).published
    assert shown.headings == ("city", "women", "men", "people", share)
    assert [row[0] for row in shown.rows] == ["grand total", "A", "B"]
    assert has_no_label(out.table["city"][0])
    for row, value in zip(shown.rows, out.table["men"]):
        assert float(row[2].split()[0]) == pytest.approx(value, abs=1)
    assert "bias" in shown.note
    assert not out.report().published.note


def test_a_row_without_a_label_is_no_total_where_there_is_no_hierarchy():
    table = pd.DataFrame({"city": ["A", None], "women": [30, 40], "men": [35, 45]})
    table["all"] = table["women"] + table["men"]
    out = TableRelease(epsilon=1.0, totals={"all": ["women", "men"]}, public=["city"]).release(
        table
    )
    assert [row[0] for row in out.report().published.rows] == ["A", ""]


@pytest.mark.slow
def test_a_function_whose_interval_is_open_is_shown_as_such():
    table = pd.DataFrame({"women": [1, 900], "men": [0, 900], "all": [1, 1800]})
    release = TableRelease(totals={"all": ["women", "men"]}, epsilon=0.1, delta=1e-6)
    shown = release.release(table).report(functions=["women / all"]).published
    first, second = (row[-1] for row in shown.rows)
    assert first == "not known: noise is as large as the total"
    assert "inf" not in second


@pytest.mark.parametrize("title", ["short", "a title of many words " * 6, "名前" * 30])
def test_the_line_below_the_title_is_as_long_as_the_title(gaussian, title):
    lines = str(replace(gaussian.report(), title=title.strip(), headline="")).splitlines()
    (below,) = [i for i, line in enumerate(lines) if line.startswith("═")]
    assert len(lines[below]) == max(map(cell_len, lines[:below]))
