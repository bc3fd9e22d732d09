"""Finished runs of other grids, which a grid with the same settings takes over."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._files import replacing
from ..data.cifar import read_cifar
from ..training.config import TrainConfig
from . import grid_file
from .grid_file import Grid, Run


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
        for path in sorted(folder.glob(f"*/{grid_file.FINISHED}")):
            if content := grid_file.finished(path.parent):
                others[path.parent] = content
    found = {}
    for one in chosen:
        config = grid.config(one)  # a setting that is none is an error here too
        if not others or (grid.out / one.name / grid_file.FINISHED).exists() or "data" in one.settings:
            continue
        for folder, content in others.items():
            if grid_file.same(content, config.plain(), grid.evaluate) and _same_images(config, content):
                found[one.name] = folder
                break
    return found


def take_over(grid: Grid, chosen: Sequence[Run], known: Sequence[Path]) -> None:
    """Copy what the runs of :func:`find` have left; errors as there."""
    for name, folder in find(grid, chosen, known).items():
        with replacing(grid.out / name / grid_file.FINISHED) as aside:
            aside.write_bytes((folder / grid_file.FINISHED).read_bytes())
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
    return own is None or bool(np.allclose(own, known, rtol=0, atol=1e-6))
