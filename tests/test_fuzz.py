"""Drawn calls: all interfaces give the same, what is wrong is named, and no plan and no argument crashes a process."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

pytest.importorskip("hypothesis", reason="Hypothesis is not installed")

import emulated_cuda
from fuzzing import INT64, Call, calls, configs, try_out
from hypothesis import strategies as st

import prime_dali
from prime_dali import PRIME, Plan, PrimeConfig, arrays

TORCH = {
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.uint16): torch.uint16,
    np.dtype(np.float16): torch.float16,
    np.dtype(ml_dtypes.bfloat16): torch.bfloat16,
    np.dtype(np.float32): torch.float32,
}


LARGEST = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}


def tensor(array: np.ndarray) -> torch.Tensor:
    """The same memory where torch can say so; torch knows no strides below 0."""
    array = array if min(array.strides, default=0) >= 0 else array.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is read-only
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def numpy(images: torch.Tensor) -> np.ndarray:
    if images.dtype == torch.bfloat16:
        return images.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return images.numpy()


def formatted(images: np.ndarray, batch: int, options: dict[str, Any], dtype: Any) -> np.ndarray:
    """float32 images as a call with these options writes them, bit-identical."""
    if options["flip"] is not None and batch:
        flip = np.tile(options["flip"], len(images) // batch)
        images = np.where(flip[:, None, None, None], images[..., ::-1], images)
    if "mean" in options:
        mean, std = (np.reshape(np.float32(options[name]), (-1, 1, 1)) for name in ("mean", "std"))
        images = (images - mean) * (1 / std.astype(np.float64)).astype(np.float32)
    if dtype in LARGEST:
        return np.rint(LARGEST[dtype] * images.astype(np.float64).clip(0, 1)).astype(dtype)
    return images.astype(dtype)


def check_interfaces(call: Call) -> None:
    plan, batch, options = call.plan(), len(call.images), call.options
    plain = arrays.apply(np.ascontiguousarray(call.images), plan, out_dtype=np.float32, threads=1)
    assert plain.shape == (plan.views * batch, *call.images.shape[1:])
    assert ((plain >= -1e-5) & (plain <= 1 + 1e-5)).all()
    clean = call.images.astype(np.float32) / np.float32(LARGEST.get(call.images.dtype, 1))
    for i, view in enumerate(call.view if isinstance(call.view, tuple) else (call.view,)):
        if view == "clean" or call.config.alpha == 0 or not (call.config.primitives or call.config.wave_strength):
            assert np.array_equal(plain[i * batch : (i + 1) * batch], clean)
    dtype = call.images.dtype if options["out_dtype"] is None else np.dtype(options["out_dtype"])
    expected = formatted(plain, batch, options, dtype)

    # Arrays, in both layouts and any memory.
    out = arrays.apply(call.images, plan, out_layout="NHWC", **options)
    assert out.dtype == dtype
    assert np.array_equal(out.transpose(0, 3, 1, 2), expected)
    pixels = call.images.transpose(0, 2, 3, 1)
    assert np.array_equal(arrays.apply(pixels, plan, layout="NHWC", out_layout="NCHW", threads=2, **options), expected)

    # torch: the same draws, and the same images.
    flip = None if options["flip"] is None else torch.from_numpy(options["flip"])
    wanted = {**options, "out_dtype": TORCH[dtype], "flip": flip}
    index = torch.from_numpy(call.index)
    epoch = torch.from_numpy(call.epoch) if isinstance(call.epoch, np.ndarray) else call.epoch
    drawn = prime_dali.sample(
        call.config, index, size=call.size, seed=call.seed, epoch=epoch, view=call.view, channels=plan.channels
    )
    assert np.array_equal(drawn.rows.numpy(), plan.rows)
    images = tensor(call.images)
    assert np.array_equal(numpy(prime_dali.apply(images, drawn, **wanted)), expected)

    # The module.
    if call.view in (0, ("clean", 0, 1)):
        names = {name: wanted.get(name) for name in ("out_dtype", "mean", "std")}
        module = PRIME(call.config, seed=call.seed, views=plan.views, **names)
        assert np.array_equal(numpy(module(images, index, epoch, flip=flip)), expected)

    # An image by itself.
    if batch:
        last = slice(batch - 1, batch)
        alone = arrays.apply(call.images[last], plan[last], **options, threads=1) if flip is None else None
        assert alone is None or np.array_equal(alone, expected[batch - 1 :: batch])


def test_interfaces_agree() -> None:
    try_out(check_interfaces, calls(), examples=60)


# ------------------------------------------------------------------------------------------------- wrong arguments
SIZE, BATCH = (9, 12), 2
WORDS = st.text(max_size=6)
OBJECTS = st.builds(object) | st.just({}) | st.just(np.zeros(2)) | st.binary(max_size=3) | st.complex_numbers()
NO_INT = WORDS | st.floats() | st.lists(st.integers(), max_size=3) | OBJECTS | st.booleans()
NO_NUMBER = WORDS | st.lists(st.floats(), max_size=3) | OBJECTS | st.booleans()
NO_SEQUENCE = st.none() | WORDS | st.integers() | st.floats() | st.builds(object)
NO_NAME = NO_NUMBER | st.floats() | st.integers()
NO_FLAG = WORDS | st.integers() | st.floats() | OBJECTS


def not_in(low: int, high: int) -> st.SearchStrategy:
    """What is no int from ``low`` to ``high``."""
    return NO_INT | st.integers(max_value=low - 1) | st.integers(min_value=high + 1)


NO_AMPLITUDE = NO_NUMBER | st.floats(max_value=-1e-300) | st.sampled_from((np.nan, np.inf, 1e39, 1e300))
NO_TRIPLE = (
    st.integers() | st.floats() | st.builds(object) | st.lists(st.floats(0.1, 1), max_size=2)
    | st.lists(st.floats(0.1, 1), min_size=4, max_size=5) | st.just((0.1, np.nan, 0.1)) | st.just((0.1, "a", 0.1))
)  # fmt: skip
NO_SIZE = (
    st.none() | WORDS | st.floats() | OBJECTS | st.integers(max_value=7) | st.integers(min_value=4097)
    | st.tuples(st.integers(8, 90)) | st.tuples(st.integers(8, 90), not_in(8, 4096)) | st.tuples(*[st.integers(8, 90)] * 3)
)  # fmt: skip
NO_DTYPE = st.sampled_from((np.float64, np.int8, np.int64, np.complex64, object, bool, torch.float64, torch.int32))
NO_LAYOUT = WORDS | st.none() | st.integers() | st.just("NHCW")


def arrays_of(*like: Any) -> st.SearchStrategy:
    return st.sampled_from(like)


NO_PIXELS = arrays_of(
    np.zeros((BATCH, 3, *SIZE)), np.zeros((BATCH, 3, *SIZE), np.int64), np.zeros((BATCH, 3, *SIZE), ">f4"),
    np.zeros((BATCH, 3, *SIZE), object), np.zeros((BATCH, 3, *SIZE), "S1"), np.zeros((BATCH, 3, *SIZE), bool),
    np.zeros((BATCH, 3, *SIZE), np.complex64), np.zeros((BATCH, 17, *SIZE), np.float32),
    np.zeros((BATCH, 3, SIZE[0]), np.float32), np.zeros((BATCH, 3, 4, 12), np.float32),
    np.zeros((BATCH + 1, 3, *SIZE), np.float32),
    np.full((BATCH, 3, *SIZE), 1.5, np.float32), np.full((BATCH, 3, *SIZE), -0.5, np.float16),
    np.full((BATCH, 3, *SIZE), np.nan, np.float32), np.full((BATCH, 3, *SIZE), np.inf, np.float32),
    [[1.0]], None, "image", 7,
)  # fmt: skip
OTHER_SIZE = st.just(np.zeros((BATCH, 3, *SIZE[::-1]), np.float32))  # than the plan's
NO_INDEX = arrays_of(
    np.arange(2.0), np.arange(2, dtype=np.int32), np.arange(2, dtype=np.uint64), np.zeros((2, 1), np.int64),
    np.array(["a"]), np.array([None]), [0, 1], None, "index", 3,
)  # fmt: skip
NO_FLIP = arrays_of(np.zeros(2), np.zeros(3, bool), np.zeros((2, 1), bool), np.zeros((), bool), [True, False], "ab", 1)
NO_EPOCH = (
    WORDS | st.floats() | st.none() | st.booleans() | st.builds(object) | st.integers(max_value=-1)
    | st.integers(min_value=2**32)
    | arrays_of(np.zeros(3, np.int64), np.zeros((2, 1), np.int64), np.zeros(2), np.array([0, -1]), np.array(2**40))
)  # fmt: skip
NO_VIEW = WORDS.filter(lambda word: word != "clean") | st.floats() | st.none() | st.booleans() | st.just(()) | st.just((0,) * 17) | st.integers(max_value=-1) | st.just((0, "a"))  # fmt: skip
NO_CONFIG = st.integers() | st.none() | st.builds(object) | st.just("imagenett")
NO_PLAN = st.none() | WORDS | st.just(np.zeros((2, 44), np.int32))
ROWS = prime_dali.sample("cifar", np.arange(BATCH), size=SIZE)
NO_ROWS = arrays_of(
    ROWS.rows.astype(np.int64), ROWS.rows.astype(np.float32), ROWS.rows.astype(np.int16), ROWS.rows[:, :-1], ROWS.rows[0],
    ROWS.rows.astype(object), ROWS.rows.astype(">i4"), ROWS.rows.tolist(), None, "rows", 5,
)  # fmt: skip

CONFIG = {
    "primitives": NO_SEQUENCE | st.just(("blur",)) | st.just(("color", "color")) | st.just(("noise",)) | st.just((1,)),
    "width": not_in(1, 255), "depth": not_in(1, 255), "mixing": NO_NAME | WORDS | st.none(), "alpha": NO_AMPLITUDE,
    "spectral_size": not_in(1, 31) | st.integers(1, 15).map(lambda n: 2 * n), "spectral_std_max": NO_AMPLITUDE,
    "spatial_cut_max": not_in(3, 4094), "spatial_cut": not_in(2, 4094), "color_variance_max": NO_AMPLITUDE,
    "color_cut_max": not_in(1, 1024), "color_cut": not_in(1, 1024), "color_band": not_in(1, 1024),
    "noise_std": NO_AMPLITUDE, "include_identity": NO_FLAG, "random_depth": NO_FLAG,
    "spatial_distribution": WORDS | NO_NAME, "blend": WORDS | NO_NAME, "draws": WORDS | NO_NAME | st.none(),
}  # fmt: skip
SAMPLE = {
    "config": NO_CONFIG, "index": NO_INDEX, "size": NO_SIZE, "seed": not_in(-(2**63), 2**63 - 1), "epoch": NO_EPOCH,
    "view": NO_VIEW,
}  # fmt: skip
FORMAT = {"out_dtype": NO_DTYPE, "mean": NO_TRIPLE, "std": NO_TRIPLE | st.just((0.5, 0.0, 0.5)), "flip": NO_FLIP}
NORMAL = {"mean": (0.5,) * 3, "std": (0.2,) * 3}
BUILD = {
    "slots": arrays_of([[[("blur", 1.0)]]], [[[("spatial", 1.0)]]], [[[("color", 1.0, 5, 4)]]], [[[("spectral", -1.0)]]],
                       [[[("spectral", np.nan)]]], [[[("spectral", "a")]]], [[[("spatial", 1.0, 5000)]]]),
    "size": NO_SIZE, "weights": arrays_of([[1.0]], [[0.0, np.nan]], [[2.0, -1.0]], [[0.5, 0.1]], [["a", 1.0]]),
    "filter_size": not_in(1, 31), "seed": not_in(-(2**63), 2**63 - 1),
    "waves": arrays_of([-1.0], [np.nan], [1.0, 1.0], ["a"]),
}  # fmt: skip
PLAN = {
    "rows": NO_ROWS, "size": NO_SIZE, "chains": not_in(1, 255), "depth": not_in(1, 255), "filter_size": not_in(1, 31),
    "max_cut": not_in(0, 4094), "max_band": not_in(0, 1024), "views": not_in(1, 16), "waves": st.sampled_from((1, None, "yes")),
}  # fmt: skip
PIXELS = np.zeros((BATCH, 3, *SIZE), np.float32)


def as_torch(value: Any) -> Any:
    """What torch can hold as a tensor, and the rest as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        except (TypeError, ValueError):
            return value


def call_sample(**arguments: Any) -> Any:
    return prime_dali.sample(**{"config": "cifar", "index": np.arange(2), "size": SIZE, **arguments})


def call_torch_sample(**arguments: Any) -> Any:
    arguments = {"config": "cifar", "index": np.arange(2), "size": SIZE, **arguments}
    return prime_dali.sample(**{name: as_torch(value) for name, value in arguments.items()})


def call_arrays(**arguments: Any) -> Any:
    return arrays.apply(**{"array": PIXELS, "plan": ROWS, **arguments})


def call_torch(**arguments: Any) -> Any:
    arguments = {"images": PIXELS, "plan": ROWS.torch(), **arguments}
    return prime_dali.apply(**{name: as_torch(value) for name, value in arguments.items()})


def call_module(**arguments: Any) -> Any:
    given = {name: as_torch(arguments.pop(name)) for name in ("images", "index", "epoch", "flip") if name in arguments}
    module = PRIME(**{"config": "cifar", **arguments})
    return module(**{"images": as_torch(PIXELS), "index": torch.arange(2), **given})


def call_plan(**arguments: Any) -> Any:
    """A plan is checked when it is made, or when it is applied: before any of it is looked at."""
    return arrays.apply(PIXELS, dataclasses.replace(ROWS, **arguments))


def call_build(**arguments: Any) -> Any:
    return Plan.build(**{"slots": [[[("spectral", 1.0)]]], "size": SIZE, **arguments})


WRONG: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy], dict[str, Any]]] = {
    "config": (PrimeConfig, CONFIG, {}),
    "sample": (call_sample, SAMPLE, {}),
    "torch sample": (call_torch_sample, SAMPLE, {}),
    "arrays": (
        call_arrays,
        {"array": NO_PIXELS | OTHER_SIZE, "plan": NO_PLAN, "layout": NO_LAYOUT, "out_layout": NO_LAYOUT.filter(lambda x: x is not None),
         "threads": not_in(1, 4096), **FORMAT},
        NORMAL,
    ),
    "torch": (call_torch, {"images": NO_PIXELS | OTHER_SIZE, "plan": NO_PLAN, "channels_last": NO_FLAG, **FORMAT}, NORMAL),
    "module": (
        call_module,
        {"config": NO_CONFIG, "seed": SAMPLE["seed"], "views": not_in(1, 3), "images": NO_PIXELS,
         "index": NO_INDEX.filter(lambda x: x is not None), "epoch": NO_EPOCH.filter(lambda x: x is not None), **FORMAT},
        NORMAL,
    ),
    "plan": (call_plan, PLAN, {}),
    "build": (call_build, BUILD, {}),
}  # fmt: skip
ALIAS = {"config": "config|preset", "rows": "rows|plan", "images": "images|plan|index|size", "array": "array|plan"}


@pytest.mark.parametrize("entry", WRONG)
def test_wrong_arguments_are_named(entry: str) -> None:
    call, arguments, others = WRONG[entry]
    call(**others)  # is right as it is

    def check(given: tuple[str, Any]) -> None:
        name, value = given
        with pytest.raises((TypeError, ValueError)) as caught:
            call(**{**others, name: value})
        assert re.search(rf"\b({ALIAS.get(name, name)})\b", str(caught.value)), str(caught.value)

    wrong = st.one_of(*[st.tuples(st.just(name), values) for name, values in arguments.items()])
    try_out(check, wrong, examples=12 * len(arguments))


# ---------------------------------------------------------------------------------------------------- tampered plans
WORD = st.integers(-(2**31), 2**31 - 1) | st.sampled_from(
    [0, 1, 2, 3, 4, 5, -1, 500, 1024, 4094, 4095, 2**31 - 1, -(2**31)]
    + [int(np.float32(x).view(np.int32)) for x in (0.3, -0.3, 1e-40, 3e38, np.inf, -np.inf, np.nan, -0.0)]
)
EDITS = st.lists(st.tuples(st.integers(0, 2**16), WORD), min_size=1, max_size=12)
BITS = st.binary(min_size=4, max_size=4).map(lambda b: np.random.default_rng(list(b)).bytes(2**14))


def tampered(plan: Plan, how: Any) -> tuple[Plan, np.ndarray]:
    """A plan with some words edited, or all of one row's; and which of its rows are as before."""
    rows = plan.rows.copy()
    if isinstance(how, bytes):
        words = np.frombuffer(how, np.int32)
        rows[0] = np.resize(words, rows.shape[1])
    else:
        for at, word in how:
            rows.flat[at % rows.size] = word
    return dataclasses.replace(plan, rows=rows), (rows == plan.rows).all(1)


def unless_refused(call: Callable[[], Any], kind: type[Exception] | tuple[type[Exception], ...], message: str) -> Any:
    """What ``call`` returns; None if it raises an error of this kind that says so."""
    try:
        return call()
    except kind as error:
        if re.search(message, str(error)):
            return None
        raise


def check_tampered(apply: Callable[[np.ndarray, Plan, Any], np.ndarray]) -> Callable[..., None]:
    def check(config: PrimeConfig, size: tuple[int, int], how: Any, dtype: Any) -> None:
        plan = prime_dali.sample(config, np.arange(2), size=size)
        images = np.random.default_rng(0).integers(0, 256, (2, 3, *size), np.uint8)
        if dtype != np.uint8:
            images = (images / 255).astype(dtype)
        other, same = tampered(plan, how)
        before = apply(images, plan, dtype)
        after = unless_refused(lambda: apply(images, other, dtype), ValueError, r"\b(plan|rows)\b")
        if after is None:
            return
        assert after.shape == before.shape
        assert np.array_equal(after[same], before[same], equal_nan=True)

    return check


SMALL = st.sampled_from(((8, 8), (9, 12), (20, 8)))
FEW = configs().filter(lambda config: config.max_cut <= 600 and config.spectral_size < 10)


def test_tampered_plans_harm_nothing() -> None:
    """No crash, and the other images stay as they are."""
    check = check_tampered(lambda images, plan, dtype: arrays.apply(images, plan, out_dtype=dtype, threads=1))
    try_out(check, FEW, SMALL, EDITS | BITS, st.sampled_from((np.uint8, np.float32)), examples=80)


def test_tampered_plans_harm_nothing_in_cuda(cuda: Any) -> None:
    check = check_tampered(lambda images, plan, dtype: emulated_cuda.apply(cuda, images, plan, dtype))
    try_out(check, FEW, SMALL, EDITS | BITS, st.sampled_from((np.uint8, np.float32)), examples=25)


NUMBER = st.floats() | st.integers(-(2**31), 2**31 - 1) | st.sampled_from((0, 1, 2, -1, 255, 256, 4094, 5000, 2**31))


def test_operators_called_directly_check_what_they_get() -> None:
    """torch's operators without the Python that checks their arguments: an error, or a result, and no crash."""
    rows = torch.from_numpy(ROWS.rows)
    drawn = list(prime_dali.preset("cifar").distributions(*SIZE))

    def check(shape: list[tuple[int, int]], fields: list[tuple[int, float]], seed: int) -> None:
        given, edited = list(ROWS.shape), list(drawn)
        for at, number in shape:
            given[at % len(given)] = number
        for at, number in fields:
            edited[at % len(edited)] = number
        ops = torch.ops.prime_dali
        for call in (
            lambda: ops.apply(torch.from_numpy(PIXELS), rows, None, given, torch.float32, [], [], False),
            lambda: ops.sample(torch.arange(2), torch.tensor(0), *SIZE, seed, [0], edited),
        ):
            unless_refused(call, (RuntimeError, ValueError), r"prime_dali: |\w+: expected ")

    number = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300) | st.sampled_from((4094, 4095, 1024, 1025))
    edits = st.lists(st.tuples(st.integers(0, 4), number), max_size=3)
    fields = st.lists(st.tuples(st.integers(0, 20), NUMBER), max_size=3)
    try_out(check, edits, fields, INT64, examples=100)
