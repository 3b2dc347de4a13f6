"""The query in units of the noise, against the pseudo-inverse."""

import numpy as np
import pytest
import scipy.sparse as sparse

from affinedp.arrays import dense
from affinedp.strategies.matrices import whiten


@pytest.mark.parametrize("outputs", [3, 6])
def test_draws_that_no_output_has(outputs):
    """They keep their place: there is a row for every draw."""
    generator = np.random.default_rng(5)
    noise = np.zeros((6, 8))
    noise[:3, :2] = generator.normal(size=(3, 2))
    noise[3:, 6:] = generator.normal(size=(3, 2))
    noise, query = noise[:outputs], generator.normal(size=(outputs, 4))
    found = whiten(sparse.csr_array(noise), sparse.csr_array(query))
    assert np.allclose(dense(found.query), np.linalg.pinv(noise) @ query, atol=1e-12)
