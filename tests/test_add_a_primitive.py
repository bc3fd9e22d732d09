"""The worked example of docs/adding_a_primitive.md, from its patches to a primitive that equals its reference."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from building import compiled, setup_script

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/adding_a_primitive.md").read_text()
PATCHES = sorted((ROOT / "docs/add_a_primitive").glob("*.patch"))


ALONE = """
import numpy as np, prime_dali, torch
from prime_dali.tools.gallery import cells


def test_a_plan_and_the_gallery() -> None:
    config = prime_dali.preset("cifar").replace(primitives=("color", "gamma"), gamma_std_max=1.0)
    plan = prime_dali.sample(config, np.arange(500), size=(32, 32))
    assert set(np.unique(plan.primitive)) == {0, 3, 5}
    assert 0.9 < plan.strength[plan.primitive == 5].max() <= 1
    x = np.random.default_rng(0).integers(0, 256, (500, 3, 32, 32), np.uint8)
    out = prime_dali.arrays.apply(x, plan)
    assert (out != x).any()
    drawn = prime_dali.sample(config, torch.arange(500), size=(32, 32))
    assert np.array_equal(prime_dali.apply(torch.from_numpy(x), drawn).numpy(), out)
    still = prime_dali.sample(config.replace(alpha=0), np.arange(500), size=(32, 32))
    assert (prime_dali.arrays.apply(x, still) == x).all()
    photo = cells.Photo("photo.png", x[0].transpose(1, 2, 0), 0)
    alone = cells.alone(photo, config, 0)[1]
    *others, strongest = cells.strengths(photo, config, "gamma", 0)
    assert len(others) == 4 and alone.heading == "gamma alone" and alone.words.startswith("strength ")
    assert 0.99 < float(strongest.words.removeprefix("strength ")) <= 1 and (strongest.image != photo.image).any()
"""


def run(folder: Path, *command: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_page_shows_every_patch() -> None:
    shown = re.findall(r'```diff\n--8<-- "(.+)"\n```', PAGE)
    assert sorted(shown) == [str(path.relative_to(ROOT)) for path in PATCHES]


def check_build(folder: Path) -> None:
    """What a build without CUDA is to be; here and not in test_build.py, so that the suite compiles the package once."""
    package, temporary = folder / "prime_dali", folder / "temp"
    said = compiled(setup_script(folder), "native", temporary, package, ("_arrays", "_torch"), quickly=True)
    assert "warning:" not in said
    exported = run(folder, "nm", "-D", "--defined-only", package / "libprime_dali.so")
    assert {line.split()[2].partition("_")[0] for line in exported.splitlines()} == {"prime"}
    # Loading runs nothing that was compiled for more than the processor may have: there are no static constructors.
    objects = sorted((temporary / "cpu").glob("*.o"))
    assert len(objects) > 5
    assert ".init_array" not in run(folder, "objdump", "-h", *objects)


@pytest.mark.timeout(900)
def test_the_patches_add_a_primitive(tmp_path: Path) -> None:
    """On the CPU, by torch and by arrays, and with the CUDA sources compiled for the CPU."""
    if shutil.which("git") is None:
        pytest.skip("applying the patches needs git")
    for part in ("csrc", "prime_dali", "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for part in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / part, tmp_path)
    run(tmp_path, "git", "apply", *PATCHES)
    check_build(tmp_path)
    (tmp_path / "tests/test_gamma_alone.py").write_text(ALONE)
    options = ("-q", "-k", "gamma or every_order", "-p", "no:cacheprovider")
    files = [f"tests/test_{name}.py" for name in ("primitives", "cuda_on_cpu", "gamma_alone")]
    out = run(tmp_path, sys.executable, "-m", "pytest", *options, *files)
    # Seven sizes of images on the CPU, six by the CUDA sources; every order, of bytes and floats, by both; and a plan.
    assert re.search(r"\b18 passed", out), out
