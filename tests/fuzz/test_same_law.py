"""One question, written in other ways: the same words give the same numbers."""

import tempfile
from pathlib import Path

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import affinedp as adp
from fuzz.effort import examples
from fuzz.noise import seeded
from fuzz.questions import attempted
from fuzz.strategies import pairs, problems


def published(mechanism, given, seed=11):
    with seeded(seed):
        return mechanism.release(given)


@pytest.mark.slow
@examples(25)
@given(st.data(), problems(designs=("iid", "given", "least")))
def test_files_frames_and_rows_have_the_same_law(data, problem):
    """Saved and loaded, by name in any order, and in a batch: law, promise and refusals agree."""
    pair = data.draw(pairs(problem))
    mechanism, refusal = attempted(lambda: problem.mechanism)
    if pair is None or refusal:
        return
    row = pair.rows[0]
    wanted, refused = attempted(published, mechanism, row)
    with tempfile.TemporaryDirectory() as folder:
        mechanism.save(Path(folder) / "m.json")
        loaded = adp.Mechanism.load(Path(folder) / "m.json")
    assert loaded.fingerprint == mechanism.fingerprint
    assert loaded.guarantee.sensitivity == pytest.approx(mechanism.guarantee.sensitivity, rel=1e-9)
    names = list(mechanism.manifold.names)
    order = data.draw(st.permutations(names))
    frame = pandas.DataFrame([row], columns=names)[order]
    doors = {
        "loaded": lambda: published(loaded, row),
        "frame": lambda: published(mechanism, frame)[list(mechanism.output_names)].to_numpy()[0],
        "batch of one": lambda: published(mechanism, [row])[0],
    }
    for door, release in doors.items():
        found, other = attempted(release)
        assert (other is None) == (refused is None), door
        if found is not None:
            assert np.array_equal(found, wanted), door
