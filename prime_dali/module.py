"""PRIME as a ``torch.nn.Module``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import _arguments, _counting, torch_ops
from ._epochs import Epochs
from .config import PrimeConfig, as_config, takes_config


class PRIME(Epochs):
    """Augments a batch of images with PRIME, and normalizes it.

    Args:
        config: The distributions, or the name of a preset.
        seed: The run's seed; every random number depends only on it and on the image's index, epoch and view.
        views: 1: one augmented view per image. 3: the clean image and two augmented views, for the Jensen-Shannon loss;
            2: the clean image and one.
        mean, std: One number per channel of the images, on the [0, 1] scale: the output is ``(y - mean) / std``. Both
            or neither.
        out_dtype: dtype of the output, or its name; None: that of the images, or float32 if integers are normalized.

    The buffer ``counter`` numbers images without an index: 0, 1, 2, ... over the module's lifetime, divided among the
    ranks of ``torch.distributed`` if it is initialized. The epoch is set by :meth:`set_epoch`, or passed to
    :meth:`forward`. Counter and epoch are part of ``state_dict``, so a run resumes with bit-identical draws.

    Counting is correct if each call is a new batch, also with gradient accumulation, threads, ``torch.compile`` and
    warm-ups. If a copy of the counter would count, or a call is not a new batch, forward raises and asks for ``index``:
    in workers of a ``DataLoader`` and other processes forked since, in ``DataParallel``, when activation checkpointing
    computes a batch again, and under ``torch.vmap`` and ``torch.func.functionalize``.

    ``train()`` and ``eval()`` change nothing, as for torchvision's transforms: the module augments, and counts, in
    evaluation mode too. Call it only in the training step, not as a layer of the network.

    Raises:
        TypeError, ValueError: An argument is invalid; the message names it.

    Examples:
        >>> augment = prime_dali.PRIME("cifar", seed=1, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
        >>> images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> out = augment(images, index=torch.arange(4), epoch=0)
        >>> out.shape, out.dtype
        (torch.Size([4, 3, 32, 32]), torch.float32)
        >>> torch.equal(out[2:], augment(images[2:], index=torch.arange(2, 4), epoch=0))
        True
        >>> torch.equal(out[3], augment(images[3], index=3, epoch=0))  # as in Dataset.__getitem__
        True
    """

    counter: torch.Tensor

    @takes_config
    def __init__(
        self,
        config: PrimeConfig | str = "imagenet",
        *,
        seed: int = 0,
        views: int = 1,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        out_dtype: torch.dtype | str | None = None,
    ) -> None:
        super().__init__()
        self.config = as_config(config)
        self.seed = _arguments.seed(seed)
        self.views = _arguments.training_views(views)
        self.mean, self.std = _arguments.channels(mean, std, None)
        self.out_dtype = None if out_dtype is None else torch_ops.image_dtype("out_dtype", out_dtype)
        self.register_buffer("counter", torch.zeros((), dtype=torch.int64))
        self._made_after = _counting.forks()

    def forward(
        self,
        images: torch.Tensor,
        index: torch.Tensor | int | None = None,
        epoch: Any = None,
        *,
        flip: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Augment a batch.

        Args:
            images: ``[N, C, H, W]`` or ``[C, H, W]``, 1 to 16 channels; or clips ``[N, T, C, H, W]``, with one draw for
                all frames of a clip. dtypes and ranges as for :func:`prime_dali.apply`.
            index: int64 ``[N]``, each image's (or clip's) index in the data set, on the images' device. With it, the
                result depends only on seed, index and epoch (or on the whole batch, if it shares draws:
                ``PrimeConfig.draws``). Of a single image also an int or int64 ``[]``. None: the module counts, if
                counting is correct.
            epoch: An int, or int64 ``[]`` or ``[N]``. None: that of :meth:`set_epoch`, initially 0. Name it in one of
                the two ways with ``index``: otherwise an image is augmented in the same way in every epoch. On the CPU
                a warning says so.
            flip: bool ``[N]``: True mirrors the outputs of this image left to right.

        Returns:
            ``[views * N, C, H, W]``, or ``[views * N, T, C, H, W]`` for clips: with ``views=3`` all clean images, then
            all first augmented views, then all second ones. A single image is ``[C, H, W]`` again with one view, and
            ``[views, C, H, W]`` with more. dtype as for ``out_dtype``, in the range of :func:`prime_dali.apply`, unless
            normalized; on the images' device.

        Raises:
            TypeError, ValueError: As for :func:`prime_dali.apply`; or a call that cannot be counted has no index.
        """
        batch, size = torch_ops.as_batch(images)
        single = images.dim() == 3
        if index is None:
            if getattr(self, "_is_replica", False):  # set by torch.nn.parallel.replicate
                _counting.ask_for_index(
                    "in DataParallel, whose replicas would all count from the same number; give index="
                )
            index = _counting.next_indices(self.counter, batch, self._made_after)
        else:
            index = _numbers(index, batch)
            if epoch is None:
                self.notice_repeats(index)
        plan = torch_ops.sample(
            self.config,
            index,
            size=size,
            seed=self.seed,
            epoch=self.epoch_on(images.device) if epoch is None else epoch,
            view=_arguments.TRAINING_VIEWS[self.views],
            channels=batch.shape[-3],
        )
        out = torch_ops.apply_batch(
            batch, size, plan, out_dtype=self.out_dtype, mean=self.mean, std=self.std, channels_last=None, flip=flip
        )
        return out[0] if single and self.views == 1 else out

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._made_after = _counting.forks()

    def extra_repr(self) -> str:
        """The settings, for ``print(module)``."""
        return f"{self.config}, seed={self.seed}, views={self.views}, mean={self.mean}, std={self.std}"


def _numbers(index: Any, batch: torch.Tensor) -> torch.Tensor:
    """The argument ``index`` of a batch as a tensor, ``[N]`` if it is a number; its dtype is checked later."""
    if not isinstance(index, torch.Tensor):
        if batch.shape[0] != 1:
            raise TypeError(
                f"index: expected an int64 torch.Tensor, got {type(index).__name__}; torch.as_tensor(index) makes one "
                "of a list or an array"
            )
        number = _arguments.integer("index", index, -(2**63), 2**63 - 1)
        return torch.full((1,), number, dtype=torch.int64, device=batch.device)
    index = index.reshape(1) if index.dim() == 0 else index
    torch_ops.check_index(index, batch)
    return index
