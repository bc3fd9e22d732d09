"""Pieces that the tests of ``prime-dali augment`` share: sources, and readers of what it leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage.data import astronaut

import prime_dali

COMMAND = [sys.executable, "-c", "import sys; from prime_dali.cli import main; sys.exit(main(sys.argv[1:]))", "augment"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Four pictures of several kinds and sizes; their numbers are 0 to 3, in this order."""
    folder = tmp_path / "photos"
    (folder / "cat" / "deep").mkdir(parents=True)
    (folder / "dog").mkdir()
    picture = Image.fromarray(astronaut())
    picture.resize((60, 40)).save(folder / "cat" / "a b.JPEG", quality=95)
    picture.convert("L").resize((33, 47)).save(folder / "cat" / "deep" / "gray.png")
    picture.convert("CMYK").resize((40, 40)).save(folder / "dog" / "a b.jpg")
    picture.resize((24, 8)).save(folder / "dog" / "z.0.bmp")
    (folder / "dog" / "notes.txt").write_text("no picture")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "files.jsonl").read_text("utf-8").splitlines()]


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def augmented(image: np.ndarray, number: int, copy: int, seed: int = 0, preset: str = "imagenet") -> np.ndarray:
    """By the public functions alone."""
    plan = prime_dali.sample(preset, np.array([number]), size=image.shape[:2], seed=seed, epoch=copy)
    return prime_dali.arrays.apply(image[None], plan, layout="NHWC")[0]


def write_cifar(folder: Path, classes: int, images: np.ndarray, labels: np.ndarray) -> Path:
    """Class folders: what read_cifar takes for any number of classes."""
    for part, count in (("train", len(images)), ("test", classes)):
        for i in range(classes):
            (folder / part / f"kind{i:02d}").mkdir(parents=True, exist_ok=True)
        for i, (image, label) in enumerate(zip(images[:count], labels, strict=False)):
            Image.fromarray(image).save(folder / part / f"kind{label:02d}" / f"{i:03d}.png")
    return folder
