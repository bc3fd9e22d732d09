"""The modes of a displacement field that a grid of pixels can represent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def folded_std(cut: int, height: int, width: int) -> NDArray[np.float64]:
    """Standard deviations of the modes that a grid can represent, float64 ``[min(cut, H - 2), min(cut, W - 2)]``.

    Mode ``i`` of a field is, on a grid of ``N = side - 1`` intervals, mode ``r = i mod 2N`` if ``r < N``, minus mode
    ``2N - r`` if ``r > N``, and zero if ``r`` is 0 or N; independent Gaussians add their variances ``1 / (i^2 + j^2)``
    over the disc ``sqrt(i^2 + j^2) < cut + 1/2`` (docs/METHOD.md, "Folding").
    """

    def fold(side: int) -> tuple[NDArray[np.int64], int]:
        period = 2 * (side - 1)
        r = np.arange(1, cut + 1) % period
        return np.where(r > side - 1, period - r, r % (side - 1)), min(cut, side - 2)

    (rows, count_y), (columns, count_x) = fold(height), fold(width)
    i, j = np.arange(1.0, cut + 1)[:, None], np.arange(1.0, cut + 1)[None, :]
    square = i * i + j * j
    variance = np.where(square < (cut + 0.5) ** 2, 1 / square, 0)
    folded = np.zeros((height, width))
    np.add.at(folded, (rows[:, None], columns[None, :]), variance)
    return np.sqrt(folded[1 : count_y + 1, 1 : count_x + 1])
