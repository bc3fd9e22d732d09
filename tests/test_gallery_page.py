"""``prime-dali gallery --html``: the page, and what a browser makes of it."""

from __future__ import annotations

import base64
import importlib.util
import io
import re
import shutil
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import galleries
import numpy as np
import pytest
from galleries import NAMES, ODD_NAME
from PIL import Image

import prime_dali
from prime_dali import cli
from prime_dali.tools.gallery import captions

photos = galleries.photos  # a fixture

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or shutil.which("chromedriver") is None or importlib.util.find_spec("selenium") is None,
    reason="needs Chromium, chromedriver and selenium",
)


@pytest.fixture
def page(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Path:
    out = tmp_path / "deep" / "page.html"
    command = ["gallery", str(photos), "--html", str(out), "--details", "1", "--size", "32", "--preset", "cifar"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main([*command, "--seed", "4"]) == 0
    said = capsys.readouterr()
    header = (
        f"data    3 photographs\nimages  32 x 32\nmethod  preset cifar, mixing paper, alpha 1, seed 4\nout     {out}\n"
    )
    assert said.out == f"{header}wrote {out}\n"
    assert re.search(r"\rpage: 100%\|[^|]*\| 3/3 \[[^\r]*\n$", said.err)
    assert [p.name for p in out.parent.iterdir()] == ["page.html"]
    return out


def test_page_is_whole(page: Path, photos: Path) -> None:
    """It needs no other file, names are escaped, and its images are those of the plans, losslessly."""
    text = page.read_text("utf-8")
    assert "http" not in re.sub(r"base64,[^\"]*", "", text).replace("http-equiv", "")
    assert prime_dali.__version__ in text
    articles = re.findall(r"<article.*?</article>", text, re.S)
    assert [unescape(re.search('data-name="(.*?)"', article)[1]) for article in articles] == NAMES
    assert ODD_NAME not in text  # only with its <, >, & and quotes escaped

    def images(article: str) -> list[np.ndarray]:
        data = re.findall(r'<img [^>]*src="data:image/png;base64,([^"]+)"', article)
        return [np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in data]

    from prime_dali.data.pictures import read_photo

    clean = np.stack([read_photo(photos / name, 32) for name in NAMES])
    plan = prime_dali.sample("cifar", np.arange(3), size=(32, 32), seed=4)
    after = prime_dali.arrays.apply(clean, plan, layout="NHWC")
    # The original and three samples, five strengths of three primitives, and five alphas; or original and a sample.
    assert [len(images(article)) for article in articles] == [4 + 3 * 5 + 5, 2, 2]
    for i, article in enumerate(articles):
        np.testing.assert_array_equal(images(article)[0], clean[i])
        np.testing.assert_array_equal(images(article)[1], after[i])
        assert captions.drawn(plan, i).whole in unescape(article)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "headless", "window-size=1400,1000", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
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
    """Filters, enlarging and comparing, keys, and a phone: all in one browser, which takes seconds to start."""
    browser.get(page.as_uri())
    images = browser.execute_script(
        "return Promise.all([...document.querySelectorAll('article img')].map("
        "(i) => i.decode().then(() => [i.naturalWidth, i.naturalHeight])))"
    )
    assert images == [[32, 32]] * 28
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert [heading.text for heading in browser.find_elements("css selector", "h2")][:3] == NAMES
    filters(browser)
    comparison(browser)
    phone(browser)
    assert browser.get_log("browser") == []


def visible(browser: Any) -> list[tuple[str, list[str]]]:
    """Names of the photographs that are shown, and the captions below each."""
    shown = browser.execute_script("""
        const shown = (selector, inside) => [...inside.querySelectorAll(selector)].filter((e) => e.checkVisibility());
        return shown("article", document).map(
            (article) => [article.dataset.name, shown("figcaption", article).map((caption) => caption.innerText)]);
    """)
    return [(name, captions) for name, captions in shown]


def filters(browser: Any) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    def choose(primitive: str, strength: str) -> None:
        for name, value in (("primitive", primitive), ("strength", strength)):
            [choice] = [
                option
                for option in browser.find_elements("css selector", f"select[name={name}] option")
                if option.get_property("value") == value
            ]
            choice.click()

    count, search = (browser.find_element("css selector", name) for name in ("output", "input[type=search]"))
    nothing = browser.find_element("css selector", ".nothing")
    percent = ["5 %", "10 %", "25 %", "50 %", "100 %"]
    alphas = ["alpha 0.1", "alpha 0.25", "alpha 0.5", "alpha 1", "alpha 2"]
    samples = ["original", "sample 1", "sample 2", "sample 3"]
    everything = [(ODD_NAME, samples + 3 * percent + alphas), *((name, samples[:2]) for name in NAMES[1:])]
    assert visible(browser) == everything
    assert count.text == "3 of 3 photographs, 25 augmented images"
    for typed, names in (
        ("GRAY", ["gray.jpg"]), ("cats", ["Cats/a.png"]), ("png a", ["Cats/a.png"]), ("<b>", [ODD_NAME]), (" ", NAMES),
    ):  # fmt: skip
        search.clear()
        search.send_keys(typed)
        assert [name for name, _ in visible(browser)] == names
        assert not nothing.is_displayed()
    choose("spatial", "25 %")
    assert visible(browser) == [(ODD_NAME, ["original", "spatial, 25 %"])]
    assert count.text == "1 of 3 photographs, 1 augmented image"
    choose("", "100 %")
    assert visible(browser) == [
        (ODD_NAME, ["original", *(f"{name}, 100 %" for name in ("spectral", "spatial", "color"))])
    ]
    choose("PRIME", "alpha 1")  # also of the samples
    found = ["original", *(f"PRIME, sample {i}" for i in (1, 2, 3)), "PRIME, alpha 1"]
    assert visible(browser) == [(ODD_NAME, found), *((name, found[:2]) for name in NAMES[1:])]
    choose("color", "")
    assert visible(browser) == [(ODD_NAME, ["original", *(f"color, {strength}" for strength in percent)])]
    for typed, primitive, strength in (("none such", "", ""), ("gray", "color", "5 %"), ("", "color", "alpha 1")):
        search.clear()
        search.send_keys(typed)
        choose(primitive, strength)
        assert visible(browser) == []
        assert nothing.text == "Nothing found. Clear the filters"
        assert count.text == "0 of 3 photographs, 0 augmented images"
    nothing.find_element("tag name", "button").click()
    WebDriverWait(browser, 10).until(lambda _: visible(browser) == everything)  # the page filters after the reset
    assert search.get_property("value") == ""
    assert not nothing.is_displayed()


def comparison(browser: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    dialog = browser.find_element("tag name", "dialog")
    title, words, slider, after = (
        dialog.find_element("css selector", name) for name in ("h2", ".words", "input", "img.after")
    )

    def press(*keys: str) -> None:
        browser.switch_to.active_element.send_keys(*keys)

    def uncovered() -> float:
        """Percent of the width, from the left, that shows the original."""
        place = browser.execute_script("return getComputedStyle(arguments[0]).clipPath", after)
        return float(re.search(r"([\d.]+)%\)$", place)[1])

    tiles = browser.find_elements("css selector", "figure button")
    assert not dialog.is_displayed()
    browser.execute_script("arguments[0].focus()", tiles[1])
    press(Keys.ENTER)  # a key enlarges, as a click does
    assert dialog.is_displayed()
    assert title.text == f"{ODD_NAME}, PRIME, sample 1"
    assert "%" in words.text
    assert "(" in words.text
    assert after.size["width"] > 5 * tiles[1].size["width"] / 2
    assert browser.execute_script("return getComputedStyle(arguments[0]).imageRendering", after) == "pixelated"
    assert uncovered() == 50
    press(Keys.ARROW_UP)
    assert uncovered() == 60
    press(" ")
    assert uncovered() == 0
    press(" ")
    assert uncovered() == 100
    press(Keys.ARROW_DOWN)
    assert uncovered() == 90
    width = slider.size["width"]
    ActionChains(browser).move_to_element_with_offset(slider, 0, 0).click_and_hold().move_by_offset(
        -width // 4, 0
    ).release().perform()
    assert 20 < uncovered() < 30  # dragged
    press(Keys.ARROW_RIGHT)
    assert title.text == f"{ODD_NAME}, PRIME, sample 2"
    assert uncovered() == 50
    source = browser.find_elements("css selector", "figure img")[2].get_property("src")
    assert after.get_property("src") == source
    press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert title.text == f"{ODD_NAME}, original"
    assert not slider.is_displayed()  # nothing to compare
    press(Keys.ARROW_LEFT)  # around
    assert title.text == "Cats/a.png, PRIME, sample 1"
    press(Keys.ESCAPE)
    assert not dialog.is_displayed()
    WebDriverWait(browser, 5).until(lambda _: browser.switch_to.active_element == tiles[-1])
    tiles[2].click()
    assert title.text == f"{ODD_NAME}, PRIME, sample 2"
    dialog.find_element("css selector", "[data-do=next]").click()
    assert title.text == f"{ODD_NAME}, PRIME, sample 3"
    dialog.find_element("css selector", "[data-do=close]").click()
    assert not dialog.is_displayed()


def phone(browser: Any) -> None:
    """Five images side by side, no scrolling sideways, and a page of bounded height; both color schemes."""
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    colors = []
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        colors.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colors == ["rgb(255, 255, 255)", "rgb(20, 21, 24)"]
    assert browser.execute_script("return innerWidth") == 390

    def extent() -> tuple[int, int]:
        return tuple(
            browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.scrollHeight]")
        )

    width, height = extent()
    assert width == 390
    tops = [tile.location["y"] for tile in browser.find_elements("css selector", "article figure")]
    assert [tops.count(top) for top in sorted(set(tops))] == [4, 5, 5, 5, 5, 4]  # the last: two cards, side by side
    assert height < 1100
    browser.execute_script("document.querySelectorAll('figure button')[1].click()")
    box = browser.execute_script(
        "return [...document.querySelectorAll('dialog, dialog :is(img, button, h2, p)')].map((e) => e.getBoundingClientRect())"
    )
    assert all(each["left"] >= 0 and each["right"] <= 390 and each["bottom"] <= 844 for each in box)
    assert extent()[0] == 390
