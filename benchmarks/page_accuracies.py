"""The blocks with accuracies that pages.py writes, each from the files in benchmarks/results."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median, quantiles
from typing import Any

from result_files import RESULTS, File, count, table

from prime_dali.experiments import grid_finished, grid_tables
from prime_dali.experiments.grid_tables import BAR, scores
from prime_dali.experiments.methods import METHODS, folder


def methods_table(dataset: str) -> str:
    """The methods on a data set: means and standard deviations over seeds."""
    measured, reported = _methods(dataset)
    rows = []
    for name in METHODS:
        own, known = measured[folder(name)], reported.get(folder(name), {})
        cells = [grid_tables.cell(own.scores[score], 2, own.spread.get(score)) for score in ("clean", "corrupted", BAR)]
        theirs = [grid_tables.cell(known.get(score), 1) for score in ("clean", "corrupted")]
        rows.append([name, *cells, str(own.runs), ", ".join(theirs) if known else ""])
    head = ["", "clean, %", f"{dataset}-C, %", "C-bar, %", "seeds", f"reported: clean, {dataset}-C"]
    return table(head, rows)


def beside_reported(dataset: str) -> str:
    """How far the methods on a data set are from what is reported of them, in percentage points and in standard
    deviations over seeds; with the official mixing, from what is reported of PRIME."""
    measured, reported = _methods(dataset)
    rows = []
    for name in METHODS:
        own, theirs = measured[folder(name)], reported.get(folder(name.partition(", ")[0]), {})
        cells = []
        for score in ("clean", "corrupted"):
            if score in theirs:
                difference = own.scores[score] - theirs[score]
                cells += [f"{difference:+.2f}", f"{abs(difference) / own.spread[score]:.1f}"]
            else:
                cells += ["-", "-"]
        rows.append([name, *cells])
    sets = ("clean", f"{dataset}-C")
    return table(["", *(f"{own}{of}" for own in sets for of in (", points", ", standard deviations"))], rows)


def _methods(dataset: str) -> tuple[dict[str, grid_tables.Row], dict[str, Mapping[str, float]]]:
    """The measured rows of the methods on a data set, and the reported scores, by the name of the run."""
    rows = grid_tables.read(RESULTS / dataset.lower().replace("-", "") / "methods.json")
    return {row.run: row for row in rows if row.measured}, {row.run: row.scores for row in rows if not row.measured}


def fast(epochs: int) -> str:
    """Accuracies and seconds of the recipe cifar10-fast with so many epochs."""
    (row,) = [row for row in File("minutes/minutes.json").content["rows"] if row["run"] == f"cifar10-fast-{epochs}"]
    clean, corrupted = (f"{row['scores'][name]:.2f} ± {row['spread'][name]:.2f} %" for name in ("clean", "corrupted"))
    return (
        f"{clean} of the clean images and {corrupted} of CIFAR-10-C correct after {60 * row['minutes']:.0f} seconds of "
        f"training ({row['runs']} seeds)"
    )


def authors_code() -> str:
    """Accuracies of the authors' code in this package's training, beside PRIME with the mixing of that code."""
    run = "prime-official-mixing-50,seed=1"
    own = grid_finished.read(RESULTS / "minutes" / run)
    assert own is not None
    found = {
        "authors' code in place of `prime_dali.PRIME`": File("authors_code.json").content["results"],
        "PRIME, official mixing, cutoffs up to 10": own["results"],
    }
    rows = [
        [name, *(f"{scores(results)[column]:.2f}" for column in ("clean", "corrupted", "noise", BAR))]
        for name, results in found.items()
    ]
    return table(["50 epochs, seed 1", "clean, %", "CIFAR-10-C, %", "noise, %", "C-bar, %"], rows)


def adaptation() -> str:
    """Accuracies on CIFAR-10-C with the statistics of batch norm as trained, and adapted to each corruption."""
    rows = []
    for name in ("standard", "PRIME", "PRIME + JSD"):
        for setting in ("none", "single", "partial", "full"):
            paths = sorted((RESULTS / "bn-adaptation").glob(f"{folder(name)},seed=*/{setting}.json"))
            found = [_adapted(File(str(path.relative_to(RESULTS))).content) for path in paths]
            mean, spread = grid_tables.mean_and_spread(found)
            cells = [grid_tables.cell(mean[key], 2, spread.get(key)) for key in mean]
            rows.append([name, setting, *cells, str(len(paths))])
    return table(["", "adaptation", *mean, "seeds"], rows)


def _adapted(content: dict[str, Any]) -> dict[str, float]:
    """The scores of one evaluation with adaptation, in percent, by column."""
    scores = content["sets"]["cifar-c"]["scores"]
    severities, groups = scores["by_severity"], scores["by_group"]
    shares = {"CIFAR-10-C": scores["corruption_accuracy"], "severity 1": severities["1"], "severity 5": severities["5"]}
    return {f"{name}, %": 100 * share for name, share in (shares | groups).items()}


def vit() -> str:
    """A vision transformer on Tiny ImageNet with today's recipe: speed and accuracy."""
    file = File("h200_vit.json")
    content, runs, quiet = file.content, file.content["runs"], file.content["quiet_from_step"]
    prime = [line["images_per_second"] for line in runs["prime"] if "loss" in line and line["step"] > quiet]
    standard = [line["images_per_second"] for line in runs["standard"] if "loss" in line][1:]  # without the compilation
    accuracy = [line["accuracy"] for line in runs["prime"] if "accuracy" in line][-1]
    last = runs["prime"][-1]["step"]
    spread = " and ".join(
        f"{count(median(found))} images/s {how} PRIME (middle half of the log lines {count(low)} to {count(high)})"
        for how, found in (("with", prime), ("without", standard))
        for low, _, high in [quantiles(found, n=4)]
    )
    return (
        f"A ViT-S ({content['parameters']:,} parameters, 64 x 64 images in patches of 8 x 8, batch {content['batch']}) "
        f"with mixup, CutMix and EMA trains at {spread}. After 20 epochs ({last:,} steps) of the recipe's 200, "
        f"with PRIME and one seed, {100 * accuracy:.1f} % of the validation images are classified correctly. "
        + file.source()
    )
