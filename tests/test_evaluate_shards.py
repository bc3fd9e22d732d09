"""Evaluation sets in shards: scores of the class folders, and ``--label`` wherever there are shards, and only there."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

import converting
from evaluating import CPU, STATISTICS, WNIDS, Gray, classifier, save_imagenet_c, save_picture
from test_shards import Command, command
from training import cifar, settings

from prime_dali import cli
from prime_dali.data.shards import ShardError
from prime_dali.evaluation import benchmarks, evaluate, imagenet_sets, names, report_tables
from prime_dali.evaluation.benchmarks import Reading
from prime_dali.evaluation.imagenet_sets import Classes
from prime_dali.evaluation.photographs import open_photographs
from prime_dali.models import networks
from prime_dali.training import train

__all__ = ["cifar", "command"]  # fixtures


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(networks, "create", lambda name, classes, stem="imagenet": Gray(classes))
    made = dataclasses.replace(classifier(4, 224, resize=None), classes=WNIDS)
    torch.save(networks.checkpoint(made), tmp_path / "last.pt")
    return tmp_path / "last.pt"


def write_labels(folder: Path, field: str, places: list[int], values: list[int]) -> Path:
    """A tar file of gray images, with the wnid in a field of ``json``, and a wrong label in ``cls``."""
    members = []
    for number, (place, value) in enumerate(zip(places, values, strict=True)):
        save_picture(folder / "a.png", value)
        text = json.dumps({field: WNIDS[place]}).encode()
        members += [
            (f"{number}.png", (folder / "a.png").read_bytes()),
            (f"{number}.json", text),
            (f"{number}.cls", b"0"),
        ]
    (folder / "a.png").unlink()
    return converting.members(folder / "0.tar", *members)


def evaluated(arguments: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The results of the command."""
    monkeypatch.setattr(report_tables, "markdown", json.dumps)
    capsys.readouterr()
    assert cli.main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_label_is_of_all_sets_that_are_shards(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Class folders beside them have their own labels."""
    (tmp_path / "clean").mkdir()
    (tmp_path / "c").mkdir()
    write_labels(tmp_path / "clean", "wnid", [1, 2, 3], [20, 40, 0])
    save_picture(tmp_path / "sketch" / WNIDS[2] / "a.png", 40)
    for severity in range(1, 6):
        (tmp_path / "c" / "fog" / str(severity)).mkdir(parents=True)
        write_labels(tmp_path / "c" / "fog" / str(severity), "wnid", [1, 2], [20, 40])
    arguments = ["evaluate", str(checkpoint), "--clean", str(tmp_path / "clean"), "--imagenet-sketch",
                 str(tmp_path / "sketch"), "--imagenet-c", str(tmp_path / "c"), "--device", "cpu", "--workers", "1",
                 "--partial"]  # fmt: skip
    results = evaluated([*arguments, "--label", "wnid"], capsys, monkeypatch)
    assert results["sets"]["clean"]["accuracy"] == pytest.approx(2 / 3)
    assert "labels" not in results["sets"]["clean"]
    assert results["sets"]["imagenet-sketch"]["accuracy"] == 1
    assert results["sets"]["imagenet-c"]["correct"]["fog"] == dict.fromkeys("12345", 2)
    assert results["settings"]["label"] == "wnid"
    results = evaluated(arguments, capsys, monkeypatch)  # the usual names have wrong labels here
    assert results["sets"]["clean"]["accuracy"] == pytest.approx(1 / 3)
    assert results["sets"]["clean"]["labels"] == "positions"
    facts = list(report_tables._facts("clean", results["sets"]["clean"], None))
    assert facts[1] == "clean: labels are numbers, taken for positions among the network's classes"


def test_label_where_there_are_no_shards(
    checkpoint: Path, tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture
) -> None:
    save_picture(tmp_path / "sketch" / WNIDS[2] / "a.png", 40)
    arguments = ["evaluate", str(checkpoint), "--imagenet-sketch", str(tmp_path / "sketch"), "--device", "cpu"]
    assert cli.main([*arguments, "--label", "wnid"]) == 1
    message = "label: expected a set of shards, as the names of class folders are labels, got 'wnid'"
    assert message in capsys.readouterr().err
    assert cli.main([*arguments[:3], str(tmp_path / "none"), "--label", "wnid"]) == 1
    assert f"{tmp_path / 'none'}: no such folder" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"label: expected none for the class folders in .*sketch, .*, got 'wnid'"):
        benchmarks.imagenet_pictures(tmp_path / "sketch", WNIDS, benchmarks.Reading(label="wnid"))
    (tmp_path / "c" / "fog" / "1" / WNIDS[0]).mkdir(parents=True)
    with pytest.raises(ValueError, match=r"label: expected none for the class folders in .*fog/1"):
        benchmarks.imagenet_corrupted(tmp_path / "c", WNIDS, benchmarks.Reading(label="wnid"))

    torch.save(networks.checkpoint(classifier()), tmp_path / "cifar.pt")
    evaluating = ["evaluate", str(tmp_path / "cifar.pt"), "--device", "cpu", "--label", "wnid"]
    published = f"label: expected none for CIFAR's published files in {cifar}, which have their labels, got 'wnid'"
    assert cli.main([*evaluating, "--clean", str(cifar)]) == 1
    assert published in capsys.readouterr().err
    assert cli.main([*evaluating, "--cifar-c", str(tmp_path)]) == 1
    assert "label: expected --clean with shards, as the other sets of CIFAR are arrays" in capsys.readouterr().err
    with pytest.raises(ValueError, match="label: expected none for CIFAR's published files"):
        train.main(settings(cifar, tmp_path / "run", "--label", "wnid"))


def test_label_of_cifar_in_shards(tmp_path: Path) -> None:
    save_picture(tmp_path / "a.png", 0, (32, 32))
    image = (tmp_path / "a.png").read_bytes()
    labels = [("json", json.dumps({"label": i, "coarse": 9 - i}).encode()) for i in range(10)]
    converting.labeled(tmp_path / "test-0.tar", image, *labels)
    assert benchmarks.cifar_clean(tmp_path, 10).labels.tolist() == list(range(10))
    assert benchmarks.cifar_clean(tmp_path, 10, label="coarse").labels.tolist() == list(range(9, -1, -1))


def test_a_benchmark_of_corruptions_in_shards(tmp_path: Path) -> None:
    """Each severity may be in another format: the same images and labels as in class folders, and so the same scores."""
    folder = save_imagenet_c(tmp_path / "c")
    before = benchmarks.imagenet_corrupted(folder, WNIDS)
    parts = {part: list(before.read(*part).batches(8, CPU)) for part in before.parts()}
    scores = evaluate.run(classifier(4, 224), {"imagenet-c": before}, device=CPU)
    for severity, kind in enumerate(converting.FORMATS, 1):
        converting.to_shards(kind, folder / "snow" / str(severity))
    converting.to_shards("webdataset", folder / "fog" / "5")
    what = benchmarks.imagenet_corrupted(folder, WNIDS)
    assert (what.parts(), what.lacking) == (before.parts(), before.lacking)
    for part, expected in parts.items():
        for (images, labels), (images2, labels2) in zip(what.read(*part).batches(8, CPU), expected, strict=True):
            assert torch.equal(images, images2)
            assert torch.equal(labels, labels2)
    assert evaluate.run(classifier(4, 224), {"imagenet-c": what}, device=CPU) == scores
    (folder / "fog" / "5" / "photos-val-0000.tar").unlink()  # that with the image of the first of the two classes
    lacking = benchmarks.imagenet_corrupted(folder, WNIDS[1::2]).lacking
    assert lacking[:2] == (f"1 of 2 classes ({WNIDS[1]}) in {folder}/fog/5", "gaussian_noise")
    shutil.rmtree(folder / "fog")
    with pytest.raises(ValueError, match=r"snow/1: expected the network's 1 class .*, got 1 other"):
        benchmarks.imagenet_corrupted(folder, WNIDS[1:2])


def test_3dcc_and_other_sets_in_shards(tmp_path: Path) -> None:
    for severity in names.SEVERITIES:
        for name in ("a.png", "b.png"):
            save_picture(tmp_path / "3d" / "flash" / str(severity) / WNIDS[1] / name, 20)
    converting.to_shards("tfrecord", tmp_path / "3d" / "flash" / "2")
    what = benchmarks.imagenet_3dcc(tmp_path / "3d", WNIDS)
    assert evaluate.run(classifier(4, 224), {"3d": what}, device=CPU)["3d"]["flash"][2].correct == 2

    for place, seen in ((1, 2), (3, 3)):
        save_picture(tmp_path / "set" / WNIDS[place] / "a.png", 20 * seen - 1)
    converting.to_shards("webdataset", tmp_path / "set")
    masked = imagenet_sets.pictures("imagenet-a", tmp_path / "set", Classes(WNIDS))
    assert (masked.masked, masked.lacking) == (True, ())
    assert evaluate.count(Gray(4), masked, STATISTICS, CPU, 2).correct == 2
    sketch = imagenet_sets.pictures("imagenet-sketch", tmp_path / "set", Classes(WNIDS))
    assert sketch.lacking == (f"2 of 4 classes ({WNIDS[0]}, {WNIDS[2]})",)
    assert evaluate.count(Gray(4), sketch, STATISTICS, CPU, 2).correct == 1


def test_classes_of_shards_are_mapped_by_name(tmp_path: Path) -> None:
    """Those without an image do not matter; numbers without names must be the network's."""
    save_picture(tmp_path / "a.png", 0)
    image = (tmp_path / "a.png").read_bytes()
    tar = converting.labeled(tmp_path / "set.tar", image, *(("cls", str(number).encode()) for number in range(4)))
    assert benchmarks.imagenet_pictures(tar, WNIDS).labels.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"set\.tar: expected labels below 3, the network's classes, got 3"):
        benchmarks.imagenet_pictures(tar, WNIDS[:3])
    (tmp_path / "classes.txt").write_text("\n".join((WNIDS[3], "other", WNIDS[0], WNIDS[1], "unused")))
    found = benchmarks.imagenet_pictures(tar, WNIDS, Reading(subset=True))
    assert (found.labels.tolist(), found.lacking) == ([3, 0, 1], (f"1 of 4 classes ({WNIDS[2]})",))
    assert benchmarks.imagenet_pictures(tar, (*WNIDS, "other")).labels.tolist() == [3, 4, 0, 1]
    with pytest.raises(ValueError, match="got 1 other: other"):
        benchmarks.imagenet_pictures(tar, WNIDS)


def test_numbers_as_labels(tmp_path: Path) -> None:
    """Of ImageNetV2 they are those of the sorted classes; of sets of 200 classes nobody knows among which they are."""
    save_picture(tmp_path / "a.png", 0)
    image = (tmp_path / "a.png").read_bytes()
    converting.labeled(tmp_path / "v2.tar", image, *(("cls", str(number).encode()) for number in (2, 10, 999)))
    thousand = tuple(f"n{number:08}" for number in range(1000))
    found = imagenet_sets.pictures("imagenet-v2", tmp_path / "v2.tar", Classes(thousand[::-1]))
    assert found.labels.tolist() == [997, 989, 0]
    assert found.lacking == ("997 of 1000 classes (0, 1, 100, ...)",)
    for name in imagenet_sets.OF_200_CLASSES:
        with pytest.raises(ValueError, match=r"v2\.tar: expected the names of the 200 classes \(WordNet IDs\) in the"):
            imagenet_sets.pictures(name, tmp_path / "v2.tar", Classes(thousand))
    (tmp_path / "classes.txt").write_text("\n".join(thousand))
    found = imagenet_sets.pictures("imagenet-r", tmp_path / "v2.tar", Classes(thousand))
    assert (found.labels.tolist(), found.lacking) == ([2, 10, 999], ("200 classes, got 3",))


def test_a_benchmark_made_from_shards(tmp_path: Path, command: Command) -> None:
    """The same pixels, in class folders, as from class folders of the same images."""
    samples = [*converting.samples(6), (b"damaged", "c", "png")]
    converting.write_folder(tmp_path / "folder", samples)
    for kind in ("webdataset", "parquet"):
        converting.write(kind, tmp_path / kind, "val", samples)
    words = ["--only", "contrast", "--severities", "2", "--on-error", "skip"]
    places = {"folder": "folder", "webdataset": "webdataset/photos-val-*.tar", "parquet": "parquet/data"}
    for kind, place in places.items():
        said = command("corrupt", "imagenet", tmp_path / place, tmp_path / f"C of {kind}", *words)
        assert "skipped 1 of 7 files" in said
    made = {kind: sorted((tmp_path / f"C of {kind}").rglob("*.*")) for kind in places}
    expected = [path.read_bytes() for path in made["folder"] if path.name != "manifest.json"]
    assert len(expected) == 6
    for kind in ("webdataset", "parquet"):
        assert [path.read_bytes() for path in made[kind] if path.name != "manifest.json"] == expected
        assert tmp_path / f"C of {kind}" / "contrast" / "2" / "b" / "00000002.JPEG" in made[kind]
    command("corrupt", "imagenet", tmp_path / "webdataset", tmp_path / "C of webdataset", *words)
    said = command("corrupt", "imagenet", tmp_path / "folder", tmp_path / "C of webdataset", *words, status=1)
    assert "made with other settings: source" in said


def test_labels_of_what_a_benchmark_is_made_from(tmp_path: Path) -> None:
    image = converting.samples(1)[0][0]
    converting.labeled(tmp_path / "a.tar", image, ("json", b'{"wnid": "cat", "label": 3}'))
    assert open_photographs(tmp_path / "a.tar", "wnid").names == (Path("cat/00000000.JPEG"),)
    assert open_photographs(tmp_path / "a.tar").names == (Path("3/00000000.JPEG"),)
    for name in ("../x", ".hidden", "a/b"):
        converting.labeled(tmp_path / "a.tar", image, ("cls", name.encode()))
        with pytest.raises(ShardError, match="expected names of classes that can name folders, got"):
            open_photographs(tmp_path / "a.tar")
    converting.write_folder(tmp_path / "folder", converting.samples(3))
    with pytest.raises(ValueError, match="label: expected none for the class folders"):
        open_photographs(tmp_path / "folder", "wnid")
