"""What is an address and what is a file: no password is shown, and no budget made by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

import affinedp as adp
from affinedp.budget.ledger import LedgerError

CAP = {"epsilon": 1.0, "delta": 1e-6, "protects": "one person"}

OTHER_FORMS = [
    "Postgresql://u:hunter2@h/db",
    "postgresql+psycopg://u:hunter2@h/db",
    "postgres:/u:hunter2@h/db",
    " postgresql://u:hunter2@h/db",
    "mysql://u:hunter2@h/db",
    Path("postgresql://u:hunter2@h/db"),
    "host=127.0.0.1 dbname=privacy password=hunter2",
    "host=/run/postgresql password=hunter2",
    "service=hunter2",
    "sslmode=require host=db user=u password=hunter2 dbname=x",
    "sslmode=require host=db user=hunter2",
    "application_name=a host=h password=hunter2",
    "password=hunter2/x",
    "postgresql:u:hunter2@h",
    "jdbc:postgresql://u:hunter2@h/db",
    '"postgresql://u:hunter2@h/db"',
    "URL=postgresql://u:hunter2@h/db",
    "postgresql//u:hunter2@h/db",
]


@pytest.mark.parametrize("address", OTHER_FORMS)
def test_an_address_of_another_form_is_no_file(address, tmp_path, monkeypatch):
    """A file of that name would be a budget of its own on every machine."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match="postgresql://") as refused:
        adp.Ledger(address, **CAP)
    assert "hunter2" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_an_address_in_bytes_is_refused_without_its_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match="text, not bytes") as refused:
        adp.Ledger(b"postgresql://u:hunter2@h/db", **CAP)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "./service=a", "user=3/l.db", "a:b.db", "host.db", "eps=1.db", "options=3.db",
        "eps=1 delta=2.db", "of user=3.db", "postgresql.db", "postgres/l.db", "a@b.db",
        "./postgresql:x.db", "ε = 1.db",
    ],
)  # fmt: skip
def test_odd_names_of_files_stay_names_of_files(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user=3").mkdir()
    (tmp_path / "postgres").mkdir()
    adp.Ledger(name, **CAP).close()
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:hun%zzter2@127.0.0.1:1/db",
        "postgresql://u:hunter2#x@127.0.0.1:1/db",
        "postgresql://u:hunter2/x@127.0.0.1:1/db",
        "postgresql://u:x@hunter2@127.0.0.1:1/db",
        "postgresql://u@x:12/hunter2@127.0.0.1:1/db",
        "postgresql://u:hunter2@127.0.0.1:port/db",
        "postgresql://u:hunter2@[::1/db",
        "postgresql://127.0.0.1:1/db?user=u&password=hunter2",
        "postgresql://127.0.0.1:1/db?pass%77ord=hunter2&nonsense=1#name",
        "postgresql://budget:hunter2/privacy#x",
        "postgresql://127.0.0.1:1/db#staff?user=u&password=hunter2",
        "postgresql://127.0.0.1:1/db#staff&password=hunter2",
    ],
)
def test_no_password_is_shown_of_an_address_that_is_wrong(address, tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError) as refused:
        adp.Ledger(address, **CAP)
    assert "hun" not in str(refused.value)
    with adp.Ledger(tmp_path / "l.db", **CAP) as ledger, pytest.raises(LedgerError) as refused:
        ledger.export(address)
    assert "hun" not in str(refused.value)


@pytest.mark.parametrize("query", ["?sslmode=verify-full", "?user=u"])
def test_parameters_behind_the_name_are_refused(query):
    """They would be a part of the name of another ledger, and TLS would be off."""
    with pytest.raises(LedgerError, match="before the #"):
        adp.Ledger(f"postgresql://127.0.0.1:1/db#staff{query}", **CAP)


@pytest.mark.parametrize("name", ["%ff", "%E9", "%20name", "name%20", "cafe%CC%81", "a%00b"])
def test_names_that_would_look_like_others_are_refused(name):
    with pytest.raises(LedgerError, match="name of a ledger"):
        adp.Ledger(f"postgresql://127.0.0.1:1/db#{name}", **CAP)


def test_long_texts_of_libpq_are_on_one_line():
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="cannot be reached") as refused:
        adp.Ledger("postgresql://postgres@127.0.0.1:1,127.0.0.1:2/postgres", **CAP)
    assert "\n" not in str(refused.value)
