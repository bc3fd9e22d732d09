"""Find image files in folders, in the same way for every command.

Hidden files and folders, whose names begin with a dot (``.ipynb_checkpoints``, ``._photo.jpg``), are neither images
nor classes. Other files whose names do not end as images do are left out, and a warning is logged with their number.
Symbolic links to folders are followed; a link to a parent folder is an error.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .._files import shown
from .._wording import plural

_KINDS = 5  # of files that are left out, in a message

_log = logging.getLogger(__name__)

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
"""Suffixes of images, in lower case: those of ``torchvision.datasets.ImageFolder``."""
SPLITS = {"train": ("train", "training"), "val": ("val", "validation", "valid", "test")}
"""Names of the parts of a data set, in folders and in names of shards; the first that exists is used."""


def pictures(folder: str | os.PathLike[str]) -> list[str]:
    """Paths of the images in a folder and its subfolders, by suffix; each path starts with ``folder``.

    The order is that of ``torchvision.datasets.ImageFolder``: folders sorted by path, then files by name. The result
    includes pipes and dangling links with such names; reading them raises an error.

    Raises:
        OSError: A folder cannot be listed, or is not a folder; the message names it.
        ValueError: A link leads to one of its parent folders.
    """
    return [path for _, inside in walk(folder) for path in inside]


def pictures_by_class(folder: str | os.PathLike[str], names: Iterable[str]) -> list[list[str]]:
    """:func:`pictures` of the folders with these names in a folder, of which each has some; errors as there.

    Raises:
        ValueError: One has no images.
    """
    found, others = [], Counter[str]()
    for name in names:
        place, own = os.path.join(folder, name), Counter[str]()
        inside = [path for _, paths in _sorted(place, own) for path in paths]
        if not inside:
            raise ValueError(
                f"folder: expected images ({', '.join(SUFFIXES)}) of each class, got {_kinds(own)} in {shown(place)}"
            )
        found.append(inside)
        others += own
    _tell_left_out(folder, others)
    return found


def walk(folder: str | os.PathLike[str]) -> list[tuple[str, list[str]]]:
    """The folder and its subfolders, sorted by path, each with the paths of its images; see :func:`pictures`."""
    others = Counter[str]()
    found = _sorted(os.fspath(folder), others)
    _tell_left_out(folder, others)
    return found


def _tell_left_out(folder: str | os.PathLike[str], others: Counter[str]) -> None:
    if others:
        count = plural(others.total(), "file")
        _log.warning("%s: left out %s: %s; images end in %s", shown(folder), count, _kinds(others), ", ".join(SUFFIXES))


def _kinds(others: Counter[str]) -> str:
    """How many files there are of each ending, the most frequent ones first."""
    kinds = sorted(others.items(), key=lambda kind: (-kind[1], kind[0]))
    known = [f"{count:,} {ending or 'without an ending'}" for ending, count in kinds[:_KINDS]]
    more = sum(count for _, count in kinds[_KINDS:])
    return ", ".join([*known, *([f"{more:,} others"] if more else [])]) or "none"


def _sorted(folder: str, others: Counter[str]) -> list[tuple[str, list[str]]]:
    return sorted((path, sorted(inside)) for path, inside in _walk(folder, {}, others))


def _walk(folder: str, above: dict[tuple[int, int], str], others: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Each folder with its images; ``above`` has its parent folders, by device and inode. Other files are counted in
    ``others`` by their endings."""
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
                yield from _walk(entry.path, {**above, here: folder}, others)
            elif entry.name.lower().endswith(SUFFIXES):
                inside.append(entry.path)
            else:
                others[shown(os.path.splitext(entry.name)[1].lower())] += 1
    yield folder, inside


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def class_folders(folder: str | os.PathLike[str]) -> list[str]:
    """Sorted names of the folders in a folder: the classes, whose positions are their labels.

    Raises:
        OSError: It cannot be listed, or is not a folder; or it has a dangling link that is not named like an image:
            without its class, labels would differ.
    """
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in visible:
        if entry.is_symlink() and not os.path.exists(entry.path) and not entry.name.lower().endswith(SUFFIXES):
            raise FileNotFoundError(f"{shown(entry.path)}: expected a folder or file, got a dangling link")
    return sorted(entry.name for entry in visible if _is_folder(entry))


def names_in(path: Path) -> tuple[str, ...]:
    """The names of classes in a file, one in each line; they may be any bytes, as those of folders are.

    Raises:
        ValueError: A name begins or ends with spaces.
    """
    lines = path.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
    names = ["" if line.isspace() else line for line in lines]
    while names and not names[-1]:
        names.pop()
    if around := next((name for name in names if name != name.strip()), None):
        raise ValueError(f"{shown(path)}: expected names of classes without spaces around them, got {around!r}")
    return tuple(names)


def check_no_parts(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """ValueError if the subfolders ``names`` are not classes but the parts of a data set, each with class folders.

    A folder that has images itself is a class, whatever its name (``train`` can be one of vehicles).
    """
    names = list(names)
    known = [word for words in SPLITS.values() for word in words]
    parts = [name for name in names if name.lower() in known and _has_only_folders(os.path.join(folder, name))]
    if parts and (len(parts) > 1 or parts == names):
        choice = " or ".join(shown(os.path.join(folder, name)) for name in parts)
        raise ValueError(
            f"{shown(folder)}: expected one subfolder per class, got the parts of a data set, "
            f"{', '.join(map(shown, parts))}, which have class folders; give {choice}"
        )


def _has_only_folders(folder: str) -> bool:
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    images = any(entry.name.lower().endswith(SUFFIXES) and not _is_folder(entry) for entry in visible)
    return not images and any(map(_is_folder, visible))


def image_folder(folder: str | os.PathLike[str]) -> tuple[list[str], list[int], list[str]]:
    """Files, labels and class names of a folder with one subfolder per class.

    As in ``torchvision.datasets.ImageFolder``, classes sorted by name have the labels 0, 1, ...; within a class its
    folder and those below it are sorted, so image indices are also the same. Unlike there, hidden files and folders,
    whose names begin with a dot, are skipped.

    Raises:
        ValueError: No such folder, no class folders, a class without images, folders that are the parts ``train`` and
            ``val`` of a data set, or a link to a parent folder.
        OSError: A folder cannot be listed, or a link instead of a class folder is broken.
    """
    root = os.fspath(folder)
    if not os.path.isdir(root):
        raise ValueError(f"folder: expected a folder with one subfolder per class, got {root!r}, which is not a folder")
    names = class_folders(root)
    if not names:
        raise ValueError(f"folder: expected one subfolder per class in {root!r}, or shards, got none")
    check_no_parts(root, names)
    files: list[str] = []
    labels: list[int] = []
    for label, inside in enumerate(pictures_by_class(root, names)):
        files += inside
        labels += [label] * len(inside)
    return files, labels, names


def find(paths: Iterable[Path]) -> list[Path]:
    """The files among ``paths``, and the images in the folders among them, in the order of :func:`pictures`.

    Raises:
        FileNotFoundError: A path does not exist, or a folder has no images.
        OSError, ValueError: As for :func:`pictures`.
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


def special(files: Sequence[str]) -> set[str]:
    """The pipes, sockets and devices among these paths; opening one may block forever.

    Listing a folder gives the type of all its files at once; only links are checked one by one. Paths that cannot be
    checked are not reported; reading them raises an error.
    """
    odd: set[str] = set()
    for folder in {file[: file.rfind("/") + 1] for file in files}:
        try:
            with os.scandir(folder or ".") as entries:
                odd.update(folder + entry.name for entry in entries if not entry.is_file(follow_symlinks=False))
        except OSError:  # permissions may allow reading the files of a folder, but not listing it
            odd.update(file for file in files if file.startswith(folder))
    return {file for file in files if file in odd and is_special(file)}


def is_special(file: str | os.PathLike[str]) -> bool:
    """Whether it exists and is neither a file nor a folder; it is not opened."""
    try:
        mode = os.stat(file).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
