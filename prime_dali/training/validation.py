"""Counts the validation images that a network classifies correctly."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn


def count_correct(
    network: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    device: torch.device,
    dtype: torch.dtype,
    stopped: Callable[[], bool],
) -> tuple[int, int] | None:
    """The numbers of images that are classified correctly and of all images.

    Args:
        network: Is in evaluation mode afterwards.
        batches: Normalized images and labels, int64 ``[N]``.
        device: That of the batches.
        dtype: bfloat16 for autocast.
        stopped: Asked before each batch.

    Returns:
        None if ``stopped`` said so.
    """
    right, count = torch.zeros((), dtype=torch.int64, device=device), 0
    network.eval()
    with torch.inference_mode():
        for images, labels in batches:
            if stopped():
                return None
            with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
                right += (network(images).argmax(1) == labels).sum()
            count += len(labels)
    return int(right), count
