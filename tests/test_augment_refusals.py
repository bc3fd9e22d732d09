"""``prime-dali augment``: settings, folders and pictures that it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import augmenting
import pytest
from augmenting import files, lines
from PIL import Image

from prime_dali import cli
from prime_dali.tools import augment

source = augmenting.source  # fixtures


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
        (["--alpha", "2"], "config: expected {'alpha': 1.0}, got {'alpha': 2.0}; go on with those"),
        (["--format", "jpeg"], "format: expected png, got jpeg"),
    ):
        capsys.readouterr()
        assert cli.main([*command, *change]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    (source / "cat" / "a b.JPEG").unlink()
    assert cli.main(command) == 1
    message = r"made with other settings: source: expected 4 images of SHA-256 \w{8}, got 3 images of SHA-256 \w{8};"
    assert re.search(message, capsys.readouterr().err)
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
    (["--quality", "90"], "quality: expected only with the format jpeg, got 90 with png"),
    (["--format", "jpeg", "--quality", "101"], "quality: expected 1 to 100, got 101"),
    (["--cifar", "10", "--size", "32"], "cifar: expected no size, the format png and on_error raise"),
    (["--cifar", "10"], "photos: expected CIFAR-10, as cifar-"),
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
        assert cli.main(["augment", str(source), str(tmp_path / "out"), *arguments]) == 2
        if not arguments:
            assert "--copies: required, but not given" in capsys.readouterr().err


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
    refused("destination: expected a folder to fill, got", out=tmp_path / "copies.tar")
    (tmp_path / "file").touch()
    refused(f"{tmp_path / 'file'}: expected a folder, got a file", out=tmp_path / "file")
    refused(
        f"{tmp_path / 'file' / 'out'}: expected its parent to be a folder, got a file", out=tmp_path / "file" / "out"
    )
    assert files(source) == before

    (source / "dog" / "link").symlink_to(source)
    refused("dog/link: expected no link to a folder that it lies in")
    (source / "dog" / "link").unlink()
    (source / "empty").mkdir()
    refused(f"{source / 'empty'}: expected images (.jpg")
    refused(f"{source / 'empty'}: expected images (.jpg", "--on-error", "skip", photos=source / "empty")
    (source / "empty").rmdir()
    for name in ("a b.png", "a b.jpg.png"):
        Image.new("RGB", (9, 9)).save(source / "dog" / name)
    refused(
        f"{source}: expected pictures of which files with different names are made, got dog/a b.jpg and "
        "dog/a b.jpg.png, which both become dog/a b.jpg; rename one"
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
