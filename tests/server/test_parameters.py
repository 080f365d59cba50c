"""Nothing that a client asks for is silently ignored: honoured, refused, or a warning.

docs/server.md has tables of what each API does with a parameter; they are compared with the code.
`test_parameters_of_endpoints.py` asks the endpoints that generate nothing.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import Ask, events_in, script, scripted_model, scripted_server

from ingot.server.anthropic.messages_body import MessagesBody
from ingot.server.llama.completion import CompletionBody as LlamaCompletionBody
from ingot.server.ollama.chat import ChatBody as OllamaChatBody
from ingot.server.ollama.generate import GenerateBody
from ingot.server.ollama.options_body import OptionsBody
from ingot.server.openai.chat_body import ChatBody
from ingot.server.openai.completions import CompletionBody
from ingot.server.openai.embeddings import EmbeddingBody
from ingot.server.openai.responses_body import ResponsesBody
from ingot.server.parameters import REFUSED, treatment
from ingot.server.structured_outputs import FIELDS

CHAT = "/v1/chat/completions"
ASK: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "?"}], "max_tokens": 40},
    "/v1/completions": {"prompt": "?", "max_tokens": 40},
    "/v1/responses": {"input": "?", "max_output_tokens": 40},
    "/v1/messages": {"messages": [{"role": "user", "content": "?"}], "max_tokens": 40},
    "/completion": {"prompt": "?", "n_predict": 40},
}
BODIES = {
    CHAT: ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/completion": LlamaCompletionBody,
    "/v1/embeddings": EmbeddingBody,
}
OLLAMA_BODIES = {"/api/chat": OllamaChatBody, "/api/generate": GenerateBody}


Served = Callable[[Ask], Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted_model(tmp_path_factory.mktemp("parameters"), "qwen2_5")


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[Served]:
    with scripted_server(model) as server:
        yield server


def ask(served: Served, where: str, **fields: object) -> httpx.Response:
    body = {**ASK.get(where, {"input": "?"}), **fields}
    answer: httpx.Response = served(lambda client: client.post(where, json=body))
    return answer


def text_of(where: str, response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    answer = response.json()
    match where:
        case "/v1/chat/completions":
            return str(answer["choices"][0]["message"]["content"])
        case "/v1/completions":
            return str(answer["choices"][0]["text"])
        case "/v1/responses":
            return str(answer["output"][0]["content"][0]["text"])
        case "/v1/messages":
            return str(answer["content"][0]["text"])
        case _:
            return str(answer["content"])


YES_OR_NO = {"enum": ["yes", "no"]}
STRUCTURED: list[tuple[dict[str, Any], set[str]]] = [
    ({"guided_json": YES_OR_NO}, {'"yes"', '"no"'}),
    ({"guided_json": json.dumps(YES_OR_NO)}, {'"yes"', '"no"'}),
    ({"guided_choice": ["yes", "no"]}, {"yes", "no"}),
    ({"guided_regex": "[ab]{3}"}, {a + b + c for a in "ab" for b in "ab" for c in "ab"}),
    ({"guided_grammar": 'root ::= "yes" | "no"'}, {"yes", "no"}),
    ({"guided_grammar": 'start: "yes" | "no"'}, {"yes", "no"}),
    ({"structured_outputs": {"json": YES_OR_NO}}, {'"yes"', '"no"'}),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, {"yes", "no"}),
    ({"structured_outputs": {"regex": "yes|no"}}, {"yes", "no"}),
    ({"structured_outputs": {"grammar": 'root ::= "yes"'}}, {"yes"}),
    ({"ebnf": 'root ::= "yes"'}, {"yes"}),
    ({"regex": "yes|no"}, {"yes", "no"}),
    ({"json_schema": json.dumps(YES_OR_NO)}, {'"yes"', '"no"'}),
]


@pytest.mark.parametrize(("fields", "allowed"), STRUCTURED)
def test_structured_outputs_have_the_names_of_other_servers(
    served: Served, fields: dict[str, Any], allowed: set[str]
) -> None:
    assert text_of(CHAT, ask(served, CHAT, **fields)) in allowed


@pytest.mark.parametrize("where", ASK)
def test_every_api_has_them(served: Served, where: str) -> None:
    assert text_of(where, ask(served, where, guided_choice=["yes"])) == "yes"
    both = ask(served, where, guided_choice=["yes"], regex="a")
    assert both.status_code == 400
    assert "cannot be combined" in both.text


def test_a_json_object_may_have_a_schema(served: Served) -> None:
    schema = {"properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_object", "schema": schema}
    text = text_of(CHAT, ask(served, CHAT, response_format=form, max_tokens=200))
    assert json.loads(text) == {"a": 1}
    for wrong in (
        {"type": "json_object", "schema": {"type": "nonsense"}},
        {"type": "json_object", "schema": "text"},
        {"type": "text", "schema": {}},
        {"type": "text", "schema": schema},
        {"type": "structural_tag", "structures": []},
    ):
        assert ask(served, CHAT, response_format=wrong).status_code == 400, wrong
    assert ask(served, CHAT, structured_outputs={"structural_tag": "x"}).status_code == 400


VALUES: dict[str, object] = {"continue_final_message": True, "chat_template": "{{ x }}", "n": 2}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_with_its_name(served: Served, name: str) -> None:
    where = next(where for where in (*ASK, "/v1/embeddings") if _refuses(where, name))
    value = VALUES.get(name, ["x"])
    response = ask(served, where, **{name: value})
    assert response.status_code == 400
    error = response.json()["error"]
    assert name in error["message"]
    assert error.get("param", name) == name
    for neutral in (None, *REFUSED[name].neutral):
        assert ask(served, where, **{name: neutral, **script("a")}).status_code == 200
    off = ask(served, where, **{name: False, **script("a")})
    assert off.status_code == (400 if REFUSED[name].false_asks else 200)


def _refuses(where: str, name: str) -> bool:
    return treatment(BODIES[where], name) == "refused"


@pytest.mark.parametrize("where", [*ASK, "/v1/embeddings"])
def test_other_parameters_are_warned_of_and_logged(
    served: Served, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(served, where, frobnicate=1, modle="x", **script("a"))
    if where == "/v1/embeddings":
        answer = ask(served, where, frobnicate=1, modle="x")
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["warnings"]
    assert "'frobnicate' is not a parameter of this endpoint" in first
    assert "Did you mean 'model'?" in second
    assert "ignored=frobnicate,modle" in capsys.readouterr().err
    assert "warnings" not in ask(served, where).json()


GROUPS: list[tuple[str, dict[str, Any], str, str]] = [
    (CHAT, {"stream_options": {"include_usag": True}}, "stream_options.include_usag", "usage"),
    (CHAT, {"thinking": {"type": "enabled", "x": 1}}, "thinking.x", ""),
    (CHAT, {"response_format": {"type": "text", "x": 1}}, "response_format.x", ""),
    (
        CHAT,
        {"tools": [{"type": "function", "function": {"name": "f", "stric": True}}]},
        "tools[0].function.stric",
        "strict",
    ),
    ("/v1/completions", {"stream_options": {"x": 1}}, "stream_options.x", ""),
    ("/v1/responses", {"text": {"verbosity": "low"}}, "text.verbosity", ""),
    (
        "/v1/responses",
        {"text": {"format": {"type": "text", "schem": {}}}},
        "text.format.schem",
        "schema",
    ),
    ("/v1/responses", {"reasoning": {"summary": "auto"}}, "reasoning.summary", ""),
    ("/v1/responses", {"tools": [{"type": "function", "name": "f", "x": 1}]}, "tools[0].x", ""),
    ("/v1/messages", {"thinking": {"type": "disabled", "x": 1}}, "thinking.x", ""),
    ("/v1/messages", {"output_config": {"x": 1}}, "output_config.x", ""),
    ("/v1/messages", {"metadata": {"team": "a"}}, "metadata.team", ""),
    (
        "/v1/messages",
        {"tools": [{"name": "f", "input_schem": {}}]},
        "tools[0].input_schem",
        "input",
    ),
]


@pytest.mark.parametrize(("where", "fields", "name", "meant"), GROUPS)
def test_objects_of_parameters_are_looked_into(
    served: Served, where: str, fields: dict[str, Any], name: str, meant: str
) -> None:
    answer = ask(served, where, **fields, tool_choice=None, **script("a"))
    assert answer.status_code == 200, answer.text
    (warning,) = answer.json()["warnings"]
    assert warning.startswith(f"{name!r} is not a parameter of this endpoint.")
    assert ("Did you mean" in warning) == bool(meant)
    assert meant in warning


def test_null_asks_for_nothing(served: Served) -> None:
    """Clients send back what a response says of its parameters."""
    fields = {"text": {"verbosity": None}, "reasoning": {"effort": None, "summary": None}}
    assert "warnings" not in ask(served, "/v1/responses", **fields, **script("a")).json()


def test_messages_may_have_other_fields(served: Served) -> None:
    """Clients send back whole messages of other servers, and hints about caches."""
    said = {"role": "user", "content": "?", "annotations": [], "x": 1}
    assert "warnings" not in ask(served, CHAT, messages=[said], **script("a")).json()
    cached = {"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}}
    fields = {
        "system": [cached],
        "messages": [{"role": "user", "content": [cached]}],
        "tools": [{"name": "f", "cache_control": {"type": "ephemeral"}}],
        "cache_control": {"type": "ephemeral"},
    }
    assert "warnings" not in ask(served, "/v1/messages", **fields, **script("a")).json()


def test_strict_servers_refuse_them(model: Path) -> None:
    with scripted_server(model, strict_parameters=True) as served:
        for where in BODIES:
            strict = ask(served, where, modle="x")
            assert strict.status_code == 400
            assert "Did you mean 'model'?" in strict.json()["error"]["message"]
            assert ask(served, where).status_code == 200
        for where, fields, name, _ in GROUPS:
            strict = ask(served, where, **fields)
            assert strict.status_code == 400
            assert repr(name) in strict.json()["error"]["message"]


@pytest.mark.parametrize("where", ASK)
def test_streams_have_the_warnings_once(served: Served, where: str) -> None:
    response = ask(served, where, frobnicate=1, stream=True, **script("a"))
    events = events_in(response.text)
    holders = [event.get("response", event.get("message", event)) for event in events]
    found = [holder["warnings"] for holder in holders if "warnings" in holder]
    assert found
    assert all("frobnicate" in warnings[0] for warnings in found)
    assert len(found) == (3 if where == "/v1/responses" else 1)


def test_there_are_not_too_many_warnings(served: Served) -> None:
    answer = ask(served, CHAT, **{f"unknown{number}": 1 for number in range(100)}, **script("a"))
    warnings = answer.json()["warnings"]
    assert len(warnings) == 17
    assert warnings[-1] == "84 more parameters were ignored."


@pytest.mark.parametrize("where", [CHAT, "/v1/completions"])
def test_the_stop_sequence_may_be_part_of_the_text(served: Served, where: str) -> None:
    fields = {**script("one two three"), "stop": [" t"]}
    assert text_of(where, ask(served, where, **fields)) == "one"
    with_stop = ask(served, where, **fields, include_stop_str_in_output=True)
    assert text_of(where, with_stop) == "one t"
    streamed = ask(served, where, **fields, include_stop_str_in_output=True, stream=True)
    choices = [choice for event in events_in(streamed.text) for choice in event["choices"]]
    pieces = [choice.get("delta", {}).get("content") or choice.get("text") for choice in choices]
    assert "".join(filter(None, pieces)) == "one t"


@pytest.mark.parametrize("where", [CHAT, "/v1/completions"])
def test_a_prompt_may_be_truncated_and_logprobs_asked_for_by_llama_servers_name(
    served: Served, where: str
) -> None:
    answer = ask(served, where, truncate_prompt_tokens=1, n_probs=3, **script("ab")).json()
    assert answer["usage"]["prompt_tokens"] == 1
    logprobs = answer["choices"][0]["logprobs"]
    if where == CHAT:
        assert [len(entry["top_logprobs"]) for entry in logprobs["content"]] == [3, 3]
    else:
        assert len(logprobs["tokens"]) == 2


def test_how_a_prompt_ends_can_be_chosen(served: Served) -> None:
    begun = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "So"}]

    def prompt(**fields: object) -> str:
        answer = served(lambda client: client.post("/apply-template", json=fields))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["prompt"])

    assert prompt(messages=begun).endswith("<|im_start|>assistant\nSo")
    continued = prompt(messages=begun, continue_final_message=True, add_generation_prompt=False)
    assert continued.endswith("<|im_start|>assistant\nSo")
    new = prompt(messages=begun, continue_final_message=False)
    assert new.endswith("So<|im_end|>\n<|im_start|>assistant\n")
    bare = prompt(messages=begun[:1], add_generation_prompt=False)
    assert bare.endswith("?<|im_end|>\n")
    for wrong in (
        {"messages": begun[:1], "continue_final_message": True},
        {"messages": begun, "continue_final_message": True, "add_generation_prompt": True},
    ):
        assert ask(served, CHAT, **wrong).status_code == 400


def test_guidance_and_token_healing_reach_the_engine(served: Served) -> None:
    where = "/v1/completions"
    fields = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
    plain = text_of(where, ask(served, where, **fields))
    guided = ask(served, where, **fields, negative_prompt="!!!", cfg_scale=4.0)
    assert text_of(where, guided) != plain
    missing = ask(served, where, **fields, cfg_scale=4.0)
    assert missing.status_code == 400


def test_token_healing_continues_inside_the_last_token(http: httpx.Client) -> None:
    body = {"prompt": "My website is at https:", "temperature": 0, "max_tokens": 4}
    healed = http.post("/v1/completions", json={**body, "token_healing": True}).json()
    assert healed["choices"][0]["text"].startswith("//")


@pytest.mark.parametrize("where", ASK)
def test_false_bans_a_token_as_the_hint_says(served: Served, where: str) -> None:
    hint = ask(served, where, bad_words=["a"])
    assert "logit_bias, with false for every token id" in hint.json()["error"]["message"]
    choice = {"guided_choice": ["a", "b"], "temperature": 0}
    first = text_of(where, ask(served, where, **choice))
    banned = {str(ord(first)): False}
    other = text_of(where, ask(served, where, **choice, logit_bias=banned))
    assert {first, other} == {"a", "b"}
    assert ask(served, where, logit_bias={str(ord(first)): True}).status_code == 400


def test_a_format_of_plain_text_asks_for_nothing(served: Served) -> None:
    fields = {"response_format": {"type": "text"}, **script("yes")}
    assert text_of(CHAT, ask(served, CHAT, **fields)) == "yes"


def _post(served: Served, where: str, body: dict[str, Any]) -> Any:
    return served(lambda client: client.post(where, json=body)).json()


THINKING_APIS = {
    CHAT: ("chat_template_kwargs", "thinking"),
    "/v1/responses": ("chat_template_kwargs",),
    "/v1/messages": ("chat_template_kwargs", "thinking"),
}


def test_reasoning_can_be_switched_off_and_left_in_the_text(tmp_path: Path) -> None:
    off = {
        "chat_template_kwargs": {"enable_thinking": False},
        "thinking": {"type": "disabled"},
    }
    with scripted_server(scripted_model(tmp_path, "qwen3")) as served:
        for where, names in THINKING_APIS.items():
            count = f"{where}/count_tokens" if "messages" in where else f"{where}/input_tokens"
            plain, *others = (
                _post(served, count, {**ASK[where], **({name: off[name]} if name else {})})
                for name in ("", *names)
            )
            for longer in others:  # it has an empty block of reasoning
                assert longer["input_tokens"] > plain["input_tokens"]
            text = "<think>\nWell\n</think>\n\nyes"
            shown = ask(served, where, reasoning_format="none", **script(text))
            assert "<think>" in text_of(where, shown)
            wrong = ask(served, where, chat_template_kwargs={"messages": []})
            assert "chat_template_kwargs cannot set 'messages'" in wrong.text


def test_names_of_other_apis_are_not_lost(served: Served) -> None:
    response = ask(
        served, "/v1/responses", max_output_tokens=None, max_tokens=3, **script("abcdef")
    )
    assert text_of("/v1/responses", response) == "abc"
    message = ask(served, "/v1/messages", stop=["d"], **script("abcdef"))
    assert text_of("/v1/messages", message) == "abc"


def in_the_table(where: str, name: str) -> str:
    """What the table says about a parameter of an endpoint."""
    if where in BODIES:
        return treatment(BODIES[where], name)
    found = treatment(OLLAMA_BODIES[where], name)
    return "in `options`" if found != "honoured" and name in OptionsBody.model_fields else found


def test_the_table_in_the_documentation_is_right() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    section = page.split("### Parameters", 1)[1].split("\n### ", 1)[0]
    table = section.split("\n| endpoint |")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    header, _, *rows = ([cell.strip() for cell in row] for row in rows)
    columns = [re.sub("`", "", name) for name in header[1:]]
    assert columns == [*BODIES, *OLLAMA_BODIES]
    listed: set[str] = set()
    for names, *cells in rows:
        for name in re.findall(r"`(\w+)`", names):
            listed.add(name)
            assert cells == [in_the_table(column, name) for column in columns], name
    bodies = (*BODIES.values(), *OLLAMA_BODIES.values())
    fields = {name for body in bodies for name in body.model_fields}
    assert listed >= REFUSED.keys() | FIELDS.keys() | fields
