"""What all commands share: a parser, the wording of errors, and an exit status for each way in which a run can end."""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TextIO, cast

from . import _arguments, _devices, _extras
from ._files import naming

BAD_INPUT, USAGE, STOPPED, INTERRUPTED = 1, 2, 75, 130
"""Exit statuses besides 0. ``STOPPED``: by a signal, after saving (EX_TEMPFAIL: the same command resumes).
``INTERRUPTED``: Ctrl-C."""
DEBUG = "PRIME_DALI_DEBUG"  # in the environment, so that child processes inherit it

_REASONS = {
    errno.ENOENT: "no such file or folder", errno.EEXIST: "expected a folder, got a file",
    errno.ENOTDIR: "expected its parent to be a folder, got a file", errno.EISDIR: "expected a file, got a folder",
    errno.ENOSPC: "no space is left on the disk",
    errno.EACCES: "permission denied; change the permissions, or choose another place",
}  # fmt: skip
_EXPECTED = (ValueError, TypeError, RuntimeError, OSError, ImportError, MemoryError)
NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}  # what messages call them
_NEGATIVE = re.compile(r"-\.?\d")
_PACKAGE = str(Path(__file__).parent)


class Renamed(argparse.Action):
    """An option of earlier versions: an error that says what it is called now (``const``)."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(_arguments.renamed("/".join(self.option_strings), str(self.const)))


class Formatter(argparse.HelpFormatter):
    """Shows defaults in one format, and none if there is nothing to show.

    A help text whose default is computed ends in "default: WORDS"; the words are shown instead of the value.
    """

    def _get_help_string(self, action: argparse.Action) -> str:
        text, _, said = (action.help or "").partition("default: ")
        text, said = text.rstrip(" ;(,"), said.removesuffix(")")
        said = "" if said == "%(default)s" else said  # argparse adds it to some options itself
        if action.required and action.option_strings:
            said = "required"
        elif said or (said := shown_default(action).replace("%", "%%")):
            said = f"default: {said}"
        return f"{text} ({said})".lstrip() if said else text


def shown_default(action: argparse.Action) -> str:
    """The default of an option as it would be typed; empty: there is none to show."""
    value = action.default
    if value is None or value is argparse.SUPPRESS or (isinstance(value, bool) and action.nargs == 0):
        negative = any(option.startswith("--no-") for option in action.option_strings)
        return ("yes" if value else "no") if negative and isinstance(value, bool) else ""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line: the whole command, the option, what was expected, what was given."""

    current: ClassVar[Parser | None] = None
    """The parser of the running command."""
    _raises = False  # whether a mistake is a ValueError, not the end of the process

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **options})
        self._negative_number_matcher = _NEGATIVE  # as of Python 3.14: -1/4 is a value, though a wrong one
        if self.add_help:
            self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS,
                              help=f"on an error, print the traceback (as {DEBUG}=1 does)")  # fmt: skip

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but an unknown option is reported before missing ones."""
        words = list(sys.argv[1:] if args is None else args)
        for word in words[: words.index("--")] if "--" in words else words:
            if self._is_unknown(word):
                option = word.partition("=")[0]
                self.error(f"{option}: no such option{self._hint(option)}")
        options, rest = self.parse_known_args(words, namespace)
        if rest:
            self.error(f"{rest[0]}: unexpected argument")
        Parser.current = Parser.current or self
        return options

    def given(self, args: Sequence[str]) -> list[str]:
        """The names of the options that are among these words, whatever their values; not those with defaults alone."""
        words = {word.partition("=")[0] for word in args}
        return [action.dest for action in self._actions if words.intersection(action.option_strings)]

    def refuse_unread(self, args: Sequence[str], unread: Mapping[str, str]) -> None:
        """An error if one of the options among these words is in ``unread``, as :func:`._arguments.unread` returns it:
        nothing is ignored that was asked for."""
        for name in self.given(args):
            if name in unread:
                self.error(f"--{name.replace('_', '-')}: {unread[name]}")

    def as_option(self, message: str) -> str:
        """A message about a function's argument, reworded for the option that it came from."""
        argument, colon, rest = message.partition(": ")
        options = {
            name: action.option_strings[0]
            for action in self._actions
            for option in action.option_strings
            for name in (action.dest, option.lstrip("-").replace("-", "_"))
        }
        name = argument.replace("-", "_")
        # What is wrong with one of several, as of --methods, is about a method.
        known = [options[one] for one in (name, f"{name}s", f"{name.removesuffix('y')}ies") if one in options]
        return f"{known[0]}{colon}{rest}" if known else message

    def check_args(self, args: Sequence[str]) -> None:
        """Raise a ValueError where :meth:`parse_args` would exit."""
        self._raises = True
        self.parse_args(args)

    def error(self, message: str) -> NoReturn:
        """Print the error and the command that shows help; exit with status 2."""
        for pattern, replacement in _REWORDED:
            message = re.sub(pattern, replacement, message)
        if self._raises:
            raise ValueError(message)
        self.exit(USAGE, f"{self.prog}: {message}\nsee {self.prog} --help\n")

    def _is_unknown(self, word: str) -> bool:
        if len(word) < 2 or word[0] != "-" or " " in word or _NEGATIVE.match(word):
            return False
        return word.partition("=")[0] not in self._option_string_actions

    def _hint(self, option: str) -> str:
        shown = [name for name, action in self._option_string_actions.items() if action.help is not argparse.SUPPRESS]
        near = _arguments.nearest(option, shown)
        return f"; did you mean {near}?" if near else ""

    # argparse calls these for every value.

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, _arguments.expected_one_of(str(value), known))

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        wanted = NUMBERS.get(action.type)
        try:
            if action.type is Path and not text:
                raise ValueError
            return super()._get_value(action, text)
        except (argparse.ArgumentError, ValueError):
            if action.type is Path or wanted:
                what = wanted or "a file or a folder"
                raise argparse.ArgumentError(action, f"expected {what}, got {text!r}") from None
            raise


_REWORDED = (
    (r"^argument ", ""),
    (r"^COMMAND: ", "command: "),
    (r"^the following arguments are required: (.*)$", r"\1: required, but not given"),
    (r"not allowed with argument ", "not allowed with "),
    (r"expected one argument$", "expected a value, got none"),
    (r"expected at least one argument$", "expected one or more values, got none"),
    (r"expected (\d+) arguments$", r"expected \1 values"),
    (r"ignored explicit argument (.*)$", r"expected no value, got \1"),
)
"""Rewording of argparse's messages, as patterns and replacements."""


def choose(
    prog: str, about: str, members: Mapping[str, tuple[str, str]], words: Sequence[str], version: str = ""
) -> tuple[str, list[str]]:
    """The command that the first word names, and the words after it; exits for ``--help`` and bad usage.

    Args:
        prog: The words before the command's name.
        about: A description for the help.
        members: Commands by name: anything, and a summary.
        words: The command line after ``prog``.
        version: What ``--version`` prints; empty: no such option.
    """
    parser = Parser(prog=prog, description=about)
    if version:
        parser.add_argument("--version", action="version", version=version)
    names = parser.add_subparsers(dest="name", metavar="COMMAND", title="commands", prog=prog)
    for name, (_, summary) in members.items():
        names.add_parser(name, help=summary)
    at = next((place for place, word in enumerate(words) if not word.startswith("-")), len(words))
    name = parser.parse_args(words[: at + 1]).name
    Parser.current = None
    if name is None:
        parser.error(f"expected a command, one of {', '.join(members)}, got none")
    return name, list(words[at + 1 :])


def run(name: str, call: Callable[[], object]) -> int:
    """Call a command; an exception becomes a line on stderr and an exit status.

    Args:
        name: The whole command, such as ``"prime-dali analyze ablation"``.
        call: The command.
    """
    Parser.current = None
    try:
        with _named_stdout():
            call()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else BAD_INPUT if stop.code else 0
    except KeyboardInterrupt:
        _trace()
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it
        return BAD_INPUT
    except _EXPECTED as error:
        _trace()
        text = describe(error, name)
        print(f"{name}: {Parser.current.as_option(text) if Parser.current else text}", file=sys.stderr)
        return BAD_INPUT
    except Exception as error:  # a bug: print the whole traceback for its report
        traceback.print_exc()
        print(f"{name}: a bug in prime-dali, please report it ({type(error).__name__})", file=sys.stderr)
        return BAD_INPUT
    return 0


class _Stdout:
    """Standard output whose errors, as of a full disk, name it as those of files name these."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner

    def write(self, text: str) -> int:
        with self._named():
            return self._inner.write(text)

    def flush(self) -> None:
        with self._named():
            self._inner.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            with naming(Path("stdout")):
                yield
        except OSError:
            with contextlib.suppress(OSError):  # what is left to write would fail again when Python ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._inner.fileno())
            raise


@contextlib.contextmanager
def _named_stdout() -> Iterator[None]:
    """Stdout is a :class:`_Stdout` within the block, at whose end all has been written; an error of the block, or an
    interrupt, comes before an error of the rest of the output."""
    if sys.stdout is None:  # closed when Python began
        yield
        return
    with contextlib.redirect_stdout(cast(TextIO, _Stdout(sys.stdout))):
        try:
            yield
        except (Exception, KeyboardInterrupt):  # Ctrl-C also ends what reads the output, as tee
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            raise
        finally:
            sys.stdout.flush()


def describe(error: BaseException, name: str = "") -> str:
    """An exception's message for a user: in words, without an errno, and with what to do if that is known.

    Args:
        error: The exception.
        name: The command; it determines which extra installs a missing package.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        advice = _extras.advice(error.name, name)
        if advice:
            return advice
    if isinstance(error, OSError) and error.strerror:
        reason = _REASONS.get(error.errno or 0, error.strerror[0].lower() + error.strerror[1:])
        names = [os.fsdecode(path) for path in (error.filename, error.filename2) if isinstance(path, (str, bytes))]
        return f"{' to '.join(names)}: {reason}" if names else reason
    text = str(error).strip() or type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if frames and not frames[-1].filename.startswith(_PACKAGE):  # a library's; its other lines are for programmers
        return text.splitlines()[0]
    return text


@contextlib.contextmanager
def keeping_all() -> Iterator[None]:
    """Without Python's garbage collector: while modules are imported and networks compiled, almost all objects stay,
    and to look for others takes a seventh of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextlib.contextmanager
def debugging(words: Sequence[str]) -> Iterator[list[str]]:
    """The words without ``--debug``; if it was among them, errors in the block are shown with their traceback."""
    end = words.index("--") if "--" in words else len(words)
    rest = [word for place, word in enumerate(words) if word != "--debug" or place > end]
    before = os.environ.get(DEBUG)
    if len(rest) < len(words):
        os.environ[DEBUG] = "1"
    try:
        yield rest
    finally:
        os.environ.pop(DEBUG, None)
        if before is not None:
            os.environ[DEBUG] = before


def _trace() -> None:
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exc()


def whole(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: a whole number from ``low`` to ``high``."""

    def parse(text: str) -> int:
        try:
            return _arguments.integer("value", int(text), low, high)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}") from None

    return parse


def workers(text: str) -> int:
    """A type for argparse: the number of processes or threads; 0 means one per core that this process may use."""
    return whole(0, 4096)(text) or _devices.cores()
