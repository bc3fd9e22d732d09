"""Ray Data on a local cluster: images do not depend on batches and actors; and the example."""

from __future__ import annotations

import doctest
import importlib
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_images, needs_gpu
from PIL import Image

import prime_dali
from prime_dali import _extras

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, with a cluster in this machine: CPUs for two actors and a task."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    pytest.importorskip("ray.data", reason="ray[data] is not installed")
    folder = tempfile.mkdtemp(prefix="ray-")  # short: sockets in it may have names of 107 bytes
    # A GPU that is none, to see whom Ray gives it to.
    ray.init(num_cpus=3, num_gpus=None if torch.cuda.is_available() else 1, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=folder,
             object_store_memory=80 * 2**20)  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def images(count: int, height: int = 24, width: int = 32) -> np.ndarray:
    return make_images(count, height, width, torch.uint8).permute(0, 2, 3, 1).numpy()


def alone(pixels: np.ndarray, index: int, epoch: int, preset: str = "cifar", seed: int = 7) -> np.ndarray:
    """By the public functions, without Ray."""
    *_, height, width, channels = pixels.shape
    drawn = {"size": (height, width), "seed": seed, "epoch": epoch, "channels": channels}
    plan = prime_dali.sample(preset, np.array([index]), **drawn)
    return prime_dali.arrays.apply(pixels[None], plan, layout="NHWC" if pixels.ndim == 3 else "NTHWC")[0]


class Recorded(torch.nn.Module):
    """Keeps the images that it gets."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.images: list[np.ndarray] = []
        self.end = torch.nn.Linear(3, num_classes)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.images += list((pixels * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())
        return self.end(pixels.mean((2, 3)))


@pytest.mark.usefixtures("ray")
def test_the_example_trains_on_the_images_of_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """From two actors, shuffled, in batches whose size is no part of the number of images."""
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    decoded = images(14, 32, 32)
    for number, pixels in enumerate(decoded):
        path = tmp_path / "ab"[number // 7] / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    model = Recorded(2)
    monkeypatch.setattr(torchvision.models, "resnet18", lambda num_classes: model)
    monkeypatch.syspath_prepend(EXAMPLES)
    script = EXAMPLES / "ray_data.py"
    options = ["--epochs", "1", "--batch", "4", "--size", "32", "--workers", "2", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path), *options])
    runpy.run_path(str(script), run_name="__main__")
    assert "epoch 0: loss " in capsys.readouterr().out
    assert len(script.read_text().splitlines()) < 60
    expected = [alone(pixels, index, 0, "imagenet", 1) for index, pixels in enumerate(decoded)]
    assert sorted(map(bytes, model.images)) == sorted(map(bytes, expected))
    assert list(map(bytes, model.images)) != list(map(bytes, expected))


@pytest.mark.usefixtures("ray")
def test_sizes_that_differ_and_columns_of_other_names() -> None:
    from prime_dali.ray import PRIME

    pixels = np.empty(4, object)  # as Ray Data gives images of several sizes
    pixels[:] = [*images(2), *images(2, 8, 9)]
    batch = {"pixels": pixels, "number": np.array([5, 2, 9, 0], np.uint8), "pass": np.array([0, 1, 0, 2])}
    augment = PRIME("cifar", seed=7, device="cpu", image="pixels", index="number", epoch="pass")
    out = augment(batch)
    for i, one in enumerate(out["pixels"]):
        np.testing.assert_array_equal(one, alone(pixels[i], int(batch["number"][i]), int(batch["pass"][i])))
    even = {name: column[:2] for name, column in batch.items()} | {"pixels": images(2)}
    np.testing.assert_array_equal(augment(even)["pixels"], np.stack(out["pixels"][:2]))


@pytest.mark.usefixtures("ray")
def test_any_channels_dtype_and_clips() -> None:
    """What the NumPy interface gives; a gray image may have no axis of channels."""
    from prime_dali.ray import PRIME

    augment, index = PRIME("cifar", seed=7, device="cpu", epoch=2), np.array([4, 1])
    bytes_ = images(2)
    kinds = {
        "gray": bytes_[..., :1], "5 channels": np.tile(bytes_, 2)[..., :5], "uint16": bytes_.astype(np.uint16) * 257,
        "float32": (bytes_ / 255).astype(np.float32), "float16": (bytes_ / 255).astype(np.float16),
        "clips": np.stack([bytes_, bytes_[:, ::-1], bytes_], 1), "gray clips": np.stack([bytes_[..., :1]] * 2, 1),
    }  # fmt: skip
    for kind, pixels in kinds.items():
        out = augment({"image": pixels, "index": index})["image"]
        assert (out.dtype, out.shape) == (pixels.dtype, pixels.shape)
        for one, before, number in zip(out, pixels, index, strict=True):
            np.testing.assert_array_equal(one, alone(before, int(number), 2), err_msg=kind)
    flat = augment({"image": bytes_[..., 0], "index": index})["image"]
    np.testing.assert_array_equal(flat, augment({"image": bytes_[..., :1], "index": index})["image"][..., 0])
    mixed = np.empty(3, object)
    mixed[:] = [bytes_[0, ..., 0], bytes_[0], kinds["clips"][0]]
    out = augment({"image": mixed, "index": np.full(3, 4)})["image"]
    np.testing.assert_array_equal(out[0], flat[0])
    np.testing.assert_array_equal(out[1], alone(bytes_[0], 4, 2))
    np.testing.assert_array_equal(out[2], alone(kinds["clips"][0], 4, 2))


def test_clips_through_the_cluster(ray: Any) -> None:
    """uint16 clips of five channels: Ray Data brings them to the actor and back as they are."""
    from prime_dali.ray import PRIME

    clips = (
        np.tile(images(6, 8, 9), 2)[:, None, ..., :5].astype(np.uint16)
        * np.array([257, 100], np.uint16)[:, None, None, None]
    )
    data = ray.data.from_items([{"image": clip, "index": number} for number, clip in enumerate(clips)])
    drawn = {"config": "cifar", "seed": 7, "epoch": 3}
    augmented = data.map_batches(PRIME, fn_constructor_kwargs=drawn, batch_size=4, concurrency=1)
    rows = augmented.take_all()
    assert sorted(row["index"] for row in rows) == list(range(6))
    for row in rows:
        assert row["image"].dtype == np.uint16
        np.testing.assert_array_equal(row["image"], alone(clips[row["index"]], row["index"], 3))


def test_the_gpu_is_that_which_ray_has_assigned(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import prime_dali.ray as module

    @ray.remote(num_gpus=1)
    def devices() -> list[str]:
        import prime_dali.ray as module

        return [module._assigned_device(wish) for wish in ("auto", "cuda", "cuda:1", "cpu")]

    assert ray.get(devices.remote()) == ["cuda:0", "cuda:0", "cuda:1", "cpu"]
    assert module._assigned_device("auto") == "cpu"  # here, none is
    with pytest.raises(ValueError, match="device: expected num_gpus= in map_batches for 'cuda', got an actor without"):
        module._assigned_device("cuda")
    # Of three GPUs, Ray has assigned the one with the number 2; some of them may be hidden.
    monkeypatch.setattr(type(ray.get_runtime_context()), "get_accelerator_ids", lambda self: {"GPU": ["2"]})
    for visible, expected in (("2", "cuda:0"), ("0,2", "cuda:1"), ("", "cuda:2")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert module._assigned_device("auto") == expected


def test_an_actor_takes_what_ray_has_assigned(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from prime_dali.ray import PRIME

    context = type(ray.get_runtime_context())
    monkeypatch.setattr(context, "get_actor_id", lambda self: "an actor")
    for cpus, threads in ((3.0, 3), (0.5, 1)):
        monkeypatch.setattr(context, "get_assigned_resources", lambda self, cpus=cpus: {"CPU": cpus})
        assert PRIME("cifar").threads == threads
    with pytest.raises(ValueError, match="device: expected num_gpus= in map_batches for 'cuda'"):
        PRIME("cifar", device="cuda")


@needs_gpu
def test_actors_on_a_gpu(ray: Any) -> None:
    """Two share it, and differ from the CPU in rounding only."""
    from prime_dali.ray import PRIME

    pixels = images(8)
    data = ray.data.from_items([{"image": image, "index": number} for number, image in enumerate(pixels)])
    rows = data.map_batches(
        PRIME, fn_constructor_kwargs={"config": "cifar", "seed": 7}, batch_size=4, num_gpus=0.5, concurrency=2
    ).take_all()
    assert len(rows) == 8
    for row in rows:
        expected = alone(pixels[row["index"]], row["index"], 0).astype(int)
        assert np.mean(np.abs(row["image"] - expected) > 2) < 0.05


def test_bad_batches(ray: Any) -> None:
    from prime_dali.ray import PRIME

    augment = PRIME("cifar", device="cpu", epoch="epoch")
    batch = {"image": images(2), "index": np.arange(2), "epoch": np.arange(2)}
    assert augment.threads is None  # not in an actor
    for change, message in (
        ({"index": None}, "index: expected a column 'index', got 'image', 'epoch'; its name is the argument index"),
        ({"index": np.arange(2.0)}, r"index: expected integers \[N\] in the column 'index', got float64 \[2\]"),
        ({"index": np.array([True, False])}, r"index: expected integers \[N\] in the column 'index', got bool"),
        ({"epoch": np.zeros(2, np.uint64)}, r"epoch: expected integers \[N\] in the column 'epoch', got uint64"),
        (
            {"image": images(2)[:, 0, :, 0]},
            r"image: the column 'image': expected \[H, W\], \[H, W, C\] or .*, got \[32\]",
        ),
        ({"image": np.tile(images(2), 6)}, r"image: .*expected .* of 1 to 16 channels, got \[24, 32, 18\]"),
        ({"image": images(2)[:, :7]}, "image: the column 'image': height: expected .*8 to 4096, got 7"),
        ({"image": images(2).astype(np.int32)}, "image: the column 'image': expected uint8, uint16, .*, got .*int32"),
        ({"image": torch.zeros(2)}, "image: expected NumPy arrays .*, got Tensor"),
        ({"index": np.arange(3)}, "3"),
    ):
        changed = {name: value for name, value in (batch | change).items() if value is not None}
        with pytest.raises((TypeError, ValueError), match=message):
            augment(changed)
    for given in (
        {"epoch": -1},
        {"seed": 0.5},
        {"index": 3},
        {"device": "gpu"},
        {"device": "cuda:x"},
        {"config": "imagnet"},
    ):
        with pytest.raises((TypeError, ValueError), match=f"{next(iter(given))}|preset"):
            PRIME(**given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="draws: expected 'image' with Ray Data, where an image must not depend"):
        PRIME(prime_dali.PrimeConfig(draws="batch"))


@pytest.mark.usefixtures("ray")
def test_the_docstrings_example() -> None:
    import prime_dali.ray as module

    found = doctest.DocTestFinder().find(module.PRIME, "PRIME", module, globs={"np": np})
    assert [doctest.DocTestRunner().run(one) for one in found if one.examples] == [(0, 6)]


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "prime_dali.ray", raising=False)
    with pytest.raises(ImportError, match=r"prime_dali.ray needs .*: pip install 'prime-dali\[ray\]'"):
        importlib.import_module("prime_dali.ray")
    assert _extras.advice("ray.data") == "needs ray, which is not installed: pip install 'prime-dali[ray]'"
