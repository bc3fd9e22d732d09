"""The numbers of a grid's runs as Markdown, CSV, JSON and a picture, beside what the paper reports."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from .._files import replacing
from .._states import Kind
from ..evaluation import report, reported
from ..evaluation.names import GROUPS
from . import grid_file
from .grid_file import Grid, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("clean", "corrupted", *GROUPS)
"""Accuracies, in per cent: on the clean test set, the mean over the benchmark, and over the corruptions of a group."""

DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "in100": "ImageNet-100", "imagenet": "ImageNet"}
"""By recipe, as the paper calls them."""


@dataclass(frozen=True)
class Row:
    """The numbers of a run, or what the paper reports of its like."""

    run: str
    dataset: str
    measured: bool
    state: str = ""
    """Of a measured run: ``"finished"``, or why there are no numbers."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """By :data:`COLUMNS`, as far as known."""
    minutes: float | None = None
    """Of training steps."""
    x: float | None = None
    """Its place in the plot."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """Of ``prime-dali evaluate``."""


def rows(grid: Grid, states: Mapping[str, str]) -> list[Row]:
    """All runs in the order of the grid, and after each what the paper reports of its like.

    Args:
        grid: The runs.
        states: By name of the run; only those that are ``"finished"`` have numbers.

    Raises:
        ValueError: A finished run's files are broken.
    """
    out = []
    for run in grid.runs:
        dataset = DATASETS[grid.config(run).recipe]
        numbers = _numbers(grid.out / run.name) if states[run.name] == "finished" else {}
        out.append(Row(run.name, dataset, True, states[run.name], x=run.x, **numbers))
        out += [Row(run.name, known.dataset, False, scores=known.scores, x=run.x) for known in run.reported]
    return out


_RESULTS = Kind(
    {"settings": {"hardware": str, "precision": str}, "versions": dict, "sets": dict}, "results of prime-dali evaluate",
    f"remove {grid_file.FINISHED} of this run, and it is evaluated again",
)  # fmt: skip


def _numbers(folder: Path) -> dict[str, Any]:
    finished = grid_file.finished(folder)
    assert finished is not None  # who asks knows
    path = folder / "evaluation" / "results.json"
    results = _RESULTS.read_json(path)
    try:
        _benchmark(results)
        return {"scores": scores(results), "minutes": finished["seconds"] / 60, "results": results}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _RESULTS.error(str(path), f"sets: {type(error).__name__}: {error}") from error


def scores(results: Mapping[str, Any]) -> dict[str, float]:
    """Per cent by :data:`COLUMNS` from the content of ``results.json``, as far as they were evaluated."""
    out, sets = {}, results["sets"]
    if "clean" in sets:
        out["clean"] = 100 * sets["clean"]["accuracy"]
    found = sets.get("cifar-c") or sets.get("imagenet-c")
    if found:
        out["corrupted"] = 100 * found["scores"]["corruption_accuracy"]
        out |= {group: 100 * accuracy for group, accuracy in found["scores"]["by_group"].items()}
    return out


def facts(grid: Grid, table: Sequence[Row]) -> list[str]:
    """What the numbers are worth nothing without, a line each."""
    config = grid.config(Run("base", {}))
    done = [row for row in table if row.measured and row.scores]
    out = [
        f"{sum(row.measured for row in table)} runs, {len(done)} finished; where a run says no other:"
        f" {DATASETS[config.recipe]}, {config.network}, {config.method}, {config.epochs} epochs, batch {config.batch}, "
        f"{'JSD' if config.jsd else 'no JSD'}, mixing {config.mixing}, seed {config.seed}",
        *([f"a trial: at most {config.limit_steps} steps an epoch"] if config.limit_steps else []),
        "one run each: differences within the spread over seeds mean nothing",
    ]
    for settings in {json.dumps([row.results["settings"][k] for k in ("hardware", "precision")]) for row in done}:
        hardware, precision = json.loads(settings)
        out.append(f"evaluated on {hardware}, in {precision}")
    for found in {json.dumps(_benchmark(row.results), sort_keys=True) for row in done}:
        one = json.loads(found)
        missing = f"; PARTIAL, missing: {'; '.join(one['missing'])}" if one["missing"] else ""
        sizes = " to ".join(f"{size:,}" for size in one["images"])
        made = "regenerated" if one["regenerated"] else "as found, without a manifest.json"
        out.append(f"corruptions: {one['folder']}, {made}; {sizes} images a corruption and severity{missing}")
    for versions in {json.dumps(row.results["versions"]) for row in done}:
        out.append(", ".join(f"{name} {version}" for name, version in json.loads(versions).items()))
    if any(not row.measured for row in table):
        out.append(f'"reported": {reported.SOURCE}; not measured')
    out.append("minutes: of training steps, without validation, checkpoints and the start")
    out.append(
        f"{datetime.now(timezone.utc).isoformat(timespec='seconds')}: {shlex.join(['prime-dali', *sys.argv[1:]])}"
    )
    return out


def _benchmark(results: Mapping[str, Any]) -> dict[str, Any]:
    found = results["sets"].get("cifar-c") or results["sets"]["imagenet-c"]
    sizes = [images for row in found["images"].values() for images in row.values()]
    return {**{name: found[name] for name in ("folder", "regenerated", "missing")},
            "images": sorted({min(sizes), max(sizes)})}  # fmt: skip


def markdown(name: str, notes: Sequence[str], table: Sequence[Row]) -> str:
    """The table, accuracies in per cent, as Markdown that is also good to read in a terminal."""
    regenerated = any(_benchmark(row.results)["regenerated"] for row in table if row.results)
    header = ["run", "clean", f"corrupted{' (regenerated)' if regenerated else ''}", *GROUPS, "minutes"]
    cells = []
    for row in table:
        digits = 2 if row.measured else 1
        minutes = "-" if row.minutes is None else f"{row.minutes:.1f}"
        cells.append([label(row), *(_cell(row.scores.get(column), digits) for column in COLUMNS), minutes])
    return "\n".join(
        [f"# {name}: accuracy, %", "", *(f"- {note}" for note in notes), "", report.table(header, cells), ""]
    )


def label(row: Row) -> str:
    """The run's name, with what its numbers are."""
    if not row.measured:
        return f"{row.run}, reported on {row.dataset}"
    return row.run if row.scores else f"{row.run}, {row.state}"


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def write(folder: Path, name: str, notes: Sequence[str], table: Sequence[Row]) -> list[Path]:
    """Write ``NAME.md``, ``NAME.csv`` and ``NAME.json``; their paths."""
    plain = [{key: value for key, value in asdict(row).items() if key != "results"} for row in table]
    content = {
        "format": "prime-dali-grid", "version": 1, "analysis": name, "prime-dali": __version__, "notes": list(notes),
        "rows": plain,
    }  # fmt: skip
    texts = {
        "md": markdown(name, notes, table),
        "csv": _csv(table),
        "json": json.dumps(content, indent=1) + "\n",
    }
    for suffix, text in texts.items():
        with replacing(folder / f"{name}.{suffix}") as aside:
            aside.write_text(text)
    return [folder / f"{name}.{suffix}" for suffix in texts]


def _csv(table: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "dataset", "source", "state", *COLUMNS, "minutes"])
    for row in table:
        numbers = [row.scores.get(column) for column in COLUMNS]
        source = "measured" if row.measured else "reported"
        writer.writerow([row.run, row.dataset, source, row.state, *numbers, row.minutes])
    return out.getvalue()


def picture(path: Path, table: Sequence[Row], draw: Callable[[Sequence[Row], Figure], None]) -> Path:
    """Draw the rows and write the picture; its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    draw(table, figure)
    with replacing(path) as aside:
        figure.savefig(aside, dpi=130)
    return path
