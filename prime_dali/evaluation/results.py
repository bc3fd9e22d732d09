"""Reading the entries of ``results.json``, also of those that earlier versions wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CALIBRATION_ERRORS = {"ece": "ECE", "rms": "RMS calibration error"}
"""The calibration errors, by their names in ``results.json``."""


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
