"""The processes of one run, as torchrun starts them, and their communication."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .. import _devices


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int
    world: int
    device: torch.device

    @staticmethod
    def start(wish: str) -> Ranks:
        """Join the processes that ``torchrun`` started; without it there is one process.

        Args:
            wish: ``"cuda"``, ``"cpu"``, or ``"auto"``: a GPU if there is one.

        Raises:
            RuntimeError: ``"cuda"``, but there is no GPU for this process.
        """
        rank, world, local = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
        device = _devices.torch_device(wish, local)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if world > 1:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return Ranks(rank, world, device)

    @property
    def first(self) -> bool:
        """Whether this is the first process, which writes files and reports."""
        return self.rank == 0

    def sum(self, *numbers: int) -> list[int]:
        """Each number summed over all processes; waits for them."""
        if self.world == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        dist.all_reduce(total)
        return [int(v) for v in total.tolist()]

    def stop(self) -> None:
        """Leave the process group."""
        if self.world > 1:
            dist.destroy_process_group()
