"""The work of ``prime-dali augment``: copies of images, and their files."""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import __version__, _arguments, _batches, _devices, _workers
from .._files import TEXT, shown
from .._wording import plural
from ..config import PrimeConfig
from ..data import destinations, partition
from ..data.cifar import BINARY_FILES, BINARY_NAMES, Cifar, read_cifar
from ..data.folders import SUFFIXES as PICTURES
from ..data.folders import class_folders, walk
from ..data.partition import Shard
from ..data.pictures import PhotoError, read_photo, sha256
from . import provenance

SUFFIXES = {"png": ".png", "jpeg": ".jpg"}
_BATCH = 500  # CIFAR images at a time


@dataclass(frozen=True)
class Settings:
    """Settings of :func:`.augment.run`, which checks them."""

    source: Path
    """A folder of images, at any depth; or CIFAR as for :func:`.data.cifar.read_cifar`."""
    destination: Path
    """New, empty, or of an earlier run with the same settings."""
    config: PrimeConfig
    copies: int
    """Copies per image, 1 to :data:`.provenance.MAX_COPIES`. Copy ``k`` of image ``i`` has the draws of index ``i`` in
    epoch ``k``: ``prime_dali.sample(config, [i], size=..., seed=seed, epoch=k)``."""
    seed: int = 0
    cifar: int | None = None
    """10 or 100: the source is CIFAR, and the destination its binary version, the clean images among the copies."""
    size: int | None = None
    """Side length in pixels of the squares to resize and crop to before PRIME. None: images keep their size."""
    format: str = "png"
    """``png`` (exact) or ``jpeg``."""
    quality: int | None = None
    """JPEG quality, 1 to 100; None: 95."""
    device: str = "auto"
    """``auto``, ``cpu`` or ``cuda``: where PRIME runs."""
    workers: int | None = None
    """Processes that read, augment and write; with CIFAR, threads. None: one a core; with CUDA at most 16 processes,
    because each takes hundreds of MB of its memory."""
    on_error: str = "raise"
    """``skip``: log and leave out files that cannot be used."""
    shard: Shard | None = None
    """Do only this part of the work; :func:`.augment.join` puts the parts together."""


# Folders of images: one file per copy.


class Photo(NamedTuple):
    """An image of the source."""

    path: Path
    """Within the source."""
    base: Path
    """How its copies' names begin: the path without suffix, or with it where other images have the same without."""


def pictures(settings: Settings) -> None:
    """Write one file per copy of each image of a folder, or of a shard's; ``settings`` are checked, here and below."""
    all_photos = photos(settings)
    folder, shard = settings.destination, settings.shard
    with destinations.filling(folder, manifest_of_files(settings, all_photos), "augment", shard) as work:
        done = provenance.done(folder, settings.source, shard)
        own = partition.chosen(shard, enumerate(all_photos))
        wanted = ((number, photo, _missing(settings, photo, done)) for number, photo in own)
        tasks = [task for task in wanted if task[2]]
        there = len(own) * settings.copies - sum(len(copies) for _, _, copies in tasks)
        workers = max(1, min(settings.workers or 1, len(tasks)))
        threads = max(1, _devices.cores() // workers)
        with (
            _workers.pool(destinations.unfinished(folder, shard), workers, len(tasks), (settings, threads)) as pool,
            destinations.Bar(len(own) * settings.copies, "augment", there, **_facts(settings, len(all_photos))) as bar,
            (folder / provenance.named(shard)).open("a", **TEXT) as files,
        ):
            results = pool.map(_picture, *zip(*tasks, strict=True), chunksize=4) if tasks else iter(())
            for place, ((_, photo, copies), made) in enumerate(zip(tasks, results, strict=True), 1):
                if isinstance(made, str) and settings.on_error == "raise":
                    raise destinations.stopping(made, tasks[place:], lambda task: _prepared(settings, task[1]), bar)
                bar.update(len(copies))
                if isinstance(made, list):
                    provenance.write(files, made)
                    work.made += len(made)
                else:
                    work.skipped.append(str(photo.path))
                    bar.write(f"skipped {made}")
    destinations.tell_skipped(len(work.skipped), len(all_photos))


def photos(settings: Settings) -> list[Photo]:
    """The images of the source, sorted; an image's position is the index that keys its draws."""
    class_folders(settings.source)  # a dangling link among the classes is an error
    found: list[Path] = []
    empty: dict[Path, None] = {}
    for name, inside in walk(settings.source):
        folder = Path(name)
        found += [Path(path).relative_to(settings.source) for path in inside]
        empty[folder] = None
        if inside:
            for parent in (folder, *folder.parents):
                empty.pop(parent, None)
    for folder in empty:  # a class that would be lost
        message = f"{shown(folder)}: expected images ({', '.join(PICTURES)}), found none"
        if settings.on_error == "raise" or not found:
            raise FileNotFoundError(message)
        print(f"skipped {message}")
    alike = Counter(path.with_suffix("") for path in found)
    bases = {path: path if alike[path.with_suffix("")] > 1 else path.with_suffix("") for path in found}
    destinations.check_distinct(settings.source, found, bases.__getitem__)
    return [Photo(path, base) for path, base in bases.items()]


def target(photo: Photo, copy: int, format: str) -> Path:
    """The name of a copy in the destination."""
    return photo.base.with_name(f"{photo.base.name}-{copy}{SUFFIXES[format]}")


def _missing(settings: Settings, photo: Photo, done: set[str]) -> list[int]:
    return [c for c in range(settings.copies) if str(target(photo, c, settings.format)) not in done]


def _prepared(settings: Settings, photo: Photo) -> NDArray[np.uint8]:
    """An image before it is augmented; PhotoError if it cannot be used, or its copies cannot have their names."""
    path = settings.source / photo.path
    destinations.check_name(settings.destination, target(photo, settings.copies - 1, settings.format), path)
    return read(path, settings.size)


def _picture(shared: tuple[Settings, int], number: int, photo: Photo, copies: list[int]) -> list[dict[str, Any]] | str:
    """Write these copies of an image, with so many threads; return their records, or an error message."""
    settings, threads = shared
    path = settings.source / photo.path
    try:
        stamp = provenance.stamped(path)
        image, digest = _prepared(settings, photo), sha256(path)
        if provenance.stamped(path) != stamp:
            raise PhotoError(f"{shown(path)}: expected a file that does not change, but it changed while it was read")
    except PhotoError as error:
        return str(error)
    lines = []
    for copy in copies:
        pixels, plan = _batches.augment(
            image[None], np.array([number]), copy, settings.config, settings.seed, settings.device, threads
        )
        name = target(photo, copy, settings.format)
        with destinations.finishing(settings.destination, name, settings.shard) as temporary:
            temporary.write_bytes(encoded(pixels[0], settings.format, settings.quality))
        lines.append({
            "file": str(name), "source": str(photo.path), "source_sha256": digest, "source_stamp": stamp,
            "number": number, "copy": copy, "height": image.shape[0], "width": image.shape[1],
            "plan": plan.describe(0).splitlines(),
        })  # fmt: skip
    return lines


def read(path: Path, size: int | None) -> NDArray[np.uint8]:
    """Read an image for PRIME, uint8 ``[H, W, 3]``; ``size`` as :attr:`Settings.size`.

    Raises:
        PhotoError: It is not an image, or a side is out of range.
    """
    image = read_photo(path, size)
    height, width = image.shape[:2]
    least, most = _arguments.MIN_SIDE, _arguments.MAX_SIDE
    if not least <= min(height, width) <= max(height, width) <= most:
        raise PhotoError(
            f"{shown(path)}: expected sides of {least} to {most} pixels, got {height} x {width}; --size resizes"
        )
    return image


def encoded(pixels: NDArray[np.uint8], format: str, quality: int | None) -> bytes:
    """The content of a file of these pixels, uint8 ``[H, W, 3]``."""
    from PIL import Image

    options: dict[str, Any] = {} if quality is None else {"quality": quality}
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format.upper(), **options)
    return buffer.getvalue()


# CIFAR: the files of its binary version.


@dataclass(frozen=True)
class CifarFiles:
    """The files to make from CIFAR, each with a part of the training images."""

    settings: Settings
    train: Cifar
    test: Cifar
    parts: dict[str, NDArray[np.int64]]
    """By name of the file, the numbers of its images."""

    def manifest(self) -> dict[str, Any]:
        """The destination's manifest."""
        train = self.train
        return _manifest(self.settings, destinations.source_of_arrays(self.settings.source, train.images, train.labels))

    def pieces(self, name: str) -> list[tuple[int, NDArray[np.int64]]]:
        """Copy and images of each piece of a file's augmented images, in their order there."""
        part = self.parts[name]
        return [(copy, numbers) for copy in range(self.settings.copies)
                for numbers in np.array_split(part, -(-len(part) // _BATCH))]  # fmt: skip

    def records(self, copy: int | None, numbers: NDArray[np.int64]) -> bytes:
        """A copy of these images as in the files; None: the clean images."""
        images, settings = self.train.images[numbers], self.settings
        if copy is not None:
            images, _ = _batches.augment(
                images, numbers, copy, settings.config, settings.seed, settings.device, settings.workers
            )
        assert settings.cifar is not None
        return _records(images, self.train.labels[numbers], settings.cifar)

    def entry(self, name: str) -> dict[str, Any]:
        """The record of a file."""
        part = self.parts[name]
        return {"file": name, "first_number": int(part[0]), "records": len(part) * (self.settings.copies + 1)}

    def rest(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files without augmented images."""
        assert self.settings.cifar is not None
        (test_name,) = BINARY_FILES[self.settings.cifar, False]
        yield test_name, _records(self.test.images, self.test.labels, self.settings.cifar)
        yield BINARY_NAMES[self.settings.cifar], "".join(f"{name}\n" for name in self.train.classes).encode()


def read_source(settings: Settings) -> CifarFiles:
    """Read CIFAR.

    Raises:
        ValueError: Names of classes have spaces, or there are too few images.
    """
    assert settings.cifar is not None
    train, test = (read_cifar(settings.source, settings.cifar, train=part) for part in (True, False))
    if any(len(name.split()) != 1 for name in train.classes):
        raise ValueError(f"{settings.source}: expected names of classes without spaces, got {train.classes}")
    names, count = BINARY_FILES[settings.cifar, True], len(train.images)
    if count < len(names):
        raise ValueError(
            f"{settings.source}: expected at least {plural(len(names), 'image')}, one per file, got {count}"
        )
    parts = dict(zip(names, np.array_split(np.arange(count), len(names)), strict=True))
    return CifarFiles(settings, train, test, parts)


def cifar(settings: Settings) -> None:
    """Write CIFAR's files, each with a part of the clean images, then their copy 0, their copy 1, ...

    A shard writes its pieces of each file to a file of its own. The labels are those of the source; CIFAR-100's coarse
    ones, which training does not read, are 255.
    """
    work = read_source(settings)
    folder, shard = settings.destination, settings.shard
    with destinations.filling(folder, work.manifest(), "augment", shard) as run:
        done = provenance.done(folder, None, shard)
        pieces = {name: partition.chosen(shard, work.pieces(name)) for name in work.parts}
        own = partition.own_folder(Path(), shard)
        left = [name for name in pieces if name not in done and not (shard and (folder / own / name).exists())]
        total, to_do = (sum(len(numbers) for name in names for _, numbers in pieces[name]) for names in (pieces, left))
        with (
            destinations.Bar(total, "augment", total - to_do, **_facts(settings, len(work.train.images))) as bar,
            (folder / provenance.named(shard)).open("a", **TEXT) as files,
        ):
            for name in filter(pieces.get, left):
                with destinations.finishing(folder, own / name, shard) as temporary, temporary.open("wb") as file:
                    if shard is None:
                        file.write(work.records(None, work.parts[name]))
                    for copy, numbers in pieces[name]:
                        file.write(work.records(copy, numbers))
                        bar.update(len(numbers))
                run.made += 1
                if shard is None:
                    provenance.write(files, [work.entry(name)])
        if shard is None:
            for name, content in work.rest():
                with destinations.finishing(folder, Path(name)) as temporary:
                    temporary.write_bytes(content)


def _records(images: NDArray[np.uint8], labels: NDArray[np.int64], classes: int) -> bytes:
    """Images as CIFAR's binary version has them: labels, then 1,024 bytes per channel."""
    columns = [labels[:, None].astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(len(images), -1)]
    if classes == 100:
        columns.insert(0, np.full((len(images), 1), 255, np.uint8))
    return np.concatenate(columns, 1).tobytes()


# What both say of themselves.


def _facts(settings: Settings, images: int) -> dict[str, object]:
    """What a run says at its beginning."""
    side = f", resized to {settings.size} x {settings.size}" if settings.size else ""
    return {
        "data": f"{shown(settings.source)}, {plural(images, 'image')}{side}",
        "copies": f"{settings.copies} of each image",
        "device": f"{settings.device}, {plural(settings.workers or 1, 'worker')}",
        **partition.facts(settings.shard),
        "out": shown(settings.destination),
    }


def manifest_of_files(settings: Settings, photos: Sequence[Photo]) -> dict[str, Any]:
    """The destination's manifest, of copies of these images."""
    return _manifest(settings, destinations.source_of_files(settings.source, [photo.path for photo in photos]))


def _manifest(settings: Settings, source: dict[str, Any]) -> dict[str, Any]:
    return {
        "about": "Made by prime-dali augment. Copy k of image number i is what prime_dali.apply makes with the plan "
        f"prime_dali.sample(PrimeConfig(**config), [i], size=(height, width), seed=seed, epoch=k). {provenance.FILES} "
        "has a line for each file.",
        "source": source,
        **{
            name: getattr(settings, name) for name in ("copies", "seed", "cifar", "size", "format", "quality", "device")
        },
        "config": dataclasses.asdict(settings.config),
        "versions": {"prime-dali": __version__, **{name: version(name) for name in ("numpy", "pillow")}},
    }
