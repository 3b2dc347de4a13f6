"""Say what every page of the site makes a reader load: ``python docs/weigh.py docs/_build/html``.

Counted are the page, its style sheets, scripts and pictures, and the fonts that style sheets name,
all uncompressed; nothing may come from another host.  Exit code 1 if a page is over the limit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from urllib.parse import unquote, urlsplit

LIMIT = 500_000


class Loaded(HTMLParser):
    """The addresses that a browser loads for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note style sheets, icons, scripts and pictures."""
        given = dict(attrs)
        kinds = (given.get("rel") or "").split()
        if tag == "link" and {"stylesheet", "icon", "preload"} & set(kinds):
            self.addresses.add(given.get("href") or "")
        elif tag in ("script", "img", "source"):
            self.addresses.add(given.get("src") or "")


def files_of(page: Path) -> Iterator[Path]:
    """Return the page and everything that is loaded with it."""
    yield page
    reader = Loaded()
    text = page.read_text(encoding="utf-8")
    reader.feed(text)
    for address in reader.addresses - {""}:
        parts = urlsplit(address)
        if parts.scheme == "data":
            continue
        if parts.scheme or parts.netloc:
            raise SystemExit(f"{page}: loads {address} from another host")
        path = (page.parent / unquote(parts.path)).resolve()
        yield path
        if path.suffix == ".css" and "<math" in text:  # the only font there is
            named = re.findall(r"url\([\"']?([^\"')]+\.woff2)", path.read_text(encoding="utf-8"))
            yield from ((path.parent / name).resolve() for name in named)


def main(site: Path) -> int:
    """Print the heaviest pages and the median; return the exit code."""
    weights = {
        page.relative_to(site): sum(path.stat().st_size for path in set(files_of(page)))
        for page in site.rglob("*.html")
        if "_static" not in page.parts
    }
    heaviest = sorted(weights, key=lambda page: -weights[page])
    print(f"{len(weights)} pages, median {median(weights.values()) / 1000:.0f} kB")
    for page in heaviest[:12]:
        print(f"{weights[page] / 1000:6.0f} kB  {page}")
    return int(weights[heaviest[0]] > LIMIT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/_build/html")))
