"""``prime-dali augment``: the copies that it makes, and makes again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import augmenting
import numpy as np
import pytest
from augmenting import augmented, files, lines, pixels, write_cifar
from conftest import needs_gpu
from PIL import Image, ImageOps
from skimage.data import astronaut
from test_corruptions import tiles

import prime_dali
from prime_dali import cli
from prime_dali.data.cifar import read_cifar
from prime_dali.data.pictures import read_photo
from prime_dali.tools import augment
from prime_dali.tools.augment import Settings

source = augmenting.source  # fixtures


def test_pictures_that_differ_in_their_suffix_alone(source: Path, tmp_path: Path) -> None:
    """Their copies have it in their names; those of others are called as they would be without these."""
    Image.new("RGB", (9, 9)).save(source / "dog" / "a b.png")
    command = ["augment", str(source), str(tmp_path / "out"), "--copies", "2", "--workers", "1", "--device", "cpu"]
    for shard in (["--shard", "0/2"], ["--shard", "1/2"], ["--join"]):
        assert cli.main([*command, *shard]) == 0
    names = ["cat/a b", "cat/deep/gray", "dog/a b.jpg", "dog/a b.png", "dog/z.0"]
    assert [line["file"] for line in lines(tmp_path / "out")] == [f"{n}-{k}.png" for n in names for k in (0, 1)]
    for number, name in ((2, "a b.jpg"), (3, "a b.png")):
        file = tmp_path / "out" / "dog" / f"{name}-1.png"
        np.testing.assert_array_equal(pixels(file), augmented(pixels(source / "dog" / name), number, 1))
        np.testing.assert_array_equal(augment.remake(file), pixels(file))


def test_copies_of_a_folder(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before, out = files(source), tmp_path / "deep" / "out"
    command = ["augment", str(source), str(out), "--copies", "2", "--seed", "5", "--workers", "2", "--device", "cpu"]
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert re.search(r"^augment: 8 images done in .* per (second|image)$", said, re.M)
    assert f"data    {source}, 4 images\n" in said
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
    assert cli.main(["augment", "--remake", str(out / "dog" / "z.0-1.png"), str(again), "--on-error", "skip"]) == 2
    assert "--remake: expected SRC and DST alone, got --on-error" in capsys.readouterr().err
    assert files(source) == before


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


def test_the_largest_seed(tmp_path: Path) -> None:
    """That of training, which draws the same with it."""
    (tmp_path / "a").mkdir()
    Image.fromarray(tiles(1)[0]).save(tmp_path / "a" / "b.png")
    words = ["--copies", "1", "--seed", str(2**63 - 1), "--workers", "1", "--device", "cpu"]
    assert cli.main(["augment", str(tmp_path / "a"), str(tmp_path / "out"), *words]) == 0
    drawn = prime_dali.sample("imagenet", np.arange(1), size=(32, 32), seed=2**63 - 1, epoch=0)
    expected = prime_dali.arrays.apply(tiles(1)[:1], drawn, layout="NHWC")[0]
    np.testing.assert_array_equal(pixels(tmp_path / "out" / "b-0.png"), expected)
    np.testing.assert_array_equal(augment.remake(tmp_path / "out" / "b-0.png"), expected)
    assert cli.parser("demo").parse_args(["--seed", str(2**63 - 1)]).seed == 2**63 - 1


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


@pytest.mark.parametrize(("classes", "names"), [
    (10, [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt"]),
    (100, ["train.bin", "test.bin", "fine_label_names.txt"]),
])  # fmt: skip
def test_cifar(classes: int, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prime_dali.tools.augment._copies, "_BATCH", 3)
    total = max(23, classes)  # every class has an image
    source = write_cifar(
        tmp_path / "cifar", classes, np.resize(tiles(64), (total, 32, 32, 3)), np.arange(total) % classes
    )
    out = tmp_path / "out"
    command = [str(source), str(out), "--cifar", str(classes), "--copies", "2", "--seed", "3", "--device", "cpu"]
    augment.main(command)
    assert files(out).keys() == {*names, "manifest.json", "files.jsonl"}
    train, made = read_cifar(source, classes, train=True), read_cifar(out, classes, train=True)
    assert made.classes == train.classes
    assert len(made.images) == 3 * total
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
    assert at == 3 * total
    test, kept = read_cifar(source, classes, train=False), read_cifar(out, classes, train=False)
    np.testing.assert_array_equal(kept.images, test.images)
    np.testing.assert_array_equal(kept.labels, test.labels)

    text = (out / "files.jsonl").read_text()
    for wrong in ({"records": 7}, {"first_number": 10**9}):
        (out / "files.jsonl").write_text(json.dumps({**lines(out)[0], **wrong}) + "\n")
        with pytest.raises(
            ValueError, match=f"files.jsonl: expected {names[0]} to hold 2 copies of some of {total} images"
        ):
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
