"""``prime-dali analyze similarity``: how close augmented images are to corrupted ones.

For N images drawn at random, each corruption c of an image at each severity (75 in all), and K augmented samples t of
the same image, the command computes the minimum cosine distance ``min_t 1 - cos(phi(c), phi(t))``, where ``phi`` are
features of a trained network. Mean, median and percentiles are over images, corruptions and severities (Modas et al.,
ECCV 2022, tables "simclr_distances" and "simclr_percentiles"; there N = 1,000 training images of ImageNet, K = 100, and
a SimCLRv2 ResNet-50). For the method "clean" the only sample is the image itself.

Where the paper does not say, the choices are: features are the input of the final classifier layer (``--layer`` selects
another); an image is the center crop of ImageNet-C, for augmentations too; "no mixing" is one chain without a blend; a
corrupted image is made in memory, without the JPEG files of ImageNet-C, unless it is read from a folder; sample k of an
image is the one that training would use in epoch k.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from .. import _devices
from .._files import make_output_folder, replacing
from .._progress import Progress
from .._states import Kind
from .._wording import facts, plural
from ..evaluation import layouts
from ..evaluation.corruptions import SIDES
from . import features, samples, similarity_report
from .arguments import CLEAN, SIMILARITY, chosen_methods
from .images import Corruptions, Images, images_of, pairs

DISTANCES = "distances.npz"
_SAVE_EVERY = 60  # seconds


def least_distances(corrupted: torch.Tensor, augmented: torch.Tensor) -> torch.Tensor:
    """Cosine distance of each vector to the nearest one of another set.

    Args:
        corrupted: ``[C, D]``.
        augmented: ``[K, D]``.

    Returns:
        float64 ``[C]``: the minimum of ``1 - cos``, computed as half the squared distance of unit vectors, which keeps
        precision if the two are nearly equal.

    Raises:
        ValueError: A vector is zero, and has no direction.
    """
    for name, vectors in (("corrupted", corrupted), ("augmented", augmented)):
        if not vectors.any(1).all():
            raise ValueError(f"{name}: expected features that are not zero, got a vector of zeros")
    units = normalize(corrupted.double(), eps=0), normalize(augmented.double(), eps=0)
    between = torch.cdist(units[0], units[1], compute_mode="donot_use_mm_for_euclid_dist")
    return between.min(1).values.square() / 2


def measure(
    network: features.Features,
    corrupted: Corruptions,
    numbers: Sequence[int],
    methods: Mapping[str, samples.Draw | None],
    count: int,
    *,
    batch: int = 50,
    workers: int = 0,
) -> Iterator[NDArray[np.float64]]:
    """Minimum distances, image by image.

    Args:
        network: Gives the features.
        corrupted: The images, and their corruptions.
        numbers: Of the images.
        methods: By name; None: the image itself.
        count: Augmented samples per image.
        batch: Images per forward pass; affects the result only by rounding.
        workers: Processes that make corrupted images; 0: this one.

    Yields:
        ``[methods, corruptions, severities]`` of each image.

    Raises:
        ValueError: A file that is not what it should be; features that are not finite, or zero.
    """
    shape = (len(methods), len(corrupted.names), len(corrupted.severities))
    for number, (clean, changed) in zip(numbers, pairs(corrupted, numbers, workers), strict=True):
        targets = network.batched(changed, batch)
        image = clean.to(network.device)
        rows = []
        for draw in methods.values():
            if draw is None:
                vectors = network.batched(image[None], batch)
            else:
                vectors = network.augmented(draw, image, number, count, batch)
            rows.append(least_distances(targets, vectors))
        yield torch.stack(rows).cpu().numpy().reshape(shape)


@dataclass(frozen=True)
class _Work:
    """What is to be measured."""

    corrupted: Corruptions
    numbers: list[int]
    """Of the images that were drawn."""
    network: features.Features
    methods: dict[str, samples.Draw | None]
    settings: dict[str, Any]
    """All that the distances follow from."""


def run(options: argparse.Namespace) -> None:
    """Measure as the options say, print the table and write everything.

    Raises:
        TypeError, ValueError, FileNotFoundError, ImportError, RuntimeError: A bad option, image, network or folder; the
            message names it.
    """
    work = _prepared(options)
    make_output_folder(options.out)
    start = time.perf_counter()
    distances, images = _distances(work, options)
    seconds = time.perf_counter() - start
    cost = _cost(work, options, images, seconds)
    results = {
        "format": "prime-dali-similarity", "version": 1, **features.environment(work.network.device),
        "source": str(options.photos or " ".join(options.cifar)), **work.settings, "cost": cost,
        "measured": {
            name: similarity_report.statistics(distances[:, place], work.corrupted.names, work.corrupted.severities)
            for place, name in enumerate(work.methods)
        },
        "reported": similarity_report.reported(),
    }  # fmt: skip
    print(similarity_report.markdown(results))
    for path in similarity_report.write(results, options.out):
        print(f"wrote {path}")
    each = f" ({seconds / images:.2f} s an image)" if images else ""
    print(f"{plural(images, 'image')}, {cost['network_inputs']:,} inputs of the network in {seconds:.1f} s{each}")


def _prepared(options: argparse.Namespace) -> _Work:
    """Images, network and methods of the options, checked."""
    names = chosen_methods(options, ("images", "samples", "batch"), SIMILARITY)
    images = images_of(options.photos, options.cifar, train=options.corrupted is None)
    corrupted = Corruptions.of(images, options.corruptions, options.severities, options.seed, options.corrupted)
    if len(images) < options.images:
        raise ValueError(f"images: expected at most {len(images)}, which there are, got {options.images}; see --images")
    drawn = np.random.default_rng(options.seed).choice(len(images), options.images, replace=False)
    numbers = sorted(int(number) for number in drawn)
    network = features.load(options, SIDES[images.kind])
    given = (images.kind, options.seed, *network.classifier.statistics)
    methods = {name: None if name == CLEAN else samples.augmentation(name, *given) for name in names}
    settings = {
        "images": [images.name(number) for number in numbers], "images_sha256": images.digest(numbers),
        "seed": options.seed, "samples": options.samples,
        "methods": names, "corruptions": list(corrupted.names), "severities": list(corrupted.severities),
        "kind": images.kind, "corrupted": _origin(options.corrupted, images), "backbone": network.about(),
    }  # fmt: skip
    return _Work(corrupted, numbers, network, methods, settings)


def _distances(work: _Work, options: argparse.Namespace) -> tuple[NDArray[np.float64], int]:
    """Distances ``[images, methods, corruptions, severities]``, kept as they come, and how many images are new."""
    file, numbers = options.out / DISTANCES, work.numbers
    shape = (len(numbers), len(work.methods), len(work.corrupted.names), len(work.corrupted.severities))
    distances = _resume(file, work.settings, shape)
    missing = [place for place in range(len(numbers)) if np.isnan(distances[place]).any()]
    saved = time.perf_counter()
    print(_about(work, options), file=sys.stderr, flush=True)
    found = measure(
        work.network, work.corrupted, [numbers[place] for place in missing], work.methods, options.samples,
        batch=options.batch, workers=options.workers,
    )  # fmt: skip
    try:
        with Progress(len(numbers), "similarity", "image", len(numbers) - len(missing)) as bar:
            for place, values in zip(missing, found, strict=True):
                distances[place] = values
                bar.update()
                if time.perf_counter() - saved > _SAVE_EVERY:
                    _save(file, work.settings, distances)
                    saved = time.perf_counter()
    finally:
        _save(file, work.settings, distances)
    return distances, len(missing)


def _about(work: _Work, options: argparse.Namespace) -> str:
    """What is measured, for its user; on stderr, as the table on stdout is a document."""
    return facts({
        "data": options.photos or " ".join(options.cifar), "images": f"{len(work.numbers):,}, "
        f"{plural(options.samples, 'sample')} of each by {', '.join(work.methods)}",
        "corrupted": work.settings["corrupted"],
        "network": f"{work.network.classifier.name}, {work.network.layer}",
        "device": f"{_devices.name(work.network.device)}, {plural(options.workers, 'worker')}", "out": options.out,
    })  # fmt: skip


def _cost(work: _Work, options: argparse.Namespace, images: int, seconds: float) -> dict[str, Any]:
    """What measuring ``images`` images took."""
    augmented = sum(draw is not None for draw in work.methods.values())
    parts = len(work.corrupted.names) * len(work.corrupted.severities)
    passes = parts + augmented * options.samples + (CLEAN in work.methods)
    cost = {
        "images": images, "seconds": round(seconds, 2), "network_inputs": passes * images,
        "batch": options.batch, "workers": options.workers,
    }  # fmt: skip
    if work.network.device.type == "cuda":
        cost["peak_memory_bytes"] = torch.cuda.max_memory_allocated(work.network.device)
    return cost


def _origin(folder: Path | None, images: Images) -> str:
    """Description of the source of the corrupted images."""
    if folder is None:
        return "made in memory, not stored as JPEG"
    return f"{folder}{'' if layouts.manifest(folder, images.benchmark) is None else ' (regenerated)'}"


_KIND = Kind(
    {"settings": np.ndarray, "distances": np.ndarray},
    "a file of distances of prime-dali analyze similarity",
    "put back a copy of it, or move it away to measure again",
)


def _resume(path: Path, settings: Mapping[str, Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The distances from an earlier run with these settings, NaN where there are none."""
    if not path.exists():
        return np.full(shape, np.nan)
    content = _KIND.read_arrays(path)
    distances = content["distances"]
    try:
        there = json.loads(str(content["settings"]))
    except (ValueError, RecursionError) as error:
        raise _KIND.error(str(path), f"settings: not JSON: {error}") from error
    if not isinstance(there, dict):
        raise _KIND.error(str(path), f"settings: expected a mapping, got {type(there).__name__}")
    for key, value in json.loads(json.dumps(settings)).items():
        if there.get(key) != value:
            raise ValueError(
                f"{path}: made with other settings: {key}: expected {_short(there.get(key))}, got {_short(value)}; "
                "choose another --out"
            )
    if distances.shape != shape or distances.dtype != np.float64:
        got = f"{distances.dtype} {list(distances.shape)}"
        raise _KIND.error(str(path), f"distances: expected float64 {list(shape)}, got {got}")
    return distances


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _save(path: Path, settings: Mapping[str, Any], distances: NDArray[np.float64]) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, distances=distances, settings=json.dumps(settings))
