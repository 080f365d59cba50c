"""The token view and the dashboard in a browser."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

import math
from collections.abc import Callable

from fake_answers import PLAIN, answer
from fake_server import FakeServer
from playwright.sync_api import Locator, Page, expect
from steps import ask, leave_field, send

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]
PIECES = list(answer("sky"))


def percents(page: Page) -> Locator:
    return page.locator(".token-card:visible .token-percent")


def test_every_token_has_its_colour_and_its_alternatives(page: Page, shoot: Shoot) -> None:
    ask(page, "Why is the sky blue?")
    page.click(".tokens-button")
    tokens = page.locator(".token")
    expect(tokens).to_have_count(len(PIECES))
    assert page.locator(".token-text").inner_text().replace("↵\n", "\n").strip() == PLAIN
    unlikely = next(at for at, piece in enumerate(PIECES) if piece.logprobs[0][0] != piece.text)
    certain = next(at for at, piece in enumerate(PIECES) if piece.logprobs[0][1] > -0.05)
    heat = "node => getComputedStyle(node).backgroundColor"
    assert tokens.nth(certain).evaluate(heat) != tokens.nth(unlikely).evaluate(heat)
    tokens.nth(unlikely).hover()
    shoot(page, "tokens-light")
    expected = [f"{100 * math.exp(value):.1f}%" for _, value in PIECES[unlikely].logprobs]
    expect(percents(page)).to_have_text(expected)
    chosen = page.locator(".token-card .chosen code")
    expect(chosen).to_have_text(PIECES[unlikely].text.replace(" ", "␣"))
    page.mouse.move(5, 5)
    expect(page.locator(".token-card:visible")).to_have_count(0)
    page.click(".tokens-button")
    expect(page.locator(".answer-text")).to_contain_text("Light from the sun")


def test_tokens_are_reached_by_keyboard(page: Page) -> None:
    ask(page, "Why is the sky blue?")
    leave_field(page)
    page.keyboard.press("t")
    tokens = page.locator(".token")
    expect(tokens.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(2)).to_be_focused()
    described = tokens.nth(2).get_attribute("aria-describedby")
    expect(page.locator(f"#{described}")).to_be_visible()
    expect(percents(page)).to_have_count(5)
    page.keyboard.press("ArrowDown")
    below = tokens.nth(2).bounding_box()
    now = page.evaluate("document.activeElement.getBoundingClientRect().top")
    assert below is not None
    assert now > below["y"] + 5
    page.keyboard.press("End")
    expect(tokens.last).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".token-card:visible")).to_have_count(0)


def test_tokens_are_kept_and_grow_while_they_come(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 6
    send(page, "Why is the sky blue?")
    expect(page.locator(".answer-text")).to_contain_text("Light from the sun holds all")
    leave_field(page)
    page.keyboard.press("t")
    expect(page.locator(".token")).to_have_count(6)
    fake.release()
    expect(page.locator(".token")).to_have_count(len(PIECES))
    page.reload()
    page.click(".tokens-button")
    expect(page.locator(".token")).to_have_count(len(PIECES))


def test_the_dashboard_moves(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.pause, fake.repeats = 0.05, True
    send(page, "the longest palindrome")
    page.click("#dashboard-link")
    tiles = page.locator(".tile strong")
    expect(tiles.nth(1)).to_have_text("1 of 32")
    expect(page.locator(".slots .taken")).to_have_count(1)
    expect(page.locator(".state-generating")).to_have_text("generating")
    page.wait_for_function(
        "() => parseFloat(document.querySelector('.tile strong').textContent) > 0"
    )  # tokens a second, from two states
    line = page.locator(".plot-line").first
    first = line.get_attribute("points")
    page.wait_for_function(
        "before => document.querySelector('.plot-line').getAttribute('points') !== before",
        arg=first,
    )
    page.wait_for_function(
        "() => document.querySelector('.plot-line').getAttribute('points').split(' ').length >= 4"
    )
    shoot(page, "dashboard-light")
    fake.pause, fake.repeats = 0, False
    expect(tiles.nth(1)).to_have_text("0 of 32")
    expect(page.locator(".requests .nothing")).to_be_visible()
    page.click("text=gemma-3-270m (not loaded)")
    expect(tiles.nth(1)).to_have_text("–")


def test_the_dashboard_waits_for_a_server_that_went_away(page: Page, fake: FakeServer) -> None:
    page.click("#dashboard-link")
    expect(page.locator(".tile strong").nth(1)).to_have_text("0 of 32")
    fake.stop()
    expect(page.locator("#dashboard .notice")).to_contain_text("cannot be reached")
    fake.restart()
    expect(page.locator("#dashboard .notice")).to_be_hidden()
