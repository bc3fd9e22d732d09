"""Which images a pipeline reads, and in which order: a function of the seed and the batch number, without state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _arguments
from ..data import folders as _folders
from ..data.sampling import permutation
from .settings import Reader


@dataclass(frozen=True)
class EpochSampling:
    """How batches are drawn from a data set; a state can be resumed only with the same settings.

    Raises:
        TypeError, ValueError: The seed or the batch size is invalid.
    """

    seed: int
    shuffle: bool
    batch_size: int
    shard_id: int
    num_shards: int
    last_batch: str

    def __post_init__(self) -> None:
        # Python ints, because states must be serializable in any format.
        object.__setattr__(self, "batch_size", _arguments.integer("batch_size", self.batch_size, 1, 2**20))
        object.__setattr__(self, "seed", _arguments.seed(self.seed))

    def batches(self, images: int) -> int:
        """Batches per epoch of a source with ``images`` images per epoch on this shard."""
        if self.batch_size > images:
            raise ValueError(f"batch_size: expected at most num_images, {images}, got {self.batch_size}")
        return images // self.batch_size if self.last_batch == "drop" else -(-images // self.batch_size)


class Files:
    """A data set of files, the part of it that one shard reads, and the order of each epoch.

    ``files[i]`` is the image with index ``i`` and label ``labels[i]`` (int64). The order of an epoch depends only on
    seed and epoch: each shard computes that of the whole data set and takes every ``num_shards``-th image of it.
    """

    def __init__(self, files: Sequence[str], labels: NDArray[np.int64], sampling: EpochSampling) -> None:
        self.files, self.labels, self.sampling = files, labels, sampling
        self._special = _folders.special(files)
        self.replaced: dict[int, int] = {}  # index of an unreadable file: index of the one read instead
        self._shard: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))  # of the last requested epoch
        self.images = self._share(sampling, len(files))
        self.batches = -(-self.images // sampling.batch_size)

    @staticmethod
    def _share(sampling: EpochSampling, total: int) -> int:
        """How many of ``total`` images this shard reads per epoch."""
        shards, size, last = sampling.num_shards, sampling.batch_size, sampling.last_batch
        if shards > total:
            raise ValueError(f"num_shards: expected at most the number of images, {total}, got {shards}")
        if last == "partial":
            return len(range(sampling.shard_id, total, shards))
        share = total // shards if last == "drop" else -(-total // shards)
        if size > share:
            raise ValueError(
                f"batch_size: expected at most the {share} images of a shard with last_batch={last!r}, got {size}"
            )
        return (share // size if last == "drop" else -(-share // size)) * size

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that must be the same to resume from a state."""
        return {"number of images": len(self.files)} | asdict(self.sampling)

    def batch(self, step: int) -> tuple[NDArray[np.int64], int]:
        """Image indices of batch ``step``, counted from the start of epoch 0, before replacements; and its epoch."""
        epoch, place = divmod(step, self.batches)
        if self._shard[0] != epoch:
            total, sampling = len(self.files), self.sampling
            order = permutation(sampling.seed, epoch, total) if sampling.shuffle else np.arange(total)
            self._shard = epoch, order[(sampling.shard_id + sampling.num_shards * np.arange(self.images)) % total]
        size = self.sampling.batch_size
        return self._shard[1][place * size : (place + 1) * size], epoch

    def feed(
        self, step: int
    ) -> tuple[list[NDArray[np.uint8]], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Batch ``step`` for an external source: paths as bytes, labels, image indices, epochs."""
        numbers, epoch = self.batch(step)
        numbers = np.array([self.replaced.get(n, n) for n in numbers.tolist()], np.int64)
        names = [self.files[n] for n in numbers]
        # Pipes and the like get a slash at the end: opening that fails, whereas opening a pipe would block.
        names = [f"{name}/" if name in self._special else name for name in names]
        paths = [np.frombuffer(os.fsencode(name), np.uint8) for name in names]
        return paths, self.labels[numbers], numbers, np.full(len(numbers), epoch, np.int64)

    def replace(self, broken: Sequence[int]) -> None:
        """From now on read the next good file instead of each of ``broken``.

        Raises:
            ValueError: No good file is left.
        """
        bad = {*self.replaced, *broken}
        if len(bad) == len(self.files):
            raise ValueError(f"files: expected a readable image, got {len(bad)} files, none of which can be decoded")
        for number in bad:
            good = number
            while good in bad:
                good = (good + 1) % len(self.files)
            self.replaced[number] = good


def image_folder(folder: str | os.PathLike[str]) -> tuple[list[str], list[int], list[str]]:
    """Files, labels and class names of a folder with one subfolder per class.

    As in ``torchvision.datasets.ImageFolder``, classes sorted by name have the labels 0, 1, ...; within a class its
    folder and those below it are sorted, so image indices are also the same. Unlike there, hidden files and folders,
    whose names begin with a dot, are skipped.

    Raises:
        ValueError: No such folder, no class folders, a class without images, or a link to one of its parent folders.
        OSError: A folder cannot be listed, or a link instead of a class folder is broken.
    """
    root = os.fspath(folder)
    if not os.path.isdir(root):
        raise ValueError(f"folder: expected a folder with one subfolder per class, got {root!r}, which is not a folder")
    classes = _folders.classes(root)
    if not classes:
        raise ValueError(f"folder: expected one subfolder per class in {root!r}, got none")
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        inside = _folders.pictures(os.path.join(root, name))
        if not inside:
            suffixes = ", ".join(_folders.SUFFIXES)
            raise ValueError(f"folder: expected images ({suffixes}) of each class, got none of {name!r}")
        files += inside
        labels += [label] * len(inside)
    return files, labels, classes


def listed(reader: Reader) -> tuple[list[str], NDArray[np.int64]]:
    """The files of a reader, and their labels.

    Raises:
        ValueError, OSError: As for :func:`image_folder`.
    """
    if reader.folder is not None:
        names, labels, _ = image_folder(reader.folder)
        return names, np.array(labels, np.int64)
    assert reader.files is not None
    assert reader.labels is not None
    return [os.fspath(file) for file in reader.files], np.asarray(reader.labels).astype(np.int64)
