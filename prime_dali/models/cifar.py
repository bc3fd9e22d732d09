"""Residual networks for images of 32 x 32 pixels that torchvision does not have, as their authors define them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.functional import max_pool2d, relu


def _conv(inputs: int, outputs: int, side: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, groups=groups, bias=False)


def _initialize(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class _PreActivation(nn.Module):
    """Two 3 x 3 convolutions, each after batch norm and ReLU, beside the identity or a 1 x 1 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), _conv(inputs, outputs, 3, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), _conv(outputs, outputs, 3)
        self.downsample = None if inputs == outputs else _conv(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs, H, W]`` to ``[N, outputs, H / stride, W / stride]``."""
        active = relu(self.norm1(x))
        beside = x if self.downsample is None else self.downsample(active)
        return beside + self.conv2(relu(self.norm2(self.conv1(active))))


class _Bottleneck(nn.Module):
    """1 x 1, grouped 3 x 3 and 1 x 1 convolutions, each with batch norm, beside the identity or a 1 x 1 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, cardinality: int, width: int) -> None:
        super().__init__()
        inner = cardinality * width * outputs // 256  # the first stage has `width` channels in each group
        self.conv1, self.norm1 = _conv(inputs, inner, 1), nn.BatchNorm2d(inner)
        self.conv2, self.norm2 = _conv(inner, inner, 3, stride, cardinality), nn.BatchNorm2d(inner)
        self.conv3, self.norm3 = _conv(inner, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = None
        if inputs != outputs:
            self.downsample = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs, H, W]`` to ``[N, outputs, H / stride, W / stride]``."""
        y = relu(self.norm2(self.conv2(relu(self.norm1(self.conv1(x))))))
        return relu(self.norm3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


class _Network(nn.Module):
    """A 3 x 3 convolution, three stages of blocks, of which the later two halve the resolution, mean and classifier."""

    def __init__(
        self, num_classes: int, stem: int, widths: tuple[int, ...], blocks: int, block: Callable[..., nn.Module],
        norms: tuple[int, int],
    ) -> None:  # fmt: skip
        super().__init__()
        first, last = norms  # channels of batch norm after the stem and after the stages; 0: none
        self.conv1 = _conv(3, stem, 3)
        self.norm1 = nn.Sequential(nn.BatchNorm2d(first), nn.ReLU()) if first else nn.Identity()
        inputs, stages = (stem, *widths), []
        for stage, outputs in enumerate(widths):
            stages.append(block(inputs[stage], outputs, 1 if stage == 0 else 2))
            stages += [block(outputs, outputs, 1) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*stages)
        self.norm2 = nn.Sequential(nn.BatchNorm2d(last), nn.ReLU()) if last else nn.Identity()
        self.fc = nn.Linear(widths[-1], num_classes)
        _initialize(self)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalized images ``[N, 3, H, W]`` to logits ``[N, num_classes]``."""
        x = self.norm2(self.stages(self.norm1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


def wide_resnet(num_classes: int, depth: int, widening: int) -> nn.Module:
    """WRN-depth-widening (Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016), without dropout; the depth is
    4 more than a multiple of 6."""
    widths = (16 * widening, 32 * widening, 64 * widening)
    return _Network(num_classes, 16, widths, (depth - 4) // 6, _PreActivation, (0, widths[-1]))


def resnext29(num_classes: int, cardinality: int, width: int) -> nn.Module:
    """ResNeXt-29, cardinality x width d (Xie et al., "Aggregated Residual Transformations", CVPR 2017, section 5.2):
    ``cardinality`` groups of ``width`` channels in the first stage, twice and four times as many in the others."""
    block = partial(_Bottleneck, cardinality=cardinality, width=width)
    return _Network(num_classes, 64, (256, 512, 1024), 3, block, (64, 0))


class _Pooled(nn.Module):
    """A 3 x 3 convolution that halves the resolution before its batch norm, then two more beside the identity."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(inputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = _conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.conv3, self.norm3 = _conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[N, inputs, H, W]`` to ``[N, outputs, H / 2, W / 2]``."""
        x = relu(self.norm1(max_pool2d(self.conv1(x), 2)))
        return relu(x + self.norm3(self.conv3(relu(self.norm2(self.conv2(x))))))


class PooledResNet(nn.Module):
    """Eleven layers for short training runs: few and wide ones, most of them at low resolution.

    As in networks of public speed records on CIFAR-10 (Page, "How to train your ResNet", 2018; Jordan, "94% on CIFAR-10
    in 3.29 seconds on a single GPU", 2024), pooling comes before batch norm, which then reads a quarter of the numbers,
    and logits of the maxima over the image are scaled down.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(3, 64, 3), nn.BatchNorm2d(64)
        self.stages = nn.Sequential(_Pooled(64, 128), _Pooled(128, 384), _Pooled(384, 512))
        self.fc = nn.Linear(512, num_classes)
        _initialize(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalized images ``[N, 3, H, W]``, sides of at least 8, to logits ``[N, num_classes]``."""
        x = self.stages(relu(self.norm1(self.conv1(x))))
        return self.fc(x.amax((2, 3))) / 8


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "wrn_40_2": partial(wide_resnet, depth=40, widening=2),
    "wrn_28_10": partial(wide_resnet, depth=28, widening=10),
    "resnext29_4x32d": partial(resnext29, cardinality=4, width=32),
    "resnext29_8x64d": partial(resnext29, cardinality=8, width=64),
    "resnet11_pooled": PooledResNet,
}
"""By name, from the number of classes. ``wrn_40_2`` and ``resnext29_4x32d`` are those of AugMix (Hendrycks et al.,
ICLR 2020), whose ResNeXt-29 has 4 groups of 32 channels."""
