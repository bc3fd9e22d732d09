"""Training runs that are interrupted: they continue exactly, and only what is theirs; checkpoints and logs."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import needs_gpu

pytest.importorskip("torchvision", reason="torchvision is not installed")

import forking
import training
from training import ALONE, TEST, losses, run, settings, wait_for_a_loss

from prime_dali import cli
from prime_dali._command import INTERRUPTED, STOPPED
from prime_dali._files import held
from prime_dali._progress import since_start
from prime_dali.models import networks
from prime_dali.training import checkpoint, stopping, train
from prime_dali.training.ranks import Ranks
from prime_dali.training.trainer import Trainer

cifar, one_thread, whole = training.cifar, training.one_thread, training.whole  # fixtures


def stop_in(trainer: Trainer, last: int, patch: pytest.MonkeyPatch) -> None:
    """Ask a run to stop: in its last step, or in the first validation, which is after step 6.

    Or let another process be asked in step 9, between two log lines: one so slow that they all agree after each step.
    """
    step, validation = trainer.train_step, trainer.data.validation

    def asked_in_a_step(*batch: torch.Tensor) -> torch.Tensor:
        trainer._stopping.asked = trainer.step == last - 1
        return step(*batch)

    def asked_meanwhile() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from validation()
        trainer._stopping.asked = True
        yield from validation()

    def sum_with_another(ranks: Ranks, *numbers: int) -> list[int]:
        return [numbers[0] + (trainer.step == last), numbers[1], 10**9] if trainer.step % 6 else list(numbers)

    if last == 6:
        patch.setattr(trainer.data, "validation", asked_meanwhile)
    elif last == 18:
        patch.setattr(trainer, "train_step", asked_in_a_step)
    else:
        patch.setattr(Ranks, "sum", sum_with_another)


@pytest.mark.parametrize("stops", [(9, 18), (6,)], ids=["between log lines, and in the last step", "in a validation"])
def test_stops_without_waiting_for_a_log_line_or_a_validation(
    cifar: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: tuple[int, ...]
) -> None:
    """The run that continues does what was left out, and then is as one that was not stopped."""
    for last in stops:
        trainer = Trainer(train.read(settings(cifar, tmp_path, "--jsd")), ALONE, lambda line: None)
        with monkeypatch.context() as patch:
            stop_in(trainer, last, patch)
            result = trainer.run()
        assert (result.finished, result.step) == (False, last)
        assert losses(tmp_path)[-1][0] == last // 2 * 2
        if last == 9:  # the log tells the time of the steps before, but for the first one
            rates = [line["images_per_second"] for line in checkpoint.read_log(tmp_path) if "loss" in line]
            assert result.seconds > 1.001 * sum(20 * (1 + (i > 0)) / rate for i, rate in enumerate(rates))
        assert len([line for line in checkpoint.read_log(tmp_path) if "accuracy" in line]) == (last - 1) // 6
    if last == 18:  # as earlier versions saved it, at log lines only
        content = torch.load(tmp_path / "last.pt")
        assert content["run"].pop("losses") == []
        torch.save(content, tmp_path / "last.pt")
    said: list[str] = []
    resumed = Trainer(train.read(settings(cifar, tmp_path, "--jsd")), ALONE, said.append)
    assert (resumed.seconds, resumed.accuracy) == (result.seconds, result.accuracy)
    assert resumed.run().finished
    assert checkpoint.load(tmp_path)["run"]["validated"] == 18
    first = next(line for line in said if "correct" in line)
    assert first.startswith(f"epoch {last // 6} of 3: ")
    assert "per epoch" not in first  # there was no step in this process yet
    untimed = [
        [
            {name: value for name, value in line.items() if not name.startswith(("images_per_second", "startup_"))}
            for line in checkpoint.read_log(folder)
        ]
        for folder in (tmp_path, whole)
    ]
    assert untimed[0] == untimed[1]
    weights = [networks.load(folder / "last.pt").network.state_dict() for folder in (tmp_path, whole)]
    assert all(torch.equal(one, other) for one, other in zip(*(w.values() for w in weights), strict=True))


def test_processes_ask_every_two_seconds() -> None:
    """Or after each step; and after few steps, which may have been faster than others, not after many."""
    measured = [(0, 0.0), (1, 9.0), (1, 0.7), (50, 25.0), (1, 0.003), (50, 0.15)]
    assert [stopping.steps_between(*one) for one in measured] == [1, 1, 2, 4, 2, 100]


def test_a_run_and_what_it_leaves(whole: Path, tmp_path: Path) -> None:
    assert sorted(p.name for p in whole.iterdir()) == ["config.yaml", "last.pt", "log.jsonl"]
    log = checkpoint.read_log(whole)
    assert [line["step"] for line in log if "loss" in line] == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    ended = [log[0][f"startup_{phase}"] for phase in ("imports", "data", "network", "first_batch", "first_step")]
    assert 0 < ended[0] < ended[-1] <= since_start()
    assert ended == sorted(ended)
    assert not any(name.startswith("startup_") for line in log[1:] for name in line)
    seen = [line for line in log if "accuracy" in line]
    assert [line["epoch"] for line in seen] == [1, 2, 3]
    assert all(line["images"] == TEST and line["accuracy"] == line["correct"] / TEST for line in seen)
    classifier = networks.load(whole / "last.pt")
    assert (classifier.num_classes, classifier.stem, classifier.size, classifier.resize) == (10, "imagenet", 32, None)
    assert (classifier.mean, classifier.std) == ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
    assert classifier.details["config"]["jsd"] is True
    assert classifier.details["epoch"] == 3
    # A second time there is nothing left to do, and nothing changes; also where an earlier version has saved the run.
    again = shutil.copytree(whole, tmp_path / "again")
    content = torch.load(again / "last.pt")
    assert content["run"].pop("validated") == 18
    torch.save(content, again / "last.pt")
    (again / ".last-abcd_123.pt").write_bytes(b"half")
    (again / ".unfinished-abcd_123.pt").write_bytes(b"half")
    data = Path(classifier.details["config"]["data"])
    assert Trainer(train.read(settings(data, again, "--jsd")), ALONE, lambda line: None).run().finished
    assert (again / "log.jsonl").read_text() == (whole / "log.jsonl").read_text()
    assert sorted(p.name for p in again.iterdir()) == ["config.yaml", "last.pt", "log.jsonl"]


def test_low_precision_is_that_of_training_and_validation(cifar: Path, tmp_path: Path) -> None:
    words = ["--precision", "bfloat16", "--no-jsd"]
    trainer = Trainer(train.read(settings(cifar, tmp_path, *words)), ALONE, lambda line: None)
    seen: list[torch.dtype] = []
    trainer.network.register_forward_hook(lambda network, inputs, logits: seen.append(logits.dtype))
    assert trainer.train_step(*next(trainer.data.batches(0))).dtype == torch.float32
    with trainer.outputs.opened(trainer.step, trainer.total):
        trainer._validate()
    assert set(seen) == {torch.bfloat16}
    assert len(seen) > 1
    assert {parameter.dtype for parameter in trainer.network.parameters()} == {torch.float32}


def train_in(out: Path, cifar: Path, *more: str) -> BaseProcess:
    """A process that trains as ``whole`` was trained; what it says is beside its folder."""
    return forking.command(out.with_suffix(".txt"), "train", *settings(cifar, out, "--jsd", *more))


@pytest.mark.timeout(200)
def test_killed_and_continued(cifar: Path, whole: Path, tmp_path: Path) -> None:
    """kill -9 again and again; the losses are bit-identical to those of an uninterrupted run."""
    kills = 0
    for step in (4, 8, 14):
        process = train_in(tmp_path, cifar, "--save-minutes", "0")
        while process.is_alive():
            if (tmp_path / "log.jsonl").exists() and [s for s, _ in losses(tmp_path) if s >= step]:
                process.kill()
                kills += 1
                break
            time.sleep(0.005)
        process.join()
    assert kills == 3
    process = train_in(tmp_path, cifar)
    process.join()
    assert process.exitcode == 0
    assert losses(tmp_path) == losses(whole)
    one, other = (networks.load(folder / "last.pt").network.state_dict() for folder in (tmp_path, whole))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


@needs_gpu
@pytest.mark.timeout(400)
def test_killed_and_continued_on_a_gpu(cifar: Path, tmp_path: Path) -> None:
    """Compiled, in bfloat16, with the step as a CUDA graph."""
    words = [sys.executable, "-m", "prime_dali", "train", "--data", str(cifar), "--batch", "20", "--epochs", "3"]
    words += ["--log-every", "1", "--device", "cuda", "--out"]
    subprocess.run([*words, str(tmp_path / "whole")], check=True, stdout=subprocess.DEVNULL)
    out = tmp_path / "killed"
    process = subprocess.Popen([*words, str(out), "--save-minutes", "0"], stdout=subprocess.DEVNULL)
    while process.poll() is None and not (out / "last.pt").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    subprocess.run([*words, str(out)], check=True, stdout=subprocess.DEVNULL)
    assert losses(out) == losses(tmp_path / "whole")


def hear_ctrl_c(*words: str) -> None:
    """Of a command, also where what started this process ignores SIGINT, as a job in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise SystemExit(cli.main(list(words)))


def test_ctrl_c_saves_and_stops(cifar: Path, whole: Path, tmp_path: Path) -> None:
    said = tmp_path.with_suffix(".txt")
    process = forking.start(said, hear_ctrl_c, "train", *settings(cifar, tmp_path, "--jsd"))
    wait_for_a_loss(tmp_path)
    os.kill(process.pid, signal.SIGINT)
    process.join(100)
    assert process.exitcode == INTERRUPTED
    assert (
        "within about 2 seconds, or a step if that takes longer, then saving; Ctrl-C again stops at once"
        in said.read_text()
    )
    assert "Traceback" not in said.read_text()
    assert "stopped by Ctrl-C after step" in said.read_text()
    run(cifar, tmp_path, "--jsd")
    assert losses(tmp_path) == losses(whole)


def test_ctrl_c_twice_stops_at_once(
    cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hears_ctrl_c: None
) -> None:
    trainer = Trainer(train.read(settings(cifar, tmp_path)), ALONE, lambda line: None)
    step, steps = trainer.train_step, []

    def interrupted(*batch: torch.Tensor) -> torch.Tensor:
        steps.append(step(*batch))
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        return steps[-1]

    monkeypatch.setattr(trainer, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert len(steps) == 1
    assert not (tmp_path / "last.pt").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_stops(cifar: Path, whole: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = train_in(tmp_path, cifar)
    wait_for_a_loss(tmp_path)
    os.kill(process.pid, number)
    process.join(100)
    assert process.exitcode == STOPPED
    assert "stopped by a signal after step" in tmp_path.with_suffix(".txt").read_text()
    assert (tmp_path / "last.pt").exists()
    run(cifar, tmp_path, "--jsd")
    assert losses(tmp_path) == losses(whole)


def test_another_run_in_the_folder(cifar: Path, whole: Path) -> None:
    with pytest.raises(
        ValueError, match=r"out: expected an empty folder or one of the same run, got .* lr: 0.2, now 0.1"
    ):
        run(cifar, whole, "--jsd", "--lr", "0.1")


def test_other_data_than_the_run_began_with(cifar: Path, whole: Path, tmp_path: Path) -> None:
    other = shutil.copytree(cifar, tmp_path / "other")
    records = np.fromfile(other / "data_batch_1.bin", np.uint8).reshape(-1, 3073)
    records[0, 0] = (records[0, 0] + 1) % 10  # a label
    records.tofile(other / "data_batch_1.bin")
    run_folder = shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"data: expected the images and classes that the run started with, got others in"
    ):
        run(other, run_folder, "--jsd")
    moved = shutil.copytree(cifar, tmp_path / "moved")
    assert run(moved, run_folder, "--jsd").step == 18


def test_a_run_that_another_one_overtook(cifar: Path, tmp_path: Path) -> None:
    late = Trainer(train.read(settings(cifar, tmp_path)), ALONE, lambda line: None)
    run(cifar, tmp_path)
    before = (tmp_path / "last.pt").read_bytes(), (tmp_path / "log.jsonl").read_bytes()
    with pytest.raises(RuntimeError, match="another run has written there meanwhile; run the command again"):
        late.run()
    assert ((tmp_path / "last.pt").read_bytes(), (tmp_path / "log.jsonl").read_bytes()) == before


def test_two_runs_in_one_folder(cifar: Path, tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(RuntimeError, match="another run is writing there"):
        run(cifar, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_checkpoint(cifar: Path, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"no checkpoint")
    with pytest.raises(
        ValueError, match=r"last.pt: not a checkpoint of a training run \(it cannot be read .*; restore a copy"
    ):
        run(cifar, tmp_path)
    torch.save({"format": "prime-dali"}, tmp_path / "last.pt")
    with pytest.raises(
        ValueError, match=r"last.pt: not a checkpoint .* \(config: expected a mapping, got none\); restore a copy"
    ):
        run(cifar, tmp_path)


@pytest.mark.parametrize(("place", "value", "message"), [
    ("run.step", 19, "run.step: expected 0 to 18, the run's last step, got 19"),
    ("run.step", -1, "run.step: expected 0 to 18, the run's last step, got -1"),
    ("run.step", 18.0, "run.step: expected an int, got float"),
    ("run.step", None, "run.step: expected an int, got NoneType"),
    ("run.random.cpu", torch.zeros(3), "run.random: it does not match this run (TypeError"),
    ("run.losses", [None], "run.losses: it does not match this run (TypeError"),
    ("run.data", [], "processes: expected 0, as the run had, got 1"),
    ("run.schedule.last_epoch", 17000, "run.schedule: it does not match this run (ValueError: last_epoch: expected 17"),
    ("run.schedule.total_steps", "18", "run.schedule: it does not match this run (ValueError: total_steps: expected"),
    ("run.optimizer.param_groups", [], "run.optimizer: it does not match this run"),
    ("run.optimizer.param_groups.0.lr", "0.2", "run.optimizer: it does not match this run (ValueError: param_groups[0].lr"),
    ("run.optimizer.state.0.momentum_buffer", torch.zeros(3), "run.optimizer: it does not match this run (ValueError"),
    ("model.fc.weight", torch.zeros(3), "model: it does not match this run (RuntimeError"),
    ("model.fc.weight", ..., "model: it does not match this run (RuntimeError"),
    ("run.optimizer", ..., "run.optimizer: expected a mapping, got none"),
    ("run.data", ..., "run.data: expected a list, got none"),
    ("run.schedule", ..., "run.schedule: expected a mapping, got none"),
])  # fmt: skip
def test_a_checkpoint_with_a_damaged_part(
    place: str, value: object, message: str, cifar: Path, whole: Path, tmp_path: Path
) -> None:
    """``...``: the part is missing."""
    content = torch.load(whole / "last.pt")
    first, _, rest = place.partition(".")
    *way, last = [first, rest] if first == "model" else place.split(".")  # names of weights have dots
    part = content
    for name in way:
        part = part[int(name) if name.isdecimal() else name]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    torch.save(content, tmp_path / "last.pt")
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        Trainer(train.read(settings(cifar, tmp_path, "--jsd")), ALONE, lambda line: None)
    assert place.startswith("run.data") or str(tmp_path / "last.pt") in str(caught.value)


@pytest.mark.parametrize(("line", "message"), [
    ("{]", "line 3: not JSON"),
    ("[1]", "line 3: not a line of the log of a training run (expected a mapping, got list ([1])); remove this line"),
    ('{"loss": 1}', "line 3: not a line of the log of a training run (step: expected an int, got none)"),
    ('{"step": "2"}', "(step: expected an int, got str ('2'))"),
])  # fmt: skip
def test_a_damaged_line_of_the_log(line: str, message: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(f'{{"step": 1}}\n{{"step": 2}}\n{line}\n{{"step": 4}}\n')
    before = log.read_bytes()
    with pytest.raises(ValueError, match=re.escape(message)):
        checkpoint.Log(tmp_path, 4)
    assert log.read_bytes() == before


def write_to_a_full_disk(folder: Path) -> None:
    """Prints the errors; for a process of its own."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    log = checkpoint.Log(folder, 0)
    for act in (
        lambda: checkpoint.save(folder, {"run": torch.zeros(10**6)}),
        lambda: checkpoint.save(folder, {"run": 1}),
        lambda: checkpoint.save(folder, {"run": torch.zeros(10**6)}),
        lambda: log.write(step=1, text="x" * 10**6),
    ):
        try:
            act()
        except OSError as error:
            print(error)


def test_a_full_disk(tmp_path: Path) -> None:
    """The error names the file and says what is there, the last good checkpoint stays, and nothing else is left."""
    said = tmp_path.with_suffix(".txt")
    process = forking.start(said, write_to_a_full_disk, tmp_path)
    process.join()
    assert process.exitcode == 0
    first, second, third = said.read_text().splitlines()
    assert "last.pt: the checkpoint cannot be written, and there is no previous one (" in first
    assert "last.pt: the checkpoint cannot be written, the previous one is kept (" in second
    assert f"File too large: '{tmp_path / 'log.jsonl'}'" in third
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last.pt", "log.jsonl"]
    assert torch.load(tmp_path / "last.pt") == {"run": 1}
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


def test_log_drops_what_comes_again(tmp_path: Path) -> None:
    log = checkpoint.Log(tmp_path, 0)
    for step in range(1, 5):
        log.write(step=step)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    checkpoint.Log(tmp_path, 2).write(step=3, again=True)
    assert [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [
        {"step": 1}, {"step": 2}, {"step": 3, "again": True},
    ]  # fmt: skip
