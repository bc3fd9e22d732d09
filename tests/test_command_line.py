"""What every command does alike: mistakes are one line that says what to do, exit statuses, defaults, progress."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from test_progress import wait_for

from prime_dali import _command, cli

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchvision", reason="torchvision is not installed")
ROOT = Path(__file__).parent.parent
PNG = "photos/n01/a.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the mistakes below find in the current folder."""
    out = tmp_path_factory.mktemp("mistakes")
    (out / PNG).parent.mkdir(parents=True)
    Image.fromarray(np.zeros((60, 80, 3), np.uint8)).save(out / PNG)
    (out / "empty").mkdir()
    for name, text in {
        "notes.txt": "not what you think", "typo.yaml": "epohcs: 3\n", "word.yaml": "epochs: three\n",
        "kind.yaml": "recipe: cifar11\n",
    }.items():  # fmt: skip
        (out / name).write_text(text)
    torch.save({"fc.weight": torch.zeros(2, 3)}, out / "weights.pt")
    torch.save({"model": Path("x")}, out / "code.pt")  # a class that reading it would have to import
    return out


CIFAR = "empty: expected CIFAR-10, as cifar-10-batches-py/"
MISTAKES = [
    # What is typed after prime-dali, the exit status, what the first line on stderr is or has.
    ("", 2, "prime-dali: expected a command, one of doctor, build-dali-plugin, demo, gallery, augment, train, corrupt, evaluate, analyze, got none"),
    ("gallry", 2, "got 'gallry'; did you mean 'gallery'?"),
    ("--verson", 2, "prime-dali: --verson: no such option; did you mean --version?"),
    ("analyze", 2, "prime-dali analyze: expected a command, one of similarity, embedding, methods, ablation, compare, alpha, sample-complexity, cost, got none"),
    ("analyze ablaton --out o", 2, "got 'ablaton'; did you mean 'ablation'?"),
    ("demo --device gpu", 2, "prime-dali demo: --device: expected one of 'auto', 'cpu', 'cuda', got 'gpu'; did you mean 'cuda'?"),
    ("demo --batchs 4", 2, "prime-dali demo: --batchs: no such option; did you mean --batches?"),
    ("demo --preset imagnet", 2, "prime-dali demo: --preset: expected one of 'imagenet', 'cifar', got 'imagnet'; did you mean 'imagenet'?"),
    ("demo --size 7", 2, "prime-dali demo: --size: expected a whole number from 8 to 4096, got '7'"),
    ("demo --alpha -1", 1, "prime-dali demo: --alpha: expected a finite number >= 0, got -1.0"),
    ("demo --photos /no/such", 1, "prime-dali demo: /no/such: no such file or folder"),
    ("demo --out", 2, "prime-dali demo: --out: expected a value, got none"),
    ("gallery /no/such.png", 1, "prime-dali gallery: /no/such.png: no such file or folder"),
    ("gallery photos --alpha x", 2, "prime-dali gallery: --alpha: expected a number, got 'x'"),
    ("gallery photos --out out.gif", 1, "prime-dali gallery: --out: expected the name of a file that ends in .png or .jpg, got out.gif"),
    ("gallery photos --out notes.txt/x.png --size 32", 1, "prime-dali gallery: notes.txt: expected a folder, got a file"),
    ("augment photos copies", 2, "prime-dali augment: --copies: required, but not given"),
    ("augment photos copies --copies 2 --fromat png", 2, "prime-dali augment: --fromat: no such option; did you mean --format?"),
    ("augment photos copies --copies 0", 1, "prime-dali augment: --copies: expected 1 to 10000, got 0"),
    (f"augment --remake {PNG} b.png --seed 3", 2, "prime-dali augment: --remake: expected SRC and DST alone, got --seed"),
    ("augment photos copies more --copies 2", 2, "prime-dali augment: more: unexpected argument"),
    ("corrupt cifar11 photos c", 2, "prime-dali corrupt: data: expected one of 'cifar10', 'cifar100', 'imagenet', 'tinyimagenet', got 'cifar11'; did you mean 'cifar10'?"),
    ("corrupt cifar10 empty c --only fog", 1, CIFAR),
    ("corrupt imagenet photos c --only gausian_noise", 1, "prime-dali corrupt: --only: expected one of 'gaussian_noise', "),
    ("corrupt imagenet photos c --only gausian_noise", 1, "got 'gausian_noise'; did you mean 'gaussian_noise'?"),
    ("corrupt imagenet photos c --severities 6", 1, "prime-dali corrupt: --severities: expected 1 to 5, got 6"),
    ("corrupt imagenet '' c", 2, "prime-dali corrupt: SRC: expected a file or a folder, got ''"),
    ("corrupt imagenet photos c --workers -1", 2, "prime-dali corrupt: --workers: expected a whole number from 0 to 4096, got '-1'"),
    ("evaluate last.pt", 2, "prime-dali evaluate: expected one or more sets, such as --clean DIR, got none"),
    ("evaluate last.pt --clean photos", 1, "prime-dali evaluate: last.pt: expected a checkpoint file, torchvision:NAME:WEIGHTS or timm:NAME; no such file"),
    ("evaluate notes.txt --clean photos", 1, "prime-dali evaluate: notes.txt: not a checkpoint or a state dict"),
    ("evaluate code.pt --clean photos", 1, "prime-dali evaluate: code.pt: not a checkpoint or a state dict"),
    ("evaluate last.pt --clena photos", 2, "prime-dali evaluate: --clena: no such option; did you mean --clean?"),
    ("evaluate torchvision:resnet81:DEFAULT --clean photos", 1, "prime-dali evaluate: torchvision:resnet81:DEFAULT: expected a classifier of torchvision or timm, got 'resnet81'; did you mean 'resnet"),
    ("evaluate weights.pt --clean photos", 1, "prime-dali evaluate: --network: expected with weights.pt, a state dict that does not say it, got None"),
    ("evaluate weights.pt --clean photos --num-classes 2 --network resnet81", 1, "prime-dali evaluate: --network: expected a classifier of torchvision or timm, got 'resnet81'; did you mean 'resnet"),
    ("evaluate last.pt --clean photos --tta", 2, "prime-dali evaluate: --tta: no such option"),
    ("evaluate last.pt --clean photos --batch-size 3", 2, "prime-dali evaluate: --batch-size: no such option; did you mean --batch?"),
    ("train --data photos --out o --ema 0.9", 2, "prime-dali train: --ema: no such option; did you mean --ema-decay?"),
    ("train --data photos --out o --resume", 2, "prime-dali train: --resume: no such option"),
    ("train", 2, "prime-dali train: --data, --out: required, but not given"),
    ("train --data '' --out o", 2, "prime-dali train: --data: expected a folder, got ''"),
    ("train --data photos --out o --recipe cifar11", 2, "prime-dali train: --recipe: expected one of 'cifar10', 'cifar100', 'in100', 'imagenet', 'tinyimagenet', 'cifar10-fast', 'cifar10-vit', 'cifar10-convnext', 'cifar100-vit', 'cifar100-convnext', 'imagenet-vit', 'imagenet-convnext', 'tinyimagenet-vit', 'tinyimagenet-convnext', got 'cifar11'; did you mean 'cifar10'?"),
    ("train --dta photos --out o", 2, "prime-dali train: --dta: no such option; did you mean --data?"),
    ("train --data photos --out o --epochs three", 2, "prime-dali train: --epochs: expected a whole number, got 'three'"),
    ("train --data photos --out o --epochs 0", 1, "prime-dali train: --epochs: expected 1 to 1000000, got 0"),
    ("train --data photos --out o --no-jds", 2, "prime-dali train: --no-jds: no such option; did you mean --no-jsd?"),
    ("train --data photos --out o --precision float16", 2, "prime-dali train: --precision: expected one of 'auto', 'float32', 'bfloat16', got 'float16'; did you mean 'bfloat16'?"),
    ("train --config /no/such.yaml", 1, "prime-dali train: /no/such.yaml: no such file or folder"),
    ("train --config typo.yaml --data photos --out o", 1, "prime-dali train: epohcs: expected a setting of prime-dali train in typo.yaml, got an unknown one; did you mean 'epochs'?"),
    ("train --config word.yaml --data photos --out o", 1, "prime-dali train: epochs: expected a whole number in word.yaml, got 'three'"),
    ("train --config kind.yaml --data photos --out o", 1, "prime-dali train: recipe in kind.yaml: expected one of 'cifar10', 'cifar100', 'in100', 'imagenet', 'tinyimagenet', 'cifar10-fast', 'cifar10-vit', 'cifar10-convnext', 'cifar100-vit', 'cifar100-convnext', 'imagenet-vit', 'imagenet-convnext', 'tinyimagenet-vit', 'tinyimagenet-convnext', got 'cifar11'; did you mean 'cifar10'?"),
    ("train --data empty --out o", 1, CIFAR),
    ("train --data nope --out o", 1, "prime-dali train: --data: no such file or folder: nope"),
    ("analyze ablation", 2, "prime-dali analyze ablation: --out: required, but not given"),
    ("analyze ablation --out o --set data=photos epohcs=3", 1, "prime-dali analyze ablation: --set: epohcs: expected a setting of prime-dali train, got an unknown one; did you mean 'epochs'?"),
    ("analyze ablation --out o --set data=photos seed=x", 1, "prime-dali analyze ablation: --set: seed: expected a whole number, got 'x'"),
    ("analyze methods --out o --set data=photos --evaluate cifar-c=photos bacth=3", 1, "prime-dali analyze methods: --evaluate: expected one of 'clean', "),
    ("analyze methods --out o --set data=photos --evaluate cifar-c=photos bacth=3", 1, "got 'bacth'; did you mean 'batch'?"),
    ("analyze methods --out o --set data=photos --evaluate cifar-c=photos batch=x", 1, "prime-dali analyze methods: --evaluate: --batch: expected a whole number, got 'x'"),
    ("analyze cost --out o --methods prim", 2, "got 'prim'; did you mean 'prime'?"),
    ("analyze similarity photos --out o --backbone last.pt --methods prme", 1, "prime-dali analyze similarity: --methods: expected one of 'clean', 'augmix-no-mix', 'prime-no-mix', 'augmix', 'prime', got 'prme'; did you mean 'prime'?"),
    *[(words, 2, f"prime-dali {words.partition(' -')[0].partition(' photos')[0].removesuffix(' last.pt')}: {unread}, where nothing reads it; leave it out") for words, unread in (
        ("train --data photos --out o --method standard --depth 2", "--depth: expected with --method prime, got it with --method standard"),
        ("evaluate last.pt --cifar-c photos --subset", "--subset: expected with a network of larger images, got it with a network of 32 x 32 images"),
        ("evaluate last.pt --clean photos --seed 0", "--seed: expected with --bn-adapt, got it with batch norm as trained"),
        ("evaluate last.pt --imagenet-p photos --loader dali", "--loader: expected with sets of image files, got it with videos alone"),
        ("evaluate last.pt --clean photos --reference a", "--reference: expected with --cifar-c or --imagenet-c, got it with other sets alone"),
        ("gallery --html a.html --figure nearest", "--figure: expected with --out, got it with --html alone"),
        ("analyze methods --out o --collect --only prime", "--only: expected with runs to make, got it with --collect"),
        ("analyze cost --out o --methods prime --official a", "--official: expected with --methods official, got it with other methods alone"),
        ("analyze embedding --backbone last.pt --out o --methods prime --severities 3", "--severities: expected with --methods corrupted, got it with other methods alone"),
    )],
    ("analyze cost --out o --data photos --set epochs=3", 1, "analyze cost: --set: expected settings that all methods share, got epochs, which this command chooses"),
    ("analyze methods --out o --list --set data=photos resize=64 --evaluate cifar-c=photos", 1, "standard: resize: expected with a recipe of image files, got it with --recipe cifar10"),
    ("analyze methods --out o --list --set data=photos jsd_weight=1 --evaluate cifar-c=photos loader=dali", 1, "--evaluate: --loader: expected with a network of larger images"),
    ("build-dali-plugin --forse", 2, "prime-dali build-dali-plugin: --forse: no such option; did you mean --force?"),
    ("build-dali-plugin --force=1", 2, "prime-dali build-dali-plugin: --force: expected no value, got '1'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "status", "message"), MISTAKES, ids=[words for words, _, _ in MISTAKES])
def test_a_mistake_is_a_line_that_says_what_to_do(
    words: str, status: int, message: str, folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    assert cli.main(shlex.split(words)) == status
    said = capsys.readouterr()
    first, *more = said.err.splitlines()
    command = re.match(r"prime-dali(?: analyze)?(?: [a-z-]+)?(?=: )", first)
    assert command is not None
    assert first == message if message.startswith("prime-dali") and status == 2 else message in first
    assert more == ([f"see {command[0]} --help"] if status == 2 else [])
    for raw in ("[Errno", "Traceback", "weights_only", "typing.", "usage:", "invalid choice"):
        assert raw not in said.err + said.out
    assert sorted(folder.rglob("*")) == before


def commands() -> Iterator[tuple[str, Callable[[], argparse.ArgumentParser]]]:
    from prime_dali.experiments import command

    for name in cli._SMALL:
        yield name, lambda name=name: cli.parser(name)
    for name, (module, _) in cli._MODULES.items():
        if name != "analyze":
            yield name, lambda module=module: importlib.import_module(f"prime_dali.{module}").parser()
    for name in command._EXPERIMENTS:
        yield f"analyze {name}", lambda name=name: command.parser(name)


@pytest.mark.parametrize(("name", "parser"), list(commands()), ids=[name for name, _ in commands()])
def test_help_shows_defaults_in_one_way(name: str, parser: Callable[[], argparse.ArgumentParser]) -> None:
    known = parser()
    assert known.prog == f"prime-dali {name}"
    text = " ".join(known.format_help().split())
    for wrong in ("default: None", "default: )", "default: [", "default: False", "default: True", "; default:"):
        assert wrong not in text
    for action in known._actions:
        if "--device" in action.option_strings:
            assert action.choices == ("auto", "cpu", "cuda")
        if "--seed" in action.option_strings and name != "train":
            assert action.default == 0
        if "--workers" in action.option_strings:
            assert "0: " in action.help
            assert action.default in (0, "0")
        shown = _command.shown_default(action)
        if action.option_strings and shown and "default: " not in action.help and not action.required:
            assert f"(default: {shown})" in text


def test_the_whole_command_is_named_where_it_fails(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["analyze", "alpha", "--out", str(folder / "o"), "--grid", "/no/such.yaml"]) == 1
    assert capsys.readouterr().err == "prime-dali analyze alpha: /no/such.yaml: no such file or folder\n"


def test_exit_statuses(capsys: pytest.CaptureFixture) -> None:
    def ended(error: BaseException | None) -> int:
        def call() -> None:
            if error is not None:
                raise error

        return _command.run("prime-dali x", call)

    assert ended(None) == ended(SystemExit()) == ended(SystemExit(0)) == 0
    assert ended(SystemExit(75)) == _command.STOPPED
    assert ended(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "prime-dali x: interrupted\n"
    assert ended(FileNotFoundError(2, "No such file or directory", "a")) == 1
    assert capsys.readouterr().err == "prime-dali x: a: no such file or folder\n"
    assert ended(OSError(28, "No space left on device")) == 1
    assert capsys.readouterr().err == "prime-dali x: no space is left on the disk\n"
    assert ended(KeyError("oops")) == 1  # a mistake of ours, shown whole
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.splitlines()[-1] == "prime-dali x: a bug in prime-dali, please report it (KeyError)"
    assert ended(RuntimeError("CUDA error: out of luck\nCompile with TORCH_USE_CUDA_DSA")) == 1
    assert capsys.readouterr().err == "prime-dali x: CUDA error: out of luck\n"  # a library's advice is not for users
    assert cli.main(["--version"]) == cli.main(["train", "--help"]) == 0


@pytest.mark.parametrize("how", ["--debug", "environment"])
def test_debug_shows_the_trace(how: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "environment":
        monkeypatch.setenv("PRIME_DALI_DEBUG", "1")
    assert cli.main(["gallery", "/no/such.png", *(["--debug"] if how == "--debug" else [])]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "prime-dali gallery: /no/such.png: no such file or folder"
    monkeypatch.delenv("PRIME_DALI_DEBUG", raising=False)
    assert cli.main(["gallery", "/no/such.png"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_python_m_prime_dali() -> None:
    done = subprocess.run([sys.executable, "-m", "prime_dali", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{importlib.import_module('prime_dali').__version__}\n")


def test_training_says_what_it_is_and_leaves_the_compilation_out_of_an_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prime_dali.training import trainer

    records = np.random.default_rng(0).integers(0, 256, (96, 3073), np.uint8)
    records[:, 0] %= 10  # labels
    for name, part in zip(["test_batch", *(f"data_batch_{i}" for i in range(1, 6))], np.split(records, 6), strict=True):
        part.tofile(tmp_path / f"{name}.bin")
    small = "--network shufflenet_v2_x0_5 --stem imagenet --no-compile --batch 20 --log-every 2"
    step, late = trainer.Trainer.train_step, [0.0]

    def slow(self: trainer.Trainer, *batch: torch.Tensor) -> torch.Tensor:
        if not self._starting:
            late[0] += 1000  # as of a compilation
        return step(self, *batch)

    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late[0]))
    monkeypatch.setattr(trainer.Trainer, "train_step", slow)
    words = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), *small.split(), "--device", "cpu"]
    assert cli.main(["train", *words, "--epochs", "2", "--limit-steps", "4"]) == 0
    said = capsys.readouterr().out
    for line in (r"data     cifar10 in .*, 10 classes", r"images   32 x 32, 4 steps of 20 per epoch, 2 epochs",
                 r"network  shufflenet_v2_x0_5, stem imagenet, [\d,]+ parameters", r"device   cpu, 1 thread, float32, not compiled",
                 r"done: 8 steps, .* % of the validation images correct; .*last\.pt"):  # fmt: skip
        assert re.search(f"^{line}$", said, re.M), line
    epochs = re.findall(r"correct; ([\d.]+) s per epoch", said)
    assert len(epochs) == 2
    assert all(float(seconds) < 900 for seconds in epochs)
    assert float(re.findall(r"([\d.]+) minutes of training", said)[0]) < 15


def test_a_grid_passes_ctrl_c_on_and_a_second_one_kills(capfd: pytest.CaptureFixture, hears_ctrl_c: None) -> None:
    from prime_dali.experiments.children import Children

    program = "import signal, sys, time; signal.signal(signal.SIGINT, {}); print('ready', flush=True); time.sleep(60)"
    for heard, expected in (("lambda *_: sys.exit(130)", 130), ("signal.SIG_IGN", -signal.SIGKILL)):
        with Children() as children, ThreadPoolExecutor(1) as pool:
            running = pool.submit(children._follow, "run", "", [sys.executable, "-c", program.format(heard)])
            wait_for(lambda: "run: ready" in capfd.readouterr().out)
            os.kill(os.getpid(), signal.SIGINT)
            if expected < 0:
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), signal.SIGINT)
            assert running.result(20)[1] == expected
            with pytest.raises(SystemExit, match="130"):
                children.call("run", "", "train")  # none begins any more


def test_analyses_take_data_and_device_as_other_commands_do(tmp_path: Path) -> None:
    from prime_dali.experiments import ablation, command, grid_file, grids

    words = ["--out", str(tmp_path), "--data", "d", "--device", "cpu", "--set", "epochs=3", "--evaluate", "cifar-c=c"]
    grid = grids.read_grid(ablation.ANALYSIS, command.parser("ablation").parse_args(words), {})
    assert (grid.base["data"], grid.base["device"], grid.base["epochs"], grid.evaluate["device"]) == (
        "d",
        "cpu",
        3,
        "cpu",
    )
    options = command.parser("cost").parse_args(["--out", "o", "--data", "d", "--set", "data=e"])
    assert grid_file.given(options) == {"data": "e"}


@pytest.mark.parametrize("through", [True, False])
def test_a_full_disk_behind_stdout_is_named(
    through: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the line that does not fit, or at the end if Python has kept it until then; nothing is left for its exit."""
    with open("/dev/full", "w") as full:
        full.reconfigure(write_through=through)  # as PYTHONUNBUFFERED
        monkeypatch.setattr(sys, "stdout", full)
        assert _command.run("prime-dali doctor", lambda: print("all is usable")) == _command.BAD_INPUT
        assert sys.stdout is full
    assert capsys.readouterr().err == "prime-dali doctor: stdout: no space is left on the disk\n"


@pytest.mark.parametrize(("error", "status", "message"), [
    (ValueError("size: expected 8 to 4096, got 7"), _command.BAD_INPUT, "size: expected 8 to 4096, got 7"),
    (KeyboardInterrupt(), _command.INTERRUPTED, "interrupted"),
])  # fmt: skip
def test_an_error_comes_before_one_of_stdout(
    error: BaseException, status: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail() -> None:
        print("the first of two")
        raise error

    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert _command.run("prime-dali doctor", fail) == status
    assert capsys.readouterr().err == f"prime-dali doctor: {message}\n"
