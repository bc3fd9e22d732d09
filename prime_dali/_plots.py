"""One style for all plots, and the plot that most of them are: dots by name.

Plots are light: pages show them as they are, and docs/site.css inverts their lightness on a dark page.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._files import replacing, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 7.0  # inches: as wide as the text of a page, so that letters are as large as those around the plot
COLORS = ("#0072b2", "#d55e00", "#009e73", "#b0447f", "#c98500", "#3f9fd8", "#5b4fa2", "#666666")
"""Okabe and Ito's colors, which people of any color vision tell apart, the light ones darker."""
MARKERS = "osD^vPX*"
_INK, _GRID = "#24292f", "#d8dee4"
_STYLE: Any = {
    "figure.dpi": 100, "savefig.dpi": 150, "figure.facecolor": "white", "axes.facecolor": "white",
    "font.size": 9.5, "axes.titlesize": 10, "axes.labelsize": 9.5, "legend.fontsize": 9, "xtick.labelsize": 9,
    "ytick.labelsize": 9, "figure.titlesize": 10, "text.color": _INK, "axes.labelcolor": _INK, "axes.titlecolor": _INK,
    "axes.edgecolor": "#8c959f", "xtick.color": _INK, "ytick.color": _INK, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": _GRID, "grid.linewidth": 0.8,
    "legend.frameon": False, "lines.linewidth": 1.8, "lines.markersize": 6, "errorbar.capsize": 2.5,
    "text.parse_math": False,  # names may have dollar signs
}  # fmt: skip


@contextlib.contextmanager
def plot(path: Path, height: float, width: float = WIDTH) -> Iterator[Figure]:
    """A figure of ``width`` x ``height`` inches, without a window; written to ``path`` (PNG) if the block succeeds."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        for axes in figure.axes:
            _plain_numbers(axes.xaxis)
            _plain_numbers(axes.yaxis)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png")


def _plain_numbers(axis: Axis) -> None:
    """Write the numbers at a logarithmic axis without the formulas of matplotlib, which it would show as they are."""
    from matplotlib.ticker import LogFormatter, LogFormatterMathtext

    if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
        axis.set_major_formatter("{x:,.12g}")
    if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
        axis.set_minor_formatter(LogFormatter())


@dataclass(frozen=True)
class Series:
    """Numbers by name, drawn with one marker."""

    label: str
    values: Mapping[str, float]
    errors: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)
    """Standard deviations, or distances to the least and the greatest value; without an entry: none is drawn."""
    reported: bool = False
    """From a paper: an open marker."""


def series_style(number: int) -> dict[str, Any]:
    """Color and marker of a plot's series, counted from 0."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def dots(axes: Axes, names: Sequence[str], series: Sequence[Series], text: str = "") -> None:
    """A row per name, the first on top, and in it a dot per series; the axis holds the data, not 0 to 100.

    A few numbers far below all others would press the others together. They are arrows at the edge, with their value.

    Args:
        axes: Where to draw.
        names: The rows.
        series: What to draw; those of several series stand below each other within a row.
        text: Format of numbers beside the dots of measured series, such as ``".2f"``; empty: none. Reported numbers
            have a single digit after the point.
    """
    low = _lowest([value for one in series for value in one.values.values()])
    pitch = 0.62 / max(len(series), 2)
    for number, one in enumerate(series):
        style = {**series_style(number), **({"markerfacecolor": "white"} if one.reported else {})}
        shift = pitch * (number - (len(series) - 1) / 2)
        axes.plot([], [], linestyle="none", label=one.label, **style)
        for place, name in enumerate(names):
            value = one.values.get(name, math.nan)
            if math.isnan(value):
                continue
            less, more = _both(one.errors.get(name, 0.0))
            below = value < low
            if below:
                axes.plot(low, place + shift, **{**style, "marker": "<"}, clip_on=False, zorder=4)
            else:
                axes.errorbar(value, place + shift, xerr=[[less], [more]] if less or more else None, **style, zorder=3)
            if below or (text and not one.reported):
                beside = low if below else value + more
                digits = text if text and not one.reported else ".1f"
                axes.annotate(f"{value:{digits}}", (beside, place + shift), (7, 0), fontsize=8.5,
                              textcoords="offset points", va="center")  # fmt: skip
    axes.set_yticks(range(len(names)), [shown(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.margins(x=0.06)
    left, right = axes.get_xlim()
    left = max(left, low)
    if text:  # room for the numbers
        right = right * (right / left) ** 0.2 if axes.get_xscale() == "log" else right + 0.3 * (right - left)
    axes.set_xlim(left, right)


def _lowest(values: Sequence[float]) -> float:
    """The least number that the axis shows; those below, a third at most, are at least twice as far away as all others,
    which are three or more, are apart."""
    known = sorted({value for value in values if not math.isnan(value)})
    for number in range(1, min(len(known) // 3, len(known) - 3) + 1):
        apart = known[-1] - known[number]
        if known[number] - known[number - 1] > 2 * apart > 0:
            return known[number] - 0.35 * apart
    return -math.inf


def _both(error: float | tuple[float, float]) -> tuple[float, float]:
    return error if isinstance(error, tuple) else (error, error)


def legend(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """The series of ``axes``, below the plot, where it takes no width; in as many of the ``columns`` as fit."""
    handles, labels = axes.get_legend_handles_labels()
    for number in range(min(columns, len(labels)), 0, -1):
        made = figure.legend(handles, labels, loc="outside lower center", ncols=number)
        if number == 1 or made.get_window_extent().width <= figure.bbox.width:
            break
        made.remove()
