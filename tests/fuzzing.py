"""What the fuzz tests share: how many examples they try, and the calls that they draw.

In the suite a test tries a number of examples that are always the same; ``make fuzz`` continues with others, as long as
``conftest.FUZZ_SECONDS`` says.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from conftest import FUZZ_SECONDS
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import prime_dali
from prime_dali import Plan, PrimeConfig

DTYPES = (np.uint8, np.uint16, np.float16, ml_dtypes.bfloat16, np.float32)
INT64 = st.integers(-(2**63), 2**63 - 1)
HEALTH = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def try_out(check: Callable[..., None], *drawn: st.SearchStrategy, examples: int) -> None:
    """Calls ``check`` with what is ``drawn``: the same ``examples`` in every run, and then others until time is up."""
    phases = (Phase.generate, Phase.shrink)
    shared = {"deadline": None, "database": None, "phases": phases, "suppress_health_check": HEALTH}
    settings(max_examples=examples, derandomize=True, **shared)(given(*drawn)(check))()
    for number in further():
        seed(number)(settings(max_examples=100, **shared)(given(*drawn)(check)))()


def further() -> Iterator[int]:
    """0, 1, 2, ... until the time of ``make fuzz`` is up: none in the suite."""
    end = time.monotonic() + FUZZ_SECONDS
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())


@st.composite
def configs(draw: st.DrawFn) -> PrimeConfig:
    """Any distributions, with few chains and small filters because they take time."""
    primitives = draw(st.sets(st.sampled_from(("spectral", "spatial", "color", "noise"))))
    noise = st.floats(0, 1) if "noise" in primitives else st.none()
    flag = st.sampled_from((None, None, True, False))
    return PrimeConfig(
        primitives=tuple(primitives),
        width=draw(st.integers(1, 4)),
        depth=draw(st.integers(1, 4)),
        mixing=draw(st.sampled_from(("paper", "official", "none"))),
        alpha=draw(st.sampled_from((0.0, 0.3, 1.0, 1.0, 2.5, 100.0))),
        spectral_size=draw(st.sampled_from((1, 3, 3, 5, 9, 31))),
        spectral_std_max=draw(st.floats(0, 8)),
        spatial_cut_max=draw(st.integers(3, 40) | st.sampled_from((500, 4094))),
        spatial_cut=draw(st.none() | st.integers(2, 600)),
        color_variance_max=draw(st.floats(0, 1)),
        color_cut_max=draw(st.integers(1, 1024)),
        color_cut=draw(st.none() | st.integers(1, 1024)),
        color_band=draw(st.none() | st.integers(1, 1024)),
        noise_std=draw(noise),
        wave_strength=draw(st.sampled_from((0.0, 0.0, 10.0))),
        include_identity=draw(flag),
        random_depth=draw(flag),
        spatial_distribution=draw(st.sampled_from((None, "uniform", "arcsine"))),
        blend=draw(st.sampled_from((None, "dirichlet", "beta", "none"))),
        draws=draw(st.sampled_from(("image", "image", "batch"))),
    )


SIZES = st.tuples(st.integers(8, 40), st.integers(8, 40)) | st.sampled_from(((8, 130), (97, 8), (8, 8), (32, 32)))


@st.composite
def images(draw: st.DrawFn, count: int, size: tuple[int, int]) -> np.ndarray:
    """[N, C, H, W] of any dtype and in any memory: planes or pixels, parts of larger images, mirrored, repeated."""
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = [count, draw(st.sampled_from((3, 3, 3, 1, 2, 4, 5, 16))), *size]
    steps = [draw(st.sampled_from((1, 1, 1, 2, 3, -1, -2, 0))) for _ in range(4)]
    order = draw(st.permutations(range(4)))  # of the axes in memory
    room = [1 if step == 0 else side * abs(step) for side, step in zip(shape, steps, strict=True)]
    integers = dtype if dtype in (np.uint8, np.uint16) else np.uint8
    memory = rng.integers(0, np.iinfo(integers).max, [room[axis] for axis in order], integers, endpoint=True)
    if dtype != integers:
        spread = rng.random(memory.shape, np.float32) if draw(st.booleans()) else memory / np.float32(255)
        memory = spread.astype(dtype)
    array = memory.transpose(np.argsort(order))
    array = array[tuple(slice(None, None, step or 1) for step in steps)]
    return np.broadcast_to(array, shape)


@dataclass(frozen=True)
class Call:
    """A valid call: images, what is drawn for them, and how the output shall be."""

    config: PrimeConfig
    images: np.ndarray
    index: np.ndarray
    seed: int
    epoch: Any
    view: Any
    options: dict[str, Any]  # out_dtype, mean, std, flip

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.images.shape[2:]

    def plan(self) -> Plan:
        """As NumPy."""
        names = {"size": self.size, "seed": self.seed, "epoch": self.epoch, "view": self.view}
        names["channels"] = self.images.shape[1]
        return prime_dali.sample(self.config, self.index, **names)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Any valid call."""
    count = draw(st.integers(0, 4) | st.just(2))
    array = draw(images(count, draw(SIZES)))
    view = st.just("clean") | st.integers(0, 3) | st.just(2**32 - 1)
    one = st.integers(0, 2**32 - 1)
    epoch = (
        one
        | one.map(lambda e: np.array(e, np.int64))
        | one.map(lambda e: np.full(count, e, np.int64))
        | one.map(np.uint32)
    )
    std = st.floats(0.01, 10)
    normalized = draw(st.booleans())
    options: dict[str, Any] = {"flip": draw(st.none() | st.lists(st.booleans(), min_size=count, max_size=count).map(lambda f: np.array(f, bool)))}  # fmt: skip
    if normalized:
        channels = array.shape[1]
        options |= {"mean": draw(st.tuples(*[st.floats(-1, 1)] * channels)), "std": draw(st.tuples(*[std] * channels))}
    options["out_dtype"] = draw(st.none() | st.sampled_from(DTYPES[2 * normalized :]))
    if options["out_dtype"] is None and normalized and array.dtype.kind == "u":
        options["out_dtype"] = np.float32
    return Call(
        config=draw(st.sampled_from(("imagenet", "cifar")).map(prime_dali.preset) | configs()),
        images=array,
        index=np.array(draw(st.lists(INT64, min_size=count, max_size=count)), np.int64),
        seed=draw(st.integers(0, 9) | INT64),
        epoch=draw(epoch),
        view=draw(view | st.lists(view, min_size=1, max_size=3).map(tuple)),
        options=options,
    )
