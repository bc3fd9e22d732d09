"""The command line, as a user calls it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prime_dali import cli


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(folder / "a.png")
    Image.fromarray(rng.integers(0, 256, (70, 50), np.uint8)).save(folder / "gray.jpg")
    (folder / "notes.txt").write_text("not a photo")
    return folder


def test_doctor(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for part in ("CPU back end", "CUDA back end", "GPU", "torch interface", "CuPy", "DALI", "DALI on the GPU"):
        assert part in out


def test_doctor_of_a_build_without_cuda_and_torch() -> None:
    program = "import sys; sys.modules.update(dict.fromkeys(['torch', 'cupy'])); "
    program += "from prime_dali import _arrays; _arrays.cuda = None; from prime_dali.cli import main; main(['doctor'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[--] CUDA back end: not built" in done.stdout
    assert "[--] torch interface: torch is not installed" in done.stdout
    assert "to get it: pip install 'prime-dali[torch]'" in done.stdout


def test_a_command_that_needs_torch_says_how_to_get_it() -> None:
    program = "import sys; sys.modules['torch'] = None; from prime_dali.cli import main\n"
    program += "sys.exit(main(['evaluate', 'last.pt', '--clean', 'data']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"prime-dali evaluate: .*: pip install 'prime-dali\[train\]'\n", done.stderr), done.stderr


def test_an_old_option_says_its_new_name(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["gallery", "photos", "--law", "uniform"]) == 2
    assert "--law: is called --spatial-distribution now" in capsys.readouterr().err
    assert cli.main(["evaluate", "last.pt", "--normalise", "none"]) == 2
    assert "--normalise: is called --normalize now" in capsys.readouterr().err


def test_demo(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    out = tmp_path / "demo"
    arguments = ["demo", "--out", str(out), "--photos", str(photos), "--size", "40", "--batch", "6", "--batches", "3"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr()
    assert "images/s" in text.out
    assert sorted(p.name for p in out.iterdir()) == ["batch.png", "gallery.png"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["demo", "--photos", "/no/such/folder"], "/no/such/folder: no such file or folder"),
    (["demo", "--alpha", "-1"], "alpha: expected a finite number >= 0"),
])  # fmt: skip
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["demo", "--size", "7"], ["demo", "--batch", "x"], ["demo", "--preset", "imagnet"], []]
)
def test_bad_usage(arguments: list[str]) -> None:
    assert cli.main(arguments) == 2


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture, photos: Path) -> None:
    from prime_dali.tools import doctor

    if doctor.examine()[-1].usable:
        pytest.skip("a GPU pipeline can run here")
    assert cli.main(["demo", "--photos", str(photos), "--device", "cuda"]) == 1
    assert "device: expected a usable GPU, got:" in capsys.readouterr().err
