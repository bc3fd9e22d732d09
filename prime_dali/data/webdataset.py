"""Index a WebDataset shard: a tar file in which members of the same key, up to the first dot, are a sample."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from .._files import shown
from .folders import SUFFIXES
from .shards import SPAN, Indexed, ShardError, class_name, no_label

_IMAGES = frozenset(suffix[1:] for suffix in SUFFIXES)
_FIELDS = ("label", "cls", "class")  # of .json, by which their writers name the label
_BLOCK = 512  # bytes, of tar files


def index(path: str, label: str | None) -> Indexed:
    """Places and labels of the images of a shard, from the headers of its members.

    The label is an integer or a class name: the text of the member ``cls``, or a field of the member ``json``.

    Args:
        path: An uncompressed tar file.
        label: Extension of the member, or field of ``json``, with the label. None: ``cls``, or the fields ``label``,
            ``cls`` and ``class``.

    Raises:
        ShardError: The shard is damaged, or a sample has no image, several, or no label.
    """
    spans: list[tuple[int, ...]] = []
    labels: list[int | str] = []
    with open(path, "rb") as file:
        handle = file.fileno()
        for key, sample in _samples(path, file):
            images = [extension for extension in sample if extension.rpartition(".")[2] in _IMAGES]
            if len(images) != 1:
                got = ", ".join(sorted(sample))
                raise ShardError(f"{shown(path)}: sample {shown(key)!r}: expected one image, got the members {got}")
            texts = {
                extension: os.pread(handle, member.size, member.offset_data)
                for extension, member in sample.items()
                if extension in (label, "cls", "json")
            }
            image = sample[images[0]]
            if not image.size:
                raise ShardError(f"{shown(path)}: sample {shown(key)!r}: expected an image, got an empty member")
            spans.append((0, 0, image.offset_data, image.size, 0, 0))
            labels.append(_label(f"{shown(path)}: sample {shown(key)!r}", texts, label))
    return Indexed(np.array(spans, SPAN), labels)


def _samples(path: str, file: BinaryIO) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Keys of the samples, each with its members by extension, in lower case."""
    seen: set[str] = set()
    current, sample = "", dict[str, tarfile.TarInfo]()
    where = shown(path)
    for member in _members(where, file):
        folder, _, name = member.name.rpartition("/")
        stem, dot, extension = name.partition(".")
        if not member.isreg() or not stem or not dot or name.startswith("__"):  # folders, hidden files, README, notes
            continue
        key = f"{folder}/{stem}" if folder else stem
        if key != current:
            if sample:
                yield current, sample
            current, sample = key, {}
            if key in seen:
                raise ShardError(
                    f"{where}: expected the members of a sample one after another, but the key {shown(key)!r} comes "
                    f"again at byte {member.offset}"
                )
            seen.add(key)
        if extension.lower() in sample:
            raise ShardError(
                f"{where}: expected each name once, but {shown(member.name)!r} comes again at byte {member.offset}"
            )
        sample[extension.lower()] = member
    if sample:
        yield current, sample


def _members(where: str, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """The members of a tar file; ShardError if it ends before its end mark, which tarfile does not check."""
    end, size = 0, os.fstat(file.fileno()).st_size
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                end = tar.offset
                yield member
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
    except tarfile.TarError as error:
        if not end:
            raise ShardError(f"{where}: expected an uncompressed tar file, got {size} bytes ({error})") from error
        raise ShardError(f"{where}: ends at byte {size}, in the middle of a record before byte {end}") from error
    if os.pread(file.fileno(), _BLOCK, end) != bytes(_BLOCK):
        how = "ends there, in the middle of a record" if size < end + _BLOCK else "is damaged"
        raise ShardError(f"{where}: expected a member or the end mark of a tar at byte {end}, but the shard {how}")


def _label(where: str, texts: dict[str, bytes], label: str | None) -> int | str:
    """The label from the text of a member, or from a field of ``json``."""
    own = texts.get("cls" if label is None else label)
    if own is not None and label != "json":
        text = class_name(own, where).strip()
        if not text:
            raise ShardError(f"{where}: expected a label, got an empty member")
        return int(text) if re.fullmatch("-?[0-9]+", text) else text
    fields = _FIELDS if label is None else (label,)
    try:
        content = json.loads(texts.get("json", b"{}"))
    except ValueError as error:
        raise ShardError(f"{where}: expected JSON, got other text ({error})") from None
    for field in fields:
        value = content.get(field) if isinstance(content, dict) else None
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return value
        if value is not None:
            raise ShardError(f"{where}: expected an integer or a class name in {field!r}, got {value!r}")
    wanted = (
        "a member cls, or label, cls or class in json" if label is None else f"a member or a field {label!r} in json"
    )
    raise ShardError(f"{where}: {no_label(wanted, 'neither')}")
