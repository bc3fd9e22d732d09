"""``--shard I/N`` and ``--join`` of augment, corrupt and evaluate: the same files as of one run, nothing lost or double."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import augmenting
import numpy as np
import pytest
import torch
from augmenting import COMMAND, files, write_cifar
from evaluating import PLAIN, Gray, save_cifar_c, save_cifar_pictures
from PIL import Image
from test_corruptions import tiles

from prime_dali import _workers, cli
from prime_dali.data import partition
from prime_dali.data.partition import Shard
from prime_dali.evaluation import corrupt, report, shard_counts
from prime_dali.evaluation.scores import Count
from prime_dali.evaluation.tasks import Task
from prime_dali.models import networks
from prime_dali.tools import copies

source = augmenting.source  # fixtures
Command = Callable[..., str]


class InProcess:
    """In the place of worker processes, which test_workers and other files test, and which take a second each."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def map(self, function: Callable[..., Any], *columns: Any, chunksize: int = 1) -> Iterator[Any]:
        yield from map(partial(function, self.shared), *columns)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Command:
    """Runs a command; returns what it says, on stdout if it succeeds, else on stderr."""

    @contextlib.contextmanager
    def pool(folder: Path, workers: int, tasks: int, shared: Any, begin: Any = None) -> Iterator[InProcess]:
        if begin is not None:
            begin(shared)
        yield InProcess(shared)

    def run(*words: object, status: int = 0) -> str:
        capsys.readouterr()
        got, said = cli.main([str(word) for word in words]), capsys.readouterr()
        assert got == status, said.err
        return said.err if status else said.out

    monkeypatch.setattr(_workers, "pool", pool)
    return run


def shard_out_of_order(command: Command, words: list[object], count: int) -> None:
    for number in (*range(1, count), 0):
        command(*words, "--shard", f"{number}/{count}")


@pytest.mark.parametrize("text", ["3/3", "-1/4", "a/b", "1", "1/0", "0/1000000", "1/2/3"])
@pytest.mark.parametrize("name", ["augment s d --copies 1", "corrupt cifar10 s d", "evaluate c --clean s --out d"])
def test_bad_shards(name: str, text: str, command: Command) -> None:
    said = command(*name.split(), "--shard", text, status=2)
    wanted = {"3/3": "expected I/3 with I from 0 to 2", "-1/4": "expected I/4 with I from 0 to 3",
              "1/0": "expected I/N with N from 1 to 100000", "0/1000000": "expected I/N with N from 1 to 100000"}  # fmt: skip
    expected = wanted.get(text, "expected I/N, such as 0/4 for the first of four shards")
    assert f"prime-dali {name.split()[0]}: --shard: {expected}, got {text!r}\n" in said
    assert "--join: not allowed with --shard" in command(*name.split(), "--shard", "0/2", "--join", status=2)


def test_shards_are_a_partition() -> None:
    jobs = list(range(11))
    assert sorted(job for number in range(4) for job in Shard(number, 4).of(jobs)) == jobs
    assert Shard(5, 6).of(jobs[:3]) == []
    for number, count in ((3, 3), (-1, 3), (0, 0)):
        with pytest.raises(ValueError, match="shard: "):
            Shard(number, count)


def test_shards_of_several_numbers_and_without_jobs(tmp_path: Path) -> None:
    """As of two machines that were told different numbers; other folders are none of shards."""
    for name in ("0-of-2", "1-of-3", "3-of-2", "0-of-200000", "x-of-y"):
        (tmp_path / ".shards" / name).mkdir(parents=True)
    assert partition.found(tmp_path) == [Shard(0, 2), Shard(1, 3)]
    message = "expected shards of one number, got shards of 2 and 3"
    with pytest.raises(ValueError, match=message), partition.joining(tmp_path):
        pass
    (tmp_path / "part").write_bytes(b"abc")
    assert list(partition.woven([tmp_path / "part", tmp_path / "none"], [3])) == [b"abc"]


@pytest.mark.parametrize("count", [2, 6])  # more than there are images
def test_augment(count: int, source: Path, tmp_path: Path, command: Command) -> None:
    one, out = tmp_path / "one", tmp_path / "out"
    words: list[object] = ["augment", source, out, "--copies", "2", "--device", "cpu", "--workers", "1"]
    command(*words[:2], one, *words[3:])
    assert "found no manifest.json; run every shard first, --shard 0/N" in command(*words, "--join", status=1)
    command(*words, "--shard", f"1/{count}")
    said = command(*words, "--join", status=1)
    assert f"{out}: expected the work of {count} shards, missing: 0/{count} (" in said
    assert "1/" not in said.partition("missing: ")[2].replace("1 of 1", "")
    assert f"has shards of {count}; run the others" in command(*words, status=1)
    assert f"expected I/{count} like the shards in" in command(*words, "--shard", "0/3", status=1)
    assert "made with other settings: seed" in command(*words, "--seed", "1", "--shard", f"0/{count}", status=1)
    shard_out_of_order(command, words, count)
    before = files(out)
    command(*words, "--shard", f"0/{count}")  # again: nothing to do
    assert files(out) == before
    command(*words, "--join")
    assert files(out) == files(one)
    command(*words, "--shard", f"1/{count}")
    command(*words, "--join")
    command(*words)
    assert files(out) == files(one)
    assert not (out / ".shards").exists()


def test_records_that_are_lost_double_or_of_another_shard(source: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    words: list[object] = ["augment", source, out, "--copies", "1", "--device", "cpu", "--workers", "1"]
    shard_out_of_order(command, words, 2)
    first, second = (out / ".shards" / f"{number}-of-2" / "files.jsonl" for number in (0, 1))
    lines = first.read_text().splitlines(keepends=True)
    for text, message in (
        (lines[0], "missing: 0/2 (1 of 2 jobs not done); run these with --shard"),
        (second.read_text(), "missing: 0/2 (2 of 2 jobs not done)"),  # the folder of shard 1 was copied as shard 0
        (lines[0].replace('"plan": [', '"plan": ["?", ') + "".join(lines), "'cat/a b-0.png', got two that differ"),
        (lines[0].replace("cat/", "dog/"), "expected a record of 'cat/a b-0.png', got 'dog/a b-0.png'"),
        (lines[0].replace('"number": 0', '"number": 9'), "expected a record of copies of 4 images"),
    ):
        first.write_text(text)
        assert message in command(*words, "--join", status=1)
    first.write_text("".join(lines[::-1] + lines))  # twice the same, in another order
    (out / "cat" / "a b-0.png").unlink()
    assert "missing: 0/2 (1 of 2" in command(*words, "--join", status=1)
    command(*words, "--shard", "0/2")
    command(*words, "--join")
    assert [line["number"] for line in augmenting.lines(out)] == [0, 1, 2, 3]


def test_augment_cifar(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_BATCH", 2)
    data = write_cifar(tmp_path / "cifar", 10, tiles(21), np.arange(21) % 10)
    one, out = tmp_path / "one", tmp_path / "out"
    words: list[object] = ["augment", data, out, "--cifar", "10", "--copies", "2", "--device", "cpu", "--workers", "1"]
    command(*words[:2], one, *words[3:])
    command(*words, "--shard", "2/3")
    assert "missing: 0/3 (2 of 2 jobs not done), 1/3 (2 of 2 jobs" in command(*words, "--join", status=1)
    shard_out_of_order(command, words, 3)
    part = out / ".shards" / "1-of-3" / "data_batch_2.bin"
    content = part.read_bytes()
    part.write_bytes(content[:-1])
    said = command(*words, "--join", status=1)
    assert f"{part}: expected {len(content)} bytes, got {len(content) - 1}; remove it, and run this shard again" in said
    part.unlink()
    command(*words, "--shard", "1/3")
    command(*words, "--join")
    assert files(out) == files(one)
    command(*words, "--shard", "1/3")
    assert files(out) == files(one)


def test_corrupt_cifar(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrupt, "_BATCH", 2)
    data = write_cifar(tmp_path / "cifar", 10, tiles(12), np.arange(12) % 10)
    one, out = tmp_path / "one", tmp_path / "out"
    words: list[object] = ["corrupt", "cifar10", data, out, "--only", "contrast", "shot_noise", "--severities", 1, 4]
    command(*words[:3], one, *words[4:])
    shard_out_of_order(command, words, 3)
    before = files(out)
    command(*words, "--shard", "2/3")
    assert files(out) == before
    shutil.rmtree(out / ".shards" / "2-of-3")
    said = command(*words, "--join", status=1)
    assert "expected the work of 2 shards" not in said
    assert "missing: 2/3 (3 of 3 jobs not done); run these with --shard, then --join again" in said
    command(*words, "--shard", "2/3")
    command(*words, "--join")
    assert files(out) == files(one)
    command(*words, "--shard", "0/5")
    command(*words, "--join")
    assert files(out) == files(one)


def test_corrupt_imagenet(tmp_path: Path, command: Command) -> None:
    data, one, out = (tmp_path / name for name in ("val", "one", "out"))
    for number, image in enumerate(tiles(4)):
        (data / f"n{number % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((256, 256)).save(data / f"n{number % 2}" / f"{number}.JPEG")
    (data / "n1" / "9.JPEG").write_text("damaged")
    words: list[object] = [
        "corrupt",
        "imagenet",
        data,
        out,
        "--only",
        "contrast",
        "--severities",
        2,
        "--on-error",
        "skip",
    ]
    command(*words[:3], one, *words[4:])
    command(*words, "--shard", "1/2")
    assert "missing: 0/2 (3 of 3 jobs not done)" in command(*words, "--join", status=1)
    assert "skipped 1 of 5 files" in command(*words, "--shard", "0/2")
    assert "expected no picture that a shard has skipped, got 1" in command(*words[:-2], "--join", status=1)
    command(*words, "--join")
    assert files(out) == files(one)


@pytest.fixture
def evaluation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """The command, but for --out, of a network whose answers are known."""
    monkeypatch.setattr(networks, "create", lambda name, classes, stem="imagenet": Gray(classes))
    monkeypatch.setattr(report, "draw", lambda *arguments: None)
    made = networks.Classifier(Gray(10), "resnet18", 10, size=32, resize=None, **PLAIN)
    torch.save(networks.checkpoint(made, epoch=5), tmp_path / "last.pt")
    save_cifar_pictures(tmp_path / "data")
    save_cifar_c(tmp_path / "c")
    return ["evaluate", tmp_path / "last.pt", "--clean", tmp_path / "data", "--cifar-c", tmp_path / "c",
            "--device", "cpu"]  # fmt: skip


def results(folder: Path) -> dict[str, Any]:
    return {key: value for key, value in json.loads((folder / "results.json").read_text()).items() if key != "date"}


def test_evaluate(evaluation: list[object], tmp_path: Path, command: Command) -> None:
    one, out = tmp_path / "one", tmp_path / "out"
    command(*evaluation, "--out", one)
    assert "--out: expected with --shard and --join" in command(*evaluation, "--shard", "0/3", status=2)
    words = [*evaluation, "--out", out]
    assert "found no shards and 76 of 76 jobs not done; run every shard" in command(*words, "--join", status=1)
    shard_out_of_order(command, words, 3)
    counts = out / ".shards" / "1-of-3" / "counts.json"
    whole = counts.read_text()
    stopped = json.loads(whole)
    for one_count in stopped["counts"][:20]:
        one_count["count"]["correct"] = 0  # would be seen if it were counted again
    stopped["counts"] = stopped["counts"][:20]
    counts.write_text(json.dumps(stopped))
    assert "missing: 1/3 (5 of 25 jobs not done)" in command(*words, "--join", status=1)
    command(*words, "--shard", "1/3")
    resumed = json.loads(counts.read_text())["counts"]
    assert resumed[:20] == stopped["counts"]
    assert resumed[20:] == json.loads(whole)["counts"][20:]
    counts.write_text(whole)
    command(*words, "--shard", "1/3")
    assert counts.read_text() == whole
    command(*words, "--join")
    assert results(out) == results(one)


def test_evaluate_refuses_what_does_not_belong_together(
    evaluation: list[object], tmp_path: Path, command: Command
) -> None:
    words = [*evaluation, "--out", tmp_path / "out"]
    shard_out_of_order(command, words, 2)
    first, second = (tmp_path / "out" / ".shards" / f"{number}-of-2" / "counts.json" for number in (0, 1))
    assert "with the same batch, 7, got 500; give the same" in command(*words, "--batch", 7, "--shard", "0/2", status=1)
    assert "with the same batch, 7, got 500; give the same" in command(*words, "--batch", 7, "--join", status=1)
    assert "with the same mean, " not in command(*words, "--join")
    content = torch.load(tmp_path / "last.pt")
    content["model"]["levels"] += 1
    torch.save(content, tmp_path / "last.pt")
    assert "with the same checkpoint, " in command(*words, "--join", status=1)
    content["model"]["levels"] -= 1
    torch.save(content, tmp_path / "last.pt")

    kept = second.read_text()
    second.write_text(first.read_text())
    assert "expected the counts of shard 1/2, got those of 0/2, which would count double" in command(
        *words, "--join", status=1
    )
    second.write_text(first.read_text().replace('"shard": "0/2"', '"shard": "1/2"'))
    assert "expected counts of shard 1/2 of these sets, got clean, which is of none" in command(
        *words, "--join", status=1
    )
    second.write_text(kept.replace('"device": "cpu"', '"device": "cuda"'))
    assert "with the same device, cpu, got cuda" in command(*words, "--join", status=1)
    second.unlink()
    assert "missing: 1/2 (38 of 38 jobs not done)" in command(*words, "--join", status=1)


def test_a_shard_is_removed_alone(tmp_path: Path) -> None:
    both = [Shard(number, 2) for number in range(2)]
    for shard in both:
        with partition.held(tmp_path, shard):
            pass
    partition.remove(tmp_path, both[0])
    assert partition.found(tmp_path) == both[1:]
    partition.remove(tmp_path, both[1])
    assert list(tmp_path.iterdir()) == []


def test_a_classifier_is_known_by_its_weights_and_its_preparation() -> None:
    own = networks.Classifier(torch.nn.Linear(2, 2), "linear", 2, "imagenet")
    other = torch.nn.Linear(2, 2)
    other.load_state_dict(own.network.state_dict())
    other.bias.data[1] += 1
    renamed = torch.nn.Sequential(own.network)
    changes: list[dict[str, Any]] = [
        {"network": other}, {"network": renamed}, {"mean": (0.5, 0.4, 0.4)}, {"std": (0.2, 0.2, 0.3)}, {"size": 64},
        {"resize": 72}, {"interpolation": "bicubic"}, {"name": "other"}, {"classes": ("a", "b")}, {"classes": ("b", "a")},
    ]  # fmt: skip
    found = [shard_counts.fingerprint(dataclasses.replace(own, **change)) for change in ({}, {}, *changes)]
    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(changes)


def test_results_name_the_hardware_that_counted(tmp_path: Path) -> None:
    """Of all shards that have counts, whatever joins them; of one that went on elsewhere, both machines."""
    tasks: list[Task] = [("clean", None, 0), ("imagenet-a", None, 0)]
    about = {"checkpoint": "a hash", "device": "cuda", "precision": "bfloat16"}
    for number, hardware in ((0, "H200"), (1, "A100"), (0, "B200"), (2, "L4")):
        with shard_counts.held(tmp_path, Shard(number, 3), about | {"hardware": hardware}) as part:
            for task in part.shard.of(tasks):
                part.add(task, Count(number, 3))
            with pytest.raises(RuntimeError, match="is running"), shard_counts.held(tmp_path, part.shard, about):
                pass
    joining = about | {"device": "cpu", "precision": "float32", "hardware": "a laptop"}
    found, where = shard_counts.join(tmp_path, tasks, joining)
    assert found == {tasks[0]: Count(0, 3), tasks[1]: Count(1, 3)}
    assert where == {"device": "cuda", "precision": "bfloat16", "hardware": "A100, B200, H200"}


def test_one_process_runs_a_shard(source: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    words: list[object] = ["augment", source, out, "--copies", "1", "--device", "cpu", "--workers", "1"]
    command(*words, "--shard", "0/2")
    with partition.held(out, Shard(1, 2)):
        command(*words, "--shard", "0/2")  # another one
        assert f"{out}: shard 1/2 is running already" in command(*words, "--shard", "1/2", status=1)
        assert f"{out}: shard 1/2 is running; --join when it has ended" in command(*words, "--join", status=1)
    opened = os.open(out, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    assert f"{out}: another run is writing there" in command(*words, "--shard", "1/2", status=1)
    os.close(opened)


def test_shards_at_the_same_time_one_killed(tmp_path: Path, command: Command) -> None:
    photos, one, out = (tmp_path / name for name in ("photos", "one", "out"))
    photos.mkdir()
    for i, image in enumerate(tiles(40)):
        Image.fromarray(image).resize((96, 96)).save(photos / f"{i:02d}.png")
    words = ["augment", str(photos), str(out), "--copies", "3", "--device", "cpu", "--workers", "1"]
    running = [
        subprocess.Popen([*COMMAND, *words[1:], "--shard", f"{number}/2"], stdout=subprocess.DEVNULL)
        for number in (0, 1)
    ]
    try:
        deadline = time.monotonic() + 100
        while len(list(out.glob("[0-9][13579]-*.png"))) < 5:  # of shard 1
            assert running[1].poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        running[1].send_signal(signal.SIGKILL)
    assert running[0].wait(100) == 0
    running[1].wait()
    assert "missing: 1/2 (" in command(*words, "--join", status=1)
    command(*words, "--shard", "1/2")
    command(*words, "--join")
    words[2] = str(one)
    command(*words)
    assert files(out) == files(one)
