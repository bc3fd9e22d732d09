"""Adapting batch norm to images of a set."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from evaluating import CPU, STATISTICS, Gray, gray
from torch import nn

from prime_dali.evaluation import adaptation, evaluate, image_sets


def norm(mean: float, variance: float) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(1, eps=1e-30)
    layer.running_mean.fill_(mean)
    layer.running_var.fill_(variance)
    return layer.eval()


def statistics(layer: nn.BatchNorm2d) -> list[float]:
    return [layer.running_mean.item(), layer.running_var.item()]


def test_statistics_are_blended_in_one_pass() -> None:
    """N = 1, n = 2, worked out by hand for two layers in a row, with a doubling between them."""
    double = nn.Conv2d(1, 1, 1, bias=False)
    double.weight.data.fill_(2.0)
    network = nn.Sequential(norm(1.0, 1.0), double, norm(0.0, 3.0)).eval()
    images = torch.tensor([[1.0, 3.0], [5.0, 7.0]]).reshape(2, 1, 1, 2)
    with adaptation.adapted(network, images, 1):
        # The values 1 3 5 7: mean 4, variance 5. A third of (1, 1) and two thirds of (4, 5): mean 3, variance 11/3.
        assert statistics(network[0]) == pytest.approx([3, 11 / 3])
        # The second layer sees 2 (x - 3) / sqrt(11/3): mean 2 / sqrt(11/3), variance 4 * 5 / (11/3) = 60/11.
        assert statistics(network[2]) == pytest.approx([2 / 3 * 2 / (11 / 3) ** 0.5, (3 + 2 * 60 / 11) / 3])
    assert statistics(network[0]) == [1, 1]
    assert statistics(network[2]) == [0, 3]


def test_one_sample_of_one_value() -> None:
    layer = norm(2.0, 4.0)
    with adaptation.adapted(nn.Sequential(layer), torch.full((1, 1, 1, 1), 19.0), 16):
        assert statistics(layer) == pytest.approx([(16 * 2 + 19) / 17, 16 * 4 / 17])  # its variance is 0


def test_statistics_are_computed_in_single_precision() -> None:
    """Also where a layer sees bfloat16, as on a GPU: a sum of 7 and 1000 ones is no number of that precision."""
    network = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), norm(0.0, 1.0))
    network[0].weight.data.fill_(1.0)
    images = torch.ones(1, 1, 1, 1001)
    images[0, 0, 0, 0] = 7.0
    with torch.autocast("cpu", torch.bfloat16), adaptation.adapted(network, images, 0):
        assert statistics(network[1]) == pytest.approx([1007 / 1001, (1049 - 1007**2 / 1001) / 1001], rel=1e-5)


def test_without_prior_it_is_training_mode() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5))
    images = torch.randn(6, 3, 9, 9)
    trained = {key: value.clone() for key, value in network.state_dict().items()}
    with adaptation.adapted(network.eval(), images, 0), torch.no_grad():
        found = network(images)
    now = network.state_dict()
    assert all(torch.equal(value, now[key]) for key, value in trained.items())
    with torch.no_grad():
        expected = network.train()(images)
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_network_is_restored_after_a_failure() -> None:
    network = nn.Sequential(norm(1.0, 1.0), nn.Conv2d(2, 1, 1)).eval()  # the convolution expects another width
    with pytest.raises(RuntimeError), adaptation.adapted(network, torch.ones(2, 1, 2, 2), 1):
        pass
    assert statistics(network[0]) == [1, 1]
    assert not network[0]._forward_pre_hooks
    with (
        pytest.raises(ValueError, match="expected batch-norm layers to adapt, got none"),
        adaptation.adapted(Gray(3), torch.ones(1, 3, 2, 2), 1),
    ):
        pass


def test_counting_with_adaptation() -> None:
    """All images are 100 brighter than in training, and adaptation with N = 0 undoes it."""
    labels = np.array([0, 1, 2, 3] * 2)
    brighter = gray(labels) + 100
    layer = nn.BatchNorm2d(3, eps=1e-30, affine=False)
    layer.running_mean.fill_(30 / 255)  # of the values 0, 20, 40, 60
    layer.running_var.fill_(500 / 255**2)
    scale = nn.Conv2d(3, 3, 1, groups=3)
    scale.weight.data.fill_(500**0.5 / 255)
    scale.bias.data.fill_(30 / 255)
    network = nn.Sequential(layer, scale, Gray(4))
    images = image_sets.Arrays(brighter, labels)
    assert (
        evaluate.count(network, image_sets.Arrays(gray(labels), labels), STATISTICS, device=CPU, batch=4).correct == 8
    )
    assert evaluate.count(network, images, STATISTICS, device=CPU, batch=4).correct == 2
    adapt = adaptation.Adaptation(0, 8)
    assert evaluate.count(network, images, STATISTICS, device=CPU, batch=3, adapt=adapt).correct == 8
    assert layer.running_mean[0].item() == pytest.approx(30 / 255)


def test_counting_adapts_to_the_images_that_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(adaptation, "adapted", lambda network, images, prior: seen.append(images) or nullcontext())
    labels, adapt = np.arange(10), adaptation.Adaptation(16, 3, seed=1)
    evaluate.count(Gray(10), image_sets.Arrays(gray(labels), labels), STATISTICS, CPU, 4, adapt, "fog 1")
    assert (255 * seen[0].mean((1, 2, 3)) / 20).round().tolist() == adapt.draw("fog 1", 10).tolist() != [0, 1, 2]


def test_draws_are_named_by_seed_and_set() -> None:
    adapt = adaptation.Adaptation(16, 8, seed=3)
    first = adapt.draw("fog 1", 100)
    assert len(set(first.tolist())) == 8
    assert first.max() < 100
    assert np.array_equal(first, adapt.draw("fog 1", 100))
    for other in (adapt.draw("fog 2", 100), adaptation.Adaptation(16, 8, seed=4).draw("fog 1", 100)):
        assert not np.array_equal(first, other)
    assert adaptation.Adaptation(0, 5, seed=-1).draw("fog 1", 5).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="n: expected at most the 7 images of fog 1, got 8"):
        adapt.draw("fog 1", 7)


def test_adaptations_by_name() -> None:
    found = [adaptation.parse(words, 5) for words in (["single"], ["partial"], ["full"], ["2", "3"])]
    assert [(a.prior, a.samples, a.seed) for a in found] == [(16, 1, 5), (16, 8, 5), (0, 400, 5), (2, 3, 5)]
    for words in (["some"], ["1"], ["1", "-2"], ["1", "2", "3"], ["partial", "8"]):
        with pytest.raises(ValueError, match="bn-adapt: expected single, partial, full, or two whole numbers N n"):
            adaptation.parse(words)
    with pytest.raises(ValueError, match="n: expected 1 to"):
        adaptation.parse(["16", "0"])
