"""Pieces that the tests of pipelines and of the loader share: photographs, whole and damaged, and what reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DALI_GPU, make_images
from PIL import Image

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

from nvidia.dali import fn

from prime_dali.dali import (
    Augmentation,
    CenterCrop,
    Execution,
    ImagePipeline,
    Loader,
    Output,
    RandomCrop,
    Reader,
    Source,
    train_pipeline,
    val_pipeline,
)
from prime_dali.data.folders import image_folder

COUNT, CLASSES = 11, 3
SIZE = (16, 24)


@pytest.fixture(params=["cpu", DALI_GPU])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def picture(height: int = 40, width: int = 60, seed: int = 0) -> Image.Image:
    return Image.fromarray(make_images(1, height, width, torch.uint8, seed=seed)[0].permute(1, 2, 0).numpy())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """11 photographs of different sizes in 3 classes of 4, 4 and 3; in one class, in a folder below it."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(COUNT):
        place = root / "abc"[i // 4] / ("below" if i // 4 == 1 else "")
        place.mkdir(parents=True, exist_ok=True)
        picture(40 + i, 60 - i, seed=i).save(place / f"{i:02d}.jpg")
    (root / "a" / "notes.txt").write_text("not an image, and not named like one")
    return root


def made(function: Callable[..., ImagePipeline], data: Path | Source | None, **settings) -> ImagePipeline:
    """A pipeline of settings by name, each put into the group that has it."""
    groups = {"data": Reader, "output": Output, "execution": Execution}
    groups |= {"prime": Augmentation, "crop": RandomCrop} if function is train_pipeline else {"crop": CenterCrop}
    given = {}
    for argument, kind in groups.items():
        own = {field.name: settings.pop(field.name) for field in fields(kind) if field.name in settings}
        if own:
            given[argument] = kind(**({"folder": data} if kind is Reader else {}), **own)
    return function(**({"data": data} | given | settings))


def train(data: Path | Source | None, device: str = "cpu", on_error: str = "raise", **settings) -> Loader:
    settings = {"config": "cifar", "batch_size": 4, "size": SIZE, "seed": 5, "num_threads": 2} | settings
    return Loader(made(train_pipeline, data, device=device, **settings), on_error=on_error)


def validate(data: Path | Source | None, device: str = "cpu", on_error: str = "raise", **settings) -> Loader:
    settings = {"batch_size": 4, "size": SIZE} | settings
    return Loader(made(val_pipeline, data, device=device, **settings), on_error=on_error)


def by_number(batches: Sequence) -> dict[int, np.ndarray]:
    """Each image by its number; views one below another. Where one comes twice it must be the same."""
    found = {}
    for images, _, indices in batches:
        views = images if isinstance(images, tuple) else (images,)
        for i, number in enumerate(indices.tolist()):
            image = np.concatenate([view[i].cpu().numpy() for view in views])
            np.testing.assert_array_equal(image, found.setdefault(number, image))
    return found


def assert_same(batches: Sequence, expected: Sequence) -> None:
    assert len(batches) == len(expected)
    for one, other in zip(batches, expected, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.indices, other.indices)


def reader(folder: Path, indexed: bool, decoded: bool = False) -> Callable:
    files, _, _ = image_folder(folder)

    def source():
        encoded, number = fn.readers.file(files=files, labels=list(range(COUNT)), random_shuffle=True, name="files")
        images = fn.decoders.image(encoded) if decoded else encoded
        return images, number // 4, number if indexed else None

    return source


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def gray(scale: int, dtype: type, path: Path, kind: str) -> None:
    Image.fromarray(np.asarray(picture().convert("L")).astype(dtype) * scale).save(path, kind)


ODD: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: cut(path, path.stat().st_size // 2),
    "cut in the header": lambda path: cut(path, 100),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("this is no photograph\n" * 20),
    "missing": lambda path: path.unlink(),
    "CMYK": lambda path: picture().convert("CMYK").save(path),
    "grayscale": lambda path: picture().convert("L").save(path),
    "palette": lambda path: picture().convert("P").save(path),
    "16-bit": lambda path: gray(257, np.uint16, path, "PNG"),
    "floats": lambda path: gray(1, np.float32, path, "TIFF"),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "1x1": lambda path: picture().resize((1, 1)).save(path),
    "1x1 png": lambda path: picture().resize((1, 1)).save(path),
    "wide": lambda path: picture(10, 60).resize((20000, 10)).save(path),
}
"""By kind: what makes a photograph such a file."""


def damaged(kind: str, path: Path) -> Path:
    """A file of this kind; its name is returned, with the suffix that goes with it."""
    path = path.with_suffix(".png" if kind in ("palette", "1x1 png") else ".jpg")
    picture().save(path)
    ODD[kind](path)
    return path


BROKEN = ["truncated", "cut in the header", "empty", "text", "missing"]
REFUSED = ["16-bit", "floats", "pipe", "folder"]


@pytest.fixture(params=["train", "val"])
def make(request: pytest.FixtureRequest) -> Callable[..., Loader]:
    def make(device: str, files: list[Path], on_error: str = "raise", **arguments) -> Loader:
        arguments = {"files": files, "labels": list(range(len(files))), "batch_size": 2} | arguments
        if request.param == "train":
            arguments = {"area": (1, 1), "ratio": (1.5, 1.5)} | arguments  # no crop can miss what is broken
            return train(None, device, on_error, last_batch="partial", **arguments)
        return validate(None, device, on_error, resize=24, **arguments)

    make.training = request.param == "train"
    return make


@pytest.fixture
def good(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"good{i}.jpg" for i in range(5)]
    for i, file in enumerate(files):
        picture(seed=i).save(file)
    return files
