"""A ledger on a PostgreSQL server: the same promises as the file, for many machines."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import threading
import time
import warnings
from pathlib import Path

import pytest

import affinedp as adp
from affinedp.budget.address import without_password
from affinedp.budget.ledger import LedgerError, LedgerWarning
from servers import Server, why_not

psycopg = pytest.importorskip("psycopg")
pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.xdist_group("postgresql"),
]

CAP = {"epsilon": 1.0, "delta": 1e-6, "protects": "one person"}
PAIR = adp.AffineManifold([[1, -1]])


def laplace(epsilon: float) -> adp.Guarantee:
    return adp.verify(PAIR, 2.0 / epsilon, law="laplace")


@pytest.fixture(scope="module")
def server():
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def url(server, request):
    return server.url(request.node.name)


def count(url: str) -> int:
    with adp.Ledger(url, create=False) as ledger:
        return sum(entry.releases for entry in ledger.history())


def test_a_ledger_is_made_charged_and_found_again(url):
    with adp.Ledger(url, **CAP) as ledger:
        entry = ledger.charge(laplace(0.25), fingerprint="a", label="March")
        ledger.settle(entry)
        assert (ledger.spent, ledger.remaining) == (0.25, 0.75)
        assert ledger.history()[0].status == "released"
        with pytest.raises(adp.BudgetExceededError):
            ledger.charge(laplace(0.8), fingerprint="b")
        with pytest.raises(LedgerError, match="released already"):
            ledger.settle(entry)
    with adp.Ledger(url, create=False) as ledger:
        assert ledger.spent == 0.25
        assert ledger.check() == ()
        assert ledger.protects == "one person"
    with pytest.raises(LedgerError, match="does not change"):
        adp.Ledger(url, **(CAP | {"epsilon": 2.0}))
    with pytest.raises(LedgerError, match="another secret"):
        adp.Ledger(url, **(CAP | {"protects": "one household"}))


def test_a_mechanism_releases_against_it(url):
    manifold = adp.AffineManifold.from_equations(["a + b = c"])
    mechanism = adp.design_laplace(manifold, epsilon=0.6)
    with adp.Ledger(url, **CAP) as ledger:
        mechanism.release([1, 2, 3], ledger=ledger, label="first")
        with pytest.raises(adp.BudgetExceededError):
            mechanism.release([1, 2, 3], ledger=ledger)


def test_what_does_not_exist_is_not_made_by_looking(server, url):
    with pytest.raises(LedgerError, match="there is no ledger"):
        adp.Ledger(url, create=False)
    with pytest.raises(LedgerError, match="give epsilon"):
        adp.Ledger(url)
    with pytest.raises(LedgerError, match="say whom"):
        adp.Ledger(url, epsilon=1.0)
    with pytest.raises(LedgerError, match="cannot be reached"):
        adp.Ledger("postgresql://postgres@127.0.0.1:1/postgres", **CAP)
    with pytest.raises(LedgerError, match="cannot be reached"):
        adp.Ledger(f"postgresql://postgres@127.0.0.1:{server.port}/nothing", **CAP)


def test_ledgers_on_one_server_are_apart(url):
    with adp.Ledger(url, **CAP) as one, adp.Ledger(url + "-2", **CAP) as two:
        one.charge(laplace(0.5), fingerprint="a")
        assert (one.spent, two.spent) == (0.5, 0.0)


def test_no_password_is_shown(url):
    secret = url.replace("postgres@", "postgres:hunter2@")
    with adp.Ledger(secret, **CAP) as ledger:
        assert "hunter2" not in repr(ledger)
    assert without_password(secret) == url
    with pytest.raises(LedgerError) as refused:
        adp.Ledger(secret.replace(url.split("#")[1], "other"), create=False)
    assert "hunter2" not in str(refused.value)


def test_a_password_among_the_parameters_stays_out_of_the_history(server, url, tmp_path):
    name = url.split("#")[1]
    given = f"postgresql:///postgres?host=127.0.0.1&port={server.port}&user=postgres"
    secret = f"{given}&password=hunter2#{name}"
    assert without_password(secret) == f"{given}#{name}"
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        ledger.export(secret)
    assert b"hunter2" not in (tmp_path / "l.db").read_bytes()
    with adp.Ledger(secret, create=False) as ledger:
        assert "hunter2" not in repr(ledger) + ledger.name
        assert ledger.check() == ()


def test_another_thread_is_refused(url):
    """It would be in the same transaction: its end is the end of the other's charge."""
    with adp.Ledger(url, **CAP) as ledger:
        refused = []

        def use() -> None:
            for call in (
                lambda: ledger.spent,
                lambda: ledger.charge(laplace(0.1), fingerprint="b"),
            ):
                try:
                    call()
                except adp.AffineDPError as error:
                    refused.append(str(error))

        charge = ledger._store.add_row

        def meanwhile(*row) -> None:
            charge(*row)
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()

        ledger._store.add_row = meanwhile
        ledger.charge(laplace(0.25), fingerprint="a")
    assert len(refused) == 2
    assert "another thread" in refused[0]
    assert count(url) == 1


def test_a_call_in_the_middle_of_a_charge_is_refused(url):
    """As from a signal handler."""
    with adp.Ledger(url, **CAP) as ledger:
        charge = ledger._store.add_row

        def meanwhile(*row) -> None:
            charge(*row)
            with pytest.raises(LedgerError, match="under way"):
                _ = ledger.spent
            assert "under way" in ledger.check()[0]

        ledger._store.add_row = meanwhile
        ledger.charge(laplace(0.25), fingerprint="a")
    assert count(url) == 1


@pytest.mark.parametrize("words", ["ROLLBACK", "SELECT 1/0"])
def test_a_transaction_that_others_ended_is_no_charge(url, words):
    with adp.Ledger(url, **CAP) as ledger:
        charge = ledger._store.add_row

        def ended(*row) -> None:
            charge(*row)
            with contextlib.suppress(psycopg.Error):
                ledger._store._open.execute(words)

        ledger._store.add_row = ended
        with pytest.raises(LedgerError, match="nothing was charged"):
            ledger.charge(laplace(0.25), fingerprint="a")
        del ledger._store.add_row
        assert ledger.spent == 0.0
        ledger.charge(laplace(0.25), fingerprint="a")
    assert count(url) == 1


def test_what_was_left_in_the_middle_is_dropped(url, monkeypatch):
    """A key pressed between two statements leaves a transaction that holds the ledger."""
    with adp.Ledger(url, **CAP) as ledger:
        begun = ledger._store._begun

        def interrupted() -> None:
            ledger._store._hold(begun())
            raise KeyboardInterrupt

        monkeypatch.setattr(ledger._store, "_begun", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(laplace(0.25), fingerprint="a")
        monkeypatch.undo()
        ledger.charge(laplace(0.25), fingerprint="b")
    assert count(url) == 1


def test_a_fork_that_closes_it_does_not_end_the_connection(url):
    with adp.Ledger(url, **CAP) as ledger:
        before = ledger._store._ready().info.backend_pid
        child = os.fork()
        if child == 0:
            ledger.close()
            os._exit(0)
        os.waitpid(child, 0)
        ledger.charge(laplace(0.25), fingerprint="a")
        assert ledger._store._ready().info.backend_pid == before


def test_two_schemas_are_not_two_budgets(server, url):
    """The same address by a user with another search_path would be a ledger with nothing spent."""
    with adp.Ledger(url, **CAP) as ledger:
        ledger.charge(laplace(0.5), fingerprint="a")
    address, name = url.split("#")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS elsewhere")
    other = f"{address}?options=-csearch_path%3Delsewhere#{name}"
    with pytest.raises(LedgerError, match="schema 'public'"):
        adp.Ledger(other, **CAP)


def test_tables_of_a_newer_version_are_not_charged(server, url):
    with (
        adp.Ledger(url, **CAP) as ledger,
        psycopg.connect(url.split("#")[0], autocommit=True) as connection,
    ):
        connection.execute("INSERT INTO affinedp_schema VALUES (99)")
        try:
            with pytest.raises(LedgerError, match="newer affinedp"):
                ledger.charge(laplace(0.1), fingerprint="a")
            connection.execute("SELECT 1 FROM affinedp_ledger FOR UPDATE NOWAIT")  # no lock is left
            with pytest.raises(LedgerError, match=f"#{url.split('#')[1]}: .*newer affinedp"):
                adp.Ledger(url)
        finally:
            connection.execute("DELETE FROM affinedp_schema WHERE version = 99")
        ledger.charge(laplace(0.1), fingerprint="a")


def _statements_of_the_manual() -> list[str]:
    """The grants that docs/howto/budget.md says, so that the page and the tests are one."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "budget.md"
    return re.findall(r"GRANT [^;\"]*", page.read_text("utf-8"))


@pytest.fixture
def roles(url):
    """A ledger, and the roles of the manual with its rights."""
    adp.Ledger(url, **CAP).close()
    with psycopg.connect(url.split("#")[0], autocommit=True) as connection:
        for role in ("program", "auditor"):
            connection.execute(f"CREATE ROLE {role} LOGIN")
        for grant in _statements_of_the_manual():
            connection.execute(grant)
        yield
        for role in ("program", "auditor"):
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


def test_a_user_needs_no_more_rights_than_the_manual_says(url, roles):
    with adp.Ledger(url.replace("postgres@", "program@"), create=False) as ledger:
        ledger.settle(ledger.charge(laplace(0.1), fingerprint="a"))
        assert (len(ledger.history()), ledger.check()) == (1, ())
    with adp.Ledger(url.replace("postgres@", "auditor@"), create=False) as ledger:
        assert (len(ledger.history()), ledger.check()) == (1, ())
        with pytest.raises(LedgerError, match="permission denied"):
            ledger.charge(laplace(0.1), fingerprint="a")


FORBIDDEN = [
    "UPDATE affinedp_ledger SET header = ''",
    "INSERT INTO affinedp_ledger VALUES ('new', '', 0, '')",
    "DELETE FROM affinedp_ledger",
    "UPDATE affinedp_event SET body = ''",
    "DELETE FROM affinedp_event",
    "INSERT INTO affinedp_schema VALUES (9)",
]


def test_a_program_makes_no_budget_and_changes_no_charge(url, roles):
    program = url.replace("postgres@", "program@")
    with psycopg.connect(program.split("#")[0], autocommit=True) as connection:
        for change in FORBIDDEN:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(change)
    with pytest.raises(LedgerError, match="permission denied"):
        adp.Ledger(program + "-new", **CAP)


def test_a_copy_does_not_become_an_original_by_moving(url, tmp_path):
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger:
        ledger.charge(laplace(0.25), fingerprint="a")
    (tmp_path / "copy.db").write_bytes((tmp_path / "l.db").read_bytes())
    with pytest.warns(LedgerWarning, match="copied"):
        ledger = adp.Ledger(tmp_path / "copy.db")
    with pytest.raises(LedgerError, match="acknowledge_move"):
        ledger.export(url)
    ledger.acknowledge_move()
    ledger.export(url)
    ledger.close()
    assert count(url) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "UPDATE affinedp_event SET body = replace(body, '\"releases\": 1', '\"releases\": 0')",
            "altered",
        ),
        ("DELETE FROM affinedp_event WHERE number = 2", "removed|does not follow"),
        ("UPDATE affinedp_ledger SET events = 1", "removed"),
    ],
)
def test_altered_events_are_noticed(url, change, words):
    name = url.split("#")[1]
    with adp.Ledger(url, **CAP) as ledger:
        for label in "ab":
            ledger.charge(laplace(0.1), fingerprint=label)
        with psycopg.connect(url.split("#")[0], autocommit=True) as direct:
            column = "name" if "UPDATE affinedp_ledger" in change else "ledger"
            joint = " AND " if "WHERE" in change else " WHERE "
            direct.execute(f"{change}{joint}{column} = %s", (name,))
        assert any("trusted" in problem for problem in ledger.check())
    with pytest.raises(LedgerError, match=words):
        adp.Ledger(url, create=False)


def test_a_restored_copy_is_noticed(url):
    with adp.Ledger(url, **CAP):
        pass
    name = url.split("#")[1]
    with psycopg.connect(url.split("#")[0], autocommit=True) as direct:
        direct.execute(
            "INSERT INTO affinedp_ledger SELECT %s, header, events, head FROM affinedp_ledger "
            "WHERE name = %s",
            (name + "-copy", name),
        )
    with pytest.warns(LedgerWarning, match="moved or copied"):
        copy = adp.Ledger(url + "-copy", create=False)
    copy.acknowledge_move()
    assert copy.check() == ()
    copy.close()


def test_a_server_that_may_forget_is_refused():
    forgetful = Server()
    try:
        with psycopg.connect(forgetful.url().split("#")[0], autocommit=True) as direct:
            direct.execute("ALTER SYSTEM SET fsync = off")
            direct.execute("SELECT pg_reload_conf()")
        time.sleep(0.5)
        with pytest.raises(LedgerError, match="fsync"):
            adp.Ledger(forgetful.url(), **CAP)
    finally:
        forgetful.stop()


def _charge_until_full(url: str, seed: int, done) -> None:
    generator = random.Random(seed)
    charged = 0
    with adp.Ledger(url, create=False) as ledger:
        while True:
            try:
                ledger.charge(laplace(generator.choice([1 / 64, 1 / 128])), fingerprint="race")
                charged += 1
            except adp.BudgetExceededError:
                break
    done.put(charged)


def _charge_for_ever(url: str, path: str) -> None:
    with adp.Ledger(url, create=False) as ledger, open(path, "a") as seen:
        while True:
            try:
                entry = ledger.charge(laplace(1 / 512), fingerprint="kill")
            except adp.BudgetExceededError:
                return
            seen.write(f"{entry}\n")
            seen.flush()


def _start(target, *arguments):
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    return process


@pytest.mark.slow
def test_eight_racing_processes_never_pass_the_cap(url):
    with adp.Ledger(url, **CAP):
        pass
    done = multiprocessing.get_context("fork").Queue()
    racing = [_start(_charge_until_full, url, seed, done) for seed in range(8)]
    charged = sum(done.get(timeout=120) for _ in racing)
    for process in racing:
        process.join(30)
    with adp.Ledger(url, create=False) as ledger:
        assert len(ledger.history()) == charged
        assert 1 - 1 / 64 < ledger.spent <= 1.0
        assert ledger.check() == ()


@pytest.mark.slow
def test_killed_clients_lose_nothing(url, tmp_path):
    with adp.Ledger(url, **(CAP | {"epsilon": 100.0})):
        pass
    seen = tmp_path / "seen"
    for _ in range(3):
        victims = [_start(_charge_for_ever, url, str(seen)) for _ in range(2)]
        before = len(seen.read_text().split()) if seen.exists() else 0
        while not seen.exists() or len(seen.read_text().split()) < before + 20:
            time.sleep(0.01)
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
    told = {int(line) for line in seen.read_text().split()}
    with adp.Ledger(url, create=False) as ledger:
        kept = {entry.id for entry in ledger.history()}
        assert told
        assert told <= kept
        assert len(kept - told) <= 6  # kept, and the client died before it could say so
        assert ledger.check() == ()


@pytest.mark.slow
def test_a_killed_server_forgets_nothing():
    server = Server()
    try:
        url = server.url()
        with adp.Ledger(url, **(CAP | {"epsilon": 100.0})) as ledger:
            told = []
            for _ in range(3):
                told += [ledger.charge(laplace(1 / 512), fingerprint="a") for _ in range(20)]
                server.kill()
                with pytest.raises(LedgerError):
                    ledger.charge(laplace(1 / 512), fingerprint="down")
                server.start()
                assert len(ledger.history()) == len(told)  # it finds the server again
            assert {entry.id for entry in ledger.history()} == set(told)
            assert ledger.check() == ()
    finally:
        server.stop()


class Cut:
    """A relay to the server that drops everything once the client says a word."""

    def __init__(self, port: int, word: bytes, forward: bool) -> None:
        self._word, self._forward, self._port = word, forward, port
        self.armed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(65536):
            if self.armed and self._word in data:
                self.armed = False
                client.shutdown(socket.SHUT_RDWR)  # the answer never arrives
                if self._forward:
                    server.sendall(data)
                    time.sleep(0.5)
                server.shutdown(socket.SHUT_RDWR)
                return
            server.sendall(data)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            return

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("arrives", [True, False])
def test_a_connection_that_breaks_in_the_commit(server, request, arrives):
    name = request.node.name
    with adp.Ledger(server.url(name), **CAP):
        pass
    relay = Cut(server.port, b"COMMIT\0", forward=arrives)
    try:
        with adp.Ledger(server.url(name, relay.port), create=False) as ledger:
            relay.armed = True
            if arrives:  # the charge was kept though nobody heard so: it counts, and it is known
                entry = ledger.charge(laplace(0.25), fingerprint="a")
                ledger.settle(entry)
            else:
                with pytest.raises(LedgerError, match="nothing was charged"):
                    ledger.charge(laplace(0.25), fingerprint="a")
            assert ledger.spent == (0.25 if arrives else 0.0)
            assert ledger.check() == ()
    finally:
        relay.close()


def test_another_program_that_holds_it(url, monkeypatch):
    monkeypatch.setattr("affinedp.budget.transactions.LOCK_SECONDS", 1)
    name = url.split("#")[1]
    with adp.Ledger(url, **CAP) as ledger:
        with psycopg.connect(url.split("#")[0]) as direct:
            direct.execute("SELECT 1 FROM affinedp_ledger WHERE name = %s FOR UPDATE", (name,))
            with pytest.raises(LedgerError, match="try again"):
                ledger.charge(laplace(0.1), fingerprint="a")
            assert ledger.spent == 0.0  # looking needs no lock
        ledger.charge(laplace(0.1), fingerprint="a")


def test_a_fork_is_refused(url):
    with adp.Ledger(url, **CAP) as ledger:
        ledger._store._process = -1
        with pytest.raises(LedgerError, match="fork"):
            ledger.charge(laplace(0.1), fingerprint="a")


def test_a_file_moves_to_the_server_without_a_gap(url, tmp_path):
    path = tmp_path / "budget.db"
    with adp.Ledger(path, **CAP) as ledger:
        ledger.settle(ledger.charge(laplace(0.25), fingerprint="a"))
        history = ledger.history()
        ledger.export(url)
        with pytest.raises(LedgerError, match="was moved to"):
            ledger.charge(laplace(0.1), fingerprint="b")
        assert any("moved to" in problem for problem in ledger.check())
        with pytest.raises(LedgerError, match="there is a ledger"):
            ledger.export(url)
        with pytest.raises(LedgerError, match="before"):
            ledger.export(url + "-other")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moved = adp.Ledger(url, create=False)
    assert moved.history() == history
    assert moved.check() == ()
    moved.charge(laplace(0.1), fingerprint="b")
    assert moved.spent == pytest.approx(0.35)
    moved.close()


def test_a_move_that_was_cut_short_goes_on(url, tmp_path, monkeypatch):
    path = tmp_path / "budget.db"
    with adp.Ledger(path, **CAP) as ledger:
        ledger.charge(laplace(0.25), fingerprint="a")
        with monkeypatch.context() as patch:
            patch.setattr("affinedp.budget.moving._last", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                ledger.export(url)
        with pytest.raises(LedgerError, match="was moved to"):
            ledger.charge(laplace(0.1), fingerprint="b")
        ledger.export(url)
    assert count(url) == 1


def _command(*words: str) -> str:
    from typer.testing import CliRunner

    from affinedp.cli.app import app

    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands_work_on_a_server(url, tmp_path):
    cap = ("--epsilon", "1", "--delta", "1e-6", "--protects", "one person")
    assert "one person" in _command("ledger", "create", url, *cap)
    with adp.Ledger(url, create=False) as ledger:
        ledger.charge(laplace(0.25), fingerprint="a", label="March")
    assert "charges     1, 1 not confirmed" in _command("ledger", "show", url)
    assert "March" in _command("ledger", "history", url)
    assert "fine" in _command("ledger", "check", url)
    path = str(tmp_path / "budget.db")
    _command("ledger", "create", path, *cap)
    assert "0 charges" in _command("ledger", "export", path, url + "-moved")
    assert "protects    one person" in _command("ledger", "show", url + "-moved")
    assert "moved " not in _command("ledger", "show", url + "-moved")
    shown = _command("ledger", "show", path)
    assert shown.startswith("moved       to postgresql://"), "what is left is on the server now"
    assert "#" in json.loads(_command("ledger", "show", path, "--json"))["moved_to"]


def test_a_history_says_what_its_numbers_are(url):
    with adp.Ledger(url, epsilon=5.0, delta=1e-6, protects="one person") as ledger:
        ledger.charge(laplace(0.25), fingerprint="a")
        whole = adp.design(PAIR, epsilon=0.125, integers=True, law="knorm").guarantee
        ledger.charge(whole, fingerprint="w", same_secret=True)
        M = adp.AffineManifold.from_equations(["a + b = c"])
        gaussian = adp.iid_noise(M, law="gaussian", epsilon=0.1, delta=1e-6).guarantee
        ledger.charge(gaussian, fingerprint="b", same_secret=True)
    said = _command("ledger", "history", url)
    assert "laplace ε = 0.25 " in said
    assert "randomised response ε = 0.125 " in said
    assert f"gaussian s = {gaussian.sensitivity:.6g} " in said
