"""The processes of one run, as torchrun starts them, and their communication."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import conv2d

from .. import _devices


def wake(wish: str, *, decodes: bool = False) -> None:
    """Start the GPU of this process in a thread, as CUDA and cuDNN take seconds, in which modules can be imported.

    Args:
        wish, decodes: As for :meth:`Ranks.start`, which needs not wait as long then.

    Raises:
        RuntimeError: As there.
    """
    device = _choose_device(wish, decodes)
    if device.type == "cuda":
        # Python waits for it before it ends: a daemon thread, ended within CUDA, aborts the process, whose message and
        # exit status, of a missing package for instance, would be followed and replaced by the abort's.
        threading.Thread(target=_compute, args=(device,)).start()


def _compute(device: torch.device) -> None:
    """A convolution, without Python's lock most of the time."""
    with contextlib.suppress(RuntimeError):  # comes again, and is reported, when the run uses the GPU
        pixels = torch.zeros(8, 8, 8, 8, dtype=torch.bfloat16, device=device)
        conv2d(pixels, pixels).sum().item()


def _choose_device(wish: str, decodes: bool) -> torch.device:
    if decodes:
        # Streams that share one of the GPU's queues, of which CUDA makes 8, wait for each other: decoding for a whole
        # training step. Read when CUDA starts. Under MPS few processes can have so many.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    return _devices.torch_device(wish, int(os.environ.get("LOCAL_RANK", 0)))


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int
    world: int
    device: torch.device

    @staticmethod
    def start(wish: str, *, decodes: bool = False) -> Ranks:
        """Join the processes that ``torchrun`` started; without it there is one process.

        Args:
            wish: ``"cuda"``, ``"cpu"``, or ``"auto"``: a GPU if there is one.
            decodes: Whether DALI will decode images beside the training steps.

        Raises:
            RuntimeError: ``"cuda"``, but there is no GPU for this process.
        """
        rank, world = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1)))
        device = _choose_device(wish, decodes)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if world > 1:  # NCCL itself starts at the first collective: what is chosen for it until then counts
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

    def mean(self, values: torch.Tensor) -> list[float]:
        """Each value averaged over all processes; waits for them, and for the device.

        The order of an all-reduce's sums depends on how many values there are; here a mean depends on nothing else.
        """
        parts = [values]
        if self.world > 1:
            parts = [torch.empty_like(values) for _ in range(self.world)]
            dist.all_gather(parts, values)
        return [sum(numbers) / self.world for numbers in zip(*(part.tolist() for part in parts), strict=True)]

    def gathered(self, value: Any) -> list[Any]:
        """What each process gives, by rank: anything that can be pickled."""
        values = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(values, value)
        return values

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the first process's values to all."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def stop(self) -> None:
        """Leave the process group; not after an error of this process, because others may still communicate."""
        if self.world > 1:
            dist.destroy_process_group()


class SharedGradients:
    """A network's gradients, which one all-reduce averages over all processes.

    They are parts of one tensor. Unlike those of ``DistributedDataParallel`` they can be written by a CUDA graph, and
    nothing splits the compiled backward pass; the price is that the all-reduce starts when that pass is done.

    Args:
        network: Its parameters have one dtype and are dense in memory. Those without a gradient, if there are any, are
            the same ones on every process.
    """

    def __init__(self, network: nn.Module) -> None:
        self._parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        counts = [parameter.numel() for parameter in self._parameters]
        self._all = self._parameters[0].detach().new_zeros(sum(counts))
        self._parts = [
            part.as_strided(parameter.size(), parameter.stride())
            for part, parameter in zip(self._all.split(counts), self._parameters, strict=True)
        ]

    def gather(self) -> None:
        """After a backward pass: move the gradients into the tensor. Parameters without one are left so."""
        pairs = [
            (part, parameter.grad, parameter)
            for part, parameter in zip(self._parts, self._parameters, strict=True)
            if parameter.grad is not None
        ]
        torch._foreach_copy_([part for part, _, _ in pairs], [gradient for _, gradient, _ in pairs])
        for part, _, parameter in pairs:
            parameter.grad = part

    def average(self) -> None:
        """Replace each gradient by its mean over the processes."""
        dist.all_reduce(self._all, dist.ReduceOp.AVG)
