"""What a reader does on the page, in the words of the tests."""

from typing import TYPE_CHECKING

from playwright.sync_api import Locator, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page


def send(page: "Page", text: str) -> None:
    """Write a message and send it."""
    page.fill("#message", text)
    page.press("#message", "Enter")


def wait_for_end(page: "Page") -> None:
    """Wait until no answer is being written."""
    expect(page.locator("#halt")).to_be_hidden()
    expect(page.locator(".answer.writing")).to_have_count(0)


def ask(page: "Page", text: str) -> None:
    """Send a message and wait for the whole answer."""
    send(page, text)
    wait_for_end(page)


def answers(page: "Page") -> Locator:
    """The texts of all answers in view."""
    return page.locator(".answer-text")


def leave_field(page: "Page") -> None:
    """Take the focus out of the message field, so that letters are shortcuts."""
    page.locator("#message").blur()


def choose_model(page: "Page", name: str) -> None:
    """Choose a model in the header's menu."""
    page.click("#model")
    page.locator(f"#models [data-focus='{name}']").click()
