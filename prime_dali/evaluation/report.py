"""Results of an evaluation as JSON, CSV, Markdown and plots, beside the numbers of the paper."""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import torchvision

from .. import __version__, _plots
from .._files import write_texts
from .._progress import plural
from ..models import networks
from . import adaptation, benchmarks, image_sets, report_parts, reported, scores, sequences
from .names import SEVERITIES

FORMAT, VERSION = "prime-dali-results", 1
HEADINGS = {
    "clean": "clean", "cifar-c": "CIFAR-C", "cifar-c-bar": "CIFAR-C-bar", "cifar-p": "CIFAR-P",
    "imagenet-c": "ImageNet-C", "imagenet-c-bar": "ImageNet-C-bar", "imagenet-3dcc": "ImageNet-3DCC",
    "imagenet-r": "ImageNet-R", "imagenet-a": "ImageNet-A", "imagenet-sketch": "ImageNet-Sketch",
    "imagenet-v2": "ImageNetV2 (matched frequency)", "imagenet-v2-threshold": "ImageNetV2 (threshold 0.7)",
    "imagenet-v2-top": "ImageNetV2 (top images)", "stylized": "Stylized ImageNet", "imagenet-p": "ImageNet-P",
}  # fmt: skip
"""What tables and help call each set."""

_OF_PAPER = ("cifar-c", "imagenet-c")  # the benchmarks of the paper's fifteen corruptions, which have an mCE

Set = image_sets.ImageSet | benchmarks.Corrupted | sequences.Perturbed


@dataclass(frozen=True)
class Rule:
    """How a benchmark of corruptions is scored."""

    normalisation: str
    reference: scores.Accuracies | None = None
    missing: tuple[str, ...] = ()
    """Description of what is missing; the means are then over the rest."""

    def mce(self, accuracies: scores.Accuracies, corruptions: Sequence[str]) -> float | None:
        """:func:`scores.mean_corruption_error`; None where something is missing of every corruption."""
        partial = bool(self.missing)
        if partial and all(scores.missing(accuracies, [corruption]) for corruption in corruptions):
            return None
        return scores.mean_corruption_error(
            accuracies, self.normalisation, self.reference, corruptions, partial=partial
        )


def collect(
    classifier: networks.Classifier,
    dataset: str | None,
    sets: Mapping[str, Set],
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
                                                         "resize")}  # fmt: skip
    what |= {name: classifier.details[name] for name in ("epoch", "config") if name in classifier.details}
    return {
        "format": FORMAT, "version": VERSION, "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "dataset": dataset, "classifier": what, "settings": dict(settings),
        "versions": versions(),
        "sets": {name: _set(sets[name], counts[name], rules.get(name)) for name in counts},
    }  # fmt: skip


def hardware(device: torch.device) -> str:
    """The GPU's or the processor's name."""
    return torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of everything that a number may depend on."""
    return {
        "prime-dali": __version__, "python": platform.python_version(), "torch": torch.__version__,
        "torchvision": torchvision.__version__, "pillow": PIL.__version__, "numpy": np.__version__,
    }  # fmt: skip


def _set(what: Any, counts: Any, rule: Rule | None) -> dict[str, Any]:
    if isinstance(what, sequences.Perturbed):
        return report_parts.stability(what, counts)
    if rule is None:
        out = {"images": counts.images, "correct": counts.correct, "accuracy": counts.accuracy}
        out |= report_parts.calibration(counts)
        out["missing"] = list(what.lacking)
        return out | ({"masked_to_classes": len(np.unique(what.labels))} if what.masked else {})
    accuracies = {c: {s: count.accuracy for s, count in row.items()} for c, row in counts.items()}
    given = {"corruptions": what.counted, "partial": bool(rule.missing)}
    return report_parts.calibrations(counts, **given) | {
        "folder": str(what.folder), "regenerated": what.manifest is not None, "manifest": what.manifest,
        "counted": list(what.counted), "missing": list(rule.missing),
        "images": {c: {s: count.images for s, count in row.items()} for c, row in counts.items()},
        "correct": {c: {s: count.correct for s, count in row.items()} for c, row in counts.items()},
        "accuracy": accuracies,
        "scores": {
            "corruption_accuracy": scores.corruption_accuracy(accuracies, **given),
            "by_corruption": scores.by_corruption(accuracies, [*what.counted, *what.extra], partial=True),
            "by_severity": scores.by_severity(accuracies, **given),
            "by_group": scores.by_group(accuracies, partial=True),
            "mce": rule.mce(accuracies, what.counted), "normalisation": rule.normalisation,
        },
    }  # fmt: skip


def read_reference(path: Path, name: str, dataset: str | None) -> scores.Accuracies:
    """Accuracies on the set ``name`` of a ``results.json``.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It is not a results file, lacks this set, or belongs to another data set or to a network with
            adapted batch norm.
    """
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        accuracies = content["sets"][name]["accuracy"]
        found = {c: {int(s): float(a) for s, a in row.items()} for c, row in accuracies.items()}
        of, adapted = content["dataset"], content["settings"]["bn_adapt"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: expected results.json of prime-dali evaluate with {name} ({error!r})") from error
    if of != dataset or adapted:
        got = f"{of or 'another one'}{', batch norm adapted' if adapted else ''}"
        raise ValueError(f"{path}: expected results on {dataset or 'no data set of the paper'} as trained, got {got}")
    return found


def write(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``results.json``, ``results.csv``, ``results.md`` and a PNG per benchmark; return their paths."""
    texts = {
        "results.json": json.dumps(results, indent=1, default=str) + "\n",
        "results.csv": _csv(results),
        "results.md": markdown(results) + "\n",
    }
    paths = write_texts(folder, texts)
    pictures = [folder / f"{name}.png" for name, content in results["sets"].items() if "scores" in content]
    for path in pictures:
        _draw(results, path.stem, path)
    return [*paths, *pictures]


def _csv(results: Mapping[str, Any]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["set", "regenerated", "corruption", "severity", "images", "correct", "accuracy",
                     "ece", "rms_calibration_error", "flip_rate", "top5_distance"])  # fmt: skip
    for name, content in results["sets"].items():
        if "stability" in content:
            for perturbation, found in content["stability"].items():
                images = found["sequences"] * found["frames"]
                moved = [found["flip_rate"], found["top5_distance"]]
                writer.writerow([name, False, perturbation, "", images, "", "", "", "", *moved])
            continue
        errors = content.get("calibration", {})
        if "scores" not in content:
            numbers = [content["images"], content["correct"], content["accuracy"]]
            writer.writerow([name, False, "", "", *numbers, errors.get("ece"), errors.get("rms"), "", ""])
            continue
        for corruption, row in content["accuracy"].items():
            for severity, accuracy in row.items():
                numbers = [content[what][corruption][severity] for what in ("images", "correct")]
                calibrated = [errors[kind][corruption][severity] if errors else "" for kind in ("ece", "rms")]
                writer.writerow([
                    name, content["regenerated"], corruption, severity, *numbers, accuracy, *calibrated, "", "",
                ])  # fmt: skip
    return out.getvalue()


def markdown(results: Mapping[str, Any]) -> str:
    """The tables, in per cent, as Markdown that is also readable in a terminal."""
    what, settings, dataset = results["classifier"], results["settings"], results["dataset"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [
        f"# {what['name']}, {what['num_classes']} classes" + (f", on {dataset}" if dataset else ""), "",
        f"- {what['source']}" + (f", epoch {what['epoch']}" if "epoch" in what else ""),
        f"- images normalized by mean {_numbers(what['mean'])} and standard deviation {_numbers(what['std'])}",
        f"- {settings['hardware']}, {settings['precision']}, batches of {settings['batch']}; {results['date']}",
        f"- {versions}",
    ]  # fmt: skip
    if settings["bn_adapt"]:
        given = settings["bn_adapt"]
        lines.append(
            f"- batch norm adapted to images of each set: N = {given['N']}, n = {given['n']}, "
            f"drawn separately for each with seed {given['seed']}"
        )
    for name, content in results["sets"].items():
        if "stability" in content:
            lines += [f"- {HEADINGS[name]}: {fact}" for fact in report_parts.facts(content, dataset)]
        elif "scores" not in content:
            lines.append(f"- {HEADINGS[name]}: {plural(content['images'], 'image')}")
        if content.get("masked_to_classes"):
            own = plural(content["masked_to_classes"], "class", "classes")
            lines.append(f"- {HEADINGS[name]}: only its {own} can be predicted")
        if content.get("missing"):
            lines.append(f"- {HEADINGS[name]}: PARTIAL, means over the rest; missing: {'; '.join(content['missing'])}")
        if "scores" in content:
            made = "" if content["regenerated"] else "; as found, without a manifest.json"
            sizes = {images for row in content["images"].values() for images in row.values()}
            several = "" if len(sizes) == 1 else ", in parts of UNEQUAL size"
            images = " to ".join(f"{size:,}" for size in sorted({min(sizes), max(sizes)}))
            lines.append(f"- {_heading(name, content)}: {images} images per corruption and severity{several}{made}")
    for row in reported.of(dataset)[:1]:
        lines.append(f'- "reported": {reported.SOURCE}, {row.network}; not measured')
    lines += [f"- {row.method}, reported: {row.note}" for row in reported.of(dataset) if row.note]
    lines += ["", "## Accuracy, %", "", _summary(results), ""]
    if cells := report_parts.calibration_rows({_heading(n, c): c for n, c in results["sets"].items()}):
        lines += ["## Calibration error, %", "", table(*cells), ""]
    for name, content in results["sets"].items():
        if "stability" in content:
            rows = report_parts.stability_rows(content, dataset)
            lines += [f"## {HEADINGS[name]}, by perturbation", "", table(*rows), ""]
    for name, content in results["sets"].items():
        if "scores" in content:
            lines += _tables(name, content, dataset)
    return "\n".join(lines).rstrip()


def _summary(results: Mapping[str, Any]) -> str:
    sets, dataset = results["sets"], results["dataset"]
    given = results["settings"]["bn_adapt"]
    header, measured, keys = [""], ["measured, adapted" if given else "measured"], []
    for name, content in sets.items():
        if "stability" in content:
            header.append(f"{HEADINGS[name]} mFR, normalization {content['normalisation']}")
            measured.append("-" if content["mfr"] is None else f"{content['mfr']:.2f}")
            keys.append(name)
            continue
        if "scores" not in content:
            header.append(HEADINGS[name])
            measured.append(_percent(content["accuracy"]))
            keys.append(name)
            continue
        header.append(f"{_heading(name, content)} mean")
        measured.append(_percent(content["scores"]["corruption_accuracy"]))
        keys.append(name)
        if name in _OF_PAPER:
            header.append(f"mCE, normalization {content['scores']['normalisation']}")
            mce = content["scores"]["mce"]
            measured.append("-" if mce is None else f"{mce:.2f}")
            keys.append(f"mce {content['scores']['normalisation']}")
    rows = [measured]
    for row in reported.of(dataset):
        known = {
            "clean": row.clean, "cifar-c": row.mean, "imagenet-c": row.mean, f"mce {row.normalisation}": row.mce,
            "imagenet-c-bar": row.c_bar_mean, "imagenet-r": row.imagenet_r, "stylized": row.stylized,
        }  # fmt: skip
        if any(known.get(key) is not None for key in keys):
            rows.append([f"{row.method}, reported", *(_reported(known.get(key)) for key in keys)])
    for preset, numbers in adaptation.PRESETS.items():
        if given and dataset == "ImageNet-100" and (given["N"], given["n"]) == numbers:
            rows += [
                [f"{method}, adapted ({preset}), reported",
                 *(_reported(accuracy[preset]) if key == "imagenet-c" else "-" for key in keys)]
                for method, accuracy in reported.ADAPTED.items()
            ]  # fmt: skip
    return table(header, rows)


def _tables(name: str, content: Mapping[str, Any], dataset: str | None) -> list[str]:
    heading, found = _heading(name, content), content["scores"]
    rows = _reported_on(name, dataset)
    errors = report_parts.ece_by_corruption(content)
    ece = ["ECE"] if errors else []
    header = ["corruption", *map(str, SEVERITIES), "mean", "error", *ece, *(f"{method}, reported" for method in rows)]
    cells = []
    for corruption, mean in found["by_corruption"].items():
        accuracies = content["accuracy"][corruption]
        cells.append([
            corruption if corruption in content["counted"] else f"{corruption} (not counted)",
            *(_percent(accuracies.get(s)) for s in SEVERITIES), _percent(mean), _percent(1 - mean),
            *(_percent(errors[corruption]) for _ in ece), *(_reported(row.get(corruption)) for row, _ in rows.values()),
        ])  # fmt: skip
    mean = found["corruption_accuracy"]
    cells.append([
        "mean", *(_percent(found["by_severity"].get(s)) for s in SEVERITIES), _percent(mean), _percent(1 - mean),
        *(_percent(report_parts.mean_calibration(content, "ece")) for _ in ece),
        *(_reported(average) for _, average in rows.values()),
    ])  # fmt: skip
    out = [f"## {heading}, by corruption and severity, %", "", table(header, cells), ""]
    severities = [["measured", *(_percent(found["by_severity"].get(s)) for s in SEVERITIES)]]
    if name in _OF_PAPER:
        severities += [[f"{row.method}, reported", *(_reported(row.severities[s]) for s in SEVERITIES)]
                       for row in reported.of(dataset)]  # fmt: skip
    out += [f"## {heading}, by severity, %", "", table(["", *map(str, SEVERITIES)], severities), ""]
    if found["by_group"]:
        groups = [["measured", *map(_percent, found["by_group"].values())]]
        out += [f"## {heading}, by group, %", "", table(["", *found["by_group"]], groups), ""]
    return out


def _reported_on(name: str, dataset: str | None) -> dict[str, tuple[Mapping[str, float], float | None]]:
    """The paper's numbers on this benchmark: by method, the accuracy by corruption, and the mean."""
    if name.endswith("c-bar"):
        return {row.method: (row.c_bar, row.c_bar_mean) for row in reported.of(dataset) if row.c_bar}
    return {row.method: (row.corruptions, row.mean) for row in reported.of(dataset) if name in _OF_PAPER}


def _draw(results: Mapping[str, Any], name: str, path: Path) -> None:
    """Plot the measured accuracy by corruption, and the paper's as open markers."""
    content = results["sets"][name]
    means = content["scores"]["by_corruption"]
    titles = {corruption: corruption.replace("_", " ") for corruption in means}
    series = [_plots.Series("measured", {titles[c]: 100 * mean for c, mean in means.items()})]
    series += [
        _plots.Series(f"{method}, reported", {titles[c]: row[c] for c in means if c in row}, reported=True)
        for method, (row, _) in _reported_on(name, results["dataset"]).items()
    ]
    with _plots.plot(path, 1.8 + (0.26 + 0.06 * len(series)) * len(means)) as figure:
        axes = figure.subplots()
        _plots.dots(axes, list(titles.values()), series, ".1f" if len(series) == 1 else "")
        total = 100 * content["scores"]["corruption_accuracy"]
        axes.set(xlabel="accuracy, %")
        axes.set_title(f"{results['classifier']['name']} on {_heading(name, content)}: mean {total:.1f} %")
        _plots.legend(figure, axes, 4)


def _heading(name: str, content: Mapping[str, Any]) -> str:
    """The name of the set; every number from a regenerated set must be labeled as such."""
    return HEADINGS[name] + (" (regenerated)" if content.get("regenerated") else "")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown whose columns also line up as plain text."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        aligned = [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
        return f"| {' | '.join(aligned)} |"

    rule = "|".join(["", "-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:]), ""])
    return "\n".join([line(header), rule, *map(line, rows)])


def _percent(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{100 * accuracy:.2f}"


def _reported(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _numbers(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"
