"""The reference of PRIME, straight from the equations in float64 NumPy; all kernels are tested against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _memory
from .plan import Plan, Slot

Array = NDArray[np.float64]


def apply(images: Any, plan: Plan) -> Array:
    """Augment a batch according to ``plan`` (Algorithm 1 of the paper).

    Args:
        images: NumPy or CPU torch ``[N, 3, H, W]``, uint8 (divided by 255) or floating in [0, 1]. Values up to 1/512
            outside are clamped, as in the kernels.
        plan: A plan for these images.

    Returns:
        float64 ``[views * N, 3, H, W]``: ``x + sum_i lambda_i (chain_i - x)``.

    Raises:
        TypeError, ValueError: The images have the wrong type, shape or range for the plan, or the plan is invalid
            (:meth:`Plan.validate`).
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a Plan, got {type(plan).__name__}")
    if _memory.is_tensor(images):
        _memory.check_tensor("images", images)
        images = images.detach()
        images = (images.double() if images.is_floating_point() else images).cpu().numpy()
    images = _memory.numpy_array("images", images)
    plan.check()
    expected = (plan.batch, 3, *plan.size)
    if images.shape != expected:
        raise ValueError(f"images: expected shape {list(expected)} for this plan, got {list(images.shape)}")
    if images.dtype != np.uint8 and images.dtype.kind != "f" and images.dtype.name != "bfloat16":
        raise TypeError(f"images: expected uint8 or a floating dtype, got {images.dtype}")
    x = images / 255.0 if images.dtype == np.uint8 else images.astype(np.float64)
    if x.size:
        _arguments.pixel_range("images", float(x.min()), float(x.max()))
    x = np.clip(x, 0, 1)
    plan = plan.numpy()
    chains: dict[tuple[int, int], Array] = {}
    for slot in plan.materialize():
        start = chains.get((slot.row, slot.chain))
        chains[slot.row, slot.chain] = apply_slot(x[slot.row % plan.batch] if start is None else start, slot)
    out = np.concatenate([x] * plan.views)
    for (row, chain), end in chains.items():
        out[row] += float(plan.weights[row, chain + 1]) * (end - x[row % plan.batch])
    return out


def apply_slot(x: Array, slot: Slot) -> Array:
    """One primitive on one image, float64 ``[3, H, W]`` in [0, 1], clipped to [0, 1]."""
    return np.clip(FUNCTIONS[slot.primitive](x, slot), 0, 1)


def spectral(x: Array, slot: Slot) -> Array:
    """``y = x * (delta + w)``: depthwise filter, zero padding (paper, eq. "spectral_domain").

    Written as a correlation; the taps are independent and identically distributed, so the
    distribution is the same.
    """
    taps = slot.coefficients
    radius = taps.shape[0] // 2
    padded = np.pad(x, ((0, 0), (radius, radius), (radius, radius)))
    height, width = x.shape[1:]
    return np.sum(
        [tap * padded[:, ky : ky + height, kx : kx + width] for (ky, kx), tap in np.ndenumerate(taps)],
        axis=0,
    )


def displacement(slot: Slot, height: int, width: int) -> Array:
    """``(dy, dx)`` in pixels, float64 ``[2, H, W]``: ``sqrt(T) x side x sum B_ab sin(pi a r1) sin(pi b r2)``."""
    rows, columns = slot.coefficients.shape[1:]
    sine_y = np.sin(np.pi * np.outer(np.arange(height), np.arange(1, rows + 1)) / (height - 1))
    sine_x = np.sin(np.pi * np.outer(np.arange(width), np.arange(1, columns + 1)) / (width - 1))
    fields = sine_y @ slot.coefficients @ sine_x.T
    return slot.strength * np.array([height, width])[:, None, None] * fields


def spatial(x: Array, slot: Slot) -> Array:
    """``y(r) = x(r - d(r))``, bilinear, coordinates clamped to the image (docs/METHOD.md, "Spatial")."""
    height, width = x.shape[1:]
    dy, dx = displacement(slot, height, width)
    yy = np.clip(np.arange(height)[:, None] - dy, 0, height - 1)
    xx = np.clip(np.arange(width)[None, :] - dx, 0, width - 1)
    y0, x0 = np.floor(yy).astype(int), np.floor(xx).astype(int)
    y1, x1 = np.minimum(y0 + 1, height - 1), np.minimum(x0 + 1, width - 1)
    wy, wx = yy - y0, xx - x0
    top = (1 - wx) * x[:, y0, x0] + wx * x[:, y0, x1]
    bottom = (1 - wx) * x[:, y1, x0] + wx * x[:, y1, x1]
    return (1 - wy) * top + wy * bottom


def color(x: Array, slot: Slot) -> Array:
    """``y = x + sum_f b_f sin(pi f x)`` per channel (paper, eq. "color_transform")."""
    frequencies = np.arange(slot.first, slot.last + 1)
    waves = [b[:, None, None] * np.sin(np.pi * f * x) for f, b in zip(frequencies, slot.coefficients.T, strict=True)]
    return x + np.sum(waves, axis=0)


def noise(x: Array, slot: Slot) -> Array:
    """``y = x + e`` (paper, section "PRIME")."""
    return x + slot.coefficients


FUNCTIONS = {function.__name__: function for function in (spectral, spatial, color, noise)}
