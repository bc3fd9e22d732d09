"""Pieces that the tests of formats share: a data set in class folders, and the same images in shards of every format."""

from __future__ import annotations

import io
import shutil
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pipelining import picture

from prime_dali.data.shards import masked_crc

FORMATS = ["webdataset", "tfrecord", "parquet", "huggingface"]
Sample = tuple[bytes, str, str]
"""The bytes of an image, the name of its class, and its suffix."""


def write_folder(folder: Path, samples: Sequence[Sample]) -> Path:
    for i, (content, name, suffix) in enumerate(samples):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / f"{i:02d}.{suffix}").write_bytes(content)
    return folder


def read_folder(folder: Path) -> list[Sample]:
    """The images of class folders, in order."""
    return [(file.read_bytes(), file.parent.name, file.suffix[1:].lower()) for file in sorted(folder.glob("*/*"))]


def samples(count: int = 11, seed: int = 0) -> list[Sample]:
    """Photographs of different sizes and file formats, in three classes, in the order of their folders."""
    found = []
    for i in range(count):
        file, suffix = io.BytesIO(), ("jpg", "jpg", "png", "webp")[i % 4]
        picture(40 + i, 60 - i, seed=seed + i).save(file, {"jpg": "jpeg"}.get(suffix, suffix))
        found.append((file.getvalue(), "abc"[i * 3 // count], suffix))
    return found


def write(
    kind: str, folder: Path, part: str, samples: Sequence[Sample], names: Sequence[str] = ("c", "a", "b")
) -> Path:
    """Two shards of a format in ``folder``, named as its users name them; returns the folder.

    Of those of Hugging Face, the classes have these ``names``, which are not in alphabetical order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = [samples[: len(samples) // 2], samples[len(samples) // 2 :]]
    if kind == "huggingface":
        dataset(samples, names).save_to_disk(folder / {"val": "validation"}.get(part, part), num_shards=2)
    for number, some in enumerate(parts):
        if kind == "webdataset":
            write_tar(folder / f"photos-{part}-{number:04d}.tar", some)
        elif kind == "tfrecord":
            write_records(folder / f"{part}-{number:05d}-of-00002", some)
        elif kind == "parquet":
            (folder / "data").mkdir(exist_ok=True)
            name = folder / "data" / f"{ {'val': 'validation'}.get(part, part) }-{number:05d}-of-00002.parquet"
            dataset(some, names).to_parquet(name, batch_size=2)
    return folder


def to_shards(kind: str, folder: Path) -> None:
    """Put two shards in the place of a folder's class folders."""
    samples, aside = read_folder(folder), folder.with_name(f"{folder.name} of {kind}")
    write(kind, aside, "val", samples, sorted({name for _, name, _ in samples}))
    shutil.rmtree(folder)
    inside = {"huggingface": "validation", "parquet": "data"}.get(kind, "")
    (aside / inside).rename(folder)
    shutil.rmtree(aside, ignore_errors=True)


def write_tar(path: Path, samples: Sequence[Sample]) -> None:
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed")
    with webdataset.TarWriter(str(path)) as writer:
        for i, (content, name, suffix) in enumerate(samples):
            writer.write({"__key__": f"{path.stem}/{i:06d}", "txt": "a caption", suffix: content, "cls": name})


def members(path: Path, *named: tuple[str, bytes]) -> Path:
    """A tar file of these members."""
    with tarfile.open(path, "w") as tar:
        for name, content in named:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def labeled(path: Path, image: bytes, *labels: tuple[str, bytes]) -> Path:
    """A tar file with a sample a label, which is an extension and its content."""
    return members(
        path, *(m for i, (suffix, text) in enumerate(labels) for m in ((f"{i}.jpg", image), (f"{i}.{suffix}", text)))
    )


def dataset(samples: Sequence[Sample], names: Sequence[str]) -> Any:
    """A data set of Hugging Face with these classes."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    datasets.disable_progress_bars()
    columns = {
        "image": [{"bytes": content, "path": None} for content, _, _ in samples],
        "label": [names.index(name) for _, name, _ in samples],
    }
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(names))}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))


# TFRecord, as tensorflow.org/tutorials/load_data/tfrecord has it.


def write_records(path: Path, samples: Sequence[Sample]) -> None:
    """As the ImageNet scripts of TensorFlow write them: names of classes, and labels from 1 on."""
    path.write_bytes(b"".join(
        record(example({
            "image/class/label": "abc".find(name) + 1, "image/encoded": content, "image/class/synset": name.encode(),
            "image/format": suffix.encode(),
        }))
        for content, name, suffix in samples
    ))  # fmt: skip


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def example(features: dict[str, bytes | int | list], packed: bool = True) -> bytes:
    """A serialized tf.train.Example, its integers in one field or each in its own; readers must take both."""
    entries = b""
    for name, value in features.items():
        given = value if isinstance(value, list) else [value]
        if isinstance(given[0], bytes):
            feature = field(1, b"".join(field(1, content) for content in given))
        else:
            values = [varint(number % 2**64) for number in given]
            feature = field(3, field(1, b"".join(values)) if packed else b"".join(b"\x08" + value for value in values))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])
