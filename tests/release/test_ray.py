"""The same on Ray, in its local mode, with a worker that is killed; for ``make test-cluster``."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import affinedp as adp
from affinedp.tables import TableRelease

ray = pytest.importorskip("ray", reason="Ray is tested by make test-cluster")
pandas = pytest.importorskip("pandas")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TEST_CLUSTER") != "1", reason="run by make test-cluster"),
]

CAP = {"epsilon": 1.0, "delta": 1e-5, "protects": "one household"}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def frames(parts: int, rows: int):
    rng = np.random.default_rng(0)
    found = []
    for part in range(parts):
        a, b = rng.integers(0, 1000, (2, rows))
        labels = [f"h{part * rows + i}" for i in range(rows)]
        found.append(pandas.DataFrame({"a": a, "b": b, "c": a + b}, index=labels))
    return found


def test_a_worker_that_is_killed_publishes_nothing_twice(tmp_path):
    given = frames(6, 200)
    killed = tmp_path / "killed"
    kept = [ray.put(frame) for frame in given]

    def on_ray(task):
        def with_an_accident(number, frame):
            answer = task(number, frame)
            # after the part was drawn and written: the retry finds it
            if number == 4 and task.__name__ == "part" and not killed.exists():
                killed.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        run = ray.remote(max_retries=3)(with_an_accident)
        return ray.get([run.remote(number, frame) for number, frame in enumerate(kept)])

    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        out = mechanism.release(
            adp.Parts(on_ray), ledger=ledger, rows="different", into=tmp_path / "out"
        )
        assert [entry.status for entry in ledger.history()] == ["released"]
    assert killed.exists()
    found = pandas.read_parquet(out)
    assert sorted(found.index) == sorted(pandas.concat(given).index)
    assert np.abs(found["a"] + found["b"] - found["c"]).max() < 1e-9
    noise = (found - pandas.concat(given).loc[found.index]).to_numpy()
    assert noise.std(axis=0) == pytest.approx(np.sqrt(mechanism.expected_squared_errors), rel=0.2)


def test_a_table_is_released_on_ray(tmp_path):
    run = ray.remote(lambda task, number, frame: task(number, frame))
    kept = [ray.put(frame) for frame in frames(3, 50)]

    def on_ray(task):
        return ray.get([run.remote(task, number, frame) for number, frame in enumerate(kept)])

    release = TableRelease(
        totals={"c": ["a", "b"]}, rows="separate", epsilon=1.0, delta=1e-6, round_to=1
    )
    out = release.release(adp.Parts(on_ray), into=tmp_path / "out")
    found = pandas.read_parquet(out.table)
    assert len(found) == 150
    assert (found["a"] + found["b"] == found["c"]).all()


def test_the_page_is_right_about_ray(tmp_path, monkeypatch):
    """Its code as it stands, but for the address and the folder."""
    page = (Path(__file__).parents[2] / "docs/howto/cluster.md").read_text(encoding="utf-8")
    (code,) = (part for part in re.findall(r"```python\n(.*?)```", page, re.S) if "on_ray" in part)
    assert "/shared/published" in code
    monkeypatch.setattr(ray, "init", lambda **options: None)  # there is one already
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    names = {
        "adp": adp,
        "frames": frames(3, 20),
        "mechanism": adp.design_gaussian(manifold, epsilon=0.5, delta=1e-6),
        "ledger": adp.Ledger(tmp_path / "l.db", **CAP),
    }
    exec(code.replace("/shared/published", str(tmp_path / "out")), names)
    assert len(pandas.read_parquet(names["folder"])) == 60
    assert [entry.status for entry in names["ledger"].history()] == ["released"]


def test_a_refusal_comes_back_from_ray(tmp_path):
    run = ray.remote(lambda task, number, frame: task(number, frame))
    given = frames(2, 5)
    given[1]["c"] += 1
    table = adp.Parts(lambda task: ray.get([run.remote(task, i, f) for i, f in enumerate(given)]))
    mechanism = adp.design_gaussian(
        adp.AffineManifold.from_equations(["a + b = c"]), epsilon=0.5, delta=1e-6
    )
    with pytest.raises(adp.AffineDPError, match="part 1 .*does not obey"):
        mechanism.release(table, into=tmp_path / "out")
    assert not (tmp_path / "out").exists()
