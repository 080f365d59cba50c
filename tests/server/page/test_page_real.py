"""The page on a real server with the default model."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from playwright.sync_api import Page, Route, expect
from serving import Served, serving
from steps import answers, ask, leave_field, send, wait_for_end

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]


@pytest.fixture
def page(visit: Callable[..., Page], server: Served) -> Page:
    """The page of the real server."""
    return visit(server.url)


def test_a_model_answers_and_its_tokens_are_shown(page: Page, shoot: Shoot) -> None:
    page.click(".header [data-toggle=settings]")
    expect(page.locator("#setting-top_k")).to_have_attribute("placeholder", "40")
    page.fill("#setting-temperature", "0")
    page.press("#setting-temperature", "Enter")
    ask(page, "What is the capital of France?")
    expect(answers(page)).to_have_text("The capital of France is Paris.")
    leave_field(page)
    page.keyboard.press("t")
    tokens = page.locator(".token")
    expect(tokens.nth(5)).to_have_text(" Paris")
    tokens.nth(5).hover()
    percents = page.locator(".token-card:visible .token-percent")
    expect(percents).to_have_count(9)  # eight tokens, and all others
    assert float(percents.first.inner_text().rstrip("%")) > 50
    shoot(page, "real-tokens")


@pytest.fixture
def endless(visit: Callable[..., Page], smollm2_path: Path) -> Iterator[Page]:
    """The page of a server whose texts end with the context, in minutes."""

    def go_on(route: Route) -> None:
        body = route.request.post_data_json | {"ignore_eos": True}
        route.continue_(post_data=json.dumps(body))

    with serving(smollm2_path) as served:
        page = visit(served.url)
        page.route("**/v1/chat/completions", go_on)
        yield page
        page.close()


def test_stopping_frees_the_slot_and_the_dashboard_sees_it(endless: Page, shoot: Shoot) -> None:
    page = endless
    send(page, "Tell me a very long story about a lighthouse, with many chapters.")
    expect(answers(page)).to_contain_text("the")
    page.click("#dashboard-link")
    running = page.locator(".tile strong").nth(1)
    expect(running).to_have_text(re.compile("^1 of (32|64)$"))  # 64: of two replicas
    expect(page.locator(".requests .state")).to_have_text("generating")
    page.wait_for_function(
        "() => parseFloat(document.querySelector('.tile strong').textContent) > 0"
    )
    shoot(page, "real-dashboard")
    page.keyboard.press("Escape")
    expect(running).to_have_text(re.compile("^0 of (32|64)$"))
    page.go_back()
    wait_for_end(page)
    expect(page.locator(".facts")).to_contain_text("stopped")


def test_an_answer_is_continued_where_it_was_cut(page: Page) -> None:
    page.click(".header [data-toggle=settings]")
    page.fill("#setting-temperature", "0")
    page.fill("#setting-max_tokens", "4")
    page.press("#setting-max_tokens", "Enter")
    ask(page, "What is the capital of France?")
    expect(answers(page)).to_have_text("The capital of France")
    page.locator(".notice").get_by_role("button", name="Continue").click()
    wait_for_end(page)
    expect(answers(page)).to_have_text("The capital of France is Paris.")
    expect(page.locator(".branches")).to_have_count(0)


def test_an_answer_follows_a_schema(page: Page) -> None:
    page.click(".header [data-toggle=settings]")
    page.select_option("#format-kind", "schema")
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    page.fill("#format-text", json.dumps(schema))
    page.press("#format-text", "Tab")
    ask(page, "What is the capital of France?")
    assert json.loads(answers(page).inner_text()) == {"city": "Paris"}


def test_the_model_menu_and_the_past_on_a_real_server(page: Page, server: Served) -> None:
    page.click("#model")
    expect(page.locator("#models .model-facts")).to_contain_text("MB · loaded")
    page.keyboard.press("Escape")
    ask(page, "hello")
    page.goto(f"{server.url}/#/dashboard")
    expect(page.locator(".fall li .state").first).to_contain_text("ago")
    expect(page.locator(".fall-facts").first).to_contain_text("first after")


def test_a_conversation_that_does_not_fit_is_explained(page: Page) -> None:
    ask(page, "word " * 3000)
    expect(page.locator(".notice:visible")).to_contain_text("too long for this model")
