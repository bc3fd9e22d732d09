"""Pipelines: which images, which draws, what an epoch holds; on the CPU and, where there is one, a GPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DALI_GPU
from PIL import Image

import prime_dali

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

import pipelining
from nvidia.dali import fn, types
from pipelining import COUNT, SIZE, by_number, picture, train, validate

from prime_dali.data.folders import image_folder

device, folder = pipelining.device, pipelining.folder  # fixtures


def test_numbers_and_labels_are_those_of_image_folder(folder: Path, device: str) -> None:
    files, labels, classes = image_folder(folder)
    assert classes == ["a", "b", "c"]
    assert [Path(f).stem for f in files] == [f"{i:02d}" for i in range(COUNT)]
    torchvision = pytest.importorskip("torchvision")
    assert list(zip(files, labels, strict=True)) == torchvision.datasets.ImageFolder(str(folder)).samples
    for loader in (train(folder, device, last_batch="partial"), validate(folder, device)):
        seen = []
        for images, numbers, indices in loader:
            assert numbers.dtype == indices.dtype == torch.int64
            assert images.shape == (len(numbers), 3, *SIZE)
            assert images.device.type == numbers.device.type == ("cuda" if device == "gpu" else "cpu")
            assert numbers.tolist() == [i // 4 for i in indices.tolist()]
            seen += indices.tolist()
        assert sorted(seen) == list(range(COUNT))
        assert (seen == list(range(COUNT))) == (loader.pipeline.data.sampling.shuffle is False)


def test_folders_below_a_class_are_sorted(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    for name in ("m", "b/x", "z", "a", "b", "k", "b-", "q", "c"):
        (tmp_path / "class" / name).mkdir(parents=True, exist_ok=True)
        for photo in ("2.jpg", "10.JPEG", "1.png"):
            (tmp_path / "class" / name / photo).touch()
    files, _, _ = image_folder(tmp_path)
    assert files == [file for file, _ in torchvision.datasets.ImageFolder(str(tmp_path)).samples]


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("last_batch", ["drop", "partial", "fill"])
def test_what_an_epoch_holds(folder: Path, shards: int, last_batch: str) -> None:
    """11 images in batches of 3: each at most once under drop, exactly once under partial, at least once under fill."""
    loaders = [train(folder, last_batch=last_batch, shard_id=i, num_shards=shards, batch_size=3) for i in range(shards)]
    batches = {"drop": {1: [3], 2: [1, 1], 3: [1, 1, 1]}, "partial": {1: [4], 2: [2, 2], 3: [2, 2, 1]},
               "fill": {1: [4], 2: [2, 2], 3: [2, 2, 2]}}[last_batch][shards]  # fmt: skip
    assert [len(loader) for loader in loaders] == batches
    orders = []
    for _ in range(2):
        epoch = [[batch.indices.tolist() for batch in loader] for loader in loaders]
        assert [len(shard) for shard in epoch] == batches
        seen = [number for shard in epoch for batch in shard for number in batch]
        if last_batch == "partial":
            assert sorted(seen) == list(range(COUNT))
        else:
            assert len(seen) == 3 * sum(batches)
            assert len(set(seen)) == (len(seen) if last_batch == "drop" else COUNT)
            assert max(Counter(seen).values()) <= 1 + (last_batch == "fill")
        orders.append(seen)
    assert orders[0] != orders[1]


def test_an_image_depends_on_its_number_and_the_epoch_alone(folder: Path, device: str) -> None:
    one = train(folder, device, batch_size=11, last_batch="partial")
    epochs = [by_number(list(one)) for _ in range(2)]
    for batch, shards in ((1, 1), (4, 1), (3, 2)):
        loaders = [train(folder, device, batch_size=batch, last_batch="partial", shard_id=i, num_shards=shards)
                   for i in range(shards)]  # fmt: skip
        for expected in epochs:
            found = by_number([b for loader in loaders for b in loader])
            assert found.keys() == expected.keys()
            for number, image in expected.items():
                np.testing.assert_array_equal(found[number], image)
    for number, image in epochs[0].items():
        assert not np.array_equal(image, epochs[1][number])


def test_every_mode_gives_the_same(folder: Path, device: str, plugin: Path) -> None:
    epochs = [by_number(list(train(folder, device, mode=mode))) for mode in ("native", "cupy", "dlpack")]
    for epoch in epochs:
        assert epoch.keys() == epochs[0].keys()
        for number, image in epoch.items():
            np.testing.assert_array_equal(image, epochs[0][number])


def test_epochs_and_seeds_differ_in_crop_flip_and_prime(folder: Path) -> None:
    """Without crops and flips PRIME still changes from epoch to epoch; without PRIME crops and flips do."""
    still = {"area": (1, 1), "ratio": (1.5, 1.5), "flip": 0}
    for arguments in (still, {"config": None}):
        loader = train(folder, **arguments)
        first, second = (by_number(list(loader)) for _ in range(2))
        other = by_number(list(train(folder, **(arguments | {"seed": 6}))))
        for number in first.keys() & second.keys():
            assert not np.array_equal(first[number], second[number])
        for number in first.keys() & other.keys():
            assert not np.array_equal(first[number], other[number])


def test_flips_differ_from_epoch_to_epoch(folder: Path) -> None:
    loader = train(folder, config=None, area=(1, 1), ratio=(1.5, 1.5), last_batch="partial")
    first, second = (by_number(list(loader)) for _ in range(2))
    mirrored = {number for number, image in first.items() if not np.array_equal(image, second[number])}
    assert 0 < len(mirrored) < COUNT
    for number in mirrored:
        np.testing.assert_allclose(first[number], second[number][..., ::-1], atol=1e-5)


def test_without_crop_flip_and_prime_images_stay(tmp_path: Path) -> None:
    """The window is the whole image, and both ways of normalizing give its pixels."""
    (tmp_path / "a").mkdir()
    images = [picture(16, 24, seed=i) for i in range(3)]
    for i, image in enumerate(images):
        image.save(tmp_path / "a" / f"{i}.png")
    pixels = {i: np.asarray(image).transpose(2, 0, 1) for i, image in enumerate(images)}
    still = {"area": (1, 1), "ratio": (1.5, 1.5), "flip": 0, "batch_size": 3}
    mean, std = (np.array(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    for config in (None, prime_dali.preset("cifar").replace(alpha=0)):
        found = by_number(list(train(tmp_path, config=config, **still)))
        for i in range(3):
            np.testing.assert_allclose(found[i], (pixels[i] / 255 - mean) / std, atol=2e-5)
        raw = {"mean": None, "std": None, "dtype": types.UINT8}
        found = by_number(list(train(tmp_path, config=config, **raw, **still)))
        for i in range(3):
            np.testing.assert_array_equal(found[i], pixels[i])
        found = by_number(list(train(tmp_path, config=config, **raw, **(still | {"flip": 1}))))
        for i in range(3):
            np.testing.assert_array_equal(found[i], pixels[i][..., ::-1])
    found = by_number(list(validate(tmp_path, batch_size=3, resize=24)))
    middle = np.asarray(images[0].resize((36, 24), Image.Resampling.BILINEAR).crop((6, 4, 30, 20)))
    assert np.abs(found[0] * std + mean - middle.transpose(2, 0, 1) / 255).max() < 2.5 / 255


def test_the_order_depends_on_the_seed(folder: Path) -> None:
    orders = [train(folder, seed=seed, batch_size=COUNT).pipeline.data.batch(0)[0].tolist() for seed in (5, 6, 5)]
    assert orders[0] == orders[2] != orders[1]


def test_the_shorter_side_of_an_upright_image_is_resized(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    upright = picture(32, 16)
    upright.save(tmp_path / "a" / "0.png")
    [(images, _, _)] = validate(tmp_path, batch_size=1, resize=24, mean=None, std=None)
    middle = np.asarray(upright.resize((24, 48), Image.Resampling.BILINEAR).crop((0, 16, 24, 32)))
    assert np.abs(images[0].numpy() - middle.transpose(2, 0, 1) / 255).max() < 2.5 / 255


@pytest.mark.parametrize("config", ["cifar", None])
def test_layouts_hold_the_same_pixels(folder: Path, config: str | None, device: str) -> None:
    planar = next(iter(train(folder, device, config=config)))
    packed = next(iter(train(folder, device, config=config, layout="HWC")))
    assert planar.images.is_contiguous()
    assert packed.images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(planar.images, packed.images)


def test_three_views_of_one_decode(folder: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean view is the image without PRIME, of the same crop and flip; the first augmented one is that of one view."""
    images = next(iter(train(folder, device, views=3))).images
    assert type(images) is tuple
    clean, first, second = images
    torch.testing.assert_close(clean, next(iter(train(folder, device, config=None))).images, atol=1e-4, rtol=0)
    assert torch.equal(first, next(iter(train(folder, device))).images)
    assert not torch.equal(first, second)
    decode, calls = fn.decoders.image_slice, []
    monkeypatch.setattr(fn.decoders, "image_slice", lambda *a, **k: calls.append(a) or decode(*a, **k))
    train(folder, device, views=3)
    assert len(calls) == 1


def test_tensors_stay_valid(folder: Path, device: str) -> None:
    held = list(train(folder, device, last_batch="partial"))
    copies = [batch.images.clone() for batch in train(folder, device, last_batch="partial")]
    for batch, copy in zip(held, copies, strict=True):
        assert torch.equal(batch.images, copy)


@pytest.mark.parametrize("device", [DALI_GPU])
def test_memory_is_not_used_again_before_torch_has_read_it(folder: Path, device: str) -> None:
    """Torch's stream is far behind the host, and every batch is dropped as soon as its reading is ordered."""
    late = []
    loader = train(folder, device, batch_size=1)
    for images, _, _ in loader:
        torch.cuda._sleep(50_000_000)
        late.append(images.clone())
        del images
    for image, batch in zip(late, train(folder, device, batch_size=1), strict=True):
        assert torch.equal(image, batch.images)
