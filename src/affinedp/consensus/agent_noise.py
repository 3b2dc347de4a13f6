"""The noise of one agent: what is asked for, and the mechanism that releases its value once.

Every message of an agent after the first is a function of published messages (see
:mod:`affinedp.consensus.agent`), so the promise about the whole run is that of one release
of one number.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from affinedp.consensus.promise import OneAgent, agent_mechanism, least_sigma
from affinedp.errors import AffineDPError
from affinedp.mechanism import Mechanism
from affinedp.privacy.asked import Asked

DEFAULTS: Mapping[str, Any] = {"law": "gaussian", "mu": 1.0}


@dataclass(frozen=True)
class AgentNoise:
    """The noise that an agent asks for; what is None was not said.

    Parameters
    ----------
    law : {"gaussian", "laplace"}, optional
        The law of the draw; Gaussian by default.
    epsilon, delta : float, optional
        The promise to keep; δ for Gaussian noise only.
    mu : float, optional
        The promise is about values up to so far apart; 1 by default.
    sigma : float, optional
        The scale of the noise, in place of ε and δ: it is verified, not designed.
    bound : float, optional
        A public bound on the size of values.  With it, values that are further apart by the
        rounding of double precision are covered too.

    Examples
    --------
    >>> noise = AgentNoise(epsilon=1.0, delta=0.01)
    >>> noise.mechanism().guarantee.holds(1.0, 0.01), round(noise.scale, 6)
    (True, 1.877876)
    """

    law: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    sigma: float | None = None
    bound: float | None = None

    def __post_init__(self) -> None:
        if self.law not in (None, "gaussian", "laplace"):
            raise AffineDPError(f"law must be 'gaussian' or 'laplace', not {self.law!r}")
        for name, value in self.given().items():
            if name == "law":
                continue
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < 0:
                raise AffineDPError(f"{name} must be a number, at least 0, not {value!r}")
            if value == 0 and name in ("mu", "sigma", "bound"):
                raise AffineDPError(f"{name} must be positive")
            object.__setattr__(self, name, float(value))

    def given(self) -> dict[str, Any]:
        """Return what was said, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def record(self) -> dict[str, Any]:
        """Return what is drawn with, the defaults filled in."""
        return {**DEFAULTS, **self.given()}

    @property
    def scale(self) -> float:
        """σ: the draw is σ times N(0, 1), or L(0, 1), which has variance 2."""
        if self.sigma is None:
            if self.epsilon is None:
                raise AffineDPError("say which noise: epsilon (and delta), or sigma")
            record = self.record()
            epsilon, mu = np.array([self.epsilon]), np.array([record["mu"]])
            found = float(least_sigma(record["law"], epsilon, self.delta or 0.0, mu)[0])
            if not math.isfinite(found):
                raise AffineDPError("epsilon is too small: the noise would be infinite")
            return found
        if self.epsilon is not None or self.delta is not None:
            raise AffineDPError("epsilon and delta follow from sigma: leave them out")
        return self.sigma

    def mechanism(self, agent: str | None = None) -> Mechanism:
        """Return the mechanism that releases one value; its promise is that of the protocol.

        Parameters
        ----------
        agent : str, optional
            Whose value it is; whichever agent's by default.
        """
        record = self.record()
        asked = None
        if self.epsilon is not None:
            asked = Asked(self.epsilon, self.delta or 0.0)
        whose = OneAgent(record["mu"], agent)
        return agent_mechanism(
            record["law"], record["mu"], self.scale, asked=asked, adjacency=whose, agent=agent or ""
        )
