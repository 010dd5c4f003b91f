"""Open the built site in headless Chromium and check what a reader would see.

    python docs/browse_site.py docs/_build/html [--chromium /usr/bin/chromium] [--screenshots FOLDER]

Every page must load without an error in the console, a missing image or an unset formula, no page may scroll sideways
on a telephone 390 pixels wide, and the search must find ORKDL. Needs ``pip install playwright`` and Chromium, the
system's or the one that ``playwright install chromium`` downloads. Exits with 1 and names what is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DESKTOP, TELEPHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
# What sticks out of a page, or out of its article where the theme cuts it off: only what scrolls by itself may.
OVERFLOW = """() => {
    const width = document.documentElement.clientWidth;
    const wide = document.documentElement.scrollWidth;
    const scrolls = e => { for (let p = e.parentElement; p && p.tagName !== 'ARTICLE'; p = p.parentElement)
        if (['auto', 'scroll'].includes(getComputedStyle(p).overflowX) && p.scrollWidth > p.clientWidth) return true;
        return false; };
    const names = [...document.querySelectorAll('article *')]
        .filter(e => !e.closest('mjx-assistive-mml') && e.getBoundingClientRect().right > width + 1 && !scrolls(e))
        .slice(0, 3).map(e => e.tagName.toLowerCase() + '.' + e.className);
    return wide > width || names.length ? wide + ' px: ' + names.join(', ') : null;
}"""
# Images are loaded lazily: ask for all of them, then see which have no pixels.
IMAGES = """async () => {
    const images = [...document.images];
    images.forEach(image => { image.loading = 'eager'; });
    await Promise.all(images.map(image => image.decode().catch(() => null)));
    return images.filter(image => !image.naturalWidth).map(image => image.getAttribute('src'));
}"""


# Formulas that are still in the language of TeX once MathJax has finished.
FORMULAS = """async () => {
    if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
    const raw = [...document.querySelectorAll('article .math')].filter(e => !e.querySelector('mjx-container'));
    return raw.map(e => e.textContent.slice(0, 40));
}"""


class Quiet(SimpleHTTPRequestHandler):
    """A server that does not log."""

    def log_message(self, *message: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A server that does not mind if the browser leaves a page before all of it has arrived."""

    def handle_error(self, *request: Any) -> None:
        """Say nothing: what does not load is seen in the browser."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine while the context lasts, and give its address."""
    server = Server(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def visit(browser: Any, address: str, pages: list[str], screenshots: Path | None) -> list[str]:
    """Load every page in both sizes and name what is wrong."""
    problems = []
    own = (address, "data:")
    for name, viewport in (("desktop", DESKTOP), ("telephone", TELEPHONE)):
        context = browser.new_context(viewport=viewport)
        tab = context.new_page()
        said: list[str] = []
        # The site is complete by itself: it asks no other host for anything.
        tab.on("request", lambda sent, said=said: None if sent.url.startswith(own) else said.append(f"asks {sent.url}"))
        tab.on("console", lambda message, said=said: said.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error, said=said: said.append(str(error)))
        for page in pages:
            said.clear()
            response = tab.goto(f"{address}/{page}", wait_until="load")
            if response is None or response.status != 200:
                problems.append(f"{page}: does not load")
                continue
            problems += [f"{page}: image {source} is missing" for source in tab.evaluate(IMAGES)]
            problems += [f"{page}: formula {text!r} is not set" for text in tab.evaluate(FORMULAS)]
            if name == "telephone" and (wide := tab.evaluate(OVERFLOW)):
                problems.append(f"{page}: scrolls sideways, {wide}")
            problems += [f"{page}: console says {text}" for text in said]
            if screenshots:
                tab.screenshot(path=str(screenshots / f"{page.replace('/', '-')}.{name}.png"))
        context.close()
    return problems


def search(browser: Any, address: str, word: str) -> list[str]:
    """Search for a word, and say if the reference page of that name is not among the results."""
    tab = browser.new_page()
    tab.goto(f"{address}/search.html?q={word}")
    try:
        tab.wait_for_selector("#search-results li a", timeout=20_000)
        tab.wait_for_function("!document.querySelector('.search-summary')?.textContent.includes('...')", timeout=20_000)
        links = tab.eval_on_selector_all("#search-results li a", "all => all.map(a => a.getAttribute('href'))")
    except Exception as error:
        return [f"search for {word}: {error}"]
    finally:
        tab.close()
    return [] if any(f"rkdl.{word}" in link for link in links) else [f"search for {word} finds only {links[:10]}"]


def main() -> int:
    """Check the site and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--screenshots", type=Path)
    options = parser.parse_args()
    pages = sorted(
        str(path.relative_to(options.site)) for path in options.site.rglob("*.html") if "_static" not in path.parts
    )
    if not pages:
        print(f"{options.site} holds no pages: build them with `make docs`.")
        return 2
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    with served(options.site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        problems = visit(browser, address, pages, options.screenshots) + search(browser, address, "ORKDL")
        browser.close()
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(pages)} pages in two sizes, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
