"""Code blocks without the blank line that doctest needs at their end."""

from __future__ import annotations

from typing import Any

from docutils import nodes


def trim(app: Any, tree: nodes.document) -> None:
    """Take the white space at the end off all blocks of a page."""
    for block in tree.findall(nodes.literal_block):
        text = block.astext()
        if len(block) == 1 and isinstance(block[0], nodes.Text) and text != text.rstrip():
            block.rawsource = text.rstrip()
            block[0] = nodes.Text(text.rstrip())


def setup(app: Any) -> dict[str, bool]:
    """Look at every page when it has been read."""
    app.connect("doctree-read", trim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
