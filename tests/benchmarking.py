"""Calls the benchmarks from tests."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import make_images
from PIL import Image

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by name."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.fixture
def run_here(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> Callable[..., str]:
    """What a benchmark prints, called in this process, which has imported torch already."""

    def called(name: str, *arguments: object) -> str:
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # set back at the end, whatever a benchmark sets
        capsys.readouterr()
        status = script(name).main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert not status, printed.err
        return printed.out

    return called


@pytest.fixture
def tiny_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of every network: nothing here depends on what it computes."""

    def created(network: str, num_classes: int, stem: str = "imagenet", drop_path: float = 0.0) -> torch.nn.Module:
        layers = torch.nn.Conv2d(3, 8, 3, 2), torch.nn.BatchNorm2d(8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        return torch.nn.Sequential(*layers, torch.nn.Linear(8, num_classes))

    monkeypatch.setattr("prime_dali.models.networks.create", created)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with one class of four photographs."""
    (tmp_path / "photos" / "class").mkdir(parents=True)
    for i, image in enumerate(make_images(4, 60, 50, torch.uint8)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "photos" / "class" / f"{i}.jpg")
    return tmp_path / "photos"


def assert_rated(written: Path, names: list[str]) -> None:
    rows = {row["name"]: row for row in json.loads(written.read_text())["results"]}
    assert list(rows) == names
    for row in rows.values():
        assert row["error"] == ""
        assert 0 < min(row["rates"]) <= row["median"] <= max(row["rates"])
