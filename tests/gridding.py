"""Pieces that the tests of grids of runs share: a small CIFAR, settings of small runs, a grid of two."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from types import ModuleType

import pytest

from prime_dali.experiments import command

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from training import save_cifar

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
    """100 training and 20 test images."""
    return save_cifar(tmp_path_factory.mktemp("cifar"), 100, 20)


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
