"""``affinedp doctor``: what of the surroundings is there; nothing is installed, sent or changed."""

from __future__ import annotations

import platform
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from typer import Option

from affinedp import __version__
from affinedp.cli.commands import Answer
from affinedp.cli.exits import KEPT, NOT_KEPT
from affinedp.cli.output import say_table
from affinedp.errors import AffineDPError, install_command

Status = Literal["fine", "missing", "problem"]

NOT_FOR_USERS = ("all", "test", "bench", "dev", "docs")
BACKENDS = {"dask": "distributed", "ray": "ray"}  # of joblib, beside the loky it brings
SECONDS_FOR_A_BROKER = 3.0


class Finding(NamedTuple):
    """One thing that was looked at."""

    area: str
    what: str
    # missing things are optional; a problem keeps affinedp from working as it should
    status: Status
    # the version or place of what is there, or what to do
    detail: str


def doctor(
    broker: list[str] | None = Option(
        None, metavar="BROKER", help="A broker to try, host:port; repeatable."
    ),
) -> Answer:
    """Say which extras, brokers and parallel backends are there (exit code 1: something amiss).

    Examples
    --------
    affinedp doctor
    affinedp doctor --broker localhost:1883 --json
    """
    findings = [*_core(), *_extras(), *_brokers(broker or ())]
    amiss = any(finding.status == "problem" for finding in findings)
    return Answer(
        [finding._asdict() for finding in findings],
        lambda: say_table(Finding._fields, findings),
        NOT_KEPT if amiss else KEPT,
    )


def _found(
    area: str, what: str, there: str | None, advice: str, lacking: Status = "missing"
) -> Finding:
    """What is there, or what to do to have it."""
    return Finding(area, what, "fine" if there else lacking, there or advice)


def _version(package: str) -> str | None:
    from importlib import metadata  # slow to load, and nothing else needs it

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> dict[str, list[str]]:
    """What affinedp needs, by extra; without any under an empty name."""
    from importlib import metadata

    found: dict[str, list[str]] = {"": []}
    for line in metadata.requires("affinedp") or ():
        extra = re.search(r"extra == ['\"](\w+)", line)
        (name,) = re.findall(r"^[\w.-]+", line)
        found.setdefault(extra[1] if extra else "", []).append(name)
    return {extra: names for extra, names in found.items() if extra not in NOT_FOR_USERS}


def _core() -> Iterator[Finding]:
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    yield Finding("core", "affinedp", "fine", f"{__version__} on Python {python}")
    for package in _packages()[""]:
        advice = "needed; install affinedp again"
        yield _found("core", package, _version(package), advice, "problem")
    try:
        from affinedp.neighbours.circuits import compiled

        place = compiled.column_side.fast._cache.cache_path  # type: ignore[attr-defined]
        advice = "each process compiles anew, for some seconds: set NUMBA_CACHE_DIR"
        yield _found("core", "compiled cache", place and str(place), advice)
    except Exception as error:  # numba and LLVM fail in many ways
        yield Finding("core", "circuit search", "problem", f"numba does not load: {error}")
    try:  # made-up data, published once: sampler, exact arithmetic and all
        from affinedp.designs.laplace import iid_noise
        from affinedp.domains.manifold import AffineManifold

        iid_noise(AffineManifold([[1, -1]]), law="laplace", epsilon=1.0).release([0.0, 0.0])
        told = "noise is drawn from the randomness of the system"
        yield Finding("core", "trial release", "fine", told)
    except Exception as error:  # a broken sampler must be reported, whatever it raises
        yield Finding("core", "trial release", "problem", f"{type(error).__name__}: {error}")


def _extras() -> Iterator[Finding]:
    for extra, packages in _packages().items():
        if not extra:
            continue
        versions = {package: _version(package) for package in packages}
        missing = [package for package, version in versions.items() if version is None]
        there = ", ".join(f"{package} {version}" for package, version in versions.items())
        some = f"{', '.join(missing)}: " if len(missing) < len(packages) else ""
        yield _found("extras", extra, None if missing else there, some + install_command(extra))
    for backend, package in {"loky": "joblib", **BACKENDS}.items():
        version = _version(package)
        named = f"{package} {version}" if version else None
        yield _found("parallel", backend, named, f"pip install {package}")


def _brokers(addresses: Sequence[str]) -> Iterator[Finding]:
    from affinedp.mqtt.broker import Broker
    from affinedp.mqtt.local_broker import has_embedded

    embedded = has_embedded() and _version("paho-mqtt") is not None
    advice = f"for trials on this machine: {install_command('broker,network')}"
    there = f"amqtt {_version('amqtt')}, for trials on this machine" if embedded else None
    yield _found("brokers", "embedded", there, advice)
    advice = "only to run a broker for use (Debian: apt install mosquitto)"
    yield _found("brokers", "mosquitto", shutil.which("mosquitto"), advice)
    for address in addresses:
        try:
            broker = Broker.parse(address)
            socket.create_connection((broker.host, broker.port), SECONDS_FOR_A_BROKER).close()
            yield Finding("brokers", broker.address, "fine", "answers")
        except AffineDPError as error:
            yield Finding("brokers", address, "problem", str(error))
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            yield Finding("brokers", address, "problem", f"cannot be reached: {reason}")
