"""The training and validation sets of a run, as image files, whose classes are numbered alike."""

from __future__ import annotations

import os

import numpy as np

from ..data.formats import is_pattern, open_records
from ..data.records import Records
from .config import TrainConfig

ANY_CLASSES = "--recipe imagenet --weights= takes any classes"
ORIGINS = {
    "imagenet": "ImageNet comes from image-net.org (ILSVRC2012, after registration)",
    "tinyimagenet": "Tiny ImageNet comes from cs231n.stanford.edu (tiny-imagenet-200.zip)",
}


def check_exists(name: str, path: str) -> None:
    """FileNotFoundError unless the setting ``name`` is a file, a folder, or a pattern of shards."""
    if not os.path.exists(path) and not is_pattern(path):
        raise FileNotFoundError(f"{name}: no such file or folder: {path}")


def opened(config: TrainConfig, path: str, split: str | None, name: str = "data") -> Records:
    """A data set, or a part of it; for ``in100`` only the images of ImageNet-100. Messages begin with ``name``.

    ImageNet-100 is every tenth of the 1,000 sorted class folders (docs/METHOD.md).

    Raises:
        OSError, ValueError: As for :func:`prime_dali.data.formats.open_records`; or for ``in100`` there are neither 100
            nor 1,000 classes, for ``tinyimagenet`` not 200.
    """
    check_exists(name, path)
    try:
        records = open_records(path, split, config.label or None)
    except FileNotFoundError as error:
        origin = ORIGINS.get(config.dataset, ORIGINS["imagenet"])
        other = "; --val names a validation set that lies elsewhere" if split == "val" else ""
        raise FileNotFoundError(
            f"{name}: {error}; {origin}, and its validation images have to be sorted by class{other}"
        ) from error
    where, count = path if split is None else f"{path}/{split}", count_classes(records)
    if config.dataset == "tinyimagenet" and count != 200:
        raise ValueError(f"{name}: {where}: expected the 200 classes of Tiny ImageNet, got {count}; {ANY_CLASSES}")
    if config.dataset != "in100":
        return records
    if count == 1000:
        keep = records.labels % 10 == 0
        return records.select(np.flatnonzero(keep), records.labels[keep] // 10, records.classes[::10])
    if count != 100:
        raise ValueError(
            f"{name}: {where}: expected 100 class folders, or ImageNet's 1,000, for in100, got {count}; {ANY_CLASSES}"
        )
    return records


def count_classes(records: Records) -> int:
    """How many classes there are: those with names, or those up to the highest label."""
    return len(records.classes) or int(records.labels.max()) + 1


def matched(name: str, part: Records, train: Records) -> Records:
    """A part of the data set with the labels that the training set has for its classes.

    Raises:
        ValueError: The classes are not those of the training set.
    """
    if not part.classes and not train.classes:
        if count_classes(part) > count_classes(train):
            expected, got = count_classes(train) - 1, count_classes(part) - 1
            raise ValueError(f"{name}: expected labels up to {expected}, as in train, got {got}")
        return part
    if not part.classes or not train.classes:
        raise ValueError(
            f"{name}: expected class names in all parts or in none, got none in {'train' if part.classes else name}; "
            "a file classes.txt beside the shards names them, one a line"
        )
    if part.classes == train.classes:
        return part
    lacking, more = sorted(set(train.classes) - set(part.classes)), sorted(set(part.classes) - set(train.classes))
    if lacking or more:
        raise ValueError(
            f"{name}: expected the classes of train; missing: {_some(lacking)}; not in train: {_some(more)}"
        )
    place = {known: label for label, known in enumerate(train.classes)}
    labels = np.array([place[known] for known in part.classes], np.int64)[part.labels]
    return part.select(slice(None), labels, train.classes)


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "") or "none"
