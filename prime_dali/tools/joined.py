"""``prime-dali augment --join``: the files and records of shards become those of one run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._files import TEXT
from .._wording import plural
from ..data import destinations, partition
from ..data.partition import Shard
from . import copies, provenance
from .copies import Photo, Settings


def pictures(settings: Settings) -> None:
    """Join the records of copies of images, whose files have their places; ``settings`` are checked, here and below.

    Raises:
        ValueError: Copies are missing, a copy has two records that differ, or an image has changed.
        FileNotFoundError, PhotoError, RuntimeError: As :func:`.destinations.joining` and
            :func:`.destinations.check_joined`.
    """
    photos = copies.photos(settings)
    folder = settings.destination
    with (
        destinations.joining(folder, copies.manifest_of_files(settings, photos), "augment") as all_shards,
        destinations.finishing(folder, Path(provenance.FILES)) as temporary,
    ):
        there = _merge(settings, photos, all_shards, temporary)
        incomplete = np.flatnonzero(there < settings.copies).tolist()
        destinations.check_joined(folder, all_shards, [photo.path for photo in photos], incomplete, settings.on_error)
    made = plural(int(there.sum()), "copy", "copies")
    print(f"joined {plural(len(all_shards), 'shard')}: {made} of {plural(len(photos), 'image')}")


def _merge(settings: Settings, photos: Sequence[Photo], all_shards: Sequence[Shard], out: Path) -> Any:
    """Write all records in order; returns the number of copies of each image, int64 ``[N]``."""
    folder = settings.destination
    paths = [folder / provenance.named(shard) for shard in (None, *all_shards)]
    there = np.zeros(len(photos), np.int64)
    stamps: dict[str, list[int] | None] = {}
    last: dict[str, Any] = {}
    with out.open("w", **TEXT) as file:
        for path, entry in provenance.ordered([path for path in paths if path.exists()]):
            number, copy = entry["number"], entry["copy"]
            known = number < len(photos) and copy < settings.copies
            name = str(copies.target(photos[number], copy, settings.format)) if known else ""
            if (entry["file"], entry["source"]) != (name, str(photos[number].path) if known else ""):
                wanted = repr(name) if known else f"copies of {plural(len(photos), 'image')}"
                raise ValueError(f"{path}: expected a record of {wanted}, got {entry['file']!r}; {provenance.ADVICE}")
            if not os.path.isfile(folder / name):
                continue
            entry["source_stamp"] = provenance.unchanged(entry, settings.source, stamps)
            if last and entry["file"] == last["file"]:
                if entry != last:
                    raise ValueError(
                        f"{path}: expected one record of {name!r}, got two that differ; {provenance.ADVICE}"
                    )
                continue
            provenance.write(file, [entry])
            there[number] += 1
            last = entry
    return there


def cifar(settings: Settings) -> None:
    """Put together the pieces of CIFAR's files; errors as :func:`pictures`."""
    work = copies.read_source(settings)
    folder = settings.destination
    with destinations.joining(folder, work.manifest(), "augment") as all_shards:
        done = provenance.done(folder, None)
        names = [name for name in work.parts if name not in done]
        partition.check_parts(folder, all_shards, {name: len(work.pieces(name)) for name in names})
        for name in names:
            parts = [shard.folder(folder) / name for shard in all_shards]
            sizes = [len(work.records(None, numbers)) for _, numbers in work.pieces(name)]
            with destinations.finishing(folder, Path(name)) as temporary, temporary.open("wb") as file:
                file.write(work.records(None, work.parts[name]))
                file.writelines(partition.woven(parts, sizes))
            with (folder / provenance.FILES).open("a", **TEXT) as listing:
                provenance.write(listing, [work.entry(name)])
        for name, content in work.rest():
            with destinations.finishing(folder, Path(name)) as temporary:
                temporary.write_bytes(content)
    made = plural(settings.copies, "copy", "copies")
    print(f"joined {plural(len(all_shards), 'shard')}: {made} of {plural(len(work.train.images), 'image')}")
