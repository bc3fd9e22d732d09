"""``prime-dali analyze alpha``: clean and corruption accuracy by the strength of PRIME."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _arguments, _plots
from ..evaluation import reported
from . import grid_plots, grids
from .grid_file import Run, check_names
from .grid_tables import Row

# Start, end and number of the paper's values, log-spaced, and the optimum that it finds (section "Robustness vs.
# accuracy trade-off": ResNet-18, no JSD, 30 epochs).
PAPER = {"CIFAR-10": (1e-3, 1e2, 100), "ImageNet-100": (1e-2, 1e2, 20)}
BEST = {"CIFAR-10": 0.2, "ImageNet-100": 1.0}
_A_DECADE = 2  # values of the built-in grid


def values(wanted: Any) -> list[float]:
    """The strengths of a grid file: a list, or ``{from: MINIMUM, to: MAXIMUM, points: NUMBER}``, evenly spaced on a
    logarithmic scale.

    Raises:
        TypeError, ValueError: It is neither, or a number is out of range.
    """
    if isinstance(wanted, dict):
        check_names("alpha", wanted, ["from", "to", "points"])
        if len(wanted) != 3:
            raise ValueError(f"alpha: expected from, to and points, got {wanted!r}")
        low, high = _arguments.interval("alpha", [_number(wanted["from"]), _number(wanted["to"])], np.inf)
        points = _arguments.integer("alpha: points", wanted["points"], 2, 10000)
        return [float(f"{alpha:.4g}") for alpha in np.geomspace(low, high, points)]
    if not isinstance(wanted, list) or not wanted:
        raise TypeError(f"alpha: expected a list of numbers, or from, to and points, got {wanted!r}")
    return [_arguments.amplitude("alpha", _number(alpha)) for alpha in wanted]


def _number(value: Any) -> Any:
    """Convert numbers such as 1e-3, which YAML reads as strings."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise TypeError(f"alpha: expected a number, got {value!r}") from None


def build(base: Mapping[str, Any], content: Mapping[str, Any]) -> Sequence[Run]:
    """A run per strength: those of the file, or two per decade of the paper's range."""
    low, high, _ = PAPER["CIFAR-10" if str(base.get("recipe", "cifar10")).startswith("cifar") else "ImageNet-100"]
    decades = round(np.log10(high / low))
    wanted = content.get("alpha", {"from": low, "to": high, "points": _A_DECADE * decades + 1})
    return [Run(f"alpha={alpha:g}", {"alpha": alpha}, x=alpha) for alpha in values(wanted)]


def notes(rows: Sequence[Row]) -> list[str]:
    """The measured and the reported optimum."""
    done = [row for row in rows if "corrupted" in row.scores]
    out = []
    if done:
        best = max(done, key=lambda row: row.scores["corrupted"])
        out.append(f"best corruption accuracy, measured: {best.scores['corrupted']:.2f} % at {best.run}")
    for dataset, alpha in BEST.items():
        out.append(
            f"best corruption accuracy, reported on {dataset} (ResNet-18, no JSD, 30 epochs): alpha near {alpha:g}"
        )
    return out


def draw(rows: Sequence[Row], path: Path) -> None:
    """Plot clean accuracy above corruption accuracy, by alpha, with the reported optimum as a line."""
    done = sorted((row for row in rows if row.x is not None and row.scores), key=lambda row: row.x or 0)
    best = BEST.get(rows[0].dataset)
    with _plots.plot(path, 4.8) as figure:
        (top, _), (bottom, _) = both = grid_plots.panels(figure)
        for number, (axes, column) in enumerate(both):
            grid_plots.draw_line(axes, done, column, "x", **_plots.series_style(number))
            if best is not None:
                label = f"optimum of corruption accuracy, reported, {reported.SOURCE}"
                axes.axvline(best, color="gray", linestyle="--", linewidth=1.2, label=label)
        # Near 0 linear, because alpha = 0, standard training, is worth showing too.
        if any(row.x == 0 for row in done):
            bottom.set_xscale("symlog", linthresh=min((row.x for row in done if row.x), default=1.0))
        else:
            bottom.set_xscale("log")
        places = [row.x for row in done if row.x is not None]
        if len(places) <= 12:
            bottom.set_xticks(places, [f"{place:g}" for place in places], minor=False)
            bottom.minorticks_off()
        bottom.set(xlabel="alpha, which scales every amplitude")
        if best is not None:
            _plots.legend(figure, bottom)
        top.set_title(grid_plots.heading(rows))


ANALYSIS = grids.Analysis(
    name="alpha",
    own={"alpha": "a list, or from, to and points (log-spaced)"},
    base={"jsd": False, "epochs": 30},
    build=build,
    draw=draw,
    notes=notes,
)
add_arguments, run = grids.command(ANALYSIS)
