"""Training and evaluation on shards: the ImageNet recipes, CIFAR's, and clean sets."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

import converting
from converting import FORMATS, write, write_folder
from test_train_folders import ALONE, losses, start

from prime_dali.data.cifar import read_cifar
from prime_dali.evaluation import benchmarks
from prime_dali.evaluation.benchmarks import Reading
from prime_dali.evaluation.image_sets import Decoding
from prime_dali.training import train
from prime_dali.training.config import TrainConfig, differences
from prime_dali.training.trainer import Trainer

TRAIN, VAL = converting.samples(18), converting.samples(9, seed=100)
ONE_EPOCH = ("--epochs=1", "--log-every=1", "--warmup=0.5")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets")
    for part, samples in (("train", TRAIN), ("val", VAL)):
        write_folder(root / "folder" / part, samples)
        for kind in FORMATS:
            write(kind, root / kind, part, samples)
    return root


@pytest.fixture(scope="module")
def expected(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, float]]:
    """The losses of a run on the class folders."""
    out = tmp_path_factory.mktemp("folder")
    assert start(sets / "folder", out, *ONE_EPOCH).run().finished
    return losses(out)


@pytest.mark.parametrize("kind", FORMATS)
def test_train_knows_the_format(kind: str, sets: Path, tmp_path: Path, expected: list[tuple[int, float]]) -> None:
    """The same losses as on class folders where classes have the same numbers, also after a stop within the epoch."""
    trainer = start(sets / kind, tmp_path, *ONE_EPOCH)
    if kind == "tfrecord":
        trainer._stopping.asked = True
        assert not trainer.run().finished
        trainer = start(sets / kind, tmp_path, *ONE_EPOCH)
        assert 0 < trainer.step < 3
    assert trainer.run().finished
    assert sum(len(labels) for _, labels in trainer.data.validation()) == 9
    if trainer.data.classes == ("a", "b", "c"):
        assert losses(tmp_path) == expected
    else:  # Hugging Face's order of the classes
        assert trainer.data.classes == ("c", "a", "b")
        assert [step for step, _ in losses(tmp_path)] == [step for step, _ in expected]


def test_parts_by_pattern_and_classes_by_name(sets: Path, tmp_path: Path) -> None:
    """Training on tar files, and validation on Parquet with other numbers of the classes."""
    data, val = (
        sets / "webdataset" / "photos-train-{0000..0001}.tar",
        sets / "parquet" / "data" / "validation-*.parquet",
    )
    trainer = start(data, tmp_path, "--val", str(val))
    labels = torch.cat([labels for _, labels in trainer.data.validation()])
    assert labels.tolist() == ["abc".index(name) for _, name, _ in VAL]
    with pytest.raises(ValueError, match="val: expected none with recipe cifar10, whose data has both parts, got 'x'"):
        TrainConfig(val="x")
    with pytest.raises(ValueError, match=r"--data the training set, and --val the validation set"):
        start(data, tmp_path)
    (tmp_path / "plain").mkdir()
    converting.members(tmp_path / "plain" / "0.tar", ("0.jpg", VAL[0][0]), ("0.cls", b"7"))
    with pytest.raises(
        ValueError, match=r"val: expected class names in all parts or in none, got none in val; .*classes.txt"
    ):
        start(data, tmp_path, "--val", str(tmp_path / "plain"))
    write("webdataset", tmp_path / "other", "val", [(VAL[0][0], "d", "jpg")] * 2)
    with pytest.raises(ValueError, match="val: expected the classes of train; missing: a, b, c; not in train: d"):
        start(data, tmp_path, "--val", str(tmp_path / "other"))
    (tmp_path / "ints").mkdir()
    converting.members(
        tmp_path / "ints" / "train-0.tar", *(m for i in range(6) for m in ((f"{i}.jpg", VAL[0][0]), (f"{i}.cls", b"3")))
    )
    with pytest.raises(ValueError, match="val: expected labels up to 3, as in train, got 7"):
        start(tmp_path / "ints" / "train-0.tar", tmp_path, "--val", str(tmp_path / "plain"))


def test_a_run_does_not_continue_with_other_shards(sets: Path, tmp_path: Path) -> None:
    """Moved ones are the same; other images, or others in order, are not."""
    write("webdataset", tmp_path / "moved", "train", TRAIN)
    write("webdataset", tmp_path / "moved", "val", VAL)
    write("webdataset", tmp_path / "other", "train", TRAIN[:9] + TRAIN[10:] + TRAIN[9:10])
    write("webdataset", tmp_path / "other", "val", VAL)
    identities = [
        start(root, tmp_path / "out").data.identity
        for root in (sets / "webdataset", tmp_path / "moved", tmp_path / "other")
    ]
    assert identities[0] == identities[1] != identities[2]


def test_runs_of_earlier_versions_resume() -> None:
    """Their settings lack those of formats, which then are the defaults."""
    new = TrainConfig().plain()
    old = {name: value for name, value in new.items() if name not in ("val", "label")}
    assert differences(old, new) == []
    assert differences(old, {**new, "label": "fine_label"}) == ["label: '', now 'fine_label'"]


@pytest.mark.parametrize("kind", ["webdataset", "parquet"])
def test_cifar_in_shards(kind: str, tmp_path: Path) -> None:
    """The pixels and labels of the class folders; the test part is called test."""
    samples = []
    for i in range(20):
        file = io.BytesIO()
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (32, 32, 3), np.uint8)).save(file, "png")
        samples.append((file.getvalue(), f"class {i // 2}", "png"))
    names = sorted({name for _, name, _ in samples})
    for part in ("train", "test"):
        write_folder(tmp_path / "folder" / part, samples)
        write(kind, tmp_path / kind, part, samples, names)
    for part in (True, False):
        one, other = (read_cifar(tmp_path / name, 10, train=part) for name in ("folder", kind))
        assert one.classes == other.classes
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)
    arguments = ["--data", str(tmp_path / kind), "--out", str(tmp_path / "out"), "--batch=10", "--epochs=1",
                 "--network=shufflenet_v2_x0_5", "--stem=imagenet", "--no-compile", "--device=cpu", "--warmup=0.6"]  # fmt: skip
    assert Trainer(train.read(arguments), ALONE, lambda line: None).run().finished


@pytest.mark.parametrize("loader", ["pillow", "dali"])
def test_clean_sets_in_shards(loader: str, sets: Path, tmp_path: Path) -> None:
    """The images of the class folders, with the network's numbers of the classes."""
    classes, decoding = ("b", "a", "c", "d"), Decoding(loader)
    one, other = (
        benchmarks.imagenet_pictures(place, classes, Reading(decoding=decoding), size=32, resize=36)
        for place in (sets / "folder" / "val", sets / "parquet" / "data" / "validation-*.parquet")
    )
    assert one.lacking == other.lacking == ("1 of 4 classes (d)",)
    for (images, labels), (images2, labels2) in zip(
        one.batches(4, torch.device("cpu")), other.batches(4, torch.device("cpu")), strict=True
    ):
        assert torch.equal(images, images2)
        assert torch.equal(labels, labels2)
    shards = sets / "webdataset" / "photos-val-*.tar"
    some = benchmarks.imagenet_pictures(shards, ("c", "a"), Reading(subset=True), size=32, resize=36)
    assert some.labels.tolist() == [1, 1, 1, 0, 0, 0]
    with pytest.raises(ValueError, match=r"expected the network's 2 classes \(c to a\), got 1 other: b"):
        benchmarks.imagenet_pictures(shards, ("c", "a"), size=32, resize=36)
    converting.members(tmp_path / "a.tar", ("0.jpg", VAL[0][0]), ("0.cls", b"2"))
    assert benchmarks.imagenet_pictures(tmp_path, ("x", "y", "z")).labels.tolist() == [2]
    with pytest.raises(ValueError, match="expected labels below 2, the network's classes, got 2"):
        benchmarks.imagenet_pictures(tmp_path, ("x", "y"))
