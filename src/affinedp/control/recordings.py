"""What readings tell of their sensors: the grid that they lie on, alarms, studies of recordings.

A sensor rounds to its step, and whatever the step is, doubles near its multiples come out.  Numbers
that were computed have no common step down to their rounding: an approximate greatest common
divisor of differences tells.  Whether a reading is on a coarser grid than declared, at the end of
its range, or absurdly large depends on the data.  So nothing that others can see may depend on it:
no refusal, no line in a log that is collected somewhere, no message.  It is written into a file
beside the state, for its owner only.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.budget.events import now
from affinedp.control.sensors import Sensor
from affinedp.errors import AffineDPError

# What doubles near multiples of a step may be off, relative to the largest reading.
ROUNDING = 2.0**-48
# A step this many times larger than rounding is a step; smaller ones are rounding itself.
SURE = 2.0**14
# Among so many different readings all are even multiples by chance once in four million.
ENOUGH, CHANCE = 24, 2.0**-22
# A sensor with far coarser steps than declared shows among fewer.
FEWEST = 6


def common_step(readings: Sequence[float]) -> float | None:
    """Return the largest step of which all differences of readings are multiples, or None.

    Examples
    --------
    >>> round(common_step([20.1, 20.4, 19.9, 21.0]), 9)
    0.1
    >>> import math
    >>> common_step([math.sin(t) for t in range(20)]) is None
    True
    """
    values = sorted(set(readings))
    if len(values) < 2:
        return None
    size = max(abs(values[0]), abs(values[-1]), values[-1] - values[0])
    noise = size * ROUNDING
    span = step = values[-1] - values[0]
    for value in values[1:]:
        step = _divisor(step, value - values[0], noise)
        if step < SURE * noise:
            return None
        # the widest difference tells the step best, and errors do not pile up
        step = span / round(span / step)
    return step


def _divisor(first: float, second: float, noise: float) -> float:
    """Euclid on doubles that are near multiples of something."""
    a, b = max(first, second), min(first, second)
    while b > SURE * noise / 4:
        a, b = b, abs(math.remainder(a, b))
    return a


class GridWatch:
    """Notices when readings lie on a coarser grid than was declared.

    What it finds belongs into a log that only the owner of the readings sees: whether there is an
    alarm depends on the data.

    Examples
    --------
    >>> watch = GridWatch(0.001)
    >>> found = [watch.take(0.1 * n) for n in range(40)]
    >>> [round(step, 6) for step in found if step]
    [0.1]
    """

    def __init__(self, declared: float) -> None:
        self._declared = declared
        self._readings: set[float] = set()
        self._taken = 0
        self._done = False

    def take(self, reading: float) -> float | None:
        """Look at a reading; return the coarser step once, when it is certain."""
        self._taken += 1
        again = reading in self._readings and self._taken != 2 * len(self._readings)
        if self._done or again:
            return None
        self._readings.add(reading)
        if len(self._readings) < FEWEST or not self._telling():
            return None
        step = self._coarser(sorted(self._readings))
        if step is not None:
            self._done = True
        elif len(self._readings) >= ENOUGH:
            self._readings.clear()  # as fine as declared; the next ones are looked at anew
            self._taken = 0
        return step

    def _telling(self) -> bool:
        """Whether a common step would say something: the first numbers of a simulation have one.

        0.9 · 5 is a short decimal, and so are the next few; but a sensor's readings come again.
        """
        different = len(self._readings)
        return self._declared > 0 or different >= ENOUGH or self._taken >= 2 * different

    def _coarser(self, values: Sequence[float]) -> float | None:
        """A coarser step than declared, if chance makes one as coarse no oftener than CHANCE."""
        span, free = values[-1] - values[0], len(values) - 2
        finest = max(self._declared, max(abs(values[0]), abs(values[-1]), span) * ROUNDING * SURE)
        if not 0 < finest < math.inf:
            return None
        step = common_step(values)
        # one of k numbers is a multiple of k, and the first two readings only set the grid
        if step is not None and step > 1.5 * finest and (finest / step) ** free <= CHANCE:
            return step
        # steps that were printed with some digits, or carried in single precision, are multiples of
        # those alone; but readings come again, and no two of them are closer than about a step
        apart = least_distance(values)
        crowded = (1 - min(1.0, apart / (span / (free + 1)))) ** free
        if self._taken >= 2 * len(values) and apart > 2 * finest and crowded <= CHANCE:
            return apart
        return None


def least_distance(values: Sequence[float]) -> float:
    """Return the least distance of two numbers.

    Examples
    --------
    >>> least_distance([1.0, 1.5, 2.75])
    0.5
    """
    return min(b - a for a, b in itertools.pairwise(values))


# Codes on either side with which a code is compared.
NEAR = 8
# Readings for each code, on average, from which uneven steps can be told.
ENOUGH_EACH = 30
# An end at which the sensor stays, and where readings heap up so many times over.
HEAP, STAYS = 5.0, 3
MOST_CODES = 1_000_000


@dataclass(frozen=True)
class SensorStudy:
    """What a recording tells about one sensor."""

    name: str
    readings: int
    distinct: int
    step: float | None
    apart: float | None
    low: float
    high: float
    saturates: tuple[str, ...]
    nonlinearity: float | None

    @property
    def resolution(self) -> float | None:
        """What to declare: the step, or more where it seems to be that of the digits alone.

        Steps of q whose readings are rounded to r once more lie at least q − r apart and are off by
        (q + r)/2 in all.
        """
        if self.step is None or self.apart is None or self.apart < 1.5 * self.step:
            return self.step
        return self.apart + 2 * self.step

    def to_record(self) -> dict[str, Any]:
        """Return it as plain values."""
        record = {**asdict(self), "resolution": self.resolution}
        return {**record, "saturates": list(self.saturates)}

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.readings:,} readings, {self.distinct:,} different"]
        if self.distinct < ENOUGH:
            lines.append("  too few different readings to tell anything")
        elif self.step is None:
            lines.append("  no step down to double precision: were these computed?")
        else:
            told = self.resolution or self.step
            lines.append(f"  step         {self.step:.6g}    declare --resolution {_upwards(told)}")
            if told > self.step:
                lines.append(
                    f"               no two readings are closer than {self.apart:.6g}: that is the "
                    "step of the digits, not of the sensor; see the data sheet"
                )
        ends = f"{self.low:.6g} to {self.high:.6g} were seen"
        if self.saturates:
            where = " and ".join(self.saturates)
            ends += f"; it seems to saturate at the {where} end: a saturated sensor breaks promises"
        lines.append(f"  range        {ends}")
        if self.nonlinearity is not None and self.step:
            share = self.nonlinearity / self.step
            lines.append(
                f"  nonlinearity {self.nonlinearity:.2g} ({share:.2g} of a step) over a few steps; "
                "add what the data sheet says, as measurement_error"
            )
        elif self.step:
            lines.append("  nonlinearity too few readings per step to tell; see the data sheet")
        return "\n".join(lines)


def study(name: str, readings: Sequence[float]) -> SensorStudy:
    """Return what a recording tells about one sensor.

    Examples
    --------
    >>> found = study("room", [round(20 + 3 * math.sin(t / 7), 1) for t in range(500)])
    >>> round(found.step, 6), found.low, found.high, found.saturates
    (0.1, 17.0, 23.0, ())
    """
    values = [float(value) for value in readings]
    if not values or not all(map(math.isfinite, values)):
        raise AffineDPError(f"{name}: there must be finite readings, and nothing else")
    different = sorted(set(values))
    step = common_step(different) if len(different) >= ENOUGH else None
    low, high = different[0], different[-1]
    saturates = tuple(
        end
        for end, value, order in (("low", low, different), ("high", high, different[::-1]))
        if _heaps_up(values, value, order)
    )
    return SensorStudy(
        name,
        len(values),
        len(different),
        step,
        least_distance(different) if len(different) > 1 else None,
        low,
        high,
        saturates,
        None if step is None else _nonlinearity(values, step, low, high),
    )


def _upwards(value: float) -> str:
    """Six digits of a number, and not less than it up to the rounding of doubles."""
    near = f"{value:.6g}"
    return near if float(near) >= value * (1 - 1e-12) else f"{value * (1 + 5e-6):.6g}"


def _heaps_up(values: Sequence[float], end: float, order: Sequence[float]) -> bool:
    """Whether readings stay at an end far more often than near it."""
    counts = Counter(values)
    near = [counts[value] for value in order[1 : 1 + NEAR]]
    longest = run = 0
    for value in values:
        run = run + 1 if value == end else 0
        longest = max(longest, run)
    if len(near) < NEAR or longest < STAYS:
        return False
    return counts[end] > HEAP * max(1.0, float(np.mean(near)))


def _nonlinearity(values: Sequence[float], step: float, low: float, high: float) -> float | None:
    """Code density: how far thresholds are off, from counts relative to those of near codes."""
    codes = round((high - low) / step) + 1
    if codes < 6 * NEAR or codes > MOST_CODES:
        return None
    places = np.rint((np.array(values) - low) / step).astype(int)
    counts = np.bincount(places, minlength=codes)[1:-1].astype(float)  # ends heap up
    window = np.ones(2 * NEAR + 1)
    sums = np.convolve(counts, window, "valid")
    middle = counts[NEAR:-NEAR]
    expected = sums / len(window)
    if counts.mean() < ENOUGH_EACH or expected.min() <= 0:
        return None
    wide = middle / expected - 1  # each step's width is off by this share
    # thresholds follow from widths; what drifts over many steps is the signal's own density
    drift = np.convolve(np.cumsum(wide), window / len(window), "same")
    off = (np.cumsum(wide) - drift)[NEAR:-NEAR]
    return float(np.abs(off).max(initial=0.0)) * step


def read_recording(path: Path) -> Iterator[tuple[str, list[float]]]:
    """Read the columns of numbers of a CSV file, with or without a header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is no CSV text"
        raise AffineDPError(f"{path} cannot be read: {reason}") from None
    if not rows:
        raise AffineDPError(f"{path} is empty")
    headed = all(_number(cell) is None for cell in rows[0])
    names = rows[0] if headed else [f"y{i + 1}" for i in range(len(rows[0]))]
    body = rows[1:] if headed else rows
    if any(len(row) != len(names) for row in body):
        raise AffineDPError(f"{path}: all rows must have {len(names)} cells")
    found = False
    for i, name in enumerate(names):
        column = [_number(row[i]) for row in body]
        numbers = [value for value in column if value is not None]
        if body and len(numbers) == len(column):
            found = True
            yield name.strip(), numbers
    if not found:
        raise AffineDPError(f"{path}: no column holds numbers alone")


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


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
