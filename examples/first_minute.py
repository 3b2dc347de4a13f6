"""What the library does, in a minute: a leak, its repair, and one release against a budget.

Run it from anywhere: ``python examples/first_minute.py`` (a folder may be named for its files).
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import affinedp as adp

DATA = {"cells_in": 30, "cells_out": 70, "cells_total": 100}


def main(folder: Path) -> None:
    """Show it, with the ledger and the release in a folder."""
    equations = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])

    print("1. A leak")
    print("   Three numbers are published, and everyone knows: cells_in + cells_out = cells_total.")
    print("   Each gets Laplace noise of scale 1, as textbooks say for ε = 1.")
    found = adp.verify(equations, 1.0, law="laplace")
    print(f"   affinedp.verify: the noise really gives ε = {found.epsilon():g}.\n")

    print("2. The repair")
    iid = adp.iid_noise(equations, law="laplace", epsilon=1.0)
    least = adp.design(equations, epsilon=1.0, integers=True)
    errors = iid.expected_squared_error, least.expected_squared_error, least.lower_bound
    print(f"   More of the same noise keeps ε = 1, at a squared error of {errors[0]:.3g}.")
    print(f"   affinedp.design finds noise that obeys the equation too, at {errors[1]:.3g};")
    print(f"   nothing that keeps ε = 1 goes below {errors[2]:.3g}.\n")

    print("3. One release, within a budget")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"budget-{datetime.now():%Y%m%d-%H%M%S}.db"
    with adp.Ledger(path, epsilon=1.0, delta=1e-6, protects="one cell") as ledger:
        published = least.release(list(DATA.values()), ledger=ledger, label="first")
        numbers = "  ".join(f"{name} {value:g}" for name, value in zip(DATA, published))
        print(f"   published: {numbers}")
        print(f"   they add up, and ε = {ledger.spent:g} of {ledger.epsilon:g} is spent")
        try:
            least.release(list(DATA.values()), ledger=ledger, label="second")
        except adp.BudgetExceededError:
            print("   a second release is refused: nothing is left")
    print(f"   the budget is in {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
