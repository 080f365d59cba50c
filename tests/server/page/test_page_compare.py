"""The comparison in a browser: two models or two settings, side by side."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

from collections.abc import Callable

from fake_server import FakeServer
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]


def ask_both(page: Page, text: str) -> None:
    page.get_by_label("Message to both").fill(text)
    page.get_by_label("Message to both").press("Enter")
    expect(page.locator("#compare .halt")).to_be_hidden()


def test_two_models_answer_side_by_side(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    page.click("#compare-link")
    expect(page.locator("#title")).to_have_text("Compare")
    left, right = page.locator(".pane").all()
    expect(left.get_by_label("Model")).to_have_value("smollm2-135m-instruct")
    expect(right.get_by_label("Model")).to_have_value("gemma-3-270m")
    right.get_by_label("Temperature").fill("0.2")
    right.get_by_label("System prompt").fill("Be brief.")
    ask_both(page, "Why is the sky blue?")
    bodies = {body["model"]: body for body in fake.bodies}
    assert set(bodies) == {"smollm2-135m-instruct", "gemma-3-270m"}
    assert bodies["gemma-3-270m"]["temperature"] == 0.2
    assert bodies["gemma-3-270m"]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "temperature" not in bodies["smollm2-135m-instruct"]
    for pane in (left, right):
        expect(pane.locator(".pane-answer")).to_contain_text("That is why the sky is blue.")
        expect(pane.locator(".pane-answer .hint").last).to_contain_text("43 tokens")
    shoot(page, "compare-light")
    ask_both(page, "And at night?")
    assert [message["role"] for message in fake.bodies[-1]["messages"]][-3:] == [
        "user",
        "assistant",
        "user",
    ]
    expect(page.locator("#conversations a")).to_have_count(0)  # nothing is stored yet
    right.get_by_role("button", name="Keep as a conversation").click()
    expect(page.locator(".bubble:visible")).to_have_text(["Why is the sky blue?", "And at night?"])
    expect(page.locator("#model")).to_have_text("gemma-3-270m")
    expect(page.locator("#conversations a")).to_have_count(1)


def test_each_side_shows_how_much_of_its_prompt_is_read(page: Page, fake: FakeServer) -> None:
    fake.progress = [256]
    page.click("#compare-link")
    page.get_by_label("Message to both").fill("Why is the sky blue?")
    page.get_by_label("Message to both").press("Enter")
    waiting = page.locator(".pane-answer .waiting")
    words = "Reading the prompt: 256 of 1,000 tokens"
    expect(waiting).to_have_text([words, words])
    assert waiting.first.evaluate("node => node.style.getPropertyValue('--done')") == "0.256"
    fake.release()
    expect(page.locator("#compare .halt")).to_be_hidden()
    for each in waiting.all():
        expect(each).to_be_hidden()


def test_a_phone_has_both_sides_and_their_settings(
    visit: Callable[..., Page], fake: FakeServer
) -> None:
    page = visit(fake.url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page.goto(f"{fake.url}/#/compare")
    field = page.get_by_label("Message to both")
    assert field.evaluate("node => node.clientHeight >= node.scrollHeight")
    for pane in page.locator(".pane").all():
        for label in ("Model", "Preset", "Temperature"):
            expect(pane.get_by_label(label)).to_be_in_viewport(ratio=1)
            assert pane.get_by_label(label).evaluate("node => node.clientWidth") > 120, label
    field.fill("hello")
    field.press("Enter")  # begins a line
    assert not fake.bodies
    page.click("#compare [aria-label=Send]")
    expect(page.locator(".pane-answer")).to_contain_text(["You said: hello"] * 2)
    widths = page.locator(".pane-answer").evaluate_all("all => all.map((one) => one.clientWidth)")
    assert min(widths) > 280  # lines that can be read
    page.locator(".pane-foot button").last.scroll_into_view_if_needed()
    expect(page.locator(".pane-foot button").last).to_be_in_viewport(ratio=1)
    cut = "all => all.some((one) => one.scrollHeight > one.clientHeight + 1)"
    assert not page.locator(".pane, .pane-messages").evaluate_all(cut)  # all of it scrolls together


def test_two_settings_of_one_model(page: Page, fake: FakeServer) -> None:
    page.click(".header [data-toggle=settings]")
    page.fill("#setting-top_k", "1")
    page.press("#setting-top_k", "Tab")
    page.click("#save-preset")
    page.fill("#name", "Greedy")
    page.press("#name", "Enter")
    page.click("#reset")
    page.locator("#setting-top_k").blur()
    page.keyboard.press("c")
    left, right = page.locator(".pane").all()
    right.get_by_label("Model").select_option("smollm2-135m-instruct")
    right.get_by_label("Preset").select_option("Greedy")
    ask_both(page, "hello")
    assert sorted(body.get("top_k", 0) for body in fake.bodies) == [0, 1]
    assert {body["model"] for body in fake.bodies} == {"smollm2-135m-instruct"}
    expect(left.locator(".pane-answer")).to_contain_text("You said: hello")


def test_both_are_stopped_and_start_over(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 3
    page.click("#compare-link")
    page.get_by_label("Message to both").fill("Why is the sky blue?")
    page.get_by_label("Message to both").press("Enter")
    for pane in page.locator(".pane").all():
        expect(pane.locator(".pane-answer")).to_contain_text("Light from the")
    page.click("#compare .halt")
    expect(page.locator("#compare .halt")).to_be_hidden()
    for pane in page.locator(".pane").all():
        expect(pane.locator(".pane-answer")).to_contain_text("stopped")
    page.click("[aria-label='Start over']")
    expect(page.locator(".pane-answer")).to_have_count(0)


def test_an_error_of_one_side_is_shown_there(page: Page) -> None:
    page.click("#compare-link")
    ask_both(page, "this is too long")
    expect(page.locator(".pane-answer .problem").first).to_contain_text("too long for this model")
