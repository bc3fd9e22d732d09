"""Index Arrow files of images, as ``datasets.save_to_disk`` of Hugging Face writes them, and Parquet.

An uncompressed Arrow file has the bytes of every image in one piece. Parquet does not: to read an image, all rows
around it must be decompressed. A Parquet file is therefore converted to an Arrow file in the cache, once, as
``load_dataset`` does it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._files import cache_folder, filling_cache, out_of_reach, replacing, shown
from .shards import SPAN, Indexed, ShardError, no_label

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_IMAGES = ("image", "img", "jpg", "jpeg", "png")
_LABELS = ("label", "labels", "cls", "target", "fine_label")
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow stream
_ROWS = 32  # of Parquet, in memory at a time


def index(path: str, label: str | None) -> Indexed:
    """Places and labels of the images of an Arrow file, stream or file format; pixels stay on the disk.

    The image is the column of Hugging Face's type Image, or one with a usual name; its type is binary, or a struct with
    the field ``bytes``. The label is an integer, with the names of a ClassLabel if there are any, or a class name.

    Args:
        path: The file.
        label: Name of the column with the label. None: ``label``, ``labels``, ``cls``, ``target``, ``fine_label``, or
            the only column of type ClassLabel.

    Raises:
        ShardError: The file is damaged or compressed, or has no column of images or labels, or a row without one.
    """
    import pyarrow as pa

    with pa.memory_map(path) as source:
        whole = source.read_buffer()
    try:
        schema, batches = _batches(whole)
    except (pa.ArrowInvalid, OSError) as error:
        raise ShardError(
            f"{shown(path)}: expected an Arrow file, which ends at byte {whole.size} in the middle of a record, or is "
            f"damaged ({error})"
        ) from error
    image, target, classes = _columns(path, schema, label)
    spans, labels = [np.zeros(0, SPAN)], list[int | str]()
    for batch in batches:
        where = f"{shown(path)}: row {len(labels)} or after"
        _check_rows(where, batch, image, target)
        spans.append(_spans(where, batch.column(image), whole))
        labels += batch.column(target).to_pylist()
    return Indexed(np.concatenate(spans), labels, classes)


def _batches(whole: pa.Buffer) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Schema and parts of an Arrow file in memory, without a copy."""
    import pyarrow as pa

    if whole[:6].to_pybytes() == b"ARROW1":
        file = pa.ipc.open_file(whole)
        return file.schema, [file.get_batch(i) for i in range(file.num_record_batches)]
    stream = pa.ipc.open_stream(whole)
    batches = list(stream)
    if whole[-len(_END) :].to_pybytes() != _END:
        raise pa.ArrowInvalid("its end mark is missing")
    return stream.schema, batches


def _columns(path: str, schema: pa.Schema, label: str | None) -> tuple[str, str, tuple[str, ...]]:
    """Names of the columns of images and labels, and the class names."""
    import pyarrow.types as kinds

    metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features: dict[str, Any] = metadata.get("info", {}).get("features") or {}
    typed = {name: kind.get("_type") for name, kind in features.items() if isinstance(kind, dict)}
    there = ", ".join(schema.names)
    images = [name for name in schema.names if typed.get(name) == "Image"]
    images = images if len(images) == 1 else [name for name in _IMAGES if name in (images or schema.names)][:1]
    if not images:
        raise ShardError(f"{shown(path)}: expected a column of images, such as {', '.join(_IMAGES)}, got {there}")
    kind = schema.field(images[0]).type
    if kinds.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    if not (kinds.is_binary(kind) or kinds.is_large_binary(kind)):
        raise ShardError(
            f"{shown(path)}: expected encoded images, binary or struct with bytes, in {images[0]!r}, got {kind}"
        )
    named = [name for name in schema.names if typed.get(name) == "ClassLabel"]
    usual: list[str] = [name for name in _LABELS if name in schema.names] or (named if len(named) == 1 else [])
    target = label or (usual[0] if usual else "")
    if target not in schema.names:
        wanted = f"a column {label!r}" if label else f"a column {', '.join(_LABELS)}, or one of type ClassLabel"
        raise ShardError(f"{shown(path)}: {no_label(wanted, there)}")
    kind = schema.field(target).type
    if not (kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_large_string(kind)):
        raise ShardError(f"{shown(path)}: expected integers or class names in {target!r}, got {kind}")
    return images[0], target, tuple(features.get(target, {}).get("names") or ())


def _check_rows(where: str, batch: pa.RecordBatch, image: str, target: str) -> None:
    """ShardError unless each row has an image and a label."""
    import pyarrow as pa

    images, labels = batch.column(image), batch.column(target)
    nulls = images.null_count + (images.field("bytes").null_count if pa.types.is_struct(images.type) else 0)
    if nulls:
        raise ShardError(f"{where}: expected the bytes of an image in each row, got nulls; a path alone is not enough")
    if labels.null_count:
        raise ShardError(f"{where}: labels missing: expected one in each row of {target!r}, got nulls")


def _spans(where: str, images: pa.Array, whole: pa.Buffer) -> NDArray[np.void]:
    """Places of a column's images in the file."""
    import pyarrow as pa

    if pa.types.is_struct(images.type):
        images = images.field("bytes")
    found = np.zeros(len(images), SPAN)
    if not len(images):
        return found
    _, offsets, content = images.buffers()
    ends = np.frombuffer(offsets, np.int64 if pa.types.is_large_binary(images.type) else np.int32)
    ends = ends[images.offset : images.offset + len(images) + 1].astype(np.int64)
    found["size"] = np.diff(ends)
    if not found["size"].all():
        raise ShardError(f"{where}: expected the bytes of an image in each row, got none")
    start = content.address - whole.address
    if not 0 <= start <= whole.size - content.size:
        raise ShardError(
            f"{where}: expected an uncompressed Arrow file, got a compressed one; save it without compression"
        )
    found["start"] = start + ends[:-1]
    return found


def unpacked(path: str, label: str | None) -> str:
    """The Arrow file, in ``PRIME_DALI_CACHE``, of a Parquet file; converts it unless that was done before.

    Any number of processes may call this at the same time: one converts, the others wait.

    Raises:
        ShardError: The file is damaged, or has no column of images or labels.
        OSError: The cache cannot be written, for example because the disk is full.
    """
    import pyarrow as pa

    status = Path(path).stat()
    key = f"{Path(path).resolve()} {status.st_size} {status.st_mtime_ns} {label}"
    name = f"{Path(path).stem}-{hashlib.sha256(os.fsencode(key)).hexdigest()[:16]}.arrow"  # messages have it
    target = cache_folder() / "parquet" / name
    if target.exists():
        return str(target)  # also if the cache is another user's
    with filling_cache(target.with_suffix(".lock")):
        if target.exists():
            return str(target)
        with _opened(path) as file:
            columns = image, labels = list(_columns(path, file.schema_arrow, label)[:2])
            schema = pa.schema([file.schema_arrow.field(name) for name in columns], file.schema_arrow.metadata)
            done = 0
            with replacing(target) as temporary, pa.ipc.new_stream(str(temporary), schema) as stream:
                for batch in _rows(path, file, columns):
                    # Here, because messages of the converted file would name that.
                    _check_rows(f"{shown(path)}: row {done} or after", batch, image, labels)
                    stream.write_batch(batch.select(columns))
                    done += len(batch)
    return str(target)


def _opened(path: str) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        _raise_if_out_of_reach(path, error)
        raise ShardError(
            f"{shown(path)}: expected a Parquet file, which ends in the middle of a record, or is damaged ({error})"
        ) from error


def _raise_if_out_of_reach(path: str, error: Exception) -> None:
    """Raise an error that does not say that the file is damaged; pyarrow's own names no file."""
    if isinstance(error, OSError) and error.errno and out_of_reach(error):
        raise OSError(error.errno, os.strerror(error.errno), path) from error
    if out_of_reach(error):
        raise error


def _rows(path: str, file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns, few at a time."""
    import pyarrow as pa

    done = 0
    try:
        for batch in file.iter_batches(_ROWS, columns=columns):
            yield batch
            done += len(batch)
    except (pa.ArrowException, OSError) as error:
        _raise_if_out_of_reach(path, error)
        raise ShardError(f"{shown(path)}: damaged at row {done} or after ({error})") from error
