"""What the folder of a benchmark has and lacks, by the names of its files and folders alone: so a grid knows it before
its first training, and without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _arguments
from .._states import Kind
from .classes import folders_in
from .names import (
    C_BAR_CORRUPTIONS,
    C_BAR_SETS,
    C_SETS,
    CIFAR_PERTURBATIONS,
    CIFAR_SETS,
    CORRUPTIONS,
    CORRUPTIONS_3D,
    EXTRA_CORRUPTIONS,
    EXTRA_PERTURBATIONS,
    P_SETS,
    PERTURBATIONS,
    SEVERITIES,
)
from .scores import missing

WITH_PARTS = (*C_SETS, *C_BAR_SETS, "imagenet-3dcc", *P_SETS)
"""Options of ``prime-dali evaluate`` for benchmarks with a folder or a file for each corruption or perturbation."""

_KNOWN: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(C_SETS, (CORRUPTIONS, EXTRA_CORRUPTIONS)),
    "imagenet-3dcc": (CORRUPTIONS_3D, ()),
    "imagenet-p": (PERTURBATIONS, EXTRA_PERTURBATIONS),
    "cifar-p": (
        CIFAR_PERTURBATIONS,
        tuple(name for name in (*PERTURBATIONS, *EXTRA_PERTURBATIONS) if name not in CIFAR_PERTURBATIONS),
    ),
}
"""Those that the means include, and others; C-bar may have any."""

_MANIFEST = Kind({}, "a manifest of a benchmark", "put back a copy of it, or make the benchmark again")


@dataclass(frozen=True)
class Layout:
    """The corruptions or perturbations of a benchmark."""

    folder: Path
    counted: tuple[str, ...]
    """Those that the means include, present or not; of C-bar those that are present, in alphabetical order."""
    extra: tuple[str, ...]
    """Others that are present."""
    severities: Mapping[str, tuple[int, ...]]
    """Of each corruption or perturbation that is present, in order; of perturbations there are none."""
    lacking: tuple[str, ...]
    """Description of what the means lack."""
    manifest: Mapping[str, Any] | None
    """How it was made, for a regenerated one (:func:`manifest`)."""


def read(name: str, folder: Path, benchmark: str | None = None, purpose: str = "") -> Layout:
    """The layout of a benchmark.

    Args:
        name: One of :data:`WITH_PARTS`.
        folder: For CIFAR it holds ``<corruption>.npy`` with all severities, or those in its manifest; for ImageNet
            ``<corruption>/<1..5>``. Likewise ``<perturbation>.npy`` and ``<perturbation>``.
        benchmark, purpose: As for :func:`manifest`.

    Raises:
        FileNotFoundError: There is no folder, or none of its corruptions.
        ValueError: An unknown corruption or severity, or another benchmark; the message names the folder or the file.
    """
    made = None if name in P_SETS else manifest(folder, benchmark, purpose)
    what = "perturbation" if name in P_SETS else "corruption"
    names = _names(name, folder, what)
    counted, others = _KNOWN.get(name, (tuple(names), ()))
    for one in names:
        if one not in (*counted, *others):
            raise ValueError(_unknown(folder, what, one, (*counted, *others)))
    extra = tuple(one for one in others if one in names)
    if name in P_SETS:
        absent = tuple(one for one in counted if one not in names)
        return Layout(folder, counted, extra, dict.fromkeys(names, ()), absent, None)
    if name in CIFAR_SETS:
        severities = dict.fromkeys(names, _in_arrays(folder, made or {}))
    else:
        severities = {one: _in_folders(folder / one) for one in names}
    few = name in C_BAR_SETS and len(names) != C_BAR_CORRUPTIONS
    lacking = (f"ten corruptions, got {len(names)}",) if few else ()
    return Layout(folder, counted, extra, severities, (*lacking, *missing(severities, counted)), made)


def _unknown(folder: Path, what: str, name: str, known: Sequence[str]) -> str:
    """The message on a folder or file in ``folder`` that is no corruption or perturbation."""
    message = _arguments.unknown(f"{folder}: {what}", name, known)
    if folder.name in known:
        return f"{message}; did you mean {folder.parent}, which has the {what}s?"
    inside = folder / name
    if any((inside / one).exists() for one in known):
        return f"{message}, which has some of them; move its folders into {folder}, or give {inside}"
    return message


def check_complete(name: str, folder: Path, lacking: Sequence[str]) -> None:
    """Raise a ValueError if a set lacks something of which its means would be."""
    if lacking:
        raise ValueError(
            f"{folder}: expected all of {name} for a mean, missing: {'; '.join(lacking)}; "
            "the option partial takes the mean over the rest"
        )


def manifest(folder: Path, benchmark: str | None, purpose: str = "") -> dict[str, Any] | None:
    """Read the ``manifest.json`` that ``prime-dali corrupt`` writes into a benchmark; None if there is none.

    Args:
        folder: Of the benchmark.
        benchmark: Its name in the manifest, such as ``"CIFAR-10-C"``; None: any.
        purpose: What needs that benchmark, for the message, such as ``" for a network whose size is 64"``.

    Raises:
        ValueError: It is not a JSON object, or it belongs to another benchmark.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    content: dict[str, Any] = _MANIFEST.read_json(path)
    if benchmark is not None and content.get("benchmark", benchmark) != benchmark:
        raise ValueError(f"{path}: expected {benchmark}{purpose}, got {content['benchmark']}")
    return content


def _names(name: str, folder: Path, what: str) -> list[str]:
    """The names of the corruptions or perturbations (``what``) that are there, sorted."""
    if name not in CIFAR_SETS:
        return folders_in(folder)
    found = sorted(path.stem for path in folder.glob("*.npy") if path.stem != "labels")
    if not found:
        where = "no such folder" if not folder.is_dir() else f"expected <{what}>.npy, found none"
        raise FileNotFoundError(f"{folder}: {where}")
    return found


def _in_arrays(folder: Path, made: Mapping[str, Any]) -> tuple[int, ...]:
    """The severities in each file of CIFAR-C: all, unless its manifest says which."""
    wanted = made.get("severities", list(SEVERITIES))
    if not isinstance(wanted, list) or not wanted or wanted != sorted({s for s in wanted if s in SEVERITIES}):
        raise ValueError(f"{folder / 'manifest.json'}: expected severities, some of 1 to 5 in order, got {wanted!r}")
    return tuple(wanted)


def _in_folders(folder: Path) -> tuple[int, ...]:
    """The severities of a corruption of ImageNet-C."""
    known = {str(severity): severity for severity in SEVERITIES}
    found = folders_in(folder)
    for inside in found:
        if inside not in known:
            raise ValueError(f"{folder}: expected folders 1 to 5, the severities, got {inside!r}")
    return tuple(known[inside] for inside in found)
