"""The numbers of README.md and docs/ are those of the files in benchmarks/results."""

from __future__ import annotations

import importlib
import json
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


def test_peers_come_from_a_file(pages: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ratios, what one draw serves, who failed and who was not installed; without a file no number."""
    import page_blocks
    import result_files

    monkeypatch.setattr(page_blocks, "RESULTS", tmp_path)
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    assert page_blocks.peers() == "To compare on your GPU: `python benchmarks/throughput.py --device cuda --batch 256 --json h200_peers.json`."  # fmt: skip
    assert not re.search(r"\d images", page_blocks.loader())
    facts = {"cpu": "a processor", "versions": "torch 9", "date": "2026-11-29T00", "command": "python b.py"}
    rows = [
        {"name": "prime", "median": 4000.0, "draws": "per image", "error": ""},
        {"name": "copy", "median": 90000.0, "draws": "", "error": ""},
        {"name": "trivial-batch", "median": 1000.0, "draws": "per batch", "error": ""},
        {"name": "dali-rand", "median": None, "draws": "per image", "error": "RuntimeError: why"},
    ]
    missing = {"triton": "triton_augment is not installed: pip install triton-augment"}
    content = {**facts, "gpu": "a card", "settings": {"missing": missing}, "results": rows}
    (tmp_path / "h200_peers.json").write_text(json.dumps(content))
    shown = page_blocks.peers()
    assert "| `prime` | per image | 4,000 | 1.00 |\n| `trivial-batch` | per batch | 1,000 | 4.00 |" in shown
    assert "| `dali-rand` | per image | failed: RuntimeError: why | |" in shown
    assert "Not measured: `triton` (triton_augment is not installed: pip install triton-augment)." in shown
    assert "- `trivial-batch`: torchvision v2.TrivialAugmentWide on the whole batch" in shown
    assert "copy`" not in shown
    for name, rate in (("cpu_loader", 100.0), ("cpu_loader_decoded", 250.0)):
        one = {
            **facts,
            "settings": {"workers": 16},
            "results": [{"name": "prime", "median": rate, "rates": [90, rate]}],
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    assert "| `prime` | 100 | 250 |" in page_blocks.loader()
    assert "16 workers" in page_blocks.loader()
    assert "differ by 10 to 64 %" in page_blocks.loader()


def reported_lines(name: str) -> dict[str, list[str]]:
    """The cells of the tables of a report, by their first one."""
    text = (ROOT / "benchmarks" / "results" / f"{name}.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {f"{row[0]} {row[1]}" if row[1] == "measured" else row[0]: row for row in reversed(rows)}


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("name", ["cost", "similarity"])
def test_plots_show_the_numbers_of_the_reports(name: str) -> None:
    """A file that was transcribed from a report has its numbers."""
    content, lines = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text()), reported_lines(name)
    assert f"{name}.md" in content["transcribed"]
    found: dict[str, list[str]] = {}
    if name == "similarity":
        titles = {"clean": "Clean", "augmix": "AugMix", "prime": "PRIME"}
        for method, row in content["measured"].items():
            title = titles.get(method, f"{titles.get(method.split('-')[0])}, no mixing")
            found[f"{title} measured"] = [f"{1000 * row[key]:.2f}" for key in ("mean", "median", "p5", "p75")]
    else:
        for row in content["methods"]:
            found[row["method"]] = [
                f"{row['s an epoch']:.2f}",
                f"{row['images/s']:,.0f}",
                f"{row['over standard']:.3f}",
            ]
    assert len(found) >= 5
    for key, cells in found.items():
        assert set(cells) <= set(lines[key]), key
