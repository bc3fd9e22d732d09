"""Counts the images that ``PRIME`` gets without an index, and refuses calls that cannot be counted.

Counting is correct if every call is a new batch of this process. Otherwise augmented images would silently repeat, or
differ where they must be equal: if a copy of the counter counts (workers of a ``DataLoader``, forked processes,
replicas of ``DataParallel``), if a batch is computed twice (activation checkpointing), or if one call stands for many
(``torch.vmap``, a captured CUDA graph that does not contain the counter). These cases raise an error that asks for an
index.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

import torch

from . import _distributed

_forks = 0  # between the first process and this one
_seed_at_fork: int | None = None  # of torch's generator, in a forked process


def _forked() -> None:
    global _forks, _seed_at_fork
    _forks += 1
    _seed_at_fork = torch.initial_seed()


os.register_at_fork(after_in_child=_forked)


def forks() -> int:
    """A number that differs in two processes if one was forked from the other."""
    return _forks


def generator_is_a_copy() -> bool:
    """Whether torch's generator is that of the process from which this one was forked. Workers of a ``DataLoader`` get
    seeds of their own, which a ``worker_init_fn`` may replace, of the first worker often by the seed of the run."""
    return torch.utils.data.get_worker_info() is None and torch.initial_seed() == _seed_at_fork


def next_indices(counter: torch.Tensor, images: torch.Tensor, made_after: int) -> torch.Tensor:
    """Indices of the next images, int64 ``[N]`` on the device of ``images``, divided among the ranks of
    ``torch.distributed``.

    Args:
        counter: int64 ``[]``; N is added in one atomic step, so threads and streams that share it get each index once.
        images: ``[N, C, H, W]``, or clips ``[N, T, C, H, W]``.
        made_after: :func:`forks` when the counter was created.

    Raises:
        ValueError: The call cannot be counted; the message says why. Or the counter is on the meta device.
    """
    check_values(counter)
    if not torch.compiler.is_compiling():
        transform = torch._C._functorch.peek_interpreter_stack()
        if transform is not None and transform.key() == torch._C._functorch.TransformType.Functionalize:
            ask_for_index("under torch.func.functionalize, where the counter would not advance; give index=")
    return torch.ops.prime_dali.count(counter, images, made_after)


def rank_indices(first: torch.Tensor | int, count: int, rank: int, ranks: int, device: torch.device) -> torch.Tensor:
    """Indices over all ranks, which take turns, of ``count`` images of a rank, int64 ``[count]`` on ``device``.

    Args:
        first: How many images the rank had before; a tensor is int64 ``[]`` on ``device``.
        count, rank, ranks, device: Of the images, this rank, how many ranks there are, and where the result is.
    """
    return ranks * first + torch.arange(rank, rank + ranks * count, ranks, device=device)


def ask_for_index(where: str) -> NoReturn:
    """Raise the error of a call that cannot be counted."""
    raise ValueError(
        f"index: expected each image's index, got None {where}; and name the epoch, by epoch= or set_epoch()"
    )


def on_device(number: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A module's number, int64 ``[]``, on ``device``; from the CPU without synchronizing.

    Raises:
        ValueError: As :func:`refuse_capture`.
    """
    check_values(number)
    refuse_capture(number, device)
    if number.device == device:
        return number
    if number.is_cuda:
        return number.to(device)
    return torch.zeros((), dtype=number.dtype, device=device) + number


def check_values(number: torch.Tensor) -> None:
    """ValueError for a module's number on the meta device."""
    if number.is_meta:
        raise ValueError(
            "PRIME: expected its counter and epoch on a CPU or GPU, got them on meta, without values; call "
            "to_empty(device=...) and reset_parameters(), or create it outside of torch.device('meta')"
        )


def refuse_capture(number: torch.Tensor, device: torch.device) -> None:
    """ValueError if a CUDA graph is being captured, and would contain the number as a constant."""
    if torch.compiler.is_compiling() or device.type != "cuda" or number.is_cuda:
        return
    if torch.cuda.is_current_stream_capturing():
        raise ValueError(
            f"PRIME: expected its counter and epoch on {device} like images, so that the replays of a CUDA graph can "
            f"read them, got one on the CPU; use module.to({str(device)!r}), or give index and epoch as tensors"
        )


@torch.library.custom_op("prime_dali::count", mutates_args=("counter",))
def _count(counter: torch.Tensor, images: torch.Tensor, made_after: int) -> torch.Tensor:
    # In Python, and as an operator, because all this is known only when a compiled graph runs: it may have been
    # compiled before there was a process group.
    rank, ranks = _distributed.rank_and_ranks()
    if torch.utils.data.get_worker_info() is not None:
        ask_for_index(
            "in a worker of a DataLoader, where every worker would count its own copy, from the same number in every "
            "epoch, and augmentations would repeat; give index= from the data set, or augment in the training process"
        )
    if made_after != _forks and ranks == 1:
        ask_for_index(
            "in a process forked after PRIME was made, where a copy would count the same numbers as other processes; "
            "give index=, or create PRIME in this process"
        )
    if torch._C._current_graph_task_id() != -1:
        ask_for_index(
            "in a backward pass, where activation checkpointing computes a batch again and would get different images; "
            "give index="
        )
    refuse_capture(counter, images.device)
    first = on_device(torch.ops.prime_dali.reserve(counter, images.shape[0]), images.device)
    return rank_indices(first, images.shape[0], rank, ranks, images.device)


@_count.register_fake
def _count_fake(counter: torch.Tensor, images: torch.Tensor, made_after: int) -> torch.Tensor:
    return images.new_empty((images.shape[0],), dtype=torch.int64)


@_count.register_vmap
def _count_vmap(info: Any, in_dims: Any, *arguments: Any) -> NoReturn:
    ask_for_index("under torch.vmap, where one call stands for many and all would get the same draws; give index=")
