"""What a finished run of a grid leaves, and the finished runs of other grids that a grid takes over."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._files import replacing, write_text
from .._states import Interval, Kind
from ..data.cifar import read_cifar
from ..evaluation.results import SETS
from ..training.config import TrainConfig, differences
from .grid_file import FOLDERS, RENAMED, Grid, Run

FILE = "finished.json"
KIND = Kind(
    {"settings": dict, "evaluate": dict, "means": (None, [float]), "seconds": Interval(0, math.inf), "steps": int,
     "jobs": int, "results": {"settings": {"hardware": str, "precision": str}, "versions": dict, "sets": SETS}},
    "what a finished run of a grid leaves", "remove it, and the run is evaluated again",
)  # fmt: skip
_FREE = ("device", "workers", "batch")

PUBLISHED = {
    "cifar10": (125.306918046875, 122.950394140625, 113.86538318359375),
    "cifar100": (129.30416560546874, 124.0699626953125, 112.43405005859375),
}
"""By data set, :func:`means` of the published training images; they do not depend on their order."""


def write(grid: Grid, run: Run, jobs: int) -> None:
    """Write what tables need of a run that was trained and evaluated while up to ``jobs`` runs shared its device."""
    from ..training import checkpoint  # here, because it takes seconds: for torch

    folder = grid.out / run.name
    trained = checkpoint.load(folder)
    assert trained is not None  # the evaluation read it
    content = {
        "settings": grid.lasting(run), "evaluate": evaluated(grid.evaluate), "means": means(grid.config(run)),
        "seconds": trained["run"]["seconds"], "steps": trained["run"]["step"], "jobs": jobs,
        "first_step_counts": False,  # tables say so of files without this key
        "results": _portable(json.loads((folder / "evaluation" / "results.json").read_bytes())),
    }  # fmt: skip
    write_text(folder / FILE, json.dumps(content) + "\n")


def _portable(results: dict[str, Any]) -> dict[str, Any]:
    """An evaluation's results, without what the settings contain and without local paths."""
    for what, names in (("classifier", ("source", "config")), ("settings", ("folders",))):
        results[what] = {name: value for name, value in results[what].items() if name not in names}
    for content in results["sets"].values():
        if "folder" in content:
            content["folder"] = Path(content["folder"]).name
        if content.get("manifest"):
            content["manifest"]["source"].pop("path", None)
    return results


def read(folder: Path) -> dict[str, Any] | None:
    """Read what a finished run has left in its folder: settings, evaluation options, cost, results; None: nothing.

    Raises:
        ValueError: The file is damaged; the message names it and the key.
    """
    path = folder / FILE
    if not path.exists():
        return None
    content: dict[str, Any] = KIND.read_json(path)
    content["evaluate"] = {RENAMED.get(name, name): value for name, value in content["evaluate"].items()}
    return content


def evaluated(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that affect the numbers of an evaluation; of folders only whether they are given."""
    return {name: True if name in FOLDERS else value for name, value in options.items() if name not in _FREE}


def same(content: Mapping[str, Any], settings: Mapping[str, Any], evaluate: Mapping[str, Any]) -> bool:
    """Whether a finished run had these settings and this evaluation."""
    return content["evaluate"] == evaluated(evaluate) and not differences(content["settings"], settings)


def find(grid: Grid, chosen: Sequence[Run], known: Sequence[Path]) -> dict[str, Path]:
    """The folders of other grids' finished runs, by the names of runs with the same settings and evaluation.

    Data are compared by CIFAR's means, where the folder is here; a run that is finished, or that has data of its own,
    is never taken over.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: The file of a run there is damaged.
    """
    others = {}
    for folder in known:
        if not folder.is_dir():
            raise FileNotFoundError(f"known: no such folder: {folder}")
        for path in sorted(folder.glob(f"*/{FILE}")):
            if content := read(path.parent):
                others[path.parent] = content
    found = {}
    for one in chosen:
        config = grid.config(one)  # a setting that is none is an error here too
        if not others or (grid.out / one.name / FILE).exists() or "data" in one.settings:
            continue
        for folder, content in others.items():
            if same(content, config.plain(), grid.evaluate) and _same_images(config, content):
                found[one.name] = folder
                break
    return found


def take_over(grid: Grid, chosen: Sequence[Run], known: Sequence[Path]) -> None:
    """Copy what the runs of :func:`find` have left; errors as there."""
    for name, folder in find(grid, chosen, known).items():
        with replacing(grid.out / name / FILE) as aside:
            aside.write_bytes((folder / FILE).read_bytes())
        print(f"{name}: as {folder}", flush=True)


def means(config: TrainConfig) -> list[float] | None:
    """Means of CIFAR's training images per channel, of 255; they tell the published images from others."""
    return _means_of(config.data, config.cifar_classes) if config.is_cifar else None


@functools.cache
def _means_of(data: str, classes: int) -> list[float]:
    images = read_cifar(data, classes, train=True).images
    return [float(mean) for mean in images.reshape(-1, 3).mean(0, np.float64)]


def _same_images(config: TrainConfig, content: Mapping[str, Any]) -> bool:
    """Whether a finished run had images with the means of this one's, as far as both are known."""
    known = content.get("means")
    if known is None or not Path(config.data).exists():
        return True
    own = means(config)
    return own is None or _equal(own, known)


def are_published(content: Mapping[str, Any], dataset: str) -> bool:
    """Whether a finished run is known to have had the images of :data:`PUBLISHED`."""
    found = content.get("means")
    return found is not None and _equal(found, PUBLISHED[dataset])


def _equal(these: Sequence[float], those: Sequence[float]) -> bool:
    """Whether these are means of the same images, summed in any order."""
    return bool(np.allclose(these, those, rtol=0, atol=1e-6))
