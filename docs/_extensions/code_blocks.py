"""Code blocks without the blank line that doctest needs at their end; long names that wrap."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

# characters that fit into a column of a table on a phone
LONG = 20


def trim(app: Any, tree: nodes.document) -> None:
    """Take the white space at the end off all blocks of a page."""
    for block in tree.findall(nodes.literal_block):
        text = block.astext()
        if len(block) == 1 and isinstance(block[0], nodes.Text) and text != text.rstrip():
            block.rawsource = text.rstrip()
            block[0] = nodes.Text(text.rstrip())


def wrap(app: Any, tree: nodes.document) -> None:
    """Let long names in the text go on in the next line after a dot, a slash or an underscore."""
    for name in tree.findall(nodes.literal):
        text = name.astext()
        if len(name) == 1 and max(map(len, text.split()), default=0) > LONG:
            first, *rest = map(nodes.Text, re.split(r"(?<=::)|(?<=[/_.](?=\w))", text))
            name.children = []
            name += first
            for part in rest:
                name += [nodes.raw("", "<wbr>", format="html"), part]


def setup(app: Any) -> dict[str, bool]:
    """Look at every page when it has been read."""
    app.connect("doctree-read", trim)
    app.connect("doctree-read", wrap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
