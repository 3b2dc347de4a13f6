import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import affinedp as adp
from affinedp import errors
from affinedp.errors import MissingExtraError


def test_import_is_light():
    """Heavy parts load when used, so that `import affinedp` stays well under half a second."""
    code = (
        "import sys, affinedp\n"
        "heavy = [m for m in ('numba', 'scipy.linalg', 'scipy.sparse', 'opendp', 'pandas',"
        " 'rich', 'typer', 'matplotlib', 'networkx', 'dp_accounting') if m in sys.modules]\n"
        "print(heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


HEAVY = ("numpy", "scipy", "numba", "opendp", "pandas", "matplotlib", "networkx", "joblib")


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["verify", "--help"], ["ledger"]])
def test_help_loads_nothing_heavy(words):
    """What a command needs is loaded when it runs."""
    code = (
        "import sys\n"
        f"sys.argv = ['affinedp', *{words}]\n"
        "from affinedp.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        f"    print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


SMALL = """
equations = ["a + b = ab", "b + c = bc", "ab + c + d = all"]

[privacy]
mu = 1.0

[noise]
law = "{law}"
scale = 2.0
"""


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_small_problems_need_nothing_compiled(law, tmp_path):
    """To load numba, or to compile for the first time, takes longer than the whole answer."""
    problem = tmp_path / "problem.toml"
    problem.write_text(SMALL.format(law=law))
    heavy = (*HEAVY[2:], "scipy.optimize", "scipy.spatial", "scipy.stats", "scipy.sparse.csgraph")
    code = (
        "import sys, scipy.sparse\n"
        "loaded = set(sys.modules)\n"  # SciPy loads more or less of itself
        f"sys.argv = ['affinedp', 'verify', {str(problem)!r}]\n"
        "from affinedp.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        f"    print([name for name in {heavy} if name in set(sys.modules) - loaded])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "side" in done.stdout or "cycles" in done.stdout, done.stdout  # a search, not a formula
    assert done.stdout.splitlines()[-1] == "[]"


def test_public_names():
    for name in adp.__all__:
        assert getattr(adp, name) is not None
        assert name in dir(adp)
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = adp.nothing


def test_submodules_do_not_hide_functions():
    code = "import affinedp.designs, affinedp.privacy, affinedp as a; a.verify.__call__"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        (None, 'pip install "affinedp[accounting]"'),
        (
            {"url": "file:///home/me/a%20b", "dir_info": {"editable": True}},
            'pip install -e ".[accounting]" in /home/me/a b',
        ),
        ({"url": "file:///home/me/a", "dir_info": {}}, 'pip install ".[accounting]" in /home/me/a'),
        (
            {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            'pip install "affinedp[accounting] @ git+https://example.org/a.git"',
        ),
        (
            {"url": "file:///tmp/affinedp-1.whl", "archive_info": {}},
            'pip install "affinedp[accounting] @ file:///tmp/affinedp-1.whl"',
        ),
    ],
)
def test_missing_extra_says_what_to_install_where_it_came_from(monkeypatch, source, advice):
    class Installed:
        def read_text(self, name):
            assert name == "direct_url.json"
            return None if source is None else json.dumps(source)

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    error = MissingExtraError("dp-accounting", "accounting")
    assert isinstance(error, ImportError)
    assert isinstance(error, adp.AffineDPError)
    assert str(error) == f"this needs the package 'dp-accounting': {advice}"


def test_a_package_that_is_not_installed_is_a_checkout(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    root = Path(errors.__file__).resolve().parents[2]
    wanted = (
        f'pip install -e ".[plot]" in {root}'
        if (root / "pyproject.toml").is_file()
        else 'pip install "affinedp[plot]"'
    )
    assert errors.install_command("plot") == wanted


def test_missing_accounting(monkeypatch):
    g = adp.verify(adp.AffineManifold([[1, -1]]), 1.0, law="laplace")
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[accounting\]"):
        adp.compose([g, g]).delta(0.5)


def test_missing_opendp_is_named_before_anything_is_charged(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.split(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendp", None)
    made = adp.iid_noise(adp.AffineManifold([[1, -1]]), law="laplace", epsilon=1.0)
    budget = adp.Ledger(tmp_path / "budget.db", epsilon=2.0, protects="one person")
    with budget, pytest.raises(MissingExtraError, match=r"pip install .*\[opendp\]"):
        made.release([0, 0], ledger=budget, sampler="opendp")
    with adp.Ledger(tmp_path / "budget.db") as budget:
        assert not budget.history()
    with pytest.raises(MissingExtraError, match=r"pip install .*\[opendp\]"):
        made.make_measurement()
    made.release([0, 0])  # our own sampler needs nothing else


@pytest.mark.parametrize(
    "code",
    [
        "from affinedp.tables import MarginRelease",
        "from affinedp.tables import count_people",
        "from affinedp.tables import TableRelease",
        "from affinedp.cli.tables import preview; preview(Path('examples/us_employment.toml'))",
    ],
)
def test_tables_without_pandas_name_their_extra(code):
    """In a process of its own: what is loaded already needs no pandas any more."""
    hidden = f"""
import sys
from pathlib import Path
sys.modules["pandas"] = None
import affinedp as adp
from affinedp.errors import MissingExtraError
from affinedp.tables import whole
m = adp.design_tree([-1, 0, 0], epsilon=1.0)
total, *parts = whole(m, m.release([3, 1, 2]))
assert total == sum(parts)
try:
    {code}
except MissingExtraError as error:
    print(error.extra)
"""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", hidden], cwd=root, capture_output=True, text=True)
    assert done.stdout == "tables\n", done.stderr
