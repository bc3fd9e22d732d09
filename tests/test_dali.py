"""The DALI door, on CPU pipelines and, where there is a GPU and CuPy, on GPU ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_images
from PIL import Image

import prime_dali

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

from nvidia.dali import fn, pipeline_def, types

SIZE = (24, 40)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGES = make_images(8, *SIZE, torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
GPU = pytest.param("gpu", marks=pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("cupy") is None, reason="needs an NVIDIA GPU and CuPy"))  # fmt: skip


@pytest.fixture(params=["cpu", GPU])
def device(request: pytest.FixtureRequest) -> str:
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
            arguments["flip"] = index & 1
        out = prime_dali.dali.prime(image, index=index if indexed else None, **arguments)
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


def test_same_images_as_the_array_door_whatever_the_batch(device: str) -> None:
    arguments = {"seed": 5, "mean": MEAN, "std": STD, "out_layout": "CHW"}
    for batch in (1, 4, 8):
        out = np.concatenate([views[0] for views in run(device, batch=batch, iterations=8 // batch, **arguments)])
        assert out.dtype == np.float32
        np.testing.assert_array_equal(out, expected(device, 8))
    np.testing.assert_array_equal(run(device, batch=8, epoch=3, **arguments)[0][0], expected(device, 8, epoch=3))


def test_three_views(device: str) -> None:
    [views] = run(device, batch=8, seed=5, views=3, mean=MEAN, std=STD, out_layout="CHW")
    np.testing.assert_array_equal(np.concatenate(views), expected(device, 8, view=("clean", 0, 1)))


def test_flip(device: str) -> None:
    [views] = run(device, batch=8, seed=5, views=3, mean=MEAN, std=STD, out_layout="CHW", flipped=True)
    straight = expected(device, 8, view=("clean", 0, 1))
    out = np.concatenate(views)
    np.testing.assert_array_equal(out[::2], straight[::2])
    np.testing.assert_array_equal(out[1::2], straight[1::2, ..., ::-1])


def test_dtypes(device: str) -> None:
    [[same]] = run(device, batch=8, config="cifar")
    assert same.dtype == np.uint8
    [[half]] = run(device, batch=8, config="cifar", out_dtype=types.FLOAT16)
    assert half.dtype == np.float16
    assert np.abs(half * 255.0 - same).max() <= 0.5 + 255 * 2**-11
    [[single]] = run(device, images=(IMAGES / 255).astype(np.float32), batch=8, config="cifar")
    np.testing.assert_allclose(single, half, atol=1e-3)


def test_without_an_index_draws_differ_between_batches_and_repeat_between_runs(device: str) -> None:
    first = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=7)
    again = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=7)
    other = run(device, images=IMAGES[:4], iterations=2, indexed=False, seed=8)
    assert not np.array_equal(first[0][0], first[1][0])
    np.testing.assert_array_equal(first[0][0], again[0][0])
    np.testing.assert_array_equal(first[1][0], again[1][0])
    assert not np.array_equal(first[0][0], other[0][0])


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"config": "imagnet"}, ValueError, "did you mean 'imagenet'"),
    ({"views": 2}, ValueError, "views: expected 1 or 3"),
    ({"layout": "WHC"}, ValueError, "layout: expected one of 'HWC', 'CHW', got 'WHC'; did you mean 'HWC'"),
    ({"out_dtype": types.INT32}, TypeError, "out_dtype: expected types.UINT8, FLOAT16 or FLOAT"),
    ({"mean": MEAN}, ValueError, "std: expected three numbers"),
    ({"seed": 0.5}, TypeError, "seed: expected an int"),
    ({"epoch": -1}, ValueError, "epoch: expected 0 to"),
    ({"flip": True}, TypeError, "flip: expected a DataNode of scalars, got bool"),
])  # fmt: skip
def test_bad_arguments_fail_when_the_pipeline_is_built(
    arguments: dict, exception: type, message: str, device: str
) -> None:
    with pytest.raises(exception, match=message):
        run(device, **arguments)


def test_bad_batches_fail_with_our_message(device: str) -> None:
    with pytest.raises(
        RuntimeError, match=r"images: expected CHW with 3 channels as layout says, got shape \[24, 40, 3\]"
    ):
        run(device, layout="CHW")
    gray = IMAGES[..., :1].copy()
    with pytest.raises(
        RuntimeError, match=r"images: expected HWC with 3 channels as layout says, got shape \[24, 40, 1\]"
    ):
        run(device, images=gray)
    with pytest.raises(RuntimeError, match="images: expected one size in a batch, got shapes"):
        run(device, images=[np.zeros((24, 40, 3), np.uint8), np.zeros((24, 41, 3), np.uint8)], batch=2)


def test_pixels_outside_the_range_fail_on_the_cpu() -> None:
    images = np.zeros((4, 16, 16, 3), np.float32)
    images[2:] = 2
    with pytest.raises(RuntimeError, match=r"array: expected finite values in \[0, 1\], got 0 to 2"):
        run("cpu", images=images)


def test_images_must_be_a_data_node() -> None:
    with pytest.raises(TypeError, match="images: expected a DataNode of a pipeline definition, got ndarray"):
        prime_dali.dali.prime(IMAGES)


@pytest.mark.parametrize("indexed", [False, True])
def test_checkpoint_in_the_middle_of_an_epoch(indexed: bool, device: str, tmp_path: Path) -> None:
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
        return prime_dali.dali.prime(images, "cifar", seed=1, index=index, flip=fn.random.coin_flip()), number

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
