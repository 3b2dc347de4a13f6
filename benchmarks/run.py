"""Run the benchmarks of this folder and keep their tables in RESULTS.md.

``python benchmarks/run.py`` runs all; ``python benchmarks/run.py circuits calibration`` runs
those two and leaves the other sections as they are.  ``--quick`` runs, of those that took the least
time when they last ran, one beside every peer, and then as many as fit into ten minutes.
"""

from __future__ import annotations

import os

# Small matrices everywhere: more threads than free cores only disturb the measurement.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import importlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
LIBRARIES = ("numpy", "scipy", "numba")
# The sections in which each peer runs.
PEERS = {
    "4ti2": ("circuits",),
    "autodp": ("calibration",),
    "clarabel": ("least_trace",),
    "control": ("closed_loop",),
    "cvxpy": ("least_trace",),
    "diffprivlib": ("calibration",),
    "dp-accounting": ("calibration",),
    "jax-privacy": ("least_trace",),
    "mbi": ("mbi",),
    "mpmath": ("calibration", "trajectories"),
    "opendp": ("release", "sampler", "tables", "tables_peers"),
}
QUICK_SECONDS = 600


# ---------------------------------------------------------------------- the machine


def processor() -> str:
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", facts, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):
        return "unknown memory"


def blas() -> str:
    """The BLAS that NumPy has loaded, and how many threads it uses."""
    import numpy as np  # noqa: F401  (loads its BLAS)
    from threadpoolctl import threadpool_info

    found = {
        f"{pool['internal_api']} {pool['version']} with {pool['num_threads']} thread(s)"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    return ", ".join(sorted(found)) or "unknown BLAS"


def installed(names: Iterable[str]) -> list[str]:
    found = []
    for name in names:
        try:
            found.append(version_4ti2() if name == "4ti2" else f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} (not installed)")
    return found


def version_4ti2() -> str:
    program = shutil.which("4ti2-circuits") or shutil.which("circuits")
    if program is None:
        return "4ti2 (not installed)"
    shown = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"4ti2 version (\S+)", shown)
    return f"4ti2 {found[1]}" if found else "4ti2 of unknown version"


def header() -> str:
    return "\n".join(
        [
            "# Benchmark results",
            "",
            "Written by `python benchmarks/run.py`. The facts below are those of the last run; a",
            "section that it did not run keeps its older numbers. *Busy* means that other programs",
            "had most of the cores: times are then too long, and ratios in one run say more.",
            "",
            f"- Machine: {processor()}, {os.cpu_count()} logical cores, {memory()}, "
            f"{platform.system()}",
            f"- Python {platform.python_version()}, {', '.join(installed(LIBRARIES))}, {blas()}",
            f"- Peers: {', '.join(installed(PEERS))}",
        ]
    )


# ---------------------------------------------------------------------- the sections


def available() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


@dataclass(frozen=True)
class Section:
    """What a benchmark wrote, and how long it took when it last ran: None if nobody knows."""

    text: str
    seconds: int | None


def measured(name: str) -> Section | None:
    """Return the benchmark's section; None if it failed, and the older one stays."""
    start = time.monotonic()
    try:
        text = importlib.import_module(f"bench_{name}").run().strip()
    except Exception:
        traceback.print_exc()
        return None
    return Section(text, max(1, round(time.monotonic() - start)))


def measured_within(name: str, seconds: float) -> bool:
    """Measure in a process of its own, which is ended after so long; say whether it succeeded."""
    command = [sys.executable, __file__, name]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            print(f"{name} did not end within the ten minutes: its older section stays", flush=True)
            return True
        finally:
            if process.poll() is None:  # also when somebody stops us
                os.killpg(process.pid, signal.SIGKILL)


def kept_sections() -> dict[str, Section]:
    """The sections of RESULTS.md; those without a benchmark here were measured by other means."""
    if not RESULTS.exists():
        return {}
    marked = r"<!-- begin (\w+)(?: (\d+) s)? -->\n(.*?)\n<!-- end \1 -->"
    found = re.findall(marked, RESULTS.read_text(encoding="utf-8"), re.DOTALL)
    return {name: Section(text, int(took) if took else None) for name, took, text in found}


def quick(kept: dict[str, Section]) -> list[str]:
    """One benchmark beside every peer, then what else fits into ten minutes, then those unknown.

    Nobody knows how long the last ones take, so they are ended with these ten minutes.
    """
    took = {name: kept[name].seconds if name in kept else None for name in available()}
    known = sorted((seconds, name) for name, seconds in took.items() if seconds is not None)
    beside = {
        min((pair for pair in known if pair[1] in names), default=None) for names in PEERS.values()
    }
    chosen, total = [], 0
    for seconds, name in sorted(known, key=lambda pair: (pair not in beside, pair)):
        if total + seconds <= QUICK_SECONDS:
            chosen.append(name)
            total += seconds
    unknown = [name for name, seconds in took.items() if seconds is None]
    peers = {name for names in PEERS.values() for name in names}
    return chosen + sorted(unknown, key=lambda name: name not in peers)


def write(sections: dict[str, Section]) -> None:
    marked = []
    for name, section in sorted(sections.items()):
        took = "" if section.seconds is None else f" {section.seconds} s"
        marked.append(f"<!-- begin {name}{took} -->\n{section.text}\n<!-- end {name} -->")
    # whoever is ended while writing leaves the older file whole
    unfinished = RESULTS.with_suffix(".tmp")
    unfinished.write_text("\n\n".join([header(), *marked]) + "\n", encoding="utf-8")
    os.replace(unfinished, RESULTS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks and keep their tables.")
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(available())} (default: all)")
    parser.add_argument("--quick", action="store_true", help="every peer once, for ten minutes")
    asked = parser.parse_args()
    if asked.quick and asked.names:
        parser.error("--quick chooses by itself: leave the names out")
    names = quick(kept_sections()) if asked.quick else asked.names or available()
    unknown = sorted(set(names) - set(available()))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(available())}")
    failed, start = [], time.monotonic()
    for name in names:
        if asked.quick:
            left = QUICK_SECONDS - (time.monotonic() - start)
            if left <= 0:
                break
            if not measured_within(name, left):
                failed.append(name)
            continue
        section = measured(name)
        if section is None:
            failed.append(name)
            continue
        print(section.text, end="\n\n", flush=True)
        # after each, so that stopping loses nothing, and what others wrote meanwhile stays
        write({**kept_sections(), name: section})
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
