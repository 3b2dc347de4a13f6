"""Text as pages of a PDF, with matplotlib alone: what can be printed and filed."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from affinedp.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A4, in inches, and what fits on it in type that is read without glasses.
PAPER = (8.27, 11.69)
COLUMNS = 88
LINES = 74
SIZE = 8.5


def pdf_pages(title: str, lines: Iterable[str], figures: Iterable[Figure] = ()) -> bytes:
    """Return a PDF of fixed-width text, then figures, a page each.

    Parameters
    ----------
    title : str
        For the top of the first page, and for the file's own data.
    lines : iterable of str
        The text; lines that are too long are folded.
    figures : iterable of Figure
        Drawn after the text.

    Examples
    --------
    >>> pdf_pages("Counts", ["women  41", "men    44"])[:5]
    b'%PDF-'
    """
    try:
        from matplotlib.backends.backend_pdf import PdfPages
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    written = io.BytesIO()
    told: dict[str, Any] = {"Title": title, "Creator": "affinedp", "CreationDate": None}
    pages = list(_pages([title, "═" * min(len(title), COLUMNS), "", *lines]))
    with PdfPages(written, metadata=told) as pdf:
        for number, page in enumerate(pages, start=1):
            sheet = Figure(figsize=PAPER)
            style: dict[str, Any] = {"family": "DejaVu Sans Mono", "fontsize": SIZE, "va": "top"}
            sheet.text(0.07, 0.95, "\n".join(page), linespacing=1.25, parse_math=False, **style)
            foot = f"{number} / {len(pages)}"
            sheet.text(0.93, 0.03, foot, fontsize=7, ha="right", parse_math=False)
            pdf.savefig(sheet)
        for figure in figures:
            pdf.savefig(figure)
    return written.getvalue()


def _pages(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines of a page each, folded where they are too long."""
    page: list[str] = []
    for line in lines:
        for part in textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]:
            if len(page) == LINES:
                yield page
                page = []
            page.append(part)
    if page:
        yield page
