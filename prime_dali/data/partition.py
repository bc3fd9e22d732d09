"""Shards: a command's work divided among processes of one or several machines, as ``--shard I/N``, and joined.

Job ``j`` of a list that all shards make alike belongs to shard ``j % N``. Shards of one destination write different
files. What a shard has besides the destination's own files is in ``.shards/I-of-N`` there: its lock, its unfinished
files, its records, and ``finished.json`` when it is done. So destinations that were filled on machines without a common
file system can be copied into one and joined there.

These are not the shards of a data set, which are files (:mod:`.shards`), nor the parts of an epoch that the processes
of a run read (``shard_id`` and ``num_shards`` of :class:`prime_dali.dali.Reader`, as DALI calls them).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from .. import _arguments
from .._files import locked, make_folder, write_text
from .._states import Kind
from .._wording import plural

FOLDER = ".shards"
FINISHED = "finished.json"
MOST = 100_000
_LOCK = "lock"
_ADVICE = "run this shard again"
_FINISHED = Kind({"skipped": [str]}, "what a shard of prime-dali writes when it has finished", _ADVICE)

Item = TypeVar("Item")


@dataclass(frozen=True)
class Shard:
    """One of ``count`` parts of a command's work.

    Raises:
        TypeError, ValueError: The numbers are not ints with ``0 <= number < count``.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        _arguments.integer("shard: N", self.count, 1, MOST)
        _arguments.integer("shard: I", self.number, 0, self.count - 1)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, jobs: Sequence[Item]) -> list[Item]:
        """Those of the jobs that belong to this shard, in their order."""
        return list(jobs[self.number :: self.count])

    def folder(self, destination: Path) -> Path:
        """The shard's own folder."""
        return destination / FOLDER / f"{self.number}-of-{self.count}"

    def finish(self, destination: Path, skipped: Sequence[str]) -> None:
        """Record that the shard is done, and the names of the images that it left out."""
        write_text(self.folder(destination) / FINISHED, json.dumps({"skipped": list(skipped)}) + "\n")

    def skipped(self, destination: Path) -> list[str]:
        """The names of :meth:`finish`; none if the shard is not done.

        Raises:
            ValueError: The file is damaged.
        """
        path = self.folder(destination) / FINISHED
        return list(_FINISHED.read_json(path)["skipped"]) if path.exists() else []


def parse(text: str) -> Shard:
    """``I/N`` as a shard.

    Raises:
        ValueError: It is something else; the message says what to write.
    """
    numbers = re.fullmatch(r"(-?\d+)/(-?\d+)", text)
    if not numbers:
        raise ValueError(f"expected I/N, such as 0/4 for the first of four shards, got {text!r}")
    number, count = int(numbers[1]), int(numbers[2])
    if not 1 <= count <= MOST:
        raise ValueError(f"expected I/N with N from 1 to {MOST}, got {text!r}")
    if not 0 <= number < count:
        raise ValueError(f"expected I/{count} with I from 0 to {count - 1}, got {text!r}")
    return Shard(number, count)


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--shard`` and ``--join``."""

    def shard(text: str) -> Shard:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--shard", type=shard, metavar="I/N", help="do only part I of N of the work, I from 0 to N-1, as for one "
        "of several machines; then run the same command with --join",
    )  # fmt: skip
    either.add_argument("--join", action="store_true", help="put together what the shards have made")


def found(destination: Path) -> list[Shard]:
    """The shards that have a folder in the destination, in order."""
    names = (re.fullmatch(r"(\d+)-of-(\d+)", path.name) for path in (destination / FOLDER).glob("*-of-*"))
    pairs = ((int(name[1]), int(name[2])) for name in names if name)
    return [Shard(*pair) for pair in sorted(pairs) if pair[0] < pair[1] <= MOST]


@contextlib.contextmanager
def held(destination: Path, shard: Shard) -> Iterator[Path]:
    """The shard's own folder, which is created; no other process runs this shard within the block.

    Raises:
        ValueError: The destination has shards of another number.
        RuntimeError: Another process runs this shard.
    """
    for other in found(destination):
        if other.count != shard.count:
            raise ValueError(
                f"shard: expected I/{other.count} like the shards in {destination / FOLDER}, got {shard}; "
                f"finish and --join those, or remove {FOLDER}"
            )
    own = shard.folder(destination)
    make_folder(own)
    with locked(own / _LOCK, f"{destination}: shard {shard} is running already"):
        yield own


@contextlib.contextmanager
def joining(destination: Path) -> Iterator[list[Shard]]:
    """All shards of a destination, none of which runs within the block.

    Raises:
        ValueError: Their numbers differ.
        RuntimeError: One of them is running.
    """
    there = found(destination)
    counts = sorted({shard.count for shard in there})
    if len(counts) > 1:
        raise ValueError(
            f"{destination / FOLDER}: expected shards of one number, got shards of {' and '.join(map(str, counts))}; "
            "remove the folders of those that do not belong there"
        )
    with contextlib.ExitStack() as stack:
        for shard in there:
            path = shard.folder(destination) / _LOCK
            stack.enter_context(locked(path, f"{destination}: shard {shard} is running; --join when it has ended"))
        yield [Shard(number, counts[0]) for number in range(counts[0])] if there else []


def remove(destination: Path, shard: Shard | None = None) -> None:
    """Remove the folder of a shard, or those of all shards."""
    shutil.rmtree(shard.folder(destination) if shard else destination / FOLDER, ignore_errors=True)
    with contextlib.suppress(OSError):
        (destination / FOLDER).rmdir()  # only an empty one


def check_none_missing(destination: Path, all_shards: Sequence[Shard], jobs: int, missing: Collection[int]) -> None:
    """Raise a ValueError that names the shards to run again, if jobs are missing.

    Args:
        destination: Where they should be.
        all_shards: As :func:`joining` yields them.
        jobs: The number of all jobs.
        missing: Numbers of jobs that are not done.
    """
    if not missing:
        return
    if not all_shards:
        raise ValueError(
            f"{destination}: expected what shards have made, found no shards and {len(missing):,} of {jobs:,} "
            "jobs not done; run every shard, --shard 0/N and so on, before --join"
        )
    lacking = {shard: sum(job % shard.count == shard.number for job in missing) for shard in all_shards}
    named = [
        f"{shard} ({count:,} of {plural(len(range(shard.number, jobs, shard.count)), 'job')} not done)"
        for shard, count in lacking.items()
        if count
    ]
    raise ValueError(
        f"{destination}: expected the work of {plural(len(all_shards), 'shard')}, missing: {', '.join(named)}; "
        "run these with --shard, then --join again"
    )


def check_parts(destination: Path, all_shards: Sequence[Shard], files: Mapping[str, int]) -> None:
    """Check that every shard has its part of each file that shards write together; errors as
    :func:`check_none_missing`.

    Args:
        destination: Where the file will be; each shard has its part, of the same name, in its own folder.
        all_shards: As :func:`joining` yields them.
        files: By name, the number of jobs that make the file.
    """
    missing = {
        job
        for name, count in files.items()
        for job in range(count)
        if not all_shards or not (all_shards[job % len(all_shards)].folder(destination) / name).exists()
    }
    check_none_missing(destination, all_shards, max(files.values(), default=0), missing)


def woven(parts: Sequence[Path], sizes: Sequence[int]) -> Iterator[bytes]:
    """The results of all jobs in order, from the files in which each shard has its own, one after the other.

    Args:
        parts: By shard; files of shards without jobs need not exist.
        sizes: Of each job's result, in bytes.

    Raises:
        ValueError: A file has another size than its jobs; the message names it.
    """
    count = len(parts)
    files: list[BinaryIO] = []
    with contextlib.ExitStack() as stack:
        for number, path in enumerate(parts[: len(sizes)]):
            expected, size = sum(sizes[number::count]), path.stat().st_size
            if size != expected:
                raise ValueError(f"{path}: expected {expected} bytes, got {size}; remove it, and {_ADVICE}")
            files.append(stack.enter_context(path.open("rb")))
        for job, size in enumerate(sizes):
            yield files[job % count].read(size)


def facts(shard: Shard | None) -> dict[str, Any]:
    """What a run says of its shard at its beginning."""
    return {} if shard is None else {"shard": f"{shard}, then --join"}


def own_folder(destination: Path, shard: Shard | None) -> Path:
    """Where a shard writes what is of its own; without one, the destination itself."""
    return destination if shard is None else shard.folder(destination)


def chosen(shard: Shard | None, jobs: Iterable[Item]) -> list[Item]:
    """The jobs of a shard; all of them without one."""
    return list(jobs) if shard is None else shard.of(list(jobs))
