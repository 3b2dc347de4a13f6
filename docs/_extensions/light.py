"""Pages that load fast: pictures have as many colours as they need, and nothing is idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = 64
# a thumbnail is shown at this many pixels; twice that is sharp on every screen
THUMBNAIL = 320
# and so wide is the widest picture on a page
WIDEST = 1100
UNUSED = ("binder_badge_logo.svg", "jupyterlite_badge_logo.svg", "broken_example.png")


def with_fewer_colours(path: Path) -> None:
    """Write a picture again with a palette, if it gets smaller by that."""
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGBA")
    paper = Image.new("RGBA", picture.size, "white")
    flat = Image.alpha_composite(paper, picture).convert("RGB")
    widest = THUMBNAIL if "_thumb" in path.name else WIDEST
    flat.thumbnail((widest, 4 * widest))
    smaller = path.with_suffix(".small")
    flat.quantize(COLOURS, dither=Image.Dither.NONE).save(smaller, format="PNG", optimize=True)
    if smaller.stat().st_size < path.stat().st_size:
        smaller.replace(path)
    else:
        smaller.unlink()


def without_gallery_styles(app: Any, page: str, template: str, context: Any, tree: Any) -> None:
    """Load what the gallery needs on its own pages only."""
    if not page.startswith("generated/gallery/"):
        for kind in ("css_files", "script_files"):
            files = context.get(kind, [])
            context[kind] = [file for file in files if "_static/sg" not in str(file.filename)]


def lighten(app: Any, error: Exception | None) -> None:
    """Go through what was written; maps of minified code and badges are not for readers."""
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for path in (out / "_images").glob("*.png"):
        with_fewer_colours(path)
    for path in (*out.glob("_static/**/*.map"), *(out / "_static" / name for name in UNUSED)):
        path.unlink(missing_ok=True)


def setup(app: Any) -> dict[str, bool]:
    """Look at every page, and at the files when all are written."""
    app.connect("html-page-context", without_gallery_styles)
    app.connect("build-finished", lighten, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
