"""The corruptions of CIFAR-10-C-bar and ImageNet-C-bar (Mintun et al., NeurIPS 2021), for batches of square images.

The functions are called like those of :mod:`.distortions`; their one strength is that of the benchmark, 0 to 10. Names
are spelled like the published files. Lengths are fractions of the side, so each corruption works at any size.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates, rotate, zoom
from skimage.draw import line_aa

from .distortions import Images, Pixels, Rngs, each

_TURN = 2 * np.pi


def blue_noise_sample(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Pixels set to black where noise, stronger the higher its frequency, is under a threshold."""
    radius = _radius(images.shape[1])
    return each(lambda x, rng: x * (_colored(rng, radius) > 0.3 * strength - 2.5)[..., None], images, rngs)


def brownish_noise(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Noise added to each channel whose amplitude falls with the square of its frequency."""
    power = 1 / (_radius(images.shape[1]) ** 2 + 1)

    def noisy(x: Images, rng: Generator) -> Pixels:
        return x + 6.4 * strength * np.stack([_colored(rng, power) for _ in range(3)], 2)

    return each(noisy, images, rngs)


def single_frequency_greyscale(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """One plane wave, added."""
    rows, columns = np.mgrid[: images.shape[1], : images.shape[1]]

    def noisy(x: Images, rng: Generator) -> Pixels:
        first = rng.uniform(-np.pi, np.pi)
        second = rng.uniform(-abs(first), abs(first))
        across, down = np.array([first, second])[rng.permutation(2)]
        wave = np.sin(columns * across + rows * down + rng.uniform(0, _TURN))
        return x + 19.6 * strength * wave[..., None]

    return each(noisy, images, rngs)


def cocentric_sine_waves(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Rings with wavy edges around a point, added."""
    side = images.shape[1]
    rows, columns = np.mgrid[:side, :side]

    def noisy(x: Images, rng: Generator) -> Pixels:
        across, down = rng.uniform(0, side, 2)
        frequency = rng.uniform(0, 10)
        amplitude, width = rng.uniform(0, side / 10, 2)
        angle = np.arctan2(columns - across, rows - down) * frequency
        distance = np.sqrt((columns - across) ** 2 + (rows - down) ** 2) + np.sin(angle) * amplitude
        return x + 12.8 * strength * (distance % width / width - 0.5)[..., None]

    return each(noisy, images, rngs)


def plasma_noise(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Bands of color, wound by a few rounds of sines, mixed in."""
    side = images.shape[1]
    rows, columns = np.mgrid[:side, :side]
    intensity = 6.4 * strength

    def noisy(x: Images, rng: Generator) -> Pixels:
        time, rounds, sharpness = rng.uniform(0, 6 * np.pi), int(rng.integers(4, 7)), rng.uniform(0.5, 1)
        scale = rng.uniform(0.075, 0.2) * side
        across, down = columns / scale, rows / scale
        frequency, slowness, damping = 1.0, 1.0, 1.0
        for _ in range(rounds):
            right = np.cos(down * frequency + time / slowness) / damping
            below = np.sin(across * frequency + time / slowness) / damping
            across, down = across + right - 0.3 * below, down + below + 0.3 * right
            frequency, slowness, damping = 1.93 * frequency, 1.15 * slowness, (2.25 - sharpness) * damping
        red, blue = np.sin(across - time), np.sin(down + time)
        green = np.sin((across + down + np.sin(time)) * 0.5)
        return (1 - intensity / 255) * x + intensity * np.stack([red, green, blue], 2)

    return each(noisy, images, rngs)


def perlin_noise(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Perlin turbulence of five octaves, mixed in."""
    side = images.shape[1]
    at = np.mgrid[:side, :side] / (side / 7)

    def noisy(x: Images, rng: Generator) -> Pixels:
        gradients = rng.integers(0, 2**31, (514, 2)) % 512 - 256
        gradients = gradients / np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1)
        order = np.arange(256)
        for i, other in zip(range(255, -1, -1), rng.integers(0, 2**31, 256) % 256, strict=True):
            order[i], order[other] = order[other], order[i]
        turbulence = sum(np.abs(_perlin(at * f, order, gradients[:256])) / f for f in (1, 2, 4, 8, 16))
        noise = np.clip(0.5 * turbulence + 0.5, 0, 1)[..., None]
        return (1 - 0.05 * strength) * x + 255 * 0.05 * strength * noise

    return each(noisy, images, rngs)


def sparkles(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Five white stars."""
    side = images.shape[1]
    radius = 0.01 * strength * side

    def starry(image: Images, rng: Generator) -> Pixels:
        centers, rays = rng.uniform(0, side, (5, 2)), rng.integers(50, 200, 5)
        x = image.astype(float)
        for center, count in zip(centers, rays, strict=True):
            lengths = np.maximum(1, radius + 0.25 * radius * rng.standard_normal(count))
            x += _star(side, center, lengths, 1.0) * (255 - x)
        return x

    return each(starry, images, rngs)


def inverse_sparkles(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """White all around one star-shaped window."""
    side = images.shape[1]
    radius = 0.25 * side

    def framed(x: Images, rng: Generator) -> Pixels:
        center, count = rng.uniform(0.25, 0.75, 2) * side, int(rng.integers(50, 200))
        lengths = radius + 0.25 * radius * rng.standard_normal(count)
        return 255 + _star(side, center, lengths, 0.13 * strength) * (x.astype(float) - 255)

    return each(framed, images, rngs)


def checkerboard_cutout(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Gray squares, some of one color of a turned checkerboard."""
    side = images.shape[1]
    rows, columns = np.mgrid[:side, :side]

    def cut(x: Images, rng: Generator) -> Pixels:
        angle, scale = rng.uniform(0, _TURN), max(rng.uniform(0.1, 0.25) * side, 1)
        gray = rng.uniform(size=(int(4 * side // scale),) * 2) < strength / 10
        u = (np.cos(angle) * rows + np.sin(angle) * columns) / scale
        v = (-np.sin(angle) * rows + np.cos(angle) * columns) / scale
        same = (u % 2).astype(int) == (v % 2).astype(int)
        return np.where((same & gray[u.astype(int), v.astype(int)])[..., None], 128, x)

    return each(cut, images, rngs)


def lines(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Gray antialiased lines, as many as a tenth of ``strength`` times the side."""
    side = images.shape[1]

    def drawn(image: Images, rng: Generator) -> Pixels:
        x = image.copy()
        angle, variation = rng.uniform(0, _TURN), rng.uniform(0.1, 1)
        for _ in range(int(strength / 10 * side)):
            row, column = side * rng.uniform(), side * rng.uniform()
            turned = angle + _TURN * variation * (rng.uniform() - 0.5)
            down, right = np.cos(turned) * side, np.sin(turned) * side
            rows, columns, cover = line_aa(int(row - down), int(column - right), int(row + down), int(column + right))
            inside = (rows >= 0) & (columns >= 0) & (rows < side) & (columns < side)
            at, part = (rows[inside], columns[inside]), cover[inside][:, None]
            x[at] = ((1 - part) * x[at].astype(np.float32) + part * 128).astype(np.uint8)
        return x

    return each(drawn, images, rngs)


def ripple(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Rows and columns displaced by a sine each."""
    side = images.shape[1]
    at = np.arange(side)

    def waved(x: Images, rng: Generator) -> Pixels:
        lengths, phases = rng.uniform(0.1, 0.3, 2) * side, rng.uniform(0, _TURN, 2)
        rows, columns = (
            at + 0.0025 * strength * side * np.sin(_TURN * at / length + phase)
            for length, phase in zip(lengths, phases, strict=True)
        )
        return _sample(x, *np.meshgrid(rows, columns, indexing="ij"))

    return each(waved, images, rngs)


def pinch_and_twirl(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Cells of the image, 3 x 3 at 32 pixels and 5 x 5 at 224, pinched and turned around their centers."""
    side = images.shape[1]
    cells = 5 if side == 224 else 3
    size = side // cells
    radius, amount = size / 2, 0.04 * strength + 0.1
    dy, dx = np.mgrid[:size, :size] - radius
    distance = np.hypot(dy, dx)
    moves = (distance <= radius) & (np.round(distance, 3) > 0)
    part = np.where(moves, distance / radius, 1)  # of the radius; 1: stays
    pinch = np.sin(np.pi / 2 * part) ** -amount

    def twirled(image: Images, rng: Generator) -> Pixels:
        x = image.astype(np.float32)
        turns = rng.choice((1, -1), cells**2) * (strength * np.pi / 20)
        for cell, turn in enumerate(turns):
            left, top = cell // cells * size, cell % cells * size
            angle = turn * (1 - part) ** 2
            rows = top + radius + pinch * (dy * np.cos(angle) - dx * np.sin(angle))
            columns = left + radius + pinch * (dy * np.sin(angle) + dx * np.cos(angle))
            x[top : top + size, left : left + size] = _sample(x, rows, columns)
        return x

    return each(twirled, images, rngs)


def circular_motion_blur(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """The weighted mean of 21 rotations around the center, up to 1.5 ``strength`` degrees either way."""
    steps = np.linspace(-1, 1, 21)
    weights = np.exp(-2 * steps**2)

    def blurred(x: Images, _: Generator) -> Pixels:
        unit = x.astype(np.float32) / 255
        turned = (w * rotate(unit, 1.5 * strength * t, reshape=False) for t, w in zip(steps, weights, strict=True))
        return 255 * sum(turned) / weights.sum()

    return each(blurred, images, rngs)


def transverse_chromatic_abberation(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """The three channels enlarged by different factors, in random order."""
    side = images.shape[1]
    factors = 1 + 0.05 * strength * np.array([0, 0.5, 1])

    def fringed(x: Images, rng: Generator) -> Pixels:
        out = np.empty_like(x)
        for channel, factor in enumerate(factors[rng.permutation(3)]):
            large = zoom(x[..., channel], factor, prefilter=False)
            edge = (large.shape[0] - side) // 2
            out[..., channel] = large[edge : edge + side, edge : edge + side]
        return out

    return each(fringed, images, rngs)


def caustic_refraction(images: Images, rngs: Rngs, strength: float) -> Pixels:
    """Light bent by rippled water: each pixel shows what lies where its ray meets the ground."""
    side = images.shape[1]
    at = np.mgrid[:side, :side]

    def refracted(x: Images, rng: Generator) -> Pixels:
        time, size = rng.uniform(0.5, 2), rng.uniform(0.75, 1.25) * side
        surface = np.pad(gaussian_filter(_caustics(at / size, time), 1), 1)
        slope_down, slope_right = surface[2:, 1:-1] - surface[:-2, 1:-1], surface[1:-1, 2:] - surface[1:-1, :-2]
        slope = np.hypot(slope_down, slope_right)
        cosine = 1 / np.hypot(slope, 1)
        # Snell's law, refractive index 4; the ray is vertical, and is not refracted where the surface is flat.
        out = np.arcsin(np.sqrt(1 - cosine**2) / 4)
        flat = cosine >= 1 - 1e-3
        bend = cosine * (np.cos(out) - np.sin(out) / np.where(flat, 1, slope))
        shift = np.where(flat, 0, bend * 0.05 * strength * side)
        down, right = np.round(shift * slope_down, 3), np.round(shift * slope_right, 3)
        lit = 0.2 * strength * (slope_down - slope_right)
        unit = x.astype(np.float32) / 255
        return 255 * np.clip(_sample(unit, at[0] + down, at[1] + right) + lit[..., None], 0, 1)

    return each(refracted, images, rngs)


def _radius(side: int) -> Pixels:
    """Distance of each frequency from zero, which is in the middle, ``[side, side]``."""
    at = np.arange(side) - side / 2
    return np.hypot(*np.meshgrid(at, at))


def _colored(rng: Generator, power: Pixels) -> Pixels:
    """Noise of standard deviation 1, ``[S, S]`` (S even), with these amplitudes and random phases."""
    side = len(power)
    phases = rng.uniform(0, _TURN, (side, side // 2))
    spectrum = power * np.exp(1j * np.concatenate([phases, phases[::-1, ::-1]], 1))
    noise = np.fft.ifft2(np.roll(spectrum, side // 2, (0, 1))).real
    return noise / noise.std()


def _perlin(at: Pixels, order: NDArray[np.int64], gradients: Pixels) -> Pixels:
    """Perlin's gradient noise at the points ``[2, S, S]``, times 1.5."""
    cell = np.floor(at).astype(int)
    near = at - cell
    corner = [[order[(order[(cell[0] + i) % 256] + cell[1] + j) % 256] for j in (0, 1)] for i in (0, 1)]
    values = [
        [(near[0] - i) * gradients[corner[i][j], 0] + (near[1] - j) * gradients[corner[i][j], 1] for j in (0, 1)]
        for i in (0, 1)
    ]
    smooth = near**2 * (3 - 2 * near)
    first, second = (values[0][j] + smooth[0] * (values[1][j] - values[0][j]) for j in (0, 1))
    return 1.5 * (first + smooth[1] * (second - first))


def _star(side: int, center: Pixels, lengths: Pixels, sharpness: float) -> Pixels:
    """Brightness from 0 to 1 around ``center`` (row, column), rays of these lengths all around, ``[side, side, 1]``."""
    dy, dx = np.mgrid[:side, :side] - center[:, None, None]
    ray = (np.arctan2(dx, dy) + np.pi) / _TURN * len(lengths)
    whole = ray.astype(int)
    part = ray - whole
    before, after = lengths[whole % len(lengths)], lengths[(whole + 1) % len(lengths)]
    glow = ((before + part * (after - before)) ** 2 / (dy**2 + dx**2 + 1e-4)) ** sharpness
    return np.clip((1 - (part - 0.5) ** 2) * glow, 0, 1)[..., None]


def _sample(x: Pixels, rows: Pixels, columns: Pixels) -> Pixels:
    """``x``, ``[S, S, 3]``, at these places, bilinear, black outside."""
    at = np.stack([rows, columns])
    return np.stack([map_coordinates(x[..., c].astype(float), at, order=1, mode="grid-constant") for c in range(3)], -1)


def _caustics(at: Pixels, time: float) -> Pixels:
    """Light on the ground under water, 0 to 1, at the points ``[2, S, S]`` of a unit tile."""
    p = at % 1 * 6.28318530718 - 250
    i, light = p, 1.0
    for n in range(5):
        t = time * (1 - 3.5 / (n + 1))
        i = p + np.stack([np.cos(t - i[0]) + np.sin(t + i[1]), np.sin(t - i[1]) + np.cos(t + i[0])])
        light = light + 1 / np.hypot(p[0] / (np.sin(i[0] + t) / 0.005), p[1] / (np.cos(i[1] + t) / 0.005))
    return np.clip(np.abs(1.17 - (light / 5) ** 1.4) ** 8, 0, 1)
