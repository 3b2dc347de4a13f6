"""The published table, read from its folder: these files and columns, and no others.

Readers take names of folders for patterns (``[1]``, ``*``) and for columns (``year=2020``).  So
files are listed one by one, columns come from files alone, and a name that an engine cannot be
told to take as it stands is refused before the charge.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from affinedp.errors import AffineDPError

# What is a pattern to an engine wherever it stands in a path, also in a list of files.
PATTERNS = {"dask": "*?[]", "spark": "*?[]{}\\"}


def refuse_unreadable(engine: str, folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that an engine would read as another one, or not at all.

    Parameters
    ----------
    engine : str
        The one that reads.
    folder : str or Path
        Where a release is to lie.
    """
    place = os.path.abspath(folder)
    signs = sorted(set(PATTERNS.get(engine, "")) & set(place))
    if signs:
        raise AffineDPError(
            f"{place} has {signs[0]!r} in its name, which {engine.capitalize()} reads as a pattern "
            "of names: choose another folder"
        )


def read_back(engine: str, data: Any, folder: Path) -> Any:
    """Return what lies in a folder as a table of the engine, or the folder.

    Parameters
    ----------
    engine : str
        The one that had the data.
    data : DataFrame or Parts
        Its data.
    folder : Path
        Of a complete release.
    """
    files = [str(path) for path in sorted(folder.glob("part-*.parquet"))]
    try:
        if engine == "spark":
            reader = data.sparkSession.read.option("recursiveFileLookup", "true")
            return reader.parquet(*(f"file://{file}" for file in files))  # not the cluster's store
        if engine == "polars":
            import polars

            return polars.scan_parquet(files, glob=False, hive_partitioning=False)
        if engine == "dask":
            import dask.dataframe

            return dask.dataframe.read_parquet(files, dataset={"partitioning": None})
    except Exception as error:
        raise AffineDPError(
            f"the release is complete, in {folder}; do not release again: read it from there. "
            f"Reading it back failed: {error}"
        ) from error
    return folder
