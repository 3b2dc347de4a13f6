"""``affinedp release``: data from file to file, with noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from affinedp.cli.options import SameSecret
from affinedp.cli.output import say
from affinedp.errors import AffineDPError


def release(
    mechanism: Annotated[
        Path,
        typer.Argument(help="Mechanism, or description of a table (.toml).", show_default=False),
    ],
    data: Annotated[Path, typer.Argument(help="Data, CSV or Parquet.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the results go.")],
    ledger: Annotated[str | None, typer.Option(help="Budget to charge first.")] = None,
    label: Annotated[str | None, typer.Option(help="For the ledger.")] = None,
    bound: Annotated[float | None, typer.Option(help="Public bound on the data.")] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="same|different",
            help="Whom several rows are about; needed with a ledger.  same: it is charged for each "
            "row; different: once.",
        ),
    ] = None,
    same_secret: SameSecret = False,
) -> None:
    """Publish DATA, one release per row, with the noise of a saved mechanism.

    Columns are matched by name.  The promise holds for each row.  With a ledger, say whether a
    change of the secret may move all rows or one at most.  Data that is malformed or does not obey
    the equations is refused, and nothing is charged then.  A description of a table says by names
    of columns what must add up; its noise is designed here.
    """
    if mechanism.suffix.lower() == ".toml":
        from affinedp.cli.tables import release_file

        if rows is not None:
            raise AffineDPError(
                f"--rows is for saved mechanisms: say [privacy] rows in {mechanism.name}"
            )
        release_file(
            mechanism,
            data,
            output,
            ledger=ledger,
            label=label,
            bound=bound,
            same_secret=same_secret,
            say=say,
        )
        return
    from affinedp.budget.charges import checked_rows
    from affinedp.cli.pending import settled_in_the_end
    from affinedp.files.data import check_writable, read_table, write_table
    from affinedp.mechanism import Mechanism

    loaded = Mechanism.load(mechanism)
    check_writable(output)
    table = read_table(data)
    about = checked_rows(rows)
    left = "no ledger was given: nothing keeps count of this release"
    with settled_in_the_end(ledger, same_secret) as budget:
        published = loaded.release(table, ledger=budget, label=label, bound=bound, rows=about)
        write_table(published, output, whole=loaded.publishes_whole_numbers)
        if budget is not None:
            left = f"budget left: ε = {budget.remaining:.6g} at δ = {budget.delta:g}"
    say(f"released {len(published)} rows to {output}")
    say(left)
