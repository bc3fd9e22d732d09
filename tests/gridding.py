"""Pieces that the tests of grids of runs share: a small CIFAR, settings of small runs, a grid of two."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from prime_dali.experiments import command

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")


TINY = [
    "network=shufflenet_v2_x0_5",
    "stem=imagenet",
    "compile=false",
    "batch=20",
    "log_every=1",
    "save_minutes=0",
    "device=cpu",
]


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs cut into squares, in CIFAR-10's binary layout: 100 training and 20 test images."""
    skimage = pytest.importorskip("skimage", reason="scikit-image is not installed")
    folder = tmp_path_factory.mktemp("cifar")
    photo = Image.fromarray(skimage.data.astronaut()).resize((12 * 32, 10 * 32))
    tiles = np.asarray(photo).reshape(10, 32, 12, 32, 3).transpose(2, 0, 4, 1, 3).reshape(120, -1)
    records = np.concatenate([np.tile(np.arange(10, dtype=np.uint8), 12)[:, None], tiles], 1)
    records[:20].tofile(folder / "test_batch.bin")
    for i, part in enumerate(np.array_split(records[20:], 5), 1):
        part.tofile(folder / f"data_batch_{i}.bin")
    return folder


def options(module: ModuleType, *words: object) -> argparse.Namespace:
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    return command.parser(name).parse_args([str(word) for word in words])


GRID = "vary: {primitives: [[], [color]]}\n"


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def table(folder: Path, name: str = "ablation") -> dict[str, dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return {f"{row['run']} {row['source']}": row for row in csv.DictReader(file)}
