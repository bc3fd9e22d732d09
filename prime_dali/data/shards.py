"""What the index of a shard is, in every format: the place of each image in the file, and its label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SPAN = np.dtype([(name, "<i8") for name in ("shard", "row", "start", "size", "record", "length")])
"""Where an image is: position of its shard in the list of files, and its own in the shard; its first byte and number of
bytes, 0: the whole file; and first byte and length of the content of the TFRecord around it, which has a checksum
(length 0: other formats)."""

CHECKSUM = 4
"""Bytes of a TFRecord's checksum, after what it is of."""


class ShardError(ValueError):
    """A shard that is damaged, or lacks images or labels; the message names it."""


class Indexed(NamedTuple):
    """The images of a shard, in its order."""

    spans: NDArray[np.void]
    """:data:`SPAN` ``[N]``, without ``shard`` and ``row``."""
    labels: list[int | str]
    """Integers, or names of classes."""
    classes: tuple[str, ...] = ()
    """Names by integer, if the shard has them."""


def class_name(text: bytes, where: str = "") -> str:
    """A label that is text; a ShardError that begins with ``where`` if it is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        place = f"{where}: " if where else ""
        raise ShardError(f"{place}expected a label that is UTF-8 text, got {text[:20]!r}") from error


def no_label(wanted: str, got: str) -> str:
    """The message on a shard, or a record of it, without a label where there should be one."""
    return f"labels missing: expected {wanted}, got {got}; label= or --label names another"


def masked_crc(content: bytes) -> int:
    """TFRecord's checksum: a CRC-32C, rotated by 15 bits, plus a constant.

    Source: tensorflow.org/tutorials/load_data/tfrecord.
    """
    import google_crc32c

    crc: int = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
