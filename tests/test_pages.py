"""The numbers of README.md and docs/ are those of the files in benchmarks/results."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    folder = str(ROOT / "benchmarks")
    if not Path(folder).is_dir():
        pytest.skip("the benchmarks are not here")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("pages")
    finally:
        sys.path.remove(folder)


def test_every_block_is_as_the_files_say(pages: ModuleType) -> None:
    shown = set()
    for page in pages.PAGES:
        text = (ROOT / page).read_text()
        assert pages.stale(text) == [], "python benchmarks/pages.py writes what the files say"
        shown |= {found[1] for found in pages.BLOCK.finditer(text)}
    assert shown == set(pages.BLOCKS)


@pytest.mark.parametrize("name", ["main-table", "gpu", "step"])
def test_a_number_changed_by_hand_is_found(pages: ModuleType, name: str) -> None:
    (text,) = {found[0] for page in pages.PAGES for found in pages.BLOCK.finditer((ROOT / page).read_text())
               if found[1] == name}  # fmt: skip
    assert pages.stale(text) == []
    changed, count = re.subn(r"(\d)(\.\d)", lambda found: f"{(int(found[1]) + 1) % 10}{found[2]}", text, count=1)
    assert count == 1
    assert pages.stale(changed) == [name]


def test_an_unknown_block(pages: ModuleType) -> None:
    with pytest.raises(KeyError, match="no-such"):
        pages.filled("<!-- numbers: no-such -->\n<!-- end -->")
