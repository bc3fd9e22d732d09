"""``prime-dali train``: settings from the recipe, files and the command line, in that order, and the run."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _arguments, _command, _progress, _yaml
from .._wording import plural
from .config import METHODS, TrainConfig, defaults
from .recipes import RECIPES

_EPILOG = """
Settings of the recipe are overridden by those of --config FILE (YAML, names with underscores; "config: OTHER.yaml" in
it includes another file, relative to its folder), and these by the command line. The same
command resumes a run that was stopped or killed. Ctrl-C saves and stops; a second one stops at once. Exit status: 0
if the run is complete, 75 if SIGTERM, SIGUSR1 or SIGHUP stopped it after a checkpoint, 130 if Ctrl-C did, 1 for an
error, 2 for bad usage. Several processes: torchrun --nproc-per-node=N -m prime_dali train ...
"""


def parser(recipe: str = "cifar10", method: str = "prime", given: Mapping[str, Any] | None = None) -> _command.Parser:
    """The command line, with the defaults of a recipe and a method.

    Args:
        given: Settings from files, by name; they replace these defaults.
    """
    given = given or {}
    p = _command.Parser(
        prog="prime-dali train", description="Train a classifier by one of the paper's recipes.", epilog=_EPILOG
    )
    p.add_argument("--config", action="append", default=[], metavar="FILE", help="a file of settings (YAML)")
    chosen = {**defaults(recipe, method, given.get("network")), **given}
    for setting in dataclasses.fields(TrainConfig):
        name, (kind, about) = setting.name, _kinds()[setting.name]
        options: dict[str, Any] = {"type": kind}
        if kind is bool:
            options = {"action": argparse.BooleanOptionalAction}
        elif typing.get_origin(kind) is tuple:
            options = {"type": typing.get_args(kind)[0], "nargs": "*"}
        elif typing.get_origin(kind) is typing.Literal:
            options = {"choices": typing.get_args(kind)}
        required = name in ("data", "out") and name not in given
        p.add_argument(
            f"--{name.replace('_', '-')}", default=chosen.get(name, setting.default), required=required, help=about,
            **options,
        )  # fmt: skip
    return p


@functools.cache
def _kinds() -> dict[str, tuple[Any, str]]:
    """The type and the description of every setting."""
    hints = typing.get_type_hints(TrainConfig, include_extras=True)
    return {name: typing.get_args(hint) for name, hint in hints.items()}


def is_text(name: str) -> bool:
    """Whether this is the name of a setting that is text, such as a path."""
    return name in _kinds() and _kinds()[name][0] is str


def read(argv: Sequence[str] | None = None) -> TrainConfig:
    """The settings of a run from the command line; exits with status 2 for bad usage.

    Raises:
        OSError: A file of settings cannot be read.
        TypeError, ValueError: A setting is out of range, or of a file has the wrong type or is not read by the run.
    """
    first = _command.Parser(prog="prime-dali train", add_help=False)
    first.add_argument("--config", action="append", default=[])
    first.add_argument("--recipe")
    first.add_argument("--method")
    first.add_argument("--network")
    early, _ = first.parse_known_args(argv)
    # Files first: the command line overrides them, wherever --config is on it.
    given: dict[str, Any] = {}
    places: dict[str, str] = {}
    for path in early.config:
        for place, content in _contents(Path(path), ()):
            given |= content
            if content.keys() < TrainConfig.__dataclass_fields__.keys():  # all of them are the record of a run
                places |= dict.fromkeys(content, place)
    recipe = early.recipe or given.get("recipe", "cifar10")
    method = early.method or given.get("method", "prime")
    # The whole parser reports an unknown recipe or method; as a default it would go unnoticed.
    known = recipe in RECIPES and method in typing.get_args(METHODS)
    if early.network is not None:
        given["network"] = early.network
    whole = parser(recipe, method, given) if known else parser()
    options = vars(whole.parse_args(argv))
    for name in ("data", "out"):
        if not options[name]:
            whole.error(f"--{name}: expected a folder, got {options[name]!r}")
    config = configured(options)
    unread = config.unread()
    whole.refuse_unread(sys.argv[1:] if argv is None else argv, unread)
    for name, place in places.items():
        if name in unread:
            raise ValueError(f"{name} {place}: {unread[name]}")
    return config


def configured(settings: Mapping[str, Any]) -> TrainConfig:
    """The run with these settings, of which lists become tuples; raises what :class:`TrainConfig` raises."""
    given: dict[str, Any] = {name: settings[name] for name in TrainConfig.__dataclass_fields__ if name in settings}
    for name, value in given.items():
        given[name] = tuple(value) if isinstance(value, list) else value
    return TrainConfig(**given)


def checked(content: Mapping[Any, Any], where: str = "") -> dict[str, Any]:
    """Settings of a file or of a grid, each converted to its type.

    Args:
        content: Values by name, with underscores or hyphens.
        where: Their origin, for messages, such as ``"in run.yaml"``.

    Raises:
        ValueError: There is no such setting, or its value has the wrong type; the message names it.
    """
    place = f" {where}" if where else ""
    out = {}
    for given, value in content.items():
        name = str(given).replace("-", "_")
        if name not in TrainConfig.__dataclass_fields__:
            near = _arguments.nearest(name, TrainConfig.__dataclass_fields__)
            hint = f"; did you mean {near!r}?" if near else ""
            raise ValueError(f"{given}: expected a setting of prime-dali train{place}, got an unknown one{hint}")
        if value is None:
            raise ValueError(f"{name}: expected a value{place}, got nothing")
        out[name] = _converted(name, value, _kinds()[name][0], place)
    return out


def _converted(name: str, value: Any, kind: Any, place: str) -> Any:
    """A value from YAML, converted to the type of its setting."""
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
        return kind(value)  # YAML reads 1e-3 as text
    except (ValueError, OverflowError):
        raise ValueError(f"{name}: expected {_command.NUMBERS[kind]}{place}, got {value!r}") from None


def _contents(path: Path, above: tuple[Path, ...]) -> list[tuple[str, dict[str, Any]]]:
    """The settings of a file, with their place for messages, after those of the files that it includes by ``config``;
    ``above`` includes it.

    Raises:
        OSError: A file cannot be read.
        ValueError: It contains no settings by name, or includes itself; the message names the files.
    """
    via = "".join(f", included by {file}" for file in reversed(above))
    if path.resolve() in [file.resolve() for file in above]:
        raise ValueError(f"config: expected files that do not include each other in a circle, got {path}{via}")
    try:
        content = _yaml.load(path.read_text("utf-8"))
    except ValueError as error:  # also of bytes that are no UTF-8
        raise ValueError(f"config: expected YAML in {path}{via}: {error}") from None
    if not isinstance(content, dict):
        got = "nothing" if content is None else type(content).__name__
        raise ValueError(f"config: expected settings by name in {path}{via}, got {got}")
    named = content.pop("config", [])
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"config: expected the name of a file, or a list of names, in {path}{via}, got {named!r}")
    content = checked(content, place := f"in {path}{via}")
    included = [_contents(path.parent / Path(name).expanduser(), (*above, path)) for name in names]
    return [*itertools.chain(*included), (place, content)]


def main(argv: list[str]) -> None:
    """Run the command; exits with status 75 if a signal stopped the run, 130 if Ctrl-C did.

    Raises:
        TypeError, ValueError, OSError, RuntimeError, ImportError: As :class:`Trainer`.
    """
    config = read(argv)
    with _command.keeping_all():
        from .ranks import Ranks, wake  # after the words have been checked, for torch and torchvision take seconds

        wake(config.device, decodes=not config.is_cifar)
        from .trainer import Trainer  # while the GPU starts

        ranks = Ranks.start(config.device, decodes=not config.is_cifar)
        trainer = Trainer(config, ranks, lambda line: print(line, flush=True), _progress.Progress)
    if ranks.first:
        print(trainer.about(), flush=True)
    result = trainer.run()
    ranks.stop()
    if not ranks.first:
        return
    minutes = f"{result.seconds / 60:.1f} minutes of training"
    if not result.finished:
        why = "Ctrl-C" if result.interrupted else "a signal"
        print(f"stopped by {why} after step {result.step}, saved; {minutes}; the same command resumes")
        raise SystemExit(_command.INTERRUPTED if result.interrupted else _command.STOPPED)
    right = "" if result.accuracy is None else f", {100 * result.accuracy:.2f} % of the validation images correct"
    print(f"done: {plural(result.step, 'step')}, {minutes}{right}; {trainer.folder / 'last.pt'}")
