"""The results of an evaluation as tables in Markdown and as plots, beside the numbers of the paper."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _plots, _tables
from .._wording import plural
from . import reported
from .names import C_BAR_SETS, C_SETS, HEADINGS, SEVERITIES
from .reported import PERTURBATION_SCORES, SOURCE_OF_PERTURBATION_SCORES
from .results import CALIBRATION_ERRORS, ece_by_corruption, mean_calibration, normalization_of, of_benchmark

Cells = tuple[Sequence[str], list[list[str]]]
"""Header and rows of a table."""


def markdown(results: Mapping[str, Any]) -> str:
    """All tables, in percent, as Markdown that is also readable in a terminal.

    Args:
        results: The content of ``results.json``. Each of its sets is a benchmark of sequences (with ``stability``), a
            benchmark of corruptions (with ``scores``), or a set of images.
    """
    sets, dataset = results["sets"], results["dataset"]
    facts = [*_conditions(results)]
    for name, content in sets.items():
        facts += _facts(name, content, dataset)
    facts += _reported_facts(dataset)
    what = results["classifier"]
    title = f"# {what['name']}, {what['num_classes']} classes" + (f", on {dataset}" if dataset else "")
    lines = [title, "", *(f"- {fact}" for fact in facts), "", "## Accuracy, %", "", summary(results), ""]
    if cells := calibration_rows({_heading(name, content): content for name, content in sets.items()}):
        lines += ["## Calibration error, %", "", _tables.markdown(*cells), ""]
    for name, content in sets.items():
        if "stability" in content:
            rows = stability_rows(content, dataset)
            lines += [f"## {HEADINGS[name]}, by perturbation", "", _tables.markdown(*rows), ""]
    for name, content in sets.items():
        if "scores" in content:
            lines += _corruption_tables(name, content, dataset)
    return "\n".join(lines).rstrip()


def _conditions(results: Mapping[str, Any]) -> Iterator[str]:
    """What all numbers depend on."""
    what, settings, adapted = results["classifier"], results["settings"], results["settings"]["bn_adapt"]
    yield what["source"] + (f", epoch {what['epoch']}" if "epoch" in what else "")
    yield f"images normalized by mean {_numbers(what['mean'])} and standard deviation {_numbers(what['std'])}"
    yield f"{settings['hardware']}, {settings['precision']}, batches of {settings['batch']}; {results['date']}"
    yield ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    photographs = any("accuracy" in content and "scores" not in content for content in results["sets"].values())
    if photographs and what.get("resize"):
        side, kind = what["resize"], what.get("interpolation", "bilinear")
        yield f"photographs resized to a shorter side of {side} ({kind}), the center {what['size']} cropped"
    if adapted:
        yield (
            f"batch norm adapted to images of each set: N = {adapted['N']}, n = {adapted['n']}, "
            f"drawn separately for each with seed {adapted['seed']}"
        )


def _facts(name: str, content: Mapping[str, Any], dataset: str | None) -> Iterator[str]:
    """The conditions of the numbers of a set."""
    if "stability" in content:
        yield from (f"{HEADINGS[name]}: {fact}" for fact in stability_facts(content, dataset))
    elif "scores" not in content:
        yield f"{HEADINGS[name]}: {plural(content['images'], 'image')}"
        if content.get("labels") == "positions":
            yield f"{HEADINGS[name]}: labels are numbers, taken for positions among the network's classes"
    if content.get("masked_to_classes"):
        own = plural(content["masked_to_classes"], "class", "classes")
        yield f"{HEADINGS[name]}: only its {own} can be predicted"
    if content.get("missing"):
        yield f"{HEADINGS[name]}: PARTIAL, means over the rest; missing: {'; '.join(content['missing'])}"
    if "scores" in content:
        made = "" if content["regenerated"] else "; as found, without a manifest of prime-dali corrupt"
        sizes = {images for row in content["images"].values() for images in row.values()}
        several = "" if len(sizes) == 1 else ", in parts of UNEQUAL size"
        yield f"{_heading(name, content)}: {_range(sizes)} images per corruption and severity{several}{made}"
        complete = [c for c in content["counted"] if len(content["accuracy"].get(c, ())) == len(SEVERITIES)]
        if name in C_SETS and len(complete) < sum(c in content["accuracy"] for c in content["counted"]):
            over = ", ".join(complete) or "none, so there is no mCE"
            yield f"{_heading(name, content)}: mCE over the corruptions with all five severities: {over}"
        if of := content["scores"].get("reference"):
            yield f"{_heading(name, content)}: mCE relative to {of['source']}, in {of['path']}{_unlike(of, content)}"


def _unlike(reference: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """What to say if the reference was evaluated on other images, as far as their fingerprints are known."""
    if there := _differing(reference["images"], content["images"]):
        return f", of ANOTHER NUMBER of images, {_range(there)}"
    others = _differing(reference.get("fingerprints", {}), content.get("fingerprints", {}))
    return ", of OTHER images, or in another order" if others else ""


def _differing(theirs: Mapping[str, Mapping[Any, Any]], ours: Mapping[str, Mapping[Any, Any]]) -> set[Any]:
    """Those of their values, by corruption and severity, beside which ours is another one."""
    known, own = ({(c, str(s)): value for c, row in table.items() for s, value in row.items() if value is not None}
                  for table in (theirs, ours))  # fmt: skip
    return {known[part] for part in known.keys() & own.keys() if known[part] != own[part]}


def _reported_facts(dataset: str | None) -> Iterator[str]:
    for row in reported.of(dataset)[:1]:
        yield f'"reported": {reported.SOURCE}, {row.network}; not measured'
    yield from (f"{row.method}, reported: {row.note}" for row in reported.of(dataset) if row.note)


def summary(results: Mapping[str, Any]) -> str:
    """The first table: a number or two of each set, and what the paper has of the same data set."""
    from . import adaptation  # here, because it takes seconds: for torch

    dataset, adapted = results["dataset"], results["settings"]["bn_adapt"]
    columns = [column for name, content in results["sets"].items() for column in _columns(name, content)]
    keys = [key for key, _, _ in columns]
    rows = [["measured, adapted" if adapted else "measured", *(number for _, _, number in columns)]]
    for row in reported.of(dataset):
        known = {
            "clean": row.clean, "cifar-c": row.mean, "imagenet-c": row.mean, f"mce {row.normalization}": row.mce,
            "imagenet-c-bar": row.c_bar_mean, "imagenet-r": row.imagenet_r, "stylized": row.stylized,
        }  # fmt: skip
        if any(known.get(key) is not None for key in keys):
            rows.append([f"{row.method}, reported", *(_reported(known.get(key)) for key in keys)])
    for preset, numbers in adaptation.PRESETS.items():
        if adapted and dataset == "ImageNet-100" and (adapted["N"], adapted["n"]) == numbers:
            for method, accuracy in reported.ADAPTED.items():
                known = {"imagenet-c": accuracy[preset]}
                rows.append([f"{method}, adapted ({preset}), reported", *(_reported(known.get(key)) for key in keys)])
    return _tables.markdown(["", *(heading for _, heading, _ in columns)], rows)


def _columns(name: str, content: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The columns of a set in :func:`summary`: what :mod:`.reported` has beside it, the heading, and the number."""
    if "stability" in content:
        yield name, f"{HEADINGS[name]} mFR, normalization {normalization_of(content)}", _hundredths(content["mfr"])
    elif "scores" not in content:
        yield name, HEADINGS[name], _percent(content["accuracy"])
    else:
        scores = content["scores"]
        yield name, f"{_heading(name, content)} mean", _percent(scores["corruption_accuracy"])
        if name in C_SETS:
            kind = normalization_of(scores)
            yield f"mce {kind}", f"mCE, normalization {kind}", _hundredths(scores["mce"])


def _corruption_tables(name: str, content: Mapping[str, Any], dataset: str | None) -> list[str]:
    heading, found = _heading(name, content), content["scores"]
    rows = _reported_on(name, dataset)
    errors = ece_by_corruption(content)
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
        *(_percent(mean_calibration(content, "ece")) for _ in ece),
        *(_reported(average) for _, average in rows.values()),
    ])  # fmt: skip
    out = [f"## {heading}, by corruption and severity, %", "", _tables.markdown(header, cells), ""]
    severities = [["measured", *(_percent(found["by_severity"].get(s)) for s in SEVERITIES)]]
    if name in C_SETS:
        severities += [[f"{row.method}, reported", *(_reported(row.severities[s]) for s in SEVERITIES)]
                       for row in reported.of(dataset)]  # fmt: skip
    out += [f"## {heading}, by severity, %", "", _tables.markdown(["", *map(str, SEVERITIES)], severities), ""]
    if found["by_group"]:
        groups = [["measured", *map(_percent, found["by_group"].values())]]
        out += [f"## {heading}, by group, %", "", _tables.markdown(["", *found["by_group"]], groups), ""]
    return out


def _reported_on(name: str, dataset: str | None) -> dict[str, tuple[Mapping[str, float], float | None]]:
    """The paper's numbers on this benchmark: by method, the accuracy by corruption, and the mean."""
    if name in C_BAR_SETS:
        return {row.method: (row.c_bar, row.c_bar_mean) for row in reported.of(dataset) if row.c_bar}
    return {row.method: (row.corruptions, row.mean) for row in reported.of(dataset) if name in C_SETS}


def draw(results: Mapping[str, Any], name: str, path: Path) -> None:
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
    return of_benchmark(content, HEADINGS[name]) + (" (regenerated)" if content.get("regenerated") else "")


def _percent(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{100 * accuracy:.2f}"


def _hundredths(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _range(sizes: Collection[int]) -> str:
    """``8``, or ``8 to 10``."""
    return " to ".join(f"{size:,}" for size in sorted({min(sizes), max(sizes)}))


def _reported(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _numbers(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"


def calibration_rows(sets: Mapping[str, Mapping[str, Any]]) -> Cells | None:
    """The table of calibration errors, in percent; None if none were measured.

    Args:
        sets: The sets of ``results.json``, by heading.
    """
    header, rows = [""], [[label] for label in CALIBRATION_ERRORS.values()]
    for heading, content in sets.items():
        errors = [mean_calibration(content, kind) for kind in CALIBRATION_ERRORS]
        for row, error in zip(rows, errors, strict=True):
            row += [] if error is None else [f"{100 * error:.2f}"]
        if None not in errors:
            header.append(f"{heading} mean" if "scores" in content else heading)
    return (header, rows) if len(header) > 1 else None


def stability_facts(content: Mapping[str, Any], dataset: str | None) -> list[str]:
    """The conditions of the numbers of a benchmark of sequences; arguments as for :func:`stability_rows`."""
    numbers = {(found["sequences"], found["frames"]) for found in content["stability"].values()}
    sequences, frames = map(_range, zip(*numbers, strict=True))
    out = [
        f"{sequences} sequences per perturbation, of {frames} frames",
        "frames of noise are compared with the first frame of their sequence, others with the one before",
    ]
    if _has_reported(content, dataset):
        out.append(f'"reported" mFR and mT5D: {SOURCE_OF_PERTURBATION_SCORES}; not measured')
    return out


def stability_rows(content: Mapping[str, Any], dataset: str | None) -> Cells:
    """The table of a benchmark of sequences: flip rates in percent, and distances of the five best classes.

    Args:
        content: Its entry in ``results.json``.
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
    if mean and normalization_of(content) != "none":
        scored = f"{content['mfr']:.2f}", f"{content['mt5d']:.2f}"
        rows.append([f"mFR and mT5D, normalization {normalization_of(content)}", *scored])
    if _has_reported(content, dataset):
        rows += [
            [f"mFR and mT5D of {label}, reported", f"{mfr:.1f}", "-" if mt5d is None else f"{mt5d:.1f}"]
            for label, (mfr, mt5d) in PERTURBATION_SCORES.items()
        ]
    return ["perturbation", "flip rate, %", "top-5 distance"], rows


def _has_reported(content: Mapping[str, Any], dataset: str | None) -> bool:
    return dataset == "ImageNet" and normalization_of(content) == "alexnet"
