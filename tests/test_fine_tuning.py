"""Training that begins with weights from elsewhere, and with networks that are no plain classifiers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import training
from training import ALONE, NETWORK, settings

from prime_dali.models import networks
from prime_dali.training import train
from prime_dali.training.trainer import Trainer, _unlike

cifar, one_thread = training.cifar, training.one_thread  # fixtures


def test_weights_of_other_images_and_classes_are_named(cifar: Path, tmp_path: Path) -> None:
    """A run takes their last layer by position, and normalizes as its recipe says."""
    names = ("cat", "airplane", "truck", *"abcdefg")
    known = {"classes": names, "mean": (0.5, 0.5, 0.5), "std": (0.247, 0.2435, 0.2616)}
    other = networks.Classifier(networks.create(NETWORK, 10), NETWORK, 10, **known)
    torch.save(networks.checkpoint(other), tmp_path / "w.pt")
    lines: list[str] = []
    config = train.read(settings(cifar, tmp_path / "run", "--weights", str(tmp_path / "w.pt")))
    trainer = Trainer(config, ALONE, lines.append)
    assert trainer.classifier.statistics == config.statistics
    said = [line for line in lines if line.startswith("weights: ")]
    assert "normalized by the mean (0.5, 0.5, 0.5), where this run has (0.4914, 0.4822, 0.4465)" in said.pop()
    assert said == []  # as these files do not name the classes
    own = ("airplane", "cat", *names[2:])
    assert next(_unlike(other, config, own)).endswith("other classes, cat where this run has airplane")


def test_a_network_that_does_not_return_logits_in_training(cifar: Path, tmp_path: Path) -> None:
    """GoogLeNet and Inception v3 return those of auxiliary classifiers, too, and only in training."""
    trainer = Trainer(train.read(settings(cifar, tmp_path)), ALONE, lambda line: None)
    trainer.training_step._model = lambda images: (trainer.network(images), None)  # type: ignore[assignment]
    with pytest.raises(ValueError, match=f"network {NETWORK} in training: expected a classifier .* got tuple"):
        trainer.run()
