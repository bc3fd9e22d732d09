"""The cores and GPUs of this machine, and the choice of one for torch and for the kernels."""

from __future__ import annotations

import importlib
import os
import platform
from typing import TYPE_CHECKING

from ._wording import plural

if TYPE_CHECKING:
    import torch


def cores() -> int:
    """The number of logical CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def torch_device(wish: str, process: int | None = None) -> torch.device:
    """The device of ``"cpu"``, ``"cuda"``, or ``"auto"``: a GPU if there is one.

    Args:
        wish: One of these.
        process: The number of this process on this machine, if each process gets its own GPU. None: torch's current
            GPU.

    Raises:
        RuntimeError: ``"cuda"``, but torch has no usable GPU; or there are fewer GPUs than processes.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wish == "cuda" and not gpus:
        raise RuntimeError("device: expected a GPU that torch can use, got none; see prime-dali doctor")
    if wish == "cpu" or not gpus:
        return torch.device("cpu")
    if process is None:
        return torch.device("cuda")
    if process >= gpus:
        raise RuntimeError(f"device: expected a GPU for each process of this machine, got {gpus} for {process + 1}")
    return torch.device("cuda", process)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them; CUDA is not started."""
    import torch

    count = torch.cuda.device_count()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in given.split(",")] if given else [str(number) for number in range(count)]
    return names[:count]


def kernel_device(wish: str) -> str:
    """``"cpu"``, ``"cuda"`` or ``"cuda:N"`` for the kernels on NumPy arrays or torch tensors; also without torch.

    Args:
        wish: One of these, or ``"auto"``.

    Raises:
        ValueError: A GPU, but none is usable, there are fewer, or this build has no CUDA.
    """
    if wish == "cpu":
        return wish
    number = wish.partition(":")[2]
    try:
        import torch

        usable = importlib.import_module("prime_dali.torch_ops").HAS_CUDA and torch.cuda.is_available()
    except (ImportError, OSError):
        usable = False
    if wish != "auto" and not usable:
        raise ValueError(f"device: expected cpu or auto where no GPU is usable, got {wish!r}; see prime-dali doctor")
    if number and int(number) >= torch.cuda.device_count():
        raise ValueError(f"device: expected cuda:0 to cuda:{torch.cuda.device_count() - 1}, got {wish!r}")
    return wish if number else "cuda" if usable else "cpu"


def name(device: torch.device) -> str:
    """A name for messages: the GPU's model, or the CPU with the number of torch's threads."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {plural(torch.get_num_threads(), 'thread')}"


def hardware(device: torch.device) -> str:
    """What a number was measured on: the GPU's or the processor's name."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
