"""The benchmarks run and write what they say, in a tiny setting; nothing here depends on how fast they are."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import CUDA, make_images

import prime_dali
from prime_dali import _arrays, cli
from prime_dali.data.formats import open_records

pytest.importorskip("torchvision", reason="torchvision is not installed")

import benchmarking
from benchmarking import FOLDER, assert_rated

script, run_here, photos = benchmarking.script, benchmarking.run_here, benchmarking.photos  # fixtures
tiny_network = benchmarking.tiny_network
PNG = b"\x89PNG"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """What a benchmark prints that is run as a user runs it, but in this process, which has imported torch already."""

    def called(name: str, *arguments: object) -> str:
        path = FOLDER / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        monkeypatch.syspath_prepend(FOLDER)
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # set back at the end, whatever a benchmark sets
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        printed = capsys.readouterr()
        assert ended.value.code == 0, printed.err
        return printed.out

    return called


def pictures(folder: Path) -> list[str]:
    """The names of all files in a folder, each of them a PNG."""
    files = sorted(folder.iterdir())
    assert all(file.read_bytes().startswith(PNG) for file in files)
    return [file.name for file in files]


def test_waiting_for_the_kernel_before_is_no_time_of_a_kernel(script: Callable[[str], ModuleType]) -> None:
    spans = [("b", 2.0, 7.0), ("a", 0.0, 4.0), ("a", 8.0, 9.0), ("c", 3.0, 3.5)]
    assert script("profiling").alone(spans) == {"a": (2, 5.0), "b": (1, 3.0), "c": (1, 0.0)}


def test_throughput(device: str, run: Callable[..., str], tmp_path: Path) -> None:
    written, plots = tmp_path / "out.json", tmp_path / "deep" / "plots"
    tiny = ["--device", device, "--size", 32, "--batch", 2, "--seconds", 0.01, "--repeats", 2, "--peers", "none"]
    graph = ["--graph"] if device == "cuda" else []
    text = run("throughput", *tiny, *graph, "--kernels", "--json", written, "--plot", plots)
    everything = json.loads(written.read_text())
    rows = {row["name"]: row for row in everything["results"]}
    on_cpu = ["prime", *(["prime-baseline"] if _arrays.instructions() != "baseline" else [])]
    assert list(rows) == (["prime", "prime-graph", "copy"] if device == "cuda" else on_cpu)
    for row in rows.values():
        assert (row["size"], row["batch"], row["error"]) == (32, 2, "")
        assert len(row["rates"]) == 2
        assert min(row["rates"]) <= row["median"] <= max(row["rates"])
        assert (row["launch_seconds"] is None) == (device == "cpu")
    assert rows["prime"]["output_bytes"] == 2 * 3 * 32 * 32 * (2 if device == "cuda" else 4)
    assert device == "cuda" or "prime_dali::apply" in [k["name"] for k in everything["kernels"]]
    assert all(k["calls"] >= 1 for k in everything["kernels"])
    assert sum(k["us_per_image"] for k in everything["kernels"]) > 0
    assert everything["settings"]["device"] == device
    assert "throughput.py --device" in everything["command"]
    assert "32 x 32, batch 2\n" in text
    assert pictures(plots) == ["kernels.png", "throughput_batch.png", "throughput_size.png"]


@pytest.mark.parametrize("device", [CUDA])
def test_replays_of_the_graph_draw_anew(device: str, script: Callable[[str], ModuleType]) -> None:
    images, index = make_images(4, 32, 32, torch.uint8).to(device), torch.arange(4, device=device)
    module = prime_dali.PRIME("imagenet")
    replay = script("throughput").captured(module, images, index)
    first, second = replay().clone(), replay().clone()
    epochs = [module(images, index, epoch) for epoch in range(5)]
    assert not torch.equal(first, second)
    for out in (first, second):
        assert any(torch.equal(out, other) for other in epochs)


@pytest.mark.usefixtures("tiny_network")
def test_training_step(device: str, run_here: Callable[..., str], tmp_path: Path) -> None:
    written = tmp_path / "out.json"
    tiny = ["--model", "resnet18", "--size", 32, "--batch", 2, "--steps", 3, "--rounds", 2, "--warmup", 1]
    text = run_here("training_step", "--device", device, *tiny, "--views", 3, "--no-compile", "--json", written)
    everything = json.loads(written.read_text())
    rows = {row["name"]: row for row in everything["results"]}
    assert list(rows) == ["plain", "prime", "prime-eager", "augmix", "1 view", "3 views"]
    for name, row in rows.items():
        assert (row["model"], row["batch"], row["error"]) == ("resnet18", 2, "")
        assert row["steps"] == (2 if name == "augmix" else 3)
        assert len(row["seconds"]) == 2
        assert 0 < min(row["seconds"]) <= row["median"] <= max(row["seconds"])
    assert "resnet18, 32 x 32, batch 2, --views 3, not compiled" in text
    assert "3 views (two augmented and the clean one) take" in text


def test_agreement(
    device: str, cuda: Any, script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    """On bytes and on floats; a plan that CUDA draws otherwise ends it."""
    monkeypatch.setattr("emulated_cuda.load", lambda folder: cuda)  # compiled already
    agreement, written = script("agreement"), tmp_path / "out.json"
    tiny = ["--device", device, "--preset", "imagenet", "--size", "24", "--depth", "1", "3", "--images", "2"]
    assert agreement.main([*tiny, "--dtype", "uint8", "bfloat16", "--json", str(written)]) == 0
    rows = json.loads(written.read_text())["results"]
    assert [(r["depth"], r["dtype"]) for r in rows] == [(d, t) for d in (1, 3) for t in ("uint8", "bfloat16")]
    for row in rows:
        for pair in ("CUDA, CPU", "CPU, float64"):
            assert 0 <= row["off"][pair] < 0.5
            assert 0 < row["mean"][pair] <= row["worst"][pair] < 0.1
    assert rows[3]["off"]["CUDA, CPU"] > rows[2]["off"]["CUDA, CPU"]  # floats are rounded, bytes are not
    assert agreement.markdown(rows) in capsys.readouterr().out
    apply, rows_of = agreement.emulated(tmp_path)
    other = agreement.parser().parse_args(tiny)
    with pytest.raises(SystemExit, match="imagenet, depth 1: expected the plan that the CPU draws, got another"):
        agreement.measure(other, apply, lambda *arguments: rows_of(*arguments) + 1)


def test_what_differs_is_counted(script: Callable[[str], ModuleType]) -> None:
    """A pixel is off where one channel is; NaN is off."""
    first = torch.zeros(2, 3, 2, 2).numpy()
    second = first.copy()
    second[0, 1, 0, 0], second[0, 2, 0, 0], second[1, 0, 1, 1] = 0.5, 0.5, 2 / 255
    off, mean, worst = script("agreement").compare(first, second)
    assert (off, mean, worst) == (1 / 8, pytest.approx((1 + 2 / 255) / 24), pytest.approx(1 / 12))
    second[1, 0, 0, 0] = float("nan")
    assert script("agreement").compare(first, second)[0] == 2 / 8


def test_the_page_shows_what_agreement_wrote(script: Callable[[str], ModuleType]) -> None:
    results = json.loads((FOLDER / "results/agreement.json").read_text())["results"]
    assert script("agreement").markdown(results) in (FOLDER.parent / "docs/METHOD.md").read_text()


def test_pipelines(device: str, photos: Path, plugin: Path, run_here: Callable[..., str], tmp_path: Path) -> None:
    written = tmp_path / "out.json"
    tiny = ["--size", 32, "--batch", 2, "--seconds", 0.01, "--repeats", 2, "--warmup", 1, "--peers", "trivial"]
    text = run_here("throughput", "--pipeline", photos, "--device", device, *tiny, "--json", written)
    modes = ["native", "cupy", "dlpack", *(["torch"] if device == "cuda" else [])]
    assert_rated(written, ["plain", "copy", *(f"{m}{x}" for m in modes for x in ("", " x 3")), "trivial"])
    assert "32 x 32, batch 2, 2 threads, decoded" in text


def test_formats(
    photos: Path, script: Callable[[str], ModuleType], run_here: Callable[..., str], tmp_path: Path
) -> None:
    """Every format has the same images and labels, and its own rates."""
    for package in ("nvidia.dali", "datasets", "google_crc32c"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    formats, written = script("formats"), tmp_path / "out.json"
    (photos / "other").mkdir()
    (photos / "class" / "3.jpg").rename(photos / "other" / "3.jpg")
    (tmp_path / "work").mkdir()
    for place in formats.written(photos, tmp_path / "work").values():
        records = open_records(place)
        expected = [(path.read_bytes(), i // 3) for i, path in enumerate(sorted(photos.glob("*/*")))]
        assert [(records.encoded(i), records.labels[i]) for i in range(4)] == expected
    tiny = ["--size", 32, "--batch", 2, "--seconds", 0.01, "--rounds", 2, "--warmup", 1, "--threads", 1]
    text = run_here("formats", photos, *tiny, "--json", written)
    by_dali = [f"{name} by DALI" for name in formats.OWN]
    assert_rated(written, [*(f"{name}, bytes" for name in formats.FORMATS), *formats.FORMATS, *by_dali])
    assert "of folders, bytes" in text
    assert "pipelines, 32 x 32, batch 2, 1 threads" in text
    assert len(list(formats.make_photographs(3, tmp_path / "made").glob("class[01]/*.jpg"))) == 3


def test_pipelines_need_a_folder_of_class_folders(
    script: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    with pytest.raises(SystemExit) as stopped:
        script("throughput").main(["--pipeline", str(tmp_path)])
    assert stopped.value.code == 2
    assert f"argument --pipeline: expected a folder of class folders, got {tmp_path}" in capsys.readouterr().err


def cuda_like(**changes: Any) -> dict[str, Any]:
    """What ``throughput.py --json`` could have written on a GPU."""
    rows = [
        {"name": name, "size": size, "batch": batch, "median": rate * min(batch, 128) * 224 / size}
        for size in (224, 448)
        for batch in (32, 256)
        for name, rate in (("prime", 500.0), ("copy", 40000.0))
    ]
    rows.append({"name": "official", "size": 224, "batch": 32, "median": None})  # it failed
    name = "prime::a_kernel_with_a_name<" + "float, " * 30 + "3>"
    kernel = {"name": name, "size": 224, "batch": 256, "calls": 12.0, "us_per_image": 9.5}
    settings = {"device": "cuda", "preset": "imagenet", "mixing": "paper"}
    card = {"cpu": "a processor", "gpu": "a card, driver 1.2"}
    return {**card, "settings": settings, "results": rows, "kernels": [kernel], **changes}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_pictures_from_files(run_here: Callable[..., str], tmp_path: Path) -> None:
    one = write(tmp_path / "1.json", cuda_like(kernels=[]))
    two = write(tmp_path / "2.json", cuda_like())
    assert run_here("throughput", "--from-json", one, two, "--plot", tmp_path / "plots").count("drew ") == 3
    assert pictures(tmp_path / "plots") == ["kernels.png", "throughput_batch.png", "throughput_size.png"]


def test_what_the_pictures_show(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """Our own rates on an axis from zero; the others, orders of magnitude away, beside them or as what ours are of them."""
    from matplotlib.figure import Figure

    plots = script("plots")
    rows = [row for row in cuda_like()["results"] if row["median"]]
    by_batch, by_size, bars = Figure(), Figure(), Figure()
    plots.rates_by_batch(rows, by_batch)
    above, below = by_batch.axes
    assert [line.get_label() for line in above.lines] == ["prime-dali"]
    assert above.lines[0].get_xydata().tolist() == [[32, 16000], [256, 64000]]
    assert (above.get_ylim()[0], above.get_ylabel()) == (0, "images per second")
    assert [label.get_text() for label in below.get_yticklabels()] == ["prime-dali", "plain copy of the bytes"]
    assert [text.get_text() for text in below.texts] == ["16,000", "1,280,000"]
    plots.pixels_by_size(rows, by_size)
    above, below = by_size.axes
    assert above.lines[0].get_xydata().tolist() == [[224, 16000 * 0.224**2], [448, 8000 * 0.448**2]]
    assert below.lines[0].get_ydata().tolist() == [1.25, 1.25]  # of the copy, %
    plots.kernel_bars(cuda_like()["kernels"], bars)
    assert bars.axes[0].patches[0].get_width() == 9.5
    assert plots.title(cuda_like()) == "a card, driver 1.2; PRIME imagenet, paper mixing"


@pytest.mark.parametrize(("content", "message"), [
    ([], "got {path} (AttributeError: 'list' object"),
    ({"results": []}, "got {path} (ValueError: no rate in it)"),
    (cuda_like(kernels=[{"name": "k"}]), "got {path} (KeyError"),
    (cuda_like(gpu="another card"), "{path}: expected 'a card, driver 1.2; PRIME imagenet, paper mixing' as in the first file, got 'another card; "),
])  # fmt: skip
def test_files_that_cannot_be_drawn(
    content: Any, message: str, script: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    good, bad = write(tmp_path / "good.json", cuda_like()), write(tmp_path / "bad.json", content)
    with pytest.raises(SystemExit) as stopped:
        script("throughput").main(["--from-json", str(good), str(bad), "--plot", str(tmp_path / "plots")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "argument --from-json: " in error
    assert message.format(path=bad) in error


@pytest.mark.parametrize(("name", "arguments", "message"), [
    ("throughput", "--size 7", "argument --size: expected int from 8 to 4096, got '7'"),
    ("throughput", "--batch x", "argument --batch: expected int from 1 to 1048576, got 'x'"),
    ("throughput", "--peers none trivial", "argument --peers: expected all or none by itself, got none trivial"),
    ("throughput", "--peers official", "argument --peers: official needs --official DIR"),
    ("throughput", "--official /no/such", "with utils/prime.py, got /no/such"),
    ("throughput", "--graph", "argument --graph: expected --device cuda, got cpu"),
    ("throughput", "--plot /proc/version", "argument --plot: expected a folder that can be written to, got /proc/version"),
    ("throughput", "--from-json a.json", "argument --from-json: expected --plot DIR beside it, got none"),
    ("throughput", "--from-json /no/such --plot {tmp}", "argument --from-json: expected a file that throughput.py --json has written, got /no/such"),
    ("training_step", "--model alexnut", "argument --model: network: expected a classifier of torchvision or timm, got 'alexnut'"),
    ("training_step", "--views 2", "argument --views: invalid choice: 2"),
    ("training_step", "--batch 1", "argument --batch: expected int from 2 to 1048576, got '1'"),
    ("training_step", "--peers trivial", "argument --peers: invalid choice: 'trivial'"),
    ("training_step", "--json /no/such/file", "argument --json: expected a file in a folder that can be written to, got /no/such/file"),
])  # fmt: skip
def test_bad_arguments(
    name: str, arguments: str, message: str,
    script: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        script(name).main(arguments.format(tmp=tmp_path).split())
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_pictures_need_matplotlib(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit) as stopped:
        script("throughput").main(["--plot", str(tmp_path)])
    assert stopped.value.code == 2
    assert "argument --plot: expected matplotlib to be installed, found none" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["throughput", "training_step"])
def test_a_gpu_that_is_not_there(name: str, script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        script(name).main(["--device", "cuda"])
    assert stopped.value.code == 2
    assert "argument --device: expected a CUDA device" in capsys.readouterr().err


def test_scaling_counts_processes(script: Callable[[str], ModuleType]) -> None:
    """Twice the processes at 1.5 times the rate is an efficiency of 0.75, whichever is measured first."""
    scaling = script("scaling")
    results = [
        {"processes": 2, "rates": [150.0], "bare": [200.0], "error": ""},
        {"processes": 1, "rates": [90.0, 100.0, 120.0], "bare": [100.0, 125.0, 130.0], "error": ""},
        {"processes": 4, "rates": [], "bare": [], "error": "why"},
    ]
    scaling.compare(results)
    assert [line.split() for line in scaling.table(results).splitlines()] == [
        ["processes", "bare", "images/s", "min", "max", "of", "bare", "efficiency", "bare's", "ratio"],
        ["2", "200", "150", "150", "150", "0.750", "0.750", "0.800", "0.938"],
        ["1", "125", "100", "90.0", "120", "0.800", "1.000", "1.000", "1.000"],
        ["4", "failed"],
        ["4", "processes:", "why"],
    ]
    without = [{"processes": 2, "rates": [150.0], "bare": [200.0], "error": ""}, {**results[2], "processes": 1}]
    scaling.compare(without)
    assert scaling.table(without).splitlines()[1].split() == ["2", "200", "150", "150", "150", "0.750"]


def test_scaling_says_why_a_run_failed(script: Callable[[str], ModuleType]) -> None:
    """Below it, torchrun writes more lines than are shown."""
    said = "\n".join(["first", "why", "E1129 api.py:1002] failed (exitcode: 1) local_rank: 0", *["Traceback"] * 30])
    assert script("scaling").last_lines(said) == "first\nwhy"
    assert script("scaling").last_lines("one\n" * 20) == "\n".join(["one"] * 15)


def test_startup_ends_with_the_first_line_of_the_log(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """A run that ends before it has one failed, and one with another status than that of a signal too."""
    first_step = script("startup").first_step
    run = "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit({status})); {begin}; time.sleep(60)"
    log = f"time.sleep(0.3); pathlib.Path({str(tmp_path / 'log.jsonl')!r}).write_text('line')"

    def seconds(begin: str, status: int) -> float:
        (tmp_path / "log.jsonl").unlink(missing_ok=True)
        return first_step([sys.executable, "-c", run.format(status=status, begin=begin)], tmp_path, os.environ)

    assert 0.3 <= seconds(log, 75) < 30
    for begin, status in (("sys.exit('why')", 75), (f"print('why', flush=True); {log}", 1)):
        with pytest.raises(RuntimeError, match="why"):
            seconds(begin, status)


def test_scaling_runs(
    script: Callable[[str], ModuleType], run_here: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs in this process: test_train.py has two, started as torchrun does."""
    images = make_images(64, 32, 32, torch.uint8).flatten(1)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        torch.cat([(torch.arange(64) % 10).to(torch.uint8)[:, None], images], 1).numpy().tofile(
            tmp_path / f"{name}.bin"
        )
    started = []

    def torchrun(command: list[str], **pipes: bool) -> subprocess.CompletedProcess[str]:
        *options, program = command[1 : command.index("--out")]
        started.append(options[:4])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if program == "train":
                cli.main(command[command.index("train") :])
            else:
                script(Path(program).stem).main(command[command.index("--out") :])
        return subprocess.CompletedProcess(command, 0, printed.getvalue())

    monkeypatch.setattr(script("scaling"), "subprocess", SimpleNamespace(run=torchrun))
    out = run_here(
        "scaling", "--processes", 1, "--batch", 8, "--steps", 16, "--json", tmp_path / "s.json", "--", "--data", tmp_path, "--method", "standard",
        "--network", "shufflenet_v2_x0_5", "--stem", "imagenet", "--no-compile",
    )  # fmt: skip
    assert started == [["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]] * 2
    assert [line.split()[0] for line in out.splitlines()] == ["processes", "1"]
    [found] = json.loads((tmp_path / "s.json").read_text())["results"]
    assert (len(found["rates"]), len(found["bare"]), found["ratio"]) == (7, 7, 1)
    assert all(rate > 0 for rate in (*found["rates"], *found["bare"]))
