"""Reading photographs and writing results: no silent holes, no half-written files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
Report = Callable[[str], None]


class PhotoError(ValueError):
    """A photograph that cannot be read; the message names the file."""


def find_photos(paths: list[Path]) -> list[Path]:
    """The files among ``paths`` and the photographs in the folders among them, sorted within each folder.

    Raises:
        FileNotFoundError: A path does not exist, or a folder holds no photograph.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in PHOTO_SUFFIXES and p.is_file())
            if not inside:
                raise FileNotFoundError(f"{path}: expected photographs ({', '.join(PHOTO_SUFFIXES)}), found none")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"{path}: no such file or folder")
    return found


def rgb(image: Image.Image) -> Image.Image:
    """The picture as RGB, 8 bits a channel: of an animation the first; transparent pixels have the colors kept there.

    Raises:
        ValueError: It has more than 8 bits a channel, which Pillow would clamp, not scale.
    """
    if image.mode[0] in "IF":  # I;16, I, F
        raise ValueError(f"expected 8 bits a channel, got Pillow's mode {image.mode}")
    return image.convert("RGB")


def read_photo(path: Path, size: int | None, *, turn: bool = False) -> NDArray[np.uint8]:
    """The centre square of a photograph, resized: RGB uint8 ``[size, size, 3]``; None: all of it, ``[H, W, 3]``.

    Args:
        path: The file.
        size: Pixels, or None.
        turn: Turn it as EXIF says, so that it stands upright.

    Raises:
        PhotoError: The file is no image that Pillow reads, or has more than 8 bits a channel.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            image = rgb(ImageOps.exif_transpose(image) if turn else image)
            return np.asarray(image if size is None else ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PhotoError(f"{path}: not a readable image ({error})") from error


def read_photos(paths: list[Path], size: int, on_error: str, report: Report) -> dict[Path, NDArray[np.uint8]]:
    """The centre square of each photograph, upright, uint8 ``[size, size, 3]``, by its path.

    Args:
        paths: Files.
        size: Side of the squares, pixels.
        on_error: ``"fail"``: the first bad file raises. ``"skip"``: each is reported by name and left out.
        report: Called with one line a bad file, and one with their number.

    Raises:
        PhotoError: A bad file under ``"fail"``, or no good one at all.
    """
    good: dict[Path, NDArray[np.uint8]] = {}
    for path in paths:
        try:
            good[path] = read_photo(path, size, turn=True)
        except PhotoError as error:
            if on_error == "fail":
                raise
            report(f"skipped {error}")
    if len(good) < len(paths):
        report(f"skipped {len(paths) - len(good)} of {len(paths)} files")
    if not good:
        raise PhotoError("no readable photograph is left")
    return good


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder, made if need be, for this run alone.

    Raises:
        RuntimeError: Another run holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"{folder}: another run is writing there") from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it takes the place of ``path`` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
