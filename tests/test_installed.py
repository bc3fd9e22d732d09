"""Installations that are incomplete, and folders that only look like packages: what is wrong is said, and what to do."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path

import pytest

import prime_dali
from prime_dali import _extras, _files, _findings, _native


def in_checkout(root: Path) -> None:
    (root / "csrc").mkdir()


def for_another_python(root: Path) -> None:
    (root / "prime_dali/_arrays.cpython-27-x86_64-linux-gnu.so").touch()


def damaged(root: Path) -> None:
    (root / f"prime_dali/_arrays{EXTENSION_SUFFIXES[0]}").write_text("no library")


@pytest.mark.parametrize(("prepare", "message"), [
    (in_checkout, "ImportError: prime_dali: {0}/prime_dali is a checkout that has not been compiled; start Python in another folder to use the package that is installed, or compile this one: pip install --editable {0}"),
    (for_another_python, "ImportError: prime_dali: {0}/prime_dali was compiled for another Python (_arrays.cpython-27-x86_64-linux-gnu.so) than cpython-"),
    (damaged, "ImportError: prime_dali: the compiled code in {0}/prime_dali cannot be loaded ("),
    (lambda root: None, "ImportError: prime_dali: no compiled code in {0}/prime_dali, and an archive cannot contain any; install prime-dali in a folder"),
])  # fmt: skip
def test_compiled_code_that_is_missing(prepare: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    """Python itself says that it is most likely a circular import."""
    package = tmp_path / "prime_dali"
    package.mkdir()
    for file in Path(prime_dali.__file__).parent.glob("*.py"):
        shutil.copy(file, package)
    prepare(tmp_path)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import prime_dali"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert message.format(tmp_path) in done.stderr
    assert "circular" not in done.stderr


def test_a_folder_without_code_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of data sets, for example, or what stays of an uninstalled torch."""
    (tmp_path / "no_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.util.find_spec("no_package") is not None
    assert not _extras.there("no_package")
    assert not _findings._package("no_package", "None", "advice").usable
    folder = importlib.util.module_from_spec(ModuleSpec("torch", None, is_package=True))
    monkeypatch.setitem(sys.modules, "torch", folder)
    with pytest.raises(ImportError, match=r"PRIME needs torch \(No module named 'torch'\): pip install"):
        _native.require_torch("PRIME")
    assert _findings._torch(_findings._cuda_build()).detail == "torch is not installed"
    assert "PRIME" not in dir(prime_dali)


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a user of any number: the operator of the wheel serves, or there is none."""
    monkeypatch.setenv("PRIME_DALI_CACHE", "~/own")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _files.cache_folder() == tmp_path / "own"
    for name in ("PRIME_DALI_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(RuntimeError, match=r"cache: expected a home folder, got none .*; set PRIME_DALI_CACHE"):
        _files.cache_folder()

    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    from prime_dali.dali import native

    monkeypatch.setattr(native, "_in_wheel", lambda: tmp_path / "none.so")
    assert not native.is_built()
    assert "set PRIME_DALI_CACHE" in native.finding(_findings._dali()).detail
    (tmp_path / "some.so").touch()
    monkeypatch.setattr(native, "_in_wheel", lambda: tmp_path / "some.so")
    assert native.plugin_path() == tmp_path / "some.so"


def test_a_cache_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where HOME is still that of root."""
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    from prime_dali.dali import native

    def refused(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(native, "fault", refused)
    assert not native.is_built()
    assert native.finding(_findings._dali()).advice == "set PRIME_DALI_CACHE to a folder that you can write to"
