"""Which images a pipeline reads, and in which order: a function of the seed and the batch number, without state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _arguments
from .._wording import plural
from ..data import folders
from ..data.formats import open_records
from ..data.records import Records
from ..data.sampling import permutation
from .sources import Reader

_THREADS = 8  # that read shards


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

    def plain(self, images: int) -> dict[str, Any]:
        """The arguments that determine which of ``images`` images each batch has, for a state."""
        return {"batch_size": self.batch_size, "number of images": images} | asdict(self)


class Images:
    """A data set of encoded images, the part of it that one shard reads, and the order of each epoch.

    The order of an epoch depends only on seed and epoch: each shard computes that of the whole data set and takes every
    ``num_shards``-th image of it.

    Attributes:
        records: The images, by index.
        are_files: Whether each is a file, which DALI reads itself.
        replaced: Index of each unreadable image, and that of the one read instead.
        images, batches: Per epoch, on this shard.
    """

    def __init__(self, records: Records, sampling: EpochSampling) -> None:
        self.records, self.sampling = records, sampling
        self.are_files = records.spans is None
        self._special = folders.special(records.files) if self.are_files else set()
        self.replaced: dict[int, int] = {}
        self._shard: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))  # of the last requested epoch
        self._threads: ThreadPoolExecutor | None = None  # made at the first batch: a fork would not have its threads
        self.images = self._share(sampling, len(records))
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
                f"batch_size: expected at most the {plural(share, 'image')} of a shard with last_batch={last!r}, "
                f"got {size}"
            )
        return (share // size if last == "drop" else -(-share // size)) * size

    def batch(self, step: int) -> tuple[NDArray[np.int64], int]:
        """Image indices of batch ``step``, counted from the start of epoch 0, before replacements; and its epoch."""
        epoch, place = divmod(step, self.batches)
        if self._shard[0] != epoch:
            total, sampling = len(self.records), self.sampling
            order = permutation(sampling.seed, epoch, total) if sampling.shuffle else np.arange(total)
            self._shard = epoch, order[(sampling.shard_id + sampling.num_shards * np.arange(self.images)) % total]
        size = self.sampling.batch_size
        return self._shard[1][place * size : (place + 1) * size], epoch

    def numbers(self, step: int) -> tuple[NDArray[np.int64], int]:
        """Image indices of batch ``step``, after replacements, and its epoch."""
        numbers, epoch = self.batch(step)
        return np.array([self.replaced.get(n, n) for n in numbers.tolist()], np.int64), epoch

    def feed(
        self, step: int
    ) -> tuple[list[NDArray[np.uint8]], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Batch ``step`` for an external source: encoded images, or paths of files; labels, image indices, epochs.

        Raises:
            PhotoError: An image of a shard cannot be read.
        """
        numbers, epoch = self.numbers(step)
        given = [self._path(n) for n in numbers] if self.are_files else self._read(numbers.tolist())
        arrays = [np.frombuffer(content, np.uint8) for content in given]
        return arrays, self.records.labels[numbers], numbers, np.full(len(numbers), epoch, np.int64)

    def _path(self, number: int) -> bytes:
        """A path; pipes and the like get a slash at the end: opening that fails, whereas opening a pipe would block."""
        name = self.records.files[number]
        return os.fsencode(f"{name}/" if name in self._special else name)

    def _read(self, numbers: list[int]) -> list[bytes]:
        """The encoded images, read by several threads, which wait for the file system at the same time."""
        self._threads = self._threads or ThreadPoolExecutor(_THREADS, "prime-dali-read")
        parts = [numbers[i::_THREADS] for i in range(min(_THREADS, len(numbers)))]
        read = self._threads.map(lambda part: [self.records.encoded(n) for n in part], parts)
        found: list[bytes] = [b""] * len(numbers)
        for i, part in enumerate(read):
            found[i::_THREADS] = part
        return found

    def replace(self, broken: Sequence[int]) -> None:
        """From now on read the next good file instead of each of ``broken``.

        Raises:
            ValueError: No good file is left.
        """
        bad = {*self.replaced, *broken}
        if len(bad) == len(self.records):
            raise ValueError(
                f"files: expected a readable image, got {plural(len(bad), 'file')}, none of which can be decoded"
            )
        for number in bad:
            good = number
            while good in bad:
                good = (good + 1) % len(self.records)
            self.replaced[number] = good


def listed(reader: Reader) -> Records:
    """The images of a reader, and their labels.

    Raises:
        ValueError, OSError: As for :func:`prime_dali.data.formats.open_records`.
    """
    if isinstance(reader.folder, Records):
        return reader.folder
    if reader.folder is not None:
        return open_records(reader.folder, reader.split, reader.label)
    assert reader.files is not None
    assert reader.labels is not None
    return Records([os.fspath(file) for file in reader.files], np.asarray(reader.labels).astype(np.int64))
