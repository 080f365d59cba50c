"""A browser for the page, and a server with scripted answers behind it.

Tests that use them skip where Playwright or Chromium is absent, and say what would bring them.
Screenshots go to build/screenshots.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_server import FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENSHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
PATIENCE = 300_000  # milliseconds: the machine may be busy
# What the page takes away after some seconds stays until a test has seen it.
LASTING = """{
  const later = window.setTimeout;
  const longer = (delay) => (delay > 1500 ? 100 * delay : delay);
  window.setTimeout = (run, delay, ...rest) => later(run, longer(delay), ...rest);
}"""


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium, without a window."""
    reason = "Playwright is not here: pip install playwright==1.65.0"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not here: apt-get install chromium")
    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=ARGUMENTS.split(), timeout=PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """A server whose answers are scripted."""
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
def visit(browser: "Browser") -> Iterator[Callable[..., "Page"]]:
    """Open the page in a context of its own, with options of Playwright's contexts.

    At the end: no script failed, nothing was refused by the page's policy, nobody else was asked.
    """
    contexts = []
    complaints: list[str] = []
    asked: set[str] = set()
    urls: set[str] = set()

    def open_page(url: str, **options: Any) -> "Page":
        options = {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"} | options
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE)
        context.add_init_script(LASTING)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: _listen(message, complaints))
        page.on("request", lambda request: asked.add("/".join(request.url.split("/", 3)[:3])))
        urls.add(url)
        page.goto(url)
        page.wait_for_selector("#model:enabled", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
    assert {origin for origin in asked if not origin.startswith("blob:")} <= urls


def _listen(message: Any, complaints: list[str]) -> None:
    """Note what scripts complain of; an answer with an error status is the tests' own doing."""
    if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
        complaints.append(message.text)


@pytest.fixture
def page(visit: Callable[..., "Page"], fake: FakeServer) -> "Page":
    """The page of the fake server, on a wide screen."""
    return visit(fake.url)


@pytest.fixture(scope="session")
def shoot() -> Callable[["Page", str], None]:
    """Write a screenshot of a page under a name."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def take(page: "Page", name: str) -> None:
        page.wait_for_timeout(300)  # what slides in has arrived
        page.screenshot(path=SCREENSHOTS / f"{name}.png")

    return take
