"""Figures of PRIME on photographs: each primitive alone, samples and strengths, and all of them as a PNG."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _arguments, arrays
from .._files import replacing
from ..config import PrimeConfig
from ..data.pictures import reading
from ..plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 3  # full PRIME samples of each photograph
FRACTIONS = (0.05, 0.1, 0.25, 0.5, 1.0)  # of a primitive's largest amplitude
ALPHAS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
_TRIES = 1000  # draws that show how strong a primitive can be
MAX_ROWS = 64  # photographs in a PNG
_CELL = 2.3  # inches
_MARK = "prime-dali gallery"  # in the PNG

Cell = tuple[NDArray[np.uint8], str]
"""An image, and a description of the parameters drawn for it."""
Column = tuple[str, list[Cell]]
"""A heading, and a cell for each photograph."""


def about(config: PrimeConfig, seed: int) -> str:
    """What is drawn, in a few words."""
    return f"mixing {config.mixing}, alpha {config.alpha:g}, seed {seed}"


def save_gallery(
    photos: list[NDArray[np.uint8]], config: PrimeConfig, path: Path, *, seed: int = 0, figure: str = "overview"
) -> None:
    """Write the gallery of ``photos`` as a PNG, one row per photograph.

    Args:
        photos: uint8 ``[H, W, 3]``, all of one size, at most 64.
        config: The distributions.
        path: Where to write; replaced only when the file is complete.
        seed: Seed of the draws; photograph ``i`` has index ``i``.
        figure: ``"overview"``: each primitive alone (one slot, no blend), and samples of PRIME. ``"strengths"``: each
            primitive at fractions of its largest amplitude. ``"alpha"``: one sample at several alphas. ``"pairs"``:
            before and after.

    Raises:
        ValueError: There is no such figure, or there are too many photographs.
    """
    if figure not in FIGURES:
        raise ValueError(_arguments.unknown("figure", figure, FIGURES))
    if len(photos) > MAX_ROWS:
        raise ValueError(f"photos: expected at most {MAX_ROWS} in a PNG, got {len(photos)}; --html has room for more")
    columns = [("original", [(photo, "") for photo in photos]), *FIGURES[figure](photos, config, seed)]
    picture, axes = _grid(len(photos), len(columns), extra=0.85)
    for column, (title, cells) in enumerate(columns):
        for row, (image, drawn) in enumerate(cells):
            axis = axes[row, column]
            axis.imshow(image)
            lines = [
                line for chain in drawn.splitlines() for line in textwrap.wrap(chain, 46, subsequent_indent="    ")
            ]
            axis.set_title("\n".join(lines), fontsize=5.5, loc="left", linespacing=1.1)
            if row == 0:
                axis.annotate(title, (0.5, 1.42), xycoords="axes fraction", ha="center", fontsize=9, weight="bold")
    _save(picture, path)


def save_batch(images: NDArray[np.uint8], path: Path, *, columns: int = 8) -> None:
    """Write a batch of uint8 images ``[N, H, W, 3]`` as a contact sheet."""
    rows = -(-len(images) // columns)
    figure, axes = _grid(rows, columns, extra=0.0)
    for axis, image in zip(axes.flat, images, strict=False):
        axis.imshow(image)
    _save(figure, path)


def alone(photos: list[NDArray[np.uint8]], config: PrimeConfig, seed: int) -> list[Column]:
    """Each primitive of ``config`` alone, one slot and no blend, as it is drawn."""
    return [
        (f"{name} alone", _applied(photos, _drawn(_alone(config, name), len(photos), photos[0], seed, view=number)))
        for number, name in enumerate(config.primitives)
    ]


def _alone(config: PrimeConfig, name: str) -> PrimeConfig:
    """The primitive ``name`` in one slot, without a blend."""
    return config.replace(primitives=(name,), mixing="none", include_identity=False, random_depth=False,
                          blend=None, depth=1)  # fmt: skip


def samples(photos: list[NDArray[np.uint8]], config: PrimeConfig, seed: int, count: int = SAMPLES) -> list[Column]:
    """Full PRIME, several times."""
    return [(f"PRIME, sample {view + 1}", _sampled(photos, config, seed, view=view)) for view in range(count)]


def severities(photos: list[NDArray[np.uint8]], config: PrimeConfig, seed: int, view: int = 0) -> list[Column]:
    """One sample of full PRIME, the same draws at each of :data:`ALPHAS`."""
    return [(f"alpha {alpha:g}", _sampled(photos, config.replace(alpha=alpha), seed, view)) for alpha in ALPHAS]


def strengths(photos: list[NDArray[np.uint8]], config: PrimeConfig, name: str, seed: int) -> list[Column]:
    """The primitive ``name`` at :data:`FRACTIONS` of its largest amplitude: the same coefficients, scaled."""
    plan = _drawn(_alone(config, name), len(photos), photos[0], seed)
    largest, plan.first[:], plan.last[:] = _largest(config, name, photos[0])
    columns = []
    for fraction in FRACTIONS:
        plan.strength[:] = fraction * largest
        columns.append((f"{name} {fraction:.0%}", _applied(photos, plan)))
    return columns


def _largest(config: PrimeConfig, name: str, photo: NDArray[np.uint8]) -> tuple[float, int, int]:
    """A slot with the largest amplitude that can be drawn (docs/METHOD.md): strength, first, last."""
    if name == "spectral":
        return config.alpha * config.spectral_std_max, 0, 0
    if name == "color":
        return config.alpha * math.sqrt(config.color_variance_max), 1, config.max_band
    if name == "spatial":
        cut = config.spatial_cut or min(5, config.spatial_cut_max)  # few modes show a displacement best
        height, width = photo.shape[:2]
        temperature = max(1 / (math.pi * height * width), 4 / (math.pi**3 * cut**2)) / math.log(cut)
        return config.alpha * math.sqrt(temperature), 0, cut
    many = _drawn(_alone(config, name), _TRIES, photo, seed=0)  # any other: the strongest of many draws
    i = many.strength.argmax()
    return float(many.strength.flat[i]), int(many.first.flat[i]), int(many.last.flat[i])


FIGURES: dict[str, Any] = {
    "overview": lambda photos, config, seed: alone(photos, config, seed) + samples(photos, config, seed),
    "strengths": lambda photos, config, seed: [
        column for name in config.primitives for column in strengths(photos, config, name, seed)
    ],
    "alpha": severities,
    "pairs": lambda photos, config, seed: samples(photos, config, seed, 1),
}  # columns beside the original


def _sampled(photos: list[NDArray[np.uint8]], config: PrimeConfig, seed: int, view: int) -> list[Cell]:
    return _applied(photos, _drawn(config, len(photos), photos[0], seed, view))


def _drawn(config: PrimeConfig, count: int, photo: NDArray[np.uint8], seed: int, view: int = 0) -> Plan:
    """A plan of the photographs 0 .. ``count``, of the size of ``photo``."""
    index = np.arange(count, dtype=np.int64)
    return arrays.sample(config, index, size=photo.shape[:2], seed=seed, epoch=0, view=view)


def _applied(photos: list[NDArray[np.uint8]], plan: Plan) -> list[Cell]:
    out = arrays.apply(np.stack(photos), plan, layout="NHWC")
    return [(image, plan.describe(i)) for i, image in enumerate(out)]


def _grid(rows: int, columns: int, extra: float) -> tuple[Figure, Any]:
    """A figure without windows: ``rows`` x ``columns`` bare axes, ``extra`` inches of title above each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    height = (_CELL + extra) * rows
    layout = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - 0.3 * extra / height))  # headings stand above the titles
    figure = Figure(figsize=(_CELL * columns, height), layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png", metadata={"Software": _MARK})


def is_gallery(path: Path) -> bool:
    """Whether :func:`save_gallery` or :func:`save_batch` wrote this PNG."""
    from PIL import Image

    with reading(path), Image.open(path) as image:
        return image.info.get("Software") == _MARK
