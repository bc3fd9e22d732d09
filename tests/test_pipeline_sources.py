"""Pipelines of a source of one's own: its images, labels and numbers."""

from __future__ import annotations

import io
import pickle
import re
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

import pipelining
from nvidia.dali import fn
from pipelining import COUNT, SIZE, assert_same, by_number, damaged, picture, reader, train, validate

from prime_dali.dali import Loader, Source

folder, good = pipelining.folder, pipelining.good  # fixtures
LABEL = np.int64(0)


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_source_of_ones_own(folder: Path, indexed: bool, decoded: bool) -> None:
    def loader() -> Loader:
        return train(Source(reader(folder, indexed, decoded), num_images=COUNT, decoded=decoded), flip=0)

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


def test_ranks_of_a_source_without_numbers_draw_apart(folder: Path) -> None:
    def numbers(rank: int) -> list[int]:
        source = Source(reader(folder, False), num_images=COUNT, shard_id=rank, num_shards=2)
        return [number for batch in train(source) for number in batch.indices.tolist()]

    assert numbers(0) == numbers(0)
    assert not set(numbers(0)) & set(numbers(1))


def test_validation_with_a_source(folder: Path) -> None:
    loader = validate(Source(reader(folder, True), num_images=COUNT))
    expected = by_number(list(validate(folder, size=list(SIZE))))
    assert len(loader) == 3
    for images, _, indices in loader:
        for image, number in zip(images, indices.tolist(), strict=True):
            np.testing.assert_array_equal(image.numpy(), expected[number])


@pytest.mark.parametrize("make", [train, partial(train, config=None), validate])
def test_decoded_images_are_uint8_hwc(make: Callable) -> None:
    """Floats would be divided by 255 once more, and the axes of others be mistaken."""

    def first(image: np.ndarray, **output: Any) -> torch.Tensor:
        def source():
            return (
                fn.external_source(lambda _: image, batch=False),
                fn.external_source(lambda _: LABEL, batch=False),
                None,
            )

        return next(iter(make(Source(source, num_images=4, decoded=True), size=SIZE, **output))).images

    pixels = np.asarray(picture())
    plain = {"mean": None, "std": None}
    assert first(pixels).shape == (4, 3, *SIZE)
    for channels in (1, 4, 16):
        assert first(np.tile(pixels, 6)[..., :channels].copy(), **plain).shape == (4, channels, *SIZE)
    for image in (
        pixels.astype(np.float32) / 255, pixels.astype(np.uint16), pixels.transpose(2, 0, 1).copy(), pixels[..., 0].copy(),
        pixels.ravel(), pixels[..., :0].copy(), np.tile(pixels, 6)[..., :17].copy(),
    ):  # fmt: skip
        got = f"got {image.dtype} {re.escape(str(list(image.shape)))}"
        with pytest.raises(RuntimeError, match=f"images: image 0 of a batch: expected uint8 HWC .*, {got}; convert it"):
            first(image, **plain)
    with pytest.raises(RuntimeError, match=r"expected 3 channels, .*, got 1; .* or give mean=None"):
        first(pixels[..., :1].copy())


def test_a_source_that_ends_or_fails(good: list[Path]) -> None:
    """Its outputs are then not of one batch, so a loop cannot go on: labels would be those of other images."""

    def loader(end: Exception) -> Loader:
        def label(info):
            if info.idx_in_epoch == 6:
                raise end
            return np.int64(info.idx_in_epoch)

        def source():
            files = [str(file) for file in good[:2]]
            return [*fn.readers.file(files=files)[:1], fn.external_source(label, batch=False), None]

        return train(Source(source, num_images=8), batch_size=4, prefetch_queue_depth=1)

    ended, failed = loader(StopIteration()), loader(OSError("the network is away"))
    assert [next(iter(one)).labels.tolist() for one in (ended, failed)] == [[0, 1, 2, 3]] * 2
    with pytest.raises(RuntimeError, match="source: expected batches without an end, got one after 1 batch; give fn"):
        next(iter(ended))
    with pytest.raises(OSError, match="the network is away"):
        next(iter(failed))
    for one in (ended, failed):
        with pytest.raises(RuntimeError, match="the pipeline has failed"):
            next(iter(one))


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

        loader = (train if training else validate)(Source(source, num_images=len(labels)), batch_size=len(labels))
        return next(iter(loader)).labels.tolist()

    assert made([b"0", b"7", b"12\n", b"999"]) == [0, 7, 12, 999]
    with pytest.raises(RuntimeError, match=r"source: expected labels that are integers, .* got the bytes b'cat'; "):
        made([b"0", b"cat"])


@pytest.mark.parametrize(("value", "message"), [
    (np.array([3], np.uint8), "expected labels that are integers, or their text"),
    (np.array(0.5, np.float32), r"expected labels of one integer each, got float32 \[\]"),
    (np.array([1, 2], np.int32), r"expected labels of one integer each, got int32 \[2\]"),
    (np.array(2**63, np.uint64), "expected labels that fit int64, got 9223372036854775808"),
    (np.array(3, np.uint8), None),
    (np.array([3], np.int16), None),
])  # fmt: skip
def test_labels_of_a_source(value: np.ndarray, message: str | None, good: list[Path]) -> None:
    def source():
        files = fn.readers.file(files=[str(file) for file in good[:2]])[0]
        return files, fn.external_source(lambda info: value, batch=False), None

    loader = validate(Source(source, num_images=2), batch_size=2, resize=24)
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

        loader = validate(Source(source, num_images=1), batch_size=1, resize=24)
        with pytest.raises(RuntimeError, match=r"images: image 0 of a batch: expected .*; convert it to 8 bits"):
            next(iter(loader))
