"""Commands that are killed at random moments and resume: what they leave is that of a run without an interruption.

Here a few kills of each command. ``PRIME_DALI_FUZZ_SECONDS=600`` continues for so long with each of them, in new folders
again and again; ``PRIME_DALI_FUZZ_SEED`` names the moments.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forking
import numpy as np
import pytest
import torch
from conftest import FUZZ_SECONDS
from PIL import Image
from test_corruptions import tiles

pytest.importorskip("torchvision", reason="torchvision is not installed")

from prime_dali.training import checkpoint

SEED = int(os.environ.get("PRIME_DALI_FUZZ_SEED", "0"))
KILLS = 2  # of each run


def complete(words: list[str], said: Path, seconds: float | None = None) -> bool:
    """Whether a command has come to its end; it is killed after ``seconds``."""
    process = forking.command(said, *words)
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode in (0, -signal.SIGKILL), said.read_text()
    return process.exitcode == 0


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10's binary version beside a folder of pictures."""
    folder = tmp_path_factory.mktemp("source")
    images = tiles(60)
    records = np.concatenate(
        [np.arange(60, dtype=np.uint8)[:, None] % 10, images.transpose(0, 3, 1, 2).reshape(60, -1)], 1
    )
    for i in range(1, 6):
        records[10 * i - 10 : 10 * i].tofile(folder / f"data_batch_{i}.bin")
    records[50:].tofile(folder / "test_batch.bin")
    (folder / "pictures").mkdir()
    for i, image in enumerate(images[:30]):
        Image.fromarray(image).save(folder / "pictures" / f"{i:02d}.png")
    return folder


def augmented(source: Path, out: Path) -> list[str]:
    return ["augment", str(source / "pictures"), str(out), "--copies", "3", "--workers", "1", "--device", "cpu"]


def corrupted(source: Path, out: Path) -> list[str]:
    names = ["contrast", "jpeg_compression", "gaussian_noise", "brightness"]
    return ["corrupt", "cifar10", str(source), str(out), "--workers", "1", "--only", *names]


def trained(source: Path, out: Path) -> list[str]:
    small = (
        "--network shufflenet_v2_x0_5 --stem imagenet --no-compile --batch 10 --epochs 2 --log-every 1 --save-minutes 0"
    )
    return ["train", "--data", str(source), "--out", str(out), "--device", "cpu", *small.split()]


def files(out: Path) -> dict[str, Any]:
    """The content of each file of a folder, by name; lines in any order."""
    found = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    return {name: sorted(text.splitlines()) if name.endswith(".jsonl") else text for name, text in found.items()}


def run(out: Path) -> dict[str, Any]:
    """What a training run has left, without how long it took."""
    state = checkpoint.load(out)
    del state["run"]["seconds"], state["config"]["out"]
    log = [(line["step"], line.get("loss"), line.get("accuracy")) for line in checkpoint.read_log(out)]
    return {"names": sorted(p.name for p in out.iterdir()), "state": plain(state), "log": log}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


@pytest.mark.timeout(120 + 2 * FUZZ_SECONDS)
@pytest.mark.parametrize(("command", "content"), [(augmented, files), (corrupted, files), (trained, run)])
def test_killed_at_random_moments(command: Callable, content: Callable, source: Path, tmp_path: Path) -> None:
    moments = random.Random(f"{SEED} {command.__name__}")
    said = tmp_path / "said"
    assert complete(["--version"], said)  # has imported everything before the clock starts
    started = time.monotonic()
    assert complete(command(source, tmp_path / "whole"), said)
    takes = time.monotonic() - started
    whole, rounds = content(tmp_path / "whole"), 0
    while rounds == 0 or time.monotonic() < started + FUZZ_SECONDS:
        rounds += 1
        out = tmp_path / str(rounds)
        for _ in range(KILLS):
            if complete(command(source, out), said, moments.uniform(0, takes)):
                break
        assert complete(command(source, out), said)
        assert content(out) == whole, f"round {rounds} of seed {SEED}"
