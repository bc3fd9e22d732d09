"""Counting what a network gets right, and ``prime-dali evaluate`` as a user calls it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import CUDA
from evaluating import (
    CPU,
    PLAIN,
    STATISTICS,
    WNIDS,
    Gray,
    gray,
    save_cifar_c,
    save_cifar_pictures,
    save_imagenet_c,
    save_picture,
)
from PIL import Image
from torch import nn

from prime_dali import cli
from prime_dali.evaluation import classes, evaluate, image_sets, names, report_tables
from prime_dali.evaluation.results import of_benchmark
from prime_dali.models import networks


@pytest.mark.parametrize("batch", [1, 3, 7, 8, 100])
@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_accuracy_does_not_depend_on_the_batch(batch: int, device: str) -> None:
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7])
    images = gray([0, 1, 2, 3, 4, 0, 0, 7])  # 6 of 8, and the last one counts
    found = evaluate.accuracy(Gray(10).to(device), images, labels, **PLAIN, device=device, batch=batch)
    assert found == 6 / 8


def test_images_are_normalized() -> None:
    """(x - mean) / std with mean 20 / 255 makes each image look one class lower."""
    images, labels = gray([1, 2, 3]), np.array([0, 1, 2])
    assert evaluate.accuracy(Gray(10), images, labels, [20 / 255] * 3, [1.0] * 3, CPU) == 1
    assert evaluate.accuracy(Gray(10), gray([2, 4, 6]), np.array([1, 2, 3]), [0.0] * 3, [2.0] * 3, CPU) == 1


def test_every_module_keeps_its_mode() -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), Gray(10)).train()
    network[0].eval()
    evaluate.accuracy(network, gray([1, 2]), np.array([1, 2]), **PLAIN, device=CPU)
    assert [m.training for m in network.modules()] == [True, False, True, True]
    assert network[0].num_batches_tracked == 0


def test_a_masked_set_has_only_its_own_answers() -> None:
    images, labels = gray([1, 3, 6]), np.array([0, 4, 6])  # without a mask the first two are wrong
    plain = image_sets.Arrays(images, labels)
    masked = image_sets.Arrays(images, labels, masked=True)
    assert evaluate.count(Gray(10), plain, STATISTICS, device=CPU, batch=2).correct == 1
    assert evaluate.count(Gray(10), masked, STATISTICS, device=CPU, batch=2).correct == 3


def test_bad_labels_and_logits() -> None:
    with pytest.raises(ValueError, match="images: expected labels 0 to 9, as many as logits, got 0 to 10"):
        evaluate.accuracy(Gray(10), gray([0, 1]), np.array([0, 10]), **PLAIN, device=CPU)
    with pytest.raises(ValueError, match="images: expected images, got none"):
        evaluate.accuracy(Gray(10), gray([]), np.array([], np.int64), **PLAIN, device=CPU)
    with pytest.raises(ValueError, match=r"images: expected uint8 \[N, H, W, 3\], got uint8 \[2, 3, 32, 32\]"):
        evaluate.accuracy(Gray(10), gray([0, 1]).transpose(0, 3, 1, 2), np.array([0, 1]), **PLAIN, device=CPU)
    with pytest.raises(ValueError, match=r"labels: expected int64 \[2\], one per image, got int64 \[3\]"):
        evaluate.accuracy(Gray(10), gray([0, 1]), np.array([0, 1, 2]), **PLAIN, device=CPU)
    broken = Gray(10)
    broken.levels[3] = torch.nan
    with pytest.raises(ValueError, match="expected finite logits, got others"):
        evaluate.accuracy(broken, gray([0, 1]), np.array([0, 1]), **PLAIN, device=CPU)


# The command


@pytest.fixture
def imagenet_c(tmp_path: Path) -> Path:
    return save_imagenet_c(tmp_path / "c")


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Of :class:`Gray` behind a batch norm, in place of a network of torchvision, which takes longer than all else."""
    monkeypatch.setattr(
        networks, "create", lambda name, classes, stem="imagenet": nn.Sequential(nn.BatchNorm2d(3), Gray(classes))
    )
    made = networks.Classifier(networks.create("resnet18", 10).eval(), "resnet18", 10, size=32, resize=None, **PLAIN)
    torch.save(networks.checkpoint(made, epoch=5), tmp_path / "last.pt")
    return tmp_path / "last.pt"


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data`` and ``c``."""
    folder = tmp_path_factory.mktemp("cifar")
    save_cifar_pictures(folder / "data")
    save_cifar_c(folder / "c")
    return folder


def test_nothing_is_evaluated_for_a_folder_that_cannot_be_written_to(
    checkpoint: Path, cifar: Path, capsys: pytest.CaptureFixture
) -> None:
    assert (
        cli.main(["evaluate", str(checkpoint), "--clean", str(cifar / "data"), "--device", "cpu", "--out", "/proc"])
        == 1
    )
    said = capsys.readouterr().err
    assert "prime-dali evaluate: /proc: " in said
    assert "evaluated in" not in said


def test_evaluate(checkpoint: Path, cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["evaluate", str(checkpoint), "--clean", str(cifar / "data"), "--cifar-c", str(cifar / "c")]
    assert cli.main([*arguments, "--device", "cpu", "--batch", "5", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert "evaluated in " in shown.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cifar-c.png",
        "results.csv",
        "results.json",
        "results.md",
    ]

    results = json.loads((tmp_path / "out" / "results.json").read_text())
    found = results["sets"]["cifar-c"]
    assert found["correct"]["snow"] == {"1": 7, "2": 6, "3": 5, "4": 4, "5": 3}
    assert found["images"]["snow"] == dict.fromkeys("12345", 8)
    mean = (14 * 5 / 8 + 1) / 15  # brightness has no errors, the others 1 to 5 of 8
    assert found["scores"]["corruption_accuracy"] == pytest.approx(mean)
    assert found["scores"]["by_severity"]["5"] == pytest.approx((14 * 3 / 8 + 1) / 15)
    assert found["scores"]["by_group"]["weather"] == pytest.approx((3 * 5 / 8 + 1) / 4)
    assert found["scores"]["mce"] == pytest.approx(100 * (1 - mean))
    assert found["scores"]["normalization"] == "none"
    assert results["sets"]["clean"]["accuracy"] == 1
    assert results["sets"]["clean"]["images"] == 10
    assert results["settings"]["precision"] == "float32"
    assert results["classifier"]["epoch"] == 5
    assert not found["regenerated"]
    assert results["dataset"] == "CIFAR-10"

    text = (tmp_path / "out" / "results.md").read_text()
    assert text.strip() in shown.out
    assert f"- {checkpoint}, epoch 5\n" in text
    assert "mCE, normalization none" in text
    assert "- clean: 10 images\n" in text
    assert re.search(r"\| snow +\|.* 83\.1 \| +89\.7 \| +89\.3 \|", text)  # the paper's, marked in the header
    assert "PRIME, reported" in text
    rows = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 1 + 75
    errors = found["calibration"]
    assert f"cifar-c,False,snow,4,8,4,0.5,{errors['ece']['snow']['4']},{errors['rms']['snow']['4']},," in rows
    assert errors["ece"]["snow"]["4"] == pytest.approx(0.5, abs=1e-6)  # sure of all answers, half of which are right
    assert errors["mean"]["ece"] == pytest.approx(1 - mean, abs=1e-6)
    assert re.search(rf"\| ECE +\| +0\.00 \| +{100 * (1 - mean):.2f} \|", text)
    with Image.open(tmp_path / "out" / "cifar-c.png") as picture:
        assert np.asarray(picture).std() > 10

    # The same network as its own reference; but not on brightness, where that has no errors.
    lesser = tmp_path / "lesser"
    save_cifar_c(lesser, [c for c in names.CORRUPTIONS if c != "brightness"])
    arguments = ["evaluate", str(checkpoint), "--cifar-c", str(lesser), "--partial"]
    reference = str(tmp_path / "out" / "results.json")
    assert cli.main([*arguments, "--device", "cpu", "--reference", reference, "--out", str(tmp_path / "again")]) == 0
    text = capsys.readouterr().out
    assert "mCE, normalization standard" in text
    assert f": mCE relative to {checkpoint}, in {reference}\n" in text
    again = json.loads((tmp_path / "again" / "results.json").read_text())["sets"]
    assert again["cifar-c"]["scores"]["mce"] == pytest.approx(100)
    assert again["cifar-c"]["scores"]["normalization"] == "standard"
    assert again["cifar-c"]["accuracy"]["fog"] == found["accuracy"]["fog"]  # the batch does not matter
    assert cli.main(["evaluate", str(checkpoint), "--cifar-c", str(cifar / "c"), "--reference", reference]) == 1
    shown = capsys.readouterr()
    assert "normalization: expected 'standard' to have an error on brightness, got none" in shown.err
    assert not {"parameters", "evaluated"} & set(shown.err.split())  # it was known before the work began
    partial = tmp_path / "again" / "results.json"
    assert cli.main(["evaluate", str(checkpoint), "--cifar-c", str(cifar / "c"), "--reference", str(partial)]) == 1
    wanted = f"reference: expected results on all of cifar-c that is scored here, {partial} lacks brightness; evaluate"
    assert wanted in capsys.readouterr().err
    results["sets"]["cifar-c"]["missing"] = ["1 of 10 classes (cat)"]
    results["sets"]["cifar-c"]["images"]["snow"] |= {"2": 7, "3": 9}
    partial.write_text(json.dumps(results))
    assert cli.main([*arguments, "--device", "cpu", "--reference", str(partial)]) == 1
    assert "lacks 1 of 10 classes (cat); evaluate" in capsys.readouterr().err
    partial.write_text(json.dumps(results | {"sets": {"cifar-c": results["sets"]["cifar-c"] | {"missing": []}}}))
    assert cli.main([*arguments, "--device", "cpu", "--reference", str(partial)]) == 0
    assert f"in {partial}, of ANOTHER NUMBER of images, 7 to 9\n" in capsys.readouterr().out
    results["sets"]["cifar-c"]["missing"] = []
    for key, value, got in (("dataset", "CIFAR-100", "CIFAR-100"), ("settings", {"bn_adapt": {"N": 1}}, "adapted")):
        (tmp_path / "other.json").write_text(json.dumps(results | {key: value}))
        assert cli.main([*arguments, "--device", "cpu", "--reference", str(tmp_path / "other.json")]) == 1
        message = capsys.readouterr().err
        assert "other.json: expected results on CIFAR-10 as trained, got" in message
        assert got in message
    results["sets"]["cifar-c"]["accuracy"]["snow"]["2"] = 62.5
    (tmp_path / "percent.json").write_text(json.dumps(results))
    assert cli.main([*arguments, "--reference", str(tmp_path / "percent.json")]) == 1
    assert "sets.cifar-c.accuracy.snow.2: expected a number from 0 to 1, got float (62.5)" in capsys.readouterr().err


def test_a_regenerated_benchmark_is_labeled(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ten = [f"corruption_{i}" for i in range(10)]
    save_cifar_c(tmp_path, ten)
    (tmp_path / "manifest.json").write_text('{"seed": 3, "benchmark": "CIFAR-10-C-bar"}')
    arguments = ["evaluate", str(checkpoint), "--cifar-c-bar", str(tmp_path), "--device", "cpu"]
    assert cli.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())["sets"]["cifar-c-bar"]
    assert found["regenerated"]
    assert of_benchmark(found, "other") == "CIFAR-10-C-bar"
    assert of_benchmark({"manifest": {"seed": 3}}, "other") == of_benchmark({}, "other") == "other"
    assert found["counted"] == ten
    assert found["scores"]["by_group"] == {}
    text = capsys.readouterr().out
    assert "CIFAR-10-C-bar (regenerated): 8 images per corruption and severity\n" in text
    assert "| CIFAR-10-C-bar (regenerated) mean |" in text
    assert "## CIFAR-10-C-bar (regenerated), by corruption and severity, %" in text
    assert "cifar-c-bar,True,corruption_3,2,8,6,0.75" in (tmp_path / "out" / "results.csv").read_text()
    assert "mCE, normalization" not in text
    assert "reported |" not in text  # the paper has no row for this set


def test_what_is_missing_is_named_before_anything_runs(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    save_cifar_c(tmp_path, ["snow", "fog"])
    arguments = ["evaluate", str(checkpoint), "--cifar-c", str(tmp_path), "--device", "cpu"]
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert "expected all of cifar-c for a mean, missing: gaussian_noise; shot_noise; " in error
    assert error.count("\n") == 1
    assert cli.main([*arguments, "--partial", "--out", str(tmp_path / "out")]) == 0
    assert "CIFAR-C: PARTIAL, means over the rest; missing: gaussian_noise; shot_noise;" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "results.json").read_text())["sets"]["cifar-c"]
    assert len(found["missing"]) == 13
    assert list(found["scores"]["by_corruption"]) == ["snow", "fog"]
    assert found["scores"]["mce"] == pytest.approx(100 * (1 - found["scores"]["corruption_accuracy"]))


def test_evaluate_on_imagenet(
    checkpoint: Path, imagenet_c: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    content["network"]["num_classes"], content["classes"] = 4, list(WNIDS)
    content["model"]["1.levels"] = content["model"]["1.levels"][:4].clone()
    torch.save(content | {"size": 96, "resize": 100}, checkpoint)
    for place in (1, 2):
        save_picture(tmp_path / "r" / WNIDS[place] / "a.png", 60, (120, 110))  # class 3 is nearest, of these two 2
    arguments = ["evaluate", str(checkpoint), "--clean", str(tmp_path / "r"), "--imagenet-r", str(tmp_path / "r"),
                 "--imagenet-c", str(imagenet_c), "--device", "cpu", "--workers", "1"]  # fmt: skip
    assert cli.main(arguments) == 1
    absent = f"2 of 4 classes ({WNIDS[0]}, {WNIDS[3]})"
    message = f"{tmp_path}/r: expected all of clean for a mean, missing: {absent}; the option partial takes"
    assert message in capsys.readouterr().err
    assert cli.main([arguments[0], *arguments[1:2], *arguments[4:]]) == 1
    error = capsys.readouterr().err
    assert f"missing: 2 of 4 classes ({WNIDS[0]}, {WNIDS[2]}) in {imagenet_c}/" in error
    assert "and some in 8 other folders; gaussian_noise; " in error
    assert "; fog severity 4; " in error
    assert cli.main([*arguments, "--partial", "--out", str(tmp_path / "out")]) == 0
    sets = json.loads((tmp_path / "out" / "results.json").read_text())["sets"]
    assert (sets["clean"]["correct"], sets["imagenet-r"]["correct"]) == (0, 1)
    assert (sets["clean"]["missing"], sets["imagenet-r"]["missing"]) == ([absent], [])
    assert f"- clean: PARTIAL, means over the rest; missing: {absent}\n" in capsys.readouterr().out
    assert sets["imagenet-c"]["correct"]["fog"] == {"1": 2, "2": 2, "3": 0, "5": 0}
    capsys.readouterr()
    save_picture(imagenet_c / "snow" / "1" / WNIDS[0] / "more.png", 0)
    assert cli.main([*arguments, "--partial", "--bn-adapt", "16", "2"]) == 0
    text = capsys.readouterr().out
    assert "ImageNet-R: only its 2 classes can be predicted" in text
    assert (
        "ImageNet-C: 2 to 3 images per corruption and severity, in parts of UNEQUAL size; as found, without a manifest of prime-dali corrupt"
        in text
    )
    assert "N = 16, n = 2, drawn separately for each with seed 0" in text
    assert "measured, adapted" in text
    assert re.search(r"\| fog +\|( +\d+\.\d+ \|){3} +- \|", text)  # severity 4
    assert "- ImageNet-C: mCE over the corruptions with all five severities: snow\n" in text
    assert "reported" not in text  # four classes are none of the paper's data sets


@pytest.mark.parametrize(("arguments", "message"), [
    (["--imagenet-c", "x"], "--imagenet-c: expected a network of ImageNet, got one of size 32"),
    (["--cifar-c", "{c}", "--normalize", "standard"], "reference: expected with --normalize standard, and only then"),
    (["--cifar-c", "{c}", "--reference", "x", "--normalize", "none"], "reference: expected with --normalize standard, and only then"),
    (["--cifar-c", "{c}", "--normalize", "alexnet"], "normalize: expected none or standard, as AlexNet's errors are of ImageNet-C"),
    (["--cifar-c", "{c}", "--reference", "{c}/labels.npy"], "labels.npy: expected results.json of prime-dali evaluate with cifar-c"),
    (["--cifar-c", "{c}", "--bn-adapt", "some"], "bn-adapt: expected single, partial, full, or two whole numbers N n, got 'some'"),
    (["--cifar-c", "{c}", "--bn-adapt", "full"], "n: expected at most the 8 images of gaussian_noise 1, got 400"),
    (["--cifar-c", "{c}", "--batch", "0"], "batch: expected 1 to"),
    (["--clean", "{c}"], "expected CIFAR-10, as cifar-"),
    (["--clean", "{c}", "--loader", "pillow"], "--loader: expected with a network of larger images, got it with a network of 32 x 32 images, where nothing reads it"),
])  # fmt: skip
def test_bad_input(
    arguments: list[str], message: str, checkpoint: Path, cifar: Path, capsys: pytest.CaptureFixture
) -> None:
    given = [argument.format(c=cifar / "c") for argument in arguments]
    unread = message.endswith("where nothing reads it")  # which is bad usage, though the checkpoint alone tells it
    assert cli.main(["evaluate", str(checkpoint), "--device", "cpu", *given]) == (2 if unread else 1)
    assert message in capsys.readouterr().err


def test_a_checkpoint_of_another_network(cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    weights = tmp_path / "weights.pth"
    torch.save(networks.create("shufflenet_v2_x0_5", 10).state_dict(), weights)
    start = ["evaluate", str(weights), "--cifar-c", str(cifar / "c"), "--device", "cpu", "--num-classes"]
    for arguments, message in (
        (["10", "--network", "shufflenet_v2_x1_0"], "of another shape (stage2"),
        (["100", "--network", "shufflenet_v2_x0_5"], "fc.weight: expected [100, 1024], got [10, 1024]"),
        (
            ["10", "--network", "shufflenet_v2_x0_5"],
            "--cifar-c: expected a network of 32 x 32 images (--size), got one of size 224",
        ),
    ):
        assert cli.main([*start, *arguments]) == 1
        assert message in capsys.readouterr().err


def test_a_network_of_small_photographs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """32 x 32 pixels of resized photographs of any classes; unresized, they are CIFAR's."""
    for name in ("cat", "dog"):
        save_picture(tmp_path / "val" / name / "a.png", 20, (40, 50))
    network = networks.create("shufflenet_v2_x0_5", 2)
    classifier = networks.Classifier(network, "shufflenet_v2_x0_5", 2, classes=("cat", "dog"), size=32, resize=36)
    start = ["evaluate", "--device", "cpu", "--clean", str(tmp_path / "val")]
    torch.save(networks.checkpoint(classifier), last := tmp_path / "last.pt")
    assert cli.main([*start, str(last)]) == 0
    assert cli.main([*start, str(tmp_path)]) == 1
    assert f"a folder, did you mean {last}?" in capsys.readouterr().err
    torch.save(networks.checkpoint(replace(classifier, resize=None)), last)
    assert cli.main([*start, str(last)]) == 1
    assert "expected 10 or 100 classes of a network of 32 x 32 images" in capsys.readouterr().err


def test_the_names_of_the_classes_of_a_state_dict(tmp_path: Path) -> None:
    """As given, else the checkpoint's own, else those of as many folders in the clean set."""
    for name in ("train/dog", "train/cat", "val/dog", "val/cat", "val/.hidden"):
        (tmp_path / name).mkdir(parents=True)
    (listed := tmp_path / "names.txt").write_text("dog\n\ncat\n \n")
    (twice := tmp_path / "twice.txt").write_text("dog\ncat\ndog\n")
    val = tmp_path / "val"
    assert classes.named(None, 2, listed, val) == ("dog", "cat")
    assert classes.named(None, 2, tmp_path / "train", None) == classes.named(None, 2, None, val) == ("cat", "dog")
    assert classes.named(["a", "b"], 2, None, val) == ("a", "b")
    assert classes.named(None, 3, None, val) is None
    for number in range(100):  # may be some of ImageNet, which has an order of its own
        (tmp_path / "hundred" / str(number)).mkdir(parents=True)
    assert classes.named(None, 100, None, tmp_path / "hundred") is None
    for own, count, given, message in (
        (None, 3, listed, "expected 3 names, one per logit, got 2 in"), (None, 2, tmp_path, "got the parts of a data set"),
        (None, 3, twice, "expected each name once, got one more than once in"),
        (["cat", "dog"], 2, listed, "expected none for a checkpoint that names its classes otherwise"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            classes.named(own, count, given, None)


def test_a_gpu_that_is_not_there(checkpoint: Path, cifar: Path, capsys: pytest.CaptureFixture) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    assert cli.main(["evaluate", str(checkpoint), "--cifar-c", str(cifar / "c"), "--device", "cuda"]) == 1
    assert "device: expected a GPU that torch can use, got none" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["normalization", "normalisation"])  # the latter in files of earlier versions
def test_reported_rows_of_adapted_networks(key: str) -> None:
    """ImageNet-100 with the paper's adaptation stands beside the paper's own adapted accuracies."""
    found = {"corruption_accuracy": 0.7, "mce": 61.0, key: "standard"}
    content = {"scores": found, "regenerated": False}
    results = {
        "dataset": "ImageNet-100",
        "settings": {"bn_adapt": {"N": 16, "n": 8, "seed": 0}},
        "sets": {"imagenet-c": content},
    }
    text = report_tables.summary(results)
    assert re.search(r"\| PRIME, adapted \(partial\), reported +\| +75\.3 \| +- \|", text)
    assert re.search(r"\| PRIME, reported +\| +71\.6 \| +61\.0 \|", text)
    assert "single" not in text
    assert "adapted (partial)" not in report_tables.summary(results | {"dataset": "ImageNet"})


def test_reported_numbers_of_several_sets() -> None:
    bar = {"scores": {"corruption_accuracy": 0.5}, "regenerated": True}
    sets = {
        "clean": {"accuracy": 0.1},
        "imagenet-c-bar": bar,
        "imagenet-r": {"accuracy": 0.2},
        "stylized": {"accuracy": 0.3},
    }
    text = report_tables.summary({"dataset": "ImageNet", "settings": {"bn_adapt": None}, "sets": sets})
    assert re.search(r"\| measured +\| +10\.00 \| +50\.00 \| +20\.00 \| +30\.00 \|", text)
    assert re.search(r"\| PRIME, reported +\| +77\.0 \| +49\.6 \| +42\.2 \| +14\.0 \|", text)
