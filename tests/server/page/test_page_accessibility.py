"""axe-core finds no problem in any view of the page, light and dark, wide and narrow."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")
pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python==0.1.8")

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
from fake_server import FakeServer
from playwright.sync_api import Page, expect
from steps import begin_download

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]
Visit = Callable[..., Page]
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
SCREENS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 860}},
    "tablet": {"viewport": {"width": 820, "height": 1100}, "has_touch": True},
    "phone": {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True},
}
TOOL = json.dumps([{"name": "get_weather", "parameters": {"type": "object"}}])


def show_nothing(page: Page, _: FakeServer) -> None:
    expect(page.locator(".empty h1")).to_be_visible()


def show_settings(page: Page, _: FakeServer) -> None:
    page.locator(".header [data-toggle=settings]").click()
    expect(page.locator("#system")).to_be_in_viewport()
    for summary in page.locator(".more summary").all():
        summary.click()
    page.select_option("#format-kind", "schema")
    page.fill("#format-text", "{")


def ask_for(text: str) -> Callable[[Page, FakeServer], None]:
    def begin(page: Page, _: FakeServer) -> None:
        page.fill("#message", text)
        page.click("#send")
        expect(page.locator("#halt")).to_be_hidden()

    return begin


def show_chat(page: Page, fake: FakeServer) -> None:
    page.set_input_files(
        "#files", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"some text"}
    )
    ask_for("the longest palindrome")(page, fake)
    page.locator("[aria-label=Regenerate]").click()
    expect(page.locator(".branch-place")).to_have_text("2/2")
    expect(page.locator("#halt")).to_be_hidden()


def show_tokens(page: Page, fake: FakeServer) -> None:
    ask_for("Why is the sky blue?")(page, fake)
    page.click(".tokens-button")
    page.locator(".token").nth(3).focus()
    expect(page.locator(".token-card")).to_be_visible()


def show_queue(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 3
    for text in ("Why is the sky blue?", "and then"):
        page.fill("#message", text)
        page.click("#send")
    expect(page.locator("#queue")).to_be_visible()


def show_calls(page: Page, fake: FakeServer) -> None:
    show_settings(page, fake)
    page.select_option("#format-kind", "text")
    page.fill("#tools", TOOL)
    page.press("#tools", "Tab")
    page.locator(".settings-head button").click()
    ask_for("Use your tools")(page, fake)
    expect(page.locator(".call")).to_be_visible()


def show_error(page: Page, fake: FakeServer) -> None:
    ask_for("this is too long")(page, fake)
    expect(page.locator(".notice:visible")).to_be_visible()


def show_models(page: Page, _: FakeServer) -> None:
    page.click("#model")
    expect(page.locator("#models")).to_be_in_viewport(ratio=1)


def show_downloads(page: Page, fake: FakeServer) -> None:
    page.click("#model")
    for name, status in (("hf:Owner/Small-GGUF:Q8_0", "downloading"), ("ollama:qwen3", "failed")):
        begin_download(page, name)
        fake.tell_download(name, status, 250_000_000, 1_000_000_000)
    expect(page.locator("#models .downloads")).to_contain_text("the disk is full")
    expect(page.locator("#models")).to_be_in_viewport(ratio=1)


def show_conversations(page: Page, fake: FakeServer) -> None:
    ask_for("hello")(page, fake)
    if page.locator(".header-menu").is_visible():
        page.click(".header-menu")
    expect(page.locator("#conversations a")).to_be_in_viewport()
    page.locator("#conversations .icon-button").click()


def show_dashboard(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 3
    page.fill("#message", "Why is the sky blue?")
    page.click("#send")
    page.goto(f"{fake.url}/#/dashboard")
    expect(page.locator(".fall li")).to_have_count(3)


def show_comparison(page: Page, fake: FakeServer) -> None:
    page.goto(f"{fake.url}/#/compare")
    page.get_by_label("Message to both").fill("hello")
    page.click("#compare [aria-label=Send]")
    expect(page.locator(".pane-answer .hint").last).to_contain_text("tokens")


VIEWS: dict[str, Callable[[Page, FakeServer], None]] = {
    "empty": show_nothing,
    "chat": show_chat,
    "figures": ask_for("Draw some figures"),
    "tokens": show_tokens,
    "queue": show_queue,
    "calls": show_calls,
    "error": show_error,
    "settings": show_settings,
    "models": show_models,
    "downloads": show_downloads,
    "conversations": show_conversations,
    "dashboard": show_dashboard,
    "compare": show_comparison,
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_no_problem(
    visit: Visit, fake: FakeServer, shoot: Shoot, screen: str, scheme: str
) -> None:
    found = {}
    fake.allow_downloads = True
    for name, show in VIEWS.items():
        fake.reset()
        page = visit(fake.url, color_scheme=scheme, **SCREENS[screen])
        show(page, fake)
        shoot(page, f"{screen}-{name}-{scheme}")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= SCREENS[screen]["viewport"]["width"], f"{name} is too wide"
        page.evaluate(AXE)
        results = page.evaluate("axe.run()")
        found[name] = {
            problem["id"]: [node["html"][:200] for node in problem["nodes"]][:3]
            for problem in results["violations"]
        }
        fake.release()
        page.close()
    assert found == {name: {} for name in VIEWS}
