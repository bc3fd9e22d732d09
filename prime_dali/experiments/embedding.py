"""``prime-dali analyze embedding``: plot augmented images in a network's feature space.

The command draws three images of different classes and 100 samples of each by each method, computes their features in a
trained network, and runs one principal component analysis per method over all its samples. The plot shows the first two
components (Modas et al., ECCV 2022, appendix "Embedding space visualization", there with a ResNet-50 trained on
ImageNet). "corrupted" shows the common corruptions of the same images instead of samples. The plot also states the
components' share of the variance, and the total variance (the trace of the samples' covariance), to compare methods.

Where the paper does not say, the choices are: features are the input of the final classifier layer (``--layer`` selects
another); an image is the center crop of ImageNet-C; all panels have the same scale.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _devices, _plots, _tables
from .._files import make_output_folder, shown, write_texts
from .._progress import over
from .._wording import facts, plural
from ..evaluation.corruptions import SIDES
from . import features, samples
from .arguments import CORRUPTED, EMBEDDING, chosen_methods
from .images import Corruptions, Images, Photos, images_of, pairs

_CLASSES = 3


@dataclass(frozen=True)
class Projection:
    """The first two principal components of some vectors."""

    mean: NDArray[np.float64]
    """``[D]``"""
    components: NDArray[np.float64]
    """``[2, D]``, of length 1, the entry of largest size positive."""
    shares: tuple[float, float]
    """Of the variance."""
    total_variance: float
    """Trace of the covariance, over n - 1."""

    def __call__(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates ``[n, 2]`` of vectors ``[n, D]``."""
        return (vectors - self.mean) @ self.components.T


def principal(vectors: NDArray[np.float64]) -> Projection:
    """Principal component analysis of ``[n, D]``, n and D at least 2.

    Raises:
        ValueError: Fewer, or all vectors are the same.
    """
    if vectors.ndim != 2 or min(vectors.shape) < 2:
        raise ValueError(f"vectors: expected [n, D] of at least 2 x 2, got {list(vectors.shape)}")
    mean = vectors.mean(0)
    _, sizes, components = np.linalg.svd(vectors - mean, full_matrices=False)
    if not sizes[0] > 0:
        raise ValueError("vectors: expected some that differ, got all the same")
    components = components[:2]
    largest = np.take_along_axis(components, np.abs(components).argmax(1)[:, None], 1)
    variances = sizes**2 / (len(vectors) - 1)
    shares = variances[:2] / variances.sum()
    return Projection(mean, components * np.sign(largest), (float(shares[0]), float(shares[1])), float(variances.sum()))


def run(options: argparse.Namespace) -> None:
    """Make the plot that the options describe, and write it and its coordinates.

    Raises:
        TypeError, ValueError, FileNotFoundError, ImportError, RuntimeError: A bad option, image, network or folder; the
            message names it.
    """
    names = chosen_methods(options, ("samples", "batch"), EMBEDDING)
    images, numbers = _images(options)
    corrupted = Corruptions.of(images, options.corruptions, options.severities, options.seed)
    network = features.load(options, SIDES[images.kind])
    make_output_folder(options.out)
    seen = [{"image": shown(images.name(number)), "class": shown(images.label(number))} for number in numbers]
    print(_about(options, network, seen, names), file=sys.stderr, flush=True)

    clean = [torch.tensor(images.read(number)).permute(2, 0, 1).to(network.device) for number in numbers]
    originals = network.batched(torch.stack(clean), options.batch)
    vectors = {}  # by method, of each image [samples, width]
    for name in over(names, "embedding", "method"):
        if name == CORRUPTED:
            both = pairs(corrupted, numbers, options.workers)
            vectors[name] = [network.batched(changed, options.batch) for _, changed in both]
        else:
            draw = samples.augmentation(name, images.kind, options.seed, *network.classifier.statistics)
            vectors[name] = [
                network.augmented(draw, image, number, options.samples, options.batch)
                for image, number in zip(clean, numbers, strict=True)
            ]
    content = {name: _projected(originals, groups) for name, groups in vectors.items()}
    results = {
        "format": "prime-dali-embedding", "version": 1, **features.environment(network.device),
        "images": seen, "seed": options.seed, "samples": options.samples, "corruptions": list(corrupted.names),
        "severities": list(corrupted.severities), "backbone": network.about(), "methods": content,
    }  # fmt: skip
    for path in write(results, options.out):
        print(f"wrote {path}")
    for name, found in content.items():
        print(f"{EMBEDDING[name]}: total variance {found['total_variance']:.4g}, shares {_percent(found['shares'])}")


def _about(
    options: argparse.Namespace, network: features.Features, seen: Sequence[Mapping[str, str]], names: Sequence[str]
) -> str:
    """What is made, for its user."""
    return facts({
        "data": " ".join(map(str, options.cifar or options.photos)),
        "images": f"{', '.join(image['image'] for image in seen)}; {plural(options.samples, 'sample')} of each by "
        f"{', '.join(names)}",
        "network": f"{network.classifier.name}, {network.layer}",
        "device": f"{_devices.name(network.device)}, {plural(options.workers, 'worker')}", "out": options.out,
    })  # fmt: skip


def _projected(originals: torch.Tensor, groups: Sequence[torch.Tensor]) -> dict[str, Any]:
    """A method's entry of the results: features of the images, ``[images, D]``, and of samples of each, ``[n, D]``."""
    clean, *own = (vectors.double().cpu().numpy() for vectors in (originals, *groups))
    projection = principal(np.concatenate(own))
    return {
        "shares": projection.shares, "total_variance": projection.total_variance,
        "clean": projection(clean).tolist(), "samples": [projection(group).tolist() for group in own],
    }  # fmt: skip


def _images(options: argparse.Namespace) -> tuple[Images, list[int]]:
    """The images that the options name, and the indices of those to show."""
    photos: Sequence[Path] = options.photos
    if options.cifar is None and photos and not (len(photos) == 1 and photos[0].is_dir()):
        if len(photos) > 10:
            raise ValueError(f"photos: expected at most 10, got {len(photos)}")
        for path in photos:
            if not path.is_file():
                raise FileNotFoundError(f"{path}: expected a photograph, or a single folder, got no such file")
        return Photos(photos, None), list(range(len(photos)))
    if len(photos) > 1:
        raise ValueError("photos: expected none with --cifar, got some")
    images = images_of(photos[0] if photos else None, options.cifar)
    classes: dict[str, list[int]] = {}
    for number in range(len(images)):
        classes.setdefault(images.label(number), []).append(number)
    classes.pop("", None)
    if len(classes) < _CLASSES:
        raise ValueError(f"{photos[0]}: expected at least {_CLASSES} class folders, got {len(classes)}; or name files")
    rng = np.random.default_rng(options.seed)
    chosen = sorted(rng.choice(sorted(classes), _CLASSES, replace=False).tolist())
    return images, [int(rng.choice(classes[name])) for name in chosen]


def write(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``embedding.json``, ``embedding.csv`` and ``embedding.png``; their paths."""
    texts = {
        "embedding.json": json.dumps(results, indent=1) + "\n",
        "embedding.csv": _tables.csv(_csv_rows(results)),
    }
    paths = write_texts(folder, texts)
    _draw(results, folder / "embedding.png")
    return [*paths, folder / "embedding.png"]


def _csv_rows(results: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    yield ["method", "image", "class", "sample", "component_1", "component_2"]
    for name, content in results["methods"].items():
        for image, clean, points in zip(results["images"], content["clean"], content["samples"], strict=True):
            for label, point in [("clean", clean), *enumerate(points)]:
                yield [name, image["image"], image["class"], label, *point]


def _draw(results: Mapping[str, Any], path: Path) -> None:
    methods, network = results["methods"], results["backbone"]
    with _plots.plot(path, 4.6, max(_plots.WIDTH, 3.5 * len(methods))) as figure:
        panels = figure.subplots(1, len(methods), squeeze=False, sharex=True, sharey=True)[0]
        for axes, (name, content) in zip(panels, methods.items(), strict=True):
            for number, (clean, points) in enumerate(zip(content["clean"], content["samples"], strict=True)):
                color = _plots.series_style(number)["color"]
                axes.scatter(*np.transpose(points), s=9, alpha=0.6, color=color)
                axes.scatter(*clean, s=130, marker="*", color=color, edgecolor="black", zorder=3)
            axes.set_title(f"{EMBEDDING[name]}\ntotal variance {content['total_variance']:.3g}")
            axes.set_xlabel(f"component 1 ({100 * content['shares'][0]:.0f} % of the variance)")
            axes.set_ylabel(f"component 2 ({100 * content['shares'][1]:.0f} %)")
            axes.set_aspect("equal", adjustable="box")
        for number, image in enumerate(results["images"]):
            label = image["class"] or Path(image["image"]).stem
            panels[0].scatter([], [], color=_plots.series_style(number)["color"], label=label)
        panels[0].scatter([], [], marker="*", s=130, color="white", edgecolor="black", label="clean image")
        _plots.legend(figure, panels[0], 4)
        figure.suptitle(f"{network['name']}, {network['layer']}, {network['width']} wide")


def _percent(shares: Sequence[float]) -> str:
    return " and ".join(f"{100 * share:.0f} %" for share in shares)
