"""``prime-dali train``: settings from the recipe, a file and the command line, in that order, and the run."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .. import _arguments, _command, _progress
from .config import METHODS, RECIPES, TrainConfig, defaults
from .ranks import Ranks
from .trainer import Trainer

_EPILOG = """
Settings: the recipe's, then those of --config FILE (YAML, names with underscores; "config: OTHER.yaml" in it, seen from
its folder, takes those of another file first), then the command line's. The same
command continues a run that was stopped or killed. Ctrl-C saves and stops; a second one stops at once. Exit status: 0
when the run is complete, 75 when SIGTERM or SIGUSR1 stopped it after a checkpoint, 130 when Ctrl-C did, 1 for an error,
2 for bad usage. Several processes: torchrun --nproc-per-node=N -m prime_dali train ...
"""


def parser(recipe: str = "cifar10", method: str = "prime", given: Mapping[str, Any] | None = None) -> _command.Parser:
    """The command line, with the defaults of a recipe and a method.

    Args:
        given: Settings of files, by name; they are the defaults in place of those.
    """
    given = given or {}
    p = _command.Parser(
        prog="prime-dali train", description="Train a classifier by one of the paper's recipes.", epilog=_EPILOG
    )
    p.add_argument("--config", action="append", default=[], metavar="FILE", help="a file of settings (YAML)")
    chosen = {**defaults(recipe, method), **given}
    for setting in dataclasses.fields(TrainConfig):
        name, kind, about = setting.name, *_kind(setting.name)
        options: dict[str, Any] = {"type": kind}
        if kind is bool:
            options = {"action": argparse.BooleanOptionalAction}
        elif typing.get_origin(kind) is tuple:
            options = {"type": typing.get_args(kind)[0], "nargs": "+"}
        elif typing.get_origin(kind) is typing.Literal:
            options = {"choices": typing.get_args(kind)}
        required = name in ("data", "out") and name not in given
        p.add_argument(
            f"--{name.replace('_', '-')}", default=chosen.get(name, setting.default), required=required, help=about,
            **options,
        )  # fmt: skip
    return p


@functools.cache
def _kind(name: str) -> tuple[Any, str]:
    """The type of a setting, and what it is."""
    kind, about = typing.get_args(typing.get_type_hints(TrainConfig, include_extras=True)[name])
    return kind, about


def read(argv: Sequence[str] | None = None) -> TrainConfig:
    """The run that a command line asks for; exits with status 2 for bad usage.

    Raises:
        OSError: A file of settings cannot be read.
        TypeError, ValueError: A setting out of its range, or of a kind that a file cannot give it.
    """
    first = _command.Parser(prog="prime-dali train", add_help=False)
    first.add_argument("--config", action="append", default=[])
    first.add_argument("--recipe")
    first.add_argument("--method")
    early, _ = first.parse_known_args(argv)
    # Files first: what the command line says counts, wherever a file is named.
    given: dict[str, Any] = {}
    for path in early.config:
        for content in _contents(Path(path), ()):
            given |= content
    recipe = early.recipe or given.get("recipe", "cifar10")
    method = early.method or given.get("method", "prime")
    # The whole parser says what is wrong with an unknown name; as its default it would go unnoticed.
    known = recipe in RECIPES and method in typing.get_args(METHODS)
    whole = parser(recipe, method, given) if known else parser()
    options = vars(whole.parse_args(argv))
    for name in ("data", "out"):
        if not options[name]:
            whole.error(f"--{name}: expected a folder, got {options[name]!r}")
    return configured(options)


def configured(settings: Mapping[str, Any]) -> TrainConfig:
    """The run of these settings, lists of which may be tuples; errors as :class:`TrainConfig`."""
    given: dict[str, Any] = {name: settings[name] for name in TrainConfig.__dataclass_fields__ if name in settings}
    for name, value in given.items():
        given[name] = tuple(value) if isinstance(value, list) else value
    return TrainConfig(**given)


def checked(content: Mapping[Any, Any], where: str = "") -> dict[str, Any]:
    """Settings of a file or of a grid, each of its own kind.

    Args:
        content: By name, with underscores or with hyphens.
        where: They stand, for messages, as ``"in run.yaml"``.

    Raises:
        ValueError: There is no such setting, or it has a value of another kind; the message names it.
    """
    place = f" {where}" if where else ""
    out = {}
    for given, value in content.items():
        name = str(given).replace("-", "_")
        if name not in TrainConfig.__dataclass_fields__:
            near = _arguments.nearest(name, TrainConfig.__dataclass_fields__)
            hint = f"; did you mean {near!r}?" if near else ""
            raise ValueError(f"{given}: expected a setting of prime-dali train{place}, found no such one{hint}")
        if value is None:
            raise ValueError(f"{name}: expected a value{place}, got nothing")
        out[name] = _converted(name, value, _kind(name)[0], place)
    return out


_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def _converted(name: str, value: Any, kind: Any, place: str) -> Any:
    """A value of YAML as the kind of its setting."""
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{name}: expected a list{place}, got {value!r}")
        return tuple(_converted(name, one, typing.get_args(kind)[0], place) for one in value)
    if typing.get_origin(kind) is typing.Literal:
        if value not in typing.get_args(kind):
            raise ValueError(_arguments.unknown(f"{name}{place}", value, typing.get_args(kind)))
        return value
    if kind is bool or kind is str:
        if not isinstance(value, kind):
            raise ValueError(f"{name}: expected {'true or false' if kind is bool else 'text'}{place}, got {value!r}")
        return value
    try:
        if isinstance(value, bool) or not isinstance(value, (int, kind, str)):
            raise ValueError
        return kind(value)  # YAML takes 1e-3 for text
    except (ValueError, OverflowError):
        raise ValueError(f"{name}: expected {_NUMBERS[kind]}{place}, got {value!r}") from None


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
    named = content.pop("config", [])
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"config: expected the name of a file, or a list of names, in {path}{via}, got {named!r}")
    content = checked(content, f"in {path}{via}")
    included = [_contents(path.parent / Path(name).expanduser(), (*above, path)) for name in names]
    return [*itertools.chain(*included), content] if content else [*itertools.chain(*included)]


def main(argv: list[str]) -> None:
    """Run the command; exits with status 75 when a signal stopped the run, 130 when Ctrl-C did.

    Raises:
        TypeError, ValueError, OSError, RuntimeError, ImportError: As :class:`Trainer`.
    """
    config = read(argv)
    ranks = Ranks.start(config.device)
    try:
        trainer = Trainer(config, ranks, lambda line: print(line, flush=True), _progress.Progress)
        if ranks.first:
            print(trainer.about(), flush=True)
        result = trainer.run()
    finally:
        ranks.stop()
    if not ranks.first:
        return
    minutes = f"{result.seconds / 60:.1f} minutes of training"
    if not result.finished:
        why = "Ctrl-C" if result.interrupted else "a signal"
        print(f"stopped by {why} after step {result.step}, saved; {minutes}; the same command continues")
        raise SystemExit(_command.INTERRUPTED if result.interrupted else _command.STOPPED)
    right = "" if result.accuracy is None else f", {100 * result.accuracy:.2f} % of the validation images right"
    print(f"done: {result.step} steps, {minutes}{right}; {trainer.folder / 'last.pt'}")
