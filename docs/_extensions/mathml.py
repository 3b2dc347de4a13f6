"""Formulae as MathML: made by docutils at build time, shown by browsers without any script.

The site ships the font that they are set in, so that they look the same everywhere.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)

BARS = re.compile(r"(?<!\\)\|([^|]+)(?<!\\)\|")
# what pages write and docutils does not read, and what it reads in its place
SAID_OTHERWISE = {
    r"\dots": r"\ldots",
    r"\setminus": r"\smallsetminus",  # the sign that the font has
    "½": r"\tfrac{1}{2}",
    **{rf"\{size}{a}": rf"\{size}l{a}" for size in ("big", "Big") for a in "(["},
    **{rf"\{size}{b}": rf"\{size}r{b}" for size in ("big", "Big") for b in ")]"},
}


def mathml(node: nodes.Element, block: bool = False) -> str:
    """Return a formula as MathML; what docutils cannot read is a warning and stays as it is."""
    text = node.astext()
    for written, read in SAID_OTHERWISE.items():
        text = text.replace(written, read)
    if text.count("|") % 2 == 0:  # bars around something, which want no room on their inside
        text = BARS.sub(r"\\lvert \1\\rvert ", text)
    try:
        return spaced(str(tex2mathml(text, as_block=block)))
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return node.astext()


def spaced(written: str) -> str:
    """Take the room of a relation off bars, and give a little to functions without brackets."""
    written = re.sub(
        r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>\()", '<mspace width="0.17em"/>', written
    )
    return re.sub(
        r'<mo( class="mathopen")?>([|‖])</mo>',
        r'<mo\1 lspace="0" rspace="0" stretchy="false">\2</mo>',
        written,
    )


def inline_formula(translator: Any, node: nodes.math) -> None:
    """Write a formula that stands in a sentence."""
    translator.body.append(mathml(node))
    raise nodes.SkipNode


def displayed_formula(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(f'<div class="formula">{mathml(node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Offer the renderer to Sphinx under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
