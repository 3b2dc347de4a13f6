"""The package builds, and what was built works in an empty environment.

Nothing is downloaded: the build uses the hatchling that is installed, and the new environment
borrows the dependencies of this one, but not its affinedp.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import affinedp

ROOT = Path(__file__).parent.parent
SMOKE = """
import tempfile
from importlib import metadata
from pathlib import Path
import affinedp as adp
assert Path(adp.__file__).is_relative_to({environment!r}), adp.__file__
assert metadata.version("affinedp") == adp.__version__
M = adp.AffineManifold.from_equations(["a + b = total"])
m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
assert m.guarantee.holds(1.0, 1e-6)
with tempfile.TemporaryDirectory() as folder:
    m.save(Path(folder, "m.json"))
    y = adp.Mechanism.load(Path(folder, "m.json")).release([30, 70, 100])
assert abs(y[0] + y[1] - y[2]) < 1e-9
print("fine")
"""

pytestmark = pytest.mark.skipif(
    find_spec("build") is None or find_spec("hatchling") is None,
    reason="needs the packages build and hatchling",
)


def run(*command: object, cwd: Path | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory):
    """An empty environment with the wheel."""
    folder = tmp_path_factory.mktemp("environment").resolve()
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    if not python.exists():
        pytest.skip("environments look different on this system")
    install = ("install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *install, built[1])
    (packages,) = folder.glob("lib/python*/site-packages")
    # a path in a .pth file is searched last, and .pth files in it do not count: so no editable
    # install of affinedp comes with it
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder


def test_wheel_holds_the_package_and_nothing_else(built):
    names = zipfile.ZipFile(built[1]).namelist()
    version = affinedp.__version__
    assert {name.split("/")[0] for name in names} == {"affinedp", f"affinedp-{version}.dist-info"}
    assert "affinedp/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules <= set(names)
    extensions = {Path(name).suffix for name in names if name.startswith("affinedp/")}
    assert extensions == {".py", ".pyi", ".typed"}


def test_sdist_holds_what_is_needed_to_build_and_test(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "tests/conftest.py"):
        assert needed in names
    unwanted = (".venv", "__pycache__", "docs/_build", "docs/generated", ".hypothesis", ".git/")
    assert not [name for name in names if any(word in name for word in unwanted)]
    assert built[0].stat().st_size < 5e6


def test_wheel_works_in_an_empty_environment(environment, tmp_path):
    code = SMOKE.format(environment=str(environment))
    assert run(environment / "bin" / "python", "-c", code, cwd=tmp_path) == "fine\n"


def test_commands_work_in_an_empty_environment(environment, tmp_path):
    command = environment / "bin" / "affinedp"
    assert run(command, "--version", cwd=tmp_path) == f"affinedp {affinedp.__version__}\n"
    answer = run(command, "verify", ROOT / "examples" / "cells.toml", "--json", cwd=tmp_path)
    assert '"sensitivity": 1.0' in answer
