"""Random settings: the CPU beside the float64 reference, and CUDA beside the CPU, on a GPU and emulated.

Slots amplify what comes in, so images of long chains differ for no fault. Two things tell a fault from that. Every slot,
fed with what the kernels themselves made of the slots before, is off by no more than it may be: that holds for each value.
And over all settings no more pixels are off than in the reference itself when its slots are off by as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import emulated_cuda
import numpy as np
import pytest
import torch
from conftest import CUDA, FUZZ_SECONDS, count_beyond
from test_primitives import DRIFT, EIGHT_BIT, check_each_slot, rounded_reference

import prime_dali
from prime_dali import Plan, reference

if FUZZ_SECONDS:
    from fuzzing import further
else:  # for which Hypothesis need not be there

    def further() -> Iterator[int]:
        return iter(())


Run = Callable[[torch.Tensor, Plan], np.ndarray]  # images [N, 3, H, W] and a plan of NumPy to float64
HALF_STEP = 1 / 65280  # of images on CUDA, between passes and, of floats, before the first


@dataclass(frozen=True)
class Setting:
    """Images and what is drawn for them."""

    number: int
    images: torch.Tensor
    plan: Plan
    colors: int  # slots, of all chains

    def __str__(self) -> str:
        p = self.plan
        return f"setting {self.number}: {self.images.dtype} {p.size}, {p.chains} x {p.depth}, {self.colors} color slots"


def setting(number: int, large: bool = False) -> Setting:
    """The one of this number; the same everywhere."""
    rng = np.random.default_rng(number)
    low, high = (60, 240) if large else (8, 50)
    size = tuple(int(n) for n in rng.integers(low, high, 2))
    preset = prime_dali.preset(str(rng.choice(["imagenet", "cifar"])))
    primitives = ("spectral", "spatial", "color", "noise")[: rng.integers(3, 5)]
    config = preset.replace(
        primitives=primitives,
        noise_std=0.1 if "noise" in primitives else None,
        width=int(rng.integers(1, 4)),
        depth=int(rng.integers(1, 5)),
        mixing=str(rng.choice(["paper", "official", "none"])),
        alpha=float(rng.choice([0.3, 1.0, 1.0])),
        spectral_size=int(rng.choice([1, 3, 3, 3, 5])),
    )
    plan = prime_dali.sample(config, rng.integers(-(2**62), 2**62, 2), size=size, seed=number)
    smooth = torch.nn.functional.interpolate(torch.from_numpy(rng.random((2, 3, 5, 6))), size, mode="bilinear")
    levels = (255 * (1.2 * smooth - 0.1)).clamp(0, 255)
    dtype = [torch.uint8, torch.float16, torch.float32][number % 3]
    images = levels.round().to(torch.uint8) if dtype == torch.uint8 else (levels / 255).to(dtype)
    return Setting(number, images, plan, int((plan.primitive == 3).sum()))


def on_cpu(images: torch.Tensor, plan: Plan) -> np.ndarray:
    return prime_dali.apply(images, plan.torch(), out_dtype=torch.float32).double().numpy()


def check(settings: Iterator[Setting], run: Run, kernels: str) -> None:
    """Every slot of each; and all together, ``run`` beside the reference (CPU) or beside the CPU (CUDA)."""
    off, allowed, values = 0, 0, 0
    for each in settings:
        x = each.images.double() / (255 if each.images.dtype == torch.uint8 else 1)
        check_each_slot(lambda plan, each=each: run(each.images, plan), x, each.plan, kernels)
        expected = reference.apply(x, each.plan)
        exact = kernels == "cpu" or each.images.dtype == torch.uint8
        step = np.random.default_rng(0).uniform(-HALF_STEP, HALF_STEP, x.shape)
        drifted = rounded_reference(
            x if exact else (x + torch.from_numpy(step)).clamp(0, 1), each.plan, *DRIFT[kernels]
        )
        beside = expected if kernels == "cpu" else on_cpu(each.images, each.plan)
        off += count_beyond(run(each.images, each.plan), beside, 2 * EIGHT_BIT)
        allowed += count_beyond(drifted, expected, 2 * EIGHT_BIT)
        values += expected.size
        assert off <= allowed + 0.02 * values, str(each)  # a fault in one setting shows at once
    assert off <= allowed + 1e-4 * values
    assert off < 0.3 * values


def settings(count: int, large: bool = False) -> Iterator[Setting]:
    """So many, and then others while there is time."""
    yield from (setting(number, large) for number in range(count))
    yield from (setting(count + number, large) for number in further())


def test_cpu_beside_the_reference() -> None:
    check(settings(45), on_cpu, "cpu")


def test_emulated_cuda_beside_the_cpu(cuda: Any) -> None:
    check(settings(24), lambda images, plan: emulated_cuda.apply(cuda, images.numpy(), plan).astype(np.float64), "cuda")


@pytest.mark.parametrize("device", [CUDA])
def test_cuda_beside_the_cpu(device: str) -> None:
    def run(images: torch.Tensor, plan: Plan) -> np.ndarray:
        return prime_dali.apply(images.to(device), plan.torch(device), out_dtype=torch.float32).double().cpu().numpy()

    check(settings(60), run, "cuda")
    check(settings(12, large=True), run, "cuda")
