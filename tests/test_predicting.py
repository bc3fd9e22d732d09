"""What evaluation expects of a network and of the constants of its normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from evaluating import CPU, STATISTICS, Gray, gray
from torch import nn

from prime_dali.evaluation import evaluate
from prime_dali.models import creation

LABELS = np.arange(4)


class Changed(nn.Module):
    """Returns something else than logits."""

    def __init__(self, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.network, self.change = Gray(4), change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self.network(x))


@pytest.mark.parametrize(("change", "got"), [
    (lambda y: (y,), "got tuple"), (lambda y: {"logits": y}, "got dict"), (lambda y: y.argmax(1), r"got torch.int64 \[4\]"),
    (lambda y: y[:, :, None], r"got torch.float32 \[4, 4, 1\]"), (lambda y: y[:1], r"got torch.float32 \[1, 4\]"),
    (lambda y: y.long(), r"got torch.int64 \[4, 4\]"),
])  # fmt: skip
def test_a_network_that_does_not_return_logits(change: Any, got: str) -> None:
    with pytest.raises(ValueError, match=f"network: expected a classifier that returns one tensor of logits.*{got}"):
        evaluate.accuracy(Changed(change), gray(LABELS), LABELS, *STATISTICS, CPU)


def test_logits_of_half_the_precision_are_logits() -> None:
    assert evaluate.accuracy(Changed(lambda y: y.bfloat16()), gray(LABELS), LABELS, *STATISTICS, CPU) == 1


@pytest.mark.parametrize(("mean", "std", "message"), [
    ((123.7, 116.3, 103.5), (58.4, 57.1, 57.4), "mean: expected numbers up to 1"),
    ((0.5,), (0.2,), "mean: expected three finite numbers"),
    ((0.5, 0.5, 0.5), (0.2, 0.0, 0.2), "std: expected"),
])  # fmt: skip
def test_constants_of_another_scale(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate.accuracy(Gray(4), gray(LABELS), LABELS, mean, std, CPU)


@pytest.mark.parametrize(("name", "message"), [
    ("timm:test_vit:global_pool=''", r"network timm:test_vit.*expected a classifier .* got torch.float32 \[1, 101, 2\]"),
    ("timm:resnet10t:in_chans=6,features_only=True", "network: expected one of images of 3 channels, got .*, of 6"),
])  # fmt: skip
def test_networks_that_are_no_classifiers_of_rgb_images(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        creation.check_sizes(creation.create(name, 2), name, {"size": (160,)})
