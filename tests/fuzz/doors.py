"""The ways out: everything that publishes numbers of a mechanism."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import affinedp as adp
from affinedp.errors import AffineDPError
from fuzz.strategies import in_form


def release(mechanism, values, form, bound=None):
    """``Mechanism.release`` of an array or list."""
    given = in_form(values, form)
    return mechanism.release(in_form(values, "list") if given is None else given, bound=bound)


def batch(mechanism, values, form, bound=None):
    """``Mechanism.release`` of one row in a matrix."""
    given = in_form(values, form)
    return mechanism.release([in_form(values, "list") if given is None else given], bound=bound)


def series(mechanism, values, form, bound=None):
    """``Mechanism.release`` of a pandas Series with more about it than its numbers."""
    import pandas

    given = in_form(values, form)
    if given is None:
        given = in_form(values, "list")
    dtype = object if form in ("Fraction", "Decimal", "object") else None
    data = pandas.Series(given, index=list(mechanism.manifold.names), name="row", dtype=dtype)
    data.attrs["mean"] = float(np.mean(values))
    return mechanism.release(data, bound=bound)


def frame(mechanism, values, form, bound=None):
    """``Mechanism.release`` of a DataFrame whose columns have types of their own."""
    import pandas

    columns = {}
    for place, (name, value) in enumerate(zip(mechanism.manifold.names, values)):
        given = in_form([value], form if place % 2 else "float64")
        columns[name] = [value] if given is None else given
    data = pandas.DataFrame(columns, index=["row"])
    data.attrs["sum"] = float(np.sum(values))
    return mechanism.release(data, bound=bound)


def loaded(mechanism, values, form, bound=None):
    """``Mechanism.release`` of a mechanism that was saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mechanism.json"
        mechanism.save(path)
        again = adp.Mechanism.load(path)
    return release(again, values, form, bound)


def measurement(mechanism, values, form, bound=None):
    """The OpenDP measurement; OpenDP wraps what is refused inside of it."""
    from opendp.mod import OpenDPException

    measured = mechanism.make_measurement()
    try:
        return measured([float(v) for v in values])
    except OpenDPException as error:
        last = str(error.message).strip().splitlines()[-2:]
        if "AffineDPError" in str(last):
            raise AffineDPError(str(last)) from None
        raise


def command_line(mechanism, values, form, bound=None):
    """``affinedp release``: the numbers of the written file; what is printed must be the same."""
    import pandas

    from affinedp.cli import app as cli

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mechanism.save(folder / "m.json")
        frame = pandas.DataFrame([[float(v) for v in values]], columns=mechanism.manifold.names)
        frame.to_csv(folder / "data.csv", index=False)
        words = ["release", str(folder / "m.json"), str(folder / "data.csv"), "-o"]
        words.append(str(folder / "published.csv"))
        if bound is not None:
            words += ["--bound", repr(float(bound))]
        result = CliRunner().invoke(cli.app, words)
        if isinstance(result.exception, AffineDPError):
            raise result.exception
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code:
            raise AffineDPError(f"exit code {result.exit_code}: {result.output}")
        published = pandas.read_csv(folder / "published.csv")[list(mechanism.output_names)]
        published.attrs["printed"] = result.output.replace(str(folder), "")
        return published


DOORS = (release, batch, series, frame, loaded, measurement)
