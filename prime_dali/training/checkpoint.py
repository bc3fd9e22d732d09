"""The files of a run: its checkpoint, which is complete at any time, and its log, which is consistent with it."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import check_pixels
from .._command import describe
from .._files import TEXT, naming, replacing, sync, write_text
from .._states import Kind
from ..models.networks import FORMAT

CHECKPOINT, LOG, CONFIG = "last.pt", "log.jsonl", "config.yaml"

_RUN = {
    "step": int, "seconds": float, "accuracy": (None, float), "data": list, "random": {"cpu": torch.Tensor},
    "optimizer": dict, "schedule": dict,
}  # fmt: skip
_KIND = Kind(
    {"format": frozenset((FORMAT,)), "config": dict, "model": dict, "run": _RUN},
    "a checkpoint of a training run",
    "restore a copy of it, or move it away to start again",
)


class Diverged(ValueError):
    """The loss is not finite; the message says at which step."""


def save(folder: Path, content: dict[str, Any]) -> None:
    """Write the checkpoint of a run; the previous one is kept until the new one is complete and synced.

    Raises:
        OSError: It cannot be written; the message says how much disk space is free, and whether a previous one exists.
    """
    path = folder / CHECKPOINT
    try:
        with replacing(path) as temporary:
            torch.save(content, temporary)
    except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError
        free = shutil.disk_usage(folder).free / 2**20
        before = "the previous one is kept" if path.exists() else "and there is no previous one"
        reason = f"{describe(error)}; {free:,.0f} MiB free"
        raise OSError(f"{path}: the checkpoint cannot be written, {before} ({reason})") from error


def load(folder: Path) -> dict[str, Any] | None:
    """The checkpoint of a run, on the CPU; None if there is none yet.

    Raises:
        ValueError: The file is not a checkpoint, or damaged; the message says what is wrong.
    """
    path = folder / CHECKPOINT
    return _KIND.read_torch(path) if path.exists() else None


@contextlib.contextmanager
def restoring(folder: Path, key: str) -> Iterator[None]:
    """Turn an error of torch in the block, for the part ``key`` of a checkpoint, into a ValueError that names both."""
    try:
        yield
    except Exception as error:  # RuntimeError, KeyError, TypeError, ...: the part does not match
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise _KIND.error(str(folder / CHECKPOINT), f"{key}: it does not match this run ({reason})") from error


def check_alike(given: Any, own: Any, key: str = "") -> None:
    """ValueError if ``given`` has another type than ``own`` (a number, a text, a list or a mapping) at any key.

    Keys that only one of them has are ignored: another version of torch may have other keys.
    """
    if isinstance(own, dict) and isinstance(given, dict):
        for name in own.keys() & given.keys():
            check_alike(given[name], own[name], f"{key}.{name}")
    elif isinstance(own, list) and isinstance(given, list):
        for place, (one, other) in enumerate(zip(given, own, strict=False)):
            check_alike(one, other, f"{key}[{place}]")
    else:
        kinds: tuple[Any, ...] = (bool, (int, float), str, list, dict)
        kind = next((kind for kind in kinds if isinstance(own, kind)), object)
        if not isinstance(given, kind):
            raise ValueError(f"{key[1:]}: expected a value like {own!r}, got {given!r}")


def check_step(folder: Path, step: int, total: int) -> None:
    """ValueError unless a checkpoint's step is one of the run's."""
    if not 0 <= step <= total:
        raise _KIND.error(str(folder / CHECKPOINT), f"run.step: expected 0 to {total}, the run's last step, got {step}")


def written(folder: Path) -> tuple[int, int] | None:
    """What identifies a version of the checkpoint: its modification time and size; None if there is none."""
    try:
        found = (folder / CHECKPOINT).stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def check_losses(folder: Path, losses: Sequence[float], step: int, total: int) -> None:
    """Check the losses of the steps up to ``step`` of ``total``.

    Raises:
        Diverged: One is NaN or infinite.
        ValueError: The reason is that PRIME was given invalid pixels.
    """
    for number, loss in enumerate(losses, step - len(losses) + 1):
        if not math.isfinite(loss):
            check_pixels()
            there = f"the last checkpoint in {folder} is from before that"
            raise Diverged(
                f"loss: expected a finite number, got {loss} at step {number} of {total}; "
                f"{there if written(folder) else 'there is no checkpoint'}; a smaller lr may help"
            )


class Log:
    """A file of JSON lines, each with the number of the step after which it was written."""

    def __init__(self, folder: Path, step: int) -> None:
        """Resume the log of a folder at ``step``: lines of later steps, which will be written again, are removed.

        Raises:
            ValueError: A line is damaged; nothing is changed.
        """
        self.path = folder / LOG
        kept = [line for line in read_log(folder) if line["step"] <= step] if step and self.path.exists() else []
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, **line: Any) -> None:
        """Append a line."""
        with naming(self.path), self.path.open("a", **TEXT) as file:
            file.write(json.dumps(line) + "\n")

    def sync(self) -> None:
        """Sync it to the disk, so that the log has the lines of every checkpoint."""
        sync(self.path)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of a run's log; an unterminated last line, from a crash, is ignored.

    Raises:
        ValueError: A line is damaged; the message has its number.
    """
    advice = "remove this line; the run does not need it"
    return list(Kind({"step": int}, "a line of the log of a training run", advice).json_lines(folder / LOG))
