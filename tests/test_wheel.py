"""The package builds, and what was built works in an empty environment.

Nothing is downloaded: the build uses the hatchling and hatch-vcs that are installed, and the new
environment borrows the dependencies of this one, but not its affinedp.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMOKE = """
import tempfile
from pathlib import Path
import affinedp as adp
assert Path(adp.__file__).is_relative_to({environment!r}), adp.__file__
assert adp.__version__ == {version!r}, adp.__version__
M = adp.AffineManifold.from_equations(["a + b = total"])
m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
assert m.guarantee.holds(1.0, 1e-6)
with tempfile.TemporaryDirectory() as folder:
    m.save(Path(folder, "m.json"))
    y = adp.Mechanism.load(Path(folder, "m.json")).release([30, 70, 100])
assert abs(y[0] + y[1] - y[2]) < 1e-9
print("fine")
"""

# The page in the browser, which has no build step.
STATIC = ROOT / "src" / "affinedp" / "studio" / "static"
BUILDERS = ("build", "hatchling", "hatch_vcs")

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in BUILDERS),
    reason="needs the packages build, hatchling and hatch-vcs",
)


def run(*command: object, cwd: Path | None = None) -> str:
    # a git hook says in GIT_… which repository is meant, and here it is another
    unwanted = ("PYTHONPATH", "VIRTUAL_ENV", "GIT_", "SETUPTOOLS_SCM_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
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
def version(built):
    """What the wheel calls itself."""
    return built[1].name.split("-")[1]


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


def test_wheel_holds_the_package_and_nothing_else(built, version):
    names = zipfile.ZipFile(built[1]).namelist()
    assert {name.split("/")[0] for name in names} == {"affinedp", f"affinedp-{version}.dist-info"}
    assert "affinedp/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert modules <= set(names)
    static = {path.relative_to(ROOT / "src").as_posix() for path in STATIC.iterdir()}
    assert static == {name for name in names if name.startswith("affinedp/studio/static/")}
    rest = [name for name in names if name.startswith("affinedp/") and name not in static]
    assert {Path(name).suffix for name in rest} == {".py", ".pyi", ".typed", ".toml"}


def test_sdist_holds_what_is_needed_to_build_and_test(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "tests/conftest.py"):
        assert needed in names
    unwanted = (".venv", "__pycache__", "docs/_build", "docs/generated", ".hypothesis", ".git/")
    assert not [name for name in names if any(word in name for word in unwanted)]
    assert built[0].stat().st_size < 5e6


@pytest.mark.slow
def test_wheel_works_in_an_empty_environment(environment, version, tmp_path):
    code = SMOKE.format(environment=str(environment), version=version)
    assert run(environment / "bin" / "python", "-c", code, cwd=tmp_path) == "fine\n"


def test_commands_work_in_an_empty_environment(environment, version, tmp_path):
    command = environment / "bin" / "affinedp"
    assert run(command, "--version", cwd=tmp_path) == f"affinedp {version}\n"
    answer = run(command, "verify", ROOT / "examples" / "cells.toml", "--json", cwd=tmp_path)
    assert '"sensitivity": 1.0' in answer


def version_of(folder: Path) -> str:
    return run(sys.executable, "-m", "hatchling", "version", cwd=folder).strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_version_comes_from_the_tag(tmp_path):
    """And where there is no tag, or no git, it is that of the coming release, unfinished."""

    def git(*words: object) -> None:
        author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
        run("git", *author, *words, cwd=tmp_path)

    for name in ("pyproject.toml", "README.md", "LICENSE", ".git_archival.txt", ".gitattributes"):
        shutil.copy(ROOT / name, tmp_path)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    coming = settings["tool"]["hatch"]["version"]["fallback-version"].removesuffix(".dev0")
    assert version_of(tmp_path) == f"{coming}.dev0"
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "without a tag")
    assert re.fullmatch(rf"{re.escape(coming)}\.dev1\+g[0-9a-f]+", version_of(tmp_path))
    git("tag", "v7.8.9")
    assert version_of(tmp_path) == "7.8.9"
    git("archive", "--output", "archive.tar", "HEAD")
    shutil.unpack_archive(tmp_path / "archive.tar", tmp_path / "unpacked")
    assert version_of(tmp_path / "unpacked") == "7.8.9"
    git("commit", "--quiet", "--allow-empty", "--message", "after the tag")
    assert re.fullmatch(r"7\.8\.10\.dev1\+g[0-9a-f]+", version_of(tmp_path))
