"""The files of a run: its checkpoint, which is whole at any moment, and its log, which agrees with the checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from .._files import replacing

CHECKPOINT, LOG, CONFIG = "last.pt", "log.jsonl", "config.yaml"


def save(folder: Path, content: dict[str, Any]) -> None:
    """Write the checkpoint of a run; the one before stays until the new one is whole and on the disk.

    Raises:
        OSError: It cannot be written; the message says how much room the disk has.
    """
    path = folder / CHECKPOINT
    try:
        with replacing(path) as temporary:
            torch.save(content, temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError
        free = shutil.disk_usage(folder).free / 2**20
        raise OSError(
            f"{path}: the checkpoint cannot be written, the one before is kept ({error}; {free:,.0f} MiB free)"
        ) from error


def load(folder: Path) -> dict[str, Any] | None:
    """The checkpoint of a run, on the CPU; None if there is none yet.

    Raises:
        ValueError: The file is broken.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zipfile and torch raise many kinds for a file that is something else
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{path}: expected a checkpoint of this run, but it cannot be read ({reason}); "
            "put back a copy, or move it away to start again"
        ) from error
    if not isinstance(content, dict) or "run" not in content:
        raise ValueError(f"{path}: expected a checkpoint of a training run, got another file")
    return content


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
        """Continue the log of a folder from ``step`` on: lines of later steps, which will come again, are dropped."""
        self.path = folder / LOG
        kept = [line for line in read_log(folder) if line["step"] <= step] if step and self.path.exists() else []
        with replacing(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def write(self, **line: Any) -> None:
        """Append a line."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log; one that was cut off by a crash is not."""
    lines = []
    for text in (folder / LOG).read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines
