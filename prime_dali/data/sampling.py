"""Epoch sampling: order, crops and flips of a training set, keyed by seed, epoch and image index, without state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..random import stream, uniform

# PRIME keys an image by counters (index, epoch, view); these use views at the end of the range.
_ATTEMPTS = 10
_VIEW_ORDER = 2**32 - 1
_VIEW_PLACE = 2**32 - 2
_VIEWS_OF_STEPS = {"mixing": 2**32 - 3, "network": 2**32 - 4}  # by purpose; their counters are (rank, step, view)
_VIEW_ATTEMPTS = 2**32 - 16  # and the four after it: two attempts a view


def permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """A permutation of 0 to ``count - 1`` that depends on seed and epoch; takes about a second for ImageNet."""
    words = stream(seed, np.arange(count), epoch, _VIEW_ORDER)
    return np.argsort(words[:, 0].astype(np.uint64) << np.uint64(32) | words[:, 1], kind="stable")


def random_crops(
    heights: NDArray[np.int64],
    widths: NDArray[np.int64],
    index: NDArray[np.int64],
    epoch: NDArray[np.int64],
    seed: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Windows of a random resized crop, distributed as torchvision's, keyed by seed, image index and epoch.

    Args:
        heights, widths: Sizes of the images, pixels, ``[N]``.
        index, epoch: ``[N]``.
        seed: The run's seed.
        area: Minimum and maximum fraction of the image's area.
        ratio: Minimum and maximum width / height; uniform in its logarithm.

    Returns:
        ``(top, left)`` and ``(height, width)``, each int64 ``[N, 2]``. If none of 10 attempts fits: the largest
        window in the middle whose ratio is in ``ratio``.
    """
    # One call for all, because the overhead of a NumPy call exceeds the work.
    views = np.array([*range(_VIEW_ATTEMPTS, _VIEW_ATTEMPTS + _ATTEMPTS // 2), _VIEW_PLACE])
    words = stream(seed, index[:, None], epoch[:, None], views)
    u = uniform(words[:, :-1]).reshape(len(index), _ATTEMPTS, 2)
    place = uniform(words[:, -1, :2])
    whole = (heights * widths)[:, None]
    areas = whole * (area[0] + (area[1] - area[0]) * u[..., 0])
    ratios = ratio[0] * (ratio[1] / ratio[0]) ** u[..., 1]
    tries = np.rint(np.stack([np.sqrt(areas / ratios), np.sqrt(areas * ratios)], -1)).astype(np.int64)
    sizes = np.stack([heights, widths], -1)
    fits = ((tries > 0) & (tries <= sizes[:, None])).all(-1)
    first = fits.argmax(1)
    window = tries[np.arange(len(index)), first]
    tall = np.maximum(np.rint(widths / ratio[0]), 1), widths  # too narrow for any ratio: all of the width
    wide = heights, np.maximum(np.rint(heights * ratio[1]), 1)
    middle = np.stack([np.minimum(tall[0], heights), np.minimum(wide[1], widths)], -1).astype(np.int64)
    found = fits.any(1)[:, None]
    window = np.where(found, window, middle)
    corner = np.where(found, np.floor(place * (sizes - window + 1)).astype(np.int64), (sizes - window) // 2)
    return corner, window


def random_flips(
    index: NDArray[np.int64], epoch: NDArray[np.int64] | int, seed: int, probability: float
) -> NDArray[np.int32]:
    """1 with ``probability``, else 0, int32 ``[N]``, keyed by seed, image index and epoch."""
    return (uniform(stream(seed, index, epoch, _VIEW_PLACE)[:, 2]) < probability).astype(np.int32)


def random_shifts(
    index: NDArray[np.int64], epoch: NDArray[np.int64] | int, seed: int, padding: int
) -> NDArray[np.int64]:
    """Corners ``(top, left)`` of crops of an image's own size, after ``padding`` pixels were added on each side.

    Uniform from 0 to ``2 * padding`` inclusive, int64 ``[N, 2]``, keyed by seed, image index and epoch.
    """
    words = stream(seed, index, epoch, _VIEW_PLACE)[:, :2]
    return np.floor(uniform(words) * (2 * padding + 1)).astype(np.int64)


def step_seed(purpose: str, seed: int, step: int, rank: int) -> int:
    """A seed from 0 to 2^63 - 1 for what a library draws in one step, keyed by run, step and process.

    Args:
        purpose: ``"mixing"`` (mixup and CutMix) or ``"network"`` (stochastic depth, dropout).
        seed: The run's seed.
        step: From 0, below 2^32.
        rank: Number of the process.
    """
    words = stream(seed, rank, step, _VIEWS_OF_STEPS[purpose])
    return int(words[0]) << 31 | int(words[1]) >> 1
