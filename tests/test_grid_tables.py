"""Tables and pictures of grids of runs, from what finished runs leave."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import gridding
from gridding import options, table

from prime_dali.experiments import (
    ablation,
    alpha,
    grid_file,
    grid_finished,
    grid_tables,
    grids,
    methods,
    sample_complexity,
)
from prime_dali.experiments.grid_file import Grid, Run

grid = gridding.grid  # fixtures

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
    folder.mkdir(parents=True, exist_ok=True)
    results = json.loads(json.dumps(RESULTS))
    results["sets"]["cifar-c"]["scores"]["corruption_accuracy"] = corrupted
    content = {
        "settings": grid.lasting(run), "evaluate": grid_finished.evaluated(grid.evaluate), "seconds": 90, "steps": 3,
        "means": means, "jobs": 2, "results": results,
    }  # fmt: skip
    (folder / grid_finished.FILE).write_text(json.dumps(content))


@pytest.mark.parametrize(("change", "message"), [
    (None, r"finished.json: not what a finished run of a grid leaves \(not JSON"),
    ([], r"\(expected a mapping, got list \(\[\]\)\); remove it, and the run is evaluated again"),
    ({"evaluate": ["--cifar-c"]}, r"\(evaluate: expected a mapping, got list"),
    ({"results": {}}, r"\(results.settings: expected a mapping, got none"),
    ({"results": {**RESULTS, "sets": {"cifar-c": {}}}}, r"\(results: KeyError"),
    ({"results": {**RESULTS, "sets": {"clean": {"accuracy": 75.0}}}}, r"sets.clean.accuracy: expected a number from 0 to 1, got float \(75"),
    ({"results": {**RESULTS, "sets": {"clean": {"accuracy": "0.75"}}}}, "expected a number from 0 to 1, got str"),
    ({"results": {**RESULTS, "sets": {"cifar-c": {"scores": {"corruption_accuracy": float("nan")}}}}}, r"to 1, got float \(nan"),
    ({"seconds": -1}, "seconds: expected a number from 0 on, got int"),
])  # fmt: skip
def test_damaged_files_of_a_run(change: object, message: str, tmp_path: Path) -> None:
    parsed = options(alpha, "--out", tmp_path, "--set", "data=/d", "--evaluate", "cifar-c=/c", "--list")
    grid = grids.read_grid(alpha.ANALYSIS, parsed, {})
    finished(grid, grid.runs[0])
    path = tmp_path / grid.runs[0].name / grid_finished.FILE
    whole = json.loads(path.read_text())
    changed = {**whole, **change} if isinstance(change, dict) else change
    path.write_text("" if change is None else json.dumps(changed))
    with pytest.raises(ValueError, match=message):
        grid_tables.rows(grid, {one.name: grids.state(grid, one) for one in grid.runs})


def test_what_some_runs_lack_is_in_no_mean() -> None:
    every = [{"clean": 50.0, "ECE": 3.0}, {"clean": 60.0}, {"clean": 70.0, "ECE": 4.0}]
    assert grid_tables.mean_and_spread(every) == ({"clean": 60.0}, {"clean": 10.0})


@pytest.mark.parametrize("module", [ablation, alpha, methods, sample_complexity])
def test_tables_and_pictures_with_a_run_missing(
    module: object, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run has not been run; tables in percent, reported numbers beside, a picture."""
    words = ["--out", tmp_path, "--collect", "--set", "data=/d", "--evaluate", "cifar-c=/c"]
    given = {"copies": {1: "/one", 2: "/two", 4: "/four"}} if module is sample_complexity else {}
    parsed = options(module, *words)
    grid = grids.read_grid(module.ANALYSIS, parsed, given)
    for number, run in enumerate(grid.runs[1:]):
        means = [1.0, 1.0, 1.0] if "data" in run.settings else None
        finished(grid, run, 0.5 + number / 100, means=means)
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
        assert "training images: NOT the published ones, by their means per channel, [1.0" not in said  # of copies


def test_the_plot_of_copies_has_measured_numbers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[grid_tables.Row] = []
    monkeypatch.setattr(sample_complexity.grid_plots, "draw_line", lambda axes, rows, *_, **__: drawn.extend(rows))
    numbers = {"clean": 75.0, "corrupted": 50.0}
    rows = [
        grid_tables.Row(f"k={k}", "CIFAR-10", measured, scores=numbers, x=k)
        for k in (1, 4)
        for measured in (True, False)
    ]
    sample_complexity.draw(rows, tmp_path / "copies.png")
    assert drawn == 2 * rows[::2]


def test_means_and_deviations_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Two of three seeds of one method, all of another: numbers by hand, and no table that looks whole."""
    words = ["--out", tmp_path, "--collect", "--set", "data=/d", "limit_steps=3", "--evaluate", "cifar-c=/c"]
    words += ["--seeds", 1, 2, 3]
    parsed = options(methods, *words)
    grid = grids.read_grid(methods.ANALYSIS, parsed, {"methods": ["standard", "PRIME + JSD"]})
    assert [run.name for run in grid.runs[:3]] == ["standard,seed=1", "prime+jsd,seed=1", "standard,seed=2"]
    assert [grid.config(run).seed for run in grid.runs] == [1, 1, 2, 2, 3, 3]
    for run, accuracy in zip(grid.runs[:5], (0.70, 0.89, 0.72, 0.90, 0.74), strict=True):
        finished(grid, run, accuracy, means=grid_finished.PUBLISHED["cifar10"])
    grids.run(methods.ANALYSIS, parsed, {"methods": ["standard", "PRIME + JSD"]})
    said = capsys.readouterr().out
    assert "6 runs, 5 finished" in said
    assert "PARTIAL: 1 run is missing: prime+jsd,seed=3" in said
    assert "seeds 1 2 3" in said
    assert "a trial: at most 3 steps per epoch" in said
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
    finished_file = tmp_path / "standard,seed=1" / grid_finished.FILE
    content = json.loads(finished_file.read_text())
    finished_file.write_text(json.dumps({**content, "means": [mean + 1e-4 for mean in content["means"]]}))
    grids.run(methods.ANALYSIS, parsed, {"methods": ["standard", "PRIME + JSD"]})
    assert "training images: NOT the published ones" in capsys.readouterr().out
    for seeds, message in (([1, 1], "each once"), ([-1], "seed"), ([2.5], "seed")):
        with pytest.raises((TypeError, ValueError), match=message):
            grid_file.over_seeds(grid.runs[:1], seeds)
    with pytest.raises(ValueError, match="seeds: expected runs without a seed of their own"):
        grid_file.over_seeds(grid.runs[:1], [1])


def test_conditions_of_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """One run of an earlier version, on parts of unequal size of a benchmark that lacks one, and on C-bar."""
    parsed = options(alpha, "--out", tmp_path, "--collect", "--set", "data=/d", "--evaluate", "cifar-c=/c")
    grid = grids.read_grid(alpha.ANALYSIS, parsed, {})
    finished(grid, grid.runs[0])
    path = tmp_path / grid.runs[0].name / grid_finished.FILE
    content = json.loads(path.read_text())
    content["results"]["sets"]["cifar-c"] |= {"missing": ["snow"], "images": {"fog": {"1": 10, "2": 8}}}
    content["results"]["sets"]["cifar-c-bar"] = {"scores": {"corruption_accuracy": 0.375}}
    path.write_text(json.dumps(content))
    grids.run(alpha.ANALYSIS, parsed, {})
    said = capsys.readouterr().out
    for line in (
        "corruptions: /c, as found, without a manifest of prime-dali corrupt; 8 to 10 images per corruption and severity; PARTIAL, missing: snow\n",
        "one run each: differences within the spread over seeds are not significant\n",
        "training images: NOT the published ones",
        ", of runs of earlier versions with the first step, which compiles the network, while up to 2 runs shared",
    ):
        assert line in said
    row = table(tmp_path, "alpha")[f"{grid.runs[0].name} measured"]
    assert (row["C-bar"], row["seeds"]) == ("37.5", "1")
    path.write_text(json.dumps(content | {"evaluate": {"cifar-c": True, "normalise": "none"}}))
    assert (grid_finished.read(path.parent) or {})["evaluate"] == {"cifar-c": True, "normalize": "none"}
    large = options(
        alpha, "--out", tmp_path, "--set", "recipe=in100", "data=/d", "--evaluate", "imagenet-c=/c", "--seeds", 1
    )
    grid = grids.read_grid(alpha.ANALYSIS, large, {})
    finished(grid, grid.runs[0])
    rows = grid_tables.rows(grid, {one.name: grids.state(grid, one) for one in grid.runs})
    conditions = grid_tables.conditions(grid, rows, [])
    assert any("one run each" in line for line in conditions)
    assert not any("training images" in line for line in conditions)  # only CIFAR's means are known


def test_calibration_is_a_column_where_it_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Two seeds of one method with it; of the other, a run of a version that did not measure it has no number."""
    words = ["--out", tmp_path, "--collect", "--set", "data=/d", "--evaluate", "cifar-c=/c", "--seeds", 1, 2]
    parsed = options(methods, *words)
    given = {"methods": ["standard", "PRIME + JSD"]}
    grid = grids.read_grid(methods.ANALYSIS, parsed, given)
    for run in grid.runs:
        finished(grid, run)
    grids.run(methods.ANALYSIS, parsed, given)
    assert "ECE" not in capsys.readouterr().out
    assert "ECE" not in table(tmp_path, "methods")["standard measured"]
    for run, ece in zip(grid.runs[:3], (0.10, 0.20, 0.14), strict=True):
        path = tmp_path / run.name / grid_finished.FILE
        content = json.loads(path.read_text())
        content["results"]["sets"]["cifar-c"]["calibration"] = {"mean": {"ece": ece, "rms": 2 * ece}}
        path.write_text(json.dumps(content))
    grids.run(methods.ANALYSIS, parsed, given)
    assert re.search(r" ECE \| minutes \|\n.*\n\| standard .* 12\.00 ± 2\.83 \|", capsys.readouterr().out)
    rows = table(tmp_path, "methods")
    assert float(rows["standard measured"]["ECE"]) == pytest.approx(12)
    assert float(rows["standard measured"]["ECE standard deviation"]) == pytest.approx(2 * 2**0.5)
    assert rows["prime+jsd measured"]["ECE"] == ""
    assert rows["prime+jsd measured"]["corrupted"] == "50.0"


def test_nothing_to_collect(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--out", tmp_path, "--grid", grid, "--collect", "--set", "data=/d", "--evaluate", f"cifar-c={tmp_path}"]
    ablation.run(options(ablation, *words))
    assert "2 runs, 0 finished" in capsys.readouterr().out
    assert not (tmp_path / "ablation.png").exists()
