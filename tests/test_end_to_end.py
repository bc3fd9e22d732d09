"""A user's way from pictures to tables: train, be interrupted, continue, regenerate a benchmark, evaluate."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
from pathlib import Path

import forking
import numpy as np
import pytest
from PIL import Image

from prime_dali import cli
from prime_dali.evaluation.names import CORRUPTIONS, GROUPS, SEVERITIES

for package in ("torchvision", "skimage", "imagecorruptions", "matplotlib"):
    pytest.importorskip(package, reason=f"{package} is not installed")


def prime_dali(*arguments: object) -> str:
    """What a command prints. In this process, for starting one takes longer than most commands do."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert not cli.main([str(argument) for argument in arguments])
    return printed.getvalue()


def with_a_full_disk(*words: str) -> None:
    """A command whose files have a limit, which stands for a disk that is full; for a process of its own."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
    raise SystemExit(cli.main(list(words)))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """CIFAR-10's layout in class folders: 300 squares of photographs to train on, 20 to test; a class is a row."""
    import skimage

    names = ("astronaut", "coffee", "chelsea", "rocket")
    for i, photo in enumerate(getattr(skimage.data, name)()[:300, :400] for name in names):
        rows = np.asarray(Image.fromarray(photo).resize((8 * 32, 10 * 32))).reshape(10, 32, 8, 32, 3)
        for label, row in enumerate(rows):
            for k in range(8):
                part = "test" if i < 2 and k == 0 else "train"
                folder = tmp_path / "pictures" / part / f"class{label}"
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(row[:, k]).save(folder / f"{i}-{k}.png")
    return tmp_path / "pictures"


@pytest.mark.timeout(250)
def test_from_pictures_to_tables(pictures: Path, tmp_path: Path) -> None:
    run, noisy, results = (tmp_path / name for name in ("run", "CIFAR-10-C", "results"))
    train = ("train", "--data", pictures, "--out", run, "--network", "shufflenet_v2_x0_5", "--stem", "imagenet", "--no-compile",
             "--batch", 50, "--epochs", 2, "--log-every", 1, "--device", "cpu")  # fmt: skip
    process = forking.start(tmp_path / "said", with_a_full_disk, *map(str, train), "--save-minutes", "0")
    process.join()
    assert process.exitcode == 1
    assert "last.pt: the checkpoint cannot be written" in (tmp_path / "said").read_text()
    assert not list(run.glob("*.pt"))
    assert "done: 12 steps" in prime_dali(*train)
    assert "last.pt" in prime_dali(*train)  # nothing is left to do

    prime_dali("corrupt", "cifar10", pictures, noisy, "--workers", 0)
    shown = prime_dali("evaluate", run / "last.pt", "--clean", pictures, "--cifar-c", noisy, "--out", results)
    assert "regenerated" in shown
    found = json.loads((results / "results.json").read_text())["sets"]
    assert found["clean"]["images"] == 20
    assert found["clean"]["accuracy"] == found["clean"]["correct"] / 20

    # The tables, from the counts by hand.
    right = found["cifar-c"]["correct"]
    counts = np.array([[right[name][str(severity)] for severity in SEVERITIES] for name in CORRUPTIONS])
    assert counts.shape == (15, 5)
    assert counts.min() >= 0
    assert counts.max() <= 20
    scores = found["cifar-c"]["scores"]
    assert scores["corruption_accuracy"] == pytest.approx(counts.sum() / (15 * 5 * 20), abs=1e-12)
    for name, row in zip(CORRUPTIONS, counts, strict=True):
        assert scores["by_corruption"][name] == pytest.approx(row.sum() / 100, abs=1e-12)
    for severity, column in zip(SEVERITIES, counts.T, strict=True):
        assert scores["by_severity"][str(severity)] == pytest.approx(column.sum() / 300, abs=1e-12)
    for group, names in GROUPS.items():
        rows = [CORRUPTIONS.index(name) for name in names]
        assert scores["by_group"][group] == pytest.approx(counts[rows].mean() / 20, abs=1e-12)
    table = (results / "results.md").read_text()
    assert f"| {100 * counts.sum() / 1500:.2f} |" in table
    assert (results / "cifar-c.png").stat().st_size > 10_000
