"""The files of a run: its checkpoint, which is whole at any moment, and its log, which agrees with the checkpoint."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .._command import describe
from .._files import naming, replacing, sync
from .._states import Kind
from ..models.networks import FORMAT

CHECKPOINT, LOG, CONFIG = "last.pt", "log.jsonl", "config.yaml"


_RUN = {
    "step": int, "seconds": float, "accuracy": (None, float), "data": list, "random": {"cpu": torch.Tensor},
    "optimizer": dict, "schedule": dict,
}  # fmt: skip
_KIND = Kind(
    {"format": frozenset((FORMAT,)), "config": dict, "model": dict, "run": _RUN}, "a checkpoint of a training run",
    "put back a copy, or move it away to start again",
)  # fmt: skip


def save(folder: Path, content: dict[str, Any]) -> None:
    """Write the checkpoint of a run; the one before stays until the new one is whole and on the disk.

    Raises:
        OSError: It cannot be written; the message says how much room the disk has, and whether there is one before.
    """
    path = folder / CHECKPOINT
    try:
        with replacing(path) as temporary:
            torch.save(content, temporary)
    except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError
        free = shutil.disk_usage(folder).free / 2**20
        before = "the one before is kept" if path.exists() else "and there is none before it"
        reason = f"{describe(error)}; {free:,.0f} MiB free"
        raise OSError(f"{path}: the checkpoint cannot be written, {before} ({reason})") from error


def load(folder: Path) -> dict[str, Any] | None:
    """The checkpoint of a run, on the CPU; None if there is none yet.

    Raises:
        ValueError: The file is none, or damaged; the message names what is wrong with it.
    """
    path = folder / CHECKPOINT
    return _KIND.read_torch(path) if path.exists() else None


@contextlib.contextmanager
def restoring(folder: Path, key: str) -> Iterator[None]:
    """What torch raises in the block for the part ``key`` of a checkpoint becomes a ValueError that names both."""
    try:
        yield
    except Exception as error:  # RuntimeError, KeyError, TypeError, ...: whatever the part does not fit
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise _KIND.error(str(folder / CHECKPOINT), f"{key}: it does not fit this run ({reason})") from error


def check_alike(given: Any, own: Any, key: str = "") -> None:
    """ValueError where a number, a text, a list or a mapping stands in ``own`` and something else in ``given``.

    What only one of them has is left to who reads it: another version of torch knows other keys.
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
            raise ValueError(f"{key[1:]}: expected something like {own!r}, got {given!r}")


def check_step(folder: Path, step: int, total: int) -> None:
    """ValueError unless a checkpoint's step is one of the run's."""
    if not 0 <= step <= total:
        raise _KIND.error(str(folder / CHECKPOINT), f"run.step: expected 0 to the run's last, {total}, got {step}")


def written(folder: Path) -> tuple[int, int] | None:
    """What tells one checkpoint of a folder from the next: when it was written and its size; None if there is none."""
    try:
        found = (folder / CHECKPOINT).stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


class Log:
    """Lines of JSON, each with the number of the step after which it was written."""

    def __init__(self, folder: Path, step: int) -> None:
        """Continue the log of a folder from ``step`` on: lines of later steps, which will come again, are dropped.

        Raises:
            ValueError: A line is damaged; nothing is changed.
        """
        self.path = folder / LOG
        kept = [line for line in read_log(folder) if line["step"] <= step] if step and self.path.exists() else []
        with replacing(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def write(self, **line: Any) -> None:
        """Append a line."""
        with naming(self.path), self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def sync(self) -> None:
        """Put it on the disk: a checkpoint that is there has its lines."""
        sync(self.path)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log; a last one that was cut off by a crash is not.

    Raises:
        ValueError: A line is damaged; the message has its number.
    """
    advice = "remove this line, which the run does not need"
    return list(Kind({"step": int}, "a line of the log of a training run", advice).json_lines(folder / LOG))
