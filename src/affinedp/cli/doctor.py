"""What of the surroundings is there: packages, extras, brokers, backends, caches.

For the command ``affinedp doctor``.  Nothing is installed, sent or changed.
"""

from __future__ import annotations

import platform
import re
import shutil
import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

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


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    # "core", "extras", "parallel" or "brokers"
    area: str
    what: str
    # missing things are optional; a problem keeps affinedp from working as it should
    status: Status
    # the version or place of what is there, or what to do
    detail: str


def doctor(
    broker: list[str] | None = Option(None, help="A broker to try, host:port; may be repeated."),
) -> Answer:
    """Say which extras, brokers and parallel backends are there (exit code 1: something amiss).

    Examples
    --------
    affinedp doctor
    affinedp doctor --broker localhost:1883 --json
    """
    findings = diagnose(broker or ())
    rows = [asdict(finding) for finding in findings]
    return Answer(
        rows,
        lambda: say_table(("area", "what", "status", "detail"), [row.values() for row in rows]),
        KEPT if healthy(findings) else NOT_KEPT,
    )


def diagnose(brokers: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Look at everything that affinedp can use; the trial release is thrown away.

    >>> found = {finding.what: finding.status for finding in diagnose()}
    >>> found["numpy"], found["trial release"]
    ('fine', 'fine')
    """
    return (*_core(), *_extras(), *_parallel(), *_brokers(brokers))


def healthy(findings: Iterable[Finding]) -> bool:
    """Return whether nothing is a problem; what is merely missing does not count."""
    return all(finding.status != "problem" for finding in findings)


def _version(package: str) -> str | None:
    from importlib import metadata  # slow to load, and nothing else needs it

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> dict[str, list[str]]:
    """What affinedp needs, by extra; without any under an empty name."""
    from importlib import metadata

    found: dict[str, list[str]] = {}
    for line in metadata.requires("affinedp") or ():
        extra = re.search(r"extra == ['\"](\w+)", line)
        (name,) = re.findall(r"^[\w.-]+", line)
        found.setdefault(extra[1] if extra else "", []).append(name)
    return {extra: names for extra, names in found.items() if extra not in NOT_FOR_USERS}


def _found(area: str, what: str, detail: str | None, advice: str) -> Finding:
    """What is there, or what to do to have it; it is optional."""
    return Finding(area, what, "fine" if detail else "missing", detail or advice)


def _core() -> Iterable[Finding]:
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    yield Finding("core", "affinedp", "fine", f"{__version__} on Python {python}")
    for package in _packages()[""]:
        version = _version(package)
        advice = "needed; install affinedp again"
        yield Finding("core", package, "fine" if version else "problem", version or advice)
    yield _circuit_cache()
    yield _trial_release()


def _circuit_cache() -> Finding:
    """Say where compiled circuit searches are kept; without a place each process compiles anew."""
    try:
        from affinedp.neighbours.circuits import compiled

        place = compiled.column_side.fast._cache.cache_path  # type: ignore[attr-defined]
    except Exception as error:  # numba and LLVM fail in many ways
        return Finding("core", "circuit search", "problem", f"numba does not load: {error}")
    advice = "each process compiles anew, for some seconds: set NUMBA_CACHE_DIR"
    return _found("core", "compiled cache", place and str(place), advice)


def _trial_release() -> Finding:
    """Publish made-up data once: sampler, exact arithmetic and all."""
    try:
        from affinedp.designs.laplace import iid_noise
        from affinedp.domains.manifold import AffineManifold

        iid_noise(AffineManifold([[1, -1]]), law="laplace", epsilon=1.0).release([0.0, 0.0])
    except Exception as error:  # a broken sampler must be reported, whatever it raises
        return Finding("core", "trial release", "problem", f"{type(error).__name__}: {error}")
    return Finding(
        "core", "trial release", "fine", "noise is drawn from the randomness of the system"
    )


def _extras() -> Iterable[Finding]:
    for extra, packages in _packages().items():
        if not extra:
            continue
        versions = {package: _version(package) for package in packages}
        missing = [package for package, version in versions.items() if version is None]
        there = ", ".join(f"{package} {version}" for package, version in versions.items())
        some = f"{', '.join(missing)}: " if len(missing) < len(packages) else ""
        yield _found("extras", extra, None if missing else there, some + install_command(extra))


def _parallel() -> Iterable[Finding]:
    joblib = _version("joblib")
    if joblib is not None:
        from joblib import cpu_count

        yield Finding("parallel", "loky", "fine", f"joblib {joblib}, {cpu_count()} cores")
    for backend, package in BACKENDS.items():
        version = _version(package)
        there = f"{package} {version}" if version else None
        yield _found("parallel", backend, there, f"pip install {package}")


def _brokers(addresses: Sequence[str]) -> Iterable[Finding]:
    from affinedp.mqtt.local_broker import has_embedded

    embedded = has_embedded() and _version("paho-mqtt") is not None
    advice = f"for trials on this machine: {install_command('broker,network')}"
    there = f"amqtt {_version('amqtt')}, for trials on this machine" if embedded else None
    yield _found("brokers", "embedded", there, advice)
    advice = "only to run a broker for use (Debian: apt install mosquitto)"
    yield _found("brokers", "mosquitto", shutil.which("mosquitto"), advice)
    for address in addresses:
        yield _reach(address)


def _reach(address: str) -> Finding:
    from affinedp.mqtt.broker import Broker

    try:
        broker = Broker.parse(address)
        where = (broker.host, broker.port)
        socket.create_connection(where, SECONDS_FOR_A_BROKER).close()
    except AffineDPError as error:
        return Finding("brokers", address, "problem", str(error))
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        return Finding("brokers", address, "problem", f"cannot be reached: {reason}")
    return Finding("brokers", broker.address, "fine", "answers")
