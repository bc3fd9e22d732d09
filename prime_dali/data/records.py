"""The encoded images of a data set: files, or parts of shards, read by index, with labels and class names."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._files import shown
from .pictures import PhotoError, reading
from .shards import CHECKSUM, SPAN, masked_crc

_OPEN = 64  # shards at a time; processes commonly may have 1,024 open files
_WHOLE = 0  # the size of a span that is a whole file


class Records:
    """Encoded images by index, and their labels. Reading keeps nothing in memory, and any number of threads and
    processes may read at the same time.

    Args:
        files: The image files, or the shards that contain the images.
        labels: int64 ``[N]``, from 0.
        classes: Names by label; empty if the data set does not name its classes.
        spans: ``SPAN`` (:mod:`.shards`) ``[N]``. None: each file is an image.
        folder: The folder of the files; a data set that is moved to another one stays the same.
    """

    def __init__(
        self,
        files: Sequence[str],
        labels: NDArray[np.int64],
        classes: Sequence[str] = (),
        spans: NDArray[np.void] | None = None,
        folder: str = "",
    ) -> None:
        self.files, self.labels, self.classes, self.spans = files, labels, tuple(classes), spans
        self.folder = folder
        self._open = functools.lru_cache(_OPEN)(_Descriptor)

    def __reduce__(self) -> Any:
        return Records, (self.files, self.labels, self.classes, self.spans, self.folder)

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """What messages call an image: its file, or its shard, its position there from 0, and its first byte."""
        if self.spans is None:
            return shown(self.files[index])
        span = self.spans[index]
        file = shown(self.files[span["shard"]])
        return f"{file}: image {span['row']} (byte {span['start']})" if span["size"] != _WHOLE else file

    def encoded(self, index: int) -> bytes:
        """The bytes of an image, as in a file.

        Raises:
            PhotoError: They cannot be read, or are not those that their checksum is of; the message names the image.
        """
        if self.spans is None:
            return _content(self.files[index])
        shard, _, start, size, record, length = self.spans[index].item()
        if size == _WHOLE:
            return _content(self.files[shard])
        if not length:
            return self._read(index, start, size)
        content = self._read(index, record, length + CHECKSUM)
        if masked_crc(content[:length]) != int.from_bytes(content[length:], "little"):
            raise PhotoError(f"{self.name(index)}: damaged: its TFRecord does not have the checksum after it")
        return content[start - record : start - record + size]

    def _read(self, index: int, start: int, size: int) -> bytes:
        assert self.spans is not None
        try:
            shard = self._open(self.files[self.spans[index]["shard"]])  # kept open, whatever other threads open
            content = os.pread(shard.number, size, start)
        except OSError as error:
            raise PhotoError(f"{self.name(index)}: cannot be read ({error.strerror})") from error
        if len(content) != size:
            raise PhotoError(
                f"{self.name(index)}: expected {size} bytes from byte {start} on, but the shard has {len(content)}"
            )
        return content

    def select(self, keep: NDArray[np.int64] | slice, labels: NDArray[np.int64], classes: Sequence[str]) -> Records:
        """The images with these indices, with these labels, int64 ``[N]``, and classes."""
        if self.spans is not None:
            return Records(self.files, labels, classes, self.spans[keep])
        files = [self.files[i] for i in np.arange(len(self))[keep].tolist()]
        return Records(files, labels, classes, folder=self.folder)

    def identity(self) -> bytes:
        """What determines indices and labels, wherever the data set is: names of files in ``folder``, or a hash of
        places and sizes in shards, labels and classes."""
        if self.spans is None:
            return os.fsencode("\0".join([file[len(self.folder) :] for file in self.files])) + b"\0\0"
        parts = (self.spans.tobytes(), self.labels.tobytes(), "\n".join(self.classes).encode())
        return hashlib.sha256(b"\0".join(parts)).digest()


def numbered(count: int) -> tuple[str, ...]:
    """Names of so many classes that a data set does not name: their numbers."""
    return tuple(map(str, range(count)))


def joined(parts: Sequence[Records]) -> Records:
    """One data set after another, with the classes of the first."""
    labels = np.concatenate([part.labels for part in parts])
    files = [file for part in parts for file in part.files]
    if all(part.spans is None for part in parts):
        return Records(files, labels, parts[0].classes)
    spans, before = [], 0
    for part in parts:
        own = np.zeros(len(part), SPAN)
        if part.spans is None:
            own["shard"] = np.arange(len(part))
        else:
            own = part.spans.copy()
        own["shard"] += before
        before += len(part.files)
        spans.append(own)
    return Records(files, labels, parts[0].classes, np.concatenate(spans))


class _Descriptor:
    """An open file; closed when the last thread that reads it lets it go."""

    def __init__(self, path: str) -> None:
        self.number = -1  # for __del__, if the file cannot be opened
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


def _content(path: str) -> bytes:
    with reading(path):
        return Path(path).read_bytes()
