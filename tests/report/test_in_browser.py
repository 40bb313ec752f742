"""The page in a real browser, Debian's Chromium: nothing fails, nothing is fetched, everything is there and fits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from playwright.sync_api import Browser, Page, sync_playwright

from vamp.report import results, theme
from vamp.report.html import build_report
from vamp.report.verdicts import Measured

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS_PX = (1280, 390)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def report(checkout: Path) -> Path:
    """A page with two backends, a long note and a figure."""
    for backend in ("sim", "cpu"):
        measured = [Measured("table4.diff.tpot", "h100_pcie_tp2", 31.0, n=2)] if backend == "sim" else []
        results.save(
            "07_table4_replay", backend=backend, parameters={"ratios": "0, 15"}, covers=("*",), measured=measured
        )
        figure = Figure(figsize=(12, 4))
        figure.subplots().plot(np.arange(4))
        theme.save_figure(figure, pd.DataFrame({"x": [1]}), notebook="07_table4_replay", name="f", backend=backend)
    build_report()
    return checkout / "artifact" / "report" / "index.html"


class Seen:
    """What a page asks for and complains of, from before it loads."""

    def __init__(self, page: Page) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))


def load(browser: Browser, path: Path, width_px: int = 1280) -> tuple[Page, Seen]:
    page = browser.new_page(viewport={"width": width_px, "height": 900})
    seen = Seen(page)
    page.goto(path.as_uri())
    return page, seen


def fetched(seen: Seen) -> list[str]:
    return [url for url in seen.requests if not url.startswith(("file:", "data:"))]


def test_it_complains_of_nothing_and_asks_the_network_for_nothing(browser: Browser, report: Path) -> None:
    _, seen = load(browser, report)
    assert seen.requests and not fetched(seen) and not seen.complaints


def test_a_page_that_fetches_and_fails_is_noticed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<img src='http://127.0.0.1:9/x.png'><script>nowhere()</script>")
    page, seen = load(browser, path)
    page.wait_for_load_state("networkidle")
    assert fetched(seen) and seen.complaints


def test_every_picture_is_there(browser: Browser, report: Path) -> None:
    page, _ = load(browser, report)
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 2 and min(widths) > 0


@pytest.mark.parametrize("width_px", WIDTHS_PX)
def test_it_fits_the_screen_and_no_cell_is_cut(browser: Browser, report: Path, width_px: int) -> None:
    page, _ = load(browser, report, width_px)
    assert page.evaluate("document.documentElement.scrollWidth") <= width_px
    rights = page.evaluate("[...document.querySelectorAll('td, img')].map(e => e.getBoundingClientRect().right)")
    assert max(rights) <= width_px
    sizes = page.evaluate("[...document.querySelectorAll('td')].map(e => parseFloat(getComputedStyle(e).fontSize))")
    assert min(sizes) >= 12


def test_only_what_was_measured(browser: Browser, report: Path) -> None:
    page, _ = load(browser, report)
    shown = "[...document.querySelectorAll('#values tr')].filter(e => e.offsetParent !== null).length"
    before = page.evaluate(shown)
    page.get_by_label("only what was measured").check()
    assert page.evaluate(shown) == 2 < before  # the heading and the one value
