"""A server with two replicas on a real Ray cluster, asked by the clients of others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from ray_servers import (
    CHAT,
    PATIENCE,
    WORDS,
    actors,
    chat,
    config,
    counts,
    deployed,
    streamed,
    until,
)

from scripted_gguf import write_scripted_gguf

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module")
def url(cluster: Any, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert cluster is not None
    scripts = {"one": "Another first."}
    other = write_scripted_gguf(tmp_path_factory.mktemp("other") / "other.gguf", scripts)
    described = config(model, replicas=2)
    described.models.append(f"other={other}")
    with deployed(described) as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)


def test_clients_of_all_families(url: str, client: openai.OpenAI) -> None:
    said = client.chat.completions.create(model="m", messages=chat("one")["messages"])
    assert said.choices[0].message.content == "First."
    claude = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)
    with claude.messages.stream(
        model="m", max_tokens=50, messages=chat("two")["messages"]
    ) as stream:
        assert "".join(stream.text_stream) == "Second."
    replies = ollama.Client(url).chat("m", messages=chat("two")["messages"], stream=True)
    assert "".join(each.message.content or "" for each in replies) == "Second."
    assert "<html" in httpx.get(url, timeout=PATIENCE).text
    assert [each.id for each in client.models.list()] == ["m", "other"]
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="m", temperature=-1, messages=chat("one")["messages"])


def test_several_models(url: str, client: openai.OpenAI) -> None:
    for _ in range(4):  # whichever replica it is
        said = client.chat.completions.create(model="other", messages=chat("one")["messages"])
        assert (said.model, said.choices[0].message.content) == ("other", "Another first.")
    with pytest.raises(openai.NotFoundError, match="nothing"):
        client.chat.completions.create(model="nothing", messages=chat("one")["messages"])
    # What gateways ask for, of each model.
    text = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
    for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
        for model in ("m", "other"):
            assert f'vllm:{name}{{model_name="{model}"}} ' in text


def test_a_request_has_one_id_in_all_logs(url: str, cluster: Any) -> None:
    answer = httpx.post(
        url + CHAT, json=chat("one"), headers={"x-request-id": "mine-1"}, timeout=PATIENCE
    )
    assert answer.headers.get_list("x-request-id") == ["mine-1"]
    logs = Path(cluster.head_node.get_logs_dir_path())

    def lines(pattern: str) -> list[str]:
        texts = [path.read_text(errors="replace") for path in logs.glob(pattern)]
        return [line for text in texts for line in text.splitlines() if "mine-1" in line]

    for name in ("proxy_*", "replica_ingot_front_*", "replica_ingot_ingot_*"):
        until(partial(lambda pattern: len(lines(pattern)) == 1, f"serve/{name}.log"))
    # The access log of the replica, with what the request was.
    access = f"id=mine-1 client=127.0.0.1 method=POST path={CHAT}"
    until(lambda: any(access in line for line in lines("worker-*.err")))


def test_what_one_replica_keeps_is_found_again(client: openai.OpenAI) -> None:
    for number in range(4):  # chance would hide one replica's memory from the other
        made = client.files.create(file=("in.jsonl", b"%d\n" % number), purpose="batch")
        assert client.files.content(made.id).content == b"%d\n" % number
        first = client.responses.create(model="m", input="one")
        again = client.responses.create(model="m", input="two", previous_response_id=first.id)
        assert again.output_text == "Second."


def test_both_replicas_work_and_their_metrics_are_added_up(url: str) -> None:
    before = counts(url, "ingot_generated_tokens_total")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: streamed(url, f"{number} long"), range(8)))
    assert found == [("word " * WORDS, None)] * 8
    after = counts(url, "ingot_generated_tokens_total")
    assert len(after) == 2
    assert all(after[name] > before.get(name, 0) for name in after)
    text = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
    name = "ingot_generated_tokens_total{"
    totals = [line.split()[-1] for line in text.splitlines() if line.startswith(name)]
    assert sum(map(float, totals)) == sum(after.values())
    # What the page's dashboard shows.
    model = httpx.get(f"{url}/api/status", timeout=PATIENCE).json()["models"][0]
    assert {each["name"] for each in model["replicas"]} == set(after)
    assert model["slots"] == sum(each["slots"] for each in model["replicas"])


def test_a_client_that_goes_ends_the_work(url: str) -> None:
    before = sum(counts(url, "ingot_generated_tokens_total").values())
    body = chat("long", stream=True, ignore_eos=True, max_tokens=3500)
    with httpx.stream("POST", url + CHAT, json=body, timeout=PATIENCE) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        until(lambda: sum(counts(url, "ingot_running").values()) == 1)
    until(lambda: sum(counts(url, "ingot_running").values()) == 0)
    assert sum(counts(url, "ingot_generated_tokens_total").values()) < before + 3500


def test_a_conversation_stays_with_its_cache(url: str) -> None:
    def cached(messages: list[dict[str, str]]) -> float:
        body = {"model": "m", "messages": messages, "max_tokens": 4}
        usage = httpx.post(url + CHAT, json=body, timeout=PATIENCE).json()["usage"]
        share: float = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
        return share

    for talk in range(4):
        messages = [{"role": "user", "content": f"{talk} " * 200}]
        cached(messages)
        for _ in range(3):
            messages += [
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": f"{talk} more " * 20},
            ]
            assert cached(messages) > 0.6


def test_a_killed_replica_ends_only_its_own_streams(url: str) -> None:
    import ray  # noqa: PLC0415

    with ThreadPoolExecutor(16) as pool:
        streams = [pool.submit(streamed, url, f"{number} long") for number in range(16)]
        until(
            lambda: len([each for each in counts(url, "ingot_running").values() if each > 1]) == 2
        )
        victim, handle = next(iter(actors().items()))
        ray.kill(handle, no_restart=True)
        found = [each.result() for each in streams]
    whole = [text for text, error in found if error is None]
    assert {error for _, error in found} <= {None, "replica_lost"}
    assert set(whole) == {"word " * WORDS}
    assert len(whole) >= 4  # those of the other one
    until(lambda: len(actors()) == 2 and victim not in actors())
    until(lambda: len(counts(url, "ingot_running")) == 2)
    assert streamed(url, "one") == ("First.", None)
