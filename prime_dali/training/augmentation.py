"""What a run does to the crops of its images: PRIME, AugMix, or only normalization."""

from __future__ import annotations

from typing import Any

import torch

from ..module import PRIME
from .augmix import AugMix
from .config import TrainConfig


class Plain(torch.nn.Module):
    """Normalizes and flips; replaces PRIME in standard training."""

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, mean: Any, std: Any, out_dtype: torch.dtype) -> None:
        super().__init__()
        self.out_dtype = out_dtype
        self.register_buffer("scale", 1 / (255 * torch.tensor(std))[:, None, None])
        self.register_buffer("shift", -(torch.tensor(mean) / torch.tensor(std))[:, None, None])

    def forward(
        self, images: torch.Tensor, index: torch.Tensor, epoch: Any = None, *, flip: torch.Tensor | None = None
    ) -> torch.Tensor:
        """uint8 ``[N, 3, H, W]`` to normalized images, those with ``flip`` mirrored."""
        if flip is not None:
            images = mirrored(images, flip)
        return (images * self.scale + self.shift).to(self.out_dtype)


def mirrored(images: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
    """Images, those with ``flip``, bool ``[N]``, mirrored left to right."""
    return torch.where(flip[:, None, None, None], images.flip(-1), images)


def augmentation(config: TrainConfig, out_dtype: torch.dtype) -> torch.nn.Module:
    """What a run does to cropped images: PRIME, AugMix, or only normalization."""
    mean, std = config.statistics
    common: dict[str, Any] = {"mean": mean, "std": std, "out_dtype": out_dtype}
    if config.method == "prime":
        return PRIME(config.prime(0), seed=config.seed, views=config.views, **common)
    if config.method == "augmix":
        return AugMix(config.severity, width=config.width, seed=config.seed, views=config.views, **common)
    return Plain(**common)


def follow_alpha(augment: Any, config: TrainConfig, epoch: int) -> None:
    """Give PRIME the alpha of an epoch, if that changes over the run."""
    if config.alpha_start != 1 and augment.config.alpha != config.alpha_at(epoch):
        augment.config = config.prime(epoch)


def compiled(augment: torch.nn.Module, device: torch.device) -> Any:
    """Compiled; on a GPU as a CUDA graph, whose output is copied because its next call would overwrite it."""
    if device.type != "cuda":
        return torch.compile(augment, dynamic=False)
    graph = torch.compile(augment, dynamic=False, mode="reduce-overhead")
    return lambda *images, **flip: graph(*images, **flip).clone()
