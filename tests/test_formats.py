"""Data sets in shards: the same batches as of class folders, in every format; damaged ones are named."""

from __future__ import annotations

import doctest
import gzip
import importlib.util
import json
import logging
import os
import pickle
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

import converting
from converting import FORMATS, labeled, members, write, write_folder
from pipelining import SIZE, assert_same, damaged

from prime_dali.dali import Augmentation, Execution, Loader, RandomCrop, Reader, train_pipeline, val_pipeline
from prime_dali.data import formats
from prime_dali.data.formats import open_records
from prime_dali.data.records import joined
from prime_dali.data.shards import ShardError

COUNT = 11
SAMPLES = converting.samples(COUNT)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("formats")
    write_folder(root / "folder" / "train", SAMPLES)
    return root


@pytest.fixture(scope="module")
def shards_by_kind(root: Path) -> dict[str, Path]:
    return {kind: write(kind, root / kind, "train", SAMPLES) for kind in FORMATS}


@pytest.fixture(params=FORMATS)
def shards(request: pytest.FixtureRequest, shards_by_kind: dict[str, Path]) -> Path:
    return shards_by_kind[request.param]


def loader(data: Path, on_error: str = "raise", batch_size: int = 3, **reading: object) -> Loader:
    reader = Reader(data, split="train", **({"last_batch": "partial"} | reading))  # type: ignore[arg-type]
    pipeline = train_pipeline(
        reader, Augmentation("cifar"), batch_size=batch_size, seed=5, crop=RandomCrop(SIZE),
        execution=Execution("cpu", num_threads=2),
    )  # fmt: skip
    return Loader(pipeline, on_error=on_error)


def test_every_format_gives_the_batches_of_the_folder(root: Path, shards: Path) -> None:
    """Images, order, crops, flips and PRIME, to the bit, in two epochs; labels by name."""
    one, other = (loader(data, batch_size=9) for data in (root / "folder", shards))  # more than threads that read
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


def test_records_survive_processes_and_join(root: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers get them by fork or by pickle, whatever has been read before; no shard needs to stay open."""
    monkeypatch.setattr("prime_dali.data.records._OPEN", 0)
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
    with pytest.raises(
        FileNotFoundError, match=r"in-train-0011.tar: expected .* found none of the pattern .*0008\.\.0011"
    ):
        open_records(tmp_path / "in-train-{0008..0011}.tar")
    with pytest.raises(ValueError, match="expected a folder with all parts of the data set, train and val, got shards"):
        open_records(pattern, "train")
    with pytest.raises(FileNotFoundError, match=r"expected one folder of images per class here, .*\(train or training"):
        open_records(root, "train")
    for name in ("train-00000-of-00003.tfrecord", "train-00002-of-00003.tfrecord"):
        (tmp_path / "gap").mkdir(exist_ok=True)
        converting.write_records(tmp_path / "gap" / name, SAMPLES[:1])
    with pytest.raises(FileNotFoundError, match=r"expected all of 3 shards, missing 1: train-00001-of-00003.tfrecord"):
        open_records(tmp_path / "gap")


def test_examples() -> None:
    assert doctest.testmod(formats) == (0, 2)


def test_class_folders_stay_class_folders(tmp_path: Path) -> None:
    """Also with the archives beside them that they came from."""
    write_folder(tmp_path, SAMPLES)
    members(tmp_path / "a.tar", ("0.jpg", SAMPLES[0][0]))
    assert len(open_records(tmp_path)) == COUNT


# Damage.


def cut(shard: Path, count: int) -> None:
    shard.write_bytes(shard.read_bytes()[:count])


def shards_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if formats.kind(path))


MIDDLE = {
    "webdataset": r"ends at byte \d+, in the middle of a record before byte|expected an uncompressed tar file, got 700 bytes|at byte \d+, but the shard ends there",
    "tfrecord": r"ends at byte \d+, in the middle of the record at byte \d+",
    "parquet": r"expected a Parquet file, which ends in the middle of a record",
    "huggingface": r"ends at byte \d+ in the middle of a record",
}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_shard_that_ends_early_is_named(
    kind: str, root: Path, shards_by_kind: dict[str, Path], tmp_path: Path
) -> None:
    """Wherever it is cut, also between two records if the format has an end mark."""
    whole = shards_of(shards_by_kind[kind])[1]
    if kind == "webdataset":
        with tarfile.open(whole) as tar:
            last = tar.getmembers()[-1]
        places = [700, last.offset + 40, last.offset, last.offset_data + 1, last.offset_data + 512]
    else:
        size = whole.stat().st_size
        places = [size // 2, size - 1] + ([size - 8] if kind == "huggingface" else [])
    for place in places:
        shard = tmp_path / whole.name
        shard.write_bytes(whole.read_bytes()[:place])
        with pytest.raises(ShardError, match=rf"{re.escape(whole.name)}: .*({MIDDLE[kind]})"):
            open_records(shard)
    shard.write_bytes(b"")
    with pytest.raises(ShardError, match=rf"{re.escape(whole.name)}: expected images, got an empty shard"):
        open_records(shard)


def test_records_that_change_under_a_loader_are_named_or_skipped(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped bit in a TFRecord, found by its checksum, an image that is none, and one of 16 bits."""
    samples = [*SAMPLES[:3], (b"no image at all", "a", "jpg"), (sixteen_bits(tmp_path), "a", "png"), *SAMPLES[3:]]
    path = tmp_path / "train.tfrecord"
    converting.write_records(path, samples)
    content = bytearray(path.read_bytes())
    for number in (1, 10):  # the latter in a batch that is read ahead
        content[int(open_records(path).spans["start"][number]) + 900] ^= 1
    path.write_bytes(content)

    def reading(on_error: str) -> Loader:
        return Loader(val_pipeline(Reader(path), batch_size=4, execution=Execution("cpu")), on_error=on_error)

    with pytest.raises(
        ValueError, match=r"files: expected images .* image 1 \(byte \d+\): damaged: .*image 3 .*cannot be decoded"
    ):
        list(reading("raise"))
    with caplog.at_level(logging.WARNING, "prime_dali"):
        seen = [n for batch in reading("skip") for n in batch.indices.tolist()]
    assert seen == [0, 2, 2, 5, 5, *range(5, 10), 11, 11, 12]
    assert "expected 8 bits per channel, got 16" in caplog.text


def sixteen_bits(folder: Path) -> bytes:
    return damaged("16-bit", folder / "deep").read_bytes()


def test_bad_samples_of_a_webdataset(tmp_path: Path) -> None:
    image = SAMPLES[0][0]
    one, label = ("0.jpg", image), ("0.cls", b"1")
    for named, message in (
        ([label], "sample '0': expected one image, got the members cls"),
        ([one, ("0.png", image), label], "sample '0': expected one image, got the members cls, jpg, png"),
        ([("0.jpg", b""), label], "sample '0': expected an image, got an empty member"),
        ([one, one, label], "expected each name once, but '0.jpg' comes again at byte"),
        ([one, label, ("1.jpg", image), ("1.cls", b"1"), label], "but the key '0' comes again at byte"),
        ([("README", b"no samples")], "expected images, got an empty shard"),
    ):
        path = members(tmp_path / "a.tar", *named)
        with pytest.raises(ShardError, match=re.escape(message)):
            open_records(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ShardError, match=r"a.tar: expected an uncompressed tar file"):
        open_records(path)


def test_bad_columns(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    image = SAMPLES[0][0]
    for columns, message in (
        ({"image": [image]}, "labels missing: expected a column label, .* got image; label= or --label names another"),
        ({"image": [image], "label": [0.5]}, "expected integers or class names in 'label', got double"),
        ({"image": [image, image], "label": [0, None]}, "labels missing: expected one in each row of 'label', got nulls"),
        ({"image": [image], "label": [-1]}, "labels missing: expected integers from 0, got -1"),
        ({"photo": [image], "label": [0]}, "expected a column of images, such as image, .* got photo, label"),
        ({"image": ["a.jpg"], "label": [0]}, "expected encoded images, binary or struct with bytes, in 'image', got string"),
        ({"image": [{"bytes": None, "path": "a.jpg"}], "label": [0]}, "expected the bytes of an image|got null"),
        ({"image": [{"bytes": b"", "path": "a.jpg"}], "label": [0]}, "expected the bytes of an image in each row, got none"),
    ):  # fmt: skip
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        with pytest.raises(ShardError, match=message):
            open_records(tmp_path / "a.parquet")
    table = pa.table({"image": [image], "label": [0]})
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema, options=options) as stream,
    ):
        stream.write_table(table)
    with pytest.raises(ShardError, match="expected an uncompressed Arrow file, got a compressed one"):
        open_records(tmp_path / "a.arrow")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as stream:
        stream.write_table(table)
    assert open_records(tmp_path / "a.arrow").encoded(0) == image


def test_sets_that_do_not_fit_together(root: Path, tmp_path: Path) -> None:
    image = SAMPLES[0][0]
    members(tmp_path / "a.tar", ("0.jpg", image), ("0.cls", b"1"))
    converting.write_records(tmp_path / "a.tfrecord", SAMPLES[:1])
    with pytest.raises(ShardError, match=r"expected shards of one format, .* got TFRecord, WebDataset"):
        open_records(tmp_path)
    (tmp_path / "a.tar.gz").write_bytes(b"x")
    with pytest.raises(ShardError, match=r"a.tar.gz: expected shards of one format, .* got an unknown one"):
        open_records(tmp_path / "a.tar.gz")
    with pytest.raises(ShardError, match="expected each shard once, got 2 names, some of the same one"):
        open_records(str(tmp_path / "{a,a}.tar"))
    for arguments, message in (
        ({"split": "trian"}, "split: expected one of 'train', 'val', got 'trian'"),
        (
            {"label": "x", "files": ["a.jpg"], "labels": [0], "folder": None},
            "label: expected None without a path in folder",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            Reader(**({"folder": tmp_path} | arguments))  # type: ignore[arg-type]


def test_a_data_set_of_no_shards(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"_data_files": []}')
    with pytest.raises(ValueError, match=r"expected one subfolder per class in .*, or shards, got none"):
        open_records(tmp_path)


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(ImportError, match=r"a.parquet: Parquet needs pyarrow, .*: pip install 'prime-dali\[formats\]'"):
        open_records(tmp_path)


def test_an_index_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one is kept, and made again for another file; a damaged one in the cache too."""
    monkeypatch.setenv("PRIME_DALI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(formats, "_WORTH", 0)
    made: list[str] = []
    index = formats._INDEX["WebDataset"]
    monkeypatch.setitem(formats._INDEX, "WebDataset", lambda *a: made.append(a[0]) or index(*a))
    path = labeled(tmp_path / "a.tar", SAMPLES[0][0], ("cls", b"x"), ("cls", b"y"))
    first, second = open_records(path), open_records(path)
    assert len(made) == 1
    assert first.identity() == second.identity()
    assert second.encoded(1) == SAMPLES[0][0]
    (kept,) = (tmp_path / "cache" / "index").iterdir()
    cut(kept, 100)
    assert open_records(path).classes == ("x", "y")
    labeled(path, SAMPLES[0][0], ("cls", b"z"))
    assert open_records(path).classes == ("z",)
    assert len(made) == 3
