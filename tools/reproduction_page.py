"""Print docs/reproduction.md for a results.json: ``python -m tools.reproduction_page reproduction/results.json``.

It is the report of ``rkdl reproduce`` in Markdown. With ``--images`` its figures are drawn into a folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rkdl._reproduction.plots import draw_pngs
from rkdl._reproduction.render import RenderedPicture, as_markdown
from rkdl._reproduction.report import build_report
from rkdl._reproduction.store import Results, read_results
from rkdl._reproduction.terminal import complain


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reproduction_page", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("results", type=Path, help="results.json of rkdl reproduce")
    parser.add_argument("--images", type=Path, help="folder for the figures, below that of the page")
    options = parser.parse_args(argv)
    try:
        content = read_results(options.results)
        pictures = (
            {} if options.images is None else _drawn(Results(options.results.parent, content, {}), options.images)
        )
        text = as_markdown(build_report(content, pictures), pictures)
    except ValueError as error:
        complain(f"{parser.prog}: error: {error}")
        return 2
    sys.stdout.buffer.write(text.encode())
    return 0


def _drawn(results: Results, images: Path) -> dict[str, RenderedPicture]:
    """Draw the figures; their paths are relative to the folder above `images`."""
    pictures = {}
    for name, (png, alt, caption) in draw_pngs(results).items():
        target = images / f"reproduction-{name}.png"
        target.write_bytes(png)
        pictures[name] = RenderedPicture(f"{images.name}/{target.name}", alt, caption)
    return pictures


if __name__ == "__main__":
    sys.exit(main())
