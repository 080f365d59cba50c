"""Three hundred grammars with a real model at a high temperature: every text that came to its
end is checked by somebody else: jsonschema, re, llama.cpp's grammar engine.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from grammar_cases import Case, cases
from llama_cpp_sampling import Reading, reads

from ingot import LLM

pytestmark = pytest.mark.oracle

CASES = cases()
# "time" means local times there, and times with an offset in the schema's own words.
FORMATS = jsonschema.FormatChecker(formats=["date", "uuid", "ipv4", "email"])


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, context=1024) as opened:
        yield opened


@pytest.fixture(scope="module")
def texts(llm: LLM) -> dict[int, str]:
    """What the model wrote for each case, as far as it came to an end."""
    found = {}
    for number, case in enumerate(CASES):
        prompt = f"An example of {case.grammar.source[:150]}:\n"
        done = llm.generate(
            prompt, grammar=case.grammar, temperature=1.5, seed=number, max_tokens=60
        )
        if done.finish_reason == "stop":
            found[number] = done.text
    return found


def is_valid(case: Case, text: str) -> bool:
    if case.schema is not None:
        jsonschema.validate(json.loads(text), case.schema, format_checker=FORMATS)
        return True
    if case.pattern is not None:
        return re.fullmatch(case.pattern, text) is not None
    return not case.choices or text in case.choices


def test_there_are_many_and_most_come_to_an_end(texts: dict[int, str]) -> None:
    assert len(CASES) >= 300
    assert len(texts) > 0.7 * len(CASES)


def test_every_text_that_ended_is_valid(texts: dict[int, str]) -> None:
    for number, text in texts.items():
        assert is_valid(CASES[number], text), (CASES[number].grammar, text)


def test_llama_cpp_reads_the_texts_of_its_grammars(
    llm: LLM, texts: dict[int, str], smollm2_path: Path
) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not here: make test-oracle")
    numbers = [number for number in texts if CASES[number].gbnf is not None]
    assert len(numbers) > 20
    readings = [
        Reading(
            str(CASES[number].gbnf),
            (tuple(llm.tokenizer.encode(texts[number], add_special=False)),),
        )
        for number in numbers
    ]
    for number, (read,) in zip(numbers, reads(smollm2_path, readings), strict=True):
        assert read, (CASES[number].gbnf, texts[number])
