"""What README and docs promise about error and speed is what benchmarks/RESULTS.md has measured."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import affinedp as adp

ROOT = Path(__file__).parent.parent
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
# Ratios that stand in a sentence: page, the sentence, and the column of RESULTS.md that they are
# in, with the row of each.
SENTENCES = [
    (
        "docs/explanation/functions.md",
        r"smaller by ([\d.]+) \(peak\), ([\d.]+) \(range\), ([\d.]+) \(exceedance of 280\) and "
        r"([\d.]+) \(Gini\)",
        ("best noise on it", "gain"),
        ("peak", "range", "exceedance of 280", "Gini"),
    ),
]
# The table beside the literature: how a row begins, and the column and row of RESULTS.md where its
# numbers stand: the peer's, and ours.
RELATED = {
    **{
        name: (("projected", name), ("ours", name))
        for name in (
            "one sum of 10 cells, a person moves",
            "12 counties and 3 states, total public, a person moves",
            "x1 + 2x2 + 4x3 + 8x4 public, Definition 4",
            "15 prefix sums of 16 cells, total public, a person moves",
        )
    },
    "3×3 margins public, swaps": (("Semi-DP", "3"), ("ours", "3")),
    "the same at ε = 1": (("hull, length", "3"), ("ours, length", "3")),
    "all margins of ≤ 3 of Adult": (("ResidualPlanner", "person"), ("error", "person")),
    "margins of ≤ 2 with 100 prefixes": (
        ("ResidualPlanner+", "P(100)×I(5)×I(2)"),
        ("error", "P(100)×I(5)×I(2)"),
    ),
    "256 prefix sums in a stream": (None, ("least", "256")),
    "the same, made step by step": (("BLT, mean", "256"), ("ours, mean", "256")),
    "the same, the largest": (("BLT, largest", "256"), ("ours, largest", "256")),
}
# Ratios of the control page, in the same way: a pattern, and where each number stands.
LOOPS = (
    r"White noise costs a room ([\d,]+) times and a car ([\d,]+) times as much; the least "
    r"noise ([\d.]+) and ([\d.]+) times",
    r"It pays ([\d.]+), ([\d.]+) and ([\d.]+) times",
)
# Numbers in a sentence that RESULTS.md has in another: page, both sentences.
BOTH = [
    (
        "docs/explanation/loops.md",
        r"room pays ([\d.]+) times with steps of 0.1 °C over a week, and ([\d.]+) times with",
        r"noise that is designed for them: ([\d.]+); with dither of six bits: ([\d.]+)\.\n",
    ),
    (
        "docs/explanation/sensors.md",
        r"pays ([\d.]+) times the variance for steps of 0.01 °C, ([\d.]+) times with dither",
        r"with exact readings: ([\d.]+); with dither of six bits: ([\d.]+)\.\n",
    ),
]
# Speed beside a peer is said in RESULTS.md alone, where the peer runs in the same minute.
SPEED = r"[\d.,]+ ?(?:×|times) (?:faster|slower|as fast|as slow|sooner)"


def tables(text):
    """Every table of a page: its header, and its rows."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        ]
        if len(rows) > 2 and re.fullmatch(r"[\s:|-]+", block.splitlines()[1]):
            yield rows[0], [row for row in rows[2:] if len(row) == len(rows[0])]


MEASURED = list(tables(RESULTS))


def measured_like(header):
    """The tables of RESULTS.md that begin with the same column and share two more."""
    return [
        (own, rows)
        for own, rows in MEASURED
        if own[0] == header[0] and len(set(own) & set(header)) > 2
    ]


def copies():
    """Rows in docs with the row of RESULTS.md that they copy, by the columns both have."""
    for page, text in PAGES.items():
        for header, rows in tables(text):
            for own, kept in measured_like(header):
                shared = [name for name in header if name in own and own.count(name) == 1]
                words = [name for name in shared if name in ("law", header[0])]
                for row in rows:
                    said = dict(zip(header, row))
                    for other in (dict(zip(own, one)) for one in kept):
                        if all(said[name] == other[name] for name in words):
                            yield page, said, {name: other[name] for name in shared}


def test_tables_in_the_docs_are_those_that_were_measured():
    found = list(copies())
    assert {page for page, _, _ in found} >= {
        "docs/explanation/functions.md",
        "docs/explanation/least-possible.md",
    }
    for page, said, other in found:
        assert {name: said[name] for name in other} == other, page


@pytest.mark.parametrize(("page", "sentence", "columns", "rows"), SENTENCES)
def test_ratios_in_sentences_are_no_better_than_measured(page, sentence, columns, rows):
    after, column = columns
    said = re.search(sentence.replace(" ", r"\s+"), PAGES[page])
    assert said, "the sentence is gone: take it off the list"
    (table,) = [(own, kept) for own, kept in MEASURED if after in own]
    place = table[0].index(column, table[0].index(after))
    gains = {row[0]: float(row[place]) for row in table[1]}
    for row, number in zip(rows, said.groups(), strict=True):
        assert float(number) <= gains[row]


def number(cell):
    return float(re.match(r"[\d.,]+", cell.strip("*"))[0].replace(",", ""))


def measured(column, row):
    """The number in the first table of RESULTS.md that has this column and this row."""
    for own, kept in MEASURED:
        for one in kept:
            if column in own and one[0] == row:
                return number(one[own.index(column)])
    raise AssertionError(f"RESULTS.md has no {column!r} of {row!r}")


def rounded_like(cell, value):
    """Whether a number in a sentence is this one with fewer digits."""
    said = cell.strip("*").split(" ")[0]
    return abs(number(said) - value) <= 0.5001 * 10.0 ** -len(said.partition(".")[2])


def test_the_literature_beside_ours_is_what_was_measured():
    page = PAGES["docs/explanation/related.md"]
    (rows,) = [rows for header, rows in tables(page) if header[0] == "example"]
    assert len(rows) == len(RELATED)
    for (start, (theirs, ours)), (example, peer, own, who) in zip(RELATED.items(), rows):
        assert example.startswith(start)
        assert rounded_like(own, measured(*ours)), example
        if theirs is None:
            continue
        assert rounded_like(peer, measured(*theirs)), example
        gain = re.search(r"affinedp, ([\d.]+) times", who)
        assert gain is None or float(gain[1]) <= measured(*theirs) / measured(*ours), example


def test_prefixes_without_delta_gain_what_was_measured():
    changes = re.sub(r"\s+", " ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    said = re.search(r"has (\S+) times less .* for 100 prefixes, (\S+) times for 1,000", changes)
    for gain, count in zip(said.groups(), ("100", "1000"), strict=True):
        assert float(gain) <= measured("squared error: alone, tree", count)
    page = PAGES["docs/explanation/prefixes-and-places.md"]
    share = re.search(r"for 100 prefixes ([\d.]+) of the error of", page)[1]
    assert rounded_like(share, 1 / measured("squared error: alone, tree", "100"))


def test_how_far_streams_are_from_the_best_is_what_was_measured():
    page = PAGES["docs/explanation/related.md"]
    mean = re.search(r"by ([\d.]+) % \(([\d.]+)–([\d.]+) % for n = 1024 and 4096\)", page).groups()
    largest = re.search(r"by ([\d.]+) and ([\d.]+) %, for n = 1024 and 4096\)", page).groups()
    for said, steps in zip(mean, ("256", "1024", "4096"), strict=True):
        lost = measured("ours, mean", steps) / measured("BLT, mean", steps) - 1
        assert rounded_like(said, 100 * lost), steps
    for said, steps in zip(largest, ("1024", "4096"), strict=True):
        won = measured("BLT, largest", steps) / measured("ours, largest", steps) - 1
        assert rounded_like(said, 100 * won), steps


def test_what_loops_pay_is_what_was_measured():
    (rows,) = [
        [[one.split("/") for one in row[1:]] for row in kept]
        for own, kept in MEASURED
        if own[:4] == ["plant", "white", "input perturbation", "ours"]
    ]
    text = re.sub(r"\s+", " ", PAGES["docs/explanation/loops.md"])
    unaware, aware = (re.search(pattern, text).groups() for pattern in LOOPS)
    white, ours = ([float(row[place][0]) for row in rows] for place in (0, 2))
    for words, place in (("Sending nothing costs", 4), ("the three plants pay", 3)):
        said = re.search(words + r" ([\d.]+), ([\d.]+) and ([\d.]+) times", text).groups()
        assert all(rounded_like(one, float(row[place][0])) for one, row in zip(said, rows)), words
    # what the others pay is no more than measured, what we pay is what was measured
    assert number(unaware[0]) <= white[0] + 0.5
    assert number(unaware[1]) <= white[2]
    assert all(rounded_like(said, one) for said, one in zip(unaware[2:], (ours[0], ours[2])))
    assert all(rounded_like(said, float(row[2][1])) for said, row in zip(aware, rows))


@pytest.mark.parametrize(("page", "said", "found"), BOTH)
def test_numbers_of_a_sentence_are_those_measured(page, said, found):
    said, found = (
        re.search(pattern.replace(" ", r"\s+"), text).groups()
        for pattern, text in ((said, PAGES[page]), (found, RESULTS))
    )
    assert all(rounded_like(one, float(value)) for one, value in zip(said, found, strict=True))


def test_what_steps_of_a_sensor_cost_is_what_was_measured():
    pattern = r"is ([\d.]+) times the noise that hides x\(0\), and ([\d.]+) with `Dither\(bits=4"
    said = re.search(pattern, PAGES["docs/explanation/sensors.md"]).groups()
    for cell, column in zip(said, ("readings", "dither 4"), strict=True):
        assert rounded_like(cell, measured(column, "room, 96 steps"))


def test_gains_of_knorm_noise_are_those_measured():
    said = re.search(r"(\d) to (\d) times less squared error", PAGES["docs/howto/choose.md"])
    (rows,) = [kept for own, kept in MEASURED if {"hull", "best K", "Gaussian"} <= set(own)]
    (more,) = [kept for own, kept in MEASURED if {"best/bound", "r", "wanted"} <= set(own)]
    gains = [float(row[5]) / float(row[2]) for row in rows]
    gains += [number(row[5]) / number(row[3]) for row in more if "knorm" in row[3]]
    assert int(said[1]) <= min(gains)
    assert int(said[2]) <= max(gains)


@pytest.mark.parametrize("page", PAGES)
def test_speed_beside_a_peer_is_said_where_it_is_measured(page):
    assert not re.findall(SPEED, PAGES[page])


def test_close_to_the_least_possible_as_the_readme_says():
    said = re.search(r"within 1\.0 to ([\d.]+) of it for up to (\d+) numbers", PAGES["README.md"])
    (rows,) = [kept for own, kept in MEASURED if {"problem", "numbers", "bound"} <= set(own)]
    small = [row for row in rows if number(row[1]) <= int(said[2])]
    error, bound = ([float(row[at].replace(",", "")) for row in small] for at in (6, 7))
    assert len(small) > 9
    assert max(mine / least for mine, least in zip(error, bound)) <= float(said[1])


@pytest.fixture
def run(monkeypatch, tmp_path):
    """benchmarks/run.py, with a record of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import run

    monkeypatch.setattr(run, "RESULTS", tmp_path / "RESULTS.md")
    return run


def test_what_the_readme_says_of_a_total_and_its_parts_is_so():
    said = re.search(
        r"squared error is (\d+), where independent noise for ε = 1 has (\d+)\..*?"
        r"error below ([\d.]+) ",
        re.sub(r"\s+", " ", PAGES["README.md"]),
    )
    M = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
    m = adp.design(M, epsilon=1.0)
    independent = adp.iid_noise(M, law="laplace", epsilon=1.0).expected_squared_error
    found = (m.expected_squared_error, independent, m.lower_bound)
    assert all(rounded_like(*pair) for pair in zip(said.groups(), found))


def test_quick_runs_what_fits_and_then_what_nobody_has_timed(run, monkeypatch):
    monkeypatch.setattr(run, "available", lambda: ["a new", "beside", "long", "new", "short"])
    monkeypatch.setattr(run, "PEERS", {"peer": ("beside", "long"), "other": ("new",)})
    kept = {"long": run.Section("", 700), "short": run.Section("", 5)}
    assert run.quick(kept) == ["short", "beside", "new", "a new"]
    kept["beside"] = run.Section("", 598)
    assert run.quick(kept) == ["beside", "new", "a new"]


def test_every_peer_names_sections_that_exist(run):
    assert {name for names in run.PEERS.values() for name in names} <= set(run.available())


def test_every_peer_that_a_section_imports_is_named(run):
    """What nobody names is left out by --quick, and nobody misses it."""
    tools = {"dask", "distributed", "matplotlib", "networkx", "numpy", "pandapower", "pandas"}
    tools |= {"affinedp", "scipy", "vega_datasets", *sys.stdlib_module_names}
    tools |= {
        path.stem for folder in ("benchmarks", "tests") for path in (ROOT / folder).glob("*.py")
    }
    for name in run.available():
        text = (ROOT / "benchmarks" / f"bench_{name}.py").read_text(encoding="utf-8")
        imported = set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE)) - tools
        named = {
            peer.removeprefix("python-").replace("-", "_")
            for peer, sections in run.PEERS.items()
            if name in sections
        }
        assert imported <= named, name


def test_what_is_said_before_the_sections_is_what_the_next_run_writes(run):
    """Words of anybody else's would be lost with it."""
    before = RESULTS.partition("\n\n<!-- begin")[0].splitlines()
    assert [line[:9] for line in before] == [line[:9] for line in run.header().splitlines()]


def benchmarks(folder, monkeypatch, **bodies):
    """Benchmarks that end at once, each in a file as those of the folder."""
    for name, body in bodies.items():
        (folder / f"bench_{name}.py").write_text(f"def run():\n    {body}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))


def test_sections_stay_whole_where_another_fails_or_is_ended(run, monkeypatch, tmp_path):
    benchmarks(tmp_path, monkeypatch, tried='return "## Tried"', broken="raise ValueError")
    monkeypatch.setattr(run, "available", lambda: ["broken", "tried"])
    kept = {
        "broken": run.Section("## Broken\n\nolder", 3),
        "others": run.Section("## Others", None),
    }
    run.write(kept)
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert run.main() == 1
    now = run.kept_sections()
    assert now == {**kept, "tried": run.Section("## Tried", 1)}

    def ended(*places):
        raise KeyboardInterrupt

    monkeypatch.setattr(run.os, "replace", ended)
    with pytest.raises(KeyboardInterrupt):
        run.write({"others": run.Section("## Others", 1)})
    assert run.kept_sections() == now


@pytest.mark.skipif(os.name == "nt", reason="ends groups of processes")
@pytest.mark.parametrize("stopped", [False, True])
def test_no_benchmark_outlives_its_time_or_whoever_started_it(run, monkeypatch, tmp_path, stopped):
    program = tmp_path / "long.py"
    program.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(run, "__file__", str(program))
    processes = []

    class Process(subprocess.Popen):
        def wait(self, timeout=None):
            processes.append(self)
            if stopped and timeout == 1.0:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(run.subprocess, "Popen", Process)
    if stopped:
        with pytest.raises(KeyboardInterrupt):
            run.measured_within("long", 1.0)
    else:
        assert run.measured_within("long", 1.0)
    assert processes[0].wait(60) == -signal.SIGKILL
