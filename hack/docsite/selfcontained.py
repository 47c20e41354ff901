"""Finds what the pages of a site would load from another host.

A reader's browser asks no server but that of the site; links that a reader follows may lead
elsewhere.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements that load something, each with the attribute that names it."""
_HARMLESS = {"canonical", "prev", "next", "alternate"}
"""Relations of `link` that load nothing."""
_CSS = re.compile(r"url\(\s*[\"']?((?:https?:)?//[^)\"']+)|@import\s+[\"']((?:https?:)?//[^\"']+)")


def external(site: Path) -> Iterator[str]:
    """Yield each file of the site with an address that it loads from elsewhere."""
    for page in sorted(site.rglob("*.html")):
        for address in _Loads.of(page.read_text(encoding="utf-8")):
            yield f"{page.relative_to(site)}: {address}"
    for sheet in sorted(site.rglob("*.css")):
        for found in _CSS.findall(sheet.read_text(encoding="utf-8")):
            yield f"{sheet.relative_to(site)}: {''.join(found)}"


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @classmethod
    def of(cls, text: str) -> list[str]:
        parser = cls()
        parser.feed(text)
        return parser.found

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        address = given.get(LOADS.get(tag, "")) or ""
        if given.get("rel") not in _HARMLESS and re.match(r"(https?:)?//", address):
            self.found.append(address)
