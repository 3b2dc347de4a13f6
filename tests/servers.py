"""A PostgreSQL server of the tests' own, started from Debian's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def programs() -> Path | None:
    """Where initdb and postgres are, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    if found:
        return found[0].parent
    elsewhere = shutil.which("initdb")
    return Path(elsewhere).parent if elsewhere else None


def why_not() -> str:
    """Why no server can be started here, or nothing."""
    if programs() is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if os.getuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "root may not run PostgreSQL, and there is no user postgres"
    return ""


def set_on_server(connection, name: str, value: str) -> None:
    """Change a setting of a whole server, and wait until it holds; "" resets it."""
    words = f"SET {name} = '{value}'" if value else f"RESET {name}"
    connection.execute(f"ALTER SYSTEM {words}")
    connection.execute("SELECT pg_reload_conf()")
    while connection.execute(f"SHOW {name}").fetchone() != (value,):
        time.sleep(0.02)


class Server:
    """A server on a free port, with a folder of its own."""

    def __init__(self) -> None:
        # not pytest's: another run may close that one to other users at any time
        folder = Path(tempfile.mkdtemp(prefix="affinedp-postgresql-"))
        self.data = folder / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "--no-sync")
        self.start()

    def _command(self, program: str, *arguments: str) -> list[str]:
        found = programs()
        assert found is not None
        command = [str(found / program), *arguments]
        if os.getuid() == 0:
            command = [
                "setpriv",
                "--reuid=postgres",
                "--regid=postgres",
                "--clear-groups",
                *command,
            ]
        return command

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(self._command(program, *arguments), check=True, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""]
        self.process = subprocess.Popen(
            self._command("postgres", *options),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(300):
            ready = subprocess.run(
                self._command("pg_isready", "-h", "127.0.0.1", "-p", str(self.port)),
                capture_output=True,
                check=False,
            )
            if ready.returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("the server does not answer")

    def kill(self) -> None:
        """End it and all that it started, as a crash would."""
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        for pid in [str(self.process.pid), *children]:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)
        shutil.rmtree(self.data.parent, ignore_errors=True)

    def url(self, name: str = "ledger", port: int | None = None) -> str:
        """The address of a ledger on it."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres#{name}"
