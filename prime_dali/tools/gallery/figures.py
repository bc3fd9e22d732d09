"""Figures of the gallery, each a sheet with captions, a title and a legend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import _arguments
from ...config import PRIMITIVES, PrimeConfig
from . import captions
from .captions import Meaning
from .cells import STEPS, Cell, Photo, Row, alone, alphas, original, parts, samples, smoothness, strengths
from .sheet import Sheet

MAX_ROWS = 64
_PAIRS = 3  # before and after, in a row
_COLUMNS = 8  # of a contact sheet

Progress = Callable[[list[Photo]], Iterable[Photo]]


@dataclass(frozen=True)
class Figure:
    """A choice of ``--figure``."""

    rows: Callable[[Iterable[Photo], PrimeConfig, int], Iterator[Row]]
    rows_per_photo: float = 1
    shows: tuple[str, ...] | None = None
    """The primitives in it; None: those of the configuration."""
    mixed: bool = False
    """Whether it shows mixtures."""
    about: str = ""
    """Of the figure, a sentence for its foot."""


def _overview(photos: Iterable[Photo], config: PrimeConfig, seed: int) -> Iterator[Row]:
    for photo in photos:
        yield Row("", [original(photo), *alone(photo, config, seed), *samples(photo, config, seed)])


def _strengths(photos: Iterable[Photo], config: PrimeConfig, seed: int) -> Iterator[Row]:
    for photo in photos:
        for name in config.primitives:
            yield Row(name, [original(photo), *strengths(photo, config, name, seed)])


def _alpha(photos: Iterable[Photo], config: PrimeConfig, seed: int) -> Iterator[Row]:
    for photo in photos:
        yield Row("", [original(photo), *alphas(photo, config, seed)])


def _pairs(photos: Iterable[Photo], config: PrimeConfig, seed: int) -> Iterator[Row]:
    cells: list[Cell] = []
    for photo in photos:
        cells += [original(photo), *samples(photo, config, seed, 1)]
        if len(cells) == 2 * _PAIRS:
            yield Row("", cells)
            cells = []
    if cells:
        yield Row("", cells)


def _nearest(photos: Iterable[Photo], config: PrimeConfig, seed: int) -> Iterator[Row]:
    from . import nearest

    for photo in photos:
        yield Row("", [original(photo), *nearest.pairs(photo, config, seed)])


def _smoothness(name: str) -> Figure:
    def rows(photos: Iterable[Photo], config: PrimeConfig, seed: int) -> Iterator[Row]:
        for photo in photos:
            yield from smoothness(photo, config, name, seed)

    return Figure(rows, STEPS, (name,), about="The same coefficients, scaled: the percentage is of "
                  "the largest amplitude at this smoothness.")  # fmt: skip


FIGURES: dict[str, Figure] = {
    "overview": Figure(_overview, mixed=True),
    "strengths": Figure(
        _strengths, len(PRIMITIVES), about="The same coefficients, scaled: the percentage is of "
        "the primitive's largest amplitude.",
    ),
    "alpha": Figure(_alpha, mixed=True, about="The same draws, scaled: alpha scales every amplitude."),
    "pairs": Figure(_pairs, 1 / _PAIRS, mixed=True),
    "nearest": Figure(
        _nearest, mixed=True, about="Each sample of PRIME stands beside the corruption of the same photograph that it "
        "is nearest to, of the 15 of ImageNet-C or CIFAR-10-C at 5 severities. Distance: root mean square difference "
        "in brightness, contrast and spectrum (mean and standard deviation of each channel, power in each octave of "
        "spatial frequencies), in standard deviations over these 75 images. Shown are those of 100 samples that come "
        "nearest in proportion to the original's distance.",
    ),
    **{f"{name}-grid": _smoothness(name) for name in ("spectral", "spatial", "color")},
}  # fmt: skip


def save_gallery(
    photos: dict[str, NDArray[np.uint8]], config: PrimeConfig, path: Path, *, seed: int = 0, figure: str = "overview",
    progress: Progress = iter,
) -> None:  # fmt: skip
    """Write the gallery of ``photos`` as a PNG or JPEG: captions, a title and a legend say what is shown.

    Args:
        photos: uint8 ``[H, W, 3]``, all of one size, by name; of paths, the folders are shown only where files of
            one name would look alike.
        config: The distributions.
        path: Where to write, by suffix; replaced only when the file is complete.
        seed: Seed of the draws; photograph ``i`` has index ``i``.
        figure: ``"overview"``: each primitive alone (one slot, no blend), and samples of PRIME. ``"strengths"``: each
            primitive at fractions of its largest amplitude. ``"alpha"``: one sample at several alphas. ``"pairs"``:
            before and after. ``"nearest"``: samples of PRIME beside the corruptions that they are nearest to.
            ``"spectral-grid"``, ``"spatial-grid"``, ``"color-grid"``: strength by smoothness.
        progress: Wraps the photographs, as :func:`._progress.over`.

    Raises:
        ValueError: There is no such figure, there are too many photographs, or they do not have the size that
            ``"nearest"`` needs.
        ImportError: ``"nearest"`` needs the packages of the corruption benchmarks.
    """
    _arguments.one_of("figure", figure, FIGURES)
    chosen = FIGURES[figure]
    most = int(MAX_ROWS / chosen.rows_per_photo)
    if len(photos) > most:
        raise ValueError(f"photos: expected at most {most} in one figure, got {len(photos)}; see --limit and --html")
    height, width = next(iter(photos.values())).shape[:2]
    sheet = Sheet((height, width))
    sheet.title("PRIME data augmentation", f"{captions.about(config, seed)}, images of {width} x {height} pixels")
    names = list(photos)
    files = [name.rpartition("/")[2] for name in names]
    short = files if len(set(files)) == len(files) else names
    numbered = [Photo(*each, index) for index, each in enumerate(zip(short, photos.values(), strict=True))]
    for row in chosen.rows(progress(numbered), config, seed):
        sheet.row(row.heading, row.cells)
    legend = captions.legend(chosen.shows or parts(config), mixed=chosen.mixed)
    sheet.legend([*legend, Meaning("figure", chosen.about)] if chosen.about else legend)
    sheet.save(path)


def save_batch(images: NDArray[np.uint8], path: Path) -> None:
    """Write a batch of uint8 images ``[N, H, W, 3]`` as a contact sheet."""
    sheet = Sheet(images.shape[1:3])
    for start in range(0, len(images), _COLUMNS):
        sheet.row("", [Cell("", image) for image in images[start : start + _COLUMNS]])
    sheet.save(path)
