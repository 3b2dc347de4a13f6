"""Private brokers for tests, each on a free port, and commands in processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATH = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin" + os.pathsep + "/usr/local/sbin"
PATIENCE = 300.0  # seconds after which a hung test fails


def program(name: str) -> str:
    """Where a program is; the test is skipped if it is not installed."""
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"the program {name} is not installed")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true; a hung test fails."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def processes_about(folder: Path) -> list[str]:
    """What runs on this machine and names a folder among its words."""
    found = subprocess.run(["ps", "-ewwo", "stat,args"], capture_output=True, text=True, check=True)
    lines = [line.strip() for line in found.stdout.splitlines()]
    return [line for line in lines if str(folder) in line and not line.startswith("Z")]


KINDS = ("embedded", "mosquitto")


def private_broker(folder: Path, kind: str | None = None) -> PrivateBroker:
    """A broker without rules: of a kind, or mosquitto where it is installed."""
    if kind is None:
        kind = "embedded" if shutil.which("mosquitto", path=PATH) is None else "mosquitto"
    return Embedded(folder) if kind == "embedded" else Mosquitto(folder)


class PrivateBroker:
    """A broker of one's own, which can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.address = f"localhost:{self.port}"
        self.log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def __enter__(self) -> PrivateBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start, and wait until it listens."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"the broker ended: {self.log.read_text()}")
            try:
                socket.create_connection(("localhost", self.port), timeout=1.0).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("the broker does not listen")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None


class Embedded(PrivateBroker):
    """The broker for trials."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "affinedp.mqtt.local_broker", str(self.port)]


class Mosquitto(PrivateBroker):
    """The broker for use.

    ``users`` maps names to passwords (nobody else may connect then); ``acl`` holds lines of an
    access-control file; ``tls`` is a (CA file, certificate, key).
    """

    def __init__(
        self,
        folder: Path,
        users: dict[str, str] | None = None,
        acl: str | None = None,
        tls: tuple[Path, Path, Path] | None = None,
        persistence: bool = False,
    ) -> None:
        super().__init__(folder)
        self._program = program("mosquitto")
        self._settings = folder / "mosquitto.conf"
        lines = [f"listener {self.port} localhost", "set_tcp_nodelay true"]
        if os.getuid() == 0:
            lines.append("user root")  # otherwise it may not read the folder
        if users is None:
            lines.append("allow_anonymous true")
        else:
            passwords = folder / "passwords"
            passwords.write_text("".join(f"{name}:{word}\n" for name, word in users.items()))
            subprocess.run([program("mosquitto_passwd"), "-U", str(passwords)], check=True)
            lines += ["allow_anonymous false", f"password_file {passwords}"]
        if acl is not None:
            (folder / "acl").write_text(acl)
            lines.append(f"acl_file {folder / 'acl'}")
        if tls is not None:
            lines += [f"cafile {tls[0]}", f"certfile {tls[1]}", f"keyfile {tls[2]}"]
        if persistence:
            lines += ["persistence true", f"persistence_location {folder}/"]
        self._settings.write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [self._program, "-c", str(self._settings)]


def certificates(folder: Path, host: str = "localhost") -> tuple[Path, Path, Path]:
    """Make a CA and a certificate for ``host``: (CA certificate, certificate, key)."""
    openssl = program("openssl")
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    certificate, key, request = folder / "broker.pem", folder / "broker.key", folder / "broker.csr"
    names = folder / "names.cnf"
    names.write_text(f"subjectAltName=DNS:{host}\n")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-batch"]

    def run(*words: object) -> None:
        subprocess.run([openssl, *map(str, words)], check=True, capture_output=True)

    run("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", 2, "-subj", "/CN=test CA")
    run("req", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={host}")
    signed_by = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", 2)
    run("x509", "-req", "-in", request, *signed_by, "-extfile", names, "-out", certificate)
    return ca, certificate, key


class Command:
    """``affinedp ...`` in a process of its own."""

    def __init__(self, folder: Path, *words: object, environment: dict[str, str] | None = None):
        self._said = folder / f"{words[1]}-{time.monotonic_ns()}.txt"
        with self._said.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from affinedp.cli import main; main()", *map(str, words)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.poll() is not None

    def ready(self) -> Command:
        """Wait until it listens."""
        deadline = time.monotonic() + PATIENCE
        while "listening" not in self.said:
            assert self._process.poll() is None, f"ended early: {self.said}"
            assert time.monotonic() < deadline, f"does not listen: {self.said}"
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        """SIGKILL: nothing is tidied up."""
        self._process.kill()
        self._process.wait()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; returns the exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        return self._process.wait(PATIENCE)
