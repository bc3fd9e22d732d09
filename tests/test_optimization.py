"""Optimizers of runs, the learning rates and weight decay of their parameters, and their schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("timm", reason="timm is not installed")

from test_recipes import VIT

from prime_dali.models import networks
from prime_dali.training import optimization
from prime_dali.training.config import TrainConfig


def rates(schedule: Any, optimizer: torch.optim.Optimizer, steps: int) -> list[tuple[float, float]]:
    """Learning rate and momentum, or AdamW's beta 1, of each step."""
    found = []
    for _ in range(steps):
        group = optimizer.param_groups[0]
        found.append((group["lr"], group["betas"][0] if "betas" in group else group["momentum"]))
        optimizer.step()
        schedule.step()
    return found


def scheduled(config: TrainConfig, steps: int) -> list[tuple[float, float]]:
    """:func:`rates` of a run."""
    optimizer = optimization.optimizer(torch.nn.Linear(1, 1), config)
    return rates(optimization.schedule(optimizer, config, steps), optimizer, steps)


def test_cosine_with_warm_up() -> None:
    found = scheduled(TrainConfig(schedule="cosine", warmup=0.25, lr=0.4), 20)
    assert [lr for lr, _ in found[:6]] == pytest.approx([0.4 * k / 6 for k in range(1, 7)])
    reference = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4, momentum=0.95)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(reference, 15)
    assert np.array(found[5:]) == pytest.approx(np.array(rates(cosine, reference, 15)), abs=1e-7)


def test_linear_schedule() -> None:
    found = scheduled(TrainConfig(schedule="linear", warmup=0.3, lr=0.4), 10)
    expected = [0.4 * part for part in (1 / 4, 2 / 4, 3 / 4, *(k / 7 for k in range(7, 0, -1)))]
    assert np.array(found) == pytest.approx(np.array([(lr, 0.95) for lr in expected]))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_no_warm_up(optimizer: str) -> None:
    """The first step has the peak learning rate, and the others are those of torch's schedules after their warm-up."""
    options = {"optimizer": optimizer, "warmup": 0.0, "lr": 0.4}
    first = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4, momentum=0.95)
    cosine = rates(torch.optim.lr_scheduler.CosineAnnealingLR(first, 10), first, 10)
    assert cosine[0][0] == 0.4
    assert np.array(scheduled(TrainConfig(schedule="cosine", **options), 10)) == pytest.approx(np.array(cosine))
    linear = [(0.4 * k / 10, 0.95) for k in range(10, 0, -1)]
    assert np.array(scheduled(TrainConfig(schedule="linear", **options), 10)) == pytest.approx(np.array(linear))
    # The peak of this one is its step 5, after which 9 steps are left.
    second = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4, momentum=0.95)
    onecycle = torch.optim.lr_scheduler.OneCycleLR(second, 0.4, total_steps=15, pct_start=6 / 15)
    expected = [*rates(onecycle, second, 14)[5:], (0.4 / 25e4, 0.95)]
    assert expected[0] == pytest.approx((0.4, 0.85))
    found = scheduled(TrainConfig(schedule="onecycle", **options), 10)
    assert np.array(found) == pytest.approx(np.array(expected))
    assert scheduled(TrainConfig(schedule="onecycle", **options), 1) == [(0.4, 0.85)]


def test_a_schedule_without_warm_up_resumes(tmp_path: Path) -> None:
    config, whole = TrainConfig(warmup=0.0), scheduled(TrainConfig(warmup=0.0), 10)
    for part in (range(4), range(4, 10)):
        optimizer = optimization.optimizer(torch.nn.Linear(1, 1), config)
        schedule = optimization.schedule(optimizer, config, 10)
        if part.start:
            kept = torch.load(tmp_path / "state.pt")
            optimization.restore_schedule(schedule, kept["schedule"], part.start, 10)
            optimizer.load_state_dict(kept["optimizer"])
        assert rates(schedule, optimizer, len(part)) == whole[part.start : part.stop]
        torch.save({"schedule": schedule.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")


def test_optimizers_are_as_the_settings_say() -> None:
    """docs/METHOD.md, "Training": Nesterov momentum, which onecycle cycles inversely to the learning rate."""
    layer = torch.nn.Linear(2, 2)
    common: dict[str, Any] = {"momentum": (0.8, 0.9), "lr": 0.1, "weight_decay": 0.01}
    config = TrainConfig(**common, schedule="cosine", warmup=0.2)
    [group] = optimization.optimizer(layer, config).param_groups
    assert (group["nesterov"], group["momentum"], group["lr"], group["weight_decay"]) == (True, 0.9, 0.1, 0.01)
    config = TrainConfig(**common, optimizer="adamw", beta2=0.95)
    [group] = optimization.optimizer(layer, config).param_groups
    assert (group["betas"], group["lr"], group["weight_decay"]) == ((0.9, 0.95), 0.1, 0.01)
    found = scheduled(TrainConfig(**common, warmup=0.4), 10)
    assert found[0] == pytest.approx((0.1 / 25, 0.9))
    assert found[3] == pytest.approx((0.1, 0.8))
    assert found[6] == pytest.approx(((0.1 + 0.1 / 25e4) / 2, 0.85))


def test_parameter_groups() -> None:
    """Each block has a part of the next one's learning rate; biases, norms and position embeddings have no weight decay."""
    network = networks.create(VIT, 10)
    config = TrainConfig(network=VIT, optimizer="adamw", layer_decay=0.4, exclude_1d=True, weight_decay=0.05, lr=0.01)
    names = {id(parameter): name for name, parameter in network.named_parameters()}

    def found(config: TrainConfig) -> dict[str, tuple[float, float]]:
        groups = optimization.optimizer(network, config).param_groups
        return {names[id(p)]: (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}

    own = found(config)
    assert own.keys() == set(names.values())
    assert own["head.weight"] == (0.01, 0.05)
    assert own["head.bias"] == (0.01, 0)
    layers = [own[f"blocks.{i}.mlp.fc1.weight"][0] for i in range(3)]
    assert layers == pytest.approx([layers[2] * 0.16, layers[2] * 0.4, layers[2]])
    assert own["pos_embed"] == (pytest.approx(layers[0] * 0.4), 0)
    assert own["blocks.0.norm1.weight"][1] == 0
    assert optimization.learning_rate(optimization.optimizer(network, config)) == 0.01  # that of the head
    everywhere = found(TrainConfig(network=VIT, layer_decay=0.5, weight_decay=0.05))
    assert {decay for _, decay in everywhere.values()} == {0.05}
    plain = found(TrainConfig(network=VIT, exclude_1d=True, weight_decay=0.05, lr=0.01))
    assert {lr for lr, _ in plain.values()} == {0.01}
    assert {name: decay for name, (_, decay) in plain.items()} == {name: decay for name, (_, decay) in own.items()}
