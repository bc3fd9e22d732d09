"""What goes into a pipeline, looked at while it runs: encoded images, and the numbers of a source of one's own."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali.data_node import DataNode

from ..data.pictures import reader, refused
from .operator import fn


def check_depths(*encoded: list[Any]) -> None:
    """ValueError for an encoded image whose pixels the decoder would clamp or scale to 8 bits."""
    for place, data in enumerate(encoded[0] if encoded else ()):
        why = refused(reader(data))
        if why:
            raise ValueError(f"images: image {place} of a batch: {why}")


def numbers(name: str, node: DataNode) -> DataNode:
    """The integers that a source gives, int64 ``[1]`` each."""

    def read(values: list[Any]) -> list[Any]:
        return [np.array([_number(name, value)], np.int64) for value in values]

    return fn.python_function(node.cpu() if node.device == "gpu" else node, function=read, batch_processing=True)


def _number(name: str, value: NDArray[Any]) -> int:
    if value.dtype == np.uint8 and value.ndim == 1:  # text, as WebDataset's cls: as numbers they would be ASCII codes
        text = value.tobytes()
        if re.fullmatch(rb"\s*[0-9]{1,18}\s*", text) is None:
            raise ValueError(
                f"source: expected {name} that are integers, or text of one as WebDataset's cls, got the bytes "
                f"{text[:32]!r}; number classes that have names, and cast numbers of 8 bits with fn.cast to INT64"
            )
        return int(text)
    if value.dtype.kind not in "iu" or value.size != 1:
        raise TypeError(f"source: expected {name} of one integer each, got {value.dtype} {list(value.shape)}")
    return int(value.item())
