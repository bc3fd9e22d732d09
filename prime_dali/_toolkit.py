"""Where a CUDA toolkit has what this package is compiled with.

setup.py runs this file too, before the package is built: it imports no other.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import site
import subprocess
import sys
from pathlib import Path


def compiler() -> str | None:
    """The nvcc of ``CUDA_HOME``, or else of the PATH, if there is one."""
    home = os.environ.get("CUDA_HOME")
    return shutil.which(str(Path(home) / "bin" / "nvcc") if home else "nvcc")


def of_compiler(nvcc: str, folder: Path) -> Path | None:
    """The toolkit of :func:`compiler`, as far as it says; it runs in ``folder``."""
    home = os.environ.get("CUDA_HOME")
    if home:
        return Path(home)
    # nvcc on PATH may be a wrapper: ask it where its toolkit is.
    dry = subprocess.run([nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True, cwd=folder).stderr
    match = re.search(r"^#\$ TOP=(\S+)", dry, re.M)
    return Path(match[1]) if match else None


def static_runtime(toolkit: Path) -> Path | None:
    """The folder of libcudart_static.a in a toolkit, or in NVIDIA's Python package of the runtime."""
    folders = (toolkit / "lib64", toolkit / f"targets/{platform.machine()}-linux/lib", toolkit / "lib")
    return next((folder for folder in folders if (folder / "libcudart_static.a").exists()), None)


def runtime(major: int) -> tuple[Path, Path] | None:
    """Folders of cuda_runtime_api.h and libcudart_static.a, of any toolkit or of NVIDIA's Python package.

    Args:
        major: The version of CUDA that is tried first, where the environment names none.
    """
    roots = [Path(home) for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    roots += [Path(f"/usr/local/cuda-{major}"), Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"))]
    for packages in (*site.getsitepackages(), site.getusersitepackages(), *sys.path):
        roots += [Path(packages) / "nvidia" / name for name in (f"cu{major}", "cuda_runtime")]
    for root in roots:
        library = static_runtime(root)
        if library is not None and (root / "include/cuda_runtime_api.h").exists():
            return root / "include", library
    return None
