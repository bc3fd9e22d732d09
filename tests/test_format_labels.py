"""Labels and class names of shards, and records of other programs."""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

import converting
from converting import example, field, labeled, members, record, varint
from nvidia.dali import Pipeline, fn
from nvidia.dali import tfrecord as tfrec

from prime_dali.data.formats import open_records
from prime_dali.data.shards import ShardError

SAMPLES = converting.samples(3)
IMAGE = SAMPLES[0][0]


def test_labels_of_a_webdataset(tmp_path: Path) -> None:
    path = labeled(tmp_path / "a.tar", IMAGE, ("cls", b"0"), ("cls", b"2\n"), ("json", b'{"label": 1}'))
    assert open_records(path).labels.tolist() == [0, 2, 1]
    assert open_records(path).classes == ()
    (tmp_path / "classes.txt").write_text("x\ny\nz\n")
    assert open_records(path).classes == ("x", "y", "z")
    (tmp_path / "classes.txt").write_text("x\ny\n")
    with pytest.raises(ShardError, match=r"a\.tar: expected labels below 2, the number of class names, got 2"):
        open_records(path)
    (tmp_path / "classes.txt").write_text("x\nx\ny\n")
    with pytest.raises(ValueError, match=r"classes\.txt: expected the name of a class in each line, got some twice"):
        open_records(path)
    (tmp_path / "classes.txt").write_text("x\n\ny\nz\n")  # which is 1?
    with pytest.raises(ValueError, match=r"expected the name of a class in each line, got an empty one"):
        open_records(path)
    (tmp_path / "classes.txt").unlink()
    path = labeled(tmp_path / "b.tar", IMAGE, ("json", b'{"label": 7, "kind": "y"}'), ("kind", b"x"))
    found = open_records(path, label="kind")
    assert (found.labels.tolist(), found.classes) == ([1, 0], ("x", "y"))


def test_other_members_of_a_webdataset_are_no_samples(tmp_path: Path) -> None:
    others = [("README", b"about"), (".hidden.png", b""), ("__about__.json", b"{}"), ("dir/__worker.png", b"")]
    path = members(tmp_path / "a.tar", *others, ("0.png", IMAGE), ("0.cls", b"3"))
    assert open_records(path).labels.tolist() == [3]


def test_names_of_the_members_of_a_webdataset(tmp_path: Path) -> None:
    """Keys end at the first dot and have their folder; extensions are in any case, an image's is the last one."""
    named = ("x/0.JPG", IMAGE), ("x/0.CLS", b"5"), ("y/0.photo.png", IMAGE), ("y/0.json", b'{"label": 6, "json": 7}')
    path = members(tmp_path / "a.tar", *named)
    assert open_records(path).labels.tolist() == [5, 6]
    assert open_records(members(tmp_path / "b.tar", *named[2:]), label="json").labels.tolist() == [7]
    with tarfile.open(path, "a") as tar:
        folder = tarfile.TarInfo("photos.v1")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    assert len(open_records(path)) == 2


@pytest.mark.parametrize(("labels", "message"), [
    ([("txt", b"a cat")], r"sample '0': labels missing: expected a member cls, or label, cls or class in json, got neither; label="),
    ([("cls", b"caf\xe9")], r"sample '0': expected a label that is UTF-8 text, got b'caf.xe9'"),
    ([("cls", b"")], "sample '0': expected a label, got an empty member"),
    ([("json", b'{"label": 0.5}')], "sample '0': expected an integer or a class name in 'label', got 0.5"),
    ([("json", b'{"label": true}')], "sample '0': expected an integer or a class name in 'label', got True"),
    ([("json", b"{")], "sample '0': expected JSON, got other text"),
    ([("cls", b"1"), ("cls", b"cat")], "expected integers or class names as labels, got both"),
    ([("cls", b"-1")], "labels missing: expected integers from 0, got -1"),
    ([("cls", b"1"), ("json", b'{"label": -1}')], "labels missing: expected integers from 0, got -1"),
])  # fmt: skip
def test_bad_labels_of_a_webdataset(labels: list, message: str, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=rf"a\.tar: .*{message}"):
        open_records(labeled(tmp_path / "a.tar", IMAGE, *labels))


def test_labels_of_tfrecords(tmp_path: Path) -> None:
    """Integers of any size, packed or one by one, and names; another feature by name."""
    image, path = IMAGE, tmp_path / "a.tfrecord"
    features = {"image": image, "label": 300, "other": 2, "name": b"y"}
    path.write_bytes(record(example(features)) + record(example(features, packed=False)))
    assert open_records(path).labels.tolist() == [300, 300]
    assert open_records(path, label="other").labels.tolist() == [2, 2]
    assert open_records(path, label="name").classes == ("y",)
    for label, message in (
        (-1, "labels missing: expected integers from 0, got -1"),
        ([1, 2], "expected a label, an integer or"),
        ([b"x", b"y"], "expected a label, an integer or a class name, got 2 of bytes"),
        (b"", "expected a label, an integer or a class name, got 1 of bytes"),
        (b"caf\xe9", r"a\.tfrecord.*: expected a label that is UTF-8 text"),
    ):
        path.write_bytes(record(example({"image": image, "label": label})))
        with pytest.raises(ShardError, match=message):
            open_records(path)
    for images, got in (([image, image], "2 of bytes"), (7, "1 of integers"), (b"", "1 of bytes")):
        path.write_bytes(record(example({"image": images, "label": 0})))
        with pytest.raises(ShardError, match=f"record at byte 0: expected the bytes of one image, got {got}"):
            open_records(path)


def test_examples_with_fields_of_other_programs(tmp_path: Path) -> None:
    """Fields of every wire type that an Example does not have are passed over; of two lists, none is the label."""
    path, own = tmp_path / "a.tfrecord", example({"image": IMAGE, "label": 3})
    path.write_bytes(record(b"\x10\x07" + b"\x19" + bytes(8) + b"\x25" + bytes(4) + field(6, b"\xff") + own))
    assert open_records(path).labels.tolist() == [3]
    lists = field(1, field(1, b"x")) + field(3, field(1, b"\x01"))
    label = field(1, field(1, field(1, b"label") + field(2, lists)))
    path.write_bytes(record(example({"image": IMAGE}) + label))
    with pytest.raises(ShardError, match=r"labels missing: expected a label .*, got image;"):
        open_records(path)


def test_what_is_no_record_and_no_example(tmp_path: Path) -> None:
    """A damaged length would find other records in the same bytes; an image ends with its record."""
    path, content = tmp_path / "a.tfrecord", example({"label": 3, "image": IMAGE})
    sound, size = record(content), len(IMAGE)
    longer = content.replace(varint(size) + IMAGE, varint(size + 4) + IMAGE)
    other, length = "record at byte 0: expected a tf.train.Example, got other content", "that of the record's length"
    for given, message in (
        (bytes([sound[0] ^ 1]) + sound[1:], f"damaged at byte 0: the checksum is not {length}"),
        (gzip.compress(sound), f"damaged at byte 0: the checksum is not {length} (it is compressed; decompress it)"),
        (record(longer), other), (record(b"\x0b"), other), (record(b"\xff" * 9)[:-4] + b"\xff" * 4, other),
    ):  # fmt: skip
        path.write_bytes(given)
        with pytest.raises(ShardError, match=f"{re.escape(message)}$"):
            open_records(path)


def test_rows_of_parquet_without_a_label(tmp_path: Path) -> None:
    """The message names the file of the user, not the converted one in the cache, and nothing is kept of that."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet, path = pytest.importorskip("pyarrow.parquet"), tmp_path / "train.parquet"
    for image, label, message in (
        ({"bytes": IMAGE}, None, "labels missing: expected one in each row of 'label', got nulls"),
        ({"bytes": None}, 1, "expected the bytes of an image in each row, got nulls"),
    ):
        columns = {
            "image": pa.array([image], pa.struct([("bytes", pa.binary())])),
            "label": pa.array([label], pa.int64()),
        }
        parquet.write_table(pa.table(columns), path)
        with pytest.raises(ShardError, match=rf"^{path}: row 0 or after: {message}"):
            open_records(path)


def test_columns_of_arrow_files(tmp_path: Path) -> None:
    """Labels by name; of several columns of images, the one of a usual name; large columns, and parts without rows."""
    pa, path = pytest.importorskip("pyarrow", reason="pyarrow is not installed"), tmp_path / "a.arrow"
    kinds = {"seen": "Image", "image": "Image", "a": "ClassLabel", "b": "ClassLabel"}
    features = {name: {"_type": kind, "names": ["x", "y"]} for name, kind in kinds.items()}
    images = [content for content, _, _ in SAMPLES]
    columns = {"seen": images[::-1], "image": pa.array(images, pa.large_binary()), "a": [1, 0, 1], "b": [0, 0, 1]}
    batch = pa.RecordBatch.from_pydict(columns)
    batch = batch.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch.slice(0, 0))
        stream.write_batch(batch)
    found = open_records(path, label="b")
    assert (found.labels.tolist(), found.classes) == ([0, 0, 1], ("x", "y"))
    assert [found.encoded(i) for i in range(3)] == images
    assert open_records(path, label="a").labels.tolist() == [1, 0, 1]
    with pytest.raises(ShardError, match=r"labels missing: expected a column label, .*, got seen, image, a, b"):
        open_records(path)
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"image": images, "label": [0, 1, 2], "kind": [2, 2, 3]}), tmp_path / "b.parquet")
    assert open_records(tmp_path / "b.parquet").labels.tolist() == [0, 1, 2]  # and is kept, of this label
    assert open_records(tmp_path / "b.parquet", label="kind").labels.tolist() == [2, 2, 3]


def test_class_folders_have_no_other_label(tmp_path: Path) -> None:
    converting.write_folder(tmp_path, SAMPLES)
    with pytest.raises(ValueError, match=r"label: expected none for the class folders in .*, got 'fine_label'"):
        open_records(tmp_path, label="fine_label")


def test_tfrecords_are_those_of_other_programs(tmp_path: Path) -> None:
    """TensorBoard writes the same records, of the published checksum, and DALI reads the same images and labels."""
    writing = pytest.importorskip("tensorboard.summary.writer.record_writer", reason="TensorBoard is not installed")
    converting.write_records(tmp_path / "ours.tfrecord", SAMPLES)
    records = open_records(tmp_path / "ours.tfrecord")
    content = [example({"image/encoded": image, "image/class/label": 1}) for image, _, _ in SAMPLES]
    with open(tmp_path / "theirs.tfrecord", "wb") as file:
        writer = writing.RecordWriter(file)
        for one in content:
            writer.write(one)
        writer.flush()
    assert (tmp_path / "theirs.tfrecord").read_bytes() == b"".join(map(record, content))
    places = "".join(f"{span['record'] - 12} {span['length'] + 16}\n" for span in records.spans)
    (tmp_path / "index").write_text(places)
    pipeline = Pipeline(batch_size=len(SAMPLES), num_threads=1, device_id=None)
    with pipeline:
        kinds = {"image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
                 "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1)}  # fmt: skip
        found = fn.readers.tfrecord(
            path=[str(tmp_path / "ours.tfrecord")], index_path=[str(tmp_path / "index")], features=kinds
        )
        pipeline.set_outputs(found["image/encoded"], found["image/class/label"])
    images, labels = pipeline.run()
    assert [bytes(images.at(i)) for i in range(len(SAMPLES))] == [records.encoded(i) for i in range(len(SAMPLES))]
    assert [int(labels.at(i)[0]) - 1 for i in range(len(SAMPLES))] == records.labels.tolist()
