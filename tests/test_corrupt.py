"""``prime-dali corrupt``: the folders that it makes, resumes and refuses."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.data import astronaut
from test_corruptions import tiles

from prime_dali import cli
from prime_dali.evaluation import benchmarks, corrupt, corruptions, photographs


def write_cifar(folder: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    """CIFAR-10's binary version: a label and 3 x 1024 bytes an image."""
    folder.mkdir(parents=True)
    records = np.concatenate(
        [labels[:, None].astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(len(images), -1)], 1
    )
    records.tofile(folder / "test_batch.bin")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_cifar(tmp_path / "clean", tiles(12), np.arange(12) % 10)


def test_cifar_layout_and_going_on(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "CIFAR-10-C"
    command = ["cifar10", str(source), str(out), "--seed", "3", "--only"]
    corrupt.main([*command, "jpeg_compression", "gaussian_noise", "--workers", "2"])
    assert sorted(p.name for p in out.iterdir()) == [
        "gaussian_noise.npy", "jpeg_compression.npy", "labels.npy", "manifest.json",
    ]  # fmt: skip
    np.testing.assert_array_equal(np.load(out / "labels.npy"), np.tile(np.arange(12) % 10, 5))
    assert np.load(out / "labels.npy").dtype == np.uint8
    for name in ("gaussian_noise", "jpeg_compression"):
        made = np.load(out / f"{name}.npy")
        assert (made.shape, made.dtype) == ((60, 32, 32, 3), np.uint8)
        for severity in (1, 2, 3, 4, 5):
            block = made[12 * (severity - 1) : 12 * severity]
            np.testing.assert_array_equal(block, corruptions.cifar(tiles(12), name, severity, seed=3))

    manifest = json.loads((out / "manifest.json").read_text())
    assert "not the published files" in manifest["about"]
    assert (manifest["benchmark"], manifest["seed"], manifest["severities"]) == ("CIFAR-10-C", 3, [1, 2, 3, 4, 5])
    assert manifest["source"]["path"] == str(source)
    assert manifest["source"]["images"] == 12
    assert manifest["strengths"]["frost"][0] == [1, 0.2, 0.2]
    assert {"prime-dali", "numpy", "scipy", "scikit-image", "opencv", "pillow"} == manifest["versions"].keys()

    kept = {p.name: p.stat().st_mtime_ns for p in out.iterdir()}
    (out / ".unfinished").mkdir()
    (out / ".unfinished" / "123-fog.npy").write_bytes(b"half")
    corrupt.main([*command, "contrast", "gaussian_noise", "--workers", "1"])
    assert sorted(p.name for p in out.iterdir()) == sorted([*kept, "contrast.npy"])
    assert all((out / name).stat().st_mtime_ns == when for name, when in kept.items())


def test_tasks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images = tiles(12)
    whole = corrupt._cifar_part(images, "snow", 2, 6, 0)
    monkeypatch.setattr(corrupt, "_BATCH", 5)
    parts = [corrupt._cifar_part(images, "snow", 2, 6, start) for start in (0, 5, 10)]
    assert [len(part) for part in parts] == [5, 5, 2]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_refuses_other_settings(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "made"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    command = ["corrupt", "cifar10", str(source), str(out), "--only", "contrast", "--workers", "1"]
    assert cli.main(command) == 1
    assert "expected a new or empty folder, or one with a manifest.json" in capsys.readouterr().err
    (out / "notes.txt").unlink()
    assert cli.main(command) == 0
    capsys.readouterr()
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    other = write_cifar(tmp_path / "other", tiles(13)[1:], np.arange(12) % 10)
    moved = tmp_path / "moved"
    source.rename(moved)
    command[2] = str(moved)
    assert cli.main(command) == 0  # the same images
    for change, message in (
        (["--seed", "1"], "made with other settings: seed: expected 0, got 1"),
        (["--severities", "5", "1"], "severities: expected [1, 2, 3, 4, 5], got [1, 5]"),
        (["--benchmark", "c-bar", "--only", "lines"], "benchmark: expected CIFAR-10-C, got CIFAR-10-C-bar"),
    ):
        capsys.readouterr()
        assert cli.main([*command, *change]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert cli.main([*command[:2], str(other), *command[3:]]) == 1
    assert "made with other settings: source: expected" in capsys.readouterr().err
    manifest = json.loads(before["manifest.json"])
    manifest["versions"]["numpy"] = "1.0"
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert cli.main(command) == 1
    assert "versions: expected" in capsys.readouterr().err
    (out / "manifest.json").write_text("{")
    assert cli.main(command) == 1
    assert "manifest.json: not a manifest of prime-dali corrupt" in capsys.readouterr().err
    (out / "manifest.json").write_bytes(before["manifest.json"])
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_one_run_at_a_time(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(RuntimeError, match=f"{out}: another run is writing there"):
        corrupt.run(corrupt.Settings("cifar10", source, out))
    os.close(handle)
    assert not any(out.iterdir())


@pytest.mark.parametrize(("arguments", "message"), [
    (["--only", "fogg"], "--only: expected one of 'gaussian_noise'"),
    (["--only", "fogg"], "did you mean 'fog'?"),
    (["--only", "lines"], "got 'lines'"),
    (["--severities", "6"], "--severities: expected 1 to 5, got 6"),
    (["--seed", "-1"], "seed: expected 0 to"),
    (["--benchmark", "c-bar", "--extra"], "extra: expected only with the benchmark c"),
    (["--on-error", "skip"], "--on-error: expected 'raise' for CIFAR"),
])  # fmt: skip
def test_bad_settings(
    arguments: list[str], message: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert cli.main(["corrupt", "cifar10", str(source), str(tmp_path / "out"), *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_bad_folders(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for data in ("cifar10", "imagenet"):
        assert cli.main(["corrupt", data, str(tmp_path / "none"), str(tmp_path / "out")]) == 1
        assert f"{tmp_path / 'none'}: expected" in capsys.readouterr().err
    assert cli.main(["corrupt", "cifar10", str(source), str(source / "out")]) == 1
    assert f"destination: expected a folder outside the source {source}" in capsys.readouterr().err
    (tmp_path / "photos" / "n01").mkdir(parents=True)
    assert cli.main(["corrupt", "imagenet", str(tmp_path / "photos"), str(tmp_path / "out")]) == 1
    assert f"of each class, got none in {tmp_path / 'photos' / 'n01'}\n" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def runs(process: str) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"  # ended, its parent has yet to ask


def test_a_killed_run_leaves_whole_files_and_no_process_and_goes_on(tmp_path: Path) -> None:
    images = np.tile(tiles(64), (8, 1, 1, 1))
    source = write_cifar(tmp_path / "clean", images, np.arange(512) % 10)
    out = tmp_path / "out"
    names = ["contrast", "jpeg_compression", "gaussian_noise"]
    command = [sys.executable, "-c", "import sys; from prime_dali.cli import main; sys.exit(main(sys.argv[1:]))"]
    command += ["corrupt", "cifar10", str(source), str(out), "--workers", "2", "--only", *names]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (out / "gaussian_noise.npy").exists():
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    finished = sorted(p.name for p in out.glob("*.npy"))
    assert "gaussian_noise.npy" in finished
    assert len(finished) < 4  # with the labels there would be four
    for name in finished:
        assert len(np.load(out / name)) == 5 * 512
    assert len(children) >= 2
    while any(runs(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    first = (out / "gaussian_noise.npy").stat().st_mtime_ns
    subprocess.run(command, stderr=subprocess.DEVNULL, check=True)
    assert (out / "gaussian_noise.npy").stat().st_mtime_ns == first
    assert sorted(p.name for p in out.iterdir()) == sorted(
        [*(f"{n}.npy" for n in names), "labels.npy", "manifest.json"]
    )
    for name in names:
        np.testing.assert_array_equal(np.load(out / f"{name}.npy")[512:1024], corruptions.cifar(images, name, 2))


def test_imagenet_layout(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source, out = tmp_path / "val", tmp_path / "ImageNet-C"
    for wnid in ("n01", "n02"):
        (source / wnid).mkdir(parents=True)
    picture = Image.fromarray(astronaut())
    picture.resize((300, 400)).save(source / "n01" / "a.JPEG", quality=95)
    picture.convert("L").resize((260, 230)).save(source / "n01" / "gray.png")
    picture.convert("CMYK").resize((512, 256)).save(source / "n02" / "cmyk.jpg")
    broken = source / "n02" / "b.JPEG"
    broken.write_bytes((source / "n01" / "a.JPEG").read_bytes()[:999])
    last = source / "n02" / "z.JPEG"
    last.touch()

    command = ["corrupt", "imagenet", str(source), str(out), "--only", "snow", "contrast", "--severities", "4", "2"]
    command += ["--workers", "1"]
    assert cli.main(command) == 1
    said = capsys.readouterr()
    assert f"2 images cannot be used: {broken}: not a readable image" in said.err
    assert f"; {last}: not a readable image" in said.err
    assert "; the same command with --on-error skip goes on without such files; once they are mended" in said.err
    assert "ImageNet-C: stopped after 2 images\n" in said.out  # the broken one would stop the same command again
    assert cli.main([*command, "--on-error", "skip"]) == 0
    printed = capsys.readouterr().out
    assert f"skipped {broken}: not a readable image" in printed
    assert "skipped 2 of 5 files" in printed

    photos = ["n01/a.JPEG", "n01/gray.png.JPEG", "n02/cmyk.jpg"]
    expected = {f"{name}/{severity}/{file}" for name in ("snow", "contrast") for severity in (2, 4) for file in photos}
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == expected | {"manifest.json"}
    for number, file in ((0, "n01/a.JPEG"), (1, "n01/gray.png"), (3, "n02/cmyk.jpg")):
        image = photographs.read_224(source / file)
        assert image.shape == (224, 224, 3)
        bytes_ = io.BytesIO()
        changed = corruptions.imagenet(image, "snow", 4, number=number)
        Image.fromarray(changed).save(bytes_, "JPEG", quality=85, optimize=True)
        stored = out / "snow" / "4" / (file if file != "n01/gray.png" else "n01/gray.png.JPEG")
        assert stored.read_bytes() == bytes_.getvalue()


def test_tiny_imagenet(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Images of 64 x 64 pixels are corrupted as they are, and a network of such images is evaluated on them."""
    source, out = tmp_path / "val", tmp_path / "C"
    (source / "n01").mkdir(parents=True)
    picture = Image.fromarray(astronaut()).resize((64, 64))
    picture.save(source / "n01" / "a.png")
    command = ["corrupt", "tinyimagenet", str(source), str(out), "--only", "fog", "--severities", "5", "--workers", "1"]
    assert cli.main(command) == 0
    what = benchmarks.imagenet_corrupted(out, ["n01"], size=benchmarks.TINY_SIDE)
    assert what.manifest is not None
    assert what.manifest["benchmark"] == "Tiny-ImageNet-C"
    ((pixels, labels),) = what.read("fog", 5).batches(2, torch.device("cpu"))
    bytes_ = io.BytesIO()
    Image.fromarray(corruptions.tinyimagenet(np.asarray(picture), "fog", 5)).save(bytes_, "JPEG", quality=85)
    assert labels.tolist() == [0]
    np.testing.assert_array_equal(pixels[0].permute(1, 2, 0).numpy(), np.asarray(Image.open(bytes_)))

    with pytest.raises(ValueError, match="expected ImageNet-C for a network whose size is not 64, got Tiny-ImageNet-C"):
        benchmarks.imagenet_corrupted(out, ["n01"])
    assert cli.main([*command, "--benchmark", "c-bar"]) == 1
    picture.resize((64, 65)).save(source / "n01" / "b.png")
    assert (
        cli.main(["corrupt", "tinyimagenet", str(source), str(tmp_path / "D"), "--only", "fog", "--workers", "1"]) == 1
    )
    assert "b.png: expected 64 x 64 pixels, got 64 x 65" in capsys.readouterr().err


def test_no_photograph_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "val" / "n01").mkdir(parents=True)
    (tmp_path / "val" / "n01" / "a.png").write_bytes(b"no picture")
    command = ["corrupt", "imagenet", str(tmp_path / "val"), str(tmp_path / "out"), "--only", "contrast"]
    assert cli.main([*command, "--workers", "1", "--on-error", "skip"]) == 1
    assert "no readable picture is left" in capsys.readouterr().err


def test_photographs_that_changed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source = tmp_path / "val"
    (source / "n01").mkdir(parents=True)
    photo = source / "n01" / "a.bmp"
    Image.new("RGB", (256, 256), (9, 9, 9)).save(photo)
    command = ["corrupt", "imagenet", str(source), str(tmp_path / "out"), "--only", "contrast", "--severities", "1"]
    assert cli.main([*command, "--workers", "1"]) == 0
    size = photo.stat().st_size
    Image.new("RGB", (256, 256), (99, 9, 9)).save(photo)
    assert photo.stat().st_size == size
    assert cli.main([*command, "--workers", "1"]) == 1
    assert "made with other settings: source: expected" in capsys.readouterr().err


def test_photographs_are_cut_as_torchvision_cuts_them(tmp_path: Path) -> None:
    transforms = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")
    for width, height in ((500, 375), (375, 501), (97, 1001), (1012, 1000)):  # 1012: half a pixel left over
        path = tmp_path / f"{width}x{height}.png"
        picture = Image.fromarray(astronaut()).resize((width, height))
        picture.save(path)
        expected = transforms.CenterCrop(224)(transforms.Resize(256)(picture))
        np.testing.assert_array_equal(photographs.read_224(path), np.asarray(expected))
