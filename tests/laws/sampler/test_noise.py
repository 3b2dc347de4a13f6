"""What callers see: shapes, refusals, and where the randomness comes from."""

import inspect
import os
import random
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from affinedp.errors import AffineDPError
from affinedp.laws.sampler import IntegerNoise, draw_integers
from affinedp.laws.sampler import words as words_module
from affinedp.laws.sampler.reference import IntegerLaw, draw


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("size", [0, 1, 5, (), (0,), (2, 3), (4, 0), np.int64(3), (2, 1, 2)])
@pytest.mark.parametrize("scale", [Fraction(1, 3), 2**56, 2**200], ids=str)
def test_python_integers_in_the_shape_asked_for(law, size, scale):
    drawn = draw_integers(law, scale, size)
    assert drawn.shape == np.zeros(size).shape
    assert drawn.dtype == object
    assert all(type(number) is int for number in drawn.ravel())


def test_sums_do_not_wrap():
    drawn = IntegerNoise("gaussian", 2**57).draw(1000)
    assert (drawn + 2**63).tolist() == [number + 2**63 for number in drawn.tolist()]


@pytest.mark.parametrize("size", [-1, (2, -1), 1.5, "3", None, (2, 0.5), [2]])
def test_refuses_what_is_no_size(size):
    with pytest.raises(AffineDPError, match="size must"):
        draw_integers("gaussian", 1, size)


def test_says_what_it_is():
    assert repr(IntegerNoise("laplace", 3)) == "IntegerNoise('laplace', Fraction(3, 1))"


def test_there_is_no_seed():
    for function in (draw_integers, IntegerNoise, IntegerNoise.draw):
        parameters = inspect.signature(function).parameters
        assert not {"seed", "rng"} & set(parameters)
        assert parameters.get("source", None) is None or (
            parameters["source"].default is words_module.system_bytes
        )


def test_generators_of_the_process_do_not_matter():
    def seeded():
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        return draw_integers("gaussian", 2**200, 3).tolist()

    assert not set(seeded()) & set(seeded())


@pytest.mark.parametrize("scale", [7, 2**200])
def test_all_randomness_is_the_systems(monkeypatch, scale):
    """With the system's bytes fixed, everything is."""

    def repeated():
        rng = np.random.default_rng(9)
        monkeypatch.setattr(words_module.os, "urandom", rng.bytes)
        return draw_integers("gaussian", scale, 1000).tolist()

    assert repeated() == repeated()


def test_nothing_is_drawn_if_the_system_gives_nothing(monkeypatch):
    def broken(count):
        raise OSError("no randomness")

    monkeypatch.setattr(words_module.os, "urandom", broken)
    with pytest.raises(OSError, match="no randomness"):
        draw_integers("gaussian", 1, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_draws_other_numbers():
    script = (
        "import os\n"
        "from affinedp.laws.sampler import IntegerNoise\n"
        "noise = IntegerNoise('gaussian', 2**200)\n"
        "noise.draw(10)\n"
        "child = os.fork()\n"
        "child and os.waitpid(child, 0)\n"
        "print(noise.draw(1)[0], flush=True)\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert len(set(shown.stdout.split())) == 2


def test_nothing_is_compiled_or_loaded():
    script = (
        "import sys\n"
        "from affinedp.laws.sampler import draw_integers\n"
        "draw_integers('gaussian', 2**56, 20000)\n"
        "print(*{name.partition('.')[0] for name in sys.modules})\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "numpy" in shown.stdout.split()
    assert not {"numba", "opendp", "scipy", "cryptography"} & set(shown.stdout.split())


def test_the_reference_draws_too():
    """One at a time, from words of the system."""
    for law in (IntegerLaw.of("gaussian", Fraction(4, 3)), IntegerLaw.of("laplace", 2**90)):
        drawn = [draw(law, lambda: int(words_module.SYSTEM.words(1)[0])) for _ in range(200)]
        assert len(set(drawn)) > 1
        assert max(map(abs, drawn)) < 100 * law.scale
