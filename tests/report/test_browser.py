"""The page in a real browser: headless chromium, as people open it, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import build_contents, renamed

from cpubound.report.page.render import render_report

CHROMIUM = shutil.which("chromium")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Those of the data, not of legends.
POINTS, BARS = ".role-mark.mark-symbol path", ".role-mark.mark-rect path"
DRAWN = "html[data-drawn=yes]"
HOSTILE = "</script><img src=x onerror=\"document.title='gone'\">\u202e\x1b[31m" + "x" * 400
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_report(build_contents(target=20.0)), encoding="utf-8")
    return path.as_uri()


class Opened:
    """A page that is drawn, with what it said and asked for meanwhile."""

    def __init__(self, browser: Any, address: str, *, width: int = 1440, scheme: str = "light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector(DRAWN)


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Iterator[Opened]:
    found = Opened(browser, address)
    yield found
    found.context.close()


def test_nothing_is_said_on_the_console_and_no_request_leaves_the_page(
    opened: Opened, address: str
) -> None:
    assert opened.said == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [address]


def test_every_panel_has_marks(opened: Opened) -> None:
    panels = opened.page.query_selector_all(".panel")
    assert len(panels) > 12
    for panel in panels:
        marks = panel.query_selector_all(f"{POINTS}, {BARS}")
        assert marks, panel.get_attribute("data-chart")
        assert any((mark.bounding_box() or {"width": 0})["width"] > 1 for mark in marks)


@pytest.mark.parametrize(
    ("chart", "words"), [("contexts", "token/s"), ("rates", "GB/s"), ("noise", "of the median")]
)
def test_pointing_at_a_mark_shows_its_value(opened: Opened, chart: str, words: str) -> None:
    panel = opened.page.query_selector(f"[data-chart={chart}]")
    mark = panel.query_selector(POINTS) or panel.query_selector(BARS)
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tooltip = opened.page.wait_for_selector("#vg-tooltip-element.visible")
    assert words in tooltip.inner_text()
    opened.page.mouse.move(0, 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_it_fits_the_width_in_both_schemes(
    browser: Any, address: str, width: int, scheme: str
) -> None:
    found = Opened(browser, address, width=width, scheme=scheme)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    box = "e => e.getBoundingClientRect().right"
    assert max(svg.evaluate(box) for svg in found.page.query_selector_all(".panel svg")) <= width
    luminance = found.page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)[0]"
    )
    assert (luminance < 64) == (scheme == "dark")
    found.context.close()


def test_marks_and_words_change_with_the_theme(opened: Opened) -> None:
    fill = (
        "() => getComputedStyle(document.querySelector('[data-chart=rates] .mark-rect path')).fill"
    )
    before = opened.page.evaluate(fill)
    opened.page.click("#theme")
    assert opened.page.evaluate(fill) != before
    opened.page.click("#theme")
    assert opened.page.evaluate(fill) == before


def test_the_numbers_can_be_downloaded(opened: Opened) -> None:
    with opened.page.expect_download() as expected:
        opened.page.click("#download")
    assert expected.value.suggested_filename == "cpubound-report.json"
    assert '"schema":"cpubound.report/1"' in Path(expected.value.path()).read_text()


def test_the_keyboard_reaches_the_numbers_of_each_chart(opened: Opened) -> None:
    summary = opened.page.query_selector("#chart-contexts summary")
    summary.focus()
    opened.page.keyboard.press("Enter")
    assert opened.page.is_visible("#chart-contexts table")
    opened.page.keyboard.press("Enter")


def test_it_prints_to_paper(browser: Any, address: str) -> None:
    found = Opened(browser, address, scheme="dark")
    assert found.page.pdf(format="A4").startswith(b"%PDF")
    found.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser: Any, address: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found = Opened(browser, address, scheme=scheme)
    found.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    # The policy of the page lets no other script run: the checker's is put in by the debugger.
    results = Axe().run(found.page).response["violations"]
    serious = [v for v in results if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in serious] == []
    found.context.close()


def test_names_of_strangers_run_nothing_and_keep_the_width(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(render_report(renamed(build_contents(), HOSTILE)), encoding="utf-8")
    found = Opened(browser, path.as_uri(), width=375)
    assert found.said == []
    assert "gone" not in found.page.title()[:4]
    assert found.page.query_selector("img") is None
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 375
    found.context.close()
