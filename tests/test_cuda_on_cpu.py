"""The CUDA sources, run on the CPU: compiled as C++ with tests/cuda_on_cpu in the place of CUDA.

No GPU needed, so every change of csrc/cuda is tested everywhere; on a GPU the other tests run the same comparisons.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import count_beyond, make_images
from emulated_cuda import apply
from test_core_checks import BAD_APPLIES, BAD_SAMPLES, OUT, apply_arguments, as_if, sample_arguments
from test_primitives import (
    DRIFT,
    EIGHT_BIT,
    FLOAT,
    SHIFTED,
    SIZES,
    SLOTS,
    check_each_slot,
    check_every_order,
    rounded_reference,
)

from prime_dali import Plan, _arguments, preset, reference, sample


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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_order(dtype: torch.dtype, cuda: Any) -> None:
    check_every_order(lambda images, plan: apply(cuda, images.numpy(), plan).astype(np.float64), dtype, "cuda")


@pytest.mark.parametrize(("name", "size"), [("imagenet", (61, 90)), ("cifar", (32, 32))])
@pytest.mark.parametrize("mixing", ["paper", "official", "none"])
def test_whole_images(name: str, size: tuple[int, int], mixing: str, cuda: Any) -> None:
    plan = sample(preset(name).replace(mixing=mixing), np.arange(4), size=size, seed=4)
    images = make_images(4, *size)
    expected, out = reference.apply(images, plan), apply(cuda, images.numpy(), plan)
    drifted = rounded_reference(images, plan, *DRIFT["cuda"])
    assert count_beyond(out, expected, EIGHT_BIT) <= count_beyond(drifted, expected, EIGHT_BIT) < 0.3 * out.size


def test_fields_that_a_batch_shares(cuda: Any) -> None:
    config = preset("cifar").replace(primitives=("spatial",), draws="batch", mixing="none", include_identity=False)
    plan = sample(config, np.arange(3), size=(32, 32), seed=4)
    images = make_images(1, 32, 32).repeat(3, 1, 1, 1)
    out = apply(cuda, images.numpy(), plan)
    assert count_beyond(out, reference.apply(images, plan), SHIFTED["cuda"]) < 0.001 * out.size
    assert np.array_equal(out[1:], out[:2])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [(20, 24), (19, 23)])
def test_outputs(size: tuple[int, int], layout: str, cuda: Any) -> None:
    """Bytes in or floats, dtypes and layouts out, flips, normalization, views: all of the same augmented images."""
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
    normalized = apply(cuda, images, plan, layout=layout, mean=(0.5, 0.4, 0.3), scale=(4.0, 3.0, 2.0))
    expected = (base - np.reshape((0.5, 0.4, 0.3), (3, 1, 1))) * np.reshape((4, 3, 2), (3, 1, 1))
    assert np.abs(normalized - expected).max() < 1e-5


def test_chunks_do_not_matter(cuda: Any) -> None:
    images = make_images(5, 33, 40, torch.uint8).numpy()
    plan = sample("imagenet", np.arange(5), size=(33, 40), view=(0, 1))
    whole = apply(cuda, images, plan)
    least = apply(cuda, images[:1], plan[:1])
    assert np.array_equal(least, whole[[0, 5]])
    small = 0.45  # of what it wants: two images at a time, for in two rounds it would still want half
    assert np.array_equal(apply(cuda, images, plan, workspace=small), whole)
    with pytest.raises(RuntimeError, match="CUDA error"):
        apply(cuda, images, plan, workspace=1000)
    flip = np.array([True, False, False, True, True])
    apart = np.repeat(images, 2, 0)[::2]  # images of another distance than the outputs
    expected = np.where(np.tile(flip, 2)[:, None, None, None], whole[..., ::-1], whole)
    assert np.array_equal(apply(cuda, apart, plan, workspace=small, flip=flip), expected)


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
    """Standard deviations for which shifts are codes of every step, or floats."""
    cuts = (2, 9, 40)
    slots = [("spatial", pixels / max(size) / np.sqrt(0.3927 * np.log(cut)), cut) for cut in cuts]
    plan = Plan.build([[[slot]] for slot in slots], size=size, seed=2)
    images = make_images(len(cuts), *size)
    assert count_beyond(apply(cuda, images.numpy(), plan), reference.apply(images, plan), SHIFTED["cuda"]) == 0


@pytest.mark.parametrize("size", [(224, 224), (61, 90)])
@pytest.mark.parametrize("cut", [20, 84, 500])
def test_half_precision_is_ample_for_small_shifts(cut: int, size: tuple[int, int], cuda: Any) -> None:
    """What csrc/cuda/displacement rounds, rounded here: coefficients, sines and half products to half precision, shifts to
    16-bit codes; of the largest shifts for which the kernels do that."""
    strength = 0.599 / max(size) / np.sqrt(0.3927 * np.log(cut))
    coarse, step = cuda.precision(*size, strength, cut)
    assert coarse
    assert not cuda.precision(*size, 1.01 * strength, cut)[0]
    [slot] = Plan.build([[[("spatial", strength, cut)]]], size=size, seed=1).materialize()

    def half(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float16).astype(np.float64)

    rows, columns = slot.coefficients.shape[1:]
    sine_y, sine_x = (
        half(np.sin(np.pi * np.outer(np.arange(side), np.arange(1, modes + 1)) / (side - 1)))
        for side, modes in zip(size, (rows, columns), strict=True)
    )
    pixels = strength * np.array(size)[:, None, None]
    codes = np.round(pixels * (sine_y @ half(half(slot.coefficients) @ sine_x.T)) / step)
    assert np.abs(codes).max() < 32768 / 2
    error = codes * step - reference.displacement(slot, *size)
    assert 1e-6 < np.sqrt(np.mean(error**2)) < 3e-4
    assert np.abs(error).max() < 1.5e-3


@pytest.mark.parametrize("cut", [2, 3, 5, 9, 20, 60, 150])
def test_codes_of_shifts_are_wide_enough(cut: int, cuda: Any) -> None:
    """They reach 8.4 standard deviations of the pixel that moves most, and not much further than they must."""
    modes = np.arange(1, cut + 1)
    square = modes[:, None] ** 2 + modes**2
    sines = np.sin(np.pi * np.outer(np.linspace(0, 1, 181), modes)) ** 2
    deviation = np.sqrt((sines @ np.where(square <= cut**2 + cut, 1 / square, 0) @ sines.T).max())
    steps = set()
    for pixels in np.geomspace(0.01, 30, 60):
        _, step = cuda.precision(100, 50, pixels / 100, cut)
        steps.add(step)
        if step == 1:  # no codes, but floats
            assert 8.4 * pixels * deviation > 32768 / 512 / 2
            continue
        assert np.log2(step) % 1 == 0
        assert 8.4 * pixels * deviation <= 32768 * step
        assert 32768 * step <= max(1.0, 4 * 8.4 * pixels * deviation)
    assert {2.0**-15, 2.0**-9, 1.0} <= steps


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_bands_about_as_wide_as_polynomials_reach(dtype: type, cuda: Any) -> None:
    """The parameters of slots lie side by side, so that those of one that takes more than its place show in another."""
    for widest in (20, 21, 22, 24, 25):
        slots = [[("color", 0.1, 3, 2 + widest), ("color", 0.05, 9, 7 + widest), ("color", 0.05, 1, 1)]] * 2
        plan = Plan.build([slots] * 2, size=(16, 20), seed=7)
        levels = make_images(2, 16, 20, torch.uint8).numpy()
        images = levels if dtype == np.uint8 else levels / np.float32(255)
        assert count_beyond(apply(cuda, images, plan), reference.apply(images, plan), EIGHT_BIT / 4) == 0, widest


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
    assert (apply(cuda, images, plan, np.uint8)[1] == 0).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("room", [1.0, 0.8, 0.4])  # all at once; in two rounds; in chunks of that
def test_pixels_out_of_range_are_told_of_by_the_next_call(room: float, dtype: type, cuda: Any) -> None:
    edge = np.float32(_arguments.PIXEL_TOLERANCE)
    images = make_images(5, 20, 23).numpy().astype(dtype)
    plan = sample("cifar", np.arange(5), size=(20, 23), view=("clean", 0))
    images[0, 0, 0, :2] = -edge, 1 + 2.0**-10  # rounding
    clean = apply(cuda, images, plan, workspace=room)
    assert np.array_equal(clean, apply(cuda, images.clip(0, 1), plan))
    bad = images.copy()
    bad[1, 2, 18, 22], bad[1, 2, 19, 0] = 1.25, 1.5  # the width is odd: the pixel right of the first is the second
    bad[4, 0, 0, 0], bad[4, 1, 3, 4] = np.nan, -0.25
    wrong = ~((bad >= -edge) & (bad <= 1 + edge))
    assert wrong.sum() == 4
    for layout in ("NCHW", "NHWC"):
        out = apply(cuda, bad, plan, workspace=room, layout=layout)
        assert np.array_equal(np.isnan(out[:5]), wrong)
        with pytest.raises(
            ValueError, match=r"^array: .* got 4 outside, -0.25 to 1.5 and NaN, in an earlier call on cuda:0"
        ):
            apply(cuda, images, plan, workspace=room)
        assert np.array_equal(apply(cuda, images, plan, workspace=room), clean)
    assert not apply(cuda, bad, plan, np.uint8, workspace=room)[:5][wrong].any()
    with pytest.raises(ValueError, match=r"got 4 outside, -0.25 to 1.5 and NaN, in an earlier call"):
        cuda.check_pixels(-1)
    cuda.check_pixels(-1)
    apply(cuda, make_images(5, 20, 23, torch.uint8).numpy(), plan)
    bad[4, 0, 0, 0], bad[4, 1, 3, 4] = 2, 1.25
    apply(cuda, bad, plan, workspace=room)
    with pytest.raises(ValueError, match=r"got 4 outside, 1.25 to 2, in an earlier call"):  # of these pixels alone
        cuda.check_pixels(-1)


def test_devices_are_told_of_apart(cuda: Any) -> None:
    device = ctypes.c_int.in_dll(ctypes.CDLL(cuda.__file__), "emulated_device")
    images, plan = make_images(1, 8, 8).numpy(), sample("cifar", np.arange(1), size=(8, 8))
    try:
        device.value = 1
        apply(cuda, images + 2, plan)
        device.value = 0
        apply(cuda, images, plan)
        cuda.check_pixels(0)
        with pytest.raises(ValueError, match=r"got 192 outside, 2 to 3, in an earlier call on cuda:1"):
            cuda.check_pixels(-1)
        assert device.value == 0
    finally:
        device.value = 0


def test_the_result_of_every_call_of_cuda_is_looked_at(cuda: Any) -> None:
    """Each of them fails once, and is told of; when there are no more, the images are right."""
    library = ctypes.CDLL(cuda.__file__)
    device = ctypes.c_int.in_dll(library, "emulated_device")
    left = ctypes.c_int.in_dll(library, "emulated_calls_until_failure")
    images = make_images(3, 8, 8).numpy()
    plan = Plan.build([[[("spatial", 0.2, 3)] * 2]] * 3, size=(8, 8))
    index = np.arange(3)
    rows = np.empty_like(sample("imagenet", index, size=(8, 8)).rows)
    whole = apply(cuda, images, plan)

    def failures(call: Callable[[], object]) -> int:
        for number in itertools.count(1):
            left.value = number
            failed = ""
            try:
                call()
            except RuntimeError as error:
                failed = str(error)
            reached, left.value = left.value == 0, 0
            assert failed == ("prime_dali: CUDA error: as the test wants" if reached else ""), number
            if not reached:
                return number - 1
        raise AssertionError

    try:
        device.value = 7  # a new one: with the calls that its first one needs
        assert failures(lambda: apply(cuda, images, plan)) >= 9
        assert failures(lambda: apply(cuda, images, plan, workspace=0.5)) > 20  # two rounds, several chunks
        assert failures(lambda: draw(cuda, rows, index, (8, 8), [0])) > 0
        assert failures(lambda: cuda.check_pixels(7)) == 4  # this device, that one, a wait, and back
        assert np.array_equal(apply(cuda, images, plan), whole)
    finally:
        device.value = 0


def draw(cuda: Any, rows: np.ndarray, index: np.ndarray, size: tuple[int, int], views: list[int]) -> None:
    distributions = preset("imagenet").distributions(*size)
    cuda.Sample(distributions, views, 5, index, np.zeros(1, np.int64), rows).cuda(0)


def test_the_core_checks_what_it_is_given(cuda: Any) -> None:
    for changes, message in BAD_SAMPLES:
        with pytest.raises(ValueError, match=message):
            cuda.Sample(**{**sample_arguments(), **changes}).cuda(0)
    for changes, message in BAD_APPLIES:
        for run in (cuda.Apply.workspace_bytes, lambda call: call.cuda(np.empty(0, np.uint8), 0)):
            with pytest.raises(ValueError, match=message):
                run(cuda.Apply(**{**apply_arguments(), **changes}))
    with pytest.raises(ValueError, match="workspace: expected an address"):
        cuda.Apply(**apply_arguments()).cuda(
            as_if(OUT, typestr="|u1", shape=(2**30,), strides=None, data=(0, False)), 0
        )


def test_sample_draws_the_plan_of_the_cpu(cuda: Any) -> None:
    index = np.arange(40)
    host = sample("imagenet", index, size=(50, 71), seed=5, view=("clean", 0, 3))
    rows = np.empty_like(host.rows)
    draw(cuda, rows, index, (50, 71), [-1, 0, 3])
    assert np.array_equal(rows, host.rows)
