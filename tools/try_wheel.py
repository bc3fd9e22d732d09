"""Tries wheels in fresh environments: `python tools/try_wheel.py dist/*cp312*.whl --torch none 2.10.0 2.14.1`.

The interpreter that runs this is the one that is tried. Each wheel is installed beside each version of torch, where no
compiler can be found, and PRIME has to give there what its reference gives. Where DALI is installed (--dali), so has
the operator that the wheel brings for it. Exit status: how many of them failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CHECK = r"""
import shutil
import sys
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

import prime_dali

assert not [name for name in ("c++", "cc", "g++", "gcc", "clang", "nvcc", "ld") if shutil.which(name)]

name = version("prime-dali")
assert name.partition("+")[0] == prime_dali.__version__, (name, prime_dali.__version__)
images = np.random.default_rng(0).integers(0, 256, (8, 3, 40, 48), np.uint8)
plan = prime_dali.sample("cifar", np.arange(8), size=(40, 48), seed=1)
exact = prime_dali.reference.apply(images, plan)
arrays = prime_dali.arrays.apply(images, plan, mean=(0, 0, 0), std=(1, 1, 1))
assert np.abs(arrays - exact).max() < 1e-3, np.abs(arrays - exact).max()
said = [f"Python {sys.version.split()[0]}", f"numpy {np.__version__}"]
assert "+" not in name or (prime_dali.arrays._arrays.cuda is None) == ("+cpu" in name), prime_dali.arrays._arrays.cuda
if sys.argv[1] == "none":
    assert "torch" not in sys.modules
    try:
        prime_dali.PRIME
    except ImportError as error:
        assert "pip install 'prime-dali[torch]'" in str(error), error
    else:
        raise AssertionError("torch is there")
else:
    import torch

    augment = prime_dali.PRIME("cifar", seed=1, mean=(0, 0, 0), std=(1, 1, 1))
    tensors = torch.from_numpy(images)
    assert np.array_equal(augment(tensors, torch.arange(8)).numpy(), arrays)
    compiled = torch.compile(augment, fullgraph=True, backend="eager")
    assert np.array_equal(compiled(tensors, torch.arange(8)).numpy(), arrays)
    said += [f"torch {torch.__version__}", "CPU"]
    if torch.cuda.is_available() and "+cu" in name:
        # The kernels have a precision of their own (docs/METHOD.md), which color maps of a chain amplify.
        got = augment.cuda()(tensors.cuda(), torch.arange(8).cuda()).cpu().numpy()
        assert np.abs(got - exact).mean() < 1e-2, np.abs(got - exact).mean()
        said[-1] += " and " + torch.cuda.get_device_name()
if find_spec("nvidia") and find_spec("nvidia.dali"):
    import nvidia.dali
    import prime_dali.dali
    from nvidia.dali import fn, pipeline_def

    @pipeline_def(batch_size=8, num_threads=1, device_id=None, exec_dynamic=True)
    def pipeline():
        index = fn.external_source(lambda: list(np.arange(8)), batch=True)
        batch = fn.external_source(lambda: list(images), batch=True, layout="CHW")
        return prime_dali.dali.prime(batch, "cifar", index=index, epoch=0, seed=1, mean=(0, 0, 0), std=(1, 1, 1),
                                     layout="CHW", mode="native")

    [made] = pipeline().run()
    assert np.array_equal(made.as_array(), arrays)
    assert prime_dali.dali.plugin_path().parent.name == "plugins", prime_dali.dali.plugin_path()
    said.append(f"the operator of DALI {nvidia.dali.__version__}")
elif sys.argv[2] != "none":
    raise AssertionError("DALI is not there")
print(f"{name}: works ({', '.join(said)})")
"""


def main() -> int:
    """Try every wheel with every torch; returns how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, nargs="+")
    parser.add_argument(
        "--torch", nargs="+", default=["none"],
        help="versions, of which each is downloaded; environments, whose torch is used as it is; none: without torch",
    )  # fmt: skip
    parser.add_argument("--dali", default="none", help="what to give pip, such as nvidia-dali-cuda130==2.4.0")
    parser.add_argument("--numpy", default="numpy", help="what to give pip, such as numpy==1.24.*")
    options = parser.parse_args()
    failed = 0
    for wheel in options.wheels:
        for torch in options.torch:
            try:
                attempt(wheel, torch, options.dali, options.numpy)
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"{wheel.name} with torch {torch}: FAILED\n{error.stdout}{error.stderr}", flush=True)
    return failed


def attempt(wheel: Path, torch: str, dali: str, numpy: str) -> None:
    """Install a wheel in a new environment beside a torch and a DALI, and run PRIME there without a compiler.

    Raises:
        subprocess.CalledProcessError: It could not be installed, or does not work.
    """
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        install = [python, "-m", "pip", "install", "--quiet"]
        environment = Path(torch, "bin", "python")
        if environment.exists():  # its packages come after those of the new one, and its prime-dali, if any, too
            code = "import sysconfig; print(sysconfig.get_path('purelib'))"
            [site] = run(python, "-c", code).stdout.splitlines()
            Path(site, "torch.pth").write_text(run(environment, "-c", code).stdout)
            run(*install, "--no-deps", "--force-reinstall", wheel.resolve())
        else:
            others = ([] if torch == "none" else [f"torch=={torch}"]) + ([] if dali == "none" else [dali])
            run(*install, numpy, wheel.resolve(), *others)
        print(run(python, "-c", CHECK, torch, dali, cwd=folder).stdout, end="", flush=True)


def run(*command: str | Path, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command where neither a compiler can be found nor anything that was not installed for it."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CXX", "CUDA_HOME")}
    with tempfile.TemporaryDirectory() as empty:
        bare = clean | {"PATH": empty, "PRIME_DALI_CACHE": empty}
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd, env=bare)


if __name__ == "__main__":
    sys.exit(main())
