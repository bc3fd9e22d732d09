"""``prime-dali corrupt``: make a corruption benchmark from a clean test set, in the layout of the published one."""

from __future__ import annotations

import functools
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
from .._files import shown
from .._wording import plural
from ..data import destinations, partition
from ..data.cifar import SIDE, Cifar, read_cifar
from ..data.partition import Shard
from ..data.pictures import PhotoError, decoded
from . import corruptions
from .names import SEVERITIES
from .photographs import Photographs, jpeg_name, open_photographs, prepared

BENCHMARKS = {
    ("cifar10", "c"): "CIFAR-10-C", ("cifar10", "c-bar"): "CIFAR-10-C-bar",
    ("cifar100", "c"): "CIFAR-100-C", ("cifar100", "c-bar"): "CIFAR-100-C-bar",
    ("imagenet", "c"): "ImageNet-C", ("imagenet", "c-bar"): "ImageNet-C-bar", ("tinyimagenet", "c"): "Tiny-ImageNet-C",
}  # fmt: skip
_BATCH = 250  # CIFAR images a task


@dataclass(frozen=True)
class Settings:
    """Settings of :func:`run`, which checks them."""

    data: str
    """``cifar10``, ``cifar100``, ``imagenet`` or ``tinyimagenet``."""
    source: Path
    """CIFAR, as for :func:`prime_dali.data.cifar.read_cifar`; or photographs: ``CLASS/PHOTO``, or shards, as for
    :func:`prime_dali.data.formats.open_records`."""
    destination: Path
    which: str = "c"
    """``c``, or ``c-bar``, which Tiny ImageNet does not have."""
    names: Sequence[str] = ()
    """Corruptions to make; empty: those that the benchmark's mean includes."""
    extra: bool = False
    """Also make the four extra corruptions of C."""
    severities: Sequence[int] = SEVERITIES
    seed: int = 0
    workers: int = 1
    on_error: str = "raise"
    """``skip``: log and leave out photographs that cannot be read."""
    label: str | None = None
    """Where shards in ``source`` have the label; None: the usual names."""
    shard: Shard | None = None
    """Do only this part of the work; :func:`join` puts the parts together."""

    @property
    def kind(self) -> str:
        """The first key of :data:`.corruptions.STRENGTHS`."""
        return "cifar" if self.data.startswith("cifar") else self.data


def parser() -> _command.Parser:
    """The command's arguments."""
    out = _command.Parser(
        prog="prime-dali corrupt",
        description="Make a corruption benchmark from a clean test set, in the layout of the published one. A run that "
        "was stopped resumes with the same command. Several machines each make a part with --shard, and --join puts "
        "the parts together.",
    )
    kinds = tuple(dict.fromkeys(data for data, _ in BENCHMARKS))
    out.add_argument("data", choices=kinds, help="data set of SRC")
    out.add_argument("source", type=Path, metavar="SRC", help="CIFAR as published, CLASS/PHOTO folders, or shards")
    out.add_argument("destination", type=Path, metavar="DST", help="the folder to write, or to resume")
    out.add_argument(
        "--benchmark", dest="which", choices=("c", "c-bar"), default="c",
        help="c: the fifteen corruptions (default); c-bar: ten others",
    )  # fmt: skip
    out.add_argument("--only", dest="names", nargs="+", default=(), metavar="NAME", help="make only these corruptions")
    out.add_argument(
        "--extra", action="store_true", help="also make the extra corruptions of c, which no mean includes"
    )
    out.add_argument(
        "--severities", nargs="+", type=int, default=SEVERITIES, metavar="S",
        help="make only these severities, from 1 to 5; CIFAR arrays then have only their blocks",
    )  # fmt: skip
    out.add_argument(
        "--label", metavar="NAME", help="column, feature, or field of the labels in shards; default: the usual names"
    )
    out.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    out.add_argument("--workers", type=_command.workers, default="0", help="processes; 0: one per core")
    out.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise",
        help="skip: log and leave out unreadable photographs of ImageNet (default: raise, an error)",
    )  # fmt: skip
    partition.add_options(out)
    return out


def main(argv: list[str]) -> None:
    """Parse ``argv`` and make or join the benchmark; errors as :func:`run` and :func:`join`."""
    options = vars(parser().parse_args(argv))
    (join if options.pop("join") else run)(Settings(**options))


def run(settings: Settings) -> None:
    """Make the benchmark, or the files of it that are missing; with ``settings.shard`` only those of this shard.

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
    (_cifar if settings.kind == "cifar" else _imagenet)(settings)


def join(settings: Settings) -> None:
    """Put together what the shards of :func:`run` have made: the same files as of a run without shards.

    Args:
        settings: Those of the shards; ``shard`` is None.

    Raises:
        ValueError: As :func:`run`; or the work of a shard is missing; the message names the shards to run again.
        FileNotFoundError: As :func:`run`; or there is nothing to join.
        RuntimeError: A shard or another run is writing to the destination.
    """
    settings = _checked(settings)
    (_join_cifar if settings.kind == "cifar" else _join_imagenet)(settings)


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
    source, destination = settings.source.resolve(), settings.destination.resolve()
    if destination.is_relative_to(source):
        raise ValueError(f"destination: expected a folder outside the source {source}, got {destination}")
    if settings.kind == "cifar" and settings.on_error != "raise":
        raise ValueError(
            f"on_error: expected 'raise' for CIFAR, whose images are in few files, got {settings.on_error!r}"
        )
    corruptions.require(wanted)
    return replace(
        settings,
        source=source,
        destination=destination,
        label=settings.label or None,
        names=[name for name in known if name in wanted],
        severities=sorted(set(settings.severities)),
    )


# CIFAR: one array a corruption.


def _cifar(settings: Settings) -> None:
    data, manifest = _read_cifar(settings)
    folder, shard = settings.destination, settings.shard
    with destinations.filling(folder, manifest, "corrupt", shard) as work:
        if shard is None:
            _write_labels(settings, data.labels)
        blocks = partition.chosen(shard, _blocks(settings, data))
        count = sum(size for _, _, size in blocks)
        own = partition.own_folder(Path(), shard)
        names = [
            name
            for name in settings.names
            if blocks and not any((folder / part / f"{name}.npy").exists() for part in (Path(), own))
        ]
        tasks = [(name, severity, settings.seed, start) for name in names for severity, start, _ in blocks]
        with _pool(settings, len(tasks), data.images) as pool, _bar(settings, len(names) * count) as bar:
            parts = pool.map(_cifar_part, *zip(*tasks, strict=True)) if tasks else iter(())
            for name in names:
                out = np.empty((count, SIDE, SIDE, 3), np.uint8)
                filled = 0
                while filled < len(out):
                    part = next(parts)
                    out[filled : filled + len(part)] = part
                    filled += len(part)
                    bar.update(len(part))
                with destinations.finishing(folder, own / f"{name}.npy", shard) as temporary:
                    np.save(temporary, out) if shard is None else out.tofile(temporary)
                work.made += 1


def _join_cifar(settings: Settings) -> None:
    data, manifest = _read_cifar(settings)
    folder, blocks = settings.destination, _blocks(settings, data)
    with destinations.joining(folder, manifest, "corrupt") as all_shards:
        names = [f"{name}.npy" for name in settings.names if not (folder / f"{name}.npy").exists()]
        partition.check_parts(folder, all_shards, dict.fromkeys(names, len(blocks)))
        _write_labels(settings, data.labels)
        for name in names:
            parts = [shard.folder(folder) / name for shard in all_shards]
            pixels = b"".join(partition.woven(parts, [size * SIDE * SIDE * 3 for _, _, size in blocks]))
            with destinations.finishing(folder, Path(name)) as temporary:
                np.save(temporary, np.frombuffer(pixels, np.uint8).reshape(-1, SIDE, SIDE, 3))
    _tell_joined(settings, all_shards, len(data.images))


def _read_cifar(settings: Settings) -> tuple[Cifar, dict[str, Any]]:
    """The images, and the destination's manifest."""
    data = read_cifar(settings.source, 10 if settings.data == "cifar10" else 100, train=False, label=settings.label)
    source = destinations.source_of_arrays(settings.source, data.images, data.labels)
    return data, _manifest(settings, source, severities=settings.severities)


def _blocks(settings: Settings, data: Cifar) -> list[tuple[int, int, int]]:
    """Severity, first image and number of images of each block of a corruption's file, in their order there."""
    count = len(data.images)
    return [(severity, start, min(_BATCH, count - start)) for severity in settings.severities
            for start in range(0, count, _BATCH)]  # fmt: skip


def _write_labels(settings: Settings, labels: NDArray[np.int64]) -> None:
    if not (settings.destination / "labels.npy").exists():
        with destinations.finishing(settings.destination, Path("labels.npy")) as temporary:
            np.save(temporary, np.tile(labels.astype(np.uint8), len(settings.severities)))


def _cifar_part(images: NDArray[np.uint8], name: str, severity: int, seed: int, start: int) -> NDArray[np.uint8]:
    images = images[start : start + _BATCH]
    return corruptions.cifar(images, name, severity, seed=seed, numbers=range(start, start + len(images)))


# ImageNet: one JPEG an image, corruption and severity.


def _imagenet(settings: Settings) -> None:
    photos, manifest = _read_photographs(settings)
    folder, shard, own = settings.destination, settings.shard, partition.chosen(settings.shard, range(len(photos)))
    with (
        destinations.filling(folder, manifest, "corrupt", shard) as work,
        _pool(settings, len(own), (settings, photos)) as pool,
        _bar(settings, len(own)) as bar,
    ):
        results = pool.map(_imagenet_photo, own, chunksize=4)
        for place, (number, (made, error)) in enumerate(zip(own, results, strict=True), 1):
            work.made += made
            if error and settings.on_error == "raise":
                raise destinations.stopping(error, own[place:], functools.partial(_read_photo, settings, photos), bar)
            bar.update()
            if error:
                work.skipped.append(str(photos.names[number]))
                bar.write(f"skipped {error}")
    destinations.tell_skipped(len(work.skipped), len(photos))


def _join_imagenet(settings: Settings) -> None:
    photos, manifest = _read_photographs(settings)
    folder = settings.destination
    listed = functools.lru_cache(4096)(lambda inside: set(os.listdir(inside)) if inside.is_dir() else set())
    with destinations.joining(folder, manifest, "corrupt") as them:
        incomplete = [
            number
            for number in range(len(photos))
            if any(path.name not in listed(folder / path.parent) for path in _paths(settings, photos, number).values())
        ]
        destinations.check_joined(folder, them, photos.names, incomplete, settings.on_error)
    _tell_joined(settings, them, len(photos) - len(incomplete))


def _read_photographs(settings: Settings) -> tuple[Photographs, dict[str, Any]]:
    """The photographs, and the destination's manifest."""
    photos = open_photographs(settings.source, settings.label)
    return photos, _manifest(settings, destinations.source_of_contents(settings.source, photos.records, photos.names))


def _paths(settings: Settings, photos: Photographs, number: int) -> dict[tuple[str, int], Path]:
    """The files to make from a photograph, by corruption and severity."""
    target = jpeg_name(photos.names[number])
    return {
        (corruption, severity): Path(corruption, str(severity), target)
        for corruption in settings.names
        for severity in settings.severities
    }


def _imagenet_photo(shared: tuple[Settings, Photographs], number: int) -> tuple[int, str]:
    """Write the missing files of one photograph; return their number, and an error message or an empty string."""
    from PIL import Image

    settings, photos = shared
    wanted = _paths(settings, photos, number)
    missing = {key: path for key, path in wanted.items() if not (settings.destination / path).exists()}
    if not missing:
        return 0, ""
    try:
        image = _read_photo(settings, photos, number)
    except PhotoError as error:
        return 0, str(error)
    for (corruption, severity), path in missing.items():
        changed = corruptions.one(settings.kind, image, corruption, severity, seed=settings.seed, number=number)
        with destinations.finishing(settings.destination, path, settings.shard) as temporary:
            Image.fromarray(changed).save(temporary, "JPEG", quality=85, optimize=True)
    return len(missing), ""


def _read_photo(settings: Settings, photos: Photographs, number: int) -> NDArray[np.uint8]:
    """A photograph before it is corrupted; PhotoError if it cannot be used, or a file of it cannot be named."""
    name = photos.records.name(number)
    longest = max(_paths(settings, photos, number).values(), key=lambda path: len(os.fsencode(path)))
    destinations.check_name(settings.destination, longest, name)
    return prepared(decoded(photos.records.encoded(number), name), name, corruptions.SIDES[settings.kind])


# What both do with a folder and with processes.


def _manifest(settings: Settings, source: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The destination's manifest."""
    import cv2

    benchmark = BENCHMARKS[settings.data, settings.which]
    return {
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


def _tell_joined(settings: Settings, joined: Sequence[Shard], images: int) -> None:
    made = f"{plural(len(settings.names), 'corruption')} of {plural(images, 'image')}"
    print(f"joined {plural(len(joined), 'shard')}: {made}")


def _begin(_: Any) -> None:
    import cv2

    cv2.setNumThreads(1)


def _pool(settings: Settings, tasks: int, shared: Any) -> AbstractContextManager[_workers.Pool]:
    folder = destinations.unfinished(settings.destination, settings.shard)
    return _workers.pool(folder, settings.workers, tasks, shared, _begin)


def _bar(settings: Settings, images: int) -> destinations.Bar:
    severities = " ".join(map(str, settings.severities))
    return destinations.Bar(
        images, BENCHMARKS[settings.data, settings.which], data=shown(settings.source),
        corruptions=f"{len(settings.names)}, at severities {severities}", out=shown(settings.destination),
        device=f"cpu, {plural(settings.workers, 'worker')}", **partition.facts(settings.shard),
    )  # fmt: skip
