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
        images: ``[N, H, W, C]``, or clips ``[N, T, H, W, C]``; a dtype of :func:`.arrays.apply`.
        index, epoch, config, seed: As for :func:`.arrays.sample`, in NumPy.
        device: ``"cpu"``, or ``"cuda"`` or ``"cuda:N"``: through torch.
        threads: CPU threads. None: all that this process may use.
    """
    *_, height, width, channels = images.shape
    drawn: dict[str, Any] = {"size": (height, width), "seed": seed, "view": 0, "channels": channels}
    if device == "cpu":
        plan = arrays.sample(config, index, epoch=epoch, **drawn)
        layout = "NHWC" if images.ndim == 4 else "NTHWC"
        return arrays.apply(images, plan, layout=layout, threads=threads), plan
    import torch

    from . import torch_ops

    if isinstance(epoch, np.ndarray):
        epoch = torch.tensor(epoch, device=device)
    plan = torch_ops.sample(config, torch.tensor(index, device=device), epoch=epoch, **drawn)
    out = torch_ops.apply(torch.tensor(images, device=device).movedim(-1, -3), plan, channels_last=True)
    return out.movedim(-3, -1).cpu().numpy(), plan
