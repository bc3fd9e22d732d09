"""The classes of a network, and those of a benchmark's folders, matched by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from .._wording import plural
from ..data.folders import check_no_parts, class_folders, names_in


def named(own: Sequence[str] | None, count: int, given: Path | None, clean: Path | None) -> tuple[str, ...] | None:
    """The names of a network's classes, in the order of its logits.

    Args:
        own: Those that its checkpoint has, if it has any.
        count: How many logits it has.
        given: A file with a name a line, or a folder whose subfolders, sorted, are the classes.
        clean: A folder that names them if nothing else does: if it has as many subfolders as there are logits, of
            another number than ImageNet and ImageNet-100 have.

    Returns:
        None if nothing names them.

    Raises:
        FileNotFoundError: ``given`` does not exist, or has no folders.
        ValueError: It has another number of names, a name twice or with spaces around it, or other ones than
            the checkpoint; or a folder has the parts ``train`` and ``val`` instead of classes.
    """
    if given is None:
        if own is None and clean is not None and clean.is_dir() and count not in (100, 1000):
            found = tuple(class_folders(clean))
            check_no_parts(clean, found)
            return found if len(found) == count else None
        return None if own is None else tuple(own)
    if given.is_dir():
        names = tuple(folders_in(given))
        check_no_parts(given, names)
    elif given.is_file():
        names = tuple(filter(None, names_in(given)))
    else:
        raise FileNotFoundError(f"classes: expected a file with a name a line, or a folder of classes, got {given}")
    if len(names) != count:
        raise ValueError(f"classes: expected {count} names, one per logit, got {len(names)} in {given}")
    if len(set(names)) != len(names):
        raise ValueError(f"classes: expected each name once, got one more than once in {given}")
    if own is not None and tuple(own) != names:
        raise ValueError(f"classes: expected none for a checkpoint that names its classes otherwise, got {given}")
    return names


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
