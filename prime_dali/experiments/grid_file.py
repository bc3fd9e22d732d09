"""Grids of training runs: the settings of a file and of the command line, and the runs that they define."""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import _arguments, _yaml
from ..evaluation import layouts, reported
from ..evaluation.names import C_SETS, SETS
from ..training import train
from ..training.config import FREE, TrainConfig, defaults

EVALUATION = (
    "clean", *SETS, "subset", "partial", "normalize", "reference", "bn-adapt", "seed", "batch", "device", "workers",
    "loader",
)  # fmt: skip
"""Options of ``prime-dali evaluate`` that a grid may set; the rest follows from the checkpoint."""

FOLDERS = ("clean", *SETS, "reference")
RENAMED = {"normalise": "normalize"}  # options of earlier versions
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=,-]*")


@dataclass(frozen=True)
class Reported:
    """Numbers of the paper to show beside a run: reported, not measured by this package."""

    dataset: str
    """The paper's name, such as ``"ImageNet-100"``."""
    scores: Mapping[str, float]
    """Percent, by column of the table: ``"clean"``, ``"corrupted"``, ``"noise"``, ..."""


PRIME_ALONE = {dataset: Reported(dataset, scores) for dataset, scores in reported.PRIME_ALONE.items()}
"""PRIME without the Jensen-Shannon loss, by data set."""


def of_method(method: str, dataset: str) -> tuple[Reported, ...]:
    """Clean and corruption accuracy of a method on a data set, by their names in the paper's main table, whose PRIME is
    with the Jensen-Shannon loss, but on ImageNet; none where that table has none."""
    known = (row for row in reported.of(dataset) if row.method == method)
    return tuple(Reported(dataset, {"clean": row.clean, "corrupted": row.mean}) for row in known)


@dataclass(frozen=True)
class Run:
    """One training run and its evaluation."""

    name: str
    """The name of its folder and of its rows."""
    settings: Mapping[str, Any]
    """Fields of TrainConfig in which it differs from the grid's base."""
    reported: tuple[Reported, ...] = ()
    x: float | None = None
    """Its position in the plot, if the runs of the grid have one."""
    of: str = ""
    """Its row of the table, if runs of several seeds share one."""

    @property
    def row(self) -> str:
        """The row of the table that it belongs to."""
        return self.of or self.name


@dataclass(frozen=True)
class Grid:
    """Runs with what they have in common."""

    name: str
    """Of the analysis; its files are called so."""
    base: Mapping[str, Any]
    """Fields of TrainConfig."""
    evaluate: Mapping[str, Any]
    """Options of ``prime-dali evaluate`` (:data:`EVALUATION`)."""
    runs: Sequence[Run]
    out: Path
    """Each run has a folder with its name in it."""
    left_out: Sequence[str] = ()
    """Rows that ``--rows`` does not name."""

    def config(self, run: Run) -> TrainConfig:
        """The training run.

        Raises:
            TypeError, ValueError: A setting is unknown or out of its range; the message names the run.
        """
        try:
            return train_config({**self.base, **run.settings, "out": str(self.out / run.name)})
        except (TypeError, ValueError) as error:
            raise type(error)(f"{run.name}: {error}") from None

    def lasting(self, run: Run) -> dict[str, Any]:
        """The settings that affect the numbers of a run, without paths and settings of speed."""
        return {name: value for name, value in self.config(run).plain().items() if name not in FREE}

    def evaluation(self, run: Run) -> list[str]:
        """The arguments of ``prime-dali evaluate`` for a run, the checkpoint and the place of the results included."""
        out = self.out / run.name
        words = [str(out / "last.pt"), "--out", str(out / "evaluation")]
        given = dict(self.evaluate)
        if "clean" not in given:  # the test set beside the training set
            config = self.config(run)
            given["clean"] = config.data if config.is_cifar else str(Path(config.data) / "val")
        for name, value in given.items():
            if value is not False:
                values = value if isinstance(value, list) else [] if value is True else [value]
                words += [f"--{name}", *(os.path.abspath(v) if name in FOLDERS else str(v) for v in values)]
        return words


def over_seeds(runs: Sequence[Run], seeds: Sequence[Any]) -> list[Run]:
    """Every run once per seed, ordered by seed; without seeds, the runs themselves.

    Raises:
        TypeError, ValueError: A value is not a seed, a seed occurs twice, or a run has its own seed.
    """
    for seed in seeds:
        _arguments.seed(seed)
        if list(seeds).count(seed) > 1:
            raise ValueError(f"seeds: expected each once, got {seed} more than once")
    for run in runs:
        if seeds and "seed" in run.settings:
            raise ValueError(f"seeds: expected runs without a seed of their own, got {run.name}")
    several = [replace(run, name=f"{run.name},seed={seed}", settings={**run.settings, "seed": seed}, of=run.name)
               for seed in seeds for run in runs]  # fmt: skip
    return several or list(runs)


def train_config(settings: Mapping[str, Any]) -> TrainConfig:
    """A run of these settings over those of its recipe, as ``prime-dali train --config`` makes it.

    Raises:
        TypeError, ValueError: A setting is unknown, of another type, or out of its range; the message names it.
    """
    given = train.checked(settings)
    if not given.get("data"):
        raise ValueError("data: expected the folder of the data set, got none (--data DIR, or base of the grid file)")
    recipe, method = given.get("recipe", "cifar10"), given.get("method", "prime")
    return train.configured({**defaults(recipe, method, given.get("network")), **given})


def read(path: Path | None, own: Collection[str]) -> dict[str, Any]:
    """The content of a grid file: ``base`` and ``evaluate``, both of them mappings, and what else is there.

    Args:
        path: YAML. None: an empty grid.
        own: The fields of the analysis besides ``base``, ``evaluate`` and ``seeds``.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It is not YAML, or has an unknown field; the message has the nearest known one.
    """
    content: Any = {}
    if path is not None:
        try:
            content = _yaml.load(path.read_text("utf-8")) or {}
        except ValueError as error:  # also of bytes that are no UTF-8
            raise ValueError(f"{path}: expected YAML ({error})") from None
        if not isinstance(content, dict):
            raise ValueError(f"{path}: expected the fields base, evaluate, ..., got {type(content).__name__}")
        check_names(f"{path}: field", content, ["base", "evaluate", "seeds", *own])
        if not isinstance(content.get("seeds", []), list):
            raise ValueError(f"{path}: seeds: expected a list of seeds, got {content['seeds']!r}")
    out = {**content, **{name: content.get(name) or {} for name in ("base", "evaluate")}}
    for name in ("base", "evaluate"):
        if not isinstance(out[name], dict):
            raise ValueError(f"{path}: {name}: expected settings by name, got {out[name]!r}")
    return out


def check_names(what: str, names: Iterable[Any], known: Sequence[str]) -> None:
    """Raise a ValueError for the first of ``names`` that is not in ``known``, with the nearest known name."""
    for name in names:
        _arguments.one_of(what, name, known)


def check(grid: Grid, chosen: Sequence[Run]) -> None:
    """Check everything that can be checked before the first run starts.

    Raises:
        TypeError, ValueError: An unknown or unfit setting of any run, or option of the evaluation; no benchmark of
            corruptions; two runs of a name; a benchmark lacks corruptions or severities that one of the ``chosen`` runs
            needs.
        FileNotFoundError: A folder that one of these needs.
    """
    from ..evaluation import command

    configs = [grid.config(run) for run in grid.runs]
    check_read(grid.base, configs)
    for run, config in zip(grid.runs, configs, strict=True):
        try:
            check_read(run.settings, [config])
        except ValueError as error:
            raise ValueError(f"{run.name}: {error}") from None
    for old in RENAMED.keys() & grid.evaluate.keys():
        raise ValueError(f"evaluate: {_arguments.renamed(old, RENAMED[old])}")
    check_names("evaluate", grid.evaluate, EVALUATION)
    for name in set(FOLDERS) & grid.evaluate.keys():
        if not isinstance(grid.evaluate[name], str) or not grid.evaluate[name]:
            got = grid.evaluate[name]
            raise ValueError(f"evaluate: {name}: expected the name of a folder or a file, got {got!r}")
    if not grid.evaluate.keys() & C_SETS:
        raise ValueError("evaluate: expected a benchmark, cifar-c or imagenet-c, got none (--evaluate cifar-c=DIR)")
    names = [run.name for run in grid.runs]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"runs: expected a name that a folder can have, of letters, digits and _.+=,-, got {name!r}"
            )
        if names.count(name) > 1:
            raise ValueError(f"runs: expected each name once, got {name!r} {names.count(name)} times")
    parser, sets = command.parser(), ["clean", *(name for name in SETS if name in grid.evaluate)]
    for run, config in zip(grid.runs, configs, strict=True):
        words = grid.evaluation(run)
        try:  # now rather than after the training
            parser.check_args(words)
            parser.refuse_unread(words, command.unread(sets, "bn-adapt" in grid.evaluate, config.is_cifar))
        except ValueError as error:
            raise ValueError(f"evaluate: {error}") from None
    if chosen:
        _check_folders(grid, chosen)


def _check_folders(grid: Grid, chosen: Sequence[Run]) -> None:
    """Check that what these runs read is there, and the benchmarks complete; errors as :func:`check`."""
    folders = {Path(grid.config(run).data) for run in chosen}
    folders |= {Path(value) for name, value in grid.evaluate.items() if name in FOLDERS}
    for folder in sorted(folders):
        if not folder.exists():
            raise FileNotFoundError(f"{folder}: no such file or folder")
    for name in (name for name in layouts.WITH_PARTS if name in grid.evaluate):
        folder = Path(grid.evaluate[name])
        try:  # which the evaluation would find out after every training
            layout = layouts.read(name, folder)
            if not grid.evaluate.get("partial"):
                layouts.check_complete(name, folder, layout.lacking)
        except (ValueError, FileNotFoundError) as error:
            raise type(error)(f"evaluate: {error}") from None


def check_read(base: Mapping[str, Any], configs: Iterable[TrainConfig]) -> None:
    """Raise a ValueError for a setting of these runs that none of them reads; it may be for some of them. Those that
    affect no result, such as ``workers``, are not looked for."""
    unread = [config.unread() for config in configs]
    for name in sorted({str(given).replace("-", "_") for given in base} - FREE):
        if unread and all(name in one for one in unread):
            raise ValueError(f"{name}: {unread[0][name]}")


def listed_runs(content: Mapping[str, Any]) -> list[Run] | None:
    """The runs of the fields ``runs`` (a list of settings, each with a ``name``) and ``vary`` (lists of values by
    setting: a run for each combination); None where there is neither.

    Raises:
        ValueError: They are something else.
    """
    if "runs" not in content and "vary" not in content:
        return None
    out = []
    runs, vary = content.get("runs") or [], content.get("vary") or {}
    if not isinstance(runs, list) or not isinstance(vary, dict):
        raise ValueError("runs, vary: expected a list of runs, and lists of values by setting")
    for number, entry in enumerate(runs):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ValueError(f"runs: expected settings with a name, got {entry!r} at place {number}")
        out.append(Run(entry["name"], {name: value for name, value in entry.items() if name != "name"}))
    for name, values in vary.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"vary: expected a list of values of {name}, got {values!r}")
    if vary:
        for values in itertools.product(*vary.values()):
            settings = dict(zip(vary, values, strict=True))
            out.append(Run(",".join(f"{name}={_word(value)}" for name, value in settings.items()), settings))
    return out


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Settings of ``prime-dali train`` that have options of their own, as other commands have them; the others."""
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder of the data set, as --set data=DIR")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where everything runs")
    about = "settings of all runs, such as epochs=30 recipe=in100"
    add("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=about)


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of the options of :func:`add_options`.

    Raises:
        ValueError: As :func:`assignments`; a setting of --set is none of training, or of another kind.
    """
    own = {"data": options.data, "device": None if options.device == "auto" else options.device}
    others = assignments("--set", options.set)
    try:
        train.checked(others)
    except ValueError as error:
        raise ValueError(f"--set: {error}") from None
    return {name: value for name, value in own.items() if value} | others


def assignments(argument: str, words: Iterable[str]) -> dict[str, Any]:
    """``NAME=VALUE ...`` of a command line, the values read as YAML; those that are text, as paths, as they are, unless
    they are in quotes.

    Raises:
        ValueError: A word that is none.
    """
    out: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError(f"{argument}: expected NAME=VALUE, got {word!r}")
        name = name.replace("_", "-") if argument == "--evaluate" else name.replace("-", "_")
        text = name in FOLDERS if argument == "--evaluate" else train.is_text(name)
        try:
            out[name] = value if text and value[:1] not in ("'", '"') else _yaml.load(value)
        except ValueError:
            raise ValueError(f"{argument}: expected a value in YAML, got {word!r}") from None
    return out
