"""The chat in a browser: streams, stopping, answering again, branches, safe text."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

from collections.abc import Callable

from fake_answers import HOSTILE, PLAIN, THOUGHT
from fake_server import FakeServer
from playwright.sync_api import Page, expect
from steps import answers, ask, choose_model, leave_field, send, wait_for_end

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]


def test_an_answer_streams(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.hold_after = 12
    shoot(page, "empty-light")
    send(page, "Why is the sky blue?")
    expect(page.locator(".bubble")).to_have_text("Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the sun holds all colours. Air scatters blue")
    expect(page.locator(".answer")).to_have_class("message answer writing")
    expect(page.locator("#halt")).to_be_visible()
    shoot(page, "writing-light")
    fake.release()
    wait_for_end(page)
    expect(answers(page).locator("p")).to_have_text(PLAIN.split("\n\n"))
    expect(page.locator(".facts")).to_contain_text("smollm2-135m-instruct · 43 tokens")
    expect(page.locator("#context")).to_contain_text("48 of 8,192 tokens")


def test_the_request_says_what_was_set(page: Page, fake: FakeServer) -> None:
    choose_model(page, "gemma-3-270m")
    page.click(".header [data-toggle=settings]")
    page.fill("#system", "Be brief.")
    page.fill("#setting-temperature", "0.3")
    page.fill("#setting-top_k", "7")
    page.fill("#setting-max_tokens", "50")
    page.fill("#stop", "END\n\\n\\n")
    page.press("#stop", "Tab")
    ask(page, "hello")
    body = fake.bodies[-1]
    assert body["model"] == "gemma-3-270m"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"] == "Be brief."
    assert (body["temperature"], body["top_k"], body["max_tokens"]) == (0.3, 7, 50)
    assert body["stop"] == ["END", "\n\n"]
    assert (body["stream"], body["logprobs"], body["top_logprobs"]) == (True, True, 8)
    assert body["stream_options"] == {"include_usage": True}
    assert "top_p" not in body  # what is not set is the server's choice
    page.click("#reset")
    ask(page, "hello again")
    assert "temperature" not in fake.bodies[-1]
    assert [message["content"] for message in fake.bodies[-1]["messages"]] == [
        "Be brief.",
        "hello",
        "You said: hello",
        "hello again",
    ]


def test_stop_ends_the_stream_and_keeps_the_text(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 4
    send(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the sun")
    page.click("#halt")
    wait_for_end(page)
    expect(answers(page)).to_have_text("Light from the sun")
    expect(page.locator(".facts")).to_contain_text("stopped")
    page.wait_for_function(
        "() => fetch('api/status').then(r => r.json()).then(s => !s.models[0].running)"
    )


def test_escape_stops_too(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 2
    send(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from")
    page.keyboard.press("Escape")
    wait_for_end(page)
    expect(page.locator(".facts")).to_contain_text("stopped")


def test_answering_again_makes_a_branch(page: Page, fake: FakeServer) -> None:
    ask(page, "Why is the sky blue?")
    page.click("[aria-label='Regenerate']")
    wait_for_end(page)
    assert fake.bodies[0]["messages"] == fake.bodies[1]["messages"]
    expect(page.locator(".branch-place")).to_have_text("2/2")
    page.click("[aria-label='Previous version']")
    expect(page.locator(".branch-place")).to_have_text("1/2")
    leave_field(page)
    page.keyboard.press("]")
    expect(page.locator(".branch-place")).to_have_text("2/2")


def test_editing_a_message_makes_a_branch(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    ask(page, "first")
    ask(page, "second")
    question = page.locator(".question").first
    question.hover()
    question.locator("[aria-label='Edit']").click()
    page.fill(".edit-field", "another first")
    shoot(page, "editing-light")
    page.press(".edit-field", "Enter")
    wait_for_end(page)
    assert fake.bodies[-1]["messages"] == [{"role": "user", "content": "another first"}]
    expect(page.locator(".bubble")).to_have_text(["another first"])
    page.locator(".question").hover()
    page.locator(".question [aria-label='Previous version']").click()
    expect(page.locator(".bubble")).to_have_text(["first", "second"])
    expect(answers(page)).to_have_text(["You said: first", "You said: second"])
    page.reload()
    expect(page.locator(".bubble")).to_have_text(["first", "second"])


def test_markup_is_shown_as_text(page: Page, shoot: Shoot) -> None:
    ask(page, "Write some markup")
    shown = answers(page)
    expect(shown).to_contain_text("<script>window.broken = 1</script>")
    expect(shown).to_contain_text('<img src=x onerror="window.broken = 2">')
    expect(shown.locator("pre")).to_have_text("<script>window.broken = 5</script>")
    expect(shown.locator("td")).to_have_text("<img src=y onerror=window.broken=6>")
    expect(shown.locator("script, img, b, a, svg:not(.icon)")).to_have_count(0)
    assert page.evaluate("window.broken") is None
    shoot(page, "markup-light")
    leave_field(page)
    page.keyboard.press("t")
    text = page.locator(".token-text").inner_text().replace("↵\n", "\n")
    assert text.strip() == HOSTILE.strip()
    expect(page.locator(".token-text :is(script, img, b, svg)")).to_have_count(0)
    ask(page, "<img src=x onerror='window.broken = 7'>")
    expect(page.locator(".bubble").last).to_have_text("<img src=x onerror='window.broken = 7'>")
    assert page.evaluate("window.broken") is None


def test_reasoning_is_folded(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.hold_after = 5
    send(page, "think of a number")
    expect(page.locator(".reasoning summary")).to_have_text("Thinking")
    expect(page.locator(".reasoning .markdown")).to_be_hidden()
    fake.release()
    wait_for_end(page)
    expect(answers(page)).to_have_text("Take 7.")
    expect(page.locator(".reasoning summary")).to_contain_text("Thought for")
    page.click(".reasoning summary")
    expect(page.locator(".reasoning .markdown")).to_have_text(THOUGHT)
    shoot(page, "reasoning-light")
    ask(page, "and again")
    assert fake.bodies[-1]["messages"][1] == {"role": "assistant", "content": "Take 7."}


def test_a_code_block_can_be_copied(page: Page, shoot: Shoot) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(page, "the longest palindrome")
    page.click("[aria-label='Copy code']")
    expect(page.locator(".code-bar .done")).to_have_count(1)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("def longest_palindrome(text: str) -> str:\n    # Each centre")
    assert copied.endswith("    return best")
    page.locator(".answer").locator("h2").scroll_into_view_if_needed()
    shoot(page, "chat-light")


def test_the_view_follows_the_answer_until_the_reader_scrolls(page: Page, fake: FakeServer) -> None:
    fake.pause = 0.01
    page.set_viewport_size({"width": 1000, "height": 480})
    distance = "() => { const s = document.querySelector('#scroll');"
    distance += " return s.scrollHeight - s.scrollTop - s.clientHeight < 2 }"
    send(page, "the longest palindrome")
    expect(page.locator(".answer table")).to_be_visible()
    page.wait_for_function("() => document.querySelector('#scroll').scrollTop > 100")
    page.wait_for_function(distance)
    page.evaluate("document.querySelector('#scroll').scrollTop = 0")
    expect(page.locator("#jump")).to_be_visible()
    wait_for_end(page)
    assert page.evaluate("document.querySelector('#scroll').scrollTop") == 0
    page.click("#jump")
    page.wait_for_function(distance)
