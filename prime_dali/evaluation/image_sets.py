"""Images with labels, in memory or in image files, in batches on a device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset
from torchvision.transforms import InterpolationMode, v2

from .. import _arguments
from ..data.pictures import PhotoError, decoded, dimensions, unusable
from ..data.records import Records
from ..models.networks import INTERPOLATIONS
from .loading import load
from .names import LOADERS

Batch = tuple[torch.Tensor, torch.Tensor]
_HASHED = 16  # images of a fingerprint


class ImageSet(Protocol):
    """Images with labels, in a fixed order."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """``[N]``, indices of the network's logits."""
        ...

    @property
    def masked(self) -> bool:
        """Whether predictions are limited to the classes among the labels (ImageNet-R: 200 of the 1,000)."""
        ...

    @property
    def lacking(self) -> tuple[str, ...]:
        """Description of what is missing, such as classes."""
        ...

    def batches(self, size: int, device: torch.device) -> Iterator[Batch]:
        """uint8 images ``[n, 3, H, W]`` and int64 labels ``[n]`` on ``device``; n = ``size``, except at the end."""
        ...

    def subset(self, index: NDArray[np.int64]) -> ImageSet:
        """The images with these indices, in this order."""
        ...

    def fingerprint(self) -> str:
        """A hash by which sets of as many images can be told apart: of the content of some of them."""
        ...


@dataclass(frozen=True)
class Arrays:
    """Images in memory, or in a mapped file."""

    images: NDArray[np.uint8]
    """``[N, H, W, 3]``, RGB."""
    labels: NDArray[np.int64]
    masked: bool = False
    lacking: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[3] != 3:
            raise ValueError(f"images: expected uint8 [N, H, W, 3], got {self.images.dtype} {list(self.images.shape)}")
        if self.labels.dtype != np.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels: expected int64 [{len(self.images)}], one per image, "
                f"got {self.labels.dtype} {list(self.labels.shape)}"
            )

    def batches(self, size: int, device: torch.device) -> Iterator[Batch]:
        # All of it goes to the device at once. NHWC in memory is what channels_last wants.
        images = torch.from_numpy(np.array(self.images)).to(device).permute(0, 3, 1, 2)
        labels = torch.from_numpy(np.array(self.labels)).to(device)
        yield from zip(images.split(size), labels.split(size), strict=True)

    def subset(self, index: NDArray[np.int64]) -> Arrays:
        return replace(self, images=self.images[index], labels=self.labels[index])

    def fingerprint(self) -> str:
        return _fingerprint(len(self.images), lambda number: self.images[number].tobytes())


@dataclass(frozen=True)
class Decoding:
    """How image files are decoded.

    Raises:
        ValueError: An unknown loader or interpolation.
    """

    loader: str = "pillow"
    """``"pillow"``: decoded and resized by Pillow, in processes; the same pixels on every machine, and the decoder of
    published numbers. ``"dali"``: by DALI, on the GPU if ``device`` is one. Images that are not resized are
    bit-identical on the CPU; crops of resized images are not rounded to whole pixels, and a GPU decodes to slightly
    different pixels."""
    workers: int = 0
    """Processes, or threads of DALI. 0: this process, or as many threads as DALI may use."""
    interpolation: str = "bilinear"
    """Of images that are resized: one of torchvision's modes."""

    def __post_init__(self) -> None:
        _arguments.one_of("loader", self.loader, LOADERS)
        _arguments.one_of("interpolation", self.interpolation, INTERPOLATIONS)


@dataclass(frozen=True)
class Pictures:
    """Encoded images: files, or parts of shards."""

    records: Records
    size: int
    """Side length of the images in pixels."""
    resize: int | None
    """Shorter side after resizing, before the center is cropped. None: images must be ``size`` x ``size`` already."""
    decoding: Decoding = Decoding()
    masked: bool = False
    lacking: tuple[str, ...] = ()

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.records.labels

    def batches(self, size: int, device: torch.device) -> Iterator[Batch]:
        if self.decoding.loader == "dali":
            return self._dali(size, device)
        return readable(_Files(self), 3 * self.size**2, size, self.decoding.workers, device)

    def subset(self, index: NDArray[np.int64]) -> Pictures:
        return replace(self, records=self.records.select(index, self.labels[index], self.records.classes))

    def fingerprint(self) -> str:
        return _fingerprint(len(self.records), self.records.encoded)

    def _dali(self, size: int, device: torch.device) -> Iterator[Batch]:
        from ..dali import CenterCrop, Execution, Loader, Output, Reader, val_pipeline
        from ..dali.operator import types

        workers, kind = self.decoding.workers, "gpu" if device.type == "cuda" else "cpu"
        if self.resize is None:
            with ThreadPoolExecutor(max(workers, 1)) as pool:
                for name, found in pool.map(self._dimensions, range(len(self.records))):
                    _check_size(name, found, self.size)
        pipeline = val_pipeline(
            Reader(self.records, shard_id=0, num_shards=1),
            batch_size=size,
            crop=CenterCrop(self.size, resize=self.resize or self.size, interpolation=self.decoding.interpolation),
            output=Output(mean=None, std=None, dtype=types.UINT8),
            execution=Execution(kind, device_id=device.index, num_threads=workers or None),
        )
        for batch in Loader(pipeline):
            assert isinstance(batch.images, torch.Tensor)
            yield batch.images, batch.labels

    def _dimensions(self, number: int) -> tuple[str, tuple[int, int]]:
        """What messages call an image, and its size."""
        name = self.records.name(number)
        return name, dimensions(self.records.encoded(number), name)


def _fingerprint(count: int, content: Callable[[int], bytes]) -> str:
    """SHA-256 of evenly spaced ones of ``count`` images, 16 digits of it; it depends on their order, not on where
    they lie."""
    some = min(count, _HASHED)
    return hashlib.sha256(b"".join(content(i * count // some) for i in range(some))).hexdigest()[:16]


def readable(
    items: Dataset[Any], item_bytes: int, size: int, workers: int, device: torch.device, unit: str = "image"
) -> Iterator[tuple[Any, ...]]:
    """Batches on ``device`` of items that end with an error message, which is empty if the item could be read. From a
    worker an exception would come with its whole traceback.

    Raises:
        PhotoError: Some could not be read. Once there is one, the others are only looked for.
    """
    broken: list[str] = []
    cuda = device.type == "cuda"
    for *tensors, errors in load(items, item_bytes, size, workers, pin=cuda):
        broken += filter(None, errors)
        if not broken:
            yield tuple(tensor.to(device, non_blocking=True) for tensor in tensors)
    if broken:
        raise unusable(broken, unit)


class _Files(Dataset[tuple[torch.Tensor, torch.Tensor, str]]):
    """Image, label, and an error message for :func:`readable`."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures
        mode = InterpolationMode(pictures.decoding.interpolation)
        steps = [v2.Resize(pictures.resize, mode), v2.CenterCrop(pictures.size)] if pictures.resize else []
        self.transform = v2.Compose([*steps, v2.PILToTensor()])

    def __len__(self) -> int:
        return len(self.pictures.records)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        name, side = self.pictures.records.name(number), self.pictures.size
        label = torch.tensor(self.pictures.labels[number])
        try:
            image = decoded(self.pictures.records.encoded(number), name)
            if self.pictures.resize is None:
                _check_size(name, image.size, side)
            return self.transform(image), label, ""
        except PhotoError as error:
            return torch.zeros(3, side, side, dtype=torch.uint8), label, str(error)


def _check_size(name: str, found: tuple[int, int], side: int) -> None:
    if found != (side, side):
        raise PhotoError(
            f"{name}: expected {side} x {side} pixels, as this benchmark is not resized, got {found[0]} x {found[1]}"
        )
