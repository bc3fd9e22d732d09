"""The interface for Ray Data: PRIME as a callable class for ``Dataset.map_batches``.

::

    augmented = dataset.map_batches(
        prime_dali.ray.PRIME,
        fn_constructor_kwargs={"config": "imagenet", "seed": 1, "epoch": epoch},
        batch_size=256,
        compute=ray.data.ActorPoolStrategy(size=8),
    )

With ``num_gpus=1`` beside these, each of the eight actors runs on a GPU of its own; with ``num_gpus=0.25`` four actors
share one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _batches, _devices, _extras, arrays
from .config import PrimeConfig, as_config, require_image_draws, takes_config

with _extras.importing(__name__, "ray"):
    import ray

__all__ = ["PRIME"]


class PRIME:
    """Augments the images of a batch of Ray Data with PRIME; each actor of ``map_batches`` has one.

    An image is the same as on one machine, whatever the batches, actors and blocks: its draws depend only on seed,
    index and epoch. On the CPU, where it gets as many threads as its actor has CPUs, it is bit-identical to
    :func:`prime_dali.arrays.apply`; a GPU differs in rounding.

    Args:
        config: The distributions, or the name of a preset; with ``draws="image"``.
        seed: The run's seed.
        image: The column of the images: ``[H, W]``, ``[H, W, C]``, or clips ``[T, H, W, C]``, whose frames are all
            augmented in the same way; 1 to 16 channels, uint8 in 0..255, uint16 in 0..65535, or float16 or float32 in
            [0, 1]. They are replaced, and keep dtype and shape. If their shapes differ, they are augmented one by one.
        index: The column of each image's index in the data set, integers. Number the images before anything shuffles
            or repartitions them.
        epoch: The epoch, or the name of a column of integers.
        device: ``"auto"``: the GPU that Ray has assigned to the actor (``num_gpus=`` of ``map_batches``), or the CPU if
            it has none. ``"cuda"``: the assigned GPU. ``"cuda:N"``: one of the GPUs that the process sees, whether or
            not Ray has assigned it. ``"cpu"``.

    Raises:
        TypeError, ValueError: An argument is invalid, or the GPU is not there.

    Examples:
        >>> import prime_dali.ray
        >>> augment = prime_dali.ray.PRIME("cifar", seed=1, epoch=3, device="cpu")
        >>> batch = {"image": np.zeros((4, 32, 32, 3), np.uint8), "index": np.arange(4), "label": np.arange(4)}
        >>> out = augment(batch)
        >>> out["image"].shape, out["image"].dtype, list(out)
        ((4, 32, 32, 3), dtype('uint8'), ['image', 'index', 'label'])
        >>> augment({"image": np.zeros((4, 32, 32), np.uint16), "index": np.arange(4)})["image"].dtype
        dtype('uint16')
    """

    @takes_config
    def __init__(
        self,
        config: PrimeConfig | str = "imagenet",
        *,
        seed: int = 0,
        image: str = "image",
        index: str = "index",
        epoch: int | str = 0,
        device: str = "auto",
    ) -> None:
        self.config, self.seed = as_config(config), _arguments.seed(seed)
        require_image_draws(self.config, "with Ray Data")
        for argument, column in (("image", image), ("index", index)):
            if not isinstance(column, str):
                raise TypeError(f"{argument}: expected the name of a column, got {column!r}")
        self.image, self.index = image, index
        self.epoch = epoch if isinstance(epoch, str) else _arguments.epoch(epoch)
        if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError(f"device: expected auto, cpu, cuda or cuda:N, got {device!r}")
        self.threads: int | None = None  # outside an actor: all
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            given = ray.get_runtime_context().get_assigned_resources()
            self.threads = max(1, int(given.get("CPU", 1)))
            device = _assigned_device(device)
        self.device = _devices.kernel_device(device)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with augmented images.

        Args:
            batch: Columns as NumPy arrays, as ``map_batches`` gives them by default.

        Raises:
            TypeError, ValueError: A column is missing or has another dtype or shape; the message names it.
        """
        images = _column("image", self.image, batch)
        index = _integers("index", self.index, batch)
        epoch = _integers("epoch", self.epoch, batch) if isinstance(self.epoch, str) else self.epoch
        if images.dtype != object:
            return {**batch, self.image: self._augment(images, index, epoch)}
        out = np.empty(len(images), object)
        for i, pixels in enumerate(images):
            one = epoch[i : i + 1] if isinstance(epoch, np.ndarray) else epoch
            out[i] = self._augment(np.asarray(pixels)[None], index[i : i + 1], one)[0]
        return {**batch, self.image: out}

    def _augment(self, images: NDArray[Any], index: NDArray[np.int64], epoch: Any) -> NDArray[Any]:
        """Images of one shape, ``[N, ...]``."""
        where = f"image: the column {self.image!r}"
        arrays.check_dtype(where, images.dtype)
        shape, most = images.shape, _arguments.MAX_CHANNELS
        if images.ndim == 3:
            images = images[..., None]
        if images.ndim not in (4, 5) or not 1 <= images.shape[-1] <= most:
            wanted = f"[H, W], [H, W, C] or clips [T, H, W, C] of 1 to {most} channels"
            raise ValueError(f"{where}: expected {wanted}, got {list(shape[1:])}")
        _arguments.image_size(where, images.shape[-3:-1])
        given = (self.config, self.seed, self.device, self.threads)
        return _batches.augment(images, index, epoch, *given)[0].reshape(shape)


def _assigned_device(wish: str) -> str:
    """The device of this worker of Ray: with ``"auto"`` and ``"cuda"`` the first GPU that Ray has assigned to it."""
    gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    if wish == "auto":
        wish = "cuda" if gpus else "cpu"
    if wish != "cuda":
        return wish
    if not gpus:
        raise ValueError("device: expected num_gpus= in map_batches for 'cuda', got an actor without a GPU; cuda:N "
                         "takes one that Ray has not assigned")  # fmt: skip
    # Ray usually hides all other GPUs. If it is told not to, torch's numbers are those of the visible ones.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return f"cuda:{visible.index(gpus[0]) if gpus[0] in visible else gpus[0]}"


def _column(argument: str, name: str, batch: Mapping[str, Any]) -> NDArray[Any]:
    if name not in batch:
        got = ", ".join(map(repr, batch))
        raise ValueError(f"{argument}: expected a column {name!r}, got {got}; its name is the argument {argument}")
    column = batch[name]
    if not isinstance(column, np.ndarray):
        raise TypeError(f"{argument}: expected NumPy arrays (batch_format='numpy'), got {type(column).__name__}")
    return column


def _integers(argument: str, name: str, batch: Mapping[str, Any]) -> NDArray[np.int64]:
    column = _column(argument, name, batch)
    if column.ndim != 1 or not np.can_cast(column.dtype, np.int64) or column.dtype == bool:
        raise TypeError(
            f"{argument}: expected integers [N] in the column {name!r}, got {column.dtype} {list(column.shape)}"
        )
    return column.astype(np.int64)
