"""Batches that other processes load, on machines with little shared memory too."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

_SHARED = "/dev/shm"
_AHEAD = 2  # batches that a process has loaded or is loading, which is the default of DataLoader


def load(items: Dataset[Any], item_bytes: int, size: int | None, workers: int, *, pin: bool = False) -> Iterator[Any]:
    """The batches of a ``DataLoader`` over items that are tuples of tensors and strings.

    Processes hand tensors over in shared memory. Where that is too small, as in a container with the default of 64 MiB,
    they go through pipes, which takes longer; where there is none, everything is loaded in this process.

    Args:
        items: A data set.
        item_bytes: Memory that the tensors of an item take.
        size: Items in a batch; None: single items.
        workers: Number of processes; 0: load in this one.
        pin: For copies to a GPU that do not wait; not through pipes.
    """
    if not os.access(_SHARED, os.W_OK):
        workers = 0
    needed = item_bytes * (size or 1) * (_AHEAD * workers + 1)  # also the batch that is in use
    if not workers or needed < shutil.disk_usage(_SHARED).free:
        yield from DataLoader(items, batch_size=size, num_workers=workers, pin_memory=pin)
        return
    collate = _array if size is None else _arrays
    for batch in DataLoader(items, batch_size=size, num_workers=workers, collate_fn=collate):
        yield tuple(torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in batch)


def _arrays(items: Sequence[Sequence[Any]]) -> list[Any]:
    """A batch with NumPy's arrays in place of tensors: torch's own function stacks those in shared memory."""
    parts = (_array(part) for part in zip(*items, strict=True))
    return [np.stack(part) if isinstance(part[0], np.ndarray) else part for part in parts]


def _array(item: Sequence[Any]) -> list[Any]:
    return [part.numpy() if isinstance(part, torch.Tensor) else part for part in item]
