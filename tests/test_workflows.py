"""The workflows cannot run here, but what they say can be checked; so can the citation."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_supported_python_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={versions[0]}"
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    tested = re.findall(r"python: \[(.*)\]", tests)
    assert len(tested) == 2  # on Linux, and elsewhere
    assert all(re.findall(r'"(.*?)"', line) == versions for line in tested)


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("citation-file-format", [ROOT / "CITATION.cff"])],
)
def test_files_that_others_read_follow_their_schema(schema, files):
    if find_spec("check_jsonschema") is None:
        pytest.skip("needs the package check-jsonschema")
    named = ("--builtin-schema", f"vendor.{schema}")
    command = [sys.executable, "-m", "check_jsonschema", *named, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_are_safe():
    """Least permissions, actions pinned by commit, nothing from outside in a shell."""
    program = Path(sysconfig.get_path("scripts"), "zizmor" + (".exe" if os.name == "nt" else ""))
    if not program.exists():
        pytest.skip("needs the package zizmor")
    command = [str(program), "--offline", "--strict-collection", *map(str, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
