"""PRIME as a callback of Lightning's ``Trainer``.

``lightning`` and ``pytorch_lightning`` both do. Where both are installed, the callback is for the one that was imported
before this module, else for ``lightning``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from .. import _extras

with _extras.importing(__name__, "lightning"):
    import torch

from .. import _arguments
from ..module import PRIME

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _package() -> Any:
    """The Lightning that is in use."""
    with _extras.importing(__name__, "lightning"):
        for name in [name for name in _PACKAGES if name in sys.modules] or _PACKAGES:
            try:
                return importlib.import_module(name)
            except ImportError as error:
                missing = error
        raise missing


_lightning = _package()

__all__ = ["PRIMECallback"]

_HOOK = "on_after_batch_transfer"


class PRIMECallback(_lightning.Callback):  # type: ignore[name-defined]
    """Augments the images of each training batch on their device, after Lightning has transferred it.

    It runs behind the ``on_after_batch_transfer`` of the ``LightningModule`` or ``LightningDataModule``, in training
    alone: batches of validation, test and prediction pass unchanged, so normalize those yourself if PRIME normalizes
    the training images.

    Draws depend on the seed, the epoch (``trainer.current_epoch``) and the image's index: the one in the batch with
    ``index_key``, else the image's place in the run over all ranks. That count is in the callback's state, so a run
    that is resumed from a checkpoint, also one in the middle of an epoch, goes on with the same draws.

    Args:
        augment: What to do; normalized images if it has ``mean`` and ``std``. With three views the images become
            ``[3N, C, H, W]``, and labels stay ``[N]``, as ``prime_dali.training.losses.jsd_loss`` takes them.
        image_key: Where the images are in a batch: position in a tuple or key of a dict. uint8 or float in [0, 1],
            ``[N, C, H, W]``.
        index_key: Where each image's index in the data set is, int64 ``[N]``. None: images are counted.

    Raises:
        TypeError, ValueError: ``augment`` is no :class:`prime_dali.PRIME`, or a batch has no images or index there.

    Examples:
        >>> from lightning.pytorch import Trainer
        >>> from prime_dali.integrations.lightning import PRIMECallback
        >>> prime = PRIMECallback(prime_dali.PRIME("imagenet", seed=1), index_key=2)
        >>> trainer = Trainer(callbacks=[prime], accelerator="cpu", logger=False, enable_checkpointing=False)
        >>> prime in trainer.callbacks
        True
    """

    def __init__(self, augment: PRIME, *, image_key: str | int = 0, index_key: str | int | None = None) -> None:
        super().__init__()
        if not isinstance(augment, PRIME):
            raise TypeError(f"augment: expected a prime_dali.PRIME, got {type(augment).__name__}")
        self.augment = augment
        self.image_key = _arguments.entry_key("image_key", image_key)
        self.index_key = None if index_key is None else _arguments.entry_key("index_key", index_key)
        self._hooked: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put PRIME behind the hook of the data module, where that has one, else behind the module's."""
        if stage != "fit":
            return
        self._unhook()
        data = trainer.datamodule
        base = getattr(_lightning.LightningDataModule, _HOOK)
        owner = pl_module if data is None or getattr(type(data), _HOOK) is base else data
        hook = getattr(owner, _HOOK)

        def augmented(batch: Any, dataloader_idx: int) -> Any:
            batch = hook(batch, dataloader_idx)
            return self._augmented(batch, trainer.current_epoch) if trainer.training else batch

        self._hooked = owner
        setattr(owner, _HOOK, augmented)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Take PRIME away again, so that the module can be pickled, and used without."""
        self._unhook()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """As :meth:`teardown`, which Lightning leaves out then."""
        self._unhook()

    def _unhook(self) -> None:
        if self._hooked is not None:
            delattr(self._hooked, _HOOK)
            self._hooked = None

    def state_dict(self) -> dict[str, Any]:
        """How many images have been augmented, for the checkpoint."""
        return {"counter": int(self.augment.counter)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self.augment.counter.fill_(state_dict["counter"])

    def _augmented(self, batch: Any, epoch: int) -> Any:
        images = _entry(batch, self.image_key, "image_key")
        index = None if self.index_key is None else _entry(batch, self.index_key, "index_key")
        out = self.augment(images, index, epoch)
        if isinstance(batch, torch.Tensor):
            return out
        if isinstance(batch, Mapping):
            return type(batch)({**batch, self.image_key: out})  # type: ignore[call-arg]
        at = range(len(batch))[self.image_key]  # type: ignore[index]
        values = [out if i == at else value for i, value in enumerate(batch)]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)


def _entry(batch: Any, key: str | int, argument: str) -> torch.Tensor:
    """The entry of a batch, a tensor; a batch that is one tensor is its entry 0."""
    if isinstance(batch, torch.Tensor) and key == 0 and argument == "image_key":
        return batch
    value = _arguments.entry(argument, batch, key)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{argument}: expected a batch with a tensor at {key!r}, got {type(value).__name__}")
    return value
