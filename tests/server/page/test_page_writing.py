"""Writing in a browser: files, edited answers, continuing, waiting messages, imports."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_answers import PLAIN
from fake_server import FakeServer
from pdf import pdf_with
from playwright.sync_api import Page, expect
from steps import answers, ask, send, wait_for_end

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]


def attach(page: Page, name: str, content: bytes) -> None:
    page.set_input_files(
        "#files", {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    )


def test_attached_files_are_sent_and_kept(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    attach(page, "notes.txt", b"Buy milk.\n")
    attach(page, "run.py", b"print('```')\n")
    expect(page.locator(".chip-name")).to_have_text(["notes.txt", "run.py"])
    page.click("[aria-label='Remove notes.txt']")
    attach(page, "list.md", "Käse\n".encode())
    page.fill("#message", "What is this?")
    shoot(page, "attachments-light")
    page.press("#message", "Enter")
    wait_for_end(page)
    expected = "run.py:\n````\nprint('```')\n````\n\nlist.md:\n```\nKäse\n```\n\nWhat is this?"
    assert fake.bodies[-1]["messages"] == [{"role": "user", "content": expected}]
    expect(page.locator("#attachments")).to_be_hidden()
    expect(page.locator(".bubble")).to_have_text("What is this?")
    page.reload()
    page.locator(".attachment summary").first.click()
    expect(page.locator(".attachment pre").first).to_have_text("print('```')\n")
    page.locator(".question").hover()
    page.locator(".question [aria-label=Edit]").click()
    page.fill(".edit-field", "And this?")
    page.click("text=Send")
    wait_for_end(page)
    assert fake.bodies[-1]["messages"][0]["content"].endswith("```\n\nAnd this?")


def test_a_file_alone_is_a_message(page: Page, fake: FakeServer) -> None:
    attach(page, "notes.txt", b"Buy milk.")
    page.click("#send")
    wait_for_end(page)
    assert fake.bodies[-1]["messages"][0]["content"] == "notes.txt:\n```\nBuy milk.\n```"
    expect(page.locator("#title")).to_have_text("notes.txt")
    expect(page.locator(".bubble")).to_have_count(0)


def test_the_text_of_a_pdf_is_attached(page: Page, fake: FakeServer) -> None:
    attach(page, "paper.pdf", pdf_with("Attention is all you need"))
    expect(page.locator(".chip-name")).to_have_text("paper.pdf")
    ask(page, "Summarize it")
    assert "Attention is all you need" in fake.bodies[-1]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.bin", b"\x00\x01\xff", "a.bin is not a text file"),
        ("b.txt", b" \n", "b.txt contains no text"),
        ("c.txt", b"x" * 500_000, "c.txt is too long"),
        ("d.pdf", b"not a pdf", "d.pdf: the PDF could not be read"),
    ],
)
def test_a_file_that_cannot_be_attached_is_explained(
    page: Page, name: str, content: bytes, reason: str
) -> None:
    attach(page, name, content)
    expect(page.locator(".toast")).to_contain_text(reason)
    expect(page.locator("#attachments")).to_be_hidden()
    expect(page.locator("#send")).to_be_disabled()


def test_an_answer_is_edited(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    ask(page, "one")
    page.click(".answer [aria-label=Edit]")
    page.fill(".edit-field", "My own *words*")
    shoot(page, "edit-answer-light")
    page.click("text=Save >> nth=1")
    expect(answers(page)).to_have_text("My own words")
    expect(page.locator(".branch-place")).to_have_text("2/2")
    expect(page.locator(".facts")).to_contain_text("edited")
    ask(page, "two")
    assert fake.bodies[-1]["messages"][1] == {"role": "assistant", "content": "My own *words*"}
    page.reload()
    page.locator(".answer").first.hover()
    page.click(".answer [aria-label='Previous version'] >> nth=0")
    expect(answers(page)).to_have_text(["You said: one"])


def test_an_edited_answer_is_continued(page: Page, fake: FakeServer) -> None:
    ask(page, "Why is the sky blue?")
    page.click(".answer [aria-label=Edit]")
    page.fill(".edit-field", "Light from the")
    page.click("text=Save and continue")
    wait_for_end(page)
    expect(answers(page).locator("p")).to_have_text(PLAIN.split("\n\n"))
    body = fake.bodies[-1]
    assert body["continue_final_message"] is True
    assert body["messages"][-1] == {"role": "assistant", "content": "Light from the"}


def test_a_long_answer_is_continued_in_place(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.length = 12
    ask(page, "Why is the sky blue?")
    expect(page.locator(".notice:visible")).to_contain_text("reached its length limit")
    shoot(page, "length-light")
    fake.length = 10**9
    page.locator(".notice").get_by_text("Continue").click()
    wait_for_end(page)
    expect(answers(page).locator("p")).to_have_text(PLAIN.split("\n\n"))
    expect(page.locator(".notice:visible")).to_have_count(0)
    expect(page.locator(".branches")).to_have_count(0)
    expect(page.locator(".facts")).to_contain_text("43 tokens")
    expect(page.locator("[aria-label=Continue]:visible")).to_have_count(0)
    page.click(".tokens-button")
    expect(page.locator(".token")).to_have_count(43)


def test_a_stopped_answer_is_continued(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 4
    send(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the sun")
    page.click("#halt")
    wait_for_end(page)
    fake.hold_after = None
    page.click("[aria-label=Continue]")
    wait_for_end(page)
    expect(answers(page)).to_contain_text("That is why the sky is blue.")
    assert fake.bodies[-1]["messages"][-1]["content"] == "Light from the sun"


def test_messages_wait_for_the_answer(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.hold_after = 3
    send(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the")
    send(page, "second")
    send(page, "third")
    send(page, "fourth")
    expect(page.locator(".queue-text")).to_have_text(["second", "third", "fourth"])
    shoot(page, "queue-light")
    page.locator("[aria-label='Remove the waiting message']").nth(1).click()
    page.locator("[aria-label='Edit the waiting message']").nth(1).click()
    expect(page.locator("#message")).to_have_value("fourth")
    page.fill("#message", "")
    assert len(fake.bodies) == 1
    fake.release()
    expect(answers(page)).to_have_count(2)
    expect(answers(page).last).to_have_text("You said: second")
    expect(page.locator("#queue")).to_be_hidden()
    assert [body["messages"][-1]["content"] for body in fake.bodies[1:]] == ["second"]


def test_after_a_stop_a_waiting_message_waits_for_the_user(page: Page, fake: FakeServer) -> None:
    fake.hold_after = 3
    send(page, "Why is the sky blue?")
    expect(answers(page)).to_have_text("Light from the")
    send(page, "second")
    page.click("#halt")
    wait_for_end(page)
    expect(page.locator(".queue-text")).to_have_text(["second"])
    fake.hold_after = None
    page.click("#queue >> text=Send")
    expect(answers(page).last).to_have_text("You said: second")


def test_how_much_of_the_prompt_is_read(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    fake.progress = [256, 1000]
    send(page, "hello")
    expect(page.locator(".waiting")).to_contain_text("Reading the prompt: 256 of 1,000 tokens")
    shoot(page, "progress-light")
    fake.release()
    wait_for_end(page)
    expect(answers(page)).to_have_text("You said: hello")
    expect(page.locator(".waiting")).to_be_hidden()


OWN_MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"},
]
LLAMA = {
    "conv": {"id": "c", "name": "From llama.cpp"},
    "messages": [
        {"id": "0", "type": "root", "role": "system", "content": "", "parent": None},
        {"id": "1", "type": "text", "role": "user", "content": "Hi", "parent": "0"},
        {"id": "2", "type": "text", "role": "assistant", "content": "Old", "parent": "1"},
        {"id": "3", "type": "text", "role": "assistant", "content": "Hello!", "parent": "1"},
    ],
}
OPEN_WEBUI = [
    {
        "title": "From Open WebUI",
        "chat": {
            "history": {
                "currentId": "b",
                "messages": {
                    "a": {"id": "a", "parentId": None, "role": "user", "content": "Hi"},
                    "b": {"id": "b", "parentId": "a", "role": "assistant", "content": "Hello!"},
                    "c": {"id": "c", "parentId": "a", "role": "assistant", "content": "Other"},
                },
            }
        },
    }
]


@pytest.mark.parametrize(
    ("content", "title", "versions"),
    [
        (OWN_MESSAGES, "Hi", 1),
        ({"messages": OWN_MESSAGES, "title": "Named"}, "Named", 1),
        (LLAMA, "From llama.cpp", 2),
        (OPEN_WEBUI, "From Open WebUI", 2),
    ],
    ids=["messages", "request", "llama.cpp", "Open WebUI"],
)
def test_conversations_are_imported(
    page: Page, tmp_path: Path, content: Any, title: str, versions: int
) -> None:
    file = tmp_path / "export.json"
    file.write_text(json.dumps(content))
    page.set_input_files("#import-file", file)
    expect(page.locator("#title")).to_have_text(title)
    expect(page.locator(".bubble")).to_have_text("Hi")
    expect(answers(page)).to_have_text("Hello!")
    expect(page.locator(".branches")).to_have_count(versions - 1)
    page.reload()
    expect(answers(page)).to_have_text("Hello!")


def test_an_export_is_imported_as_a_copy(page: Page, tmp_path: Path) -> None:
    ask(page, "one")
    page.click("[aria-label=Regenerate]")
    wait_for_end(page)
    page.locator("#conversations .icon-button").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Export as JSON").click()
    download.value.save_as(tmp_path / "one.json")
    page.set_input_files("#import-file", tmp_path / "one.json")
    expect(page.locator("#conversations a")).to_have_text(["one", "one"])
    expect(page.locator(".branch-place")).to_have_text("2/2")
    ask(page, "two")
    page.locator("#conversations a").last.click()
    expect(page.locator(".bubble")).to_have_text(["one"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[1, {}]", "no conversation"),
        ('{"nodes": {"root": {"id": "root", "children": ["gone"]}}}', "no conversation"),
        ('{"nodes": {"root": null}, "messages": 7}', "no conversation"),
        ('{"nodes": {"root": {"id": "root", "role": "root", "children": []}, "a": null}}', "form"),
    ],
)
def test_a_file_that_is_no_export_is_refused(
    page: Page, tmp_path: Path, content: str, reason: str
) -> None:
    (tmp_path / "x.json").write_text(content)
    page.set_input_files("#import-file", tmp_path / "x.json")
    expect(page.locator(".toast")).to_contain_text("x.json cannot be imported")
    expect(page.locator(".toast")).to_contain_text(reason)
    expect(page.locator("#conversations a")).to_have_count(0)
