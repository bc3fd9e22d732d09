"""What the gallery shows of a photograph: each primitive alone, samples of PRIME, and scales of strengths."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import arrays
from ...config import PrimeConfig
from ...plan import Plan
from . import captions

SAMPLES = 3  # full PRIME samples of each photograph
FRACTIONS = (0.05, 0.1, 0.25, 0.5, 1.0)  # of a primitive's largest amplitude
ALPHAS = (0.1, 0.25, 0.5, 1.0, 2.0)
_TRIES = 1000  # draws that show how strong a primitive can be
STEPS = 5  # of smoothness, in the figures of one primitive
_WAVES = "waves"  # the stage after the mix, among the names of primitives


class Photo(NamedTuple):
    """A photograph to augment."""

    name: str
    image: NDArray[np.uint8]
    """``[H, W, 3]``."""
    number: int
    """The index of its draws."""


class Cell(NamedTuple):
    """An image and its words."""

    heading: str
    image: NDArray[np.uint8]
    words: str = ""
    """What was drawn, for a caption."""
    whole: str = ""
    """What was drawn, with all parameters."""


class Row(NamedTuple):
    """Images side by side."""

    heading: str
    """What they have in common; may be empty."""
    cells: list[Cell]


def percent(fraction: float) -> str:
    """A fraction as ``25 %``."""
    return f"{fraction:.0%}".replace("%", " %")


def original(photo: Photo) -> Cell:
    """The photograph itself, with its name."""
    return Cell("original", photo.image, photo.name, photo.name)


def parts(config: PrimeConfig) -> tuple[str, ...]:
    """What can be shown alone: the primitives, and the waves after the mix if there are any."""
    return (*config.primitives, _WAVES) if config.wave_strength else config.primitives


def alone(photo: Photo, config: PrimeConfig, seed: int) -> list[Cell]:
    """Each part of ``config`` alone, of primitives one slot and no blend, as it is drawn."""
    return [
        _cell(f"{name} alone", photo, _drawn(photo, _alone(config, name), seed, view))
        for view, name in enumerate(parts(config))
    ]


def samples(photo: Photo, config: PrimeConfig, seed: int, count: int = SAMPLES) -> list[Cell]:
    """Full PRIME, several times."""
    return [_cell(f"PRIME, sample {view + 1}", photo, _drawn(photo, config, seed, view)) for view in range(count)]


def alphas(photo: Photo, config: PrimeConfig, seed: int, view: int = 0) -> list[Cell]:
    """One sample of full PRIME, the same draws at each of :data:`ALPHAS`."""
    return [
        _cell(f"alpha {alpha:g}", photo, _drawn(photo, config.replace(alpha=alpha), seed, view)) for alpha in ALPHAS
    ]


def strengths(photo: Photo, config: PrimeConfig, name: str, seed: int) -> list[Cell]:
    """The primitive ``name`` at :data:`FRACTIONS` of its largest amplitude: the same coefficients, scaled."""
    return _scaled(photo, _alone(config, name), seed, _largest(config, name, photo.image))


def smoothness(photo: Photo, config: PrimeConfig, name: str, seed: int) -> list[Row]:
    """Strength, left to right, by smoothness, top to bottom: the figures of the paper's appendix on implementation.

    Each row has :data:`FRACTIONS` of the largest amplitude at its smoothness: the side of the spectral filter, or the
    cutoff frequency of the displacement or of the color map (with the preset's number of frequencies below it).
    """
    rows, own = [], _alone(config, name)
    if name == "spectral":
        for side in range(3, 2 * STEPS + 2, 2):
            largest = _largest(config, name, photo.image)
            cells = _scaled(photo, own.replace(spectral_size=side), seed, largest)
            rows.append(Row(f"filter of {side} x {side}", [original(photo), *cells]))
        return rows
    highest = config.spatial_cut_max if name == "spatial" else config.color_cut_max
    for cut in sorted({round(cut) for cut in np.geomspace(2, highest, STEPS)}):
        if name == "spatial":
            largest = _largest_shift(config, cut, photo.image)
        else:
            first = 1 if config.color_band is None else max(1, cut + 1 - config.color_band)
            largest = Strongest(_largest(config, name, photo.image).strength, first, cut)
        rows.append(Row(f"cutoff frequency {cut}", [original(photo), *_scaled(photo, own, seed, largest)]))
    return rows


class Strongest(NamedTuple):
    """A slot with the largest amplitude that can be drawn."""

    strength: float
    first: int = 0
    last: int = 0


def _alone(config: PrimeConfig, name: str) -> PrimeConfig:
    """The primitive ``name`` in one slot, without a blend; or the waves."""
    waves = config.wave_strength if name == _WAVES else 0.0
    names = () if name == _WAVES else (name,)
    return config.replace(primitives=names, mixing="none", include_identity=False, random_depth=False,
                          blend=None, depth=1, wave_strength=waves)  # fmt: skip


def _scaled(photo: Photo, config: PrimeConfig, seed: int, largest: Strongest) -> list[Cell]:
    """A slot's coefficients at :data:`FRACTIONS` of an amplitude."""
    plan = _drawn(photo, config, seed)
    cells = []
    for fraction in FRACTIONS:
        plan = _with(plan, largest._replace(strength=fraction * largest.strength))
        cells.append(_cell(percent(fraction), photo, plan))
    return cells


def _with(plan: Plan, slot: Strongest) -> Plan:
    """A plan of one slot per image with other numbers, and with room for its frequencies."""
    out = Plan(
        plan.rows.copy(), plan.size, plan.chains, plan.depth, plan.filter_size,
        max_cut=max(plan.max_cut, slot.last) if plan.max_cut else 0,
        max_band=max(plan.max_band, slot.last - slot.first + 1) if plan.max_band else 0,
    )  # fmt: skip
    out.strength[:], out.first[:], out.last[:] = slot
    return out


def _largest(config: PrimeConfig, name: str, image: NDArray[np.uint8]) -> Strongest:
    """The strongest slot that can be drawn (docs/METHOD.md)."""
    if name == "spectral":
        return Strongest(config.alpha * config.spectral_std_max)
    if name == "color":
        return Strongest(config.alpha * math.sqrt(config.color_variance_max), 1, config.max_band)
    if name == "spatial":  # few modes show a displacement best
        return _largest_shift(config, config.spatial_cut or min(5, config.spatial_cut_max), image)
    # Of any other primitive, the strongest of many draws.
    many = arrays.sample(_alone(config, name), np.arange(_TRIES), size=image.shape[:2], seed=0, epoch=0, view=0)
    i = many.strength.argmax()
    return Strongest(float(many.strength.flat[i]), int(many.first.flat[i]), int(many.last.flat[i]))


def _largest_shift(config: PrimeConfig, cut: int, image: NDArray[np.uint8]) -> Strongest:
    height, width = image.shape[:2]
    temperature = max(1 / (math.pi * height * width), 4 / (math.pi**3 * cut**2)) / math.log(cut)
    return Strongest(config.alpha * math.sqrt(temperature), 0, cut)


def _drawn(photo: Photo, config: PrimeConfig, seed: int, view: int = 0) -> Plan:
    """The plan of a photograph."""
    index = np.array([photo.number], np.int64)
    return arrays.sample(config, index, size=photo.image.shape[:2], seed=seed, epoch=0, view=view)


def _cell(heading: str, photo: Photo, plan: Plan) -> Cell:
    image = arrays.apply(photo.image[None], plan, layout="NHWC")[0]
    return Cell(heading, image, *captions.drawn(plan, 0))
