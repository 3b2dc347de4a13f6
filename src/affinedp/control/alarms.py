"""Alarms about readings, for the eyes of the gateway's owner alone.

Whether a reading is on a coarser grid than declared, at the end of its range, or absurdly large
depends on the data.  So nothing that others can see may depend on it: no refusal, no line in a log
that is collected somewhere, no message.  It is written into a file beside the state, for its
owner only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from affinedp.arrays import FloatArray
from affinedp.budget.events import now
from affinedp.control.recordings import GridWatch
from affinedp.control.sensors import Sensor


def alarms_of(path: Path) -> Path:
    """Return the file beside a state into which alarms are written."""
    return path.with_name(path.name + ".alarms")


class Alarms:
    """Looks at readings, and writes down once what does not fit the declaration."""

    def __init__(
        self, path: Path, sensor: Sensor, names: Sequence[str], largest: FloatArray
    ) -> None:
        self._path = alarms_of(path)
        self._sensor = sensor
        self._names = tuple(names)
        self._largest = largest
        self._watches = [GridWatch(grid) for grid in sensor.grids or [0.0] * len(self._names)]
        self._said: list[str] = []

    @property
    def said(self) -> tuple[str, ...]:
        """What was noticed since the gateway was opened.  Secret."""
        return tuple(self._said)

    def look(self, readings: Sequence[float]) -> None:
        """Look at the readings of one step."""
        for i, reading in enumerate(readings):
            name = self._names[i]
            if abs(reading) > self._largest[i]:
                self._say(
                    f"{name}: a reading is larger than {self._largest[i]:.3g}, up to which the "
                    "declared error covers the rounding of double precision"
                )
            if self._sensor.low and not self._sensor.low[i] < reading < self._sensor.high[i]:
                self._say(
                    f"{name}: a reading is at an end of the declared range or beyond it, where "
                    "nothing is promised"
                )
            step = self._watches[i].take(reading)
            if step is not None:
                declared = f"{self._sensor.grids[i]:.3g}" if self._sensor.grids else "exact ones"
                self._say(
                    f"{name}: readings lie on a grid of {step:.4g}, coarser than declared "
                    f"({declared}): the promise does not hold. Start a new run with this resolution"
                )

    def _say(self, text: str) -> None:
        if text in self._said:
            return
        self._said.append(text)
        with suppress(OSError):  # to fail here would tell others, too
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, f"{now()} {text}\n".encode())
            finally:
                os.close(handle)
