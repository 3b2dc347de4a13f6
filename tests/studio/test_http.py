"""The server by itself: who may ask, what is refused, and that it stays up."""

import itertools
import json
import threading

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra studio")

import affinedp as adp
from affinedp.studio import jobs, uploads
from affinedp.studio.question import Question
from studios import HOST, TOKEN

# a design that takes minutes
LONG = "\n".join(f"a{i} + b{i} + c{i} = d{i % 3}" for i in range(9))
numbers = itertools.count(10_000_000)


def asked(client, path, question, **headers):
    """The answer of a computation, however long it takes."""
    number = f"job-{next(numbers)}"
    answer = client.post(path, json=question, headers={"x-studio-job": number, **headers})
    while answer.status_code == 202:
        answer = client.get(f"/api/jobs/{number}")
    return answer


def test_the_page_and_its_files_come_without_a_token_and_with_a_strict_policy(client):
    page = client.get("/", headers={"x-studio-token": ""})
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in page.text
    assert "style=" not in page.text
    assert "onclick" not in page.text
    assert "http" not in page.text.replace("http-equiv", "")
    assert client.get("/static/main.js").headers["content-type"].startswith("text/javascript")
    for name in ("nothing.js", "..%2f__init__.py", "guard.py"):
        assert client.get(f"/static/{name}").status_code == 404


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/redoc"])
def test_nothing_else_is_served(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_a_wrong_token_is_refused_in_words(client, token):
    answer = client.get("/api/hello", headers={"x-studio-token": token})
    assert answer.status_code == 401
    assert "another run" in answer.json()["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_another_site_may_not_ask(client, headers, path):
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_a_browser_may_come_to_the_empty_page_from_a_file(client):
    """That is how the studio opens it; nothing is asked, and nothing else is reached so."""
    from_file = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    document = {**from_file, "sec-fetch-dest": "document"}
    assert client.get("/", headers=document).status_code == 200
    assert client.get("/", headers={**from_file, "sec-fetch-dest": "iframe"}).status_code == 403
    for path in ("/api/hello", "/static/main.js"):
        assert client.get(path, headers=document).status_code == 403


def test_the_page_itself_may_ask(client):
    answer = client.get("/api/hello", headers={"origin": f"http://{HOST}"})
    assert answer.json()["most_bytes"] == uploads.MOST_BYTES


def test_a_token_is_compared_in_constant_time(client):
    """A token that is not text is no reason to stumble."""
    assert client.get("/api/hello", headers={"x-studio-token": b"\xe9"}).status_code == 401


def test_the_readme_example(client):
    answer = asked(client, "/api/leak", {}).json()["answer"]
    assert (answer["claimed"], answer["really"], answer["kept"]) == (1.0, 2.0, False)


@pytest.mark.parametrize(
    "question",
    [
        {"equations": "a + b = c" * 20_000},
        {"epsilon": -1},
        {"epsilon": "nan"},
        {"delta": 1},
        {"law": "uniform"},
        {"unknown": 1},
        {"also": [""]},
        {"mu": -1},
        [1, 2],
    ],
)
def test_a_malformed_question_is_refused(client, question):
    answer = asked(client, "/api/leak", question)
    assert answer.status_code == 422
    assert answer.json()["message"]


def test_a_megabyte_of_equations_is_refused_before_it_is_read(client):
    text = "a+" * 600_000 + "a=b"
    answer = asked(client, "/api/check", {"equations": text})
    assert answer.status_code == 413
    assert "too large" in answer.json()["message"]


def test_too_many_numbers_are_refused(client):
    text = "+".join(f"x{i}" for i in range(9_000)) + " = y"
    answer = asked(client, "/api/check", {"equations": text}).json()["answer"]
    assert not answer["ok"]
    assert "9,001 numbers" in answer["message"]


def test_a_file_is_outlined_and_its_numbers_are_not_told(client):
    content = b"women,men,all\n123456,234567,358023\n"
    file = client.post("/api/files?name=t.csv", content=content).json()["file"]
    answer = client.get(f"/api/files/{file}", headers={"x-studio-job": "outline-1"})
    while answer.status_code == 202:
        answer = client.get("/api/jobs/outline-1")
    told = answer.json()["answer"]
    assert told == {"columns": ["women", "men", "all"], "rows": 1, "bytes": len(content)}
    assert "123456" not in answer.text
    client.delete(f"/api/files/{file}")
    gone = client.get(f"/api/files/{file}", headers={"x-studio-job": "outline-2"})
    assert (gone.status_code, "choose the file again" in gone.json()["message"]) == (422, True)


def test_a_hundred_megabytes_are_refused(client):
    answer = client.post("/api/files?name=t.csv", content=b"1,2\n" * 25_000_000)
    assert answer.status_code == 413
    assert "50 MB" in answer.json()["message"]
    assert client.get("/api/hello").status_code == 200


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.exe", b"MZ"),
        ("t.csv", b"\xff\xfe\x00"),
        ("t.csv", b""),
        ("t.csv", ",".join(f"c{i}" for i in range(100_000)).encode()),
        ("t.csv", b"a\x1b[8m,b\n1,2\n"),
        ("t.parquet", b"PAR1 not really"),
        ("t.xlsx", b"PK not really"),
        ("../../etc/passwd.csv", b""),
    ],
)
def test_a_hostile_file_is_refused_in_words(client, name, content):
    answer = client.post("/api/files", params={"name": name}, content=content)
    if answer.status_code == 200:
        number, file = f"peek-{next(numbers)}", answer.json()["file"]
        answer = client.get(f"/api/files/{file}", headers={"x-studio-job": number})
        while answer.status_code == 202:
            answer = client.get(f"/api/jobs/{number}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["message"]


def test_only_the_newest_files_are_held():
    shelf = uploads.Newest(2)
    for name in "abc":
        shelf.put(name, name.upper())
    assert [shelf.get("c"), shelf.take("b"), shelf.take("b")] == ["C", "B", None]
    for name in "ab":
        with pytest.raises(ValueError, match="no longer held"):
            shelf.get(name)


def test_equations_of_a_file_are_found_with_what_they_cost(client):
    pairs = np.random.default_rng(1).integers(0, 500, (30, 2))
    rows = "\n".join(f"{w},{m},{w + m}" for w, m in pairs)
    content = f"women,men,all\n{rows}\n".encode()
    file = client.post("/api/files?name=t.csv", content=content).json()["file"]
    (found,) = asked(client, "/api/discover", {"file": file}).json()["answer"]["equations"]
    assert (found["text"], found["cost"]) == ("women + men - all = 0", 2.0)


def test_a_computation_can_be_cancelled(client, running):
    """Thirty numbers under Definition 4 would take minutes."""
    headers = {"x-studio-job": "long-design-1"}
    answer = client.post("/api/design", json={"equations": LONG}, headers=headers)
    assert answer.status_code == 202
    process = running.find("long-design-1").process
    assert client.delete("/api/jobs/long-design-1").json() == {"stopped": True}
    # a compiled search does not listen, and would keep the best so far: the second time it ends
    assert client.delete("/api/jobs/long-design-1").json() == {"stopped": True}
    process.join(20)
    assert not process.is_alive()
    assert client.get("/api/jobs/long-design-1").status_code == 409


def test_a_cancelled_search_hands_over_the_best_so_far(monkeypatch):
    """No script says that it would make this noise: a whole search finds other noise."""
    monkeypatch.setattr(jobs, "QUIET", 0.0)
    sent = []

    class Line:
        def send(self, message):
            kind, content = message
            if kind == "progress" and content[0] == "Laplace strategy" and not sent:
                sent.append("cancelled")
                raise KeyboardInterrupt
            if kind != "progress":
                sent.append(message)

    jobs.work(Line(), "design", Question(equations=LONG))
    told, (kind, answer) = sent
    assert (told, kind) == ("cancelled", "answer")
    answer = json.loads(answer)
    assert answer["shown"]["interrupted"]
    assert sorted(answer["files"]) == ["mechanism.json", "report.html"]


def test_what_was_found_when_it_was_cancelled_is_no_answer_to_the_question(running):
    job = running.start("long-design-2", "design", Question(equations=LONG), "its key")
    job.interrupt()
    assert job.done.wait(90)
    assert running.known("design", "its key") is None


def test_a_new_question_takes_the_place_of_the_old_one(running):
    first = running.start("same-name", "design", Question(equations=LONG))
    second = running.start("same-name", "check", Question())
    assert first.outcome.kind == "stopped"
    assert second.done.wait(60)
    assert second.outcome.kind == "answer"


def test_too_many_computations_are_refused():
    made = jobs.Jobs(preload="affinedp.studio.tasks")
    waiting = [jobs.Job(f"n{i}") for i in range(jobs.MOST_RUNNING)]
    made._jobs.update({job.number: job for job in waiting})
    with pytest.raises(jobs.Busy):
        made.start("one-more", "check", Question())


def test_an_unexpected_failure_tells_no_values():
    sent = []

    class Line:
        def send(self, message):
            sent.append(message)

    jobs.work(Line(), "check", "no question at all, but 1234567")
    ((kind, message),) = sent
    assert kind == "failed"
    assert "1234567" not in message


def test_infinities_become_nothing():
    assert jobs._finite({"a": [float("inf"), 1.5, float("nan")]}) == {"a": [None, 1.5, None]}


@pytest.fixture
def wanted(client, tmp_path):
    """A release that could be previewed: a design, a file, and a budget for one."""
    question = {"equations": "women + men = all", "law": "laplace", "hidden": "replace"}
    design = asked(client, "/api/design", question)
    assert design.status_code == 200, design.text
    content = b"women,men,all\n30,70,100\n"
    file = client.post("/api/files?name=t.csv", content=content).json()["file"]
    adp.Ledger(tmp_path / "budget.db", epsilon=1.5, protects="one person").close()
    return {"question": question, "file": file, "ledger": str(tmp_path / "budget.db")}


def test_a_release_needs_a_ledger_and_a_preview(client, tmp_path, wanted):
    nowhere = {**wanted, "ledger": str(tmp_path / "no.db")}
    assert asked(client, "/api/release/preview", nowhere).status_code == 422
    path = wanted["ledger"]
    told = asked(client, "/api/release/preview", wanted).json()["answer"]
    assert told["fits"]
    assert told["spent"] == 0
    assert told["charges"] == 1
    with adp.Ledger(path, create=False) as ledger:
        assert ledger.spent == 0
    published = asked(client, "/api/release/publish", {"ticket": told["ticket"]}).json()["answer"]
    header, row = published["csv"].split()
    women, men, total = map(float, row.split(",")[::3])
    assert header.startswith("women,women_lower,women_upper,men,")
    assert women + men == pytest.approx(total)
    again = asked(client, "/api/release/publish", {"ticket": told["ticket"]})
    assert again.status_code == 422
    share = {"ticket": told["ticket"], "formula": "women / all"}
    found = asked(client, "/api/release/function", share).json()["answer"]
    assert (found["rows"], len(found["values"])) == (1, 1)
    other = asked(client, "/api/release/function", {**share, "ticket": "another"})
    assert (other.status_code, "no longer held" in other.json()["message"]) == (422, True)
    with adp.Ledger(path, create=False) as ledger:
        assert ledger.spent == pytest.approx(1.0)
    refused = asked(client, "/api/release/preview", wanted).json()["answer"]
    assert not refused["fits"]
    assert "ticket" not in refused


def test_two_tabs_cannot_use_one_preview(client, wanted):
    ticket = asked(client, "/api/release/preview", wanted).json()["answer"]["ticket"]
    codes = []

    def publish():
        codes.append(asked(client, "/api/release/publish", {"ticket": ticket}).status_code)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200, 422, 422, 422]


def test_the_same_question_is_computed_once(running):
    question = Question(equations="p + q = r")
    key = question.model_dump_json()
    first = running.start("once-1", "check", question, key)
    assert first.done.wait(60)
    second = running.start("once-2", "check", question, key)
    assert second.process is None
    assert second.outcome.answer == first.outcome.answer
    assert json.loads(key)["equations"] == "p + q = r"
