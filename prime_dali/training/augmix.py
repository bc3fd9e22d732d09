"""AugMix, the baseline of PRIME, on batches of tensors.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", ICLR 2020, with the
operations and ranges of their published code. Each operation gives the same result as Pillow's, on 8-bit levels; all
chains of all views are processed as one batch, without branches and without synchronization.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import grid_sample

from .. import _arguments, torch_ops
from .._epochs import Epochs
from ..config import PrimeConfig

OPERATIONS = (
    "autocontrast", "equalize", "posterize", "rotate", "solarize", "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
AUTOCONTRAST, EQUALIZE, POSTERIZE, ROTATE, SOLARIZE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y = range(9)
NONE = -1

# A plan of one empty slot: its rows are the random words of (seed, index, epoch, view), and little else.
_WORDS_ONLY = PrimeConfig(primitives=(), width=1, depth=1, mixing="none")
_BLOCKS = 16  # of four words, that one augmented image may take


class Draws(NamedTuple):
    """All that was drawn for a batch of N images in V augmented views."""

    operation: torch.Tensor
    """int64 ``[slots, V, width, N]``: indices into OPERATIONS; NONE (-1) beyond the chain's depth."""
    magnitude: torch.Tensor
    """float64 ``[slots, V, width, N]``: posterize: bits kept; rotate: degrees, counterclockwise; solarize: the minimum
    level that is inverted; shear: pixels per pixel; translate: pixels. Else 0."""
    weights: torch.Tensor
    """float32 ``[V, width + 1, N]``: of the clean image, then of the chains; they sum to 1."""


class AugMix(Epochs):
    """Augments a batch of images with AugMix, and normalizes it; a replacement for :class:`prime_dali.PRIME`.

    Each of ``width`` chains applies 1 to 3 operations, drawn with replacement from the nine; the result is
    ``(1 - m) x + m sum_i w_i chain_i``, ``w ~ Dirichlet(1, .., 1)``, ``m ~ Beta(1, 1)``. (The published code normalizes
    before it mixes, which is equivalent, because the weights sum to 1.) It needs about 35 bytes of memory per value of
    each chain, of which there are ``width`` per augmented image.

    Args:
        severity: Levels are U(0.1, severity); 1 to 10. The paper uses 3 for CIFAR and 1 for ImageNet.
        width: Chains per image, 1 to 8.
        depth: Operations per chain, 1 to 5; -1: U{1, 2, 3}, drawn per chain.
        seed: The run's seed; every random number depends only on it and on the image's index, epoch and view.
        views: 1: one augmented view per image. 3: the clean image and two augmented views, for the Jensen-Shannon loss;
            2: the clean image and one.
        mean, std: Per channel, on the [0, 1] scale: the output is ``(y - mean) / std``. Both or neither.
        out_dtype: dtype of the output, or its name; None: that of the images, or float32 if uint8 ones are normalized.

    Raises:
        TypeError, ValueError: An argument has the wrong type or is out of range; the message names it.
    """

    def __init__(
        self,
        severity: int = 3,
        *,
        width: int = 3,
        depth: int = -1,
        seed: int = 0,
        views: int = 1,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        out_dtype: torch.dtype | str | None = None,
    ) -> None:
        super().__init__()
        self.severity = _arguments.integer("severity", severity, 1, 10)
        self.width = _arguments.integer("width", width, 1, 8)
        self.depth = _arguments.integer("depth", depth, -1, 5)
        if self.depth == 0:
            raise ValueError("depth: expected 1 to 5, or -1 for 1 to 3 at random, got 0")
        self.seed = _arguments.seed(seed)
        self.views = _arguments.training_views(views)
        self.mean, self.std = _arguments.channels(mean, std)
        self.out_dtype = None if out_dtype is None else torch_ops.image_dtype("out_dtype", out_dtype)

    def forward(
        self, images: torch.Tensor, index: torch.Tensor, epoch: Any = None, *, flip: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Augment a batch.

        Args:
            images: ``[N, 3, H, W]``, H and W 8 to 4096; uint8 in 0..255, or float16, bfloat16 or float32 in [0, 1],
                which the chains round to the nearest of 256 levels. Values up to 1/512 outside are clamped.
            index: int64 ``[N]``, each image's index in the data set, on the images' device.
            epoch: An int, or int64 ``[]`` or ``[N]``. None: that of :meth:`set_epoch`, initially 0.
            flip: bool ``[N]``: True mirrors the image left to right before augmentation, in all views.

        Returns:
            ``[views * N, 3, H, W]``, in the memory format of ``images``: with ``views=3`` all clean images, then all
            first augmented views, then all second ones. uint8 is rounded to nearest.

        Raises:
            TypeError, ValueError: Wrong type, dtype, shape, size, device or range; the message names the argument.
                Invalid pixels are reported as by :func:`prime_dali.apply`.
        """
        self._check(images, index)
        if epoch is None:
            self.notice_repeats(index)
        dtype, means, scales = torch_ops.output_format(images.dtype, self.out_dtype, self.mean, self.std, 3)
        strides = images.stride()
        channels_last = not images.is_contiguous() and strides[1] < strides[3]
        size = (images.shape[2], images.shape[3])
        nothing = torch_ops.sample(_WORDS_ONLY, index, size=size, seed=self.seed, epoch=0, view="clean")
        clean = torch_ops.apply(images, nothing, out_dtype=torch.float32, channels_last=False, flip=flip)
        levels = (clean.nan_to_num(0.0) * 255).round().to(torch.uint8)

        drawn = self.draw(index, epoch, size)
        chains = run_chains(levels, drawn.operation, drawn.magnitude)
        weights = drawn.weights[..., None, None, None]
        mixed = weights[:, 0] * clean + (weights[:, 1:] * (chains.float() / 255)).sum(1)
        out = mixed.flatten(0, 1) if self.views == 1 else torch.cat([clean, *mixed])

        if means:
            channels = zip(out.unbind(1), means, scales, strict=True)
            out = torch.stack([(channel - mean) * scale for channel, mean, scale in channels], 1)
        out = (out * 255).round().to(dtype) if dtype == torch.uint8 else out.to(dtype)
        return out.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)

    def draw(self, index: torch.Tensor, epoch: Any, size: tuple[int, int]) -> Draws:
        """What :meth:`forward` draws for these images; ``size``: their height and width in pixels."""
        slots = 3 if self.depth == -1 else self.depth
        blocks = -(-(1 + 2 * self.width + self.width * slots) // 4)
        numbers = []
        for view in range(max(1, self.views - 1)):
            plan = torch_ops.sample(
                _WORDS_ONLY,
                index,
                size=size,
                seed=self.seed,
                epoch=self.epoch_on(index.device) if epoch is None else epoch,
                view=[view * _BLOCKS + block for block in range(blocks)],
            )
            numbers.append(plan.stream.unflatten(0, (blocks, -1)).transpose(1, 2).flatten(0, 1))
        words = torch.stack(numbers, 1).long() & 0xFFFFFFFF  # [4 * blocks, V, N]
        unit = (words[: 1 + 2 * self.width].double() + 0.5) * 2.0**-32

        shares = -unit[1 : 1 + self.width].log()  # exponentials over their sum are Dirichlet(1, .., 1)
        mix = unit[:1]
        weights = torch.cat([1 - mix, mix * (shares / shares.sum(0))]).transpose(0, 1).float()

        # One word gives the operation, the sign and the level, as digits of a number in mixed radix.
        first = 1 + 2 * self.width
        word = words[first : first + slots * self.width].unflatten(0, (slots, self.width)).transpose(1, 2) * 9
        operation, rest = word >> 32, word & 0xFFFFFFFF
        sign = (rest >> 31) * 2 - 1
        level = 0.1 + (self.severity - 0.1) * (((rest & 0x7FFFFFFF).double() + 0.5) * 2.0**-31)
        if self.depth == -1:
            depth = (1 + (3 * unit[1 + self.width :]).long()).transpose(0, 1)  # [V, width, N]
            slot = torch.arange(slots, device=index.device)[:, None, None, None]
            operation = torch.where(slot < depth, operation, NONE)
        return Draws(operation, _magnitude(operation, level, sign, size), weights)

    def _check(self, images: torch.Tensor, index: torch.Tensor) -> None:
        """TypeError or ValueError for images and an index that AugMix does not take; ``apply`` checks ``flip``."""
        torch_ops.as_batch(images, "AugMix")
        if images.dim() != 4 or images.shape[1] != 3:
            raise ValueError(f"images: expected [N, 3, H, W], got {list(images.shape)}")
        for argument, dtype in (("images", images.dtype), ("out_dtype", self.out_dtype)):
            if dtype == torch.uint16:
                raise TypeError(f"{argument}: expected uint8 or a floating dtype (AugMix has 256 levels), got {dtype}")
        if not isinstance(index, torch.Tensor):
            raise TypeError(f"index: expected a torch.Tensor, got {type(index).__name__}")
        torch_ops.check_index(index, images)
        if index.dim() == 0:
            raise TypeError(f"index: expected int64 [{images.shape[0]}], got {index.dtype} []")

    def extra_repr(self) -> str:
        """The settings, for ``print(module)``."""
        return (
            f"severity={self.severity}, width={self.width}, depth={self.depth}, seed={self.seed}, views={self.views}, "
            f"mean={self.mean}, std={self.std}"
        )


def _magnitude(operation: torch.Tensor, level: torch.Tensor, sign: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """:attr:`Draws.magnitude` of operations at ``level`` (of 10), all of one shape."""
    height, width = size
    at_ten = {POSTERIZE: 4, ROTATE: 30, SOLARIZE: 256, SHEAR_X: 0.3, SHEAR_Y: 0.3,
              TRANSLATE_X: width / 3, TRANSLATE_Y: height / 3}  # fmt: skip
    largest = torch.zeros_like(level)
    for place, value in at_ten.items():
        largest = torch.where(operation == place, value, largest)
    amount = level * largest / 10
    signed = sign * torch.where((operation == SHEAR_X) | (operation == SHEAR_Y), amount, amount.trunc())
    unsigned = signed.abs()
    signed = torch.where(operation == POSTERIZE, 4 - unsigned, signed)
    return torch.where(operation == SOLARIZE, 256 - unsigned, signed)


# A single operator for torch.compile, which would otherwise recompute tables and coordinates for every pixel read.
@torch.library.custom_op("prime_dali::augmix_chains", mutates_args=())
def run_chains(images: torch.Tensor, operation: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """Every chain of every view.

    Args:
        images: uint8 ``[N, 3, H, W]``.
        operation, magnitude: ``[slots, V, width, N]``, as in :class:`Draws`.

    Returns:
        uint8 ``[V, width, N, 3, H, W]``.
    """
    ways = operation.shape[1:]
    chains = images.expand(*ways[:2], *images.shape).flatten(0, 2)
    matrices = affine_matrices(operation, magnitude, (images.shape[2], images.shape[3]))
    for slot in zip(operation.flatten(1), magnitude.flatten(1), matrices.flatten(1, 3), strict=True):
        # Each of the two changes nothing if the operation is of the other kind, or none.
        chains = warp(look_up(chains, *slot[:2]), slot[2])
    return chains.unflatten(0, ways)


@run_chains.register_fake
def _(images: torch.Tensor, operation: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    return images.new_empty((*operation.shape[1:], *images.shape[1:]))


def affine_matrices(operation: torch.Tensor, magnitude: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """The affine maps of the geometric operations, from output to input; the identity for the others.

    Args:
        operation, magnitude: ``[...]``, as in :class:`Draws`.
        size: Height and width, pixels.

    Returns:
        float64 ``[..., 2, 3]``: times (x, y, 1) of an output pixel gives (x, y) in the input, both from -1 to 1 over
        the image. Rotations are about the center, shears about the upper left corner.
    """
    aspect = size[0] / size[1]
    angle, shear_x, shear_y, shift_x, shift_y = (
        torch.where(operation == place, magnitude, 0) for place in (ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y)
    )
    sin, cos = angle.deg2rad().sin(), angle.deg2rad().cos()
    shear_x, shear_y = shear_x * aspect, shear_y / aspect
    rows = [
        cos, shear_x - sin * aspect, shear_x + shift_x * (2 / size[1]),
        shear_y + sin / aspect, cos, shear_y + shift_y * (2 / size[0]),
    ]  # fmt: skip
    return torch.stack(rows, -1).unflatten(-1, (2, 3))


def look_up(images: torch.Tensor, operation: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """The operations that map levels to levels, by a table per image and channel. Other operations change nothing.

    Args:
        images: uint8 ``[M, 3, H, W]``.
        operation, magnitude: ``[M]``, as in :class:`Draws`.

    Returns:
        uint8 ``[M, 3, H, W]``, equal to Pillow's ``ImageOps``.
    """
    pixels = images.flatten(2).long()
    low, high = pixels.aminmax(dim=2, keepdim=True)
    levels = torch.arange(256, device=images.device)
    histogram = levels.new_zeros(*pixels.shape[:2], 256)
    histogram.scatter_add_(2, pixels, levels.new_ones(()).expand_as(pixels))

    # A tensor of 255, because torch computes 255 / x as 255 times the reciprocal, which differs from Pillow's quotient.
    scale = torch.full((), 255.0, dtype=torch.float64, device=images.device) / (high - low).clamp(min=1)
    stretched = (levels * scale - low * scale).long()

    below = histogram.cumsum(2) - histogram
    step = below.gather(2, high) // 255
    equalized = torch.where(step > 0, (step // 2 + below) // step.clamp(min=1), levels)

    operation, magnitude = operation[:, None, None], magnitude[:, None, None].long()
    dropped = torch.where(operation == POSTERIZE, 8 - magnitude, 0)
    threshold = torch.where(operation == SOLARIZE, magnitude, 256)
    table = levels >> dropped << dropped
    table = torch.where(levels < threshold, table, 255 - table)
    table = torch.where(operation == EQUALIZE, equalized, table)
    table = torch.where((operation == AUTOCONTRAST) & (high > low), stretched, table)
    return table.clamp(0, 255).to(torch.uint8).gather(2, pixels).view_as(images)


def warp(images: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Affine maps, as in Pillow's ``transform`` with ``BILINEAR``.

    Args:
        images: uint8 ``[M, 3, H, W]``.
        matrices: float64 ``[M, 2, 3]``, from :func:`affine_matrices`.

    Returns:
        uint8 ``[M, 3, H, W]``: the nearest edge within half a pixel of the image's border, 0 beyond the image, and
        levels rounded down.
    """
    y, x = (
        torch.linspace(1 / side - 1, 1 - 1 / side, side, dtype=torch.float64, device=images.device)
        for side in images.shape[2:]
    )
    column, row, shift = matrices[:, None, None].unbind(-1)
    grid = column * x[:, None] + (row * y[:, None, None] + shift)
    inside = (grid.abs() < 1).all(-1)[:, None]
    sampled = grid_sample(images.double(), grid, padding_mode="border", align_corners=False)
    # A level that is too small by a rounding error must not become the next lower one.
    return sampled.add_(1e-6).mul_(inside).to(torch.uint8)
