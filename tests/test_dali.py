"""PRIME in DALI pipelines, on CPU ones and, where there is a GPU and CuPy, on GPU ones."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_images
from PIL import Image

import prime_dali

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

import dali_runs
from dali_runs import IMAGES, MEAN, SIZE, STD, TORCH, expected, run
from nvidia.dali import Pipeline, fn, pipeline_def, types
from nvidia.dali.pipeline import experimental

device, mode = dali_runs.device, dali_runs.mode  # fixtures


def test_same_images_as_the_array_door_whatever_the_batch(device: str, mode: str) -> None:
    arguments = {"seed": 5, "mean": MEAN, "std": STD, "out_layout": "CHW", "mode": mode}
    for batch in (1, 4, 8):
        out = np.concatenate([views[0] for views in run(device, batch=batch, iterations=8 // batch, **arguments)])
        assert out.dtype == np.float32
        np.testing.assert_array_equal(out, expected(device, 8))
    np.testing.assert_array_equal(run(device, batch=8, epoch=3, **arguments)[0][0], expected(device, 8, epoch=3))


def test_three_views(device: str, mode: str) -> None:
    [views] = run(device, batch=8, seed=5, views=np.int64(3), mean=np.array(MEAN), std=STD, out_layout="CHW", mode=mode)
    np.testing.assert_array_equal(np.concatenate(views), expected(device, 8, view=("clean", 0, 1)))


@pytest.mark.parametrize("views", [1, 2])
def test_dali_knows_the_axes_of_what_comes_out(views: int, device: str, mode: str) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0 if device == "gpu" else None)
    def pipeline():
        image = fn.external_source(lambda _: IMAGES[0], batch=False)
        image = image.gpu() if device == "gpu" else image
        out = prime_dali.dali.prime(image, "cifar", views=views, out_layout="CHW", mode=mode)
        return out if views > 1 else (out,)

    built = pipeline()
    built.build()
    assert [out.layout() for out in built.run()] == ["CHW"] * views


def test_draws_that_a_batch_shares(device: str, mode: str) -> None:
    config = prime_dali.preset("cifar").replace(draws="batch")
    found = run(device, iterations=2, config=config, seed=5, views=2, mode=mode)
    for i, views in enumerate(found):
        plan = prime_dali.sample(config, np.arange(4) + 4 * i, size=SIZE, seed=5, view=("clean", 0))
        alike = prime_dali.arrays.apply(IMAGES[4 * i : 4 * i + 4], plan, layout="NHWC")
        out = np.concatenate(views)
        assert np.abs(out.astype(int) - alike).max() <= (0 if device == "cpu" else 1)


def test_flip(device: str, mode: str) -> None:
    [views] = run(device, batch=8, seed=5, views=3, mean=MEAN, std=STD, out_layout="CHW", flipped=True, mode=mode)
    straight = expected(device, 8, view=("clean", 0, 1))
    out = np.concatenate(views)
    np.testing.assert_array_equal(out[::2], straight[::2])
    np.testing.assert_array_equal(out[1::2], straight[1::2, ..., ::-1])


@pytest.mark.parametrize(("loaded", "built"), [(False, True), (False, False), (True, False)])
def test_auto_is_native_where_that_is_at_hand(
    loaded: bool, built: bool, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled, or loaded: from a path of the user's, or from a cache that is gone by now."""
    from prime_dali.dali import operator

    taken = []
    for name in ("_native", "_cupy"):
        monkeypatch.setattr(operator, name, lambda *_, name=name, **__: [taken.append(name)])
    monkeypatch.setattr(operator.native, "is_built", lambda: built)
    monkeypatch.setattr(operator.native, "_loaded", plugin if loaded else None)
    with Pipeline(batch_size=1, num_threads=1, device_id=None):
        prime_dali.dali.prime(fn.external_source(IMAGES, batch=False))
    assert taken == ["_native" if loaded or built else "_cupy"]
    cpu, gpu = SimpleNamespace(device="cpu"), SimpleNamespace(device="gpu")
    assert operator._mode("auto", {"images": gpu, "index": cpu}) == ("native" if loaded or built else "cupy")
    assert operator._mode("auto", {"images": gpu, "index": gpu}) == "cupy"


def test_in_a_pipeline_with_conditionals(device: str, mode: str) -> None:
    """DALI rewrites the code of such pipelines, and must leave ours alone."""

    @pipeline_def(batch_size=4, num_threads=2, device_id=0 if device == "gpu" else None, enable_conditionals=True)
    def pipeline():
        image, index = fn.external_source(
            lambda s: (IMAGES[s.idx_in_epoch % 4], np.array(s.idx_in_epoch % 4, np.int64)), num_outputs=2, batch=False
        )
        image = image.gpu() if device == "gpu" else image
        out = prime_dali.dali.prime(
            image, index=index, epoch=0, seed=5, out_layout="CHW", mean=MEAN, std=STD, mode=mode
        )
        if index == 3:
            out = out * 0
        return out

    built = pipeline()
    built.build()
    out = np.stack([np.array(sample) for sample in built.run()[0].as_cpu()])
    np.testing.assert_array_equal(out[:3], expected(device, 4)[:3])
    assert not out[3].any()


def test_dtypes(device: str, mode: str) -> None:
    [[same]] = run(device, batch=8, config="cifar", mode=mode)
    assert same.dtype == np.uint8
    [[half]] = run(device, batch=8, config="cifar", out_dtype="float16", mode=mode)
    assert half.dtype == np.float16
    assert np.abs(half * 255.0 - same).max() <= 0.5 + 255 * 2**-11
    [[single]] = run(device, images=(IMAGES / 255).astype(np.float32), batch=8, config="cifar", mode=mode)
    np.testing.assert_allclose(single, half, atol=1e-3)


def test_without_an_index_draws_differ_between_batches_and_repeat_between_runs(device: str, mode: str) -> None:
    first = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=7, mode=mode)
    again = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=7, mode=mode)
    other = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=8, mode=mode)
    assert not np.array_equal(first[0][0], first[1][0])
    np.testing.assert_array_equal(first[0][0], again[0][0])
    np.testing.assert_array_equal(first[1][0], again[1][0])
    assert not np.array_equal(first[0][0], other[0][0])


@pytest.mark.parametrize("mode", ["native", "cupy", "dlpack"])
def test_index_and_epoch_are_integers_in_every_mode(mode: str, plugin: Path) -> None:
    """Of any type that int64 holds; fractions and numbers past the range are refused alike."""

    def augmented(index: Callable, epoch: Callable) -> np.ndarray:
        @pipeline_def(batch_size=4, num_threads=1, device_id=None)
        def pipeline():
            image, *numbers = fn.external_source(
                lambda s: (IMAGES[s.idx_in_epoch], index(s.idx_in_epoch), epoch(s.idx_in_epoch)),
                num_outputs=3,
                batch=False,
            )
            return prime_dali.dali.prime(image, "cifar", index=numbers[0], epoch=numbers[1], mode=mode)

        built = pipeline()
        built.build()
        return np.stack([np.array(out) for out in built.run()[0]])

    plan = prime_dali.sample("cifar", np.arange(4), size=SIZE, epoch=np.arange(4))
    expected = prime_dali.arrays.apply(IMAGES[:4], plan, layout="NHWC")
    for index, epoch in ((np.int64, np.int64), (np.uint8, np.int16), (np.int32, np.uint32)):
        np.testing.assert_array_equal(augmented(index, epoch), expected)
    for index, epoch, message in (
        (np.float32, np.int64, "index: expected integers that fit int64"),
        (np.int64, np.uint64, "epoch: expected integers that fit int64"),
        (np.int64, lambda i: np.int64(2**32), "epoch: expected 0 to 4294967295, got 4294967296"),
        (np.int64, lambda i: np.int64(-1), "epoch: expected 0 to 4294967295, got -1"),
        (lambda i: np.array([i, i]), np.int64, "index: expected one number per image, got shape"),
        (np.int64, lambda i: np.array([i, i]), "epoch: expected one number per image, got shape"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=message):
            augmented(index, epoch)


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"config": "imagnet"}, ValueError, "did you mean 'imagenet'"),
    ({"views": 4}, ValueError, "views: expected 1, 2"),
    ({"layout": "WHC"}, ValueError, "layout: expected one of 'HWC', 'CHW', 'FHWC', 'FCHW', got 'WHC'; did you mean"),
    ({"out_dtype": types.INT32}, TypeError, "out_dtype: expected types.UINT8, UINT16, FLOAT16 or FLOAT"),
    ({"mean": MEAN}, ValueError, "std: expected 1 to 16 numbers because mean is given"),
    ({"mean": "000", "std": STD}, TypeError, "mean: expected 1 to 16 numbers, one per channel, got '000'"),
    ({"mean": MEAN, "std": [1e39, 1, 1]}, ValueError, "std: expected numbers from 1.2e-38 to 8.5e.37"),
    ({"seed": 0.5}, TypeError, "seed: expected an int"),
    ({"epoch": -1}, ValueError, "epoch: expected 0 to"),
    ({"flip": True}, TypeError, "flip: expected a DataNode of scalars, got bool"),
    ({"mode": "nativ"}, ValueError, "mode: expected one of .*; did you mean 'native'"),
])  # fmt: skip
def test_bad_arguments_fail_when_the_pipeline_is_built(
    arguments: dict, exception: type, message: str, device: str
) -> None:
    with pytest.raises(exception, match=message):
        run(device, **arguments)


@pytest.mark.parametrize("mode", ["cupy", "dlpack", TORCH])
def test_bad_batches_fail_with_our_message(device: str, mode: str) -> None:
    with pytest.raises(
        RuntimeError, match=r"images: expected CHW with 1 to 16 .*, got shape \[24, 40, 3\]; if they are HWC, give"
    ):
        run(device, layout="CHW", mode=mode)
    with pytest.raises(RuntimeError, match="mean: expected one finite number, one per channel, got"):
        run(device, images=IMAGES[..., :1].copy(), mean=MEAN, std=STD, mode=mode)
    for layout, fitting in (("FHWC", "HWC"), ("FCHW", "HWC")):  # images, taken for sequences
        with pytest.raises(RuntimeError, match=rf"expected {layout} .* got shape \[24, 40, 3\]; .* layout='{fitting}'"):
            run(device, layout=layout, mode=mode)
    with pytest.raises(RuntimeError, match=r"images: expected one size in a batch, got .*; make them equal.*native"):
        run(device, images=[np.zeros((24, 40, 3), np.uint8), np.zeros((24, 41, 3), np.uint8)], batch=2, mode=mode)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_channels_and_sequences(dtype: Any, device: str, mode: str) -> None:
    """Gray, five channels, and sequences: as by the array interface, and nothing is cast."""
    xp = importlib.import_module("cupy" if device == "gpu" else "numpy")
    random = np.random.default_rng(0)
    for frames, channels in (((), 1), ((), 5), ((3,), 2)):
        layouts = {"layout": "F" * len(frames) + "HWC", "out_layout": "F" * len(frames) + "CHW"}
        images = random.integers(0, np.iinfo(dtype).max, (4, *frames, *SIZE, channels), dtype, endpoint=True)
        normalized = {"mean": [0.5] * channels, "std": [0.25] * channels}
        views = run(device, images=images, views=3, seed=5, mode=mode, **layouts, **(normalized if frames else {}))[0]
        assert [view.dtype for view in views] == [np.float32 if frames else dtype] * 3
        plan = prime_dali.sample("imagenet", xp.arange(4), size=SIZE, seed=5, view=("clean", 0, 1), channels=channels)
        named = {name: ("NT" if frames else "N") + letters[-3:] for name, letters in layouts.items()}
        out = prime_dali.arrays.apply(xp.asarray(images), plan, **named, **(normalized if frames else {}))
        assert np.array_equal(np.concatenate(views), out if device == "cpu" else out.get())


def test_without_an_index_calls_ranks_and_pipelines_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(rank: object, **options: Any) -> list[bytes]:
        """What two calls of one pipeline make of one image."""
        monkeypatch.setenv("RANK", str(rank))
        with Pipeline(batch_size=1, num_threads=1, device_id=None, **options) as pipeline:
            image = fn.external_source(lambda: [IMAGES[0]])
            pipeline.set_outputs(*(prime_dali.dali.prime(image, "cifar", seed=1, mode="cupy") for _ in range(2)))
        pipeline.build()
        return [np.array(out.at(0)).tobytes() for out in pipeline.run()]

    first = drawn(rank=0)
    assert len({*first, *drawn(rank=1), *drawn(rank=0, seed=7)}) == 6
    assert drawn(rank=0) == drawn(rank=" 0") == first
    with pytest.raises(
        ValueError, match="RANK: expected the number of a rank, as torchrun sets it, got 'first'; unset"
    ):
        drawn(rank="first")


@pytest.mark.parametrize("calls", [1, 2])
def test_in_debug_mode_every_batch_has_the_same_arguments(calls: int) -> None:
    """DALI runs the definition for each, and refuses an operator whose seed has changed. It has no such mode without a
    GPU: operators that fail are counted too."""
    found = []

    @experimental.pipeline_def(batch_size=1, num_threads=1, device_id=None, debug=True)
    def pipeline():
        images = fn.external_source(lambda: [IMAGES[0]])
        for _ in range(calls):
            found.append(prime_dali.dali.operator._stream(1))
            with contextlib.suppress(RuntimeError):
                fn.random.uniform(seed=found[-1])
        return images

    built = pipeline()
    built.run()
    built.run()
    assert found[:calls] == found[calls:]
    assert len(set(found)) == calls


def test_an_index_without_an_epoch_is_warned_of() -> None:
    with Pipeline(1, 1, None):
        numbers, images = fn.external_source(lambda: [np.int64(0)]), fn.external_source(lambda: [IMAGES[0]])
        with pytest.warns(UserWarning, match="epoch: expected with index=, as an image is augmented in the same way"):
            prime_dali.dali.prime(images, "cifar", index=numbers, mode="cupy")


def test_images_must_be_a_data_node() -> None:
    with pytest.raises(TypeError, match=r"images: expected a DataNode of a pipeline definition, got ndarray$"):
        prime_dali.dali.prime(IMAGES)
    dynamic = pytest.importorskip("nvidia.dali.experimental.dynamic", reason="this DALI has no dynamic mode")
    with pytest.raises(TypeError, match=r"got Batch; in DALI's dynamic mode call its operator, ndd\.prime\.augment"):
        prime_dali.dali.prime(dynamic.as_batch(list(IMAGES), layout="HWC"))


def test_dtypes_of_other_libraries() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for name, dtype in (("uint8", types.UINT8), ("uint16", types.UINT16), ("float16", types.FLOAT16)):
        same = (dtype, name, np.dtype(name), getattr(np, name), getattr(torch, name))
        assert [prime_dali.dali.operator.dtype_of(one) for one in same] == [dtype] * 5
    assert prime_dali.dali.Output(dtype=torch.float16).dtype == types.FLOAT16
    with pytest.raises(TypeError, match=r"dtype: expected types.UINT8, FLOAT16 or FLOAT, got torch\.bfloat16"):
        prime_dali.dali.Output(dtype=torch.bfloat16)


@pytest.mark.parametrize("indexed", [False, True])
def test_checkpoint_in_the_middle_of_an_epoch(indexed: bool, device: str, mode: str, tmp_path: Path) -> None:
    """What a pipeline gives after a checkpoint, one restored from it gives too: order, crops, flips and PRIME."""
    (tmp_path / "photos").mkdir()
    for i, image in enumerate(make_images(10, 40, 50, torch.uint8)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "photos" / f"{i}.png")

    @pipeline_def(
        batch_size=3, num_threads=2, device_id=0 if device == "gpu" else None, seed=5, enable_checkpointing=True
    )
    def pipeline():
        files = [f"photos/{i}.png" for i in range(10)]
        encoded, number = fn.readers.file(
            file_root=str(tmp_path), files=files, labels=list(range(10)), random_shuffle=True
        )
        images = fn.random_resized_crop(fn.decoders.image(encoded), size=SIZE)
        images = images.gpu() if device == "gpu" else images
        index = fn.cast(number, dtype=types.INT64) if indexed else None
        out = prime_dali.dali.prime(
            images, "cifar", seed=1, index=index, epoch=0, flip=fn.random.coin_flip(), mode=mode
        )
        return out, number

    def batches(built, count: int) -> list[np.ndarray]:
        outs = [built.run() for _ in range(count)]
        return [np.stack([np.array(s) for s in out.as_cpu()]) for pair in outs for out in pair]

    first = pipeline()
    first.build()
    batches(first, 2)
    restored = pipeline(checkpoint=first.checkpoint())
    restored.build()
    for expected_batch, batch in zip(batches(first, 4), batches(restored, 4), strict=True):
        np.testing.assert_array_equal(batch, expected_batch)
