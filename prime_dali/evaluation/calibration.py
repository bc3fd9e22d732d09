"""Calibration errors: how far a network's confidence is from its accuracy (docs/EVALUATION.md, "Calibration")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _arguments

ECE_BINS = 15
"""As in Guo et al. (ICML 2017)."""
RMS_BIN_SIZE = 100
"""Images per adaptive bin, as in Hendrycks et al. (ICLR 2019, "Deep Anomaly Detection with Outlier Exposure")."""


@dataclass(frozen=True)
class Calibration:
    """The calibration errors of a network on a set, in [0, 1]."""

    ece: float
    """:func:`expected_calibration_error`."""
    rms: float
    """:func:`rms_calibration_error`."""


def calibration(confidences: ArrayLike, correct: ArrayLike) -> Calibration:
    """Both errors, with their usual bins; arguments and errors as :func:`expected_calibration_error`."""
    return Calibration(expected_calibration_error(confidences, correct), rms_calibration_error(confidences, correct))


def expected_calibration_error(confidences: ArrayLike, correct: ArrayLike, bins: int = ECE_BINS) -> float:
    """``ECE = sum over m of |B_m| / N * |accuracy(B_m) - confidence(B_m)|`` (Guo et al., ICML 2017).

    Bin ``B_m`` holds the images whose confidence is in ``((m - 1) / bins, m / bins]``; the first one also holds 0.

    Args:
        confidences: ``[N]``, in [0, 1]: the largest softmax probability of each image.
        correct: ``[N]``, whether the class with this probability is the right one.
        bins: Number of bins of equal width.

    Returns:
        In [0, 1]; 0 is a perfectly calibrated network.

    Raises:
        ValueError: There are no images, the lengths differ, a confidence is outside [0, 1], or ``correct`` has values
            other than True, False, 1 and 0.

    >>> expected_calibration_error([0.875, 0.875, 0.5, 0.5], [True, True, True, False])  # (2 * 0.125 + 2 * 0) / 4
    0.0625
    """
    confidence, right = _checked(confidences, correct)
    _arguments.integer("bins", bins, 1, 10**6)
    inner = np.linspace(0, 1, bins + 1)[1:-1]
    number = np.searchsorted(inner, confidence, side="left")
    gaps = np.bincount(number, confidence, bins) - np.bincount(number, right, bins)
    return float(np.abs(gaps).sum() / len(confidence))


def rms_calibration_error(confidences: ArrayLike, correct: ArrayLike, size: int = RMS_BIN_SIZE) -> float:
    """``sqrt(sum over b of |B_b| / N * (accuracy(B_b) - confidence(B_b)) ** 2)``, over bins of ``size`` images each.

    The images are sorted by confidence; bins are filled in this order, and the last one also takes the rest that does
    not fill one (Nguyen and O'Connor, 2015; Hendrycks et al., ICLR 2019). The AugMix paper reports this error. The
    published code leaves out the last bin, that of the most confident images; the formula, and this function, do not.

    Args:
        confidences, correct: As for :func:`expected_calibration_error`, which also lists the errors.
        size: Images per bin; with fewer images there is one bin.

    Returns:
        In [0, 1].

    >>> rms_calibration_error([0.875, 0.875, 0.625, 0.625], [True, True, True, False], size=2)
    0.125
    """
    confidence, right = _checked(confidences, correct)
    _arguments.integer("size", size, 1, 2**31)
    order = np.argsort(confidence, kind="stable")
    starts = size * np.arange(max(len(confidence) // size, 1))
    images = np.diff(np.append(starts, len(confidence)))
    gaps = np.add.reduceat((confidence - right)[order], starts) / images
    return float(np.sqrt((images / len(confidence) * gaps**2).sum()))


def _checked(confidences: ArrayLike, correct: ArrayLike) -> tuple[NDArray[np.float64], NDArray[Any]]:
    confidence, right = np.asarray(confidences, np.float64), np.asarray(correct)
    if confidence.ndim != 1 or not len(confidence) or confidence.shape != right.shape:
        raise ValueError(
            f"confidences: expected [N], with as many answers in correct, "
            f"got {list(confidence.shape)} and {list(right.shape)}"
        )
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError(f"confidences: expected 0 to 1, got {confidence.min():g} to {confidence.max():g}")
    if right.dtype != bool and not np.isin(right, (0, 1)).all():  # such as predicted classes
        raise ValueError(f"correct: expected True or False for each image, got {right.dtype} with other values")
    return confidence, right.astype(bool)
