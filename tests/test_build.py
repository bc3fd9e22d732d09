"""The build: what the environment asks for. test_add_a_primitive.py compiles the package, without CUDA."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import building
import pytest

from prime_dali import _toolkit

ROOT = Path(__file__).parent.parent


def setup(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("environment", "message"), [
    ({"PRIME_DALI_CUDA": "yes"}, "PRIME_DALI_CUDA: expected auto, 0 or 1, got 'yes'"),
    ({"PRIME_DALI_CUDA": "1", "CUDA_HOME": "/no/such/toolkit"}, "PRIME_DALI_CUDA=1: no CUDA compiler (nvcc) in CUDA_HOME=/no/such/toolkit"),
    ({"PRIME_DALI_CUDA": "auto", "CUDA_HOME": "/no/such/toolkit"}, "PRIME_DALI_CUDA=auto: no CUDA compiler (nvcc) in CUDA_HOME=/no/such/toolkit; with PRIME_DALI_CUDA=0 the build is without CUDA"),
    ({"PRIME_DALI_CUDA": "0", "MAX_JOBS": "all"}, "MAX_JOBS: expected a whole number from 1, got 'all'"),
    ({"PRIME_DALI_CUDA": "0", "MAX_JOBS": "0"}, "MAX_JOBS: expected a whole number from 1, got '0'"),
])  # fmt: skip
def test_wishes_that_cannot_be_met(environment: dict[str, str], message: str) -> None:
    done = setup("--version", **environment)
    assert done.returncode != 0
    assert message in done.stderr


def test_no_compiler_on_path(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "CUDA_HOME": ""}
    assert (
        "PRIME_DALI_CUDA=1: no CUDA compiler (nvcc) on PATH"
        in setup("--version", PRIME_DALI_CUDA="1", **environment).stderr
    )
    assert setup("--version", PRIME_DALI_CUDA="auto", **environment).returncode == 0


def test_a_cuda_compiler_that_does_not_run(tmp_path: Path) -> None:
    """Where the environment asks for its toolkit, no build without CUDA takes its place."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libcudart_static.a").touch()
    nvcc = tmp_path / "bin/nvcc"
    nvcc.write_text("#!/bin/sh\nexit 3\n")
    nvcc.chmod(0o755)
    done = setup("--version", PRIME_DALI_CUDA="auto", CUDA_HOME=str(tmp_path))
    assert done.returncode != 0
    assert f"{nvcc} does not run, or is too old" in done.stderr


@pytest.fixture
def oddly_named(tmp_path: Path) -> Path:
    """A checkout, as far as builds read it before they compile, whose path shells and ninja would take apart."""
    root = tmp_path / "it's a $path$: $ größe"
    for name in (
        "setup.py",
        "prime_dali/__init__.py",
        "prime_dali/_toolkit.py",
        "csrc/cpu/supported.cpp",
        "csrc/cpu/cpu.h",
        "csrc/exported.map",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for folder in ("core", "bindings"):
        shutil.copytree(ROOT / "csrc" / folder, root / "csrc" / folder)
    return root


def test_paths_that_shells_and_ninja_would_take_apart(oddly_named: Path) -> None:
    pytest.importorskip("ninja", reason="building needs ninja")
    from ninja import BIN_DIR, ninja_syntax

    script = building.setup_script(oddly_named)
    target = oddly_named / "lib/x.so"
    with (oddly_named / "build.ninja").open("w", encoding="utf-8") as file:
        writer = ninja_syntax.Writer(file, width=10**6)
        script.write_rules(writer)
        script.compiled(writer, "cpu/supported.cpp", f"-isystem {script.quoted(oddly_named)}")
        exported = script.quoted(f"--version-script={oddly_named}/csrc/exported.map")
        writer.build(script.escaped(target), "link", "cpu/supported.o", variables={"flags": f"-Xlinker {exported}"})
    done = subprocess.run([Path(BIN_DIR) / "ninja", "-C", oddly_named], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert target.exists()


def test_builds_of_a_checkout_take_turns(oddly_named: Path) -> None:
    """Two at once, as of two Pythons, put files into each other's wheels."""
    script = building.setup_script(oddly_named)
    lock = script.wait_for_other_builds()
    assert script.wait_for_other_builds() == lock  # build_py, then build_ext
    other = os.open(oddly_named, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)  # as when the process ends
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_what_an_earlier_build_left_is_not_installed(tmp_path: Path) -> None:
    """Modules that are gone, and libraries for CUDA in a build without it."""
    for name in ("prime_dali/gone.py", "prime_dali/_torch_cuda.abi3.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    done = setup("--quiet", "build_py", "--build-lib", str(tmp_path), PRIME_DALI_CUDA="0")
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert "prime_dali/arrays.py" in made
    assert {name for name in made if not name.startswith("prime_dali/csrc/") and not (ROOT / name).exists()} == set()
    assert "prime_dali/_torch_cuda.abi3.so" not in made


def test_a_read_only_checkout_is_built_elsewhere() -> None:
    program = "import os, runpy, sys; os.access = lambda *_: False; sys.argv = ['setup.py', 'build_py', 'egg_info']; "
    done = subprocess.run(
        [sys.executable, "-c", f"{program} runpy.run_path('setup.py', run_name='__main__')"],
        cwd=ROOT, env={**os.environ, "PRIME_DALI_CUDA": "0"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for made in ("lib[^/]*/prime_dali", "prime_dali.egg-info"):
        [folder] = set(re.findall(rf"\bcreating (\S*prime-dali-build-\w+)/{made}\n", done.stdout))
        assert not Path(folder).exists()  # it is removed at the end
    assert not re.search(r"\bcreating (?!/)", done.stdout)


def test_files_beside_the_modules_are_installed() -> None:
    """Each file of the package that is no module is named in pyproject.toml, and each name there is of a file."""
    from setuptools.config.pyprojecttoml import load_file

    named = load_file(ROOT / "pyproject.toml")["tool"]["setuptools"]["package-data"]
    known = {path for package, names in named.items() for name in names
             for path in (ROOT / package.replace(".", "/")).glob(name)}  # fmt: skip
    others = {path for path in (ROOT / "prime_dali").rglob("*") if path.suffix not in ("", ".py", ".pyc", ".so")}
    assert others == known


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """setup.py as a module that sets nothing up."""
    return building.setup_script(ROOT)


def test_torch_is_optional(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its CUDA: one core and one module serve without both."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert script.find_torch() is None
    cuda = _toolkit.Toolkit("nvcc", tmp_path, "13.0", ("90",))
    assert script.libraries(None, None) == script.libraries(cuda, None) == ["libprime_dali", "_arrays"]
    assert script.libraries(cuda, tmp_path) == ["libprime_dali", "_arrays", "_torch"]
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libtorch_cuda.so").touch()
    assert script.libraries(None, tmp_path) == ["libprime_dali", "_arrays", "_torch"]
    assert script.libraries(cuda, tmp_path) == ["libprime_dali", "_arrays", "_torch", "_torch_cuda"]


def test_architectures_are_sorted() -> None:
    """PTX of the last one is what newer GPUs run."""
    known = ["75", "80", "90", "100", "120"]
    assert _toolkit.chosen_architectures("90;80", known) == ("80", "90")
    assert _toolkit.chosen_architectures("100; 8.0;90;80;", known) == ("80", "90", "100")
    for wanted, got in (("80;70;60", "got 60 70"), (" ; ", "got ' ; '")):
        with pytest.raises(SystemExit, match=f"PRIME_DALI_CUDA_ARCHS: expected some of 75 80 90 100 120, {got}"):
            _toolkit.chosen_architectures(wanted, known)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares another architecture with x86-64")
def test_aarch64_makes_the_same_bits(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core, compiled for aarch64 as setup.py compiles it and run under emulation: plans and images of all types."""
    emulator, compiler = "qemu-aarch64-static", "aarch64-linux-gnu-g++"
    for tool in (emulator, compiler):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (Debian: g++-aarch64-linux-gnu and qemu-user-static)")
    monkeypatch.setenv("CXX", compiler)
    building.compiled(script, "", tmp_path, tmp_path)  # for every aarch64
    printed = []
    for cxx, core, run in (("c++", ROOT / "prime_dali/libprime_dali.so", []),
                           (compiler, tmp_path / "libprime_dali.so", [emulator, "-L", "/usr/aarch64-linux-gnu"])):  # fmt: skip
        program = tmp_path / cxx
        source = ROOT / "tests/aarch64/hashes.cpp"
        subprocess.run(
            [cxx, "-std=c++20", "-Wall", source, core, f"-Wl,-rpath,{core.parent}", "-o", program], check=True
        )
        printed.append(subprocess.run([*run, program], capture_output=True, text=True, check=True).stdout.splitlines())
    native, emulated = printed
    assert len(native) == 42
    assert len({line.partition(": ")[2] for line in native}) == 42  # the hashes tell settings apart
    assert emulated == native


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other architectures have one instruction set here")
def test_instructions_that_the_processor_lacks_are_named(tmp_path: Path) -> None:
    """Compiled for more than any processor here may have; asked by code that is compiled for none of it."""
    cpu = ROOT / "csrc/cpu"
    (tmp_path / "main.cpp").write_text(
        f'#include <cstdio>\n#include "{cpu}/cpu.h"\n'
        "int main() {\n"
        '  for (const char* const* name = prime::kCompiledFor; *name; ++name) std::printf("%s ", *name);\n'
        '  std::printf("\\n%s\\n", prime::missing_instructions().c_str());\n'
        "}\n"
    )
    compiler = os.environ.get("CXX", "c++")
    for source, flags in ((cpu / "instructions.cpp", ["-march=skylake-avx512"]), (cpu / "supported.cpp", []),
                          (tmp_path / "main.cpp", [])):  # fmt: skip
        subprocess.run([compiler, "-std=c++17", *flags, "-c", source], cwd=tmp_path, check=True)
    subprocess.run([compiler, "instructions.o", "supported.o", "main.o", "-o", "main"], cwd=tmp_path, check=True)
    wanted, missing = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )[:2]
    assert {"AVX2", "FMA", "F16C", "AVX512F"} <= set(wanted.split())
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    assert flags is not None
    names = {"LZCNT": "abm", "SSE4.2": "sse4_2"}  # as the kernel has them
    lacks = [name for name in wanted.split() if names.get(name, name.lower()) not in flags[1].split()]
    assert missing == ", ".join(lacks)


def test_a_processor_that_lacks_instructions_is_refused_by_every_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is loaded that would run them; the DALI interface imports that of arrays."""
    from prime_dali import _arrays

    monkeypatch.setattr(_arrays, "missing_instructions", lambda: "AVX2, FMA")
    for name in ("arrays", "torch_ops", "dali/native"):
        found = importlib.util.spec_from_file_location(
            f"prime_dali.{name.replace('/', '.')}_", ROOT / f"prime_dali/{name}.py"
        )
        assert found is not None
        assert found.loader is not None
        monkeypatch.setattr("torch.ops.load_library", lambda _: pytest.fail("the library was loaded"), raising=False)
        if name == "dali/native":
            pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
        with pytest.raises(ImportError, match="prime_dali: this processor lacks AVX2, FMA, which this build"):
            found.loader.exec_module(importlib.util.module_from_spec(found))
