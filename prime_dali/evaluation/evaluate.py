"""``prime-dali evaluate``: accuracy, corruption accuracy, mCE, calibration and flip rates of a classifier."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .. import _devices, _progress
from .._files import make_output_folder
from .._wording import clock, facts, plural
from ..data import partition
from ..models import creation, networks
from . import (
    adaptation,
    benchmarks,
    chosen,
    image_sets,
    predicting,
    report,
    report_tables,
    sequences,
    shard_counts,
    stability,
)
from .scores import Count, Counts
from .shard_counts import ShardCounts
from .tasks import Found, Task, by_set, tasks_of


def accuracy(
    network: nn.Module,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    mean: Sequence[float],
    std: Sequence[float],
    device: torch.device | str,
    batch: int = 1000,
) -> float:
    """Accuracy on images in memory, in [0, 1].

    Args:
        network: On ``device``. It runs in evaluation mode; afterwards its previous mode is restored.
        images: ``[N, H, W, 3]``, RGB.
        labels: ``[N]``, indices of logits.
        mean, std: Images are normalized to ``(x - mean) / std``, per channel, x in [0, 1].
        device: Where it runs; all images are copied there at once.
        batch: Images per forward pass; does not affect the result.

    Raises:
        ValueError: There are no images, labels out of range, a normalization that is not on the [0, 1] scale, or a
            network that does not return logits, finite ones.
    """
    return count(network, image_sets.Arrays(images, labels), (mean, std), torch.device(device), batch).accuracy


def count(
    network: nn.Module,
    images: image_sets.ImageSet,
    statistics: predicting.Statistics,
    device: torch.device,
    batch: int,
    adapt: adaptation.Adaptation | None = None,
    name: str = "images",
) -> Count:
    """Count the images that the network classifies correctly; in bfloat16 autocast on a GPU, in float32 on the CPU.

    Args:
        network, device, batch: As for :func:`accuracy`.
        images: The set. If it is ``masked``, predictions are limited to the classes among its labels.
        statistics: Mean and standard deviation by which images are normalized.
        adapt: First adapt batch norm to images of this set.
        name: Name of the set, for messages and for the draw of these images.

    Raises:
        ValueError: As for :func:`accuracy`; or ``adapt`` needs more images, or a network with batch norm.
    """
    if not len(images.labels):
        raise ValueError(f"{name}: expected images, got none")
    normalized = predicting.normalization(statistics, device)
    with predicting.evaluating(network, device):
        blended: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if adapt is not None:
            drawn = images.subset(adapt.draw(name, len(images.labels)))
            ((samples, _),) = drawn.batches(adapt.samples, device)
            blended = adaptation.adapted(network, normalized(samples), adapt.prior)
        with blended:
            batches = images.batches(batch, device)
            logits = ((predicting.logits(network, normalized(pixels)), labels) for pixels, labels in batches)
            return predicting.tally(logits, images, device, name)


def run(
    classifier: networks.Classifier,
    sets: report.Sets,
    *,
    device: torch.device | str,
    batch: int = 1000,
    adapt: adaptation.Adaptation | None = None,
    progress: Callable[[list[Any]], Iterable[Any]] = iter,
    part: ShardCounts | None = None,
) -> Counts:
    """Evaluate a classifier on sets of :mod:`prime_dali.evaluation.benchmarks`.

    Args:
        classifier: Its network is on ``device``.
        sets: By name, such as ``"clean"`` and ``"cifar-c"``.
        device, batch, adapt: As for :func:`count`.
        progress: Wraps the list of what is evaluated, as :func:`._progress.over`.
        part: Evaluate what is missing of this shard, and keep each count there; the result has those of this shard.

    Raises:
        ValueError: As for :func:`count`; unreadable files, which are named; ``adapt`` with sets of sequences.
    """
    device = torch.device(device)
    for name, what in sets.items():
        if adapt is not None and isinstance(what, sequences.Perturbed):
            raise ValueError(f"bn-adapt: expected sets of images, got {name}, whose parts are sequences")
    tasks = tasks_of(sets)
    counts: dict[Task, Found] = {} if part is None else part.counts
    for task in progress(tasks if part is None else part.missing(tasks)):
        found = _measured(classifier, sets[task[0]], task, device, batch, adapt)
        counts[task] = found
        if part is not None:
            part.add(task, found)
    return by_set(tasks, counts)


def _measured(
    classifier: networks.Classifier,
    what: report.Set,
    task: Task,
    device: torch.device,
    batch: int,
    adapt: adaptation.Adaptation | None,
) -> Found:
    """What is counted of a set, or of one part of it: a corruption at a severity, or a perturbation."""
    name, corruption, severity = task
    statistics = classifier.statistics
    if isinstance(what, sequences.Perturbed):
        assert corruption is not None  # all of these sets have parts
        return stability.measure(classifier.network, what, corruption, statistics, device, batch)
    label = name if corruption is None else f"{corruption} {severity}"
    images = what.read(str(corruption), severity) if isinstance(what, benchmarks.Corrupted) else what
    return count(classifier.network, images, statistics, device, batch, adapt, label)


def main(options: argparse.Namespace, check_read: Callable[[bool], None]) -> None:
    """Evaluate as the options of :func:`.command.parser` say, print the tables and write them.

    Args:
        options: With ``folders``, those of the sets by name, such as ``"clean"``.
        check_read: Called once it is known whether the network is for CIFAR; refuses options that are not read.

    Raises:
        TypeError, ValueError, OSError, RuntimeError, ImportError: An option is invalid, or what it names is.
    """
    adapt = adaptation.parse(options.bn_adapt, options.seed) if options.bn_adapt else None
    device = _devices.torch_device(options.device)
    classifier = networks.load(
        options.checkpoint, network=options.network, num_classes=options.num_classes, stem=options.stem,
        size=options.size, mean=options.mean, std=options.std, raw=options.raw,
    )  # fmt: skip
    check_read(chosen.for_cifar(classifier))
    classifier, source = chosen.named(classifier, options)
    creation.check_sizes(classifier.network, classifier.name, {"size": (classifier.size,)})
    sets, dataset = chosen.open_sets(options, classifier)
    rules = chosen.scoring_rules(options, sets, dataset)
    if options.out is not None:
        make_output_folder(options.out)
    settings = _settings(options, device, adapt)
    about = dict(settings)
    if options.shard or options.join:
        about |= {"checkpoint": shard_counts.fingerprint(classifier), "versions": report.versions()}
    if options.join:
        tasks = tasks_of(sets)
        found, where = shard_counts.join(options.out, tasks, about)
        counts = by_set(tasks, found)
        settings |= where
    else:
        print(_about(options, classifier, device, source), file=sys.stderr, flush=True)
        counts = _counted(options, classifier, sets, device, adapt, about)
    if options.shard:
        print(f"shard {options.shard} is done; when all are, --join makes the tables")
        return
    results = report.collect(classifier, dataset, sets, counts, rules, settings)
    print(report_tables.markdown(results))
    if options.out is not None:
        for path in report.write(results, options.out):
            print(f"wrote {path}")


def _counted(
    options: argparse.Namespace,
    classifier: networks.Classifier,
    sets: report.Sets,
    device: torch.device,
    adapt: adaptation.Adaptation | None,
    about: Mapping[str, Any],
) -> Counts:
    """What :func:`run` counts, of a shard if the options name one, and how long it took; ``about`` as for
    :func:`.shard_counts.held`."""
    start = time.monotonic()
    classifier.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    shard = shard_counts.held(options.out, options.shard, about) if options.shard else contextlib.nullcontext()
    with shard as part:
        counts = run(
            classifier, sets, device=device, batch=options.batch, adapt=adapt, part=part,
            progress=lambda tasks: _progress.over(tasks, "evaluating", "set"),
        )  # fmt: skip
    print(f"evaluated in {clock(time.monotonic() - start)}", file=sys.stderr, flush=True)
    return counts


def _settings(options: argparse.Namespace, device: torch.device, adapt: adaptation.Adaptation | None) -> dict[str, Any]:
    """The settings of the evaluation, as ``results.json`` has them."""
    return {
        "batch": options.batch, "device": str(device), "precision": predicting.precision(device),
        "hardware": _devices.hardware(device), "loader": options.loader, "subset": options.subset,
        "label": options.label, "partial": options.partial,
        "folders": {name: str(folder) for name, folder in options.folders.items()},
        "bn_adapt": None if adapt is None else {"N": adapt.prior, "n": adapt.samples, "seed": adapt.seed},
    }  # fmt: skip


def _about(
    options: argparse.Namespace, classifier: networks.Classifier, device: torch.device, source: Path | None
) -> str:
    """What the evaluation is, for its user; on stderr, as the tables on stdout are a document. ``source`` has named the
    classes, if the checkpoint did not."""
    names = "" if source is None else f", named by {source}: {', '.join((classifier.classes or ())[:3])}"
    names += ", ..." if source is not None and classifier.num_classes > 3 else ""
    parameters = sum(parameter.numel() for parameter in classifier.network.parameters())
    sets = ", ".join(f"{name} ({folder})" for name, folder in options.folders.items())
    return facts({
        "data": sets, "images": f"{classifier.size} x {classifier.size}, {classifier.num_classes} classes{names}",
        "network": f"{classifier.name} from {classifier.source}, {plural(parameters, 'parameter')}",
        "device": f"{_devices.name(device)}, {plural(options.workers, 'worker')}", **partition.facts(options.shard),
        "out": options.out or "",
    })  # fmt: skip
