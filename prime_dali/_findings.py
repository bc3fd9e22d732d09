"""What is built, installed and usable, for ``prime-dali doctor`` and for the choice of a device for DALI."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from . import _extras, _native
from ._devices import cores
from ._wording import plural

DALI_OPERATOR = "native DALI operator"


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``advice`` says what to do if ``usable`` is False."""

    what: str
    usable: bool
    detail: str
    advice: str = ""


def dali_device(wish: str, plugin: Callable[[Finding], Finding], prime: bool = True) -> tuple[str, str]:
    """``"cpu"`` or ``"gpu"`` for a DALI pipeline, and why.

    Args:
        wish: ``"auto"``, ``"cpu"`` or ``"gpu"``.
        plugin: As for :func:`examine`.
        prime: Whether PRIME runs in it.

    Raises:
        RuntimeError: ``"gpu"``, but none is usable; the message says why and what to do.
    """
    if wish == "cpu":
        return "cpu", "as requested"
    dali = _dali()
    gpu = _dali_gpu(_gpu(), dali, *(_for_prime(_operator(plugin, dali)) if prime else ()))
    if gpu.usable:
        return "gpu", "as requested" if wish == "gpu" else gpu.detail
    if wish == "gpu":
        raise RuntimeError(f"device: expected a usable GPU, got: {gpu.detail}. {gpu.advice}")
    return "cpu", gpu.detail


def examine(plugin: Callable[[Finding], Finding]) -> list[Finding]:
    """Examine the package, its back ends and its optional dependencies. Never raises.

    Args:
        plugin: Reports on the native DALI operator, which only ``prime_dali.dali`` can examine:
            ``dali.native.finding``. Called if DALI is installed.
    """
    cuda, dali, gpu = _cuda_build(), _dali(), _gpu()
    operator = _operator(plugin, dali)
    on_gpu = _dali_gpu(gpu, dali, *_for_prime(operator))
    return [_cpu(), cuda, gpu, _torch(cuda), _cupy(), dali, operator, on_gpu]


def _cupy() -> Finding:
    return _package("cupy", "CuPy", _extras.install("cupy-cuda13"))


def _dali() -> Finding:
    return _package("nvidia.dali", "DALI", _extras.install("dali-cuda13"))


def _operator(plugin: Callable[[Finding], Finding], dali: Finding) -> Finding:
    return plugin(dali) if dali.usable else Finding(DALI_OPERATOR, False, f"DALI: {dali.detail}", dali.advice)


def _for_prime(operator: Finding) -> tuple[Finding, Finding]:
    """What PRIME needs in a pipeline on a GPU; CuPy, which takes a second to import, only in place of the operator."""
    return _cuda_build(), operator if operator.usable else _cupy()


def _cpu() -> Finding:
    try:
        from . import _arrays
    except ImportError as error:
        return Finding("CPU back end", False, str(error), "build the package again: pip install .")
    threads = cores()
    detail = f"compiler {_arrays.compiler}, {plural(threads, 'thread')} available"
    if missing := _arrays.missing_instructions():
        return Finding(
            "CPU back end", False, f"{detail}, but this processor lacks {missing}", "build with PRIME_DALI_MARCH=native"
        )
    try:
        return Finding("CPU back end", True, f"{detail}, instructions {_arrays.instructions()}")
    except ValueError as error:
        return Finding("CPU back end", False, str(error), "unset PRIME_DALI_INSTRUCTIONS")


def _cuda_build() -> Finding:
    try:
        from . import _arrays
    except ImportError as error:
        return Finding("CUDA back end", False, str(error), "build the package again: pip install .")
    if _arrays.cuda is None:
        return Finding(
            "CUDA back end", False, "not built", "install the CUDA toolkit (nvcc), then PRIME_DALI_CUDA=1 pip install ."
        )
    return Finding("CUDA back end", True, f"CUDA {_arrays.cuda}, compute capabilities {_arrays.architectures}")


def _gpu() -> Finding:
    advice = "a machine with an NVIDIA GPU and its driver"
    with contextlib.suppress(ImportError):
        _native.require_torch("the GPU")
        import torch

        if torch.cuda.is_available():
            names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
            return Finding("GPU", True, ", ".join(names))
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
        names = [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
        return Finding("GPU", True, ", ".join(names))
    except Exception:  # CuPy raises its own CUDA errors if there is no driver
        return Finding("GPU", False, "none visible", advice)


def _torch(cuda: Finding) -> Finding:
    if not _extras.there("torch"):
        return Finding("torch interface", False, "torch is not installed", _extras.install("torch"))
    try:
        import torch
    except ImportError as error:
        return Finding("torch interface", False, f"torch cannot be imported: {error}", _extras.install("torch"))
    try:
        torch_ops = importlib.import_module("prime_dali.torch_ops")
    except (ImportError, OSError) as error:
        detail = f"torch {torch.__version__}: {error}"
        return Finding("torch interface", False, detail, "pip install --no-build-isolation . with torch installed")
    devices = "CPU and CUDA" if torch_ops.HAS_CUDA else "CPU"
    if not torch_ops.HAS_CUDA and cuda.usable:
        devices += " (this torch is a CPU build, or the package was built against one)"
    return Finding("torch interface", True, f"torch {torch.__version__}, {devices}")


def _package(module: str, name: str, advice: str) -> Finding:
    if not _extras.there(module):
        return Finding(name, False, "not installed", advice)
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        return Finding(name, False, f"cannot be imported: {error}", advice)
    return Finding(name, True, str(getattr(loaded, "__version__", "version unknown")))


def _dali_gpu(gpu: Finding, *others: Finding) -> Finding:
    for needed in (gpu, *others):
        if not needed.usable:
            return Finding("DALI on the GPU", False, f"{needed.what}: {needed.detail}", needed.advice)
    return Finding("DALI on the GPU", True, gpu.detail)
