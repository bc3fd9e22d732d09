"""Compiles csrc/ with ninja: one core without torch or Python in it, and thin bindings that link it.

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
CORE = "libprime_dali"
BINDINGS = {"_arrays": "arrays/module.cpp", "_torch": "torch/ops.cpp", "_torch_cuda": "torch/ops_cuda.cpp"}
TORCH_TARGET = "0x020A000000000000"  # LibTorch's stable ABI as of 2.10


@dataclass(frozen=True)
class Cuda:
    nvcc: str
    library: Path  # folder of libcudart_static.a
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
    no_cuda = "the build is without CUDA"
    home, nvcc = os.environ.get("CUDA_HOME"), toolkit["compiler"]()
    if nvcc is None:
        where = f"in CUDA_HOME={home}" if home else "on PATH"
        return do_without(f"no CUDA compiler (nvcc) {where}", no_cuda, wanted=wish == "1" or bool(home))
    top = toolkit["of_compiler"](nvcc, ROOT / "csrc")
    library = None if top is None else toolkit["static_runtime"](top)
    if library is None:
        message = f"{nvcc} belongs to no complete CUDA toolkit (libcudart_static.a not found; set CUDA_HOME)"
        return do_without(message, no_cuda, wanted=wish == "1")
    said = [subprocess.check_output([nvcc, option], text=True) for option in ("--version", "--list-gpu-arch")]
    version, known = re.search(r"release ([\d.]+)", said[0]), re.findall(r"compute_(\d+)", said[1])
    wanted = os.environ.get("PRIME_DALI_CUDA_ARCHS")
    architectures = chosen_architectures(wanted, known) if wanted else tuple(a for a in ARCHITECTURES if a in known)
    return Cuda(nvcc, library, version[1] if version else "unknown", architectures)


def do_without(why: str, consequence: str, wanted: bool) -> None:
    """Ends the build if what is missing is wanted, and else says what follows."""
    if wanted:
        raise SystemExit(f"PRIME_DALI_CUDA={os.environ.get('PRIME_DALI_CUDA', 'auto')}: {why}")
    print(f"prime-dali: {why}, so {consequence}", file=sys.stderr)


def chosen_architectures(wanted: str, known: list[str]) -> tuple[str, ...]:
    """Those of PRIME_DALI_CUDA_ARCHS, each once, the newest last: newer GPUs run its PTX, and it must be code for such
    GPUs, for older code does not wait for the kernel before it where the launch lets it begin early."""
    names = {a.strip().replace(".", "") for a in wanted.split(";") if a.strip()}
    if not names or not names <= set(known):
        got = " ".join(sorted(names - set(known))) or repr(wanted)
        raise SystemExit(f"PRIME_DALI_CUDA_ARCHS: expected some of {' '.join(known)}, got {got}")
    return tuple(sorted(names, key=int))


def package_version(cuda: Cuda | None) -> str:
    """That of ``prime_dali.__version__``, with what was built if it is to be named."""
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "prime_dali/__init__.py").read_text(), re.M)[1]
    variant = f"+cu{cuda.version.partition('.')[0]}" if cuda else "+cpu"
    return version + (variant if os.environ.get("PRIME_DALI_NAME_VARIANT") == "1" else "")


def find_torch() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def libraries(cuda: Cuda | None, torch: Path | None) -> list[str]:
    """What is built: modules of the package, and the core, which they link."""
    torch_has_cuda = torch is not None and (torch / "lib" / "libtorch_cuda.so").exists()
    if cuda and torch and not torch_has_cuda:
        consequence = "torch tensors on a GPU will not be supported"
        wanted = os.environ.get("PRIME_DALI_CUDA") == "1"
        do_without("the torch to build against is a CPU build", consequence, wanted)
    return [CORE, "_arrays", *(["_torch"] if torch else []), *(["_torch_cuda"] if cuda and torch_has_cuda else [])]


def files(*patterns: str) -> list[str]:
    """Those of csrc/, in order."""
    csrc = ROOT / "csrc"
    return sorted(str(path.relative_to(csrc)) for pattern in patterns for path in csrc.glob(pattern))


class Build(build_ext):
    """Writes build.ninja, runs ninja, and copies the libraries to where setuptools wants them."""

    def build_extensions(self) -> None:
        import ninja
        from ninja.ninja_syntax import Writer

        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        names = [extension.name.rsplit(".", 1)[1] for extension in self.extensions]
        with open(folder / "build.ninja", "w") as file:
            writer = Writer(file, width=10**6)
            write_rules(writer)
            write_core(writer)
            for name in names[1:]:
                write_binding(writer, name)
        subprocess.run([str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(folder)], check=True)
        for extension, name in zip(self.extensions, names, strict=True):
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / f"{name}.so", target)

    def get_ext_filename(self, fullname: str) -> str:
        """The core is no module, and has no Python in its name."""
        if fullname.rsplit(".", 1)[-1] == CORE:
            return f"{fullname.replace('.', '/')}.so"
        return super().get_ext_filename(fullname)


class CopySources(build_py):
    """Puts what the DALI plugin is compiled from beside the modules; in a checkout it is read from csrc/."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source in files("interface.h", "core/*", "bindings/*.h", "bindings/dali/*"):
            target = Path(self.build_lib) / "prime_dali/csrc" / source
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "csrc" / source, target)


def write_rules(ninja) -> None:
    sanitize = os.environ.get("PRIME_DALI_SANITIZE", "0")
    if sanitize not in ("0", "1"):
        raise SystemExit(f"PRIME_DALI_SANITIZE: expected 0 or 1, got {sanitize!r}")
    checks = "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all" if sanitize == "1" else ""
    optimize = f"-O1 -g -fno-omit-frame-pointer {checks}" if checks else "-O3"
    made = {"depfile": "$out.d", "deps": "gcc"}
    cxx = f"{os.environ.get('CXX', 'c++')} {checks}"
    flags = f"-std=c++17 {optimize} -fPIC -fvisibility=hidden -Wall -Wextra -ffile-prefix-map={ROOT}/="
    ninja.rule("cpp", f"{cxx} {flags} $flags -MD -MF $out.d -c $in -o $out", description="C++ $in", **made)
    # Static archives stay private: where the compiler links its C++ library statically, a second copy with public
    # symbols would mix with the one that torch or DALI has loaded.
    ninja.rule("link", f"{cxx} -shared -Wl,--exclude-libs,ALL -o $out $in $flags", description="link $out")
    if CUDA:
        gencode = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in CUDA.architectures]
        gencode.append("-gencode=arch=compute_{0},code=compute_{0}".format(CUDA.architectures[-1]))
        nvcc = f"{CUDA.nvcc} -std=c++17 -O3 --fmad=false --threads 0 -Xcompiler -fPIC,-fvisibility=hidden,-Wall"
        command = f"{nvcc} {' '.join(gencode)} $flags -MD -MF $out.d -c $in -o $out"
        ninja.rule("cu", command, description="CUDA $in", **made)


def compiled(ninja, source: str, flags: str) -> str:
    """The object of a file of csrc/."""
    path = ROOT / "csrc" / source
    target = f"{path.parent.name}/{path.stem}.o"
    ninja.build(target, path.suffix[1:], str(path), variables={"flags": flags})
    return target


def write_core(ninja) -> None:
    x86 = platform.machine() in ("x86_64", "AMD64")
    march = os.environ.get("PRIME_DALI_MARCH", "x86-64-v3" if x86 else "")
    # No contraction but the explicit one: see csrc/core/math.h.
    cpu = f"-ffp-contract=off -fno-math-errno -fno-trapping-math {f'-march={march}' if march else ''}"
    # These two run before it is known that the others can. They come first: of an inline function that several files
    # have, the linker takes the first.
    sources = {"cpu/supported.cpp": "", "interface.cpp": ""}
    sources = sources | dict.fromkeys(files("cpu/*.cpp"), cpu) | sources
    link = f"-Wl,-soname,{CORE}.so -Wl,--version-script={ROOT / 'csrc/exported.map'} -pthread"
    if CUDA:
        built = {"CUDA_VERSION": CUDA.version, "CUDA_ARCHITECTURES": " ".join(CUDA.architectures)}
        sources["interface.cpp"] = " ".join(f"'-DPRIME_{name}=\"{value}\"'" for name, value in built.items())
        # Plans are bit-identical on CPU and GPU, denormal numbers included; pixels need not be.
        sources |= dict.fromkeys(files("cuda/*.cu"), "-ftz=true") | {"cuda/sample.cu": ""}
        link += f" -L{CUDA.library} -lcudart_static -ldl -lrt"
    else:
        sources["without_cuda.cpp"] = ""
    objects = [compiled(ninja, source, flags) for source, flags in sources.items()]
    ninja.build(f"{CORE}.so", "link", objects, variables={"flags": link})


def write_binding(ninja, name: str) -> None:
    """A module that links the core, by its name and in its own folder."""
    source, with_cuda = BINDINGS[name], name == "_torch_cuda"
    if name == "_arrays":
        import pybind11

        includes, flags, link = [sysconfig.get_path("include"), pybind11.get_include()], "", ""
    else:
        includes = [TORCH / "include", TORCH / "include/torch/csrc/api/include"]
        flags = f"-DTORCH_TARGET_VERSION={TORCH_TARGET} {'-DUSE_CUDA' if with_cuda else ''}"
        link = f"-L{TORCH / 'lib'} -ltorch_cpu {'-ltorch_cuda' if with_cuda else ''}"
    flags = " ".join([flags, *(f"-isystem {folder}" for folder in includes)])
    inputs = [compiled(ninja, f"bindings/{source}", flags), f"{CORE}.so"]
    ninja.build(f"{name}.so", "link", inputs, variables={"flags": f"{link} -Wl,-rpath,'$$ORIGIN'"})


CUDA, TORCH = find_cuda(), find_torch()
setup(
    version=package_version(CUDA),
    ext_modules=[
        Extension(f"prime_dali.{n}", [], py_limited_api=n.startswith("_torch")) for n in libraries(CUDA, TORCH)
    ],
    cmdclass={"build_ext": Build, "build_py": CopySources},
)
