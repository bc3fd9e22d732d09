"""The CUDA sources, compiled as C++ with tests/cuda_on_cpu in the place of CUDA: CUDA's pixels without a GPU."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from prime_dali import Plan, PrimeConfig, _arrays, _files
from prime_dali.plan import row_words

ROOT = Path(__file__).parent.parent


CORE, EMULATED = b"libprime_dali.so", b"libprime_cuda.so"  # of one length


def load(folder: Path) -> Any:
    """``prime_dali._arrays`` with CUDA for host memory, compiled in ``folder`` unless another process has done that there.

    Raises:
        ImportError: There is no C++ compiler.
        RuntimeError: The sources do not compile; the message ends with what the compiler says.
    """
    binding = Path(_arrays.__file__)
    target = folder / binding.name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _compile(folder)
            # The package's own module, which takes longer to compile than all kernels: only the core is another, and has
            # another name, because the dynamic loader takes one that it has loaded for all of the same name.
            with _files.replacing(target) as temporary:
                temporary.write_bytes(binding.read_bytes().replace(CORE, EMULATED))
    spec = importlib.util.spec_from_file_location("_arrays", target)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(folder: Path) -> None:
    """The core, without the CPU back end: one file that includes the others, which all have the same headers."""
    compiler = shutil.which("c++")
    if compiler is None:
        raise ImportError("compiling needs a C++ compiler")
    shutil.copytree(ROOT / "csrc", folder / "csrc", dirs_exist_ok=True)
    shutil.copy(ROOT / "tests/cuda_on_cpu/device.cuh", folder / "csrc/cuda/device.cuh")
    shutil.copy(ROOT / "tests/cuda_on_cpu/without_cpu.cpp", folder / "csrc")
    sources = ["interface.cpp", "without_cpu.cpp", *sorted((folder / "csrc/cuda").glob("*.cu"))]
    (folder / "csrc/all.cpp").write_text("".join(f'#include "{source}"\n' for source in sources))
    flags = ["-std=c++17", "-Og", "-w", "-fPIC", "-march=native", "-ffp-contract=off", "-fvisibility=hidden"]
    flags += ["-U_FORTIFY_SOURCE"]  # which takes jumps from stack to stack for mistakes
    names = ['-DPRIME_CUDA_VERSION="none"', '-DPRIME_CUDA_ARCHITECTURES="none"']
    includes = [f"-I{ROOT / 'tests/cuda_on_cpu'}", f"-I{folder / 'csrc'}", "-include", "cuda_fp16.h"]
    core = EMULATED.decode()
    link = ["-shared", f"-Wl,-soname,{core}", "-o", folder / core]
    command = [compiler, *flags, *names, *includes, folder / "csrc/all.cpp", *link]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])


def apply(
    cuda: Any, images: np.ndarray, plan: Plan, out_dtype: type = np.float32, flip: np.ndarray | None = None,
    layout: str = "NCHW", mean: tuple[float, ...] = (), scale: tuple[float, ...] = (), workspace: float | None = None,
) -> np.ndarray:  # fmt: skip
    """Images [N, C, H, W] augmented; ``layout`` is that of the memory, ``workspace`` its bytes if not what it wants,
    or, as a float, a share of that."""
    count, channels, height, width = images.shape
    rows = np.ascontiguousarray(plan.rows)
    shape = (plan.views * count, channels, height, width)
    if layout == "NHWC":
        images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        out = np.full((shape[0], height, width, channels), 77, out_dtype).transpose(0, 3, 1, 2)  # 77: not written
    else:
        out = np.full(shape, 77, out_dtype)
    call = cuda.Apply(images, rows, plan.shape, out, flip, mean, scale)
    size = workspace if isinstance(workspace, int) else int(call.workspace_bytes() * (workspace or 1))
    memory = np.full(size + 256, 0xFF, np.uint8)  # NaN, should anything be read before it is written
    start = -memory.ctypes.data % 256  # allocators of GPU memory align
    call.cuda(memory[start : start + size], 0)
    return out


def sample(cuda: Any, config: PrimeConfig, index: np.ndarray, size: tuple[int, int], seed: int) -> np.ndarray:
    """Rows of the plan that ``prime_dali.sample(config, index, size=size, seed=seed)`` draws, drawn by CUDA."""
    shape = config.plan_shape
    rows = np.empty((len(index), row_words(shape.chains, shape.depth, shape.waves)), np.int32)
    cuda.Sample(config.distributions(*size), [0], seed, index, np.zeros(1, np.int64), rows).cuda(0)
    return rows
