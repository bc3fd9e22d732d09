"""Training runs: settings, exact continuation after any interruption, several processes, faults."""

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
from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import needs_gpu
from PIL import Image

pytest.importorskip("torchvision", reason="torchvision is not installed")

from prime_dali._command import INTERRUPTED, STOPPED
from prime_dali._files import held
from prime_dali.models import networks
from prime_dali.training import checkpoint, replay, train
from prime_dali.training.config import TrainConfig, defaults
from prime_dali.training.data import CifarData
from prime_dali.training.ranks import Ranks
from prime_dali.training.trainer import Diverged, Trainer

ALONE = Ranks(0, 1, torch.device("cpu"))
TRAIN, TEST = 120, 30


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Here and in the subprocesses: sums depend on the number of threads, and the networks are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs cut into squares, in CIFAR-10's binary layout; the classes are rows of the photograph."""
    skimage = pytest.importorskip("skimage", reason="scikit-image is not installed")
    folder = tmp_path_factory.mktemp("cifar")
    photo = Image.fromarray(skimage.data.astronaut()).resize((20 * 32, 10 * 32))
    tiles = np.asarray(photo).reshape(10, 32, 20, 32, 3).transpose(2, 0, 4, 1, 3).reshape(200, 3, 32, 32)
    labels = np.tile(np.arange(10), 20)
    records = np.concatenate([labels[:, None].astype(np.uint8), tiles.reshape(200, -1)], 1)
    records[:TEST].tofile(folder / "test_batch.bin")
    for i, part in enumerate(np.array_split(records[TEST : TEST + TRAIN], 5), 1):
        part.tofile(folder / f"data_batch_{i}.bin")
    return folder


NETWORK = "shufflenet_v2_x0_5"
SMALL = f"--network {NETWORK} --stem imagenet --no-compile --batch 20 --epochs 3 --log-every 2".split()


def settings(cifar: Path, out: Path, *more: str) -> list[str]:
    return ["--data", str(cifar), "--out", str(out), *SMALL, "--device", "cpu", *more]


def command(cifar: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "prime_dali.cli", "train", *settings(cifar, out, *more)]


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in checkpoint.read_log(folder) if "loss" in line]


def wait_for_a_loss(folder: Path) -> None:
    while not (folder / "log.jsonl").exists() or not losses(folder):
        time.sleep(0.005)


def run(cifar: Path, out: Path, *more: str) -> Trainer:
    trainer = Trainer(train.read(settings(cifar, out, *more)), ALONE, lambda line: None)
    trainer.run()
    return trainer


@pytest.fixture(scope="module")
def whole(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without an interruption."""
    out = tmp_path_factory.mktemp("whole")
    run(cifar, out, "--jsd")
    return out


def test_recipes_are_those_of_the_paper() -> None:
    """docs/METHOD.md, "Training": net, batch, greatest learning rate, warm-up, weight decay, JSD, clip."""
    for recipe, expected in (
        ("cifar10", ("resnet18", "cifar", 128, 0.2, 0.25, 5e-4, True, 0.5, 32)),
        ("cifar100", ("resnet18", "cifar", 128, 0.2, 0.25, 5e-4, True, 0.5, 32)),
        ("in100", ("resnet18", "imagenet", 256, 0.2, 0.25, 1e-4, True, 0.5, 224)),
        ("imagenet", ("resnet50", "imagenet", 256, 0.01, 0.1, 1e-4, False, 0.0, 224)),
    ):
        c = train.read(["--recipe", recipe, "--data", "d", "--out", "o"])
        assert (c.network, c.stem, c.batch, c.lr, c.warmup, c.weight_decay, c.jsd, c.clip, c.size) == expected
        assert (c.method, c.epochs, c.momentum, c.seed) == ("prime", 100, (0.85, 0.95), 1)
    assert c.weights == "torchvision:resnet50:IMAGENET1K_V1"
    assert not TrainConfig(**defaults("cifar10", "standard")).jsd


def test_settings_come_from_recipe_file_and_command_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: imagenet\nmethod: augmix\nlr: 0.5\nbatch: 512\ndata: here\n")
    c = train.read(["--config", str(file), "--out", "o", "--batch", "1024", "--no-compile"])
    assert (c.recipe, c.method, c.network, c.lr, c.batch, c.data, c.compile) == (
        "imagenet",
        "augmix",
        "resnet50",
        0.5,
        1024,
        "here",
        False,
    )
    assert c.max_lr == 0.5 * 1024 / 256
    saved = tmp_path / "saved.yaml"
    import yaml

    saved.write_text(yaml.safe_dump(c.plain()))
    assert train.read(["--config", str(saved)]) == c


@pytest.mark.parametrize(("arguments", "message"), [
    (["--recipe", "cifar1"], "recipe"),
    (["--method", "primee"], "method"),
    (["--batch", "many"], "batch"),
    (["--nonsense", "1"], "nonsense"),
    (["--lr"], "lr"),
])  # fmt: skip
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        train.read(["--data", "d", "--out", "o", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "message"), [
    ({"jsd": True, "method": "standard"}, "jsd: expected method augmix or prime"),
    ({"batch": 0}, "batch: expected 1 to"),
    ({"warmup": 1.0}, "warmup: expected a part"),
    ({"momentum": (0.9, 0.8)}, "momentum: expected 0 <= least"),
    ({"resize": 16}, "resize: expected at least size, 32, got 16"),
    ({"deepaugment": ("a", "b")}, "deepaugment: expected the folders EDSR and CAE, of ImageNet"),
    ({"primitives": ("blur",)}, "primitives: .*'blur'"),
    ({"lr": -1.0}, "lr: expected a finite number >= 0"),
])  # fmt: skip
def test_bad_settings(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**changes)


def test_a_run_and_what_it_leaves(whole: Path) -> None:
    assert sorted(p.name for p in whole.iterdir()) == ["config.yaml", "last.pt", "log.jsonl"]
    log = checkpoint.read_log(whole)
    assert [line["step"] for line in log if "loss" in line] == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    seen = [line for line in log if "accuracy" in line]
    assert [line["epoch"] for line in seen] == [1, 2, 3]
    assert all(line["images"] == TEST and line["accuracy"] == line["correct"] / TEST for line in seen)
    classifier = networks.load(whole / "last.pt")
    assert (classifier.num_classes, classifier.stem, classifier.size, classifier.resize) == (10, "imagenet", 32, None)
    assert classifier.details["config"]["jsd"] is True
    assert classifier.details["epoch"] == 3
    # A second time there is nothing left to do, and nothing changes.
    before = (whole / "log.jsonl").read_text()
    (whole / ".last-abcd_123.pt").write_bytes(b"half")
    (whole / ".unfinished-abcd_123.pt").write_bytes(b"half")
    trainer = Trainer(
        train.read(settings(Path(classifier.details["config"]["data"]), whole, "--jsd")), ALONE, lambda line: None
    )
    assert trainer.run().finished
    assert (whole / "log.jsonl").read_text() == before
    assert sorted(p.name for p in whole.iterdir()) == ["config.yaml", "last.pt", "log.jsonl"]


def test_a_small_set_is_learned(cifar: Path, tmp_path: Path) -> None:
    run(cifar, tmp_path, "--method", "standard", "--network", "resnet18", "--epochs", "8", "--lr", "0.3")
    found = losses(tmp_path)
    assert found[-1][1] < 0.9 * found[0][1]


@pytest.mark.timeout(200)
def test_killed_and_continued(cifar: Path, whole: Path, tmp_path: Path) -> None:
    """kill -9 again and again; the losses are those of the run without an interruption, to the bit."""
    kills = 0
    for step in (4, 8, 14):
        process = subprocess.Popen(command(cifar, tmp_path, "--jsd", "--save-minutes", "0"), stdout=subprocess.DEVNULL)
        while process.poll() is None:
            if (tmp_path / "log.jsonl").exists() and [s for s, _ in losses(tmp_path) if s >= step]:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.005)
        process.wait()
    assert kills == 3
    assert subprocess.run(command(cifar, tmp_path, "--jsd"), check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert losses(tmp_path) == losses(whole)
    one, other = (networks.load(folder / "last.pt").network.state_dict() for folder in (tmp_path, whole))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


@needs_gpu
@pytest.mark.timeout(400)
def test_killed_and_continued_on_a_gpu(cifar: Path, tmp_path: Path) -> None:
    """Compiled, in bfloat16, with the step as a CUDA graph."""
    words = [sys.executable, "-m", "prime_dali.cli", "train", "--data", str(cifar), "--batch", "20", "--epochs", "3"]
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


@needs_gpu
def test_a_replayed_step_is_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and weights of steps replayed as a CUDA graph and of steps that are not, to the bit."""
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


def _gradients(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    loss = torch.nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    return loss.detach()


def test_ctrl_c_saves_and_stops(cifar: Path, whole: Path, tmp_path: Path) -> None:
    heard = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs ignore it, and so would this
    try:
        process = subprocess.Popen(
            command(cifar, tmp_path, "--jsd"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, heard)
    wait_for_a_loss(tmp_path)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=100)
    assert process.returncode == INTERRUPTED
    assert "stopping within 2 steps, then saving; Ctrl-C again stops at once" in error
    assert "Traceback" not in error
    assert "stopped by Ctrl-C after step" in out
    run(cifar, tmp_path, "--jsd")
    assert losses(tmp_path) == losses(whole)


def test_ctrl_c_twice_stops_at_once(cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(train.read(settings(cifar, tmp_path)), ALONE, lambda line: None)
    step, steps = trainer.train_step, []

    def interrupted(*batch: torch.Tensor) -> torch.Tensor:
        steps.append(step(*batch))
        os.kill(os.getpid(), signal.SIGINT)
        return steps[-1]

    monkeypatch.setattr(trainer, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert len(steps) == 2
    assert not (tmp_path / "last.pt").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_stops(cifar: Path, whole: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(command(cifar, tmp_path, "--jsd"), stdout=subprocess.PIPE, text=True)
    wait_for_a_loss(tmp_path)
    process.send_signal(number)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == STOPPED
    assert "stopped by a signal after step" in out
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
        ValueError, match=r"data: expected the images and classes that the run began with, got others in"
    ):
        run(other, run_folder, "--jsd")
    moved = shutil.copytree(cifar, tmp_path / "moved")
    assert run(moved, run_folder, "--jsd").step == 18


def test_a_run_that_another_one_overtook(cifar: Path, tmp_path: Path) -> None:
    late = Trainer(train.read(settings(cifar, tmp_path)), ALONE, lambda line: None)
    run(cifar, tmp_path)
    before = (tmp_path / "last.pt").read_bytes(), (tmp_path / "log.jsonl").read_bytes()
    with pytest.raises(RuntimeError, match="another run has written there meanwhile; start again"):
        late.run()
    assert ((tmp_path / "last.pt").read_bytes(), (tmp_path / "log.jsonl").read_bytes()) == before


def test_files_and_recipes_on_the_command_line(tmp_path: Path) -> None:
    """What the command line says counts, wherever a file stands; the recipe's defaults are those of the recipe."""
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("recipe: in100\nseed: 5\n")
    two.write_text("lr: 0.125\nseed: 6\n")
    paths = ["--data", "d", "--out", "o"]
    found = train.read([*paths, "--seed", "2", "--config", str(one), "--config", str(two)])
    assert (found.recipe, found.size, found.stem, found.seed, found.lr) == ("in100", 224, "imagenet", 2, 0.125)
    with pytest.raises(SystemExit, match="2"):  # its defaults would not be that recipe's
        train.read([*paths, "--recip", "in100"])
    two.write_text("lr: [1\n")
    with pytest.raises(ValueError, match=r"config: expected YAML in .*two.yaml"):
        train.read([*paths, "--config", str(two)])


def test_files_that_name_others(tmp_path: Path) -> None:
    """The recipe's defaults come with the recipe, at any depth; a file counts over those that it names."""
    below = tmp_path / "below"
    below.mkdir()
    files = {"a": "config: below/b.yaml\nseed: 7\n", "below/b": "lr: 1e-3\nseed: 6\nconfig: [c.yaml, ../d.yaml]\n",
             "below/c": "recipe: imagenet\nseed: 5\nbatch: 64\n", "d": "batch: 32\n", "loop": "config: below/to.yaml\n",
             "below/to": f"config: {tmp_path}/loop.yaml\n", "bad": "config: 3\n", "none": "config: gone.yaml\n",
             "list": "[1]\n", "one": "momentum: 0.9\n", "word": "primitives: color\n", "int": "jsd: 1\n",
             "null": "lr:\n"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    found = train.read(["--config", str(tmp_path / "a.yaml"), "--data", "d", "--out", "o"])
    assert found == TrainConfig(**{**defaults("imagenet", "prime"), "data": "d", "out": "o", "lr": 1e-3, "seed": 7,
                                   "batch": 32})  # fmt: skip
    for name, kind, message in (
        ("loop", ValueError, r"config: expected files that do not name each other in a circle, got .*loop.yaml, which "
         r".*to.yaml names, which .*loop.yaml names"),
        ("bad", ValueError, r"config: expected the name of a file, or a list of names, in .*bad.yaml, got 3"),
        ("none", FileNotFoundError, "gone.yaml"),
        ("list", ValueError, r"config: expected settings by name in .*list.yaml, got list"),
        ("one", ValueError, r"momentum: expected a list in .*one.yaml, got 0.9"),
        ("word", ValueError, r"primitives: expected a list in .*word.yaml, got 'color'"),
        ("int", ValueError, r"jsd: expected true or false in .*int.yaml, got 1"),
        ("null", ValueError, r"lr: expected a value in .*null.yaml, got nothing"),
    ):  # fmt: skip
        with pytest.raises(kind, match=message):
            train.read(["--config", str(tmp_path / f"{name}.yaml")])


def test_two_runs_in_one_folder(cifar: Path, tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(RuntimeError, match="another run is writing there"):
        run(cifar, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_checkpoint(cifar: Path, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"no checkpoint")
    with pytest.raises(
        ValueError, match=r"last.pt: not a checkpoint of a training run \(it cannot be read .*; put back"
    ):
        run(cifar, tmp_path)
    torch.save({"format": "prime-dali"}, tmp_path / "last.pt")
    with pytest.raises(
        ValueError, match=r"last.pt: not a checkpoint .* \(config: expected a mapping, got none\); put back"
    ):
        run(cifar, tmp_path)


@pytest.mark.parametrize(("place", "value", "message"), [
    ("run.step", 19, "run.step: expected 0 to the run's last, 18, got 19"),
    ("run.step", -1, "run.step: expected 0 to the run's last, 18, got -1"),
    ("run.step", 18.0, "run.step: expected an int, got float"),
    ("run.step", None, "run.step: expected an int, got NoneType"),
    ("run.random.cpu", torch.zeros(3), "run.random: it does not fit this run (TypeError"),
    ("run.data", [], "processes: expected 0, as the run had, got 1"),
    ("run.schedule.last_epoch", 17000, "run.schedule: it does not fit this run (ValueError: last_epoch: expected 17"),
    ("run.schedule.total_steps", "18", "run.schedule: it does not fit this run (ValueError: total_steps: expected"),
    ("run.optimizer.param_groups", [], "run.optimizer: it does not fit this run"),
    ("run.optimizer.state.0.momentum_buffer", torch.zeros(3), "run.optimizer: it does not fit this run (ValueError"),
    ("model.fc.weight", torch.zeros(3), "model: it does not fit this run (RuntimeError"),
    ("model.fc.weight", ..., "model: it does not fit this run (RuntimeError"),
    ("run.optimizer", ..., "run.optimizer: expected a mapping, got none"),
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


def test_a_full_disk(tmp_path: Path) -> None:
    """The error names the file and says what is there, the last good checkpoint stays, and nothing else is left."""
    program = f"""if True:
        import resource, signal, torch
        from pathlib import Path
        from prime_dali.training import checkpoint
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        folder = Path({str(tmp_path)!r})
        log = checkpoint.Log(folder, 0)
        for act in (
            lambda: checkpoint.save(folder, {{"run": torch.zeros(10**6)}}),
            lambda: checkpoint.save(folder, {{"run": 1}}),
            lambda: checkpoint.save(folder, {{"run": torch.zeros(10**6)}}),
            lambda: log.write(step=1, text="x" * 10**6),
        ):
            try:
                act()
            except OSError as error:
                print(error)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    first, second, third = done.stdout.splitlines()
    assert "last.pt: the checkpoint cannot be written, and there is none before it (" in first
    assert "last.pt: the checkpoint cannot be written, the one before is kept (" in second
    assert f"File too large: '{tmp_path / 'log.jsonl'}'" in third
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last.pt", "log.jsonl"]
    assert torch.load(tmp_path / "last.pt") == {"run": 1}
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


def test_nan_stops_the_run(cifar: Path, tmp_path: Path) -> None:
    config = train.read(settings(cifar, tmp_path, "--save-minutes", "0"))
    trainer = Trainer(config, ALONE, lambda line: None)
    inner = trainer.train_step
    trainer.train_step = lambda images, labels: inner(images, labels) * (float("nan") if trainer.step == 7 else 1)
    with pytest.raises(Diverged, match=r"loss: expected a number, got nan at step 7 of 18; the last checkpoint"):
        trainer.run()
    assert checkpoint.load(tmp_path)["run"]["step"] == 6


def test_bad_data(cifar: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected CIFAR-100 as one of"):
        run(cifar, tmp_path / "a", "--recipe", "cifar100")
    with pytest.raises(ValueError, match="batch: expected at most the 120 training images, got 121"):
        run(cifar, tmp_path / "b", "--batch", "121")
    with pytest.raises(ValueError, match="batch: expected a multiple of the 3 processes, got 20"):
        Trainer(train.read(settings(cifar, tmp_path / "c")), Ranks(0, 3, torch.device("cpu")), print)
    other = networks.Classifier(networks.create(NETWORK, 7), NETWORK, 7)
    torch.save(networks.checkpoint(other), tmp_path / "w.pt")
    with pytest.raises(ValueError, match="num_classes: expected 7"):
        run(cifar, tmp_path / "d", "--weights", str(tmp_path / "w.pt"))
    with pytest.raises(ValueError, match="warmup: expected more than one of the run's 3 steps"):
        run(cifar, tmp_path / "e", "--epochs", "1", "--limit-steps", "3")
    assert not list(tmp_path.glob("*/*"))


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


@pytest.mark.timeout(200)
def test_two_processes(cifar: Path, tmp_path: Path) -> None:
    """torchrun: one log, the same validation result as one process has of the same checkpoint."""
    program = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "prime_dali.cli"]
    arguments = ["train", *settings(cifar, tmp_path, "--method", "prime", "--epochs", "1")]
    done = subprocess.run([sys.executable, *program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    log = checkpoint.read_log(tmp_path)
    assert [line["step"] for line in log if "loss" in line] == [2, 4, 6]
    [seen] = [line for line in log if "accuracy" in line]
    assert seen["images"] == TEST
    alone = Trainer(
        train.read(settings(cifar, tmp_path, "--method", "prime", "--epochs", "1")), ALONE, lambda line: None
    )
    alone._log = checkpoint.Log(tmp_path, alone.step)
    assert alone._validate() == seen["accuracy"]


def test_tensorboard(cifar: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    run(cifar, tmp_path, "--tensorboard", "--epochs", "1", "--method", "standard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(s, pytest.approx(v)) for s, v in losses(tmp_path)]


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
