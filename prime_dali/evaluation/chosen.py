"""What the options of ``prime-dali evaluate`` choose: the sets, and how each benchmark of corruptions is scored."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..data import cifar
from ..data.statistics import CIFAR_STATISTICS
from ..models import networks
from . import benchmarks, image_sets, imagenet_sets, layouts, report, scores, sequences
from . import classes as class_names
from .names import C_BAR_SETS, C_SETS, CIFAR_SETS, IMAGENET_SETS


def for_cifar(classifier: networks.Classifier) -> bool:
    """Whether a network is for CIFAR's images: as small, and not resized first, as photographs are."""
    return classifier.size == cifar.SIDE and classifier.resize is None


def named(classifier: networks.Classifier, options: argparse.Namespace) -> tuple[networks.Classifier, Path | None]:
    """The classifier with names of its classes, and what has named them, if the checkpoint did not."""
    clean = None if for_cifar(classifier) else options.clean
    names = class_names.named(classifier.classes, classifier.num_classes, options.classes, clean)
    source = None if names == classifier.classes else options.classes or options.clean
    return replace(classifier, classes=names), source


def open_sets(options: argparse.Namespace, classifier: networks.Classifier) -> tuple[report.Sets, str | None]:
    """What the options name, and the data set that the classifier is for, as the paper's tables call it."""
    small = for_cifar(classifier)
    if small and classifier.num_classes not in CIFAR_STATISTICS:
        raise ValueError(
            f"{classifier.source}: expected 10 or 100 classes of a network of {cifar.SIDE} x {cifar.SIDE} images, "
            f"which are taken for CIFAR's, got {classifier.num_classes}"
        )
    for name in options.folders:
        if name in (IMAGENET_SETS if small else CIFAR_SETS):
            wanted = "of ImageNet" if small else f"of {cifar.SIDE} x {cifar.SIDE} images (--size)"
            raise ValueError(f"--{name}: expected a network {wanted}, got one of size {classifier.size}")
    return (_cifar_sets if small else _imagenet_sets)(options, classifier)


def _cifar_sets(options: argparse.Namespace, classifier: networks.Classifier) -> tuple[report.Sets, str | None]:
    classes, label = classifier.num_classes, options.label or None
    if label is not None and "clean" not in options.folders:
        raise ValueError(f"label: expected --clean with shards, as the other sets of CIFAR are arrays, got {label!r}")
    sets: dict[str, report.Set] = {}
    for name, folder in options.folders.items():
        if name == "clean":
            sets[name] = benchmarks.cifar_clean(folder, classes, classifier.classes, label=label)
        elif name == "cifar-p":
            sets[name] = sequences.cifar_perturbed(folder)
        else:
            sets[name] = benchmarks.cifar_corrupted(folder, classes, c_bar=name in C_BAR_SETS)
    return sets, {10: "CIFAR-10", 100: "CIFAR-100"}.get(classes)


def _imagenet_sets(options: argparse.Namespace, classifier: networks.Classifier) -> tuple[report.Sets, str | None]:
    classes = classifier.classes or benchmarks.imagenet_classes(classifier.num_classes, options.clean)
    decoding = image_sets.Decoding(options.loader, options.workers, classifier.interpolation)
    labels = _labels(options.folders, options.label or None)
    sets: dict[str, report.Set] = {}
    for name, folder in options.folders.items():
        reading = benchmarks.Reading(options.subset, labels.get(name), decoding)
        if name in (*C_SETS, *C_BAR_SETS):
            side = benchmarks.TINY_SIDE if classifier.size == benchmarks.TINY_SIDE else benchmarks.SIDE
            sets[name] = benchmarks.imagenet_corrupted(folder, classes, reading, c_bar=name in C_BAR_SETS, size=side)
        elif name == "imagenet-3dcc":
            sets[name] = benchmarks.imagenet_3dcc(folder, classes, reading)
        elif name == "imagenet-p":
            sets[name] = sequences.imagenet_perturbed(folder, classes, reading)
        else:
            known = imagenet_sets.Classes(classes, options.clean)
            sets[name] = imagenet_sets.pictures(
                name, folder, known, reading, size=classifier.size, resize=classifier.resize
            )
    dataset = "ImageNet" if len(classes) == 1000 else None
    with contextlib.suppress(ImportError):  # without WordNet IDs, ImageNet-100 is any 100 classes
        if len(classes) == 100 and classes == benchmarks.imagenet_classes(100, None):
            dataset = "ImageNet-100"
    return sets, dataset


def _labels(folders: Mapping[str, Path], label: str | None) -> dict[str, str]:
    """``--label`` of each set that is shards; class folders beside them have their labels."""
    if label is None:
        return {}
    found = {name: label for name, folder in folders.items() if benchmarks.in_shards(folder)}
    if not found:
        for folder in folders.values():
            if not folder.exists():
                raise FileNotFoundError(f"{folder}: no such folder")
        raise ValueError(f"label: expected a set of shards, as the names of class folders are labels, got {label!r}")
    return found


def scoring_rules(options: argparse.Namespace, sets: report.Sets, dataset: str | None) -> dict[str, report.Rule]:
    """How each benchmark of corruptions is scored; whether sets are complete: before anything is evaluated."""
    wanted = options.normalize
    if wanted is None:
        wanted = "standard" if options.reference else "alexnet" if dataset == "ImageNet" else "none"
    if (options.reference is None) == (wanted == "standard"):
        raise ValueError("reference: expected with --normalize standard, and only then")

    rules = {}
    for name, what in sets.items():
        if not options.partial:
            layouts.check_complete(name, options.folders[name], what.lacking)
        if not isinstance(what, benchmarks.Corrupted):  # photographs, or sequences
            continue
        if wanted == "alexnet" and name == "cifar-c":
            raise ValueError("normalize: expected none or standard, as AlexNet's errors are of ImageNet-C, got alexnet")
        normalization = wanted if name in C_SETS else "none"  # C-bar has no reference of its own
        reference = report.read_reference(options.reference, name, dataset) if normalization == "standard" else None
        there = {c: dict.fromkeys(what.severities.get(c, ()), 0.0) for c in what.counted}
        if reference is not None:
            scored = [c for c in what.counted if not scores.missing(there, [c])]
            if lacks := reference.lacks(scored, what.lacking):
                raise ValueError(
                    f"reference: expected results on all of {name} that is scored here, {options.reference} lacks "
                    f"{'; '.join(lacks)}; evaluate that network on the same folder"
                )
        rules[name] = report.Rule(normalization, reference, what.lacking)
        rules[name].mce(there, what.counted)  # better to learn now than at the end what the reference lacks
    return rules
