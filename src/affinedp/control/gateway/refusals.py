"""What a gateway refuses to send, with the data that explains it."""

from __future__ import annotations

from affinedp.errors import AffineDPError


class HorizonError(AffineDPError):
    """A step beyond the horizon.

    Attributes
    ----------
    horizon : int
        How many steps the promise is about.
    """

    def __init__(self, message: str, horizon: int) -> None:
        self.horizon = horizon
        super().__init__(message)


class LateStepError(AffineDPError):
    """A step that was skipped and comes too late.

    Attributes
    ----------
    step, next_step : int
        The step, and the first that can still be sent.
    """

    def __init__(self, message: str, step: int, next_step: int) -> None:
        self.step = step
        self.next_step = next_step
        super().__init__(message)


class RepeatedStepError(AffineDPError):
    """A step that was sent comes again with another reading: it is sent once.

    Attributes
    ----------
    step : int
        Which step.
    """

    def __init__(self, message: str, step: int) -> None:
        self.step = step
        super().__init__(message)


class OtherRunError(AffineDPError):
    """A reading of another run than the one that the draw belongs to.

    Attributes
    ----------
    run, other : str
        The run of this state, and that of the reading.
    """

    def __init__(self, message: str, run: str, other: str) -> None:
        self.run = run
        self.other = other
        super().__init__(message)
