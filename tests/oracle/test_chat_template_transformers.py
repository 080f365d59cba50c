"""Chat templates render as `transformers` renders them: those written for the tests, whose
expected texts are checked here, and those that real files hold."""

from pathlib import Path

import pytest

from data.chat_templates.cases import Family, cases, expected, families
from ingot.gguf import GgufLoader
from ingot.tokenizer.chat_template import ChatTemplate

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_expected_texts(family: Family) -> None:
    with_transformers = pytest.importorskip("data.chat_templates.with_transformers")
    found = {case.name: with_transformers.render(case) for case in cases(family)}
    assert found == expected(family)


def _compare(path: Path) -> None:
    with_transformers = pytest.importorskip("data.chat_templates.with_transformers")
    with GgufLoader(path) as loader:
        template = ChatTemplate.from_metadata(loader.metadata)
    family = Family(path.stem, template.source, template.bos_token, template.eos_token, (), ({},))
    compared = 0
    for case in cases(family):
        text = with_transformers.render(case)
        if text is not None:
            prompt = template.render(
                case.messages, add_generation_prompt=case.add_generation_prompt
            )
            assert prompt.text.removeprefix(template.bos_token) == text.removeprefix(
                template.bos_token
            )
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("name", ["phi-3", "qwen2"])
def test_templates_of_vocabularies(shared: Path, name: str) -> None:
    _compare(shared / "tokenizers" / f"{name}.gguf")


def test_template_of_the_default_model(smollm2_path: Path) -> None:
    _compare(smollm2_path)
