"""The exponential moving average of a run's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..models.creation import timm


class Average:
    """The average of a network's weights and batch-norm statistics over the steps of a run, by timm's ModelEmaV3.

    After step ``t`` it is ``d a + (1 - d) w``, ``w`` the weights, ``d = min(decay, 1 - t^(-2/3))``: it begins as the
    weights themselves and becomes slower, so that short runs also profit. On several processes each averages the same
    weights.

    Args:
        network: The network, in the memory format and on the device of training.
        decay: More than 0, less than 1.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._ema: Any = timm("utils").ModelEmaV3(network, decay=decay, use_warmup=True)

    @property
    def network(self) -> nn.Module:
        """The network with the averaged weights, in evaluation mode."""
        network: nn.Module = self._ema.module
        return network

    def update(self, network: nn.Module, step: int) -> None:
        """Take in the weights after a step, which are counted from 1."""
        self._ema.update(network, step=step)

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Resume from the weights of :attr:`network`."""
        self.network.load_state_dict(weights)
