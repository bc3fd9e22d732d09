"""Read robustness benchmarks (docs/EVALUATION.md, "Benchmarks and their layouts")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import _extras
from .._states import read_array
from .._wording import plural
from ..data import cifar
from ..data.folders import class_folders, find
from ..data.formats import has_shards, open_records
from ..data.records import Records, numbered
from . import layouts
from .classes import absent_classes, class_positions, folders_in, positions
from .corruptions import SIDES
from .image_sets import Arrays, Decoding, Pictures
from .layouts import Layout

SIDE = SIDES["imagenet"]  # pixels, also of all images of ImageNet-3DCC and of all frames of ImageNet-P
TINY_SIDE = SIDES["tinyimagenet"]


@dataclass(frozen=True)
class Reading:
    """How images in class folders or shards are read."""

    subset: bool = False
    """Skip classes that the network does not have, such as 900 of ImageNet's for a network of ImageNet-100."""
    label: str | None = None
    """Where shards have the label; None: the usual names."""
    decoding: Decoding = Decoding()


Images = TypeVar("Images", Arrays, Pictures)


@dataclass(frozen=True)
class Corrupted(Layout, Generic[Images]):
    """A benchmark of corruptions, in arrays or in image files; it may lack classes too."""

    read: Callable[[str, int], Images]
    """The images of a corruption at a severity."""

    def parts(self) -> list[tuple[str, int]]:
        """The corruptions that are present, in the order of the tables."""
        return [(c, s) for c in (*self.counted, *self.extra) for s in self.severities.get(c, ())]


def cifar_clean(
    folder: str | Path, num_classes: int, classes: Sequence[str] | None = None, *, label: str | None = None
) -> Arrays:
    """Read the test part of CIFAR.

    Args:
        folder, label: As for :func:`prime_dali.data.cifar.read_cifar`.
        num_classes: 10 or 100.
        classes: Class names of the network, to check their order; None: unknown.

    Raises:
        ValueError, FileNotFoundError: As for ``read_cifar``; or the class names differ from the network's.
    """
    part = cifar.read_cifar(folder, num_classes, train=False, label=label)
    unnamed = numbered(num_classes)
    if classes is not None and unnamed not in (part.classes, tuple(classes)) and part.classes != tuple(classes):
        first = next((a, b) for a, b in zip(part.classes, classes, strict=True) if a != b)
        raise ValueError(f"{folder}: expected the network's classes in its order, got {first[0]!r} for {first[1]!r}")
    return Arrays(part.images, part.labels)


def cifar_corrupted(folder: str | Path, num_classes: int, *, c_bar: bool = False) -> Corrupted[Arrays]:
    """Open CIFAR-10-C, CIFAR-100-C or CIFAR-10-C-bar; images stay in their files until they are used.

    Args:
        folder: Holds ``<corruption>.npy``, uint8 ``[5 n, 32, 32, 3]``, n images per severity, and ``labels.npy``,
            ``[5 n]``. Published: n = 10,000. If ``manifest.json`` lists ``severities``, the files have only these
            blocks; without, all severities are of the same images, so ``labels.npy`` repeats itself.
        num_classes: Number of classes; labels are smaller.
        c_bar: The mean includes all corruptions that are present, in alphabetical order; there should be ten.

    Raises:
        FileNotFoundError: There is no folder, no ``labels.npy`` or no corruption.
        ValueError: An unknown corruption, or wrong shapes or labels; the message names the file.
    """
    folder = Path(folder)
    kind = "-bar" if c_bar else ""
    layout = layouts.read(f"cifar-c{kind}", folder, f"CIFAR-{num_classes}-C{kind}")
    severities = next(iter(layout.severities.values()))
    labels = _cifar_labels(folder / "labels.npy", len(severities), num_classes)
    if "severities" not in (layout.manifest or {}):
        _check_repeated(folder, labels, len(severities))
    count = len(labels) // len(severities)
    images = {name: read_array(folder / f"{name}.npy", mapped=True) for name in layout.severities}
    for name, array in images.items():
        wanted = (len(labels), cifar.SIDE, cifar.SIDE, 3)
        if array.shape != wanted or array.dtype != np.uint8:
            raise ValueError(
                f"{folder / name}.npy: expected uint8 {list(wanted)}, as many as labels, "
                f"got {array.dtype} {list(array.shape)}"
            )

    def read(corruption: str, severity: int) -> Arrays:
        start = severities.index(severity) * count
        return Arrays(images[corruption][start : start + count], labels[start : start + count])

    return Corrupted(**vars(layout), read=read)


def _cifar_labels(path: Path, blocks: int, num_classes: int) -> NDArray[np.int64]:
    """The labels of so many blocks of images."""
    labels = read_array(path, mapped=True)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % blocks or not len(labels):
        raise ValueError(
            f"{path}: expected integers [{blocks} n], n images of each severity, "
            f"got {labels.dtype} {list(labels.shape)}"
        )
    labels = labels.astype(np.int64)
    if not (labels.min() >= 0 and labels.max() < num_classes):
        raise ValueError(
            f"{path}: expected 0 to {num_classes - 1} for a network of {num_classes} classes, "
            f"got {labels.min()} to {labels.max()}"
        )
    return labels


def _check_repeated(folder: Path, labels: NDArray[np.int64], blocks: int) -> None:
    """ValueError unless all blocks have the same labels: else the files may have fewer severities than that."""
    if (labels.reshape(blocks, -1) != labels[: len(labels) // blocks]).any():
        example = '{"severities": [3]}'
        raise ValueError(
            f"{folder / 'labels.npy'}: expected the same labels {blocks} times, as the severities are of the same "
            f"images, got others; if the files have other severities, {folder / 'manifest.json'} says which: {example}"
        )


def imagenet_pictures(
    folder: str | Path,
    classes: Sequence[str],
    reading: Reading = Reading(),
    *,
    size: int = SIDE,
    resize: int | None = 256,
) -> Pictures:
    """Open images in class folders or shards: ImageNet, Stylized ImageNet, or one severity of ImageNet-C.

    Args:
        folder: Holds ``<class>/*``, or shards, as for :func:`prime_dali.data.formats.open_records`. Classes without a
            folder, or without images in the shards, are ``lacking``.
        classes: Class names of the network, in the order of its logits. Classes are mapped by name, not by position;
            labels of shards that do not name them are positions, or the names themselves where these are numbers.
        reading: How they are read.
        size, resize: As for :class:`Pictures`.

    Raises:
        FileNotFoundError: There is no folder, no class folder, or a class folder without images.
        ValueError: The network lacks a class, and ``subset`` is not set; ``label`` is given for class folders; a shard
            is damaged, or lacks images or labels.
    """
    folder = Path(folder)
    there: Iterable[str]
    if reading.label is not None or has_shards(folder):  # with label, class folders are an error
        records = _from_shards(folder, classes, reading)
        there = _with_images(records, classes)
    else:
        there = numbers = class_positions(folder, classes, reading.subset)
        pairs = [(str(file), number) for name, number in numbers.items() for file in find([folder / name])]
        files, labels = zip(*pairs, strict=True)
        records = Records(files, np.array(labels, np.int64), classes)
    absent = absent_classes(there, classes)
    return Pictures(records, size, resize, reading.decoding, lacking=(absent,) if absent else ())


def in_shards(folder: Path) -> bool:
    """Whether a set is shards, or some severity of a benchmark of corruptions is."""
    return any(map(has_shards, (folder, *folder.glob("*/[1-5]"))))


def _from_shards(folder: Path, classes: Sequence[str], reading: Reading) -> Records:
    """The images of shards, with the network's numbers of their classes."""
    records = open_records(folder, label=reading.label)
    if not records.classes and all(name.isdecimal() for name in classes):  # ImageNetV2
        records = records.select(slice(None), records.labels, numbered(int(records.labels.max()) + 1))
    if not records.classes:
        if records.labels.max() >= len(classes):
            raise ValueError(
                f"{folder}: expected labels below {len(classes)}, the network's classes, got {records.labels.max()}"
            )
        return records
    if records.classes == tuple(classes):
        return records
    place = positions(folder, _with_images(records, records.classes), classes, reading.subset)
    numbers = np.array([place.get(name, -1) for name in records.classes], np.int64)[records.labels]
    keep = np.flatnonzero(numbers >= 0)
    return records.select(keep, numbers[keep], classes)


def _with_images(records: Records, classes: Sequence[str]) -> list[str]:
    """Those of the classes that have images."""
    return [classes[number] for number in np.unique(records.labels).tolist()]


def imagenet_corrupted(
    folder: str | Path,
    classes: Sequence[str],
    reading: Reading = Reading(),
    *,
    c_bar: bool = False,
    size: int = SIDE,
) -> Corrupted[Pictures]:
    """Open ImageNet-C or ImageNet-C-bar: ``<corruption>/<1..5>/<wnid>/*``, 224 x 224 pixels, not resized or cropped.

    Args:
        folder: The folder of the benchmark. In place of class folders each severity may have shards.
        classes, reading: As for :func:`imagenet_pictures`.
        c_bar: The mean includes all corruptions that are present, in alphabetical order; there should be ten.
        size: Side of the images, :data:`SIDE`, or :data:`TINY_SIDE` for Tiny-ImageNet-C.

    Raises:
        FileNotFoundError: There is no folder or no corruption.
        ValueError: An unknown corruption or severity; or as for :func:`imagenet_pictures`.
    """
    folder, bar = Path(folder), "-bar" if c_bar else ""
    prefix, kind = ("Tiny-", "") if size == TINY_SIDE else ("", "not ")
    purpose = f" for a network whose size is {kind}{TINY_SIDE}"
    layout = layouts.read(f"imagenet-c{bar}", folder, f"{prefix}ImageNet-C{bar}", purpose)
    return _in_severities(layout, classes, reading, size)


def imagenet_3dcc(folder: str | Path, classes: Sequence[str], reading: Reading = Reading()) -> Corrupted[Pictures]:
    """Open ImageNet-3DCC: ``<corruption>/<1..5>/<wnid>/*``, 224 x 224 pixels, not resized or cropped.

    Args:
        folder, classes, reading: As for :func:`imagenet_corrupted`.

    Raises:
        FileNotFoundError, ValueError: As for :func:`imagenet_corrupted`.
    """
    layout = layouts.read("imagenet-3dcc", Path(folder), "ImageNet-3DCC")
    return _in_severities(layout, classes, reading)


def _in_severities(layout: Layout, classes: Sequence[str], reading: Reading, size: int = SIDE) -> Corrupted[Pictures]:
    """A benchmark of corruptions in folders."""
    incomplete: dict[Path, str] = {}
    for name, severities in layout.severities.items():
        for severity in severities:
            part = layout.folder / name / str(severity)
            if absent := _absent(part, classes, reading):
                incomplete[part] = absent

    def read(corruption: str, severity: int) -> Pictures:
        return imagenet_pictures(layout.folder / corruption / str(severity), classes, reading, size=size, resize=None)

    if incomplete:
        part, absent = next(iter(incomplete.items()))
        more = f", and some in {plural(len(incomplete) - 1, 'other folder')}" if len(incomplete) > 1 else ""
        layout = replace(layout, lacking=(f"{absent} in {part}{more}", *layout.lacking))
    return Corrupted(**vars(layout), read=read)


def _absent(part: Path, classes: Sequence[str], reading: Reading) -> str:
    """Description of the network's classes that a severity lacks; the images of class folders are not listed."""
    if reading.label is not None or has_shards(part):
        return absent_classes(_with_images(_from_shards(part, classes, reading), classes), classes)
    return absent_classes(class_positions(part, classes, reading.subset), classes)


def imagenet_classes(num_classes: int, clean: str | Path | None) -> tuple[str, ...]:
    """The WordNet IDs of the logits of a network that does not list them.

    Args:
        num_classes: 1000: those of ImageNet in sorted order. 100: every tenth (ImageNet-100).
        clean: A folder of ImageNet, which is used if timm, which has a list, is not installed.

    Raises:
        ValueError: Another number of classes, or the folder lacks some of them.
        ImportError: There is neither timm nor a folder.
    """
    if num_classes not in (100, 1000):
        folders = class_folders(Path(clean)) if clean is not None and Path(clean).is_dir() else ()
        found = f", and {plural(len(folders), 'folder')} in {clean}" if folders else ""
        raise ValueError(
            f"classes: expected a network that names them, or one of 1,000 (ImageNet) or 100 (ImageNet-100), "
            f"got {num_classes} without names{found}; --classes names them: a file with a name a line, or a folder "
            "whose subfolders are the classes"
        )
    if _extras.there("timm"):
        from timm.data import ImageNetInfo

        wnids = ImageNetInfo().label_names()
    elif clean is not None:
        wnids = folders_in(Path(clean))
        if len(wnids) != 1000:
            raise ValueError(
                f"{clean}: expected all 1,000 class folders, which then number the classes, got {len(wnids)}"
            )
    else:
        raise ImportError(
            f"the wnids of ImageNet: expected timm or a clean set of all classes; {_extras.install('train')}"
        )
    return tuple(wnids if num_classes == 1000 else wnids[::10])
