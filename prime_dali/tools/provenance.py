"""The records of ``prime-dali augment``: a line of JSON for each file, and the files that have one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._files import TEXT, naming, shown
from .._states import Kind
from ..data import destinations
from ..data.partition import Shard, own_folder
from ..data.pictures import sha256

ADVICE = "remove this line, and the run makes its file again"
FILES = "files.jsonl"
"""One line of JSON per file: its source, and what was drawn."""
MAX_COPIES = 10_000


def write(file: Any, entries: list[dict[str, Any]]) -> None:
    """Append records to an open file."""
    with naming(Path(file.name)):
        file.write("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))
        file.flush()


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The records in a file; none if it does not exist.

    Raises:
        ValueError: A line is damaged; the message names it.
    """
    if path.exists():
        yield from _LINE.json_lines(path)


def ordered(paths: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The records of images in several files, each with its file, by the number of the image and of the copy.

    Memory holds their places alone: there may be millions.

    Raises:
        ValueError: As :func:`entries`.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        order = (
            (entry["number"], entry["copy"], place, offset)
            for place, path in enumerate(paths)
            for entry, offset in zip(entries(path), _offsets(path), strict=False)
            if not of_cifar(entry)
        )
        places = np.fromiter(order, np.dtype("i8,i4,i4,i8"))
        places.sort()
        for _, _, place, offset in places:
            files[place].seek(offset)
            yield paths[place], json.loads(os.fsdecode(files[place].readline()))


def _offsets(path: Path) -> Iterator[int]:
    """Where each line of a file begins, in bytes."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            yield offset
            offset += len(line)


def of_cifar(entry: Any) -> bool:
    """Whether a record is of a file of CIFAR, not of an image file."""
    return isinstance(entry, dict) and "records" in entry


_NUMBERS = range(2**63)
_CIFAR = {"file": str, "first_number": _NUMBERS, "records": _NUMBERS}
_PICTURE = {"file": str, "source": str, "source_sha256": str, "number": _NUMBERS, "copy": range(MAX_COPIES)}
_LINE = Kind(lambda entry: _CIFAR if of_cifar(entry) else _PICTURE, "a line of prime-dali augment", ADVICE)


def named(shard: Shard | None) -> Path:
    """The file of a run's or a shard's records, in the destination."""
    return own_folder(Path(), shard) / FILES


def done(folder: Path, source: Path | None, shard: Shard | None = None) -> set[str]:
    """The files that exist and have a record; other records are dropped, and other files written again.

    Args:
        folder: The destination.
        source: The folder of images, or None for CIFAR, whose images the manifest records.
        shard: Its records are looked at too, and those of the destination left as they are.

    Raises:
        ValueError: An image has changed since its copies were made.
    """
    done = set()
    stamps: dict[str, list[int] | None] = {}
    own = named(shard)
    with destinations.finishing(folder, own, shard) as temporary, temporary.open("w", **TEXT) as file:
        for name in dict.fromkeys((Path(FILES), own)):
            for entry in entries(folder / name):
                if of_cifar(entry) == (source is None) and os.path.isfile(folder / entry["file"]):
                    if source is not None:
                        entry["source_stamp"] = unchanged(entry, source, stamps)
                    if name == own:
                        write(file, [entry])
                    done.add(entry["file"])
    return done


def unchanged(entry: dict[str, Any], source: Path, stamps: dict[str, list[int] | None]) -> list[int] | None:
    """The stamp that the image of this line has now; ``stamps`` are those of images that were looked at before.

    An image of another stamp, say in a folder that was copied, is read: its content decides.
    """
    name = entry["source"]
    if name not in stamps:
        path = inside(source, name)
        stamps[name] = stamped(path)
        if stamps[name] is None or stamps[name] != entry.get("source_stamp"):
            check_unchanged(path, entry)
    return stamps[name]


def inside(source: Path, name: str) -> Path:
    """The image of this name in the source.

    Raises:
        ValueError: The name leads out of it.
    """
    if os.path.isabs(name) or ".." in Path(name).parts or "\0" in name:
        raise ValueError(f"{FILES}: expected the name of an image in {shown(source)}, got {shown(name)!r}")
    return source / name


def check_unchanged(path: Path, entry: dict[str, Any]) -> None:
    """Raise a ValueError if ``path`` cannot be read, or has changed since this record's file was made."""
    if sha256(path) != entry["source_sha256"]:
        raise ValueError(
            f"{shown(path)}: expected the file that {shown(entry['file'])} was made from, but it has changed; "
            "restore it, or choose another destination"
        )


def stamped(path: Path) -> list[int] | None:
    """Size and times of a file; equal ones mean equal content. None: it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
