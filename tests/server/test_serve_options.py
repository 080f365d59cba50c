"""What a server's options mean for requests: templates, reasoning, pooling, sampling defaults."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scripted import scripted_model, scripted_server
from serving import serving

from ingot import LLM, store
from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.cli.shared.sampling_options import SamplingFlags
from ingot.cli.shared.served_model_flags import EngineFlags, ModelFlags
from ingot.cli.shared.served_models import served_models
from ingot.engine.model.plan import plan_model
from ingot.errors import ChatTemplateError, ConfigError
from ingot.server.open_model import has_own_process
from ingot.tokenizer.chat_template import CHATML
from models.test_mtp import with_mtp
from scripted_gguf import write_scripted_gguf

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted_model(tmp_path_factory.mktemp("options"), "qwen2_5")


def post(server: Any, where: str, **body: object) -> Any:
    response = server(lambda client: client.post(where, json=body))
    assert response.status_code == 200, response.text
    return response.json()


def test_a_chat_template_replaces_the_model_s(path: Path) -> None:
    source = "{% for m in messages %}({{ m.role }}: {{ m.content }}){% endfor %}"
    with scripted_server(path, {"chat_template": source}) as server:
        assert post(server, "/apply-template", **CHAT)["prompt"] == "(user: Hi)"
    with pytest.raises(ChatTemplateError):
        LLM(path, chat_template="{% for %}")


def test_a_chat_template_comes_from_a_flag_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("[{{ messages[0].content }}]", encoding="utf-8")
    assert ModelFlags(chat_template_file=file).template() == "[{{ messages[0].content }}]"
    assert ModelFlags(chat_template="chatml").template() == CHATML
    assert ModelFlags().template() is None
    with pytest.raises(ConfigError, match="either --chat-template or --chat-template-file"):
        ModelFlags(chat_template="chatml", chat_template_file=file).template()
    file.write_text("no template", encoding="utf-8")
    with pytest.raises(ConfigError, match="'no template' has no Jinja expression"):
        ModelFlags(chat_template_file=file).template()


def test_templates_know_the_date_and_the_tools(path: Path) -> None:
    source = "{{ date_string }}|{{ functions is defined and functions }}|{{ mood }}"
    with scripted_server(path, {"chat_template": source}) as server:

        def rendered(**body: object) -> list[str]:
            text: str = post(server, "/apply-template", **CHAT, **body)["prompt"]
            return text.split("|")

        today, functions, _ = rendered(tools=[TOOL])
        assert today == f"{date.today():%d %b %Y}"
        assert json.loads(functions)[0]["function"]["name"] == "f"
        given = {"date_string": "1 May 1999", "mood": "good"}
        assert rendered(chat_template_kwargs=given) == ["1 May 1999", "False", "good"]


@pytest.mark.parametrize(
    ("field", "separate"), [("auto", True), ("deepseek", True), ("none", False)]
)
def test_reasoning_is_separate_or_stays_in_the_text(
    tmp_path: Path, field: str, separate: bool
) -> None:
    text = "<think>\nhm\n</think>\n\nyes"
    thinker = write_scripted_gguf(tmp_path / "thinker.gguf", {}, otherwise=text)
    with scripted_server(thinker, {"reasoning_format": field}) as server:
        message = post(server, "/v1/chat/completions", **CHAT)["choices"][0]["message"]
        blocks = post(server, "/v1/messages", **CHAT, max_tokens=100)["content"]
        items = post(server, "/v1/responses", input="Hi")["output"]
        ollama = post(server, "/api/chat", **CHAT, model="any", stream=False)["message"]
        other = "none" if separate else "auto"
        changed = post(server, "/v1/chat/completions", **CHAT, reasoning_format=other)
    expected = "yes" if separate else text
    assert message["content"] == blocks[-1]["text"] == ollama["content"] == expected
    assert items[-1]["content"][0]["text"] == expected
    assert ("reasoning_content" in message, len(blocks) == 2, len(items) == 2) == (separate,) * 3
    assert ("reasoning_content" in changed["choices"][0]["message"]) is not separate


def test_embeddings_have_the_pooling_of_the_server(path: Path) -> None:
    with LLM(path, threads=1) as llm:
        expected = llm.embed("some text", pooling="last")
    with scripted_server(path, {"pooling": "last"}) as server:
        made = post(server, "/v1/embeddings", input="some text")["data"][0]["embedding"]
        np.testing.assert_allclose(made, expected, rtol=1e-5)
        native = post(server, "/embedding", content="some text")[0]["embedding"][0]
        np.testing.assert_allclose(native / np.linalg.norm(native), expected, rtol=1e-5)


def test_requests_inherit_the_sampling_flags(path: Path) -> None:
    flags = ("--temp", 0.25, "--seed", 7, "--top-k", 3, "-n", 5, "--stop", "END", "--threads", 1)
    with (
        serving(path, *flags) as served,
        httpx.Client(base_url=served.url, timeout=300) as http,
    ):
        params = http.get("/props").json()["default_generation_settings"]["params"]
        assert (params["temperature"], params["top_k"], params["seed"]) == (0.25, 3, 7)
        assert params["stop"] == ["END"]

        def text(**body: object) -> Any:
            return http.post("/v1/completions", json={"prompt": "abc", **body}).json()

        first = text()
        assert first["usage"]["completion_tokens"] == 5
        assert text()["choices"][0]["text"] == first["choices"][0]["text"]
        assert text(max_tokens=9)["usage"]["completion_tokens"] == 9
        assert text(max_tokens=40, seed=8)["choices"] != text(max_tokens=40)["choices"]


def test_the_engine_has_flags(path: Path) -> None:
    flags = EngineFlags(cache_tokens=512, chunk_tokens=32, draft=str(path), parallel=3)
    options = flags.options(AdapterFlags())
    assert (options.cache_tokens, options.chunk_tokens, options.max_running) == (512, 32, 3)
    assert options.draft == path
    assert options.speculation == "auto"
    for way in ("off", "ngram", "mtp"):
        assert EngineFlags(speculation=way).options(AdapterFlags()).speculation == way
    with pytest.raises(ConfigError, match="'ngram'"):
        EngineFlags(speculation="magic").options(AdapterFlags())


def test_a_server_guesses_as_its_operator_says(tmp_path: Path) -> None:
    """A request can do without, and choose nothing else."""
    path = with_mtp("glm4moe").write(tmp_path / "mtp.gguf")
    body = {"prompt": [1, 2, 3], "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    texts = set()
    for way in ("mtp", "off"):
        with (
            serving(path, "--speculation", way, "--threads", 1) as served,
            httpx.Client(base_url=served.url, timeout=300) as http,
        ):

            def guessed(http: httpx.Client = http, **speculation: str) -> int:
                made = http.post("/v1/completions", json={**body, **speculation}).json()
                texts.add(made["choices"][0]["text"])
                assert "warnings" not in made
                return int(http.get("/api/status").json()["models"][0]["guessed_tokens"])

            assert guessed(speculation="off") == 0
            assert (guessed() > 0) == (way == "mtp")
            before = guessed(speculation="off")
            assert (guessed(speculation="auto") > before) == (way == "mtp")
            status = http.get("/api/status").json()["models"][0]
            assert status["generated_tokens"] == 4 * 24
    assert len(texts) == 1


def test_the_store_is_served(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = [store.StoredModel("hf:me/it:Q4", path, 1)]
    monkeypatch.setattr(store, "list_models", lambda: stored)
    found = served_models(
        ModelFlags(store=True), EngineFlags(), SamplingFlags(temperature=0.5), AdapterFlags()
    )
    assert found.models == ()
    assert found.discover is not None
    (model,) = found.discover()
    assert (model.name, model.path, model.sampling["temperature"]) == ("hf:me/it:Q4", path, 0.5)


def test_large_models_on_a_gpu_have_a_process_for_themselves(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with adapters, too, unless an option says otherwise."""

    def no_gpu(_: str) -> None:
        raise ConfigError("there is no GPU")

    monkeypatch.setattr("ingot.engine.model.plan.choose_device", no_gpu)
    file = tmp_path / "models.toml"
    file.write_text(
        f'''
        [plain]
        model = "{path}"
        [adapted]
        model = "{path}"
        adapters = {{ a = "a.gguf" }}
        [here]
        model = "{path}"
        engine_process = false
        [slow]
        model = "{path}"
        device = "cpu"
        [given]
        ''',
        encoding="utf-8",
    )

    def processes(**flags: Any) -> dict[str, bool]:
        models = ModelFlags(models=[f"given={path}"], models_file=file)
        found = served_models(models, EngineFlags(**flags), SamplingFlags(), AdapterFlags())
        large = {}
        for model in found.models:
            plan = plan_model(model.path, model.engine)
            assert has_own_process(model.engine, plan) == (model.engine.engine_process is True)
            plan = replace(plan, weights=1 << 30)
            large[model.name] = has_own_process(model.engine, plan)
            nothing_known = has_own_process(model.engine, None)
            assert nothing_known == (model.engine.engine_process is True)
        return large

    names = ("given", "plain", "adapted", "here", "slow")
    expected = dict(zip(names, (True, True, True, False, False), strict=True))
    assert processes(device="cuda") == expected
    assert processes() == dict.fromkeys(names, False)
    assert processes(device="cuda", gpu_layers="0") == dict.fromkeys(names, False)
    assert processes(device="auto") == dict.fromkeys(names, False)
    assert processes(engine_process=True) == dict.fromkeys(names, True) | {"here": False}


def test_control_tokens_are_not_shown_under_ignore_eos(smollm2_path: Path) -> None:
    with LLM(smollm2_path, threads=1) as llm:
        start = llm.tokenize("<|im_start|>")  # as plain text; the token itself is number 1
        assert start != [1]
        asked = {"max_tokens": 4, "temperature": 0, "logit_bias": {1: 1000.0}}
        assert llm.generate("Hi", **asked).text == "<|im_start|>" * 4
        done = llm.generate("Hi", **asked, ignore_eos=True)
        assert (done.text, done.token_ids) == ("", (1,) * 4)
