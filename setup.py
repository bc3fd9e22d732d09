"""Compiles csrc/ with ninja: a core without torch or Python in it, and the bindings that link it.

PRIME_DALI_CUDA=auto|1|0         auto (default): compile CUDA sources where a CUDA compiler is found, GPU or not;
                                 1: fail without one; 0: never
PRIME_DALI_CUDA_ARCHS=80;90      compute capabilities in any order (default: all that the compiler and the package
                                 know); PTX of the newest serves newer GPUs
PRIME_DALI_MARCH=x86-64-v3       instruction set of the CPU back end (default on x86-64: AVX2, FMA, F16C)
PRIME_DALI_SANITIZE=1            with the address and undefined-behavior sanitizers of the C++ compiler (make fuzz)
PRIME_DALI_NAME_VARIANT=1        the version says what was built, 0.1.0+cpu or 0.1.0+cu13, as that of wheels must, of
                                 which one folder holds both (make wheel)
CUDA_HOME                        CUDA toolkit (default: the one of the nvcc on PATH)
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent.resolve()
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")
TORCH_TARGET = "0x020A000000000000"  # LibTorch's stable ABI as of 2.10


@dataclass(frozen=True)
class Cuda:
    nvcc: str
    library: Path  # folder of libcudart_static.a
    include: Path
    version: str
    architectures: tuple[str, ...]


def find_cuda() -> Cuda | None:
    """The CUDA toolkit to compile with, or None; errors where PRIME_DALI_CUDA asks for what is not there."""
    wish = os.environ.get("PRIME_DALI_CUDA", "auto")
    if wish not in ("auto", "0", "1"):
        raise SystemExit(f"PRIME_DALI_CUDA: expected auto, 0 or 1, got {wish!r}")
    if wish == "0":
        return None
    toolkit = runpy.run_path(str(ROOT / "prime_dali/_toolkit.py"))  # the package itself has not been built yet
    home, nvcc = os.environ.get("CUDA_HOME"), toolkit["compiler"]()
    if nvcc is None:
        where = f"in CUDA_HOME={home}" if home else "on PATH"
        if wish == "1" or home:
            raise SystemExit(f"PRIME_DALI_CUDA={wish}: no CUDA compiler (nvcc) {where}")
        return None
    top = toolkit["of_compiler"](nvcc, ROOT / "csrc")
    library = None if top is None else toolkit["static_runtime"](top)
    if library is None:
        message = f"{nvcc} belongs to no complete CUDA toolkit (libcudart_static.a not found; set CUDA_HOME)"
        if wish == "1":
            raise SystemExit(f"PRIME_DALI_CUDA=1: {message}")
        print(f"prime-dali: building without CUDA: {message}", file=sys.stderr)
        return None
    version = re.search(r"release ([\d.]+)", output(nvcc, "--version"))
    known = re.findall(r"compute_(\d+)", output(nvcc, "--list-gpu-arch"))
    wanted = os.environ.get("PRIME_DALI_CUDA_ARCHS")
    architectures = chosen_architectures(wanted, known) if wanted else tuple(a for a in ARCHITECTURES if a in known)
    return Cuda(nvcc, library, top / "include", version[1] if version else "unknown", architectures)


def chosen_architectures(wanted: str, known: list[str]) -> tuple[str, ...]:
    """Those of PRIME_DALI_CUDA_ARCHS, each once, the newest last: newer GPUs run its PTX, and it must be code for such
    GPUs, for older code does not wait for the kernel before it where the launch lets it begin early."""
    names = {a.strip().replace(".", "") for a in wanted.split(";") if a.strip()}
    if not names <= set(known):
        unknown = " ".join(sorted(names - set(known)))
        raise SystemExit(f"PRIME_DALI_CUDA_ARCHS: expected some of {' '.join(known)}, got {unknown}")
    if not names:
        raise SystemExit(f"PRIME_DALI_CUDA_ARCHS: expected some of {' '.join(known)}, got {wanted!r}")
    return tuple(sorted(names, key=int))


def package_version(cuda: Cuda | None) -> str:
    """That of ``prime_dali.__version__``, with what was built if it is to be named."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "prime_dali/__init__.py").read_text(), re.M)
    assert found is not None
    if os.environ.get("PRIME_DALI_NAME_VARIANT") != "1":
        return found[1]
    return f"{found[1]}+cu{cuda.version.partition('.')[0]}" if cuda else f"{found[1]}+cpu"


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def find_torch() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def extensions(cuda: Cuda | None, torch: Path | None) -> list[Extension]:
    torch_has_cuda = torch is not None and (torch / "lib" / "libtorch_cuda.so").exists()
    if cuda and torch and not torch_has_cuda:
        message = "the torch to build against is a CPU build, so torch tensors on a GPU will not be supported"
        if os.environ.get("PRIME_DALI_CUDA") == "1":
            raise SystemExit(f"PRIME_DALI_CUDA=1: {message}")
        print(f"prime-dali: {message}", file=sys.stderr)
    made = [Extension("prime_dali._arrays", ["csrc/arrays/module.cpp"])]
    if cuda:
        made.append(Extension("prime_dali._arrays_cuda", ["csrc/arrays/module_cuda.cpp"]))
    if torch:
        made.append(Extension("prime_dali._torch", ["csrc/torch/ops.cpp"], py_limited_api=True))
    if cuda and torch_has_cuda:
        made.append(Extension("prime_dali._torch_cuda", ["csrc/torch/ops_cuda.cpp"], py_limited_api=True))
    return made


class Build(build_ext):
    """Writes build.ninja, runs ninja, and copies the libraries to where setuptools wants them."""

    def build_extensions(self) -> None:
        import ninja
        from ninja.ninja_syntax import Writer

        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        names = [extension.name.rsplit(".", 1)[1] for extension in self.extensions]
        with open(folder / "build.ninja", "w") as file:
            write_ninja(Writer(file, width=10**6), names)
        subprocess.run([str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(folder)], check=True)
        for extension, name in zip(self.extensions, names, strict=True):
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / f"{name}.so", target)


class CopySources(build_py):
    """Puts what the DALI plugin is compiled from beside the modules; in a checkout it is read from csrc/."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source in ("arguments.h", *(f"{folder}/{p.name}" for folder in ("core", "dali")
                                            for p in (ROOT / "csrc" / folder).iterdir())):  # fmt: skip
                target = Path(self.build_lib) / "prime_dali" / "csrc" / source
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / "csrc" / source, target)


def write_ninja(ninja, names: list[str]) -> None:
    sanitize = os.environ.get("PRIME_DALI_SANITIZE", "0")
    if sanitize not in ("0", "1"):
        raise SystemExit(f"PRIME_DALI_SANITIZE: expected 0 or 1, got {sanitize!r}")
    sanitizers = "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all" if sanitize == "1" else ""
    optimize = f"-O1 -g -fno-omit-frame-pointer {sanitizers}" if sanitizers else "-O3"
    common = f"-std=c++17 {optimize} -fPIC -fvisibility=hidden -Wall -Wextra -ffile-prefix-map={ROOT}/="
    x86 = platform.machine() in ("x86_64", "AMD64")
    march = os.environ.get("PRIME_DALI_MARCH", "x86-64-v3" if x86 else "")
    # No contraction but the explicit one: see csrc/core/math.h.
    cpu = f"-ffp-contract=off -fno-math-errno -fno-trapping-math {f'-march={march}' if march else ''}"
    ninja.variable("ninja_required_version", "1.5")
    cxx = os.environ.get("CXX", "c++")
    ninja.rule(
        "cxx",
        f"{cxx} {common} $flags -MD -MF $out.d -c $in -o $out",
        depfile="$out.d",
        deps="gcc",
        description="C++ $in",
    )
    # Static archives stay private: where the compiler links its C++ library statically, a second copy with public
    # symbols would mix with the one that torch or DALI has loaded.
    ninja.rule("link", f"{cxx} -shared {sanitizers} -Wl,--exclude-libs,ALL -o $out $in $flags", description="link $out")

    def compile_(sources: list[Path], rule: str, flags: str) -> list[str]:
        objects = []
        for source in sources:
            objects.append(f"{source.parent.name}/{source.stem}.o")
            ninja.build(objects[-1], rule, str(source), variables={"flags": flags})
        return objects

    # supported.cpp runs before it is known that the others can.
    runs_first = ROOT / "csrc/cpu/supported.cpp"
    others = [source for source in sorted((ROOT / "csrc/cpu").glob("*.cpp")) if source != runs_first]
    core = {"cpu": compile_([runs_first], "cxx", "") + compile_(others, "cxx", cpu), "cuda": []}
    link_core = {"cpu": "-pthread", "cuda": ""}
    if CUDA:
        gencode = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in CUDA.architectures]
        gencode.append("-gencode=arch=compute_{0},code=compute_{0}".format(CUDA.architectures[-1]))
        ninja.rule(
            "nvcc",
            f"{CUDA.nvcc} -std=c++17 -O3 --fmad=false --threads 0 -Xcompiler -fPIC,-fvisibility=hidden,-Wall "
            f"{' '.join(gencode)} $flags -MD -MF $out.d -c $in -o $out",
            depfile="$out.d",
            deps="gcc",
            description="CUDA $in",
        )
        for source in sorted((ROOT / "csrc/cuda").glob("*.cu")):
            # Plans are equal to the bit on CPU and GPU, denormal numbers included; pixels need not be.
            core["cuda"] += compile_([source], "nvcc", "" if source.stem == "sample" else "-ftz=true")
        link_core["cuda"] = f"-L{CUDA.library} -lcudart_static -ldl -lrt -lpthread"

    for name in names:
        device = "cuda" if name.endswith("_cuda") else "cpu"
        if name.startswith("_arrays"):
            import pybind11

            flags = f"-isystem {sysconfig.get_path('include')} -isystem {pybind11.get_include()}"
            if CUDA and device == "cuda":
                flags += (
                    f" '-DPRIME_CUDA_VERSION=\"{CUDA.version}\"'"
                    f" '-DPRIME_CUDA_ARCHITECTURES=\"{' '.join(CUDA.architectures)}\"'"
                )
            source, link = f"csrc/arrays/module{'_cuda' if device == 'cuda' else ''}.cpp", ""
        else:
            assert TORCH is not None
            include = TORCH / "include"
            flags = (
                f"-DTORCH_TARGET_VERSION={TORCH_TARGET} {'-DUSE_CUDA' if device == 'cuda' else ''}"
                f" -isystem {include} -isystem {include / 'torch/csrc/api/include'}"
            )
            source = f"csrc/torch/ops{'_cuda' if device == 'cuda' else ''}.cpp"
            link = f"-L{TORCH / 'lib'} -ltorch_cpu {'-ltorch_cuda' if device == 'cuda' else ''}"
        binding = compile_([ROOT / source], "cxx", flags)
        ninja.build(f"{name}.so", "link", binding + core[device], variables={"flags": f"{link} {link_core[device]}"})


CUDA, TORCH = find_cuda(), find_torch()
setup(
    version=package_version(CUDA),
    ext_modules=extensions(CUDA, TORCH),
    cmdclass={"build_ext": Build, "build_py": CopySources},
)
