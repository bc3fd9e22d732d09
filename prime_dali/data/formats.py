"""Open a data set of images in any format: class folders, WebDataset, TFRecord, Parquet, or Arrow of Hugging Face."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import json
import os
import re
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _extras
from .._files import cache_folder, replacing, shown
from .._states import Kind
from . import arrow, folders, tfrecord, webdataset
from .folders import SPLITS, names_in
from .records import Records
from .shards import Indexed, ShardError

_NAMES = ("classes.txt", "classnames.txt", "label.labels.txt")
"""Files beside shards or in the folder above, with a class name a line."""

_INDEX: dict[str, Callable[[str, str | None], Indexed]] = {
    "WebDataset": webdataset.index, "TFRecord": tfrecord.index, "Arrow": arrow.index, "Parquet": arrow.index,
}  # fmt: skip
_NEEDS = {"TFRecord": "google_crc32c", "Arrow": "pyarrow", "Parquet": "pyarrow"}
_WORTH = 1.0  # seconds that an index takes to be kept in the cache
_LAYOUT = "1"  # of indexes in the cache
_STATE = Kind({"_data_files": [{"filename": str}]}, "a state.json of save_to_disk", "save the data set again")
_NUMBERED = re.compile(r"(.*?)-?(\d+)-of-(\d+)(.*)")


def kind(path: str | os.PathLike[str]) -> str | None:
    """The format of a shard, by its name; None: it is none.

    Examples:
        >>> kind("imagenet-train-000001.tar"), kind("train-00000-of-01024"), kind("notes.txt")
        ('WebDataset', 'TFRecord', None)
    """
    name = os.path.basename(os.fspath(path)).lower()
    if name.startswith("."):
        return None
    for suffix, known in ((".tar", "WebDataset"), (".parquet", "Parquet"), (".arrow", "Arrow")):
        if name.endswith(suffix):
            return known
    parts = name.split(".")
    if any(part.startswith(("tfrecord", "tfrec")) for part in parts[1:]) or re.fullmatch(
        r"[\w-]*-\d{5,}-of-\d{5,}", name
    ):
        return "TFRecord"
    return None


def open_records(path: str | os.PathLike[str], split: str | None = None, label: str | None = None) -> Records:
    """The images of a data set in the order of its files, and in a shard in that of the shard, with their labels.

    Args:
        path: A folder with a subfolder of images per class; a folder of shards; a shard; or a pattern of shards, with
            ``*``, ``?``, ``[...]``, ``{0000..0099}`` or ``{a,b}``.
        split: ``"train"`` or ``"val"``: ``path`` is a folder with this part of the data set in a folder or in shards of
            such a name (:data:`.folders.SPLITS`). None: ``path`` itself.
        label: Where shards have the label: extension of a member, field of JSON, feature or column. None: the usual
            names.

    Raises:
        FileNotFoundError: There is no such data set, or some of its shards are missing.
        ShardError: A shard is damaged, empty, or lacks images or labels.
        ImportError: The packages of the extra ``formats`` are not installed, and the format needs one.
        ValueError: A folder has no class folders or no images, or ``label`` is given for class folders.
        OSError: A folder or file cannot be read.
    """
    found = _found(str(Path(path)), split)
    if found.shards:
        return _indexed(found.shards, label)
    if label is not None:
        raise ValueError(
            f"label: expected none for the class folders in {shown(found.path)}, whose names are the labels, "
            f"got {label!r}"
        )
    return _of_class_folders(found.path)


def _of_class_folders(folder: str) -> Records:
    files, labels, classes = folders.image_folder(folder)
    return Records(files, np.array(labels, np.int64), classes, folder=folder)


# Which files.


class _Found(NamedTuple):
    """The files of a data set."""

    path: str
    """Its folder, or the shard or pattern that was given."""
    shards: Sequence[str]
    """In their order; none: the folder has class folders, or should."""


def _found(path: str, split: str | None) -> _Found:
    """The files of a data set, or of a part of it."""
    if split is not None:
        return _split(path, split)
    if os.path.isdir(path):
        return _inside(path)
    if os.path.isfile(path):
        return _Found(path, [path])
    found = []
    for name in _braces(path):
        some = sorted(glob.glob(name)) if glob.has_magic(name) else [name] if os.path.exists(name) else []
        if not some:
            of = "" if name == path else f" of the pattern {shown(path)}"
            raise FileNotFoundError(f"{shown(name)}: expected a folder, a shard or a pattern of shards, found none{of}")
        found += some
    return _Found(path, found)


def has_shards(path: str | os.PathLike[str], split: str | None = None) -> bool:
    """Whether :func:`open_records` would read shards."""
    name = str(Path(path))
    if split is None and not os.path.isdir(name):
        return kind(name) is not None
    found = _part(name, split) if split else _inside(name)
    return found is not None and bool(found.shards)


def _split(path: str, split: str) -> _Found:
    """A part of a data set, from a folder that has all parts."""
    if (found := _part(path, split)) is not None:
        return found
    if os.path.isfile(path) or is_pattern(path):
        raise ValueError(
            f"{shown(path)}: expected a folder with all parts of the data set, train and val, got shards; name "
            "each part: --data the training set, and --val the validation set"
        )
    names = " or ".join(SPLITS[split])
    raise FileNotFoundError(
        f"{shown(os.path.join(path, split))}: expected one folder of images per class here, as in "
        "train/n01440764/*.JPEG and val/n01440764/*.JPEG, or shards in this folder or with such a name "
        f"({names}, as in train-0000.tar), found neither"
    )


def _part(path: str, split: str) -> _Found | None:
    for name in SPLITS[split]:
        if os.path.isdir(inside := os.path.join(path, name)):
            return _inside(inside)
        for place in filter(os.path.isdir, (path, os.path.join(path, "data"))):  # data: on the Hugging Face hub
            named = [shard for shard in _files(place) if name in re.split(r"[^a-z]+", os.path.basename(shard).lower())]
            if named:
                return _Found(place, _complete(named))
    return None


def _inside(folder: str) -> _Found:
    """What is in a folder that has no parts."""
    if os.path.exists(parts := os.path.join(folder, "dataset_dict.json")):
        raise ValueError(
            f"{shown(parts)}: expected one part of a data set, got a folder of several; name its subfolder"
        )
    if os.path.exists(state := os.path.join(folder, "state.json")):  # of save_to_disk, which has the order
        names = [file["filename"] for file in _STATE.read_json(Path(state))["_data_files"]]
        return _Found(folder, [os.path.join(folder, name) for name in names])
    # Class folders, as ever, also where the archives lie beside them from which they come.
    return _Found(folder, [] if folders.class_folders(folder) else _complete(_files(folder)))


def _files(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if kind(entry.name) and entry.is_file())


def _complete(shards: list[str]) -> list[str]:
    """The shards; FileNotFoundError if one is missing whose number the others' names imply (00000-of-00010)."""
    groups: dict[tuple[str, ...], set[int]] = {}
    for shard in shards:
        if found := _NUMBERED.fullmatch(os.path.basename(shard)):
            before, number, total, after = found.groups()
            groups.setdefault((before, total, after), set()).add(int(number))
    for (before, total, after), numbers in groups.items():
        if missing := sorted(set(range(int(total))) - numbers):
            lacking = f"{before}-{missing[0]:0{len(total)}}-of-{total}{after}"
            raise FileNotFoundError(
                f"{shown(os.path.dirname(shards[0]))}: expected all of {int(total)} shards, missing {len(missing)}: "
                f"{shown(lacking)}{', ...' if len(missing) > 1 else ''}"
            )
    return shards


def is_pattern(path: str) -> bool:
    """Whether there is no such file or folder, and the name is a pattern of shards'."""
    return not os.path.exists(path) and (glob.has_magic(path) or "{" in path)


def _braces(pattern: str) -> list[str]:
    """The names of a pattern: ``{08..10}`` stands for 08, 09 and 10, ``{a,b}`` for a and b.

    Examples:
        >>> _braces("{a,b}-{08..10}.tar")[:4]
        ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar']
    """
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices = []
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            choices.append([piece])
        elif found := re.fullmatch(r"(\d+)\.\.(\d+)", piece):
            first, last = found.groups()
            choices.append([f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)])
        else:
            choices.append(piece.split(","))
    return ["".join(parts) for parts in itertools.product(*choices)]


# What is in them.


def _indexed(shards: Sequence[str], label: str | None) -> Records:
    """The images of shards of one format."""
    formats = {kind(shard) for shard in shards}
    if len(formats) != 1 or None in formats:
        raise ShardError(
            f"{shown(shards[0])}: expected shards of one format, .tar, .tfrecord, .parquet or .arrow, got "
            f"{', '.join(sorted(known or 'an unknown one' for known in formats))}"
        )
    if len({os.path.realpath(shard) for shard in shards}) < len(shards):
        raise ShardError(f"{shown(shards[0])}: expected each shard once, got {len(shards)} names, some of the same one")
    empty = [shard for shard in shards if not os.path.getsize(shard)]
    if empty:
        raise ShardError(f"{shown(empty[0])}: expected images, got an empty shard")
    known = str(*formats)
    if not _extras.there(module := _NEEDS.get(known, "os")):
        raise ImportError(f"{shown(shards[0])}: {known} {_extras.advice(module)}")
    named = _class_names(os.path.dirname(shards[0]))
    files = [arrow.unpacked(shard, label) for shard in shards] if known == "Parquet" else list(shards)
    return _kept(files, [known, label or "", *named], lambda: _combined(files, known, label, named))


def _class_names(folder: str) -> tuple[str, ...]:
    for place in (folder, os.path.join(folder, os.pardir)):
        for name in _NAMES:
            if (file := Path(place, name)).is_file():
                names = names_in(file)
                if len(set(names)) < len(names) or "" in names:
                    got = "an empty one" if "" in names else "some twice"
                    raise ValueError(f"{shown(file)}: expected the name of a class in each line, got {got}")
                return names
    return ()


def _combined(files: Sequence[str], known: str, label: str | None, named: tuple[str, ...]) -> Records:
    """The images of all shards, and their labels as numbers."""
    parts = [_INDEX[known](file, label) for file in files]
    for number, (file, part) in enumerate(zip(files, parts, strict=True)):
        if not len(part.spans):
            raise ShardError(f"{shown(file)}: expected images, got an empty shard")
        if part.classes != parts[0].classes:
            raise ShardError(f"{shown(file)}: expected the class names of the first shard, {files[0]}, got others")
        part.spans["shard"], part.spans["row"] = number, np.arange(len(part.spans))
    labels, classes = _numbers(files, [part.labels for part in parts], named or parts[0].classes)
    return Records(files, labels, classes, np.concatenate([part.spans for part in parts]))


def _numbers(
    files: Sequence[str], given: Sequence[Sequence[int | str]], classes: tuple[str, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels as numbers, and the class names; without a list of them, names are sorted, as those of class folders."""
    names = {label for labels in given for label in labels if isinstance(label, str)}
    classes = classes or tuple(sorted(names))
    place: dict[int | str, int] = {name: number for number, name in enumerate(classes)}
    found = []
    for file, labels in zip(files, given, strict=True):
        if names and not all(isinstance(label, str) for label in labels):
            raise ShardError(f"{shown(file)}: expected integers or class names as labels, got both")
        if unknown := sorted({str(label) for label in labels if label not in place} if names else ()):
            raise ShardError(f"{shown(file)}: expected labels of the {len(classes)} named classes, got {unknown[0]!r}")
        numbers = np.array([place[label] for label in labels] if names else labels, np.int64)
        if numbers.min() < 0:
            raise ShardError(f"{shown(file)}: labels missing: expected integers from 0, got {numbers.min()}")
        if classes and numbers.max() >= len(classes):
            raise ShardError(
                f"{shown(file)}: expected labels below {len(classes)}, the number of class names, got {numbers.max()}"
            )
        found.append(numbers)
    return np.concatenate(found), classes


def _kept(files: Sequence[str], settings: Sequence[str], build: Callable[[], Records]) -> Records:
    """What ``build`` returns, from the cache if these files had the same sizes and times then."""
    stats = [
        f"{os.path.realpath(file)} {s.st_size} {s.st_mtime_ns}"
        for file, s in zip(files, map(os.stat, files), strict=True)
    ]
    key = os.fsencode("\0".join([_LAYOUT, *settings, *stats]))
    path = cache_folder() / "index" / f"{hashlib.sha256(key).hexdigest()[:32]}.npz"
    try:
        with np.load(path) as content:
            classes = json.loads(str(content["classes"]))
            return Records(files, content["labels"], classes, content["spans"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # not there, or damaged
        start = time.monotonic()
    made = build()
    assert made.spans is not None
    if time.monotonic() - start > _WORTH:
        # A cache that cannot be written costs time alone.
        with contextlib.suppress(OSError), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, spans=made.spans, labels=made.labels, classes=json.dumps(made.classes))
    return made
