"""``affinedp release``: data from file to file, with noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from affinedp.cli.file_kinds import about, expect
from affinedp.cli.options import AsJson, Force, SameSecret
from affinedp.cli.output import for_people, say, say_json, warn
from affinedp.errors import AffineDPError

NO_LEDGER = "no ledger was given (--ledger): nothing keeps count of this release"


def release(
    mechanism: Annotated[
        Path,
        typer.Argument(help="Mechanism, or description of a table (.toml).", show_default=False),
    ],
    data: Annotated[Path, typer.Argument(help="Data, CSV, Parquet or Excel.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the results go.")],
    ledger: Annotated[
        str | None, typer.Option(help="Budget to charge first: a file, or postgresql://…#name.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="For the ledger.")] = None,
    bound: Annotated[float | None, typer.Option(help="Public bound on the data.")] = None,
    rows: Annotated[
        Literal["same", "different"] | None,
        typer.Option(
            help="Whom several rows are about; needed for several rows of a saved mechanism with a "
            "ledger.  same: it is charged for each row; different: once.  A description of a table "
            "says it itself.",
        ),
    ] = None,
    same_secret: SameSecret = False,
    sampler: Annotated[
        str,
        typer.Option(metavar="bulk|opendp", help="Who draws the noise; both have the same law."),
    ] = "bulk",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Publish DATA, one release per row, with the noise of a saved mechanism.

    Columns are matched by name.  The promise holds for each row.  With a ledger, say whether a
    change of the secret may move all rows or one at most.  Data that is malformed or does not obey
    the equations is refused, and nothing is charged then.  A description of a table says by names
    of columns what must add up; its noise is designed here.
    """
    from affinedp.laws.sampler import checked_sampler

    draws = checked_sampler(sampler)
    kind = expect(mechanism, "mechanism", "table description")
    described = kind == "table description" or mechanism.suffix.lower() == ".toml"
    if described and rows is not None:
        raise AffineDPError(
            f"--rows is for saved mechanisms: say [privacy] rows in {mechanism.name}"
        )
    expect(data, "data")
    refuse_to_overwrite(output, force)
    if described:
        from affinedp.cli.tables import release_file

        answer = release_file(
            mechanism,
            data,
            output,
            ledger=ledger,
            label=label,
            bound=bound,
            same_secret=same_secret,
            sampler=draws,
            force=force,
            say=(lambda text: None) if as_json else say,
        )
    else:
        answer = _with_mechanism(
            mechanism, data, output, ledger, label, bound, rows, same_secret, draws
        )
        if not as_json:
            say(f"released {answer['rows']:,} rows to {output}")
    if as_json:
        say_json(answer)
    elif answer["budget_left"] is not None:
        left = for_people(answer["budget_left"])
        say(f"budget left: ε = {left} at δ = {answer['budget_delta']:g}")
    if ledger is None:
        warn(NO_LEDGER)


def _with_mechanism(
    mechanism: Path,
    data: Path,
    output: Path,
    ledger: str | None,
    label: str | None,
    bound: float | None,
    rows: Literal["same", "different"] | None,
    same_secret: bool,
    sampler: Literal["bulk", "opendp"],
) -> dict[str, Any]:
    from affinedp.cli.answers import promise_as_json
    from affinedp.cli.pending import budget_left, settled_in_the_end
    from affinedp.files.data import check_writable, read_table, write_table
    from affinedp.mechanism import Mechanism
    from affinedp.release.plan import checked_bound

    checked_bound(bound)
    loaded = Mechanism.load(mechanism)
    check_writable(output)
    table = read_table(data)
    with settled_in_the_end(ledger, same_secret) as budget:
        with about(data):
            published = loaded.release(
                table, ledger=budget, label=label, bound=bound, rows=rows, sampler=sampler
            )
        write_table(published, output, whole=loaded.publishes_whole_numbers)
    return {
        "promise_of_each_row": promise_as_json(loaded.guarantee),
        "rows": len(published),
        "output": str(output),
        **budget_left(budget),
    }


def refuse_to_overwrite(path: Path, force: bool) -> None:
    """Refuse to replace what was published before: two releases of a secret tell more than one.

    Parameters
    ----------
    path : Path
        Where results would go.
    force : bool
        Whether they may replace what is there.
    """
    if not force and path.exists() and not path.is_dir():
        raise AffineDPError(f"{path} exists already: choose another name, or give --force")
