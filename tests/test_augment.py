"""``prime-dali augment``: the copies that it makes, goes on with, makes again and refuses."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_gpu
from PIL import Image, ImageOps
from skimage.data import astronaut
from test_corruptions import tiles

import prime_dali
from prime_dali import cli
from prime_dali.data import jobs
from prime_dali.data.cifar import read_cifar
from prime_dali.data.pictures import read_photo
from prime_dali.tools import augment
from prime_dali.tools.augment import Settings

COMMAND = [sys.executable, "-c", "import sys; from prime_dali.cli import main; sys.exit(main(sys.argv[1:]))", "augment"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Four pictures of several kinds and sizes; their numbers are 0 to 3, in this order."""
    folder = tmp_path / "photos"
    (folder / "cat" / "deep").mkdir(parents=True)
    (folder / "dog").mkdir()
    picture = Image.fromarray(astronaut())
    picture.resize((60, 40)).save(folder / "cat" / "a b.JPEG", quality=95)
    picture.convert("L").resize((33, 47)).save(folder / "cat" / "deep" / "gray.png")
    picture.convert("CMYK").resize((40, 40)).save(folder / "dog" / "a b.jpg")
    picture.resize((24, 8)).save(folder / "dog" / "z.0.bmp")
    (folder / "dog" / "notes.txt").write_text("no picture")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "files.jsonl").read_text("utf-8").splitlines()]


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def augmented(image: np.ndarray, number: int, copy: int, seed: int = 0, preset: str = "imagenet") -> np.ndarray:
    """By the public functions alone."""
    plan = prime_dali.sample(preset, np.array([number]), size=image.shape[:2], seed=seed, epoch=copy)
    return prime_dali.arrays.apply(image[None], plan, layout="NHWC")[0]


def test_copies_of_a_folder(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before, out = files(source), tmp_path / "deep" / "out"
    command = ["augment", str(source), str(out), "--copies", "2", "--seed", "5", "--workers", "2", "--device", "cpu"]
    assert cli.main(command) == 0
    bar = capsys.readouterr().err
    assert "8/8" in bar
    assert "image/s" in bar
    photos = ["cat/a b.JPEG", "cat/deep/gray.png", "dog/a b.jpg", "dog/z.0.bmp"]
    expected = {f"{os.path.splitext(photo)[0]}-{copy}.png" for photo in photos for copy in (0, 1)}
    assert files(out).keys() == expected | {"manifest.json", "files.jsonl"}
    assert not (out / ".unfinished").exists()
    for number, photo in enumerate(photos):
        clean = pixels(source / photo)
        for copy in (0, 1):
            made = pixels(out / f"{os.path.splitext(photo)[0]}-{copy}.png")
            np.testing.assert_array_equal(made, augmented(clean, number, copy, seed=5))

    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["seed"], manifest["copies"], manifest["source"]["path"]) == (5, 2, str(source))
    assert prime_dali.PrimeConfig(**manifest["config"]) == prime_dali.preset("imagenet")
    assert [line["file"] for line in lines(out)] == [
        f"{os.path.splitext(photo)[0]}-{copy}.png" for photo in photos for copy in (0, 1)
    ]
    line = lines(out)[3]
    assert (line["source"], line["number"], line["copy"]) == ("cat/deep/gray.png", 1, 1)
    assert (line["height"], line["width"]) == (47, 33)
    plan = prime_dali.sample("imagenet", np.array([1]), size=(47, 33), seed=5, epoch=1)
    assert line["plan"] == plan.describe(0).splitlines()

    made = files(out)
    for name in sorted(expected):
        np.testing.assert_array_equal(augment.remake(out / name), pixels(out / name))
    again = tmp_path / "again.png"
    (out / "dog" / "z.0-1.png").unlink()
    assert cli.main(["augment", "--remake", str(out / "dog" / "z.0-1.png"), str(again)]) == 0
    assert again.read_bytes() == made["dog/z.0-1.png"]
    assert cli.main(["augment", "--remake", str(out / "dog" / "z.0-0.png"), str(again)]) == 1
    assert f"{again}: expected a name that does not exist yet" in capsys.readouterr().err
    assert again.read_bytes() == made["dog/z.0-1.png"]
    with pytest.raises(SystemExit):
        cli.main(["augment", "--remake", str(out / "dog" / "z.0-1.png"), str(again), "--on-error", "skip"])
    assert "argument --remake: expected SRC and DST alone, got --on-error" in capsys.readouterr().err
    assert files(source) == before


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
    out, bar = tmp_path / "out", jobs.bar

    def vanish(*arguments: Any) -> Any:
        shutil.rmtree(out)
        if not whole:
            out.mkdir()
        return bar(*arguments)

    write_cifar(tmp_path / "cifar", 10, tiles(20), np.arange(20) % 10)
    monkeypatch.setattr(jobs, "bar", vanish)
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
            with jobs.destination(out, {"source": {"path": ""}}, "augment"):
                change()
        shutil.rmtree(out, ignore_errors=True)


def test_remake_reads_nothing_outside_of_the_source(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    augment.run(Settings(source, out, prime_dali.preset("imagenet"), copies=1, device="cpu", workers=1))
    secret = tmp_path / "secret.png"
    Image.new("RGB", (20, 20)).save(secret)
    text = (out / "files.jsonl").read_text("utf-8")
    for name in ("../secret.png", str(secret), "dog/../../secret.png"):
        (out / "files.jsonl").write_text(text.replace('"dog/z.0.bmp"', json.dumps(name)), "utf-8")
        for call in (lambda: augment.remake(out / "dog" / "z.0-0.png"), lambda: augment.run(
            Settings(source, out, prime_dali.preset("imagenet"), copies=1, device="cpu", workers=1)
        )):  # fmt: skip
            with pytest.raises(ValueError, match=rf"files.jsonl: expected the name of an image in {source}, got"):
                call()


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
    assert f"File too large: '{out / 'cat' / 'big-0.png'}'" in done.stderr
    assert not (out / "cat" / "big-0.png").exists()
    assert not (out / ".unfinished").exists()
    subprocess.run(command, capture_output=True, check=True)
    np.testing.assert_array_equal(pixels(out / "cat" / "big-0.png"), augmented(astronaut(), 1, 0))
    assert len(list(out.rglob("*.png"))) == 5
    assert {name: content for name, content in files(source).items() if name in before} == before


def test_jpeg_size_and_orientation(source: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif[0x010F] = "maker"
    Image.fromarray(astronaut()).resize((80, 50)).save(source / "cat" / "turned.jpg", exif=exif)
    out = tmp_path / "out"
    command = ["augment", str(source), str(out), "--copies", "1", "--size", "32", "--format", "jpeg", "--quality", "60"]
    assert cli.main([*command, "--alpha", "0", "--workers", "1", "--device", "cpu"]) == 0
    assert sorted(p.name for p in out.rglob("*.jpg")) == ["a b-0.jpg", "a b-0.jpg", "gray-0.jpg", "turned-0.jpg", "z.0-0.jpg"]  # fmt: skip
    expected = tmp_path / "expected.jpg"
    Image.fromarray(read_photo(source / "dog" / "a b.jpg", 32)).save(expected, quality=60)
    assert (out / "dog" / "a b-0.jpg").read_bytes() == expected.read_bytes()
    Image.fromarray(read_photo(source / "cat" / "turned.jpg", 32)).save(expected, quality=60)
    assert (out / "cat" / "turned-0.jpg").read_bytes() == expected.read_bytes()
    with Image.open(expected) as upright, Image.open(source / "cat" / "turned.jpg") as lying:
        assert dict(upright.getexif()) == {}
        turned = ImageOps.fit(lying.transpose(Image.Transpose.ROTATE_270), (32, 32), Image.Resampling.BICUBIC)
        assert np.abs(np.asarray(upright).astype(int) - turned).mean() < 12  # 40 and more if it is not turned
    again = tmp_path / "again.jpg"
    assert cli.main(["augment", "--remake", str(out / "cat" / "turned-0.jpg"), str(again)]) == 0
    assert again.read_bytes() == (out / "cat" / "turned-0.jpg").read_bytes()


def test_a_tiff_is_turned_once(source: Path, tmp_path: Path) -> None:
    """Pillow turns the pixels of a TIFF file as it loads it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(astronaut()).resize((80, 50)).save(source / "cat" / "turned.tif", exif=exif)
    out = tmp_path / "out"
    command = ["augment", str(source), str(out), "--copies", "1", "--alpha", "0", "--workers", "1", "--device", "cpu"]
    assert cli.main(command) == 0
    with Image.open(out / "cat" / "turned-0.png") as image:
        assert image.size == (50, 80)
        assert 0x0112 not in image.getexif()


def test_sixteen_bits_are_refused(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    Image.fromarray(np.linspace(0, 65535, 40 * 40).reshape(40, 40).astype(np.uint16)).save(source / "cat" / "deep.png")
    assert cli.main(["augment", str(source), str(tmp_path / "out"), "--copies", "1", "--device", "cpu"]) == 1
    assert (
        "deep.png: not a readable image (expected 8 bits per channel, got 16; convert it to 8 bits)"
        in capsys.readouterr().err
    )


def write_cifar(folder: Path, classes: int, images: np.ndarray, labels: np.ndarray) -> Path:
    """Class folders: what read_cifar takes for any number of classes."""
    for part, count in (("train", len(images)), ("test", 4)):
        for i in range(classes):
            (folder / part / f"kind{i:02d}").mkdir(parents=True, exist_ok=True)
        for i, (image, label) in enumerate(zip(images[:count], labels, strict=False)):
            Image.fromarray(image).save(folder / part / f"kind{label:02d}" / f"{i:03d}.png")
    return folder


@pytest.mark.parametrize(("classes", "names"), [
    (10, [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt"]),
    (100, ["train.bin", "test.bin", "fine_label_names.txt"]),
])  # fmt: skip
def test_cifar(classes: int, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prime_dali.tools.augment._copies, "_BATCH", 3)
    source = write_cifar(tmp_path / "cifar", classes, tiles(23), np.arange(23) % 7)
    out = tmp_path / "out"
    command = [str(source), str(out), "--cifar", str(classes), "--copies", "2", "--seed", "3", "--device", "cpu"]
    augment.main(command)
    assert files(out).keys() == {*names, "manifest.json", "files.jsonl"}
    train, made = read_cifar(source, classes, train=True), read_cifar(out, classes, train=True)
    assert made.classes == train.classes
    assert len(made.images) == 3 * 23
    at = 0
    for line in lines(out):
        count, first = line["records"] // 3, line["first_number"]
        for copy in (None, 0, 1):
            for number in range(first, first + count):
                clean = train.images[number]
                expected = clean if copy is None else augmented(clean, number, copy, seed=3, preset="cifar")
                np.testing.assert_array_equal(made.images[at], expected)
                assert made.labels[at] == train.labels[number]
                at += 1
    assert at == 3 * 23
    test, kept = read_cifar(source, classes, train=False), read_cifar(out, classes, train=False)
    np.testing.assert_array_equal(kept.images, test.images)
    np.testing.assert_array_equal(kept.labels, test.labels)

    text = (out / "files.jsonl").read_text()
    for wrong in ({"records": 7}, {"first_number": 10**9}):
        (out / "files.jsonl").write_text(json.dumps({**lines(out)[0], **wrong}) + "\n")
        with pytest.raises(ValueError, match=f"files.jsonl: expected {names[0]} to hold 2 copies of some of 23 images"):
            augment.remake(f"{out / names[0]}:0")
        (out / "files.jsonl").write_text(text)
    for record in (0, 3, lines(out)[0]["records"] - 1):
        np.testing.assert_array_equal(augment.remake(f"{out / names[0]}:{record}"), made.images[record])
    for wrong in ("", f":{lines(out)[0]['records']}", ":-1"):
        with pytest.raises(ValueError, match=f"file: expected {out / names[0]}:RECORD, RECORD from 0 to"):
            augment.remake(f"{out / names[0]}{wrong}")

    before = files(out)
    (out / names[0]).unlink()
    augment.main(command)
    assert {k: v for k, v in files(out).items() if k != "files.jsonl"} == {
        k: v for k, v in before.items() if k != "files.jsonl"
    }


@needs_gpu
def test_on_a_gpu(source: Path, tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        augment.run(Settings(source, tmp_path / device, prime_dali.preset("imagenet"), copies=1, device=device))
    for path in (tmp_path / "cpu").rglob("*.png"):
        other = pixels(tmp_path / "cuda" / path.relative_to(tmp_path / "cpu"))
        assert np.mean(np.abs(pixels(path).astype(int) - other)) < 0.5  # docs/METHOD.md, "Precision on a GPU"
        np.testing.assert_array_equal(augment.remake(tmp_path / "cuda" / path.relative_to(tmp_path / "cpu")), other)


def test_refuses_other_settings(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    command = ["augment", str(source), str(out), "--copies", "1", "--size", "16", "--workers", "1", "--device", "cpu"]
    assert cli.main(command) == 1
    assert "expected a new or empty folder, or one with a manifest.json" in capsys.readouterr().err
    (out / "notes.txt").unlink()
    assert cli.main(command) == 0
    before = files(out)
    for change, message in (
        (["--seed", "1"], "made with other settings: seed: expected 0, got 1"),
        (["--copies", "2"], "made with other settings: copies: expected 1, got 2"),
        (["--size", "17"], "size: expected 16, got 17"),
        (["--alpha", "2"], "config: expected"),
        (["--format", "jpeg"], "format: expected png, got jpeg"),
    ):
        capsys.readouterr()
        assert cli.main([*command, *change]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    (source / "cat" / "a b.JPEG").unlink()
    assert cli.main(command) == 1
    assert "made with other settings: source: expected" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=r"a b.JPEG"):
        augment.remake(out / "cat" / "a b-0.png")
    Image.new("RGB", (20, 20)).save(source / "dog" / "a b.jpg")
    with pytest.raises(ValueError, match=r"dog/a b.jpg: expected the file that .*dog/a b-0.png was made from"):
        augment.remake(out / "dog" / "a b-0.png")
    with pytest.raises(ValueError, match=r"files.jsonl: expected a line for cat/none.png, found none"):
        augment.remake(out / "cat" / "none.png")
    with pytest.raises(FileNotFoundError, match=r"expected a folder above it with files.jsonl"):
        augment.remake(source / "dog" / "a b.jpg")
    assert files(out) == before


@pytest.mark.parametrize(("arguments", "message"), [
    (["--copies", "0"], "copies: expected 1 to 10000, got 0"),
    (["--workers", "0"], "workers: expected 1 to 4096, got 0"),
    (["--quality", "90"], "quality: expected only with the format jpeg, got 90 with png"),
    (["--format", "jpeg", "--quality", "101"], "quality: expected 1 to 100, got 101"),
    (["--cifar", "10", "--size", "32"], "cifar: expected no size, the format png and on_error fail"),
    (["--cifar", "10"], "photos: expected CIFAR-10 as one of"),
    (["--alpha", "-1"], "alpha: expected a finite number >= 0"),
])  # fmt: skip
def test_bad_settings(
    arguments: list[str], message: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = ["augment", str(source), str(tmp_path / "out"), "--copies", "1", "--device", "cpu"]
    assert cli.main([*command, *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_bad_usage(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for arguments in (["--copies", "x"], [], ["--copies", "1", "--format", "gif"]):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["augment", str(source), str(tmp_path / "out"), *arguments])
        assert stopped.value.code == 2
    assert "the following arguments are required: --copies" in capsys.readouterr().err


def test_bad_folders(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def refused(message: str, *arguments: str, out: Path = tmp_path / "out", photos: Path = source) -> None:
        command = ["augment", str(photos), str(out), "--copies", "1", "--workers", "1", "--device", "cpu"]
        assert cli.main([*command, *arguments]) == 1
        error = capsys.readouterr().err
        assert message in error.splitlines()[-1]
        assert not (tmp_path / "out").exists()

    before = files(source)
    refused("none: expected a folder of images, found none", photos=tmp_path / "none")
    for out in (source, source / "out", tmp_path):
        refused(f"destination: expected a folder beside the source {source}", out=out)
    (tmp_path / "file").touch()
    refused(f"File exists: '{tmp_path / 'file'}'", out=tmp_path / "file")
    refused(f"Not a directory: '{tmp_path / 'file' / 'out'}'", out=tmp_path / "file" / "out")
    assert files(source) == before

    (source / "dog" / "link").symlink_to(source)
    refused("dog/link: expected no link to a folder that it lies in")
    (source / "dog" / "link").unlink()
    (source / "empty").mkdir()
    refused(f"{source / 'empty'}: expected images (.jpg")
    refused(f"{source / 'empty'}: expected images (.jpg", "--on-error", "skip", photos=source / "empty")
    (source / "empty").rmdir()
    Image.new("RGB", (9, 9)).save(source / "dog" / "a b.png")
    refused(
        "whose files have names that differ, got dog/a b.jpg and dog/a b.png, which both become dog/a b; rename one"
    )


def test_a_picture_that_cannot_be_used(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    Image.new("RGB", (7, 30)).save(source / "cat" / "small.png")
    broken = source / "dog" / "broken.jpg"
    broken.write_bytes((source / "dog" / "a b.jpg").read_bytes()[:300])
    (source / "empty").mkdir()
    out = tmp_path / "out"
    command = ["augment", str(source), str(out), "--copies", "2", "--workers", "1", "--device", "cpu"]
    assert cli.main(command) == 1
    assert not out.exists()
    assert cli.main([*command, "--on-error", "skip"]) == 0
    printed = capsys.readouterr().out
    small = f"{source / 'cat' / 'small.png'}: expected sides of 8 to 4096 pixels, got 30 x 7; --size resizes"
    assert f"skipped {small}" in printed
    assert f"skipped {broken}: not a readable image" in printed
    assert f"skipped {source / 'empty'}: expected images" in printed
    assert "skipped 2 of 6 files" in printed
    assert len(lines(out)) == 8
    (source / "empty").rmdir()
    assert cli.main(command) == 1
    assert small in capsys.readouterr().err
