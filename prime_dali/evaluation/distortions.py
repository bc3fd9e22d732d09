"""The corruptions of CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich, ICLR 2019), for batches of square images.

Every function takes images, uint8 ``[N, S, S, 3]``, RGB; ``rngs``, one random generator per image; and its strengths.
It returns ``[N, S, S, 3]`` on the scale 0 to 255, not clipped. :mod:`.corruptions` clips the result and truncates it to
uint8, as in the published sets. The algorithms are those that made the sets, including quirks that change pixels. The
same functions serve both sets, which differ in size and in strengths (in :mod:`.corruptions`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates, zoom
from skimage.color import hsv2rgb, rgb2hsv
from skimage.util import random_noise

from .. import _extras

Images = NDArray[np.uint8]
Pixels = NDArray[Any]
Rngs = Sequence[Generator]

_FROSTS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")  # a sixth was never drawn
_WATER = np.array([175, 238, 238], np.float32) / 255
_MUD = np.array([63, 42, 20], np.float32) / 255


def gaussian_noise(images: Images, rngs: Rngs, std: float) -> Pixels:
    """``x + e``, ``e ~ N(0, std^2)`` per value, ``x`` in [0, 1]."""
    return 255 * (images / 255 + _drawn(rngs, lambda rng: rng.normal(scale=std, size=images.shape[1:])))


def shot_noise(images: Images, rngs: Rngs, rate: float) -> Pixels:
    """``Poisson(rate x) / rate`` per value."""
    return 255 * (each(lambda image, rng: rng.poisson(image / 255 * rate), images, rngs) / rate)


def impulse_noise(images: Images, rngs: Rngs, fraction: float) -> Pixels:
    """``fraction`` of the values become 0 or 255 with equal probability."""
    return 255 * each(lambda image, rng: random_noise(image / 255, "s&p", rng=rng, amount=fraction), images, rngs)


def speckle_noise(images: Images, rngs: Rngs, std: float) -> Pixels:
    """``x + x e``, ``e ~ N(0, std^2)`` per value."""
    x = images / 255
    return 255 * (x + x * _drawn(rngs, lambda rng: rng.normal(scale=std, size=images.shape[1:])))


def gaussian_blur(images: Images, rngs: Rngs, sigma: float) -> Pixels:
    """A Gaussian of ``sigma`` pixels."""
    return 255 * _gaussian(images / 255, sigma)


def defocus_blur(images: Images, rngs: Rngs, radius: float, alias_blur: float) -> Pixels:
    """A disk of ``radius`` pixels, its edge softened by a Gaussian of ``alias_blur`` pixels."""
    reach, width = (8, 3) if radius <= 8 else (int(radius), 5)
    across = np.arange(-reach, reach + 1) ** 2
    disk = (across[:, None] + across <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (width, width), alias_blur)
    return 255 * each(lambda image, _: cv2.filter2D(image / 255, -1, kernel), images, rngs)


def glass_blur(images: Images, rngs: Rngs, sigma: float, reach: int, rounds: int) -> Pixels:
    """Blur, ``rounds`` of swaps between neighbors, blur.

    The published code swaps pixels through views of one array, which copies the second over the first; so does this.
    """
    x = (255 * _gaussian(images / 255, sigma)).astype(np.uint8)
    count, side = images.shape[:2]
    for _ in range(rounds):
        source = _glass(rngs, side, reach)
        x = np.take_along_axis(x.reshape(count, -1, 3), source[..., None], 1).reshape(x.shape)
    return 255 * _gaussian(x / 255, sigma)


def motion_blur(images: Images, rngs: Rngs, radius: int, sigma: float) -> Pixels:
    """One-sided blur in a direction up to 45 degrees off the horizontal; ImageMagick's motion blur."""
    return each(lambda image, rng: _motion(image, radius, sigma, rng.uniform(-45, 45)), images, rngs)


def zoom_blur(images: Images, rngs: Rngs, stop: float, step: float) -> Pixels:
    """The mean of the image and of its enlargements by ``numpy.arange(1, stop, step)``."""
    x = (images / 255).astype(np.float32)
    factors = np.arange(1, stop, step)
    total = np.zeros_like(x)
    for factor in factors:
        total += _zoomed(x, factor)
    return 255 * ((x + total) / (len(factors) + 1))


def snow(
    images: Images, rngs: Rngs, mean: float, std: float, factor: float, least: float, radius: int, sigma: float,
    keep: float,
) -> Pixels:  # fmt: skip
    """Flakes of enlarged and thresholded noise, blurred downwards, on a whitened image."""
    x = images.astype(np.float32) / 255
    flakes = _zoomed(_drawn(rngs, lambda rng: rng.normal(mean, std, images.shape[1:3]))[..., None], factor)
    flakes[flakes < least] = 0
    levels = (255 * np.clip(flakes[..., 0], 0, 1)).astype(np.uint8)
    layer = each(lambda flat, rng: _motion(flat, radius, sigma, rng.uniform(-135, -45)), levels, rngs)
    layer = layer.astype(np.uint8)[..., None] / 255
    white = np.maximum(x, _gray(x) * 1.5 + 0.5)
    return 255 * (keep * x + (1 - keep) * white + layer + np.rot90(layer, 2, (1, 2)))


def frost(images: Images, rngs: Rngs, image: float, texture: float, scale: float) -> Pixels:
    """``image`` times the image plus ``texture`` times a random piece of a photograph of ice, scaled by ``scale``."""
    side = images.shape[1]

    def piece(rng: Generator) -> Pixels:
        whole = ice(int(rng.integers(len(_FROSTS))), scale)
        top, left = rng.integers(0, whole.shape[0] - side), rng.integers(0, whole.shape[1] - side)
        return whole[top : top + side, left : left + side]

    return image * images + texture * _drawn(rngs, piece)


def fog(images: Images, rngs: Rngs, strength: float, decay: float) -> Pixels:
    """``strength`` times a plasma fractal, added; the sum is scaled to the image's original maximum."""
    side = images.shape[1]
    x = images / 255
    most = x.max((1, 2, 3), keepdims=True)
    clouds = _plasma(rngs, 1 << (side - 1).bit_length(), decay)[:, :side, :side, None]
    return 255 * ((x + strength * clouds) * most / (most + strength))


def spatter(
    images: Images, rngs: Rngs, mean: float, std: float, blur: float, least: float, strength: float, mud: int
) -> Pixels:
    """Drops of water, or with ``mud`` of mud, where smoothed noise exceeds ``least``."""

    def spattered(image: Images, rng: Generator) -> Pixels:
        x = image.astype(np.float32) / 255
        liquid = gaussian_filter(rng.normal(mean, std, image.shape[:2]), blur, mode="nearest")
        liquid[liquid < least] = 0
        if mud:
            opacity = gaussian_filter((liquid > least).astype(np.float32), strength, mode="nearest")
            opacity[opacity < 0.8] = 0
            return 255 * (x * (1 - opacity[..., None]) + _MUD * opacity[..., None])
        shine = _shine((255 * liquid).astype(np.uint8))
        most = shine.max()
        # The published code divides by this maximum even if no drop fell, which makes the image black.
        return 255 * (x + _WATER * (shine / most * strength)[..., None]) if most > 0 else 255 * x

    return each(spattered, images, rngs)


def contrast(images: Images, rngs: Rngs, factor: float) -> Pixels:
    """Values scaled toward the mean of their channel."""
    x = images / 255
    mean = x.mean((1, 2), keepdims=True)
    return 255 * ((x - mean) * factor + mean)


def brightness(images: Images, rngs: Rngs, amount: float) -> Pixels:
    """``amount`` added to the value of HSV."""
    hsv = rgb2hsv(images / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + amount, 0, 1)
    return 255 * hsv2rgb(hsv)


def saturate(images: Images, rngs: Rngs, factor: float, amount: float) -> Pixels:
    """The saturation of HSV times ``factor`` plus ``amount``."""
    hsv = rgb2hsv(images / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + amount, 0, 1)
    return 255 * hsv2rgb(hsv)


def jpeg_compression(images: Images, rngs: Rngs, quality: int) -> Pixels:
    """Encoded as JPEG of this quality and decoded."""

    def compressed(image: Images, _: Generator) -> Pixels:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file))

    return each(compressed, images, rngs)


def pixelate(images: Images, rngs: Rngs, scale: float) -> Pixels:
    """Box-resized to ``scale`` of its side, and back."""
    side = images.shape[1]

    def coarse(image: Images, _: Generator) -> Pixels:
        small = Image.fromarray(image).resize((int(side * scale),) * 2, Image.Resampling.BOX)
        return np.asarray(small.resize((side, side), Image.Resampling.BOX))

    return each(coarse, images, rngs)


def elastic_transform(images: Images, rngs: Rngs, alpha: float, sigma: float, affine: float) -> Pixels:
    """A random affine map (three points move up to ``affine`` pixels), then smooth displacements.

    These are uniform noise of ``alpha`` pixels, smoothed with a Gaussian of ``sigma`` pixels.
    """
    side = images.shape[1]
    center, third = side // 2, side // 3
    points = np.array([[1, 1], [1, -1], [-1, -1]], np.float32) * third + center
    rows, columns = np.mgrid[:side, :side]

    def smooth(rng: Generator) -> Pixels:
        noise = gaussian_filter(rng.uniform(-1, 1, (side, side)), sigma, mode="reflect", truncate=3)
        return (noise * alpha).astype(np.float32)

    def warped(image: Images, rng: Generator) -> Pixels:
        moved = points + rng.uniform(-affine, affine, points.shape).astype(np.float32)
        matrix = cv2.getAffineTransform(points, moved)
        x = cv2.warpAffine(image.astype(np.float32) / 255, matrix, (side, side), borderMode=cv2.BORDER_REFLECT_101)
        dx, dy = smooth(rng), smooth(rng)
        where = [rows + dy, columns + dx]
        return 255 * np.stack([map_coordinates(x[..., c], where, order=1, mode="reflect") for c in range(3)], 2)

    return each(warped, images, rngs)


def _drawn(rngs: Rngs, draw: Callable[[Generator], Pixels]) -> Pixels:
    return np.stack([draw(rng) for rng in rngs])


def each(change: Callable[[Pixels, Generator], Pixels], images: Pixels, rngs: Rngs) -> Pixels:
    return np.stack([change(image, rng) for image, rng in zip(images, rngs, strict=True)])


def _gaussian(x: Pixels, sigma: float) -> Pixels:
    return gaussian_filter(x, (0, sigma, sigma, 0), mode="nearest", truncate=4)


def _gray(x: Pixels) -> Pixels:
    """float32 ``[N, S, S, 3]`` to ``[N, S, S, 1]``."""
    return cv2.cvtColor(x.reshape(-1, x.shape[2], 3), cv2.COLOR_RGB2GRAY).reshape(*x.shape[:3], 1)


def _glass(rngs: Rngs, side: int, reach: int) -> NDArray[np.int64]:
    """For each pixel the one whose value it has after one round, ``[N, side^2]``.

    The round goes through the inner pixels from the last to the first; each takes the value that a pixel up to
    ``reach`` away has at that moment.
    """
    inner = slice(reach + 1, side - reach + 1)
    steps = _drawn(rngs, lambda rng: rng.integers(-reach, reach, (side - 2 * reach,) * 2 + (2,)))
    own = np.arange(side * side).reshape(side, side)
    source = np.tile(own, (len(rngs), 1, 1))
    source[:, inner, inner] += (steps @ np.array([1, side]))[:, ::-1, ::-1]
    source = source.reshape(len(rngs), -1)
    # A pixel further on has had its turn: what it has is what its own source had. Follow to the first that had not.
    pending = source > own.ravel()
    while pending.any():
        further = np.take_along_axis(source, source, 1)
        pending, source = pending & np.take_along_axis(pending, source, 1), np.where(pending, further, source)
    return source


def _motion(image: Images, radius: int, sigma: float, angle: float) -> Pixels:
    """ImageMagick's motion blur of ``[S, S]`` or ``[S, S, 3]`` by ``angle`` degrees; truncation gives its 8 bits.

    The kernel is half a Gaussian of ``2 radius + 1`` pixels along a line, sampled at whole pixels; the edge repeats.
    """
    width = 2 * radius + 1
    taps = np.arange(width)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    along = np.deg2rad(angle)
    kernel = np.zeros((2 * width - 1,) * 2)
    down, right = (np.ceil(taps * part - 0.5).astype(int) + width - 1 for part in (np.sin(along), np.cos(along)))
    np.add.at(kernel, (down, right), weights / weights.sum())
    blurred = cv2.filter2D(image.astype(np.float64), -1, kernel, borderType=cv2.BORDER_REPLICATE)
    return blurred + 0.5 / 257  # it rounds to 16 bits first, in which 255 is 65535


def _zoomed(x: Pixels, factor: float) -> Pixels:
    """The center of ``[N, S, S, C]``, enlarged bilinearly by ``factor`` to the same size."""
    count, side, _, channels = x.shape
    part = int(np.ceil(side / factor))
    first = (side - part) // 2
    flat = x[:, first : first + part, first : first + part].transpose(1, 2, 0, 3).reshape(part, part, -1)
    large = zoom(flat, (factor, factor, 1), order=1)
    trim = (large.shape[0] - side) // 2
    return large[trim : trim + side, trim : trim + side].reshape(side, side, count, channels).transpose(2, 0, 1, 3)


@cache
def ice(number: int, scale: float) -> Pixels:
    """One of the photographs of ice that imagecorruptions ships, scaled: uint8 RGB ``[H, W, 3]``.

    Raises:
        ImportError: imagecorruptions is not installed.
    """
    package = find_spec("imagecorruptions")
    if package is None or package.origin is None:
        raise ImportError(f"the textures of frost come with imagecorruptions: {_extras.install('train')}")
    path = Path(package.origin).parent / "frost" / _FROSTS[number]
    picture = cv2.imread(str(path))
    if picture is None:
        raise OSError(f"{path}: not a readable image")
    return cv2.resize(picture, (0, 0), fx=scale, fy=scale)[..., ::-1]


def _plasma(rngs: Rngs, side: int, decay: float) -> Pixels:
    """Heights 0 to 1 by the diamond-square algorithm, edges meeting: ``[N, side, side]``, ``side`` a power of two."""
    heights = np.zeros((len(rngs), side, side))
    step, wobble = side, 100.0

    def near(total: Pixels) -> Pixels:
        return total / 4 + wobble * _drawn(rngs, lambda rng: rng.uniform(-wobble, wobble, total.shape[1:]))

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, 1)
        heights[:, half::step, half::step] = near(pairs + np.roll(pairs, -1, 2))
        centers = heights[:, half::step, half::step]
        beside = (centers + np.roll(centers, 1, 1)) + (corners + np.roll(corners, -1, 2))
        heights[:, ::step, half::step] = near(beside)
        above = (centers + np.roll(centers, 1, 2)) + (corners + np.roll(corners, -1, 1))
        heights[:, half::step, ::step] = near(above)
        step, wobble = half, wobble / decay
    heights -= heights.min((1, 2), keepdims=True)
    return heights / heights.max((1, 2), keepdims=True)


def _shine(liquid: Images) -> Pixels:
    """Light and shade of drops, ``[S, S]``, from their thickness."""
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    distance = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    distance = cv2.filter2D(distance, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    return liquid * cv2.blur(distance, (3, 3)).astype(np.float32)
