"""``prime-dali analyze ablation``: the contribution of each primitive, mixing, the JSD loss, width and depth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _plots
from ..evaluation.names import GROUPS
from . import grid_file, grid_plots, grids
from .grid_file import PRIME_ALONE, Reported, Run, of_method
from .grid_tables import COLUMNS, Row

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
            also = (PRIME_ALONE["CIFAR-10"],) if some == every else ()
            runs.append(Run(name, {"primitives": list(some)}, (known[name], *also)))
    with_jsd = (*of_method("PRIME", "CIFAR-10"), *of_method("PRIME", "ImageNet-100"))
    runs += [Run("mixing=none", {"mixing": "none"}), Run("jsd", {"jsd": True}, with_jsd)]
    runs += [Run(f"{name}={value}", {name: value}) for name in ("width", "depth") for value in (1, 5)]
    return runs


def draw(rows: Sequence[Row], path: Path) -> None:
    """Plot what was measured: clean accuracy, corruption accuracy, and that of each group of corruptions, by run."""
    known = [(_title(row), row) for row in rows if row.measured and row.scores]
    names = [name for name, _ in known]
    with _plots.plot(path, 1.8 + 0.34 * len(names)) as figure:
        panels = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.5))
        for axes, column, title in zip(panels, COLUMNS, ("clean", "corruptions"), strict=False):
            _plots.dots(axes, names, [grid_plots.measured(title, column, known)], ".1f")
            axes.set(title=title, xlabel="accuracy, %")
        _plots.dots(panels[2], names, [grid_plots.measured(group, group, known) for group in GROUPS])
        panels[2].set(title="by group of corruptions", xlabel="accuracy, %")
        figure.suptitle(grid_plots.heading(rows))
        _plots.legend(figure, panels[2], len(GROUPS))


def _title(row: Row) -> str:
    name = {"none": "no primitive", "jsd": "all, JSD loss", "mixing=none": "all, no mixing"}.get(row.run, row.run)
    words = name.replace("+", " + ").replace("=", " ") if "," not in name else name
    return grid_plots.with_state(words, row.state)


ANALYSIS = grids.Analysis(
    name="ablation",
    own={
        "runs": "a list of settings, each with a name",
        "vary": "lists of values by setting: a run for each combination",
    },
    base={"jsd": False},
    build=build,
    draw=draw,
)
add_arguments, run = grids.command(ANALYSIS)
