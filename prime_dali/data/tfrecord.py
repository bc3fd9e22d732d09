"""Index a TFRecord shard of ``tf.train.Example`` messages, without TensorFlow, and check its checksums.

A record is the length of its content (uint64, little endian), the masked CRC-32C of the length, the content, and the
masked CRC-32C of the content (tensorflow.org/tutorials/load_data/tfrecord). The content is a protocol buffer, of which
only field numbers and lengths are read here, so that pixels stay on the disk.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

import numpy as np

from .._files import shown
from .shards import CHECKSUM, SPAN, Indexed, ShardError, class_name, masked_crc, no_label

_IMAGES = ("image/encoded", "image", "image_raw", "jpg", "jpeg", "png")
_LABELS = ("image/class/synset", "image/class/label", "label", "cls")
_HEAD = 12  # bytes before the content

Part = tuple[int, int, int]
"""A field of a message: its number, and first byte and end of its content; for a varint its value and -1."""


def index(path: str, label: str | None) -> Indexed:
    """Places and labels of the images of a shard.

    Args:
        path: An uncompressed TFRecord file, whose Examples have the bytes of an image, and its label as an integer or
            as a class name.
        label: Name of the feature with the label. None: one of ``image/class/synset`` (a class name, which numbers
            classes as their folders are numbered), ``image/class/label``, ``label`` and ``cls``.

    Raises:
        ShardError: The shard is damaged, or an Example has no image or no label; the message has the byte.
    """
    spans, labels = [], []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for start, length in _records(shown(path), data):
            try:
                first, end, target = _sample(data, start, start + length, label)
            except (IndexError, ValueError) as error:
                words = error if isinstance(error, ShardError) else "expected a tf.train.Example, got other content"
                raise ShardError(f"{shown(path)}: record at byte {start - _HEAD}: {words}") from error
            spans.append((0, 0, first, end - first, start, length))
            labels.append(target)
    return Indexed(np.array(spans, SPAN), labels)


def _sample(data: mmap.mmap, start: int, end: int, label: str | None) -> tuple[int, int, int | str]:
    """First byte and end of the image of an Example, and its label."""
    features = dict(_features(data, start, end))
    there = ", ".join(map(shown, sorted(features))) or "none"
    image = next((features[name] for name in _IMAGES if name in features), None)
    if image is None:
        raise ShardError(f"expected an image in one of the features {', '.join(_IMAGES)}, got {there}")
    wanted = _LABELS if label is None else (label,)
    target = next((features[name] for name in wanted if name in features), None)
    if target is None:
        raise ShardError(no_label(f"a label in one of the features {', '.join(wanted)}", there))
    return *_image(data, image), _label(data, target)


def _records(path: str, data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """First byte and length of the content of each record."""
    at = 0
    while at < len(data):
        head = data[at : at + _HEAD]
        if len(head) == _HEAD and masked_crc(head[:8]) != struct.unpack("<I", head[8:])[0]:
            compressed = " (it is compressed; decompress it)" if head[:2] == b"\x1f\x8b" and not at else ""
            raise ShardError(
                f"{path}: damaged at byte {at}: the checksum is not that of the record's length{compressed}"
            )
        length = struct.unpack("<Q", head[:8])[0] if len(head) == _HEAD else 0
        end = at + _HEAD + length + CHECKSUM
        if end > len(data):
            raise ShardError(f"{path}: ends at byte {len(data)}, in the middle of the record at byte {at}")
        yield at + _HEAD, length
        at = end


# Protocol buffers (protobuf.dev/programming-guides/encoding).


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _parts(data: mmap.mmap, at: int, end: int) -> Iterator[Part]:
    """The fields of a message; ValueError if one is longer than the message."""
    while at < end:
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value, -1
            continue
        if tag & 7 not in (1, 2, 5):
            raise ValueError("unknown wire type")
        size, at = _varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
        if at + size > end:
            raise ValueError("too long")
        yield tag >> 3, at, at + size
        at += size


def _features(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[str, Part]]:
    """The features of an Example by name, each as its only list: 1: bytes, 2: floats, 3: integers."""
    for number, first, last in _parts(data, start, end):
        if number != 1:
            continue
        for _, entry, entry_end in _parts(data, first, last):
            pair = {part: (begin, close) for part, begin, close in _parts(data, entry, entry_end)}
            if 1 in pair and 2 in pair:
                lists = list(_parts(data, *pair[2]))
                if len(lists) == 1:
                    yield data[slice(*pair[1])].decode("utf-8", "replace"), lists[0]


def _image(data: mmap.mmap, feature: Part) -> tuple[int, int]:
    kind, start, end = feature
    values = list(_parts(data, start, end))
    if kind != 1 or len(values) != 1 or values[0][1] == values[0][2]:
        raise ShardError(f"expected the bytes of one image, got {_words(kind, len(values))}")
    return values[0][1], values[0][2]


def _label(data: mmap.mmap, feature: Part) -> int | str:
    kind, start, end = feature
    values = list(_parts(data, start, end))
    if kind == 1 and len(values) == 1 and values[0][1] < values[0][2]:
        return class_name(data[slice(*values[0][1:])])
    if kind == 3 and len(values) == 1:
        _, first, last = values[0]
        value, after = (first, last) if last < 0 else _varint(data, first)  # one varint, or packed
        if last < 0 or after == last:
            return value - 2**64 if value >= 2**63 else value
    raise ShardError(f"expected a label, an integer or a class name, got {_words(kind, len(values))}")


def _words(kind: int, count: int) -> str:
    return f"{count} of {({1: 'bytes', 2: 'floats', 3: 'integers'}).get(kind, 'an unknown type')}"
