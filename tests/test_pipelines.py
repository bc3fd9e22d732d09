"""Pipelines and loader: which images, which draws, exact states, broken files; on the CPU and, where there is one, a GPU."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DALI_GPU, make_images
from PIL import Image, ImageOps

import prime_dali
from prime_dali import _devices
from prime_dali.data import sampling as order
from prime_dali.data.pictures import open_picture

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

from nvidia.dali import fn, types

from prime_dali.dali import Loader, dataset, native, train_pipeline, val_pipeline

COUNT, CLASSES = 11, 3
SIZE = (16, 24)


@pytest.fixture(params=["cpu", DALI_GPU])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def picture(height: int = 40, width: int = 60, seed: int = 0) -> Image.Image:
    return Image.fromarray(make_images(1, height, width, torch.uint8, seed=seed)[0].permute(1, 2, 0).numpy())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """11 photographs of different sizes in 3 classes of 4, 4 and 3; in one class, in a folder below it."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(COUNT):
        place = root / "abc"[i // 4] / ("below" if i // 4 == 1 else "")
        place.mkdir(parents=True, exist_ok=True)
        picture(40 + i, 60 - i, seed=i).save(place / f"{i:02d}.jpg")
    (root / "a" / "notes.txt").write_text("not an image, and not named like one")
    return root


def train(folder: Path | None, device: str = "cpu", on_error: str = "raise", **arguments) -> Loader:
    arguments = {"config": "cifar", "batch_size": 4, "size": SIZE, "seed": 5, "num_threads": 2} | arguments
    return Loader(train_pipeline(folder, device=device, **arguments), on_error=on_error)


def by_number(batches: Sequence) -> dict[int, np.ndarray]:
    """Each image by its number; views one below another. Where one comes twice it must be the same."""
    found = {}
    for images, _, indices in batches:
        views = images if isinstance(images, tuple) else (images,)
        for i, number in enumerate(indices.tolist()):
            image = np.concatenate([view[i].cpu().numpy() for view in views])
            np.testing.assert_array_equal(image, found.setdefault(number, image))
    return found


def assert_same(batches: Sequence, expected: Sequence) -> None:
    assert len(batches) == len(expected)
    for one, other in zip(batches, expected, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.indices, other.indices)


def test_numbers_and_labels_are_those_of_image_folder(folder: Path, device: str) -> None:
    files, labels, classes = dataset.image_folder(folder)
    assert classes == ["a", "b", "c"]
    assert [Path(f).stem for f in files] == [f"{i:02d}" for i in range(COUNT)]
    torchvision = pytest.importorskip("torchvision")
    assert list(zip(files, labels, strict=True)) == torchvision.datasets.ImageFolder(str(folder)).samples
    for loader in (train(folder, device, last_batch="partial"),
                   Loader(val_pipeline(folder, batch_size=4, size=SIZE, device=device))):  # fmt: skip
        seen = []
        for images, numbers, indices in loader:
            assert numbers.dtype == indices.dtype == torch.int64
            assert images.shape == (len(numbers), 3, *SIZE)
            assert images.device.type == numbers.device.type == ("cuda" if device == "gpu" else "cpu")
            assert numbers.tolist() == [i // 4 for i in indices.tolist()]
            seen += indices.tolist()
        assert sorted(seen) == list(range(COUNT))
        assert (seen == list(range(COUNT))) == (loader.pipeline.data.shuffle is False)


def test_folders_below_a_class_are_sorted(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    for name in ("m", "b/x", "z", "a", "b", "k", "b-", "q", "c"):
        (tmp_path / "class" / name).mkdir(parents=True, exist_ok=True)
        for photo in ("2.jpg", "10.JPEG", "1.png"):
            (tmp_path / "class" / name / photo).touch()
    files, _, _ = dataset.image_folder(tmp_path)
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


def test_without_crop_flip_and_prime_images_stay(tmp_path: Path) -> None:
    """The window is the whole image, and both ways of normalising give its pixels."""
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
        raw = {"mean": None, "std": None, "out_dtype": types.UINT8}
        found = by_number(list(train(tmp_path, config=config, **raw, **still)))
        for i in range(3):
            np.testing.assert_array_equal(found[i], pixels[i])
        found = by_number(list(train(tmp_path, config=config, **raw, **(still | {"flip": 1}))))
        for i in range(3):
            np.testing.assert_array_equal(found[i], pixels[i][..., ::-1])
    found = by_number(list(Loader(val_pipeline(tmp_path, batch_size=3, size=SIZE, resize=24, device="cpu"))))
    middle = np.asarray(images[0].resize((36, 24), Image.Resampling.BILINEAR).crop((6, 4, 30, 20)))
    assert np.abs(found[0] * std + mean - middle.transpose(2, 0, 1) / 255).max() < 2.5 / 255


@pytest.mark.parametrize("config", ["cifar", None])
def test_layouts_hold_the_same_pixels(folder: Path, config: str | None, device: str) -> None:
    planar = next(iter(train(folder, device, config=config)))
    packed = next(iter(train(folder, device, config=config, out_layout="HWC")))
    assert planar.images.is_contiguous()
    assert packed.images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(planar.images, packed.images)


def test_three_views_of_one_decode(folder: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean view is the image without PRIME, of the same crop and flip; the first augmented one is that of one view."""
    clean, first, second = next(iter(train(folder, device, views=3))).images
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


def windows(count: int, height: int, width: int, ratio: tuple = (3 / 4, 4 / 3)) -> tuple[np.ndarray, np.ndarray]:
    ones = np.ones(count, np.int64)
    return order.random_crops(height * ones, width * ones, np.arange(count), 0 * ones, 5, (0.08, 1.0), ratio)


@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (0.2, 3)])
def test_crops_have_the_laws_of_torchvision(ratio: tuple) -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    count, height, width = 4000, 300, 400
    corner, window = windows(count, height, width, ratio)
    assert (corner >= 0).all()
    assert (corner + window <= [height, width]).all()
    image = torch.empty(3, height, width)
    draw = torchvision.transforms.RandomResizedCrop.get_params
    theirs = np.array([draw(image, [0.08, 1.0], list(ratio)) for _ in range(count)])
    for ours, other in zip(np.concatenate([corner, window], 1).T, theirs.T, strict=True):
        grid = np.arange(0, width, 10)
        distance = np.abs((ours[:, None] <= grid).mean(0) - (other[:, None] <= grid).mean(0)).max()
        assert distance < 1.95 * (2 / count) ** 0.5  # Kolmogorov-Smirnov, 0.1 % of honest runs


def test_shifts_are_uniform() -> None:
    count, padding = 8000, 4
    corners = order.random_shifts(np.arange(count), 3, 5, padding)
    for axis in range(2):
        found = np.bincount(corners[:, axis], minlength=2 * padding + 1)
        assert len(found) == 2 * padding + 1
        assert ((found - count / 9) ** 2 / (count / 9)).sum() < 26.1  # chi square, 8 degrees, 0.1 % of honest runs
    assert abs(np.corrcoef(corners.T)[0, 1]) < 4 / count**0.5


def test_flips_are_fair() -> None:
    count = 4000
    flips = order.random_flips(np.arange(count), np.zeros(count, np.int64), 5, 0.5)
    assert abs(flips.mean() - 0.5) < 4 * 0.5 / count**0.5


@pytest.mark.parametrize(("height", "width", "middle"), [(1, 1, (1, 1)), (10, 20000, (10, 13)), (20000, 10, (13, 10))])
def test_crops_of_images_that_no_attempt_fits(height: int, width: int, middle: tuple[int, int]) -> None:
    corner, window = windows(50, height, width)
    assert (corner >= 0).all()
    assert (window >= 1).all()
    assert (corner + window <= [height, width]).all()
    assert middle in {tuple(w) for w in window.tolist()}


def test_permutations() -> None:
    orders = [order.permutation(seed, epoch, 1000) for seed in (-1, 2) for epoch in (0, 1)]
    for one in orders:
        np.testing.assert_array_equal(np.sort(one), np.arange(1000))
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert (one == other).mean() < 0.02


def test_state_in_the_middle_of_an_epoch(folder: Path, device: str, tmp_path: Path) -> None:
    arguments = {"last_batch": "partial", "batch_size": 3}
    whole = train(folder, device, **arguments)
    expected = [batch for _ in range(3) for batch in whole]
    for done in (0, 2, 4, 5):
        first = train(folder, device, **arguments)
        count = 0
        while count < done:
            for _ in first:
                count += 1
                if count == done:
                    break
        state = pickle.loads(pickle.dumps(first.state_dict()))
        restored = train(folder, device, **arguments)
        next(iter(restored))  # what it did before does not matter
        restored.load_state_dict(state)
        assert restored.epoch == done // 4
        assert_same([batch for _ in range(3 - restored.epoch) for batch in restored], expected[done:])
    torch.save(whole.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt") == whole.state_dict() == json.loads(json.dumps(whole.state_dict()))


@pytest.mark.parametrize("keep", [
    lambda state, path: [torch.save(state, path), torch.load(path)][1],
    lambda state, path: json.loads(json.dumps(state)),
    lambda state, path: {**state, "replaced": {int(k): v for k, v in state["replaced"]}},  # as earlier versions had it
    lambda state, path: {**state, "replaced": {str(k): v for k, v in state["replaced"]}},  # and that through JSON
])  # fmt: skip
def test_a_state_outlives_any_format(keep: Callable, folder: Path, tmp_path: Path) -> None:
    """After a skipped file, and of arguments of NumPy's types."""
    files, labels, _ = dataset.image_folder(folder)
    (tmp_path / "broken.png").write_bytes(b"x")
    files[3] = str(tmp_path / "broken.png")

    def make() -> Loader:
        pipeline = train_pipeline(
            files=files, labels=labels, config=None, device="cpu", batch_size=np.int32(2), size=(16, 16),
            seed=np.int64(5), shuffle=np.bool_(True), last_batch=np.str_("partial"), shard_id=np.int8(0),
            num_shards=np.uint8(1), views=np.int64(1), mean=None, std=None,
        )  # fmt: skip
        return Loader(pipeline, on_error="skip")

    loader, restored = make(), make()
    list(loader)
    assert set(loader.replaced) == {3}
    restored.load_state_dict(keep(loader.state_dict(), tmp_path / "state.pt"))
    assert restored.replaced == loader.replaced
    assert_same(list(restored), list(loader))


def test_a_state_with_the_checkpoint_of_a_source(folder: Path) -> None:
    def make() -> Loader:
        pipeline = train_pipeline(
            config=None, source=reader(folder, True), num_images=np.int64(COUNT), batch_size=2, size=(16, 16),
            device="cpu", seed=5, mean=None, std=None,
        )  # fmt: skip
        return Loader(pipeline)

    loader, restored = make(), make()
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    restored.load_state_dict(state)
    assert_same(list(restored), list(loader))
    for text, message in (("AAAA", "of this DALI and source"), ("no base64!", "base64"), (None, "that of a pipeline of a source, got none")):  # fmt: skip
        with pytest.raises(ValueError, match=f"state: checkpoint: expected .*{message}"):
            restored.load_state_dict({**state, "checkpoint": text})


@pytest.mark.parametrize(("change", "message"), [
    ({"batches": "3"}, r"state: not a state_dict\(\) of a Loader \(batches: expected an int, got str"),
    ({"batches": -1}, "state: batches: expected 0 to"),
    ({"settings": []}, "settings: expected a mapping, got list"),
    ({"settings": {}}, "state: expected one with views 1, got None"),
    ({"replaced": [[0, COUNT]]}, rf"state: replaced: expected numbers of {COUNT} files, .* got \[0, {COUNT}\]"),
    ({"replaced": [[0, 1], [1, 2]]}, r"each with that of a file that is not broken, got \[0, 1\]"),
    ({"replaced": [["a", 1]]}, r"replaced\[0\]\[0\]: expected an int, got str"),
    ({"replaced": {"a": 1}}, "state: replaced: expected pairs of numbers of files"),
    ({"checkpoint": "AAAA"}, "state: checkpoint: expected that of a pipeline of files, without one, got one"),
])  # fmt: skip
def test_a_state_that_is_damaged_changes_nothing(change: dict, message: str, folder: Path) -> None:
    loader = train(folder)
    before, pipeline = loader.state_dict(), loader.pipeline
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict({**before, **change})
    assert loader.state_dict() == before
    assert loader.pipeline is pipeline


def test_an_epoch_left_early_goes_on(folder: Path) -> None:
    loader = train(folder, last_batch="partial", batch_size=3)
    seen = next(iter(loader)).indices.tolist()
    for batch in loader:
        seen += batch.indices.tolist()
    assert sorted(seen) == list(range(COUNT))
    assert loader.epoch == 1


def test_checkpoints_of_the_pipeline_itself(folder: Path, device: str) -> None:
    """Without a Loader, DALI's own checkpoint does."""
    pipeline = train(folder, device).pipeline
    for _ in range(3):
        pipeline.run()
    restored = pipeline.restarted(checkpoint=pipeline.checkpoint())
    for _ in range(3):
        for one, other in zip(pipeline.run(), restored.run(), strict=True):
            np.testing.assert_array_equal(one.as_cpu().as_array(), other.as_cpu().as_array())


def reader(folder: Path, indexed: bool, decoded: bool = False) -> Callable:
    files, _, _ = dataset.image_folder(folder)

    def source():
        encoded, number = fn.readers.file(files=files, labels=list(range(COUNT)), random_shuffle=True, name="files")
        images = fn.decoders.image(encoded) if decoded else encoded
        return images, number // 4, number if indexed else None

    return source


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_source_of_ones_own(folder: Path, indexed: bool, decoded: bool) -> None:
    def loader() -> Loader:
        return train(None, source=reader(folder, indexed, decoded), num_images=COUNT, decoded=decoded, flip=0)

    first = loader()
    assert len(first) == 2
    batches = list(first)
    one = next(iter(first))
    if indexed:
        files = train(folder, flip=0, last_batch="partial")
        for epoch in (batches, [one]):
            expected = by_number(list(files))
            for number, image in by_number(epoch).items():
                np.testing.assert_allclose(image, expected[number], atol=1e-5)
        assert [b.labels.tolist() for b in batches] == [[i // 4 for i in b.indices.tolist()] for b in batches]
    restored = loader()
    state = pickle.loads(pickle.dumps(first.state_dict()))
    restored.load_state_dict(state)
    rest = [*first, *first]
    assert_same([*restored, *restored], rest)
    assert not torch.equal(one.images, rest[0].images)


def test_validation_with_a_source(folder: Path) -> None:
    loader = Loader(val_pipeline(source=reader(folder, True), num_images=COUNT, batch_size=4, size=SIZE, device="cpu"))
    expected = by_number(list(Loader(val_pipeline(folder, batch_size=4, size=list(SIZE), device="cpu"))))
    assert len(loader) == 3
    for images, _, indices in loader:
        for image, number in zip(images, indices.tolist(), strict=True):
            np.testing.assert_array_equal(image.numpy(), expected[number])


def damaged(kind: str, path: Path) -> Path:
    """A file of this kind; its name is returned, with the suffix that goes with it."""
    path = path.with_suffix(".png" if kind in ("palette", "1x1 png") else ".jpg")
    picture().save(path)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "cut in the header":
        path.write_bytes(path.read_bytes()[:100])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("this is no photograph\n" * 20)
    elif kind == "missing":
        path.unlink()
    elif kind == "CMYK":
        picture().convert("CMYK").save(path)
    elif kind == "grayscale":
        picture().convert("L").save(path)
    elif kind == "palette":
        picture().convert("P").save(path)
    elif kind == "16-bit":
        Image.fromarray(np.asarray(picture().convert("L")).astype(np.uint16) * 257).save(path, "PNG")
    elif kind == "floats":
        Image.fromarray(np.asarray(picture().convert("L")).astype(np.float32)).save(path, "TIFF")
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind.startswith("1x1"):
        picture().resize((1, 1)).save(path)
    elif kind == "wide":
        picture(10, 60).resize((20000, 10)).save(path)
    return path


BROKEN = ["truncated", "cut in the header", "empty", "text", "missing"]
REFUSED = ["16-bit", "floats", "pipe", "folder"]


@pytest.fixture(params=["train", "val"])
def make(request: pytest.FixtureRequest) -> Callable[..., Loader]:
    def made(device: str, files: list[Path], on_error: str = "raise", **arguments) -> Loader:
        labels = list(range(len(files)))
        if request.param == "train":
            arguments = {"area": (1, 1), "ratio": (1.5, 1.5)} | arguments  # no crop can miss what is broken
            return train(None, device, on_error, files=files, labels=labels, last_batch="partial", batch_size=2,
                         **arguments)  # fmt: skip
        pipeline = val_pipeline(
            files=files, labels=labels, batch_size=2, size=SIZE, device=device, resize=24, **arguments
        )
        return Loader(pipeline, on_error=on_error)

    made.training = request.param == "train"
    return made


@pytest.fixture
def good(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"good{i}.jpg" for i in range(5)]
    for i, file in enumerate(files):
        picture(seed=i).save(file)
    return files


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [*BROKEN, *REFUSED])
def test_broken_files_are_named(kind: str, make: Callable, good: list[Path], tmp_path: Path, device: str) -> None:
    bad = damaged(kind, tmp_path / "the culprit")
    loader = make(device, [*good[:3], bad, *good[3:]])
    with pytest.raises(
        ValueError, match=r"files: expected images that can be decoded, got .*the culprit\.jpg: ."
    ) as info:
        list(loader)
    assert not any(file.name in str(info.value) for file in good)
    with pytest.raises(RuntimeError, match="the pipeline failed before"):
        list(loader)


@pytest.mark.timeout(60)
def test_broken_files_are_skipped(
    make: Callable, good: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, device: str
) -> None:
    """Five broken ones in a row: the next good file comes in their place, with its own label; all else stays as it is."""
    bad = [damaged(kind, tmp_path / f"bad{i}") for i, kind in enumerate(BROKEN)]
    files = [*good[:2], *bad, *good[2:]]
    loader = make(device, files, "skip")
    with caplog.at_level(logging.WARNING, "prime_dali"):
        epochs = [list(loader) for _ in range(2)]
    assert loader.replaced == {2: 7, 3: 7, 4: 7, 5: 7, 6: 7}
    assert len(caplog.records) == 5
    for i, file in enumerate(bad):
        assert (
            sum(f"bad{i}.jpg" in record.message and "good2.jpg" in record.message for record in caplog.records) == 1
        ), file
    clean = make(device, [*good[:2], *[good[2]] * 5, *good[2:]])
    for epoch in epochs:
        numbers = [n for batch in epoch for n in batch.indices.tolist()]
        assert len(epoch) == len(loader)
        assert sorted(numbers) == [0, 1, 7, 7, 7, 7, 7, 7, 8, 9]
        for batch, other in zip(epoch, clean, strict=True):
            assert torch.equal(batch.labels, batch.indices)
            assert [7 if 2 <= n <= 7 else n for n in other.indices.tolist()] == batch.indices.tolist()
            same = batch.indices == other.indices
            assert torch.equal(batch.images[same], other.images[same])
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    restored = make(device, files)  # under "raise": what was replaced is part of the state
    restored.load_state_dict(state)
    assert_same(list(restored), list(loader))


@pytest.mark.timeout(60)
def test_files_of_other_kinds_and_names_are_skipped(
    make: Callable, good: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the others refuse is skipped, and names are those of any bytes."""
    bad = [damaged(kind, tmp_path / f"bad{i} \udce9") for i, kind in enumerate(["missing", "text", *REFUSED])]
    with caplog.at_level(logging.WARNING, "prime_dali"):
        loader = make("cpu", [*good[:1], *bad, *good[1:]], "skip")
        assert sorted(n for batch in loader for n in batch.indices.tolist()) == [0, *[7] * 7, 8, 9, 10]
    assert loader.replaced == dict.fromkeys(range(1, 7), 7)
    for i in range(len(bad)):
        assert sum(f"bad{i} \\xe9.jpg: " in record.getMessage() for record in caplog.records) == 1


def archive(path: Path, labels: list[bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for i, label in enumerate(labels):
            file = io.BytesIO()
            picture().save(file, "JPEG")
            for suffix, data in (("jpg", file.getvalue()), ("cls", label)):
                info = tarfile.TarInfo(f"{i:03d}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("training", [True, False])
def test_labels_of_a_webdataset(training: bool, tmp_path: Path) -> None:
    def made(labels: list[bytes]) -> list[int]:
        path = archive(tmp_path / "a.tar", labels)

        def source():
            return *fn.readers.webdataset(paths=[str(path)], ext=["jpg", "cls"]), None

        arguments = {
            "source": source,
            "num_images": len(labels),
            "batch_size": len(labels),
            "size": SIZE,
            "device": "cpu",
        }
        pipeline = train_pipeline(**arguments) if training else val_pipeline(**arguments)
        return next(iter(Loader(pipeline))).labels.tolist()

    assert made([b"0", b"7", b"12\n", b"999"]) == [0, 7, 12, 999]
    with pytest.raises(
        RuntimeError, match=r"source: expected labels that are integers, .* got the bytes b'cat'; number"
    ):
        made([b"0", b"cat"])


@pytest.mark.parametrize(("value", "message"), [
    (np.array([3], np.uint8), "expected labels that are integers, or text of one"),
    (np.array(0.5, np.float32), r"expected labels of one integer each, got float32 \[\]"),
    (np.array([1, 2], np.int32), r"expected labels of one integer each, got int32 \[2\]"),
    (np.array(3, np.uint8), None),
    (np.array([3], np.int16), None),
])  # fmt: skip
def test_labels_of_a_source(value: np.ndarray, message: str | None, good: list[Path]) -> None:
    def source():
        files = fn.readers.file(files=[str(file) for file in good[:2]])[0]
        return files, fn.external_source(lambda info: value, batch=False), None

    loader = Loader(val_pipeline(source=source, num_images=2, batch_size=2, size=SIZE, resize=24, device="cpu"))
    if message is None:
        assert next(iter(loader)).labels.tolist() == [3, 3]
        return
    with pytest.raises(RuntimeError, match=message):
        next(iter(loader))


def test_depths_that_a_source_gives(tmp_path: Path) -> None:
    for kind in ("16-bit", "floats"):
        path = damaged(kind, tmp_path / kind)  # the reader maps it: no other one of its name

        def source(path: Path = path):
            return *fn.readers.file(files=[str(path)]), None

        loader = Loader(val_pipeline(source=source, num_images=1, batch_size=1, size=SIZE, resize=24, device="cpu"))
        with pytest.raises(RuntimeError, match=r"images: image 0 of a batch: expected .*; convert it to 8 bits"):
            next(iter(loader))


@pytest.mark.timeout(60)
def test_no_good_file_is_left(make: Callable, tmp_path: Path) -> None:
    bad = [damaged(kind, tmp_path / f"bad{i}") for i, kind in enumerate(BROKEN)]
    with pytest.raises(ValueError, match="files: expected a readable image, got 5 files and none can be decoded"):
        list(make("cpu", bad, "skip"))


@pytest.mark.parametrize("kind", ["CMYK", "grayscale", "palette", "1x1", "1x1 png", "wide"])
def test_odd_files_are_decoded_to_rgb(kind: str, make: Callable, tmp_path: Path, device: str) -> None:
    odd = damaged(kind, tmp_path / "odd")
    with Image.open(odd) as image:
        whole = np.asarray(image.convert("RGB")) / 255
    [(images, _, _)] = make(device, [odd], mean=None, std=None, **({"config": None} if make.training else {}))
    assert images.shape == (1, 3, *SIZE)
    if kind == "wide":  # the window in the middle, or any other of a training crop that finds no window
        assert 0 <= images.min() < images.max() <= 1
    else:
        height, width = whole.shape[:2]
        if not make.training and height > 1:  # 24 x 36, and of that 16 x 24 in the middle
            whole = whole[height // 6 : -(height // 6), width // 6 : -(width // 6)]
        np.testing.assert_allclose(images[0].mean((1, 2)).cpu(), whole.mean((0, 1)), atol=0.02)


def test_orientation_is_that_of_the_camera(make: Callable, tmp_path: Path, device: str) -> None:
    exif = Image.Exif()
    exif[0x112] = 6  # to be turned by a quarter
    picture(*((24, 16) if make.training else (36, 24))).save(
        tmp_path / "turned.jpg",
        exif=exif,
        quality=95,
        subsampling=0,  # a GPU interpolates coarser colors otherwise
    )
    upright = np.asarray(ImageOps.exif_transpose(Image.open(tmp_path / "turned.jpg"))).transpose(2, 0, 1) / 255
    arguments = {"config": None, "flip": 0} if make.training else {}
    upright = upright if make.training else upright[:, 4:20, 6:30]
    [(images, _, _)] = make(device, [tmp_path / "turned.jpg"], mean=None, std=None, **arguments)
    np.testing.assert_allclose(images[0].cpu(), upright, atol=3 / 255)


def test_pillow_and_dali_see_the_same(tmp_path: Path, device: str) -> None:
    """The same file gives the same pixels, up to the rounding of decoders: formats, modes and orientations."""
    whole, files = picture(24, 24), []
    alpha = whole.copy()
    alpha.putalpha(whole.convert("L"))
    best: dict[str, dict] = {"jpg": {"quality": 95, "subsampling": 0}, "webp": {"lossless": True}}
    kept = {"jpg": ("L", "RGB", "CMYK"), "png": ("1", "L", "LA", "P", "RGB", "RGBA"), "tif": ("L", "RGB", "RGBA"),
            "webp": ("RGB", "RGBA"), "bmp": ("1", "L", "P", "RGB"), "ppm": ("RGB",), "pgm": ("L",)}  # fmt: skip
    for suffix, modes in kept.items():
        for mode in modes:
            files.append(tmp_path / f"{mode}.{suffix}")
            (alpha if mode in ("LA", "RGBA") else whole).convert(mode).save(files[-1], **best.get(suffix, {}))
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = turn
        for suffix in ("jpg", "png", "tif", "webp"):
            files.append(tmp_path / f"turned{turn}.{suffix}")
            whole.save(files[-1], exif=exif, **best.get(suffix, {}))
    pipeline = val_pipeline(
        files=files, labels=[0] * len(files), batch_size=len(files), size=(24, 24), resize=24, device=device,
        mean=None, std=None, out_dtype=types.UINT8, out_layout="HWC",
    )  # fmt: skip
    images = next(iter(Loader(pipeline))).images.permute(0, 2, 3, 1).cpu().numpy().astype(int)
    for file, image in zip(files, images, strict=True):
        assert np.abs(image - np.asarray(open_picture(file))).max() <= 3, file.name


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("function", [train_pipeline, val_pipeline])
def test_gpu_that_is_not_there(function: Callable, folder: Path) -> None:
    with pytest.raises(RuntimeError, match="device: expected a usable GPU, got: "):
        function(folder, batch_size=4, device="gpu")


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"folder": None}, ValueError, "folder: expected either folder or files .*, got neither"),
    ({"files": ["a.jpg"], "labels": [0]}, ValueError, "folder: expected either folder or files .*, got both"),
    ({"folder": "/nowhere"}, ValueError, "folder: expected a folder with one folder a class, got '/nowhere', which is not"),
    ({"labels": [0]}, ValueError, "labels: expected None with folder"),
    ({"folder": None, "files": ["a.jpg", "b.jpg"]}, ValueError, "labels: expected one int a file, got None"),
    ({"folder": None, "files": ["a.jpg", "b.jpg"], "labels": [0]}, ValueError, "labels: expected one a file, 2, got 1"),
    ({"folder": None, "files": ["a.jpg"], "labels": [0.5]}, TypeError, "labels: expected ints, got float64"),
    ({"folder": None, "files": [], "labels": []}, ValueError, "files: expected at least one path, got none"),
    ({"folder": None, "files": "a.jpg", "labels": [0]}, TypeError, "files: expected a list of paths, got str"),
    ({"shard_id": 2, "num_shards": 2}, ValueError, "shard_id: expected 0 to 1, got 2"),
    ({"shard_id": 1}, ValueError, "num_shards: expected shard_id and num_shards together"),
    ({"shard_id": 0, "num_shards": 12}, ValueError, "num_shards: expected at most the number of images, 11, got 12"),
    ({"batch_size": 12}, ValueError, "batch_size: expected at most the 11 images of a shard with last_batch='drop', got 12"),
    ({"batch_size": 6, "shard_id": 0, "num_shards": 2}, ValueError, "batch_size: expected at most the 5 images"),
    ({"batch_size": 0}, ValueError, "batch_size: expected 1 to"),
    ({"out_layout": "NCHW"}, ValueError, "out_layout: expected one of 'CHW', 'HWC', got 'NCHW'; did you mean 'CHW'"),
    ({"out_dtype": types.INT32}, TypeError, "out_dtype: expected types.UINT8, FLOAT16 or FLOAT"),
    ({"out_dtype": types.UINT8}, ValueError, "out_dtype: expected FLOAT or FLOAT16 with mean and std, got UINT8"),
    ({"mean": None}, ValueError, "mean: expected three numbers because std is given"),
    ({"size": "224"}, TypeError, r"size: expected \(height, width\) or an int, got .224."),
    ({"last_batch": "dorp"}, ValueError, "last_batch: expected one of .*, got 'dorp'; did you mean 'drop'"),
    ({"device": "cuda"}, ValueError, "device: expected one of 'auto', 'cpu', 'gpu', got 'cuda'"),
    ({"num_threads": 0}, ValueError, "num_threads: expected 1 to"),
    ({"prefetch_queue_depth": 0}, ValueError, "prefetch_queue_depth: expected 1 to"),
    ({"num_images": 3}, ValueError, "num_images: expected None without source"),
    ({"decoded": True}, ValueError, "decoded: expected False without source"),
    ({"source": len}, ValueError, "folder: expected None with source"),
    ({"source": 3, "folder": None}, TypeError, "source: expected a function without arguments, got int"),
    ({"source": len, "folder": None}, ValueError, "num_images: expected the images an epoch of source, got None"),
    ({"source": lambda: 1, "folder": None, "num_images": 4}, TypeError, r"source: expected DataNodes \(.*\), got 1"),
    ({"device_id": 1}, ValueError, "device_id: expected None with device='cpu', got 1"),
    ({"source": len, "folder": None, "num_images": 3}, ValueError, "batch_size: expected at most num_images, 3, got 4"),
])  # fmt: skip
@pytest.mark.parametrize("function", [train_pipeline, val_pipeline])
def test_bad_arguments(function: Callable, arguments: dict, exception: type, message: str, folder: Path) -> None:
    with pytest.raises(exception, match=message):
        function(**({"folder": folder, "batch_size": 4, "device": "cpu", "last_batch": "drop"} | arguments))


@pytest.mark.parametrize(("arguments", "exception", "message"), [
    ({"config": "imagnet"}, ValueError, "did you mean 'imagenet'"),
    ({"views": 2}, ValueError, "views: expected 1 or 3"),
    ({"views": 3, "config": None}, ValueError, r"views: expected 1 without PRIME \(config=None\), got 3"),
    ({"area": (0, 1)}, ValueError, "area: expected 0 < least <= greatest <= 1, got"),
    ({"area": (0.5, 1.5)}, ValueError, "area: expected 0 < least <= greatest <= 1, got"),
    ({"area": 0.5}, TypeError, r"area: expected \(least, greatest\), got 0.5"),
    ({"ratio": (2, 1)}, ValueError, "ratio: expected 0 < least <= greatest, got"),
    ({"flip": 1.5}, ValueError, "flip: expected a probability, 0 to 1, got 1.5"),
    ({"seed": 0.5}, TypeError, "seed: expected an int"),
    ({"source": len, "folder": None, "num_images": 9, "last_batch": "partial"}, ValueError, "last_batch: expected 'drop' or 'fill' with source"),
])  # fmt: skip
def test_bad_arguments_of_training(folder: Path, arguments: dict, exception: type, message: str) -> None:
    with pytest.raises(exception, match=message):
        train_pipeline(**({"folder": folder, "batch_size": 4, "device": "cpu"} | arguments))


def test_the_gpu_needs_a_door_for_prime_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    have = [_devices.Finding(name, name not in ("CuPy", "DALI on the GPU"), name, "get it")
            for name in ("GPU", "CuPy", "DALI", "DALI on the GPU")]  # fmt: skip
    monkeypatch.setattr(_devices, "examine", lambda plugin: have)
    assert _devices.dali_device("auto", native.finding, prime=False) == ("gpu", "GPU")
    assert _devices.dali_device("auto", native.finding) == ("cpu", "DALI on the GPU")
    have[2] = _devices.Finding("DALI", False, "not installed", "get DALI")
    with pytest.raises(RuntimeError, match=r"device: expected a usable GPU, got: DALI: not installed\. get DALI"):
        _devices.dali_device("gpu", native.finding, prime=False)


def test_bad_size_to_resize_to(folder: Path) -> None:
    with pytest.raises(ValueError, match="resize: expected 224 to 4096, got 200"):
        val_pipeline(folder, batch_size=4, resize=200, device="cpu")


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"folder: expected one folder a class in .*, got none"):
        train_pipeline(tmp_path, batch_size=4)
    (tmp_path / "loose.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"folder: expected one folder a class in .*, got none"):
        train_pipeline(tmp_path, batch_size=4)
    (tmp_path / "cats").mkdir()
    with pytest.raises(ValueError, match=r"folder: expected images \(.*\) of each class, got none of 'cats'"):
        train_pipeline(tmp_path, batch_size=4)


def test_bad_arguments_of_the_loader(folder: Path) -> None:
    loader = train(folder)
    with pytest.raises(TypeError, match="pipeline: expected one of train_pipeline or val_pipeline, got str"):
        Loader("train")
    with pytest.raises(ValueError, match="on_error: expected one of 'raise', 'skip', got 'skipp'; did you mean 'skip'"):
        Loader(loader.pipeline, on_error="skipp")
    with pytest.raises(ValueError, match="on_error: expected 'raise' with source"):
        train(None, source=reader(folder, True), num_images=COUNT, on_error="skip")
    with pytest.raises(TypeError, match="state: expected a state_dict"):
        loader.load_state_dict({"model": 1})
    for name, other in (("seed", {"seed": 6}), ("batch_size", {"batch_size": 3}), ("views", {"views": 3}),
                        ("num_shards", {"shard_id": 0, "num_shards": 2})):  # fmt: skip
        with pytest.raises(ValueError, match=f"state: expected one with .*{name}|state: expected one with batches"):
            loader.load_state_dict(train(folder, **other).state_dict())


def test_shards_of_torch_distributed(folder: Path, tmp_path: Path) -> None:
    assert dataset.shard(None, None) == (0, 1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        torch.distributed.get_rank, get_rank = (lambda: 2), torch.distributed.get_rank
        torch.distributed.get_world_size, get_world_size = (lambda: 3), torch.distributed.get_world_size
        assert dataset.shard(None, None) == (2, 3)
        assert train(folder, batch_size=3).pipeline.data.shard_id == 2
    finally:
        torch.distributed.get_rank, torch.distributed.get_world_size = get_rank, get_world_size
        torch.distributed.destroy_process_group()
