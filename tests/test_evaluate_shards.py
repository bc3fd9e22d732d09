"""Evaluation sets in shards: scores of the class folders, and ``--label`` wherever there are shards, and only there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

import sharding
from evaluating import WNIDS, Gray, classifier, save_picture
from training import cifar, settings

from prime_dali import cli
from prime_dali.evaluation import benchmarks, report
from prime_dali.models import networks
from prime_dali.training import train

__all__ = ["cifar"]  # a fixture


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
    return sharding.members(folder / "0.tar", *members)


def evaluated(arguments: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The results of the command."""
    monkeypatch.setattr(report, "markdown", json.dumps)
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
    assert results["sets"]["imagenet-sketch"]["accuracy"] == 1
    assert results["sets"]["imagenet-c"]["correct"]["fog"] == dict.fromkeys("12345", 2)
    assert results["settings"]["label"] == "wnid"
    results = evaluated(arguments, capsys, monkeypatch)  # the usual names have wrong labels here
    assert results["sets"]["clean"]["accuracy"] == pytest.approx(1 / 3)


def test_label_where_there_are_no_shards(
    checkpoint: Path, tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture
) -> None:
    save_picture(tmp_path / "sketch" / WNIDS[2] / "a.png", 40)
    arguments = ["evaluate", str(checkpoint), "--imagenet-sketch", str(tmp_path / "sketch"), "--device", "cpu"]
    assert cli.main([*arguments, "--label", "wnid"]) == 1
    message = "label: expected a set of shards, as the names of class folders are labels, got 'wnid'"
    assert message in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"label: expected none for the class folders in .*sketch, .*, got 'wnid'"):
        benchmarks.imagenet_pictures(tmp_path / "sketch", WNIDS, label="wnid")
    (tmp_path / "c" / "fog" / "1" / WNIDS[0]).mkdir(parents=True)
    with pytest.raises(ValueError, match=r"label: expected none for the class folders in .*fog/1"):
        benchmarks.imagenet_corrupted(tmp_path / "c", WNIDS, label="wnid")

    torch.save(networks.checkpoint(classifier()), tmp_path / "cifar.pt")
    evaluating = ["evaluate", str(tmp_path / "cifar.pt"), "--device", "cpu", "--label", "wnid"]
    published = f"label: expected none for CIFAR's published files in {cifar}, which have their labels, got 'wnid'"
    assert cli.main([*evaluating, "--clean", str(cifar)]) == 1
    assert published in capsys.readouterr().err
    assert cli.main([*evaluating, "--cifar-c", str(tmp_path)]) == 1
    assert "label: expected --clean with shards, as the other sets have labels.npy" in capsys.readouterr().err
    with pytest.raises(ValueError, match="label: expected none for CIFAR's published files"):
        train.main(settings(cifar, tmp_path / "run", "--label", "wnid"))
