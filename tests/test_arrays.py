"""The array interface: layouts, DLPack, bfloat16, CuPy, and no torch."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import CUDA, make_images

import prime_dali
from prime_dali import _arguments, arrays

SIZE = (21, 34)


@pytest.mark.parametrize("out_layout", [None, "NCHW", "NHWC"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_layouts(layout: str, out_layout: str | None) -> None:
    images = make_images(3, *SIZE, torch.uint8).numpy()
    plan = prime_dali.sample("cifar", np.arange(3), size=SIZE, view=("clean", 0))
    expected = arrays.apply(images, plan, out_dtype=np.float32)
    given = images if layout == "NCHW" else images.transpose(0, 2, 3, 1).copy()
    out = arrays.apply(given, plan, layout=layout, out_layout=out_layout, out_dtype="float32")
    assert out.flags.c_contiguous
    assert np.array_equal(out if (out_layout or layout) == "NCHW" else out.transpose(0, 3, 1, 2), expected)
    assert np.array_equal(arrays.apply(images, plan)[:3], images)


def test_flip() -> None:
    images, flip = make_images(3, *SIZE, torch.uint8).numpy(), np.array([False, True, False])
    plan = prime_dali.sample("cifar", np.arange(3), size=SIZE)
    straight = arrays.apply(images, plan)
    flipped = arrays.apply(images, plan, flip=flip)
    assert np.array_equal(flipped[1], straight[1, ..., ::-1])
    assert np.array_equal(flipped[::2], straight[::2])


def test_reversed_and_sliced_arrays() -> None:
    images = make_images(6, 40, 70).numpy()[::-2, :, ::-1, 1:69:2]
    plan = prime_dali.sample("cifar", np.arange(3), size=images.shape[2:])
    assert np.array_equal(arrays.apply(images, plan), arrays.apply(images.copy(), plan))


def test_numbers_flips_and_rows_with_gaps() -> None:
    """Every other one of an array, and in the opposite order."""
    images, index, epoch = make_images(3, *SIZE).numpy(), np.arange(6), np.arange(6) // 2
    flip = np.array([True, True, False, False, True, True])
    drawn = prime_dali.sample("cifar", index[::-2].copy(), size=SIZE, epoch=epoch[::-2].copy())
    plan = prime_dali.sample("cifar", index[::-2], size=SIZE, epoch=epoch[::-2])
    assert plan == drawn
    tensors = {name: torch.from_numpy(numbers)[1::2] for name, numbers in (("index", index), ("epoch", epoch))}
    assert prime_dali.sample("cifar", **tensors, size=SIZE) == plan[::-1]
    for i in range(3):  # each image has its own epoch
        alone = prime_dali.sample("cifar", index[[5 - 2 * i]], size=SIZE, epoch=int(epoch[5 - 2 * i]))
        assert np.array_equal(plan.rows[i : i + 1], alone.rows)
    expected = arrays.apply(images, drawn, flip=flip[::-2].copy())
    apart = dataclasses.replace(plan, rows=np.repeat(plan.rows, 2, 0)[::2])
    assert not apart.rows.flags.c_contiguous
    assert np.array_equal(arrays.apply(images, apart, flip=flip[::-2]), expected)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16", "float32"])
def test_the_dtype_of_normalized_images(dtype: str) -> None:
    """That of the images if it is floating, else float32; here as in torch."""
    images = np.ones((2, 3, *SIZE), dtype)
    plan = prime_dali.sample("cifar", np.arange(2), size=SIZE)
    normalized = {"mean": (0.5, 0.4, 0.3), "std": (1, 2, 3)}
    expected = dtype if dtype.startswith("float") else "float32"
    assert arrays.apply(images, plan, **normalized).dtype == expected
    assert prime_dali.apply(torch.from_numpy(images), plan.torch(), **normalized).dtype == getattr(torch, expected)
    assert arrays.apply(images, plan).dtype == dtype


def test_mean_and_std_are_rounded_to_float32() -> None:
    """As DALI rounds them, before the division."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    rounded = [float(np.float32(m)) for m in mean], [1 / float(np.float32(s)) for s in std]
    assert _arguments.normalization(mean, std, 3) == rounded


def test_dlpack_and_read_only_input() -> None:
    images = make_images(2, *SIZE)
    plan = prime_dali.sample("cifar", np.arange(2), size=SIZE)
    expected = arrays.apply(images.numpy(), plan)
    assert np.array_equal(arrays.apply(images, plan), expected)
    frozen = images.numpy().copy()
    frozen.flags.writeable = False
    assert np.array_equal(arrays.apply(frozen, plan), expected)


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 without the package ml_dtypes")
    images = make_images(2, *SIZE).numpy()
    plan = prime_dali.sample("cifar", np.arange(2), size=SIZE)
    out = arrays.apply(images, plan, out_dtype=ml_dtypes.bfloat16)
    assert np.array_equal(arrays.apply(images, plan, out_dtype="bfloat16"), out)
    assert np.abs(out.astype(np.float32) - arrays.apply(images, plan)).max() <= 2**-9
    assert arrays.apply(images.astype(ml_dtypes.bfloat16), plan).dtype == ml_dtypes.bfloat16


def test_empty_batch_and_threads() -> None:
    plan = prime_dali.sample("cifar", np.arange(0), size=SIZE)
    assert arrays.apply(np.zeros((0, 3, *SIZE), np.float32), plan).shape == (0, 3, *SIZE)
    images = make_images(5, *SIZE).numpy()
    plan = prime_dali.sample("imagenet", np.arange(5), size=SIZE)
    assert np.array_equal(arrays.apply(images, plan, threads=1), arrays.apply(images, plan, threads=7))


def test_works_without_torch() -> None:
    program = """
import sys
sys.modules["torch"] = None  # any import of torch now fails
import numpy as np, prime_dali, prime_dali._distributed
plan = prime_dali.sample("cifar", np.arange(2), size=(32, 32))
out = prime_dali.arrays.apply(np.full((2, 32, 32, 3), 100, np.uint8), plan, layout="NHWC")
prime_dali.reference.apply(np.zeros((2, 3, 32, 32), np.uint8), plan)
assert prime_dali._distributed.rank_and_ranks() == (0, 1)
print(out.shape, plan.describe(0) != "")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["(2,", "32,", "32,", "3)", "True"]


@pytest.mark.parametrize("device", [CUDA])
def test_cupy(device: str) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    images = make_images(4, *SIZE, torch.uint8)
    plan = prime_dali.sample("imagenet", cupy.arange(4), size=SIZE, seed=2, view=("clean", 0))
    host = prime_dali.sample("imagenet", np.arange(4), size=SIZE, seed=2, view=("clean", 0))
    assert np.array_equal(cupy.asnumpy(plan.rows), host.rows)
    expected = prime_dali.apply(images.to(device), host.torch(device), out_dtype=torch.float16).cpu().numpy()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        out = arrays.apply(cupy.asarray(images.numpy()), plan, out_dtype=np.float16)
        stream.synchronize()
    assert isinstance(out, cupy.ndarray)
    assert np.array_equal(cupy.asnumpy(out), expected)
    torch_images = images.to(device)  # through the CUDA array interface, without a copy
    assert np.array_equal(cupy.asnumpy(arrays.apply(torch_images, plan, out_dtype=np.float16)), expected)
    with pytest.raises(ValueError, match="plan: expected a plan of cupy arrays"):
        arrays.apply(cupy.asarray(images.numpy()), host)


@pytest.mark.parametrize(("program", "message"), [
    ("sys.modules['nvidia.dali'] = None; import prime_dali.dali", "prime_dali.dali needs NVIDIA DALI: pip install 'prime-dali[dali-cuda13]'"),
    ("sys.modules['cupy'] = None; from prime_dali import arrays; arrays.require_cuda('images')", "images is in CUDA memory and CuPy is not installed"),
    ("sys.modules['torch'] = None; import prime_dali; prime_dali.PRIME", "prime_dali.PRIME needs torch (import of torch halted; None in sys.modules): pip install 'prime-dali[torch]'"),
    ("from prime_dali import _arrays, arrays; _arrays.cuda = None; arrays._require_cuda_build()", "prime_dali was built without CUDA; see prime-dali doctor"),
])  # fmt: skip
def test_what_is_missing_is_named(program: str, message: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import sys; {program}"], capture_output=True, text=True, check=False)
    assert "ImportError: " + message in done.stderr
