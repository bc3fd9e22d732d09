"""Grids of training runs: their runs, and their execution after kills and failures."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import forking
import gridding
from gridding import TINY, options, table
from test_grid_tables import finished

from prime_dali import _devices
from prime_dali.evaluation import corrupt
from prime_dali.evaluation.names import CORRUPTIONS
from prime_dali.experiments import ablation, alpha, compare, grid_finished, grids, methods, sample_complexity
from prime_dali.experiments.children import Children
from prime_dali.experiments.grid_file import Grid, Reported, Run

cifar, grid = gridding.cifar, gridding.grid  # fixtures


@pytest.fixture(scope="module")
def corrupted(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fifteen corruptions of the 20 test images."""
    pytest.importorskip("imagecorruptions", reason="imagecorruptions-imaug is not installed")
    folder = tmp_path_factory.mktemp("made") / "cifar-10-c"
    corrupt.run(corrupt.Settings("cifar10", cifar, folder))
    return folder


def arguments(cifar: Path, corrupted: Path, out: Path, *more: object) -> list[object]:
    return ["--out", out, "--set", f"data={cifar}", *TINY, "epochs=1", "--evaluate", f"cifar-c={corrupted}", "device=cpu",
            "workers=0", *more]  # fmt: skip


def follow_forked(children: Children, name: str, gpu: str, command: Sequence[str]) -> tuple[bytes, int | None]:
    """``Children._follow`` with a forked process: starting one takes longer than what it does."""
    with tempfile.TemporaryDirectory() as folder:
        process = forking.command(Path(folder) / "said", *command[3:])
        process.join()
        said = (Path(folder) / "said").read_bytes()
    for line in said.decode().splitlines():
        print(f"{name}: {line}")
    return said, process.exitcode


@pytest.mark.timeout(200)
def test_runs_that_are_killed_and_fail(
    cifar: Path, corrupted: Path, grid: Path, tmp_path: Path, capfd: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A run is killed with its grid, and another cannot start: the same command finishes the first, reports the second."""
    out = tmp_path / "out"
    words = arguments(cifar, corrupted, out, "--grid", grid)
    (out / "primitives=color").mkdir(parents=True)
    (out / "primitives=color" / "last.pt").write_bytes(b"no checkpoint")
    process = forking.command(tmp_path / "said", "analyze", "ablation", *map(str, words))
    log = out / "primitives=none" / "log.jsonl"
    while not log.exists() or not log.read_text():
        assert process.is_alive()
        time.sleep(0.005)
    process.kill()
    process.join()
    assert "primitives=none: run 1 of 2" in (tmp_path / "said").read_text()
    # A run that outlived its grid would train on beside its own continuation.
    before = log.read_text()
    time.sleep(0.5)
    assert log.read_text() == before

    monkeypatch.setattr(Children, "_follow", follow_forked)
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
    kept = (out / "primitives=none" / "finished.json").read_text()
    assert not [folder for folder in (cifar, corrupted, out) if str(folder) in kept]  # it may be given to others
    content = json.loads(kept)
    assert (content["steps"], content["first_step_counts"], content["jobs"]) == (5, False, 2)
    assert 0 < content["seconds"] < 200
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
    assert "corruptions: CIFAR-10-C, regenerated; 20 images per corruption and severity" in text

    # Another setting: not finished any more, and nothing is overwritten.
    other = [*words, "--collect", "--set", f"data={cifar}", *TINY, "epochs=2"]
    ablation.run(options(ablation, *other))
    said = capfd.readouterr().out
    assert "primitives=none, finished with other settings" in said
    assert "PARTIAL: 2 runs are missing: primitives=none; primitives=color" in said
    assert table(out)["primitives=none measured"]["corrupted"] == ""
    assert (out / "primitives=none" / "last.pt").stat().st_mtime_ns == checkpoint


@pytest.mark.parametrize(
    ("device", "gpus", "jobs", "expected", "beside"),
    [
        ("auto", ["3", "GPU-5"], 3, ["3", "3", "GPU-5"], 2), ("auto", ["3", "4"], 1, ["3"], 1), ("auto", [], 2, ["", ""], 2),
        ("cpu", ["3", "4"], 2, ["", ""], 2),
    ],
)  # fmt: skip
def test_jobs_are_dealt_out_to_gpus(
    device: str, gpus: list[str], jobs: int, expected: list[str], beside: int, grid: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As many at a time as asked for, each with a GPU; the file says how many shared it. A failed run gives its GPU back."""
    parsed = options(alpha, "--out", tmp_path, "--set", "data=/d", f"device={device}", "--evaluate", "cifar-c=/c")
    whole = grids.read_grid(alpha.ANALYSIS, parsed, {})
    all_began, used, told = threading.Barrier(jobs), [], set()

    def run(grid: Grid, one: Run, call: Any, jobs: int) -> None:
        told.add(jobs)
        used.append(call.args[1])
        all_began.wait(10)
        if one is whole.runs[0]:
            raise OSError("no memory")

    monkeypatch.setattr(grids._devices, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(grids, "_execute", run)
    with pytest.raises(RuntimeError, match=r"1 of .* runs failed.*no memory"):
        grids.execute(whole, whole.runs[: 2 * jobs], jobs)
    assert sorted(used[:jobs]) == expected
    assert sorted(used[jobs:]) == expected
    assert told == {beside}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_stopped_grid_names_the_runs_that_began(
    number: int, status: int, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch,
    hears_ctrl_c: None,
) -> None:  # fmt: skip
    """No line of the runs that never start; one at the end says what to do."""
    both = threading.Barrier(2)

    def run(grid: Grid, one: Run, call: Any, jobs: int) -> None:
        if both.wait(10) == 0:
            os.kill(os.getpid(), number)
        call("train")

    def call(children: Children, *_: object) -> None:
        while not children._stopping:
            time.sleep(0.001)
        children.check()

    monkeypatch.setattr(grids, "_execute", run)
    monkeypatch.setattr(Children, "call", call)
    (tmp_path / "fog.npy").touch()
    words = ["--out", tmp_path / "out", "--set", f"data={tmp_path}", "device=cpu", "--evaluate", f"cifar-c={tmp_path}"]
    with pytest.raises(SystemExit, match=str(status)):
        ablation.run(options(ablation, *words, "partial=true", "--jobs", 2))
    said = capsys.readouterr().out.splitlines()
    assert sorted(line.partition(": ")[2] for line in said if ": run " in line) == ["run 1 of 14", "run 2 of 14"]
    assert said[-1] == "stopped; the same command resumes"


def test_runs_of_other_grids_are_taken_over(tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture) -> None:
    """Those with the same settings and evaluation, whatever their names; runs of the grid's own stay."""
    words = ["--set", "data=/d", "--evaluate", "cifar-c=/c", "--seeds", 1, 2]
    methods_grid = grids.read_grid(methods.ANALYSIS, options(methods, "--out", tmp_path / "methods", *words), {})
    for run in methods_grid.runs:
        if run.name in ("prime,seed=1", "prime,seed=2", "standard,seed=1"):
            finished(methods_grid, run, 0.25 * methods_grid.config(run).seed)
    out = tmp_path / "draws"
    parsed = options(compare, "draws", "--out", out, "--collect", *words, "--known", tmp_path / "methods")
    draws = grids.read_grid(compare.analysis("draws"), parsed, {})
    (own,) = [run for run in draws.runs if run.name == "image,seed=2"]
    finished(draws, own, 0.75)
    compare.run(options(compare, "draws", "--out", out, "--list", *words, "--known", tmp_path / "methods"))
    listed = capsys.readouterr().out
    assert f"image,seed=1  (finished in {tmp_path / 'methods' / 'prime,seed=1'})" in listed
    assert "image,seed=2  (finished)" in listed
    assert listed.count("finished in") == 1
    compare.run(parsed)
    said = capsys.readouterr().out
    assert f"image,seed=1: as {tmp_path / 'methods' / 'prime,seed=1'}\n" in said
    assert said.count(": as ") == 1
    assert sorted(path.parent.name for path in out.glob("*/finished.json")) == ["image,seed=1", "image,seed=2"]
    assert table(out, "draws")["image measured"]["corrupted"] == "50.0"
    evaluated_otherwise = options(
        compare, "draws", "--out", tmp_path / "other", *words[:4], "cifar-c-bar=/b", *words[4:]
    )
    other = grids.read_grid(compare.analysis("draws"), evaluated_otherwise, {})
    grid_finished.take_over(other, other.runs, [tmp_path / "methods"])
    assert not (tmp_path / "other").exists()
    assert grid_finished.evaluated({"device": "cpu", "batch": 7, "workers": 3, "bn-adapt": "full", "clean": "/d"}) == {
        "bn-adapt": "full", "clean": True,
    }  # fmt: skip
    # Neither where CIFAR's images are here and have other means, nor for a run with data of its own, such as copies.
    for name, means in (("image", [1.0, 2.0, 3.0]), ("copies", None)):
        finished(methods_grid, methods_grid.runs[2], 0.5, means=means)
        settings = {**draws.runs[0].settings, **({"data": str(cifar)} if name == "copies" else {})}
        there = replace(draws, base={**draws.base, "data": str(cifar)}, out=tmp_path / name)
        grid_finished.take_over(there, [replace(draws.runs[0], settings=settings)], [tmp_path / "methods"])
        assert not (tmp_path / name).exists()
    with pytest.raises(FileNotFoundError, match=r"known: no such folder: .*nowhere"):
        compare.run(options(compare, "draws", "--out", out, "--list", *words, "--known", tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("given", "count", "expected"),
    [(None, 2, ["0", "1"]), ("3, 1", 2, ["3", "1"]), ("GPU-5f", 1, ["GPU-5f"]), ("", 0, []), ("0", 0, [])],
)
def test_visible_gpus(given: str | None, count: int, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert _devices.visible_gpus() == expected


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
        ({"from": 2, "to": 1, "points": 3}, "minimum <= maximum"),
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
    short = sample_complexity.build({"epochs": 10}, {"copies": {30: "many", 4: "four"}})
    assert [run.settings.get("epochs") for run in short] == [2, 1, None]
    assert not sample_complexity.ANALYSIS.base["jsd"]
    for words in (["--copies", "a"], ["--copies", "x=a"], ["--copies", "1=a", "1=b"], []):
        with pytest.raises(ValueError, match="copies: expected"):
            sample_complexity.run(options(sample_complexity, "--out", "o", *words))
