"""Images of 1 to 16 channels, uint16, and clips: every back end against the reference, and what they share with RGB."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import emulated_cuda
import numpy as np
import pytest
import torch
from conftest import count_beyond, make_images
from torch._subclasses import FakeTensorMode

import prime_dali
from prime_dali import PRIME, Plan, arrays, preset, reference
from prime_dali.training.augmix import AugMix

SIZE = (11, 18)  # odd rows, and a width that is no multiple of four
CHANNELS = [1, 2, 4, 5, 16]
# Also color maps too wide for the polynomials of the CUDA kernels, and noise, which is drawn for each channel.
CONFIG = preset("cifar").replace(
    primitives=("spectral", "spatial", "color", "noise"), noise_std=0.05, color_cut_max=30, depth=3
)
TOLERANCE = {"cpu": 1e-4, "cuda": 1 / 255}  # of whole chains, as in test_primitives.py
DTYPES = [np.uint8, np.uint16, np.float32]

Run = Callable[..., np.ndarray]  # images, plan, out_dtype=np.float32, layout="NCHW", mean=(), std=()


@pytest.fixture(params=["cpu", "cuda"])
def kernels(request: pytest.FixtureRequest) -> tuple[str, Run]:
    """The CPU kernels, and the CUDA sources compiled for the CPU."""
    if request.param == "cpu":

        def run(images: np.ndarray, plan: Plan, out_dtype: type = np.float32, layout: str = "NCHW", **more: Any) -> Any:
            given = images.transpose(["NCHW".index(axis) for axis in layout])
            out = arrays.apply(given, plan, layout=layout, out_dtype=out_dtype, **more)
            return out.transpose([layout.index(axis) for axis in "NCHW"])

        return "cpu", run
    cuda = request.getfixturevalue("cuda")

    def emulated(images: np.ndarray, plan: Plan, out_dtype: type = np.float32, **more: Any) -> np.ndarray:
        if "std" in more:
            more["scale"] = tuple(1 / s for s in more.pop("std"))
        return emulated_cuda.apply(cuda, images, plan, out_dtype, **more)

    return "cuda", emulated


def images_of(channels: int, dtype: Any = np.uint8, *, count: int = 3, size: tuple[int, int] = SIZE) -> np.ndarray:
    """[count, channels, H, W]: waves and a flat part, each channel with its own."""
    y, x = np.mgrid[: size[0], : size[1]]
    waves = [0.5 + 0.5 * np.sin(0.1 * n + x * (0.1 + 0.01 * n) + 0.2 * y) for n in range(count * channels)]
    images = np.stack(waves).reshape(count, channels, *size)
    images[:, :, size[0] // 2 :, : size[1] // 3] = 0.25
    levels = {np.uint8: 255, np.uint16: 65535}.get(dtype)
    return images.astype(dtype) if levels is None else np.round(images * levels).astype(dtype)


def plan_of(channels: int, count: int = 3, **more: Any) -> Plan:
    return prime_dali.sample(CONFIG, np.arange(count), size=SIZE, seed=3, channels=channels, **more)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", CHANNELS)
def test_every_number_of_channels(channels: int, dtype: Any, kernels: tuple[str, Run]) -> None:
    name, run = kernels
    images, plan = images_of(channels, dtype, count=2), plan_of(channels, 2, view=("clean", 0))
    expected = reference.apply(images, plan)
    assert np.abs(expected[2:] - expected[:2]).max((1, 2, 3)).min() > 0.05  # something happened to each
    out = run(images, plan)
    assert count_beyond(out, expected, TOLERANCE[name]) == 0
    assert np.array_equal(run(images, plan, layout="NHWC"), out)
    for made, largest in ((np.uint8, 255), (np.uint16, 65535)):
        levels = run(images, plan, made, layout="NHWC")
        assert np.array_equal(levels, np.round(out * np.float64(largest)))
        assert dtype != made or np.array_equal(levels[:2], images)  # the clean view is exact
    mean, std = 0.1 + 0.05 * np.arange(channels), 0.2 + 0.05 * np.arange(channels)
    normalized = run(images, plan, mean=tuple(mean), std=tuple(std))
    assert np.abs(normalized - (out - mean[:, None, None]) / std[:, None, None]).max() < 1e-5


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_first_channels_are_those_of_fewer(dtype: Any, kernels: tuple[str, Run]) -> None:
    """The same draws, and the same bits: also where CUDA kernels of any number of channels meet those of three."""
    _, run = kernels
    images, whole = images_of(16, dtype), plan_of(16)
    everything = run(images, whole)
    slots = whole.materialize()
    for channels in (1, 2, 3, 4, 7):
        plan = plan_of(channels)
        assert np.array_equal(plan.rows, whole.rows)
        assert np.array_equal(run(images[:, :channels], plan), everything[:, :channels])
        for few, many in zip(plan.materialize(), slots, strict=True):
            of_channels = many.primitive in ("color", "noise")
            assert np.array_equal(few.coefficients, many.coefficients[:channels] if of_channels else many.coefficients)
    for slot in slots:  # no two channels share a color map or noise
        if slot.primitive in ("color", "noise"):
            assert len(np.unique(slot.coefficients.reshape(16, -1)[:, 0])) == 16


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6, 8])
def test_bytes_that_are_read_by_words(channels: int, cuda: Any) -> None:
    """From planes and from pixels; the same bits as bytes one by one, which those of an odd address are."""
    images, flip = images_of(channels, size=(9, 20)), np.array([True, False, True])
    plan = prime_dali.sample(CONFIG, np.arange(3), size=(9, 20), seed=3, channels=channels, view=("clean", 0))
    odd = np.empty(images.size + 1, np.uint8)[1:].reshape(images.shape)
    odd[:] = images
    expected = emulated_cuda.apply(cuda, odd, plan, flip=flip)
    assert np.array_equal(
        expected[:3], np.where(flip[:, None, None, None], images[..., ::-1], images) / np.float32(255)
    )
    for layout in ("NCHW", "NHWC"):
        assert np.array_equal(emulated_cuda.apply(cuda, images, plan, flip=flip, layout=layout), expected)


def test_every_uint16_comes_back(kernels: tuple[str, Run]) -> None:
    _, run = kernels
    levels = np.arange(65536, dtype=np.uint16).reshape(1, 1, 256, 256)
    plan = prime_dali.sample("cifar", np.arange(1), size=256, view="clean", channels=1)
    assert np.array_equal(run(levels, plan, np.uint16), levels)
    assert np.array_equal(run(levels, plan), levels / np.float32(65535))
    assert np.array_equal(run(levels, plan, np.uint8), np.round(levels / 65535 * 255))


@pytest.mark.parametrize("channels", [1, 5])
def test_bad_pixels_are_counted_once(channels: int, cuda: Any) -> None:
    images = images_of(channels, np.float32)
    images[1, channels - 1, 4, 5], images[2, 0, 0, 0] = 1.5, -2
    with pytest.raises(ValueError, match=r"got 2 outside, -2 to 1\.5; scale"):
        arrays.apply(images, plan_of(channels))
    out = emulated_cuda.apply(cuda, images, plan_of(channels))
    assert np.array_equal(np.isnan(out), ~((images >= 0) & (images <= 1)))
    with pytest.raises(ValueError, match=r"got 2 outside, -2 to 1\.5, in an earlier call"):
        cuda.check_pixels(-1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.bfloat16])
def test_torch(dtype: torch.dtype, device: str) -> None:
    for channels in (1, 4):
        levels = torch.from_numpy(images_of(channels, np.uint16 if dtype == torch.uint16 else np.uint8))
        images = (levels / 255).to(dtype) if dtype == torch.bfloat16 else levels
        plan = plan_of(channels, view=(0, 1))
        expected = reference.apply(images, plan)
        for layout in (torch.contiguous_format, torch.channels_last):
            given = images.to(memory_format=layout).to(device)
            out = prime_dali.apply(given, plan.torch(device))
            assert out.dtype == dtype
            assert out.is_contiguous(memory_format=layout)
            floats = prime_dali.apply(given, plan.torch(device), out_dtype=torch.float32)
            assert count_beyond(floats, expected, TOLERANCE[device]) == 0
    module = PRIME(CONFIG, seed=3, mean=[0.5] * 4, std=[0.25] * 4, out_dtype=torch.float32)
    out = module(images.to(device), torch.arange(3, device=device))
    assert count_beyond(out, (expected[:3] - 0.5) * 4, 4 * TOLERANCE[device]) == 0


def test_shapes_without_pixels() -> None:
    """What ``torch.compile`` and ``torch.export`` are told, who read no pixel."""
    module = PRIME(CONFIG, seed=3, views=3, mean=[0.5] * 5, std=[0.25] * 5)
    with FakeTensorMode() as mode:
        for shape in ((3, 5, *SIZE), (3, 4, 5, *SIZE)):
            images = mode.from_tensor(torch.zeros(shape, dtype=torch.uint16))
            out = module(images, mode.from_tensor(torch.arange(3)), mode.from_tensor(torch.tensor(0)))
            assert (out.shape, out.dtype) == ((9, *shape[1:]), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_clips(dtype: Any, device: str) -> None:
    """A clip's frames are augmented by its one row of the plan: the filter, displacement, color map and noise of all."""
    clips = images_of(2, dtype, count=12).reshape(3, 4, 2, *SIZE)
    plan, flip = plan_of(2, view=("clean", 0)), np.array([True, False, True])
    out = arrays.apply(clips, plan, layout="NTCHW", flip=flip)
    assert out.shape == (6, 4, 2, *SIZE)
    for frame in range(4):
        assert np.array_equal(out[:, frame], arrays.apply(clips[:, frame], plan, flip=flip))
    last = arrays.apply(clips.transpose(0, 1, 3, 4, 2), plan, layout="NTHWC", out_layout="NTCHW", flip=flip)
    assert np.array_equal(last, out)
    floats = arrays.apply(clips, plan, layout="NTCHW", out_dtype=np.float32)
    assert count_beyond(floats, reference.apply(clips, plan), TOLERANCE["cpu"]) == 0

    given, flips = torch.from_numpy(clips).to(device), torch.from_numpy(flip).to(device)
    for images in (given, given.movedim(2, -1).contiguous().movedim(-1, 2), given.transpose(0, 1).contiguous().transpose(0, 1)):  # fmt: skip
        made = prime_dali.apply(images, plan.torch(device), flip=flips)
        assert device == "cuda" or np.array_equal(made.cpu().numpy(), out)
        assert torch.equal(made[:, 1], prime_dali.apply(images[:, 1], plan.torch(device), flip=flips))
    module = PRIME(CONFIG, seed=3, views=3)
    three = module(given)
    assert three.shape == (9, 4, 2, *SIZE)
    assert int(module.counter) == 3  # a number a clip
    assert torch.equal(three[3:6, 2], module(given[:, 2], torch.arange(3, device=device))[3:6])
    assert module(given[:, :0]).shape == (9, 0, 2, *SIZE)


RGB = images_of(3)
FIVE = torch.from_numpy(images_of(5))
NUMBERS = {"mean": [0.5] * 4, "std": [0.5] * 4}
BAD: dict[str, tuple[Callable[[], Any], type, str]] = {
    "plan": (lambda: prime_dali.apply(FIVE, plan_of(4).torch()), ValueError, "plan: drawn for images of 4 channels, got 5; sample it with channels=5"),
    "array plan": (lambda: arrays.apply(images_of(1), plan_of(3)), ValueError, "plan: drawn for images of 3 channels, got 1; sample it with channels=1"),
    "reference plan": (lambda: reference.apply(FIVE, plan_of(4)), ValueError, "images: expected shape [3, 4, 11, 18] for this plan, got [3, 5, 11, 18]"),
    "mean": (lambda: prime_dali.apply(FIVE, plan_of(5).torch(), **NUMBERS), ValueError, "mean: expected 5 finite numbers, one per channel, got [0.5, 0.5, 0.5, 0.5]"),
    "array mean": (lambda: arrays.apply(RGB, plan_of(3), **NUMBERS), ValueError, "mean: expected three finite numbers, one per channel, got"),
    "module mean": (lambda: PRIME(**NUMBERS)(FIVE), ValueError, "mean: expected 5 finite numbers, one per channel, got (0.5, 0.5, 0.5, 0.5)"),
    "module std": (lambda: PRIME(mean=[0.5] * 4, std=[0.5] * 3), ValueError, "mean, std: expected as many numbers each, got 4 and 3"),
    "module numbers": (lambda: PRIME(mean=[0.5] * 17, std=[0.5] * 17), ValueError, "mean: expected 1 to 16 finite numbers, one per channel"),
    "no channel": (lambda: plan_of(0), ValueError, "channels: expected 1 to 16, got 0"),
    "17 channels": (lambda: Plan.build([[[]]], size=SIZE, channels=17), ValueError, "channels: expected 1 to 16, got 17"),
    "array channels": (lambda: arrays.apply(np.zeros((3, 17, *SIZE), np.uint8), plan_of(3)), ValueError, "array: expected [N, C, H, W] of 1 to 16 channels for this layout, got [3, 17, 11, 18]"),
    "layout of clips": (lambda: arrays.apply(RGB[None], plan_of(3)), ValueError, "array: expected [N, C, H, W] of 1 to 16 channels for this layout, got [1, 3, 3, 11, 18]"),
    "out_layout": (lambda: arrays.apply(RGB, plan_of(3), out_layout="NTCHW"), ValueError, "out_layout: expected one of 'NCHW', 'NHWC', got 'NTCHW'"),
    "list of bit depths": (lambda: arrays.apply([RGB[0], images_of(3, np.uint16)[0]], plan_of(3)), TypeError, "array: expected a NumPy or CuPy array"),
    "normalized uint16": (lambda: arrays.apply(RGB, plan_of(3), mean=[0] * 3, std=[1] * 3, out_dtype=np.uint16), ValueError, "out_dtype: expected a floating dtype for normalized images, got uint16"),
    "clips": (lambda: prime_dali.apply(FIVE[None], plan_of(5).torch()), ValueError, "plan: drawn for 3 images, got 1"),
    "clips and flip": (lambda: prime_dali.apply(FIVE[:, None], plan_of(5).torch(), flip=torch.zeros(4, dtype=torch.bool)), TypeError, "flip: expected bool [3], got torch.bool [4]"),
    "AugMix channels": (lambda: AugMix()(FIVE, torch.arange(3)), ValueError, "images: expected [N, 3, H, W], got [3, 5, 11, 18]"),
    "AugMix uint16": (lambda: AugMix()(torch.from_numpy(images_of(3, np.uint16)), torch.arange(3)), TypeError, "images: expected uint8 or a floating dtype (AugMix has 256 levels), got torch.uint16"),
    "AugMix output": (lambda: AugMix(out_dtype=torch.uint16)(torch.from_numpy(RGB), torch.arange(3)), TypeError, "out_dtype: expected uint8 or a floating dtype (AugMix has 256 levels), got torch.uint16"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    call, exception, message = BAD[case]
    with pytest.raises(exception, match=re.escape(message)) as caught:
        call()
    assert type(caught.value) is exception


def test_plans_for_other_channels_differ() -> None:
    assert plan_of(3) != plan_of(4)
    assert plan_of(4) == plan_of(4).torch()
    assert plan_of(4)[1:].channels == plan_of(4).numpy().of_frames(2).channels == 4


def test_the_memory_format_is_that_of_the_images() -> None:
    """Of a part of an image too, whose memory has gaps; unless another is asked for."""
    whole = make_images(2, 16, 40)
    plan = prime_dali.sample("cifar", torch.arange(2), size=(16, 20))
    last = torch.channels_last
    for images in (whole[..., :20].contiguous(), whole[..., ::2], whole[..., :20].contiguous(memory_format=last)):
        is_last = images.stride(1) == 1
        for wanted in (None, True, False):
            out = prime_dali.apply(images, plan, channels_last=wanted)
            assert out.is_contiguous(memory_format=last) == (is_last if wanted is None else wanted)
            assert out.is_contiguous() != out.is_contiguous(memory_format=last)
