"""Corrupt images in memory as in the corruption benchmarks: CIFAR-10-C, ImageNet-C, their C-bar versions, and
Tiny-ImageNet-C.

The algorithms are in :mod:`.distortions` and :mod:`.c_bar`. This module has their strengths at severities 1 to 5, and
derives their seeds.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _arguments, _extras
from .._wording import plural
from .names import EXTRA_CORRUPTIONS, SEVERITIES

Strengths = dict[str, tuple[tuple[float, ...], ...]]
"""By name of the corruption: the arguments of its function at severities 1 to 5."""


def _each(*strengths: float) -> tuple[tuple[float, ...], ...]:
    return tuple((strength,) for strength in strengths)


def _times(scale: float, *strengths: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(scale * number for number in numbers) for numbers in strengths)


_CIFAR_C: Strengths = {
    "gaussian_noise": _each(0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": _each(500, 250, 100, 75, 50),
    "impulse_noise": _each(0.01, 0.02, 0.03, 0.05, 0.07),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": _each(0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": _each(0.75, 0.5, 0.4, 0.3, 0.15),
    "elastic_transform": _times(
        32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
    ),
    "pixelate": _each(0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": _each(80, 65, 58, 50, 40),
    "speckle_noise": _each(0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": _each(0.4, 0.6, 0.7, 0.8, 1),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0), (0.65, 0.1, 0.8, 0.7, 0.5, 0), (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1), (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}  # fmt: skip

_IMAGENET_C: Strengths = {
    "gaussian_noise": _each(0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": _each(60, 25, 12, 5, 3),
    "impulse_noise": _each(0.03, 0.06, 0.09, 0.17, 0.27),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": _each(0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": _each(0.4, 0.3, 0.2, 0.1, 0.05),
    "elastic_transform": _times(  # 244, as in the code that made the published set
        244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
    ),
    "pixelate": _each(0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": _each(25, 18, 15, 10, 7),
    "speckle_noise": _each(0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": _each(1, 2, 3, 4, 6),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0), (0.65, 0.3, 3, 0.68, 0.6, 0), (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1), (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}  # fmt: skip

_TINY_IMAGENET_C: Strengths = {
    "gaussian_noise": _each(0.04, 0.08, 0.12, 0.15, 0.18),
    "shot_noise": _each(250, 100, 50, 30, 15),
    "impulse_noise": _each(0.01, 0.02, 0.05, 0.08, 0.14),
    "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
    "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
    "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
    "zoom_blur": _CIFAR_C["zoom_blur"],
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.8), (0.1, 0.2, 1, 0.5, 10, 4, 0.8), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
    ),
    "frost": ((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
    "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
    "brightness": _IMAGENET_C["brightness"],
    "contrast": _IMAGENET_C["contrast"],
    "elastic_transform": _times(
        64, (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)
    ),
    "pixelate": _each(0.9, 0.8, 0.7, 0.6, 0.5),
    "jpeg_compression": _each(65, 58, 50, 40, 25),
    "speckle_noise": _each(0.15, 0.2, 0.25, 0.3, 0.35),
    "gaussian_blur": _each(0.5, 0.75, 1, 1.25, 1.5),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.6, 0), (0.65, 0.1, 0.8, 0.7, 0.6, 0), (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1), (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
}  # fmt: skip

_CIFAR_BAR: Strengths = {
    "blue_noise_sample": _each(0.7, 1.4, 2.1, 3.5, 4.2),
    "checkerboard_cutout": _each(1, 2, 3, 4, 5),
    "inverse_sparkles": _each(1, 1.5, 2.5, 4.5, 5),
    "pinch_and_twirl": _each(5.5, 6, 6.5, 8.5, 10),
    "ripple": _each(5.5, 6, 6.5, 7.5, 8),
    "brownish_noise": _each(2.5, 4, 5.5, 6.5, 7),
    "circular_motion_blur": _each(2.8, 3.6, 4.4, 5.2, 6),
    "lines": _each(0.5, 1, 1.5, 2, 2.5),
    "sparkles": _each(0.7, 3.5, 5.6, 6.3, 7),
    "transverse_chromatic_abberation": _each(1, 2, 5, 9, 10),
}

_IMAGENET_BAR: Strengths = {
    "caustic_refraction": _each(2.35, 3.2, 4.9, 6.6, 9.15),
    "inverse_sparkles": _each(1, 2, 4, 9, 10),
    "sparkles": _each(1, 2, 3, 5, 6),
    "perlin_noise": _each(4.6, 5.2, 5.8, 7.6, 8.8),
    "blue_noise_sample": _each(0.8, 1.6, 2.4, 4, 5.6),
    "plasma_noise": _each(4.75, 7, 8.5, 9.25, 10),
    "checkerboard_cutout": _each(2, 3, 4, 5, 6),
    "cocentric_sine_waves": _each(3, 5, 8, 9, 10),
    "single_frequency_greyscale": _each(1, 1.5, 2, 4.5, 5),
    "brownish_noise": _each(1, 2, 3, 4, 5),
}

STRENGTHS = {
    ("cifar", "c"): _CIFAR_C,
    ("cifar", "c-bar"): _CIFAR_BAR,
    ("imagenet", "c"): _IMAGENET_C,
    ("imagenet", "c-bar"): _IMAGENET_BAR,
    ("tinyimagenet", "c"): _TINY_IMAGENET_C,
}
"""By kind of image and set. ``c`` includes the four extra corruptions."""

SIDES = {"cifar": 32, "imagenet": 224, "tinyimagenet": 64}
"""Pixels."""


@functools.cache
def algorithms() -> dict[str, Any]:
    """The modules with the algorithms of ``c`` and of ``c-bar``; not before they are needed, as they take a second.

    Raises:
        ImportError: A package is missing; the message says how to install it.
    """
    try:
        from . import c_bar, distortions
    except ImportError as error:
        raise ImportError(
            f"corruptions need SciPy, scikit-image, OpenCV and Pillow ({error}): {_extras.install('train')}"
        ) from error
    return {"c": distortions, "c-bar": c_bar}


def require(names: Collection[str]) -> None:
    """Load what these corruptions need, so that what is missing shows before any image is made, and not in a worker.

    Raises:
        ImportError: As for :func:`algorithms`; or ``frost`` is without its textures.
    """
    modules = algorithms()
    if "frost" in names:
        modules["c"].ice(0, 1)


def cifar(
    images: NDArray[np.uint8], name: str, severity: int, *, seed: int = 0, numbers: Sequence[int] | None = None
) -> NDArray[np.uint8]:
    """Corrupt images as in CIFAR-10-C, CIFAR-100-C or CIFAR-10-C-bar.

    Args:
        images: uint8 ``[N, 32, 32, 3]``, RGB.
        name: Name of the corruption: one of the fifteen, of the four extra ones, or of C-bar's ten.
        severity: 1 to 5.
        seed: At least 0. An image's random numbers depend on the seed, the corruption, the severity and its index.
        numbers: The ``N`` indices of the images, from 0; None: 0, 1, 2, ...

    Returns:
        uint8 ``[N, 32, 32, 3]``.

    Raises:
        TypeError, ValueError: An argument is invalid; the message names it, the expected value and the value given.
        ImportError: As for :func:`algorithms`; ``frost`` also needs imagecorruptions, which ships its textures.
    """
    return _corrupted("cifar", "images", images, name, severity, seed, numbers)


def imagenet(
    image: NDArray[np.uint8], name: str, severity: int, *, seed: int = 0, number: int = 0
) -> NDArray[np.uint8]:
    """Corrupt an image as in ImageNet-C or ImageNet-C-bar, before these are stored as JPEG.

    Args:
        image: uint8 ``[224, 224, 3]``, RGB: shorter side resized to 256, center cropped.
        name: Name of the corruption: one of the fifteen, of the four extra ones, or of C-bar's ten.
        severity: 1 to 5.
        seed: At least 0. An image's random numbers depend on the seed, the corruption, the severity and its index.
        number: Index of the image, from 0.

    Returns:
        uint8 ``[224, 224, 3]``.

    Raises:
        TypeError, ValueError, ImportError: As for :func:`cifar`.
    """
    return one("imagenet", image, name, severity, seed=seed, number=number)


def tinyimagenet(
    image: NDArray[np.uint8], name: str, severity: int, *, seed: int = 0, number: int = 0
) -> NDArray[np.uint8]:
    """Corrupt an image as in Tiny-ImageNet-C, before it is stored as JPEG.

    Args:
        image: uint8 ``[64, 64, 3]``, RGB.
        name: Name of the corruption: one of the fifteen, or of the four extra ones.
        severity, seed, number: As for :func:`imagenet`.

    Returns:
        uint8 ``[64, 64, 3]``.

    Raises:
        TypeError, ValueError, ImportError: As for :func:`cifar`.
    """
    return one("tinyimagenet", image, name, severity, seed=seed, number=number)


def one(
    kind: str, image: NDArray[np.uint8], name: str, severity: int, *, seed: int = 0, number: int = 0
) -> NDArray[np.uint8]:
    """Corrupt an image of a kind, a key of :data:`SIDES`, as the functions of these names do; errors as there."""
    batch = image[None] if isinstance(image, np.ndarray) else image
    return _corrupted(kind, "image", batch, name, severity, seed, [number])[0]


def main_names(kind: str, which: str) -> tuple[str, ...]:
    """The corruptions that the mean of a set includes, in the order of its tables; keys of :data:`STRENGTHS`."""
    return tuple(name for name in STRENGTHS[kind, which] if name not in EXTRA_CORRUPTIONS)


def _corrupted(
    kind: str, argument: str, images: Any, name: str, severity: int, seed: int, numbers: Sequence[int] | None
) -> NDArray[np.uint8]:
    side = SIDES[kind]
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        got = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise TypeError(f"{argument}: expected a uint8 NumPy array, got {got}")
    if images.ndim != 4 or images.shape[1:] != (side, side, 3) or len(images) == 0:
        batch, got = ("N, ", images.shape) if argument == "images" else ("", images.shape[1:])
        raise ValueError(f"{argument}: expected [{batch}{side}, {side}, 3], got {list(got)}")
    strengths = STRENGTHS[kind, "c"] | STRENGTHS.get((kind, "c-bar"), {})
    _arguments.one_of("corruption", name, strengths)
    severity = _arguments.integer("severity", severity, SEVERITIES[0], SEVERITIES[-1])
    seed = _arguments.integer("seed", seed, 0, 2**63 - 1)
    if numbers is None:
        numbers = range(len(images))
    if len(numbers) != len(images):
        raise ValueError(f"numbers: expected one for each of {plural(len(images), 'image')}, got {len(numbers)}")
    key = (zlib.crc32(name.encode()), severity)
    rngs = [
        np.random.default_rng(
            np.random.SeedSequence(seed, spawn_key=(*key, _arguments.integer("number", number, 0, 2**32 - 1)))
        )
        for number in numbers
    ]
    change = getattr(algorithms()["c" if name in STRENGTHS[kind, "c"] else "c-bar"], name)
    changed = change(images, rngs, *strengths[name][severity - 1])
    return np.clip(changed, 0, 255).astype(np.uint8)
