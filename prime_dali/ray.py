"""The interface for Ray Data: PRIME as a callable class for ``Dataset.map_batches``.

::

    augmented = dataset.map_batches(
        prime_dali.ray.PRIME,
        fn_constructor_kwargs={"config": "imagenet", "seed": 1, "epoch": epoch},
        batch_size=256,
        compute=ray.data.ActorPoolStrategy(size=8),
    )
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _batches, _devices, _extras
from .config import PrimeConfig, as_config, require_image_draws

try:
    import ray
except ImportError as error:
    raise ImportError(f"prime_dali.ray needs Ray: {_extras.install('ray')}") from error

__all__ = ["PRIME"]


class PRIME:
    """Augments the images of a batch of Ray Data with PRIME; each actor of ``map_batches`` has one.

    An image is the same as on one machine, whatever the batches, actors and blocks: its draws depend only on seed,
    index and epoch. On the CPU, where it gets as many threads as its actor has CPUs, it is bit-identical to
    :func:`prime_dali.apply`; a GPU differs in rounding.

    Args:
        config: The distributions, or the name of a preset; with ``draws="image"``.
        seed: The run's seed.
        image: The column of the images: ``[H, W, 3]``, uint8 in 0..255, or float16 or float32 in [0, 1]. They are
            replaced, and keep dtype and size. If their sizes differ, they are augmented one by one.
        index: The column of each image's index in the data set, integers. Number the images before anything shuffles
            or repartitions them.
        epoch: The epoch, or the name of a column of integers.
        device: ``"cpu"``, ``"cuda"`` (give ``num_gpus=1`` to ``map_batches``), or ``"auto"``: the GPU that Ray has
            assigned to the actor, or the CPU.

    Raises:
        TypeError, ValueError: An argument is invalid.

    Examples:
        >>> import prime_dali.ray
        >>> augment = prime_dali.ray.PRIME("cifar", seed=1, epoch=3, device="cpu")
        >>> batch = {"image": np.zeros((4, 32, 32, 3), np.uint8), "index": np.arange(4), "label": np.arange(4)}
        >>> out = augment(batch)
        >>> out["image"].shape, out["image"].dtype, list(out)
        ((4, 32, 32, 3), dtype('uint8'), ['image', 'index', 'label'])
    """

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
        _arguments.one_of("device", device, ("auto", "cpu", "cuda"))
        self.threads: int | None = None  # outside an actor: all
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            given = ray.get_runtime_context().get_assigned_resources()
            self.threads = max(1, int(given.get("CPU", 1)))
            if device == "auto":
                device = "cuda" if given.get("GPU") else "cpu"
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
        if images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(f"image: expected images [H, W, 3] in the column {self.image!r}, got {images.shape[1:]}")
        return _batches.augment(images, index, epoch, self.config, self.seed, self.device, self.threads)[0]


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
