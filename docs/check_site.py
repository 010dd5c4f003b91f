"""Check the links of the built site: every page, anchor, image, script and style sheet that a page names must exist.

    python docs/check_site.py docs/_build/html

Addresses on other hosts are left alone. Exits with 1 and names every broken link.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ATTRIBUTES = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class Page(HTMLParser):
    """The identifiers and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.identifiers: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag defines and what it refers to."""
        values = dict(attrs)
        self.identifiers |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag in ATTRIBUTES and (target := values.get(ATTRIBUTES[tag])):
            self.links.append(target)


def pages_of(site: Path) -> list[Path]:
    """Find the pages of the site; templates among the theme's files are none."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def broken_links(site: Path) -> list[str]:
    """Name every link to something that the site does not have, as ``page: link``."""
    pages = {path.resolve(): Page(path) for path in pages_of(site)}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            exists = target.is_file()
            anchored = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].identifiers
            if not (exists and anchored):
                broken.append(f"{path.relative_to(site.resolve())}: {link}")
    return broken


def main(site: str) -> int:
    """Print the broken links and their number."""
    folder = Path(site)
    count = len(pages_of(folder))
    if not count:
        print(f"{site} holds no pages: build them with `make docs`.")
        return 2
    broken = broken_links(folder)
    print(*broken, sep="\n", end="\n" if broken else "")
    print(f"{count} pages, {len(broken)} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
