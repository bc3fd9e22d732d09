"""The package, compiled by tests as setup.py compiles it, without CUDA."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest


def setup_script(root: Path) -> ModuleType:
    """setup.py of a checkout as a module that sets nothing up."""
    spec = importlib.util.spec_from_file_location("prime_dali_setup", root / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIME_DALI_CUDA", "0")
        patch.setattr("setuptools.setup", lambda **_: None)
        spec.loader.exec_module(module)
    return module


def compiled(
    script: ModuleType, march: str, folder: Path, target: Path, bindings: tuple[str, ...] = (), quickly: bool = False
) -> str:
    """The core in the folder ``target``, and bindings beside it; objects are in subfolders of ``folder``, named like those
    of csrc/.

    Args:
        march: As ``PRIME_DALI_MARCH``.
        quickly: With fewer optimizations than setup.py asks for.

    Returns:
        What ninja and the compiler say.
    """
    pytest.importorskip("ninja", reason="building needs ninja")
    from ninja import BIN_DIR, ninja_syntax

    folder.mkdir(exist_ok=True)
    build = folder / "build.ninja"
    with pytest.MonkeyPatch.context() as patch, build.open("w") as file:
        patch.setenv("PRIME_DALI_MARCH", march)
        writer = ninja_syntax.Writer(file, width=10**6)
        script.write_rules(writer)
        core = str(target / f"{script.CORE}.so")
        script.write_core(writer, core)
        for name in bindings:
            suffix = ".abi3.so" if name.startswith("_torch") else sysconfig.get_config_var("EXT_SUFFIX")
            script.write_binding(writer, str(target / f"{name}{suffix}"), core)
    if quickly:
        build.write_text(build.read_text().replace("-O1", "-O0").replace("-O3", "-O1"))
    done = subprocess.run([Path(BIN_DIR) / "ninja", "-C", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
