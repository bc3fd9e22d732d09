"""Counts the validation images that a network classifies correctly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import torch
from torch import nn

from .ranks import Ranks

BETWEEN = 8  # batches; processes wait for each other, and for their GPUs, to agree on whether they go on


def count_correct(
    network: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    ranks: Ranks,
    dtype: torch.dtype,
    stopped: Callable[[], bool],
    progress: Callable[[int], None],
) -> tuple[int, int] | None:
    """The numbers of this process's images that are classified correctly and of all of them.

    Args:
        network: Is in evaluation mode afterwards.
        batches: This process's, of which others may have more or fewer: normalized images and labels, int64 ``[N]``.
        ranks: All processes.
        dtype: bfloat16 for autocast.
        stopped: Asked before each batch; with several processes before every eighth one.
        progress: Called before each batch with the number of images so far.

    Returns:
        None if ``stopped`` said so in any of the processes, which learn it before the same batch and all end there.
    """
    right, count = torch.zeros((), dtype=torch.int64, device=ranks.device), 0
    network.eval()
    left = iter(batches)
    with torch.inference_mode():
        for number in itertools.count():
            batch = next(left, None)
            if ranks.world == 1 or number % BETWEEN == 0:
                some_stopped, unfinished = ranks.sum(stopped(), batch is not None)
                if not unfinished:
                    break
                if some_stopped:
                    return None
            if batch is None:  # others have more
                continue
            progress(count)
            images, labels = batch
            with torch.autocast(ranks.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
                right += (network(images).argmax(1) == labels).sum()
            count += len(labels)
    return int(right), count
