"""Files and batches with OpenAI's and Anthropic's own clients."""

import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from serving import PATIENCE, Served, serving

from scripted_gguf import write_scripted_gguf

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    scripts = {"one": "First.", "two": "Second.", "long": "word " * 400}
    model = write_scripted_gguf(tmp_path_factory.mktemp("batches") / "model.gguf", scripts)
    with serving(model, "--threads", 1, "--api-key", "secret", "--context", 4096) as process:
        yield process


@pytest.fixture(scope="module")
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="secret", max_retries=0)


@pytest.fixture(scope="module")
def claude(served: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served.url, api_key="secret", max_retries=0)


def line(custom_id: str, content: str, **fields: object) -> dict[str, Any]:
    body = {"model": "any", "messages": [{"role": "user", "content": content}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def upload(client: openai.OpenAI, lines: list[Any]) -> str:
    content = "".join(
        (each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines
    )
    return client.files.create(file=("in.jsonl", content.encode()), purpose="batch").id


def create(client: openai.OpenAI, lines: list[Any], endpoint: Any = CHAT) -> Any:
    return client.batches.create(
        input_file_id=upload(client, lines), endpoint=endpoint, completion_window="24h"
    )


def ended(client: openai.OpenAI, batch_id: str) -> Any:
    end = time.monotonic() + PATIENCE
    while (batch := client.batches.retrieve(batch_id)).status in ("in_progress", "cancelling"):
        assert time.monotonic() < end
        time.sleep(0.02)
    return batch


def results(client: openai.OpenAI, file_id: str) -> dict[str, Any]:
    lines = client.files.content(file_id).text.splitlines()
    return {each["custom_id"]: each for each in map(json.loads, lines)}


def test_files_are_kept(client: openai.OpenAI) -> None:
    content = b'{"a": "\xc3\xa9"}\r\n\n--x--\n{"b": 1}'
    made = client.files.create(file=("d\u00e9.jsonl", content), purpose="batch")
    assert (made.bytes, made.purpose, made.status) == (len(content), "batch", "processed")
    assert client.files.content(made.id).content == content
    assert client.files.retrieve(made.id).filename == made.filename
    assert made.id in [file.id for file in client.files.list(limit=1)]
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("a", b"a"), purpose="fine-tune")


def test_an_upload_needs_its_fields_and_no_other_endpoint_takes_forms(served: Served) -> None:
    headers = {"authorization": "Bearer secret"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=PATIENCE) as http:
        assert http.post("/v1/files", files={"file": b"x"}).status_code == 400
        assert http.post("/v1/files", json={"file": "x"}).status_code == 400
        assert http.post("/v1/completions", files={"prompt": b"x"}).status_code == 400
        evil = {"origin": "https://evil.example"}
        form: Any = {"files": {"file": b"x"}, "data": {"purpose": "batch"}, "headers": evil}
        assert http.post("/v1/files", **form).status_code == 403


def test_a_batch_is_answered_into_a_file(client: openai.OpenAI) -> None:
    lines = [line("a", "one"), line("b", "two"), line("c", "?", temperature=-1), "", line("d", "x")]
    batch = create(client, lines)
    assert batch.status in ("in_progress", "completed")
    batch = ended(client, batch.id)
    assert batch.status == "completed"
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (4, 3, 1)
    found = results(client, batch.output_file_id)
    assert list(found) == ["a", "b", "d"]
    texts = [
        each["response"]["body"]["choices"][0]["message"]["content"] for each in found.values()
    ]
    assert texts == ["First.", "Second.", "Hello!"]
    (wrong,) = results(client, batch.error_file_id).values()
    assert (wrong["custom_id"], wrong["response"]["status_code"]) == ("c", 400)
    assert "temperature" in wrong["response"]["body"]["error"]["message"]
    assert batch.id in [each.id for each in client.batches.list()]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("{", "invalid_line"),
        ('{"custom_id": "x"}', "invalid_line"),
        ("[" * 200 + "]" * 200, "invalid_line"),
        ({**line("x", "one"), "url": "/v1/embeddings"}, "mismatched_url"),
        (line("a", "one"), "duplicate_custom_id"),
        (line("x", "one", stream=True), "invalid_request"),
    ],
)
def test_a_wrong_line_fails_the_batch(client: openai.OpenAI, wrong: Any, code: str) -> None:
    batch = create(client, [line("a", "one"), wrong])
    assert batch.status == "failed"
    (error,) = batch.errors.data
    assert (error.code, error.line) == (code, 2)


def test_what_is_no_batch_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="there is no file"):
        client.batches.create(input_file_id="x", endpoint=CHAT, completion_window="24h")
    with pytest.raises(openai.BadRequestError, match="endpoint must be one of"):
        create(client, [line("a", "one")], endpoint="/v1/moderations")
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("nothing")
    assert create(client, []).errors.data[0].code == "empty_file"


def test_a_batch_can_be_cancelled(client: openai.OpenAI) -> None:
    batch = create(client, [line(str(number), "long") for number in range(400)])
    cancelled = client.batches.cancel(batch.id)
    assert cancelled.status == "cancelling"
    batch = ended(client, batch.id)
    assert batch.status == "cancelled"
    assert batch.request_counts.completed < 400
    errors = results(client, batch.error_file_id)
    assert errors["399"]["error"]["code"] == "batch_cancelled"


def message(custom_id: str, content: str, **fields: object) -> Any:
    messages = [{"role": "user", "content": content}]
    params = {"model": "any", "max_tokens": 500, "messages": messages, **fields}
    return {"custom_id": custom_id, "params": params}


def test_anthropic_s_batches(claude: anthropic.Anthropic) -> None:
    wrong = message("c", "one", tool_choice={"type": "tool", "name": "none"})
    batch = claude.messages.batches.create(requests=[message("a", "one"), message("b", "x"), wrong])
    assert batch.type == "message_batch"
    end = time.monotonic() + PATIENCE
    while (batch := claude.messages.batches.retrieve(batch.id)).processing_status != "ended":
        assert time.monotonic() < end
        time.sleep(0.02)
    counts = batch.request_counts
    assert (counts.succeeded, counts.errored, counts.processing) == (2, 1, 0)
    found = {each.custom_id: each.result for each in claude.messages.batches.results(batch.id)}
    assert found["a"].message.content[0].text == "First."
    assert found["b"].message.content[0].text == "Hello!"
    assert found["c"].type == "errored"
    assert found["c"].error.error.type == "invalid_request_error"
    assert [each.id for each in claude.messages.batches.list()] == [batch.id]
    assert claude.messages.batches.delete(batch.id).id == batch.id
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.retrieve(batch.id)


def test_anthropic_s_batches_can_be_cancelled(claude: anthropic.Anthropic, served: Served) -> None:
    requests = [message(str(number), "long") for number in range(400)]
    batch = claude.messages.batches.create(requests=requests)
    early = httpx.get(
        f"{served.url}/v1/messages/batches/{batch.id}/results",
        headers={"x-api-key": "secret"},
        timeout=PATIENCE,
    )
    assert early.status_code == 400
    assert "has not ended" in early.json()["error"]["message"]
    claude.messages.batches.cancel(batch.id)
    end = time.monotonic() + PATIENCE
    while (batch := claude.messages.batches.retrieve(batch.id)).processing_status != "ended":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert batch.request_counts.canceled > 0
    with pytest.raises(anthropic.BadRequestError, match="occurs twice"):
        claude.messages.batches.create(requests=[message("a", "one")] * 2)


def test_batches_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("kept")
    scripts = {"one": "First.", "long": "word " * 400}
    model = write_scripted_gguf(folder / "model.gguf", scripts)
    kept = folder / "batches"
    kept.mkdir()
    arguments = (model, "--threads", 1, "--batches-path", kept, "--shutdown-grace", 0)
    many = [line(str(number), "long") for number in range(120)]
    with serving(*arguments) as first:
        client = openai.OpenAI(base_url=f"{first.url}/v1", api_key="x", max_retries=0)
        claude = anthropic.Anthropic(base_url=first.url, api_key="x", max_retries=0)
        done = create(client, [line("a", "one")])
        done = ended(client, done.id)
        begun = create(client, many)
        messages = claude.messages.batches.create(requests=[message("m", "one")])
        deleted = upload(client, ["{}"])
        client.files.delete(deleted)
        while not client.batches.retrieve(begun.id).request_counts.completed:
            time.sleep(0.02)
    with serving(*arguments) as second:
        client = openai.OpenAI(base_url=f"{second.url}/v1", api_key="x", max_retries=0)
        claude = anthropic.Anthropic(base_url=second.url, api_key="x", max_retries=0)
        again = client.batches.retrieve(done.id)
        assert (again.status, again.request_counts.completed) == ("completed", 1)
        assert list(results(client, again.output_file_id)) == ["a"]
        whole = ended(client, begun.id)
        assert whole.request_counts.completed == 120
        found = results(client, whole.output_file_id)
        assert list(found) == [str(number) for number in range(120)]
        assert deleted not in [file.id for file in client.files.list()]
        end = time.monotonic() + PATIENCE
        while claude.messages.batches.retrieve(messages.id).processing_status != "ended":
            assert time.monotonic() < end
            time.sleep(0.02)
        (told,) = claude.messages.batches.results(messages.id)
        assert told.result.message.content[0].text == "First."
