"""Templates of well-known families render as `transformers` renders them."""

import pytest

from data.chat_templates.cases import NOW, Case, Family, cases, expected, families
from ingot.errors import ChatTemplateError
from ingot.tokenizer.chat_template import ChatTemplate
from ingot.tokenizer.sandbox import functions


def template_of(family: Family) -> ChatTemplate:
    return ChatTemplate(
        family.source, bos_token=family.bos, eos_token=family.eos, control_tokens=family.control
    )


def rendered(template: ChatTemplate, case: Case) -> str | None:
    try:
        prompt = template.render(
            case.messages,
            tools=case.tools,
            documents=case.documents,
            add_generation_prompt=case.add_generation_prompt,
            **case.options,
        )
    except ChatTemplateError:
        return None
    return prompt.text


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_as_transformers(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "now", lambda: NOW)
    template = template_of(family)
    texts = expected(family)
    found = {case.name: rendered(template, case) for case in cases(family)}
    assert found == texts


def test_every_family_renders_something() -> None:
    assert len(families()) >= 12
    for family in families():
        assert sum(text is not None for text in expected(family).values()) >= 5
