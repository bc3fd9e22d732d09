"""Broken files, which are named or skipped, and odd ones, which are read as Pillow reads them."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from prime_dali.data.pictures import open_picture
from prime_dali.data.records import Records
from prime_dali.data.shards import SPAN

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

import pipelining
from nvidia.dali import types
from pipelining import BROKEN, REFUSED, SIZE, assert_same, damaged, picture, validate

from prime_dali.dali.dataset import EpochSampling, Images

device, good, make = pipelining.device, pipelining.good, pipelining.make  # fixtures


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
    with pytest.raises(RuntimeError, match="the pipeline has failed"):
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


def test_files_that_break_later_are_replaced_too() -> None:
    """Also those that are read in the place of others; after the last file comes the first."""
    records = Records([f"{i}.jpg" for i in range(5)], np.arange(5))
    images = Images(records, EpochSampling(0, False, 1, 0, 1, "partial"))
    images.replace([3])
    assert images.replaced == {3: 4}
    images.replace([4])
    assert images.replaced == {3: 0, 4: 0}
    assert [int(images.numbers(step)[0][0]) for step in range(5)] == [0, 1, 2, 0, 0]


def test_images_of_shards_are_read_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there are threads that read them."""
    records = Records([], np.arange(20), spans=np.zeros(20, SPAN))
    monkeypatch.setattr(records, "encoded", lambda number: bytes([number]))
    encoded, labels, indices, _ = Images(records, EpochSampling(3, True, 20, 0, 1, "partial")).feed(0)
    assert [int(one[0]) for one in encoded] == labels.tolist() == indices.tolist() != list(range(20))


@pytest.mark.timeout(60)
def test_a_loader_that_has_failed_goes_on_from_a_state(make: Callable, good: list[Path], tmp_path: Path) -> None:
    files = [*good[:3], damaged(BROKEN[0], tmp_path / "bad"), *good[3:]]
    loader = make("cpu", files)
    state = loader.state_dict()
    with pytest.raises(ValueError, match="files: expected images"):
        list(loader)
    loader.load_state_dict({**state, "replaced": [[3, 4]]})
    assert [n for batch in loader for n in batch.indices.tolist()].count(4) == 2


@pytest.mark.timeout(60)
def test_no_good_file_is_left(make: Callable, tmp_path: Path) -> None:
    bad = [damaged(kind, tmp_path / f"bad{i}") for i, kind in enumerate(BROKEN)]
    with pytest.raises(ValueError, match="files: expected a readable image, got 5 files, none of which can be decoded"):
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
    loader = validate(
        None, device, files=files, labels=[0] * len(files), batch_size=len(files), size=(24, 24), resize=24,
        mean=None, std=None, dtype=types.UINT8, layout="HWC",
    )  # fmt: skip
    images = next(iter(loader)).images.permute(0, 2, 3, 1).cpu().numpy().astype(int)
    for file, image in zip(files, images, strict=True):
        assert np.abs(image - np.asarray(open_picture(file))).max() <= 3, file.name
