"""What the training experiments of ``prime-dali analyze`` share: grids of runs that resume, and their tables and
plots."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .. import _arguments, _command, _devices, _yaml
from .._files import TEXT
from ..training.config import differences
from . import grid_file, grid_finished, grid_tables
from .children import Children, say
from .grid_file import Grid, Run

_EPILOG = """
A grid file (YAML) has "base", settings of prime-dali train by name, "evaluate", options of prime-dali evaluate by name,
"seeds", a list{own}. --set, --evaluate and --seeds override it. Each run writes to the folder OUT/NAME, so names are of
letters, digits and _.+=,-; --list checks them, and the settings. Finished runs are not repeated, others resume,
and a failed run does not stop the others. OUT/NAME/finished.json has everything that the tables need of a run. Exit
status: 0 if the runs are finished, 75 if SIGTERM, SIGUSR1 or SIGHUP stopped them after a checkpoint (the same command
resumes them), 1 for an error, 2 for bad usage.
"""


@dataclass(frozen=True)
class Analysis:
    """A kind of grid."""

    name: str
    own: Mapping[str, str]
    """Fields of its grid file besides ``base`` and ``evaluate``, with descriptions."""
    base: Mapping[str, Any]
    """Settings of the paper's experiment that differ from the recipe's."""
    build: Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[Run]]
    """The runs, from the base settings and the content of the grid file."""
    draw: Callable[[Sequence[grid_tables.Row], Path], None]
    """Plots the rows."""
    notes: Callable[[Sequence[grid_tables.Row]], list[str]] = lambda rows: []
    """The paper's statements besides numbers of single runs, and their measured counterparts."""
    tables: Callable[[Sequence[grid_tables.Row]], list[str]] = lambda rows: []
    """More tables, in Markdown."""
    seeds: Sequence[int] = ()
    """Seeds of a grid that compares over seeds, if none are given: then two at least are needed."""


def add_arguments(parser: argparse.ArgumentParser, analysis: Analysis) -> None:
    """The options that all grids have."""
    own = "".join(f', "{name}", {what}' for name, what in analysis.own.items())
    parser.epilog = _EPILOG.format(own=own)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder for runs, tables and plots")
    add("--grid", type=Path, metavar="FILE", help="a grid file; default: the built-in grid")
    grid_file.add_options(parser)
    about = (
        "options of prime-dali evaluate: cifar-c=DIR or imagenet-c=DIR, which a grid needs for its table, and others; "
        "default of clean: the test set of data"
    )
    add("--evaluate", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=about)
    default = f"; default: {' '.join(map(str, analysis.seeds))}" if analysis.seeds else ""
    add("--seeds", nargs="+", type=int, metavar="S", help="repeat every run with each seed; the table has means "
        f"and standard deviations{default}")  # fmt: skip
    add("--rows", nargs="+", metavar="NAME", help="leave all other rows out of the grid and its table; a row is a run "
        "with all its seeds")  # fmt: skip
    add("--jobs", type=int, default=1, metavar="N", help="number of simultaneous runs, dealt out to all GPUs that "
        "CUDA_VISIBLE_DEVICES allows; small networks share a GPU well")  # fmt: skip
    add("--known", nargs="+", type=Path, default=[], metavar="DIR", help="folders of other grids (their --out), whose "
        "finished runs with the same settings and evaluation are taken over")  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", metavar="NAME", help="run only these")
    which.add_argument("--task", type=int, metavar="I", help="make only this run, counted from 0: for array "
                       "jobs, after which --collect makes the table")  # fmt: skip
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="print the runs and their states, and exit")
    what.add_argument(
        "--collect", action="store_true", help="make the table and the plot of the finished runs, and exit"
    )


def command(
    analysis: Analysis,
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], None]]:
    """``add_arguments`` and ``run`` of an analysis that has no options of its own."""
    return partial(add_arguments, analysis=analysis), partial(run, analysis)


def run(analysis: Analysis, options: argparse.Namespace, extra: Mapping[str, Any] | None = None) -> None:
    """Run the grid as the options say; exit with status 75 if a signal stopped it.

    Args:
        extra: Fields of the grid file that the command line gives.

    Raises:
        TypeError, ValueError, FileNotFoundError: As :func:`grid_file.check`; unknown names of runs.
        RuntimeError: Some runs failed; the message has each with its reason.
    """
    grid = read_grid(analysis, options, extra or {})
    chosen = choose(grid, options.only, options.task)
    if options.list:
        grid_file.check(grid, [])
        _list(grid, chosen, options.known)
        return
    jobs = _arguments.integer("jobs", options.jobs, 1, 1024)
    grid_file.check(grid, [] if options.collect else chosen)
    if not options.collect:
        _check_finished(grid, chosen)
    grid_finished.take_over(grid, chosen, options.known)
    try:
        try:
            if not options.collect:
                execute(grid, chosen, jobs)
        finally:
            if options.task is None:
                collect(analysis, grid)
    except SystemExit:
        print("stopped; the same command resumes", flush=True)
        raise


def _list(grid: Grid, chosen: Sequence[Run], known: Sequence[Path]) -> None:
    """Print the runs and their states; those that would be taken over are finished elsewhere."""
    elsewhere = grid_finished.find(grid, chosen, known)
    for number, one in enumerate(grid.runs):
        if one in chosen:
            its = f"finished in {elsewhere[one.name]}" if one.name in elsewhere else state(grid, one)
            print(f"{number}  {one.name}  ({its})  {json.dumps(dict(one.settings))}")


def read_grid(analysis: Analysis, options: argparse.Namespace, extra: Mapping[str, Any]) -> Grid:
    """The grid of the file and the command line; errors as for :func:`grid_file.read` and the analysis."""
    content = {**grid_file.read(options.grid, list(analysis.own)), **extra}
    base = {**analysis.base, **content["base"], **grid_file.given(options)}
    device = {} if options.device == "auto" else {"device": options.device}
    evaluate = {**content["evaluate"], **device, **grid_file.assignments("--evaluate", options.evaluate)}
    if "out" in base:
        raise ValueError("out: expected as --out, not among the settings of the runs, whose folders are in it")
    seeds = options.seeds or content.get("seeds") or analysis.seeds
    if analysis.seeds and len(seeds) < 2:
        raise ValueError(f"seeds: expected two or more for {analysis.name}, whose runs are compared, got {list(seeds)}")
    runs = analysis.build(base, content)
    grid_file.check_names("rows", options.rows or [], [one.name for one in runs])
    kept = [one for one in runs if not options.rows or one.name in options.rows]
    left_out = [one.name for one in runs if one not in kept]
    return Grid(analysis.name, base, evaluate, grid_file.over_seeds(kept, seeds), options.out, left_out)


def choose(grid: Grid, only: Sequence[str] | None, task: int | None) -> list[Run]:
    """The runs with these names, or the one with this number, or all.

    Raises:
        ValueError: There is no such run; the message has the nearest name.
    """
    if task is not None:
        if not 0 <= task < len(grid.runs):
            raise ValueError(f"task: expected 0 to {len(grid.runs) - 1}, got {task}")
        return [grid.runs[task]]
    grid_file.check_names("only", only or [], [one.name for one in grid.runs])
    return [one for one in grid.runs if only is None or one.name in only]


def state(grid: Grid, one: Run) -> str:
    """``"finished"`` with these very settings and this evaluation; else ``"stopped"`` or ``"not started"``."""
    from ..training import checkpoint  # here, because it takes seconds: for torch

    folder = grid.out / one.name
    content = grid_finished.read(folder)
    if content is None:
        return "stopped" if (folder / checkpoint.CONFIG).exists() else "not started"
    same = grid_finished.same(content, grid.config(one).plain(), grid.evaluate)
    return "finished" if same else "finished with other settings"


def _check_finished(grid: Grid, chosen: Sequence[Run]) -> None:
    """Raise an error if runs were finished with other settings, before a table is written without them."""
    for one in chosen:
        folder = grid.out / one.name
        old = grid_finished.read(folder)
        differ = differences(old["settings"], grid.config(one).plain()) if old else []
        if differ:
            raise ValueError(f"out: expected a folder of the same runs, got {folder} finished with {'; '.join(differ)}")


def execute(grid: Grid, chosen: Sequence[Run], jobs: int) -> None:
    """Train and evaluate the runs that are not finished, ``jobs`` at a time, each in processes of its own on one GPU.

    Raises:
        RuntimeError: Some failed; all others are finished.
        SystemExit: With status 75: a signal stopped it; 130: Ctrl-C did.
    """
    failed: dict[str, str] = {}
    on_cpu = all(grid.config(one).device == "cpu" for one in chosen)
    gpus, places = [] if on_cpu else _devices.visible_gpus()[:jobs], SimpleQueue[str]()
    for number in range(jobs):
        places.put(gpus[number % len(gpus)] if gpus else "")
    beside = -(-jobs // max(len(gpus), 1))

    def work(number: int, one: Run, running: Children) -> None:
        gpu = places.get()
        try:
            running.check()
            if state(grid, one) == "finished":
                say(f"{one.name}: already finished")
                return
            say(f"{one.name}: run {number} of {len(chosen)}")
            _execute(grid, one, partial(running.call, one.name if jobs > 1 else "", gpu), beside)
        except (RuntimeError, OSError) as error:
            failed[one.name] = _command.describe(error)
            say(f"{one.name}: {failed[one.name]}", sys.stderr)
        finally:
            places.put(gpu)

    with Children() as running, ThreadPoolExecutor(jobs) as pool:
        submitted = [pool.submit(work, number, one, running) for number, one in enumerate(chosen, 1)]
        while wait(submitted, timeout=1).not_done:  # a signal just before a wait does not end it
            pass
        for done in submitted:
            done.result()
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        others = ", the others are finished" if len(failed) < len(chosen) else ""
        raise RuntimeError(f"{len(failed)} of {len(chosen)} runs failed{others}: {reasons}")


def _execute(grid: Grid, one: Run, call: Callable[..., None], jobs: int) -> None:
    """Train and evaluate a run by ``call``, while up to ``jobs`` share its device."""
    with tempfile.TemporaryDirectory() as temporary:
        settings = Path(temporary) / "settings.yaml"
        settings.write_text(_yaml.dump(grid.config(one).plain()), **TEXT)
        call("train", "--config", str(settings))
    call("evaluate", *grid.evaluation(one))
    grid_finished.write(grid, one, jobs)


def collect(analysis: Analysis, grid: Grid) -> None:
    """Write the table of all runs, those without numbers included, and the picture; print the table."""
    states = {one.name: state(grid, one) for one in grid.runs}
    rows = grid_tables.rows(grid, states)
    missing = [name for name, its in states.items() if its != "finished"]
    notes = [*grid_tables.conditions(grid, rows, missing), *analysis.notes(rows)]
    text = "\n".join([grid_tables.markdown(analysis.name, notes, rows), *analysis.tables(rows)])
    print(text)
    paths = grid_tables.write(grid.out, analysis.name, notes, rows, text)
    if any(row.measured and row.scores for row in rows):
        paths.append(grid.out / f"{analysis.name}.png")
        analysis.draw(rows, paths[-1])
    for path in paths:
        print(f"wrote {path}")
