"""What calibration and perturbation sequences add to the results of an evaluation: content, facts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import scores
from .reported import PERTURBATION_SCORES, SOURCE_OF_PERTURBATION_SCORES
from .sequences import Perturbed
from .stability import mean_flip_rate, mean_top5_distance

KINDS = {"ece": "ECE", "rms": "RMS calibration error"}
"""The calibration errors, by their names in ``results.json``."""

Cells = tuple[Sequence[str], list[list[str]]]
"""Header and rows of a table."""


def calibration(count: scores.Count) -> dict[str, Any]:
    """The entry of a set of images; empty if the calibration was not measured."""
    found = count.calibration
    return {} if found is None else {"calibration": {"ece": found.ece, "rms": found.rms}}


def calibrations(counts: Mapping[str, Mapping[int, scores.Count]], **given: Any) -> dict[str, Any]:
    """The entry of a benchmark of corruptions: by corruption and severity, and the means that accuracies have too.

    Args:
        counts: By corruption and severity.
        given: As for :func:`.scores.corruption_accuracy`.
    """
    tables: dict[str, dict[str, dict[int, float]]] = {kind: {} for kind in KINDS}
    for corruption, row in counts.items():
        for severity, count in row.items():
            if count.calibration is None:
                return {}
            for kind in KINDS:
                tables[kind].setdefault(corruption, {})[severity] = getattr(count.calibration, kind)
    means = {kind: scores.corruption_accuracy(table, **given) for kind, table in tables.items()}
    return {"calibration": tables | {"mean": means}}


def mean_calibration(content: Mapping[str, Any], kind: str) -> float | None:
    """An error of a set in ``results.json``, over a benchmark of corruptions the mean; None: it was not measured."""
    found: Mapping[str, Any] = content.get("calibration", {})
    return found.get("mean", found).get(kind)


def ece_by_corruption(content: Mapping[str, Any]) -> dict[str, float]:
    """ECE of each corruption of a benchmark in ``results.json``, mean over its severities; empty: not measured."""
    table = content.get("calibration", {}).get("ece", {})
    return {corruption: sum(row.values()) / len(row) for corruption, row in table.items()}


def calibration_rows(sets: Mapping[str, Mapping[str, Any]]) -> Cells | None:
    """The table of calibration errors, in percent; None if none were measured.

    Args:
        sets: The sets of ``results.json``, by heading.
    """
    header, rows = [""], [[label] for label in KINDS.values()]
    for heading, content in sets.items():
        errors = [mean_calibration(content, kind) for kind in KINDS]
        for row, error in zip(rows, errors, strict=True):
            row += [] if error is None else [f"{100 * error:.2f}"]
        if None not in errors:
            header.append(f"{heading} mean" if "scores" in content else heading)
    return (header, rows) if len(header) > 1 else None


def stability(what: Perturbed, counts: Mapping[str, Mapping[int, scores.Stability]]) -> dict[str, Any]:
    """The entry of a benchmark of sequences."""
    measured = {name: found for name, row in counts.items() for found in row.values()}
    rates = {name: found.flip_rate for name, found in measured.items()}
    distances = {name: found.top5_distance for name, found in measured.items()}
    counted = [name for name in what.counted if name in measured]
    return {
        "folder": str(what.folder), "counted": list(what.counted), "missing": list(what.lacking),
        "stability": {
            name: {"sequences": found.sequences, "frames": found.frames, "flip_rate": found.flip_rate,
                   "top5_distance": found.top5_distance}
            for name, found in measured.items()
        },
        "mean": {kind: sum(getattr(measured[name], kind) for name in counted) / len(counted)
                 for kind in ("flip_rate", "top5_distance") if counted},
        "mfr": mean_flip_rate(rates, counted, what.reference) if counted else None,
        "mt5d": mean_top5_distance(distances, counted, what.reference_distances)
        if counted and what.reference_distances else None,
        "normalisation": "none" if what.reference is None else "alexnet",
    }  # fmt: skip


def facts(content: Mapping[str, Any], dataset: str | None) -> list[str]:
    """The conditions of the numbers of a benchmark of sequences; arguments as for :func:`stability_rows`."""
    numbers = {(found["sequences"], found["frames"]) for found in content["stability"].values()}
    sizes = [
        " to ".join(f"{size:,}" for size in sorted({min(column), max(column)})) for column in zip(*numbers, strict=True)
    ]
    out = [
        f"{sizes[0]} sequences per perturbation, of {sizes[1]} frames",
        "frames of noise are compared with the first frame of their sequence, others with the one before",
    ]
    if _has_reported(content, dataset):
        out.append(f'"reported" mFR and mT5D: {SOURCE_OF_PERTURBATION_SCORES}; not measured')
    return out


def stability_rows(content: Mapping[str, Any], dataset: str | None) -> Cells:
    """The table of a benchmark of sequences: flip rates in percent, and distances of the five best classes.

    Args:
        content: As made by :func:`stability`.
        dataset: As for :func:`.report.collect`; published numbers are of networks of all of ImageNet.
    """
    rows = [
        [name + ("" if name in content["counted"] else " (not counted)"), f"{100 * found['flip_rate']:.2f}",
         f"{found['top5_distance']:.3f}"]
        for name, found in content["stability"].items()
    ]  # fmt: skip
    mean = content["mean"]
    if mean:
        rows.append(["mean", f"{100 * mean['flip_rate']:.2f}", f"{mean['top5_distance']:.3f}"])
    if mean and content["normalisation"] != "none":
        scored = f"{content['mfr']:.2f}", f"{content['mt5d']:.2f}"
        rows.append([f"mFR and mT5D, normalization {content['normalisation']}", *scored])
    if _has_reported(content, dataset):
        rows += [
            [f"mFR and mT5D of {label}, reported", f"{mfr:.1f}", "-" if mt5d is None else f"{mt5d:.1f}"]
            for label, (mfr, mt5d) in PERTURBATION_SCORES.items()
        ]
    return ["perturbation", "flip rate, %", "top-5 distance"], rows


def _has_reported(content: Mapping[str, Any], dataset: str | None) -> bool:
    return dataset == "ImageNet" and content["normalisation"] == "alexnet"
