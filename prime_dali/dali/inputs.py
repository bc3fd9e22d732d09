"""The inputs of a pipeline: files, or a custom source, whose images and numbers are checked while it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from nvidia.dali.data_node import DataNode

from .._arguments import MAX_CHANNELS
from ..data.pictures import reader, refused
from .dataset import Images
from .operator import fn, types
from .sources import Source


class Inputs(NamedTuple):
    """The first nodes of a pipeline."""

    images: Any
    """Encoded, or uint8 HWC from a source of decoded images."""
    labels: Any
    index: Any
    """Image indices."""
    epoch: Any
    """The epoch of each image; None in validation, which has no random draws."""


def of_images(data: Images, start: int, numbered: bool) -> Inputs:
    """Encoded images from batch ``start`` on, with their epochs if ``numbered``."""
    count = 4 if numbered else 3
    # Stateless: the number of the batch is part of DALI's checkpoints.
    encoded, label, index, *epoch = fn.external_source(
        lambda info: data.feed(start + info.iteration)[:count], num_outputs=count, batch=True, batch_info=True,
        dtype=[types.UINT8, types.INT64, types.INT64, types.INT64][:count], ndim=[1, 0, 0, 0][:count],
    )  # fmt: skip
    if data.are_files:  # these are their paths
        # Memory-mapping a file that is read once is slower than reading it: 16,000 versus 36,000 photographs per
        # second.
        encoded = fn.io.file.read(encoded, dont_use_mmap=True)
    return Inputs(encoded, label, index, epoch[0] if numbered else None)


def of_source(source: Source, batch_size: int, batches: int, numbered: bool) -> Inputs:
    """The outputs of a source, with epochs of ``batches`` batches if ``numbered``.

    Raises:
        TypeError: It returns something else than nodes.
    """
    given = source.function()
    outputs = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    images, label, index = outputs if len(outputs) == 3 else (None, None, None)
    if not (isinstance(images, DataNode) and isinstance(label, DataNode) and isinstance(index, (DataNode, type(None)))):
        got = ", ".join(type(output).__name__ for output in outputs)
        wanted = "three outputs, DataNodes of images, labels and image indices or None"
        raise TypeError(f"source: expected {wanted}, got {got or 'none'}")
    if index is None:
        index = fn.random.uniform(range=[-(2.0**62), 2.0**62], dtype=types.INT64)
    epochs = None
    if numbered:
        epochs = fn.external_source(
            lambda info: np.full(batch_size, info.iteration // batches, np.int64),
            batch=True, batch_info=True, dtype=types.INT64, ndim=0,
        )  # fmt: skip
    return Inputs(images, numbers("labels", label), numbers("image indices", index), epochs)


def seen(images: DataNode, decoded: bool) -> tuple[DataNode, ...]:
    """What :func:`check` looks at: the shapes of images, and themselves, but for decoded ones on a GPU, whose pixels
    would have to be waited for."""
    if not decoded:
        return fn.peek_image_shape(images), images
    return (images.shape(), images) if images.device == "cpu" else (images.shape(),)


def check(decoded: bool, mean: Sequence[float] | None, shapes: list[Any], images: Sequence[Any] | None = None) -> None:
    """ValueError for an encoded image whose pixels the decoder would clamp or scale to 8 bits, or a decoded one that is
    not uint8 HWC, as far as it is seen, or has other channels than ``mean``."""
    for place, shape in enumerate(shapes):
        image = None if images is None else images[place]
        if not decoded:
            why = refused(reader(image))
        elif len(shape) != 3 or not 1 <= shape[2] <= MAX_CHANNELS or (image is not None and image.dtype != np.uint8):
            wanted = f"uint8 HWC of 1 to {MAX_CHANNELS} channels from a source with decoded=True"
            hint = "convert it in the source, or say decoded=False for encoded images"
            got = f"{'' if image is None else f'{image.dtype} '}{shape.tolist()}"
            why = f"expected {wanted}, got {got}; {hint}"
        elif mean is not None and shape[2] != len(mean):
            wanted = f"{len(mean)} channels, for which mean and std are"
            hint = "convert it in the source, or give mean=None and std=None"
            why = f"expected {wanted}, got {shape[2]}; {hint}"
        else:
            continue
        if why:
            raise ValueError(f"images: image {place} of a batch: {why}")


def numbers(name: str, node: DataNode) -> DataNode:
    """The integers from a source, as int64 ``[1]`` each."""

    def read(values: list[Any]) -> list[Any]:
        return [np.array([_number(name, value)], np.int64) for value in values]

    return fn.python_function(node.cpu() if node.device == "gpu" else node, function=read, batch_processing=True)


def _number(name: str, value: NDArray[Any]) -> int:
    if value.dtype == np.uint8 and value.ndim == 1:  # text, as WebDataset's cls; as numbers: ASCII codes
        text = value.tobytes()
        if re.fullmatch(rb"\s*[0-9]{1,18}\s*", text) is None:
            raise ValueError(
                f"source: expected {name} that are integers, or their text as WebDataset's cls, got the bytes "
                f"{text[:32]!r}; convert class names to numbers, and 8-bit numbers with fn.cast to INT64"
            )
        return int(text)
    if value.dtype.kind not in "iu" or value.size != 1:
        raise TypeError(f"source: expected {name} of one integer each, got {value.dtype} {list(value.shape)}")
    number = int(value.item())
    if number >= 2**63:
        raise ValueError(f"source: expected {name} that fit int64, got {number}")
    return number
