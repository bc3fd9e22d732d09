"""Pieces that the tests of PRIME in DALI pipelines share: images, and pipelines that run on them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from conftest import DALI_GPU, make_images, needs_gpu

import prime_dali

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

from nvidia.dali import fn, pipeline_def, types

SIZE = (24, 40)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = make_images(8, *SIZE, torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
TORCH = pytest.param("torch", marks=needs_gpu)


@pytest.fixture(params=["cpu", DALI_GPU])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["native", "cupy", "dlpack", TORCH])
def mode(request: pytest.FixtureRequest) -> str:
    if request.param == "native":
        request.getfixturevalue("plugin")
    return request.param


def run(
    device: str,
    images: Sequence[np.ndarray] = IMAGES,
    batch: int = 4,
    iterations: int = 1,
    indexed: bool = True,
    flipped: bool = False,
    **arguments,
):
    """The outputs of each iteration: a list of host arrays [batch, ...] a view."""

    @pipeline_def(batch_size=batch, num_threads=2, device_id=0 if device == "gpu" else None, seed=1)
    def pipeline():
        image, index = fn.external_source(
            lambda s: (images[s.idx_in_epoch % len(images)], np.array(s.idx_in_epoch, np.int64)),
            num_outputs=2, batch=False, dtype=[types.UINT8, types.INT64] if images[0].dtype == np.uint8 else None,
        )  # fmt: skip
        image = image.gpu() if device == "gpu" else image
        if flipped:
            arguments["flip"] = (index & 1) * 2  # any number but zero
        out = prime_dali.dali.prime(image, index=index if indexed else None, **({"epoch": 0} | arguments))
        return (*(out if isinstance(out, tuple) else (out,)), index)

    built = pipeline()
    built.build()
    return [[np.stack([np.array(s) for s in out.as_cpu()]) for out in built.run()[:-1]] for _ in range(iterations)]


def expected(device: str, count: int, **arguments) -> np.ndarray:
    xp = importlib.import_module("cupy" if device == "gpu" else "numpy")
    plan = prime_dali.sample("imagenet", xp.arange(count), size=SIZE, seed=5, **arguments)
    images = xp.asarray(IMAGES[:count])
    out = prime_dali.arrays.apply(images, plan, layout="NHWC", out_layout="NCHW", mean=MEAN, std=STD)
    return out if device == "cpu" else out.get()
