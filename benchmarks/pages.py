"""Writes the numbers of README.md and docs/ from the files in benchmarks/results.

::

    python benchmarks/pages.py           # rewrites the pages
    python benchmarks/pages.py --check   # names the blocks that differ; exit status 1 if any does

A page has blocks, ``<!-- numbers: NAME -->`` to ``<!-- end -->``, and what stands between is made by the function of
that name in page_blocks.py: in lines of its own, or within a line if both marks are in it. So no number there is typed,
and one that is changed by hand is found.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from page_blocks import BLOCKS

from prime_dali._files import replacing

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/cuda.md", "docs/data.md", "docs/faq.md", "docs/performance.md", "docs/results.md",
         "docs/training.md")  # fmt: skip
BLOCK = re.compile(r"<!-- numbers: ([\w-]+) -->(\n?).*?<!-- end -->", re.DOTALL)


def filled(text: str) -> str:
    """A page with its blocks as the files have them; KeyError for a block that nothing makes."""

    def fill(found: re.Match[str]) -> str:
        around = "\n\n" if found[2] else ""
        return f"<!-- numbers: {found[1]} -->{around}{BLOCKS[found[1]]()}{around}<!-- end -->"

    return BLOCK.sub(fill, text)


def stale(text: str) -> list[str]:
    """The blocks of a page that are not as the files have them."""
    made = {found[1]: found[0] for found in BLOCK.finditer(filled(text))}
    return [found[1] for found in BLOCK.finditer(text) if found[0] != made[found[1]]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args(arguments)
    differ = False
    for page in PAGES:
        text = (ROOT / page).read_text()
        for name in stale(text):
            differ = True
            print(f"{page}: {name} is not what the files in benchmarks/results say", file=sys.stderr)
        if not options.check and filled(text) != text:
            with replacing(ROOT / page) as aside:
                aside.write_text(filled(text))
    return int(differ and options.check)


if __name__ == "__main__":
    raise SystemExit(main())
