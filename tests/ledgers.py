"""Ledgers of the tests, in a file or on a server: what is charged, and what is tampered with."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap

from affinedp.budget.ledger import Ledger
from affinedp.laws.curves import GaussianCurve, LaplaceCurve
from affinedp.privacy.guarantee import Guarantee

CAP = {"epsilon": 1.0, "delta": 1e-6, "protects": "one person"}


def guarantee(law, sensitivity, key="k", neighbours="one entry moves", unit="one entry"):
    curve = (GaussianCurve if law == "gaussian" else LaplaceCurve)(sensitivity)
    return Guarantee(
        law, sensitivity, True, neighbours, "by hand", curve, neighbours_key=key, unit=unit
    )


QUARTER = guarantee("laplace", 0.25)


def charge(ledger, law, sensitivity, **others):
    key = others.pop("key", "k")
    return ledger.charge(guarantee(law, sensitivity, key), fingerprint="f", **others)


def is_file(address):
    return not str(address).startswith("postgresql://")


def altered(address, *statements):
    """Run SQL behind the ledger's back; {event} and {ledger} are its tables."""
    if is_file(address):
        connection = sqlite3.connect(address, isolation_level=None)
        names = {"event": "event", "ledger": "ledger"}
    else:
        import psycopg

        connection = psycopg.connect(str(address).partition("#")[0], autocommit=True)
        names = {"event": "affinedp_event", "ledger": "affinedp_ledger"}
    for statement in statements:
        connection.execute(statement.format(**names))
    connection.close()


def run(code, *arguments, timeout=120):
    """Run a script in a process of its own; it may fork, and has ``address``."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PREAMBLE = """
import os, random, signal, sys, threading, time
from affinedp.laws.curves import LaplaceCurve
from affinedp.privacy.guarantee import Guarantee
from affinedp.budget.ledger import BudgetExceededError, Ledger, LedgerError

def guarantee(sensitivity, key="k", unit="one entry"):
    return Guarantee("laplace", sensitivity, True, "n", "b", LaplaceCurve(sensitivity),
                     neighbours_key=key, unit=unit)

def race(address, charges):
    \"\"\"One process for each charge, all at once; their exit codes, sorted.\"\"\"
    ready, go = os.pipe()
    children = []
    for words, more in charges:
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)  # until the parent closes its end
            with Ledger(address, epsilon=1.0, protects="one person") as ledger:
                try:
                    ledger.settle(ledger.charge(guarantee(*words), fingerprint="f", **more))
                    os._exit(0)
                except BudgetExceededError:
                    os._exit(7)
                except LedgerError as error:
                    os._exit(8 if "same_secret=True" in str(error) else 1)
        children.append(child)
    os.close(go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(ready)
    return sorted(codes)

address = sys.argv[1]
"""


def opened(address, **others):
    """A ledger that exists."""
    return Ledger(address, create=False, **others)
