"""What a hostile file, a hasty user or a killed server must not do."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra studio")

import affinedp as adp
from affinedp.errors import AffineDPError
from affinedp.files import data
from affinedp.studio import server, tasks, uploads
from affinedp.studio.question import Publication

JOB = {"x-studio-job": "hostile-1"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"mu": "abc"}', "mu: this is not a number"),
        ('{"mu": ""}', "mu: this is not a number"),
        ('{"counted": 1.4}', "counted: this is not a whole number"),
        ("[]", "the question: "),
        ("[" * 100_000, "error parsing the body"),
    ],
)
def test_what_is_no_question_is_refused_in_words(client, body, words):
    headers = {**JOB, "content-type": "application/json"}
    answer = client.post("/api/check", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert words in answer.json()["message"]


def sheet(cells: str) -> bytes:
    """A workbook with one sheet that does not say how large it is."""
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    made, again = io.BytesIO(), io.BytesIO()
    book.save(made)
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("sheet1.xml"):
                start, _, rest = content.decode().partition("</sheetData>")
                before, _, after = start.partition("<dimension")
                start = before + after.partition("/>")[2]
                content = f"{start}{cells}</sheetData>{rest}".encode()
            new.writestr(name, content)
    return again.getvalue()


def test_a_packed_file_is_measured_before_it_is_unpacked(monkeypatch):
    pytest.importorskip("openpyxl")
    content = sheet("<row></row>" * 100_000)
    assert len(content) < 20_000
    monkeypatch.setattr(data, "MOST_UNPACKED", 1_000_000)
    with pytest.raises(AffineDPError, match=r"t\.xlsx is too large when unpacked"):
        data.read_table(Path("t.xlsx"), content=content)
    with pytest.raises(AffineDPError, match="too large when unpacked"):
        uploads.peek(uploads.Held("t.xlsx", content))


def test_a_sheet_that_hides_its_size_is_counted(monkeypatch):
    pytest.importorskip("openpyxl")
    row = "<row><c><v>1</v></c><c><v>2</v></c></row>"
    assert len(data.read_table(Path("t.xlsx"), content=sheet(row * 40))) == 40
    monkeypatch.setattr(data, "MOST_CELLS", 50)
    with pytest.raises(AffineDPError, match="more than 50 cells"):
        data.read_table(Path("t.xlsx"), content=sheet(row * 40))


def test_old_previews_are_forgotten_with_their_tables(tmp_path):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    adp.design_laplace(manifold, epsilon=1.0).save(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text("utf-8")

    class AtOnce:
        """Knows one design, and computes where it stands."""

        def known(self, task, key):
            return json.dumps({"files": {"mechanism.json": text}}).encode()

        def start(self, number, task, question):
            return tasks.TASKS[task](question)

    shelf = uploads.Newest(1)
    shelf.put("file", uploads.Held("t.csv", b"a,b,c\n1,2,3\n"))
    with adp.Ledger(tmp_path / "budget.db", epsilon=100.0, protects="one person"):
        pass
    releases = server.Releases(AtOnce(), shelf)
    wanted = Publication(question={}, file="file", ledger=str(tmp_path / "budget.db"), label="x")
    tickets = [releases.preview(wanted, "job")["ticket"] for _ in range(server.MOST_OFFERS + 1)]
    with pytest.raises(AffineDPError, match="look at a new one"):
        releases.publish(tickets[0], "job")
    assert "a,a_lower" in releases.publish(tickets[-1], "job")["csv"]


SLEEPER = """
import multiprocessing, time
from affinedp.studio import jobs

def sleep():
    jobs._end_with_the_server()
    print("sleeping", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    child = multiprocessing.get_context("forkserver").Process(target=sleep, daemon=True)
    child.start()
    print(child.pid, flush=True)
    child.join()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_killed_server_leaves_no_computation_behind(tmp_path):
    """Not even one that says nothing for minutes, and so does not notice that nobody listens."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    server = subprocess.Popen(
        [sys.executable, tmp_path / "sleeper.py"], stdout=subprocess.PIPE, text=True
    )
    said = {server.stdout.readline().strip() for _ in range(2)}
    (child,) = said - {"sleeping"}
    server.kill()
    server.wait(20)
    end = time.monotonic() + 60
    while Path("/proc", child).exists():
        if time.monotonic() > end:
            os.kill(int(child), signal.SIGKILL)
            pytest.fail("a computation was left behind")
        time.sleep(0.1)
    server.stdout.close()
