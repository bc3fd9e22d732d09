"""Augmented samples of an image, as training would make them epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import _arguments
from ..config import preset
from ..evaluation import predicting
from ..module import PRIME
from ..training.augmix import AugMix, run_chains
from .arguments import AUGMENTATIONS

AUGMIX_SEVERITY = {"cifar": 3, "imagenet": 1}
"""Of the paper, by kind of image."""

Draw = Callable[[torch.Tensor, int, range], torch.Tensor]
"""From uint8 ``[3, H, W]``, the image's index and indices of samples to normalized float32 ``[samples, 3, H, W]``.
Each sample depends only on the seed and these indices."""


def augmentation(
    name: str, kind: str, seed: int, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> Draw:
    """One of :data:`AUGMENTATIONS`, as in the paper's training on this kind of image; sample k is that of epoch k.

    Raises:
        ValueError: Unknown name.
    """
    _arguments.one_of("method", name, AUGMENTATIONS)
    severity = AUGMIX_SEVERITY[kind]
    if name == "augmix-no-mix":
        chain = AugMix(severity, width=1, seed=seed)

        def change(images: torch.Tensor, index: torch.Tensor, epoch: torch.Tensor) -> torch.Tensor:
            drawn = chain.draw(index, epoch, (images.shape[2], images.shape[3]))
            levels = run_chains(images, drawn.operation, drawn.magnitude)[0, 0]
            return predicting.normalization((mean, std), levels.device)(levels).contiguous()

    elif name == "augmix":
        change = AugMix(severity, seed=seed, mean=mean, std=std)
    else:
        config = preset(kind).replace(mixing="none" if name == "prime-no-mix" else "paper")
        change = PRIME(config, seed=seed, mean=mean, std=std)

    def draw(image: torch.Tensor, number: int, samples: range) -> torch.Tensor:
        images = image.expand(len(samples), -1, -1, -1)
        index = torch.full((len(samples),), number, device=image.device)
        epoch = torch.arange(samples.start, samples.stop, device=image.device)
        return change(images, index, epoch)

    return draw
