"""Integer noise against OpenDP's sampler: many draws, few draws, and starting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from fractions import Fraction

from affinedp.laws.sampler import IntegerNoise, draw_integers
from affinedp.laws.sampler.reference import IntegerLaw, draw
from affinedp.laws.sampler.words import SYSTEM

REPEATS = 5
MANY = 100_000 * 22
THEIRS = 20_000  # OpenDP's time is in proportion
SCALES = {
    "1/20": Fraction(1, 20),
    "3/10": Fraction(3, 10),
    "7": 7,
    "1000": 1000,
    "2^56": 2**56,
    "10^30": 10**30,
    "2^200": 2**200,
}
FEW = (1, 16, 100, 1_000)


def _best(call, repeats: int = REPEATS) -> float:
    """Processor time, the system's part included: other work disturbs it less."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def _opendp(law: str, scale: float, count: int):
    """OpenDP's sampler on so many integers of 64 bits."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=count)
    if law == "gaussian":
        return make_gaussian(domain, l2_distance(T=float), scale=scale)
    return make_laplace(domain, l1_distance(T=float), scale=scale)


def _many() -> list[str]:
    lines = [
        f"{MANY:,} integers at once, processor time, best of {REPEATS}; OpenDP's sampler on",
        f"{THEIRS:,} in the same run. It clamps at ±2^63, so larger scales have no peer.",
        "",
        "| law | scale | seconds | million draws per second | OpenDP, million per second | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for law in ("gaussian", "laplace"):
        for text, scale in SCALES.items():
            noise = IntegerNoise(law, scale)
            seconds = _best(lambda n=noise: n.draw(MANY))
            ours = MANY / seconds / 1e6
            peer, ratio = "clamps", "–"
            if scale <= 2**56:
                sampler, zeros = _opendp(law, float(scale), THEIRS), [0] * THEIRS
                theirs = THEIRS / _best(lambda s=sampler, z=zeros: s(z)) / 1e6
                peer, ratio = f"{theirs:.3f}", f"{ours / theirs:.0f}"
            lines.append(f"| {law} | {text} | {seconds:.2f} | {ours:.2f} | {peer} | {ratio} |")
    return lines


def _few() -> list[str]:
    lines = [
        "Few draws of scale 2^56, microseconds: *ready* is an `IntegerNoise`, or OpenDP's",
        "measurement, that was made before; *once* makes it each time; *reference* is the",
        "definition in Python.",
        "",
        "| law | draws | ready | once | reference | OpenDP ready | OpenDP once "
        "| ratio ready | ratio once |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for law in ("gaussian", "laplace"):
        exact, noise = IntegerLaw.of(law, 2**56), IntegerNoise(law, 2**56)
        for count in FEW:
            sampler, zeros = _opendp(law, 2.0**56, count), [0] * count
            calls = (
                lambda c=count, n=noise: n.draw(c),
                lambda c=count, w=law: draw_integers(w, 2**56, c),
                lambda c=count, e=exact: [
                    draw(e, lambda: int(SYSTEM.words(1)[0])) for _ in range(c)
                ],
                lambda s=sampler, z=zeros: s(z),
                lambda c=count, w=law, z=zeros: _opendp(w, 2.0**56, c)(z),
            )
            t = [_best(call, 50 if count < 1_000 else 5) * 1e6 for call in calls]
            shown = " | ".join(f"{value:,.0f}" for value in t)
            lines.append(f"| {law} | {count:,} | {shown} | {t[0] / t[3]:.2f} | {t[1] / t[4]:.2f} |")
    return lines


def _starting() -> list[str]:
    """In fresh processes: loading, and the first draw."""
    ours = "from affinedp.laws.sampler import draw_integers; draw_integers('gaussian', 2**56, 100)"
    theirs = (
        "from opendp.domains import atom_domain, vector_domain\n"
        "from opendp.measurements import make_gaussian\n"
        "from opendp.metrics import l2_distance\n"
        "from opendp.mod import enable_features\n"
        "enable_features('contrib')\n"
        "domain = vector_domain(atom_domain(T='i64'), size=100)\n"
        "make_gaussian(domain, l2_distance(T=float), scale=2.0**56)([0] * 100)"
    )
    lines = [
        "Starting: a fresh process that has NumPy draws its first 100 numbers; milliseconds beyond",
        "`import numpy`. Nothing is compiled.",
        "",
        "| | ms |",
        "|---|---:|",
    ]
    for name, script in (("affinedp", ours), ("OpenDP", theirs)):
        timed = (
            "import time, numpy; start = time.perf_counter()\n"
            f"{script}\nprint(1e3 * (time.perf_counter() - start))"
        )
        command = [sys.executable, "-c", timed]
        shown = min(float(subprocess.check_output(command, text=True)) for _ in range(REPEATS))
        lines.append(f"| {name} | {shown:.1f} |")
    return lines


def _randomness() -> str:
    """How fast the system gives random bytes, in the chunks that are used."""
    size = 1 << 17
    rate = size / _best(lambda: os.urandom(size), 20) / 1e6
    return f"`os.urandom` gives {rate:.0f} MB/s in chunks of {size >> 10} KiB."


def run() -> str:
    """Return the Markdown section."""
    parts = [["## Integer noise"], _many(), _few(), _starting(), [_randomness()]]
    return "\n\n".join("\n".join(part) for part in parts)


if __name__ == "__main__":
    print(run())
