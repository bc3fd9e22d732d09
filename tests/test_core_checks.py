"""The core's own check (csrc/core/check.h): whoever calls the private modules gets an error, never a crash or a hang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import make_images

import prime_dali
from prime_dali import _arguments, _arrays, _slots, config, plan, preset

SIZE = (16, 20)
IMAGES = make_images(2, *SIZE).numpy()
INDEX, EPOCH = np.arange(2), np.zeros(2, np.int64)
DRAWN = prime_dali.sample("cifar", INDEX, size=SIZE, view=(0, 1))
OUT = np.empty((4, 3, *SIZE), np.float32)
ROWS = np.empty_like(DRAWN.rows)


def as_if(array: np.ndarray, **changes: Any) -> Any:
    """An object that describes itself as this array does, but for some of it."""
    return SimpleNamespace(__array_interface__={**array.__array_interface__, "strides": array.strides, **changes})


def at(array: np.ndarray, address: int) -> Any:
    return as_if(array, data=(address, False))


def sample_arguments() -> dict[str, Any]:
    return {
        "distributions": preset("cifar").distributions(*SIZE), "views": [0, 1], "seed": 0, "index": INDEX,
        "epoch": EPOCH, "plan": ROWS,
    }  # fmt: skip


def apply_arguments() -> dict[str, Any]:
    return {
        "images": IMAGES, "plan": DRAWN.rows, "plan_shape": DRAWN.shape, "out": OUT, "flip": None, "mean": [],
        "scale": [],
    }  # fmt: skip


def drawn(**changes: float) -> dict[str, Any]:
    return {"distributions": preset("cifar").distributions(*SIZE)._replace(**changes)}


BAD_SAMPLES = [
    *((drawn(chains=n), "distributions: chains: expected 1 to 255") for n in (0, -3, 256, 1e30, float("nan"))),
    (drawn(chains=2.5), "distributions: chains: expected a whole number, got 2.5"),
    (drawn(depth=1e9), "distributions: depth: expected 1 to 255"),
    (drawn(spatial=7), "distributions: spatial: expected 0 to 1"),
    (drawn(blend=3), "distributions: blend: expected 0 to 2"),
    (drawn(alpha=1e300), r"distributions: alpha: expected 0 to 1e\+06"),
    (drawn(spectral_std_max=float("inf")), "distributions: spectral_std_max: expected 0 to"),
    (drawn(color_variance_max=-1), "distributions: color_variance_max: expected 0 to"),
    (drawn(spatial_cut=1), "distributions: spatial_cut: expected 0 or 2 to 4094, got 1"),
    (drawn(spatial_cut_max=2), "distributions: spatial_cut_max: expected 3 to 4094"),
    (drawn(color_cut_max=0), "distributions: color_cut_max: expected 1 to 1024"),
    (drawn(color_band=2000), "distributions: color_band: expected 0 to 1024"),
    (drawn(wave_strength=-1), "distributions: wave_strength: expected 0 to"),
    (drawn(height=0), "height: expected 8 to 4096"),
    ({"distributions": [1.0] * 20}, f"distributions: expected {len(config.Distributions._fields)} numbers, got 20"),
    ({"views": []}, "views: expected 1 to 16, got 0"),
    ({"views": [0] * 17}, "views: expected 1 to 16, got 17"),
    *(({"views": [0, n]}, f"view: expected -1 to 4294967295, got {n}") for n in (-2, 2**32)),
    *(({"index": as_if(INDEX, shape=(n,))}, "epoch: expected 1 or") for n in (-1, 2**62)),
    *(({"index": as_if(INDEX, shape=(n,)), "epoch": EPOCH[:1]}, "images: expected 0 to") for n in (-1, 2**62)),
    ({"epoch": np.zeros(3, np.int64)}, "epoch: expected 1 or 2 numbers, got 3"),
    ({"index": INDEX.astype(np.int32)}, "index: expected i8 of 1 dimensions, got i4 of 1"),
    ({"index": INDEX[::-1]}, "index: expected a contiguous array"),
    ({"index": at(INDEX, 0)}, "index: expected an address"),
    ({"epoch": at(EPOCH, EPOCH.ctypes.data + 1)}, "epoch: expected an address that is a multiple of 8"),
    ({"plan": at(ROWS, 0)}, "plan: expected an address"),
    ({"plan": ROWS[:3]}, "plan: expected 4 rows of .* words, got 3 of"),
    ({"plan": as_if(ROWS, data=(ROWS.ctypes.data, True))}, "plan: expected a writable array"),
]
BAD_APPLIES = [
    *(({"plan_shape": [n, 3, 3, 100, 10, 0]}, "chains: expected 1 to 255") for n in (0, -1, 256, 2**32 + 3)),
    ({"plan_shape": [3, 0, 3, 100, 10, 0]}, "depth: expected 1 to 255, got 0"),
    *(({"plan_shape": [3, 3, n, 100, 10, 0]}, "filter_size: expected 1 to 31") for n in (0, 40000)),
    ({"plan_shape": [3, 3, 4, 100, 10, 0]}, "filter_size: expected an odd number, got 4"),
    ({"plan_shape": [3, 3, 3, 2**31 - 1, 10, 0]}, "max_cut: expected 0 to 4094"),
    ({"plan_shape": [3, 3, 3, 100, -1, 0]}, "max_band: expected 0 to 1024"),
    ({"plan_shape": [3, 3, 3, 100, 10, 2]}, "waves: expected 0 to 1, got 2"),
    ({"plan_shape": [3, 3, 3, 100, 10, 1]}, "plan: expected rows of 45 words, got 44"),
    ({"plan_shape": [3, 3, 3]}, "plan_shape: expected 6 numbers, got 3"),
    ({"plan_shape": [2, 3, 3, 100, 10, 0]}, "plan: expected rows of 31 words, got 44"),
    ({"images": as_if(IMAGES, shape=(2, 3, 4097, 20))}, "height: expected 8 to 4096"),
    ({"images": as_if(IMAGES, shape=(2, 3, 16, 2**32 + 20))}, "width: expected 8 to 4096"),
    ({"images": IMAGES[0]}, r"images: expected \[N, C, H, W\]"),
    ({"images": IMAGES[:, :2]}, "out: expected 4 images of 2 x 16 x 20, got 4 of 3 x 16 x 20"),
    ({"images": IMAGES[:, :0]}, "channels: expected 1 to 16, got 0"),
    ({"images": np.broadcast_to(IMAGES[:, :1], (2, 17, *SIZE))}, "channels: expected 1 to 16, got 17"),
    ({"out": OUT[..., :-1]}, "out: expected 4 images of 3 x 16 x 20, got 4 of 3 x 16 x 19"),
    ({"plan": DRAWN.rows[:3], "out": OUT[:3]}, "plan: expected 1 to 16 rows for each of 2 images, got 3 rows"),
    ({"images": IMAGES[:0]}, "plan: expected 1 to 16 rows for each of 0 images, got 4 rows"),
    ({"plan": DRAWN.rows[[0] * 34], "out": as_if(OUT, shape=(34, *OUT.shape[1:]))},
     "plan: expected 1 to 16 rows for each of 2 images, got 34 rows"),
    ({"plan": DRAWN.rows[:0], "out": OUT[:0]}, "plan: expected 1 to 16 rows for each of 2 images, got 0 rows"),
    ({"images": as_if(IMAGES, typestr="<i4")}, "images: expected uint8, uint16, float16, bfloat16 .* or float32, got i4"),
    ({"out": as_if(OUT, typestr=">f4")}, "out: expected elements in native byte order, got >f4"),
    ({"out": as_if(OUT, typestr="<U16")}, "out: expected elements of 1 to 8 bytes, got U16"),
    ({"images": at(IMAGES, 0)}, "images: expected an address"),
    ({"images": at(IMAGES, IMAGES.ctypes.data + 1)}, "images: expected an address that is a multiple of 4"),
    *(({"images": as_if(IMAGES, typestr="|u1", strides=tuple(np.roll((2**62, 1, 1, 1), axis)))},
       "images: expected strides of an array in 64-bit memory") for axis in range(4)),
    ({"out": at(OUT, 0)}, "out: expected an address"),
    ({"images": as_if(IMAGES, strides=(4, 4, 4, 2))}, "images: expected strides of whole elements, got one of 2 bytes"),
    ({"out": as_if(OUT, strides=(4, 4, 4))}, "out: expected 4 strides, got 3"),
    ({"out": as_if(OUT, data=(OUT.ctypes.data, True))}, "out: expected a writable array"),
    ({"flip": np.zeros(3, bool)}, "flip: expected 2 values, got 3"),
    ({"mean": [0.5], "scale": []}, "mean, std: expected 3 numbers each, one per channel, or none, got 1 and 0"),
    ({"mean": [1e300] * 3, "scale": [1.0] * 3}, "mean, std: expected numbers that are finite in float32"),
    ({"mean": [0.0] * 3, "scale": [float("nan")] * 3}, "mean, std: expected numbers that are finite in float32"),
]  # fmt: skip


BAD_EPOCH = ({"epoch": EPOCH - 1}, "epoch: expected 0 to 4294967295, got -1")  # a GPU waits for no look at it


@pytest.mark.parametrize(("changes", "message"), [*BAD_SAMPLES, BAD_EPOCH])
def test_sample(changes: dict[str, Any], message: str) -> None:
    _arrays.Sample(**sample_arguments()).cpu()
    assert np.array_equal(ROWS, DRAWN.rows)
    with pytest.raises(ValueError, match=message):
        _arrays.Sample(**{**sample_arguments(), **changes}).cpu()


@pytest.mark.parametrize(("changes", "message"), BAD_APPLIES)
def test_apply(changes: dict[str, Any], message: str) -> None:
    _arrays.Apply(**apply_arguments()).cpu(1)
    with pytest.raises(ValueError, match=message):
        _arrays.Apply(**{**apply_arguments(), **changes}).cpu(1)


def test_strides_of_axes_of_one_may_be_anything() -> None:
    """Nobody takes such a step."""
    shape, row = (1, 3, *SIZE), DRAWN.rows[:1]
    whole, out = np.empty(shape, np.float32), np.empty(shape, np.float32)
    _arrays.Apply(**{**apply_arguments(), "images": IMAGES[:1], "plan": row, "out": whole}).cpu(1)
    odd = {
        "images": as_if(IMAGES[:1], strides=(3, *IMAGES.strides[1:])),
        "plan": as_if(row, strides=(99, 4)),
        "out": out,
    }
    _arrays.Apply(**{**apply_arguments(), **odd}).cpu(1)
    assert np.array_equal(out, whole)


def test_memory_of_a_gpu_is_not_read_by_the_cpu() -> None:
    there = SimpleNamespace(__cuda_array_interface__=ROWS.__array_interface__)
    for run in (
        lambda: _arrays.Sample(**{**sample_arguments(), "plan": there}).cpu(),
        lambda: _arrays.Apply(**{**apply_arguments(), "plan": there}).cpu(1),
        lambda: _arrays.validate(there, DRAWN.shape),
    ):
        with pytest.raises(ValueError, match="expected arrays in host memory, got a CUDA array"):
            run()


def test_the_named_numbers_are_those_of_the_core() -> None:
    """In its order: the core gets them as numbers alone."""
    assert list(config.Distributions._fields) == _arrays.distributions_fields
    assert list(config.PlanShape._fields) == _arrays.plan_shape_fields


def test_the_limits_are_those_of_python() -> None:
    limits = {"chains": config.MAX_CHAINS, "depth": config.MAX_DEPTH, "filter_size": config.MAX_FILTER_SIZE,
              "max_cut": config.MAX_SPATIAL_CUT, "max_band": config.MAX_COLOR_CUT, "waves": 1}  # fmt: skip
    for field, (name, most) in zip(DRAWN.shape._fields, limits.items(), strict=True):
        shape = DRAWN.shape._replace(**{field: most + 2})
        with pytest.raises(ValueError, match=f"{name}: expected . to {most}, got {most + 2}"):
            _arrays.validate(DRAWN.rows[:0], shape)
        shape = shape._replace(**{field: most})
        _arrays.validate(np.empty((0, plan.row_words(shape.chains, shape.depth, shape.waves)), np.int32), shape)
    views = _arguments.MAX_VIEWS
    many = prime_dali.sample("cifar", INDEX, size=SIZE, view=range(views))
    assert prime_dali.arrays.apply(IMAGES, many).shape == (2 * views, *IMAGES.shape[1:])
    for value in (config.MAX_AMPLITUDE, np.nextafter(config.MAX_AMPLITUDE, np.inf)):
        if value == config.MAX_AMPLITUDE:
            _arrays.Sample(**{**sample_arguments(), **drawn(alpha=value)}).cpu()
            continue
        with pytest.raises(ValueError, match="distributions: alpha"):
            _arrays.Sample(**{**sample_arguments(), **drawn(alpha=value)}).cpu()
    with pytest.raises(ValueError, match="plan: expected an address"):
        _arrays.validate(at(DRAWN.rows, 0), DRAWN.shape)
    strongest = plan.Plan.build([[[("spectral", _slots.MAX_STRENGTH)]]], size=SIZE)
    strongest.strength[:] *= 1.1
    with pytest.raises(ValueError, match="a strength of 0 to 1e"):
        strongest.validate()
