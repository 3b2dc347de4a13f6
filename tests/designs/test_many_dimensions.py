"""Designs in more dimensions than bodies can have end soon, and say what was left out."""

import affinedp as adp


def test_many_dimensions_are_searched_from_few_starts_and_say_so():
    """A table of 22 numbers under Definition 4: no K-norm body, and a short Laplace search."""
    manifold = adp.AffineManifold.from_equations(
        [
            "manufacturing = durable + nondurable",
            "nonfarm = goods + service",
            "private = goods + private_service",
            "service = private_service + government",
            "goods = mining + construction + manufacturing",
            "private_service = trade + i1 + i2 + i3 + i4 + i5 + i6",
            "trade = t1 + t2 + t3 + t4",
        ]
    )
    assert (manifold.n, manifold.dim) == (22, 15)
    made = adp.design(manifold, epsilon=1.0)
    notes = " ".join(made.notes)
    assert "ended with its effort" in notes
    assert "15 dimensions, more than 10" in notes
    independent = adp.iid_noise(manifold, law="laplace", epsilon=1.0)
    paper = adp.design_laplace(manifold, epsilon=1.0, method="algorithm2")
    assert made.expected_squared_error < independent.expected_squared_error
    assert made.expected_squared_error < paper.expected_squared_error
    assert made.guarantee.holds(1.0)
