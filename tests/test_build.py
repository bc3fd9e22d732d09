"""The build: what the environment asks for, and the package without CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def setup(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("environment", "message"), [
    ({"PRIME_DALI_CUDA": "yes"}, "PRIME_DALI_CUDA: expected auto, 0 or 1, got 'yes'"),
    ({"PRIME_DALI_CUDA": "1", "CUDA_HOME": "/no/such/toolkit"}, "PRIME_DALI_CUDA=1: no CUDA compiler (nvcc) in CUDA_HOME=/no/such/toolkit"),
    ({"PRIME_DALI_CUDA": "auto", "CUDA_HOME": "/no/such/toolkit"}, "no CUDA compiler (nvcc) in CUDA_HOME=/no/such/toolkit"),
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


@pytest.mark.timeout(600)
def test_build_without_cuda(tmp_path: Path) -> None:
    pytest.importorskip("ninja", reason="building needs ninja")
    pytest.importorskip("pybind11", reason="building needs pybind11")
    done = setup(
        "build_ext", "--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp"), PRIME_DALI_CUDA="0"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning:" not in done.stdout
    built = {p.name.split(".")[0] for p in (tmp_path / "lib").rglob("*.so")}
    assert built == {"_arrays", "_torch"}
