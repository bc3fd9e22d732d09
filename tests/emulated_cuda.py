"""The CUDA sources, compiled as C++ with tests/cuda_on_cpu in the place of CUDA: CUDA's pixels without a GPU."""

from __future__ import annotations

import concurrent.futures
import fcntl
import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np

from prime_dali import Plan, PrimeConfig, arrays
from prime_dali.plan import row_words

ROOT = Path(__file__).parent.parent


def load(folder: Path) -> Any:
    """``prime_dali._arrays_cuda`` for host memory, compiled in ``folder`` unless another process has done that there.

    Raises:
        ImportError: There is no pybind11 or no C++ compiler.
        RuntimeError: The sources do not compile; the message ends with what the compiler says.
    """
    target = folder / f"_arrays_cuda{sysconfig.get_config_var('EXT_SUFFIX')}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _compile(folder, target)
    spec = importlib.util.spec_from_file_location("_arrays_cuda", target)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(folder: Path, target: Path) -> None:
    import pybind11

    compiler = shutil.which("c++")
    if compiler is None:
        raise ImportError("compiling needs a C++ compiler")
    shutil.copytree(ROOT / "csrc", folder / "csrc", dirs_exist_ok=True)
    shutil.copy(ROOT / "tests/cuda_on_cpu/device.cuh", folder / "csrc/cuda/device.cuh")
    sources = [folder / "csrc/arrays/module_cuda.cpp"]
    for source in sorted((folder / "csrc/cuda").glob("*.cu")):
        sources.append(source.with_suffix(".cpp"))
        source.rename(sources[-1])
    flags = ["-std=c++17", "-O1", "-w", "-fPIC", "-march=native", "-ffp-contract=off", "-fvisibility=hidden"]
    names = ['-DPRIME_CUDA_VERSION="none"', '-DPRIME_CUDA_ARCHITECTURES="none"']
    includes = [ROOT / "tests/cuda_on_cpu", pybind11.get_include(), sysconfig.get_path("include")]
    command = [compiler, *flags, *names, "-include", "cuda_fp16.h", *(f"-I{i}" for i in includes)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda source: _run(*command, "-c", source, "-o", source.with_suffix(".o")), sources))
    _run(compiler, "-shared", *(source.with_suffix(".o") for source in sources), "-o", target.with_suffix(".tmp"))
    target.with_suffix(".tmp").rename(target)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])


def apply(
    cuda: Any, images: np.ndarray, plan: Plan, out_dtype: type = np.float32, flip: np.ndarray | None = None,
    layout: str = "NCHW", mean: tuple[float, ...] = (), scale: tuple[float, ...] = (), workspace: float | None = None,
) -> np.ndarray:  # fmt: skip
    """Images [N, 3, H, W] augmented; ``layout`` is that of the memory, ``workspace`` its bytes if not what it wants,
    or, as a float, a share of that."""
    count, _, height, width = images.shape
    rows = np.ascontiguousarray(plan.rows)
    shape = (plan.views * count, 3, height, width)
    if layout == "NHWC":
        images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        out = np.full((shape[0], height, width, 3), 77, out_dtype).transpose(0, 3, 1, 2)  # 77: not written
    else:
        out = np.full(shape, 77, out_dtype)
    arguments = arrays._apply_arguments(images, "NCHW", out, "NCHW", plan, rows, flip, mean, scale)
    size = workspace if isinstance(workspace, int) else int(cuda.workspace_bytes(arguments) * (workspace or 1))
    memory = np.full(size + 256, 0xFF, np.uint8)  # NaN, should anything be read before it is written
    address = memory.ctypes.data + -memory.ctypes.data % 256  # allocators of GPU memory align
    cuda.apply({**arguments, "workspace": address, "workspace_bytes": size, "stream": 0})
    return out


def sample(cuda: Any, config: PrimeConfig, index: np.ndarray, size: tuple[int, int], seed: int) -> np.ndarray:
    """Rows of the plan that ``prime_dali.sample(config, index, size=size, seed=seed)`` draws, drawn by CUDA."""
    epoch = np.zeros((), np.int64)
    rows = np.empty((len(index), row_words(config.chains, config.depth)), np.int32)
    cuda.sample({
        "law": config.law(*size), "views": [0], "seed": seed, "images": len(index), "index": index.ctypes.data,
        "epoch": epoch.ctypes.data, "epoch_step": 0, "plan": rows.ctypes.data, "stream": 0,
    })  # fmt: skip
    return rows
