"""Which corruption a sample of PRIME resembles, by brightness, contrast and spectrum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ... import arrays
from ...config import PrimeConfig
from ...evaluation import corruptions
from ...evaluation.names import SEVERITIES
from . import captions
from .cells import Cell, Photo

SAMPLES = 100  # of PRIME, as in the paper
PAIRS = 3  # shown
_TINY = 1e-12  # added to powers, of intensities from 0 to 1


def pairs(photo: Photo, config: PrimeConfig, seed: int) -> list[Cell]:
    """Samples of PRIME, each followed by the corruption of the same photograph that it is nearest to.

    Of :data:`SAMPLES` samples those are taken whose distance is the smallest in proportion to that of the photograph
    itself to the same corruption; no corruption is taken twice.

    Raises:
        ValueError: The photograph does not have the size of a corruption benchmark.
        ImportError: A package of the corruption benchmarks is missing.
    """
    kinds = {side: kind for kind, side in corruptions.SIDES.items()}
    height, width = photo.image.shape[:2]
    if height != width or height not in kinds:
        raise ValueError(f"size: expected 32, 64 or 224, the sizes of corruption benchmarks, got {height}")
    names = [(name, severity) for name in corruptions.main_names(kinds[height], "c") for severity in SEVERITIES]
    kind, number = kinds[height], photo.number
    corrupted = np.stack([corruptions.one(kind, photo.image, *which, seed=seed, number=number) for which in names])
    plan = arrays.sample(
        config, np.full(SAMPLES, photo.number), size=(height, width), seed=seed, view=0, epoch=np.arange(SAMPLES)
    )
    augmented = arrays.apply(np.repeat(photo.image[None], SAMPLES, 0), plan, layout="NHWC")
    targets = features(corrupted)
    scale = targets.std(0) + _TINY
    nearest = distances(features(augmented) / scale, targets / scale)
    clean = distances(features(photo.image[None]) / scale, targets / scale)[0]
    which = nearest.argmin(1)
    best = nearest[np.arange(SAMPLES), which]
    cells: list[Cell] = []
    taken: set[str] = set()
    for sample in np.argsort(best / (clean[which] + _TINY)):
        name, severity = names[which[sample]]
        if name in taken:
            continue
        taken.add(name)
        apart = f"distance {best[sample]:.2f}\n(original: {clean[which[sample]]:.2f})"
        said = f"{name.replace('_', ' ')}\nseverity {severity}\n{apart}"
        cells.append(Cell("PRIME", augmented[sample], *captions.drawn(plan, int(sample))))
        cells.append(Cell("nearest corruption", corrupted[which[sample]], said, said))
        if len(taken) == PAIRS:
            break
    return cells


def features(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean and standard deviation of each channel, and the logarithm of the power in each octave of frequencies.

    Args:
        images: uint8 ``[N, S, S, 3]``.

    Returns:
        float64 ``[N, 6 + octaves]``; octaves of cycles per image side, from 1 to the Nyquist frequency, of the mean of
        the channels.
    """
    return np.stack([_features(image / 255) for image in images])  # one by one: as floats they are large


def _features(x: NDArray[np.float64]) -> NDArray[np.float64]:
    side = len(x)
    power = np.abs(np.fft.fft2(x.mean(2)) / side**2) ** 2
    frequency = np.fft.fftfreq(side, 1 / side)
    octave = np.floor(np.log2(np.maximum(np.hypot(frequency[:, None], frequency), 0.5)))
    spectrum = [power[octave == o].sum() for o in range(int(np.log2(side / 2)) + 1)]
    return np.concatenate([x.mean((0, 1)), x.std((0, 1)), np.log10(np.array(spectrum) + _TINY)])


def distances(of: NDArray[np.float64], to: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root mean square differences ``[N, M]`` of features ``[N, F]`` and ``[M, F]``."""
    return np.sqrt(np.square(of[:, None] - to).mean(2))
