"""``affinedp release`` and ``report``: data published from file to file, and what that promises."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from typer import Argument, Option

from affinedp.cli.commands import Answer
from affinedp.cli.file_kinds import about, expect
from affinedp.cli.options import SAME_SECRET
from affinedp.cli.output import mechanism_as_json, promise_as_json, warn
from affinedp.errors import AffineDPError, left_words

NO_LEDGER = "no ledger was given (--ledger): nothing keeps count of this release"


def release(
    mechanism: Path = Argument(
        ..., help="Mechanism, or description of a table (.toml).", show_default=False
    ),
    data: Path = Argument(..., help="Data, CSV, Parquet or Excel.", show_default=False),
    output: Path = Option(..., "--output", "-o", help="Where the results go."),
    ledger: str | None = Option(
        None, help="Budget to charge first: a file, or postgresql://…#name."
    ),
    label: str | None = Option(None, help="For the ledger."),
    bound: float | None = Option(None, help="Public bound on the data."),
    rows: Literal["same", "different"] | None = Option(
        None,
        help="Whom several rows are about; needed for several rows of a saved mechanism with a "
        "ledger.  same: it is charged for each row; different: once.  A description of a table "
        "says it itself.",
    ),
    same_secret: bool = SAME_SECRET,
    sampler: str = Option(
        "bulk", metavar="bulk|opendp", help="Who draws the noise; both have the same law."
    ),
    force: bool = Option(False, "--force", help="Replace files that exist."),
) -> Answer:
    """Publish DATA with the noise of a saved mechanism, or as the description of a table says.

    Columns are matched by name, and 95 % intervals stand beside them.  A mechanism releases each
    row by itself, and its promise holds for each row: with a ledger, say whether a change of the
    secret may move all rows or one at most.  A description of a table says by names of columns
    what must add up, within rows and between them; its noise is designed here.  Data that is
    malformed or does not obey the equations is refused, and nothing is charged then.

    Examples
    --------
    affinedp release mechanism.json data.csv -o out.csv --ledger budget.db --rows different
    affinedp release table.toml data.csv -o out-2026-01.csv --ledger budget.db
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
    _refuse_to_overwrite([output], force)
    words: dict[str, Any] = {"label": label, "bound": bound, "sampler": draws}
    if described:
        answer, lines = release_file(
            mechanism, data, output, ledger, same_secret=same_secret, force=force, **words
        )
    else:
        words["rows"] = rows
        answer, lines = _with_mechanism(mechanism, data, output, ledger, same_secret, words)
    if answer["budget_left"] is not None:
        left = left_words(answer["budget_left"])
        lines.append(f"budget left: ε = {left} at δ = {answer['budget_delta']:g}")
    if ledger is None:
        warn(NO_LEDGER)
    return Answer(answer, "\n".join(lines))


def report(
    mechanism: Path = Argument(..., help="Mechanism file.", show_default=False),
    published: Path | None = Argument(
        None, help="What was released with it, for --function.", show_default=False
    ),
    html: Path | None = Option(None, help="Write an HTML page here."),
    trust: bool = Option(False, "--trust", help="Do not verify the guarantee again."),
    function: list[str] = Option(
        [],
        metavar="FORMULA",
        help="A function of published columns, such as 'women / all', with intervals.",
    ),
    level: float = Option(0.95, help="Of these intervals."),
    bound: float | None = Option(None, help="The public bound with which it was released."),
) -> Answer:
    """Say what a saved mechanism promises and costs; its guarantee is verified again.

    The page for --html opens with a paragraph for people who decide.  With published data
    --function computes shares, rates and the like, one per row, with intervals: free of charge.

    Examples
    --------
    affinedp report mechanism.json
    affinedp report mechanism.json --html report.html
    affinedp report mechanism.json published.csv --function "women / all"
    """
    from affinedp.files.writing import write_text
    from affinedp.mechanism import Mechanism

    expect(mechanism, "mechanism")
    loaded = Mechanism.load(mechanism, reverify=not trust)
    if function and html is not None:
        raise AffineDPError(
            "--html writes the page of the mechanism: ask for it without --function"
        )
    if function:
        return _functions(loaded, published, function, level, bound)
    if html is None:
        return Answer(mechanism_as_json(loaded), loaded.report)
    write_text(html, loaded.report().page())
    return Answer(mechanism_as_json(loaded), f"wrote {html}")


def _functions(
    loaded: Any, published: Path | None, functions: list[str], level: float, bound: float | None
) -> Answer:
    """Functions of what was published, row by row."""
    from affinedp.files.data import read_table

    if published is None:
        raise AffineDPError(
            "--function needs what was published: name the file after the mechanism"
        )
    table, names = read_table(published), list(loaded.output_names)
    if all(name in table for name in names):  # what stands beside them is left out
        table = table[names]
    answer, lines = {}, []
    for text in functions:
        with about(published):
            found = loaded.function(table, text, level=level, bound=bound)
        pieces = [
            [[end if math.isfinite(end) else None for end in map(float, piece)] for piece in row]
            for row in found.pieces
        ]  # an open end is null
        answer[text] = {
            "value": found.value.tolist(), "pieces": pieces, "how": found.how,
            "warnings": list(found.warnings),
        }  # fmt: skip
        lines += [text, *(f"  {found[row]}" for row in range(len(found.value))), f"  {found.how}"]
        lines += [f"  warning: {one}" for one in found.warnings]
    return Answer({"level": level, "functions": answer}, "\n".join(lines))


Told = tuple[dict[str, Any], list[str]]


def _with_mechanism(
    mechanism: Path,
    data: Path,
    output: Path,
    ledger: str | None,
    same_secret: bool,
    words: dict[str, Any],
) -> Told:
    """Publish with a saved mechanism."""
    from affinedp.cli.pending import budget_left, settled_in_the_end
    from affinedp.files.data import (
        as_published,
        check_writable,
        reach_of,
        read_table,
        write_table,
    )
    from affinedp.mechanism import Mechanism
    from affinedp.record import checked_bound

    checked_bound(words["bound"])
    loaded = Mechanism.load(mechanism)
    check_writable(output)
    table = read_table(data)
    reach = reach_of(loaded, words["bound"])
    with settled_in_the_end(ledger, same_secret) as budget:
        with about(data):
            published = loaded.release(table, ledger=budget, **words)
        write_table(as_published(loaded, published, reach), output)
    answer = {
        "promise_of_each_row": promise_as_json(loaded.guarantee),
        "rows": len(published),
        "output": str(output),
        **budget_left(budget),
    }
    rows = "1 row" if len(published) == 1 else f"{len(published):,} rows"
    return answer, [f"released {rows} to {output}"]


def release_file(
    description: Path,
    data: Path,
    output: Path,
    ledger: str | None = None,
    *,
    same_secret: bool = False,
    force: bool = False,
    label: str | None = None,
    bound: float | None = None,
    sampler: str = "bulk",
) -> Told:
    """Publish the table in a file as a table file says, or all margins of people in it."""
    from affinedp.cli.pending import budget_left, settled_in_the_end
    from affinedp.files.data import check_labels, check_writable, read_table, write_table
    from affinedp.intervals import checked_level
    from affinedp.tables.files import MarginFile, read_release

    read: Any = read_release(description)
    margins = isinstance(read, MarginFile)
    noise = None if margins else _beside(output, read.noise)
    page = _beside(output, read.report)
    further = [path for path in (noise, page) if path is not None]
    for path in (output, *further):
        check_writable(path, page=path is page)
        if path.resolve() == data.resolve():
            raise AffineDPError(f"{path} is the private table itself: choose another output")
    if noise is not None and noise == page:
        raise AffineDPError(f"{page}: noise and report need files of their own")
    _refuse_to_overwrite(further, force)
    checked_level(read.level)
    words: dict[str, Any] = {"label": label}
    table = read_table(data)
    if margins:
        words |= {"count": read.count, "person": read.person}
        read.release.tree.nodes(read.at)  # an unknown level is refused before the charge
    else:
        with about(data):
            table = read.table(table, data.name)
        check_labels(table.reset_index() if read.index else table, output)
        words |= {"bound": read.bound if bound is None else bound, "sampler": sampler}
    with settled_in_the_end(ledger, same_secret) as budget:
        with about(data):
            released = read.release.release(table, ledger=budget, **words)
        if margins:
            published = released.tables(read.level, read.at)
        else:
            published = released.with_intervals(read.level)
            published = published.reset_index() if read.index else published
        write_table(published, output)
    what = "numbers" if margins else "rows"
    lines = [f"released {len(published):,} {what} to {output}"]
    if noise is not None:
        write_table(_noise_table(released, read.level), noise)
        lines.append(f"wrote the noise to {noise}")
    if page is not None:
        from affinedp.files.writing import write_text

        write_text(page, released.report(read.level).page())
        lines.append(f"wrote a report to {page}")
    answer = {
        "promise": promise_as_json(released.guarantee),
        "rows": len(published),
        "output": str(output),
        "further": [str(path) for path in further],
        **budget_left(budget),
    }
    return answer, [*lines, str(released.guarantee)]


def _noise_table(released: Any, level: float) -> Any:
    """Noise and half widths of intervals, a row for each column or cell."""
    import pandas

    noise, width = released.noise, released.design.half_width(level)
    if hasattr(noise, "stack"):
        noise, width = noise.stack(), width.stack()
    heading = f"half_width_{level * 100:g}_percent"
    frame = pandas.DataFrame({"standard_deviation": noise, heading: width})
    frame.index = frame.index.set_names(["row", "column"][-frame.index.nlevels :])
    return frame.reset_index()


def _beside(output: Path, name: str | None) -> Path | None:
    """A file beside the published table, with its name: that of next month is another."""
    if name is None:
        return None
    place = output.parent / name
    return place.with_name(f"{output.stem}-{place.name}")


def _refuse_to_overwrite(paths: list[Path], force: bool) -> None:
    """Refuse to replace what was published before: two releases of a secret tell more than one."""
    for path in paths:
        if not force and path.exists() and not path.is_dir():
            raise AffineDPError(f"{path} exists already: choose another name, or give --force")
