"""No template escapes, runs for ever or grows without bound; good ones are left alone.

The bombs run in a separate process, which may take no more than a few gigabytes and
minutes, so that one that is not stopped fails these tests instead of the machine.
"""

import asyncio
import json
import resource
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from data.chat_templates.bombs import BOMBS, ESCAPES, MESSAGES
from ingot.errors import ChatTemplateError
from ingot.tokenizer.chat_template import ChatTemplate
from ingot.tokenizer.sandbox import Limits

MIB = 1 << 20
TESTS = Path(__file__).parents[2]


def _confine() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8192 * MIB, 8192 * MIB))


@cache
def outcomes() -> list[dict[str, Any]]:
    run = subprocess.run(
        [sys.executable, "-m", "data.chat_templates.bombs"],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        text=True,
        timeout=500,
        check=False,
        preexec_fn=_confine,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize("index", range(len(ESCAPES) + len(BOMBS)))
def test_stopped(index: int) -> None:
    source = (ESCAPES + BOMBS)[index]
    assert index < len(outcomes()), f"{source} ended the process"
    assert "stopped" in outcomes()[index], f"{source} gave {outcomes()[index]}"
    assert outcomes()[index]["stopped"] != "MemoryError", f"{source} asked for all memory"


def test_memory_stays_bounded() -> None:
    assert outcomes()[-1]["grown"] < 64 * MIB


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def _error(source: str, **options: Any) -> ChatTemplateError:
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate(source, **options).render(MESSAGES)
    return caught.value


def test_limits_hold_in_any_thread() -> None:
    caught = []
    limits = Limits(seconds=0.05)
    threads = [
        threading.Thread(target=lambda: caught.append(_error(ENDLESS, limits=limits)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caught) == 4


def test_limits_hold_in_asyncio() -> None:
    async def render() -> ChatTemplateError:
        return _error(ENDLESS, limits=Limits(seconds=0.05))

    assert "seconds" in asyncio.run(render()).reason


def test_limits_are_those_given() -> None:
    small = Limits(characters=1000)
    assert "text of 2,000" in _error("{{ 'a' * 2000 }}", limits=small).reason
    assert "output" in _error("{% for i in range(900) %}aaaa{% endfor %}", limits=small).reason
    little = Limits(memory=10_000)
    deeper = (
        "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}"
    )
    assert "memory" in _error(deeper, limits=little).reason
    assert "memory" in _error("{% set a = ('a' * 6000) ~ ('b' * 6000) %}", limits=little).reason


def test_limits_grow_with_the_messages() -> None:
    """A long conversation is not a bomb: what it needs is in proportion to it."""
    template = ChatTemplate(
        "{% set ns = namespace(all='') %}{% for m in messages %}"
        "{% set ns.all = ns.all ~ m.content.strip().replace('a', 'b') ~ '\\n' %}{% endfor %}"
        "{% for line in ns.all.split('\\n') %}{{ line }}{% endfor %}"
    )
    messages = [{"role": "user", "content": " <a>" * 50_000} for _ in range(20)]
    assert len(template.render(messages).text) == 20 * (4 * 50_000 - 1)


def test_many_messages() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}] * 2_000
    source = "{% for m in messages %}{{ m.role }}:{{ m.content | trim }}\n{% endfor %}"
    assert ChatTemplate(source).render(messages).text == "user:hi\nassistant:ho\n" * 2_000


def test_the_line_of_an_error() -> None:
    assert _error("a\nb\n{{ raise_exception('no') }}").line == 3
    assert _error("a\n{{ nothing.x }}").line == 2
    assert _error("a\n\n\n{% if %}").line == 4
    assert _error("\n{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n{{ m() }}").line == 3
    assert _error("a\n{% include 'x' %}").line == 2
    assert str(_error("\n{{ raise_exception('no') }}")) == "line 2 of the chat template: no"


def test_the_template_cannot_change_the_messages() -> None:
    messages = [{"role": "user", "content": "hi", "list": [1]}]
    _error("{{ messages[0].list.append(2) }}")
    assert messages == [{"role": "user", "content": "hi", "list": [1]}]


def test_a_failed_render_leaves_the_template_usable() -> None:
    template = ChatTemplate("{% if fail %}{{ raise_exception('no') }}{% endif %}ok")
    with pytest.raises(ChatTemplateError):
        template.render(MESSAGES, fail=True)
    assert template.render(MESSAGES).text == "ok"
