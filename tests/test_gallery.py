"""``prime-dali gallery``: its figures, their captions, and bad input."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import galleries
import numpy as np
import pytest
from galleries import ODD_NAME
from PIL import Image

import prime_dali
from prime_dali import cli
from prime_dali.tools import demo
from prime_dali.tools.gallery import captions, cells, figures

photos = galleries.photos  # a fixture
CELL, GAP = 160, 10  # pixels of a figure of small images: 32 pixels are enlarged five times


@pytest.mark.parametrize(("figure", "rows", "columns"), [
    ("overview", 1, 7), ("strengths", 3, 6), ("alpha", 1, 6), ("pairs", 1, 2), ("nearest", 1, 7),
    ("spectral-grid", 5, 6), ("spatial-grid", 5, 6), ("color-grid", 5, 6),
])  # fmt: skip
def test_figures(
    figure: str, rows: int, columns: int, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Images stand in straight columns, pixel for pixel, and a bar moves while they are drawn."""
    out = tmp_path / "deep" / "gallery.png"
    photo = photos / ODD_NAME
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command = ["gallery", str(photo), "--out", str(out), "--size", "32", "--figure", figure]
    assert cli.main([*command, "--limit", "1", "--preset", "cifar"]) == 0
    assert re.search(rf"\r{figure}: 100%\|[^|]*\| 1/1 \[[^\r]*\n$", capsys.readouterr().err)
    with Image.open(out) as picture:
        pixels = np.asarray(picture)
    assert picture.width == columns * (CELL + GAP) + GAP
    with Image.open(photo) as image:
        original = np.asarray(image).repeat(5, 0).repeat(5, 1)
    tops = [y for y in range(len(pixels) - CELL) if np.array_equal(pixels[y : y + CELL, GAP : GAP + CELL], original)]
    assert len(tops) == rows
    for top in tops:  # every image fills its cell, enlarged without a change, and between images there is paper
        across = pixels[top : top + CELL, GAP:].reshape(CELL, columns, CELL + GAP, 3)
        assert (across[:, :, CELL + 1 : -1] == 255).all()  # beside thin frames
        images = across[:, :, :CELL]
        assert np.array_equal(images[::5, :, ::5].repeat(5, 0).repeat(5, 2), images)
        assert all((images[:, i] != images[:, 0]).any() for i in range(1, columns))
    assert [p.name for p in out.parent.iterdir()] == ["gallery.png"]  # no temporary file is left


def test_words_of_a_figure(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Title, headings, names of files, captions and legend; none is wider than its place."""
    from prime_dali.tools.gallery import sheet

    written: list[tuple[str, str]] = []

    def write(self: Any, draw: Any, lines: list[str], font: str, at: tuple[int, int], color: str = "") -> None:
        assert all(at[0] + self._fonts[font].getlength(line) <= draw.im.size[0] for line in lines)
        if font == "caption":
            assert all(self._fonts[font].getlength(line) <= CELL for line in lines)
        written.append((font, "\n".join(lines)))

    monkeypatch.setattr(sheet.Sheet, "_write", write)
    images = {f"Cats/{'long_' * 9}.png": np.zeros((32, 32, 3), np.uint8), "Dogs/b.png": np.zeros((32, 32, 3), np.uint8)}
    config = prime_dali.preset("cifar").replace(alpha=0.5, color_cut=7)
    figures.save_gallery(images, config, tmp_path / "a.png", seed=3)
    [(_, title), (_, about)] = [each for each in written if each[0] in ("title", "legend")][-6:-4]
    assert title == "PRIME data augmentation"
    said = f"preset cifar, mixing paper, alpha 0.5, color cut 7, seed 3, images of 32 x 32 pixels, prime-dali {prime_dali.__version__}"
    assert about == said
    assert [text for font, text in written if font == "entry"] == ["spectral", "spatial", "color", "PRIME"]
    captions = [text for font, text in written if font == "caption"]
    assert captions[0].replace("\n   ", "") == "long_" * 9 + ".png"
    assert captions[7] == "b.png"
    assert re.fullmatch(r"deviation σ \d\.\d\d", captions[1])
    assert re.fullmatch(r"cutoff \d+\nshift \d\.\d px", captions[2])
    assert re.fullmatch(r"variance T \S+\nfrequencies f 1–7", captions[3])
    assert re.match(r"(\d+|<1) % clean\n(\d+|<1) % (spectral|spatial|color|identity)", captions[4])


def test_nearest_corruptions_are_found() -> None:
    """A corrupted image is nearest to itself, and the measure orders blur, noise and brightness."""
    from prime_dali.evaluation import corruptions
    from prime_dali.tools.gallery import nearest

    photo = np.asarray(Image.open(demo.shipped_photos()[1]).resize((32, 32)))
    names = ("gaussian_noise", "defocus_blur", "brightness", "contrast")
    made = [corruptions.cifar(photo[None], name, severity, seed=1)[0] for name in names for severity in (3, 5)]
    features = nearest.features(np.stack(made))
    assert features.shape == (8, 6 + 5)
    apart = nearest.distances(features, features)
    np.testing.assert_array_equal(apart.diagonal(), 0)
    other_seed = nearest.features(corruptions.cifar(photo[None], names[0], 5, seed=2))
    assert nearest.distances(other_seed, features)[0].argmin() == 1
    gray = nearest.features(np.full((1, 32, 32, 3), 51, np.uint8))[0]
    np.testing.assert_allclose(gray, [0.2] * 3 + [0] * 3 + [-12] * 5, atol=1e-6)
    wave = 0.5 + 0.25 * np.cos(2 * np.pi * 5 * np.arange(32) / 32)  # its octave is 4 to 8 cycles per side
    [power] = nearest.features(
        np.round(255 * np.tile(wave[:, None], (1, 1, 32, 3)).reshape(1, 32, 32, 3)).astype(np.uint8)
    )[:, 6:]
    assert power.argmax() == 2
    assert power[2] == pytest.approx(math.log10(2 * 0.125**2), abs=0.01)


def test_a_jpeg_says_what_made_it(photos: Path, tmp_path: Path) -> None:
    from prime_dali.tools.gallery import sheet

    for name in ("a.jpg", "a.png"):
        assert cli.main(["gallery", str(photos), "--limit", "2", "--out", str(tmp_path / name), "--size", "32"]) == 0
        assert sheet.is_sheet(tmp_path / name)
    with Image.open(tmp_path / "a.jpg") as jpeg, Image.open(tmp_path / "a.png") as png:
        assert (jpeg.format, png.format) == ("JPEG", "PNG")
        assert jpeg.info["comment"].decode() == png.info["Software"] == f"prime-dali gallery {prime_dali.__version__}"
        assert np.abs(np.asarray(jpeg).astype(float) - np.asarray(png)).mean() < 8
    assert not sheet.is_sheet(photos / "gray.jpg")


def test_the_picture_of_the_documentation_is_what_its_command_draws(tmp_path: Path) -> None:
    """If this fails: draw it again by the command in docs/analysis.md."""
    root = Path(__file__).parent.parent
    command = re.search(
        r"^prime-dali (gallery .* --out docs/gallery\.jpg)$", (root / "docs" / "analysis.md").read_text(), re.M
    )
    words = [word.replace("docs/", f"{tmp_path}/") for word in command[1].split()]
    assert f"--seed {words[words.index('--seed') + 1]}" in (root / "README.md").read_text()
    assert cli.main(words) == 0
    with Image.open(root / "docs" / "gallery.jpg") as kept, Image.open(tmp_path / "gallery.jpg") as drawn:
        assert kept.info["comment"] == drawn.info["comment"]
        assert kept.size == drawn.size
        small = [np.asarray(image.reduce(7)).astype(float) for image in (kept, drawn)]
    assert np.abs(small[0] - small[1]).mean() < 1  # of 255; alpha 0.9 instead of 1: 1.2
    assert (root / "docs" / "gallery.jpg").stat().st_size < 700_000


def test_png_is_reproducible(photos: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cli.main(["gallery", str(photos), "--out", str(tmp_path / f"{name}.png"), "--size", "32", "--figure", "pairs"])
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_cells_show_what_they_say() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3), np.uint8)
    photo = cells.Photo("b.png", pixels[1], 1)
    config = prime_dali.preset("cifar").replace(primitives=("spectral", "spatial", "color", "noise"), noise_std=0.2)
    words = {name: [cell.words for cell in cells.strengths(photo, config, name, 0)] for name in config.primitives}
    fractions = (0.05, 0.1, 0.25, 0.5, 1)
    assert [cell.heading for cell in cells.strengths(photo, config, "noise", 0)] == [
        "5 %",
        "10 %",
        "25 %",
        "50 %",
        "100 %",
    ]
    assert words["spectral"] == [f"deviation σ {4 * f:.2f}" for f in fractions]
    assert words["noise"] == [f"deviation σ {0.2 * f:.2f}" for f in fractions]
    assert words["color"] == [f"variance T {0.01 * f**2:.2g}\nfrequencies f 1–10" for f in fractions]
    # At cut 5 the largest T is 4 / (pi^3 25 ln 5) = 0.003206; the typical shift 32 sqrt(pi T ln 5) / 2 = 2.037 pixels.
    assert words["spatial"] == [f"cutoff 5\nshift {2.037 * f:.1f} px" for f in fractions]
    assert cells._largest(config.replace(spatial_cut=100), "spatial", photo.image)[0] == pytest.approx(
        math.sqrt(1 / (math.pi * 1024 * math.log(100)))
    )  # the other bound of the range, where it is the larger

    index = np.arange(2)
    plan = prime_dali.sample(config.replace(alpha=0.5), index, size=(32, 32), seed=7, view=1)
    expected = prime_dali.arrays.apply(pixels, plan, layout="NHWC")
    [half] = [cell for cell in cells.alphas(photo, config, 7, view=1) if cell.heading == "alpha 0.5"]
    np.testing.assert_array_equal(half.image, expected[1])
    for row in (cells.samples(photo, config, 0), cells.alone(photo, config, 0)):
        assert all(cell.image.shape == (32, 32, 3) and np.any(cell.image != photo.image) for cell in row)


def test_grids_scale_one_draw_by_strength_and_smoothness() -> None:
    photo = cells.Photo("a.png", np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8), 0)
    config = prime_dali.preset("cifar")
    rows = {name: cells.smoothness(photo, config, name, 0) for name in config.primitives}
    assert [row.heading for row in rows["spectral"]] == [f"filter of {side} x {side}" for side in (3, 5, 7, 9, 11)]
    assert [row.heading for row in rows["spatial"]] == [f"cutoff frequency {cut}" for cut in (2, 5, 14, 38, 100)]
    assert [row.heading for row in rows["color"]] == [f"cutoff frequency {cut}" for cut in (2, 3, 4, 7, 10)]
    for name, grid in rows.items():
        for row in grid:
            changes = [np.abs(cell.image.astype(float) - photo.image).mean() for cell in row.cells]
            assert changes[0] == 0 < changes[1], name
            assert changes == sorted(changes), (name, row.heading)
    band = cells.smoothness(photo, prime_dali.preset("imagenet"), "color", 0)[-1]
    assert band.cells[-1].words == "variance T 0.05\nfrequencies f 481–500"


def test_captions_in_words() -> None:
    slots = [
        [[("noise", 0.25), ("color", 0.5, 2, 9)], [("spatial", 0.004, 20)]],
        [[("color", 0.5, 4, 4)], []],
        [[("spectral", 2)]],
    ]
    plan = prime_dali.Plan.build(slots, size=32, weights=[[0.2, 0.3, 0.5], [0, 0.998, 0.002], [0, 1, 0]])
    first, second, third = (captions.drawn(plan, row) for row in range(3))
    assert first.short == "20 % clean\n30 % noise → color\n50 % spatial"
    assert first.whole == (
        "20 % clean\n30 % noise (deviation σ 0.25) → color (variance T 0.25, frequencies f 2–9)\n50 % spatial (cutoff 20, shift 0.2 px)"
    )
    assert second.whole == "100 % color (variance T 0.25, frequency f 4)\n<1 % identity"
    assert third.short == "spectral\n0 % identity"
    alone = prime_dali.Plan.build([[[("spectral", 2)]], [[]]], size=32)
    assert captions.drawn(alone, 0) == ("deviation σ 2.00", "spectral (deviation σ 2.00)")
    assert captions.drawn(alone, 1) == ("identity", "identity")


def test_primitives_that_are_not_known_are_named() -> None:
    """A plan edited by hand; a new primitive's name is shown by tests/test_add_a_primitive.py."""
    plan = prime_dali.Plan.build([[[("color", 0.5, 2, 9), ("noise", 0.25)]]], size=(16, 16))
    assert plan.describe(0) == "color T=0.25 f=2..9, noise σ=0.25"
    for number in (9, -1):
        plan.primitive[0, 0] = number
        assert plan.describe(0) == f"primitive {number} strength=0.5 2..9, primitive {number} strength=0.25"
        with pytest.raises(ValueError, match=f"slot 0: expected a known primitive, .* got primitive {number},"):
            plan.materialize()


def test_unreadable_photo_is_fatal_or_skipped_by_name(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (photos / "Cats" / "a.png").unlink()
    broken = photos / "broken.jpg"
    broken.write_bytes((photos / "gray.jpg").read_bytes()[:300])
    (photos / "empty.png").touch()
    out = tmp_path / "gallery.png"
    command = ["gallery", str(photos), "--out", str(out), "--html", str(tmp_path / "page.html"), "--size", "16"]
    command += ["--figure", "pairs"]
    assert cli.main(command) == 1
    assert f"{broken}: not a readable image" in capsys.readouterr().err
    assert not out.exists()
    assert cli.main([*command, "--on-error", "skip"]) == 0
    text = capsys.readouterr().out
    assert f"skipped {broken}: not a readable image" in text
    assert "empty.png: not a readable image" in text
    assert "skipped 2 of 4 files" in text
    assert f"wrote {out}" in text
    assert out.exists()
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    (["/no/such/folder"], "/no/such/folder: no such file or folder"),
    (["--alpha", "-1"], "alpha: expected a finite number >= 0"),
])  # fmt: skip
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["gallery", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_bad_folders_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["gallery", str(tmp_path)]) == 1
    assert "expected photographs" in capsys.readouterr().err
    photos, config = {str(i): np.zeros((8, 8, 3), np.uint8) for i in range(65)}, prime_dali.preset("cifar")
    for figure, most in (("overview", 64), ("color-grid", 12)):
        with pytest.raises(ValueError, match=f"photos: expected at most {most} in one figure, got 65; see --limit"):
            figures.save_gallery(photos, config, tmp_path / "out.png", figure=figure)
    with pytest.raises(ValueError, match="size: expected 32, 64 or 224, the sizes of corruption benchmarks, got 8"):
        figures.save_gallery({"0": photos["0"]}, config, tmp_path / "out.png", figure="nearest")
    with pytest.raises(ValueError, match=r"figure: expected one of 'overview', .*did you mean 'alpha'"):
        figures.save_gallery(photos, config, tmp_path / "out.png", figure="alpah")
    for arguments in (
        ["--size", "7"],
        ["--preset", "imagnet"],
        ["--details", "-1"],
        ["--limit", "0"],
        ["--figure", "all"],
    ):
        assert cli.main(["gallery", *arguments]) == 2
    assert not any(tmp_path.iterdir())


def test_names_of_files_to_write(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    own = next(iter(sorted(photos.rglob("*.png"))), None) or next(iter(sorted(photos.rglob("*.jpg"))))
    taken = tmp_path / "taken.png"
    with Image.open(own) as image:
        image.save(taken)
    before = taken.read_bytes()
    for arguments, message in (
        (["--out", str(tmp_path / "sheet")], "out: expected the name of a file that ends in .png or .jpg"),
        (["--html", str(tmp_path / "page.png")], "html: expected the name of a file that ends in .html or .htm"),
        (["--out", str(taken)], "out: expected a new file, got one of the photographs"),
    ):
        assert cli.main(["gallery", str(taken), "--size", "32", *arguments]) == 1
        assert message in capsys.readouterr().err
    assert taken.read_bytes() == before
    assert not [name for name in ("sheet", "page.png") if (tmp_path / name).exists()]
