"""The template, the parameters and the adapters of a model of ollama are used."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from model_server import HubAndOllama

from ingot import LLM, SamplingParams, store
from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.served_model_flags import EngineFlags, ModelFlags
from ingot.cli.shared.served_models import served_models
from ingot.engine import EngineOptions
from ingot.engine.recommended_options import recommended_options
from ingot.recommended import (
    has_chat_template,
    recommended_adapters,
    recommended_context,
    recommended_sampling,
)
from ingot.server.options import ServedModel, ServerOptions
from ingot.server.sampling_body import SamplingBody, params_of
from ingot.server.state import Server
from tiny_adapters import write_random_adapter
from tiny_llama import CONTEXT, write_tiny_llama

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


def test_the_context_of_the_model_is_the_default(
    llm: LLM, server: HubAndOllama, home: Path
) -> None:
    assert llm.context == PARAMS["num_ctx"]
    with pytest.warns(UserWarning, match="top_k"), LLM(llm.path, threads=1, context=50) as asked:
        assert asked.context == 50
    path = pulled(server, home, params=b'{"num_ctx": 100000}')
    with LLM(path, threads=1) as longest:
        assert longest.context == CONTEXT
    path = pulled(server, home, params=b'{"num_ctx": "many"}')
    with pytest.warns(UserWarning, match="num_ctx is 'many'"):
        assert recommended_context(path) is None


def test_an_adapter_of_the_model_is_used(server: HubAndOllama, home: Path) -> None:
    adapter = write_random_adapter(home / "a.gguf", seed=1)
    other = write_random_adapter(home / "b.gguf", seed=2)
    tokens = list(range(9))
    with LLM(write_tiny_llama(home / "tiny.gguf"), threads=1, adapters={"a": adapter}) as llm:
        plain, adapted = (llm.logits(tokens, adapter=each) for each in ({}, "a"))
    path = pulled(server, home, adapter=adapter.read_bytes())
    with LLM(path, threads=1, adapters={"b": other}) as llm:
        assert llm.adapters == ("tiny-latest-adapter", "b")
        np.testing.assert_array_equal(llm.logits(tokens), adapted)
        np.testing.assert_array_equal(llm.logits(tokens, adapter={}), plain)
    (served,) = served_models(
        ModelFlags(models=[str(path)]), EngineFlags(device="cuda"), SamplingFlags(), AdapterFlags()
    ).models
    assert served.engine.adapter_scales == {"tiny-latest-adapter": 1.0}


def test_other_models_recommend_nothing(home: Path) -> None:
    path = home / "x.gguf"
    assert recommended_sampling(path) == recommended_adapters(path) == {}
    assert recommended_context(path) is None
    options = EngineOptions(threads=2)
    assert recommended_options(path, options) is options
