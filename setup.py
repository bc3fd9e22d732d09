"""Compiles csrc/ with ninja: one core without torch or Python in it, and thin bindings that link it.

PRIME_DALI_CUDA=auto|1|0     auto (default): with CUDA where a compiler is found, GPU or not; 1: fail without; 0: never
PRIME_DALI_CUDA_ARCHS=80;90  compute capabilities (default: all that compiler and package know), and PTX of the newest
PRIME_DALI_MARCH=x86-64-v3   instruction set of the CPU back end (default on x86-64: AVX2, FMA, F16C, and once more for
                             AVX-512, which is used where the processor has it)
PRIME_DALI_SANITIZE=1        with the address and undefined-behavior sanitizers of the C++ compiler (make fuzz)
PRIME_DALI_NAME_VARIANT=1    the version says what was built, 0.1.0+cpu or 0.1.0+cu13: that of wheels (make wheels)
CUDA_HOME                    CUDA toolkit (default: that of the nvcc on PATH)
MAX_JOBS=4                   how many files are compiled at a time (default: a few more than the cores)
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import SimpleNamespace

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent.resolve()
CSRC = ROOT / "csrc"
CORE = "libprime_dali"
BINDINGS = {"_arrays": "arrays/module.cpp", "_torch": "torch/ops.cpp", "_torch_cuda": "torch/ops_cuda.cpp"}
ONCE = ("choose", "sample", "supported")  # of csrc/cpu: what does not work on pixels, and is compiled once
TORCH_TARGET = "0x020A000000000000"  # LibTorch's stable ABI as of 2.10
toolkit = SimpleNamespace(**runpy.run_path(str(ROOT / "prime_dali/_toolkit.py")))  # the package has not been built yet


@functools.cache
def wait_for_other_builds() -> int:
    """Builds of one checkout share its folder build/: until this process ends, which closes this file, others wait."""
    lock = os.open(ROOT, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"prime-dali: waiting for another build of {ROOT}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def package_version(cuda: toolkit.Toolkit | None) -> str:
    """That of ``prime_dali.__version__``, with what was built if it is to be named."""
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "prime_dali/__init__.py").read_text("utf-8"), re.M)[1]
    variant = f"+cu{cuda.version.partition('.')[0]}" if cuda else "+cpu"
    return version + (variant if os.environ.get("PRIME_DALI_NAME_VARIANT") == "1" else "")


def find_torch() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def libraries(cuda: toolkit.Toolkit | None, torch: Path | None) -> list[str]:
    """What is built: modules of the package, and the core, which they link."""
    torch_has_cuda = torch is not None and (torch / "lib/libtorch_cuda.so").exists()
    if cuda and torch and not torch_has_cuda:
        why, consequence = "the torch to build against is a CPU build", "torch tensors on a GPU will not be supported"
        toolkit.do_without(why, consequence, wanted=os.environ.get("PRIME_DALI_CUDA") == "1")
    return [CORE, "_arrays", *(["_torch"] if torch else []), *(["_torch_cuda"] if cuda and torch_has_cuda else [])]


def files(*patterns: str) -> list[str]:
    """Those of csrc/, in order."""
    return sorted(str(path.relative_to(CSRC)) for pattern in patterns for path in CSRC.glob(pattern))


class Build(build_ext):
    """Writes build.ninja, and has ninja put the libraries where setuptools wants them."""

    def build_extensions(self) -> None:
        wait_for_other_builds()
        from ninja import BIN_DIR, ninja_syntax

        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        core, *bindings = (str(Path(self.get_ext_fullpath(module.name)).resolve()) for module in self.extensions)
        # As paths are in the system: whatever the locale, ninja reads their bytes.
        names = {"encoding": sys.getfilesystemencoding(), "errors": sys.getfilesystemencodeerrors()}
        with open(folder / "build.ninja", "w", **names) as file:
            writer = ninja_syntax.Writer(file, width=10**6)
            write_rules(writer)
            write_core(writer, core)
            for binding in bindings:
                write_binding(writer, binding, core)
        command = [str(Path(BIN_DIR) / "ninja"), "-C", str(folder), *(["-j", JOBS] if JOBS else [])]
        subprocess.run(command, check=True)

    def get_ext_filename(self, fullname: str) -> str:
        """The core is no module, and has no Python in its name."""
        core = fullname.endswith(CORE)  # after its package's name, or alone
        return f"{fullname.replace('.', '/')}.so" if core else super().get_ext_filename(fullname)


class CopySources(build_py):
    """Puts what the DALI plugin is compiled from beside the modules; in a checkout it is read from csrc/."""

    def run(self) -> None:
        wait_for_other_builds()
        package = Path(self.build_lib).resolve() / "prime_dali"
        if package != ROOT / "prime_dali":  # what an earlier build left would become a part of this one
            shutil.rmtree(package, ignore_errors=True)
        super().run()
        for source in [] if self.editable_mode else files(*toolkit.PLUGIN_SOURCES):
            target = Path(self.build_lib) / "prime_dali/csrc" / source
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CSRC / source, target)


def jobs() -> str | None:
    """How many files are compiled at a time, as MAX_JOBS says; None: ninja chooses."""
    given = os.environ.get("MAX_JOBS") or None
    if given is not None and re.fullmatch("0*[1-9][0-9]*", given) is None:
        raise SystemExit(f"MAX_JOBS: expected a whole number from 1, got {given!r}")
    return given


def escaped(path: str | Path) -> str:
    """A path among the inputs and outputs of ninja, which quotes it in commands; its writer escapes spaces, also
    behind a dollar sign."""
    return re.sub(r"\$(?! )", "$$", str(path))


def quoted(argument: str | Path) -> str:
    """An argument of a command, with a path in it, as ninja passes it to the shell."""
    return shlex.quote(str(argument)).replace("$", "$$")


def write_rules(ninja) -> None:
    sanitize = os.environ.get("PRIME_DALI_SANITIZE", "0")
    if sanitize not in ("0", "1"):
        raise SystemExit(f"PRIME_DALI_SANITIZE: expected 0 or 1, got {sanitize!r}")
    checks = "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all" if sanitize == "1" else ""
    optimize = f"-O1 -g -fno-omit-frame-pointer {checks}" if checks else "-O3"
    made = {"depfile": "$out.d", "deps": "gcc"}
    cxx = f"{os.environ.get('CXX', 'c++')} {checks}"
    flags = f"-std=c++17 {optimize} -fPIC -fvisibility=hidden -Wall -Wextra {quoted(f'-ffile-prefix-map={ROOT}/=')}"
    ninja.rule("cpp", f"{cxx} {flags} $flags -MD -MF $out.d -c $in -o $out", description="C++ $in", **made)
    # Static archives stay private: where the compiler links its C++ library statically, a second copy with public
    # symbols would mix with the one that torch or DALI has loaded.
    ninja.rule("link", f"{cxx} -shared -Wl,--exclude-libs,ALL -o $out $in $flags", description="link $out")
    if CUDA:
        gencode = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in CUDA.architectures]
        gencode.append("-gencode=arch=compute_{0},code=compute_{0}".format(CUDA.architectures[-1]))
        compiler = f"{quoted(CUDA.nvcc)} --threads {1 if JOBS else 0}"  # 0: as many as there are cores
        nvcc = f"{compiler} -std=c++17 -O3 --fmad=false -Xcompiler -fPIC,-fvisibility=hidden,-Wall"
        cu = f"{nvcc} {' '.join(gencode)} $flags -MD -MF $out.d -c $in -o $out"
        ninja.rule("cu", cu, description="CUDA $in", **made)


def compiled(ninja, source: str, flags: str, variant: str = "") -> str:
    """The object of a file of csrc/."""
    path = CSRC / source
    target = f"{path.parent.name}{variant}/{path.stem}.o"
    ninja.build(target, path.suffix[1:], escaped(path), variables={"flags": flags})
    return target


def write_core(ninja, target: str) -> None:
    x86 = platform.machine() in ("x86_64", "AMD64")
    march = os.environ.get("PRIME_DALI_MARCH", "x86-64-v3" if x86 else "")
    wide = x86 and "PRIME_DALI_MARCH" not in os.environ
    # No contraction but the explicit one: see csrc/core/math.h.
    exact = "-ffp-contract=off -fno-math-errno -fno-trapping-math"
    # GCC 12 takes what its own AVX-512 headers leave undefined for a mistake.
    may_have_avx512 = "-Wno-maybe-uninitialized" if x86 else ""
    cpu = f"{exact} {f'-march={march}' if march else ''} {'' if wide else may_have_avx512}"
    # These run before it is known that the others can. They come first: of an inline function that several files have,
    # the linker takes the first.
    sources = {"cpu/supported.cpp": "", "cpu/choose.cpp": "-DPRIME_AVX512" if wide else "", "interface.cpp": ""}
    sources = sources | dict.fromkeys(files("cpu/*.cpp"), cpu) | sources
    exported = quoted(f"--version-script={CSRC / 'exported.map'}")
    link = f"-Wl,-soname,{CORE}.so -Xlinker {exported} -pthread"
    if CUDA:
        built = {"CUDA_VERSION": CUDA.version, "CUDA_ARCHITECTURES": " ".join(CUDA.architectures)}
        sources["interface.cpp"] = " ".join(f"'-DPRIME_{name}=\"{value}\"'" for name, value in built.items())
        # Plans are bit-identical on CPU and GPU, denormal numbers included; pixels need not be.
        sources |= dict.fromkeys(files("cuda/*.cu"), "-ftz=true") | {"cuda/sample.cu": ""}
        link += f" {quoted(f'-L{CUDA.library}')} -lcudart_static -ldl -lrt"
    else:
        sources["without_cuda.cpp"] = ""
    objects = [compiled(ninja, source, flags) for source, flags in sources.items()]
    if wide:  # last, so that of their inline functions the linker takes only what nobody else has
        avx512 = f"{exact} -march=x86-64-v4 -mprefer-vector-width=512 {may_have_avx512} -DPRIME_INSTRUCTIONS=avx512"
        pixels = [source for source in files("cpu/*.cpp") if Path(source).stem not in ONCE]
        objects += [compiled(ninja, source, avx512, "-avx512") for source in pixels]
    ninja.build(escaped(target), "link", objects, variables={"flags": link})


def write_binding(ninja, target: str, core: str) -> None:
    """A module that links the core, by its name and in its own folder."""
    name = Path(target).name.partition(".")[0]
    with_cuda = name == "_torch_cuda"
    if name == "_arrays":
        import pybind11

        includes, flags, link = [sysconfig.get_path("include"), pybind11.get_include()], "", ""
    else:
        includes = [TORCH / "include", TORCH / "include/torch/csrc/api/include"]
        flags = f"-DTORCH_TARGET_VERSION={TORCH_TARGET} {'-DUSE_CUDA' if with_cuda else ''}"
        link = f"{quoted(f'-L{TORCH}/lib')} -ltorch_cpu {'-ltorch_cuda' if with_cuda else ''}"
    # Nothing here takes time but to compile, half as long as with -O3.
    flags = " ".join([flags, "-O1", *(f"-isystem {quoted(folder)}" for folder in includes)])
    inputs = [compiled(ninja, f"bindings/{BINDINGS[name]}", flags), escaped(core)]
    ninja.build(escaped(target), "link", inputs, variables={"flags": f"{link} -Wl,-rpath,'$$ORIGIN'"})


CUDA, TORCH, JOBS = toolkit.find(), find_torch(), jobs()
NAMES = libraries(CUDA, TORCH)
# Of a checkout that is read-only, in a temporary folder; this one is removed when the process ends.
ELSEWHERE = None if os.access(ROOT, os.W_OK) else tempfile.TemporaryDirectory(prefix="prime-dali-build-")
setup(
    options={"build": {"build_base": ELSEWHERE.name}, "egg_info": {"egg_base": ELSEWHERE.name}} if ELSEWHERE else {},
    version=package_version(CUDA),
    ext_modules=[Extension(f"prime_dali.{name}", [], py_limited_api=name.startswith("_torch")) for name in NAMES],
    cmdclass={"build_ext": Build, "build_py": CopySources},
)
