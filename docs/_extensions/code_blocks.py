"""Code blocks without the blank line that doctest needs at their end; long names that wrap."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

# names in the text that do not fit into a column of a table on a phone
LONG = re.compile(r'(?<=<span class="pre">)[^<]{21,}(?=</span>)')


def trim(app: Any, tree: nodes.document) -> None:
    """Take the white space at the end off all blocks of a page."""
    for block in tree.findall(nodes.literal_block):
        text = block.astext()
        if len(block) == 1 and isinstance(block[0], nodes.Text) and text != text.rstrip():
            block.rawsource = text.rstrip()
            block[0] = nodes.Text(text.rstrip())


def wrap(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Let them go on in the next line; here, since the search index shall hold them whole."""
    if "body" in context:
        context["body"] = LONG.sub(
            lambda name: re.sub(r"(::|[/_.](?=\w))", r"\1<wbr>", name[0]), context["body"]
        )


def setup(app: Any) -> dict[str, bool]:
    """Look at every page when it has been read, and when it is written."""
    app.connect("doctree-read", trim)
    app.connect("html-page-context", wrap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
