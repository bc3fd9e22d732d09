"""``prime-dali analyze compare QUESTION``: choices that the paper leaves open, each against its alternatives.

Each question is a grid of a few runs that differ in one choice, over at least two seeds. Besides the accuracies there
is a table of differences from the first run of the question, or of each network with PRIME from the same one without,
each between runs of one seed, so that what a seed does to both drops out; with the standard deviation of these
differences over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _tables
from ..training.recipes import RECIPES
from . import grid_plots, grids
from .grid_file import PRIME_ALONE, Reported, Run, of_method
from .grid_tables import BAR, DATASETS, ECE, Row, cell, mean_and_spread, scores

SEEDS = (1, 2)

Settings = dict[str, Any]
_BySeed = dict[int, dict[str, float]]
"""Scores of the runs of a row."""


@dataclass(frozen=True)
class Question:
    """A choice that the paper leaves open."""

    summary: str
    runs: Callable[[str], Mapping[str, Settings]]
    """Settings by name of the run, from the data set of the recipe."""
    reported: Mapping[str, tuple[Reported, ...]]
    """Numbers of the paper, by name of the run."""
    draw: Callable[[Sequence[Row], Path], None] = grid_plots.draw
    base: Callable[[str], str] | None = None
    """The run that a run is compared with, by its name; None: the first one."""


def _fixed(summary: str, runs: Mapping[str, Settings], **reported: Reported) -> Question:
    known = {name.replace("_", "-"): (numbers,) for name, numbers in reported.items()}
    return Question(summary, lambda dataset: runs, known)


_PAPER, _OFFICIAL = {"mixing": "paper"}, {"mixing": "official"}
_ALONE = PRIME_ALONE["CIFAR-10"]
(_WITH_JSD,) = of_method("PRIME", "CIFAR-10")
_WAVES = (5, 10, 20)  # 10 is the example of the authors' code
_ONLY_WAVES: Settings = {"primitives": []}
_ALPHA = {"alpha": 1.0}
_AFTER, _BEFORE = {"mix_order": "after"}, {"mix_order": "before"}


def _minutes(dataset: str) -> dict[str, Settings]:
    """Recipes of the data set, each for several numbers of epochs."""
    found = {
        f"prime{'+jsd' * jsd}-official-mixing-{epochs}": {"recipe": dataset, "epochs": epochs, "jsd": jsd, **_OFFICIAL}
        for jsd in (True, False)
        for epochs in (100, 50, 25)
    }
    if (fast := f"{dataset}-fast") in RECIPES:
        found |= {f"{fast}-{epochs}": {"recipe": fast, "epochs": epochs} for epochs in (168, 84, 42, 21)}
    return found


def _networks(dataset: str) -> dict[str, Settings]:
    """Standard training and PRIME of each network that there is for the data set, by the recipe of its kind."""
    networks: dict[str, Settings] = {"resnet": {"recipe": dataset}}
    if dataset.startswith("cifar"):
        networks |= {name: {"recipe": dataset, "network": name} for name in ("wrn_40_2", "resnext29_4x32d")}
    known = {kind: f"{dataset}-{kind}" for kind in ("vit", "convnext")}
    networks |= {kind: {"recipe": recipe} for kind, recipe in known.items() if recipe in RECIPES}
    methods = {"standard": {"method": "standard"}, "prime": {"method": "prime"}}
    return {f"{network}-{method}": {**own, **chosen} for network, own in networks.items()
            for method, chosen in methods.items()}  # fmt: skip


QUESTIONS: dict[str, Question] = {
    "draws": _fixed(
        "draws per image against draws per batch, as in the authors' code",
        {
            "image": {"draws": "image", **_PAPER}, "batch": {"draws": "batch", **_PAPER},
            "image-official": {"draws": "image", **_OFFICIAL}, "batch-official": {"draws": "batch", **_OFFICIAL},
        },
        image=_ALONE,
    ),
    "strengths": _fixed(
        "uniform against arcsine-distributed strengths of displacements",
        {
            "uniform": _PAPER, "arcsine": {"spatial_distribution": "arcsine", **_PAPER},
            "uniform-official": {"spatial_distribution": "uniform", **_OFFICIAL},
            "arcsine-official": _OFFICIAL,
        },
    ),
    "color-cutoff": _fixed(
        "color maps with cutoff frequencies up to the preset's, 10 for CIFAR, and to 100, as in the authors' code",
        {
            "preset": _PAPER, "cutoff-100": {"color_cut_max": 100, **_PAPER},
            "preset-official": _OFFICIAL, "cutoff-100-official": {"color_cut_max": 100, **_OFFICIAL},
        },
        preset=_ALONE,
    ),
    "mixing": _fixed(
        "the paper's mixing against that of the authors' code, without and with the Jensen-Shannon loss",
        {
            "paper": _PAPER, "official": _OFFICIAL,
            "paper-jsd": {"jsd": True, **_PAPER}, "official-jsd": {"jsd": True, **_OFFICIAL},
        },
        paper=_ALONE, paper_jsd=_WITH_JSD,
    ),
    "mix-order": _fixed(
        "PRIME before or after mixup and CutMix",
        {
            "neither": {}, "mixup-after": {"mixup": 0.2, **_AFTER}, "mixup-before": {"mixup": 0.2, **_BEFORE},
            "cutmix-after": {"cutmix": 1.0, **_AFTER}, "cutmix-before": {"cutmix": 1.0, **_BEFORE},
        },
    ),
    "views": _fixed(
        "the Jensen-Shannon loss of two views, the clean image and one, against three, and none",
        {"three": {"jsd": True, "jsd_views": 3}, "two": {"jsd": True, "jsd_views": 2}, "one": {"jsd": False}},
        three=_WITH_JSD, one=_ALONE,
    ),
    "minutes": Question(
        "minutes of training against accuracy, of the paper's recipe and of a fast one, each run alone on a GPU",
        _minutes, {"prime+jsd-official-mixing-100": (_WITH_JSD,)}, grid_plots.draw_minutes,
    ),
    "networks": Question(
        "what PRIME gives networks of other kinds", _networks, {}, grid_plots.draw_methods,
        base=lambda run: run.replace("-prime", "-standard"),
    ),
    "schedule": _fixed(
        "an alpha that rises from 0 to 1 or falls from 2 to 1 over the epochs, and the constant ones of the same means",
        {
            "constant": _ALPHA, "rising": {"alpha_start": 0.0, **_ALPHA}, "constant-0.5": {"alpha": 0.5},
            "falling": {"alpha_start": 2.0, **_ALPHA}, "constant-1.5": {"alpha": 1.5},
        },
    ),
    "waves": _fixed(
        "planar waves (Fourier-basis augmentation), by their mean strength, after PRIME and alone",
        {
            "prime": {}, **{f"prime-waves-{s}": {"wave_strength": float(s)} for s in _WAVES},
            "standard": _ONLY_WAVES, **{f"waves-{s}": {"wave_strength": float(s), **_ONLY_WAVES} for s in _WAVES},
        },
        prime=_ALONE,
    ),
}  # fmt: skip
"""By name. What is not in a run's settings is that of the recipe, without the Jensen-Shannon loss; ``--set`` changes
it for all runs of a question. mixup 0.2 is what its authors use on ImageNet, CutMix 1 what its authors use on CIFAR."""


def analysis(name: str) -> grids.Analysis:
    """The grid of a question, whose files are called after it."""
    question = QUESTIONS[name]

    def build(base: Mapping[str, Any], content: Mapping[str, Any]) -> Sequence[Run]:
        recipe = str(base.get("recipe", "cifar10"))
        dataset = recipe.partition("-")[0]
        runs = []
        for run, settings in question.runs(dataset).items():  # the paper's numbers are of its own recipes
            known = [known for known in question.reported.get(run, ()) if known.dataset == DATASETS.get(recipe)]
            runs.append(Run(run, settings, tuple(known)))
        return runs

    return grids.Analysis(
        name, own={}, base={"jsd": False}, build=build, draw=question.draw, seeds=SEEDS,
        notes=lambda rows: [question.summary], tables=lambda rows: differences(rows, question.base),
    )  # fmt: skip


def differences(rows: Sequence[Row], base: Callable[[str], str] | None = None) -> list[str]:
    """A table of how much the runs differ from the first one, over the seeds that both have; none without such. A run
    whose base is not among the rows is not in it.

    Args:
        base: The name of the run that each differs from; None: the first one.
    """
    measured = {row.run: _by_seed(row) for row in rows if row.measured}
    first = next(iter(measured))
    bases = {run: base(run) if base else first for run in measured}
    others = [run for run in measured if bases[run] != run and bases[run] in measured]
    against = [scores for run in others for scores in measured[bases[run]].values()]
    if not against:
        return []
    columns = [name for name in ("clean", "corrupted", BAR, ECE) if any(name in scores for scores in against)]
    cells = [
        [f"{run} from {bases[run]}" if base else run, *_difference(measured[run], measured[bases[run]], columns)]
        for run in others
    ]
    title = f"## Difference{'' if base else f' from {first}'}, percentage points, over runs of the same seed"
    return [title, "", _tables.markdown(["run", *columns, "seeds"], cells), ""]


def _difference(own: _BySeed, against: _BySeed, columns: Sequence[str]) -> list[str]:
    """Mean differences over the seeds of both, with their standard deviations, by column; and the number of seeds."""
    pairs = [(own[seed], against[seed]) for seed in sorted(own.keys() & against.keys())]
    if not pairs:
        return [*["-"] * len(columns), "0"]
    known = [name for name in columns if all(name in scores for pair in pairs for scores in pair)]
    mean, spread = mean_and_spread([{name: ours[name] - theirs[name] for name in known} for ours, theirs in pairs])
    signed = {name: f"{'+' if mean[name] > 0 else ''}{cell(mean[name], 2, spread.get(name))}" for name in known}
    return [*(signed.get(name, "-") for name in columns), str(len(pairs))]


def _by_seed(row: Row) -> _BySeed:
    return {content["settings"]["seed"]: scores(content["results"]) for content in row.finished}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    about = "; ".join(f"{name}: {question.summary}" for name, question in QUESTIONS.items())
    parser.add_argument("question", choices=tuple(QUESTIONS), metavar="QUESTION", help=about)
    grids.add_arguments(parser, analysis(next(iter(QUESTIONS))))


def run(options: argparse.Namespace) -> None:
    """Run the grid; errors as :func:`grids.run`."""
    grids.run(analysis(options.question), options)
