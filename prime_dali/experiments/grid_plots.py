"""The plots that several grids have: accuracies by run, and by a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _plots
from ..evaluation import reported
from .grid_tables import BAR, Row, beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(rows: Sequence[Row], path: Path, titles: Mapping[str, str] | None = None) -> None:
    """Plot accuracies by run, with error bars over seeds and open markers for reported numbers.

    Args:
        rows: Of a grid.
        path: PNG.
        titles: What runs are called in the plot, by name; others by their names. A run that is not finished is called
            so.
    """
    titles = titles or {}
    state = {row.run: row.state for row in rows if row.measured}

    def title(run: str) -> str:
        return with_state(titles.get(run, run), state.get(run, ""))

    def series(column: str) -> list[_plots.Series]:
        known = [(title(row.run), row) for row in rows if column in row.scores]
        theirs = {name: row.scores[column] for name, row in known if not row.measured}
        own = measured(f"measured ({over_seeds(rows)})", column, known)
        return [own, _plots.Series(f"reported, {reported.SOURCE}", theirs, reported=True)] if theirs else [own]

    _draw(rows, path, list(dict.fromkeys(title(row.run) for row in rows)), series)


def draw_methods(rows: Sequence[Row], path: Path) -> None:
    """Plot accuracies of runs that are called ``NAME-METHOD``: a row per name, and in it a series per method, with
    error bars over the finished seeds."""
    known = [(*row.run.rpartition("-")[::2], row) for row in rows if row.measured]

    def series(column: str) -> list[_plots.Series]:
        return [
            measured(f"{method} ({over_seeds(rows)})", column,
                     [(name, row) for name, its, row in known if its == method])
            for method in dict.fromkeys(method for _, method, _ in known)
        ]  # fmt: skip

    _draw(rows, path, list(dict.fromkeys(name for name, _, _ in known)), series, each=0.6)


def over_seeds(rows: Sequence[Row]) -> str:
    """Of how many seeds the numbers in a plot are, and what its error bars are."""
    numbers = sorted({row.runs for row in rows if row.measured and row.runs})
    if max(numbers, default=1) == 1:
        return "one seed"
    return f"bars: standard deviation over {' or '.join(map(str, numbers))} seeds"


def heading(rows: Sequence[Row]) -> str:
    """The heading of a plot of what was measured."""
    return f"{rows[0].dataset}, measured ({over_seeds(rows)})"


def with_state(name: str, state: str) -> str:
    """What a run is called in a plot: by its name, and by its state unless that is ``"finished"`` or empty."""
    return name if state in ("", "finished") else f"{name} ({state})"


def measured(label: str, column: str, known: Sequence[tuple[str, Row]]) -> _plots.Series:
    """The scores in a column of those rows that were measured and have one, by the name beside the row."""
    own = [(name, row) for name, row in known if row.measured and column in row.scores]
    spread = {name: row.spread[column] for name, row in own if column in row.spread}
    return _plots.Series(label, {name: row.scores[column] for name, row in own}, spread)


def _draw(
    rows: Sequence[Row],
    path: Path,
    names: Sequence[str],
    series: Callable[[str], list[_plots.Series]],
    each: float = 0.38,
) -> None:
    """A panel for each column of accuracies that the rows have, with the series of it; ``each`` inches a name."""
    titles = {"clean": "clean", "corrupted": "corruptions", BAR: "C-bar"}
    titles = {column: title for column, title in titles.items() if any(column in row.scores for row in rows)}
    with _plots.plot(path, 1.6 + each * len(names)) as figure:
        every = figure.subplots(1, len(titles), sharey=True, squeeze=False)[0]
        for axes, (column, title) in zip(every, titles.items(), strict=True):
            _plots.dots(axes, names, series(column), ".2f")
            axes.set(title=title, xlabel="accuracy, %")
        figure.suptitle(rows[0].dataset)
        # Not all scores have been reported, so not every panel has a series of them.
        _plots.legend(figure, max(every, key=lambda axes: len(axes.get_legend_handles_labels()[0])))


def panels(figure: Figure) -> list[tuple[Axes, str]]:
    """Axes of clean accuracy above those of corruption accuracy, with the same x, each with its column."""
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.set(ylabel="clean accuracy, %")
    bottom.set(ylabel="corruption accuracy, %")
    return [(top, "clean"), (bottom, "corrupted")]


def draw_line(axes: Axes, rows: Sequence[Row], column: str, x: str, **style: Any) -> None:
    """Draw the scores of the rows that have them by the rows' field ``x``, with error bars over seeds."""
    known = [row for row in rows if column in row.scores]
    bars = [row.spread.get(column, 0.0) for row in known] if any(row.spread for row in known) else None
    axes.errorbar([getattr(row, x) for row in known], [row.scores[column] for row in known], yerr=bars, **style)


def draw_minutes(rows: Sequence[Row], path: Path) -> None:
    """Plot accuracies by minutes of training: a line for the runs whose names differ only in what follows the last
    hyphen. Reported accuracies, which have no minutes, are dashed lines."""
    lines: dict[str, list[Row]] = {}
    for row in sorted((row for row in rows if row.minutes is not None), key=lambda row: row.minutes or 0):
        lines.setdefault(row.run.rpartition("-")[0], []).append(row)
    theirs = [row for row in rows if not row.measured]
    with _plots.plot(path, 4.8) as figure:
        (top, _), (bottom, _) = both = panels(figure)
        for axes, column in both:
            for number, (name, line) in enumerate(lines.items()):
                draw_line(axes, line, column, "minutes", label=name, **_plots.series_style(number))
            for row in (row for row in theirs if column in row.scores):
                label = f"{row.run.rpartition('-')[0]}, reported, {reported.SOURCE}"
                axes.axhline(row.scores[column], color="gray", linestyle="--", linewidth=1.2, label=label)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
        bottom.set(xlabel=f"minutes of training steps{beside(rows)}")
        figure.suptitle(heading(rows))
        if lines:
            _plots.legend(figure, top)
