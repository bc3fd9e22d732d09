"""The results of an evaluation: the content of ``results.json``, and the files that are written."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import torchvision

from .. import __version__, _tables
from .._files import write_texts
from .._states import Kind
from ..models import networks
from . import benchmarks, image_sets, scores, sequences
from .report_tables import draw, markdown
from .results import CALIBRATION_ERRORS, SETS
from .stability import mean_flip_rate, mean_top5_distance

FORMAT, VERSION = "prime-dali-results", 1

_REFERENCE = Kind({"sets": SETS}, "results of prime-dali evaluate", "evaluate that network again")

Set = image_sets.ImageSet | benchmarks.Corrupted[Any] | sequences.Perturbed
Sets = Mapping[str, Set]
"""By name: ``"clean"`` and the names of the options."""


@dataclass(frozen=True)
class Reference:
    """A network with standard training, as ``results.json`` has it."""

    path: Path
    source: str
    """Where its weights came from."""
    accuracies: scores.Accuracies
    images: Mapping[str, Mapping[str, int]]
    missing: tuple[str, ...]
    fingerprints: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    """Of the images, by corruption and severity; earlier versions recorded none."""

    def lacks(self, scored: Sequence[str], missing: Sequence[str]) -> list[str]:
        """Descriptions of what it was not evaluated on, of the corruptions ``scored``; but for what is missing here
        too, such as classes."""
        without = scores.missing(self.accuracies, scores.CORRUPTIONS)
        parts = [part for part in self.missing if part not in without and part not in missing]
        return scores.missing(self.accuracies, scored) + parts


@dataclass(frozen=True)
class Rule:
    """How a benchmark of corruptions is scored."""

    normalization: str
    reference: Reference | None = None
    missing: tuple[str, ...] = ()
    """Description of what is missing; the means are then over the rest."""

    def mce(self, accuracies: scores.Accuracies, corruptions: Sequence[str]) -> float | None:
        """:func:`scores.mean_corruption_error`; None where something is missing of every corruption."""
        partial = bool(self.missing)
        if partial and all(scores.missing(accuracies, [corruption]) for corruption in corruptions):
            return None
        reference = None if self.reference is None else self.reference.accuracies
        return scores.mean_corruption_error(accuracies, self.normalization, reference, corruptions, partial=partial)


def collect(
    classifier: networks.Classifier,
    dataset: str | None,
    sets: Sets,
    counts: scores.Counts,
    rules: Mapping[str, Rule],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The complete results of an evaluation: the content of ``results.json``.

    Args:
        classifier: The classifier that was evaluated.
        dataset: The name in the paper's tables (:func:`reported.of`); None: the paper has no table of it.
        sets, counts: As :func:`prime_dali.evaluation.evaluate.run` takes and gives them.
        rules: By name of the sets that are benchmarks of corruptions.
        settings: Settings of the evaluation, as plain values.

    Raises:
        ValueError: As the functions of :mod:`prime_dali.evaluation.scores`.
    """
    what = {name: getattr(classifier, name) for name in ("source", "name", "num_classes", "stem", "mean", "std", "size",
                                                         "resize", "interpolation")}  # fmt: skip
    what |= {name: classifier.details[name] for name in ("epoch", "config") if name in classifier.details}
    return {
        "format": FORMAT, "version": VERSION, "date": _tables.now(),
        "dataset": dataset, "classifier": what, "settings": dict(settings),
        "versions": versions(),
        "sets": {name: _set(sets[name], counts[name], rules.get(name)) for name in counts},
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of everything that a number may depend on."""
    return {
        "prime-dali": __version__, "python": platform.python_version(), "torch": torch.__version__,
        "torchvision": torchvision.__version__, "pillow": PIL.__version__, "numpy": np.__version__,
    }  # fmt: skip


def _set(what: Any, counts: Any, rule: Rule | None) -> dict[str, Any]:
    """The entry of a set of any kind."""
    if isinstance(what, sequences.Perturbed):
        return _perturbations(what, counts)
    return _images(what, counts) if rule is None else _corruptions(what, counts, rule)


def _images(what: image_sets.ImageSet, count: scores.Count) -> dict[str, Any]:
    """The entry of a set of images; without calibration if that was not measured."""
    found = count.calibration
    calibration = {} if found is None else {"calibration": asdict(found)}
    classes: dict[str, Any] = {"masked_to_classes": len(np.unique(what.labels))} if what.masked else {}
    if isinstance(what, image_sets.Pictures) and not what.records.classes:
        classes["labels"] = "positions"
    counted = {"images": count.images, "correct": count.correct, "accuracy": count.accuracy}
    return {**counted, **calibration, "missing": list(what.lacking), **classes}


def _corruptions(
    what: benchmarks.Corrupted[Any], counts: Mapping[str, Mapping[int, scores.Count]], rule: Rule
) -> dict[str, Any]:
    """The entry of a benchmark of corruptions."""
    accuracies = {c: {s: count.accuracy for s, count in row.items()} for c, row in counts.items()}
    given: dict[str, Any] = {"corruptions": what.counted, "partial": bool(rule.missing)}
    of = rule.reference
    reference = {} if of is None else {"reference": {
        "path": str(of.path), "source": of.source, "images": of.images, "fingerprints": of.fingerprints,
    }}  # fmt: skip
    return _calibrations(counts, **given) | {
        "folder": str(what.folder), "regenerated": "benchmark" in (what.manifest or {}), "manifest": what.manifest,
        "counted": list(what.counted), "missing": list(rule.missing),
        "images": {c: {s: count.images for s, count in row.items()} for c, row in counts.items()},
        "fingerprints": {c: {s: count.fingerprint for s, count in row.items()} for c, row in counts.items()},
        "correct": {c: {s: count.correct for s, count in row.items()} for c, row in counts.items()},
        "accuracy": accuracies,
        "scores": {
            "corruption_accuracy": scores.corruption_accuracy(accuracies, **given),
            "by_corruption": scores.by_corruption(accuracies, [*what.counted, *what.extra], partial=True),
            "by_severity": scores.by_severity(accuracies, **given),
            "by_group": scores.by_group(accuracies, partial=True),
            "mce": rule.mce(accuracies, what.counted), "normalization": rule.normalization,
            **reference,
        },
    }  # fmt: skip


def _calibrations(counts: Mapping[str, Mapping[int, scores.Count]], **given: Any) -> dict[str, Any]:
    """Calibration on a benchmark of corruptions, by corruption and severity, and the means that accuracies have too.

    Empty if it was not measured.

    Args:
        counts: By corruption and severity.
        given: As for :func:`.scores.corruption_accuracy`.
    """
    tables: dict[str, dict[str, dict[int, float]]] = {kind: {} for kind in CALIBRATION_ERRORS}
    for corruption, row in counts.items():
        for severity, count in row.items():
            if count.calibration is None:
                return {}
            for kind in CALIBRATION_ERRORS:
                tables[kind].setdefault(corruption, {})[severity] = getattr(count.calibration, kind)
    means = {kind: scores.corruption_accuracy(table, **given) for kind, table in tables.items()}
    return {"calibration": tables | {"mean": means}}


def _perturbations(what: sequences.Perturbed, counts: Mapping[str, Mapping[int, scores.Stability]]) -> dict[str, Any]:
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
        "normalization": "none" if what.reference is None else "alexnet",
    }  # fmt: skip


def read_reference(path: Path, name: str, dataset: str | None) -> Reference:
    """The network of a ``results.json``, on the set ``name``.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It is not a results file, lacks this set, or belongs to another data set or to a network with
            adapted batch norm.
    """
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        entry = content["sets"][name]
        accuracies = {c: {int(s): float(a) for s, a in row.items()} for c, row in entry["accuracy"].items()}
        source = content["classifier"]["source"]
        prints = dict(entry.get("fingerprints", {}))
        found = Reference(path, source, accuracies, dict(entry["images"]), tuple(entry["missing"]), prints)
        of, adapted = content["dataset"], content["settings"]["bn_adapt"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: expected results.json of prime-dali evaluate with {name} ({error!r})") from error
    _REFERENCE.check(str(path), content)
    if of != dataset or adapted:
        got = f"{of or 'another one'}{', batch norm adapted' if adapted else ''}"
        raise ValueError(f"{path}: expected results on {dataset or 'no data set of the paper'} as trained, got {got}")
    return found


def write(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``results.json``, ``results.csv``, ``results.md`` and a PNG per benchmark; return their paths."""
    texts = {
        "results.json": json.dumps(results, indent=1, default=str) + "\n",
        "results.csv": _tables.csv(_csv_rows(results)),
        "results.md": markdown(results) + "\n",
    }
    paths = write_texts(folder, texts)
    pictures = [folder / f"{name}.png" for name, content in results["sets"].items() if "scores" in content]
    for path in pictures:
        draw(results, path.stem, path)
    return [*paths, *pictures]


def _csv_rows(results: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    yield ["set", "regenerated", "corruption", "severity", "images", "correct", "accuracy", "ece",
           "rms_calibration_error", "flip_rate", "top5_distance"]  # fmt: skip
    for name, content in results["sets"].items():
        if "stability" in content:
            for perturbation, found in content["stability"].items():
                images = found["sequences"] * found["frames"]
                moved = [found["flip_rate"], found["top5_distance"]]
                yield [name, False, perturbation, "", images, "", "", "", "", *moved]
            continue
        errors = content.get("calibration", {})
        if "scores" not in content:
            numbers = [content["images"], content["correct"], content["accuracy"]]
            yield [name, False, "", "", *numbers, *map(errors.get, CALIBRATION_ERRORS), "", ""]
            continue
        for corruption, row in content["accuracy"].items():
            for severity, accuracy in row.items():
                numbers = [content[what][corruption][severity] for what in ("images", "correct")]
                calibrated = [errors[kind][corruption][severity] if errors else "" for kind in CALIBRATION_ERRORS]
                yield [name, content["regenerated"], corruption, severity, *numbers, accuracy, *calibrated, "", ""]
