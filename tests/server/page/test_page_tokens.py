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
    return page.locator(".token-card:visible li:not(.rest) .token-percent")


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
    rank = 1 + [text for text, _ in PIECES[unlikely].logprobs].index(PIECES[unlikely].text)
    place = {2: "2nd", 3: "3rd"}.get(rank, f"{rank}th")
    expect(page.locator(".token-place")).to_have_text(f"The {place} most likely token")
    chosen = page.locator(".token-card .chosen code")
    expect(chosen).to_have_text(PIECES[unlikely].text.replace(" ", "␣"))
    page.mouse.move(5, 5)
    expect(page.locator(".token-card:visible")).to_have_count(0)
    page.click(".tokens-button")
    expect(page.locator(".answer-text")).to_contain_text("Light from the sun")


def test_another_temperature_weighs_the_alternatives_anew(page: Page, shoot: Shoot) -> None:
    ask(page, "Why is the sky blue?")
    page.click(".tokens-button")
    unlikely = next(at for at, piece in enumerate(PIECES) if piece.logprobs[0][0] != piece.text)
    token = page.locator(".token").nth(unlikely)
    values = [value for _, value in PIECES[unlikely].logprobs]
    heat = page.locator(".token-heat input")

    def expected(temperature: float) -> list[str]:
        weights = [math.exp(value / temperature) for value in values]
        unknown = 1 - sum(math.exp(value) for value in values)
        others = unknown * math.exp(values[-1] / temperature - values[-1])
        total = sum(weights) + others
        return [f"{100 * weight / total:.1f}%" for weight in [*weights, others]]

    everything = page.locator(".token-card:visible .token-percent")
    for temperature in (0.5, 2):
        heat.fill(str(temperature))
        token.hover()
        expect(everything).to_have_text(expected(temperature))
        expect(page.locator(".token-place")).to_contain_text("most likely token")
    shoot(page, "temperature-light")
    heat.fill("0")
    token.hover()
    expect(percents(page)).to_have_text(["100%", *["<0.1%"] * (len(values) - 1)])
    expect(token).to_have_class("token shade-6 unlikely")
    heat.fill("1")
    token.hover()
    expect(everything).to_have_text(expected(1))


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
    expect(page.locator(".slots")).to_be_hidden()
    expect(page.locator(".slots-place")).to_have_text("Slots32 free")
    page.click("text=gemma-3-270m (not loaded)")
    expect(tiles.nth(1)).to_have_text("–")


def counts(at: int) -> dict[str, int]:
    names = ("running", "waiting", "steps", "prompt_tokens", "reused_tokens", "guessed_tokens")
    more = ("text_steps", "accepted_tokens", "cache_blocks_held", "cache_blocks_kept")
    zero = dict.fromkeys((*names, *more), 0)
    return zero | {"cache_blocks": 512, "generated_tokens": 20 * at}


def test_the_plots_are_full_at_once(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.past = [
        {"age": 100 - second, "models": {"smollm2-135m-instruct": counts(second)}}
        for second in range(100)
    ]
    fake.written = 20 * 100
    page.click("#dashboard-link")
    page.wait_for_function(
        "() => document.querySelector('.plot-line')?.getAttribute('points').split(' ').length >= 99"
    )
    expect(page.locator(".plot-grid text").first).to_have_text("0/s")
    shoot(page, "dashboard-full-light")


def test_the_parts_of_each_request_are_shown(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 3
    send(page, "Why is the sky blue?")
    expect(page.locator(".answer-text")).to_have_text("Light from the")
    page.click("#dashboard-link")
    rows = page.locator(".fall li")
    expect(rows).to_have_count(3)
    expect(rows.locator(".state")).to_have_text(["generating", "50 s ago", "1 min ago"])
    expect(rows.nth(1)).to_contain_text("4.00 s · 300 in, 51 out · first after 1.50 s · 20/s")
    widths = [
        part.evaluate("node => node.style.width")
        for part in rows.nth(1).locator("[class^=part-]").all()
    ]
    assert widths == ["12.5%", "25%", "62.5%"]
    fake.release()


def test_guesses_are_shown_if_there_are_any(page: Page, fake: FakeServer) -> None:
    page.click("#dashboard-link")
    expect(page.locator(".tile").nth(1)).to_contain_text("0 of 32")
    expect(page.locator(".tile", has_text="Accepted guesses")).to_be_hidden()
    expect(page.locator(".tile", has_text="Tokens per step")).to_be_hidden()
    fake.guessed, fake.written = (40, 30), 60
    expect(page.locator(".tile", has_text="Accepted guesses")).to_have_text("Accepted guesses75%")
    expect(page.locator(".tile", has_text="Tokens per step")).to_have_text("Tokens per step2.00")
    expect(page.locator("figure", has_text="Accepted guesses")).to_be_visible()
    expect(page.locator("figure", has_text="Tokens per step of a request")).to_be_visible()


def test_the_dashboard_shows_the_replicas_of_a_cluster(
    page: Page, fake: FakeServer, shoot: Shoot
) -> None:
    page.click("#dashboard-link")
    expect(page.locator(".tile strong").nth(1)).to_have_text("0 of 32")
    expect(page.locator("section", has_text="Replicas").last).to_be_hidden()
    load = {"slots": 16, "waiting": 0, "cache_blocks": 200}
    fake.replicas = [
        {"name": "3kd82hx0", "running": 3, "cache_blocks_held": 50, **load},
        {"name": "p0q7ab41", "running": 0, "cache_blocks_held": 0, **load, "waiting": 2},
    ]
    rows = page.locator(".replicas li")
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_text("3kd82hx03 of 16 running0 waiting25% of the cache")
    expect(rows.last).to_have_text("p0q7ab410 of 16 running2 waiting0% of the cache")
    shoot(page, "dashboard-replicas-light")


def test_the_dashboard_waits_for_a_server_that_went_away(page: Page, fake: FakeServer) -> None:
    page.click("#dashboard-link")
    expect(page.locator(".tile strong").nth(1)).to_have_text("0 of 32")
    fake.stop()
    expect(page.locator("#dashboard .notice")).to_contain_text("cannot be reached")
    fake.restart()
    expect(page.locator("#dashboard .notice")).to_be_hidden()
