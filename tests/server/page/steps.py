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


def ask_for_download(page: "Page", name: str) -> None:
    """Send a name in the open model menu."""
    page.fill("#download-name", name)
    page.click("#models .downloads [type=submit]")


def begin_download(page: "Page", name: str) -> None:
    """Begin a download, and wait until the page listens to what the server tells next."""
    ask_for_download(page, name)
    row = page.locator("#models .downloads li").filter(has_text=name)
    expect(row).to_contain_text("waiting")
