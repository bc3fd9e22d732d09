"""Decode image files in the same way for every command, and reject those that decoders read differently.

For files that pass :func:`refused`, DALI's decoders and Pillow give the same pixels up to rounding: RGB, with the
stored colors of transparent pixels, the first frame of an animation, rotated upright according to EXIF.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import re
import stat
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .. import _files
from .._files import shown
from .._progress import Report
from .._wording import plural

if TYPE_CHECKING:
    from PIL import Image

Read = Callable[[int, int], bytes]
"""Reads bytes of a file: from this offset, at most this many."""

_MODES = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
_BITS, _COLORS, _ORIENTATION, _FORMAT = 258, 262, 274, 339  # tags of TIFF and EXIF
_LAB = (8, 9, 10)  # of _COLORS
_TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip


_NAMED = 10  # images that cannot be used, in one message


class PhotoError(ValueError):
    """An image that cannot be used; the message names the file."""


def unusable(errors: Sequence[str], unit: str = "image") -> PhotoError:
    """The error of images of which each has a message, one at least: with the first ten, and the number of others."""
    several = f"{plural(len(errors), unit)} cannot be used: " if len(errors) > 1 else ""
    more = f"; and {len(errors) - _NAMED:,} more" if len(errors) > _NAMED else ""
    return PhotoError(f"{several}{'; '.join(errors[:_NAMED])}{more}")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn every error inside the block into one of this image; only these are skipped by ``--on-error skip``.

    A folder, pipe or device raises before it is opened, because opening it may block forever. Decoders raise many
    exceptions for damaged files: RuntimeError, TypeError, struct.error, MemoryError and more.

    Raises:
        PhotoError: For any of these errors.
        OSError: This process has too many open files, which is not an error of the image.
    """
    with naming_errors(shown(path)):
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
            raise ValueError(f"expected a file, got {kind}")
        if status.st_size == 0:
            raise ValueError("empty")
        yield


@contextlib.contextmanager
def naming_errors(name: str) -> Iterator[None]:
    """Turn every error inside the block into one of the image of this name, but for too many open files."""
    try:
        yield
    except PhotoError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise PhotoError(f"{name}: not a readable image ({_words(error)})") from error


def _words(error: Exception) -> str:
    """The error message on one line, without the path or the open file."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = re.sub(r" <_io\..*>", "", text)  # of Pillow: cannot identify image file <_io.BytesIO object at 0x7f>
    return " ".join(shown(line) for line in (text or type(error).__name__).splitlines())


def open_picture(path: str | os.PathLike[str]) -> Image.Image:
    """Decode a whole image: RGB, upright.

    Raises:
        PhotoError: Pillow cannot read it, or 8-bit RGB cannot represent it (:func:`refused`).
    """
    with reading(path), open(path, "rb") as file:
        return _decoded(file, lambda start, count: os.pread(file.fileno(), count, start))


def decoded(data: bytes, name: str) -> Image.Image:
    """As :func:`open_picture`, of the bytes of a file; messages call it ``name``."""
    with naming_errors(name):
        return _decoded(io.BytesIO(data), reader(memoryview(data)))


@functools.cache
def _pillow() -> Any:
    """Pillow, without its warning of images that have more than half as many pixels as it reads: photographs of today
    have them, and it would be in the log of every process. A filter that the user has for it comes before this one."""
    from PIL import Image

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)
    return Image


@contextlib.contextmanager
def opened(file: BinaryIO | str | os.PathLike[str]) -> Iterator[Image.Image]:
    """An image as Pillow opens it, not decoded yet; ValueError for one of more pixels than it reads."""
    pillow = _pillow()
    try:
        with pillow.open(file) as image:
            yield image
    except pillow.DecompressionBombError as error:
        found = re.search(r"\d+", str(error))
        got = f"{int(found[0]):,}" if found else "more"
        raise ValueError(
            f"expected at most {2 * pillow.MAX_IMAGE_PIXELS:,} pixels, the limit of Pillow, got {got}; make it smaller"
        ) from error


def _decoded(file: BinaryIO, read: Read) -> Image.Image:
    from PIL import Image

    if why := refused(read):
        raise ValueError(why)
    with opened(file) as image:
        if image.mode not in _MODES:
            raise ValueError(f"expected gray or RGB with 8 bits per channel, got Pillow's mode {image.mode}")
        if image.format == "TIFF":  # Pillow would rotate it by itself, and fail at other tags that it cannot read
            image.info |= {"exif": b"", "xmp": b""}
        image.load()
        exif = image.info.get("exif", b"").removeprefix(b"Exif\0\0")  # in a PNG it may follow the pixels
        turn = orientation(read if image.format == "TIFF" else lambda start, count: exif[start : start + count])
        upright = image.convert("RGB")
        return upright.transpose(Image.Transpose[_TURNS[turn]]) if turn in _TURNS else upright


def dimensions(data: bytes, name: str) -> tuple[int, int]:
    """Stored width and height of an encoded image; PhotoError as for :func:`decoded`."""
    with naming_errors(name):
        if why := refused(reader(memoryview(data))):
            raise ValueError(why)
        with opened(io.BytesIO(data)) as image:
            return image.size


def read_photo(path: Path, size: int | None) -> NDArray[np.uint8]:
    """The center square of a photograph, resized: RGB uint8 ``[size, size, 3]``; None: all of it, ``[H, W, 3]``.

    Args:
        path: The file.
        size: Pixels, or None.

    Raises:
        PhotoError: As :func:`open_picture`.
    """
    from PIL import Image, ImageOps

    image = open_picture(path)
    with reading(path):
        return np.asarray(image if size is None else ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC))


def read_photos(paths: list[Path], size: int, on_error: str, report: Report) -> dict[Path, NDArray[np.uint8]]:
    """The center square of each photograph, uint8 ``[size, size, 3]``, by path.

    Args:
        paths: Files.
        size: Side length of the squares in pixels.
        on_error: ``"raise"``: bad files are an error. ``"skip"``: bad files are reported and left out.
        report: Called with one line per bad file, and one with their number.

    Raises:
        PhotoError: There are bad files and ``on_error`` is ``"raise"``, or there is no good file.
    """
    good: dict[Path, NDArray[np.uint8]] = {}
    bad: list[str] = []
    for path in paths:
        try:
            good[path] = read_photo(path, size)
        except PhotoError as error:
            bad.append(str(error))
    if bad and on_error == "raise":
        raise PhotoError(f"{unusable(bad)}; --on-error skip leaves such files out")
    for why in bad:
        report(f"skipped {why}")
    if bad:
        report(f"skipped {len(paths) - len(good)} of {plural(len(paths), 'file')}")
    if not good:
        raise PhotoError("no readable photographs are left")
    return good


def sha256(path: Path) -> str:
    """Of the content of a file, hexadecimal.

    Raises:
        PhotoError: It cannot be read, or is no file.
    """
    with reading(path):
        return _files.sha256(path)


# What the first bytes of a file say.


def refused(read: Read) -> str:
    """Why 8-bit RGB cannot represent the pixels of an image; empty if it can.

    Decoders disagree on such images: one clamps, one scales, one takes the upper bits.
    """
    head = read(0, 64)
    if head.startswith(b"\xff\xd8"):  # JPEG, by far the most
        return ""
    if head.startswith(b"\x89PNG") and len(head) > 24:
        return _beyond(head[24])
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return _refused_tiff(read)
    if head[:2] in (b"P2", b"P3", b"P5", b"P6"):
        found = re.match(rb"P\d(?:\s+|#[^\n]*\n)+\d+(?:\s+|#[^\n]*\n)+\d+(?:\s+|#[^\n]*\n)+(\d+)", read(0, 4096))
        maximum = int(found[1][:9]) if found else 255
        return "" if maximum == 255 else f"expected values up to 255 in its header, got up to {maximum}"
    if head[4:8] == b"jP  ":  # JPEG 2000
        at = read(0, 1024).find(b"ihdr")
        depth = read(at + 14, 1) if at >= 0 else b""
        return _beyond((depth[0] & 127) + 1) if depth and depth[0] != 255 else ""
    return ""


def _beyond(bits: int) -> str:
    return "" if bits <= 8 else f"expected 8 bits per channel, got {bits}; convert it to 8 bits"


def _refused_tiff(read: Read) -> str:
    tags = _tags(read)
    kinds = tags.get(_FORMAT, [1])
    if any(kind not in (1, 4) for kind in kinds):  # 4: not said
        words = {2: "signed integers", 3: "floats", 5: "complex integers", 6: "complex floats"}
        return f"expected unsigned integers of 8 bits, got {words.get(max(kinds), 'others')}; convert it to 8 bits"
    if tags.get(_COLORS, [2])[0] in _LAB:
        return "expected gray, RGB, CMYK or YCbCr, got L*a*b*; convert it to RGB"
    return _beyond(max(tags.get(_BITS, [1])))


def orientation(read: Read) -> int:
    """The orientation in the tags of a TIFF file or an EXIF block; 1: upright.

    Information that decoders do not agree on, such as XMP or a damaged block, counts as 1.
    """
    value = _tags(read).get(_ORIENTATION, [1])[0]
    return value if value in _TURNS else 1


def _tags(read: Read) -> dict[int, list[int]]:
    """Those whole numbers of the first directory that are asked for here; of a damaged block, those before the damage.

    A tag that comes twice counts the first time. The orientation is what stands in the place of a 16-bit value,
    whatever the type, as DALI has it.
    """
    found: dict[int, list[int]] = {}
    try:
        order = {b"II": "<", b"MM": ">"}[read(0, 2)]
        big = struct.unpack(order + "H", read(2, 2))[0] == 43
        start = struct.unpack(order + ("Q" if big else "I"), read(*((8, 8) if big else (4, 4))))[0]
        head, width, room = ("Q", 20, 8) if big else ("H", 12, 4)
        count = struct.unpack(order + head, read(start, struct.calcsize(head)))[0]
        start += struct.calcsize(head)
        entries = read(start, min(count, 65535) * width)
        for at in range(0, len(entries) - width + 1, width):
            tag, kind = struct.unpack_from(order + "HH", entries, at)
            if tag not in (_BITS, _COLORS, _ORIENTATION, _FORMAT) or tag in found:
                continue
            values = entries[at + width - room : at + width]
            if tag == _ORIENTATION:
                found[tag] = list(struct.unpack_from(order + "H", values))
                continue
            length = min(struct.unpack_from(order + ("Q" if big else "I"), entries, at + 4)[0], 64)  # of channels
            size, code = {1: (1, "B"), 3: (2, "H"), 4: (4, "I")}[kind]
            if length * size > room:
                values = read(struct.unpack(order + ("Q" if big else "I"), values)[0], length * size)
            found[tag] = list(struct.unpack_from(f"{order}{length}{code}", values)) or [1]
    except (KeyError, struct.error, OverflowError, OSError):
        pass
    return found


def reader(data: Any) -> Read:
    """Reads, for :func:`refused`, an encoded image in memory, uint8 ``[n]`` or a memoryview."""
    return lambda start, count: data[start : start + count].tobytes()
