"""Reading robustness benchmarks (docs/EVALUATION.md, "Benchmarks and their layouts")."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset
from torchvision.transforms import v2

from .. import _arguments
from .._files import rgb
from ..recipes import cifar
from .names import CORRUPTIONS, EXTRA_CORRUPTIONS, SEVERITIES

SIDE = 224  # pixels, of all images of ImageNet-C and ImageNet-C-bar
C_BAR_CORRUPTIONS = 10
LOADERS = ("pillow", "dali")
Batch = tuple[torch.Tensor, torch.Tensor]


class ImageSet(Protocol):
    """Images with labels, in a fixed order."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """``[N]``, places among the network's logits."""
        ...

    @property
    def masked(self) -> bool:
        """Whether only classes that are among the labels can be answers (ImageNet-R: 200 of the 1,000)."""
        ...

    def batches(self, size: int, device: torch.device) -> Iterator[Batch]:
        """uint8 images ``[n, 3, H, W]`` and int64 labels ``[n]`` on ``device``, n = ``size`` but for the last batch."""
        ...

    def subset(self, index: NDArray[np.int64]) -> ImageSet:
        """The images of these numbers, in this order."""
        ...


@dataclass(frozen=True)
class Arrays:
    """Images in memory, or in a mapped file."""

    images: NDArray[np.uint8]
    """``[N, H, W, 3]``, RGB."""
    labels: NDArray[np.int64]
    masked: bool = False

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[3] != 3:
            raise ValueError(f"images: expected uint8 [N, H, W, 3], got {self.images.dtype} {list(self.images.shape)}")
        if self.labels.dtype != np.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels: expected int64 [{len(self.images)}], one an image, "
                f"got {self.labels.dtype} {list(self.labels.shape)}"
            )

    def batches(self, size: int, device: torch.device) -> Iterator[Batch]:
        # All of it goes to the device at once. NHWC in memory is what channels_last wants.
        images = torch.from_numpy(np.array(self.images)).to(device).permute(0, 3, 1, 2)
        labels = torch.from_numpy(np.array(self.labels)).to(device)
        yield from zip(images.split(size), labels.split(size), strict=True)

    def subset(self, index: NDArray[np.int64]) -> Arrays:
        return Arrays(self.images[index], self.labels[index], self.masked)


@dataclass(frozen=True)
class Pictures:
    """Picture files."""

    files: Sequence[str]
    labels: NDArray[np.int64]
    size: int
    """Side of the images, pixels."""
    resize: int | None
    """Shorter side after resizing, before the centre is cropped. None: files must be ``size`` x ``size`` already."""
    workers: int = 0
    loader: str = "pillow"
    """``"pillow"``: decoded and resized by Pillow, in processes; the same values everywhere, and what published numbers
    come from. ``"dali"``: by DALI, on the GPU if ``device`` is one. Images that are not resized are the same to the bit
    on the CPU; windows of resized ones are not rounded to whole pixels, and a GPU decodes to slightly other values."""
    masked: bool = False

    def batches(self, size: int, device: torch.device) -> Iterator[Batch]:
        if self.loader == "dali":
            yield from self._dali(size, device)
            return
        loader = DataLoader(_Files(self), batch_size=size, num_workers=self.workers, pin_memory=device.type == "cuda")
        for images, labels, errors in loader:
            for error in filter(None, errors):
                raise ValueError(error)
            yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    def subset(self, index: NDArray[np.int64]) -> Pictures:
        return replace(self, files=[self.files[i] for i in index.tolist()], labels=self.labels[index])

    def _dali(self, size: int, device: torch.device) -> Iterator[Batch]:
        from ..dali import Loader, pipelines, val_pipeline

        if self.resize is None:
            with ThreadPoolExecutor(max(self.workers, 1)) as pool:
                for file, found in zip(self.files, pool.map(_dimensions, self.files), strict=True):
                    _check_size(file, found, self.size)
        pipeline = val_pipeline(
            files=self.files, labels=self.labels.tolist(), batch_size=size, size=(self.size, self.size),
            resize=self.resize or self.size, mean=None, std=None, out_dtype=pipelines.types.UINT8,
            shard_id=0, num_shards=1, device="gpu" if device.type == "cuda" else "cpu", device_id=device.index,
            num_threads=self.workers or None,
        )  # fmt: skip
        for batch in Loader(pipeline):
            assert isinstance(batch.images, torch.Tensor)
            yield batch.images, batch.labels


class _Files(Dataset[tuple[torch.Tensor, torch.Tensor, str]]):
    """Image, label, and what is wrong with the file: an exception would bring the worker's whole trace along."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures
        steps = [v2.Resize(pictures.resize), v2.CenterCrop(pictures.size)] if pictures.resize else []
        self.transform = v2.Compose([*steps, v2.PILToTensor()])

    def __len__(self) -> int:
        return len(self.pictures.files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        file, side = self.pictures.files[number], self.pictures.size
        label = torch.tensor(self.pictures.labels[number])
        try:
            with _opened(file) as image:
                if self.pictures.resize is None:
                    _check_size(file, image.size, side)
                return self.transform(rgb(image)), label, ""
        except ValueError as error:
            return torch.zeros(3, side, side, dtype=torch.uint8), label, str(error)


@contextlib.contextmanager
def _opened(file: str) -> Iterator[Image.Image]:
    try:
        with Image.open(file) as image:
            yield image
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file}: not a readable image ({error})") from error


def _dimensions(file: str) -> tuple[int, int]:
    with _opened(file) as image:
        return image.size


def _check_size(file: str, found: tuple[int, int], side: int) -> None:
    if found != (side, side):
        raise ValueError(
            f"{file}: expected {side} x {side} pixels, as this benchmark is not resized, got {found[0]} x {found[1]}"
        )


@dataclass(frozen=True)
class Corrupted:
    """A benchmark of corruptions."""

    folder: Path
    counted: tuple[str, ...]
    """Corruptions that the means are over, there or not."""
    extra: tuple[str, ...]
    """Others that are there, and have the five severities or some of them."""
    available: frozenset[tuple[str, int]]
    """(corruption, severity) that are there."""
    read: Callable[[str, int], Arrays] | Callable[[str, int], Pictures]
    """Of a corruption and a severity."""
    manifest: Mapping[str, Any] | None
    """How the set was made, for a regenerated one (:func:`manifest`)."""
    lacking: tuple[str, ...] = ()
    """In words: what is missing besides severities of ``counted``, such as classes."""

    def parts(self) -> list[tuple[str, int]]:
        """What is there, in the order of the tables."""
        return [(c, s) for c in (*self.counted, *self.extra) for s in SEVERITIES if (c, s) in self.available]


def manifest(folder: Path, benchmark: str) -> dict[str, Any] | None:
    """``manifest.json`` that ``prime-dali corrupt`` writes into a benchmark that it makes; None: there is none.

    Raises:
        ValueError: It is no JSON object, or of another benchmark than this one.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    if content.get("benchmark", benchmark) != benchmark:
        raise ValueError(f"{path}: expected {benchmark}, got {content['benchmark']}")
    return content


def cifar_clean(folder: str | Path, num_classes: int, classes: Sequence[str] | None = None) -> Arrays:
    """The test part of CIFAR.

    Args:
        folder: As :func:`prime_dali.recipes.cifar.read_cifar` takes it.
        num_classes: 10 or 100.
        classes: Of the network, to check the order; None: not known.

    Raises:
        ValueError, FileNotFoundError: As ``read_cifar``; other class names than the network's.
    """
    part = cifar.read_cifar(folder, num_classes, train=False)
    numbers = tuple(str(i) for i in range(num_classes))  # where a file does not name the classes
    if classes is not None and numbers not in (part.classes, tuple(classes)) and part.classes != tuple(classes):
        first = next((a, b) for a, b in zip(part.classes, classes, strict=True) if a != b)
        raise ValueError(f"{folder}: expected the network's classes in its order, got {first[0]!r} for {first[1]!r}")
    return Arrays(part.images, part.labels)


def cifar_corrupted(folder: str | Path, num_classes: int, *, c_bar: bool = False) -> Corrupted:
    """CIFAR-10-C, CIFAR-100-C or CIFAR-10-C-bar; images stay in their files until they are read.

    Args:
        folder: Holds ``<corruption>.npy``, uint8 ``[5 n, 32, 32, 3]``, n images a severity, and ``labels.npy``,
            ``[5 n]``. Published: n = 10,000. A ``manifest.json`` that lists ``severities`` says which blocks there are
            in place of all five.
        num_classes: Labels are below it.
        c_bar: All corruptions that are there count, in alphabetical order; there should be ten.

    Raises:
        FileNotFoundError: No folder, no ``labels.npy`` or no corruption.
        ValueError: A corruption that is not known, wrong shapes or labels; the file is named.
    """
    folder = Path(folder)
    made = manifest(folder, f"CIFAR-{num_classes}-C{'-bar' if c_bar else ''}")
    severities: tuple[int, ...] = tuple(made.get("severities", SEVERITIES)) if made else SEVERITIES
    names = sorted(path.stem for path in folder.glob("*.npy") if path.stem != "labels")
    counted, extra = _known(folder, names, c_bar)
    labels = _array(folder / "labels.npy")
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % len(severities) or not len(labels):
        raise ValueError(
            f"{folder / 'labels.npy'}: expected integers [{len(severities)} n], n images of each severity, "
            f"got {labels.dtype} {list(labels.shape)}"
        )
    labels = labels.astype(np.int64)
    if not (labels.min() >= 0 and labels.max() < num_classes):
        raise ValueError(
            f"{folder / 'labels.npy'}: expected 0 to {num_classes - 1} for a network of {num_classes} classes, "
            f"got {labels.min()} to {labels.max()}"
        )
    count = len(labels) // len(severities)
    images = {name: _array(folder / f"{name}.npy") for name in names}
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

    available = frozenset((name, severity) for name in names for severity in severities)
    return Corrupted(folder, counted, extra, available, read, made, _not_ten(names, c_bar))


def imagenet_pictures(
    folder: str | Path,
    classes: Sequence[str],
    *,
    size: int = SIDE,
    resize: int | None = 256,
    masked: bool = False,
    subset: bool = False,
    workers: int = 0,
    loader: str = "pillow",
) -> Pictures:
    """Pictures in class folders: ImageNet, ImageNet-R, Stylized ImageNet, or one severity of ImageNet-C.

    Args:
        folder: Holds ``<class>/*``.
        classes: Of the network, in the order of its logits. Folders are mapped by name, never by position.
        size, resize, masked, workers, loader: As :class:`Pictures` has them.
        subset: Leave class folders out that the network does not know, such as 900 of ImageNet's for a network of
            ImageNet-100.

    Raises:
        FileNotFoundError: No folder, no class folders, or one without pictures.
        ValueError: A class folder that the network does not know, and not ``subset``; an unknown loader.
    """
    if loader not in LOADERS:
        raise ValueError(_arguments.unknown("loader", loader, LOADERS))
    folder = Path(folder)
    try:
        pairs = make_dataset(folder, _class_folders(folder, classes, subset), IMG_EXTENSIONS)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{folder}: {error}") from error
    files, labels = zip(*pairs, strict=True)
    return Pictures(files, np.array(labels, np.int64), size, resize, workers, loader, masked)


def imagenet_corrupted(
    folder: str | Path,
    classes: Sequence[str],
    *,
    c_bar: bool = False,
    subset: bool = False,
    workers: int = 0,
    loader: str = "pillow",
) -> Corrupted:
    """ImageNet-C or ImageNet-C-bar: ``<corruption>/<1..5>/<wnid>/*``, 224 x 224 pixels, neither resized nor cropped.

    Args:
        folder: Of the benchmark.
        classes, subset, workers, loader: As for :func:`imagenet_pictures`.
        c_bar: All corruptions that are there count, in alphabetical order; there should be ten.

    Raises:
        FileNotFoundError: No folder or no corruption.
        ValueError: A corruption, severity or class folder that is not known.
    """
    folder = Path(folder)
    names = _folders(folder)
    counted, extra = _known(folder, names, c_bar)
    severities = {str(s): s for s in SEVERITIES}
    available: set[tuple[str, int]] = set()
    incomplete: list[Path] = []
    for name in names:
        for inside in _folders(folder / name):
            if inside not in severities:
                raise ValueError(f"{folder / name}: expected folders 1 to 5, the severities, got {inside!r}")
            available.add((name, severities[inside]))
            if set(classes).difference(_class_folders(folder / name / inside, classes, subset)):
                incomplete.append(folder / name / inside)

    def read(corruption: str, severity: int) -> Pictures:
        return imagenet_pictures(
            folder / corruption / str(severity), classes, resize=None, subset=subset, workers=workers, loader=loader
        )

    made = manifest(folder, f"ImageNet-C{'-bar' if c_bar else ''}")
    lacking = _not_ten(names, c_bar)
    if incomplete:
        absent = absent_classes(_class_folders(incomplete[0], classes, subset), classes)
        lacking += (f"{absent} in {incomplete[0]}, and some in {len(incomplete) - 1} other folders",)
    return Corrupted(folder, counted, extra, frozenset(available), read, made, lacking)


def imagenet_classes(num_classes: int, clean: str | Path | None) -> tuple[str, ...]:
    """The wnids of the logits of a network that does not say them.

    Args:
        num_classes: 1000: all of ImageNet's in sorted order, which numbers them. 100: ImageNet-100, every tenth.
        clean: A folder of ImageNet, which is asked where timm, which has a list, is not installed.

    Raises:
        ValueError: Another number of classes; a folder of ImageNet that has not all of them.
        ImportError: Neither timm nor a folder.
    """
    if num_classes not in (100, 1000):
        raise ValueError(
            f"classes: expected a network that names them, or one of 1,000 (ImageNet) or 100 (ImageNet-100), "
            f"got {num_classes} without names"
        )
    if importlib.util.find_spec("timm") is not None:
        from timm.data import ImageNetInfo

        wnids = ImageNetInfo().label_names()
    elif clean is not None:
        wnids = _folders(Path(clean))
        if len(wnids) != 1000:
            raise ValueError(
                f"{clean}: expected all 1,000 class folders, which then number the classes, got {len(wnids)}"
            )
    else:
        raise ImportError("the wnids of ImageNet: expected timm or a clean set of all classes; pip install timm")
    return tuple(wnids if num_classes == 1000 else wnids[::10])


def _class_folders(folder: Path, classes: Sequence[str], subset: bool) -> dict[str, int]:
    """The class folders that count, with the place of each in ``classes``."""
    found = _folders(folder)
    place = {name: label for label, name in enumerate(classes)}
    unknown = [name for name in found if name not in place]
    if unknown and (not subset or len(unknown) == len(found)):
        raise ValueError(
            f"{folder}: expected folders of the network's {len(classes)} classes ({classes[0]} to {classes[-1]}), "
            f"got {len(unknown)} others: {', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}"
        )
    return {name: place[name] for name in found if name in place}


def absent_classes(there: Iterable[str], classes: Sequence[str]) -> str:
    """In words: which of the network's classes are not there; empty: all are."""
    absent = sorted(set(classes).difference(there))
    more = ", ..." if len(absent) > 3 else ""
    return f"{len(absent)} of {len(classes)} classes ({', '.join(absent[:3])}{more})" if absent else ""


def _folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    found = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise FileNotFoundError(f"{folder}: expected folders, found none")
    return found


def _known(folder: Path, names: Sequence[str], c_bar: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which corruptions count and which are extra, of those in ``folder``."""
    if not names:
        where = "no such folder" if not folder.is_dir() else "expected <corruption>.npy, found none"
        raise FileNotFoundError(f"{folder}: {where}")
    if c_bar:
        return tuple(names), ()
    known = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)
    for name in names:
        if name not in known:
            raise ValueError(_arguments.unknown(f"{folder}: corruption", name, known))
    return CORRUPTIONS, tuple(name for name in EXTRA_CORRUPTIONS if name in names)


def _not_ten(names: Sequence[str], c_bar: bool) -> tuple[str, ...]:
    return (f"ten corruptions, got {len(names)}",) if c_bar and len(names) != C_BAR_CORRUPTIONS else ()


def _array(path: Path) -> NDArray[Any]:
    try:
        return np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a NumPy array ({error})") from error
