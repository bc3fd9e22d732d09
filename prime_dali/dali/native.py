"""The native operator ``fn.prime.augment``: a plugin for the installed DALI, compiled once and cached.

DALI has versioned symbols, so a plugin works with one DALI version and is compiled for the installed one. It is one
file (csrc/bindings/dali/plugin.cpp) that links the core of this package, so it needs a C++ compiler and the headers of
the CUDA runtime, but no CUDA compiler and no GPU. Wheels bring it along for the versions of DALI that were there when
they were built (tools/build_wheels.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import nvidia.dali
from nvidia.dali import plugin_manager, sysconfig

from .. import _arrays, _native, _progress, _toolkit
from .._files import cache_folder, commit, filling_cache, make_folder, sha256, write_text
from .._findings import DALI_OPERATOR, Finding
from .._states import Kind
from ..config import PrimeConfig, as_config

_native.require_cpu()
COMMAND = "prime-dali build-dali-plugin"
_loaded: Path | None = None
_QUOTED = 20  # lines of a compiler's errors
# Nothing here takes time but to compile.
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wno-free-nonheap-object")


def arguments(config: PrimeConfig | str = "imagenet") -> dict[str, list[float] | list[int]]:
    """``distributions`` and ``plan_shape`` of ``fn.prime.augment`` for a configuration or the name of a preset.

    ::

        prime_dali.dali.load_plugin()
        images = fn.prime.augment(images, index=index, seed=1, **prime_dali.dali.arguments("imagenet"))

    Raises:
        TypeError, ValueError: ``config`` is neither.

    Examples:
        >>> given = prime_dali.dali.arguments("imagenet")
        >>> given["plan_shape"]  # chains, depth, side of the filter, largest cutoff and band, whether there are waves
        [3, 3, 3, 500, 20, 0]
        >>> len(given["distributions"])
        23
    """
    settings = as_config(config)
    return {"distributions": list(settings.distributions()), "plan_shape": list(settings.plan_shape)}


def plugin_path() -> Path:
    """The path of the plugin for the installed DALI, compiled or not: in ``PRIME_DALI_CACHE``, by default
    ``~/.cache/prime-dali``, in a folder named after DALI's version, its CUDA, the sources and the flags. Where none was
    compiled there, it is the one that came with the package, if its wheel has one for this DALI.

    Examples:
        >>> prime_dali.dali.plugin_path().suffix
        '.so'
    """
    prebuilt = _in_wheel()
    try:
        compiled = _in_cache()
        if compiled.exists() or not prebuilt.exists():
            return compiled
    except (RuntimeError, OSError):  # no cache that this user can read
        if not prebuilt.exists():
            raise
    return prebuilt


def _in_wheel() -> Path:
    """Where a wheel has the plugin, if it has one for the installed DALI."""
    return Path(__file__).parent / "plugins" / f"{_version()}.so"


def _in_cache() -> Path:
    digest = hashlib.sha256(" ".join((*_FLAGS, str(_dali_flags()))).encode())
    csrc = _csrc()
    for source in sorted(file for pattern in _toolkit.PLUGIN_SOURCES for file in csrc.glob(pattern)):
        digest.update(source.name.encode() + source.read_bytes())
    return cache_folder() / f"{_version()}-{digest.hexdigest()[:12]}" / "libprime_dali_plugin.so"


def _version() -> str:
    return f"dali-{nvidia.dali.__version__}-cuda{nvidia.dali.__cuda_version__}"


def is_built() -> bool:
    """Whether the plugin for the installed DALI has been compiled, is undamaged, and this user can read it."""
    try:
        return fault(plugin_path()) is None
    except (RuntimeError, OSError):
        return False


def is_ready() -> bool:
    """Whether the operator can be used at once: it is loaded, from wherever, or compiled."""
    return _loaded is not None or is_built()


def finding(dali: Finding) -> Finding:
    """The plugin's line in ``prime-dali doctor``, for the installed DALI. Never raises."""
    try:
        path = plugin_path()
        wrong = fault(path)
    except RuntimeError as error:
        return Finding(DALI_OPERATOR, False, str(error))
    except OSError as error:
        return Finding(DALI_OPERATOR, False, str(error), "set PRIME_DALI_CACHE to a folder that you can write to")
    if wrong is not None:
        return Finding(DALI_OPERATOR, False, f"{wrong}, for DALI {dali.detail}: {path}", COMMAND)
    return Finding(DALI_OPERATOR, True, f"for DALI {dali.detail}: {path}")


def fault(path: Path) -> str | None:
    """Why a plugin in the cache cannot be used; None: it is unchanged since it was compiled.

    Loading a truncated library kills the process without a message, so size and hash are stored beside it.
    """
    if not path.exists():
        return "not compiled"
    try:
        written = _RECORD.read_json(_record(path))
    except (OSError, ValueError):
        return "not compiled completely"
    size = path.stat().st_size
    if size != written["bytes"]:
        return f"damaged: expected {written['bytes']} bytes, got {size}"
    return None if sha256(path) == written["sha256"] else "damaged: its content has changed"


_RECORD = Kind({"bytes": int, "sha256": str}, "a record of a plugin", f"run `{COMMAND}`")


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def build_plugin(force: bool = False) -> Path:
    """Compile the plugin for the installed DALI, unless an undamaged one exists; takes about ten seconds.

    Any number of processes may call this at the same time: one compiles, the others wait.

    Args:
        force: Compile again even if it exists.

    Returns:
        The path of the library.

    Raises:
        RuntimeError: No compiler, no headers of the CUDA runtime, or the compiler failed; the message has its errors.

    Examples:
        >>> prime_dali.dali.build_plugin() == prime_dali.dali.plugin_path()
        True
    """
    target = plugin_path()
    if not force and fault(target) is None:
        return target  # also if the cache is read-only
    target = _in_cache()
    with filling_cache(target.parent / "lock"):
        if force or fault(target) is not None:
            _compile(target)
    return target


def compile_prebuilt(folder: str | os.PathLike[str]) -> None:
    """Compile the plugin for the installed DALI into a folder, as wheels have it (tools/build_wheels.py)."""
    target = Path(folder) / _in_wheel().name
    make_folder(target.parent)
    _compile(target, run_path="$ORIGIN/../..")


def load_plugin(path: str | os.PathLike[str] | None = None) -> None:
    """Register ``fn.prime.augment`` with DALI; compiles it at first use. Call it before importing
    ``nvidia.dali.experimental.dynamic``.

    Args:
        path: A plugin that was built elsewhere. None: the one at :func:`plugin_path`.

    Raises:
        RuntimeError: It cannot be built, or another one has been loaded.
        FileNotFoundError: There is no file at ``path``.
        ImportError: It was built for another DALI or another version of this package.

    Examples:
        >>> from nvidia.dali import fn
        >>> prime_dali.dali.load_plugin()
        >>> fn.prime.augment.__name__
        'augment'
    """
    global _loaded
    if path is None and _loaded is not None:
        return
    given = Path(build_plugin() if path is None else path).resolve()
    if given == _loaded:
        return
    if _loaded is not None:
        raise RuntimeError(f"path: the plugin {_loaded} is already loaded, and DALI cannot load another")
    if not given.is_file():
        raise FileNotFoundError(f"path: expected a plugin library, found no file at {given}")
    broken = fault(given) if _record(given).exists() else _cut_off(given)
    if broken is not None:
        raise ImportError(f"{given} cannot be loaded: {broken}; build it with `{COMMAND}`")
    another = f"{given} was built for another version of prime-dali; build it with `{COMMAND}`"
    try:
        interface = ctypes.CDLL(str(given)).prime_dali_plugin_interface
    except (OSError, AttributeError) as error:
        if "undefined symbol: prime_" in str(error):  # a function that this core does not have
            raise ImportError(another) from error
        rebuild = f"build it with `{COMMAND}`"
        raise ImportError(f"{given} is not a plugin for DALI {nvidia.dali.__version__} ({error}); {rebuild}") from error
    interface.restype = ctypes.c_uint64
    if interface() != _arrays.interface:
        raise ImportError(another)
    # Bytes: a str is encoded as UTF-8, which a name need not be in another locale.
    plugin_manager.load_library(os.fsencode(given))  # type: ignore[arg-type]
    _loaded = given


def _cut_off(path: Path) -> str | None:
    """:func:`fault` for a library without a record: an ELF file ends with its section table."""
    with path.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or head[:4] != b"\x7fELF":
        return None  # the dynamic loader reports it
    table, size, count = (struct.unpack_from(kind, head, at)[0] for kind, at in (("<Q", 40), ("<H", 58), ("<H", 60)))
    wanted, found = table + size * count, path.stat().st_size
    return f"damaged: expected {wanted} bytes, got {found}" if found < wanted else None


def _csrc() -> Path:
    """csrc of a checkout, or the part of it in a wheel."""
    package = Path(__file__).parent.parent
    for folder in (package / "csrc", package.parent / "csrc"):
        if (folder / "bindings/dali/plugin.cpp").exists():
            return folder
    raise RuntimeError("the sources of the DALI plugin are missing; install prime-dali again")


def _compiler() -> str:
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise RuntimeError(f"building the DALI plugin needs a C++20 compiler; {compiler} is not on PATH (set CXX)")
    return compiler


def _dali_flags() -> tuple[list[str], list[str]]:
    # The random generator's state is in DALI's core library, in older versions in that of its operators.
    return sysconfig.get_compile_flags(), [*sysconfig.get_link_flags(), "-ldali_core", "-ldali_operators"]


def _cuda_runtime() -> tuple[Path, Path]:
    """Folders of cuda_runtime_api.h and libcudart_static.a: from a toolkit, or from NVIDIA's Python package."""
    major = int(str(nvidia.dali.__cuda_version__)[:2])  # 13492 is 13.4.92
    found = _toolkit.runtime(major)
    if found is not None:
        return found
    package = f"nvidia-cuda-runtime{'' if major >= 13 else f'-cu{major}'}"
    raise RuntimeError(
        "building the DALI plugin needs the headers of the CUDA runtime: set CUDA_HOME to a CUDA toolkit, "
        f"or pip install {package}"
    )


def _compile(target: Path, run_path: str | None = None) -> None:
    include, library = _cuda_runtime()
    compile_flags, link_flags = _dali_flags()
    # Linked by its soname: at run time this is the core that is loaded already, wherever it is.
    core = Path(_arrays.__file__).with_name("libprime_dali.so")
    dali = [flag.replace("-I", "-isystem", 1) for flag in compile_flags]  # suppresses warnings in DALI's headers
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        command = [
            _compiler(), "-shared", *_FLAGS, *dali, f"-isystem{include}", str(_csrc() / "bindings/dali/plugin.cpp"),
            "-Wl,--exclude-libs,ALL", "-o", str(made), str(core), f"-Wl,-rpath,{run_path or core.parent}",
            *link_flags, f"-L{library}", "-lcudart_static", "-ldl", "-lrt",
        ]  # fmt: skip
        with _progress.phase(f"compiling the DALI operator for DALI {nvidia.dali.__version__}, about ten seconds"):
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            said = done.stderr.splitlines()
            errors = said if len(said) <= _QUOTED else [line for line in said if "error" in line] or said
            raise RuntimeError(
                f"the DALI plugin does not compile for DALI {nvidia.dali.__version__}:\n"
                + "\n".join(errors[:_QUOTED])
                + f"\nthe command was: {' '.join(command)}"
            )
        content = json.dumps({"bytes": made.stat().st_size, "sha256": sha256(made)})
        _record(target).unlink(missing_ok=True)
        commit(made, target)
    write_text(_record(target), content + "\n")
