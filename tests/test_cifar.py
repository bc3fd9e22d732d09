"""CIFAR in its three layouts on disk."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prime_dali.data.cifar import read_cifar

NAMES = [f"kind{i}" for i in range(10)]


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), np.uint8)


LABELS = np.arange(20) % 10


def write_python(folder: Path, images: np.ndarray, key: bytes = b"labels", names: tuple = ("test_batch",)) -> None:
    folder.mkdir(exist_ok=True)
    for name, part in zip(names, np.array_split(np.arange(len(images)), len(names)), strict=True):
        content = {b"data": images[part].transpose(0, 3, 1, 2).reshape(len(part), -1), key: LABELS[part].tolist()}
        (folder / name).write_bytes(pickle.dumps(content))


def test_python_version(images: np.ndarray, tmp_path: Path) -> None:
    place = tmp_path / "cifar-10-batches-py"
    write_python(place, images)
    write_python(place, images[::-1], names=tuple(f"data_batch_{i}" for i in range(1, 6)))
    (place / "batches.meta").write_bytes(pickle.dumps({b"label_names": [n.encode() for n in NAMES]}))
    for folder in (tmp_path, place):
        test, train = read_cifar(folder, 10, train=False), read_cifar(folder, 10, train=True)
        np.testing.assert_array_equal(test.images, images)
        np.testing.assert_array_equal(test.labels, LABELS)
        np.testing.assert_array_equal(train.images, images[::-1])
        assert test.classes == train.classes == tuple(NAMES)


def test_binary_version(images: np.ndarray, tmp_path: Path) -> None:
    for classes, name, file, head in (
        (10, "cifar-10-batches-bin", "test_batch.bin", 1),
        (100, "cifar-100-binary", "test.bin", 2),
    ):
        place = tmp_path / name
        place.mkdir()
        labels = np.tile(LABELS[:, None], (1, head)).astype(np.uint8)
        labels[:, : head - 1] = 99  # the coarse label is none of ours
        records = np.concatenate([labels, images.transpose(0, 3, 1, 2).reshape(20, -1)], 1)
        records.tofile(place / file)
        read = read_cifar(tmp_path, classes, train=False)
        np.testing.assert_array_equal(read.images, images)
        np.testing.assert_array_equal(read.labels, LABELS)
        assert read.classes == tuple(str(i) for i in range(classes))
        (place / file).write_bytes(records.tobytes()[:-1])
        with pytest.raises(ValueError, match=f"{file}: expected records of {head + 3072} bytes, got"):
            read_cifar(tmp_path, classes, train=False)


def test_class_folders(images: np.ndarray, tmp_path: Path) -> None:
    for part in ("train", "test"):
        for i, (image, label) in enumerate(zip(images, LABELS, strict=True)):
            place = tmp_path / part / NAMES[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{i:04d}.png")
    with pytest.raises(ValueError, match=r"label: expected none for the class folders in .*, got 'fine_label'"):
        read_cifar(tmp_path, 10, train=False, label="fine_label")
    read = read_cifar(tmp_path, 10, train=False)
    assert read.classes == tuple(NAMES)
    order = np.lexsort((np.arange(20), LABELS))
    np.testing.assert_array_equal(read.images, images[order])
    np.testing.assert_array_equal(read.labels, LABELS[order])
    Image.new("RGB", (31, 32)).save(tmp_path / "test" / "kind3" / "z.png")
    with pytest.raises(ValueError, match=r"kind3/z.png: expected 32 x 32 pixels, got 31 x 32"):
        read_cifar(tmp_path, 10, train=False)
    (tmp_path / "train" / "kind3").rename(tmp_path / "train" / "other")
    with pytest.raises(ValueError, match="the same class folders in train and test, differing: kind3, other"):
        read_cifar(tmp_path, 10, train=False)


def test_bad_input(images: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=f"^{tmp_path}: expected CIFAR-100, as cifar-100-python/test, cifar-100-binary/test.bin or test/CLASS/IMAGE, "
        "or shards, found none of them; get it from www.cs.toronto.edu/~kriz/cifar.html and unpack it there$",
    ):
        read_cifar(tmp_path, 100, train=False)
    with pytest.raises(ValueError, match="classes: expected 10 or 100, got 20"):
        read_cifar(tmp_path, 20, train=False)
    write_python(tmp_path, images + 0)
    content = pickle.loads((tmp_path / "test_batch").read_bytes())
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content | {b"labels": [10] * 20}))
    with pytest.raises(ValueError, match="expected labels 0 to 9, got 10 to 10"):
        read_cifar(tmp_path, 10, train=False)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": content[b"data"]}))
    with pytest.raises(ValueError, match="test_batch: not a file of CIFAR-10"):
        read_cifar(tmp_path, 10, train=False)
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content))
    for names, got in ((None, "None"), ([1] * 10, r"\[1, 1")):
        (tmp_path / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}))
        with pytest.raises(ValueError, match=f"batches.meta: expected label_names, a list of names, got {got}"):
            read_cifar(tmp_path, 10, train=False)


def test_damaged_pickles(images: np.ndarray, tmp_path: Path) -> None:
    """However damaged, they are an error that names the file; NumPy's own reading of some ends the process."""
    write_python(tmp_path, images + 0)
    path, random = tmp_path / "test_batch", np.random.default_rng(0)
    good = path.read_bytes()
    for place in random.integers(0, 200, 300):
        path.write_bytes(good[:place] + bytes([random.integers(256)]) + good[place + 1 :])
        with contextlib.suppress(ValueError):
            read_cifar(tmp_path, 10, train=False)
    content = pickle.loads(good)
    for labels in (3, [None] * 20, [2**70] * 20, [0.5] * 20):
        path.write_bytes(pickle.dumps(content | {b"labels": labels}))
        with pytest.raises(ValueError, match=r"test_batch: not a file of CIFAR-10|expected as many labels as images"):
            read_cifar(tmp_path, 10, train=False)
    path.write_bytes(pickle.dumps(content | {b"data": np.zeros((1, 3072))}))
    with pytest.raises(ValueError, match=r"test_batch: not .* \(expected integers, got dtype 'f8'\)"):
        read_cifar(tmp_path, 10, train=False)
    path.write_bytes(pickle.dumps(content | {b"labels": np.array(content[b"labels"], ">i4")}))
    assert read_cifar(tmp_path, 10, train=False).labels.tolist() == list(content[b"labels"])


class Evil:
    def __reduce__(self) -> tuple:
        return print, ("run by a data file",)


def test_a_data_file_runs_no_code(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "test_batch").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(
        ValueError, match=r"test_batch: not a file of CIFAR's python version \(builtins.print is not part"
    ):
        read_cifar(tmp_path, 10, train=False)
    assert capsys.readouterr().out == ""
