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
from fake_answers import Piece, answer, continuation
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from ports import quiet_port

from ingot.server import page
from ingot.server.errors import ApiError

CONTEXT = 8192
ENDED = [
    {
        "id": f"chatcmpl-{number}",
        "model": "smollm2-135m-instruct",
        "age": 90.0 - 40 * number,
        "prompt_tokens": 300,
        "reused_tokens": 0,
        "generated_tokens": 51,
        "queue_seconds": 0.5 * number,
        "prompt_seconds": 1.0,
        "generation_seconds": 2.5,
    }
    for number in (0, 1)
]
MODELS = {  # bytes, parameters and quantization
    "smollm2-135m-instruct": (91_000_000, 134_515_008, "Q4_1"),
    "gemma-3-270m": (1_240_000_000, 1_268_098_176, "Q4_K_M"),
}


class FakeServer:
    """A running server; `url` is its address."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []  # of all chat requests
        self.keys: list[str] = []  # that are let in; none: everybody is
        self.refusals = 0  # how many requests are still told that the queue is full
        self.hold_after: int | None = None  # tokens that a stream writes before it waits
        self.cut_after: int | None = None  # tokens that a stream writes before it breaks off
        self.length = 10**9  # tokens after which an answer has reached its length limit
        self.progress: list[int] = []  # prompt tokens that are read, in steps; of 1000
        self.past: list[dict[str, Any]] = []  # what the server remembers of the last minutes
        self.mcp: list[dict[str, Any]] = []  # MCP servers; none: MCP is off
        self.tool_calls: list[dict[str, Any]] = []  # that MCP servers have run
        self.allow_downloads = False
        self.downloads: list[tuple[str, str]] = []  # what was asked: a verb, and a name
        self.arrived: list[str] = []  # models that were downloaded
        self.replicas: list[dict[str, Any]] = []  # of a cluster; none: this is a single server
        self.guessed = (0, 0)  # tokens that speculation guessed, and those that were right
        self.pause = 0.0  # seconds between two tokens
        self.repeats = False  # whether an answer begins again at its end
        self.states = dict(zip(MODELS, ("loaded", "unloaded"), strict=True))
        self._events: list[dict[str, Any]] = []  # of models, from the beginning
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

    def reset(self) -> None:
        """Hold no stream, and forget what was asked."""
        self.hold_after = None
        self.bodies.clear()
        self._held.clear()

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

        @app.exception_handler(ApiError)
        async def refuse(_: Request, error: ApiError) -> Response:
            return _error(error.info.status, str(error), "refused")

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            return {"data": [self._listed(name) for name in (*MODELS, *self.arrived)]}

        @app.get("/models/downloads")
        async def downloads() -> dict[str, Any]:
            return {"allowed": self.allow_downloads, "data": self._running_downloads()}

        @app.post("/models/download")
        async def download(request: Request) -> Response:
            name = (await request.json())["model"]
            if name.startswith("https:"):
                return _error(400, f"{name} cannot be downloaded for a client.", "refused")
            self.downloads.append(("begin", name))
            self.tell_download(name, "waiting")
            return JSONResponse({"success": True})

        @app.post("/models/download/cancel")
        async def cancel(request: Request) -> dict[str, bool]:
            name = (await request.json())["model"]
            self.downloads.append(("cancel", name))
            self.tell_download(name, "cancelled")
            return {"success": True}

        @app.post("/models/load")
        async def load(request: Request) -> dict[str, bool]:
            self._set_state((await request.json())["model"], "loading", progress={"value": 0.25})
            return {"success": True}

        @app.post("/models/unload")
        async def unload(request: Request) -> Response:
            if self.open_streams:
                return _error(409, "The model is answering 1 request.", "busy")
            self._set_state((await request.json())["model"], "unloaded")
            return JSONResponse({"success": True})

        @app.get("/models/sse")
        async def watch() -> Response:
            return StreamingResponse(self._watch(), media_type="text/event-stream")

        @app.get("/props")
        async def props(model: str = "") -> dict[str, Any]:
            own = dict(zip(MODELS, (0.8, 0.25), strict=True))  # temperatures
            params = {"temperature": own.get(model), "top_p": 0.95, "top_k": 40, "min_p": 0.05}
            return {"default_generation_settings": {"params": params | {"repeat_penalty": 1.0}}}

        @app.get("/api/status")
        async def status() -> dict[str, Any]:
            return self._status()

        @app.get("/mcp/servers")
        async def mcp_servers() -> Response:
            if not self.mcp:
                return _error(404, "MCP is off.", "not_found")
            return JSONResponse({"data": self.mcp})

        @app.post("/mcp/call")
        async def mcp_call(request: Request) -> dict[str, Any]:
            body = await request.json()
            self.tool_calls.append(body)
            return {"text": f"{body['tool']} says 12 degrees", "is_error": False}

        @app.get("/api/status/history")
        async def history() -> dict[str, Any]:
            return {"samples": self.past}

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

    def _calls(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The calls of all offered tools, in pieces, if the user has asked for tools."""
        if "tools" not in body or "tools" not in (body["messages"][-1]["content"] or ""):
            return []
        return [
            {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": index, **part}]}}]}
            for index, tool in enumerate(body["tools"])
            for part in (
                {"id": f"call_{index}", "function": {"name": tool["function"]["name"]}},
                {"function": {"arguments": '{"city": '}},
                {"function": {"arguments": '"Bonn"}'}},
            )
        ]

    def _listed(self, name: str) -> dict[str, Any]:
        size, parameters, quantization = MODELS.get(name, (1_000_000_000, 1_500_000_000, "Q8_0"))
        meta = {"n_params": parameters, "quantization": quantization}
        status = {"value": self.states.get(name, "unloaded")}
        return {"id": name, "size": size, "meta": meta, "status": status}

    def _set_state(self, name: str, state: str, **more: Any) -> None:
        self.states[name] = state
        self._events.append(
            {"model": name, "event": "model_status", "data": {"status": state} | more}
        )

    def tell_download(self, name: str, status: str, done: int = 0, total: int = 0) -> None:
        """How far a download is; at its end, the model is listed."""
        data = {"status": status, "stage": "downloading model.gguf", "done": done, "total": total}
        data |= {"error": "the disk is full" if status == "failed" else None, "model": name}
        if status == "done":
            self.arrived.append(name)
        self._events.append({"model": name, "event": "download", "data": data})

    def _running_downloads(self) -> list[dict[str, Any]]:
        last = {each["model"]: each for each in self._events if each["event"] == "download"}
        running = ("waiting", "downloading")
        return [
            {"model": name, "data": each["data"]}
            for name, each in last.items()
            if each["data"]["status"] in running
        ]

    def finish_loading(self, name: str) -> None:
        """Let a model be loaded."""
        self._set_state(name, "loaded")

    async def _watch(self) -> AsyncIterator[str]:
        sent = len(self._events)
        for download in self._running_downloads():
            yield _event(download | {"event": "download"})
        while not self._server.should_exit:
            while sent < len(self._events):
                yield _event(self._events[sent])
                sent += 1
            await asyncio.sleep(0.01)

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[str]:
        prompt = sum(len((message["content"] or "").split()) for message in body["messages"])
        self.prompt += prompt
        self.open_streams += 1
        count = 0
        reason = "stop"
        calls = self._calls(body)
        try:
            for done in self.progress if body.get("return_progress") else ():
                yield _event(_progress(done))
                while done < 1000 and not self._held.is_set():
                    await asyncio.sleep(0.01)
            for chunk in calls:
                yield _event(chunk)
                reason = "tool_calls"
            for piece in () if calls else self._pieces(body):
                if count == self.length:
                    reason = "length"
                    break
                count += 1
                yield _event(_chunk(body, piece))
                self.written += 1
                if count == self.cut_after:
                    raise ConnectionResetError("the test cuts the stream")
                while count == self.hold_after and not self._held.is_set():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(self.pause)
            yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
            usage = {"prompt_tokens": prompt, "completion_tokens": count}
            yield _event({"choices": [], "usage": usage})
            yield "data: [DONE]\n\n"
        finally:
            self.open_streams -= 1

    def _pieces(self, body: dict[str, Any]) -> Iterator[Piece]:
        *before, last = [message["content"] for message in body["messages"]]
        if body.get("continue_final_message"):
            yield from continuation(before[-1], last)
            return
        question = last
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
            "queue_seconds": 0.25,
            "prompt_seconds": 0.75,
            "generation_seconds": 1.5,
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
            "text_steps": self.written - self.guessed[1],
            "guessed_tokens": self.guessed[0],
            "accepted_tokens": self.guessed[1],
            "preemptions": 0,
            "cache_blocks": 512,
            "cache_blocks_held": 40 * running,
            "cache_blocks_kept": min(300, self.written // 4),
            "requests": [request] * running,
        }
        if self.replicas:
            loaded["replicas"] = self.replicas
        idle = {"name": "gemma-3-270m", "loaded": False, "context": None}
        uptime = time.monotonic() - self._began
        return {"uptime_seconds": uptime, "models": [loaded, idle], "ended": ENDED}


def _chunk(body: dict[str, Any], piece: Piece) -> dict[str, Any]:
    top = [_logprob(text, value) for text, value in piece.logprobs]
    own = next((value for text, value in piece.logprobs if text == piece.text), -6.0)
    content = _logprob(piece.text, own) | {"top_logprobs": top}
    delta = {"reasoning_content" if piece.thought else "content": piece.text}
    choice = {"index": 0, "delta": delta, "logprobs": {"content": [content]}}
    return {"model": body.get("model"), "choices": [choice | {"finish_reason": None}]}


def _progress(done: int) -> dict[str, Any]:
    progress = {"total": 1000, "cache": 0, "processed": done, "time_ms": 1}
    return {"choices": [{"index": 0, "delta": {}}], "prompt_progress": progress}


def _logprob(text: str, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": list(text.encode())}


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _error(status: int, text: str, code: str, headers: dict[str, str] | None = None) -> Response:
    body = {"error": {"message": text, "type": "invalid_request_error", "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)
