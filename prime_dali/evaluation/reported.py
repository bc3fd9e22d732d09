"""Numbers that the PRIME paper reports (Modas et al., ECCV 2022): reported, not measured by this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .names import CORRUPTIONS, SEVERITIES

SOURCE = "Modas et al., ECCV 2022"

C_BAR = (
    "blue_noise_sample", "brownish_noise", "caustic_refraction", "checkerboard_cutout", "cocentric_sine_waves",
    "inverse_sparkles", "perlin_noise", "plasma_noise", "single_frequency_greyscale", "sparkles",
)  # fmt: skip
"""The ten of ImageNet-C-bar, in the order of the paper's tables."""


@dataclass(frozen=True)
class Network:
    """One network of the paper; everything in percent."""

    dataset: str
    method: str
    network: str
    clean: float
    mean: float
    """Corruption accuracy."""
    mce: float
    normalization: str
    """Of ``mce``."""
    corruptions: Mapping[str, float]
    severities: Mapping[int, float]
    c_bar: Mapping[str, float] = field(default_factory=dict)
    """ImageNet-C-bar, by corruption."""
    c_bar_mean: float | None = None
    imagenet_r: float | None = None
    stylized: float | None = None
    note: str = ""


def of(dataset: str | None) -> list[Network]:
    """All networks on ``"CIFAR-10"``, ``"CIFAR-100"``, ``"ImageNet-100"`` or ``"ImageNet"``; none on any other."""
    return [row for row in _ROWS if row.dataset == dataset]


# Method, clean, corruption accuracy, mCE (table 1, "results-main").
# CIFAR-10, Standard: the paper prints 24.0, which its own accuracy contradicts.
# ImageNet, Standard: 38.1 there, 39.2 in the tables per corruption and per severity; the mCE belongs to the latter.
_MAIN = """
CIFAR-10      Standard    95.0  74.0   26.0
CIFAR-10      AugMix      95.2  88.6   11.4
CIFAR-10      PRIME       94.2  89.8   10.2
CIFAR-100     Standard    76.7  51.9   48.1
CIFAR-100     AugMix      78.2  64.9   35.1
CIFAR-100     PRIME       78.4  68.2   31.8
ImageNet-100  Standard    88.0  49.7  100.0
ImageNet-100  AugMix      88.7  60.7   79.1
ImageNet-100  DA          86.3  67.7   68.1
ImageNet-100  PRIME       85.9  71.6   61.0
ImageNet-100  DA+AugMix   86.5  73.1   57.3
ImageNet-100  DA+PRIME    84.9  74.9   54.6
ImageNet      Standard    76.1  39.2   76.7
ImageNet      AugMix      77.5  48.3   65.3
ImageNet      DA          76.7  52.6   60.4
ImageNet      PRIME       77.0  55.0   57.5
ImageNet      DA+AugMix   75.8  58.1   53.6
ImageNet      DA+PRIME    75.5  59.9   51.3
"""

# Accuracy per corruption, in the order of names.CORRUPTIONS (tables 6 and 7, "results-per-corruption-...").
_CORRUPTIONS = """
CIFAR-10      Standard    45.1 58.7 54.9 83.2 53.3 76.9 79.1 83.1 79.3 89.0 93.6 76.3 83.9 75.1 77.9
CIFAR-10      AugMix      79.3 84.8 85.8 94.1 78.9 92.4 93.4 89.7 89.0 91.9 94.3 90.5 90.5 87.6 87.5
CIFAR-10      PRIME       86.9 88.1 88.6 92.6 85.3 90.8 92.2 89.3 90.5 89.8 93.7 92.4 90.1 88.1 88.8
CIFAR-100     Standard    25.3 33.7 26.6 60.8 47.1 55.5 57.6 60.8 56.2 62.5 72.2 53.2 63.4 50.1 52.7
CIFAR-100     AugMix      46.7 55.1 60.6 76.2 47.3 72.6 74.3 67.4 64.4 69.9 75.5 67.4 69.6 64.9 61.8
CIFAR-100     PRIME       59.0 62.1 68.1 74.0 58.3 70.5 72.3 68.9 68.5 69.8 76.8 74.4 70.1 65.5 64.4
ImageNet-100  Standard    30.9 29.0 22.0 45.6 44.6 50.4 53.9 43.8 46.2 50.5 78.6 42.9 68.8 68.0 70.6
ImageNet-100  AugMix      45.2 45.8 43.4 58.7 53.3 69.5 71.0 49.1 52.7 60.2 80.7 59.6 73.3 73.6 74.7
ImageNet-100  DA          76.3 75.6 75.7 64.2 61.7 61.3 62.7 54.4 62.8 55.7 81.6 49.7 69.9 83.3 80.6
ImageNet-100  PRIME       80.6 80.0 80.1 57.2 66.3 66.2 68.2 61.5 68.2 57.2 81.2 68.3 73.7 82.9 81.9
ImageNet-100  DA+AugMix   75.2 75.8 74.9 74.1 68.5 76.0 72.1 59.9 66.8 61.4 82.1 72.4 73.1 83.8 81.1
ImageNet-100  DA+PRIME    81.1 80.9 81.2 70.5 74.2 72.0 71.5 66.3 73.6 56.6 81.9 72.8 74.8 83.4 82.3
ImageNet      Standard    29.3 27.0 23.8 38.8 26.8 38.7 36.2 32.5 38.1 45.4 68.0 39.0 45.3 44.8 53.4
ImageNet      AugMix      40.6 41.1 37.7 47.7 34.9 53.5 49.0 39.9 43.8 47.1 69.5 51.1 52.0 57.0 60.3
ImageNet      DA          56.6 54.9 56.3 51.7 40.1 48.7 39.5 44.2 50.3 52.1 71.1 48.3 50.9 65.5 59.3
ImageNet      PRIME       61.9 60.6 60.9 47.6 39.0 48.4 46.0 47.4 50.8 54.1 71.7 58.2 56.3 59.5 62.2
ImageNet      DA+AugMix   59.4 59.6 59.1 59.0 46.8 61.1 51.5 49.4 53.3 55.9 70.8 58.7 54.3 68.8 63.3
ImageNet      DA+PRIME    67.4 67.2 66.8 56.2 47.5 54.3 47.3 52.8 56.4 56.3 71.7 62.3 57.3 70.3 65.1
"""

# Accuracy per severity (tables 8 and 9, "results-per-severity-...").
_SEVERITIES = """
CIFAR-10      Standard    87.4 81.7 75.7 68.3 56.7
CIFAR-10      AugMix      93.1 91.8 89.9 86.7 81.7
CIFAR-10      PRIME       92.8 91.6 90.4 88.6 85.6
CIFAR-100     Standard    66.7 59.4 52.8 45.0 35.4
CIFAR-100     AugMix      73.3 70.0 66.6 61.3 53.4
CIFAR-100     PRIME       74.0 71.6 69.2 65.6 60.5
ImageNet-100  Standard    73.5 61.0 49.8 37.2 27.0
ImageNet-100  AugMix      80.4 71.8 63.8 50.3 37.2
ImageNet-100  DA          81.2 75.4 69.9 61.2 50.8
ImageNet-100  PRIME       81.7 77.5 73.4 66.9 58.4
ImageNet-100  DA+AugMix   82.7 78.0 75.5 69.6 59.9
ImageNet-100  DA+PRIME    82.0 78.7 76.4 71.8 65.5
ImageNet      Standard    60.6 49.8 39.8 27.7 18.0
ImageNet      AugMix      66.7 58.3 51.1 39.1 26.5
ImageNet      DA          69.0 61.7 55.4 44.9 32.1
ImageNet      PRIME       68.9 63.1 56.9 48.3 37.6
ImageNet      DA+AugMix   70.3 64.5 60.5 53.0 42.2
ImageNet      DA+PRIME    70.8 66.3 61.6 55.1 45.9
"""

# Mean over C-bar, its ten corruptions in the order of C_BAR, ImageNet-R, Stylized ImageNet (tables 10 and 11).
_OTHER = """
ImageNet-100  Standard    55.1  47.6 71.3 70.1 66.4 29.5 45.7 72.1 34.6 34.9 78.4  -    18.8
ImageNet-100  AugMix      61.0  63.0 73.2 75.3 69.4 39.9 44.9 77.4 42.8 44.7 79.8  -    28.0
ImageNet-100  DA          63.8  77.1 76.6 72.6 60.9 42.9 44.3 78.0 43.4 64.5 77.8  -    29.9
ImageNet-100  PRIME       65.0  74.9 74.3 73.2 59.2 53.4 47.5 76.8 48.6 66.9 75.5  -    33.1
ImageNet      Standard    40.0  36.2 57.8 54.1 46.1 14.4 20.9 61.6 24.3 19.0 65.2  36.2  7.4
ImageNet      AugMix      46.5  59.5 56.5 59.1 51.7 25.6 21.6 65.3 23.1 36.2 66.4  41.0 11.2
ImageNet      DA          48.3  60.1 61.1 57.7 46.8 25.4 24.4 68.4 26.5 45.6 66.8  42.2 14.2
ImageNet      PRIME       49.6  59.5 61.4 60.1 48.1 26.9 28.3 66.5 36.4 41.9 66.5  42.2 14.0
"""

PRIME_ALONE = {"CIFAR-10": {"corrupted": 89.3}, "ImageNet-100": {"clean": 87.1, "corrupted": 68.8}}
"""PRIME without the Jensen-Shannon loss, by data set: what is reported of clean and corruption accuracy (CIFAR-10:
section "Sample complexity", which has no clean accuracy of its own; ImageNet-100: table 3, "orthogonality")."""

ADAPTED = {
    "Standard": {"none": 49.7, "single": 53.8, "partial": 62.0, "full": 63.9},
    "AugMix": {"none": 60.7, "single": 65.5, "partial": 71.3, "full": 73.0},
    "DA": {"none": 67.7, "single": 70.2, "partial": 72.7, "full": 74.6},
    "PRIME": {"none": 71.6, "single": 73.5, "partial": 75.3, "full": 76.6},
}
"""Corruption accuracy on ImageNet-100-C with batch-norm adaptation, by method and adaptation (table 2, "bn-adapt")."""

PERTURBATION_SCORES = {
    "ResNet-50": (58.0, 78.4), "ResNet-50, low-pass filter pooling": (51.2, 71.9), "ResNet-50, AugMix": (37.4, None),
}  # fmt: skip
"""mFR and mT5D on ImageNet-P, normalized by AlexNet; None: not reported."""

SOURCE_OF_PERTURBATION_SCORES = "ImageNet-P leaderboard of Hendrycks and Dietterich"

_NETWORKS = {"CIFAR-10": "ResNet-18", "CIFAR-100": "ResNet-18", "ImageNet-100": "ResNet-18", "ImageNet": "ResNet-50"}
_NORMALIZATIONS = {"CIFAR-10": "none", "CIFAR-100": "none", "ImageNet-100": "standard", "ImageNet": "alexnet"}
_NOTES = {
    ("CIFAR-10", "Standard"): "mCE printed as 24.0, which the corruption accuracy of 74.0 contradicts",
    ("ImageNet", "Standard"): "corruption accuracy 38.1 in the main table, 39.2 in the others",
}


def _table(text: str) -> dict[tuple[str, str], list[Any]]:
    rows = (line.split() for line in text.strip().splitlines())
    return {(row[0], row[1]): [None if cell == "-" else float(cell) for cell in row[2:]] for row in rows}


def _rows() -> list[Network]:
    corruptions, severities, others = _table(_CORRUPTIONS), _table(_SEVERITIES), _table(_OTHER)
    out = []
    for key, (clean, mean, mce) in _table(_MAIN).items():
        more: dict[str, Any] = {}
        if key in others:
            c_bar_mean, *c_bar, imagenet_r, stylized = others[key]
            more = {"c_bar": dict(zip(C_BAR, c_bar, strict=True)), "c_bar_mean": c_bar_mean, "imagenet_r": imagenet_r,
                    "stylized": stylized}  # fmt: skip
        out.append(Network(
            *key, _NETWORKS[key[0]], clean, mean, mce, _NORMALIZATIONS[key[0]],
            dict(zip(CORRUPTIONS, corruptions[key], strict=True)), dict(zip(SEVERITIES, severities[key], strict=True)),
            note=_NOTES.get(key, ""), **more,
        ))  # fmt: skip
    return out


_ROWS = _rows()
