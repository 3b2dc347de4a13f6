"""Tables that obey known equations, for several tests."""

import numpy as np
import pandas as pd


def random_table(seed):
    """A table with no equation at all, of one of eight kinds."""
    rng = np.random.default_rng(10_000 + seed)
    rows, columns = int(rng.integers(1, 120)), int(rng.integers(1, 13))
    shape = (rows, columns)
    numbers = [
        lambda: rng.normal(size=shape),
        lambda: rng.integers(0, 2, shape),
        lambda: rng.integers(0, 5, shape),
        lambda: rng.poisson(1.0, shape),
        lambda: rng.lognormal(3, 2, shape).round(2),
        lambda: np.cumsum(rng.integers(-3, 4, shape), axis=0),
        lambda: rng.integers(0, 10**6, shape),
        lambda: rng.uniform(0, 100, shape).round(1),
    ][seed % 8]()
    table = pd.DataFrame(numbers, columns=[f"c{i}" for i in range(columns)])
    if seed % 3 == 0:
        table.insert(0, "group", rng.choice(list("abcdefghij"), rows))
    if seed % 5 == 0:
        table.insert(0, "run", np.repeat([f"k{i}" for i in range(rows)], 3)[:rows])
    return table


def input_output(seed=5):
    """Six sectors, three kinds of final demand; totals in both directions."""
    rng = np.random.default_rng(seed)
    sectors = ["agri", "mining", "manuf", "trade", "transport", "services"]
    demand = ["households", "government", "exports"]
    flows = rng.integers(10, 900, (6, 6))
    final = rng.integers(100, 3000, (6, 3))
    output = flows.sum(1) + final.sum(1)
    added = output - flows.sum(0)
    body = np.hstack([flows, final, final.sum(1, keepdims=True), output[:, None]])
    intermediate = body.sum(0)
    value_added = np.concatenate([added, np.zeros(4, dtype=int), [added.sum()]])
    rows = np.vstack([body, intermediate, value_added, intermediate + value_added])
    frame = pd.DataFrame(rows, columns=[*sectors, *demand, "final_demand", "output"])
    frame.insert(0, "sector", [*sectors, "intermediate", "value added", "total output"])
    return frame


def journal(entries=200, seed=6):
    """Double-entry postings: what is debited is credited, entry by entry."""
    rng = np.random.default_rng(seed)
    rows = []
    for entry in range(entries):
        cents = rng.integers(1, 100_000, int(rng.integers(1, 4)))
        rows += [(f"E{entry}", rng.choice(["rent", "wages", "goods"]), c / 100, 0.0) for c in cents]
        rows.append((f"E{entry}", "bank", 0.0, int(cents.sum()) / 100))
    return pd.DataFrame(rows, columns=["entry", "account", "debit", "credit"])


def accounts(seed=7):
    """Balances of three accounts, carried forward within each."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "account": np.repeat(["a", "b", "c"], 60),
            "paid_in": rng.integers(0, 10_000, 180) / 100,
            "paid_out": rng.integers(0, 9_000, 180) / 100,
        }
    )
    change = ((table.paid_in - table.paid_out) * 100).round().astype(int)
    table["balance"] = change.groupby(table.account).cumsum() / 100
    return table


def statement(seed=8):
    """A statement of accounts: items in rows, years in columns."""
    rng = np.random.default_rng(seed)
    items = ["sales", "other", "revenue", "materials", "wages", "rent", "costs", "profit"]
    table = pd.DataFrame({"item": items})
    for year in range(2019, 2024):
        sales, other, materials, wages, rent = map(int, rng.integers(1000, 90_000, 5))
        costs = materials + wages + rent
        numbers = [sales, other, sales + other, materials, wages, rent, costs]
        table[str(year)] = [*numbers, sales + other - costs]
    return table
