"""A batch of NumPy images on either device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import arrays
from .config import PrimeConfig
from .plan import Plan


def augment(
    images: NDArray[Any], index: NDArray[np.int64], epoch: Any, config: PrimeConfig, seed: int, device: str,
    threads: int | None = None,
) -> tuple[NDArray[Any], Plan]:  # fmt: skip
    """One view of each image, and what was drawn.

    Args:
        images: ``[N, H, W, 3]``, a dtype of :func:`.arrays.apply`.
        index, epoch, config, seed: As for :func:`.arrays.sample`, in NumPy.
        device: ``"cpu"``, or ``"cuda"``: through torch.
        threads: CPU threads. None: all that this process may use.
    """
    size = images.shape[1], images.shape[2]
    if device == "cpu":
        plan = arrays.sample(config, index, size=size, seed=seed, epoch=epoch, view=0)
        return arrays.apply(images, plan, layout="NHWC", threads=threads), plan
    import torch

    from . import torch_ops

    if isinstance(epoch, np.ndarray):
        epoch = torch.tensor(epoch, device=device)
    plan = torch_ops.sample(config, torch.tensor(index, device=device), size=size, seed=seed, epoch=epoch, view=0)
    out = torch_ops.apply(torch.tensor(images, device=device).permute(0, 3, 1, 2), plan, channels_last=True)
    return out.permute(0, 2, 3, 1).cpu().numpy(), plan
