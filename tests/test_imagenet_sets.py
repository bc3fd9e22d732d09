"""ImageNet-A, ImageNet-Sketch, ImageNetV2 and ImageNet-3DCC: whose classes are which, and what is missing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from evaluating import CPU, STATISTICS, WNIDS, Gray, classifier, save_picture

from prime_dali import cli
from prime_dali.evaluation import benchmarks, chosen, evaluate, imagenet_sets, names, report_tables
from prime_dali.evaluation.benchmarks import Reading
from prime_dali.evaluation.imagenet_sets import Classes
from prime_dali.models import networks

THOUSAND = tuple(f"n{number:08}" for number in range(1000))


def test_imagenet_a_is_masked_to_its_classes(tmp_path: Path) -> None:
    for place, seen in ((1, 2), (3, 3)):
        save_picture(tmp_path / WNIDS[place] / "a.png", 20 * seen - 1)  # nearest 2, but of 1 and 3 the nearer is 1
    (tmp_path / "README.txt").write_text("not a class")
    part = imagenet_sets.pictures("imagenet-a", tmp_path, Classes(WNIDS))
    assert part.masked
    assert part.lacking == ()
    assert evaluate.count(Gray(4), part, STATISTICS, CPU, 2).correct == 2
    sketch = imagenet_sets.pictures("imagenet-sketch", tmp_path, Classes(WNIDS))
    assert not sketch.masked
    assert sketch.lacking == (f"2 of 4 classes ({WNIDS[0]}, {WNIDS[2]})",)
    assert evaluate.count(Gray(4), sketch, STATISTICS, CPU, 2).correct == 1


@pytest.mark.parametrize("name", imagenet_sets.OF_200_CLASSES)
def test_a_set_of_200_classes_has_200(name: str, tmp_path: Path) -> None:
    for wnid in THOUSAND[::5]:
        (tmp_path / wnid).mkdir()
        (tmp_path / wnid / "a.png").touch()
    assert imagenet_sets.pictures(name, tmp_path, Classes(THOUSAND)).lacking == ()
    (tmp_path / THOUSAND[5] / "a.png").unlink()
    (tmp_path / THOUSAND[5]).rmdir()
    assert imagenet_sets.pictures(name, tmp_path, Classes(THOUSAND)).lacking == ("200 classes, got 199",)
    (tmp_path / "n99999999").mkdir()
    with pytest.raises(ValueError, match=r"expected .*the network's 1,000 classes .* got 1 other: n99999999"):
        imagenet_sets.pictures(name, tmp_path, Classes(THOUSAND))


def test_folders_of_imagenet_v2_are_numbers(tmp_path: Path) -> None:
    """As text, 10 stands before 2: by position of the folder nearly all labels would be wrong."""
    for number in (0, 2, 10, 999):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.jpeg").touch()
    part = imagenet_sets.pictures("imagenet-v2", tmp_path, Classes(THOUSAND))
    assert part.labels.tolist() == [0, 10, 2, 999]
    assert part.lacking == ("996 of 1000 classes (1, 100, 101, ...)",)
    # Logits in another order, and the numbers are still those of the sorted classes.
    assert imagenet_sets.pictures("imagenet-v2-top", tmp_path, Classes(THOUSAND[::-1])).labels.tolist() == [
        999,
        989,
        997,
        0,
    ]
    for wrong in ("007", "1000", THOUSAND[1]):
        (tmp_path / wrong).mkdir()
        with pytest.raises(
            ValueError, match=rf"expected .*the network's 1,000 classes \(0 to 999\), got 1 other: {wrong}"
        ):
            imagenet_sets.pictures("imagenet-v2", tmp_path, Classes(THOUSAND))
        (tmp_path / wrong).rmdir()


def test_imagenet_v2_of_a_network_of_fewer_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no timm
    tenth = THOUSAND[::10]
    for number in (5, 20, 30):
        (tmp_path / "v2" / str(number)).mkdir(parents=True)
        (tmp_path / "v2" / str(number) / "a.jpeg").touch()
    with pytest.raises(ImportError, match="expected timm or a clean set of all classes"):
        imagenet_sets.pictures("imagenet-v2", tmp_path / "v2", Classes(tenth))
    for wnid in THOUSAND:
        (tmp_path / "val" / wnid).mkdir(parents=True)
    classes = Classes(tenth, tmp_path / "val")
    assert imagenet_sets.pictures("imagenet-v2", tmp_path / "v2", classes, Reading(True)).labels.tolist() == [2, 3]
    with pytest.raises(ValueError, match="got 1 other: 5"):
        imagenet_sets.pictures("imagenet-v2", tmp_path / "v2", classes)
    with pytest.raises(
        ValueError, match=r"classes: expected a network of ImageNet's classes \(WordNet IDs\), got 'cat'"
    ):
        Classes(("cat", *tenth), tmp_path / "val").numbers()
    with pytest.raises(ValueError, match="got 'zebra'"):  # a thousand, but their order says nothing
        Classes((*THOUSAND[:999], "zebra")).numbers()


def save_3dcc(folder: Path, corruptions: tuple[str, ...] = names.CORRUPTIONS_3D) -> Path:
    for corruption in corruptions:
        for severity in names.SEVERITIES:
            for place in range(4):
                (folder / corruption / str(severity) / WNIDS[place]).mkdir(parents=True)
                if (corruption, severity) == ("flash", 2):
                    save_picture(folder / corruption / str(severity) / WNIDS[place] / "a.png", 20)
    return folder


def test_imagenet_3dcc(tmp_path: Path) -> None:
    what = benchmarks.imagenet_3dcc(save_3dcc(tmp_path), WNIDS)
    assert what.counted == names.CORRUPTIONS_3D
    assert (what.extra, what.lacking, what.manifest) == ((), (), None)
    assert len(what.parts()) == 60
    part = what.read("flash", 2)
    assert part.resize is None
    assert evaluate.count(Gray(4), part, STATISTICS, CPU, 4).correct == 1
    (tmp_path / "manifest.json").write_text('{"benchmark": "ImageNet-C"}')
    with pytest.raises(ValueError, match=r"manifest\.json: expected ImageNet-3DCC, got ImageNet-C"):
        benchmarks.imagenet_3dcc(tmp_path, WNIDS)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "fog").mkdir()
    with pytest.raises(
        ValueError, match=r"corruption: expected one of 'near_focus', .* got 'fog'; did you mean 'fog_3d'"
    ):
        benchmarks.imagenet_3dcc(tmp_path, WNIDS)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """All at once: tables of 3DCC without the paper's numbers on C, and a heading for each set."""
    monkeypatch.setattr(networks, "create", lambda name, classes, stem="imagenet": Gray(classes))
    made = dataclasses.replace(classifier(4, 224, resize=None), classes=WNIDS)
    torch.save(networks.checkpoint(made), tmp_path / "last.pt")
    for place in range(4):
        save_picture(tmp_path / "sketch" / WNIDS[place] / "a.png", 20 * place)
    for severity in names.SEVERITIES:
        save_picture(tmp_path / "3d" / "flash" / str(severity) / WNIDS[1] / "a.png", 20)
    arguments = ["evaluate", str(tmp_path / "last.pt"), "--imagenet-sketch", str(tmp_path / "sketch"), "--imagenet-a",
                 str(tmp_path / "sketch"), "--imagenet-3dcc", str(tmp_path / "3d"), "--device", "cpu", "--workers", "1"]  # fmt: skip
    assert cli.main(arguments) == 1
    assert "expected all of imagenet-3dcc for a mean, missing: 3 of 4 classes" in capsys.readouterr().err
    assert cli.main([*arguments, "--partial", "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert re.search(r"\| measured \| +100\.00 \| +100\.00 \| +100\.00 \|", text)
    assert "| ImageNet-A | ImageNet-3DCC mean |" in text or "| ImageNet-3DCC mean | ImageNet-A |" in text
    assert "ImageNet-Sketch" in text
    assert "mCE" not in text
    assert "## Calibration error, %" in text
    assert re.search(r"\| flash +\|( +100\.00 \|){6} +0\.00 \| +0\.00 \|", text)
    assert (tmp_path / "out" / "imagenet-3dcc.png").is_file()


@pytest.mark.parametrize("size", [64, 96, 224])
def test_images_are_of_the_network_s_size(size: int, tmp_path: Path) -> None:
    """And resized as for that; those of benchmarks of corruptions are 64 or 224 pixels wide, and not resized."""
    save_picture(tmp_path / "clean" / WNIDS[1] / "a.png", 20)
    save_picture(tmp_path / "c" / "fog" / "1" / WNIDS[1] / "a.png", 20)
    folders = {"clean": tmp_path / "clean", "imagenet-c": tmp_path / "c"}
    options = SimpleNamespace(folders=folders, clean=None, loader="pillow", workers=0, subset=False, label=None)
    own = dataclasses.replace(classifier(4, size, resize=size + 10), classes=WNIDS)
    sets, dataset = chosen.open_sets(options, own)
    assert dataset is None
    assert (sets["clean"].size, sets["clean"].resize) == (size, size + 10)
    corrupted = sets["imagenet-c"].read("fog", 1)
    assert (corrupted.size, corrupted.resize) == (64 if size == 64 else 224, None)


def test_c_bar_has_no_reference_of_its_own(tmp_path: Path) -> None:
    for severity in names.SEVERITIES:
        save_picture(tmp_path / "blue_noise_sample" / str(severity) / WNIDS[1] / "a.png", 20)
    what = benchmarks.imagenet_corrupted(tmp_path, WNIDS, c_bar=True)
    options = SimpleNamespace(normalize=None, reference=None, partial=True)
    assert chosen.scoring_rules(options, {"imagenet-c-bar": what}, "ImageNet")["imagenet-c-bar"].normalization == "none"


def test_every_set_has_a_heading() -> None:
    assert names.HEADINGS.keys() == {"clean", *names.CIFAR_SETS, *names.IMAGENET_SETS}
    assert report_tables._reported_on("imagenet-3dcc", "ImageNet") == {}
    assert {*imagenet_sets.OF_200_CLASSES, *imagenet_sets.NUMBERED} < set(names.IMAGENET_SETS)
