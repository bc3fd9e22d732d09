"""Muon: which weights it takes, what its step does to them, and runs that resume."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("timm", reason="timm is not installed")

import training
from test_recipes import VIT, run_in_two_parts
from training import losses, run

from prime_dali.models import networks
from prime_dali.training import checkpoint, muon, optimization
from prime_dali.training.config import TrainConfig

cifar, one_thread = training.cifar, training.one_thread  # fixtures


def test_a_run_resumes_exactly(cifar: Path, tmp_path: Path) -> None:
    """From weights, which the resumed run does not read again. What it logs is the learning rate that was asked for."""
    trained = networks.create(VIT, 10)
    torch.nn.init.normal_(trained.cls_token)  # zero in a new network
    torch.save(trained.state_dict(), tmp_path / "weights.pt")
    options = (
        "--recipe cifar10-vit --optimizer muon --lr 0.1 --warmup 0.5 --ema-decay 0 --no-jsd --epochs 1 --limit-steps 4"
    )
    words = [*options.split(), "--log-every", "1", "--network", VIT, "--weights", str(tmp_path / "weights.pt")]
    run(cifar, tmp_path / "whole", *words)
    run_in_two_parts(cifar, tmp_path / "parts", 2, *words)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    one, other = (torch.load(tmp_path / name / "last.pt")["model"] for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    peak = TrainConfig(recipe="cifar10-vit", lr=0.1, batch=20).max_lr
    rates = [line["lr"] for line in checkpoint.read_log(tmp_path / "parts") if "lr" in line]
    assert rates[:3] == pytest.approx([peak / 3, 2 * peak / 3, peak])


@pytest.mark.parametrize("shape", [(2, 8, 27), (3, 30, 12)])
def test_orthogonal(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    matrices = torch.randn(shape)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inner = left.mT @ muon.orthogonal(matrices) @ right.mT
    values = inner.diagonal(dim1=1, dim2=2)
    assert (inner - values.diag_embed()).abs().max() < 1e-4
    assert 0.6 < values.min() < values.max() < 1.3


@pytest.mark.parametrize(("name", "some", "not_these"), [
    ("vit_b_16", {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight", "encoder.layers.encoder_layer_0.mlp.0.weight"},
     {"class_token", "encoder.pos_embedding", "conv_proj.weight", "heads.head.weight"}),
    ("convnext_tiny", {"features.1.0.block.3.weight", "features.2.1.weight"},
     {"features.0.0.weight", "features.1.0.block.0.weight", "features.1.0.layer_scale", "classifier.2.weight"}),
])  # fmt: skip
def test_muon_takes_the_weights_of_hidden_layers(name: str, some: set[str], not_these: set[str]) -> None:
    """Neither tokens nor embeddings, scales, grouped convolutions, the first and the last layer."""
    with torch.device("meta"):
        network = networks.create(name, 10)
    taken = {id(weight) for weight in optimization._matrices(network)[1:-1]}
    names = {name for name, parameter in network.named_parameters() if id(parameter) in taken}
    assert some <= names
    assert not names & not_these
    assert all(network.get_parameter(name).dim() > 1 for name in names)


def test_muon_refuses_a_hidden_weight_without_a_norm() -> None:
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    torch.nn.init.zeros_(layers[1].weight)
    config = TrainConfig(optimizer="muon", schedule="linear")
    with pytest.raises(ValueError, match=r"optimizer: expected hidden weights other than zero with muon, got \[4, 4\]"):
        optimization.optimizer(torch.nn.Sequential(*layers), config)


def test_muon() -> None:
    """Hidden weights take steps of one angle and keep their norm, the rest is SGD's; another optimizer continues."""
    torch.manual_seed(1)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 3), torch.nn.Conv2d(8, 8, 3), torch.nn.Linear(8, 4)]
    network = torch.nn.Sequential(*layers).to(memory_format=torch.channels_last)
    config = TrainConfig(optimizer="muon", schedule="linear", lr=0.1, muon_sgd_lr_scale=3.0, momentum=(0.8, 0.8))
    optimizer, expected = optimization.optimizer(network, config), copy.deepcopy(network)
    sgd = torch.optim.SGD(expected.parameters(), lr=0.3, momentum=0.8, nesterov=True, weight_decay=config.weight_decay)
    averages = {name: torch.zeros_like(value) for name, value in expected.named_parameters()}
    for _ in range(3):
        before = copy.deepcopy(expected.state_dict())
        for (name, one), two in zip(network.named_parameters(), expected.parameters(), strict=True):
            one.grad = torch.randn_like(one)
            two.grad = one.grad.clone()
            averages[name].lerp_(two.grad, 0.2)
        optimizer.step()
        sgd.step()
        for name in ("1.weight", "2.weight"):
            weight, norm = before[name], before[name].norm()
            direction = expected.get_parameter(name).grad.lerp(averages[name], 0.8).flatten(1)
            turned = weight - 0.1 * norm / 8**0.5 * muon.orthogonal(direction[None])[0].reshape(weight.shape)
            expected.get_parameter(name).data.copy_(turned * norm / turned.norm())
        for one, two in zip(network.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)

    other = copy.deepcopy(network)
    for layer in other:
        layer.weight.data.mul_(3)  # of the weights that the run continues with, the norm is not the initial one
    continued = optimization.optimizer(other, config)
    optimization.restore_optimizer(continued, copy.deepcopy(optimizer.state_dict()), config)
    other.load_state_dict(network.state_dict())
    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        one.grad = torch.randn_like(one)
        two.grad = one.grad.clone()
    optimizer.step()
    continued.step()
    assert all(map(torch.equal, network.parameters(), other.parameters()))
