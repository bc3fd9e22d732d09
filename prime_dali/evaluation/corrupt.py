"""``prime-dali corrupt``: make a corruption benchmark from a clean test set, in the layout of the published one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__, _arguments, _command, _workers
from ..data import folders as _folders
from ..data import jobs
from ..data.cifar import SIDE, read_cifar
from ..data.pictures import PhotoError, open_picture, reading
from . import corruptions, distortions
from .names import SEVERITIES

BENCHMARKS = {
    ("cifar10", "c"): "CIFAR-10-C", ("cifar10", "c-bar"): "CIFAR-10-C-bar",
    ("cifar100", "c"): "CIFAR-100-C", ("cifar100", "c-bar"): "CIFAR-100-C-bar",
    ("imagenet", "c"): "ImageNet-C", ("imagenet", "c-bar"): "ImageNet-C-bar",
}  # fmt: skip
_BATCH = 250  # CIFAR images a task


@dataclass(frozen=True)
class Settings:
    """Settings of :func:`run`, which checks them."""

    data: str
    """``cifar10``, ``cifar100`` or ``imagenet``."""
    source: Path
    destination: Path
    which: str = "c"
    """``c`` or ``c-bar``."""
    names: Sequence[str] = ()
    """Corruptions to make; empty: those that the benchmark's mean includes."""
    extra: bool = False
    """Also make the four extra corruptions of C."""
    severities: Sequence[int] = SEVERITIES
    seed: int = 0
    workers: int = 1
    on_error: str = "fail"
    """``skip``: log and leave out photographs that cannot be read."""

    @property
    def kind(self) -> str:
        """The first key of :data:`.corruptions.STRENGTHS`."""
        return "imagenet" if self.data == "imagenet" else "cifar"


def parser() -> _command.Parser:
    """The command's arguments."""
    out = _command.Parser(
        prog="prime-dali corrupt",
        description="Make a corruption benchmark from a clean test set, in the layout of the published one. A run that "
        "was stopped resumes with the same command.",
    )
    out.add_argument("data", choices=("cifar10", "cifar100", "imagenet"), help="data set of SRC")
    out.add_argument("source", type=Path, metavar="SRC", help="CIFAR as published, or CLASS/PHOTO folders")
    out.add_argument("destination", type=Path, metavar="DST", help="the folder to write, or to resume")
    out.add_argument(
        "--benchmark",
        dest="which",
        choices=("c", "c-bar"),
        default="c",
        help="c: the fifteen corruptions (default); c-bar: ten others",
    )
    out.add_argument("--only", dest="names", nargs="+", default=(), metavar="NAME", help="make only these corruptions")
    out.add_argument(
        "--extra", action="store_true", help="also make the extra corruptions of c, which no mean includes"
    )
    out.add_argument(
        "--severities", nargs="+", type=int, default=SEVERITIES, metavar="S",
        help="make only these severities, from 1 to 5; CIFAR arrays then have only their blocks",
    )  # fmt: skip
    out.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    out.add_argument("--workers", type=_command.workers, default="0", help="processes; 0: one per core")
    out.add_argument(
        "--on-error", choices=("fail", "skip"), default="fail",
        help="skip: log and leave out unreadable photographs of ImageNet (default: fail)",
    )  # fmt: skip
    return out


def main(argv: list[str]) -> None:
    """Parse ``argv`` and make the benchmark; errors as :func:`run`."""
    run(Settings(**vars(parser().parse_args(argv))))


def run(settings: Settings) -> None:
    """Make the benchmark, or the files of it that are missing.

    The files depend only on the source, seed and library versions, not on the number of workers or interruptions.
    ``manifest.json`` in the destination records how they were made, and that they are not the published ones.

    Raises:
        TypeError, ValueError: A setting is invalid, the destination was made with other settings, or a source file is
            invalid; the message names it.
        FileNotFoundError: The source does not exist.
        OSError: A file cannot be read or written; the message names it.
        RuntimeError: Another run is writing to the destination, or a worker process died.
    """
    settings = _checked(settings)
    (_imagenet if settings.kind == "imagenet" else _cifar)(settings)


def _checked(settings: Settings) -> Settings:
    """``settings`` with names and severities in order, without duplicates."""
    if (settings.data, settings.which) not in BENCHMARKS:
        raise ValueError(f"benchmark: expected one of {sorted(BENCHMARKS)}, got {(settings.data, settings.which)}")
    known = corruptions.STRENGTHS[settings.kind, settings.which]
    wanted = set(settings.names or corruptions.main_names(settings.kind, settings.which))
    if settings.extra:
        if settings.which != "c":
            raise ValueError(
                "extra: expected only with the benchmark c, got it with c-bar, which has no extra corruptions"
            )
        wanted |= known.keys() - set(corruptions.main_names(settings.kind, settings.which))
    for name in sorted(wanted - known.keys()):
        raise ValueError(_arguments.unknown("names", name, known))
    for severity in settings.severities:
        _arguments.integer("severity", severity, SEVERITIES[0], SEVERITIES[-1])
    _arguments.integer("seed", settings.seed, 0, 2**63 - 1)
    _arguments.integer("workers", settings.workers, 1, 4096)
    if "frost" in wanted:
        distortions.ice(0, 1)  # missing textures show now, not when it is frost's turn
    source, destination = settings.source.resolve(), settings.destination.resolve()
    if destination.is_relative_to(source):
        raise ValueError(f"destination: expected a folder outside the source {source}, got {destination}")
    if settings.kind == "cifar" and settings.on_error != "fail":
        raise ValueError(
            f"on_error: expected 'fail' for CIFAR, whose images are in few files, got {settings.on_error!r}"
        )
    return replace(
        settings,
        source=source,
        destination=destination,
        names=[name for name in known if name in wanted],
        severities=sorted(set(settings.severities)),
    )


# CIFAR: one array a corruption.


def _cifar(settings: Settings) -> None:
    data = read_cifar(settings.source, 10 if settings.data == "cifar10" else 100, train=False)
    images, labels = data.images, data.labels.astype(np.uint8)
    severities, count = settings.severities, len(images)
    source = jobs.source_of_arrays(settings.source, images, labels)
    with _destination(settings, source, severities=severities):
        if not (settings.destination / "labels.npy").exists():
            with jobs.finishing(settings.destination, Path("labels.npy")) as temporary:
                np.save(temporary, np.tile(labels, len(severities)))
        names = [name for name in settings.names if not (settings.destination / f"{name}.npy").exists()]
        tasks = [
            (name, severity, settings.seed, start)
            for name in names
            for severity in severities
            for start in range(0, count, _BATCH)
        ]
        with (
            _pool(settings, len(tasks), images) as pool,
            _bar(settings, len(names) * len(severities) * count) as bar,
        ):
            parts = pool.map(_cifar_part, *zip(*tasks, strict=True)) if tasks else iter(())
            for name in names:
                out = np.empty((len(severities) * count, SIDE, SIDE, 3), np.uint8)
                filled = 0
                while filled < len(out):
                    part = next(parts)
                    out[filled : filled + len(part)] = part
                    filled += len(part)
                    bar.update(len(part))
                with jobs.finishing(settings.destination, Path(f"{name}.npy")) as temporary:
                    np.save(temporary, out)


def _cifar_part(name: str, severity: int, seed: int, start: int) -> NDArray[np.uint8]:
    images = _shared[start : start + _BATCH]
    return corruptions.cifar(images, name, severity, seed=seed, numbers=range(start, start + len(images)))


# ImageNet: one JPEG an image, corruption and severity.


def _imagenet(settings: Settings) -> None:
    photos = _photos(settings.source)
    skipped = 0
    with (
        _destination(settings, jobs.source_of_contents(settings.source, photos)),
        _pool(settings, len(photos), settings) as pool,
        _bar(settings, len(photos)) as bar,
    ):
        for error in pool.map(_imagenet_photo, range(len(photos)), photos, chunksize=4):
            bar.update()
            if error and settings.on_error == "fail":
                raise PhotoError(error)
            if error:
                skipped += 1
                bar.write(f"skipped {error}")
    jobs.tell_skipped(skipped, len(photos))


def _photos(source: Path) -> list[Path]:
    """``CLASS/PHOTO`` of every photograph, sorted; its position is the index that keys its random draws."""
    folders = _folders.classes(source) if source.is_dir() else []
    if not folders:
        raise FileNotFoundError(f"{source}: expected folders of photographs, CLASS/PHOTO, found none")
    photos = []
    for folder in folders:
        inside = _folders.find([source / folder])
        photos += [path.relative_to(source) for path in inside]
    jobs.check_distinct(source, photos, lambda photo: photo.with_name(_name(photo)))
    return photos


def _name(photo: Path) -> str:
    """Name of the JPEG made from a photograph, in the folder of its class."""
    return photo.name if photo.suffix.lower() in (".jpg", ".jpeg") else f"{photo.name}.JPEG"


def _imagenet_photo(number: int, photo: Path) -> str:
    """Write the missing files of one photograph; return an error message, or an empty string."""
    from PIL import Image

    settings: Settings = _shared
    wanted = {
        (corruption, severity): Path(corruption, str(severity), photo.parent, _name(photo))
        for corruption in settings.names
        for severity in settings.severities
    }
    missing = {key: path for key, path in wanted.items() if not (settings.destination / path).exists()}
    if not missing:
        return ""
    try:
        longest = max(wanted.values(), key=lambda path: len(os.fsencode(path)))
        jobs.check_name(settings.destination, longest, settings.source / photo)
        image = read_224(settings.source / photo)
    except PhotoError as error:
        return str(error)
    for (corruption, severity), path in missing.items():
        changed = corruptions.imagenet(image, corruption, severity, seed=settings.seed, number=number)
        with jobs.finishing(settings.destination, path) as temporary:
            Image.fromarray(changed).save(temporary, "JPEG", quality=85, optimize=True)
    return ""


def read_224(path: Path) -> NDArray[np.uint8]:
    """Read a photograph as for ImageNet-C: shorter side bilinear to 256, center 224 x 224, RGB uint8 ``[224, 224, 3]``.

    Raises:
        PhotoError: As :func:`.open_picture`.
    """
    from PIL import Image

    image = open_picture(path)
    with reading(path):  # of a very long one, memory may not hold what is resized
        short = min(image.size)
        width, height = (int(256 * side / short) for side in image.size)
        left, top = round((width - 224) / 2), round((height - 224) / 2)
        resized = image.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized.crop((left, top, left + 224, top + 224)))


# What both do with a folder and with processes.


def _destination(settings: Settings, source: dict[str, Any], **more: Any) -> AbstractContextManager[None]:
    """The destination, locked by this run, with a manifest."""
    import cv2

    benchmark = BENCHMARKS[settings.data, settings.which]
    manifest = {
        "about": f"{benchmark}, regenerated by prime-dali from a clean test set. These are not the published files.",
        "benchmark": benchmark,
        "source": source,
        "seed": settings.seed,
        **more,
        "versions": {
            "prime-dali": __version__,
            "opencv": cv2.__version__,
            **{name: version(name) for name in ("numpy", "scipy", "scikit-image", "pillow")},
        },
        "strengths": corruptions.STRENGTHS[settings.kind, settings.which],
    }
    return jobs.destination(settings.destination, manifest, "corrupt")


_shared: Any = None  # in a worker: all images, or the settings


def _begin(shared: Any) -> None:
    import cv2

    global _shared
    _shared = shared
    cv2.setNumThreads(1)


def _pool(settings: Settings, tasks: int, shared: Any) -> AbstractContextManager[_workers.Pool]:
    return _workers.pool(settings.destination / jobs.UNFINISHED, settings.workers, tasks, _begin, shared)


def _bar(settings: Settings, images: int) -> jobs.Bar:
    severities = " ".join(map(str, settings.severities))
    return jobs.Bar(
        images, BENCHMARKS[settings.data, settings.which], data=_folders.shown(settings.source),
        corruptions=f"{len(settings.names)}, at severities {severities}", device=f"cpu, {settings.workers} workers",
        out=_folders.shown(settings.destination),
    )  # fmt: skip
