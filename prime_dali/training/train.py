"""``prime-dali train``: settings from the recipe, a file and the command line, in that order, and the run."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import typing
from pathlib import Path
from typing import Any

import yaml

from .config import METHODS, RECIPES, TrainConfig, defaults
from .ranks import Ranks
from .trainer import Trainer

INTERRUPTED = 75  # exit status (EX_TEMPFAIL): a signal stopped the run, the same command continues it

_EPILOG = """
Settings: the recipe's, then those of --config FILE (YAML, names with underscores; "config: OTHER.yaml" in it, seen from
its folder, takes those of another file first), then the command line's. The same
command continues a run that was stopped or killed. Exit status: 0 when the run is complete, 75 when SIGTERM or SIGUSR1
stopped it after a checkpoint, 1 for an error, 2 for bad usage. Several processes:
torchrun --nproc-per-node=N -m prime_dali.cli train ...
"""


def parser(recipe: str = "cifar10", method: str = "prime") -> Any:
    """The command line, with the defaults of a recipe and a method."""
    try:
        from jsonargparse import ActionYesNo, ArgumentParser
    except ImportError as error:
        raise ImportError("training needs jsonargparse: pip install 'prime-dali[train]'") from error
    p = ArgumentParser(
        prog="prime-dali train", description="Train a classifier by one of the paper's recipes.", epilog=_EPILOG,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    p.add_argument("--config", action="config", help="a file of settings (YAML)")
    chosen, types = defaults(recipe, method), typing.get_type_hints(TrainConfig, include_extras=True)
    for setting in dataclasses.fields(TrainConfig):
        name, default = setting.name, chosen.get(setting.name, setting.default)
        kind, about = typing.get_args(types[name])  # of Annotated
        options: dict[str, Any] = {"type": kind}
        if kind is bool:
            options = {"action": ActionYesNo(yes_prefix="", no_prefix="no-")}
        elif isinstance(default, tuple):
            options, default = {"type": typing.get_args(kind)[0], "nargs": "+"}, list(default)
        p.add_argument(
            f"--{name.replace('_', '-')}", default=default, required=name in ("data", "out"), help=about, **options
        )
    return p


def read(argv: list[str] | None = None) -> TrainConfig:
    """The run that a command line asks for; exits with status 2 for bad usage.

    Raises:
        TypeError, ValueError: A setting out of its range.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", action="append", default=[])
    files, rest = first.parse_known_args(argv)
    contents = [content for path in files.config for content in _contents(Path(path), ())]
    # Files first: what the command line says counts, wherever a file is named.
    words = [*(word for content in contents for word in ("--config", yaml.safe_dump(content))), *rest]
    first.add_argument("--recipe")
    first.add_argument("--method")
    early, _ = first.parse_known_args(rest)
    from_files: dict[str, Any] = {}
    for content in contents:
        from_files |= content
    recipe = early.recipe or from_files.get("recipe", "cifar10")
    method = early.method or from_files.get("method", "prime")
    # The whole parser says what is wrong with an unknown name; as its default it would go unnoticed.
    known = recipe in list(RECIPES) and method in typing.get_args(METHODS)
    settings = parser(recipe, method).parse_args(words) if known else parser().parse_args(words)
    return configured(settings)


def configured(settings: Any) -> TrainConfig:
    """The run of what :func:`parser` has parsed; errors as :class:`TrainConfig`."""
    given: dict[str, Any] = {name: getattr(settings, name) for name in TrainConfig.__dataclass_fields__}
    for name, value in given.items():
        given[name] = tuple(value) if isinstance(value, list) else value
    return TrainConfig(**given)


def _check_kinds(content: dict[Any, Any], where: str) -> None:
    """ValueError for settings of a file of whose kind the parser would not name the setting."""
    defaults = {setting.name: setting.default for setting in dataclasses.fields(TrainConfig)}
    for name, value in content.items():
        default = defaults.get(str(name).replace("-", "_"))
        for kind, wanted in ((tuple, "a list"), (bool, "true or false")):
            if isinstance(default, kind) and not isinstance(value, list if kind is tuple else kind):
                raise ValueError(f"{name}: expected {wanted} {where}, got {value!r}")
        if value is None and name != "config":
            raise ValueError(f"{name}: expected a value {where}, got nothing")


def _contents(path: Path, above: tuple[Path, ...]) -> list[dict[str, Any]]:
    """The settings of a file, after those of the files that its ``config`` names; ``above`` are the files that name it.

    Raises:
        OSError: A file cannot be read.
        ValueError: It holds no settings by name, or names itself; the message has the files.
    """
    via = "".join(f", which {file} names" for file in reversed(above))
    if path.resolve() in [file.resolve() for file in above]:
        raise ValueError(f"config: expected files that do not name each other in a circle, got {path}{via}")
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"config: expected YAML in {path}{via}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        got = "nothing" if content is None else type(content).__name__
        raise ValueError(f"config: expected settings by name in {path}{via}, got {got}")
    _check_kinds(content, f"in {path}{via}")
    named = content.pop("config", [])
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"config: expected the name of a file, or a list of names, in {path}{via}, got {named!r}")
    included = [_contents(path.parent / Path(name).expanduser(), (*above, path)) for name in names]
    return [*itertools.chain(*included), content] if content else [*itertools.chain(*included)]


def main(argv: list[str]) -> None:
    """Run the command; exits with status 75 when a signal stopped the run.

    Raises:
        TypeError, ValueError, OSError, RuntimeError, ImportError: As :class:`Trainer`.
    """
    config = read(argv)
    from tqdm import tqdm

    ranks = Ranks.start(config.device)
    try:
        progress = None if not sys.stderr.isatty() else tqdm
        trainer = Trainer(config, ranks, lambda line: print(line, flush=True), progress)
        result = trainer.run()
    finally:
        ranks.stop()
    if not ranks.first:
        return
    minutes = f"{result.seconds / 60:.1f} minutes of training"
    if not result.finished:
        print(f"stopped by a signal after step {result.step}, saved; {minutes}; the same command continues")
        raise SystemExit(INTERRUPTED)
    print(f"done: {result.step} steps, {minutes}; {trainer.folder / 'last.pt'}")
