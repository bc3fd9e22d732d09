"""``prime-dali gallery``: its pictures, and its page in a browser."""

from __future__ import annotations

import base64
import importlib.util
import io
import math
import re
import shutil
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import prime_dali
from prime_dali import cli
from prime_dali.tools import gallery

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or shutil.which("chromedriver") is None or importlib.util.find_spec("selenium") is None,
    reason="needs Chromium, chromedriver and selenium",
)
ODD_NAME = '<b>"it\'s" & more.png'


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "Cats").mkdir(parents=True)
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(folder / "Cats" / "a.png")
    Image.fromarray(rng.integers(0, 256, (70, 50), np.uint8)).save(folder / "gray.jpg")
    Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(folder / ODD_NAME)
    (folder / "notes.txt").write_text("not a photo")
    return folder


NAMES = [ODD_NAME, "gray.jpg", "Cats/a.png"]  # folder after folder


@pytest.mark.parametrize(("figure", "columns"), [("overview", 7), ("strengths", 16), ("alpha", 7), ("pairs", 2)])
def test_png(figure: str, columns: int, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "gallery.png"
    command = ["gallery", str(photos / "gray.jpg"), "--out", str(out), "--size", "32", "--figure", figure]
    assert cli.main(command) == 0
    with Image.open(out) as picture:
        assert picture.width == pytest.approx(columns * 2.3 * 130, abs=2)
        assert np.asarray(picture).std() > 10
    assert [p.name for p in out.parent.iterdir()] == ["gallery.png"]  # no temporary file is left


def test_png_is_reproducible(photos: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        cli.main(["gallery", str(photos), "--out", str(tmp_path / f"{name}.png"), "--size", "32", "--figure", "pairs"])
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_columns_show_what_they_say() -> None:
    photos = list(np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3), np.uint8))
    config = prime_dali.preset("cifar").replace(primitives=("spectral", "spatial", "color", "noise"), noise_std=0.2)
    words = {
        name: [cells[1][1] for _, cells in gallery.strengths(photos, config, name, 0)] for name in config.primitives
    }
    assert words["spectral"] == [f"spectral σ={4 * f:.2f}" for f in (0.05, 0.1, 0.25, 0.5, 1)]
    assert words["noise"] == [f"noise σ={0.2 * f:.2f}" for f in (0.05, 0.1, 0.25, 0.5, 1)]
    assert words["color"] == [f"color T={0.01 * f**2:.2g} f=1..10" for f in (0.05, 0.1, 0.25, 0.5, 1)]
    # At cut 5 the largest T is 4 / (pi^3 25 ln 5) = 0.003206; the typical shift 32 sqrt(pi T ln 5) / 2 = 2.037 pixels.
    assert words["spatial"] == [f"spatial c=5 ({2.037 * f:.1f} px)" for f in (0.05, 0.1, 0.25, 0.5, 1)]
    assert gallery._largest(config.replace(spatial_cut=100), "spatial", photos[0])[0] == pytest.approx(
        math.sqrt(1 / (math.pi * 1024 * math.log(100)))
    )  # the other bound of the range, where it is the larger

    index = np.arange(2)
    plan = prime_dali.sample(config.replace(alpha=0.5), index, size=(32, 32), seed=7, view=1)
    expected = prime_dali.arrays.apply(np.stack(photos), plan, layout="NHWC")
    [half] = [cells for heading, cells in gallery.severities(photos, config, 7, view=1) if heading == "alpha 0.5"]
    for cell, pixels, row in zip(half, expected, index, strict=True):
        np.testing.assert_array_equal(cell[0], pixels)
        assert cell[1] == plan.describe(row)
    for columns in (gallery.samples(photos, config, 0), gallery.alone(photos, config, 0)):
        assert all(cells[0][0].shape == (32, 32, 3) and np.any(cells[0][0] != photos[0]) for _, cells in columns)


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
    photos, config = [np.zeros((8, 8, 3), np.uint8)] * 65, prime_dali.preset("cifar")
    with pytest.raises(ValueError, match="photos: expected at most 64 in a PNG, got 65; --html has room for more"):
        gallery.save_gallery(photos, config, tmp_path / "out.png")
    with pytest.raises(ValueError, match=r"figure: expected one of 'overview', .*did you mean 'alpha'"):
        gallery.save_gallery(photos[:1], config, tmp_path / "out.png", figure="alpah")
    for arguments in (["--size", "7"], ["--preset", "imagnet"], ["--details", "-1"], ["--figure", "all"]):
        assert cli.main(["gallery", *arguments]) == 2
    assert not any(tmp_path.iterdir())


@pytest.fixture
def page(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Path:
    out = tmp_path / "deep" / "page.html"
    command = ["gallery", str(photos), "--html", str(out), "--details", "1", "--size", "32", "--preset", "cifar"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main([*command, "--seed", "4"]) == 0
    said = capsys.readouterr()
    header = f"data    3 photographs\nimages  32 x 32\nmethod  mixing paper, alpha 1, seed 4\nout     {out}\n"
    assert said.out == f"{header}wrote {out}\n"
    assert re.search(r"\rgallery: 100%\|[^|]*\| 3/3 \[[^\r]*\n$", said.err)
    assert [p.name for p in out.parent.iterdir()] == ["page.html"]
    return out


def test_page_is_whole(page: Path, photos: Path) -> None:
    text = page.read_text("utf-8")
    assert "http" not in re.sub(r"base64,[^\"]*", "", text).replace("http-equiv", "")
    articles = re.findall(r"<article.*?</article>", text, re.S)
    assert [unescape(re.search('data-name="(.*?)"', article)[1]) for article in articles] == NAMES
    assert ODD_NAME not in text  # only with its <, >, & and quotes escaped

    def images(article: str) -> list[np.ndarray]:
        data = re.findall(r'<img class="small"[^>]*src="data:image/png;base64,([^"]+)"', article)
        return [np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in data]

    from prime_dali.data.pictures import read_photo

    clean = np.stack([read_photo(photos / name, 32) for name in NAMES])
    plan = prime_dali.sample("cifar", np.arange(3), size=(32, 32), seed=4)
    after = prime_dali.arrays.apply(clean, plan, layout="NHWC")
    # Before and three samples; before and five strengths of three primitives; before and six alphas of three samples.
    assert [len(images(article)) for article in articles] == [4 + 3 * 6 + 3 * 7, 2, 2]
    for i, article in enumerate(articles):
        np.testing.assert_array_equal(images(article)[0], clean[i])
        np.testing.assert_array_equal(images(article)[1], after[i])
        assert plan.describe(i) in unescape(article)


def test_larger_pictures_are_jpeg(tmp_path: Path) -> None:
    from prime_dali.tools import gallery_page

    photo = np.random.default_rng(0).integers(0, 256, (70, 70, 3), np.uint8)
    gallery_page.save({"x": photo}, prime_dali.preset("imagenet"), tmp_path / "page.html", details=0)
    data = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', (tmp_path / "page.html").read_text("utf-8"))
    assert [Image.open(io.BytesIO(base64.b64decode(each))).size for each in data] == [(70, 70)] * 2


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", "disable-dev-shm-usage", f"user-data-dir={tmp_path / 'profile'}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver
    finally:
        driver.quit()


@needs_browser
def test_page_in_a_browser(page: Path, browser: Any) -> None:
    browser.get(page.as_uri())
    images = browser.execute_script(
        "return Promise.all([...document.images].map((i) => i.decode().then(() => [i.naturalWidth, i.naturalHeight])))"
    )
    assert images == [[32, 32]] * 47
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []

    def shown() -> list[str]:
        articles = browser.find_elements("css selector", "article")
        return [article.get_dom_attribute("data-name") for article in articles if article.is_displayed()]

    count, search = browser.find_element("tag name", "output"), browser.find_element("tag name", "input")
    assert shown() == NAMES
    assert count.text == "3 of 3 images"
    assert [heading.text for heading in browser.find_elements("css selector", "h2")] == NAMES
    for typed, names in (
        ("GRAY", ["gray.jpg"]),
        ("cats", ["Cats/a.png"]),
        ("png a", ["Cats/a.png"]),
        ("<b>", [ODD_NAME]),
        ("none such", []),
        (" ", NAMES),
    ):
        search.clear()
        search.send_keys(typed)
        assert shown() == names
        assert count.text == f"{len(names)} of 3 images"
    assert browser.get_log("browser") == []


def test_names_of_files_to_write(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    own = next(iter(sorted(photos.rglob("*.png"))), None) or next(iter(sorted(photos.rglob("*.jpg"))))
    taken = tmp_path / "taken.png"
    with Image.open(own) as image:
        image.save(taken)
    before = taken.read_bytes()
    for arguments, message in (
        (["--out", str(tmp_path / "sheet")], "out: expected the name of a file that ends in .png"),
        (["--html", str(tmp_path / "page.png")], "html: expected the name of a file that ends in .html"),
        (["--out", str(taken)], "out: expected a new file, got one of the photographs"),
    ):
        assert cli.main(["gallery", str(taken), "--size", "32", *arguments]) == 1
        assert message in capsys.readouterr().err
    assert taken.read_bytes() == before
    assert not [name for name in ("sheet", "page.png") if (tmp_path / name).exists()]
