"""Batch-norm statistics adapted to a few unlabeled images (docs/METHOD.md, "BN adaptation")."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .. import _arguments
from .._wording import plural


@dataclass(frozen=True)
class Adaptation:
    """How statistics are blended: ``z = N / (N + n) z_s + n / (N + n) z_t``, for mean and variance of every layer."""

    prior: int
    """N: the number of images that the training statistics, z_s, count as."""
    samples: int
    """n: the number of test images that z_t is computed from."""
    seed: int = 0
    """Seed of the draw of the images."""

    def __post_init__(self) -> None:
        _arguments.integer("N", self.prior, 0, 10**9)
        _arguments.integer("n", self.samples, 1, 10**9)
        _arguments.seed(self.seed)

    def draw(self, name: str, images: int) -> NDArray[np.int64]:
        """Draw ``samples`` distinct indices of ``images`` images, in increasing order.

        They depend on the seed and on ``name``, the name of the corruption and severity.

        Raises:
            ValueError: There are fewer than ``samples`` images.
        """
        if self.samples > images:
            raise ValueError(f"n: expected at most the {plural(images, 'image')} of {name}, got {self.samples}")
        generator = np.random.default_rng([self.seed & (2**64 - 1), *name.encode()])
        return np.sort(generator.choice(images, self.samples, replace=False)).astype(np.int64)


PRESETS = {"single": (16, 1), "partial": (16, 8), "full": (0, 400)}
"""N and n of the paper's three settings."""


def parse(words: Sequence[str], seed: int = 0) -> Adaptation:
    """``["single"]``, ``["partial"]`` or ``["full"]``, as the paper has them, or N and n: ``["16", "8"]``.

    Raises:
        ValueError: Anything else.
    """
    if len(words) == 1 and words[0] in PRESETS:
        return Adaptation(*PRESETS[words[0]], seed)
    if len(words) == 2 and all(word.isdecimal() for word in words):
        return Adaptation(int(words[0]), int(words[1]), seed)
    raise ValueError(f"bn-adapt: expected single, partial, full, or two whole numbers N n, got {' '.join(words)!r}")


@contextlib.contextmanager
def adapted(network: nn.Module, images: torch.Tensor, prior: int) -> Iterator[None]:
    """Blend the statistics of ``network``'s batch-norm layers with those of ``images``; restore them on exit.

    The statistics are computed in one forward pass, in which each layer already normalizes its own input by the blend,
    as in the source of the method (Schneider et al., 2020). So the input of each layer comes from adapted layers, as it
    does when the test images follow. The variance is the biased one (divided by n, not by n - 1), which batch norm
    normalizes by in training: with N = 0 the pass is a forward pass in training mode, and a layer that sees a single
    value gets variance 0.

    Args:
        network: In evaluation mode.
        images: The n images, float ``[n, 3, H, W]``, normalized, on the network's device. All in one batch.
        prior: N, at least 0.

    Raises:
        ValueError: The network has no batch-norm layer with running statistics.
    """
    layers = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    if not layers:
        raise ValueError("network: expected batch-norm layers to adapt, got none")
    trained = {m: (_tensor(m.running_mean).clone(), _tensor(m.running_var).clone()) for m in layers}
    weight = len(images) / (prior + len(images))

    def blend(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(layer, _BatchNorm)
        values = inputs[0].float()
        variance, mean = torch.var_mean(values, [axis for axis in range(values.dim()) if axis != 1], correction=0)
        _set(layer, *(torch.lerp(s, t, weight) for s, t in zip(trained[layer], (mean, variance), strict=True)))

    try:
        hooks = [layer.register_forward_pre_hook(blend) for layer in layers]
        try:
            with torch.no_grad():
                network(images)
        finally:
            for hook in hooks:
                hook.remove()
        yield
    finally:
        for layer, statistics in trained.items():
            _set(layer, *statistics)


def _set(layer: _BatchNorm, mean: torch.Tensor, variance: torch.Tensor) -> None:
    _tensor(layer.running_mean).copy_(mean)
    _tensor(layer.running_var).copy_(variance)


def _tensor(statistic: torch.Tensor | None) -> torch.Tensor:
    assert statistic is not None  # only layers that keep statistics come here
    return statistic
