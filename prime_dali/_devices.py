"""What of this machine can be used, and the device that follows from it: the one choice for torch, and for DALI."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

DALI_OPERATOR = "native DALI operator"


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``advice`` says what to do where ``usable`` is False."""

    what: str
    usable: bool
    detail: str
    advice: str = ""


def torch_device(wish: str) -> torch.device:
    """The device of ``"cpu"``, ``"cuda"``, or ``"auto"``: a GPU if there is one.

    Raises:
        RuntimeError: ``"cuda"``, and torch can use no GPU.
    """
    import torch

    if wish == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("device: expected a GPU that torch can use, got none")
    return torch.device("cuda" if wish != "cpu" and torch.cuda.is_available() else "cpu")


def dali_device(wish: str, plugin: Callable[[Finding], Finding], prime: bool = True) -> tuple[str, str]:
    """``"cpu"`` or ``"gpu"`` for a DALI pipeline, and why.

    Args:
        wish: ``"auto"``, ``"cpu"`` or ``"gpu"``.
        plugin: As :func:`examine` takes it.
        prime: Whether PRIME runs in it.

    Raises:
        RuntimeError: ``"gpu"`` is wished for and cannot be had; the message says why and what to do.
    """
    if wish == "cpu":
        return "cpu", "as asked"
    findings = {finding.what: finding for finding in examine(plugin)}
    gpu = findings["DALI on the GPU"] if prime else _dali_gpu(findings["GPU"], findings["DALI"])
    if gpu.usable:
        return "gpu", "as asked" if wish == "gpu" else gpu.detail
    if wish == "gpu":
        raise RuntimeError(f"device: expected a usable GPU, got: {gpu.detail}. {gpu.advice}")
    return "cpu", gpu.detail


def examine(plugin: Callable[[Finding], Finding]) -> list[Finding]:
    """Look at the package, its back ends and its optional companions. Never raises.

    Args:
        plugin: Says of DALI what is known of its native operator, which only the package for DALI can look at:
            ``dali.native.finding``, called where DALI is installed.
    """
    cuda = _cuda_build()
    cupy = _package("cupy", "CuPy", "pip install 'prime-dali[cupy-cuda13]' (CUDA 12: cupy-cuda12)")
    dali = _package("nvidia.dali", "DALI", "pip install 'prime-dali[dali-cuda13]' (CUDA 12: dali-cuda12)")
    gpu = _gpu()
    absent = Finding(DALI_OPERATOR, False, f"DALI: {dali.detail}", dali.advice)
    operator = plugin(dali) if dali.usable else absent
    interface = cupy if cupy.usable or not operator.usable else operator
    return [_cpu(), cuda, gpu, _torch(cuda), cupy, dali, operator, _dali_gpu(gpu, dali, cuda, interface)]


def _cpu() -> Finding:
    try:
        from . import _arrays
    except ImportError as error:
        return Finding("CPU back end", False, str(error), "build the package again: pip install .")
    threads = len(os.sched_getaffinity(0))
    detail = f"compiler {_arrays.compiler}, {threads} threads available"
    if missing := _arrays.missing_instructions():
        return Finding("CPU back end", False, f"{detail}, but this processor lacks {missing}",
                       "build with PRIME_DALI_MARCH=native")  # fmt: skip
    return Finding("CPU back end", True, detail)


def _cuda_build() -> Finding:
    try:
        _arrays_cuda = importlib.import_module("prime_dali._arrays_cuda")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        detail = "not built" if missing else f"built, but does not load: {error}"
        return Finding("CUDA back end", False, detail,
                       "install the CUDA toolkit (nvcc), then PRIME_DALI_CUDA=1 pip install .")  # fmt: skip
    detail = f"CUDA {_arrays_cuda.cuda}, compute capabilities {_arrays_cuda.architectures}"
    return Finding("CUDA back end", True, detail)


def _gpu() -> Finding:
    advice = "a machine with an NVIDIA GPU and its driver"
    try:
        import torch

        if torch.cuda.is_available():
            names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
            return Finding("GPU", True, ", ".join(names))
    except ImportError:
        pass
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
        names = [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
        return Finding("GPU", True, ", ".join(names))
    except Exception:  # CuPy raises its own CUDA errors where there is no driver
        return Finding("GPU", False, "none visible", advice)


def _torch(cuda: Finding) -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("torch interface", False, "torch is not installed", "pip install 'torch>=2.10'")
    try:
        torch_ops = importlib.import_module("prime_dali.torch_ops")
    except (ImportError, OSError) as error:
        return Finding(
            "torch interface", False, f"torch {torch.__version__}: {error}", "pip install . with torch installed"
        )
    devices = "CPU and CUDA" if torch_ops.HAS_CUDA else "CPU"
    if not torch_ops.HAS_CUDA and cuda.usable:
        devices += " (this torch is a CPU build, or the package was built against one)"
    return Finding("torch interface", True, f"torch {torch.__version__}, {devices}")


def _package(module: str, name: str, advice: str) -> Finding:
    try:
        loaded = importlib.import_module(module)
    except ImportError:
        return Finding(name, False, "not installed", advice)
    return Finding(name, True, str(getattr(loaded, "__version__", "version unknown")))


def _dali_gpu(gpu: Finding, *others: Finding) -> Finding:
    for needed in (gpu, *others):
        if not needed.usable:
            return Finding("DALI on the GPU", False, f"{needed.what}: {needed.detail}", needed.advice)
    return Finding("DALI on the GPU", True, gpu.detail)
