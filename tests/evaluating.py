"""Pieces that the tests of evaluation share: a network whose answers are known, and sets for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from prime_dali.evaluation import names
from prime_dali.models import networks

CPU = torch.device("cpu")
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
STATISTICS = PLAIN["mean"], PLAIN["std"]
WNIDS = ("n01440764", "n01443537", "n01484850", "n01491361")  # the first of ImageNet


class Gray(nn.Module):
    """Answers class k to an image whose mean is nearest to 20 k; CPU and GPU, float32 and bfloat16 agree on it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("levels", 20.0 * torch.arange(classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -(255 * x.mean((1, 2, 3))[:, None] - self.levels).abs()


def gray(labels: Any, side: int = 32) -> np.ndarray:
    """Images that :class:`Gray` answers ``labels`` to, uint8 [N, side, side, 3]."""
    values = 20 * np.asarray(labels, np.uint8)
    return np.broadcast_to(values[:, None, None, None], (len(values), side, side, 3)).copy()


def classifier(classes: int = 10, size: int = 32, **options: Any) -> networks.Classifier:
    options = {"resize": None if size == 32 else 256, **options}
    return networks.Classifier(Gray(classes), "gray", classes, size=size, **PLAIN, **options)


def save_cifar_c(folder: Path, corruptions: Any = names.CORRUPTIONS, images: int = 8) -> Path:
    """Severity s has s wrong images of 8, and brightness none."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.tile(np.arange(images) % 10, 5)
    seen = labels.copy()
    for severity in range(1, 6):
        first = (severity - 1) * images
        seen[first : first + severity] += 1
    np.save(folder / "labels.npy", labels.astype(np.uint8))
    for corruption in corruptions:
        np.save(folder / f"{corruption}.npy", gray(labels if corruption == "brightness" else seen))
    return folder


def save_picture(path: Path, value: int, size: tuple[int, int] = (224, 224)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def save_cifar_pictures(folder: Path) -> Path:
    for label in range(10):
        for part in ("train", "test"):
            save_picture(folder / part / f"class_{label}" / "a.png", 20 * label, (32, 32))
    return folder


def save_imagenet_c(folder: Path) -> Path:
    """Two corruptions, fog without severity 4; in each part one image of classes 1 and 3, wrong from severity 3 on."""
    for corruption in ("snow", "fog"):
        for severity in names.SEVERITIES:
            for place in (1, 3):
                seen = place if severity < 3 else 0
                if (corruption, severity) != ("fog", 4):
                    save_picture(folder / corruption / str(severity) / WNIDS[place] / "a.JPEG", 20 * seen)
    return folder
