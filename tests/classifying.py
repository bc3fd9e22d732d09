"""Classifiers of tests, and files of them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from prime_dali.models import networks


def save(content: Any, path: Path) -> Path:
    torch.save(content, path)
    return path


@functools.cache
def small(num_classes: int) -> networks.Classifier:
    network = networks.create("resnet18", num_classes, "cifar")
    return networks.Classifier(network.eval(), "resnet18", num_classes, "cifar", size=32, resize=None)
