"""A server on the tests' own Ray cluster."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 120  # seconds, on a machine that does other things
WORDS = 1000  # of the long text
CHAT = "/v1/chat/completions"


def serving(model: Path, **scale: Any) -> AbstractContextManager[str]:
    """The URL of a server with replicas, until the end of the context."""
    return deployed(config(model, **scale))


@contextmanager
def deployed(described: Any) -> Iterator[str]:
    """The URL of a server with a configuration, until the end of the context."""
    from ray import serve  # noqa: PLC0415

    from ingot.ray import app  # noqa: PLC0415

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    try:
        serve.run(app(described), name="ingot")
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()


def config(model: Path, **scale: Any) -> Any:
    """The configuration of such a server."""
    from ingot.ray import AppConfig  # noqa: PLC0415

    return AppConfig(
        models=[f"m={model}"],
        engine={"threads": 1, "context": 4096},
        scale={"cpus": 0.5, **scale},
    )


def chat(content: str, **fields: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


def streamed(url: str, content: str, **fields: object) -> tuple[str, str | None]:
    """The text of a stream, and the error with which it ended."""
    body = chat(content, stream=True, **fields)
    text, error, done = "", None, False
    with httpx.stream("POST", url + CHAT, json=body, timeout=PATIENCE) as response:
        if response.status_code != 200:
            return "", json.loads(response.read())["error"]["code"]
        for line in response.iter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                found = json.loads(line[6:])
                if "error" in found:
                    error = found["error"]["code"]
                else:
                    text += found["choices"][0]["delta"].get("content") or ""
    assert done or error, "a stream ended in the middle without a word"
    return text, error


def counts(url: str, name: str) -> dict[str, float]:
    """A metric by replica, added up over the models."""
    text = httpx.get(f"{url}/metrics", params={"by": "replica"}, timeout=PATIENCE).text
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(name + "{"):
            labels, _, value = line.rpartition(" ")
            replica = labels.partition('replica="')[2].partition('"')[0]
            found[replica] = found.get(replica, 0) + float(value)
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for something."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.2)


def actors() -> dict[str, Any]:
    """The replicas by name, as Ray knows them."""
    import ray  # noqa: PLC0415
    from ray.util import list_named_actors  # noqa: PLC0415

    names = [
        each["name"]
        for each in list_named_actors(all_namespaces=True)
        if each["name"].startswith("SERVE_REPLICA::ingot#ingot#")
    ]
    return {name.rpartition("#")[2]: ray.get_actor(name, namespace="serve") for name in names}


def kill_worker(name: str) -> None:
    """Kill a worker of a class whose name begins so; Ray starts it again."""
    from ray.util.state import list_actors  # noqa: PLC0415

    alive = [each for each in list_actors() if each.state == "ALIVE"]
    (victim, *_) = [each for each in alive if each.class_name.startswith(name)]
    os.kill(victim.pid, signal.SIGKILL)  # all nodes are on this machine
