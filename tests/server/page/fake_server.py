"""A server for the page's tests: the real page, and an API whose answers are scripted.

Tests steer it by its fields: they hold a stream in the middle, fill the queue, ask for a key, take
the server away. It knows nothing of models.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from fake_answers import Piece, answer
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from ports import quiet_port

from ingot.server import page

CONTEXT = 8192


class FakeServer:
    """A running server; `url` is its address."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []  # of all chat requests
        self.keys: list[str] = []  # that are let in; none: everybody is
        self.refusals = 0  # how many requests are still told that the queue is full
        self.hold_after: int | None = None  # tokens that a stream writes before it waits
        self.cut_after: int | None = None  # tokens that a stream writes before it breaks off
        self.pause = 0.0  # seconds between two tokens
        self.repeats = False  # whether an answer begins again at its end
        self.open_streams = 0
        self.written = 0
        self.prompt = 0
        self._began = time.monotonic()
        self._held = threading.Event()
        port = quiet_port()
        self.url = f"http://127.0.0.1:{port}"
        self._listen(port)

    def release(self) -> None:
        """Let held streams go on."""
        self._held.set()

    def stop(self) -> None:
        """Take the server away."""
        self.release()
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()

    def restart(self) -> None:
        """Bring the server back at the same address."""
        self._listen(int(self.url.rpartition(":")[2]))

    def _listen(self, port: int) -> None:
        listening = socket.create_server(("127.0.0.1", port))
        config = uvicorn.Config(self._app(), log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, daemon=True
        )
        self._thread.start()

    def _app(self) -> FastAPI:
        app = FastAPI()
        app.include_router(page.router())

        @app.middleware("http")
        async def check_key(request: Request, call_next: Any) -> Response:
            open_to_all = request.url.path == "/" or request.url.path.startswith("/page/")
            key = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if self.keys and not open_to_all and key not in self.keys:
                return _error(401, "This key is not known.", "invalid_api_key")
            response: Response = await call_next(request)
            return response

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            return {"data": [{"id": "smollm2-135m-instruct"}, {"id": "gemma-3-270m"}]}

        @app.get("/props")
        async def props() -> dict[str, Any]:
            params = {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_p": 0.05}
            return {"default_generation_settings": {"params": params | {"repeat_penalty": 1.0}}}

        @app.get("/api/status")
        async def status() -> dict[str, Any]:
            return self._status()

        @app.post("/v1/chat/completions")
        async def chat(request: Request) -> Response:
            body = await request.json()
            self.bodies.append(body)
            if self.refusals > 0:
                self.refusals -= 1
                return _error(429, "The queue is full.", "queue_full", {"Retry-After": "4"})
            if "too long" in body["messages"][-1]["content"]:
                text = f"The prompt has 9000 tokens; the context holds {CONTEXT}."
                return _error(400, text, "context_length_exceeded")
            return StreamingResponse(self._stream(body), media_type="text/event-stream")

        return app

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[str]:
        prompt = sum(len(message["content"].split()) for message in body["messages"])
        self.prompt += prompt
        self.open_streams += 1
        count = 0
        try:
            for count, piece in enumerate(self._pieces(body["messages"][-1]["content"]), 1):
                yield _event(_chunk(body, piece))
                self.written += 1
                if count == self.cut_after:
                    raise ConnectionResetError("the test cuts the stream")
                while count == self.hold_after and not self._held.is_set():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(self.pause)
            yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            usage = {"prompt_tokens": prompt, "completion_tokens": count}
            yield _event({"choices": [], "usage": usage})
            yield "data: [DONE]\n\n"
        finally:
            self.open_streams -= 1

    def _pieces(self, question: str) -> Iterator[Piece]:
        yield from answer(question)
        while self.repeats:
            yield from answer(question)

    def _status(self) -> dict[str, Any]:
        running = self.open_streams
        request = {
            "id": "chatcmpl-7f3a91",
            "state": "generating",
            "prompt_tokens": 24,
            "generated_tokens": self.written,
            "seconds": 2.5,
        }
        loaded = {
            "name": "smollm2-135m-instruct",
            "loaded": True,
            "context": CONTEXT,
            "slots": 32,
            "running": running,
            "waiting": self.refusals,
            "steps": self.written,
            "prompt_tokens": self.prompt,
            "reused_tokens": self.prompt // 2,
            "generated_tokens": self.written,
            "preemptions": 0,
            "cache_blocks": 512,
            "cache_blocks_held": 40 * running,
            "cache_blocks_kept": min(300, self.written // 4),
            "requests": [request] * running,
        }
        idle = {"name": "gemma-3-270m", "loaded": False, "context": None}
        return {"uptime_seconds": time.monotonic() - self._began, "models": [loaded, idle]}


def _chunk(body: dict[str, Any], piece: Piece) -> dict[str, Any]:
    top = [_logprob(text, value) for text, value in piece.logprobs]
    own = next((value for text, value in piece.logprobs if text == piece.text), -6.0)
    content = _logprob(piece.text, own) | {"top_logprobs": top}
    delta = {"reasoning_content" if piece.thought else "content": piece.text}
    choice = {"index": 0, "delta": delta, "logprobs": {"content": [content]}}
    return {"model": body.get("model"), "choices": [choice | {"finish_reason": None}]}


def _logprob(text: str, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": list(text.encode())}


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _error(status: int, text: str, code: str, headers: dict[str, str] | None = None) -> Response:
    body = {"error": {"message": text, "type": "invalid_request_error", "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)
