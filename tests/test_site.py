"""The built documentation: complete without a network, and searched without a server."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocstrings", reason="the packages of the extra docs are not installed")
pytest.importorskip("ziamath", reason="the packages of the extra docs are not installed")

ROOT = Path(__file__).parent.parent
# What users of augmentations and of training loops look for, and the page that must be among the first three.
FOUND = {
    "resume": "training.html", "offline": "analysis.html", "bitwise": "reproducibility.html",
    "synchronize": "torch.html", "JSD": "torch.html", "mCE": "EVALUATION.html",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def headings(page: Path) -> list[tuple[int, str]]:
    text = page.read_text()
    article = text[text.index("<article") : text.index("</article>")]
    found = re.findall(r"<h([1-6])[^>]*>(.*?)</h\1>", article, re.S)
    return [(int(level), html.unescape(re.sub(r"<[^>]+>", "", title)).strip("¶ \n")) for level, title in found]


def test_nothing_is_fetched(site: Path) -> None:
    """Scripts, styles, fonts and images are files of the site, those of search and formulas among them."""
    fetched = re.compile(
        r"""<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*rel="(?:stylesheet|preload|icon)[^>]*href="([^"]+)"""
    )
    for page in set(site.rglob("*.html")) - {site / "404.html"}:  # which a server shows in any folder
        for name in (a or b for a, b in fetched.findall(page.read_text())):
            assert (page.parent / name.partition("#")[0].partition("?")[0]).exists(), f"{page.name}: {name}"
    assert "iframe-worker.js" in (site / "index.html").read_text()
    styles = (site / "site.css").read_text()
    (font,) = re.findall(r'url\("([^"]+)"\)', styles)
    assert (site / font).read_bytes().startswith(b"\x00\x01\x00\x00")
    assert "<math" in (site / "METHOD.html").read_text()


def test_the_index_has_what_is_looked_for(site: Path) -> None:
    text = (site / "search" / "search_index.js").read_text()
    index = json.loads(text.removeprefix("var __index = "))
    for word, page in FOUND.items():
        here = [row for row in index["docs"] if row["location"].partition("#")[0] == page]
        assert any(word.lower() in f"{row['title']} {row['text']}".lower() for row in here), f"{word} on {page}"


def test_results_begin_with_the_main_table_and_are_all_there(site: Path) -> None:
    titles = headings(site / "results.html")
    assert titles[1] == (2, "Main table")
    for report in (ROOT / "benchmarks" / "results").rglob("*.md"):
        assert report.read_text().partition("\n")[0].removeprefix("# ") in {title for _, title in titles}, report.name


@pytest.mark.parametrize("page", ["index", "dali", "recipes", "evaluation", "loops", "ray"])
def test_names_of_the_api_are_those_that_users_import(site: Path, page: str) -> None:
    """And members that a page lists are there: the site leaves out without a word what it does not find."""
    listed = re.findall(r"^::: (\S+)((?:\n {4}.*)*)", (ROOT / "docs" / "api" / f"{page}.md").read_text(), re.M)
    shown: dict[str, set[str]] = {}
    for level, title in headings(site / "api" / f"{page}.html"):
        if level == 2:
            members = shown[title.split()[0]] = set()
        elif level == 3:
            members.add(title.split()[0])
    assert list(shown) == [name for name, _ in listed]
    for name, options in listed:
        wanted = re.search(r"members: *\[([^]]*)\]", options)
        assert not wanted or {member.strip() for member in wanted[1].split(",")} <= shown[name], name


def test_search_in_a_browser_without_a_server(site: Path) -> None:
    pytest.importorskip("selenium", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium and its driver are not installed")
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        for word, page in FOUND.items():
            browser.get(f"{(site / 'index.html').as_uri()}?q={word}")
            shown = WebDriverWait(browser, 60, 0.1).until(results, f"no results for {word}")
            assert page in shown[:3], f"{word}: {shown}"
    finally:
        browser.quit()


def results(browser: Any) -> list[str]:
    """The pages that the search shows, the best first."""
    links = browser.execute_script("""return [...document.querySelectorAll(".md-search-result__item > a")].map(
        link => link.getAttribute("href"))""")
    return list(dict.fromkeys(re.split(r"[?#]", link)[0].rpartition("/")[2] for link in links))
