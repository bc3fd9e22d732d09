"""The classes of a benchmark's folders, matched by name with those of a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from .._progress import plural
from ..data.folders import classes as class_folders


def class_positions(folder: Path, classes: Sequence[str], subset: bool) -> dict[str, int]:
    """The class folders in ``folder`` that are used, each with its position in ``classes``; see :func:`positions`."""
    return positions(folder, folders_in(folder), classes, subset)


def positions(folder: Path, found: Sequence[str], classes: Sequence[str], subset: bool) -> dict[str, int]:
    """Those of the classes ``found`` that the network has, each with its position in ``classes``, the network's.

    Raises:
        ValueError: The network lacks all of them, or any unless ``subset``; the message names ``folder``.
    """
    place = {name: label for label, name in enumerate(classes)}
    unknown = [name for name in found if name not in place]
    if unknown and (not subset or len(unknown) == len(found)):
        wanted = f"{plural(len(classes), 'class', 'classes')} ({classes[0]} to {classes[-1]})"
        part = f"; did you mean {folder / 'val'}?" if "val" in unknown else ""
        raise ValueError(
            f"{folder}: expected the network's {wanted}, got {plural(len(unknown), 'other')}: "
            f"{', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}{part}"
        )
    return {name: place[name] for name in found if name in place}


def absent_classes(there: Iterable[str], classes: Sequence[str]) -> str:
    """Description of the network's classes that are missing; empty if none are."""
    absent = sorted(set(classes).difference(there))
    more = ", ..." if len(absent) > 3 else ""
    return f"{len(absent)} of {len(classes)} classes ({', '.join(absent[:3])}{more})" if absent else ""


def folders_in(folder: Path) -> list[str]:
    """The names of the folders in ``folder``, sorted; FileNotFoundError without any."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    found = class_folders(folder)
    if not found:
        raise FileNotFoundError(f"{folder}: expected folders, found none")
    return found
