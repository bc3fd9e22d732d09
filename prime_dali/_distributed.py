"""This process among those of a run, by ``torch.distributed`` or by the launcher; torch is not imported for it."""

from __future__ import annotations

import os
import sys


def process_group() -> tuple[int, int] | None:
    """The rank of this process in ``torch.distributed`` and the number of ranks; None if there is no process group. A
    process that has not imported torch is in none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def rank_and_ranks() -> tuple[int, int]:
    """:func:`process_group`; 0 and 1 if there is none."""
    return process_group() or (0, 1)


def rank(inherited: int = 0) -> int:
    """The rank of this process: in ``torch.distributed``, else as the launcher says (``RANK``); 0 if neither does.

    Args:
        inherited: Without a process group, the rank of the process that this one works for, if that has one.

    Raises:
        ValueError: ``RANK`` is no number.
    """
    group = process_group()
    if group is not None:
        return group[0]
    given = inherited or os.environ.get("RANK", "0")
    try:
        return int(given)
    except ValueError:
        raise ValueError(f"RANK: expected the number of a rank, as torchrun sets it, got {given!r}; unset it") from None
