"""Text as pages of a PDF, with matplotlib alone: what can be printed and filed."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from affinedp.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A4, in inches, and what fits on it in type that is read without glasses.
PAPER = (8.27, 11.69)
COLUMNS = 88
LINES = 72
SIZE = 8.5
# A table that is wider gets smaller type, down to this many columns on a page.
WIDEST = 124
FONT = "DejaVu Sans Mono"
# Fonts that draw the same box for everything.
BOXES = ("Last Resort",)


def pdf_pages(
    title: str, lines: Iterable[str], figures: Iterable[Figure] = (), wide: Sequence[str] = ()
) -> bytes:
    """Return a PDF of fixed-width text, then figures, a page each.

    Parameters
    ----------
    title : str
        For the top of the first page, and for the file's own data.
    lines : iterable of str
        The text; lines that are too long are folded.
    figures : iterable of Figure
        Drawn after the text.
    wide : sequence of str
        Text for the first pages, in smaller type where its lines are longer.

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
    head = [title, "═" * min(len(title), COLUMNS), ""]
    columns = min(max([COLUMNS, *map(len, wide)]), WIDEST)
    text = [*wide, ""] if wide else []
    plain = list(lines)
    families, missing = _families("".join([title, *wide, *plain]))
    if missing:
        plain += ["", f"No font of this machine has {len(missing)} of the characters "
                  f"({', '.join(f'U+{ord(c):04X}' for c in missing[:8])}): they are printed as "
                  "boxes. The HTML page shows them."]  # fmt: skip
    pages = list(_pages([*head, *text, *plain], COLUMNS))
    if columns > COLUMNS:
        pages = [*_pages([*head, *wide], columns), *_pages(plain, COLUMNS)]
    written = io.BytesIO()
    told: dict[str, Any] = {"Title": title, "Creator": "affinedp", "CreationDate": None}
    with PdfPages(written, metadata=told) as pdf, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # it is said on the page
        for number, page in enumerate(pages, start=1):
            sheet = Figure(figsize=PAPER)
            long = max(map(len, page)) > COLUMNS
            style: dict[str, Any] = {"family": families, "va": "top"}
            style["fontsize"] = SIZE * COLUMNS / columns if long else SIZE
            style["linespacing"] = 1.25 * columns / COLUMNS if long else 1.25
            sheet.text(0.07, 0.95, "\n".join(page), parse_math=False, **style)
            foot = f"{number} / {len(pages)}"
            sheet.text(0.93, 0.03, foot, fontsize=7, ha="right", parse_math=False)
            pdf.savefig(sheet)
        for figure in figures:
            pdf.savefig(figure)
    return written.getvalue()


def _families(text: str) -> tuple[list[str], list[str]]:
    """Fonts of this machine that have all characters between them; and what none of them has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    families = [FONT]
    known = get_font(findfont(FontProperties(family=FONT))).get_charmap()
    missing = sorted(c for c in set(text) if ord(c) not in known and c.isprintable())
    for one in fontManager.ttflist if missing else ():
        if one.name in families or one.name.startswith(BOXES) or one.style != "normal":
            continue
        try:
            own = get_font(one.fname).get_charmap()
        except (OSError, RuntimeError):
            continue
        left = [c for c in missing if ord(c) not in own]
        if len(left) < len(missing):
            families.append(one.name)
            missing = left
        if not missing:
            break
    return families, missing


def _pages(lines: Iterable[str], columns: int) -> Iterator[list[str]]:
    """Lines of a page each, folded where they are too long."""
    page: list[str] = []
    for line in lines:
        for part in textwrap.wrap(line, columns, drop_whitespace=False) or [""]:
            if len(page) == LINES:
                yield page
                page = []
            page.append(part)
    if page:
        yield page
