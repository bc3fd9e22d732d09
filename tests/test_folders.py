"""One walk of folders: what every command takes for a class and for a picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prime_dali import cli
from prime_dali.data import folders
from prime_dali.data.cifar import read_cifar
from prime_dali.evaluation.photographs import open_photographs

SMALL = Image.fromarray(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3))


def names(folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in folders.pictures(folder)]


def test_hidden_is_no_picture_and_no_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Other files that are left out are counted in one message."""
    for name in (".ipynb_checkpoints/x.png", ".x.png", "cat/._x.png", "cat/x.PNG", "cat/.deep/x.png", "dog/a/x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        SMALL.save(tmp_path / name)
    for name in ("notes.txt", "cat/a.gif", "dog/B.GIF", "dog/a/README"):
        (tmp_path / name).touch()
    assert folders.class_folders(tmp_path) == ["cat", "dog"]
    assert names(tmp_path) == ["cat/x.PNG", "dog/a/x.png"]
    assert list(map(str, open_photographs(tmp_path).names)) == ["cat/x.PNG", "dog/a/x.png"]
    left = "left out 3 files: 2 .gif, 1 without an ending; images end in .jpg, .jpeg"
    assert [message.startswith(f"{tmp_path}: {left}") for message in caplog.messages] == [False, True]
    assert caplog.messages[0].startswith(f"{tmp_path}: left out 4 files: 2 .gif, 1 without an ending, 1 .txt; images")
    (tmp_path / "cat" / "x.PNG").unlink()
    with pytest.raises(ValueError, match=r"expected images \(.*\) of each class, got 1 .gif in .*cat"):
        open_photographs(tmp_path)


def test_the_parts_of_a_data_set_are_no_classes(tmp_path: Path) -> None:
    """A folder of images is a class, whatever its name."""
    for part in ("train", "val"):
        (tmp_path / part / "cat").mkdir(parents=True)
        (tmp_path / part / "cat" / "0.png").touch()
    message = (
        "expected one subfolder per class, got the parts of a data set, train, val, which have class folders; give"
    )
    for function in (folders.image_folder, open_photographs):
        with pytest.raises(ValueError, match=rf"{message} .*train or .*val$"):
            function(tmp_path)
    assert folders.image_folder(tmp_path / "val")[2] == ["cat"]
    for part in ("train", "val"):
        (tmp_path / part / "0.png").touch()
    assert folders.image_folder(tmp_path)[2] == ["train", "val"]


def test_hidden_folders_are_no_classes_of_cifar(tmp_path: Path) -> None:
    for i in range(10):
        for part in ("train", "test"):
            (tmp_path / part / f"c{i}").mkdir(parents=True)
            Image.new("RGB", (32, 32), (i, i, i)).save(tmp_path / part / f"c{i}" / "x.png")
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "train" / "c3" / ".ipynb_checkpoints").mkdir()
    SMALL.save(tmp_path / "train" / "c3" / ".ipynb_checkpoints" / "x-checkpoint.png")
    data = read_cifar(tmp_path, 10, train=True)
    assert data.images[:, 0, 0, 0].tolist() == data.labels.tolist() == list(range(10))


def test_links(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "elsewhere" / "more.jpg").mkdir(parents=True)
    SMALL.save(tmp_path / "elsewhere" / "more.jpg" / "x.png")
    (tmp_path / "photos" / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "b").symlink_to(tmp_path / "elsewhere")
    photos = tmp_path / "photos"
    assert folders.class_folders(photos) == ["a", "b"]
    assert names(photos) == ["a/linked/more.jpg/x.png", "b/more.jpg/x.png"]
    (tmp_path / "elsewhere" / "back").symlink_to(photos)
    (tmp_path / "elsewhere" / "again").symlink_to(photos)
    with pytest.raises(ValueError, match="expected no link to a folder that it lies in, got one to"):
        names(photos)
    assert cli.main(["gallery", str(photos), "--out", str(tmp_path / "o.png")]) == 1
    (photos / "c").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="photos/c: expected a folder or file, got a dangling link"):
        folders.class_folders(photos)
    assert cli.main(["augment", str(photos), str(tmp_path / "copies"), "--copies", "1"]) == 1
    assert "photos/c: expected a folder or file, got a dangling link" in capsys.readouterr().err
    (photos / "c").rename(photos / "c.jpg")  # a picture that is gone
    assert folders.class_folders(photos) == ["a", "b"]


def test_names_of_classes_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes(b"\xef\xbb\xbfd\xf6g\r\nwhite shark\r\n\r\n")  # as other systems and editors write it
    assert folders.names_in(path) == ("d\udcf6g", "white shark")
    path.write_text("a\n \nb\x1cc")
    assert folders.names_in(path) == ("a", "", "b\x1cc")
    for text in ("dog\ncat \nowl", " dog", "dog\t"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"names.txt: expected names of classes without spaces around them, got '"):
            folders.names_in(path)
