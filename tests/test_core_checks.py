"""The core's own check (csrc/core/check.h): whoever calls the private modules gets an error, never a crash or a hang."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import make_images

import prime_dali
from prime_dali import _arrays, arrays, config, plan, preset

SIZE = (16, 20)
IMAGES = make_images(2, *SIZE).numpy()
INDEX, EPOCH = np.arange(2), np.zeros(2, np.int64)
DRAWN = prime_dali.sample("cifar", INDEX, size=SIZE, view=(0, 1))
OUT = np.empty((4, 3, *SIZE), np.float32)
ROWS = np.empty_like(DRAWN.rows)
FIELDS = ["height", "width", "chains", "depth", "spectral", "spatial", "color", "noise", "identity", "random_depth", "blend",
          "arcsine", "alpha", "spectral_std_max", "spatial_cut", "spatial_cut_max", "color_variance_max", "color_cut",
          "color_cut_max", "color_band", "noise_std"]  # fmt: skip


def sample_arguments() -> dict[str, Any]:
    return {
        "law": preset("cifar").law(*SIZE), "views": [0, 1], "seed": 0, "images": 2, "index": INDEX.ctypes.data,
        "epoch": EPOCH.ctypes.data, "epoch_step": 1, "plan": ROWS.ctypes.data, "stream": 0,
    }  # fmt: skip


def apply_arguments() -> dict[str, Any]:
    arguments = arrays._apply_arguments(IMAGES, "NCHW", OUT, "NCHW", DRAWN, DRAWN.rows, None, [], [])
    return {**arguments, "threads": 1, "workspace": 0, "workspace_bytes": 0, "stream": 0}


def law(**changes: float) -> dict[str, Any]:
    numbers = preset("cifar").law(*SIZE)
    for name, value in changes.items():
        numbers[FIELDS.index(name)] = value
    return {"law": numbers}


BAD_SAMPLES = [
    *((law(chains=n), "distributions: chains: expected 1 to 255") for n in (0, -3, 256, 1e30, float("nan"))),
    (law(chains=2.5), "distributions: chains: expected a whole number, got 2.5"),
    (law(depth=1e9), "distributions: depth: expected 1 to 255"),
    (law(spatial=7), "distributions: spatial: expected 0 to 1"),
    (law(blend=3), "distributions: blend: expected 0 to 2"),
    (law(alpha=1e300), r"distributions: alpha: expected 0 to 1e\+06"),
    (law(spectral_std_max=float("inf")), "distributions: spectral_std_max: expected 0 to"),
    (law(color_variance_max=-1), "distributions: color_variance_max: expected 0 to"),
    (law(spatial_cut=1), "distributions: spatial_cut: expected 0 or 2 to 4094, got 1"),
    (law(spatial_cut_max=2), "distributions: spatial_cut_max: expected 3 to 4094"),
    (law(color_cut_max=0), "distributions: color_cut_max: expected 1 to 1024"),
    (law(color_band=2000), "distributions: color_band: expected 0 to 1024"),
    (law(height=0), "height: expected 8 to 4096"),
    ({"law": [1.0] * 20}, "distributions: expected 21 numbers, got 20"),
    ({"views": []}, "views: expected 1 to 16, got 0"),
    ({"views": [0] * 17}, "views: expected 1 to 16, got 17"),
    ({"views": [-2]}, "view: expected -1 to 4294967295, got -2"),
    ({"images": -1}, "images: expected 0 to"),
    ({"images": 2**62}, "images: expected 0 to"),
    ({"epoch_step": 8}, "epoch_step: expected 0 to 1, got 8"),
    ({"index": 0}, "index: expected an address"),
    ({"epoch": EPOCH.ctypes.data + 1}, "epoch: expected an address that is a multiple of 8"),
    ({"plan": 0}, "plan: expected an address"),
]
BAD_APPLIES = [
    *(({"shape": [n, 3, 3, 100, 10]}, "chains: expected 1 to 255") for n in (0, -1, 256, 2**32 + 3)),
    ({"shape": [3, 0, 3, 100, 10]}, "depth: expected 1 to 255, got 0"),
    *(({"shape": [3, 3, n, 100, 10]}, "filter_size: expected 1 to 31") for n in (0, 40000)),
    ({"shape": [3, 3, 4, 100, 10]}, "filter_size: expected an odd number, got 4"),
    ({"shape": [3, 3, 3, 2**31 - 1, 10]}, "max_cut: expected 0 to 4094"),
    ({"shape": [3, 3, 3, 100, -1]}, "max_band: expected 0 to 1024"),
    ({"shape": [3, 3, 3]}, "plan_shape: expected 5 numbers, got 3"),
    ({"height": 4097}, "height: expected 8 to 4096"),
    ({"width": 2**32 + 20}, "width: expected 8 to 4096"),
    ({"rows": 3}, "plan: expected 1 to 16 rows for each of 2 images, got 3 rows"),
    ({"images": 0}, "plan: expected 1 to 16 rows for each of 0 images, got 4 rows"),
    ({"rows": 34}, "plan: expected 1 to 16 rows for each of 2 images, got 34 rows"),
    ({"rows": 0}, "plan: expected 1 to 16 rows for each of 2 images, got 0 rows"),
    ({"in_type": 9}, "images: expected type 0 to 3, got 9"),
    ({"out_type": -1}, "out: expected type 0 to 3, got -1"),
    ({"in": 0}, "images: expected an address"),
    ({"in": IMAGES.ctypes.data + 1}, "images: expected an address that is a multiple of 4"),
    ({"in_strides": [2**62, 1, 1, 1]}, "images: expected strides of a possible array"),
    ({"out_strides": [1, 1, 1]}, "out_strides: expected four strides, got 3"),
    ({"mean": [0.5], "scale": []}, "mean, std: expected three numbers each, or none, got 1 and 0"),
    ({"mean": [1e300] * 3, "scale": [1.0] * 3}, "mean, std: expected what float32 holds"),
    ({"mean": [0.0] * 3, "scale": [float("nan")] * 3}, "mean, std: expected what float32 holds"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_SAMPLES)
def test_sample(changes: dict[str, Any], message: str) -> None:
    _arrays.sample(sample_arguments())
    assert np.array_equal(ROWS, DRAWN.rows)
    with pytest.raises(ValueError, match=message):
        _arrays.sample({**sample_arguments(), **changes})


@pytest.mark.parametrize(("changes", "message"), BAD_APPLIES)
def test_apply(changes: dict[str, Any], message: str) -> None:
    _arrays.apply(apply_arguments())
    with pytest.raises(ValueError, match=message):
        _arrays.apply({**apply_arguments(), **changes})


def test_the_limits_are_those_of_python() -> None:
    limits = {"chains": config.MAX_CHAINS, "depth": config.MAX_DEPTH, "filter_size": config.MAX_FILTER_SIZE,
              "max_cut": config.MAX_SPATIAL_CUT, "max_band": config.MAX_COLOR_CUT}  # fmt: skip
    for at, (name, most) in enumerate(limits.items()):
        shape = DRAWN.shape
        shape[at] = most + 2
        with pytest.raises(ValueError, match=f"{name}: expected . to {most}, got {most + 2}"):
            _arrays.check_rows({"plan": 0, "rows": 0, "shape": shape})
        shape[at] = most
        _arrays.check_rows({"plan": 0, "rows": 0, "shape": shape})
    for value in (config.MAX_AMPLITUDE, np.nextafter(config.MAX_AMPLITUDE, np.inf)):
        if value == config.MAX_AMPLITUDE:
            _arrays.sample({**sample_arguments(), **law(alpha=value)})
            continue
        with pytest.raises(ValueError, match="distributions: alpha"):
            _arrays.sample({**sample_arguments(), **law(alpha=value)})
    strongest = plan.Plan.build([[[("spectral", plan.MAX_STRENGTH)]]], size=SIZE)
    strongest.strength[:] *= 1.1
    with pytest.raises(ValueError, match="a strength of 0 to 1e"):
        strongest.validate()
