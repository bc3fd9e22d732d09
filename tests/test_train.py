"""Training runs: their data, their steps, several processes, faults."""

from __future__ import annotations

import contextlib
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import needs_gpu
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

pytest.importorskip("torchvision", reason="torchvision is not installed")

import forking
import training
from training import ALONE, NETWORK, TEST, losses, run, settings

from prime_dali import cli
from prime_dali.models import networks
from prime_dali.training import checkpoint, optimization, replay, train
from prime_dali.training.checkpoint import Diverged
from prime_dali.training.config import TrainConfig
from prime_dali.training.data import CifarData
from prime_dali.training.ranks import Ranks, SharedGradients
from prime_dali.training.trainer import Trainer

cifar, one_thread = training.cifar, training.one_thread  # fixtures


def test_a_small_set_is_learned(cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 16, 5, 4), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Flatten()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(16 * 49, 10))
    monkeypatch.setattr(networks, "create", lambda *settings: network)
    run(cifar, tmp_path, "--method", "standard", "--epochs", "8")
    found = losses(tmp_path)
    assert found[-1][1] < 0.8 * found[0][1]


def test_gradients_are_averaged_as_one_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the layout of their parameters; a parameter without a gradient keeps none."""
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10))
    network.to(memory_format=torch.channels_last)
    network.unused = torch.nn.Linear(2, 2)
    shared, reduced = SharedGradients(network), []
    monkeypatch.setattr("prime_dali.training.ranks.dist.all_reduce", lambda tensor, op: reduced.append(tensor.mul_(3)))
    for scale in (1, 2):  # of the second step is nothing left of the first one
        network.zero_grad()
        (scale * network[:3](torch.ones(2, 3, 8, 8))).square().sum().backward()
        found = {name: parameter.grad for name, parameter in network.named_parameters()}
        shared.gather()
        shared.average()
        for name, parameter in network.named_parameters():
            if "unused" in name:
                assert parameter.grad is None
                continue
            assert torch.equal(parameter.grad, 3 * found[name]), name
            assert parameter.grad.stride() == parameter.stride()
    assert [tensor.numel() for tensor in reduced] == [sum(p.numel() for p in network.parameters())] * 2


def test_what_processes_tell_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[torch.Tensor, int]] = []

    def all_gather(parts: list[torch.Tensor], values: torch.Tensor) -> None:
        for other, part in enumerate(parts):
            part.copy_(values + other)

    monkeypatch.setattr("prime_dali.training.ranks.dist.all_gather", all_gather)
    monkeypatch.setattr("prime_dali.training.ranks.dist.broadcast", lambda tensor, first: sent.append((tensor, first)))
    ranks, values = Ranks(1, 3, torch.device("cpu")), torch.tensor([2.0, 5.0])
    assert ranks.mean(values) == [3.0, 6.0]
    ranks.broadcast([values])
    assert sent == [(values, 0)]


def test_each_process_of_a_machine_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Ranks.start("auto").device == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(RuntimeError, match="device: expected a GPU for each process of this machine, got 2 for 3"):
        Ranks.start("auto")


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_run_is_deterministic_if_it_is_asked_for(
    deterministic: bool, cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("prime_dali.training.numerics.os", SimpleNamespace(environ=environment))
    for flag in ("benchmark", "deterministic"):
        monkeypatch.setattr(torch.backends.cudnn, flag, deterministic == (flag == "benchmark"))  # the opposite
    own = "--deterministic" if deterministic else "--no-deterministic"
    Trainer(train.read(settings(cifar, tmp_path, own)), ALONE, lambda line: None)
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (deterministic, not deterministic)
    wanted = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCHINDUCTOR_DETERMINISTIC": "1", "NCCL_NVLS_ENABLE": "0"}
    assert environment == (wanted if deterministic else {})


def test_the_optimizer_takes_what_the_processes_averaged(
    cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One mean a step, also of a batch in parts. If it is zero, no weight changes; they begin as the first process's."""
    reduced, sent = [], []

    def all_reduce(tensor: torch.Tensor, op: object) -> None:
        reduced.append(op)
        tensor.zero_()

    monkeypatch.setattr("prime_dali.training.ranks.dist.all_reduce", all_reduce)
    monkeypatch.setattr(Ranks, "broadcast", lambda ranks, tensors: sent.extend(tensors))  # there are no others
    config = train.read(settings(cifar, tmp_path, "--no-jsd", "--accumulate", "2", "--weight-decay", "0"))
    trainer = Trainer(config, Ranks(0, 2, torch.device("cpu")), lambda line: None)
    assert [tensor.data_ptr() for tensor in sent] == [t.data_ptr() for t in trainer.network.state_dict().values()]
    before = [parameter.clone() for parameter in trainer.network.parameters()]
    trainer.network.train()
    trainer.train_step(*next(trainer.data.batches(0)))
    assert reduced == [torch.distributed.ReduceOp.AVG]
    assert all(torch.equal(now, then) for now, then in zip(trainer.network.parameters(), before, strict=True))


@needs_gpu
def test_a_replayed_step_is_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and weights of steps replayed as a CUDA graph and of steps that are not are bit-identical."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
    ).cuda()
    images = torch.rand(5, 16, 3, 8, 8, device="cuda")
    labels = torch.randint(10, (5, 16), device="cuda")
    found = []
    for replayed in (False, True):
        copy = deepcopy(network)
        optimizer = torch.optim.SGD(copy.parameters(), lr=0.1, momentum=0.9)
        gradients = partial(_gradients, copy)
        step = replay.Replayed(gradients, copy, images[0], labels[0]) if replayed else gradients
        numbers = []
        for x, y in zip(images, labels, strict=True):
            if not replayed:
                optimizer.zero_grad()
            numbers.append(step(x, y).item())
            optimizer.step()
        found.append((numbers, copy.state_dict()))
    (numbers, state), (others, other) = found
    assert numbers == others
    assert all(torch.equal(state[name], other[name]) for name in state)


@needs_gpu
def test_a_replayed_update_is_the_update() -> None:
    """Weights after updates by Muon that are replayed, also with new gradients and learning rates, and that are not."""
    layers = [torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 32, 3), torch.nn.Linear(32, 10)]
    network = torch.nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)
    config = TrainConfig(optimizer="muon", schedule="linear", lr=0.1)
    found = []
    for replayed in (False, True):
        torch.manual_seed(1)
        copy = deepcopy(network)
        optimizer = optimization.optimizer(copy, config)
        update = replay.ReplayedUpdate(optimizer, torch.device("cuda"))
        for parameter in copy.parameters():
            parameter.grad = torch.empty_like(parameter)
        for step in range(6):
            for parameter in copy.parameters():
                if step == 4:
                    parameter.grad = torch.empty_like(parameter)
                torch.nn.init.normal_(parameter.grad)
            if step == 4 or not replayed:
                update.forget()
            if not replayed:
                update._warm = False
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            update()
            assert optimizer.param_groups[0]["lr"] == 0.1 / (1 + step)
        found.append(list(copy.parameters()))
    assert all(map(torch.equal, *found))


def _gradients(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    loss = torch.nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    return loss.detach()


def test_nan_stops_the_run(cifar: Path, tmp_path: Path) -> None:
    config = train.read(settings(cifar, tmp_path, "--save-minutes", "0"))
    trainer = Trainer(config, ALONE, lambda line: None)
    inner = trainer.train_step
    trainer.train_step = lambda images, labels: inner(images, labels) * (float("nan") if trainer.step == 7 else 1)
    with pytest.raises(Diverged, match=r"got inf at step 6 of 9; there is no checkpoint"):
        checkpoint.check_losses(tmp_path / "none", [0.5, float("inf"), 0.5], 7, 9)
    with pytest.raises(Diverged, match=r"loss: expected a finite number, got nan at step 7 of 18; the last checkpoint"):
        trainer.run()
    assert checkpoint.load(tmp_path)["run"]["step"] == 6


def test_times_of_a_run(cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of training is without the first step, which compiles the network, or would, and without validations and
    checkpoints; there is one when the last one is so many minutes old."""
    words = ["--epochs", "2", "--limit-steps", "5", "--log-every", "1", "--save-minutes", "2.5"]
    said: list[str] = []
    trainer = Trainer(train.read(settings(cifar, tmp_path, *words)), ALONE, said.append)
    now, saved = [0.0], []
    monkeypatch.setattr("prime_dali.training.trainer.time", SimpleNamespace(monotonic=lambda: now[0]))
    validate = trainer._validate

    def pass_minutes(count: float) -> None:
        now[0] += 60 * count

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        trainer.step += 1
        pass_minutes(30 if trainer.step == 1 else 1)
        return torch.zeros(())

    def slow_validation() -> bool:
        pass_minutes(20)
        return validate()

    def save() -> None:
        pass_minutes(10)
        saved.append(trainer.step)

    trainer.train_step, trainer._validate, trainer._save = step, slow_validation, save  # type: ignore[method-assign]
    assert trainer.run().seconds == 60 * 9
    assert saved == [1, 4, 6, 9, 10]  # between 4 and 6 is a validation
    assert [line.partition("; ")[2] for line in said if "correct" in line] == ["300.00 s per epoch"] * 2
    rates = [line["images_per_second"] for line in checkpoint.read_log(tmp_path) if "loss" in line]
    assert rates == pytest.approx([20 / 1800, *[20 / 60] * 9])


def test_lines_of_the_log_and_validations(cifar: Path, tmp_path: Path) -> None:
    """A line has the mean loss since the one before. Lines end with the epochs, and the last epoch has a validation."""
    words = ["--limit-steps", "3", "--epochs", "3", "--log-every", "2", "--validate-every", "2"]
    trainer = Trainer(train.read(settings(cifar, tmp_path, *words)), ALONE, lambda line: None)

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        trainer.step += 1
        return torch.tensor(float(trainer.step))

    trainer.train_step = step  # type: ignore[method-assign]
    trainer._stopping.interrupted = True  # by a Ctrl-C that came too late
    result = trainer.run()
    assert (result.finished, result.interrupted) == (True, False)
    assert losses(tmp_path) == [(2, 1.5), (3, 3), (4, 4), (6, 5.5), (8, 7.5), (9, 9)]
    log = checkpoint.read_log(tmp_path)
    assert [line["step"] for line in log if "accuracy" in line] == [6, 9]
    assert all(line["epoch"] == line["step"] / 3 for line in log)


def test_bad_pixels_are_the_reason_of_nan(cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU PRIME reports them late: the run asks before it calls the loss diverged."""
    trainer = Trainer(train.read(settings(cifar, tmp_path)), ALONE, lambda line: None)
    inner = trainer.train_step
    trainer.train_step = lambda images, labels: inner(images, labels) * float("nan")

    def found() -> None:
        raise ValueError("images: expected finite values in [0, 1], got nan")

    monkeypatch.setattr("prime_dali.training.checkpoint.check_pixels", found)
    with pytest.raises(ValueError, match="images: expected finite values"):
        trainer.run()


def test_bad_data(cifar: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected CIFAR-100, as cifar-"):
        run(cifar, tmp_path / "a", "--recipe", "cifar100")
    with pytest.raises(ValueError, match="batch: expected at most the 120 training images, got 121"):
        run(cifar, tmp_path / "b", "--batch", "121")
    with pytest.raises(ValueError, match="batch: expected a multiple of the 3 processes, got 20"):
        Trainer(train.read(settings(cifar, tmp_path / "c")), Ranks(0, 3, torch.device("cpu")), print)
    other = networks.Classifier(networks.create(NETWORK, 7), NETWORK, 7)
    torch.save(networks.checkpoint(other), tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"weights: num_classes: expected 7.*; --weights= starts from random ones"):
        run(cifar, tmp_path / "d", "--weights", str(tmp_path / "w.pt"))
    with pytest.raises(OSError, match=r"weights: .*no such file; --weights= starts from random ones"):
        run(cifar, tmp_path / "d", "--weights", str(tmp_path / "none.pt"))
    with pytest.raises(ValueError, match="warmup: expected a part of the run's 4 steps that is more than"):
        run(cifar, tmp_path / "e", "--epochs", "1", "--limit-steps", "4")  # a quarter of them is one
    assert not list(tmp_path.glob("*/*"))


def test_a_trial_validates_on_few_images_of_all_classes(cifar: Path, tmp_path: Path) -> None:
    """As many as there are in its steps of an epoch, which are not more than usual."""
    config = TrainConfig(data=str(cifar), out="o", batch=10, limit_steps=2)
    parts = [CifarData(config, Ranks(i, 2, torch.device("cpu")), torch.float32) for i in range(2)]
    labels = [torch.cat([labels for _, labels in part.validation()]).tolist() for part in parts]
    expected = [3 * i // 2 % 10 for i in range(20)]  # 20 of 30 images, whose labels are 0 to 9, three times
    assert labels == [expected[0::2], expected[1::2]]
    assert parts[0].validation_images == 20
    assert Trainer(train.read(settings(cifar, tmp_path, "--limit-steps", "7")), ALONE, lambda line: None).steps == 6


@pytest.mark.parametrize("method", ["standard", "augmix", "prime"])
def test_processes_share_every_batch(cifar: Path, method: str) -> None:
    """Two processes see, together, what one sees; and a later step needs no earlier one."""
    config = TrainConfig(data=str(cifar), out="o", method=method, batch=20, compile=False)
    whole = CifarData(config, ALONE, torch.float32).batches(0)
    halves = [CifarData(config, Ranks(i, 2, torch.device("cpu")), torch.float32).batches(0) for i in range(2)]
    seen = []
    for _ in range(8):  # more than an epoch
        images, labels = next(whole)
        parts = [next(half) for half in halves]
        torch.testing.assert_close(torch.cat([p[0] for p in parts]), images, atol=0, rtol=0)
        assert torch.equal(torch.cat([p[1] for p in parts]), labels)
        seen.append(images)
    late, _ = next(CifarData(config, ALONE, torch.float32).batches(7))
    assert torch.equal(late, seen[7])
    assert not torch.equal(seen[0], seen[6])  # the next epoch has another order


def test_crops_and_flips(cifar: Path) -> None:
    """Every standard training image is a window of the padded original, mirrored or not."""
    config = TrainConfig(data=str(cifar), out="o", method="standard", batch=20, compile=False)
    data = CifarData(config, ALONE, torch.float32)
    mean, std = (torch.tensor(v)[:, None, None] for v in config.statistics)
    padded = torch.nn.functional.pad(data._images[:, 4:-4, 4:-4].permute(0, 3, 1, 2), (4, 4, 4, 4))
    windows = padded.unfold(2, 32, 1).unfold(3, 32, 1).flatten(2, 3)  # [N, 3, 81, 32, 32]
    images, labels = next(data.batches(0))
    flipped = 0
    for image, label in zip(images, labels, strict=True):
        pixels = ((image * std + mean) * 255).round().to(torch.uint8)[None, :, None]
        among = windows[data._labels == label]
        straight, mirrored = ((among == p).all(1).all(-1).all(-1).any() for p in (pixels, pixels.flip(-1)))
        assert straight or mirrored
        flipped += bool(mirrored)
    assert 3 <= flipped <= 17


def test_draws_per_batch_and_alpha_by_epoch(cifar: Path, tmp_path: Path) -> None:
    words = ["--draws", "batch", "--alpha", "0.4", "--alpha-start", "2", "--wave-strength", "5"]
    run = Trainer(train.read(settings(cifar, tmp_path, *words)), ALONE, lambda line: None)
    assert "draws per batch, alpha from 0.8, waves of strength 5" in run.config.also()
    for epoch, alpha in enumerate((0.8, 0.6, 0.4)):
        config = run.config.prime(epoch)
        assert (config.draws, round(config.alpha, 6)) == ("batch", alpha)
        next(run.data.batches(epoch * run.steps))
        assert run.data.augment.config == config


def command_here(*words: str) -> int:
    return cli.main(list(words))


@pytest.mark.timeout(200)
def test_two_processes(cifar: Path, tmp_path: Path) -> None:
    """As torchrun starts them: one log, the same validation result as one process has of the same checkpoint."""
    words = settings(cifar, tmp_path, "--method", "prime", "--epochs", "1", "--accumulate", "2", "--mixup", "0.5")
    # What torchrun calls, but that its processes are forked: starting two takes longer than what they do.
    standalone = LaunchConfig(
        1, 1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", run_id="here",
        monitor_interval=0.02, start_method=forking.METHOD,
    )  # fmt: skip
    assert elastic_launch(standalone, command_here)("train", *words) == {0: 0, 1: 0}
    log = checkpoint.read_log(tmp_path)
    assert [line["step"] for line in log if "loss" in line] == [2, 4, 6]
    [seen] = [line for line in log if "accuracy" in line]
    assert seen["images"] == TEST
    alone = Trainer(train.read(words), ALONE, lambda line: None)
    notes: list[str] = []

    class Bar:
        note = property(lambda self: "", lambda self, note: notes.append(note))
        hidden = contextlib.nullcontext

    with alone.outputs.opened(alone.step, alone.total):
        alone.outputs._bar = Bar()
        assert not alone._validate()
    assert notes == ["validating, 0%", ""]
    assert alone.accuracy == seen["accuracy"]


def test_tensorboard(cifar: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run(cifar, tmp_path, "--tensorboard", "--epochs", "1", "--method", "standard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(s, pytest.approx(v)) for s, v in losses(tmp_path)]
