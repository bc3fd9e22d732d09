"""CIFAR-10 and CIFAR-100 in memory, from the published files, class folders of images or shards."""

from __future__ import annotations

import codecs
import pickle
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from . import folders, formats
from .formats import open_records
from .pictures import decoded, open_picture
from .records import Records, numbered

if TYPE_CHECKING:
    from PIL import Image

SIDE = 32
_HOME = "www.cs.toronto.edu/~kriz/cifar.html"
_PYTHON = {10: "cifar-10-batches-py", 100: "cifar-100-python"}
_BINARY = {10: "cifar-10-batches-bin", 100: "cifar-100-binary"}
_PYTHON_FILES = {
    (10, True): [f"data_batch_{i}" for i in range(1, 6)], (10, False): ["test_batch"],
    (100, True): ["train"], (100, False): ["test"],
}  # fmt: skip
BINARY_FILES = {key: [f"{name}.bin" for name in names] for key, names in _PYTHON_FILES.items()}
_NAMES = {10: ("batches.meta", "label_names"), 100: ("meta", "fine_label_names")}
BINARY_NAMES = {10: "batches.meta.txt", 100: "fine_label_names.txt"}


class NotCifarError(ValueError):
    """The images are those of another data set: they have other classes, or another size."""


@dataclass(frozen=True)
class Cifar:
    """One part of the data set."""

    images: NDArray[np.uint8]
    """``[N, 32, 32, 3]``, RGB."""
    labels: NDArray[np.int64]
    """``[N]``, indices into ``classes``."""
    classes: tuple[str, ...]
    """Names, by label."""


def read_cifar(folder: str | Path, classes: int, *, train: bool, label: str | None = None) -> Cifar:
    """Read the training or the test part of CIFAR-10 or CIFAR-100.

    Args:
        folder: Holds the data set in one of four layouts: the unpacked "python version" or "binary version" (or is
            that folder itself); ``train`` and ``test``, each with one folder of images per class; or shards of such
            names, as for :func:`prime_dali.data.formats.open_records`. Class folders are numbered in alphabetical
            order, as in CIFAR. A part may be smaller than the published one.
        classes: 10 or 100.
        train: The training part; False: the test part.
        label: Where shards have the label; None: the usual names.

    Raises:
        ValueError: ``classes`` is neither, ``label`` is given for other layouts than shards, or a file is invalid; the
            message names it.
        NotCifarError: There are other classes, or an image is not 32 x 32; the message names it.
        FileNotFoundError: There is no data set; the message says what was looked for and where to get it.
    """
    if classes not in _PYTHON:
        raise ValueError(f"classes: expected 10 or 100, got {classes!r}")
    folder, part = Path(folder), (classes, train)
    for place in (folder, folder / _PYTHON[classes]):
        if (place / _PYTHON_FILES[part][0]).is_file():
            _check_no_label(label, f"CIFAR's published files in {place}, which have their labels")
            return _python(place, part)
    for place in (folder, folder / _BINARY[classes]):
        if (place / BINARY_FILES[part][0]).is_file():
            _check_no_label(label, f"CIFAR's published files in {place}, which have their labels")
            return _binary(place, part)
    split = "train" if train else "val"
    if formats.has_shards(folder, split):
        return _encoded(folder, open_records(folder, split, label), classes)
    if (folder / ("train" if train else "test")).is_dir():
        _check_no_label(label, f"the class folders in {folder}, whose names are the labels")
        return _pictures(folder, part)
    raise FileNotFoundError(
        f"{folder}: expected CIFAR-{classes}, as {_PYTHON[classes]}/{_PYTHON_FILES[part][0]}, "
        f"{_BINARY[classes]}/{BINARY_FILES[part][0]} or {'train' if train else 'test'}/CLASS/IMAGE, "
        f"or shards, found none of them; get it from {_HOME} and unpack it there"
    )


def _check_no_label(label: str | None, of: str) -> None:
    """ValueError if ``label`` is given for a data set that is ``of`` another layout than shards."""
    if label is not None:
        raise ValueError(f"label: expected none for {of}, got {label!r}")


class _Array:
    """An array in a pickle. NumPy's own reconstruction crashes the process if the state is damaged."""

    def __init__(self, *_: Any) -> None:
        self.array = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_columns, data = state
        self.array = np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if by_columns else "C")


class _Dtype:
    """The dtype of an array in a pickle: an integer's."""

    def __init__(self, name: Any, *_: Any) -> None:
        text = _text(name)
        if re.fullmatch("[iu][1248]", text) is None:
            raise pickle.UnpicklingError(f"expected integers, got dtype {text!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(_text(state[1]))


def _text(name: Any) -> Any:
    return name.decode() if isinstance(name, bytes) else str(name)


class _Unpickler(pickle.Unpickler):
    """Unpickles only dictionaries, lists, strings and arrays, because data files must not run code."""

    _KNOWN: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array, ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Dtype, ("_codecs", "encode"): codecs.encode,
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._KNOWN:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of CIFAR")
        return self._KNOWN[module, name]


def _unpickle(path: Path) -> dict[bytes, Any]:
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except OSError:
        raise
    except Exception as error:  # for a damaged file pickle can raise anything: KeyError, MemoryError, TypeError, ...
        raise ValueError(f"{path}: not a file of CIFAR's python version ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a dictionary, got {type(content).__name__}")
    return content


def _array(value: Any) -> NDArray[Any]:
    return value.array if isinstance(value, _Array) else np.asarray(value)


def _python(folder: Path, part: tuple[int, bool]) -> Cifar:
    classes = part[0]
    key = b"labels" if classes == 10 else b"fine_labels"
    images, labels = [], []
    for name in _PYTHON_FILES[part]:
        content = _unpickle(folder / name)
        try:
            pixels = _array(content[b"data"])
            if pixels.dtype != np.uint8:
                raise ValueError(f"expected uint8, got {pixels.dtype}")
            images.append(pixels.reshape(-1, 3, SIDE, SIDE))
            labels += _array(content[key]).astype(np.int64, casting="same_kind").reshape(-1).tolist()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{folder / name}: not a file of CIFAR-{classes} ({error})") from error
    meta, names = _NAMES[classes]
    named: Sequence[str] = numbered(classes)
    if (folder / meta).is_file():
        known = _unpickle(folder / meta).get(names.encode())
        if not isinstance(known, list) or not all(isinstance(name, bytes) for name in known):
            raise ValueError(f"{folder / meta}: expected {names}, a list of names, got {known!r}")
        named = [name.decode("utf-8", "backslashreplace") for name in known]
    return _checked(folder, np.concatenate(images).transpose(0, 2, 3, 1), labels, _named(folder / meta, named, classes))


def _binary(folder: Path, part: tuple[int, bool]) -> Cifar:
    classes = part[0]
    head = 1 if classes == 10 else 2  # CIFAR-100: coarse label, fine label
    rows = []
    for name in BINARY_FILES[part]:
        content = np.fromfile(folder / name, np.uint8)
        if content.size == 0 or content.size % (head + 3 * SIDE * SIDE):
            raise ValueError(
                f"{folder / name}: expected records of {head + 3 * SIDE * SIDE} bytes, got {content.size} bytes"
            )
        rows.append(content.reshape(-1, head + 3 * SIDE * SIDE))
    records = np.concatenate(rows)
    meta = folder / BINARY_NAMES[classes]
    names = meta.read_text("utf-8", "backslashreplace").split() if meta.is_file() else numbered(classes)
    images = records[:, head:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return _checked(folder, images, records[:, head - 1], _named(meta, names, classes))


def _pictures(folder: Path, part: tuple[int, bool]) -> Cifar:
    classes, train = part
    root, other = (folder / name for name in (("train", "test") if train else ("test", "train")))
    here = folders.class_folders(root)
    there = folders.class_folders(other) if other.is_dir() else here
    if there != here:
        differ = sorted({*here} ^ {*there})
        raise ValueError(f"{folder}: expected the same class folders in train and test, differing: {', '.join(differ)}")
    if len(here) != classes:
        raise NotCifarError(f"{folder}: expected the {classes} class folders of CIFAR-{classes}, got {len(here)}")
    paths, labels, _ = folders.image_folder(root)
    images = _stacked(len(paths), ((folders.shown(path), open_picture(path)) for path in paths))
    return _checked(folder, images, labels, here)


def _encoded(folder: Path, records: Records, classes: int) -> Cifar:
    if len(records.classes) not in (0, classes):
        raise NotCifarError(f"{folder}: expected {classes} classes, got the names of {len(records.classes)}")
    named = ((records.name(i), decoded(records.encoded(i), records.name(i))) for i in range(len(records)))
    return _checked(folder, _stacked(len(records), named), records.labels, records.classes or numbered(classes))


def _stacked(count: int, named: Iterable[tuple[str, Image.Image]]) -> NDArray[np.uint8]:
    """The pixels of images, each with what messages call it, uint8 ``[count, 32, 32, 3]``."""
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for i, (name, image) in enumerate(named):
        if image.size != (SIDE, SIDE):
            raise NotCifarError(f"{name}: expected {SIDE} x {SIDE} pixels, got {image.width} x {image.height}")
        images[i] = np.asarray(image)
    return images


def _named(file: Path, names: Sequence[str], classes: int) -> Sequence[str]:
    """The names of so many classes in a file, checked."""
    if len(names) != classes:
        raise ValueError(f"{file}: expected {classes} names of classes, got {len(names)}")
    return names


def _checked(folder: Path, images: Any, labels: Any, classes: Sequence[str]) -> Cifar:
    numbers = np.asarray(labels, np.int64)
    if len(numbers) != len(images) or len(images) == 0:
        raise ValueError(f"{folder}: expected as many labels as images, and some; got {len(numbers)}, {len(images)}")
    if not (numbers.min() >= 0 and numbers.max() < len(classes)):
        raise ValueError(f"{folder}: expected labels 0 to {len(classes) - 1}, got {numbers.min()} to {numbers.max()}")
    return Cifar(np.ascontiguousarray(images), numbers, tuple(classes))
