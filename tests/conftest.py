"""Shared pieces of the tests: devices, images, and the tolerance that all comparisons use."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Here and in the processes that tests start: images and networks are too small for more threads, which would only wait
# for each other where two processes test at a time. Before torch is imported, which reads it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Until all tests are collected the garbage collector leaves old objects alone: it would walk again and again through all
# that is imported, of which nothing is garbage.
THRESHOLDS = gc.get_threshold()
gc.set_threshold(*THRESHOLDS[:2], 10**6)

import emulated_cuda
import numpy as np
import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; none is visible")
CUDA = pytest.param("cuda", marks=needs_gpu)
DALI_GPU = pytest.param("gpu", marks=pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("cupy") is None, reason="needs an NVIDIA GPU and CuPy"))  # fmt: skip
DEVICES = ["cpu", CUDA]
# How long a test continues beyond its share of the suite (make fuzz).
FUZZ_SECONDS = float(os.environ.get("PRIME_DALI_FUZZ_SECONDS", "0"))


def pytest_collection_finish() -> None:
    gc.set_threshold(*THRESHOLDS)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what is made once a run: all of its processes (pytest -n) have the same."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if hasattr(request.config, "workerinput") else own


@pytest.fixture(scope="session", autouse=True)
def cache(shared: Path) -> Iterator[None]:
    """A cache of these tests: none loads a native operator that somebody has built here before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIME_DALI_CACHE", str(shared / "cache"))
        yield


@pytest.fixture(scope="session")
def plugin(cache: None) -> Path:
    """The native operator, compiled from these sources and loaded."""
    dali = pytest.importorskip("prime_dali.dali", reason="NVIDIA DALI is not installed", exc_type=ImportError)
    dali.load_plugin()
    return dali.plugin_path()


@pytest.fixture(scope="session")
def cuda(shared: Path) -> Any:
    """``prime_dali._arrays`` for host memory: the CUDA sources, compiled for the CPU."""
    try:
        return emulated_cuda.load(shared / "cuda_on_cpu")
    except ImportError as missing:
        pytest.skip(f"CUDA cannot be emulated here: {missing}")


def make_images(count: int, height: int, width: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Smooth color images with flat dark and bright parts, so that slopes and clipping both occur; [N, 3, H, W].

    Floats are k / 255, as of decoded photographs; the CUDA kernels keep those exactly.
    """
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 5, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic", align_corners=True)
    images = ((smooth - 0.5) * 1.6 + 0.5 + 0.02 * torch.randn(count, 3, height, width, generator=generator)).clamp(0, 1)
    levels = (images * 255).round()
    return levels.to(torch.uint8) if dtype == torch.uint8 else (levels / 255).to(dtype)


def kept(x: np.ndarray) -> np.ndarray:
    """Pixels as the CUDA kernels keep them between passes (csrc/cuda/pixels.cuh): in steps of 1 / 32640."""
    raw = (x * (255 / 256) + (1 + 2**-16)).astype(np.float32).view(np.int32)
    return ((raw >> 8) & 0x7FFF) / 32640


def count_beyond(actual: torch.Tensor | np.ndarray, expected: np.ndarray, tolerance: float) -> int:
    """How many values differ by more than ``tolerance``; NaN counts."""
    if isinstance(actual, torch.Tensor):
        actual = actual.detach().double().cpu().numpy()
    return int(np.count_nonzero(~(np.abs(actual - expected) <= tolerance)))


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """This process raises KeyboardInterrupt at SIGINT, also if what started it ignores that, as a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
