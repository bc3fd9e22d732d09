"""``prime-dali augment``: offline augmentation of a folder of images, or of CIFAR, before training."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _arguments, _batches, _command, _devices, _options
from .._command import Parser
from .._files import replacing, shown
from .._wording import plural
from ..config import PrimeConfig, require_image_draws
from ..data import destinations, partition
from ..data.cifar import read_cifar
from . import copies as _copies
from . import joined as _joined
from . import provenance as _provenance
from .copies import SUFFIXES, Settings
from .provenance import FILES, MAX_COPIES


def parser() -> Parser:
    """The command's arguments."""
    out = Parser(
        prog="prime-dali augment",
        description="Augment a folder of images, or CIFAR, before training. Copy K of SRC/CLASS/NAME.jpg becomes "
        "DST/CLASS/NAME-K.png, or NAME.jpg-K.png if SRC also has a NAME.png. A stopped run resumes with the same "
        "command; DST/manifest.json and DST/files.jsonl say what was drawn. Several machines each make a part with "
        "--shard, and --join puts the parts together. Without --size every image keeps its size; the default --preset "
        "is imagenet, or cifar with --cifar.",
    )
    add = out.add_argument
    add("source", type=Path, metavar="SRC", help="a folder of images, not shards; with --remake: a file of an earlier "
        "DST")  # fmt: skip
    add("destination", type=Path, metavar="DST", help="the folder to fill; with --remake: the file to write")
    add("--copies", type=int, metavar="K", help="copies of each image (required)")
    add(
        "--cifar", type=int, choices=(10, 100),
        help="SRC is CIFAR; DST becomes its binary version, with the clean images and the copies for training, and the "
        "clean test part",
    )  # fmt: skip
    _options.add_images(out)
    out.set_defaults(size=None, preset=None)
    add("--format", choices=tuple(SUFFIXES), default="png", help="png is exact")
    add("--quality", type=int, help="JPEG quality, 1 to 100; default: 95")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where PRIME runs; auto: a GPU if usable")
    add("--workers", type=_command.whole(0, 4096), default=0, help="processes, with --cifar threads; 0: one per core, "
        "with CUDA at most 16")  # fmt: skip
    partition.add_options(out)
    add("--remake", action="store_true", help="make one image again: a file of DST, or data_batch_1.bin:RECORD")
    return out


def main(argv: list[str]) -> None:
    """Parse ``argv`` and make the copies, or make one of them again; errors as for :func:`run` and :func:`remake`."""
    arguments = parser()
    options = arguments.parse_args(argv)
    if options.remake:
        for name in arguments.given(argv):
            if name != "remake":
                arguments.error(f"--remake: expected SRC and DST alone, got --{name.replace('_', '-')}")
        _write_again(options.source, options.destination)
        return
    if options.copies is None:
        arguments.error("--copies: required, but not given")
    options.workers = options.workers or None
    options.preset = options.preset or ("cifar" if options.cifar else "imagenet")
    fields = {field.name for field in dataclasses.fields(Settings)} - {"config"}
    (join if options.join else run)(
        Settings(config=_options.distributions(options), **{name: getattr(options, name) for name in fields})
    )


def run(settings: Settings) -> None:
    """Make the copies, or those that are missing; with ``settings.shard`` only those of this shard.

    The source is not modified. The files depend only on the source, settings and library versions, not on the number
    of workers or on interruptions; those of CUDA and CPU differ in rounding. Images are rotated upright according to
    EXIF and have no metadata. When a run resumes, it reads sources whose size or times have changed; their content
    must be the same.

    Raises:
        TypeError, ValueError: A setting is invalid, the destination was made with other settings, two sources would
            have copies with the same names, or a source file is invalid; the message names it.
        FileNotFoundError: The source does not exist, or one of its folders has no images.
        RuntimeError: Another run is writing to the destination, or the destination was removed.
    """
    settings = _checked(settings)
    (_copies.pictures if settings.cifar is None else _copies.cifar)(settings)


def join(settings: Settings) -> None:
    """Put together what the shards of :func:`run` have made: the same files as of a run without shards.

    Args:
        settings: Those of the shards; ``shard`` is None.

    Raises:
        ValueError: As :func:`run`; or the work of a shard is missing, or there twice with a difference. The message
            names the shards to run again.
        FileNotFoundError: As :func:`run`; or there is nothing to join.
        RuntimeError: A shard or another run is writing to the destination.
    """
    settings = _checked(settings)
    (_joined.pictures if settings.cifar is None else _joined.cifar)(settings)


def _checked(settings: Settings) -> Settings:
    """``settings`` with absolute paths, and device, workers and quality filled in."""
    _arguments.integer("copies", settings.copies, 1, MAX_COPIES)
    _arguments.seed(settings.seed)
    require_image_draws(settings.config, "in offline augmentation")
    if settings.workers is not None:
        _arguments.integer("workers", settings.workers, 1, 4096)
    for argument, value, known in (
        ("format", settings.format, tuple(SUFFIXES)),
        ("on_error", settings.on_error, ("raise", "skip")),
        ("device", settings.device, ("auto", "cpu", "cuda")),
        ("cifar", settings.cifar, (None, 10, 100)),
    ):
        if value not in known:
            raise ValueError(_arguments.unknown(argument, value, map(str, known)))
    if settings.size is not None:
        _arguments.side("size", settings.size)
    quality = settings.quality
    if settings.format == "jpeg":
        quality = _arguments.integer("quality", 95 if quality is None else quality, 1, 100)
    elif quality is not None:
        raise ValueError(f"quality: expected only with the format jpeg, got {quality} with {settings.format}")
    if settings.cifar is not None and (settings.size, settings.format, settings.on_error) != (None, "png", "raise"):
        raise ValueError(
            "cifar: expected no size, the format png and on_error raise, for its images are in few files of raw "
            f"pixels, got {settings.size}, {settings.format}, {settings.on_error}"
        )
    source, destination = settings.source.resolve(), settings.destination.resolve()
    if not source.is_dir():
        raise FileNotFoundError(f"{source}: expected a folder of images, found none")
    if destination.is_relative_to(source) or source.is_relative_to(destination):
        raise ValueError(f"destination: expected a folder beside the source {source}, got {destination}")
    if destination.suffix in (".tar", ".parquet", ".arrow", ".zip") and not destination.exists():
        raise ValueError(f"destination: expected a folder to fill, got {destination}, which is named like one file")
    device, workers = _devices.kernel_device(settings.device), settings.workers
    if workers is None:
        cores = _devices.cores()
        workers = min(cores, 16) if device == "cuda" and settings.cifar is None else cores
    return dataclasses.replace(
        settings, source=source, destination=destination, quality=quality, device=device, workers=workers
    )


# Remaking one image.


@dataclass(frozen=True)
class _Made:
    """The manifest's information on a file."""

    folder: Path
    manifest: dict[str, Any]
    entry: dict[str, Any]
    record: int
    """Record in a file of CIFAR; 0 for an image file."""


def _find(file: str | Path) -> _Made:
    name, colon, record = str(file).rpartition(":")
    path = Path(os.path.abspath(name if colon and name.endswith(".bin") else file))
    folder = next((parent for parent in path.parents if (parent / FILES).exists()), None)
    if folder is None:
        raise FileNotFoundError(f"{file}: expected a folder above it with {FILES} of prime-dali augment, found none")
    manifest = destinations.read_manifest(folder, "augment", _MANIFEST)
    entry = next((entry for entry in _provenance.entries(folder / FILES) if folder / entry["file"] == path), None)
    if entry is None or _provenance.of_cifar(entry) != (manifest["cifar"] is not None):
        raise ValueError(f"{folder / FILES}: expected a line for {path.relative_to(folder)}, found none")
    if manifest["cifar"] is None:
        return _Made(folder, manifest, entry, 0)
    if not record.isdecimal() or int(record) >= entry["records"]:
        raise ValueError(f"file: expected {path}:RECORD, RECORD from 0 to {entry['records'] - 1}, got {file}")
    return _Made(folder, manifest, entry, int(record))


_MANIFEST = {
    "copies": range(1, MAX_COPIES + 1), "seed": int, "cifar": (None, frozenset((10, 100))),
    "size": (None, range(_arguments.MIN_SIDE, _arguments.MAX_SIDE + 1)), "format": frozenset(SUFFIXES),
    "quality": (None, range(1, 101)), "device": frozenset(("cpu", "cuda")), "config": dict,
}  # fmt: skip
"""The entries of a manifest that remaking reads."""


def remake(file: str | Path) -> NDArray[np.uint8]:
    """Make an image of :func:`run` again: RGB uint8 ``[H, W, 3]``, as it was before encoding.

    Args:
        file: Its path in the destination, whether it exists or not; for CIFAR, the path of the data file, a colon and
            the index of the record in it, from 0.

    Raises:
        FileNotFoundError: No folder above ``file`` has the manifest, or the source no longer exists.
        ValueError: The manifest has no such file, the source has changed, or the device is not available.
    """
    return _remade(file, _find(file))


def _remade(file: str | Path, made: _Made) -> NDArray[np.uint8]:
    manifest, entry = made.manifest, made.entry
    source = Path(manifest["source"]["path"])
    if not source.is_dir():
        raise FileNotFoundError(
            f"{source}: no such folder; if it has moved, enter its new path in {made.folder / destinations.MANIFEST}"
        )
    if manifest["cifar"] is None:
        path, number, copy = _provenance.inside(source, entry["source"]), entry["number"], entry["copy"]
        if not path.exists():
            raise FileNotFoundError(f"{path}: expected the file that {file} was made from, found none")
        _provenance.check_unchanged(path, entry)
        image = _copies.read(path, manifest["size"])
    else:
        train = read_cifar(source, manifest["cifar"], train=True)
        if destinations.source_of_arrays(source, train.images, train.labels) != manifest["source"]:
            raise ValueError(f"{source}: expected the images that {file} was made from, but they have changed")
        clean, rest = divmod(entry["records"], manifest["copies"] + 1)
        if rest or entry["first_number"] + clean > len(train.images):
            copies = plural(manifest["copies"], "copy", "copies")
            raise ValueError(
                f"{made.folder / FILES}: expected {entry['file']} to hold {copies} of some of "
                f"{plural(len(train.images), 'image')}, got {plural(entry['records'], 'record')} from image "
                f"{entry['first_number']} on"
            )
        number, copy = entry["first_number"] + made.record % clean, made.record // clean - 1
        image = train.images[number]
        if copy < 0:
            return image
    try:
        config = PrimeConfig(**manifest["config"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{made.folder / destinations.MANIFEST}: config: expected a PrimeConfig ({error})") from error
    device = _devices.kernel_device(manifest["device"])
    return _batches.augment(image[None], np.array([number]), copy, config, manifest["seed"], device)[0][0]


def _write_again(file: Path, out: Path) -> None:
    """Write :func:`remake`'s image to a new file, byte-identical for the same version of Pillow."""
    if out.exists():
        raise FileExistsError(f"{out}: expected a name that does not exist yet")
    made = _find(file)
    manifest, pixels = made.manifest, _remade(file, made)
    suffixes = {"png": (".png",), "jpeg": (".jpg", ".jpeg")}[manifest["format"]]
    if out.suffix.lower() not in suffixes:
        raise ValueError(f"destination: expected a name that ends in {' or '.join(suffixes)}, got {out}")
    with replacing(out) as temporary:
        temporary.write_bytes(_copies.encoded(pixels, manifest["format"], manifest["quality"]))
    print(f"made {shown(file)} again, {pixels.shape[1]} x {pixels.shape[0]} pixels: wrote {shown(out)}")
