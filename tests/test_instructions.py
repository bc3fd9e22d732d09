"""The compilations of the CPU back end for different instruction sets: which one runs, and that both make the same bits."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import make_images

import prime_dali
from prime_dali import _arrays

ROOT = Path(__file__).parent.parent


@pytest.fixture
def avx512() -> Iterator[None]:
    """A processor that has it; what was chosen is chosen again afterwards."""
    before = _arrays.instructions()
    try:
        _arrays.use_instructions("avx512")
    except ValueError as error:
        pytest.skip(f"one compilation runs here: {error}")
    yield
    _arrays.use_instructions(before)


@pytest.mark.parametrize("size", [(8, 8), (61, 40), (32, 130), (224, 224)])
def test_both_make_the_same_bits(avx512: None, size: tuple[int, int]) -> None:
    config = prime_dali.preset("imagenet").replace(
        primitives=("spectral", "spatial", "color", "noise"), noise_std=0.1, width=4, depth=4
    )
    plan = prime_dali.sample(config, torch.arange(6), size=size, seed=11)
    for dtype in (torch.uint8, torch.float16, torch.float32):
        images, out = make_images(6, *size, dtype), {}
        for name in ("baseline", "avx512"):
            _arrays.use_instructions(name)
            assert _arrays.instructions() == name
            out[name] = prime_dali.apply(images, plan, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.2), out_dtype=dtype
                                         if dtype != torch.uint8 else torch.bfloat16)  # fmt: skip
        assert torch.equal(out["baseline"], out["avx512"])


def test_the_best_that_the_processor_has_is_chosen() -> None:
    """Unless the environment names another one."""
    code = "from prime_dali import _arrays\nprint(_arrays.instructions())"

    def chosen(wanted: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PRIME_DALI_INSTRUCTIONS": wanted}
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)

    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    needed = {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")}
    has = flags is not None and needed <= set(flags[1].split())
    with pytest.raises(ValueError, match=r"instructions: expected .*baseline, got 'sse'") as refused:
        _arrays.use_instructions("sse")
    built = "avx512" in str(refused.value)
    assert chosen("").stdout.strip() == ("avx512" if built and has else "baseline")
    assert chosen("baseline").stdout.strip() == "baseline"
    assert "PRIME_DALI_INSTRUCTIONS: expected" in chosen("sse").stderr
    if built and not has:
        assert "PRIME_DALI_INSTRUCTIONS: avx512 needs AVX512F, " in chosen("avx512").stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX-512 is of x86-64")
def test_wide_registers_are_used_by_one_compilation_alone() -> None:
    """No function outside of it touches them: it could run on a processor that lacks them."""
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed (Debian: binutils)")
    library = ROOT / "prime_dali/libprime_dali.so"
    code = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", library], capture_output=True, text=True).stdout
    function, wide = "", set()
    for line in code.splitlines():
        if line.endswith(">:"):
            function = line
        elif "%zmm" in line:
            wide.add(function)
    if not wide:
        pytest.skip("built with PRIME_DALI_MARCH: for one instruction set")
    alone = {name for name in wide if "avx512::" in name}
    assert {part for part in ("Color", "Spatial", "Spectral", "Noise") if any(part in name for name in alone)} == {
        "Color", "Spatial", "Spectral", "Noise",
    }  # fmt: skip
    assert all("(anonymous namespace)" in name for name in wide - alone)
