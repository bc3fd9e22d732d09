"""Grids of training runs: their files, their execution after kills and failures, their tables; the cost of a method."""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("jsonargparse", reason="jsonargparse is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from prime_dali.evaluation import corrupt, evaluate
from prime_dali.evaluation.names import CORRUPTIONS
from prime_dali.experiments import ablation, alpha, cost, grid_file, grid_tables, grids, methods, sample_complexity
from prime_dali.experiments.grid_file import Grid, Reported, Run

EXAMPLES = Path(__file__).parent.parent / "examples" / "grids"
TINY = [
    "network=shufflenet_v2_x0_5",
    "stem=imagenet",
    "compile=false",
    "batch=20",
    "log_every=1",
    "save_minutes=0",
    "device=cpu",
]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # of the subprocesses: the networks are too small for more
        yield


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs cut into squares, in CIFAR-10's binary layout: 100 training and 20 test images."""
    skimage = pytest.importorskip("skimage", reason="scikit-image is not installed")
    folder = tmp_path_factory.mktemp("cifar")
    photo = Image.fromarray(skimage.data.astronaut()).resize((12 * 32, 10 * 32))
    tiles = np.asarray(photo).reshape(10, 32, 12, 32, 3).transpose(2, 0, 4, 1, 3).reshape(120, -1)
    records = np.concatenate([np.tile(np.arange(10, dtype=np.uint8), 12)[:, None], tiles], 1)
    records[:20].tofile(folder / "test_batch.bin")
    for i, part in enumerate(np.array_split(records[20:], 5), 1):
        part.tofile(folder / f"data_batch_{i}.bin")
    return folder


@pytest.fixture(scope="module")
def corrupted(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fifteen corruptions of the 20 test images."""
    pytest.importorskip("imagecorruptions", reason="imagecorruptions-imaug is not installed")
    folder = tmp_path_factory.mktemp("made") / "cifar-10-c"
    corrupt.run(corrupt.Settings("cifar10", cifar, folder))
    return folder


def options(module: object, *words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def arguments(cifar: Path, corrupted: Path, out: Path, *more: object) -> list[object]:
    return ["--out", out, "--set", f"data={cifar}", *TINY, "epochs=1", "--evaluate", f"cifar-c={corrupted}", "device=cpu",
            "workers=0", *more]  # fmt: skip


GRID = "vary: {primitives: [[], [color]]}\n"


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return path


def table(folder: Path, name: str = "ablation") -> dict[str, dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return {f"{row['run']} {row['source']}": row for row in csv.DictReader(file)}


@pytest.mark.timeout(200)
def test_runs_that_are_killed_and_fail(
    cifar: Path, corrupted: Path, grid: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """A run is killed with its grid, and another cannot start: the same command finishes the first, reports the second."""
    out = tmp_path / "out"
    words = arguments(cifar, corrupted, out, "--grid", grid)
    program = "import argparse; from prime_dali.experiments import ablation; p = argparse.ArgumentParser(); "
    program += "ablation.add_arguments(p); ablation.run(p.parse_args())"
    (out / "primitives=color").mkdir(parents=True)
    (out / "primitives=color" / "last.pt").write_bytes(b"no checkpoint")
    process = subprocess.Popen([sys.executable, "-c", program, *map(str, words)])
    log = out / "primitives=none" / "log.jsonl"
    while not log.exists() or not log.read_text():
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    said = capfd.readouterr()
    assert "primitives=none: run 1 of 2" in said.out
    # A run that outlived its grid would train on beside its own continuation.
    before = log.read_text()
    time.sleep(0.5)
    assert log.read_text() == before

    with pytest.raises(
        RuntimeError, match=r"1 of 2 runs failed.*primitives=color: train ended with status 1.*last\.pt"
    ):
        ablation.run(options(ablation, *words, "--jobs", 2))
    said = capfd.readouterr()
    assert "primitives=none: done: 5 steps" in said.out  # runs beside others have their names before their lines
    assert "| primitives=color, not started" in said.out
    done = table(out)
    assert done["primitives=none measured"]["state"] == "finished"
    assert done["primitives=color measured"]["clean"] == ""

    checkpoint = (out / "primitives=none" / "last.pt").stat().st_mtime_ns
    ablation.run(options(ablation, *words, "--only", "primitives=none"))
    said = capfd.readouterr()
    assert "primitives=none: already finished" in said.out
    assert (out / "primitives=none" / "last.pt").stat().st_mtime_ns == checkpoint
    assert sorted(p.name for p in out.iterdir()) == [
        "ablation.csv", "ablation.json", "ablation.md", "ablation.png", "primitives=color", "primitives=none",
    ]  # fmt: skip
    # The numbers are those of the evaluation.
    row = table(out)["primitives=none measured"]
    results = json.loads((out / "primitives=none" / "evaluation" / "results.json").read_text())
    correct = results["sets"]["cifar-c"]["correct"]
    assert float(row["corrupted"]) == pytest.approx(100 * sum(sum(c.values()) for c in correct.values()) / (75 * 20))
    noise = sum(sum(correct[c].values()) for c in CORRUPTIONS[:3])
    assert float(row["noise"]) == pytest.approx(100 * noise / (15 * 20))
    assert float(row["clean"]) == pytest.approx(100 * results["sets"]["clean"]["correct"] / 20)
    assert float(row["minutes"]) > 0
    text = (out / "ablation.md").read_text()
    assert "corrupted (regenerated)" in text
    assert "2 runs, 1 finished" in text
    assert f"corruptions: {corrupted.name}, regenerated; 20 images per corruption and severity" in text

    # Another setting: not finished any more, and nothing is overwritten.
    other = [*words, "--collect", "--set", f"data={cifar}", *TINY, "epochs=2"]
    ablation.run(options(ablation, *other))
    assert "primitives=none, finished with other settings" in capfd.readouterr().out
    assert (out / "primitives=none" / "last.pt").stat().st_mtime_ns == checkpoint


def test_the_built_in_ablation() -> None:
    runs = {run.name: run for run in ablation.build({}, {})}
    sets = [run.settings["primitives"] for run in runs.values() if "primitives" in run.settings]
    assert sorted(map(len, sets)) == [0, 1, 1, 1, 2, 2, 2, 3]
    assert len({tuple(s) for s in sets}) == 8
    assert [*runs][8:] == ["mixing=none", "jsd", "width=1", "width=5", "depth=1", "depth=5"]
    assert all(runs[name].settings == {what: value} for name, what, value in (
        ("mixing=none", "mixing", "none"), ("jsd", "jsd", True), ("width=5", "width", 5), ("depth=1", "depth", 1),
    ))  # fmt: skip
    known = runs["spectral+color"].reported[0]
    assert known.dataset == "ImageNet-100"
    assert known.scores == {
        "corrupted": 67.5,
        "noise": 77.2,
        "blur": 55.7,
        "weather": 65.3,
        "digital": 74.2,
        "clean": 87.1,
    }
    assert not ablation.ANALYSIS.base["jsd"]


def test_reported_groups_make_the_reported_mean() -> None:
    """3 corruptions of noise, 4 of each other group; up to rounding, a slip of the pen would show."""
    for known in ablation.primitives().values():
        s = known.scores
        mean = (3 * s["noise"] + 4 * (s["blur"] + s["weather"] + s["digital"])) / 15
        assert mean == pytest.approx(s["corrupted"], abs=0.11)


def test_strengths() -> None:
    assert alpha.values({"from": "1e-3", "to": 100, "points": 6}) == pytest.approx([1e-3, 1e-2, 0.1, 1, 10, 100])
    assert [run.x for run in alpha.build({}, {})] == pytest.approx([10 ** (i / 2) for i in range(-6, 5)], rel=1e-3)
    assert len(alpha.build({"recipe": "in100"}, {})) == 9
    assert alpha.build({}, {"alpha": [0, 0.2]})[1] == Run("alpha=0.2", {"alpha": 0.2}, x=0.2)
    for wanted, message in (
        ([], "alpha: expected a list"), (["much"], "alpha: expected a number, got 'much'"), ([-1], "alpha: .*>= 0"),
        ({"from": 1, "to": 2, "point": 3}, "did you mean 'points'"), ({"from": 1, "to": 2}, "expected from, to and points"),
        ({"from": 2, "to": 1, "points": 3}, "least <= greatest"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=message):
            alpha.values(wanted)


def test_copies(tmp_path: Path) -> None:
    runs = sample_complexity.build({"epochs": 100}, {"copies": {10: "ten", 1: "one", 4: "four", 2: "two"}})
    assert [(run.name, run.settings.get("data"), run.settings.get("epochs")) for run in runs] == [
        ("k=1", "one", 50), ("k=2", "two", 33), ("k=4", "four", 20), ("k=10", "ten", 9), ("fresh", None, None),
    ]  # fmt: skip
    assert {run.settings["method"] for run in runs[:-1]} == {"standard"}
    assert runs[2].reported[0] == Reported("CIFAR-10", {"corrupted": 88.8})
    (tmp_path / "manifest.json").write_text('{"copies": 2}')
    assert sample_complexity.build({}, {"copies": {2: tmp_path}})[0].name == "k=2"
    with pytest.raises(ValueError, match=r"copies: expected a folder with 3 of each image, got .* with 2"):
        sample_complexity.build({}, {"copies": {3: tmp_path}})
    assert options(sample_complexity, "--out", "o", "--copies", "1=a").copies == ["1=a"]
    for words in (["--copies", "a"], ["--copies", "x=a"], []):
        with pytest.raises(ValueError, match="copies: expected"):
            sample_complexity.run(options(sample_complexity, "--out", "o", *words))


@pytest.mark.parametrize(("text", "message"), [
    ("bases: {}", r"grid.yaml: field: .* got 'bases'; did you mean 'base'"),
    ("base: {epoch: 3}", "setting: .* got 'epoch'; did you mean 'epochs'"),
    ("evaluate: {cifar_c: x, cifar-c: x}", "evaluate: .* got 'cifar_c'; did you mean 'cifar-c'"),
    ("evaluate: {clean: x}", "evaluate: expected a benchmark, cifar-c or imagenet-c"),
    ("runs: [{name: a, widht: 1}]", "a: setting: .* got 'widht'; did you mean 'width'"),
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


def test_a_bad_value_of_the_evaluation(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = words_of(grid, tmp_path)
    with pytest.raises(SystemExit) as stop:
        ablation.run(options(ablation, *words, "normalise=alexnets"))
    assert stop.value.code == 2
    assert "--normalise: invalid choice: 'alexnets'" in capsys.readouterr().err


def test_names_and_numbers_of_runs(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = words_of(grid, tmp_path)
    ablation.run(options(ablation, *words, "--list"))
    listed = capsys.readouterr().out.splitlines()
    assert listed[1] == '1  primitives=color  (not started)  {"primitives": ["color"]}'
    ablation.run(options(ablation, *words, "--list", "--task", 1))
    assert capsys.readouterr().out.splitlines() == listed[1:]
    with pytest.raises(ValueError, match="task: expected 0 to 1, got 2"):
        ablation.run(options(ablation, *words, "--task", 2))
    with pytest.raises(ValueError, match=r"only: .*did you mean 'primitives=color'"):
        ablation.run(options(ablation, *words, "--only", "primitives=colour"))
    with pytest.raises(ValueError, match="--set: expected NAME=VALUE, got 'epochs'"):
        ablation.run(options(ablation, *words, "--set", "epochs"))


def test_every_option_of_a_grid_is_one_of_evaluate() -> None:
    known = {word for action in evaluate.parser()._actions for word in action.option_strings}
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


RESULTS = {
    "sets": {
        "clean": {"accuracy": 0.75},
        "cifar-c": {
            "folder": "/c", "regenerated": False, "missing": [], "images": {"fog": {"1": 8}},
            "scores": {"corruption_accuracy": 0.5, "by_corruption": {"fog": 0.5}, "by_severity": {"1": 0.5},
                       "by_group": {"noise": 0.25, "blur": 0.375, "weather": 0.625, "digital": 1.0}},
        },
    },
    "settings": {"hardware": "a machine", "precision": "float32"},
    "versions": {"torch": "2"},
}  # fmt: skip


def finished(grid: Grid, run: Run, corrupted: float = 0.5, means: Sequence[float] | None = None) -> None:
    folder = grid.out / run.name
    folder.mkdir(parents=True)
    results = json.loads(json.dumps(RESULTS))
    results["sets"]["cifar-c"]["scores"]["corruption_accuracy"] = corrupted
    content = {
        "settings": grid.lasting(run), "evaluate": grid_file.evaluated(grid.evaluate), "seconds": 90, "steps": 3,
        "means": means, "jobs": 2, "results": results,
    }  # fmt: skip
    (folder / grid_file.FINISHED).write_text(json.dumps(content))


@pytest.mark.parametrize(("change", "message"), [
    (None, r"finished.json: not what a finished run of a grid leaves \(not JSON"),
    ([], r"\(expected a mapping, got list \(\[\]\)\); remove it, and the run is evaluated again"),
    ({"evaluate": ["--cifar-c"]}, r"\(evaluate: expected a mapping, got list"),
    ({"results": {}}, r"\(results.settings: expected a mapping, got none"),
    ({"results": {**RESULTS, "sets": {"cifar-c": {}}}}, r"\(results: KeyError"),
])  # fmt: skip
def test_damaged_files_of_a_run(change: object, message: str, tmp_path: Path) -> None:
    parsed = options(alpha, "--out", tmp_path, "--set", "data=/d", "--evaluate", "cifar-c=/c", "--list")
    grid = grids.read_grid(alpha.ANALYSIS, parsed, {})
    finished(grid, grid.runs[0])
    path = tmp_path / grid.runs[0].name / grid_file.FINISHED
    whole = json.loads(path.read_text())
    changed = {**whole, **change} if isinstance(change, dict) else change
    path.write_text("" if change is None else json.dumps(changed))
    with pytest.raises(ValueError, match=message):
        grid_tables.rows(grid, {one.name: grids.state(grid, one) for one in grid.runs})


@pytest.mark.parametrize("module", [ablation, alpha, methods, sample_complexity])
def test_tables_and_pictures_with_a_run_missing(
    module: object, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run has not been run; tables in per cent, reported numbers beside, a picture."""
    words = ["--out", tmp_path, "--collect", "--set", "data=/d", "--evaluate", "cifar-c=/c"]
    given = {"copies": {1: "/one", 2: "/two", 4: "/four"}} if module is sample_complexity else {}
    parsed = options(module, *words)
    grid = grids.read_grid(module.ANALYSIS, parsed, given)
    for number, run in enumerate(grid.runs[1:]):
        finished(grid, run, 0.5 + number / 100)
    grids.run(module.ANALYSIS, parsed, given)
    name = module.ANALYSIS.name
    said = capsys.readouterr().out
    assert said.startswith((tmp_path / f"{name}.md").read_text())
    rows = table(tmp_path, name)
    missing, first = (rows[f"{run.name} measured"] for run in grid.runs[:2])
    assert (missing["state"], missing["clean"], missing["minutes"]) == ("not started", "", "")
    assert [first[c] for c in grid_tables.COLUMNS] == ["75.0", "50.0", "25.0", "37.5", "62.5", "100.0"]
    assert first["minutes"] == "1.5"
    assert f"| {grid.runs[0].name}, not started " in said
    content = json.loads((tmp_path / f"{name}.json").read_text())
    assert len(content["rows"]) == len(rows) + sum(len(run.reported) - 1 for run in grid.runs if run.reported)
    with Image.open(tmp_path / f"{name}.png") as picture:
        assert np.asarray(picture).std() > 10
    best = max(range(1, len(grid.runs)), key=lambda i: i)
    if module is ablation:
        assert "| spectral, reported on ImageNet-100 " in said
        assert rows["spectral reported"]["noise"] == "60.7"
    elif module is methods:
        assert rows["prime reported"]["corrupted"] == "89.3"
        # By corruption: what the paper reports of the method that has not run, and the first that has.
        assert re.search(r"\| fog +\| +89\.0 +\| +50\.00 ", said)
    elif module is alpha:
        assert f"best corruption accuracy, measured: {50 + best - 1:.2f} % at {grid.runs[best].name}" in said
        assert "reported on CIFAR-10 (ResNet-18, no JSD, 30 epochs): alpha near 0.2" in said
    else:
        assert "| k=4, reported on CIFAR-10 " in said
        assert "| fresh, reported on CIFAR-10 " in said


def test_means_and_deviations_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Two of three seeds of one method, all of another: numbers by hand, and no table that looks whole."""
    words = ["--out", tmp_path, "--collect", "--set", "data=/d", "--evaluate", "cifar-c=/c", "--seeds", 1, 2, 3]
    parsed = options(methods, *words)
    grid = grids.read_grid(methods.ANALYSIS, parsed, {"methods": ["standard", "PRIME + JSD"]})
    assert [run.name for run in grid.runs[:3]] == ["standard,seed=1", "prime+jsd,seed=1", "standard,seed=2"]
    assert [grid.config(run).seed for run in grid.runs] == [1, 1, 2, 2, 3, 3]
    for run, accuracy in zip(grid.runs[:5], (0.70, 0.89, 0.72, 0.90, 0.74), strict=True):
        finished(grid, run, accuracy, means=grid_tables.PUBLISHED["cifar10"])
    grids.run(methods.ANALYSIS, parsed, {"methods": ["standard", "PRIME + JSD"]})
    said = capsys.readouterr().out
    assert "6 runs, 5 finished" in said
    assert "PARTIAL: 1 runs are missing" in said
    assert "seeds 1 2 3" in said
    assert "training images: the published ones" in said
    assert "while up to 2 runs shared the device" in said
    rows = table(tmp_path, "methods")
    assert rows["standard measured"]["state"] == "finished"
    assert float(rows["standard measured"]["corrupted"]) == pytest.approx(72)
    assert float(rows["standard measured"]["corrupted standard deviation"]) == pytest.approx(2)
    assert "72.00 ± 2.00" in said
    assert "| prime+jsd, 2 of 3 seeds finished " in said
    assert f"{89.5:.2f} ± {100 * 0.01 / 2**0.5:.2f}" in said
    # What was trained on other images is said to be.
    finished_file = tmp_path / "standard,seed=1" / grid_file.FINISHED
    content = json.loads(finished_file.read_text())
    finished_file.write_text(json.dumps({**content, "means": [1.0, 2.0, 3.0]}))
    grids.run(methods.ANALYSIS, parsed, {"methods": ["standard", "PRIME + JSD"]})
    assert "training images: NOT the published ones" in capsys.readouterr().out
    for seeds, message in (([1, 1], "each once"), ([-1], "seed"), ([2.5], "seed")):
        with pytest.raises((TypeError, ValueError), match=message):
            grid_file.over_seeds(grid.runs[:1], seeds)
    with pytest.raises(ValueError, match="seeds: expected runs without a seed of their own"):
        grid_file.over_seeds(grid.runs[:1], [1])


def test_nothing_to_collect(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--out", tmp_path, "--grid", grid, "--collect", "--set", "data=/d", "--evaluate", f"cifar-c={tmp_path}"]
    ablation.run(options(ablation, *words))
    assert "2 runs, 0 finished" in capsys.readouterr().out
    assert not (tmp_path / "ablation.png").exists()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_examples(path: Path, tmp_path: Path) -> None:
    """Every file is a grid of the analysis that its name begins with."""
    module = importlib.import_module(f"prime_dali.experiments.{path.stem.partition('-')[0]}")
    grid = grids.read_grid(module.ANALYSIS, options(module, "--out", tmp_path, "--grid", path), {})
    grid_file.check_names("evaluate", grid.evaluate, grid_file.EVALUATION)
    assert len([grid.config(run) for run in grid.runs]) >= 3


def test_costs_are_medians_over_standard() -> None:
    turns = []

    def start(name: str, seconds: list[float]) -> object:
        def measure() -> cost.Cost:
            turns.append(name)
            return cost.Cost("", 10, 4, (seconds.pop(0),))

        return lambda: measure

    def broken() -> object:
        raise RuntimeError("no memory\nlong story")

    starts = {"standard": start("standard", [2, 9, 1]), "official": broken, "prime": start("prime", [3, 2, 7])}
    costs = cost.take_turns(starts, 3, lambda line: None)
    assert turns == ["standard", "prime"] * 3
    rows = cost.rows(costs)
    assert rows["standard"] == {"s an epoch": 20, "least": 10, "most": 90, "images/s": 2, "over standard": 1,
                                "reported": None}  # fmt: skip
    assert rows["prime"]["over standard"] == 1.5
    assert rows["prime"]["reported"] == 1.27
    assert set(rows["official"].values()) == {None}
    assert costs[1].error == "no memory"
    assert "| official (failed) |" in cost.markdown([], costs)
    assert cost.rows(costs[1:])["prime"]["over standard"] is None


@pytest.mark.timeout(200)
def test_cost(cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "clone").mkdir()
    words = ["--out", tmp_path / "out", "--set", f"data={cifar}", *TINY, "--rounds", 2, "--steps", 1, "--warmup", 1]
    methods = ["--methods", "standard", "prime", "augmix+jsd"]
    cost.run(options(cost, *words, *methods))
    said = capsys.readouterr().out
    assert "| prime " in said
    content = json.loads((tmp_path / "out" / "cost.json").read_text())
    assert [row["method"] for row in content["methods"]] == methods[1:]
    assert all(
        row["steps"] == 5 and len(row["seconds"]) == 2 and row["over standard"] > 0 for row in content["methods"]
    )
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["cost.csv", "cost.json", "cost.md", "cost.png"]
    with pytest.raises(RuntimeError, match="1 of 1 methods failed: official: official: expected a clone of"):
        cost.run(options(cost, *words, "--methods", "official", "--official", tmp_path / "clone"))
    with pytest.raises(ValueError, match="official: expected --official DIR"):
        cost.run(options(cost, *words, "--methods", "official"))
    with pytest.raises(ValueError, match="rounds: expected 1 to"):
        cost.run(options(cost, *words, "--rounds", 0))
