"""The report in a real browser: no error, nothing sticks out, and the right charts are shown."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from gpubudget.sim.measures import measure
from gpubudget.sim.report import Run, page
from gpubudget.sim.result import Preemption
from gpubudget.units import DAY, HOUR
from tests.made_runs import Did, made, tree

CHROMIUM = shutil.which("chromium")
WIDE, NARROW = {"width": 1100, "height": 900}, {"width": 360, "height": 740}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run, and two side by side, with long names and many programs."""
    shares = {f"a-program-with-a-long-name-{number}": "1/12" for number in range(12)}
    did = [
        Did(f"w{n}", name, 1 + n, n * HOUR, 9 * HOUR, [(n * HOUR + n**4 * 1000, n * HOUR + n**4 * 1000 + 9 * HOUR)])
        for n, name in enumerate(shares)
    ]
    first, second = list(shares)[:2]
    stops = [Preemption(n * HOUR, f"w{n}", 1, first, n % 2 > 0, 8, 0, HOUR, HOUR, "w0", second) for n in range(20)]
    result = made(tree(shares, lookback=DAY), did, until=2 * DAY, gpus=64, preemptions=stops)
    runs = [Run(name, result, measure(result)) for name in ("the shares of today", "the shares of the pull request")]
    found = {}
    for name, some in (("one", runs[:1]), ("two", runs)):
        found[name] = tmp_path_factory.mktemp("reports") / f"{name}.html"
        found[name].write_text(page(some), encoding="utf-8")
    return found


def opened(browser: Browser, path: Path, **how: object) -> tuple[Page, list[str]]:
    """The page in a fresh tab, and all that the browser complains of or asks the network for."""
    tab = browser.new_page(**how)  # type: ignore[arg-type]  # options pass through as they are
    trouble: list[str] = []
    tab.on("console", lambda message: trouble.append(message.text))
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.on("request", lambda asked: trouble.append(asked.url) if asked.url.startswith("http") else None)
    tab.goto(path.as_uri())
    return tab, trouble


@pytest.mark.parametrize(
    ("which", "scheme", "size"),
    [("one", "light", WIDE), ("one", "dark", NARROW), ("two", "dark", WIDE), ("two", "light", NARROW)],
    ids=["one-light-wide", "one-dark-narrow", "two-dark-wide", "two-light-narrow"],
)
def test_it_opens_without_an_error_and_fits(
    browser: Browser, reports: dict[str, Path], which: str, scheme: str, size: dict[str, int]
) -> None:
    """Nothing is complained of, and the page is not wider than the screen; only tables may scroll."""
    tab, trouble = opened(browser, reports[which], viewport=size, color_scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert trouble == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert tab.locator("svg.chart:visible").count() >= 5
    for name, shown in (("wide", size is WIDE), ("narrow", size is NARROW)):
        assert (tab.locator(f".{name}:visible").count() > 0) is shown
    tab.close()


def test_dark_is_dark_and_paper_is_light(browser: Browser, reports: dict[str, Path]) -> None:
    """The page follows the reader's setting, but on paper it is always light."""
    tab, _ = opened(browser, reports["one"], color_scheme="dark")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    assert tab.evaluate(background) == "rgb(17, 22, 28)"
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate(background) == "rgb(255, 255, 255)"
    tab.close()


def test_it_prints(browser: Browser, reports: dict[str, Path]) -> None:
    """On paper there are the wide charts, and all of it makes a few pages."""
    tab, trouble = opened(browser, reports["one"])
    paper = tab.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert trouble == []
    tab.close()


def test_every_shape_is_coloured(browser: Browser, reports: dict[str, Path]) -> None:
    """A shape without a style is black, which nobody sees on a dark page."""
    tab, _ = opened(browser, reports["one"], color_scheme="dark")
    black = tab.evaluate("""[...document.querySelectorAll('svg rect, svg path, svg circle, svg text')]
        .filter(shape => getComputedStyle(shape).fill === 'rgb(0, 0, 0)').length""")
    assert black == 0
    tab.close()
