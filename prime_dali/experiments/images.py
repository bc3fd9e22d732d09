"""Clean images, and their corruptions, which are made in memory or read from a benchmark."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from .. import _arguments
from .._files import shown
from ..data.cifar import Cifar, read_cifar
from ..data.folders import find
from ..data.pictures import open_picture, sha256
from ..evaluation import benchmarks, corruptions, image_sets
from ..evaluation.loading import load
from ..evaluation.names import SEVERITIES
from ..evaluation.photographs import jpeg_name, read_224

Part = tuple[str, int]
"""A corruption at a severity."""


@dataclass(frozen=True)
class Photos:
    """Photographs as for ImageNet-C: shorter side 256, center 224 x 224."""

    files: Sequence[Path]
    root: Path | None
    """The folder of all photographs; None: they were named individually."""
    kind = "imagenet"
    benchmark = "ImageNet-C"

    @classmethod
    def of(cls, folder: Path) -> Photos:
        """All photographs in a folder and its subfolders; FileNotFoundError if there are none."""
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: expected a folder of photographs, got none")
        return cls(find([folder]), folder)

    def __len__(self) -> int:
        return len(self.files)

    def name(self, number: int) -> str:
        """Path, within the folder if there is one."""
        path = self.files[number]
        return str(path if self.root is None else path.relative_to(self.root))

    def digest(self, numbers: Sequence[int]) -> str:
        """SHA-256 of the SHA-256 of these files."""
        return hashlib.sha256("".join(sha256(self.files[number]) for number in numbers).encode()).hexdigest()

    def label(self, number: int) -> str:
        """Name of the class folder; empty for a photograph in none."""
        folder = self.files[number].parent
        return "" if self.root in (None, folder) else folder.name

    def read(self, number: int) -> NDArray[np.uint8]:
        """RGB ``[224, 224, 3]``; PhotoError for a file that is not an image."""
        return read_224(self.files[number])

    def corrupted(self, folder: Path, parts: Sequence[Part]) -> Source:
        """ImageNet-C that was made from these images; errors as for :meth:`Corruptions.of`."""
        _check_complete(folder, [f"{name}/{s}" for name, s in parts if not (folder / name / str(s)).is_dir()])
        return _FromFiles(self, folder)


@dataclass(frozen=True)
class CifarImages:
    """A part of CIFAR."""

    data: Cifar
    kind = "cifar"

    @property
    def benchmark(self) -> str:
        """What the set of their corruptions is called."""
        return f"CIFAR-{len(self.data.classes)}-C"

    def __len__(self) -> int:
        return len(self.data.images)

    def name(self, number: int) -> str:
        """The number."""
        return str(number)

    def digest(self, numbers: Sequence[int]) -> str:
        """SHA-256 of these images."""
        return hashlib.sha256(self.data.images[list(numbers)].tobytes()).hexdigest()

    def label(self, number: int) -> str:
        """Name of the class."""
        return self.data.classes[self.data.labels[number]]

    def read(self, number: int) -> NDArray[np.uint8]:
        """RGB ``[32, 32, 3]``."""
        return self.data.images[number]

    def corrupted(self, folder: Path, parts: Sequence[Part]) -> Source:
        """CIFAR-C that was made from these images; errors as for :meth:`Corruptions.of`."""
        found = benchmarks.cifar_corrupted(folder, len(self.data.classes))
        _check_complete(folder, [f"{name} {s}" for name, s in parts if s not in found.severities.get(name, ())])
        if not np.array_equal(found.read(*parts[0]).labels, self.data.labels):
            raise ValueError(f"{folder}: expected the {len(self)} images of CIFAR's test part, got other labels")
        return _FromArrays(found)


Images = Photos | CifarImages


def images_of(folder: Path | None, cifar: Sequence[str] | None, *, train: bool = True) -> Images:
    """The images that the options name: a folder of photographs, or (classes, folder) of CIFAR, its training part or
    its test part.

    Raises:
        ValueError: Both or neither is given; not 10 or 100 classes.
        FileNotFoundError, ValueError: As :meth:`Photos.of` and :func:`prime_dali.data.cifar.read_cifar`.
    """
    if (folder is None) == (cifar is None):
        raise ValueError("images: expected a folder of photographs or --cifar, and not both")
    if folder is not None:
        return Photos.of(folder)
    assert cifar is not None
    if cifar[0] not in ("10", "100"):
        raise ValueError(f"cifar: expected 10 or 100 and a folder, got {cifar[0]!r}")
    return CifarImages(read_cifar(cifar[1], int(cifar[0]), train=train))


class Source(Protocol):
    """Where corrupted images come from."""

    mapped: bool
    """Whether they are in mapped files, so that more processes are no faster."""

    def read(self, number: int, parts: Sequence[Part]) -> NDArray[np.uint8]:
        """An image under each of these corruptions: RGB ``[len(parts), H, W, 3]``; errors as
        :meth:`Corruptions.read`."""
        ...


@dataclass(frozen=True)
class _Made:
    """Made in memory."""

    images: Images
    seed: int
    mapped = False

    def read(self, number: int, parts: Sequence[Part]) -> NDArray[np.uint8]:
        image, kind = self.images.read(number), self.images.kind
        return np.stack([corruptions.one(kind, image, *part, seed=self.seed, number=number) for part in parts])


@dataclass(frozen=True)
class _FromFiles:
    """Files ``<corruption>/<severity>/<photograph>``."""

    images: Photos
    folder: Path
    mapped = False

    def read(self, number: int, parts: Sequence[Part]) -> NDArray[np.uint8]:
        return np.stack([self._file(*part, number) for part in parts])

    def _file(self, name: str, severity: int, number: int) -> NDArray[np.uint8]:
        path = self.folder / name / str(severity) / jpeg_name(Path(self.images.name(number)))
        if not path.exists():
            raise FileNotFoundError(
                f"{shown(path)}: expected the corrupted {shown(self.images.name(number))}, no such file"
            )
        pixels = np.asarray(open_picture(path))
        if pixels.shape[:2] != (benchmarks.SIDE, benchmarks.SIDE):
            raise ValueError(f"{path}: expected {benchmarks.SIDE} x {benchmarks.SIDE} pixels, got {pixels.shape[:2]}")
        return pixels


@dataclass(frozen=True)
class _FromArrays:
    """The arrays of CIFAR-C."""

    benchmark: benchmarks.Corrupted[image_sets.Arrays]
    mapped = True

    def read(self, number: int, parts: Sequence[Part]) -> NDArray[np.uint8]:
        return np.stack([self.benchmark.read(*part).images[number] for part in parts])


@dataclass(frozen=True)
class Corruptions:
    """Corrupted images: made in memory, or read from a benchmark that was made from the same images."""

    images: Images
    names: Sequence[str]
    severities: Sequence[int]
    source: Source

    @classmethod
    def of(
        cls,
        images: Images,
        names: Sequence[str] | None,
        severities: Sequence[int],
        seed: int,
        folder: Path | None = None,
    ) -> Corruptions:
        """Checked, in the order of the tables, without duplicates; ``names`` None: the fifteen.

        Raises:
            ValueError: An unknown corruption or severity; one that ``folder`` lacks; a benchmark of other images.
            FileNotFoundError: No such folder.
            ImportError: ``frost`` without its textures.
        """
        known = [*corruptions.STRENGTHS[images.kind, "c"], *corruptions.STRENGTHS[images.kind, "c-bar"]]
        wanted = names or corruptions.main_names(images.kind, "c")
        for name in wanted:
            _arguments.one_of("corruption", name, known)
        for severity in severities:
            _arguments.integer("severity", severity, SEVERITIES[0], SEVERITIES[-1])
        _arguments.integer("seed", seed, 0, 2**63 - 1)
        ordered, levels = sorted(set(wanted), key=known.index), sorted(set(severities))
        if folder is not None:
            return cls(images, ordered, levels, images.corrupted(folder, _parts(ordered, levels)))
        corruptions.require(ordered)
        return cls(images, ordered, levels, _Made(images, seed))

    def read(self, number: int) -> NDArray[np.uint8]:
        """The image under each corruption at each severity: RGB ``[corruptions * severities, H, W, 3]``.

        Raises:
            FileNotFoundError, PhotoError, ValueError: A file is not there or not what it should be; it is named.
        """
        return self.source.read(number, _parts(self.names, self.severities))


def _parts(names: Sequence[str], severities: Sequence[int]) -> list[Part]:
    return [(name, severity) for name in names for severity in severities]


def _check_complete(folder: Path, lacking: Sequence[str]) -> None:
    if lacking:
        raise ValueError(f"{folder}: expected all corruptions and severities, missing: {', '.join(lacking[:5])}")


class _Pairs(Dataset[tuple[torch.Tensor, torch.Tensor, str]]):
    """Clean image, corrupted ones, and an error message: an exception would carry the worker's whole traceback."""

    def __init__(self, corrupted: Corruptions, numbers: Sequence[int]) -> None:
        self.corrupted, self.numbers = corrupted, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        try:
            clean = self.corrupted.images.read(self.numbers[place])
            corrupted = self.corrupted.read(self.numbers[place])
        except (OSError, ValueError) as error:
            return torch.empty(0), torch.empty(0), str(error)
        return torch.tensor(clean).permute(2, 0, 1), torch.from_numpy(corrupted).permute(0, 3, 1, 2), ""


def pairs(corrupted: Corruptions, numbers: Sequence[int], workers: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of each number in order: clean image ``[3, H, W]`` and corrupted ones ``[C, 3, H, W]``, both uint8.

    Raises:
        ValueError: A file is not there or not what it should be; the message names it.
    """
    if corrupted.source.mapped:
        workers = 0
    side, changes = corruptions.SIDES[corrupted.images.kind], len(corrupted.names) * len(corrupted.severities)
    item_bytes = 3 * side**2 * (1 + changes)
    with _one_thread() if workers else contextlib.nullcontext():
        for clean, changed, error in load(_Pairs(corrupted, numbers), item_bytes, None, workers):
            if error:
                raise ValueError(error)
            yield clean, changed


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """OpenCV works in one thread, also in processes that are forked within: there it would wait forever for threads
    that only this process has, if it were told so."""
    import cv2

    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)
