"""Which images a pipeline reads, in which order, and where each is cropped: all of it named by numbers, no state."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _arguments
from ..data import folders as _folders
from ..data.sampling import permutation

LAST_BATCH = ("drop", "partial", "fill")


class Files:
    """A data set of files, the part of it that one shard reads, and the order of each epoch.

    ``files[i]`` is image number ``i``, with label ``labels[i]`` (int64). The order of an epoch follows from seed and
    epoch alone: each shard computes that of the whole data set and takes every ``num_shards``-th image of it.
    """

    def __init__(
        self,
        files: Sequence[str],
        labels: NDArray[np.int64],
        *,
        batch_size: int,
        shard_id: int,
        num_shards: int,
        last_batch: str,
        shuffle: bool,
        seed: int,
    ) -> None:
        self.files, self.labels, self.batch_size = files, labels, batch_size
        self.shard_id, self.num_shards, self.last_batch = shard_id, num_shards, last_batch
        self.shuffle, self.seed = shuffle, seed
        self._special = _folders.special(files)
        self.replaced: dict[int, int] = {}  # number of an unreadable file: number of the one read in its place
        self._shard: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))  # of the last epoch asked for
        total = len(files)
        if num_shards > total:
            raise ValueError(f"num_shards: expected at most the number of images, {total}, got {num_shards}")
        if last_batch == "partial":
            self.images = len(range(shard_id, total, num_shards))
        else:
            share = total // num_shards if last_batch == "drop" else -(-total // num_shards)
            if batch_size > share:
                raise ValueError(
                    f"batch_size: expected at most the {share} images of a shard with last_batch={last_batch!r}, "
                    f"got {batch_size}"
                )
            whole = share // batch_size if last_batch == "drop" else -(-share // batch_size)
            self.images = whole * batch_size
        self.batches = -(-self.images // batch_size)

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a state to be continued."""
        names = ("seed", "shuffle", "batch_size", "shard_id", "num_shards", "last_batch")
        return {"number of images": len(self.files)} | {name: getattr(self, name) for name in names}

    def batch(self, step: int) -> tuple[NDArray[np.int64], int]:
        """Image numbers of batch ``step``, counted from the start of epoch 0, before replacements; and its epoch."""
        epoch, place = divmod(step, self.batches)
        if self._shard[0] != epoch:
            total = len(self.files)
            order = permutation(self.seed, epoch, total) if self.shuffle else np.arange(total)
            self._shard = epoch, order[(self.shard_id + self.num_shards * np.arange(self.images)) % total]
        return self._shard[1][place * self.batch_size : (place + 1) * self.batch_size], epoch

    def feed(
        self, step: int
    ) -> tuple[list[NDArray[np.uint8]], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Batch ``step`` for an external source: paths as bytes, labels, image numbers, epochs."""
        numbers, epoch = self.batch(step)
        numbers = np.array([self.replaced.get(n, n) for n in numbers.tolist()], np.int64)
        names = [self.files[n] for n in numbers]
        # What is no folder has no path with a slash at its end: opening it fails, where opening a pipe would wait.
        names = [f"{name}/" if name in self._special else name for name in names]
        paths = [np.frombuffer(os.fsencode(name), np.uint8) for name in names]
        return paths, self.labels[numbers], numbers, np.full(len(numbers), epoch, np.int64)

    def replace(self, broken: Sequence[int]) -> None:
        """From now on read the next good file in place of each of ``broken``.

        Raises:
            ValueError: No good file is left.
        """
        bad = {*self.replaced, *broken}
        if len(bad) == len(self.files):
            raise ValueError(f"files: expected a readable image, got {len(bad)} files and none can be decoded")
        for number in bad:
            good = number
            while good in bad:
                good = (good + 1) % len(self.files)
            self.replaced[number] = good


def image_folder(folder: str | os.PathLike[str]) -> tuple[list[str], list[int], list[str]]:
    """Files, labels and class names of a folder with one folder a class.

    As ``torchvision.datasets.ImageFolder`` does: classes sorted by name give the labels 0, 1, ...; within a class its
    folder and those below it are sorted, so image numbers are also the same. But for hidden files and folders, whose
    names begin with a dot: they are left out.

    Raises:
        ValueError: No such folder, no class folders, a class without images, or a link to a folder that it lies in.
        OSError: A folder cannot be listed, or a link in place of a class leads to nothing.
    """
    root = os.fspath(folder)
    if not os.path.isdir(root):
        raise ValueError(f"folder: expected a folder with one folder a class, got {root!r}, which is not a folder")
    classes = _folders.classes(root)
    if not classes:
        raise ValueError(f"folder: expected one folder a class in {root!r}, got none")
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


def listed(
    folder: str | os.PathLike[str] | None, files: Sequence[str | os.PathLike[str]] | None, labels: Sequence[int] | None
) -> tuple[list[str], NDArray[np.int64]]:
    """Files and labels of the arguments of a pipeline: a folder, or both lists.

    Raises:
        TypeError, ValueError: Neither or both are given, lists of two lengths, empty ones, labels that are not ints.
    """
    if (folder is None) == (files is None):
        got = "neither" if folder is None else "both"
        raise ValueError(f"folder: expected either folder or files (or source alone), got {got}")
    if folder is not None:
        if labels is not None:
            raise ValueError("labels: expected None with folder, whose class folders give them")
        names, numbers, _ = image_folder(folder)
        return names, np.array(numbers, np.int64)
    if files is None or isinstance(files, (str, bytes)):
        raise TypeError(f"files: expected a list of paths, got {type(files).__name__}")
    if labels is None:
        raise ValueError("labels: expected one int a file, got None")
    if not len(files):
        raise ValueError("files: expected at least one path, got none")
    if len(labels) != len(files):
        raise ValueError(f"labels: expected one a file, {len(files)}, got {len(labels)}")
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"labels: expected ints, got {array.dtype} of shape {list(array.shape)}")
    return [os.fspath(file) for file in files], array.astype(np.int64)


def shard(shard_id: int | None, num_shards: int | None) -> tuple[int, int]:
    """Shard and number of shards: as given, else rank and world size of torch.distributed, else 0 and 1.

    Raises:
        TypeError, ValueError: Only one is given, no ints, or ``shard_id`` is not below ``num_shards``.
    """
    if (shard_id is None) != (num_shards is None):
        missing = "shard_id" if shard_id is None else "num_shards"
        raise ValueError(f"{missing}: expected shard_id and num_shards together, or neither, got None")
    if shard_id is None:
        torch = sys.modules.get("torch")  # who has a process group has imported it
        if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return 0, 1
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    count = _arguments.integer("num_shards", num_shards, 1, 2**31 - 1)
    return _arguments.integer("shard_id", shard_id, 0, count - 1), count
