"""``prime-dali analyze ablation``: the contribution of each primitive, mixing, the JSD loss, width and depth."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import grid_file, grids
from .grid_file import Reported, Run
from .grid_tables import COLUMNS, Row, label

# Corrupted, noise, blur, weather, digital, clean of a ResNet-18 on ImageNet-100, no JSD (table 3, "orthogonality").
_PRIMITIVES = """
none                    49.7 27.3 48.6 54.8 62.6 88.0
spectral                64.1 60.7 55.4 66.6 72.9 87.3
spatial                 53.8 30.1 56.2 57.6 65.4 87.0
color                   59.9 67.4 52.6 54.4 67.1 86.9
spectral+spatial        64.5 58.5 57.3 66.8 73.9 87.7
spectral+color          67.5 77.2 55.7 65.3 74.2 87.1
spatial+color           63.3 74.7 57.4 56.2 67.8 86.2
spectral+spatial+color  68.8 78.8 58.3 66.0 74.8 87.1
"""

# With and without the JSD loss, on CIFAR-10 and ImageNet-100 (section "Performance analysis" and table 1).
_WITHOUT_JSD = Reported("CIFAR-10", {"corrupted": 89.3})
_WITH_JSD = (
    Reported("CIFAR-10", {"clean": 94.2, "corrupted": 89.8}),
    Reported("ImageNet-100", {"clean": 85.9, "corrupted": 71.6}),
)


def primitives() -> dict[str, Reported]:
    """The paper's numbers for each of the eight sets of primitives."""
    columns = ("corrupted", "noise", "blur", "weather", "digital", "clean")
    return {
        name: Reported("ImageNet-100", dict(zip(columns, map(float, numbers), strict=True)))
        for name, *numbers in (line.split() for line in _PRIMITIVES.strip().splitlines())
    }


def build(base: Mapping[str, Any], content: Mapping[str, Any]) -> Sequence[Run]:
    """The runs of the file, or the built-in ones: each set of primitives, then each other setting with all three."""
    listed = grid_file.listed_runs(content)
    if listed is not None:
        return listed
    known = primitives()
    every = ("spectral", "spatial", "color")
    runs = []
    for number in range(len(every) + 1):
        for some in itertools.combinations(every, number):
            name = "+".join(some) or "none"
            also = (_WITHOUT_JSD,) if some == every else ()
            runs.append(Run(name, {"primitives": list(some)}, (known[name], *also)))
    runs += [Run("mixing=none", {"mixing": "none"}), Run("jsd", {"jsd": True}, _WITH_JSD)]
    runs += [Run(f"{name}={value}", {name: value}) for name in ("width", "depth") for value in (1, 5)]
    return runs


def notes(rows: Sequence[Row]) -> list[str]:
    """Nothing except the numbers of single runs."""
    return []


def draw(rows: Sequence[Row], figure: Any) -> None:
    """Plot a bar per run, with markers for clean images and the groups, and the paper's numbers as crosses."""
    names = list(dict.fromkeys(row.run for row in rows))
    figure.set_size_inches(8.5, 1.6 + 0.36 * len(names))
    axes = figure.subplots()
    measured = [row for row in rows if row.measured and row.scores]
    places = np.array([names.index(row.run) for row in measured])
    bars = axes.barh(
        places, [row.scores.get("corrupted", np.nan) for row in measured], color="lightsteelblue", zorder=2
    )
    handles: list[Any] = [bars]
    for column, marker in zip((c for c in COLUMNS if c != "corrupted"), "o^sDv", strict=True):
        values = [row.scores.get(column, np.nan) for row in measured]
        handles.append(axes.scatter(values, places, marker=marker, s=22, zorder=3))
    crosses = [row for row in rows if not row.measured]
    words = ["corrupted", *(c for c in COLUMNS if c != "corrupted")]
    for dataset in dict.fromkeys(row.dataset for row in crosses):
        own = [row for row in crosses if row.dataset == dataset]
        at = [names.index(row.run) for row in own]
        handles.append(axes.scatter([row.scores["corrupted"] for row in own], at, marker="x", s=36, zorder=4))
        words.append(f"corrupted, reported\non {dataset}")
    axes.set_yticks(range(len(names)), [label(next(r for r in rows if r.run == name)) for name in names])
    axes.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, 100), xlabel="accuracy, %")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(handles, words, loc="outside right upper", fontsize=8)


ANALYSIS = grids.Analysis(
    "ablation",
    {"runs": "a list of settings, each with a name", "vary": "lists of values by setting: a run for each combination"},
    {"jsd": False}, build, notes, draw,
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    grids.add_arguments(parser, ANALYSIS)


def run(options: argparse.Namespace) -> None:
    """Run the grid; errors as :func:`grids.run`."""
    grids.run(ANALYSIS, options)
