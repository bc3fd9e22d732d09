"""Pieces that the tests of training runs share: a small CIFAR, a small network, and runs of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("torchvision", reason="torchvision is not installed")

from prime_dali.training import checkpoint, train
from prime_dali.training.ranks import Ranks
from prime_dali.training.trainer import Trainer

ALONE = Ranks(0, 1, torch.device("cpu"))
TRAIN, TEST = 120, 30


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Here and in the subprocesses: sums depend on the number of threads, and the networks are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(threads)


def save_cifar(folder: Path, train: int, test: int) -> Path:
    """Photographs cut into squares, in CIFAR-10's binary layout; the classes are rows of the photograph."""
    skimage = pytest.importorskip("skimage", reason="scikit-image is not installed")
    photo = Image.fromarray(skimage.data.astronaut()).resize((20 * 32, 10 * 32))
    tiles = np.asarray(photo).reshape(10, 32, 20, 32, 3).transpose(2, 0, 4, 1, 3).reshape(200, 3, 32, 32)
    labels = np.tile(np.arange(10), 20)
    records = np.concatenate([labels[:, None].astype(np.uint8), tiles.reshape(200, -1)], 1)
    records[:test].tofile(folder / "test_batch.bin")
    for i, part in enumerate(np.array_split(records[test : test + train], 5), 1):
        part.tofile(folder / f"data_batch_{i}.bin")
    return folder


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_cifar(tmp_path_factory.mktemp("cifar"), TRAIN, TEST)


NETWORK = "shufflenet_v2_x0_5"
SMALL = f"--network {NETWORK} --stem imagenet --no-compile --batch 20 --epochs 3 --log-every 2".split()


def settings(cifar: Path, out: Path, *more: str) -> list[str]:
    return ["--data", str(cifar), "--out", str(out), *SMALL, "--device", "cpu", *more]


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in checkpoint.read_log(folder) if "loss" in line]


def wait_for_a_loss(folder: Path) -> None:
    while not (folder / "log.jsonl").exists() or not losses(folder):
        time.sleep(0.005)


def run(cifar: Path, out: Path, *more: str) -> Trainer:
    trainer = Trainer(train.read(settings(cifar, out, *more)), ALONE, lambda line: None)
    trainer.run()
    return trainer


@pytest.fixture(scope="module")
def whole(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without an interruption."""
    out = tmp_path_factory.mktemp("whole")
    run(cifar, out, "--jsd")
    return out
