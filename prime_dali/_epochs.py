"""The epoch of a module with random draws: set like that of a sampler, and part of its state."""

from __future__ import annotations

from typing import Any

import torch

from . import _arguments
from ._counting import on_device


class Epochs(torch.nn.Module):
    """A module whose draws also depend on the epoch."""

    epoch_number: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        # A tensor, which a compiled or captured step reads anew; of an int it would be compiled anew.
        self.register_buffer("epoch_number", torch.zeros((), dtype=torch.int64))

    @property
    def epoch(self) -> int:
        """The epoch of calls without one; can be set. Reading it synchronizes with the GPU of the module."""
        return int(self.epoch_number)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the calls that follow, as samplers do, so that each epoch has draws of its own.

        Args:
            epoch: From 0 to 2^32 - 1.

        Raises:
            TypeError, ValueError: It is no such int.
        """
        self.epoch_number.fill_(_arguments.epoch(epoch))

    def epoch_on(self, device: torch.device) -> torch.Tensor:
        """The epoch as int64 ``[]`` on ``device``."""
        return on_device(self.epoch_number, device)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._buffers.setdefault("epoch_number", torch.zeros((), dtype=torch.int64))  # pickled before there was one

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        state_dict.setdefault(prefix + "epoch_number", self.epoch_number)  # saved before there was one
        super()._load_from_state_dict(state_dict, prefix, *rest)
