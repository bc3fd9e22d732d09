"""Runs of several processes, as torchrun starts them: killed and continued. On a machine with four GPUs also there."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import forking
import numpy as np
import pytest
import torch
import training
from conftest import make_images
from PIL import Image

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")

from prime_dali import cli
from prime_dali.dali import Execution
from prime_dali.data.sampling import permutation
from prime_dali.training import checkpoint, train, validation
from prime_dali.training.data import FolderData
from prime_dali.training.ranks import Ranks
from prime_dali.training.trainer import Trainer

one_thread = training.one_thread  # a fixture
GPUS, IMAGES, VALIDATION = 4, 24, 9
EPOCHS, STEPS, BATCH = 2, 3, 8
needs_gpus = pytest.mark.skipif(
    torch.cuda.device_count() < GPUS, reason=f"needs {GPUS} GPUs; {torch.cuda.device_count()} visible"
)


def one_of_several(environment: dict[str, str], words: list[str], last: int | None) -> None:
    """``prime-dali train`` as one process of a run; it kills itself after the step ``last``."""
    os.environ.update(environment)
    step = Trainer.train_step

    def step_until(trainer: Trainer, *batch: torch.Tensor) -> torch.Tensor:
        if trainer.step == last:
            torch.distributed.barrier()
            time.sleep(1)  # none is still waiting for one that is dead
            os.kill(os.getpid(), signal.SIGKILL)
        return step(trainer, *batch)

    Trainer.train_step = step_until
    raise SystemExit(cli.main(["train", *words]))


def statuses(world: int, said: Path, words: list[str], last: int | None = None) -> set[int | None]:
    """The exit statuses of a run's processes; what they print is in files that begin with ``said``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    shared |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    places = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
    processes = [
        forking.start(said.with_suffix(f".{rank}.txt"), one_of_several, place, words, last)
        for rank, place in enumerate(places)
    ]
    end = time.monotonic() + 200
    for process in processes:
        process.join(max(end - time.monotonic(), 0))
        process.kill()  # only one that hangs is still there
    return {process.exitcode for process in processes}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Image files of two classes."""
    root = tmp_path_factory.mktemp("images")
    images = make_images(IMAGES, 40, 36, torch.uint8).permute(0, 2, 3, 1).numpy()
    for part, count in (("train", IMAGES), ("val", VALIDATION)):
        for i, image in enumerate(images[:count]):
            (root / part / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.ascontiguousarray(image)).save(root / part / "ab"[i % 2] / f"{i}.jpg")
    return root


SMALL = [
    "--recipe=imagenet", "--weights=", "--network=shufflenet_v2_x0_5", "--size=32", "--resize=36", f"--batch={BATCH}",
    f"--epochs={EPOCHS}", "--lr=0.2", "--warmup=0.3", "--log-every=1",
]  # fmt: skip
ON_THE_CPU = ["--device=cpu", "--workers=1", "--no-compile"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus)])
def test_killed_and_continued(device: str, data: Path, tmp_path: Path) -> None:
    """kill -9 of all processes in the middle of an epoch: losses and weights are those of a run without, to the bit."""
    world = 2 if device == "cpu" else GPUS
    own = ON_THE_CPU if device == "cpu" else ["--device=cuda"]  # compiled, in bfloat16, with the step as a CUDA graph
    words = [*SMALL, *own, "--data", str(data)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert statuses(world, tmp_path / "first", [*words, "--out", str(whole)]) == {0}
    ended = statuses(world, tmp_path / "second", [*words, "--out", str(parts), "--save-minutes=0"], last=STEPS + 1)
    assert ended == {-signal.SIGKILL}
    assert checkpoint.load(parts)["run"]["step"] == STEPS + 1
    assert statuses(world, tmp_path / "third", [*words, "--out", str(parts)]) == {0}
    assert f"after step {STEPS + 1} of {EPOCHS * STEPS}" in (tmp_path / "third.0.txt").read_text()
    assert [step for step, _ in training.losses(whole)] == list(range(1, EPOCHS * STEPS + 1))
    assert training.losses(parts) == training.losses(whole)
    one, other = (checkpoint.load(folder)["model"] for folder in (whole, parts))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_every_image_once_an_epoch(world: int, data: Path, tmp_path: Path) -> None:
    """And a step has the same images for any number of processes."""
    config = train.read([*SMALL, *ON_THE_CPU, "--data", str(data), "--out", str(tmp_path)])
    parts = [FolderData(config, Ranks(rank, world, torch.device("cpu")), torch.float32) for rank in range(world)]
    for epoch in range(EPOCHS):
        steps = zip(*([batch.indices.tolist() for batch in part._train] for part in parts), strict=True)
        expected = permutation(config.seed, epoch, IMAGES).reshape(STEPS, BATCH)
        assert [sorted(itertools.chain(*step)) for step in steps] == np.sort(expected).tolist()
    assert sum(len(labels) for part in parts for _, labels in part.validation()) == VALIDATION


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([(0, 1), (0, 1), (0, 1), (0, 0)], (10, 20)),
        ([(0, 1), (1, 1)], None),
        ([(0, 0), (0, 0), (1, 0)], (10, 20)),
    ],
    ids=["another has more batches", "another is asked to stop", "another is asked after the last one"],
)
def test_processes_end_a_validation_at_the_same_batch(
    others: list[tuple[int, int]], expected: tuple[int, int] | None
) -> None:
    """``others``: before every eighth batch, whether another process was asked to stop, and has one."""

    class Two(Ranks):
        def sum(self, *numbers: int) -> list[int]:
            return [own + other for own, other in zip(numbers, others.pop(0), strict=True)]

    images, seen = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]] * 10), []
    batches = [(batch, torch.tensor([1, 1])) for batch in images]
    ranks = Two(0, 2, torch.device("cpu"))
    found = validation.count_correct(torch.nn.Identity(), batches, ranks, torch.float32, lambda: False, seen.append)
    assert found == expected
    assert not others
    assert seen == [*range(0, 20 if expected else 2 * validation.BETWEEN, 2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_validation_is_in_evaluation_mode(dtype: torch.dtype) -> None:
    """Batch norm in training mode would make the same logits of all classes, and learn from the validation images."""
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2, bias=False))
    torch.nn.init.eye_(network[1].weight)
    seen: list[torch.dtype] = []
    network[1].register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    batches = [
        (torch.tensor([[0.0, 1.0]] * 3), torch.tensor([1, 1, 0])),
        (torch.tensor([[1.0, 0.0]]), torch.tensor([1])),
    ]
    ranks = Ranks(0, 1, torch.device("cpu"))
    assert validation.count_correct(network.train(), batches, ranks, dtype, lambda: False, lambda count: None) == (2, 4)
    assert network[0].running_mean.tolist() == [0, 0]
    assert seen == [dtype, dtype]
    stopped = validation.count_correct(network, batches, ranks, dtype, lambda: len(seen) > 2, lambda count: None)
    assert stopped is None
    assert len(seen) == 3  # one process is asked before each batch


def test_cores_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(9))
    for processes, threads in ((1, 9), (4, 2), (16, 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        assert Execution("cpu").threads() == threads
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "four")
    with pytest.raises(
        ValueError, match="LOCAL_WORLD_SIZE: expected a number of processes, as torchrun sets it, got 'four'"
    ):
        Execution("cpu").threads()


def test_an_error_while_the_gpu_starts_keeps_its_exit_status() -> None:
    """Python, which then ends, waits for the thread: ended within CUDA it would abort the process."""
    program = """
import os, threading, torch
from prime_dali.training import ranks
ranks._choose_device = lambda wish, decodes: torch.device("cuda")
ranks._compute = lambda device: (ended.wait(0.3), os.write(1, b"started"))
ended = threading.Event()
ranks.wake("cuda")
raise SystemExit("no DALI")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "started", "no DALI")
