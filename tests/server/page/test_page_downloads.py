"""Downloads in the model menu: begun, watched, cancelled, failed, and chosen when they are here."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

from collections.abc import Callable
from typing import Any

from fake_server import FakeServer
from playwright.sync_api import Page, expect
from steps import ask, ask_for_download, begin_download, choose_model

pytestmark = pytest.mark.oracle

Visit = Callable[..., Page]
NAME, OTHER = "hf:Owner/Small-GGUF:Q8_0", "ollama:qwen3:0.6b"


def row(page: Page, name: str) -> Any:
    return page.locator("#models .downloads li").filter(has_text=name)


def test_a_server_that_downloads_nothing_offers_nothing(page: Page) -> None:
    page.click("#model")
    expect(page.locator("#models .model-row").first).to_be_visible()
    expect(page.locator("#models .downloads")).to_be_hidden()


def test_a_download_is_watched_and_its_model_chosen(visit: Visit, fake: FakeServer) -> None:
    fake.allow_downloads = True
    page = visit(fake.url)
    page.click("#model")
    begin_download(page, NAME)
    expect(page.locator("#download-name")).to_have_value("")
    fake.tell_download(NAME, "downloading", 250_000_000, 1_000_000_000)
    expect(row(page, NAME)).to_contain_text("downloading model.gguf: 250 MB of 1.0 GB")
    assert row(page, NAME).locator("progress").get_attribute("value") == "0.25"
    page.keyboard.press("Escape")  # it goes on while the menu is closed
    expect(page.locator("#models")).to_be_hidden()
    fake.tell_download(NAME, "done")
    expect(page.locator(".toast")).to_contain_text(f"{NAME} is downloaded.")
    choose_model(page, NAME)
    expect(page.locator("#model")).to_have_text(NAME)
    ask(page, "hello")
    assert fake.bodies[-1]["model"] == NAME


def test_downloads_are_cancelled_and_fail(visit: Visit, fake: FakeServer) -> None:
    fake.allow_downloads = True
    page = visit(fake.url)
    page.click("#model")
    begin_download(page, NAME)
    page.click(f"[aria-label='Cancel {NAME}']")
    expect(row(page, NAME)).to_have_count(0)
    assert fake.downloads == [("begin", NAME), ("cancel", NAME)]
    begin_download(page, OTHER)
    fake.tell_download(OTHER, "failed")
    expect(row(page, OTHER)).to_contain_text("the disk is full")
    page.click(f"[aria-label='Dismiss {OTHER}']")
    expect(row(page, OTHER)).to_have_count(0)
    assert len(fake.downloads) == 3, "a failed download is not cancelled"
    ask_for_download(page, "https://example.com/a.gguf")
    expect(page.locator(".toast").last).to_contain_text("cannot be downloaded for a client")
    expect(page.locator("#download-name")).to_have_value("https://example.com/a.gguf")


def test_downloads_of_others_are_shown(visit: Visit, fake: FakeServer) -> None:
    fake.allow_downloads = True
    fake.tell_download(NAME, "downloading", 100, 1000)
    page = visit(fake.url)
    page.click("#model")
    expect(row(page, NAME)).to_be_visible()
