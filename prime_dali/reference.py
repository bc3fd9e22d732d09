"""The reference of PRIME, straight from the equations in float64 NumPy; all kernels are tested against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _memory, _waves
from .plan import Plan, Slot

__all__ = ["apply", "apply_slot", "color", "displacement", "noise", "spatial", "spectral"]

Array = NDArray[np.float64]
_LARGEST = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}


def apply(images: Any, plan: Plan) -> Array:
    """Augment a batch according to ``plan`` (Algorithm 1 of the paper).

    Args:
        images: NumPy or CPU torch ``[N, C, H, W]``, or clips ``[N, T, C, H, W]``; uint8 (divided by 255), uint16
            (divided by 65535) or floating in [0, 1]. Values up to 1/512 outside are clamped, as in the kernels.
        plan: A plan for these images.

    Returns:
        float64 ``[views * N, C, H, W]``, or ``[views * N, T, C, H, W]``: ``x + sum_i lambda_i (chain_i - x)``, to which
        planar waves are added if the plan has them.

    Raises:
        TypeError, ValueError: The images have the wrong type, shape or range for the plan, or the plan is invalid
            (:meth:`Plan.validate`).

    Examples:
        >>> images = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8)
        >>> plan = prime_dali.sample("cifar", np.arange(2), size=32, seed=1)
        >>> exact = prime_dali.reference.apply(images, plan)
        >>> exact.shape, exact.dtype
        ((2, 3, 32, 32), dtype('float64'))
        >>> bool(abs(exact - prime_dali.arrays.apply(images, plan) / 255).max() < 0.01)
        True
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a Plan, got {type(plan).__name__}")
    if _memory.is_tensor(images):
        _memory.check_tensor("images", images)
        images = images.detach()
        images = (images.double() if images.is_floating_point() else images).cpu().numpy()
    images = _memory.numpy_array("images", images)
    plan.check()
    expected = (plan.batch, plan.channels, *plan.size)
    if images.ndim == 5 and (images.shape[0], *images.shape[2:]) == expected:
        frames = images.shape[1]
        out = apply(images.reshape(-1, *expected[1:]), plan.of_frames(frames))
        return out.reshape(plan.views * plan.batch, frames, *expected[1:])
    if images.shape != expected:
        raise ValueError(
            f"images: expected shape {list(expected)} for this plan, got {list(images.shape)}; "
            "sample it with the size= and channels= of the images"
        )
    if images.dtype not in _LARGEST and images.dtype.kind != "f" and images.dtype.name != "bfloat16":
        raise TypeError(f"images: expected uint8, uint16 or a floating dtype, got {images.dtype}")
    x = images.astype(np.float64) / _LARGEST.get(images.dtype, 1)
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
    for row in range(len(out)):
        if waves := _waves.drawn(plan, row):
            out[row] = np.clip(out[row] + [_planar_wave(wave, plan.size) for wave in waves], 0, 1)
    return out


def apply_slot(x: Array, slot: Slot) -> Array:
    """One primitive on one image, float64 ``[C, H, W]`` in [0, 1], clipped to [0, 1].

    Examples:
        >>> (slot,) = prime_dali.Plan.build([[[("noise", 4.0)]]], size=32).materialize()
        >>> noisy = prime_dali.reference.apply_slot(np.full((3, 32, 32), 0.5), slot)
        >>> float(noisy.min()), float(noisy.max())
        (0.0, 1.0)
    """
    return np.clip(FUNCTIONS[slot.primitive](x, slot), 0, 1)


def spectral(x: Array, slot: Slot) -> Array:
    """``y = x * (delta + w)``: depthwise filter, zero padding (paper, eq. "spectral_domain").

    Written as a correlation; the taps are independent and identically distributed, so the
    distribution is the same.

    Examples:
        >>> (slot,) = prime_dali.Plan.build([[[("spectral", 0.0)]]], size=32).materialize()
        >>> image = np.random.default_rng(0).random((3, 32, 32))
        >>> np.array_equal(prime_dali.reference.spectral(image, slot), image)  # a filter of standard deviation 0
        True
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
    """``(dy, dx)`` in pixels, float64 ``[2, H, W]``: ``sqrt(T) x side x sum B_ab sin(pi a r1) sin(pi b r2)``.

    Examples:
        >>> (slot,) = prime_dali.Plan.build([[[("spatial", 0.01, 5)]]], size=32).materialize()
        >>> shifts = prime_dali.reference.displacement(slot, 32, 32)
        >>> shifts.shape, bool(abs(shifts[:, 0, 0]).max() < 1e-12)  # corners stay
        ((2, 32, 32), True)
    """
    rows, columns = slot.coefficients.shape[1:]
    sine_y = np.sin(np.pi * np.outer(np.arange(height), np.arange(1, rows + 1)) / (height - 1))
    sine_x = np.sin(np.pi * np.outer(np.arange(width), np.arange(1, columns + 1)) / (width - 1))
    fields = sine_y @ slot.coefficients @ sine_x.T
    return slot.strength * np.array([height, width])[:, None, None] * fields


def spatial(x: Array, slot: Slot) -> Array:
    """``y(r) = x(r - d(r))``, bilinear, coordinates clamped to the image (docs/METHOD.md, "Spatial").

    Examples:
        >>> (slot,) = prime_dali.Plan.build([[[("spatial", 0.01, 5)]]], size=32).materialize()
        >>> gray = np.full((3, 32, 32), 0.5)
        >>> np.allclose(prime_dali.reference.spatial(gray, slot), gray)
        True
    """
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
    """``y = x + sum_f b_f sin(pi f x)`` per channel (paper, eq. "color_transform").

    Examples:
        >>> (slot,) = prime_dali.Plan.build([[[("color", 0.1, 1, 5)]]], size=32).materialize()
        >>> black = np.zeros((3, 32, 32))
        >>> np.array_equal(prime_dali.reference.color(black, slot), black)  # sin(0) = 0
        True
    """
    frequencies = np.arange(slot.first, slot.last + 1)
    levels, places = np.unique(x, return_inverse=True)  # of bytes 256 at most
    waves = slot.coefficients @ np.sin(np.pi * np.outer(frequencies, levels))
    return x + waves[np.arange(len(x))[:, None, None], places.reshape(x.shape)]


def noise(x: Array, slot: Slot) -> Array:
    """``y = x + e`` (paper, section "PRIME").

    Examples:
        >>> (slot,) = prime_dali.Plan.build([[[("noise", 0.1)]]], size=32).materialize()
        >>> noise = prime_dali.reference.noise(np.zeros((3, 32, 32)), slot)
        >>> round(float(noise.std()), 2)
        0.1
    """
    return x + slot.coefficients


def _planar_wave(wave: _waves.Wave, size: tuple[int, int]) -> Array:
    """``a sin(2 pi f (y cos w + x sin w) / (n - 1) - pi / 4)``, float64 ``[H, W]``, y and x in pixels from the center,
    ``n^2 = H W`` (docs/METHOD.md, "Planar waves")."""
    y, x = (np.arange(side) - (side - 1) / 2 for side in size)
    waves = 2 * np.pi * wave.frequency / (np.sqrt(size[0] * size[1]) - 1)
    along = np.cos(wave.direction) * y[:, None] + np.sin(wave.direction) * x
    return wave.amplitude * np.sin(waves * along - np.pi / 4)


FUNCTIONS = {function.__name__: function for function in (spectral, spatial, color, noise)}
