"""State dicts of other programs: their constants, types of weights, and what else is taken from them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from classifying import save, small

from prime_dali.models import networks


def _beside(names: dict[str, list[float]], path: Path) -> Path:
    """A plain state dict with normalization constants beside the weights."""
    constants = {name: torch.tensor(values) for name, values in names.items()}
    return save({"state_dict": small(3).network.state_dict() | constants}, path)


@pytest.mark.parametrize(("statistics", "message"), [
    ({"n.mean": [123.7, 116.3, 103.5], "n.std": [58.4, 57.1, 57.4]}, "mean: expected numbers up to 1, on the \\[0, 1\\] scale"),
    ({"n.mean": [0.4, 0.4, 0.4], "n.std": [0.2, 0.0, 0.2]}, "std: expected"),
    ({"n.mean": [0.4, 0.4, 0.4]}, "expected both mean and std .* got mean alone"),
    ({"n.mean": [0.4, 0.4, 0.4], "m.mean": [0.5, 0.4, 0.4], "m.std": [0.2, 0.2, 0.2]}, "m.mean: expected one mean"),
])  # fmt: skip
def test_normalization_constants_that_no_network_has(statistics: Any, message: str, tmp_path: Path) -> None:
    path = _beside(statistics, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=message):
        networks.load(path, network="resnet18", num_classes=3)
    if "m.mean" not in statistics:  # one's own replace them
        read = networks.load(path, network="resnet18", num_classes=3, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
        assert read.statistics == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_normalization_constants_of_a_checkpoint(tmp_path: Path) -> None:
    content = networks.checkpoint(replace(small(3), mean=(127.0, 127.0, 127.0), std=(64.0, 64.0, 64.0)))
    path = save(content, tmp_path / "last.pt")
    with pytest.raises(ValueError, match=r"last.pt: mean: expected numbers up to 1"):
        networks.load(path)
    path = save({**content, "mean": [0.5] * 3, "classes": ["cat", "cat", "owl"]}, path)
    with pytest.raises(ValueError, match="classes: expected each name once"):
        networks.load(path)


def test_a_network_of_timm_is_validated_as_timm_does(tmp_path: Path) -> None:
    """Its mean and std are not ImageNet's, its images are not of 224 pixels, and their resize is bicubic."""
    weights = networks.create("timm:test_vit", 3).state_dict()
    path = save({"state_dict": weights}, tmp_path / "weights.pt")
    read = networks.load(path, network="timm:test_vit", num_classes=3)
    assert read.statistics == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert (read.size, read.resize, read.interpolation) == (160, int(160 / 0.95), "bicubic")
    read = networks.load(path, network="timm:test_vit", num_classes=3, size=192)
    assert (read.size, read.resize) == (192, int(192 / 0.95))
    read = networks.load(path, network="timm:test_vit", num_classes=3, size=32)  # of no CIFAR
    assert read.statistics == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    options = argparse.Namespace(mean=[0.1, 0.2, 0.3], std=None)  # of the script, which overrides the network's
    save({"state_dict": weights, "args": options}, path)
    with pytest.raises(ValueError, match="got mean alone"):
        networks.load(path, network="timm:test_vit", num_classes=3)
    options.std = [0.4, 0.5, 0.6]
    save({"state_dict": weights, "args": options}, path)
    assert networks.load(path, network="timm:test_vit", num_classes=3).statistics == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    options.mean, options.std = [0.1], [0.4]  # of all channels
    save({"state_dict": weights, "args": options}, path)
    assert networks.load(path, network="timm:test_vit", num_classes=3).statistics == ((0.1,) * 3, (0.4,) * 3)


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64])
def test_weights_of_other_types_are_not_cast(dtype: torch.dtype, tmp_path: Path) -> None:
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in small(3).network.state_dict().items()}
    with pytest.raises(ValueError, match=f"expected floating weights, got 102 of other types .*{dtype}"):
        networks.load(save(state, tmp_path / "weights.pt"), network="resnet18", num_classes=3)
