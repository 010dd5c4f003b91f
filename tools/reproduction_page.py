"""Print docs/reproduction.md for a results.json: ``python -m tools.reproduction_page reproduction/results.json``.

It is the report of ``rkdl reproduce`` in Markdown. With ``--images`` its figures are copied from the results' folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rkdl._reproduction.plots import captions
from rkdl._reproduction.render import RenderedPicture, as_markdown
from rkdl._reproduction.report import build_report
from rkdl._reproduction.store import figure_names, read_results
from rkdl._reproduction.terminal import complain


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reproduction_page", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("results", type=Path, help="results.json of rkdl reproduce")
    parser.add_argument("--images", type=Path, help="folder for copies of the figures, below that of the page")
    options = parser.parse_args(argv)
    try:
        content = read_results(options.results)
        pictures = {} if options.images is None else _copied(content, options.results.parent, options.images)
        text = as_markdown(build_report(content, pictures), pictures)
    except ValueError as error:
        complain(f"{parser.prog}: error: {error}")
        return 2
    sys.stdout.buffer.write(text.encode())
    return 0


def _copied(content: dict, folder: Path, images: Path) -> dict[str, RenderedPicture]:
    """Copy the figures; their paths are relative to the folder above `images`."""
    pictures = {}
    for name, (alt, caption) in captions(content).items():
        source = folder / figure_names(name)[0]
        if source.is_file():
            target = images / f"reproduction-{name}.png"
            shutil.copyfile(source, target)
            pictures[name] = RenderedPicture(f"{images.name}/{target.name}", alt, caption)
    return pictures


if __name__ == "__main__":
    sys.exit(main())
