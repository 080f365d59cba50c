"""Around the chat: kept conversations, errors, the key, colours, a phone, the keyboard alone."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

import json
import re
from collections.abc import Callable
from pathlib import Path

from fake_server import FakeServer
from playwright.sync_api import Page, expect
from steps import answers, ask, leave_field, send, wait_for_end

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]
Visit = Callable[..., Page]

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
# Statistics of which a part is hidden, or which break in the middle.
CUT = """() => {
  const all = document.querySelectorAll(".facts, .tile strong, .fall-facts, .plot-key, #context");
  const isCut = (node) => {
    const own = node.getBoundingClientRect();
    if (node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0) return true;
    if (node.matches(".plot-key") && own.height > 26) return true;
    for (let around = node.parentElement; around && own.width; around = around.parentElement) {
      if (getComputedStyle(around).overflowX === "visible") continue;
      const { left, right } = around.getBoundingClientRect();
      if (own.left < left - 1 || own.right > right + 1) return true;
    }
    return false;
  };
  return [...all].filter(isCut).map((node) => node.textContent);
}"""
PAPER = "getComputedStyle(document.body).backgroundColor"


def test_conversations_are_kept(page: Page) -> None:
    ask(page, "one")
    page.click(".new-button")
    expect(page.locator(".empty h1")).to_be_visible()
    ask(page, "two")
    page.reload()
    expect(page.locator(".bubble")).to_have_text(["two"])
    links = page.locator("#conversations a")
    expect(links).to_have_text(["two", "one"])
    links.last.click()
    expect(answers(page)).to_have_text(["You said: one"])
    page.go_back()
    expect(answers(page)).to_have_text(["You said: two"])
    page.fill("#search", "said: one")
    expect(links).to_have_text(["one"])


def test_a_conversation_is_renamed_exported_and_deleted(page: Page, tmp_path: Path) -> None:
    ask(page, "one")

    def choose(label: str) -> None:
        page.locator("#conversations .icon-button").click()
        page.get_by_role("menuitem", name=label).click()

    choose("Rename")
    page.fill(".rename-field", "A better name")
    page.press(".rename-field", "Enter")
    expect(page.locator("#title")).to_have_text("A better name")
    for label, name in (("Export as Markdown", "a.md"), ("Export as JSON", "a.json")):
        with page.expect_download() as download:
            choose(label)
        download.value.save_as(tmp_path / name)
    text = (tmp_path / "a.md").read_text()
    assert text.startswith(
        "# A better name\n\n## You\n\none\n\n## smollm2-135m-instruct\n\nYou said"
    )
    nodes = json.loads((tmp_path / "a.json").read_text())["nodes"]
    assert {node["role"] for node in nodes.values()} == {"root", "user", "assistant"}
    choose("Delete")
    expect(page.locator(".no-conversations")).to_be_visible()
    page.click("text=Undo")
    expect(answers(page)).to_have_text(["You said: one"])
    page.reload()
    expect(answers(page)).to_have_text(["You said: one"])


def test_an_answer_goes_on_while_another_conversation_is_in_view(
    page: Page, fake: FakeServer
) -> None:
    fake.hold_after = 3
    send(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the")
    page.click(".new-button")
    expect(page.locator(".writing-dot")).to_have_count(1)
    fake.release()
    expect(page.locator(".writing-dot")).to_have_count(0)
    page.locator("#conversations a").click()
    expect(answers(page)).to_contain_text("That is why the sky is blue.")


def test_another_tab_sees_what_is_written_here(page: Page, fake: FakeServer) -> None:
    other = page.context.new_page()
    other.goto(fake.url)
    ask(page, "one")
    other.locator("#conversations a").click()
    expect(answers(other)).to_have_text(["You said: one"])
    ask(page, "two")
    expect(answers(other)).to_have_text(["You said: one", "You said: two"])


def test_a_browser_without_room_says_so(page: Page) -> None:
    fill = "for (let n = 1 << 23; n >= 1; n >>= 1) {"
    fill += " try { localStorage.setItem('filler' + n, 'x'.repeat(n)) } catch {} }"
    ask(page, "one")
    page.evaluate(fill)
    ask(page, "two")
    expect(answers(page).last).to_have_text("You said: two")
    expect(page.locator(".toast").first).to_contain_text("storage is full")


def test_a_full_queue_is_asked_again(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.refusals = 5  # one more, and the page would give up
    send(page, "hello")
    expect(page.locator(".waiting")).to_contain_text(
        re.compile(r"The server is busy\. Retrying in [1-4] s\.")
    )
    shoot(page, "busy-light")
    fake.refusals = 0
    wait_for_end(page)
    expect(answers(page)).to_have_text("You said: hello")
    first, *others = fake.bodies
    assert others
    assert all(body == first for body in others)
    expect(page.locator(".branches")).to_have_count(0)


def test_a_full_context_is_explained(page: Page, shoot: Shoot) -> None:
    ask(page, "hello")
    ask(page, "this is too long")
    notice = page.locator(".notice:visible")
    expect(notice).to_contain_text("The conversation is too long for this model")
    expect(notice).to_contain_text("9000 tokens")
    shoot(page, "error-light")
    notice.get_by_role("button", name="New conversation").click()
    expect(page.locator(".empty h1")).to_be_visible()


def test_a_server_that_went_away(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    ask(page, "hello")
    fake.stop()
    ask(page, "are you there?")
    notice = page.locator(".notice:visible")
    expect(notice).to_contain_text("The server cannot be reached")
    shoot(page, "gone-light")
    fake.restart()
    notice.get_by_text("Try again").click()
    wait_for_end(page)
    expect(answers(page).last).to_have_text("You said: are you there?")
    expect(page.locator(".branches")).to_have_count(0)


def test_a_stream_that_breaks_off_keeps_its_text(page: Page, fake: FakeServer) -> None:
    fake.cut_after = 4
    ask(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the sun")
    expect(page.locator(".notice:visible")).to_contain_text("The answer was cut short")
    fake.cut_after = None
    page.get_by_text("Try again").click()
    wait_for_end(page)
    expect(answers(page)).to_contain_text("That is why")
    expect(page.locator(".branch-place")).to_have_text("2/2")


def test_a_page_that_was_closed_while_an_answer_came(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 4
    send(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the sun")
    page.reload()
    expect(answers(page)).to_have_text("Light from the sun")
    expect(page.locator(".notice:visible")).to_contain_text(
        re.compile("is incomplete|was cut short")  # the request may end before the page does
    )


def test_the_server_wants_a_key(visit: Visit, fake: FakeServer, shoot: Shoot) -> None:
    page = visit(fake.url)
    fake.keys = ["sesame"]
    ask(page, "hello")
    page.get_by_text("Enter key").click()
    shoot(page, "key-light")
    page.fill("#key", "sesame")
    page.press("#key", "Enter")
    expect(answers(page)).to_have_text("You said: hello")
    page.reload()
    ask(page, "again")
    expect(answers(page).last).to_have_text("You said: again")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(
    visit: Visit, fake: FakeServer, shoot: Shoot, scheme: str
) -> None:
    light, dark = "rgb(251, 250, 248)", "rgb(25, 24, 22)"
    page = visit(fake.url, color_scheme=scheme)
    assert page.evaluate(PAPER) == {"light": light, "dark": dark}[scheme]
    shoot(page, f"empty-{scheme}")
    ask(page, "the longest palindrome")
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    shoot(page, f"chat-{scheme}")
    page.click("#theme")
    assert page.evaluate(PAPER) == light
    page.click("#theme")
    page.reload()
    assert page.evaluate(PAPER) == dark


def test_a_phone(visit: Visit, fake: FakeServer, shoot: Shoot) -> None:
    page = visit(fake.url, **PHONE)

    def fits() -> bool:
        width: int = page.evaluate("document.documentElement.scrollWidth")
        return width <= 360

    assert fits()
    shoot(page, "phone-empty")
    page.fill("#message", "the longest palindrome")
    page.press("#message", "Enter")  # a line, not an end
    expect(page.locator(".bubble")).to_have_count(0)
    page.tap("#send")
    wait_for_end(page)
    assert fits()
    expect(page.locator(".facts")).to_contain_text("first after")
    assert page.evaluate(CUT) == []
    shoot(page, "phone-chat")
    page.tap(".header-menu")
    expect(page.locator("#conversations a")).to_be_in_viewport()
    expect(page.locator("#search")).to_be_visible()
    for hint in ("kbd:visible", "#shortcuts:visible"):  # there are no keys
        expect(page.locator(hint)).to_have_count(0)
    shoot(page, "phone-conversations")
    page.touchscreen.tap(350, 400)
    expect(page.locator("#conversations a")).not_to_be_in_viewport()
    page.tap(".header [data-toggle=settings]")
    expect(page.locator(".settings-head button")).to_be_focused()
    expect(page.locator("#system")).to_be_in_viewport()
    assert fits()
    shoot(page, "phone-settings")
    page.tap(".settings-head button")
    page.tap(".header-menu")
    page.tap("#dashboard-link")
    expect(page.locator("figure.plot").first).to_be_in_viewport()
    expect(page.locator(".fall-facts").first).to_be_visible()
    assert fits()
    assert page.evaluate(CUT) == []
    shoot(page, "phone-dashboard")


def test_the_keyboard_alone(page: Page, fake: FakeServer) -> None:
    expect(page.locator("#message")).to_be_focused()
    page.keyboard.type("hello")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("there")
    page.keyboard.press("Enter")
    wait_for_end(page)
    assert fake.bodies[-1]["messages"][0]["content"] == "hello\nthere"
    page.keyboard.press("ArrowUp")
    expect(page.locator(".edit-field")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".question [aria-label='Edit']")).to_be_focused()
    page.keyboard.press("r")
    wait_for_end(page)
    expect(page.locator(".branch-place")).to_have_text("2/2")
    page.locator("[aria-label='Previous version']").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".branch-place")).to_have_text("1/2")
    page.keyboard.press("[")
    page.keyboard.press("?")
    expect(page.locator("#shortcuts-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.locator("#message")).to_be_focused()
    expect(page.locator(".empty h1")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("hello")
    page.keyboard.press("Enter")
    expect(page.locator(".bubble")).to_have_count(1)
    leave_field(page)
    page.keyboard.press("d")
    expect(page.locator("figure.plot").first).to_be_visible()
    page.keyboard.press("d")
    expect(page.locator(".bubble")).to_be_visible()
    page.keyboard.press("s")
    expect(page.locator("#system")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#system")).not_to_be_in_viewport()


def test_focus_can_be_seen(page: Page) -> None:
    expect(page.locator("#message")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Shift+Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate("document.activeElement.tagName") != "BODY"
    assert page.evaluate(outline) == "solid"
