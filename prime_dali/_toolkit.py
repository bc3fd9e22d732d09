"""What the native code is compiled with: the CUDA toolkit of the package, and the CUDA runtime of the DALI plugin.

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
from typing import NamedTuple

ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")
PLUGIN_SOURCES = ("interface.h", "core/*", "bindings/*.h", "bindings/dali/*")  # of the DALI plugin, in csrc


class Toolkit(NamedTuple):
    """A CUDA toolkit to compile the package with."""

    nvcc: str
    library: Path  # folder of libcudart_static.a
    version: str
    architectures: tuple[str, ...]


def find() -> Toolkit | None:
    """The toolkit that the environment asks for, or None; ends the build where it asks for what is not there."""
    wish = os.environ.get("PRIME_DALI_CUDA", "auto")
    if wish not in ("auto", "0", "1"):
        raise SystemExit(f"PRIME_DALI_CUDA: expected auto, 0 or 1, got {wish!r}")
    if wish == "0":
        return None
    no_cuda = "the build is without CUDA"
    home = os.environ.get("CUDA_HOME")
    wanted = wish == "1" or bool(home)
    nvcc = shutil.which(str(Path(home) / "bin" / "nvcc") if home else "nvcc")
    if nvcc is None:
        where = f"in CUDA_HOME={home}" if home else "on PATH"
        do_without(f"no CUDA compiler (nvcc) {where}", no_cuda, wanted)
        return None
    nvcc = os.path.abspath(nvcc)  # the compilers run in the folder of the build
    top = Path(home).absolute() if home else _folder_of(nvcc)
    library = None if top is None else _static_runtime(top)
    if library is None:
        message = f"{nvcc} belongs to no complete CUDA toolkit (libcudart_static.a not found; set CUDA_HOME)"
        do_without(message, no_cuda, wanted)
        return None
    version = re.search(r"release ([\d.]+)", _said(nvcc, "--version"))
    known = re.findall(r"compute_(\d+)", _said(nvcc, "--list-gpu-arch"))
    if not known:
        do_without(f"{nvcc} does not run, or is too old to list what it compiles for", no_cuda, wanted)
        return None
    named = os.environ.get("PRIME_DALI_CUDA_ARCHS")
    architectures = chosen_architectures(named, known) if named else tuple(a for a in ARCHITECTURES if a in known)
    return Toolkit(nvcc, library, version[1] if version else "unknown", architectures)


def do_without(why: str, consequence: str, wanted: bool) -> None:
    """Ends the build if what is missing is wanted, and else says what follows."""
    if wanted:
        wish = os.environ.get("PRIME_DALI_CUDA", "auto")
        raise SystemExit(f"PRIME_DALI_CUDA={wish}: {why}; with PRIME_DALI_CUDA=0 the build is without CUDA")
    print(f"prime-dali: {why}, so {consequence}", file=sys.stderr)


def chosen_architectures(wanted: str, known: list[str]) -> tuple[str, ...]:
    """Those of PRIME_DALI_CUDA_ARCHS, each once, the newest last.

    Newer GPUs run the PTX of the last one, and it must be code for such GPUs: code for older ones does not wait for the
    kernel before it where the launch lets it begin early.
    """
    names = {a.strip().replace(".", "") for a in wanted.split(";") if a.strip()}
    if not names or not names <= set(known):
        got = " ".join(sorted(names - set(known))) or repr(wanted)
        raise SystemExit(f"PRIME_DALI_CUDA_ARCHS: expected some of {' '.join(known)}, got {got}")
    return tuple(sorted(names, key=int))


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
        library = _static_runtime(root)
        if library is not None and (root / "include/cuda_runtime_api.h").exists():
            return root / "include", library
    return None


def _folder_of(nvcc: str) -> Path | None:
    """The toolkit of a compiler, which may be a wrapper: it is asked."""
    match = re.search(r"^#\$ TOP=(.+?)\s*$", _said(nvcc, "--dryrun", "-c", "x.cu"), re.M)
    return Path(match[1]) if match else None


def _said(*command: str) -> str:
    """What a command prints, also one that fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.stdout


def _static_runtime(toolkit: Path) -> Path | None:
    """The folder of libcudart_static.a in a toolkit, or in NVIDIA's Python package of the runtime."""
    folders = (toolkit / "lib64", toolkit / f"targets/{platform.machine()}-linux/lib", toolkit / "lib")
    return next((folder for folder in folders if (folder / "libcudart_static.a").exists()), None)
