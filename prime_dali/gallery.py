"""Pictures of what PRIME does: each photograph as it is, under each primitive alone, and under full PRIME."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import arrays
from ._files import replacing
from .config import PrimeConfig
from .plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 3  # full PRIME samples of each photograph
_CELL = 2.3  # inches


def save_gallery(photos: list[NDArray[np.uint8]], config: PrimeConfig, path: Path, *, seed: int = 0) -> None:
    """Write the gallery of ``photos`` as a PNG.

    Args:
        photos: uint8 ``[H, W, 3]``, all of one size.
        config: The distributions. Each of its primitives is shown alone, one slot and no blend; then the whole.
        path: Where to write; replaced only when the picture is complete.
        seed: Names the draws: photograph ``i`` has index ``i``.
    """
    columns = [("original", [(photo, "") for photo in photos])]
    for number, name in enumerate(config.primitives):
        alone = config.replace(primitives=(name,), mixing="none", include_identity=False, random_depth=False,
                               blend=None, depth=1)  # fmt: skip
        columns.append((f"{name} alone", _augmented(photos, alone, seed, view=number)))
    columns += [(f"PRIME, sample {view + 1}", _augmented(photos, config, seed, view=view)) for view in range(SAMPLES)]

    figure, axes = _grid(len(photos), len(columns), extra=0.85)
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
    _save(figure, path)


def save_batch(images: NDArray[np.uint8], path: Path, *, columns: int = 8) -> None:
    """Write a batch of uint8 images ``[N, H, W, 3]`` as a contact sheet."""
    rows = -(-len(images) // columns)
    figure, axes = _grid(rows, columns, extra=0.0)
    for axis, image in zip(axes.flat, images, strict=False):
        axis.imshow(image)
    _save(figure, path)


def _augmented(
    photos: list[NDArray[np.uint8]], config: PrimeConfig, seed: int, view: int
) -> list[tuple[NDArray[np.uint8], str]]:
    """Each photograph augmented, and in words what was drawn for it."""
    batch = np.stack(photos)
    index = np.arange(len(photos), dtype=np.int64)
    plan: Plan = arrays.sample(config, index, size=batch.shape[1:3], seed=seed, epoch=0, view=view)
    out = arrays.apply(batch, plan, layout="NHWC")
    return [(out[i], plan.describe(i)) for i in range(len(photos))]


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
        figure.savefig(temporary, dpi=130)
