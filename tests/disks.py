"""Disks for tests: one that loses power, and one that is full.  Both need root and mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


class MortalDisk:
    """An ext4 file system on a loop device, whose power can be cut.

    What was not synced has not reached the image, so a copy of the image while it is mounted is
    what a power cut leaves.  The file system's own commits are put off.
    """

    def __init__(self, folder: Path, megabytes: int = 24) -> None:
        if os.name != "posix" or os.getuid() != 0 or not shutil.which("mkfs.ext4"):
            pytest.skip("a disk that loses power needs root and mkfs.ext4")
        self.place = folder / "disk"
        self._image = folder / "disk.img"
        self.place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", self._image)
        self._mount()

    def __enter__(self) -> MortalDisk:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.place)], check=False, capture_output=True)

    def snapshot(self) -> Path:
        """What is on the disk at this moment, and not only in memory."""
        copy = self._image.with_suffix(".cut")
        shutil.copyfile(self._image, copy)
        return copy

    def boot(self, image: Path) -> None:
        """Start again with what a power cut left; nobody may use the disk any more."""
        _run("umount", self.place)
        os.replace(image, self._image)
        self._mount()

    def _mount(self) -> None:
        try:
            _run("mount", "-o", "loop,commit=600", self._image, self.place)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no loop device can be mounted here")


class SmallDisk:
    """A file system in memory that is soon full."""

    def __init__(self, folder: Path, kilobytes: int) -> None:
        if os.name != "posix" or os.getuid() != 0:
            pytest.skip("a full disk needs root")
        self.place = folder / "small"
        self.place.mkdir()
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", self.place)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no file system can be mounted here")

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.place)], check=False, capture_output=True)

    def fill(self) -> None:
        with (self.place / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def make_room(self) -> None:
        (self.place / "filler").unlink()
