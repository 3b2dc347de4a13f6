"""A studio of the tests' own, as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

HOST, TOKEN = "127.0.0.1:8642", "the-token-of-this-run"


class Studio:
    """`affinedp studio --no-open` as a process."""

    def __init__(self, *options: str) -> None:
        words = [sys.executable, "-m", "affinedp", "studio", "--no-open", "--port", "0", *options]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()
        self.address, _, self.token = self.link.partition("/#token=")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def work_with_little_memory(connection, task, question):
    """A computation as the studio starts it, on a machine with little memory."""
    from affinedp.studio import jobs

    jobs.SHARE, jobs.LEAST_BYTES = 0.0, 1_200_000_000
    jobs.work(connection, task, question)
