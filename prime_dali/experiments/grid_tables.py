"""The numbers of a grid's runs as Markdown, CSV, JSON and a plot, beside those of the paper."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__, _tables
from .._files import write_texts
from .._wording import plural
from ..evaluation import reported
from ..evaluation.names import C_BAR_SETS, C_SETS, GROUPS
from ..evaluation.results import mean_calibration, of_benchmark
from . import grid_finished
from .grid_file import Grid, Run

BAR = "C-bar"
COLUMNS = ("clean", "corrupted", *GROUPS)
"""Accuracies, in percent: on the clean test set, the mean over the benchmark, and over the corruptions of a group.
:data:`BAR`: the mean over the other benchmark, if it was evaluated."""

ECE = "ECE"
"""The mean calibration error over the benchmark, in percent: a further column, if it was measured."""

DATASETS = {
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "in100": "ImageNet-100", "imagenet": "ImageNet",
    "tinyimagenet": "Tiny ImageNet",
}  # fmt: skip
"""The paper's names, and Tiny ImageNet, by the data set of a recipe."""


@dataclass(frozen=True)
class Row:
    """The numbers of a run, or the paper's numbers of the same setting."""

    run: str
    dataset: str
    measured: bool
    state: str = ""
    """Of a measured run: ``"finished"``, or why numbers are missing."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """By :data:`COLUMNS`, if known; means over the finished seeds."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """Standard deviations of ``scores`` over seeds (of the sample: divided by n - 1); empty for one run."""
    runs: int = 0
    """Finished ones, whose numbers these are."""
    minutes: float | None = None
    """Of training steps; a mean as well, over the finished runs that had a device to themselves, or all if none had."""
    jobs: Sequence[int] = ()
    """How many runs shared the device of each finished one."""
    x: float | None = None
    """Its place in the plot."""
    finished: Sequence[Mapping[str, Any]] = ()
    """The content of the runs' ``finished.json``."""

    @property
    def results(self) -> list[Mapping[str, Any]]:
        """Of ``prime-dali evaluate``, a run each."""
        return [content["results"] for content in self.finished]


def rows(grid: Grid, states: Mapping[str, str]) -> list[Row]:
    """All rows in the order of the grid, each followed by the paper's numbers of the same setting.

    Args:
        grid: The runs; those of a row differ in their seeds.
        states: By name of the run; only those that are ``"finished"`` have numbers.

    Raises:
        ValueError: A finished run's file is broken.
    """
    out = []
    for name in dict.fromkeys(run.row for run in grid.runs):
        runs = [run for run in grid.runs if run.row == name]
        first, dataset = runs[0], DATASETS[grid.config(runs[0]).dataset]
        done = [_finished(grid.out / run.name) for run in runs if states[run.name] == "finished"]
        state = ", ".join(dict.fromkeys(states[run.name] for run in runs))
        if len(runs) > 1:
            state = "finished" if len(done) == len(runs) else f"{len(done)} of {len(runs)} seeds finished"
        out.append(Row(name, dataset, True, state, x=first.x, **_numbers(done)))
        out += [Row(name, known.dataset, False, scores=known.scores, x=first.x) for known in first.reported]
    return out


def _finished(folder: Path) -> dict[str, Any]:
    content = grid_finished.read(folder)
    assert content is not None  # who asks knows
    try:
        _corrupted_images(content["results"]), scores(content["results"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise grid_finished.KIND.error(
            str(folder / grid_finished.FILE), f"results: {type(error).__name__}: {error}"
        ) from error
    return content


def _numbers(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of a row from its finished runs."""
    if not done:
        return {}
    every = [scores(content["results"]) for content in done]
    means, spread = mean_and_spread(every)
    jobs = [content.get("jobs", 1) for content in done]
    minutes = statistics.fmean(done[place]["seconds"] for place in _timed(jobs)) / 60
    return {"scores": means, "spread": spread, "runs": len(done), "minutes": minutes, "jobs": jobs, "finished": done}


def _timed(jobs: Sequence[int]) -> Sequence[int]:
    """The places of the runs whose minutes count: of those that had a device to themselves, or of all if none had."""
    return [place for place, sharing in enumerate(jobs) if sharing == 1] or range(len(jobs))


def mean_and_spread(every: Sequence[Mapping[Any, float]]) -> tuple[dict[Any, float], dict[Any, float]]:
    """Means by key, and standard deviations of the sample; none of one alone. What one of them lacks, as those of
    earlier versions lack calibration errors, is left out."""
    shared = [key for key in every[0] if all(key in numbers for numbers in every)]
    means = {key: statistics.fmean(numbers[key] for numbers in every) for key in shared}
    if len(every) == 1:
        return means, {}
    return means, {key: statistics.stdev(numbers[key] for numbers in every) for key in shared}


def scores(results: Mapping[str, Any]) -> dict[str, float]:
    """Percent by :data:`COLUMNS` from the content of ``results.json``, for what was evaluated."""
    out, sets = {}, results["sets"]
    if "clean" in sets:
        out["clean"] = 100 * sets["clean"]["accuracy"]
    found = benchmark(results)
    out["corrupted"] = 100 * found["scores"]["corruption_accuracy"]
    out |= {group: 100 * accuracy for group, accuracy in found["scores"]["by_group"].items()}
    ece = mean_calibration(found, "ece")
    out |= {} if ece is None else {ECE: 100 * ece}
    bar = [sets[name] for name in C_BAR_SETS if name in sets]
    return out | ({BAR: 100 * bar[0]["scores"]["corruption_accuracy"]} if bar else {})


def benchmark(results: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry of the benchmark of corruptions, which every run of a grid is evaluated on."""
    sets: Mapping[str, Any] = results["sets"]
    first, last = C_SETS
    return sets[first if first in sets else last]


def conditions(grid: Grid, table: Sequence[Row], missing: Sequence[str]) -> list[str]:
    """The conditions of the numbers, a line each; ``missing``: names of the runs that have none."""
    done = [content for row in table for content in row.finished]
    out = [*_runs(grid, len(done), missing)]
    copies = {run.row for run in grid.runs if "data" in run.settings}  # their means are their own
    out += _data(grid, [content for row in table if row.run not in copies for content in row.finished])
    out += _evaluation([content["results"] for content in done])
    if any(not row.measured for row in table):
        out.append(f'"reported": {reported.SOURCE}; not measured')
    compiling = ", of runs of earlier versions with the first step, which compiles the network"
    earlier = compiling if any(content.get("first_step_counts", True) for content in done) else ""
    out.append(f"minutes: time of training steps, without validation, checkpoints and startup{earlier}{beside(table)}")
    return [*out, _tables.origin()]


def _runs(grid: Grid, finished: int, missing: Sequence[str]) -> Iterator[str]:
    """What was trained."""
    config = grid.config(Run("base", {}))
    seeds = dict.fromkeys(grid.config(run).seed for run in grid.runs if run.of)
    several = f"seeds {' '.join(map(str, seeds))}" if seeds else f"seed {config.seed}"
    yield (
        f"{plural(len(grid.runs), 'run')}, {finished} finished; unless a run says otherwise:"
        f" {DATASETS[config.dataset]}, {config.network}, {config.method}, {plural(config.epochs, 'epoch')}, "
        f"batch {config.batch}, {'JSD' if config.jsd else 'no JSD'}, mixing {config.mixing}, {several}"
    )
    if grid.left_out:
        yield f"left out by --rows: {'; '.join(grid.left_out)}"
    if config.limit_steps:
        yield f"a trial: at most {plural(config.limit_steps, 'step')} per epoch"
    if missing:
        yield f"PARTIAL: {plural(len(missing), 'run is', 'runs are')} missing: {'; '.join(missing)}"
    if len(seeds) > 1:
        yield "mean ± standard deviation over seeds (of the sample: divided by n - 1)"
    else:
        yield "one run each: differences within the spread over seeds are not significant"


def _evaluation(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How the runs were evaluated: a line for each of the hardware, benchmarks and versions among them."""
    for hardware, precision in dict.fromkeys((r["settings"]["hardware"], r["settings"]["precision"]) for r in results):
        yield f"evaluated on {hardware}, in {precision}"
    for found in sorted({json.dumps(_corrupted_images(one), sort_keys=True) for one in results}):
        one = json.loads(found)
        missing = f"; PARTIAL, missing: {'; '.join(one['missing'])}" if one["missing"] else ""
        sizes = " to ".join(f"{size:,}" for size in one["images"])
        made = "regenerated" if one["regenerated"] else "as found, without a manifest of prime-dali corrupt"
        yield f"corruptions: {one['name']}, {made}; {sizes} images per corruption and severity{missing}"
    for versions in sorted({json.dumps(one["versions"]) for one in results}):
        yield ", ".join(f"{name} {version}" for name, version in json.loads(versions).items())


def beside(table: Sequence[Row]) -> str:
    """Whose minutes those of a table are, where devices were shared, in words after a comma; empty: none was shared."""
    timed = [row.jobs[place] for row in table for place in _timed(row.jobs)]
    if max(timed, default=1) > 1:
        return f", while up to {max(timed)} runs shared the device"
    return ", of runs alone on a device" if len(timed) < sum(len(row.jobs) for row in table) else ""


def _data(grid: Grid, done: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether the training images were the published ones."""
    dataset = grid.config(Run("base", {})).dataset
    if dataset not in grid_finished.PUBLISHED:
        return []
    lines = []
    for content in done:
        what = "the published ones" if grid_finished.are_published(content, dataset) else "NOT the published ones"
        lines.append(f"training images: {what}, by their means per channel, {content.get('means')} of 255")
    return list(dict.fromkeys(lines))


def _corrupted_images(results: Mapping[str, Any]) -> dict[str, Any]:
    """What tables say of the corrupted images."""
    found = benchmark(results)
    sizes = [images for row in found["images"].values() for images in row.values()]
    return {"name": of_benchmark(found, found["folder"]), "images": sorted({min(sizes), max(sizes)}),
            **{name: found[name] for name in ("regenerated", "missing")}}  # fmt: skip


def markdown(name: str, notes: Sequence[str], table: Sequence[Row]) -> str:
    """The table, accuracies in percent, as Markdown that is also readable in a terminal."""
    regenerated = any(benchmark(one)["regenerated"] for row in table for one in row.results)
    columns = [*COLUMNS, *_present(table, BAR, ECE)]
    names = [f"corrupted{' (regenerated)' if regenerated else ''}" if c == "corrupted" else c for c in columns]
    header = ["run", *names, "minutes"]
    cells = []
    for row in table:
        digits = 2 if row.measured else 1
        minutes = "-" if row.minutes is None else f"{row.minutes:.1f}"
        cells.append([label(row), *(cell(row.scores.get(c), digits, row.spread.get(c)) for c in columns), minutes])
    return "\n".join(
        [
            f"# {name} on {table[0].dataset}: accuracy, %",
            "",
            *(f"- {note}" for note in notes),
            "",
            _tables.markdown(header, cells),
            "",
        ]
    )


def _present(table: Sequence[Row], *columns: str) -> list[str]:
    """Those of these columns that a row has a number for."""
    return [column for column in columns if any(column in row.scores for row in table)]


def label(row: Row) -> str:
    """The run's name, and the kind of its numbers."""
    if not row.measured:
        return f"{row.run}, reported on {row.dataset}"
    return row.run if row.state == "finished" else f"{row.run}, {row.state}"


def cell(value: float | None, digits: int, spread: float | None = None) -> str:
    """A number of a table, with its standard deviation if there is one."""
    return "-" if value is None else f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def write(folder: Path, name: str, notes: Sequence[str], table: Sequence[Row], text: str) -> list[Path]:
    """Write ``NAME.md`` (``text``), ``NAME.csv`` and ``NAME.json``; their paths."""
    plain = [{key: value for key, value in asdict(row).items() if key != "finished"} for row in table]
    content = {
        "format": "prime-dali-grid", "version": 1, "analysis": name, "prime-dali": __version__, "notes": list(notes),
        "rows": plain,
    }  # fmt: skip
    texts = {"md": text, "csv": _tables.csv(_csv_rows(table)), "json": json.dumps(content, indent=1) + "\n"}
    return write_texts(folder, {f"{name}.{suffix}": own for suffix, own in texts.items()})


def _csv_rows(table: Sequence[Row]) -> Iterator[Sequence[object]]:
    columns = [*COLUMNS, BAR, *_present(table, ECE)]
    spreads = [f"{column} standard deviation" for column in columns]
    yield ["run", "dataset", "source", "state", "seeds", *columns, "minutes", *spreads]
    for row in table:
        numbers, spread = ([given.get(column) for column in columns] for given in (row.scores, row.spread))
        source = "measured" if row.measured else "reported"
        yield [row.run, row.dataset, source, row.state, row.runs or "", *numbers, row.minutes, *spread]


def read(path: Path) -> list[Row]:
    """The rows of a ``NAME.json`` that :func:`write` has written, without the content of the runs' files."""
    return [Row(**row) for row in json.loads(path.read_bytes())["rows"]]
