"""The photographs that a benchmark is made from, in class folders or shards, their pixels, and the names of what is
made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._files import shown
from ..data import destinations
from ..data.folders import class_folders
from ..data.formats import has_shards, open_records
from ..data.pictures import PhotoError, naming_errors, open_picture
from ..data.records import Records, numbered
from ..data.shards import ShardError
from .corruptions import SIDES

if TYPE_CHECKING:
    from PIL import Image

SIDE = SIDES["imagenet"]  # pixels


@dataclass(frozen=True)
class Photographs:
    """Photographs in a fixed order; the position of each keys its random draws."""

    records: Records
    names: tuple[Path, ...]
    """``CLASS/PHOTO``, relative to the folder; of shards ``CLASS/00000012.JPEG``, with the position, as they do not
    name photographs in a common way."""

    def __len__(self) -> int:
        return len(self.names)


def jpeg_name(name: Path) -> Path:
    """``CLASS/PHOTO`` of the files that are made from a photograph of this name."""
    return name if name.suffix.lower() in (".jpg", ".jpeg") else name.with_name(f"{name.name}.JPEG")


def open_photographs(source: Path, label: str | None = None) -> Photographs:
    """List the photographs of class folders, sorted, or of shards, in their order.

    Args:
        source: A folder with ``CLASS/PHOTO``, or shards, as for :func:`prime_dali.data.formats.open_records`. A class
            that shards do not name gets its number as name.
        label: Where shards have the label; None: the usual names.

    Raises:
        FileNotFoundError: There is neither.
        ValueError: A class folder has no photographs; two photographs have the same target; a shard is damaged, or
            lacks images or labels; ``label`` is given for class folders.
    """
    if label is not None or has_shards(source):
        records = open_records(source, label=label)
        folders = records.classes or numbered(int(records.labels.max()) + 1)
        for name in folders:
            if name.startswith(".") or "/" in name or "\0" in name or not name:
                raise ShardError(f"{source}: expected names of classes that can name folders, got {shown(name)!r}")
        places = enumerate(records.labels.tolist())
        return Photographs(records, tuple(Path(folders[place], f"{number:08d}.JPEG") for number, place in places))
    if not source.is_dir() or not class_folders(source):
        raise FileNotFoundError(f"{source}: expected folders of photographs, CLASS/PHOTO, or shards, found none")
    records = open_records(source)
    names = tuple(Path(file).relative_to(source) for file in records.files)
    destinations.check_distinct(source, names, jpeg_name)
    return Photographs(records, names)


def read_224(path: Path) -> NDArray[np.uint8]:
    """Read a photograph as for ImageNet-C: shorter side bilinear to 256, center 224 x 224, RGB uint8 ``[224, 224, 3]``.

    Raises:
        PhotoError: As :func:`.open_picture`.
    """
    return prepared(open_picture(path), shown(path), SIDE)


def prepared(image: Image.Image, name: str, side: int) -> NDArray[np.uint8]:
    """A decoded photograph before it is corrupted, RGB uint8 ``[side, side, 3]``; messages call it ``name``.

    Those of ImageNet are as :func:`read_224` reads them, those of other sides, as of Tiny ImageNet, have it already.

    Raises:
        PhotoError: It has another size; memory does not hold what is resized.
    """
    from PIL import Image

    if side != SIDE:
        if image.size != (side, side):
            raise PhotoError(f"{name}: expected {side} x {side} pixels, got {image.width} x {image.height}")
        return np.asarray(image)
    with naming_errors(name):
        short = min(image.size)
        width, height = (int(256 * length / short) for length in image.size)
        left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
        resized = image.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized.crop((left, top, left + SIDE, top + SIDE)))
