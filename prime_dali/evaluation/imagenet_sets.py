"""Test sets of photographs and drawings for networks of ImageNet (docs/EVALUATION.md, "Benchmarks")."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from . import benchmarks
from .benchmarks import SIDE, Reading
from .image_sets import Pictures

OF_200_CLASSES = ("imagenet-r", "imagenet-a")
"""Sets of 200 of the 1,000 classes: those of their folders. Predictions are limited to them."""

NUMBERED = ("imagenet-v2", "imagenet-v2-threshold", "imagenet-v2-top")
"""Versions of ImageNetV2, whose folders are named by the number of the class."""

_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class Classes:
    """The classes of a network of ImageNet."""

    names: tuple[str, ...]
    """WordNet IDs, in the order of the logits."""
    clean: Path | None = None
    """A folder of ImageNet, as for :func:`.benchmarks.imagenet_classes`."""

    def numbers(self) -> list[str]:
        """The numbers of these classes, 0 to 999, among the sorted 1,000 of ImageNet.

        Raises:
            ValueError: A class that ImageNet does not have.
            ImportError: The network has fewer classes, and nothing lists the 1,000 (``imagenet_classes``).
        """
        every = self.names if len(self.names) == 1000 else benchmarks.imagenet_classes(1000, self.clean)
        number = {wnid: str(place) for place, wnid in enumerate(sorted(every))}
        unknown = [name for name in self.names if name not in number or not _WNID.fullmatch(name)]
        if unknown:
            raise ValueError(f"classes: expected a network of ImageNet's classes (WordNet IDs), got {unknown[0]!r}")
        return [number[name] for name in self.names]


def pictures(
    name: str,
    folder: Path,
    classes: Classes,
    reading: Reading = Reading(),
    *,
    size: int = SIDE,
    resize: int | None = 256,
) -> Pictures:
    """Open a set of single pictures.

    Args:
        name: ``"imagenet-r"`` or ``"imagenet-a"``: ``<wnid>/*``, 200 classes, to which predictions are limited; shards
            must name them, as numbers could be those among the 200 or those of the network.
            ``"imagenet-v2"``, ``"imagenet-v2-threshold"`` or ``"imagenet-v2-top"``: ``<0..999>/*``, by number of the
            class, not by position of the folder: as text, 10 comes before 2. Any other, such as ``"clean"``,
            ``"stylized"`` or ``"imagenet-sketch"``: ``<wnid>/*``.
        folder, reading, size, resize: As for :func:`.benchmarks.imagenet_pictures`. Any set may be shards; labels of
            those of ImageNetV2 that do not name the classes are the numbers 0 to 999.
        classes: Classes of the network.

    Raises:
        FileNotFoundError, ValueError: As for ``imagenet_pictures``, and as for :meth:`Classes.numbers`; or shards do
            not name the 200 classes.
    """
    names = classes.numbers() if name in NUMBERED else classes.names
    found = benchmarks.imagenet_pictures(folder, names, reading, size=size, resize=resize)
    if name not in OF_200_CLASSES:
        return found
    if not found.records.classes:
        raise ValueError(
            f"{folder}: expected the names of the 200 classes (WordNet IDs) in the shards, got numbers; --label names "
            "the column, feature or field with the names, and a file classes.txt beside the shards numbers them"
        )
    there = len(np.unique(found.labels))
    # With other classes to choose from, the task is an easier or a harder one.
    lacking = (f"200 classes, got {there}",) if len(classes.names) == 1000 and there != 200 else ()
    return replace(found, masked=True, lacking=lacking)
