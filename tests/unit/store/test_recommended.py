"""The template and the parameters of a model of ollama are used."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import HubAndOllama

from ingot import LLM, SamplingParams, store
from ingot.recommended import has_chat_template, recommended_sampling
from ingot.server.options import ServedModel, ServerOptions
from ingot.server.sampling_body import SamplingBody, params_of
from ingot.server.state import Server
from tiny_llama import write_tiny_llama

TEMPLATE = "{{ if .System }}[{{ .System }}]{{ end }}<{{ .Prompt }}>{{ .Response }}$"
PARAMS = {"temperature": 0.25, "stop": ["END"], "num_ctx": 99, "top_k": "many"}
HELLO = [{"role": "user", "content": "abc"}]


def pulled(server: HubAndOllama, home: Path, **layers: bytes) -> Path:
    write_tiny_llama(home / "tiny.gguf")
    content = (home / "tiny.gguf").read_bytes()
    server.add_ollama("library/tiny", "latest", {"model": content, **layers})
    return store.pull(f"ollama:{server.host}/library/tiny")


@pytest.fixture
def llm(server: HubAndOllama, home: Path) -> Iterator[LLM]:
    path = pulled(
        server,
        home,
        template=TEMPLATE.encode(),
        system=b"Be brief.",
        params=json.dumps(PARAMS).encode(),
    )
    with pytest.warns(UserWarning, match="top_k"):
        opened = LLM(path, threads=1)
    with opened:
        yield opened


def test_the_template_and_the_system_message(llm: LLM) -> None:
    render = llm.chat_template.render
    assert render(HELLO).text.endswith("[Be brief.]<abc>")
    own = [{"role": "system", "content": "Be long."}, *HELLO]
    assert render(own).text.endswith("[Be long.]<abc>")
    assert has_chat_template(llm.file)


def test_the_parameters_are_defaults(llm: LLM) -> None:
    made = llm.stream("a", max_tokens=1).params
    assert (made.temperature, list(made.stop), made.top_k) == (0.25, ["END"], 40)
    assert llm.stream("a", max_tokens=1, temperature=0.5).params.temperature == 0.5
    assert llm.stream("a", SamplingParams(max_tokens=1)).params.temperature == 0.8
    session = llm.session(max_tokens=1)
    assert session.stream("a").params.temperature == 0.25


def test_a_server_uses_the_parameters_of_the_model_that_is_named() -> None:
    server = Server(
        ServerOptions(
            models=(
                ServedModel(
                    name="one", path=Path("x"), sampling={"temperature": 0.25, "stop": ["E"]}
                ),
                ServedModel(name="two", path=Path("y")),
            )
        )
    )

    class Body(SamplingBody):
        model: str | None = None

    def params(*, stop: list[str] | None = None, **fields: object) -> SamplingParams:
        body = Body.model_validate(fields)
        more = {} if stop is None else {"stop": stop}
        return params_of(body, server.request_options(body.model), **more)

    assert params(model="one").temperature == 0.25
    assert params(stop=[]).stop == ("E",)
    assert params(model="two").temperature == 0.8
    assert params(model="one", temperature=0.5).temperature == 0.5
    assert params(model="one", temp=0.5).temperature == 0.5


def test_a_template_that_cannot_be_translated_is_left_out(server: HubAndOllama, home: Path) -> None:
    path = pulled(server, home, template=b"{{ printf .Prompt }}")
    with LLM(path, threads=1) as llm, pytest.warns(UserWarning, match="printf is not supported"):
        assert "abc" in llm.chat_template.render(HELLO).text


def test_other_models_recommend_nothing(home: Path) -> None:
    assert recommended_sampling(home / "x.gguf") == {}
