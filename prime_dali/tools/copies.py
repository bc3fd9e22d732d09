"""The work of ``prime-dali augment``: copies of images, their files, and the records of these files."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__, _arguments, _workers, arrays
from .._files import naming
from .._states import TEXT, Kind
from ..config import PrimeConfig
from ..data import jobs
from ..data.cifar import BINARY_FILES, BINARY_NAMES, read_cifar
from ..data.folders import SUFFIXES as PICTURES
from ..data.folders import classes, shown, walk
from ..data.pictures import PhotoError, read_photo, sha256
from ..plan import Plan

FILES = "files.jsonl"
"""One line of JSON per file: its source, and what was drawn."""
SUFFIXES = {"png": ".png", "jpeg": ".jpg"}
MAX_COPIES = 10_000
_BATCH = 500  # CIFAR images at a time


@dataclass(frozen=True)
class Settings:
    """Settings of :func:`run`, which checks them."""

    source: Path
    """A folder of images, at any depth; or CIFAR as for :func:`.data.cifar.read_cifar`."""
    destination: Path
    """New, empty, or of an earlier run with the same settings."""
    config: PrimeConfig
    copies: int
    """Copies per image, 1 to :data:`MAX_COPIES`. Copy ``k`` of image ``i`` has the draws of index ``i`` in epoch ``k``:
    ``prime_dali.sample(config, [i], size=..., seed=seed, epoch=k)``."""
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
    on_error: str = "fail"
    """``skip``: log and leave out files that cannot be used."""


def augment(
    images: NDArray[np.uint8], numbers: NDArray[np.int64], copy: int, config: PrimeConfig, seed: int, device: str,
    threads: int | None = None,
) -> tuple[NDArray[np.uint8], Plan]:  # fmt: skip
    """This copy of the images, uint8 ``[N, H, W, 3]``, whose indices in the source are ``numbers``."""
    size = images.shape[1], images.shape[2]
    if device == "cpu":
        plan = arrays.sample(config, numbers, size=size, seed=seed, epoch=copy, view=0)
        return arrays.apply(images, plan, layout="NHWC", threads=threads), plan
    import torch

    from .. import torch_ops

    index = torch.tensor(numbers, device=device)
    plan = torch_ops.sample(config, index, size=size, seed=seed, epoch=copy, view=0)
    out = torch_ops.apply(torch.tensor(images, device=device).permute(0, 3, 1, 2), plan, channels_last=True)
    return out.permute(0, 2, 3, 1).cpu().numpy(), plan


# Folders of images: one file per copy.


def pictures(settings: Settings) -> None:
    """Write one file per copy of each image of a folder; ``settings`` are checked, here and below."""
    photos = _photos(settings)
    folder, source = settings.destination, jobs.source_of_files(settings.source, photos)
    skipped = 0
    with jobs.destination(folder, _manifest(settings, source), "augment"):
        done = _done(folder, settings.source)
        wanted = ((number, photo, _missing(settings, photo, done)) for number, photo in enumerate(photos))
        tasks = [task for task in wanted if task[2]]
        workers = max(1, min(settings.workers or 1, len(tasks)))
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        with (
            _workers.pool(folder / jobs.UNFINISHED, workers, len(tasks), _begin, (settings, threads)) as pool,
            jobs.Bar(len(photos) * settings.copies, "augment", len(done), **_facts(settings, len(photos))) as bar,
            (folder / FILES).open("a", **TEXT) as files,
        ):
            results = pool.map(_picture, *zip(*tasks, strict=True), chunksize=4) if tasks else iter(())
            for (_, _, copies), made in zip(tasks, results, strict=True):
                bar.update(len(copies))
                if isinstance(made, list):
                    _write_lines(files, made)
                elif settings.on_error == "fail":
                    raise PhotoError(made)
                else:
                    skipped += 1
                    bar.write(f"skipped {made}")
    jobs.tell_skipped(skipped, len(photos))


def _photos(settings: Settings) -> list[Path]:
    """The images of the source, sorted; an image's position is the index that keys its draws."""
    classes(settings.source)  # a dangling link among the classes is an error
    photos: list[Path] = []
    empty: dict[Path, None] = {}
    for name, inside in walk(settings.source):
        folder = Path(name)
        photos += [Path(path).relative_to(settings.source) for path in inside]
        empty[folder] = None
        if inside:
            for parent in (folder, *folder.parents):
                empty.pop(parent, None)
    for folder in empty:  # a class that would be lost
        message = f"{shown(folder)}: expected images ({', '.join(PICTURES)}), found none"
        if settings.on_error == "fail" or not photos:
            raise FileNotFoundError(message)
        print(f"skipped {message}")
    jobs.check_distinct(settings.source, photos, lambda photo: photo.with_suffix(""))
    return photos


def _target(photo: Path, copy: int, format: str) -> Path:
    return photo.with_name(f"{photo.stem}-{copy}{SUFFIXES[format]}")


def _missing(settings: Settings, photo: Path, done: set[str]) -> list[int]:
    return [c for c in range(settings.copies) if str(_target(photo, c, settings.format)) not in done]


_shared: Any = None  # in a worker: the settings, and threads of its own


def _begin(shared: Any) -> None:
    global _shared
    _shared = shared


def _picture(number: int, photo: Path, copies: list[int]) -> list[dict[str, Any]] | str:
    """Write these copies of an image; return their records, or an error message."""
    settings: Settings = _shared[0]
    path = settings.source / photo
    try:
        jobs.check_name(settings.destination, _target(photo, settings.copies - 1, settings.format), path)
        stamp = stamped(path)
        image, digest = read(path, settings.size), sha256(path)
        if stamped(path) != stamp:
            raise PhotoError(f"{shown(path)}: expected a file that does not change, but it changed while it was read")
    except PhotoError as error:
        return str(error)
    lines = []
    for copy in copies:
        pixels, plan = augment(
            image[None], np.array([number]), copy, settings.config, settings.seed, settings.device, _shared[1]
        )
        target = _target(photo, copy, settings.format)
        with jobs.finishing(settings.destination, target) as temporary:
            temporary.write_bytes(encoded(pixels[0], settings.format, settings.quality))
        lines.append({
            "file": str(target), "source": str(photo), "source_sha256": digest, "source_stamp": stamp,
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
    if not (min(height, width) >= 8 and max(height, width) <= _arguments.MAX_SIDE):
        raise PhotoError(
            f"{shown(path)}: expected sides of 8 to {_arguments.MAX_SIDE} pixels, got {height} x {width}; "
            "--size resizes"
        )
    return image


def stamped(path: Path) -> list[int] | None:
    """Size and times of a file; equal ones mean equal content. None: it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def encoded(pixels: NDArray[np.uint8], format: str, quality: int | None) -> bytes:
    """The content of a file of these pixels, uint8 ``[H, W, 3]``."""
    from PIL import Image

    options: dict[str, Any] = {} if quality is None else {"quality": quality}
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format.upper(), **options)
    return buffer.getvalue()


# CIFAR: the files of its binary version.


def cifar(settings: Settings) -> None:
    """Write CIFAR's files, each with a part of the clean images, then their copy 0, their copy 1, ...

    The labels are those of the source; CIFAR-100's coarse ones, which training does not read, are 255.
    """
    assert settings.cifar is not None
    train, test = (read_cifar(settings.source, settings.cifar, train=part) for part in (True, False))
    if any(len(name.split()) != 1 for name in train.classes):
        raise ValueError(f"{settings.source}: expected names of classes without spaces, got {train.classes}")
    folder, count = settings.destination, len(train.images)
    names = BINARY_FILES[settings.cifar, True]
    if count < len(names):
        raise ValueError(f"{settings.source}: expected at least {len(names)} images, one per file, got {count}")
    source = jobs.source_of_arrays(settings.source, train.images, train.labels)
    with jobs.destination(folder, _manifest(settings, source), "augment"):
        done = _done(folder, None)
        parts = dict(zip(names, np.array_split(np.arange(count), len(names)), strict=True))
        there = sum(len(part) * settings.copies for name, part in parts.items() if name in done)
        with (
            jobs.Bar(count * settings.copies, "augment", there, **_facts(settings, count)) as bar,
            (folder / FILES).open("a", **TEXT) as files,
        ):
            for name, part in parts.items():
                if name in done:
                    continue
                with jobs.finishing(folder, Path(name)) as temporary, temporary.open("wb") as file:
                    for copy in (None, *range(settings.copies)):
                        for numbers in np.array_split(part, -(-len(part) // _BATCH)):
                            images = train.images[numbers]
                            if copy is not None:
                                images, _ = augment(
                                    images, numbers, copy, settings.config, settings.seed, settings.device,
                                    settings.workers,
                                )  # fmt: skip
                                bar.update(len(images))
                            file.write(_records(images, train.labels[numbers], settings.cifar))
                records = len(part) * (settings.copies + 1)
                _write_lines(files, [{"file": name, "first_number": int(part[0]), "records": records}])
        (test_name,) = BINARY_FILES[settings.cifar, False]
        with jobs.finishing(folder, Path(test_name)) as temporary:
            temporary.write_bytes(_records(test.images, test.labels, settings.cifar))
        with jobs.finishing(folder, Path(BINARY_NAMES[settings.cifar])) as temporary:
            temporary.write_text("".join(f"{name}\n" for name in train.classes))


def _records(images: NDArray[np.uint8], labels: NDArray[np.int64], classes: int) -> bytes:
    """Images as CIFAR's binary version has them: labels, then 1,024 bytes per channel."""
    columns = [labels[:, None].astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(len(images), -1)]
    if classes == 100:
        columns.insert(0, np.full((len(images), 1), 255, np.uint8))
    return np.concatenate(columns, 1).tobytes()


# The records of files.


def _write_lines(file: Any, entries: list[dict[str, Any]]) -> None:
    with naming(Path(file.name)):
        file.write("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))
        file.flush()


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of :data:`FILES` in ``folder``.

    Raises:
        ValueError: A line is damaged; the message names it.
    """
    yield from _LINE.json_lines(folder / FILES)


def of_cifar(entry: Any) -> bool:
    """Whether a record is of a file of CIFAR, not of an image file."""
    return isinstance(entry, dict) and "records" in entry


_NUMBERS = range(2**63)
_CIFAR = {"file": str, "first_number": _NUMBERS, "records": _NUMBERS}
_PICTURE = {"file": str, "source": str, "source_sha256": str, "number": _NUMBERS, "copy": range(MAX_COPIES)}
_LINE = Kind(
    lambda entry: _CIFAR if of_cifar(entry) else _PICTURE, "a line of prime-dali augment",
    "remove this line, and the run makes its file again",
)  # fmt: skip


def _done(folder: Path, source: Path | None) -> set[str]:
    """The files that exist and have a record; other records are dropped, and other files written again.

    Args:
        folder: The destination.
        source: The folder of images, or None for CIFAR, whose images the manifest records.

    Raises:
        ValueError: An image has changed since its copies were made.
    """
    done = set()
    stamps: dict[str, list[int] | None] = {}
    with jobs.finishing(folder, Path(FILES)) as temporary, temporary.open("w", **TEXT) as file:
        for entry in entries(folder) if (folder / FILES).exists() else ():
            if of_cifar(entry) == (source is None) and os.path.isfile(folder / entry["file"]):
                if source is not None:
                    entry["source_stamp"] = _unchanged(entry, source, stamps)
                _write_lines(file, [entry])
                done.add(entry["file"])
    return done


def _unchanged(entry: dict[str, Any], source: Path, stamps: dict[str, list[int] | None]) -> list[int] | None:
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


def _facts(settings: Settings, images: int) -> dict[str, object]:
    """What a run says at its beginning."""
    side = f", resized to {settings.size} x {settings.size}" if settings.size else ""
    return {
        "data": f"{shown(settings.source)}, {images:,} images{side}", "copies": f"{settings.copies} of each image",
        "device": f"{settings.device}, {settings.workers} workers", "out": shown(settings.destination),
    }  # fmt: skip


def _manifest(settings: Settings, source: dict[str, Any]) -> dict[str, Any]:
    return {
        "about": "Made by prime-dali augment. Copy k of image number i is what prime_dali.apply makes with the plan "
        f"prime_dali.sample(PrimeConfig(**config), [i], size=(height, width), seed=seed, epoch=k). {FILES} has a line "
        "for each file.",
        "source": source,
        **{
            name: getattr(settings, name) for name in ("copies", "seed", "cifar", "size", "format", "quality", "device")
        },
        "config": dataclasses.asdict(settings.config),
        "versions": {"prime-dali": __version__, **{name: version(name) for name in ("numpy", "pillow")}},
    }
