"""Data sets in shards: the same batches as of class folders, in every format; damaged ones are named."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

import sharding
from pipelining import SIZE, assert_same, damaged
from sharding import FORMATS, example, members, record, write, write_folder

from prime_dali.dali import Augmentation, Execution, Loader, RandomCrop, Reader, train_pipeline, val_pipeline
from prime_dali.data import formats
from prime_dali.data.formats import open_records
from prime_dali.data.records import Records, joined
from prime_dali.data.shards import ShardError, masked_crc

COUNT = 11
SAMPLES = sharding.samples(COUNT)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("formats")
    write_folder(root / "folder" / "train", SAMPLES)
    return root


@pytest.fixture(scope="module", params=FORMATS)
def shards(request: pytest.FixtureRequest, root: Path) -> Path:
    return write(request.param, root / request.param, "train", SAMPLES)


def loader(data: Path, on_error: str = "raise", batch_size: int = 3, **reading: object) -> Loader:
    reader = Reader(data, split="train", **({"last_batch": "partial"} | reading))  # type: ignore[arg-type]
    pipeline = train_pipeline(
        reader, Augmentation("cifar"), batch_size=batch_size, seed=5, crop=RandomCrop(SIZE),
        execution=Execution("cpu", num_threads=2),
    )  # fmt: skip
    return Loader(pipeline, on_error=on_error)


def test_every_format_gives_the_batches_of_the_folder(root: Path, shards: Path) -> None:
    """Images, order, crops, flips and PRIME, to the bit, in two epochs; labels by name."""
    one, other = loader(root / "folder"), loader(shards)
    classes = one.pipeline.classes, other.pipeline.classes
    assert set(classes[0]) == set(classes[1]) == set("abc")
    for batch, expected in zip([*other, *other], [*one, *one], strict=True):
        assert torch.equal(batch.images, expected.images)
        assert torch.equal(batch.indices, expected.indices)
        assert [classes[1][k] for k in batch.labels.tolist()] == [classes[0][k] for k in expected.labels.tolist()]


def test_an_epoch_over_two_ranks_and_its_middle(shards: Path) -> None:
    """Every image exactly once per epoch; a state resumes in the middle of one, in a loader of its own."""
    ranks = [loader(shards, shard_id=rank, num_shards=2) for rank in range(2)]
    for _ in range(2):
        seen = [number for rank in ranks for batch in rank for number in batch.indices.tolist()]
        assert sorted(seen) == list(range(COUNT))
    for batches in (1, 3):
        first, resumed = (loader(shards, shard_id=1, num_shards=2) for _ in range(2))
        for _ in range(batches):
            next(iter(first))
        resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert_same([*resumed, *resumed], [*first, *first])


def test_validation_is_in_the_order_of_the_shards(shards: Path) -> None:
    pipeline = val_pipeline(Reader(shards, split="train"), batch_size=4, execution=Execution("cpu"))
    assert [n for batch in Loader(pipeline) for n in batch.indices.tolist()] == list(range(COUNT))


def test_records_survive_processes_and_join(root: Path, shards: Path) -> None:
    """Workers get them by fork or by pickle, whatever has been read before."""
    files, own = open_records(root / "folder", "train"), open_records(shards, "train")
    both = pickle.loads(pickle.dumps(joined([files, own])))
    assert [both.encoded(i) for i in range(2 * COUNT)] == [content for content, _, _ in SAMPLES] * 2
    assert both.name(0).endswith(os.path.join("a", "00.jpg"))
    assert "image 0 (byte" in both.name(COUNT)
    some = own.select(np.array([7, 2]), np.array([0, 1]), ("x", "y"))
    assert [some.encoded(i) for i in range(2)] == [SAMPLES[7][0], SAMPLES[2][0]]
    assert len({files.identity(), own.identity(), some.identity()}) == 3
    reader, writer = os.pipe()
    if os.fork() == 0:  # after a read here: descriptors are shared, positions are not used
        os.write(writer, own.encoded(5)[:100])
        os._exit(0)
    assert os.read(reader, 100) == own.encoded(5)[:100]
    os.wait()


# Which files.


def test_patterns_and_names_of_parts(root: Path, tmp_path: Path) -> None:
    for number in range(8, 11):
        members(tmp_path / f"in-train-{number:04d}.tar", ("0.jpg", SAMPLES[0][0]), ("0.cls", b"1"))
    members(tmp_path / "in-val-0000.tar", ("0.jpg", SAMPLES[0][0]), ("0.cls", b"0"))
    pattern = str(tmp_path / "in-train-{0008..0010}.tar")
    assert [Path(file).name for file in open_records(pattern).files] == [f"in-train-{n:04d}.tar" for n in range(8, 11)]
    assert open_records(tmp_path / "in-train-*.tar").files == open_records(pattern).files
    assert open_records(tmp_path, "train").files == open_records(pattern).files
    assert open_records(tmp_path, "val").labels.tolist() == [0]
    assert open_records(tmp_path / "in-val-0000.tar").files == [str(tmp_path / "in-val-0000.tar")]
    with pytest.raises(FileNotFoundError, match=r"in-train-0011.tar: expected .* found none of the pattern .*0008\.\.0011"):
        open_records(tmp_path / "in-train-{0008..0011}.tar")
    with pytest.raises(ValueError, match="expected a folder with all parts of the data set, train and val, got shards"):
        open_records(pattern, "train")
    with pytest.raises(FileNotFoundError, match=r"expected one folder of images per class here, .*\(train or training"):
        open_records(root, "train")
    for name in ("train-00000-of-00003.tfrecord", "train-00002-of-00003.tfrecord"):
        (tmp_path / "gap").mkdir(exist_ok=True)
        sharding.write_records(tmp_path / "gap" / name, SAMPLES[:1])
    with pytest.raises(FileNotFoundError, match=r"expected all of 3 shards, missing 1: train-00001-of-00003.tfrecord"):
        open_records(tmp_path / "gap")


def test_class_folders_stay_class_folders(tmp_path: Path) -> None:
    """Also with the archives beside them that they came from."""
    write_folder(tmp_path, SAMPLES)
    members(tmp_path / "a.tar", ("0.jpg", SAMPLES[0][0]))
    assert len(open_records(tmp_path)) == COUNT


# Labels.


def tar(path: Path, *labels: tuple[str, bytes]) -> Path:
    """A sample a label; each is an extension and its content."""
    image = SAMPLES[0][0]
    return members(path, *(m for i, (suffix, text) in enumerate(labels) for m in ((f"{i}.jpg", image), (f"{i}.{suffix}", text))))


def test_labels_of_a_webdataset(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", ("cls", b"0"), ("cls", b"2\n"), ("json", b'{"label": 1}'))
    assert open_records(path).labels.tolist() == [0, 2, 1]
    assert open_records(path).classes == ()
    (tmp_path / "classes.txt").write_text("x\ny\nz\n")
    assert open_records(path).classes == ("x", "y", "z")
    (tmp_path / "classes.txt").write_text("x\ny\n")
    with pytest.raises(ShardError, match="a.tar: expected labels below 2, the number of class names, got 2"):
        open_records(path)
    path = tar(tmp_path / "b.tar", ("json", b'{"label": 7, "kind": "y"}'), ("kind", b"x"))
    found = open_records(path, label="kind")
    assert (found.labels.tolist(), found.classes) == ([1, 0], ("x", "y"))


@pytest.mark.parametrize(("labels", "message"), [
    ([("txt", b"a cat")], r"sample '0': labels missing: expected a member cls, or label, cls or class in json; label="),
    ([("cls", b"")], "sample '0': expected a label, got an empty member"),
    ([("json", b'{"label": 0.5}')], "sample '0': expected an integer or a class name in 'label', got 0.5"),
    ([("json", b"{")], "sample '0': expected JSON, got other text"),
    ([("cls", b"1"), ("cls", b"cat")], "expected integers or class names as labels, got both"),
    ([("cls", b"1"), ("json", b'{"label": -1}')], "labels missing: expected integers from 0, got -1"),
])  # fmt: skip
def test_bad_labels_of_a_webdataset(labels: list, message: str, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=rf"a\.tar: .*{message}"):
        open_records(tar(tmp_path / "a.tar", *labels))


def test_labels_of_tfrecords(tmp_path: Path) -> None:
    """Integers, packed or not, of any size; another feature by name."""
    path = tmp_path / "a.tfrecord"
    image = SAMPLES[0][0]
    unpacked = example({"image": image, "label": 300}).replace(sharding.field(1, sharding.varint(300)), b"\x08\xac\x02\0"[:3] + b"")
    path.write_bytes(record(example({"image": image, "label": 300, "other": 2})))
    assert open_records(path).labels.tolist() == [300]
    assert open_records(path, label="other").labels.tolist() == [2]
    del unpacked


def test_known_bytes_of_a_tfrecord() -> None:
    """A record of tf.io.TFRecordWriter, and the check value of CRC-32C (RFC 3720, B.4: 32 bytes of zero)."""
    google_crc32c = pytest.importorskip("google_crc32c")
    assert google_crc32c.value(bytes(32)) == 0x8A9136AA
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    assert record(b"x")[:8] == struct.pack("<Q", 1)
