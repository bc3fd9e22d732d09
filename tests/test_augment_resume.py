"""``prime-dali augment``: what it does after interruptions, on full disks, and where folders change or vanish."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import augmenting
import numpy as np
import pytest
from augmenting import COMMAND, augmented, files, lines, pixels, write_cifar
from PIL import Image
from skimage.data import astronaut
from test_corruptions import tiles

import prime_dali
from prime_dali import cli
from prime_dali.data import destinations
from prime_dali.tools import augment
from prime_dali.tools.augment import Settings

source = augmenting.source  # fixtures


def test_going_on(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = Settings(source, out, prime_dali.preset("imagenet"), copies=2, device="cpu")
    augment.run(settings)
    whole, listed = files(out), lines(out)
    (out / "cat" / "a b-1.png").unlink()
    (out / ".unfinished").mkdir()
    (out / ".unfinished" / "1.png").write_bytes(b"half")
    text = (out / "files.jsonl").read_text("utf-8")
    (out / "files.jsonl").write_text(text[:-9], "utf-8")  # killed as it wrote the last line
    kept = {p: p.stat().st_mtime_ns for p in out.rglob("*.png")}
    moved = source.rename(tmp_path / "moved")
    augment.run(Settings(moved, out, settings.config, copies=2, device="cpu"))
    changed = [str(p.relative_to(out)) for p in out.rglob("*.png") if p.stat().st_mtime_ns != kept.get(p)]
    assert sorted(changed) == ["cat/a b-1.png", "dog/z.0-1.png"]
    assert not (out / ".unfinished").exists()
    assert {name: content for name, content in files(out).items() if name != "files.jsonl"} == {
        name: content for name, content in whole.items() if name != "files.jsonl"
    }
    assert sorted(lines(out), key=str) == sorted(listed, key=str)

    with pytest.raises(
        FileNotFoundError, match=rf"{source}: no such folder; if it has moved, enter its new path in {out}/manifest"
    ):
        augment.remake(out / "cat" / "a b-1.png")
    manifest = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(manifest.replace(json.dumps(str(source)), json.dumps(str(moved))))
    np.testing.assert_array_equal(augment.remake(out / "cat" / "a b-1.png"), pixels(out / "cat" / "a b-1.png"))

    (out / "files.jsonl").write_text("{}}\n")
    with pytest.raises(ValueError, match=r"files.jsonl: line 1: not JSON"):
        augment.run(Settings(moved, out, settings.config, copies=2, device="cpu"))


def test_a_manifest_of_an_earlier_version(source: Path, tmp_path: Path) -> None:
    """One that has a setting by an older name is of the same settings, and its copies can be made again."""
    out = tmp_path / "out"
    settings = Settings(source, out, prime_dali.preset("imagenet"), copies=1, device="cpu", workers=1)
    augment.run(settings)
    manifest = out / "manifest.json"
    assert "spatial_distribution" in manifest.read_text()
    manifest.write_text(manifest.read_text().replace("spatial_distribution", "spatial_law"))
    augment.run(settings)
    np.testing.assert_array_equal(augment.remake(out / "cat" / "a b-0.png"), pixels(out / "cat" / "a b-0.png"))


def test_sources_that_changed(source: Path, tmp_path: Path) -> None:
    """Of the same names and sizes; other times alone, as of a folder that was copied, are no change."""
    out = tmp_path / "out"
    settings = Settings(source, out, prime_dali.preset("imagenet"), copies=1, device="cpu", workers=1)
    augment.run(settings)
    whole, photo = files(out), source / "dog" / "z.0.bmp"
    before = photo.read_bytes()
    os.utime(photo, ns=(1, 1))
    augment.run(settings)
    assert {name: content for name, content in files(out).items() if name != "files.jsonl"} == {
        name: content for name, content in whole.items() if name != "files.jsonl"
    }
    stamp = [line["source_stamp"] for line in lines(out) if line["source"] == "dog/z.0.bmp"]
    assert stamp == [[len(before), 1, photo.stat().st_ctime_ns]]
    photo.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    os.utime(photo, ns=(1, 1))  # as rsync --times does
    with pytest.raises(
        ValueError, match=r"z.0.bmp: expected the file that dog/z.0-0.png was made from, .* has changed"
    ):
        augment.run(settings)
    photo.write_bytes(before)
    augment.run(settings)


@pytest.mark.parametrize("whole", [True, False])
def test_a_destination_that_vanishes(
    whole: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, bar = tmp_path / "out", destinations.Bar

    def vanish(*arguments: Any, **facts: Any) -> Any:
        shutil.rmtree(out)
        if not whole:
            out.mkdir()
        return bar(*arguments, **facts)

    write_cifar(tmp_path / "cifar", 10, tiles(20), np.arange(20) % 10)
    monkeypatch.setattr(destinations, "Bar", vanish)
    for arguments in ([str(source)], [str(tmp_path / "cifar"), "--cifar", "10"]):
        command = ["augment", *arguments, str(out), "--copies", "1", "--workers", "1", "--device", "cpu"]
        assert cli.main(command) == 1
        assert not (out / "cat" / "a b-0.png").exists() or not whole
        shutil.rmtree(out, ignore_errors=True)


def test_a_destination_that_vanishes_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for change in (lambda: shutil.rmtree(out), lambda: (shutil.rmtree(out), out.mkdir()),
                   lambda: (out / "manifest.json").unlink()):  # fmt: skip
        with pytest.raises(RuntimeError, match=f"{out}: expected the f.*removed"):  # noqa: SIM117
            with destinations.filling(out, {"source": {"path": ""}}, "augment"):
                change()
        shutil.rmtree(out, ignore_errors=True)


def test_a_killed_run_leaves_whole_files_and_goes_on(tmp_path: Path) -> None:
    source, out = tmp_path / "photos", tmp_path / "out"
    source.mkdir()
    for i, image in enumerate(tiles(60)):
        Image.fromarray(image).resize((96, 96)).save(source / f"{i:02d}.png")
    command = [*COMMAND, str(source), str(out), "--copies", "3", "--workers", "2", "--device", "cpu"]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while len(list(out.glob("*.png"))) < 20:
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    time.sleep(0.5)  # workers notice that their parent is gone
    names = sorted(p.name for p in out.glob("*.png"))
    assert 20 <= len(names) < 180
    assert len(lines(out)) < 180
    for name in names:
        assert pixels(out / name).shape == (96, 96, 3)
    subprocess.run(command, stderr=subprocess.DEVNULL, check=True)
    assert len(lines(out)) == len({line["file"] for line in lines(out)}) == 180
    for line in lines(out)[::17]:
        clean = pixels(source / line["source"])
        np.testing.assert_array_equal(pixels(out / line["file"]), augmented(clean, line["number"], line["copy"]))


def test_a_full_disk(source: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: a write ends in the middle."""
    before, out = files(source), tmp_path / "out"
    Image.fromarray(astronaut()).save(source / "cat" / "big.png")
    command = [*COMMAND, str(source), str(out), "--copies", "1", "--workers", "1", "--device", "cpu"]
    limit = 100_000
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert f"{out / 'cat' / 'big-0.png'}: file too large" in done.stderr
    assert not (out / "cat" / "big-0.png").exists()
    assert not (out / ".unfinished").exists()
    subprocess.run(command, capture_output=True, check=True)
    np.testing.assert_array_equal(pixels(out / "cat" / "big-0.png"), augmented(astronaut(), 1, 0))
    assert len(list(out.rglob("*.png"))) == 5
    assert {name: content for name, content in files(source).items() if name in before} == before
