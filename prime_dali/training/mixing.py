"""Mixup and CutMix of a run's batches, by torchvision, with numbers that depend only on seed, step and process."""

from __future__ import annotations

from typing import Any

import torch

from ..data.sampling import step_seed
from .config import TrainConfig


class Mixing:
    """Mixes each image, and its label, with the one before it in this process's part of the batch.

    Mixup (Zhang et al., ICLR 2018) takes a weighted mean of both, CutMix (Yun et al., ICCV 2019) pastes a box of the
    other. One weight or box is drawn per step and process; with both, one of them. All views of an image are mixed
    with the same partner and weight. The random numbers are those of torch's generator of the CPU, seeded by seed, step
    and process for each batch and then put back: a run that resumes mixes as one that was not interrupted.

    Args:
        config: The settings ``mixup``, ``cutmix`` and ``mix_order``.
        classes: Number of classes.
        rank: Number of this process.
    """

    def __init__(self, config: TrainConfig, classes: int, rank: int) -> None:
        self._config, self._rank = config, rank
        self._mix: Any = None
        if config.mixes:
            from torchvision.transforms import v2

            kinds = (v2.MixUp, config.mixup), (v2.CutMix, config.cutmix)
            options = {"num_classes": classes, "labels_getter": lambda inputs: inputs[-1]}
            self._mix = v2.RandomChoice([kind(alpha=alpha, **options) for kind, alpha in kinds if alpha])

    @property
    def first(self) -> bool:
        """Whether images are mixed before they are augmented."""
        return self._mix is not None and self._config.mix_order == "before"

    def before(self, images: torch.Tensor, labels: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A step's images before augmentation.

        Args:
            images: uint8 ``[N, 3, H, W]``.
            labels: int64 ``[N]``.

        Returns:
            Mixed images, float32 in [0, 1], and soft labels, float32 ``[N, classes]``; or what was given, if images are
            not mixed before augmentation.
        """
        return self._mixed(images.float() / 255, labels, step, 1) if self.first else (images, labels)

    def after(self, images: torch.Tensor, labels: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A step's images after augmentation: the same for normalized views, floating ``[views * N, 3, H, W]``."""
        if self._mix is None or self.first:
            return images, labels
        return self._mixed(images, labels, step, self._config.views)

    def _mixed(
        self, images: torch.Tensor, labels: torch.Tensor, step: int, views: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        from torchvision import tv_tensors  # of plain tensors torchvision would mix only the first

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(step_seed("mixing", self._config.seed, step, self._rank))
            *mixed, soft = self._mix(*map(tv_tensors.Image, images.chunk(views)), labels)
        plain = [view.as_subclass(torch.Tensor) for view in mixed]
        joined = torch.cat(plain) if views > 1 else plain[0]
        return joined.contiguous(memory_format=torch.channels_last), soft
