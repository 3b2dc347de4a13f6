"""What a recording tells of a sensor, and how sensors are given on the command line."""

import math

import numpy as np
import pytest
from typer.testing import CliRunner

from affinedp.cli.app import app
from affinedp.control import (
    Dither,
)
from affinedp.control.recordings import read_recording, study
from affinedp.control.sensors import read_resolution
from affinedp.errors import AffineDPError


def test_steps_range_and_saturation_of_a_recording():
    t = np.arange(3000)
    room = 20 + 4 * np.sin(t / 90) + 0.3 * np.sin(t / 7)
    found = study("room", np.round(np.minimum(room, 22.5) * 4) / 4)
    assert found.step is None or found.step == pytest.approx(0.25)
    found = study("room", np.round(np.minimum(room, 22.5), 1))
    assert found.step == pytest.approx(0.1)
    assert (found.high, found.saturates) == (22.5, ("high",))
    assert "saturates" in str(found) or "saturate" in str(found)
    assert study("computed", room).step is None
    assert "computed?" in str(study("computed", room))
    assert "too few" in str(study("still", [1.0, 1.1] * 50))
    for bad in ([], [math.nan], [math.inf, 1.0]):
        with pytest.raises(AffineDPError):
            study("bad", bad)


@pytest.mark.parametrize("off", [0.0, 0.4])
def test_uneven_steps_of_a_recording(off):
    """A converter one of whose thresholds is off by a part of a step, and one without fault."""
    rng = np.random.default_rng(6)
    signal = rng.uniform(0, 20, 400_000)
    thresholds = np.arange(200) * 0.1 + 0.05
    thresholds[100] += off * 0.1
    readings = np.searchsorted(thresholds, signal) * 0.1
    found = study("adc", readings.round(6))
    assert found.nonlinearity is not None
    assert 0.1 * off * 0.8 < found.nonlinearity < 0.1 * off * 1.2 + 0.03


def test_sensor_command(tmp_path):
    file = tmp_path / "readings.csv"
    lines = [f"2026-05-01T{t // 60:02}:{t % 60:02},{20 + 3 * math.sin(t / 9):.1f},{t % 7}\n"
             for t in range(600)]  # fmt: skip
    file.write_text("time,room,mode\n" + "".join(lines))
    said = CliRunner().invoke(app, ["control", "sensor", str(file)])
    assert said.exit_code == 0, said.output
    assert "room: 600 readings" in said.output
    assert "--resolution 0.1" in said.output
    assert "time" not in said.output
    said = CliRunner().invoke(app, ["control", "sensor", str(file), "--json"])
    assert '"saturates"' in said.output
    assert [name for name, _ in read_recording(file)] == ["room", "mode"]
    file.write_text("1.0,2.0\n1.1,2.1\n")
    assert [name for name, _ in read_recording(file)] == ["y1", "y2"]
    for text in ("", "a,b\nx,y\n", "1,2\n3\n"):
        file.write_text(text)
        with pytest.raises(AffineDPError):
            list(read_recording(file))
    with pytest.raises(AffineDPError, match="cannot be read"):
        list(read_recording(tmp_path / "absent"))


def test_resolution_in_words():
    assert read_resolution("exact") == "exact"
    assert read_resolution("0.1") == 0.1
    assert read_resolution("0.1, dither:6:0.1:0.01") == [0.1, Dither(6, 0.1, 0.01)]
    for bad in ("fine", "dither:6", "dither:x:1", ""):
        with pytest.raises(AffineDPError, match="resolution: "):
            read_resolution(bad)
