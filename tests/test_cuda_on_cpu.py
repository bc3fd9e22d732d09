"""The CUDA sources, run on the CPU: compiled as C++ with tests/cuda_on_cpu in the place of CUDA.

No GPU needed, so every change of csrc/cuda is tested everywhere; on a GPU the other tests run the same comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import count_beyond, make_images
from emulated_cuda import apply
from test_primitives import DRIFT, EIGHT_BIT, FLOAT, SHIFTED, SIZES, SLOTS, check_each_slot, rounded_reference

from prime_dali import Plan, preset, reference, sample


@pytest.mark.parametrize("size", [size for size in SIZES if size != (224, 224)])
@pytest.mark.parametrize("slot", SLOTS)
def test_one_primitive(slot: str, size: tuple[int, int], cuda: Any) -> None:
    plan = Plan.build([[[SLOTS[slot]]]], size=size, seed=5)
    images = make_images(1, *size)
    out = apply(cuda, images.numpy(), plan)
    assert (
        count_beyond(out, reference.apply(images, plan), SHIFTED["cuda"] if slot.startswith("spatial") else FLOAT) == 0
    )


def test_each_slot_of_a_chain(cuda: Any) -> None:
    size = (97, 130)
    config = preset("imagenet").replace(primitives=("spectral", "spatial", "color", "noise"), noise_std=0.1, depth=4)
    plan = sample(config, np.arange(2), size=size, seed=1)
    images = make_images(2, *size)
    check_each_slot(lambda prefix: apply(cuda, images.numpy(), prefix).astype(np.float64), images, plan, "cuda")


@pytest.mark.parametrize(("name", "size"), [("imagenet", (61, 90)), ("cifar", (32, 32))])
@pytest.mark.parametrize("mixing", ["paper", "official", "none"])
def test_whole_images(name: str, size: tuple[int, int], mixing: str, cuda: Any) -> None:
    plan = sample(preset(name).replace(mixing=mixing), np.arange(4), size=size, seed=4)
    images = make_images(4, *size)
    expected, out = reference.apply(images, plan), apply(cuda, images.numpy(), plan)
    drifted = rounded_reference(images, plan, *DRIFT["cuda"])
    assert count_beyond(out, expected, EIGHT_BIT) <= count_beyond(drifted, expected, EIGHT_BIT) < 0.3 * out.size


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [(20, 24), (19, 23)])
def test_outputs(size: tuple[int, int], layout: str, cuda: Any) -> None:
    """Bytes in or floats, dtypes and layouts out, flips, normalisation, views: all of the same augmented images."""
    images = make_images(3, *size, torch.uint8).numpy()
    plan = sample("cifar", np.arange(3), size=size, view=("clean", 0, 1))
    base = apply(cuda, images, plan)
    assert np.array_equal(base[:3], images / np.float32(255))
    assert np.abs(apply(cuda, images / np.float32(255), plan) - base).max() < FLOAT  # color tables make the difference
    flip = np.array([True, False, True])
    flipped = apply(cuda, images, plan, flip=flip, layout=layout)
    assert np.array_equal(flipped[np.tile(flip, 3)], base[np.tile(flip, 3)][..., ::-1])
    assert np.array_equal(flipped[~np.tile(flip, 3)], base[~np.tile(flip, 3)])
    assert np.array_equal(apply(cuda, images, plan, np.float16, layout=layout), base.astype(np.float16))
    assert np.array_equal(apply(cuda, images, plan, np.uint8, layout=layout)[:3], images)
    normalised = apply(cuda, images, plan, layout=layout, mean=(0.5, 0.4, 0.3), scale=(4.0, 3.0, 2.0))
    expected = (base - np.reshape((0.5, 0.4, 0.3), (3, 1, 1))) * np.reshape((4, 3, 2), (3, 1, 1))
    assert np.abs(normalised - expected).max() < 1e-5


def test_chunks_do_not_matter(cuda: Any) -> None:
    images = make_images(5, 33, 40, torch.uint8).numpy()
    plan = sample("imagenet", np.arange(5), size=(33, 40), view=(0, 1))
    whole = apply(cuda, images, plan)
    least = apply(cuda, images[:1], plan[:1])
    assert np.array_equal(least, whole[[0, 5]])
    small = 3_000_000  # bytes: two images at a time
    assert np.array_equal(apply(cuda, images, plan, workspace=small), whole)
    with pytest.raises(RuntimeError, match="CUDA error"):
        apply(cuda, images, plan, workspace=1000)


def test_images_that_need_all_that_they_could(cuda: Any) -> None:
    """More than there is room for at once: half of them are done in a second round."""
    images = make_images(5, 20, 24).numpy()
    plan = Plan.build([[[("spatial", 0.2, 3)] * 3] * 3] * 5, size=(20, 24))
    whole = apply(cuda, images, plan)
    assert not np.array_equal(whole, images)
    for room in range(150_000, 600_000, 50_000):  # bytes
        assert np.array_equal(apply(cuda, images, plan, workspace=room), whole)


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (1, 8), (9, 2), (5, 4)])
def test_widths_and_depths(width: int, depth: int, cuda: Any) -> None:
    plan = sample(preset("cifar").replace(width=width, depth=depth), np.arange(2), size=(16, 20))
    images = make_images(2, 16, 20)
    assert count_beyond(apply(cuda, images.numpy(), plan), reference.apply(images, plan), EIGHT_BIT) == 0


@pytest.mark.parametrize("changes", [{"primitives": ()}, {"alpha": 0.0}])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_nothing_to_do_gives_back_the_input_exactly(dtype: type, changes: dict, cuda: Any) -> None:
    levels = make_images(3, 21, 18, torch.uint8).numpy()
    images = levels if dtype == np.uint8 else np.random.default_rng(0).random(levels.shape).astype(dtype)
    plan = sample(preset("imagenet").replace(**changes), np.arange(3), size=(21, 18))
    assert np.array_equal(apply(cuda, images, plan, dtype), images)


@pytest.mark.parametrize("size", [(8, 200), (8, 600), (600, 8), (8, 1100)])
def test_more_modes_than_fit_at_once(size: tuple[int, int], cuda: Any) -> None:
    plan = Plan.build([[[("spatial", 0.003, max(size) - 10)]], [[("spatial", 0.05, 3)]]], size=size)
    images = make_images(2, *size)
    assert count_beyond(apply(cuda, images.numpy(), plan), reference.apply(images, plan), EIGHT_BIT) == 0


@pytest.mark.parametrize("size", [(40, 52), (37, 45)])
@pytest.mark.parametrize("pixels", [0.01, 0.1, 0.3, 0.59, 0.61, 1.5, 3.0, 6.0, 12.0])
def test_shifts_of_any_size(pixels: float, size: tuple[int, int], cuda: Any) -> None:
    """Standard deviations for which shifts are codes of every unit, or floats."""
    cuts = (2, 9, 40)
    slots = [("spatial", pixels / max(size) / np.sqrt(0.3927 * np.log(cut)), cut) for cut in cuts]
    plan = Plan.build([[[slot]] for slot in slots], size=size, seed=2)
    images = make_images(len(cuts), *size)
    assert count_beyond(apply(cuda, images.numpy(), plan), reference.apply(images, plan), SHIFTED["cuda"]) == 0


@pytest.mark.parametrize("filter_size", [1, 5, 7])
def test_filter_sizes(filter_size: int, cuda: Any) -> None:
    plan = Plan.build([[[("spectral", 1.0 / filter_size)]]], size=(20, 33), filter_size=filter_size)
    images = make_images(1, 20, 33)
    assert count_beyond(apply(cuda, images.numpy(), plan), reference.apply(images, plan), FLOAT) == 0


def test_plans_that_no_draw_could_make(cuda: Any) -> None:
    images = make_images(2, 16, 16).numpy()
    plan = Plan.build([[[("color", 0.1, 1, 5)]], [[("color", 0.1, 1, 5)]]], size=(16, 16))
    plan.last[1] = 5000
    out = apply(cuda, images, plan)
    assert np.isnan(out[1]).all()
    assert not np.isnan(out[0]).any()
    images[0, 1, 3, 4] = 2.0
    out = apply(cuda, images, plan)
    assert np.isnan(out[0, 1, 3, 4])
    assert np.isnan(out[0]).sum() == 1


def test_sample_draws_the_plan_of_the_cpu(cuda: Any) -> None:
    index, epoch = np.arange(40), np.zeros((), np.int64)
    host = sample("imagenet", index, size=(50, 71), seed=5, view=("clean", 0, 3))
    rows = np.empty_like(host.rows)
    cuda.sample({
        "law": preset("imagenet").law(50, 71), "views": [-1, 0, 3], "seed": 5, "images": 40, "index": index.ctypes.data,
        "epoch": epoch.ctypes.data, "epoch_step": 0, "plan": rows.ctypes.data, "stream": 0,
    })  # fmt: skip
    assert np.array_equal(rows, host.rows)
