"""The one walk of folders of pictures, for every command.

Hidden files and folders, whose names begin with a dot (``.ipynb_checkpoints``, ``._photo.jpg``), are none of the
pictures and no classes. Linked folders are walked like others; a link to a folder that it lies in is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
"""Of pictures, in small letters: those of ``torchvision.datasets.ImageFolder``."""


def shown(name: str | os.PathLike[str]) -> str:
    """A name of any bytes as text that every terminal and file can hold: what is no text is written as ``\\xe9``."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def pictures(folder: str | os.PathLike[str]) -> list[str]:
    """Paths of the pictures in a folder and the folders below it, by their suffix; ``folder`` is part of each.

    The order is that of ``torchvision.datasets.ImageFolder``: folders sorted by path, in each its files by name. What
    has such a name and is no file, as a pipe or a link to nothing, is there too: who reads it says what it is.

    Raises:
        OSError: A folder cannot be listed, or is none; it is named.
        ValueError: A link goes back to a folder that it lies in.
    """
    return [path for _, inside in walk(folder) for path in inside]


def walk(folder: str | os.PathLike[str]) -> list[tuple[str, list[str]]]:
    """The folder and those below it, sorted by path, each with the paths of its pictures; as :func:`pictures`."""
    return sorted((path, sorted(inside)) for path, inside in _walk(os.fspath(folder), {}))


def _walk(folder: str, above: dict[tuple[int, int], str]) -> Iterator[tuple[str, list[str]]]:
    """Each folder with its pictures; ``above`` are the folders that it lies in, by device and number."""
    status = os.stat(folder)
    here = status.st_dev, status.st_ino
    if here in above:
        raise ValueError(
            f"{shown(folder)}: expected no link to a folder that it lies in, got one to {shown(above[here])}"
        )
    inside = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                yield from _walk(entry.path, {**above, here: folder})
            elif entry.name.lower().endswith(SUFFIXES):
                inside.append(entry.path)
    yield folder, inside


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def classes(folder: str | os.PathLike[str]) -> list[str]:
    """Names of the folders in a folder, sorted: classes, whose places are their labels.

    Raises:
        OSError: It cannot be listed, or is no folder; or a link in it that is not named like a picture leads to
            nothing: labels would be others without its class.
    """
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in visible:
        if entry.is_symlink() and not os.path.exists(entry.path) and not entry.name.lower().endswith(SUFFIXES):
            raise FileNotFoundError(f"{shown(entry.path)}: expected a folder or file, got a link to nothing")
    return sorted(entry.name for entry in visible if _is_folder(entry))


def find(paths: Iterable[Path]) -> list[Path]:
    """The files among ``paths`` and the pictures in the folders among them, in the order of :func:`pictures`.

    Raises:
        FileNotFoundError: A path does not exist, or a folder holds no picture.
        OSError, ValueError: As :func:`pictures`.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = pictures(path)
            if not inside:
                raise FileNotFoundError(f"{shown(path)}: expected photographs ({', '.join(SUFFIXES)}), found none")
            found += map(Path, inside)
        elif os.path.lexists(path):
            found.append(path)
        else:
            raise FileNotFoundError(f"{shown(path)}: no such file or folder")
    return found


def special(files: Iterable[str]) -> set[str]:
    """Which of these are pipes, sockets or devices: who opens one may wait forever.

    Folders are listed, which says the kind of all their files at once; only links are asked one by one. What cannot be
    asked is not named: who reads it finds out.
    """
    wanted: dict[str, set[str]] = {}
    for file in files:
        folder, name = os.path.split(file)
        wanted.setdefault(folder, set()).add(name)
    found = set()
    for folder, names in wanted.items():
        try:
            with os.scandir(folder or ".") as entries:
                odd = [e.name for e in entries if e.name in names and not e.is_file(follow_symlinks=False)]
        except OSError:  # one may be allowed to read the files of a folder, and not to list it
            odd = list(names)
        found |= {path for name in odd if is_special(path := os.path.join(folder, name))}
    return found


def is_special(file: str | os.PathLike[str]) -> bool:
    """Whether it is there, and neither a file nor a folder; it is not opened."""
    try:
        mode = os.stat(file).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
