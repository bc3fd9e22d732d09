"""Today's recipes: AdamW, cosine schedule, EMA, mixup and CutMix, gradient accumulation, layer decay, image sizes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("timm", reason="timm is not installed")

import training
from conftest import needs_gpu
from training import ALONE, losses, run, settings

from prime_dali.evaluation import command
from prime_dali.models import networks
from prime_dali.training import numerics, train
from prime_dali.training.averaging import Average
from prime_dali.training.config import TrainConfig
from prime_dali.training.data import CifarData
from prime_dali.training.losses import jsd_loss
from prime_dali.training.mixing import Mixing
from prime_dali.training.ranks import Ranks
from prime_dali.training.trainer import Trainer

cifar, one_thread = training.cifar, training.one_thread  # fixtures

VIT = "timm:vit_tiny_patch16_224:img_size=32,patch_size=8,embed_dim=24,num_heads=2,depth=3,dynamic_img_size=True"
EVERYTHING = [
    "--recipe", "cifar10-vit", "--network", VIT, "--jsd", "--accumulate", "2", "--layer-decay", "0.5", "--sizes", "24", "32",
    "--mixup", "0.8", "--cutmix", "1", "--drop-path", "0.3", "--epochs", "4", "--limit-steps", "2", "--log-every", "1",
]  # fmt: skip


def start(cifar: Path, out: Path, *more: str) -> Trainer:
    return Trainer(train.read(settings(cifar, out, *more)), ALONE, lambda line: None)


@pytest.fixture(scope="module")
def whole(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything at once."""
    out = tmp_path_factory.mktemp("everything")
    run(cifar, out, *EVERYTHING)
    return out


def run_in_two_parts(cifar: Path, out: Path, steps: int, *words: str) -> None:
    """A run that is stopped after some steps, and resumed."""
    trainer = start(cifar, out, *words)
    step = trainer.train_step

    def stopping(*batch: torch.Tensor) -> torch.Tensor:
        trainer._stopping.asked = trainer.step + 1 == steps
        return step(*batch)

    trainer.train_step = stopping  # type: ignore[method-assign]
    assert trainer.run().step == steps
    torch.manual_seed(99)  # another process: nothing depends on what its generator has given
    run(cifar, out, *words)


@pytest.mark.parametrize("steps", [3, 4])  # within the epochs of the first size, and where the second begins
def test_resumes_exactly(cifar: Path, whole: Path, tmp_path: Path, steps: int) -> None:
    """Losses, weights, averages and optimizer of a resumed run are bit-identical to those of an uninterrupted one."""
    run_in_two_parts(cifar, tmp_path, steps, *EVERYTHING)
    assert losses(tmp_path) == losses(whole)
    one, other = (torch.load(folder / "last.pt") for folder in (tmp_path, whole))
    for part in (one["model"], one["ema"]), (other["model"], other["ema"]):
        assert any(not torch.equal(part[0][name], part[1][name]) for name in part[0])
    for part in "model", "ema":
        assert all(torch.equal(one[part][name], other[part][name]) for name in other[part])
    kept, expected = (content["run"]["optimizer"]["state"] for content in (one, other))
    assert all(torch.equal(kept[i]["exp_avg_sq"], expected[i]["exp_avg_sq"]) for i in expected)


def test_the_average_is_what_is_evaluated(whole: Path, capsys: pytest.CaptureFixture, cifar: Path) -> None:
    content = torch.load(whole / "last.pt")
    for raw, part, says in ((False, "ema", " (EMA of the weights)"), (True, "model", "not their EMA)")):
        read = networks.load(whole / "last.pt", raw=raw)
        assert all(torch.equal(value, content[part][name]) for name, value in read.network.state_dict().items())
        assert read.source.startswith(str(whole / "last.pt"))
        assert read.source.endswith(says)
    command.main([str(whole / "last.pt"), "--clean", str(cifar), "--raw", "--device", "cpu"])
    assert "last.pt (weights of the last step, not their EMA)" in capsys.readouterr().out
    torch.save({name: value for name, value in content.items() if name != "ema"}, whole / "plain.pt")
    with pytest.raises(
        ValueError, match=r"raw: expected a checkpoint with averages of the weights \(EMA\), got .*plain.pt"
    ):
        networks.load(whole / "plain.pt", raw=True)


def test_validations_are_of_the_average_with_the_first_process_s_statistics(
    cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[torch.Tensor] = []
    seen: list[torch.nn.Module] = []
    monkeypatch.setattr(
        "prime_dali.training.trainer.count_correct", lambda network, *rest: seen.append(network) or (1, 2)
    )
    for decay in ("0", "0.4"):
        trainer = start(cifar, tmp_path, "--ema-decay", decay)
        average = trainer.training_step.average
        assert (average is None) == (decay == "0")
        network = trainer.network if average is None else average.network
        with monkeypatch.context() as patch:
            patch.setattr(Ranks, "broadcast", lambda ranks, tensors: sent.extend(tensors))
            patch.setattr(trainer, "_log", lambda **numbers: None)
            trainer._validate()
        assert seen.pop() is network
        assert list(map(id, sent)) == list(map(id, network.buffers()))
        sent.clear()


def test_average_by_its_formula() -> None:
    network = torch.nn.BatchNorm1d(1)
    average, expected = Average(network, 0.6), 0.0
    for step in range(1, 9):
        with torch.no_grad():
            network.weight.fill_(step**2)
        network.running_mean.fill_(step**2)
        average.update(network, step)
        decay = min(0.6, 1 - step ** (-2 / 3))
        expected = decay * expected + (1 - decay) * step**2
        assert average.network.weight.item() == pytest.approx(expected, rel=1e-6)
        assert average.network.running_mean.item() == pytest.approx(expected, rel=1e-6)
    assert not average.network.training


def test_steps_of_a_run_are_counted_from_one_in_its_average(cifar: Path, tmp_path: Path) -> None:
    trainer = start(cifar, tmp_path, "--ema-decay", "0.3", "--lr", "1")
    batches, after = trainer.data.batches(0), []
    for _ in range(2):
        trainer.train_step(*next(batches))
        after.append(next(trainer.network.parameters()).detach().clone())
    assert not torch.allclose(*after)
    assert trainer.training_step.average is not None
    decay = min(0.3, 1 - 2 ** (-2 / 3))  # after the first step 0
    found = next(trainer.training_step.average.network.parameters())
    torch.testing.assert_close(found, decay * after[0] + (1 - decay) * after[1])


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_views_share_the_partner_and_the_weight(kind: str) -> None:
    """The soft labels say how much of an image is its partner's, and the pixels of every view agree with them."""
    config = TrainConfig(jsd=True, seed=5, **{kind: 1.0})
    mixing = Mixing(config, 4, rank=0)
    labels = torch.arange(4)
    images = torch.arange(12.0)[:, None, None, None].expand(12, 3, 16, 16)  # constant, of another value each
    before = torch.get_rng_state()
    mixed, soft = mixing.after(images, labels, 7)
    assert torch.equal(torch.get_rng_state(), before)
    weight = soft[0, 0].item()
    assert 0 < weight < 1
    torch.testing.assert_close(soft, weight * torch.eye(4) + (1 - weight) * torch.eye(4).roll(1, 0))
    own, partner = images.unflatten(0, (3, 4)), images.unflatten(0, (3, 4)).roll(1, 1)
    if kind == "mixup":
        torch.testing.assert_close(mixed.unflatten(0, (3, 4)), weight * own + (1 - weight) * partner)
    else:
        pasted = mixed.unflatten(0, (3, 4)) == partner
        assert torch.equal(pasted, pasted[:1, :1, :1].expand_as(pasted))  # the same box everywhere
        assert pasted.double().mean().item() == pytest.approx(1 - weight, abs=1e-6)
        assert torch.equal(mixed.unflatten(0, (3, 4)), torch.where(pasted, partner, own))
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(mixing.after(images, labels, 7)[0], mixed)
    others = [mixing.after(images, labels, 8), Mixing(config, 4, rank=1).after(images, labels, 7)]
    others.append(Mixing(replace(config, seed=6), 4, rank=0).after(images, labels, 7))
    assert all(not torch.equal(other, soft) for _, other in others)
    if kind == "mixup":
        _, halves = Mixing(replace(config, mixup=1e4), 4, rank=0).after(images, labels, 7)
        assert halves[0, 0].item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("jsd", [False, True])
def test_mixing_before_and_after(cifar: Path, jsd: bool) -> None:
    """Without strength PRIME changes nothing, and normalization commutes with mixing: both orders agree."""
    common: dict[str, Any] = {"data": str(cifar), "out": "o", "batch": 20, "compile": False, "alpha": 0.0, "mixup": 0.8,
                              "cutmix": 1.0, "jsd": jsd}  # fmt: skip
    orders = [
        CifarData(TrainConfig(mix_order=order, **common), ALONE, torch.float32).batches(3)
        for order in ("after", "before")
    ]
    for _ in range(4):
        (images, soft), (other, same) = map(next, orders)
        assert soft.shape == (20, 10)
        assert torch.equal(soft, same)
        torch.testing.assert_close(images, other, atol=2e-5, rtol=0)
    strong = CifarData(TrainConfig(mix_order="before", **common | {"alpha": 1.0}), ALONE, torch.float32)
    assert not torch.equal(next(strong.batches(6))[0], other)  # it augments what is mixed


def test_a_run_begins_with_its_weights(cifar: Path, tmp_path: Path) -> None:
    """Also a network that is made anew for stochastic depth."""
    trained = networks.create(VIT, 10)
    torch.save(trained.state_dict(), tmp_path / "weights.pt")
    for rate in ("0", "0.1"):
        words = ["--network", VIT, "--weights", str(tmp_path / "weights.pt"), "--drop-path", rate]
        found = start(cifar, tmp_path / rate, *words).network.state_dict()
        assert all(torch.equal(found[name], value) for name, value in trained.state_dict().items())


def test_accumulation_is_exact(cifar: Path, tmp_path: Path) -> None:
    """The loss and the gradients of a batch in parts are those of the whole, also with three views and soft labels."""
    words = ["--recipe", "cifar10-vit", "--network", VIT, "--drop-path", "0", "--jsd", "--batch", "20", "--seed", "3"]
    found = []
    for parts in (1, 4):
        trainer = start(cifar, tmp_path / str(parts), *words, "--accumulate", str(parts))
        trainer.network.train()
        loss = trainer.training_step.gradients(*next(trainer.data.batches(0)))
        found.append((loss, [parameter.grad for parameter in trainer.network.parameters()]))
    (loss, gradients), (other, others) = found
    assert other.item() == pytest.approx(loss.item(), rel=1e-6)
    for one, two in zip(gradients, others, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)


def test_the_loss_is_as_the_settings_say(cifar: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 10), torch.tensor([3, 5])
    words = ["--label-smoothing", "0.2"]
    found = start(cifar, tmp_path, *words, "--jsd", "--jsd-weight", "3").training_step._loss(logits, labels)
    assert found == jsd_loss(logits, labels, 3.0, 0.2)
    found = start(cifar, tmp_path, *words, "--no-jsd").training_step._loss(logits[:2], labels)
    assert found == torch.nn.functional.cross_entropy(logits[:2], labels, label_smoothing=0.2)


@pytest.mark.parametrize("clip", [0.01, 0])
def test_gradients_are_clipped_by_their_norm(clip: float, cifar: Path, tmp_path: Path) -> None:
    trainer = start(cifar, tmp_path, "--clip", str(clip))
    trainer.train_step(*next(trainer.data.batches(0)))
    gradients = [parameter.grad.flatten() for parameter in trainer.network.parameters()]
    norm = torch.cat(gradients).norm().item()
    assert norm == pytest.approx(0.01, rel=1e-3) if clip else norm > 0.1


def test_sizes(cifar: Path) -> None:
    config = TrainConfig(data=str(cifar), out="o", batch=60, compile=False, epochs=5, sizes=(16, 24, 32))
    assert [config.side(epoch) for epoch in range(5)] == [16, 16, 24, 24, 32]
    data = CifarData(config, ALONE, torch.float32)
    batches = data.batches(0)
    seen = [next(batches)[0] for _ in range(10)]
    assert [images.shape[-1] for images in seen] == [16] * 4 + [24] * 4 + [32] * 2
    late = next(data.batches(5))[0]
    assert torch.equal(late, seen[5])


@pytest.mark.parametrize(("words", "message"), [
    ("--layer-decay 0.5", "layer_decay: expected 1 for shufflenet_v2_x0_5, which has no groups of layers, got 0.5; networks of timm"),
    ("--drop-path 0.1", "drop_path: expected 0 for shufflenet_v2_x0_5, which takes no rate of stochastic depth, got 0.1"),
    ("--network timm:vit_tiny_patch16_224:depth=1", r"size: expected a size that timm:vit_tiny_patch16_224:depth=1 takes, got 32 \(Input height"),
    (f"--sizes 24 32 --network {VIT.removesuffix(',dynamic_img_size=True')}", "sizes: expected a size that .* takes, got 24 .*dynamic_img_size=True"),
])  # fmt: skip
def test_networks_that_cannot(words: str, message: str, cifar: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        start(cifar, tmp_path, *words.split())


def test_shares_of_processes() -> None:
    assert TrainConfig(batch=24, accumulate=3).share(4) == 6
    with pytest.raises(ValueError, match="accumulate: expected a divisor of the 6 images of each process, got 4"):
        TrainConfig(batch=24, accumulate=4).share(4)
    with pytest.raises(ValueError, match="batch: expected two images or more per process with mixup or CutMix, got 1"):
        TrainConfig(batch=4, mixup=1.0).share(4)


def test_stochastic_depth_differs_between_processes(cifar: Path, tmp_path: Path) -> None:
    """Its numbers depend on seed, step and process: not on what was drawn before."""
    seen, seeds = [], set()
    for rank, generator in ((0, 1), (0, 2), (1, 1)):
        trainer = start(cifar, tmp_path, "--recipe", "cifar10-vit", "--network", VIT, "--drop-path", "0.9")
        trainer.training_step.ranks = Ranks(rank, 1, torch.device("cpu"))
        torch.manual_seed(generator)
        trainer.network.train()
        images, labels = torch.ones(20, 3, 32, 32), torch.zeros(20, dtype=torch.int64)
        seen.append([])
        for _ in range(2):
            seen[-1].append(trainer.train_step(images, labels).item())
            seeds.add(torch.initial_seed())
    assert seen[0] == seen[1]
    assert len(seeds) == 4  # two steps of two processes
    assert seen[0][0] != seen[2][0]
    assert all(math.isfinite(loss) for losses in seen for loss in losses)


def test_attention_is_asked_to_be_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's flash attention is so only in the strict mode, which has no gradient of resized position embeddings."""
    asked: list[dict[str, bool]] = []
    monkeypatch.setattr(
        torch, "use_deterministic_algorithms", lambda mode, **options: asked.append({"mode": mode, **options})
    )
    for name in ("enable_mem_efficient_sdp", "enable_cudnn_sdp"):
        monkeypatch.setattr(torch.backends.cuda, name, lambda enabled: None)
    filled = torch.utils.deterministic.fill_uninitialized_memory
    plain = VIT.replace(",dynamic_img_size=True", "")
    try:
        for network in (plain, VIT, "resnet18"):
            numerics.choose_attention(networks.create(network, 10), torch.device("cuda"), True)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled
    assert asked == [{"mode": True, "warn_only": False}, {"mode": True, "warn_only": True}]


@needs_gpu
def test_attention_is_bit_identical_in_every_run(cifar: Path, tmp_path: Path) -> None:
    found = []
    for out in ("a", "b"):
        words = ("--recipe", "cifar10-vit", "--network", VIT.replace(",dynamic_img_size=True", ""), "--device", "cuda")
        trainer = start(cifar, tmp_path / out, *words, "--epochs", "2", "--limit-steps", "2")
        trainer.run()
        found.append(torch.cat([parameter.flatten() for parameter in trainer.network.parameters()]))
    assert torch.equal(*found)
