"""The files of grids of training runs and their command lines: what is checked before the first run."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import gridding
from gridding import options

from prime_dali.evaluation import command
from prime_dali.evaluation.names import CORRUPTIONS
from prime_dali.experiments import ablation, grid_file, grid_tables, grids, sample_complexity
from prime_dali.experiments.grid_file import Grid, Run

grid = gridding.grid  # a fixture

EXAMPLES = Path(__file__).parent.parent / "examples" / "grids"


@pytest.mark.parametrize(("text", "message"), [
    ("bases: {}", r"grid.yaml: field: .* got 'bases'; did you mean 'base'"),
    ("base: {epoch: 3}", "epoch: expected a setting of prime-dali train, got an unknown one; did you mean 'epochs'"),
    ("evaluate: {cifar_c: x, cifar-c: x}", "evaluate: .* got 'cifar_c'; did you mean 'cifar-c'"),
    ("evaluate: {cifar-c: 001}", "evaluate: cifar-c: expected the name of a folder or a file, got 1"),
    ("evaluate: {clean: x}", "evaluate: expected a benchmark, cifar-c or imagenet-c"),
    ("runs: [{name: a, widht: 1}]", "a: widht: expected a setting of prime-dali train, got an unknown one; did you mean 'width'"),
    ("runs: [{name: a}, {name: a}]", "runs: expected each name once, got 'a' 2 times"),
    ("runs: [{name: ../a}]", "runs: expected a name that a folder can have"),
    ("runs: [{width: 1}]", "runs: expected settings with a name"),
    ("runs: [{name: a, method: primee}]", "a: .*method.*primee"),
    ("runs: [{name: a, width: 2.5}]", "a: .*width.*2.5"),
    ("runs: [{name: a, primitives: color}]", "a: primitives: expected a list, got 'color'"),
    ("runs: [{name: a, recipe: cifar1}]", "a: recipe: .*did you mean 'cifar10'"),
    ("runs: [{name: a, jsd: true, method: standard}]", "a: jsd: expected method augmix or prime"),
    ("vary: {width: 3}", "vary: expected a list of values of width"),
    ("base: [1]", r"base: expected settings by name, got \[1\]"),
    ("base: {out: x}", "out: expected as --out"),
    ("base: {data: nowhere}", "nowhere: no such file or folder"),
    ("base: }{", "expected YAML"),
    ("base: {seed: 1, width: 2, seed: 3}", "expected YAML .*'seed' comes twice"),
    ("- 1", "expected the fields base, evaluate"),
])  # fmt: skip
def test_a_bad_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    words = ["--out", tmp_path / "out", "--grid", path]
    if "data" not in text:
        words += ["--set", f"data={tmp_path}"]
    if "evaluate" not in text:
        words += ["--evaluate", f"cifar-c={tmp_path}"]
    with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message):
        ablation.run(options(ablation, *words))
    assert not (tmp_path / "out").exists()


def words_of(grid: Path, folder: Path) -> list:
    """A command line whose folders are there."""
    return ["--out", folder / "out", "--grid", grid, "--set", f"data={folder}", "--evaluate", f"cifar-c={folder}"]


def test_a_bad_value_of_the_evaluation(grid: Path, tmp_path: Path) -> None:
    message = "evaluate: --normalize: expected one of 'none', 'alexnet', 'standard', got 'alexnets'; did you mean 'alex"
    with pytest.raises(ValueError, match=f"^{message}"):
        ablation.run(options(ablation, *words_of(grid, tmp_path), "normalize=alexnets"))
    with pytest.raises(ValueError, match="evaluate: normalise: is called normalize now"):
        ablation.run(options(ablation, *words_of(grid, tmp_path), "normalise=none"))


def test_what_a_benchmark_lacks_is_said_before_a_training(grid: Path, tmp_path: Path) -> None:
    """By its names of files and folders, in the words of the evaluation."""

    def refused(message: str, *more: str, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error, match=f"^evaluate: {re.escape(message)}"):
            ablation.run(options(ablation, *words_of(grid, tmp_path), *more))
        assert not (tmp_path / "out").exists()

    end = "; the option partial takes the mean over the rest"
    refused(f"{tmp_path}: expected <corruption>.npy, found none", "partial=true", error=FileNotFoundError)
    for name in ("labels", *CORRUPTIONS[:-2]):
        (tmp_path / f"{name}.npy").touch()
    message = f"{tmp_path}: expected all of cifar-c for a mean, missing: "
    refused(f"{message}pixelate; jpeg_compression{end}")
    for name in CORRUPTIONS[-2:]:
        (tmp_path / f"{name}.npy").touch()
    (tmp_path / "manifest.json").write_text('{"severities": [1, 2, 5]}')
    refused(f"{message}{'; '.join(f'{name} severity 3, 4' for name in CORRUPTIONS)}{end}")
    (tmp_path / "manifest.json").unlink()

    bar = tmp_path / "bar"
    for number in range(10):
        for severity in range(1, 5 if number == 3 else 6):
            (bar / f"c{number}" / str(severity)).mkdir(parents=True)
    refused(f"{bar}: expected all of imagenet-c-bar for a mean, missing: c3 severity 5{end}", f"imagenet-c-bar={bar}")
    (bar / "c3" / "6").mkdir()
    refused(f"{bar}/c3: expected folders 1 to 5, the severities, got '6'", f"imagenet-c-bar={bar}", "partial=true")
    (bar / "c3").rename(tmp_path / "c3")
    message = "missing: ten corruptions, got 9"
    refused(f"{bar}: expected all of imagenet-c-bar for a mean, {message}{end}", f"imagenet-c-bar={bar}")
    (bar / "tilt").mkdir()
    refused(f"{bar}: perturbation: expected one of", f"imagenet-p={bar}")


def test_names_and_numbers_of_runs(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = words_of(grid, tmp_path)
    with pytest.raises(
        ValueError, match="evaluate: expected a benchmark, cifar-c or imagenet-c"
    ):  # before it is a task
        ablation.run(options(ablation, "--out", tmp_path, "--data", "d", "--list"))
    ablation.run(options(ablation, *words, "--list"))
    listed = capsys.readouterr().out.splitlines()
    assert listed[1] == '1  primitives=color  (not started)  {"primitives": ["color"]}'
    ablation.run(options(ablation, *words, "--list", "--task", 1))
    assert capsys.readouterr().out.splitlines() == listed[1:]
    for task in (-1, 2):
        with pytest.raises(ValueError, match=f"task: expected 0 to 1, got {task}"):
            ablation.run(options(ablation, *words, "--task", task))
    with pytest.raises(ValueError, match=r"only: .*did you mean 'primitives=color'"):
        ablation.run(options(ablation, *words, "--only", "primitives=colour"))
    with pytest.raises(ValueError, match="--set: expected NAME=VALUE, got 'epochs'"):
        ablation.run(options(ablation, *words, "--set", "epochs"))


def test_rows_are_left_out(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Of the runs and of the table, which says so; a row has all seeds."""
    words = [*words_of(grid, tmp_path), "--seeds", 1, 2, "--rows"]
    ablation.run(options(ablation, *words, "primitives=color", "--list"))
    listed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["primitives=color,seed=1", "primitives=color,seed=2"]
    with pytest.raises(ValueError, match=r"rows: .*did you mean 'primitives=color'"):
        ablation.run(options(ablation, *words, "primitives=color,seed=1", "--list"))
    read = grids.read_grid(ablation.ANALYSIS, options(ablation, *words, "primitives=color"), {})
    assert "left out by --rows: primitives=none" in grid_tables.conditions(read, [], [])


def test_a_task_makes_no_table(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of an array job run side by side, and would each write it."""
    done: list[object] = []
    monkeypatch.setattr(grids, "execute", lambda grid, chosen, jobs: done.append(([run.name for run in chosen], jobs)))
    monkeypatch.setattr(grids, "collect", lambda analysis, grid: done.append("table"))
    monkeypatch.setattr(grid_file, "check", lambda grid, chosen: None)
    words = words_of(grid, tmp_path)
    ablation.run(options(ablation, *words, "--task", 1))
    assert done == [(["primitives=color"], 1)]
    ablation.run(options(ablation, *words, "--jobs", 2))
    assert done[1:] == [(["primitives=none", "primitives=color"], 2), "table"]
    with pytest.raises(ValueError, match="jobs: expected 1 to 1024, got 0"):
        ablation.run(options(ablation, *words, "--jobs", 0))


def test_what_is_given_counts_over_what_is_not(tmp_path: Path) -> None:
    """The command line over the file, and the file over the experiment's own settings."""
    path = tmp_path / "grid.yaml"
    path.write_text("base: {jsd: true, epochs: 5, batch: 32}\nevaluate: {batch: 7, workers: 3}\nseeds: [4, 5]\n")
    words = ["--out", tmp_path, "--grid", path, "--set", "data=/d", "batch=64", "--evaluate", "cifar-c=/c", "batch=8"]
    assert sample_complexity.ANALYSIS.base == {"jsd": False}
    own = {"copies": {1: "/one"}}
    grid = grids.read_grid(sample_complexity.ANALYSIS, options(sample_complexity, *words), own)
    assert [grid.base[name] for name in ("jsd", "epochs", "batch")] == [True, 5, 64]
    assert (grid.evaluate["batch"], grid.evaluate["workers"]) == (8, 3)
    assert [run.name for run in grid.runs] == ["k=1,seed=4", "fresh,seed=4", "k=1,seed=5", "fresh,seed=5"]
    on_cpu = grids.read_grid(sample_complexity.ANALYSIS, options(sample_complexity, *words, "--device", "cpu"), own)
    assert (on_cpu.base["device"], on_cpu.evaluate["device"]) == ("cpu", "cpu")
    parsed = options(sample_complexity, *words, "--seeds", 6)
    assert {run.settings["seed"] for run in grids.read_grid(sample_complexity.ANALYSIS, parsed, own).runs} == {6}


def test_text_on_the_command_line_is_no_yaml() -> None:
    """A folder may have any name; one in quotes is what is in them."""
    found = grid_file.assignments("--set", ["data=1 #2: {a}", "weights=", "val='x'", "seed=3"])
    assert found == {"data": "1 #2: {a}", "weights": "", "val": "x", "seed": 3}
    assert grid_file.assignments("--evaluate", ["cifar_c=001", "partial=true"]) == {"cifar-c": "001", "partial": True}


def test_every_option_of_a_grid_is_one_of_evaluate() -> None:
    known = {word for action in command.parser()._actions for word in action.option_strings}
    assert {f"--{name}" for name in grid_file.EVALUATION} <= known


def test_arguments_of_the_evaluation(tmp_path: Path) -> None:
    given = {"cifar-c": "c", "partial": True, "subset": False, "bn-adapt": [16, 8]}
    grid = Grid("ablation", {"data": "/d"}, given, [], tmp_path)
    assert grid.evaluation(Run("a", {})) == [
        f"{tmp_path}/a/last.pt", "--out", f"{tmp_path}/a/evaluation", "--cifar-c", os.path.abspath("c"), "--partial",
        "--bn-adapt", "16", "8", "--clean", "/d",
    ]  # fmt: skip
    in100 = Grid("ablation", {"data": "/d", "recipe": "in100"}, {"imagenet-c": "/c"}, [], tmp_path)
    assert in100.evaluation(Run("a", {}))[-2:] == ["--clean", "/d/val"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_examples(path: Path, tmp_path: Path) -> None:
    """Every file is a grid of the analysis that its name begins with."""
    module = importlib.import_module(f"prime_dali.experiments.{path.stem.partition('-')[0]}")
    grid = grids.read_grid(module.ANALYSIS, options(module, "--out", tmp_path, "--grid", path), {})
    grid_file.check_names("evaluate", grid.evaluate, grid_file.EVALUATION)
    assert len([grid.config(run) for run in grid.runs]) >= 3
