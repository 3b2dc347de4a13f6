"""What was asked for is remembered, stands first in every report, and is never taken on trust."""

import json

import pytest

import affinedp as adp
from affinedp.control import design_output_noise
from affinedp.designs.margins import design_margins
from affinedp.designs.tree import design_tree
from affinedp.errors import AffineDPError
from affinedp.laws.curves import GaussianCurve
from affinedp.privacy.guarantee import Asked

EQUATIONS = ["a + b = c"]
ROOM = ([[0.9]], [[1.0]])


@pytest.fixture(scope="module")
def manifold():
    return adp.AffineManifold.from_equations(EQUATIONS)


def first_row(mechanism):
    return mechanism.guarantee.summary()[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda M: adp.design_gaussian(M, epsilon=1, delta=0.01),
        lambda M: adp.design_gaussian(M, epsilon=1, delta=0.01, method="algorithm1"),
        lambda M: adp.design(M, epsilon=1, delta=0.01, law="laplace"),
        lambda M: adp.design(M, epsilon=1, delta=0.01),
        lambda M: adp.iid_noise(M, law="gaussian", epsilon=1, delta=0.01),
        lambda M: design_tree([-1, 0, 0], epsilon=1, delta=0.01),
        lambda M: design_margins([3, 2], "<=1", epsilon=1, delta=0.01),
        lambda M: design_output_noise(ROOM, 10, 1, 0.01),
        lambda M: design_output_noise(ROOM, 10, 1, 0.01, adjacency="forward"),
    ],
)
def test_every_design_says_first_what_was_asked_for(make, manifold):
    made = make(manifold)
    assert first_row(made) == ("asked for", "ε = 1 at δ = 0.01: kept")
    assert made.guarantee.holds(1, 0.01)
    assert made.report().promise[0] == first_row(made)
    assert str(made.report()).startswith("Keeps ε = 1 at δ = 0.01, as was asked")


def test_planned_releases_are_asked_for_together(manifold):
    for law in ("gaussian", "knorm"):
        made = adp.design(manifold, epsilon=1, delta=1e-6, law=law, releases=7)
        assert first_row(made)[1] == "ε = 1 at δ = 1e-06 for 7 releases together: kept"
        eight = Asked(1.0, 1e-6, 8)
        with pytest.raises(AffineDPError, match="does not keep ε = 1 at δ = 1e-06 for 8 releases"):
            made.guarantee.asked_for(eight)


def test_what_is_not_kept_is_refused_or_said(manifold):
    made = adp.design_gaussian(manifold, epsilon=1, delta=0.01)
    with pytest.raises(AffineDPError, match="does not keep ε = 0.99 at δ = 0.01"):
        made.guarantee.asked_for(Asked(0.99, 0.01))
    from dataclasses import replace

    weaker = replace(made.guarantee, curve=GaussianCurve(10.0))
    assert weaker.summary()[0][1] == "ε = 1 at δ = 0.01: NOT kept"
    assert not weaker.keeps_asked()


def test_composition_forgets_what_one_part_was_asked_for(manifold):
    one = adp.design_gaussian(manifold, epsilon=1, delta=0.01).guarantee
    assert adp.compose([one, one]).asked is None


@pytest.mark.parametrize(
    "values", [(-1, 0), (float("inf"), 0), (1, 1.0), (1, -0.1), (True, 0), (1, 0, 0), (1, 0, 1.5)]
)
def test_what_cannot_be_asked_for(values):
    with pytest.raises(AffineDPError):
        Asked(*values)


# Files.


def saved_with(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_files_remember_and_are_not_trusted(manifold, tmp_path):
    file = tmp_path / "m.json"
    adp.design(manifold, epsilon=1, delta=1e-6, releases=3).save(file)
    back = adp.Mechanism.load(file)
    assert back.guarantee.asked == Asked(1.0, 1e-6, 3)
    for trusting in (False, True):
        saved_with(file, lambda d: d["saved"]["design"]["asked"].update(epsilon=0.5))
        with pytest.raises(AffineDPError, match=r"m\.json.*does not keep ε = 0.5"):
            adp.Mechanism.load(file, reverify=not trusting)
    for wrong in ({"epsilon": 1}, [1, 2], {"epsilon": "1", "delta": 0, "releases": 1}, 3):
        saved_with(file, lambda d, wrong=wrong: d["saved"]["design"].update(asked=wrong))
        with pytest.raises(AffineDPError, match=r"m\.json"):
            adp.Mechanism.load(file)
    saved_with(file, lambda d: d["saved"]["design"].pop("asked"))
    assert adp.Mechanism.load(file).guarantee.asked is None


def test_files_of_control_remember_it(tmp_path):
    file = tmp_path / "m.json"
    for neighbours in ("initial", "forward"):
        design_output_noise(ROOM, 10, 1, 0.01, adjacency=neighbours).save(file)
        assert adp.Mechanism.load(file).guarantee.asked == Asked(1.0, 0.01)
        saved_with(file, lambda d: d["saved"]["design"]["asked"].update(delta=0.001))
        with pytest.raises(AffineDPError, match="does not keep ε = 1 at δ = 0.001"):
            adp.Mechanism.load(file)
