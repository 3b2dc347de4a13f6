"""Why an agent ends before its last round: what another agent does."""

from __future__ import annotations

from affinedp.errors import AffineDPError

FREE = "The draw is kept, and to begin again with it (rerun) costs nothing"


class AgentError(AffineDPError):
    """What another agent does makes it impossible to go on.

    Attributes
    ----------
    agent : str
        Which one.
    """

    def __init__(self, message: str, agent: str) -> None:
        self.agent = agent
        super().__init__(message)


class ContradictionError(AgentError):
    """An agent that sends two values for one round, or is where it cannot be."""


class AsymmetryError(AgentError):
    """Two agents that do not use the same weight for the link between them."""


class DifferentRunError(AgentError):
    """A neighbour that has begun again, or goes another number of rounds."""
