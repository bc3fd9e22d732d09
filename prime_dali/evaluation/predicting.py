"""Running a network over batches of images in evaluation mode, and counting what it gets right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from .. import _arguments
from ..models.creation import check_logits
from . import calibration
from .image_sets import ImageSet
from .scores import Count

Statistics = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation per channel, on the [0, 1] scale."""


def precision(device: torch.device) -> str:
    """Of the networks that are evaluated on a device: bfloat16, by autocast, on a GPU, and float32 on the CPU."""
    return "bfloat16" if device.type == "cuda" else "float32"


@contextlib.contextmanager
def evaluating(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluation mode, without gradients, in the :func:`precision` of the device; restores every module's mode."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=precision(device) == "bfloat16"):
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def normalization(statistics: Statistics, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function from uint8 images ``[N, 3, H, W]`` to the network's input, ``(x / 255 - mean) / std`` in float32.

    Raises:
        TypeError, ValueError: Mean and std are not three numbers each, on the [0, 1] scale.
    """
    channels = _arguments.channels(*statistics)
    mean, std = (torch.tensor(values, device=device).reshape(1, 3, 1, 1) for values in channels)

    def normalized(pixels: torch.Tensor) -> torch.Tensor:
        floats = pixels.to(torch.float32, memory_format=torch.channels_last)
        return floats.div_(255).sub_(mean).div_(std)

    return normalized


def logits(network: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """The network's answers to normalized images, float32 ``[N, classes]``; ValueError unless it returns logits."""
    return check_logits(network(images), len(images)).float()


def check_finite(finite: torch.Tensor, name: str) -> None:
    """ValueError unless all logits of the set ``name`` are finite."""
    if not finite:
        raise ValueError(f"{name}: expected finite logits, got others; did the training of these weights diverge?")


def tally(
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]], images: ImageSet, device: torch.device, name: str
) -> Count:
    """Count the rows of logits, float32, that agree with their labels, and measure the calibration.

    In a ``masked`` set both the prediction and its probability are among the classes of the set.

    Raises:
        ValueError: Labels or logits that no network should give.
    """
    present = torch.from_numpy(np.unique(images.labels)).to(device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    confidences, rights = [], []
    for logits, labels in batches:
        if images.labels.min() < 0 or images.labels.max() >= logits.shape[1]:
            raise ValueError(
                f"{name}: expected labels 0 to {logits.shape[1] - 1}, as many as logits, "
                f"got {images.labels.min()} to {images.labels.max()}"
            )
        finite &= logits.isfinite().all()
        chosen = logits[:, present] if images.masked else logits
        predicted = chosen.argmax(1)
        confidences.append(chosen.softmax(1).amax(1))
        rights.append((present[predicted] if images.masked else predicted) == labels)
    check_finite(finite, name)
    right = torch.cat(rights).cpu().numpy()
    found = calibration.calibration(torch.cat(confidences).cpu().numpy(), right)
    return Count(int(right.sum()), len(images.labels), found, images.fingerprint())
