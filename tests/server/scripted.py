"""A model that writes given texts: a tiny one whose every token a grammar forces.

Its tokens are bytes, so `max_tokens` cuts a text after that many bytes.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from in_process import asgi_client

from data.chat_templates.cases import families
from tiny_llama import write_tiny_llama

TEMPLATES = {family.name: family.source for family in families()}
Ask = Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]


def scripted_model(folder: Path, family: str) -> Path:
    """A model file with the chat template of a family."""
    return write_tiny_llama(
        folder / "scripted.gguf",
        template=TEMPLATES[family],
        keys={"llama.context_length": 4096},
    )


def script(text: str) -> dict[str, str]:
    """The fields of a request whose answer is this text."""
    return {"grammar": f"root ::= {json.dumps(text)}"}


@contextmanager
def scripted_server(
    path: Path, served: dict[str, object] | None = None, **options: object
) -> Iterator[Callable[[Ask], Any]]:
    """A server of this model: a function that runs what a client does, and returns its result."""
    with asyncio.Runner() as runner:
        context = asgi_client(path, served, **options)
        client = runner.run(context.__aenter__())
        try:
            yield lambda ask: runner.run(ask(client))
        finally:
            runner.run(context.__aexit__(None, None, None))


def events_in(text: str) -> list[dict[str, Any]]:
    """The JSON events of a stream."""
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]
