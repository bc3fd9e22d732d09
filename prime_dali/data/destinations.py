"""Destinations, the folders that commands fill: one run at a time, only complete files, what made them, progress."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import _progress
from .._devices import cores
from .._files import create, held, naming, shown, sync, sync_file_system
from .._states import Kind
from .._wording import clock, facts, plural, speed
from ..config import with_new_names
from . import partition
from .partition import Shard
from .pictures import PhotoError, unusable
from .records import Records

MANIFEST = "manifest.json"
Item = TypeVar("Item")
UNFINISHED = ".unfinished"  # the folder in a destination where files are written before they get their names


@dataclass
class Work:
    """What a run has done in its destination."""

    made: int = 0
    """Files that were not there before."""
    skipped: list[str] = field(default_factory=list)
    """Names of images that were left out."""


@contextlib.contextmanager
def filling(folder: Path, manifest: dict[str, Any], command: str, shard: Shard | None = None) -> Iterator[Work]:
    """Lock the folder, which is created if it does not exist, and write a manifest of how its files are made.

    Args:
        folder: New, empty, or of an earlier run.
        manifest: All that determines the files' contents; an earlier run must have had the same. Only ``about`` and
            the path of ``source`` may differ: the same files may have moved.
        command: The command that writes the manifest, for messages.
        shard: Other shards may run at the same time, each with the same manifest.

    Yields:
        What the run has done; the block keeps it up to date.

    Raises:
        ValueError: The folder contains something else, was made with other settings, or has shards to join; nothing is
            changed.
        RuntimeError: Another run, or this shard, is writing there, or the folder or its manifest was removed within
            the block.
    """
    work = Work()
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(folder, shared=shard is not None))
        others = partition.found(folder)
        if shard is None and others:
            raise ValueError(
                f"{folder}: has shards of {others[0].count}; run the others with --shard and then --join, or remove "
                f"{partition.FOLDER} to finish without them"
            )
        joined = (folder / MANIFEST).exists() and not others
        _label(folder, manifest, command)
        if shard is not None:
            stack.enter_context(partition.held(folder, shard))
        shutil.rmtree(unfinished(folder, shard), ignore_errors=True)  # of a run that was killed
        try:
            yield work
            if not (folder / MANIFEST).exists():
                raise RuntimeError(f"{folder}: expected the files of this run, but they were removed meanwhile")
            sync_file_system(folder)
        finally:
            shutil.rmtree(unfinished(folder, shard), ignore_errors=True)
        if shard is not None and joined and not work.made and not work.skipped:  # nothing to join
            partition.remove(folder, shard)
        elif shard is not None:
            shard.finish(folder, work.skipped)


@contextlib.contextmanager
def joining(folder: Path, manifest: dict[str, Any], command: str) -> Iterator[list[Shard]]:
    """Lock a folder that shards have filled; their own folders are removed when the block ends.

    Args:
        folder, manifest, command: As for :func:`filling`.

    Yields:
        All shards; none if their work was joined before.

    Raises:
        FileNotFoundError: No shard has begun.
        ValueError: They were made with other settings, or there are shards of several numbers.
        RuntimeError: A shard or another run is writing there.
    """
    if not (folder / MANIFEST).exists():
        raise FileNotFoundError(
            f"{folder}: expected what shards of prime-dali {command} have made, found no {MANIFEST}; run every shard "
            "first, --shard 0/N and so on"
        )
    with held(folder), partition.joining(folder) as all_shards:
        _label(folder, manifest, command)
        try:
            yield all_shards
            sync_file_system(folder)
            partition.remove(folder)
        finally:
            shutil.rmtree(unfinished(folder), ignore_errors=True)


def check_joined(
    folder: Path, all_shards: Sequence[Shard], names: Sequence[Path], incomplete: Sequence[int], on_error: str
) -> None:
    """Check that shards have made everything but for pictures that they skipped; print how many these are.

    Args:
        folder: The destination.
        all_shards: As :func:`joining` yields them.
        names: All pictures.
        incomplete: Numbers of those whose files are not all there.
        on_error: ``"skip"``, or ``"raise"`` if none may be skipped.

    Raises:
        ValueError: Something is missing; the message names the shards.
        PhotoError: A picture was skipped where none may be, or all were.
    """
    left_out = {name for shard in all_shards for name in shard.skipped(folder)}
    skipped = [number for number in incomplete if str(names[number]) in left_out]
    partition.check_none_missing(folder, all_shards, len(names), sorted(set(incomplete) - set(skipped)))
    if skipped and on_error == "raise":
        raise PhotoError(
            f"{shown(names[skipped[0]])}: expected no picture that a shard has skipped, got {len(skipped)}; "
            "--on-error skip joins the others"
        )
    tell_skipped(len(skipped), len(names))


def unfinished(folder: Path, shard: Shard | None = None) -> Path:
    """The folder for files that are being written, of a run or of a shard."""
    return partition.own_folder(folder, shard) / UNFINISHED


@contextlib.contextmanager
def finishing(folder: Path, name: Path, shard: Shard | None = None) -> Iterator[Path]:
    """A temporary path to write to; it is renamed when the block ends, so a file with its final name is complete.

    The content is synced before the renaming. Names are synced when the run ends: a file whose name is lost in a power
    failure is made again.
    """
    temporary = unfinished(folder, shard) / f"{os.getpid()}{name.suffix}"
    temporary.parent.mkdir(exist_ok=True)  # not the folder itself: if it was removed, that is an error
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with naming(folder / name, temporary):
        yield temporary
        sync(temporary)
        temporary.replace(folder / name)


def check_name(folder: Path, name: Path, picture: str | Path) -> None:
    """Check that ``name``, of a file made from ``picture``, is possible in ``folder``.

    Raises:
        PhotoError: It is longer than the file system allows.
    """
    for text, limit in ((name.name, "PC_NAME_MAX"), (folder / name, "PC_PATH_MAX")):
        length, maximum = len(os.fsencode(text)), os.pathconf(folder, limit)
        if length > maximum:
            raise PhotoError(
                f"{shown(picture)}: expected a shorter name, because {shown(name)} in {shown(folder)} has {length} "
                f"bytes, more than {maximum}"
            )


def check_distinct(folder: Path, photos: Sequence[Path], target: Callable[[Path], Path]) -> None:
    """ValueError if two pictures in ``folder`` have the same ``target``: one would be mistaken for the other."""
    named: dict[Path, Path] = {}
    for photo in photos:
        other = named.setdefault(target(photo), photo)
        if other != photo:
            raise ValueError(
                f"{shown(folder)}: expected pictures of which files with different names are made, got {shown(other)} "
                f"and {shown(photo)}, which both become {shown(target(photo))}; rename one"
            )


def tell_skipped(skipped: int, total: int) -> None:
    """Print how many pictures were skipped, if any.

    Raises:
        PhotoError: All were skipped.
    """
    if skipped:
        print(f"skipped {skipped:,} of {plural(total, 'file')}")
    if skipped == total:
        raise PhotoError("no readable picture is left")


def stopping(error: str, rest: Sequence[Item], check: Callable[[Item], object], bar: _progress.Progress) -> PhotoError:
    """The error of a picture that stops a run, and of those after it that would stop it too, with how to go on.

    Args:
        error: Of this picture.
        rest: The others, as ``check`` takes them.
        check: Raises a PhotoError for one that cannot be used.
        bar: Of the run.
    """
    bar.note = "looking for other pictures that cannot be used"

    def message(one: Item) -> str:
        try:
            check(one)
        except PhotoError as found:
            return str(found)
        return ""

    threads = ThreadPoolExecutor(cores())
    try:
        found = unusable([error, *filter(None, threads.map(message, rest))])
    finally:
        threads.shutdown(cancel_futures=True)  # at Ctrl-C
    return PhotoError(  # a mended file is another source
        f"{found}; the same command with --on-error skip goes on without such files; once they are mended, write to a "
        "new folder"
    )


def _label(folder: Path, manifest: dict[str, Any], command: str) -> None:
    """Write the manifest, or check that the existing one is the same."""
    manifest = json.loads(json.dumps(manifest))
    # In this order, as another shard writes the manifest before any other file.
    foreign = any(not entry.name.startswith((UNFINISHED, partition.FOLDER)) for entry in folder.iterdir())
    if not (folder / MANIFEST).exists():
        if foreign:
            raise ValueError(f"{folder}: expected a new or empty folder, or one with a {MANIFEST}")
        create(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    there = read_manifest(folder, command)
    for key, value in manifest.items():
        found = {**there[key], "path": value["path"]} if key == "source" else there.get(key)
        if key != "about" and found != value:
            expected, got = _difference(found, value)
            raise ValueError(
                f"{folder}: made with other settings: {key}: expected {expected}, got {got}; go on with those it was "
                f"made with, in its {MANIFEST}, or write to a new folder"
            )


def _difference(found: Any, value: Any) -> tuple[str, str]:
    """Two entries of a manifest for a message: of mappings what differs, of sources the images and their hash."""
    if not isinstance(found, dict) or not isinstance(value, dict):
        return str(found), str(value)
    if "images" not in value:
        names = [name for name in {**found, **value} if found.get(name) != value.get(name)]
        return str({name: found.get(name) for name in names}), str({name: value.get(name) for name in names})
    hashes = [next((of[:8] for name, of in one.items() if name.startswith("sha256")), "") for one in (found, value)]
    counts = [plural(one.get("images", 0), "image") for one in (found, value)]
    expected, got = (f"{count} of SHA-256 {digest}" for count, digest in zip(counts, hashes, strict=True))
    return expected, got


def read_manifest(folder: Path, command: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The manifest of a folder that ``command`` has made; ``more``: the schema of further required keys.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a manifest, or damaged; the message names the key.
    """
    kind = Kind(
        {"source": {"path": str}, **(more or {})},
        f"a manifest of prime-dali {command}",
        "put back a copy of it, or choose another folder",
    )
    content: dict[str, Any] = kind.read_json(folder / MANIFEST)
    if isinstance(content.get("config"), dict):
        content["config"] = with_new_names(content["config"])
    return content


def source_of_files(folder: Path, names: Sequence[Path]) -> dict[str, Any]:
    """A manifest's entry for the files ``names`` in ``folder``, from their sizes; -1 for unreadable files."""

    def size(name: Path) -> int:
        try:
            return (folder / name).stat().st_size
        except OSError:
            return -1

    listing = "\n".join(f"{name} {size(name)}" for name in names)
    digest = hashlib.sha256(os.fsencode(listing)).hexdigest()
    return {"images": len(names), "sha256_of_names_and_sizes": digest, "path": str(folder)}


def source_of_contents(path: Path, records: Records, names: Sequence[Path]) -> dict[str, Any]:
    """A manifest's entry for the encoded images of ``path``, from their ``names`` and contents; unreadable ones count
    as such."""

    def content(number: int) -> str:
        try:
            return hashlib.sha256(records.encoded(number)).hexdigest()
        except PhotoError:
            return "unreadable"

    with ThreadPoolExecutor(cores()) as threads:
        digests = threads.map(content, range(len(names)))
        listing = "\n".join(f"{name} {digest}" for name, digest in zip(names, digests, strict=True))
    digest = hashlib.sha256(os.fsencode(listing)).hexdigest()
    return {"images": len(names), "sha256_of_names_and_contents": digest, "path": str(path)}


def source_of_arrays(folder: Path, images: NDArray[np.uint8], labels: NDArray[Any]) -> dict[str, Any]:
    """A manifest's entry for images and labels (0 to 255) that were read from ``folder``."""
    digest = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    return {"images": len(images), "sha256_of_images_and_labels": digest, "path": str(folder)}


class Bar:
    """A run that makes images: says what it will do, how far it is, and what it has done.

    Args:
        total: Images to make, or to make others of.
        name: What is made.
        done: So many of them were there before.
        facts: Stand at the head of what it says.
    """

    def __init__(self, total: int, name: str, done: int = 0, **facts: object) -> None:
        self.bar = _progress.Progress(total, name, "image", done)
        self._before, self._start, self._facts = done, time.monotonic(), facts

    def __enter__(self) -> _progress.Progress:
        there = f" ({self._before:,} of them are there)" if self._before else ""
        print(facts({**self._facts, "to do": f"{plural(self.bar.total, 'image')}{there}"}), flush=True)
        return self.bar.__enter__()

    def __exit__(self, kind: Any, *error: Any) -> None:
        self.bar.__exit__(kind, *error)
        made, seconds = self.bar.done - self._before, time.monotonic() - self._start
        if kind is None:
            rate = f" in {clock(seconds)}, {speed(made, seconds, 'image')}" if made else ""
            print(f"{self.bar.name}: {plural(made, 'image')} done{rate}", flush=True)
        else:
            # At a bad picture the same command would stop again.
            then = "" if issubclass(kind, PhotoError) else "; the same command resumes"
            print(f"{self.bar.name}: stopped after {plural(made, 'image')}{then}", flush=True)
