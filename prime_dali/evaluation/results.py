"""Reading the entries of ``results.json``, also of those that earlier versions wrote; which numbers they may have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .._states import Each, Interval

CALIBRATION_ERRORS = {"ece": "ECE", "rms": "RMS calibration error"}
"""The calibration errors, by their names in ``results.json``."""

FRACTION = Interval(0, 1)
"""Accuracies, flip rates and calibration errors are fractions, not percent."""


def _known(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """The schema of a mapping that has some of these keys: earlier versions have fewer."""
    return lambda content: (
        {key: inner for key, inner in schema.items() if key in content} if isinstance(content, Mapping) else dict
    )


_IMAGES = _known({"images": int, "correct": int, "accuracy": FRACTION, "calibration": Each(FRACTION)})
_CORRUPTIONS = _known({
    "images": Each(Each(int)), "correct": Each(Each(int)), "accuracy": Each(Each(FRACTION)),
    "calibration": _known({"ece": Each(Each(FRACTION)), "rms": Each(Each(FRACTION)), "mean": Each(FRACTION)}),
    "scores": _known({"corruption_accuracy": FRACTION, "by_corruption": Each(FRACTION), "by_group": Each(FRACTION)}),
    "counted": [str], "missing": [str], "regenerated": bool,
})  # fmt: skip
_SEQUENCES = _known({"stability": Each({"flip_rate": FRACTION, "top5_distance": Interval(0, math.inf)})})


def _entry(content: Any) -> Any:
    """The schema of a set of any kind."""
    kinds = {"stability": _SEQUENCES, "scores": _CORRUPTIONS}
    kind = next((kinds[key] for key in kinds if isinstance(content, Mapping) and key in content), _IMAGES)
    return kind(content)


SETS = Each(_entry)
"""The schema of the entry ``sets``."""


def of_benchmark(content: Mapping[str, Any], otherwise: str) -> str:
    """What a benchmark of corruptions is called: as the record of its making says (``manifest.json``), if it has one.

    Args:
        content: Its entry in ``results.json``.
        otherwise: The name if there is no record, or none in it.
    """
    return str((content.get("manifest") or {}).get("benchmark", otherwise))


def normalization_of(content: Mapping[str, Any]) -> str:
    """Reference errors of a mean in ``results.json``; earlier versions wrote the key ``normalisation``.

    Args:
        content: Scores of a benchmark of corruptions, or the entry of one of sequences.
    """
    return str(content["normalization"] if "normalization" in content else content["normalisation"])


def mean_calibration(content: Mapping[str, Any], kind: str) -> float | None:
    """An error of a set in ``results.json``, over a benchmark of corruptions the mean; None: it was not measured."""
    found: Mapping[str, Any] = content.get("calibration", {})
    return found.get("mean", found).get(kind)


def ece_by_corruption(content: Mapping[str, Any]) -> dict[str, float]:
    """ECE of each corruption of a benchmark in ``results.json``, mean over its severities; empty: not measured."""
    table = content.get("calibration", {}).get("ece", {})
    return {corruption: sum(row.values()) / len(row) for corruption, row in table.items()}
