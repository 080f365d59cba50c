"""The tests on Ray that take minutes: scaling, updates and lost nodes under load, many rows.

`make test-ray` runs them; their name keeps them out of the others.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray_servers import (
    CHAT,
    PATIENCE,
    WORDS,
    actors,
    config,
    counts,
    deployed,
    kill_worker,
    serving,
    streamed,
    until,
)
from test_batch_on_ray import lines, written

from ingot import store
from ingot.errors import ConfigError
from ingot.ray.cores import claim
from unit.store.model_server import ModelServer

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # Ray's own


class Load:
    """Streams, one after the other in each of some threads."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str | None]] = []
        self.stopped = False

    def ask(self, url: str, thread: int) -> None:
        number = 0
        while not self.stopped:
            number += 1
            self.found.append(streamed(url, f"{thread} {number} long"))


@contextmanager
def load(url: str, threads: int) -> Iterator[Load]:
    """Streams until the end of the context."""
    made = Load()
    workers = [threading.Thread(target=made.ask, args=(url, each)) for each in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield made
    finally:
        made.stopped = True
        for worker in workers:
            worker.join()


def test_scaling_loses_no_request(cluster: Any, model: Path) -> None:
    assert cluster is not None
    scale = {"replicas": 1, "max_replicas": 3, "target_requests": 2}
    with serving(model, **scale, upscale_delay=2, downscale_delay=5) as url:
        with load(url, 8) as many:
            until(lambda: len(actors()) == 3)
        with load(url, 1) as few:
            until(lambda: len(actors()) == 1)
    assert set(many.found + few.found) == {("word " * WORDS, None)}


def test_a_rolling_update_loses_no_stream(cluster: Any, model: Path) -> None:
    from ray import serve  # noqa: PLC0415

    from ingot.ray import app  # noqa: PLC0415

    assert cluster is not None
    with serving(model, replicas=2) as url, load(url, 4) as streams:
        before = set(actors())
        until(lambda: len(streams.found) > 3)
        changed = config(model, replicas=2).model_copy(update={"server": {"max_tokens": 3000}})
        serve.run(app(changed), name="ingot")
        until(lambda: len(actors()) == 2 and not before & set(actors()))
        done = len(streams.found)
        until(lambda: len(streams.found) > done + 4)
    assert set(streams.found) == {("word " * WORDS, None)}


def test_replicas_that_are_added_do_not_take_over_what_one_keeps(cluster: Any, model: Path) -> None:
    assert cluster is not None
    scale = {"replicas": 1, "max_replicas": 4, "target_requests": 1, "upscale_delay": 1}
    with serving(model, **scale) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        upload = {"files": {"file": ("in.jsonl", b"kept")}, "data": {"purpose": "batch"}}
        kept = client.post("/v1/files", **upload).json()["id"]
        (first,) = actors()
        with load(url, 8):
            until(lambda: len(counts(url, "ingot_running")) == 4)
        assert first in actors()
        for _ in range(8):
            found = client.get(f"/v1/files/{kept}/content")
            assert (found.status_code, found.text) == (200, "kept")


def test_a_node_goes_and_another_comes(cluster: Any, model: Path) -> None:
    node = cluster.add_node(num_cpus=4)
    with serving(model, replicas=4, cpus=1) as url:
        with load(url, 4) as streams:
            until(lambda: len(counts(url, "ingot_running")) == 4)
            cluster.remove_node(node)
            cluster.add_node(num_cpus=4)
            until(lambda: len(counts(url, "ingot_running")) == 4)
        assert {error for _, error in streams.found} <= {None, "replica_lost"}
        assert streamed(url, "one") == ("First.", None)


def test_a_stuck_engine_is_replaced(cluster: Any, model: Path) -> None:
    import ray  # noqa: PLC0415

    def hang(actor: Any) -> None:
        replica = actor._replica_impl._user_callable_wrapper.user_callable
        engine = replica._server.catalog.default.llm.engine
        engine._loop._inbox.put(threading.Event().wait)  # a step that does not end

    assert cluster is not None
    described = config(model, replicas=2)
    described.engine["step_timeout"] = 5
    with deployed(described) as url:
        victim, handle = next(iter(actors().items()))
        ray.get(handle.__ray_call__.remote(hang))
        with load(url, 4) as streams:
            until(lambda: len(actors()) == 2 and victim not in actors())
        assert {error for _, error in streams.found} <= {None, "engine_unavailable", "replica_lost"}
        until(lambda: len(counts(url, "ingot_running")) == 2)
        assert streamed(url, "one") == ("First.", None)


def test_tokens_in_flight_bring_a_replica(cluster: Any, model: Path) -> None:
    assert cluster is not None
    # By requests alone, one replica would be enough.
    scale = {"max_replicas": 2, "target_requests": 100, "target_tokens": 50, "upscale_delay": 1}
    with serving(model, **scale) as url:
        assert len(actors()) == 1
        with load(url, 4) as streams:
            until(lambda: len(actors()) == 2)
    assert set(streams.found) == {("word " * WORDS, None)}


def test_a_model_is_downloaded_once_for_all_replicas_of_a_machine(
    cluster: Any, model: Path
) -> None:
    assert cluster is not None
    hub = ModelServer("127.0.0.1")
    hub.files["/once.gguf"] = model.read_bytes()
    try:
        described = config(model, replicas=3)
        described.models[:] = [f"m={hub.url}/once.gguf"]
        with deployed(described) as url:
            until(lambda: len(counts(url, "ingot_running")) == 3)
            assert streamed(url, "one") == ("First.", None)
        # Each of three replicas may look at it before; one fetches it.
        assert len(hub.gets("/once.gguf")) <= 3 + 1
    finally:
        hub.close()
        if (downloaded := store.find(f"{hub.url}/once.gguf")) is not None:
            downloaded.unlink()


def test_four_replicas_find_what_one_engine_finds(cluster: Any, model: Path) -> None:
    assert cluster is not None
    found: dict[int, float] = {}
    for replicas in (1, 4):
        described = config(model, replicas=replicas)
        described.engine["cache_tokens"] = 16384 // replicas * 4  # no replica has all of it
        with deployed(described) as url:
            found[replicas] = talked(url)
            asked = counts(url, "ingot_requests_total").values()
    largest = max(asked) / (sum(asked) / 4)
    print(
        f"\nprompt tokens found in caches: {found[4]:.1%} with four replicas, {found[1]:.1%} with "
        f"one ({found[4] / found[1]:.1%} of it); largest share: {largest:.2f} times the mean"
    )
    assert found[1] > 0.5  # there is something to find
    assert found[4] >= 0.9 * found[1]
    assert largest <= 1.5


def talked(url: str) -> float:
    """The share of prompt tokens found in caches, of users who talk under a few system prompts."""
    users = [
        [{"role": "system", "content": f"{user % 6} is the rule. " * 60}] for user in range(48)
    ]
    read = cached = 0

    def ask(user: int) -> tuple[int, int]:
        body = {"model": "m", "messages": users[user], "max_tokens": 4}
        usage = httpx.post(url + CHAT, json=body, timeout=PATIENCE).json()["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    with ThreadPoolExecutor(8) as pool:
        for turn in range(5):
            for number, messages in enumerate(users):
                messages.append({"role": "user", "content": f"{number} asks {turn} " * 20})
            for prompt, reused in pool.map(ask, range(len(users))):
                read += prompt
                cached += reused
            for messages in users:
                messages.append({"role": "assistant", "content": "yes"})
    return cached / read


def test_two_thousand_rows_and_three_kills(cluster: Any, model: Path, tmp_path: Path) -> None:
    """`ingot batch --ray` as its users run it, equal to the same command without Ray."""
    rows = 2000
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in lines(rows)))
    flags = ["-m", f"m={model}", "--threads", "1", "--context", "4096"]
    on_ray = ["--ray-address", cluster.address, "--replicas", "2", "--replica-cpus", "0.5"]
    begun = start_batch(source, tmp_path / "ray", *flags, *on_ray)
    answers = tmp_path / "ray/answers.jsonl"
    for kill in range(1, 4):
        until(lambda done=kill * rows // 4: answered_rows(answers) >= done)
        kill_worker("Worker")
    _, said = begun.communicate(timeout=PATIENCE * 5)
    assert begun.returncode == 0, said
    assert f"{rows} requests: {rows - 1} answered, 1 failed (errors.jsonl)" in said
    _, said = start_batch(source, tmp_path / "alone", *flags).communicate(timeout=PATIENCE * 5)
    found = written(tmp_path / "ray")
    assert found == written(tmp_path / "alone")
    assert len({custom_id for custom_id, *_ in found}) == len(found) == rows


def start_batch(source: Path, folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from ingot.cli import main; main()", "batch"]
    return subprocess.Popen(
        [*command, str(source), str(folder), *flags], stderr=subprocess.PIPE, text=True
    )


def answered_rows(answers: Path) -> int:
    return len(answers.read_bytes().splitlines()) if answers.exists() else 0


def test_a_replica_of_a_real_model_is_killed(cluster: Any, smollm2_path: Path) -> None:
    """16 streams of SmolLM2: what is not lost is what it says when nothing is killed."""
    import ray  # noqa: PLC0415

    assert cluster is not None
    prompts = [f"Count from {number} to one hundred." for number in range(16)]
    fields = {"temperature": 0, "max_tokens": 120}

    def asked(url: str, prompt: str) -> tuple[str, str | None]:
        return streamed(url, prompt, **fields)

    described = config(smollm2_path, replicas=2)
    with deployed(described) as url, ThreadPoolExecutor(16) as pool:
        undisturbed = list(pool.map(lambda prompt: asked(url, prompt), prompts))
        assert {error for _, error in undisturbed} == {None}
        assert all(text for text, _ in undisturbed)
        streams = [pool.submit(asked, url, prompt) for prompt in prompts]
        until(lambda: min(counts(url, "ingot_running").values()) > 1)
        victim, handle = next(iter(actors().items()))
        ray.kill(handle, no_restart=True)
        found = [each.result() for each in streams]
        whole = [pair for pair in zip(undisturbed, found, strict=True) if pair[1][1] is None]
        assert {error for _, error in found} <= {None, "replica_lost"}
        assert len(whole) >= 4
        assert all(before == after for before, after in whole)
        until(lambda: len(actors()) == 2 and victim not in actors())
        until(lambda: len(counts(url, "ingot_running")) == 2)
        assert asked(url, prompts[0]) == undisturbed[0]


def test_pinned_replicas_share_no_core(cluster: Any, model: Path) -> None:
    assert cluster is not None
    cores = len(os.sched_getaffinity(0))
    with serving(model, replicas=cores, cpus=1, pin=True) as url:
        until(lambda: len(counts(url, "ingot_running")) == cores)
        assert streamed(url, "one") == ("First.", None)
        folder = Path(tempfile.gettempdir()) / f"ingot-cores-{os.getuid()}"
        with pytest.raises(ConfigError, match="other replicas have all of them"):
            claim(1, folder)
