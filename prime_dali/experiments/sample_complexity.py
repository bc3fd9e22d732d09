"""``prime-dali analyze sample-complexity``: offline augmentation with k copies, compared with online augmentation."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _arguments, _plots
from .._states import Kind
from . import grid_plots, grids
from .grid_file import PRIME_ALONE, Reported, Run
from .grid_tables import Row

FRESH = "fresh"

# Section "Sample complexity": ResNet-18, no JSD; by k.
REPORTED = {
    1: (Reported("ImageNet-100", {"corrupted": 65.0}),),
    4: (Reported("CIFAR-10", {"corrupted": 88.8}), Reported("ImageNet-100", {"corrupted": 67.2})),
}


def build(base: Mapping[str, Any], content: Mapping[str, Any]) -> Sequence[Run]:
    """A run per folder of copies, and one with online augmentation.

    The copies are files, not made in memory, as in the paper: they are made once, before the crops, so that their
    crops and flips differ from epoch to epoch while PRIME's draws do not. A run on k copies and
    the clean images takes ``epochs / (k + 1)`` epochs, rounded to whole ones, which is as many steps.

    Raises:
        TypeError, ValueError: There are no folders, or a k is not a number of copies.
    """
    folders = content.get("copies")
    if not isinstance(folders, dict) or not folders:
        raise ValueError(
            f"copies: expected training folders by number of copies, got {folders!r} (--copies K=DIR ..., each with "
            "the clean training images and K copies of each by PRIME)"
        )
    epochs = _arguments.integer("epochs", base.get("epochs", 100), 1, 10**6)
    runs = []
    for k in sorted(folders, key=lambda k: _arguments.integer("copies", k, 1, 1000)):
        _check_manifest(Path(folders[k]), k)
        settings = {"method": "standard", "data": str(folders[k]), "epochs": max(1, round(epochs / (k + 1)))}
        runs.append(Run(f"k={k}", settings, REPORTED.get(k, ()), x=k))
    return [*runs, Run(FRESH, {"method": "prime"}, tuple(PRIME_ALONE.values()))]


def _check_manifest(folder: Path, k: int) -> None:
    """Check that a folder made by ``prime-dali augment`` has ``k`` copies."""
    manifest = folder / "manifest.json"
    kind = Kind({}, "a manifest of prime-dali augment", "put back a copy of it")
    made = kind.read_json(manifest).get("copies", k) if manifest.is_file() else k
    if made != k:
        raise ValueError(f"copies: expected a folder with {k} of each image, got {folder} with {made}")


def notes(rows: Sequence[Row]) -> list[str]:
    """The paper's statement on clean images, and the meaning of k."""
    return [
        "k: offline copies of each training image; trained on them and the clean images, for 1/(k + 1) of the epochs",
        "clean accuracy, reported: roughly constant, around 93.4 % on CIFAR-10 and around 87 % on ImageNet-100",
    ]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Plot what was measured: clean and corruption accuracy by k, with online augmentation as a dashed line."""
    done = [row for row in rows if row.measured and row.scores]
    offline = sorted((row for row in done if row.x is not None), key=lambda row: row.x or 0)
    with _plots.plot(path, 4.8) as figure:
        (top, _), (bottom, _) = both = grid_plots.panels(figure)
        for axes, column in both:
            about = "offline: k copies of each image, and the clean image"
            grid_plots.draw_line(axes, offline, column, "x", label=about, **_plots.series_style(0))
            for row in (row for row in done if row.run == FRESH and column in row.scores):
                value, spread = row.scores[column], row.spread.get(column, 0)
                label = "online: new draws in every epoch"
                axes.axhline(value, color=_plots.COLORS[1], linestyle="--", label=label)
                axes.axhspan(value - spread, value + spread, color=_plots.COLORS[1], alpha=0.15, linewidth=0)
        bottom.set_xticks([row.x for row in offline if row.x is not None])
        bottom.set(xlabel="k, offline copies of each training image")
        top.set_title(grid_plots.heading(rows))
        _plots.legend(figure, bottom)


ANALYSIS = grids.Analysis(
    name="sample-complexity",
    own={"copies": "training folders by number of copies"},
    base={"jsd": False},
    build=build,
    draw=draw,
    notes=notes,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    grids.add_arguments(parser, ANALYSIS)
    parser.add_argument(
        "--copies", nargs="+", action="extend", metavar="K=DIR", help="a training folder with K copies of each image"
    )


def run(options: argparse.Namespace) -> None:
    """Run the grid; errors as :func:`grids.run`."""
    grids.run(ANALYSIS, options, _copies(options.copies))


def _copies(words: Sequence[str] | None) -> dict[str, Any]:
    if not words:
        return {}
    out: dict[int, str] = {}
    for word in words:
        k, equals, folder = word.partition("=")
        if not equals or not k.isdecimal() or not folder:
            raise ValueError(f"copies: expected K=DIR, got {word!r}")
        if int(k) in out:
            raise ValueError(f"copies: expected one folder for each K, got two for {k}: {out[int(k)]} and {folder}")
        out[int(k)] = folder
    return {"copies": out}
