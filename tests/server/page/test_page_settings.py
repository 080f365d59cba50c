"""The settings and the model menu in a browser: formats, samplers, presets, loading models."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

from collections.abc import Callable

from fake_server import FakeServer
from playwright.sync_api import Page, expect
from steps import ask, choose_model, send

from ingot.sampling.checks import OPTIONAL_RANGES, RANGES

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]
# What the page does not offer, and why.
LEFT_OUT = {
    "n_probs": "the token view asks for logprobs",
    "time_limit": "the Stop button",
    "min_tokens": "for measurements",
}


def open_settings(page: Page) -> None:
    page.click(".header [data-toggle=settings]")


def test_an_answer_follows_a_schema_or_a_grammar(
    page: Page, fake: FakeServer, shoot: Shoot
) -> None:
    open_settings(page)
    page.select_option("#format-kind", "schema")
    page.fill("#format-text", '{"type": "object"')
    expect(page.locator("#format-problem")).to_contain_text("is not JSON")
    shoot(page, "schema-light")
    page.press("#format-text", "Tab")
    ask(page, "one")
    expect(page.locator(".notice:visible")).to_contain_text("The JSON schema in the settings")
    assert not fake.bodies  # nothing that was asked for is left out
    page.fill("#format-text", '{"type": "object"}')
    page.press("#format-text", "Tab")
    expect(page.locator("#format-problem")).to_be_hidden()
    ask(page, "two")
    schema = {"name": "answer", "schema": {"type": "object"}}
    assert fake.bodies[-1]["response_format"] == {"type": "json_schema", "json_schema": schema}
    page.select_option("#format-kind", "grammar")
    page.fill("#format-text", 'root ::= "yes"')
    page.press("#format-text", "Tab")
    ask(page, "three")
    assert fake.bodies[-1]["grammar"] == 'root ::= "yes"'
    assert "response_format" not in fake.bodies[-1]
    page.select_option("#format-kind", "json")
    ask(page, "four")
    assert fake.bodies[-1]["response_format"] == {"type": "json_object"}
    page.select_option("#format-kind", "text")
    ask(page, "five")
    assert "response_format" not in fake.bodies[-1]


def test_every_sampler_can_be_set(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    open_settings(page)
    fields = page.locator("[id^=setting-]:is(input)")
    names = {str(field.get_attribute("id")).removeprefix("setting-") for field in fields.all()}
    assert names == {*RANGES, *OPTIONAL_RANGES} - LEFT_OUT.keys()
    for summary in page.locator(".more summary").all():
        summary.click()
    shoot(page, "samplers-light")
    values = dict.fromkeys(names, 1) | {"adaptive_decay": 0.5, "seed": 7, "top_k": 3}
    for name, value in values.items():
        page.fill(f"#setting-{name}", str(value))
    page.fill("#samplers", "top_k, temperature")
    page.press("#samplers", "Tab")
    expect(page.locator(".set-count").first).to_have_text("8")
    ask(page, "hello")
    body = fake.bodies[-1]
    given = {name: body[name] for name in names}
    assert given == values | {"xtc_threshold": 0.5, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1}
    assert body["samplers"] == ["top_k", "temperature"]


def test_presets_are_kept(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    open_settings(page)

    def name_it(button: str, name: str) -> None:
        page.click(button)
        page.fill("#name", name)
        page.press("#name", "Enter")

    page.fill("#setting-temperature", "0.1")
    page.press("#setting-temperature", "Tab")
    name_it("#save-preset", "Careful")
    expect(page.locator("#preset")).to_have_value("Careful")
    page.fill("#setting-temperature", "1.5")
    page.fill("#stop", "END")
    page.press("#stop", "Tab")
    expect(page.locator("#preset")).to_have_value("")
    name_it("#save-preset", "Wild")
    shoot(page, "presets-light")
    page.reload()
    open_settings(page)
    page.select_option("#preset", "Careful")
    ask(page, "one")
    assert fake.bodies[-1]["temperature"] == 0.1
    assert "stop" not in fake.bodies[-1]
    name_it("[aria-label='Rename preset']", "Wild")
    expect(page.locator(".toast")).to_contain_text("already")
    name_it("[aria-label='Rename preset']", "Calm")
    expect(page.locator("#preset option")).to_have_text(["No preset", "Calm", "Wild"])
    page.select_option("#preset", "Wild")
    ask(page, "two")
    assert (fake.bodies[-1]["temperature"], fake.bodies[-1]["stop"]) == (1.5, ["END"])
    page.click("[aria-label='Delete preset']")
    expect(page.locator("#preset option")).to_have_text(["No preset", "Calm"])
    page.click("text=Undo")
    expect(page.locator("#preset option")).to_have_text(["No preset", "Calm", "Wild"])


def test_the_model_menu_tells_and_loads(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    page.click("#model")
    rows = page.locator("#models .model-facts")
    expect(rows).to_have_text(
        [
            "135M parameters · Q4_1 · 91 MB · loaded",
            "1.3B parameters · Q4_K_M · 1.2 GB · not loaded",
        ]
    )
    expect(page.locator("#models [aria-current]")).to_be_focused()
    shoot(page, "models-light")
    page.click("[aria-label='Load gemma-3-270m']")
    expect(rows.last).to_contain_text("loading 25%")
    fake.finish_loading("gemma-3-270m")
    expect(rows.last).to_contain_text("· loaded")
    page.click("[aria-label='Unload smollm2-135m-instruct']")
    expect(rows.first).to_contain_text("not loaded")
    page.keyboard.press("Escape")
    expect(page.locator("#models")).to_be_hidden()
    choose_model(page, "gemma-3-270m")
    expect(page.locator("#model")).to_have_text("gemma-3-270m")
    ask(page, "hello")
    assert fake.bodies[-1]["model"] == "gemma-3-270m"
    page.reload()
    expect(page.locator("#model")).to_have_text("gemma-3-270m")


def test_the_defaults_are_those_of_the_chosen_model(page: Page) -> None:
    open_settings(page)
    temperature = page.locator("#setting-temperature")
    expect(temperature).to_have_attribute("placeholder", "0.8")
    choose_model(page, "gemma-3-270m")
    expect(temperature).to_have_attribute("placeholder", "0.25")
    ask(page, "hello")
    page.reload()
    open_settings(page)
    expect(temperature).to_have_attribute("placeholder", "0.25")
    page.click(".sidebar [data-do=new]")
    choose_model(page, "smollm2-135m-instruct")
    expect(temperature).to_have_attribute("placeholder", "0.8")
    page.go_back()
    expect(page.locator("#model")).to_have_text("gemma-3-270m")
    expect(temperature).to_have_attribute("placeholder", "0.25")


def test_a_busy_model_is_not_unloaded(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 2
    send(page, "Why is the sky blue?")
    expect(page.locator(".answer-text")).to_have_text("Light from")
    page.click("#model")
    page.click("[aria-label='Unload smollm2-135m-instruct']")
    expect(page.locator(".toast")).to_contain_text("The model is answering 1 request.")
    fake.release()
