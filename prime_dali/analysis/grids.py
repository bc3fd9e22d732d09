"""What ``prime-dali analyze ablation``, ``alpha`` and ``sample-complexity`` share: grids of training runs, one after
another, that go on where they were stopped, and the tables and pictures of what is finished."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .._files import replacing
from ..recipes import checkpoint
from ..recipes.config import FREE, differences
from ..recipes.train import INTERRUPTED
from . import grid_file, grid_tables
from .grid_file import Grid, Run

_EPILOG = """
A grid file (YAML) has "base", settings of prime-dali train by name, "evaluate", options of prime-dali evaluate by name,
and {own}. --set and --evaluate come after it. Each run has the folder OUT/NAME; finished ones are left alone, an
interrupted one continues, one that fails does not stop the others. Exit status: 0 when the runs are finished, 75 when
SIGTERM or SIGUSR1 stopped them after a checkpoint (the same command continues), 1 for an error, 2 for bad usage.
"""


@dataclass(frozen=True)
class Analysis:
    """A kind of grid."""

    name: str
    own: Mapping[str, str]
    """Fields of its grid file besides ``base`` and ``evaluate``, and what they are."""
    base: Mapping[str, Any]
    """Settings of the paper's experiment that differ from the recipe's."""
    build: Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[Run]]
    """The runs, from the base settings and the content of the grid file."""
    notes: Callable[[Sequence[grid_tables.Row]], list[str]]
    """What the paper reports besides numbers of single runs, and what stands against it in these rows."""
    draw: Callable[[Sequence[grid_tables.Row], Any], None]
    """Draws the rows into a figure of matplotlib."""


def add_arguments(parser: argparse.ArgumentParser, analysis: Analysis) -> None:
    """The options that all grids have."""
    own = ", ".join(f'"{name}", {what}' for name, what in analysis.own.items())
    parser.epilog = _EPILOG.format(own=own)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the runs, tables and pictures")
    add("--grid", type=Path, metavar="FILE", help="a grid file; default: the built-in grid")
    about = "settings of all runs, such as data=DIR epochs=30"
    add("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=about)
    about = "options of prime-dali evaluate, such as cifar-c=DIR; default of clean: the test set of data"
    add("--evaluate", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=about)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", metavar="NAME", help="these runs alone")
    which.add_argument("--task", type=int, metavar="I", help="this run alone, counted from 0, and no table: for arrays "
                       "of jobs, after which --collect makes it")  # fmt: skip
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="print the runs and their states, and run none")
    what.add_argument("--collect", action="store_true", help="make table and picture of what is finished, and run none")


def run(analysis: Analysis, options: argparse.Namespace, extra: Mapping[str, Any] | None = None) -> None:
    """Do what the options say; exits with status 75 when a signal stopped it.

    Args:
        extra: Fields of the grid file that the command line gives.

    Raises:
        TypeError, ValueError, FileNotFoundError: As :func:`grid_file.check`; unknown names of runs.
        RuntimeError: Some runs failed; the message has each with its reason.
    """
    grid = read_grid(analysis, options, extra or {})
    chosen = choose(grid, options.only, options.task)
    if options.list:
        for number, one in enumerate(grid.runs):
            if one in chosen:
                grid.config(one)  # a setting that is none is an error here too
                print(f"{number}  {one.name}  ({state(grid, one)})  {json.dumps(dict(one.settings))}")
        return
    grid_file.check(grid, [] if options.collect else chosen)
    if not options.collect:
        _check_finished(grid, chosen)
    try:
        if not options.collect:
            execute(grid, chosen)
    finally:
        if options.task is None:
            collect(analysis, grid)


def read_grid(analysis: Analysis, options: argparse.Namespace, extra: Mapping[str, Any]) -> Grid:
    """The grid of the file and the command line; errors as :func:`grid_file.read` and the analysis has them."""
    content = {**grid_file.read(options.grid, list(analysis.own)), **extra}
    base = {**analysis.base, **content["base"], **grid_file.assignments("--set", options.set)}
    evaluate = {**content["evaluate"], **grid_file.assignments("--evaluate", options.evaluate)}
    if "out" in base:
        raise ValueError("out: expected as --out, not among the settings of the runs, whose folders are in it")
    return Grid(analysis.name, base, evaluate, analysis.build(base, content), options.out)


def choose(grid: Grid, only: Sequence[str] | None, task: int | None) -> list[Run]:
    """The runs of these names, or the one of this number, or all.

    Raises:
        ValueError: There is none such; the message has the nearest name.
    """
    if task is not None:
        if not 0 <= task < len(grid.runs):
            raise ValueError(f"task: expected 0 to {len(grid.runs) - 1}, got {task}")
        return [grid.runs[task]]
    grid_file.check_names("only", only or [], [one.name for one in grid.runs])
    return [one for one in grid.runs if only is None or one.name in only]


def state(grid: Grid, one: Run) -> str:
    """``"finished"`` with these very settings and this evaluation; else ``"stopped"`` or ``"not started"``."""
    folder = grid.out / one.name
    content = grid_file.finished(folder)
    if content is None:
        return "stopped" if (folder / checkpoint.CONFIG).exists() else "not started"
    same = content["settings"] == _lasting(grid, one) and content["evaluate"] == grid.evaluation(one)
    return "finished" if same else "finished with other settings"


def _lasting(grid: Grid, one: Run) -> dict[str, Any]:
    return {name: value for name, value in grid.config(one).plain().items() if name not in FREE}


def _check_finished(grid: Grid, chosen: Sequence[Run]) -> None:
    """Refuse to go on with runs that were finished with other settings, before a table is written without them."""
    for one in chosen:
        folder = grid.out / one.name
        old = grid_file.finished(folder)
        differ = differences(old["settings"], grid.config(one).plain()) if old else []
        if differ:
            raise ValueError(f"out: expected a folder of the same runs, got {folder} finished with {'; '.join(differ)}")


def execute(grid: Grid, chosen: Sequence[Run]) -> None:
    """Train and evaluate the runs that are not finished, each in processes of its own.

    Raises:
        RuntimeError: Some failed; all others are finished.
        SystemExit: With status 75: a signal stopped it.
    """
    failed = {}
    with Children() as children:
        for number, one in enumerate(chosen, 1):
            if state(grid, one) == "finished":
                print(f"{one.name}: finished already", flush=True)
                continue
            print(f"{one.name}: run {number} of {len(chosen)}", flush=True)
            try:
                _execute(grid, one, children)
            except (RuntimeError, OSError) as error:
                failed[one.name] = str(error)
                print(f"{one.name}: {error}", file=sys.stderr, flush=True)
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        others = ", the others are finished" if len(failed) < len(chosen) else ""
        raise RuntimeError(f"{len(failed)} of {len(chosen)} runs failed{others}: {reasons}")


def _execute(grid: Grid, one: Run, children: Children) -> None:
    folder = grid.out / one.name
    with tempfile.TemporaryDirectory() as temporary:
        settings = Path(temporary) / "settings.yaml"
        settings.write_text(yaml.safe_dump(grid.config(one).plain()))
        children.call("train", "--config", str(settings))
    children.call("evaluate", *grid.evaluation(one))
    trained = checkpoint.load(folder)
    assert trained is not None  # the evaluation read it
    content = {
        "settings": _lasting(grid, one), "evaluate": grid.evaluation(one),
        "seconds": trained["run"]["seconds"], "steps": trained["run"]["step"],
    }  # fmt: skip
    with replacing(folder / grid_file.FINISHED) as aside:
        aside.write_text(json.dumps(content, indent=1) + "\n")


class Children:
    """Runs commands of this package one at a time, and passes on the signals that ask to save and stop."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Children:
        self._before = {n: signal.signal(n, self._stop) for n in (signal.SIGTERM, signal.SIGUSR1)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        self._stopping = True
        if self._process is not None:
            self._process.send_signal(number)

    def call(self, *arguments: str) -> None:
        """``prime-dali`` with these arguments, in a process of its own, whose memory and faults are its own.

        Raises:
            RuntimeError: It failed; the message has its last line on stderr.
            SystemExit: With status 75: a signal stopped it, or this process.
        """
        if self._stopping:
            raise SystemExit(INTERRUPTED)
        command = [sys.executable, "-m", f"{__package__.partition('.')[0]}.cli", *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=_die_with_parent)
        self._process = process
        assert process.stderr is not None
        said = b""
        try:
            while chunk := os.read(process.stderr.fileno(), 4096):
                sys.stderr.write(chunk.decode(errors="replace"))
                said = (said + chunk)[-2000:]
            status = process.wait()
        finally:
            self._process = None
            process.kill()  # only an exception leaves it alive
            process.wait()
            process.stderr.close()
        if status == INTERRUPTED or (status and self._stopping):
            raise SystemExit(INTERRUPTED)
        if status:
            lines = said.decode(errors="replace").strip().splitlines() or [""]
            own = [line for line in lines if line.startswith("prime-dali ")]  # a message may have more lines than one
            raise RuntimeError(f"{arguments[0]} ended with status {status} ({(own or lines)[-1]})")


def _die_with_parent() -> None:
    """Without this, a run whose grid was killed would train on beside its own continuation."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; a checkpoint is whole at any moment


def collect(analysis: Analysis, grid: Grid) -> None:
    """Write the table of all runs, those without numbers included, and the picture; print the table."""
    rows = grid_tables.rows(grid, {one.name: state(grid, one) for one in grid.runs})
    facts = [*grid_tables.facts(grid, rows), *analysis.notes(rows)]
    print(grid_tables.markdown(analysis.name, facts, rows))
    paths = grid_tables.write(grid.out, analysis.name, facts, rows)
    if any(row.measured and row.scores for row in rows):
        paths.append(grid_tables.picture(grid.out / f"{analysis.name}.png", rows, analysis.draw))
    for path in paths:
        print(f"wrote {path}")
