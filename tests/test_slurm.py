"""The batch scripts: what they do at a signal, at a normal end and at a failure, with commands that stand in for Slurm's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import make_images
from PIL import Image

SCRIPTS = sorted((Path(__file__).parent.parent / "examples" / "slurm").glob("*.sbatch"))
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1
exec "$@"
"""
SCONTROL = """#!/bin/bash
[[ $1 == show ]] && { echo localhost; exit; }
echo "$@" >>"$(dirname "$0")/../scontrol.txt"
"""
# Stands in for a run: it says so, and stops at a signal after it has saved, or ends by itself.
RUN = """#!/bin/bash
folder=$(dirname "$0")/..
trap 'sleep 0.3; touch "$folder/saved"; exit 75' USR1
trap 'touch "$folder/terminated"; exit 75' TERM
echo "$@ RANK=${RANK-} LOCAL_RANK=${LOCAL_RANK-} WORLD_SIZE=${WORLD_SIZE-} MASTER_ADDR=${MASTER_ADDR-}" >"$folder/started"
for i in {1..200}; do [[ -e $folder/end ]] && exit "$(<"$folder/end")"; sleep 0.05; done
"""


def command(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def start(script: Path, folder: Path, *words: str) -> subprocess.Popen:
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        command(folder, name, text)
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "localhost",
        "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "3", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return subprocess.Popen(["bash", str(script), *words], env=environment)


def wait_for(path: Path, process: subprocess.Popen, seconds: float = 100) -> None:
    until = time.monotonic() + seconds
    while not path.exists() or not path.read_text():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)


def requeued(folder: Path) -> list[str]:
    path = folder / "scontrol.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_there_are_scripts() -> None:
    assert [path.stem for path in SCRIPTS] == ["grid", "shards", "train_many_nodes", "train_one_node"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_syntax(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "--shell=bash", str(script)], check=True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_the_signal_before_the_time_limit_requeues(script: Path, tmp_path: Path) -> None:
    """The job is queued again only when the run has saved."""
    command(tmp_path, "prime-dali", RUN)
    process = start(script, tmp_path, "--some", "words here")
    wait_for(tmp_path / "started", process)
    words = (tmp_path / "started").read_text()
    if script.stem == "grid":
        assert words.startswith("analyze --some words here --task 1 ")
    elif script.stem == "shards":
        assert words.startswith("--some words here --shard 1/3 ")
    else:
        assert words == "train --some words here RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost\n"
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=20) == 0
    assert (tmp_path / "saved").exists()
    assert requeued(tmp_path) == ["requeue 42"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
@pytest.mark.parametrize("status", [0, 1])
def test_an_end_does_not_requeue(script: Path, status: int, tmp_path: Path) -> None:
    command(tmp_path, "prime-dali", RUN)
    (tmp_path / "end").write_text(str(status))
    assert start(script, tmp_path).wait(timeout=20) == status
    assert not requeued(tmp_path)


def test_an_end_after_the_signal_does_not_requeue(tmp_path: Path) -> None:
    command(tmp_path, "prime-dali", RUN.replace("exit 75", "exit 0"))
    process = start(SCRIPTS[0], tmp_path)
    wait_for(tmp_path / "started", process)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=20) == 0
    assert (tmp_path / "saved").exists()
    assert not requeued(tmp_path)


def test_scancel_does_not_requeue(tmp_path: Path) -> None:
    """TERM goes to the steps and the script: the run saves, and the job does not come back."""
    command(tmp_path, "prime-dali", RUN)
    process = start(SCRIPTS[0], tmp_path)
    wait_for(tmp_path / "started", process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGTERM)
    assert process.wait(timeout=20) == 75
    assert (tmp_path / "terminated").exists()
    assert not requeued(tmp_path)


def test_shards_under_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of an array that fill one folder; the signal stops one at once, and it resumes."""
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    for number, image in enumerate(make_images(24, 64, 64, torch.uint8)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(photos / f"{number:02d}.png")
    call = "import sys; from prime_dali.cli import main; sys.exit(main(sys.argv[1:]))"
    command(tmp_path, "prime-dali", f"#!/bin/bash\nexec {sys.executable} -c '{call}' \"$@\"\n")
    words = ["augment", str(photos), str(out), "--copies", "8", "--device", "cpu", "--workers", "1"]
    monkeypatch.setenv("SHARDS", "2")  # the array's own number is 3
    process = start(SCRIPTS[1], tmp_path, *words)
    wait_for(out / ".shards" / "1-of-2" / "files.jsonl", process)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=100) == 0
    assert requeued(tmp_path) == ["requeue 42"]
    assert 0 < len(list(out.glob("*.png"))) < 12 * 8
    assert start(SCRIPTS[1], tmp_path, *words).wait(timeout=100) == 0
    assert len(list(out.glob("*.png"))) == 12 * 8
    assert requeued(tmp_path) == ["requeue 42"]


def test_a_grid_under_slurm(tmp_path: Path) -> None:
    """The signal goes through srun and the grid to the training run; what that does is tested in test_train_resume.py."""
    command(tmp_path, "run", RUN)
    program = (
        f"import argparse, sys; sys.executable = '{tmp_path}/bin/run'; from prime_dali.experiments import ablation; "
    )
    program += "p = argparse.ArgumentParser(); ablation.add_arguments(p); ablation.run(p.parse_args(sys.argv[3:]))"
    command(tmp_path, "prime-dali", f'#!/bin/bash\nexec {sys.executable} -c "{program}" "$@"\n')
    (tmp_path / "fog.npy").touch()
    (tmp_path / "grid.yaml").write_text(f"""
base: {{data: {tmp_path}, device: cpu}}
evaluate: {{cifar-c: {tmp_path}, partial: true}}
vary: {{primitives: [[], [color]]}}
""")
    out = tmp_path / "out"
    process = start(SCRIPTS[0], tmp_path, "ablation", "--grid", str(tmp_path / "grid.yaml"), "--out", str(out))
    wait_for(tmp_path / "started", process)
    assert (tmp_path / "started").read_text().startswith("-m prime_dali train --config ")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=100) == 0
    assert (tmp_path / "saved").exists()
    assert requeued(tmp_path) == ["requeue 42"]
    assert not out.exists()  # no table
