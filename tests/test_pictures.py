"""One way to look at a picture: what every command reads, refuses and skips."""

from __future__ import annotations

import io
import os
import socket
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prime_dali import cli
from prime_dali.data import folders as _folders
from prime_dali.data import pictures as _pictures
from prime_dali.data.pictures import PhotoError, open_picture
from prime_dali.evaluation.photographs import open_photographs, read_224

# Damaged files that decoders answer with exceptions of all kinds; the names say of which.


def avif() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(file, "AVIF")
    data = bytearray(file.getvalue())
    data[81] = 255
    return bytes(data)


def tiff(*tags: tuple[int, int, int, int], order: str = "<", end: bytes = b"") -> bytes:
    """A TIFF file, or an EXIF block, of (tag, type, count, value), the value being 4 bytes."""
    entries = b"".join(struct.pack(order + "HHII", *tag) for tag in tags)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(tags))
    return head + entries + bytes(4) + end


def png(depth: int, kind: int, row: bytes) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, depth, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress((b"\0" + row) * 8)) + chunk(b"IEND", b"")


def saved(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


SMALL = Image.fromarray(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3))
SHORTS = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A class with one good picture, and everything that is no picture and has the name of one."""
    folder = tmp_path / "photos" / "cls"
    folder.mkdir(parents=True)
    Image.new("RGB", (40, 40), (9, 99, 199)).save(folder / "good.png")
    (folder / "gone.jpg").symlink_to("/nowhere.jpg")
    (folder / "round.jpg").symlink_to("round.jpg")
    (folder / "no\ntext \udce9.jpg").write_bytes(b"x")
    (folder / "empty.jpg").touch()
    (folder / "avif.jpg").write_bytes(avif())
    (folder / "floats.tif").write_bytes(saved(Image.fromarray(np.ones((40, 40), np.float32)), "TIFF"))
    (folder / ("a" * 251 + ".png")).write_bytes(saved(Image.new("P", (40, 40)), "PNG"))
    os.mkfifo(folder / "pipe.jpg")
    (folder / "linked.jpg").symlink_to("pipe.jpg")
    (folder / "device.jpg").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(folder, os.O_RDONLY)  # names of sockets are short
        server.bind(f"/proc/self/fd/{here}/socket.jpg")
        yield tmp_path / "photos"
    os.close(here)


BAD = 10  # pictures of the tree that no command can use; and one that augment and corrupt have no name for


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["augment", "corrupt", "gallery"])
def test_skipped_pictures(command: str, tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    arguments = {
        "augment": [str(tree), str(out), "--copies", "1", "--workers", "1", "--device", "cpu"],
        "corrupt": ["imagenet", str(tree), str(out), "--only", "brightness", "--severities", "1", "--workers", "1"],
        "gallery": [str(tree), "--out", str(out / "o.png"), "--figure", "pairs", "--size", "32"],
    }[command]
    if command == "gallery":
        assert cli.main([command, *arguments]) == 1
        assert capfd.readouterr().err.startswith(f"prime-dali {command}: {BAD} images cannot be used: {tree}/cls/")
    assert cli.main([command, *arguments, "--on-error", "skip"]) == 0
    printed = capfd.readouterr().out
    printed.encode("ascii")
    bad = BAD if command == "gallery" else BAD + 1
    assert f"skipped {bad} of 12 files" in printed
    assert printed.count("skipped ") == bad + 1
    assert f"skipped {tree}/cls/no\\ntext \\xe9.jpg: not a readable image (" in printed
    for name, why in (("pipe", "a pipe, a socket or a device"), ("device", "a pipe, a socket or a device")):
        assert f"{name}.jpg: not a readable image (expected a file, got {why})" in printed
    assert ("bytes, more than 255" in printed) == (command != "gallery")
    made = [path for path in out.rglob("*") if path.suffix in (".png", ".JPEG")]
    assert len(made) == 1


def test_the_page_shows_names_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "\udce9.png")
    page = tmp_path / "page.html"
    assert cli.main(["gallery", str(folder), "--html", str(page), "--size", "8", "--details", "0"]) == 0
    assert "\\xe9.png" in page.read_text("utf-8")


@pytest.mark.parametrize("error", [
    RuntimeError("Invalid image grid"), MemoryError(), TypeError("bad operand"), struct.error("argument out of range"),
    ZeroDivisionError(), IndexError("x"), EOFError(), Image.DecompressionBombError("large"), RecursionError(),
    OSError(5, "Input/output error"),
])  # fmt: skip
def test_every_failure_of_a_decoder_is_one_of_the_picture(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    SMALL.save(path)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail)
    for read in (open_picture, read_224):
        with pytest.raises(PhotoError, match=rf"{path}: not a readable image \(.+\)"):
            read(path)


def test_photographs_of_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow warns of those above its limit, and refuses those above twice that."""
    for side in (14, 15):
        Image.new("RGB", (side, side)).save(tmp_path / f"{side}.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with warnings.catch_warnings(record=True) as said:
        warnings.resetwarnings()
        _pictures._pillow.cache_clear()
        assert open_picture(tmp_path / "14.png").size == (14, 14)
    assert not said
    with pytest.raises(
        PhotoError, match=r"15.png: not a readable image \(expected at most 200 pixels, .* got 225; make it"
    ):
        open_picture(tmp_path / "15.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # which the user has
        _pictures._pillow.cache_clear()
        with pytest.raises(PhotoError, match=r"14.png: .*196 pixels"):
            open_picture(tmp_path / "14.png")


def test_other_failures_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    SMALL.save(path)

    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("PIL.Image.open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        open_picture(path)


def test_messages_name_no_open_file(tmp_path: Path) -> None:
    file = tmp_path / "a>b.jpg"
    file.write_bytes(b"no image")
    for read in (lambda: open_picture(file), lambda: _pictures.decoded(b"no image", "a>b.jpg")):
        with pytest.raises(PhotoError, match=r"a>b\.jpg: not a readable image \(cannot identify image file\)$"):
            read()


@pytest.mark.parametrize(("data", "why"), [
    (saved(Image.fromarray(SHORTS), "PNG"), "expected 8 bits per channel, got 16"),
    (png(16, 2, bytes(48)), "expected 8 bits per channel, got 16"),  # Pillow takes the upper bits
    (saved(Image.fromarray(SHORTS), "TIFF"), "expected 8 bits per channel, got 16"),
    (saved(Image.fromarray(SHORTS), "TIFF", big_tiff=True), "expected 8 bits per channel, got 16"),
    (saved(Image.fromarray(SHORTS.astype(np.float32)), "TIFF"), "of 8 bits, got floats"),
    (saved(Image.fromarray(SHORTS.astype(np.int32)), "TIFF"), "of 8 bits, got signed integers"),
    (saved(SMALL.convert("LAB"), "TIFF"), r"got L\*a\*b\*"),
    (saved(Image.fromarray(SHORTS), "JPEG2000"), "expected 8 bits per channel, got 16"),
    (b"P5\n# a comment\n2 1\n65535\n" + bytes(4), "expected values up to 255 in its header, got up to 65535"),
    (b"P5 2 1 100\n" + bytes(2), "expected values up to 255 in its header, got up to 100"),
    (b"P6\n2 1\n65535\n" + bytes(12), "expected values up to 255 in its header, got up to 65535"),
])  # fmt: skip
def test_depths_that_are_refused(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(data)
    with pytest.raises(PhotoError, match=f"x.jpg: not a readable image .*{why}"):
        open_picture(tmp_path / "x.jpg")
    refused = _pictures.refused(_pictures.reader(np.frombuffer(data, np.uint8)))  # as DALI's pipelines look at it
    assert refused


def test_depths_that_are_not(tmp_path: Path) -> None:
    for format, options in (("PNG", {}), ("TIFF", {}), ("TIFF", {"compression": "jpeg"}), ("TIFF", {"big_tiff": True}),
                            ("PPM", {}), ("JPEG2000", {}), ("BMP", {}), ("WEBP", {"lossless": True})):  # fmt: skip
        (tmp_path / "x.jpg").write_bytes(saved(SMALL, format, **options))
        assert np.abs(np.asarray(open_picture(tmp_path / "x.jpg")).astype(int) - SMALL).max() < 24, format
    for mode in ("1", "L", "LA", "P", "RGBA"):
        data = saved(SMALL.convert(mode), "PNG")
        (tmp_path / "x.jpg").write_bytes(data)
        np.testing.assert_array_equal(open_picture(tmp_path / "x.jpg"), SMALL.convert(mode).convert("RGB"))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("turn", range(10))
def test_every_picture_stands_upright(format: str, turn: int, tmp_path: Path) -> None:
    pixels = np.zeros((24, 40, 3), np.uint8)
    pixels[:8, :16], pixels[:, 32:] = 255, 100
    exif = Image.Exif()
    exif[274] = turn
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}.get(format, {})
    lying = Image.fromarray(pixels)
    (tmp_path / "x.jpg").write_bytes(saved(lying, format, exif=exif, **options))
    methods = (None, None, "FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE",
               "ROTATE_90", None)  # fmt: skip
    method = methods[turn]
    upright = np.asarray(lying if method is None else lying.transpose(Image.Transpose[method]))
    seen = np.asarray(open_picture(tmp_path / "x.jpg")).astype(int)
    assert seen.shape == upright.shape
    assert np.abs(seen - upright).max() < 40


TURN = (274, 3, 1, 6)


@pytest.mark.parametrize(("exif", "turned"), [
    (tiff((256, 9, 1, 2**32 - 5), TURN), True),  # a negative width
    (tiff(TURN, (282, 2, 3, 0x3237)), True),  # a resolution that is text
    (tiff((271, 2, 2**31, 10), TURN), True),  # a maker of 2 GiB
    (tiff((271, 99, 1, 0), TURN), True),
    (tiff((274, 4, 1, 6)), True),
    (tiff((274, 3, 1, 6 << 16), order=">"), True),
    (tiff(TURN, (274, 3, 1, 3)), True),
    (tiff((274, 2, 2, ord("6"))), False),
    (tiff(TURN)[:16], False),
    (tiff(TURN)[:3], False),
    (b"II*\0" + bytes([255] * 4), False),
    (b"no EXIF at all", False),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_odd_exif(exif: bytes, turned: bool, tmp_path: Path) -> None:
    """Other tags, however odd, keep no command from a picture that can be decoded."""
    path = tmp_path / "x.jpg"
    Image.new("RGB", (40, 30)).save(path, exif=b"Exif\0\0" + exif)
    assert open_picture(path).size == ((30, 40) if turned else (40, 30))


def test_exif_behind_the_pixels(tmp_path: Path) -> None:
    """Of a PNG; DALI reads it there."""
    exif = Image.Exif()
    exif[274] = 6
    data = saved(SMALL, "PNG", exif=exif)
    start = data.index(b"eXIf") - 4
    end = start + 12 + struct.unpack(">I", data[start : start + 4])[0]
    last = data.index(b"IEND") - 4
    (tmp_path / "x.png").write_bytes(data[:start] + data[end:last] + data[start:end] + data[last:])
    assert open_picture(tmp_path / "x.png").size == SMALL.size[::-1]


def test_xmp_does_not_turn(tmp_path: Path) -> None:
    """DALI does not read it."""
    Image.new("RGB", (40, 30)).save(tmp_path / "x.jpg", xmp=b'<x tiff:Orientation="6"/>')
    assert open_picture(tmp_path / "x.jpg").size == (40, 30)


def test_a_tiff_of_odd_tags(tmp_path: Path) -> None:
    """Pillow ends at these with a TypeError or struct.error as it turns the picture."""
    data = saved(Image.new("RGB", (40, 30)), "TIFF", tiffinfo={274: 6, 282: 72.0})
    at = data.index(struct.pack("<HHI", 282, 5, 1))
    (tmp_path / "x.tif").write_bytes(data[: at + 2] + struct.pack("<HI", 2, 3) + b"72\0\0" + data[at + 12 :])
    assert open_picture(tmp_path / "x.tif").size == (30, 40)


# Folders.


def test_all_pictures_that_cannot_be_used_are_in_one_message(tmp_path: Path) -> None:
    """Up to ten; of the others their number."""
    for number in range(12):
        (tmp_path / f"{number:02}.png").touch()
    files = sorted(tmp_path.iterdir())
    with pytest.raises(PhotoError) as bad:
        _pictures.read_photos(files, 32, "raise", print)
    named = "; ".join(f"{file}: not a readable image (empty)" for file in files[:10])
    assert str(bad.value) == f"12 images cannot be used: {named}; and 2 more; --on-error skip leaves such files out"
    with pytest.raises(PhotoError) as bad:
        _pictures.read_photos(files[:1], 32, "raise", print)
    assert str(bad.value) == f"{files[0]}: not a readable image (empty); --on-error skip leaves such files out"


def test_names_that_would_become_one(tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for name in ("x.png", "x.png.JPEG"):
        (tmp_path / "photos" / "a" / name).write_bytes(saved(SMALL, "PNG"))
    with pytest.raises(ValueError, match=r"got a/x.png and a/x.png.JPEG, which both become a/x.png.JPEG; rename one"):
        open_photographs(tmp_path / "photos")


def test_special_files_are_found_without_opening_them(tree: Path) -> None:
    found = _folders.special(_folders.pictures(tree))
    assert {os.path.basename(path) for path in found} == {"pipe.jpg", "linked.jpg", "device.jpg", "socket.jpg"}
    assert _folders.special(["/nowhere/x.jpg"]) == set()


def test_names_that_are_no_text_are_shown() -> None:
    assert _folders.shown(Path("a é \udce9\n\x1b[2J.jpg")) == "a é \\xe9\\n\\x1b[2J.jpg"


@pytest.mark.timeout(60)
def test_demo_skips_what_dali_does_not_decode(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed")
    (tree / "cls" / "gif.jpg").write_bytes(saved(SMALL, "GIF"))
    command = ["demo", "--photos", str(tree), "--out", str(tmp_path / "out"), "--size", "16", "--batch", "2"]
    command += ["--batches", "1", "--device", "cpu"]
    assert cli.main([*command, "--on-error", "skip"]) == 0
    printed = capfd.readouterr().out
    assert f"skipped {BAD} of 13 files" in printed
    assert f"skipped {tree}/cls/gif.jpg: cannot be decoded (" in printed
    for line in ("data    2 photographs\n", "images  16 x 16, 1 batch of 2\n", "method  preset imagenet, mixing paper, alpha 1, seed 0\n",
                 "device  cpu (", f"out     {tmp_path}/out\n"):  # fmt: skip
        assert line in printed, line
    for path in (tree / "cls").iterdir():
        if path.name not in ("good.png", "gif.jpg"):
            path.unlink()
    assert cli.main(command) == 1
    assert f"prime-dali demo: {tree}/cls/gif.jpg: cannot be decoded (" in capfd.readouterr().err


def test_damaged_heads() -> None:
    """Whatever the first bytes say, looking at them ends well; a decoder decides about such a file."""
    rng = np.random.default_rng(0)
    wholes = [saved(Image.fromarray(SHORTS), "TIFF"), saved(Image.fromarray(SHORTS), "TIFF", big_tiff=True), tiff(TURN),
              saved(SMALL, "PNG"), saved(SMALL, "JPEG2000"), b"P5\n8 8\n255\n" + bytes(64)]  # fmt: skip
    for whole in wholes:
        for _ in range(200):
            data = np.frombuffer(whole, np.uint8)[: rng.integers(len(whole) + 1)].copy()
            places = rng.integers(max(len(data), 1), size=rng.integers(5))
            data[places[places < len(data)]] = rng.integers(256, size=np.count_nonzero(places < len(data)))
            assert isinstance(_pictures.refused(_pictures.reader(data)), str)
            assert 1 <= _pictures.orientation(_pictures.reader(data)) <= 8
