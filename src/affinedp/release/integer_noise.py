"""Integer noise from OpenDP's vetted samplers and the operating system's randomness.

OpenDP's feature flag "contrib" is process-wide and is enabled here on the first draw.
"""

from __future__ import annotations

from typing import Any


def integer_sampler(law: str, scale: float, count: int) -> Any:
    """OpenDP's discrete Gaussian or Laplace on vectors of integers."""
    # not the prelude, which loads far more than noise needs
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=count)
    if law == "gaussian":
        return make_gaussian(domain, l2_distance(T=float), scale=scale)
    return make_laplace(domain, l1_distance(T=float), scale=scale)
